/* SPDX-License-Identifier: MIT
 * plan_json.c: a plan as plan.json (docs/interfaces.md).
 *
 * Every field of bt_plan is written, so that plan_read.c can give it back unchanged, beside what scripts want to know
 * without the model at hand: unit names, counts of blocks, the fingerprint. Members that later versions fill (cached
 * experts) are written as 0. The size is bounded by the facts' limits: about 100 bytes a unit. */
#include "base/error.h"
#include "base/size.h"
#include "model/types.h"
#include "plan/companions.h"
#include "plan/costs.h"
#include "plan/plan.h"
#include "report/json.h"
#include "report/report.h"

#include <stdio.h>
#include <string.h>

#define MICRO 1e6

static void put_rate(bt_json_out *out, json_t *parent, const bt_forecast *forecast) {
    if (forecast->micro_tokens_per_s.known) {
        bt_json_put_real(out, parent, "tokens_per_s", (double)forecast->micro_tokens_per_s.value / MICRO);
    } else {
        bt_json_put_null(out, parent, "tokens_per_s");
    }
    bt_json_put_text(out, parent, "bound", bt_bound_names[forecast->bound]);
}

static void put_count_or_null(bt_json_out *out, json_t *parent, const char *key, uint32_t count) {
    bt_json_put_known(out, parent, key, (bt_known){count != 0, count});
}

void bt_fingerprint_to_json(bt_json_out *out, json_t *root, const bt_facts *facts, const bt_machine *machine) {
    bt_fingerprint print;
    bt_fingerprint_make(facts, machine, &print);
    json_t *all = bt_json_put_object(out, root, "fingerprint");
    json_t *model = bt_json_put_object(out, all, "model");
    bt_json_put_u64(out, model, "size", print.model_bytes);
    bt_json_put(out, model, "mtime_ns", json_integer(print.model_mtime_ns));
    bt_json_put_text(out, model, "header_sha256", print.header_sha256);
    bt_json_put_text_or_null(out, all, "machine", print.machine);
    bt_json_put_text(out, all, "build", print.build);
}

static void put_wishes(bt_json_out *out, json_t *root, const bt_wishes *wishes) {
    json_t *w = bt_json_put_object(out, root, "wishes");
    json_t *budget = bt_json_put_object(out, w, "ram_budget");
    bt_json_put_text(out, budget, "kind", bt_budget_kind_names[wishes->budget_kind]);
    bt_json_put_u64(out, budget, "bytes", wishes->budget_bytes);
    bt_json_put_bool(out, w, "force", wishes->force);
    put_count_or_null(out, w, "ctx_size", wishes->n_ctx);
    bt_json_put_bool(out, w, "allow_ctx_reduction", wishes->allow_ctx_reduction);
    put_count_or_null(out, w, "parallel", wishes->n_parallel);
    put_count_or_null(out, w, "batch_size", wishes->n_batch);
    put_count_or_null(out, w, "ubatch_size", wishes->n_ubatch);
    bt_json_put_text(out, w, "cache_type_k", bt_wish_type_name(wishes->type_k));
    bt_json_put_text(out, w, "cache_type_v", bt_wish_type_name(wishes->type_v));
    bt_json_put_text(out, w, "flash_attn", bt_choice_names[wishes->flash_attn]);
    put_count_or_null(out, w, "threads", wishes->n_threads);
    put_count_or_null(out, w, "buffers", wishes->n_buffers);
    bt_json_put_text(out, w, "stream_head", bt_choice_names[wishes->stream_head]);
    bt_json_put_text(out, w, "elastic", bt_choice_names[wishes->elastic]);
    bt_json_put_text(out, w, "speculate", bt_speculate_names[wishes->speculate]);
    put_count_or_null(out, w, "draft_tokens", wishes->n_draft);
    bt_json_put_text(out, w, "repack", bt_choice_names[wishes->repack]);
    bt_json_put_text(out, w, "policy", bt_policy_names[wishes->policy]);
    bt_json_put_text(out, w, "io", bt_io_names[wishes->io]);
    bt_json_put_text(out, w, "rope_scaling", bt_rope_scaling_names[wishes->rope_scaling]);
    if (wishes->rope_scale_micro > 0) {
        bt_json_put_real(out, w, "rope_scale", (double)wishes->rope_scale_micro / MICRO);
    } else {
        bt_json_put_null(out, w, "rope_scale");
    }
    put_count_or_null(out, w, "yarn_orig_ctx", wishes->yarn_orig_ctx);
    /* only where they are asked for */
    if (wishes->chat) bt_json_put_bool(out, w, "chat", true);
    if (wishes->guest) bt_json_put_bool(out, w, "guest", true);
    if (wishes->embeddings) bt_json_put_bool(out, w, "embeddings", true);
    if (wishes->pooling > 0) bt_json_put_u64(out, w, "pooling", wishes->pooling - 1);
    if (wishes->n_outputs > 0) bt_json_put_u64(out, w, "outputs", wishes->n_outputs);
    if (wishes->kv_unified) bt_json_put_bool(out, w, "kv_unified", true);
    if (wishes->swa_full) bt_json_put_bool(out, w, "swa_full", true);
    if (wishes->session) bt_json_put_bool(out, w, "session", true);
    if (wishes->mlock) bt_json_put_bool(out, w, "mlock", true); /* changes no byte of a plan */
    bt_device_wishes_to_json(out, w, wishes);
}

