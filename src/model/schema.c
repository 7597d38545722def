/* SPDX-License-Identifier: MIT
 *
 * schema.c: which type each well-known key must have.
 *
 * llama.cpp asks for a key with a getter of one type. The getter of a wrong type throws in libllama and aborts in ggml
 * (gguf_get_val_*), so a file with `block_count` as a string is refused here. Only keys are listed that every
 * architecture's loading reads (llama_model_base::load_hparams, the vocabulary, the split keys): of the others some
 * architecture may use a type of its own, and a check that refuses good files is worse than none.
 */
#include "model/gguf.h"

#include "base/error.h"

#include <inttypes.h>
#include <string.h>

typedef enum key_shape {
    SCALAR,           /* one value of the type */
    LIST,             /* an array of the type */
    SCALAR_OR_BLOCKS, /* one value, or an array with one of them (u32 or i32 when type is u32) for each block */
    NUMBERS,          /* tokenizer scores: an array of f32 or i32 */
} key_shape;

typedef struct key_rule {
    const char *name; /* without "<arch>.", where it is one of the model's */
    key_shape shape;
    bt_gguf_type type;
} key_rule;

static const key_rule file_rules[] = {
    {"general.architecture", SCALAR, BT_GGUF_STRING},
    {"general.name", SCALAR, BT_GGUF_STRING},
    {"general.file_type", SCALAR, BT_GGUF_U32},
    {"general.quantization_version", SCALAR, BT_GGUF_U32},
    {"tokenizer.ggml.model", SCALAR, BT_GGUF_STRING},
    {"tokenizer.ggml.pre", SCALAR, BT_GGUF_STRING},
    {"tokenizer.ggml.tokens", LIST, BT_GGUF_STRING},
    {"tokenizer.ggml.merges", LIST, BT_GGUF_STRING},
    {"tokenizer.ggml.token_type", LIST, BT_GGUF_I32},
    {"tokenizer.ggml.scores", NUMBERS, BT_GGUF_F32},
    {"tokenizer.ggml.token_type_count", SCALAR, BT_GGUF_U32},
    {"tokenizer.ggml.bos_token_id", SCALAR, BT_GGUF_U32},
    {"tokenizer.ggml.eos_token_id", SCALAR, BT_GGUF_U32},
    {"tokenizer.ggml.eot_token_id", SCALAR, BT_GGUF_U32},
    {"tokenizer.ggml.eom_token_id", SCALAR, BT_GGUF_U32},
    {"tokenizer.ggml.unknown_token_id", SCALAR, BT_GGUF_U32},
    {"tokenizer.ggml.seperator_token_id", SCALAR, BT_GGUF_U32},
    {"tokenizer.ggml.padding_token_id", SCALAR, BT_GGUF_U32},
    {"tokenizer.ggml.mask_token_id", SCALAR, BT_GGUF_U32},
    {"tokenizer.ggml.add_bos_token", SCALAR, BT_GGUF_BOOL},
    {"tokenizer.ggml.add_eos_token", SCALAR, BT_GGUF_BOOL},
    {"tokenizer.ggml.add_sep_token", SCALAR, BT_GGUF_BOOL},
    {"tokenizer.ggml.add_space_prefix", SCALAR, BT_GGUF_BOOL},
    {"tokenizer.ggml.remove_extra_whitespaces", SCALAR, BT_GGUF_BOOL},
    {"tokenizer.chat_template", SCALAR, BT_GGUF_STRING},
};

static const key_rule split_rules[] = {
    {"split.no", SCALAR, BT_GGUF_U16},
    {"split.count", SCALAR, BT_GGUF_U16},
    {"split.tensors.count", SCALAR, BT_GGUF_I32},
};

static const key_rule arch_rules[] = {
    {"vocab_size", SCALAR, BT_GGUF_U32},
    {"context_length", SCALAR, BT_GGUF_U32},
    {"embedding_length", SCALAR, BT_GGUF_U32},
    {"embedding_length_out", SCALAR, BT_GGUF_U32},
    {"block_count", SCALAR, BT_GGUF_U32},
    {"nextn_predict_layers", SCALAR, BT_GGUF_U32},
    {"feed_forward_length", SCALAR_OR_BLOCKS, BT_GGUF_U32},
    {"expert_count", SCALAR, BT_GGUF_U32},
    {"expert_used_count", SCALAR_OR_BLOCKS, BT_GGUF_U32},
    {"expert_group_count", SCALAR, BT_GGUF_U32},
    {"expert_group_used_count", SCALAR, BT_GGUF_U32},
    {"pooling_type", SCALAR, BT_GGUF_U32},
    {"attention.causal", SCALAR, BT_GGUF_BOOL},
    {"attention.head_count", SCALAR_OR_BLOCKS, BT_GGUF_U32},
    {"attention.head_count_kv", SCALAR_OR_BLOCKS, BT_GGUF_U32},
    {"attention.key_length", SCALAR, BT_GGUF_U32},
    {"attention.value_length", SCALAR, BT_GGUF_U32},
    {"attention.key_length_swa", SCALAR, BT_GGUF_U32},
    {"attention.value_length_swa", SCALAR, BT_GGUF_U32},
    {"rope.dimension_count", SCALAR, BT_GGUF_U32},
    {"rope.dimension_count_swa", SCALAR, BT_GGUF_U32},
    {"rope.freq_base", SCALAR, BT_GGUF_F32},
    {"rope.scale_linear", SCALAR, BT_GGUF_F32},
    {"rope.scaling.type", SCALAR, BT_GGUF_STRING},
    {"rope.scaling.factor", SCALAR, BT_GGUF_F32},
    {"rope.scaling.alpha", SCALAR, BT_GGUF_F32},
    {"rope.scaling.attn_factor", SCALAR, BT_GGUF_F32},
    {"rope.scaling.original_context_length", SCALAR, BT_GGUF_U32},
    {"rope.scaling.finetuned", SCALAR, BT_GGUF_BOOL},
};

