/* SPDX-License-Identifier: MIT
 * facts_text.c: what a model file needs, for a person: one screen, whatever the model. Units are counted by kind, KV is
 * shown per token, so that the length does not grow with the model. What came from the file is escaped. */
#include "base/size.h"
#include "plan/costs.h"
#include "report/json.h"
#include "report/report.h"
#include "report/text.h"

#define MEGA UINT64_C(1000000) /* parameters are counted in millions */

static void add_kv(bt_text *out, const bt_facts *facts) {
    const uint32_t f16 = 1; /* GGML_TYPE_F16 */
    uint64_t bytes = 0;
    uint32_t n_window = 0;
    uint32_t n_kv = 0;
    uint32_t window = 0;
    if (!bt_kv_token_bytes(facts, f16, f16, &bytes)) {
        bt_row_escaped(out, "KV cache", facts->kv_reason[0] ? facts->kv_reason : "not known");
        return;
    }
    for (uint32_t i = 0; i < facts->n_block; i++) {
        bool holds = facts->kv[i].k_width + facts->kv[i].v_width > 0;
        n_kv += holds;
        n_window += holds && facts->kv[i].window > 0;
        if (holds && facts->kv[i].window > window) window = facts->kv[i].window;
    }
    uint64_t state = bt_kv_state_bytes(facts, 1);
    if (facts->encoder) {
        bt_row(out, "KV cache", "none: an encoder turns text into vectors and generates none");
    } else if (n_kv == 0) {
        bt_row(out, "KV cache", "none");
    } else {
        bt_row(out, "KV cache", "%s a token at f16, in %u blocks%s", BT_SIZE(bytes), n_kv,
               facts->latent ? ", one latent row for all heads" : "");
    }
    if (state > 0) bt_row(out, "Recurrent state", "%s a sequence, however long it is", BT_SIZE(state));
    if (n_window > 0) bt_row(out, "Sliding window", "%u tokens in %u of them", window, n_window);
}

static void add_units(bt_text *out, const bt_facts *facts) {
    static const char *const names[5] = {"attention", "feed-forward", "head panels", "tables", "other"};
    uint32_t count[5] = {0};
    uint64_t bytes[5] = {0};
    uint64_t largest = 0;
    for (uint32_t i = 0; i < facts->n_units; i++) {
        const bt_unit_facts *unit = &facts->units[i];
        count[unit->kind]++;
        bytes[unit->kind] = bt_sat_add_u64(bytes[unit->kind], unit->bytes);
        if (unit->kind != BT_KIND_TABLE) largest = bt_max_u64(largest, unit->image_bytes);
    }
    bt_text_addf(out, "\nUnits (%u; the largest that streams has %s)\n", facts->n_units, BT_SIZE(largest));
    for (uint32_t i = 0; i < 5; i++) {
        if (count[i] > 0) bt_row(out, names[i], "%6u  %s", count[i], BT_SIZE(bytes[i]));
    }
    bt_row(out, "always in memory", "        %s", BT_SIZE(facts->small_bytes));
}

void bt_report_facts_text(const bt_facts *facts, bt_text *out) {
    bt_text_add(out, "Model\n");
    bt_row_escaped(out, "File", facts->path);
    bt_row(out, "Size", "%s in %u file%s, header %s", BT_SIZE(facts->file_bytes), facts->n_shards,
           facts->n_shards == 1 ? "" : "s", BT_SIZE(facts->header_bytes));
    bt_row_escaped(out, "Architecture", facts->arch);
    if (facts->name && facts->name[0]) bt_row_escaped(out, "Name", facts->name);
    uint64_t parameters = 0;
    for (uint32_t i = 0; i < facts->n_tensors; i++) {
        const uint64_t *ne = facts->tensors[i].ne;
        uint64_t n = bt_sat_mul_u64(bt_sat_mul_u64(ne[0], ne[1]), bt_sat_mul_u64(ne[2], ne[3]));
        parameters = bt_sat_add_u64(parameters, n);
    }
    bt_row(out, "Weights", "%s in %u tensors, %llu M parameters", BT_SIZE(facts->weight_bytes), facts->n_file_tensors,
           (unsigned long long)(parameters / MEGA));
    if (facts->n_expert > 0) {
        bt_row(out, "Experts", "%u, %u used for a token: %s of the weights", facts->n_expert, facts->n_expert_used,
               BT_SIZE(bt_working_bytes(facts)));
    }
    bt_row(out, "Blocks", "%u of width %u, %u heads, feed-forward %u", facts->n_block, facts->n_embd, facts->n_head,
           facts->n_ff);
    if (facts->n_ctx_train > 0) {
        bt_row(out, "Trained context", "%u tokens", facts->n_ctx_train);
    } else {
        bt_row(out, "Trained context", "unknown");
    }
    add_kv(out, facts);
    bt_row(out, "Vocabulary", "%u tokens, head %s", facts->n_vocab,
           facts->tied_head ? "tied to the embedding" : "of its own");
    if (facts->tokenizer) bt_row_escaped(out, "Tokenizer", facts->tokenizer);
    if (facts->tokenizer_pre && facts->tokenizer_pre[0]) bt_row_escaped(out, "Pre-tokenizer", facts->tokenizer_pre);
    bt_row(out, "Chat template", "%s", facts->has_chat_template ? "yes" : "none");
    add_units(out, facts);
}