static void put_model(bt_json_out *out, json_t *root, const bt_facts *facts) {
    json_t *m = bt_json_put_object(out, root, "model");
    bt_json_put_text(out, m, "path", facts->path);
    bt_json_put_text(out, m, "arch", facts->arch);
    bt_json_put_text_or_null(out, m, "name", facts->name);
    bt_json_put_u64(out, m, "blocks", facts->n_block);
    bt_json_put_u64(out, m, "tensors", facts->n_file_tensors);
    bt_json_put_bool(out, m, "encoder", facts->encoder);
    bt_json_put_u64(out, m, "weight_bytes", facts->weight_bytes);
    bt_json_put_u64(out, m, "working_bytes_per_token", bt_working_bytes(facts));
    bt_json_put_u64(out, m, "file_bytes", facts->file_bytes);
    bt_json_put_u64(out, m, "shards", facts->n_shards);
}

static void put_companion(bt_json_out *out, json_t *root, const char *key, const bt_companion *companion) {
    if (companion->file[0] == '\0') {
        bt_json_put_null(out, root, key);
        return;
    }
    json_t *c = bt_json_put_object(out, root, key);
    bt_json_put_text(out, c, "file", companion->file);
    bt_json_put_u64(out, c, "weight_bytes", companion->weight_bytes);
    bt_json_put_u64(out, c, "file_bytes", companion->file_bytes);
    bt_json_put_text(out, c, "header_sha256", companion->header_sha256);
}

static void put_shape(bt_json_out *out, json_t *root, const bt_plan *plan, const bt_facts *facts) {
    json_t *ctx = bt_json_put_object(out, root, "ctx");
    put_count_or_null(out, ctx, "requested", plan->n_ctx_requested);
    bt_json_put_u64(out, ctx, "effective", plan->n_ctx);
    bt_json_put_u64(out, ctx, "per_request", plan->n_ctx / bt_max_u64(plan->n_parallel, 1));
    put_count_or_null(out, ctx, "trained", plan->n_ctx_train);
    bt_json_put_text_or_null(out, ctx, "reason", plan->ctx_reason);
    json_t *batch = bt_json_put_object(out, root, "batch");
    bt_json_put_u64(out, batch, "n_batch", plan->n_batch);
    bt_json_put_u64(out, batch, "n_ubatch", plan->n_ubatch);
    bt_json_put_u64(out, batch, "n_draft", plan->n_draft);
    bt_json_put_u64(out, root, "parallel", plan->n_parallel);
    bt_json_put_u64(out, root, "threads", plan->n_threads);
    bt_json_put_bool(out, root, "exact", plan->exact);
    bt_json_put_text(out, root, "priced_by", plan->priced_by_dry_run ? "dry-run" : "formula");
    json_t *kv = bt_json_put_object(out, root, "kv");
    bt_known token_bytes = {0};
    token_bytes.known = bt_kv_token_bytes(facts, plan->type_k, plan->type_v, &token_bytes.value);
    bt_json_put_text(out, kv, "type_k", bt_type_name(plan->type_k));
    bt_json_put_text(out, kv, "type_v", bt_type_name(plan->type_v));
    bt_json_put_known(out, kv, "bytes_per_token", token_bytes);
    bt_json_put_known(out, kv, "state_bytes_per_sequence", (bt_known){facts->kv_known, bt_kv_state_bytes(facts, 1)});
    bool away = plan->offload && plan->offload->split.head;
    bt_json_put_text(out, root, "head", away ? "device" : plan->head_resident ? "resident" : "streamed");
    json_t *ring = bt_json_put_object(out, root, "ring");
    bt_json_put_u64(out, ring, "slots", plan->n_slots);
    bt_json_put_u64(out, ring, "slot_bytes", plan->slot_bytes);
}

