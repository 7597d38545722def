/* SPDX-License-Identifier: MIT
 *
 * roles.c: from a tensor's name to what it is for.
 *
 * A file says nothing of use, only names; llama.cpp's are fixed (src/llama-arch.cpp) and shared by all architectures,
 * so the names are enough to tell what is read by rows, what closes the model, and which half of a block a matrix
 * belongs to. A name that is not known still gets a place: in a block, with the feed-forward half (what follows
 * attention); outside, on its own. Being wrong there costs order, never correctness: the device follows the graph.
 * What is always in memory is small or tiny in use: norms, biases, routers, rope tables (docs/design.md P3).
 */
#include "model/roles.h"

#include "base/error.h"
#include "base/text.h"
#include "model/attention.h"
#include "model/experts.h"

#include <inttypes.h>
#include <string.h>

static bool starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* What follows "blk.N.", or the whole name. */
static const char *part_name(const bt_tensor *tensor) {
    if (tensor->block < 0) return tensor->name;
    const char *dot = strchr(tensor->name + 4, '.');
    return dot ? dot + 1 : tensor->name;
}

bt_status bt_role_block(const bt_tensor *tensor, uint32_t n_block_all, const char *file, int32_t *ret, bt_error *err) {
    *ret = -1;
    if (!starts_with(tensor->name, "blk.")) return BT_OK;
    const char *digits = tensor->name + 4;
    size_t n = strspn(digits, "0123456789");
    if (n == 0 || n > 9 || digits[n] != '.' || digits[n + 1] == '\0' || (n > 1 && digits[0] == '0'))
        return bt_fail(err, BT_E_FORMAT, "gguf_tensor", BT_MEASURE_NONE, 0, 0,
                       "%s: tensor '%s' has no block number that llama.cpp would write", file, tensor->name);
    uint32_t block = 0;
    for (size_t i = 0; i < n; i++)
        block = 10 * block + (uint32_t)(digits[i] - '0');
    if (block >= n_block_all)
        return bt_fail(err, BT_E_FORMAT, "model_blocks", BT_MEASURE_ITEMS, (uint64_t)block + 1, n_block_all,
                       "%s: block_count says %" PRIu32 ", but there is a tensor '%s'", file, n_block_all, tensor->name);
    *ret = (int32_t)block;
    return BT_OK;
}

/* Vectors and the little matrices that are needed at once in every block. */
static bool is_always_needed(const bt_tensor *t) {
    const char *part = part_name(t);
    if (bt_ends_with(t->name, ".bias") || t->n_dims == 1) return true;
    return strstr(part, "norm") || starts_with(part, "ffn_gate_inp") || starts_with(part, "rope_f");
}

static bool is_row_table(const bt_tensor *t) {
    static const char *const names[] = {"token_embd.weight", "position_embd.weight", "per_layer_token_embd.weight",
                                        "token_types.weight"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(t->name, names[i]) == 0) return true;
    }
    return false;
}

static bt_tensor_role role_of(const bt_facts *facts, const bt_tensor *t) {
    if (t->block >= (int32_t)facts->n_block) return BT_ROLE_UNUSED;
    if (t->bytes < BT_SMALL_BYTES) return BT_ROLE_SMALL;
    if (strcmp(t->name, "output.weight") == 0) return BT_ROLE_HEAD;
    if (strcmp(t->name, "token_embd.weight") == 0 && facts->tied_head) return BT_ROLE_TIED;
    if (is_row_table(t)) return BT_ROLE_TABLE;
    if (t->bytes <= BT_ALWAYS_SMALL_BYTES && is_always_needed(t)) return BT_ROLE_SMALL;
    if (bt_experts_can_split(facts, t)) return BT_ROLE_EXPERTS;
    return BT_ROLE_UNIT;
}

/* Architectures whose loader asks for no tensor output.weight (llama.cpp src/models): a copy of the table cannot be
 * shown to it under that name. Of one that is not known here it is not known either. */
static bool is_always_tied(const char *arch) {
    static const char *const names[] = {"bitnet", "cohere2", "command-r", "gemma", "gemma2", "openelm", "plm"};
    return bt_is_among(arch, names, sizeof names / sizeof *names) || !bt_attention_is_known(arch);
}

void bt_roles_fill(bt_facts *facts) {
    bool has_output = false, has_table = false;
    for (uint32_t i = 0; i < facts->n_tensors; i++) {
        has_output = has_output || strcmp(facts->tensors[i].name, "output.weight") == 0;
        has_table = has_table || strcmp(facts->tensors[i].name, "token_embd.weight") == 0;
    }
    facts->tied_head = has_table && !has_output && !bt_attention_is_encoder(facts->arch);
    facts->head_stays = facts->tied_head && is_always_tied(facts->arch);
    for (uint32_t i = 0; i < facts->n_tensors; i++)
        facts->tensors[i].role = role_of(facts, &facts->tensors[i]);
}

