/* SPDX-License-Identifier: MIT
 * plan_read.c: plan.json back into a plan, strictly.
 *
 * Every member that stands for a field of bt_plan must be there, have its type and its range; what a plan does not hold
 * (the model's facts, counts of blocks) is not looked at, nor are members that are unknown here. Sums are checked,
 * since a ledger whose total is wrong would be a budget that is not kept. Whether the plan is for this model and
 * machine is the fingerprint's question, asked apart. Bounds: BT_JSON_IN_MAX_BYTES, UNIT_MAX; place[] lives in the
 * caller's arena.
 */
#include "base/arena.h"
#include "base/error.h"
#include "model/types.h"
#include "plan/companions.h"
#include "plan/plan.h"
#include "report/json.h"
#include "report/report.h"

#include <stdio.h>
#include <string.h>

#define CTX_MAX     (1u << 30) /* above every trained context, and far from overflow when it is rounded up */
#define THREAD_MAX  4096u      /* Linux: at most 8192 processors, and no more workers than that help */
#define POOLING_MAX 4u         /* LLAMA_POOLING_TYPE_RANK (llama.h) */
#define DRAFT_MAX   6u         /* engine/speculate.h */
#define SLOT_MAX    1024u
#define EXPERT_MAX  1024u                /* model/shape.c */
#define UNIT_MAX    (2u * BT_TENSOR_MAX) /* a unit a tensor, and as many head panels */

/* The names of an enumeration, asked one by one. */
#define NAMES_MAX 16

static bool choice_of(bt_json_in *in, const json_t *object, const char *key, const char *(*name)(uint32_t), uint32_t n,
                      uint32_t *ret) {
    const char *names[NAMES_MAX];
    for (uint32_t i = 0; i < n && i < NAMES_MAX; i++) {
        names[i] = name(i);
    }
    return bt_json_choice(in, object, key, names, n, ret);
}

static const char *verdict_name(uint32_t i) {
    return bt_verdict_name((bt_verdict)i);
}

static const char *source_name(uint32_t i) {
    return bt_source_name((bt_source)i);
}

static uint32_t word(bt_json_in *in, const json_t *object, const char *key, const char *const *names, size_t n) {
    uint32_t value = 0;
    (void)bt_json_choice(in, object, key, names, n, &value);
    return value;
}

static void read_type(bt_json_in *in, const json_t *object, const char *key, uint32_t *ret) {
    char name[32] = "";
    (void)bt_json_text(in, object, key, name, sizeof name);
    if (in->status == BT_OK && !bt_type_by_name(name, ret)) bt_json_wrong(in, key, "a tensor type is wanted");
}

static void read_wished_type(bt_json_in *in, const json_t *object, const char *key, uint32_t *ret) {
    const char *name = json_string_value(json_object_get(object, key));
    if (name && strcmp(name, "auto") == 0) {
        *ret = BT_TYPE_AUTO;
        return;
    }
    read_type(in, object, key, ret);
}