static void put_layout(bt_json_out *out, json_t *layouts, const char *key, uint32_t n_weights, uint64_t bytes) {
    json_t *o = bt_json_put_object(out, layouts, key);
    bt_json_put_u64(out, o, "weights", n_weights);
    bt_json_put_u64(out, o, "bytes", bytes);
}

void bt_layouts_to_json(bt_json_out *out, json_t *root, const bt_layouts *layouts) {
    json_t *o = bt_json_put_object(out, root, "layouts");
    put_layout(out, o, "replaced", layouts->n_replaced, layouts->replaced_bytes);
    put_layout(out, o, "second", layouts->n_second, layouts->second_bytes);
}

/* A block is pinned or streamed when all its units are, else partial. A block without units is all small tensors. */
static void put_blocks(bt_json_out *out, json_t *root, const bt_plan *plan, const bt_facts *facts) {
    uint32_t n_pinned = 0;
    uint32_t n_streamed = 0;
    uint8_t seen[BT_BLOCK_MAX] = {0}; /* bit of each place found */
    for (uint32_t i = 0; plan->place && i < facts->n_units; i++) {
        int32_t block = facts->units[i].block;
        if (block >= 0 && block < BT_BLOCK_MAX) seen[block] |= (uint8_t)(plan->place[i] == BT_PLACE_PINNED ? 1 : 2);
    }
    uint32_t n_away = bt_split_blocks(&facts->split);
    for (uint32_t i = n_away; plan->place && i < facts->n_block && i < BT_BLOCK_MAX; i++) {
        n_pinned += seen[i] <= 1;
        n_streamed += seen[i] == 2;
    }
    uint32_t n_placed = plan->place ? facts->n_block - n_away : 0;
    json_t *blocks = bt_json_put_object(out, root, "blocks");
    bt_json_put_u64(out, blocks, "total", facts->n_block);
    bt_json_put_u64(out, blocks, "device", n_away);
    bt_json_put_u64(out, blocks, "pinned", n_pinned);
    bt_json_put_u64(out, blocks, "partial", n_placed - n_pinned - n_streamed);
    bt_json_put_u64(out, blocks, "streamed", n_streamed);
}

static void put_units(bt_json_out *out, json_t *root, const bt_plan *plan, const bt_facts *facts) {
    json_t *units = bt_json_put_object(out, root, "units");
    bt_json_put_u64(out, units, "total", plan->n_units);
    bt_json_put_u64(out, units, "pinned", plan->n_pinned);
    bt_json_put_u64(out, units, "streamed", plan->n_streamed);
    bt_json_put_u64(out, units, "cached", 0);
    bt_json_put_u64(out, units, "device", 0); /* units are those of the host */
    bt_json_put_u64(out, units, "pinned_bytes", plan->pinned_bytes);
    put_blocks(out, root, plan, facts);
    bt_layouts_to_json(out, root, &plan->layouts);
    json_t *placement = bt_json_put_array(out, root, "placement");
    for (uint32_t i = 0; plan->place && i < plan->n_units && i < facts->n_units; i++) {
        json_t *item = bt_json_add_object(out, placement);
        bt_json_put_text(out, item, "unit", facts->units[i].name);
        bt_json_put_text(out, item, "where", bt_place_names[plan->place[i]]);
        bt_json_put_u64(out, item, "bytes", facts->units[i].bytes);
    }
}