#define COUNT_OF(rows) (sizeof(rows) / sizeof(rows)[0])

static bool matches(const key_rule *rule, const bt_gguf_key *key) {
    switch (rule->shape) {
    case SCALAR:
        return !key->is_array && key->type == rule->type;
    case LIST:
        return key->is_array && key->type == rule->type;
    case SCALAR_OR_BLOCKS:
        return key->type == rule->type || (key->is_array && key->type == BT_GGUF_I32);
    case NUMBERS:
        return key->is_array && (key->type == rule->type || key->type == BT_GGUF_I32);
    }
    return false;
}

static bt_status check_key(const bt_gguf *gguf, const key_rule *rule, const bt_gguf_key *key, bt_error *err) {
    if (!key || matches(rule, key)) return BT_OK;
    const char *wanted_list = rule->shape == LIST || rule->shape == NUMBERS ? "an array of " : "";
    return bt_fail(err, BT_E_FORMAT, "gguf_type", BT_MEASURE_NONE, 0, 0, "%s: key '%s' is %s%s, not %s%s", gguf->name,
                   key->name, key->is_array ? "an array of " : "", bt_gguf_type_name(key->type), wanted_list,
                   bt_gguf_type_name(rule->type));
}

/* A vocabulary's columns are at least as long as its tokens: libllama reads them side by side. */
static bt_status check_columns(const bt_gguf *gguf, bt_error *err) {
    static const char *const columns[] = {"tokenizer.ggml.token_type", "tokenizer.ggml.scores"};
    const bt_gguf_key *tokens = bt_gguf_find(gguf, "tokenizer.ggml.tokens");
    if (!tokens) return BT_OK;
    for (size_t i = 0; i < COUNT_OF(columns); i++) {
        const bt_gguf_key *key = bt_gguf_find(gguf, columns[i]);
        if (!key || key->n >= tokens->n) continue;
        return bt_fail(err, BT_E_FORMAT, "gguf_vocab", BT_MEASURE_ITEMS, tokens->n, key->n,
                       "%s: %s has %" PRIu64 " items for %" PRIu64 " tokens", gguf->name, columns[i], key->n,
                       tokens->n);
    }
    return BT_OK;
}

static bt_status check_rules(const bt_gguf *gguf, const key_rule *rules, size_t n, bt_error *err) {
    for (size_t i = 0; i < n; i++)
        BT_TRY(check_key(gguf, &rules[i], bt_gguf_find(gguf, rules[i].name), err));
    return BT_OK;
}

bt_status bt_schema_check_split(const bt_gguf *gguf, bt_error *err) {
    return check_rules(gguf, split_rules, COUNT_OF(split_rules), err);
}

bt_status bt_schema_check(const bt_gguf *gguf, bt_error *err) {
    BT_TRY(check_rules(gguf, file_rules, COUNT_OF(file_rules), err));
    BT_TRY(check_columns(gguf, err));
    const bt_gguf_key *arch = bt_gguf_find(gguf, "general.architecture");
    if (!arch)
        return bt_fail(err, BT_E_FORMAT, "gguf_key_missing", BT_MEASURE_NONE, 0, 0,
                       "%s has no general.architecture: it is no model, or not the first part of one", gguf->name);
    if (arch->n == 0 || arch->n > 64 || !bt_name_is_clean(arch->text, (size_t)arch->n))
        return bt_fail(err, BT_E_FORMAT, "gguf_key", BT_MEASURE_NONE, 0, 0,
                       "%s: general.architecture is empty, too long or has control bytes", gguf->name);
    for (size_t i = 0; i < COUNT_OF(arch_rules); i++)
        BT_TRY(check_key(gguf, &arch_rules[i], bt_gguf_find_arch(gguf, arch->text, arch_rules[i].name), err));
    return BT_OK;
}
