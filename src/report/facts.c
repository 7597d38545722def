/* SPDX-License-Identifier: MIT
 * facts.c: what a model file needs, as facts.json. `burthen inspect` prints it.
 *
 * Everything a plan is made of stands here: units with their sizes and pieces, KV geometry per block, shards. Tensors
 * are counted by type instead of listed: a script that wants the table reads the file's header itself. Strings of the
 * file are JSON-escaped by the writer. Bounded by the limits of bt_facts. */
#include "model/types.h"
#include "plan/costs.h"
#include "report/json.h"
#include "report/report.h"

static const char *const unit_kind_names[5] = {"attention", "feed_forward", "head", "table", "other"};

#define TYPE_MAX 64u /* ggml has 42 types; a higher number is not known and counted together */

static void put_types(bt_json_out *out, json_t *root, const bt_facts *facts) {
    uint64_t bytes[TYPE_MAX + 1] = {0};
    uint32_t count[TYPE_MAX + 1] = {0};
    for (uint32_t i = 0; i < facts->n_tensors; i++) {
        uint32_t type = facts->tensors[i].type < TYPE_MAX ? facts->tensors[i].type : TYPE_MAX;
        bytes[type] += facts->tensors[i].bytes;
        count[type]++;
    }
    json_t *types = bt_json_put_array(out, root, "types");
    for (uint32_t i = 0; i <= TYPE_MAX; i++) {
        if (count[i] == 0) continue;
        json_t *item = bt_json_add_object(out, types);
        bt_json_put_text(out, item, "type", bt_type_name(i));
        bt_json_put_u64(out, item, "tensors", count[i]);
        bt_json_put_u64(out, item, "bytes", bytes[i]);
    }
}

static void put_kv(bt_json_out *out, json_t *root, const bt_facts *facts) {
    const uint32_t f16 = 1; /* GGML_TYPE_F16 */
    json_t *kv = bt_json_put_object(out, root, "kv");
    bt_known token_bytes = {0};
    token_bytes.known = bt_kv_token_bytes(facts, f16, f16, &token_bytes.value);
    bt_json_put_bool(out, kv, "known", facts->kv_known);
    bt_json_put_text_or_null(out, kv, "reason", facts->kv_reason);
    bt_json_put_bool(out, kv, "exact", facts->kv_exact);
    bt_json_put_known(out, kv, "f16_bytes_per_token", token_bytes);
    bt_json_put_known(out, kv, "state_bytes_per_sequence", (bt_known){facts->kv_known, bt_kv_state_bytes(facts, 1)});
    json_t *blocks = bt_json_put_array(out, kv, "blocks");
    for (uint32_t i = 0; facts->kv && i < facts->n_block; i++) {
        json_t *item = bt_json_add_object(out, blocks);
        bt_json_put_u64(out, item, "k_width", facts->kv[i].k_width);
        bt_json_put_u64(out, item, "v_width", facts->kv[i].v_width);
        bt_json_put_known(out, item, "window", (bt_known){facts->kv[i].window != 0, facts->kv[i].window});
        bt_json_put_u64(out, item, "state_width", (uint64_t)facts->kv[i].conv_width + facts->kv[i].ssm_width);
    }
}

static void put_units(bt_json_out *out, json_t *root, const bt_facts *facts) {
    json_t *units = bt_json_put_array(out, root, "units");
    for (uint32_t i = 0; i < facts->n_units; i++) {
        const bt_unit_facts *unit = &facts->units[i];
        json_t *item = bt_json_add_object(out, units);
        bt_json_put_text(out, item, "name", unit->name);
        bt_json_put_text(out, item, "kind", unit_kind_names[unit->kind]);
        bt_json_put(out, item, "block", unit->block < 0 ? json_null() : json_integer(unit->block));
        bt_json_put_u64(out, item, "bytes", unit->bytes);
        bt_json_put_u64(out, item, "image_bytes", unit->image_bytes);
        bt_json_put_u64(out, item, "tensors", unit->n_tensors);
        bt_json_put_u64(out, item, "extents", unit->n_extents);
    }
}

static void put_shards(bt_json_out *out, json_t *root, const bt_facts *facts) {
    json_t *shards = bt_json_put_array(out, root, "shards");
    for (uint32_t i = 0; i < facts->n_shards; i++) {
        json_t *item = bt_json_add_object(out, shards);
        bt_json_put_text(out, item, "path", facts->shards[i].path);
        bt_json_put_u64(out, item, "bytes", facts->shards[i].file_bytes);
        bt_json_put_u64(out, item, "data_offset", facts->shards[i].data_offset);
    }
}

json_t *bt_facts_to_json(bt_json_out *out, const bt_facts *facts) {
    json_t *root = json_object();
    bt_json_put_text(out, root, "burthen", BT_VERSION);
    bt_json_put_u64(out, root, "schema", BT_JSON_SCHEMA);
    bt_json_put_text(out, root, "path", facts->path);
    bt_json_put_text(out, root, "arch", facts->arch);
    bt_json_put_text_or_null(out, root, "name", facts->name);
    bt_json_put_bool(out, root, "encoder", facts->encoder);
    json_t *tokenizer = bt_json_put_object(out, root, "tokenizer");
    bt_json_put_text_or_null(out, tokenizer, "model", facts->tokenizer);
    bt_json_put_text_or_null(out, tokenizer, "pre", facts->tokenizer_pre);
    bt_json_put_bool(out, tokenizer, "chat_template", facts->has_chat_template);
    bt_json_put_known(out, root, "ctx_train", (bt_known){facts->n_ctx_train != 0, facts->n_ctx_train});
    bt_json_put_u64(out, root, "embd", facts->n_embd);
    bt_json_put_u64(out, root, "ff", facts->n_ff);
    bt_json_put_u64(out, root, "vocab", facts->n_vocab);
    bt_json_put_u64(out, root, "heads", facts->n_head);
    bt_json_put_u64(out, root, "blocks", facts->n_block);
    bt_json_put_u64(out, root, "experts", facts->n_expert);
    bt_json_put_u64(out, root, "experts_used", facts->n_expert_used);
    bt_json_put_bool(out, root, "tied_head", facts->tied_head);
    bt_json_put_u64(out, root, "tensors", facts->n_file_tensors);
    bt_json_put_u64(out, root, "weight_bytes", facts->weight_bytes);
    bt_json_put_u64(out, root, "working_bytes_per_token", bt_working_bytes(facts));
    bt_json_put_u64(out, root, "small_bytes", facts->small_bytes);
    bt_json_put_u64(out, root, "file_bytes", facts->file_bytes);
    bt_json_put_u64(out, root, "header_bytes", facts->header_bytes);
    bt_json_put_text(out, root, "header_sha256", facts->header_sha256);
    bt_json_put_u64(out, root, "alignment", facts->alignment);
    put_types(out, root, facts);
    put_kv(out, root, facts);
    put_shards(out, root, facts);
    put_units(out, root, facts);
    return root;
}

bt_status bt_report_facts_json(const bt_facts *facts, char **ret_json, bt_error *err) {
    bt_json_out out = {0};
    json_t *root = bt_facts_to_json(&out, facts);
    return bt_json_finish(&out, root, ret_json, err);
}