static void read_wishes(bt_json_in *in, const json_t *root, bt_wishes *w) {
    const json_t *o = bt_json_object(in, root, "wishes");
    bt_json_at(in, "wishes.");
    if (!o) bt_json_wrong(in, "", "an object is wanted");
    bt_json_at(in, "wishes.");
    (void)bt_json_bool(in, o, "force", &w->force);
    (void)bt_json_u32_or_0(in, o, "ctx_size", CTX_MAX, &w->n_ctx);
    (void)bt_json_bool(in, o, "allow_ctx_reduction", &w->allow_ctx_reduction);
    (void)bt_json_u32_or_0(in, o, "parallel", CTX_MAX, &w->n_parallel);
    (void)bt_json_u32_or_0(in, o, "batch_size", CTX_MAX, &w->n_batch);
    (void)bt_json_u32_or_0(in, o, "ubatch_size", CTX_MAX, &w->n_ubatch);
    read_wished_type(in, o, "cache_type_k", &w->type_k);
    read_wished_type(in, o, "cache_type_v", &w->type_v);
    w->flash_attn = (bt_choice)word(in, o, "flash_attn", bt_choice_names, 3);
    (void)bt_json_u32_or_0(in, o, "threads", THREAD_MAX, &w->n_threads);
    (void)bt_json_u32_or_0(in, o, "buffers", SLOT_MAX, &w->n_buffers);
    w->stream_head = (bt_choice)word(in, o, "stream_head", bt_choice_names, 3);
    w->elastic = (bt_choice)word(in, o, "elastic", bt_choice_names, 3);
    w->speculate = (bt_speculate)word(in, o, "speculate", bt_speculate_names, 4);
    (void)bt_json_u32_or_0(in, o, "draft_tokens", DRAFT_MAX, &w->n_draft);
    w->repack = (bt_choice)word(in, o, "repack", bt_choice_names, 3);
    w->policy = (bt_policy)word(in, o, "policy", bt_policy_names, 2);
    w->io = (bt_io_mode)word(in, o, "io", bt_io_names, 3);
    w->rope_scaling = (bt_rope_scaling)word(in, o, "rope_scaling", bt_rope_scaling_names, 4);
    bt_known scale = {0};
    (void)bt_json_micro(in, o, "rope_scale", &scale);
    w->rope_scale_micro = scale.known ? scale.value : 0;
    (void)bt_json_u32_or_0(in, o, "yarn_orig_ctx", CTX_MAX, &w->yarn_orig_ctx);
    if (o && json_object_get(o, "chat")) (void)bt_json_bool(in, o, "chat", &w->chat);
    if (o && json_object_get(o, "guest")) (void)bt_json_bool(in, o, "guest", &w->guest);
    if (o && json_object_get(o, "embeddings")) (void)bt_json_bool(in, o, "embeddings", &w->embeddings);
    if (o && json_object_get(o, "pooling")) {
        (void)bt_json_u32(in, o, "pooling", POOLING_MAX, &w->pooling);
        w->pooling++;
    }
    if (o && json_object_get(o, "outputs")) (void)bt_json_u32_or_0(in, o, "outputs", CTX_MAX, &w->n_outputs);
    if (o && json_object_get(o, "kv_unified")) (void)bt_json_bool(in, o, "kv_unified", &w->kv_unified);
    if (o && json_object_get(o, "swa_full")) (void)bt_json_bool(in, o, "swa_full", &w->swa_full);
    if (o && json_object_get(o, "session")) (void)bt_json_bool(in, o, "session", &w->session);
    if (o && json_object_get(o, "mlock")) (void)bt_json_bool(in, o, "mlock", &w->mlock);
    bt_device_wishes_from_json(in, o, w);
    const json_t *budget = bt_json_object(in, o, "ram_budget");
    bt_json_at(in, "wishes.ram_budget.");
    if (!budget) bt_json_wrong(in, "", "an object is wanted");
    w->budget_kind = (bt_budget_kind)word(in, budget, "kind", bt_budget_kind_names, 3);
    (void)bt_json_limit(in, budget, "bytes", &w->budget_bytes);
}

/* The object key of the root, which must be one; members are named below it from now on. */
static const json_t *section(bt_json_in *in, const json_t *root, const char *key) {
    bt_json_at(in, "%s", "");
    const json_t *o = bt_json_object(in, root, key);
    if (!o) bt_json_wrong(in, key, "an object is wanted");
    bt_json_at(in, "%s.", key);
    return o;
}

static void read_shape(bt_json_in *in, const json_t *root, bt_plan *plan) {
    bt_json_at(in, "%s", "");
    (void)bt_json_bool(in, root, "exact", &plan->exact);
    (void)bt_json_u32(in, root, "parallel", CTX_MAX, &plan->n_parallel);
    (void)bt_json_u32(in, root, "threads", THREAD_MAX, &plan->n_threads);
    static const char *const priced[] = {"formula", "dry-run"};
    plan->priced_by_dry_run = word(in, root, "priced_by", priced, 2) == 1;
    static const char *const heads[] = {"streamed", "resident", "device"};
    plan->head_resident = word(in, root, "head", heads, 3) > 0;

    const json_t *ctx = section(in, root, "ctx");
    (void)bt_json_u32_or_0(in, ctx, "requested", CTX_MAX, &plan->n_ctx_requested);
    (void)bt_json_u32(in, ctx, "effective", CTX_MAX, &plan->n_ctx);
    (void)bt_json_u32_or_0(in, ctx, "trained", CTX_MAX, &plan->n_ctx_train);
    (void)bt_json_text(in, ctx, "reason", plan->ctx_reason, sizeof plan->ctx_reason);
    const json_t *batch = section(in, root, "batch");
    (void)bt_json_u32(in, batch, "n_batch", CTX_MAX, &plan->n_batch);
    (void)bt_json_u32(in, batch, "n_ubatch", CTX_MAX, &plan->n_ubatch);
    (void)bt_json_u32(in, batch, "n_draft", DRAFT_MAX, &plan->n_draft);
    const json_t *kv = section(in, root, "kv");
    read_type(in, kv, "type_k", &plan->type_k);
    read_type(in, kv, "type_v", &plan->type_v);
    const json_t *ring = section(in, root, "ring");
    (void)bt_json_u32(in, ring, "slots", SLOT_MAX, &plan->n_slots);
    (void)bt_json_limit(in, ring, "slot_bytes", &plan->slot_bytes);
}