/* ---- a split ---- */

uint32_t bt_split_blocks(const bt_split *split) {
    uint64_t n = 0;
    for (uint32_t d = 0; d < split->n_devices && d < BT_DEVICE_MAX; d++)
        n += split->n_blocks[d];
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* 1 + the device of a block; 0: the host. */
static uint8_t device_of_block(const bt_split *split, uint32_t block) {
    uint32_t end = 0;
    for (uint32_t d = 0; d < split->n_devices; d++) {
        end += split->n_blocks[d];
        if (block < end) return (uint8_t)(d + 1);
    }
    return 0;
}

/* The last device that has blocks: libllama's output layer follows the last block. */
static uint8_t last_device(const bt_split *split) {
    uint8_t last = 0;
    for (uint32_t d = 0; d < split->n_devices; d++)
        if (split->n_blocks[d] > 0) last = (uint8_t)(d + 1);
    return last;
}

/* Tensors of experts, by the names that llama.cpp's --n-cpu-moe looks for (common/common.h, LLM_FFN_EXPS_REGEX). */
bool bt_tensor_is_of_experts(const bt_tensor *tensor) {
    static const char *const names[] = {"ffn_gate_exps",   "ffn_up_exps",   "ffn_down_exps",   "ffn_gate_up_exps",
                                        "ffn_gate_chexps", "ffn_up_chexps", "ffn_down_chexps", "ffn_gate_up_chexps"};
    const char *part = part_name(tensor);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (starts_with(part, names[i])) return true;
    return false;
}

/* Rope tables are copied to where they are used, and small. */
bool bt_tensor_goes_with_head(const bt_tensor *tensor) {
    if (tensor->block >= 0 || starts_with(tensor->name, "rope_")) return false;
    return tensor->role == BT_ROLE_TIED || !is_row_table(tensor);
}

static uint8_t device_of(const bt_split *split, const bt_tensor *t) {
    if (t->block < 0) return split->head && bt_tensor_goes_with_head(t) ? last_device(split) : 0;
    if ((uint32_t)t->block < split->n_cpu_moe && bt_tensor_is_of_experts(t)) return 0;
    return device_of_block(split, (uint32_t)t->block);
}

void bt_roles_split(bt_facts *facts) {
    for (uint32_t i = 0; i < facts->n_tensors; i++) {
        bt_tensor *t = &facts->tensors[i];
        if (t->role == BT_ROLE_UNUSED) continue;
        if (t->role == BT_ROLE_TIED && facts->split.head) t->role = BT_ROLE_TABLE; /* the copy is another tensor */
        uint8_t device = device_of(&facts->split, t);
        if (device == 0) continue;
        t->device = device;
        t->role = BT_ROLE_AWAY;
    }
}

bt_unit_kind bt_role_kind(const bt_tensor *tensor) {
    static const char *const mixers[] = {"attn",    "ssm_",    "shortconv", "time_mix",
                                         "indexer", "hc_attn", "vis_attn",  "cross_attn"};
    if (tensor->block < 0) return BT_KIND_OTHER;
    const char *part = part_name(tensor);
    for (size_t i = 0; i < sizeof mixers / sizeof mixers[0]; i++) {
        if (starts_with(part, mixers[i])) return BT_KIND_ATTENTION;
    }
    return BT_KIND_FEED_FORWARD;
}

/* Order of use within a half of a block; names not listed come before the last matrix of theirs. */
uint32_t bt_role_rank(const bt_tensor *tensor) {
    static const char *const order[] = {
        "attn_qkv.",       "attn_q_a.",       "attn_q.",       "attn_q_b.",      "attn_k.",        "attn_kv_a_mqa.",
        "attn_kv_b.",      "attn_k_b.",       "attn_v.",       "attn_v_b.",      "attn_gate.",     "ssm_in.",
        "ssm_ba.",         "ssm_x.",          "ssm_dt.",       "shortconv.in_",  "time_mix_recep", "time_mix_key",
        "time_mix_value",  "time_mix_gate",   "ffn_gate_inp",  "ffn_gate_exps.", "ffn_gate_up_ex", "ffn_up_exps.",
        "ffn_down_exps.",  "ffn_gate_shexp.", "ffn_up_shexp.", "ffn_gate.",      "ffn_up.",        "channel_mix_rec",
        "channel_mix_key",
    };
    static const char *const last[] = {"attn_output", "ssm_out.",        "shortconv.out",    "time_mix_output",
                                       "ffn_down.",   "ffn_down_shexp.", "channel_mix_value"};
    const char *part = part_name(tensor);
    for (uint32_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        if (starts_with(part, order[i])) return i;
    }
    for (uint32_t i = 0; i < sizeof last / sizeof last[0]; i++) {
        if (starts_with(part, last[i])) return 200 + i;
    }
    return 100;
}
