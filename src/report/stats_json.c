/* SPDX-License-Identifier: MIT
 * stats_json.c: what a run did, beside what was planned: the file of --stats (docs/interfaces.md).
 *
 * The plan member is plan.json as it was. Text that is no UTF-8 (a token may end inside a character) has U+FFFD in the
 * places. Members of stages that this version has not (drafts, experts) are 0, so that the shape stays. */
#include "base/size.h"
#include "plan/companions.h"
#include "plan/plan.h"
#include "report/json.h"
#include "report/report.h"

#include <stdio.h>

static void put_lines(bt_json_out *out, json_t *measured, const bt_plan *plan, const bt_measured *m) {
    json_t *lines = bt_json_put_array(out, measured, "lines");
    for (uint32_t i = 0; i < BT_LINE_COUNT; i++) {
        if (!bt_plan_has_line(plan, (bt_line)i)) continue;
        const bt_line_use *use = &m->lines[i];
        char name[32];
        (void)snprintf(name, sizeof name, "host/%s", bt_line_name((bt_line)i));
        json_t *line = bt_json_add_object(out, lines);
        bt_json_put_text(out, line, "name", name);
        bt_json_put_u64(out, line, "planned_bytes", use->planned_bytes);
        bt_json_put_u64(out, line, "reserved_bytes", use->reserved_bytes);
        bt_json_put_u64(out, line, "committed_bytes", use->committed_bytes);
        bt_json_put_u64(out, line, "peak_bytes", use->peak_resident_bytes);
    }
}

/* A device is asked how much it has left: whether that is weights or caches it does not say. */
static void put_device(bt_json_out *out, json_t *pools, const bt_device_plan *device, bt_known held) {
    json_t *pool = bt_json_add_object(out, pools);
    bool bound = held.known && device->budget_bytes.known;
    bt_json_put_text(out, pool, "name", device->name);
    bt_json_put_known(out, pool, "pool_bytes", held);
    bt_json_put_known(out, pool, "live_bytes", held);
    bt_json_put_known(out, pool, "peak_live_bytes", held);
    bt_json_put_u64(out, pool, "weights_bytes", device->weights_bytes);
    bt_json_put_known(out, pool, "budget_bytes", device->budget_bytes);
    bt_json_put_known(out, pool, "headroom_bytes",
                      (bt_known){bound, bt_sat_sub_u64(device->budget_bytes.value, held.value)});
    bt_json_put_u64(out, pool, "idle_slots", 0);
    bt_json_put_u64(out, pool, "reserved_classes", 0);
}

static void put_pool(bt_json_out *out, json_t *measured, const bt_plan *plan, const bt_measured *m) {
    uint64_t committed = 0;
    for (uint32_t i = 0; i < BT_LINE_COUNT; i++) {
        committed = bt_sat_add_u64(committed, m->lines[i].committed_bytes);
    }
    bool limited = plan->budget_bytes != UINT64_MAX;
    json_t *pools = bt_json_put_array(out, measured, "pools");
    json_t *pool = bt_json_add_object(out, pools);
    bt_json_put_text(out, pool, "name", "host");
    bt_json_put_u64(out, pool, "pool_bytes", m->pool_bytes);
    bt_json_put_u64(out, pool, "live_bytes", m->live_bytes);
    bt_json_put_u64(out, pool, "peak_live_bytes", m->peak_live_bytes);
    bt_json_put_u64(out, pool, "weights_bytes", m->weights_bytes);
    bt_json_put_u64(out, pool, "budget_bytes", plan->budget_bytes);
    bt_json_put_known(out, pool, "headroom_bytes", (bt_known){limited, bt_sat_sub_u64(plan->budget_bytes, committed)});
    bt_json_put_u64(out, pool, "idle_slots", m->idle_slots);
    bt_json_put_u64(out, pool, "reserved_classes", m->reserved_classes);
    for (uint32_t i = 0; plan->offload && i < plan->offload->split.n_devices; i++)
        put_device(out, pools, &plan->offload->devices[i], m->device_bytes[i]);
}

static void put_locked(bt_json_out *out, json_t *measured, const bt_locked *locked) {
    if (!locked->wanted) {
        bt_json_put_null(out, measured, "locked");
        return;
    }
    json_t *o = bt_json_put_object(out, measured, "locked");
    bt_json_put_u64(out, o, "asked_bytes", locked->asked_bytes);
    bt_json_put_u64(out, o, "locked_bytes", locked->locked_bytes);
    bt_json_put_text_or_null(out, o, "reason", locked->reason);
}