static void read_units(bt_json_in *in, const json_t *root, bt_arena *arena, bt_plan *plan) {
    const json_t *units = section(in, root, "units");
    (void)bt_json_u32(in, units, "total", UNIT_MAX, &plan->n_units);
    (void)bt_json_u32(in, units, "pinned", plan->n_units, &plan->n_pinned);
    (void)bt_json_u32(in, units, "streamed", plan->n_units, &plan->n_streamed);
    (void)bt_json_limit(in, units, "pinned_bytes", &plan->pinned_bytes);
    bt_json_at(in, "%s", "");
    const json_t *placement = bt_json_array(in, root, "placement", (size_t)UNIT_MAX);
    size_t n = json_array_size(placement);
    if (in->status != BT_OK || n == 0) return;
    if (n != plan->n_units) {
        bt_json_wrong(in, "placement", "an item for each of units.total is wanted");
        return;
    }
    plan->place = bt_arena_array(arena, n, sizeof *plan->place);
    if (!plan->place) {
        in->status =
            bt_fail(in->err, BT_E_NOMEM, "json", BT_MEASURE_NONE, 0, 0, "no memory for a plan of %zu units", n);
        return;
    }
    for (size_t i = 0; i < n && in->status == BT_OK; i++) {
        bt_json_at(in, "placement[%zu].", i);
        const json_t *item = bt_json_item(in, placement, i);
        plan->place[i] = (bt_place)word(in, item, "where", bt_place_names, 3);
    }
}

/* null: no expert is read on its own. */
static void read_experts(bt_json_in *in, const json_t *root, bt_plan *plan) {
    bt_json_at(in, "%s", "");
    if (!json_object_get(root, "experts")) return;
    const json_t *o = bt_json_object(in, root, "experts");
    if (!o) return;
    bt_json_at(in, "experts.");
    (void)bt_json_u32(in, o, "slots", EXPERT_MAX, &plan->n_expert_slots);
    (void)bt_json_u32(in, o, "extra", BT_BLOCK_MAX, &plan->n_expert_extra);
    (void)bt_json_bool(in, o, "shared", &plan->experts_shared);
    if (json_object_get(o, "tokens_per_s_reuse")) /* not in plans of before it was forecast */
        (void)bt_json_micro(in, o, "tokens_per_s_reuse", &plan->reuse_micro_tokens_per_s);
}

static void read_layout(bt_json_in *in, const json_t *layouts, const char *key, uint32_t *n_weights, uint64_t *bytes) {
    bt_json_at(in, "layouts.");
    const json_t *o = bt_json_object(in, layouts, key);
    bt_json_at(in, "layouts.%s.", key);
    if (!o) bt_json_wrong(in, "", "an object is wanted");
    (void)bt_json_u32(in, o, "weights", UINT32_MAX, n_weights);
    (void)bt_json_limit(in, o, "bytes", bytes);
}

/* Plans of before weights were repacked in place do not have the member. */
static void read_layouts(bt_json_in *in, const json_t *root, bt_layouts *layouts) {
    if (!json_object_get(root, "layouts")) return;
    const json_t *o = section(in, root, "layouts");
    read_layout(in, o, "replaced", &layouts->n_replaced, &layouts->replaced_bytes);
    read_layout(in, o, "second", &layouts->n_second, &layouts->second_bytes);
}

