/* SPDX-License-Identifier: MIT
 *
 * recurrent.c: what a block keeps of a sequence, however long it is.
 *
 * Two rows of F32 for each sequence: the last inputs of a short convolution (or of a token shift), and the state of the
 * recurrence. Their widths are llama_hparams::n_embd_r and n_embd_s, the same in every recurrent block; where such
 * blocks are is load_arch_hparams of each model. A state does not grow with the context, so it is the whole of what
 * Mamba and RWKV keep, and most of what a hybrid keeps at short contexts.
 *
 * Left out: the rows that speculative decoding adds to take tokens back (n_rs_seq); no session asks for them.
 */
#include "model/recurrent.h"

#include "base/error.h"

#include <inttypes.h>

#define DEFAULT_INTERVAL 4u /* llama.cpp src/models/qwen3next.cpp, qwen35.cpp: full_attention_interval */
#define DEFAULT_SHIFTS   2u /* llama_hparams::token_shift_count */
#define DEFAULT_CONV     4u /* llama_hparams::n_embd_r of KDA, when ssm.conv_kernel is 0 */

typedef struct reading {
    const bt_gguf *gguf;
    const bt_facts *facts;
} reading;

static const bt_gguf_key *find(const reading *r, const char *suffix) {
    return bt_gguf_find_arch(r->gguf, r->facts->arch, suffix);
}

static uint32_t u32_or(const reading *r, const char *suffix, uint32_t absent) {
    return bt_gguf_u32_or(find(r, suffix), absent);
}

static bt_status need(const reading *r, const char *suffix, uint64_t *ret, bt_error *err) {
    uint32_t v = 0;
    if (!bt_gguf_u32_at(find(r, suffix), 0, &v))
        return bt_fail(err, BT_E_FORMAT, "gguf_key_missing", BT_MEASURE_NONE, 0, 0, "%s: key '%s.%s' is missing",
                       r->gguf->name, r->facts->arch, suffix);
    *ret = v;
    return BT_OK;
}

static bt_status too_large(const reading *r, bt_error *err) {
    return bt_fail(err, BT_E_FORMAT, "model_shape", BT_MEASURE_NONE, 0, 0,
                   "%s: the recurrent state of %s has more elements than can be counted", r->gguf->name,
                   r->facts->arch);
}

/* a * b, if it stays a count that libllama can hold in 32 bits; 0 is fine. */
static bool times(uint64_t a, uint64_t b, uint64_t *ret) {
    if (b != 0 && a > INT32_MAX / b) return false;
    *ret = a * b;
    return true;
}

/* Mamba, Mamba 2 and the delta nets: the convolution sees the inner stream and the groups' B and C. */
static bt_status ssm_widths(const reading *r, uint64_t *conv, uint64_t *state, bt_error *err) {
    uint64_t kernel = 0, inner = 0, n_state = 0, grouped = 0, groups = u32_or(r, "ssm.group_count", 0);
    BT_TRY(need(r, "ssm.conv_kernel", &kernel, err));
    BT_TRY(need(r, "ssm.inner_size", &inner, err));
    BT_TRY(need(r, "ssm.state_size", &n_state, err));
    if (!times(groups, n_state, &grouped) || !times(grouped, 2, &grouped) ||
        !times(kernel > 0 ? kernel - 1 : 0, inner + grouped, conv) || !times(n_state, inner, state))
        return too_large(r, err);
    return BT_OK;
}

static bt_status short_conv_widths(const reading *r, uint64_t *conv, bt_error *err) {
    uint64_t cached = 0;
    BT_TRY(need(r, "shortconv.l_cache", &cached, err));
    if (cached == 0 || !times(r->facts->n_embd, cached - 1, conv)) return too_large(r, err);
    return BT_OK;
}

