/* SPDX-License-Identifier: MIT
 * bench_json.c: what was measured, as JSON (docs/schema/bench.schema.json), and a row of it back.
 *
 * Every repetition is written as it was counted, beside the figures made of them, so that rows of several processes can
 * be put together and others can compute their own. Of a row that was refused only the refusal is known; the rest is
 * null. The size is bounded by rows times repetitions: 3,200 repetitions of some 300 bytes. */
#include "base/error.h"
#include "plan/plan.h"
#include "report/bench.h"
#include "report/json.h"

#include <stdio.h>
#include <string.h>

#define COUNT_MAX UINT32_MAX

/* ---- writing ---------------------------------------------------------------------------------------------------- */

static void put_repetition(bt_json_out *out, json_t *array, const bt_bench_repetition *r) {
    json_t *o = bt_json_add_object(out, array);
    bt_json_put_u64(out, o, "prompt_ns", r->prompt_ns);
    bt_json_put_u64(out, o, "decode_ns", r->decode_ns);
    bt_json_put_u64(out, o, "passes", r->passes);
    bt_json_put_u64(out, o, "read_bytes", r->read_bytes);
    bt_json_put_u64(out, o, "busy_ns", r->busy_ns);
    bt_json_put_u64(out, o, "wait_ns", r->wait_ns);
    bt_json_put_u64(out, o, "compute_ns", r->compute_ns);
    bt_json_put_u64(out, o, "major_faults", r->major_faults);
    bt_json_put_u64(out, o, "bare_bytes", r->bare_bytes);
    bt_json_put_u64(out, o, "bare_ns", r->bare_ns);
}

static void put_figures(bt_json_out *out, json_t *o, const bt_bench_row *row) {
    for (int i = 0; i < BT_BENCH_FIGURE_COUNT; i++) {
        bt_bench_spread spread = bt_bench_spread_of(row, (bt_bench_figure)i);
        if (!spread.known) {
            bt_json_put_null(out, o, bt_bench_figure_names[i]);
            continue;
        }
        json_t *figure = bt_json_put_object(out, o, bt_bench_figure_names[i]);
        bt_json_put_real(out, figure, "median", spread.median);
        bt_json_put_real(out, figure, "min", spread.min);
        bt_json_put_real(out, figure, "max", spread.max);
    }
}

static void put_refusal(bt_json_out *out, json_t *o, const bt_refusal *refusal) {
    if (refusal->code[0] == '\0') {
        bt_json_put_null(out, o, "refusal");
        return;
    }
    json_t *r = bt_json_put_object(out, o, "refusal");
    bt_json_put_text(out, r, "code", refusal->code);
    bt_json_put_text(out, r, "message", refusal->message);
    bt_json_put_u64(out, r, "need_bytes", refusal->need_bytes);
    bt_json_put_u64(out, r, "have_bytes", refusal->have_bytes);
}

static void put_row(bt_json_out *out, json_t *array, const bt_bench_row *row) {
    json_t *o = bt_json_add_object(out, array);
    bool ran = row->refusal.code[0] == '\0';
    bt_json_put_text_or_null(out, o, "asked", row->asked);
    bt_json_put_u64(out, o, "budget_bytes", row->budget_bytes);
    bt_json_put_text(out, o, "verdict", bt_verdict_name(row->verdict));
    put_refusal(out, o, &row->refusal);
    bt_json_put_known(out, o, "ctx", (bt_known){ran, row->n_ctx});
    bt_json_put_known(out, o, "n_ubatch", (bt_known){ran, row->n_ubatch});
    bt_json_put_known(out, o, "threads", (bt_known){ran, row->n_threads});
    bt_json_put_known(out, o, "n_parallel", (bt_known){ran, row->n_parallel});
    bt_json_put_known(out, o, "prompt_tokens", (bt_known){ran, row->n_prompt});
    bt_json_put_known(out, o, "generated_tokens", (bt_known){ran, row->n_gen});
    bt_json_put_known(out, o, "planned_bytes", (bt_known){ran, row->planned_bytes});
    bt_json_put_known(out, o, "peak_bytes", (bt_known){ran, row->peak_bytes});
    bt_json_put_known(out, o, "pinned_bytes", (bt_known){ran, row->pinned_bytes});
    bt_json_put_known(out, o, "streamed_bytes", (bt_known){ran, row->streamed_bytes});
    bt_json_put_known(out, o, "planned_read_bytes_per_token", (bt_known){ran, row->planned_read_bytes});
    bt_json_put_text(out, o, "bound", row->n_repetitions > 0 ? bt_bound_names[bt_bench_bound(row)] : NULL);
    put_figures(out, o, row);
    json_t *repetitions = bt_json_put_array(out, o, "repetitions");
    for (uint32_t i = 0; i < row->n_repetitions; i++)
        put_repetition(out, repetitions, &row->repetitions[i]);
}

static void put_machine(bt_json_out *out, json_t *root, const bt_machine *machine) {
    json_t *o = bt_json_put_object(out, root, "machine");
    const bt_pool *host = &machine->pools[0];
    bool known = machine->n_pools > 0 && host->state == BT_READING_REPORTED;
    bt_json_put_known(out, o, "cores", (bt_known){machine->n_threads > 0, machine->n_threads});
    bt_json_put_known(out, o, "memory_bytes", (bt_known){known, host->total_bytes});
}