static void read_lines(bt_json_in *in, const json_t *host, const bt_plan *plan, bt_ledger *ledger) {
    const json_t *lines = bt_json_array(in, host, "lines", BT_LINE_COUNT);
    uint32_t seen = 0; /* bit of each line */
    _Static_assert(BT_LINE_COUNT <= 31, "a bit a line");
    for (size_t i = 0; i < json_array_size(lines) && in->status == BT_OK; i++) {
        bt_json_at(in, "pools[0].lines[%zu].", i);
        const json_t *item = bt_json_item(in, lines, i);
        char name[48] = "";
        (void)bt_json_text(in, item, "name", name, sizeof name);
        uint32_t line = 0;
        while (line < BT_LINE_COUNT &&
               (strncmp(name, "host/", 5) != 0 || strcmp(name + 5, bt_line_name((bt_line)line)) != 0)) {
            line++;
        }
        if (line == BT_LINE_COUNT || (seen & (1u << line)) != 0) {
            bt_json_wrong(in, "name", "a line of the host, once each, is wanted");
            return;
        }
        seen |= 1u << line;
        uint32_t source = 0;
        (void)bt_json_limit(in, item, "planned_bytes", &ledger->bytes[line]);
        (void)choice_of(in, item, "source", source_name, BT_SOURCE_MEASURED + 1, &source);
        ledger->source[line] = (bt_source)source;
    }
    bt_json_at(in, "pools[0].");
    uint32_t wanted = 0;
    for (uint32_t line = 0; line < BT_LINE_COUNT; line++)
        wanted |= (uint32_t)bt_plan_has_line(plan, (bt_line)line) << line;
    if (seen != wanted) bt_json_wrong(in, "lines", "every line, and none of a file that is not named, is wanted");
}

static void read_pools(bt_json_in *in, const json_t *root, bt_plan *plan) {
    bt_json_at(in, "%s", "");
    const json_t *pools = bt_json_array(in, root, "pools", BT_POOL_MAX);
    bt_json_at(in, "pools[0].");
    const json_t *host = bt_json_item(in, pools, 0);
    char name[32] = "";
    (void)bt_json_text(in, host, "name", name, sizeof name);
    if (strcmp(name, "host") != 0) bt_json_wrong(in, "name", "\"host\" is wanted");
    plan->budget_state = (bt_pool_state)word(in, host, "state", bt_pool_state_names, 4);
    (void)bt_json_text(in, host, "source", plan->budget_source, sizeof plan->budget_source);
    (void)bt_json_limit(in, host, "budget_bytes", &plan->budget_bytes);
    (void)bt_json_limit(in, host, "planned_bytes", &plan->planned_bytes);
    (void)bt_json_limit(in, host, "ceiling_bytes", &plan->ceiling_bytes);
    read_lines(in, host, plan, &plan->ledger);
    if (in->status == BT_OK && bt_ledger_sum(&plan->ledger) != plan->planned_bytes) {
        bt_json_wrong(in, "planned_bytes", "the sum of the lines is wanted");
    }
}

/* null: there is none. Plans of before there were any do not have the member. */
static void read_companion(bt_json_in *in, const json_t *root, const char *key, bt_companion *ret) {
    bt_json_at(in, "%s", "");
    if (!json_object_get(root, key)) return;
    const json_t *o = bt_json_object(in, root, key);
    if (!o) return;
    bt_json_at(in, "%s.", key);
    (void)bt_json_text(in, o, "file", ret->file, sizeof ret->file);
    (void)bt_json_limit(in, o, "weight_bytes", &ret->weight_bytes);
    (void)bt_json_limit(in, o, "file_bytes", &ret->file_bytes);
    (void)bt_json_text(in, o, "header_sha256", ret->header_sha256, sizeof ret->header_sha256);
    if (in->status == BT_OK && ret->file[0] == '\0') bt_json_wrong(in, "file", "a name is wanted");
}

static void read_rate(bt_json_in *in, const json_t *object, bt_forecast *forecast) {
    (void)bt_json_micro(in, object, "tokens_per_s", &forecast->micro_tokens_per_s);
    forecast->bound = (bt_bound)word(in, object, "bound", bt_bound_names, 3);
}