void bt_measured_to_json(bt_json_out *out, json_t *root, const bt_plan *plan, const bt_measured *m) {
    json_t *o = bt_json_put_object(out, root, "measured");
    bt_json_put_u64(out, o, "peak_rss_bytes", m->peak_rss_bytes);
    bt_json_put_known(out, o, "cgroup_peak_bytes", m->cgroup_peak_bytes);
    bt_json_put_u64(out, o, "residual_bytes", m->residual_bytes);
    put_lines(out, o, plan, m);
    put_pool(out, o, plan, m);
    bt_json_put_u64(out, o, "prompt_tokens", m->prompt_tokens);
    bt_json_put_u64(out, o, "generated_tokens", m->generated_tokens);
    bt_json_put_real(out, o, "load_s", m->load_s);
    bt_json_put_real(out, o, "ttft_s", m->ttft_s);
    bt_json_put_real(out, o, "prefill_tokens_per_s", m->prefill_tokens_per_s);
    bt_json_put_real(out, o, "decode_tokens_per_s", m->decode_tokens_per_s);
    bt_json_put_u64(out, o, "passes", m->passes);
    bt_json_put_u64(out, o, "accepted_tokens", m->accepted_tokens);
    bt_json_put_u64(out, o, "drafted_tokens", m->drafted_tokens);
    bt_json_put_u64(out, o, "streamed_bytes", m->streamed_bytes);
    bt_json_put_real(out, o, "read_bandwidth_bytes_per_s", m->read_bytes_per_s);
    bt_json_put_text_or_null(out, o, "reader", m->reader);
    bt_json_put_text_or_null(out, o, "reader_reason", m->reader_reason);
    json_t *tier = bt_json_put_object(out, o, "tier");
    bt_json_put_text(out, tier, "from", m->from_page_cache ? "page cache" : "disk");
    bt_json_put_u64(out, tier, "page_cache_bytes", m->cached_bytes);
    bt_json_put_known(out, tier, "disk_ns_per_mib", (bt_known){m->disk_ns_per_mib > 0, m->disk_ns_per_mib});
    bt_json_put_known(out, tier, "page_cache_ns_per_mib", (bt_known){m->cached_ns_per_mib > 0, m->cached_ns_per_mib});
    bt_json_put_real(out, o, "io_wait_s", m->io_wait_s);
    bt_json_put_real(out, o, "compute_s", m->compute_s);
    bt_json_put_real(out, o, "roofline_ratio", m->roofline_ratio);
    json_t *experts = bt_json_put_object(out, o, "experts");
    bt_json_put_u64(out, experts, "hits", m->expert_hits);
    bt_json_put_u64(out, experts, "misses", m->expert_misses);
    bt_json_put_u64(out, experts, "guesses", m->expert_guesses);
    bt_json_put_u64(out, experts, "guesses_used", m->expert_guesses_used);
    bt_json_put_u64(out, experts, "in_turn", m->expert_waves);
    bt_json_put_u64(out, experts, "bytes", m->expert_bytes);
    bt_json_put_real(out, experts, "wait_s", m->expert_wait_s);
    json_t *elastic = bt_json_put_object(out, o, "elastic");
    bt_json_put_u64(out, elastic, "peak_bytes", m->elastic_peak_bytes);
    bt_json_put_u64(out, elastic, "taken", m->elastic_taken);
    bt_json_put_u64(out, elastic, "released", m->elastic_released);
    bt_layouts_to_json(out, o, &m->layouts);
    put_locked(out, o, &m->locked);
    bt_json_put_u64(out, o, "major_faults", m->major_faults);
    double faults = 0;
    if (bt_report_faults_per_token(m, &faults))
        bt_json_put_real(out, o, "major_faults_per_token", faults);
    else
        bt_json_put_null(out, o, "major_faults_per_token");
    bt_json_put_known(out, o, "loop_heap_allocations", m->loop_heap_allocations);
    bt_json_put_known(out, o, "loop_heap_growth_bytes", m->loop_heap_growth_bytes);
    json_t *schedules = bt_json_put_object(out, o, "schedules");
    bt_json_put_u64(out, schedules, "built", m->schedules_built);
    bt_json_put_u64(out, schedules, "reused", m->schedules_reused);
}

bt_status bt_report_stats_json(const bt_plan *plan, const bt_facts *facts, const bt_machine *machine,
                               const bt_measured *measured, const char *text, size_t text_bytes, const int32_t *tokens,
                               uint32_t n_tokens, char **ret_json, bt_error *err) {
    bt_json_out out = {0};
    json_t *root = json_object();
    bt_json_put(&out, root, "plan", bt_plan_to_json(&out, plan, facts, machine));
    bt_json_put_bytes(&out, root, "text", text, text_bytes);
    json_t *ids = bt_json_put_array(&out, root, "tokens");
    for (uint32_t i = 0; i < n_tokens; i++) {
        if (json_array_append_new(ids, json_integer(tokens[i])) != 0) out.failed = true;
    }
    bt_measured_to_json(&out, root, plan, measured);
    return bt_json_finish(&out, root, ret_json, err);
}
