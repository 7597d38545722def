/* SPDX-License-Identifier: MIT
 *
 * shape.c: from key-values to the numbers of a model.
 *
 * llama.cpp reads the same keys in llama_model_base::load_hparams and asserts what it relies on; an assertion there
 * ends the process. So each of them is a check here: blocks within its arrays of 512, experts within 1024, groups that
 * divide them, a rope scaling it knows. Per-block arrays must have one item for each block. Types are already known to
 * be right (schema.c).
 */
#include "model/shape.h"

#include "base/error.h"
#include "base/size.h"
#include "model/attention.h"

#include <inttypes.h>
#include <string.h>

#define EXPERT_MAX 1024u /* llama-hparams.h: LLAMA_MAX_EXPERTS */

typedef struct shape {
    const bt_gguf *gguf;
    bt_facts *facts;
    bt_arena *arena;
    uint32_t n_block_all;
} shape;

static const bt_gguf_key *find(const shape *s, const char *suffix) {
    return bt_gguf_find_arch(s->gguf, s->facts->arch, suffix);
}

static uint32_t u32_or(const shape *s, const char *suffix, uint32_t absent) {
    return bt_gguf_u32_or(find(s, suffix), absent);
}

static bt_status need_u32(const shape *s, const char *suffix, uint32_t *ret, bt_error *err) {
    if (!bt_gguf_u32_at(find(s, suffix), 0, ret))
        return bt_fail(err, BT_E_FORMAT, "gguf_key_missing", BT_MEASURE_NONE, 0, 0, "%s: key '%s.%s' is missing",
                       s->gguf->name, s->facts->arch, suffix);
    if (*ret == 0 || *ret > INT32_MAX)
        return bt_fail(err, BT_E_FORMAT, "model_shape", BT_MEASURE_NONE, 0, 0, "%s: %s.%s is %" PRIu32, s->gguf->name,
                       s->facts->arch, suffix, *ret);
    return BT_OK;
}

/* Kept text is cut at a fixed length: not within a UTF-8 sequence. */
static bt_status copy_text(const shape *s, const char *name, const char **ret, bt_error *err) {
    const bt_gguf_key *key = bt_gguf_find(s->gguf, name);
    const char *text = key ? key->text : "";
    size_t n = strlen(text);
    if (key && key->n > n)
        while (n > 0 && ((unsigned char)text[n - 1] & 0xc0) == 0x80)
            n--;
    if (key && key->n > n && n > 0 && ((unsigned char)text[n - 1] & 0xc0) == 0xc0) n--;
    *ret = bt_arena_strndup(s->arena, text, n);
    return *ret ? BT_OK : bt_model_no_room(s->gguf->name, err);
}

static bt_status read_texts(const shape *s, bt_error *err) {
    bt_facts *f = s->facts;
    BT_TRY(copy_text(s, "general.architecture", &f->arch, err));
    BT_TRY(copy_text(s, "general.name", &f->name, err));
    BT_TRY(copy_text(s, "tokenizer.ggml.model", &f->tokenizer, err));
    BT_TRY(copy_text(s, "tokenizer.ggml.pre", &f->tokenizer_pre, err));
    const bt_gguf_key *chat = bt_gguf_find(s->gguf, "tokenizer.chat_template");
    f->has_chat_template = chat && chat->n > 0;
    return BT_OK;
}

static bt_status copy_marks(const shape *s, bt_error *err) {
    bt_facts *f = s->facts;
    const bt_gguf_key *tokens = bt_gguf_find(s->gguf, "tokenizer.ggml.tokens");
    if (!tokens || tokens->n_marks == 0) return BT_OK;
    f->vocab_marks = bt_arena_array(s->arena, tokens->n_marks, sizeof *f->vocab_marks);
    if (!f->vocab_marks) return bt_model_no_room(s->gguf->name, err);
    memcpy(f->vocab_marks, tokens->marks, tokens->n_marks * sizeof *f->vocab_marks);
    f->n_vocab_marks = tokens->n_marks;
    return BT_OK;
}

static bt_status read_blocks(shape *s, bt_error *err) {
    BT_TRY(need_u32(s, "block_count", &s->n_block_all, err));
    if (s->n_block_all > BT_BLOCK_MAX)
        return bt_fail(err, BT_E_LIMIT, "model_blocks", BT_MEASURE_ITEMS, s->n_block_all, BT_BLOCK_MAX,
                       "%s: block_count is %" PRIu32 "; llama.cpp takes 1 to %d", s->gguf->name, s->n_block_all,
                       BT_BLOCK_MAX);
    uint32_t n_mtp = u32_or(s, "nextn_predict_layers", 0);
    if (n_mtp > s->n_block_all)
        return bt_fail(err, BT_E_FORMAT, "model_shape", BT_MEASURE_ITEMS, n_mtp, s->n_block_all,
                       "%s: %" PRIu32 " prediction blocks of %" PRIu32, s->gguf->name, n_mtp, s->n_block_all);
    /* graniteswitch keeps a router in that block, and uses it */
    if (strcmp(s->facts->arch, "graniteswitch") == 0) n_mtp = 0;
    s->facts->n_block = s->n_block_all - n_mtp;
    s->facts->n_block_all = s->n_block_all;
    return BT_OK;
}