static void read_outlook(bt_json_in *in, const json_t *root, bt_plan *plan) {
    const json_t *stream = section(in, root, "stream");
    (void)bt_json_limit(in, stream, "bytes_per_token", &plan->read_bytes_per_pass);
    (void)bt_json_known(in, stream, "bandwidth_bytes_per_s", &plan->disk_bytes_per_s);
    (void)bt_json_bool(in, stream, "page_cache", &plan->page_cache);
    read_rate(in, section(in, root, "forecast"), &plan->forecast);
    bt_json_at(in, "%s", "");
    const json_t *ladder = bt_json_array(in, root, "ladder", BT_RUNG_COUNT);
    for (size_t i = 0; i < json_array_size(ladder) && in->status == BT_OK; i++) {
        bt_json_at(in, "ladder[%zu].", i);
        const json_t *item = bt_json_item(in, ladder, i);
        uint32_t what = word(in, item, "what", bt_rung_names, BT_RUNG_COUNT);
        bt_rung *rung = &plan->ladder[what];
        if (rung->exists) bt_json_wrong(in, "what", "each rung once is wanted");
        rung->exists = true;
        (void)bt_json_limit(in, item, "budget_bytes", &rung->budget_bytes);
        (void)bt_json_u32(in, item, "ctx", CTX_MAX, &rung->n_ctx);
        read_rate(in, item, &rung->forecast);
    }
}

static void read_refusal(bt_json_in *in, const json_t *root, bt_refusal *refusal) {
    bt_json_at(in, "%s", "");
    const json_t *o = bt_json_object(in, root, "refusal");
    if (!o) return; /* null: not refused */
    bt_json_at(in, "refusal.");
    if (!bt_json_text(in, o, "code", refusal->code, sizeof refusal->code))
        bt_json_wrong(in, "code", "a code is wanted");
    (void)bt_json_text(in, o, "message", refusal->message, sizeof refusal->message);
    (void)bt_json_limit(in, o, "need_bytes", &refusal->need_bytes);
    (void)bt_json_limit(in, o, "have_bytes", &refusal->have_bytes);
    const json_t *changes = bt_json_array(in, o, "changes", BT_CHANGE_MAX);
    for (size_t i = 0; i < json_array_size(changes) && in->status == BT_OK; i++) {
        bt_json_at(in, "refusal.changes[%zu].", i);
        const json_t *item = bt_json_item(in, changes, i);
        bt_change *change = &refusal->changes[i];
        (void)bt_json_text(in, item, "flag", change->flag, sizeof change->flag);
        (void)bt_json_text(in, item, "value", change->value, sizeof change->value);
        (void)bt_json_limit(in, item, "need_bytes", &change->need_bytes);
        refusal->n_changes = (uint32_t)i + 1;
    }
}

bt_status bt_plan_from_json(const char *json, size_t n_bytes, struct bt_arena *arena, bt_plan *ret_plan,
                            bt_error *err) {
    bt_json_in in = {.err = err, .all_required = true};
    json_t *root = bt_json_parse(&in, json, n_bytes);
    if (!root) return in.status;
    bt_plan plan = {0};
    uint32_t schema = 0;
    uint32_t verdict = 0;
    if (bt_json_u32(&in, root, "schema", UINT32_MAX, &schema) && schema != BT_JSON_SCHEMA) {
        bt_json_wrong(&in, "schema", "1 is what this version reads");
    }
    (void)choice_of(&in, root, "verdict", verdict_name, BT_VERDICT_UNKNOWN + 1, &verdict);
    plan.verdict = (bt_verdict)verdict;
    (void)bt_json_bool(&in, root, "forced", &plan.forced);
    read_wishes(&in, root, &plan.wishes);
    read_shape(&in, root, &plan);
    read_units(&in, root, arena, &plan);
    read_layouts(&in, root, &plan.layouts);
    read_companion(&in, root, "draft", &plan.draft);
    read_companion(&in, root, "mmproj", &plan.mmproj);
    read_experts(&in, root, &plan);
    bt_offload_from_json(&in, root, arena, &plan.offload);
    read_pools(&in, root, &plan);
    read_outlook(&in, root, &plan);
    read_refusal(&in, root, &plan.refusal);
    json_decref(root);
    if (in.status == BT_OK) *ret_plan = plan;
    return in.status;
}