bt_status bt_bench_json(const bt_bench *bench, const bt_facts *facts, const bt_machine *machine, char **ret_json,
                        bt_error *err) {
    bt_json_out out = {0};
    json_t *root = json_object();
    bt_json_put_text(&out, root, "burthen", BT_VERSION);
    bt_json_put_u64(&out, root, "schema", BT_JSON_SCHEMA);
    bt_fingerprint_to_json(&out, root, facts, machine);
    json_t *model = bt_json_put_object(&out, root, "model");
    bt_json_put_text(&out, model, "file", bt_path_file(facts->path));
    bt_json_put_text(&out, model, "arch", facts->arch);
    bt_json_put_u64(&out, model, "weight_bytes", facts->weight_bytes);
    put_machine(&out, root, machine);
    json_t *settings = bt_json_put_object(&out, root, "settings");
    bt_json_put_u64(&out, settings, "n_prompt", bench->n_prompt);
    bt_json_put_u64(&out, settings, "n_gen", bench->n_gen);
    bt_json_put_u64(&out, settings, "repetitions", bench->n_repetitions);
    bt_json_put_text(&out, settings, "elastic", bt_choice_names[bench->elastic]);
    bt_json_put_text(&out, settings, "io", bt_io_names[bench->io]);
    json_t *ladder = bt_json_put_object(&out, root, "ladder");
    bt_json_put_known(&out, ladder, "minimum_bytes", bench->minimum_bytes);
    bt_json_put_known(&out, ladder, "all_pinned_bytes", bench->all_pinned_bytes);
    json_t *rows = bt_json_put_array(&out, root, "rows");
    for (uint32_t i = 0; i < bench->n_rows; i++)
        put_row(&out, rows, &bench->rows[i]);
    return bt_json_finish(&out, root, ret_json, err);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static void read_repetition(bt_json_in *in, const json_t *o, bt_bench_repetition *r) {
    (void)bt_json_u64(in, o, "prompt_ns", &r->prompt_ns);
    (void)bt_json_u64(in, o, "decode_ns", &r->decode_ns);
    (void)bt_json_u64(in, o, "passes", &r->passes);
    (void)bt_json_u64(in, o, "read_bytes", &r->read_bytes);
    (void)bt_json_u64(in, o, "busy_ns", &r->busy_ns);
    (void)bt_json_u64(in, o, "wait_ns", &r->wait_ns);
    (void)bt_json_u64(in, o, "compute_ns", &r->compute_ns);
    (void)bt_json_u64(in, o, "major_faults", &r->major_faults);
    (void)bt_json_u64(in, o, "bare_bytes", &r->bare_bytes);
    (void)bt_json_u64(in, o, "bare_ns", &r->bare_ns);
}

static void read_row(bt_json_in *in, const json_t *o, bt_bench_row *row) {
    const char *verdicts[BT_VERDICT_UNKNOWN + 1];
    uint32_t verdict = 0;
    for (uint32_t i = 0; i <= BT_VERDICT_UNKNOWN; i++)
        verdicts[i] = bt_verdict_name((bt_verdict)i);
    (void)bt_json_limit(in, o, "budget_bytes", &row->budget_bytes);
    (void)bt_json_choice(in, o, "verdict", verdicts, BT_VERDICT_UNKNOWN + 1, &verdict);
    row->verdict = (bt_verdict)verdict;
    (void)bt_json_u32(in, o, "ctx", COUNT_MAX, &row->n_ctx);
    (void)bt_json_u32(in, o, "n_ubatch", COUNT_MAX, &row->n_ubatch);
    (void)bt_json_u32(in, o, "threads", COUNT_MAX, &row->n_threads);
    (void)bt_json_u32(in, o, "n_parallel", COUNT_MAX, &row->n_parallel);
    (void)bt_json_u32(in, o, "prompt_tokens", COUNT_MAX, &row->n_prompt);
    (void)bt_json_u32(in, o, "generated_tokens", COUNT_MAX, &row->n_gen);
    (void)bt_json_u64(in, o, "planned_bytes", &row->planned_bytes);
    (void)bt_json_u64(in, o, "peak_bytes", &row->peak_bytes);
    (void)bt_json_u64(in, o, "pinned_bytes", &row->pinned_bytes);
    (void)bt_json_u64(in, o, "streamed_bytes", &row->streamed_bytes);
    (void)bt_json_u64(in, o, "planned_read_bytes_per_token", &row->planned_read_bytes);
    const json_t *repetitions = bt_json_array(in, o, "repetitions", BT_BENCH_REPETITION_MAX);
    for (size_t i = 0; i < json_array_size(repetitions) && in->status == BT_OK; i++) {
        bt_json_at(in, "rows[0].repetitions[%zu].", i);
        read_repetition(in, bt_json_item(in, repetitions, i), &row->repetitions[i]);
        row->n_repetitions = (uint32_t)i + 1;
    }
}

bt_status bt_bench_row_from_json(const char *json, size_t n_bytes, bt_bench_row *ret, bt_error *err) {
    bt_json_in in = {.err = err, .all_required = true};
    json_t *root = bt_json_parse(&in, json, n_bytes);
    if (!root) return in.status;
    memset(ret, 0, sizeof *ret);
    bt_json_at(&in, "%s", "");
    const json_t *rows = bt_json_array(&in, root, "rows", BT_BENCH_ROW_MAX);
    if (in.status == BT_OK && json_array_size(rows) == 0) bt_json_wrong(&in, "rows", "a row is wanted");
    bt_json_at(&in, "rows[0].");
    if (in.status == BT_OK) read_row(&in, bt_json_item(&in, rows, 0), ret);
    json_decref(root);
    return in.status;
}