/* The largest of a value for each block, or the one value of all; 0 when absent. */
static bt_status read_largest(const shape *s, const char *suffix, uint32_t *ret, bt_error *err) {
    const bt_gguf_key *key = find(s, suffix);
    *ret = 0;
    if (!key) return BT_OK;
    uint32_t n = key->is_array ? s->n_block_all : 1;
    if (key->is_array && key->n != n)
        return bt_fail(err, BT_E_FORMAT, "model_shape", BT_MEASURE_ITEMS, n, key->n,
                       "%s: %s has %" PRIu64 " items for %" PRIu32 " blocks", s->gguf->name, key->name, key->n, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t v = 0;
        if (!bt_gguf_u32_at(key, i, &v) || v > INT32_MAX)
            return bt_fail(err, BT_E_FORMAT, "model_shape", BT_MEASURE_NONE, 0, 0,
                           "%s: %s is no count in block %" PRIu32, s->gguf->name, key->name, i);
        if (v > *ret) *ret = v;
    }
    return BT_OK;
}

static bt_status read_widths(const shape *s, bt_error *err) {
    bt_facts *f = s->facts;
    uint32_t largest = 0;
    BT_TRY(need_u32(s, "context_length", &f->n_ctx_train, err));
    BT_TRY(need_u32(s, "embedding_length", &f->n_embd, err));
    BT_TRY(read_largest(s, "feed_forward_length", &f->n_ff, err));
    if (f->n_ff == 0) f->n_ff = u32_or(s, "expert_feed_forward_length", 0);
    BT_TRY(read_largest(s, "attention.head_count", &largest, err));
    BT_TRY(read_largest(s, "attention.head_count_kv", &largest, err));
    bt_gguf_u32_at(find(s, "attention.head_count"), 0, &f->n_head);
    const bt_gguf_key *tokens = bt_gguf_find(s->gguf, "tokenizer.ggml.tokens");
    f->n_vocab = tokens ? (uint32_t)tokens->n : u32_or(s, "vocab_size", 0);
    return BT_OK;
}

static bt_status refuse_experts(const shape *s, uint64_t need, uint64_t have, const char *what, bt_error *err) {
    return bt_fail(err, BT_E_FORMAT, "model_shape", BT_MEASURE_ITEMS, need, have,
                   "%s: %" PRIu64 " %s, of %" PRIu64 " experts", s->gguf->name, need, what, have);
}

static bt_status read_experts(const shape *s, bt_error *err) {
    bt_facts *f = s->facts;
    f->n_expert = u32_or(s, "expert_count", 0);
    BT_TRY(read_largest(s, "expert_used_count", &f->n_expert_used, err));
    /* the one family whose dense models say "1 expert" (llama-model.cpp) */
    if (f->n_expert <= 1 && (strcmp(f->arch, "hunyuan_vl") == 0 || strcmp(f->arch, "hunyuan-dense") == 0))
        f->n_expert = f->n_expert_used = 0;
    uint32_t n_groups = u32_or(s, "expert_group_count", 0), n_used = u32_or(s, "expert_group_used_count", 0);
    if (f->n_expert > EXPERT_MAX)
        return bt_fail(err, BT_E_LIMIT, "model_shape", BT_MEASURE_ITEMS, f->n_expert, EXPERT_MAX,
                       "%s: %" PRIu32 " experts; llama.cpp takes %u", s->gguf->name, f->n_expert, EXPERT_MAX);
    if (f->n_expert_used > f->n_expert || (f->n_expert > 0 && f->n_expert_used == 0))
        return refuse_experts(s, f->n_expert_used, f->n_expert, "used", err);
    if (n_groups > 0 && n_groups >= f->n_expert) return refuse_experts(s, n_groups, f->n_expert, "groups", err);
    if (n_groups > 1 && f->n_expert % n_groups != 0)
        return refuse_experts(s, n_groups, f->n_expert, "uneven groups", err);
    if (n_groups > 1 && (n_used == 0 || n_used >= n_groups))
        return refuse_experts(s, n_used, f->n_expert, "groups used", err);
    return BT_OK;
}

/* ggml_rope asserts an even number of dimensions, no more than a head has; libllama, a scaling that it knows. */
static bt_status check_rope(const shape *s, bt_error *err) {
    static const char *const scalings[] = {"none", "linear", "yarn", "longrope"};
    const bt_gguf_key *scaling = find(s, "rope.scaling.type");
    bool known = !scaling;
    for (size_t i = 0; i < sizeof scalings / sizeof scalings[0]; i++)
        known = known || strcmp(scaling->text, scalings[i]) == 0;
    if (!known)
        return bt_fail(err, BT_E_FORMAT, "model_shape", BT_MEASURE_NONE, 0, 0,
                       "%s: rope.scaling.type is none that llama.cpp knows", s->gguf->name);
    uint32_t n_rot = u32_or(s, "rope.dimension_count", 0);
    uint32_t n_head = s->facts->n_head;
    if (!bt_attention_is_known(s->facts->arch) || n_head == 0 || n_rot == 0) return BT_OK;
    uint32_t length = u32_or(s, "attention.key_length", s->facts->n_embd / n_head);
    if (n_rot <= length && n_rot % 2 == 0) return BT_OK;
    return bt_fail(err, BT_E_FORMAT, "model_shape", BT_MEASURE_ITEMS, n_rot, length,
                   "%s: rope.dimension_count is %" PRIu32 ", heads have %" PRIu32 " elements", s->gguf->name, n_rot,
                   length);
}

bt_status bt_shape_fill(const bt_gguf *gguf, bt_facts *facts, uint32_t *ret_n_block_all, bt_arena *arena,
                        bt_error *err) {
    shape s = {.gguf = gguf, .facts = facts, .arena = arena};
    BT_TRY(read_texts(&s, err));
    BT_TRY(copy_marks(&s, err));
    BT_TRY(read_blocks(&s, err));
    BT_TRY(read_widths(&s, err));
    BT_TRY(read_experts(&s, err));
    BT_TRY(check_rope(&s, err));
    *ret_n_block_all = s.n_block_all;
    return BT_OK;
}