static double share_of(uint32_t n, uint32_t all) {
    return n < all ? (double)n / (double)all : 1.0;
}

static void put_experts(bt_json_out *out, json_t *root, const bt_plan *plan, const bt_facts *facts) {
    if (plan->n_expert_slots == 0) {
        bt_json_put_null(out, root, "experts");
        return;
    }
    json_t *experts = bt_json_put_object(out, root, "experts");
    uint64_t token_bytes = 0;
    for (uint32_t b = 0; b < facts->n_expert_blocks; b++)
        token_bytes =
            bt_sat_add_u64(token_bytes, bt_sat_mul_u64(facts->expert_blocks[b].expert_bytes, facts->n_expert_used));
    bt_json_put_u64(out, experts, "blocks", facts->n_expert_blocks);
    bt_json_put_u64(out, experts, "of_block", facts->n_expert);
    bt_json_put_u64(out, experts, "used", facts->n_expert_used);
    bt_json_put_u64(out, experts, "slots", plan->n_expert_slots);
    bt_json_put_u64(out, experts, "extra", plan->n_expert_extra);
    bt_json_put_bool(out, experts, "shared", plan->experts_shared);
    bt_json_put_u64(out, experts, "bytes_per_token", token_bytes);
    bool keeps = !plan->experts_shared && facts->n_expert > 0;
    double even = keeps ? share_of(plan->n_expert_slots, facts->n_expert) : 0.0;
    bt_json_put_real(out, experts, "hit_rate", even);
    bt_json_put_real(out, experts, "hit_rate_reuse",
                     keeps ? even + (1.0 - even) * BT_EXPERT_REUSE_PERCENT / 100.0 : 0.0);
    if (plan->reuse_micro_tokens_per_s.known)
        bt_json_put_real(out, experts, "tokens_per_s_reuse", (double)plan->reuse_micro_tokens_per_s.value / MICRO);
    else
        bt_json_put_null(out, experts, "tokens_per_s_reuse");
}

static void put_pools(bt_json_out *out, json_t *root, const bt_plan *plan) {
    json_t *pools = bt_json_put_array(out, root, "pools");
    json_t *host = bt_json_add_object(out, pools);
    bool limited = plan->budget_bytes != UINT64_MAX;
    bt_known headroom = {limited, bt_sat_sub_u64(plan->budget_bytes, plan->planned_bytes)};
    bt_json_put_text(out, host, "name", "host");
    bt_json_put_text(out, host, "state", bt_pool_state_names[plan->budget_state]);
    bt_json_put_null(out, host, "reason");
    bt_json_put_text_or_null(out, host, "source", plan->budget_source);
    bt_json_put_u64(out, host, "budget_bytes", plan->budget_bytes);
    bt_json_put_u64(out, host, "planned_bytes", plan->planned_bytes);
    bt_json_put_known(out, host, "headroom_bytes", headroom);
    bt_json_put_u64(out, host, "ceiling_bytes", plan->ceiling_bytes);
    json_t *lines = bt_json_put_array(out, host, "lines");
    for (uint32_t i = 0; i < BT_LINE_COUNT; i++) {
        if (!bt_plan_has_line(plan, (bt_line)i)) continue;
        char name[32];
        (void)snprintf(name, sizeof name, "host/%s", bt_line_name((bt_line)i));
        json_t *line = bt_json_add_object(out, lines);
        bt_json_put_text(out, line, "name", name);
        bt_json_put_u64(out, line, "planned_bytes", plan->ledger.bytes[i]);
        bt_json_put_text(out, line, "source", bt_source_name(plan->ledger.source[i]));
    }
    for (uint32_t i = 0; plan->offload && i < plan->offload->split.n_devices; i++)
        bt_device_pool_to_json(out, pools, &plan->offload->devices[i]);
}