static bt_status wkv_widths(const reading *r, uint64_t *shift, uint64_t *state, bt_error *err) {
    uint64_t head = 0;
    BT_TRY(need(r, "wkv.head_size", &head, err));
    if (!times(r->facts->n_embd, u32_or(r, "token_shift_count", DEFAULT_SHIFTS), shift) ||
        !times(r->facts->n_embd, head, state))
        return too_large(r, err);
    return BT_OK;
}

/* Three convolutions, of queries, keys and values; a square of the head's width for each head of block 0. */
static bt_status kda_widths(const reading *r, uint64_t *conv, uint64_t *state, bt_error *err) {
    uint64_t head = 0, kernel = 0, inner = 0;
    BT_TRY(need(r, "kda.head_dim", &head, err));
    BT_TRY(need(r, "ssm.conv_kernel", &kernel, err));
    if (kernel == 0) kernel = DEFAULT_CONV;
    if (!times(r->facts->n_head, head, &inner) || !times(3 * (kernel - 1), inner, conv) || !times(inner, head, state))
        return too_large(r, err);
    return BT_OK;
}

/* Does block b keep a state? */
static bool is_recurrent(const reading *r, const bt_family *family, uint32_t b) {
    uint32_t v = 0;
    switch (family->where) {
    case BT_RECURRENT_NOWHERE:
        return false;
    case BT_RECURRENT_ALL:
    case BT_RECURRENT_BESIDE:
        return true;
    case BT_RECURRENT_NO_KV:
    case BT_RECURRENT_NO_KV_NO_FF: {
        const bt_gguf_key *heads = find(r, "attention.head_count_kv");
        if (!heads) heads = find(r, "attention.head_count");
        if (bt_gguf_u32_at(heads, b, &v) && v != 0) return false;
        return family->where == BT_RECURRENT_NO_KV || !bt_gguf_u32_at(find(r, "feed_forward_length"), b, &v) || v == 0;
    }
    case BT_RECURRENT_INTERVAL: {
        const bt_gguf_key *list = find(r, "attention.recurrent_layers");
        if (list) return bt_gguf_u32_at(list, b, &v) && v != 0;
        uint32_t interval = u32_or(r, "full_attention_interval", DEFAULT_INTERVAL);
        return interval == 0 || (b + 1) % interval != 0;
    }
    }
    return false;
}

bt_status bt_recurrent_fill(const bt_gguf *gguf, const bt_family *family, bt_facts *facts, bool no_kv[BT_BLOCK_MAX],
                            bt_error *err) {
    reading r = {gguf, facts};
    uint64_t conv = 0, state = 0;
    switch (family->state) {
    case BT_STATE_NONE:
        return BT_OK;
    case BT_STATE_SSM:
        BT_TRY(ssm_widths(&r, &conv, &state, err));
        break;
    case BT_STATE_SHORT_CONV:
        BT_TRY(short_conv_widths(&r, &conv, err));
        break;
    case BT_STATE_WKV:
        BT_TRY(wkv_widths(&r, &conv, &state, err));
        break;
    case BT_STATE_KDA:
        BT_TRY(kda_widths(&r, &conv, &state, err));
        break;
    }
    if (family->where == BT_RECURRENT_INTERVAL && u32_or(&r, "full_attention_interval", DEFAULT_INTERVAL) == 0)
        return bt_fail(err, BT_E_FORMAT, "model_shape", BT_MEASURE_NONE, 0, 0, "%s: %s.full_attention_interval is 0",
                       gguf->name, facts->arch); /* libllama divides by it */
    for (uint32_t b = 0; b < facts->n_block; b++) {
        uint32_t n_ff = 0;
        if (family->where == BT_RECURRENT_NO_KV_NO_FF && bt_gguf_u32_at(find(&r, "feed_forward_length"), b, &n_ff))
            no_kv[b] = n_ff > 0;
        if (!is_recurrent(&r, family, b)) continue;
        facts->kv[b].conv_width = (uint32_t)conv;
        facts->kv[b].ssm_width = (uint32_t)state;
        no_kv[b] = family->where != BT_RECURRENT_BESIDE;
    }
    return BT_OK;
}