static void put_outlook(bt_json_out *out, json_t *root, const bt_plan *plan) {
    json_t *stream = bt_json_put_object(out, root, "stream");
    bt_json_put_u64(out, stream, "bytes_per_token", plan->read_bytes_per_pass);
    bt_json_put_known(out, stream, "bandwidth_bytes_per_s", plan->disk_bytes_per_s);
    bt_json_put_text(out, stream, "io", bt_io_names[plan->wishes.io]);
    bt_json_put_bool(out, stream, "page_cache", plan->page_cache);
    bt_json_put_disk(out, bt_json_put_object(out, stream, "disk"), &plan->disk);
    put_rate(out, bt_json_put_object(out, root, "forecast"), &plan->forecast);
    json_t *ladder = bt_json_put_array(out, root, "ladder");
    for (uint32_t i = 0; i < BT_RUNG_COUNT; i++) {
        const bt_rung *rung = &plan->ladder[i];
        if (!rung->exists) continue;
        json_t *item = bt_json_add_object(out, ladder);
        bt_json_put_text(out, item, "what", bt_rung_names[i]);
        bt_json_put_u64(out, item, "budget_bytes", rung->budget_bytes);
        bt_json_put_u64(out, item, "ctx", rung->n_ctx);
        put_rate(out, item, &rung->forecast);
    }
}

static void put_refusal(bt_json_out *out, json_t *root, const bt_refusal *refusal) {
    if (refusal->code[0] == '\0') {
        bt_json_put_null(out, root, "refusal");
        return;
    }
    json_t *r = bt_json_put_object(out, root, "refusal");
    bt_json_put_text(out, r, "code", refusal->code);
    bt_json_put_text(out, r, "message", refusal->message);
    bt_json_put_u64(out, r, "need_bytes", refusal->need_bytes);
    bt_json_put_u64(out, r, "have_bytes", refusal->have_bytes);
    json_t *changes = bt_json_put_array(out, r, "changes");
    for (uint32_t i = 0; i < refusal->n_changes && i < BT_CHANGE_MAX; i++) {
        json_t *change = bt_json_add_object(out, changes);
        bt_json_put_text(out, change, "flag", refusal->changes[i].flag);
        bt_json_put_text(out, change, "value", refusal->changes[i].value);
        bt_json_put_u64(out, change, "need_bytes", refusal->changes[i].need_bytes);
    }
}

json_t *bt_plan_to_json(bt_json_out *out, const bt_plan *plan, const bt_facts *facts, const bt_machine *machine) {
    json_t *root = json_object();
    bt_json_put_text(out, root, "burthen", BT_VERSION);
    bt_json_put_u64(out, root, "schema", BT_JSON_SCHEMA);
    bt_json_put_text(out, root, "verdict", bt_verdict_name(plan->verdict));
    bt_json_put_bool(out, root, "forced", plan->forced);
    bt_fingerprint_to_json(out, root, facts, machine);
    put_wishes(out, root, &plan->wishes);
    put_model(out, root, facts);
    put_companion(out, root, "draft", &plan->draft);
    put_companion(out, root, "mmproj", &plan->mmproj);
    put_shape(out, root, plan, facts);
    put_units(out, root, plan, facts);
    put_experts(out, root, plan, facts);
    bt_offload_to_json(out, root, plan->offload);
    put_pools(out, root, plan);
    put_outlook(out, root, plan);
    put_refusal(out, root, &plan->refusal);
    return root;
}

bt_status bt_report_plan_json(const bt_plan *plan, const bt_facts *facts, const bt_machine *machine, char **ret_json,
                              bt_error *err) {
    if (plan->place && plan->n_units != facts->n_units) {
        return bt_fail(err, BT_E_ARG, "json", BT_MEASURE_ITEMS, plan->n_units, facts->n_units,
                       "a plan of %u units for a model of %u", plan->n_units, facts->n_units);
    }
    bt_json_out out = {0};
    json_t *root = bt_plan_to_json(&out, plan, facts, machine);
    return bt_json_finish(&out, root, ret_json, err);
}
