/* SPDX-License-Identifier: MIT
 *
 * bench_here.c: the measurement at one budget, in this process.
 *
 *   context = prompt + tokens, unless -c -> plan -> load -> a token to warm up -> repetitions -> row
 *
 * The tokens are made before anything is timed. A prompt that was not asked for in tokens is cut to what the context
 * holds, and that is said; one that was asked for is refused. */
#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"
#include "cli/bench.h"
#include "cli/running.h"
#include "engine/bench_run.h"
#include "plan/plan.h"

#include <string.h>

/* ---- how many tokens -------------------------------------------------------------------------------------------- */

/* The prompt for a context of n_ctx. */
static bt_status fit_prompt(const bt_cli_options *options, uint32_t n_ctx, uint32_t *ret_n_prompt, bt_error *err) {
    uint64_t n_both = (uint64_t)options->n_prompt + options->n_gen;
    *ret_n_prompt = options->n_prompt;
    if (n_both <= n_ctx) return BT_OK;
    if (options->n_gen < n_ctx && !options->n_prompt_given) {
        *ret_n_prompt = n_ctx - options->n_gen;
        return BT_OK;
    }
    return bt_fail(err, BT_E_ARG, "prompt_tokens", BT_MEASURE_TOKENS, n_both, n_ctx,
                   "a prompt of %u tokens and %u more do not fit in a context of %u", options->n_prompt, options->n_gen,
                   n_ctx);
}

static uint32_t sequence_ctx(const bt_plan *plan) {
    return plan->n_ctx / (uint32_t)bt_max_u64(plan->n_parallel, 1);
}

/* A measurement wants no more context than it fills. user: our options. */
static bt_status ask_context(const bt_facts *facts, void *user, bt_error *err) {
    bt_cli_options *options = user;
    if (options->wishes.n_ctx > 0) return BT_OK;
    uint64_t reach = bt_plan_ctx_reach(&options->wishes, facts->n_ctx_train);
    uint64_t n_ctx = (uint64_t)options->n_prompt + options->n_gen;
    if (reach > 0 && n_ctx > reach) {
        uint32_t n_prompt = 0;
        BT_TRY(fit_prompt(options, (uint32_t)reach, &n_prompt, err));
        n_ctx = reach;
    }
    n_ctx = bt_sat_mul_u64(n_ctx, bt_max_u64(options->wishes.n_parallel, 1));
    options->wishes.n_ctx = (uint32_t)bt_min_u64(n_ctx, UINT32_MAX);
    return BT_OK;
}

static bt_status check_context(bt_engine *engine, const bt_plan *plan, const void *user, bt_error *err) {
    (void)engine;
    uint32_t n_prompt = 0;
    return fit_prompt(user, sequence_ctx(plan), &n_prompt, err);
}

/* ---- the row ---------------------------------------------------------------------------------------------------- */

/* Of a pass that a token of each sequence shares: of as many as a micro-batch holds (bt_session_decode_each). */
static uint64_t token_bytes(const bt_plan *plan, uint32_t n_parallel) {
    uint64_t n_group = bt_max_u64(bt_min_u64(plan->n_ubatch, plan->n_batch), 1);
    uint64_t n_passes = (n_parallel + n_group - 1) / n_group;
    return bt_sat_mul_u64(plan->read_bytes_per_pass, n_passes) / n_parallel;
}

static void describe(const bt_running *running, bt_bench *bench) {
    const bt_plan *plan = &running->plan;
    const bt_facts *facts = running->facts;
    bt_bench_row *row = &bench->rows[0];
    bench->n_rows = 1;
    bench->minimum_bytes = (bt_known){plan->ladder[BT_RUNG_MINIMUM].exists, plan->ladder[BT_RUNG_MINIMUM].budget_bytes};
    bench->all_pinned_bytes =
        (bt_known){plan->ladder[BT_RUNG_ALL_PINNED].exists, plan->ladder[BT_RUNG_ALL_PINNED].budget_bytes};
    row->budget_bytes = plan->budget_bytes;
    row->verdict = plan->verdict;
    row->planned_bytes = plan->planned_bytes;
    row->n_parallel = (uint32_t)bt_max_u64(plan->n_parallel, 1);
    row->planned_read_bytes = token_bytes(plan, row->n_parallel);
    row->n_ctx = plan->n_ctx;
    row->n_ubatch = plan->n_ubatch;
    row->n_threads = plan->n_threads;
    row->n_gen = bench->n_gen;
    for (uint32_t i = 0; plan->place && i < facts->n_units; i++) {
        if (facts->units[i].kind == BT_KIND_TABLE) continue;
        uint64_t *sum = plan->place[i] == BT_PLACE_PINNED ? &row->pinned_bytes : &row->streamed_bytes;
        *sum = bt_sat_add_u64(*sum, facts->units[i].bytes);
    }
    for (uint32_t b = 0; b < facts->n_expert_blocks; b++) {
        uint64_t n_kept = plan->experts_shared ? 0 : plan->n_expert_slots + (b < plan->n_expert_extra);
        uint64_t expert_bytes = facts->expert_blocks[b].expert_bytes;
        row->pinned_bytes = bt_sat_add_u64(row->pinned_bytes, n_kept * expert_bytes);
        row->streamed_bytes = bt_sat_add_u64(row->streamed_bytes, (facts->n_expert - n_kept) * expert_bytes);
    }
}

static bt_status repeat(bt_running *running, const int32_t *tokens, bt_bench *bench, bt_error *err) {
    bt_bench_row *row = &bench->rows[0];
    bt_status status = bt_bench_warm_up(running->session, tokens, row->n_prompt + row->n_gen, err);
    for (uint32_t i = 0; i < bench->n_repetitions && status == BT_OK; i++) {
        bt_terminal_bar(&running->terminal, "measuring", i, bench->n_repetitions);
        status = bt_bench_repeat(running->engine, running->session, tokens, row->n_prompt, row->n_gen,
                                 &row->repetitions[i], err);
        if (status == BT_OK) row->n_repetitions = i + 1;
    }
    bt_terminal_bar_end(&running->terminal);
    return status;
}

static bt_status measure(bt_running *running, bt_bench *bench, bt_error *err) {
    bt_bench_row *row = &bench->rows[0];
    describe(running, bench);
    BT_TRY(fit_prompt(running->options, sequence_ctx(&running->plan), &row->n_prompt, err));
    uint32_t n_each = row->n_prompt + row->n_gen; /* all of them fit in the context */
    uint32_t n = n_each * row->n_parallel;
    int32_t *tokens = bt_heap_array(n, sizeof *tokens);
    if (!tokens) return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_TOKENS, n, 0, "no memory for %u tokens", n);
    bt_status status = bt_bench_tokens(running->engine, row->n_parallel, n_each, tokens, err);
    if (status == BT_OK) status = repeat(running, tokens, bench, err);
    bt_heap_free(tokens);
    return status;
}

/* ---- what is said ----------------------------------------------------------------------------------------------- */

static void count(const bt_bench_row *row, bt_measured *measured) {
    measured->prompt_tokens = row->n_prompt * row->n_parallel;
    measured->generated_tokens = row->n_gen * row->n_parallel;
    measured->prefill_tokens_per_s = bt_bench_spread_of(row, BT_BENCH_PREFILL).median;
    measured->decode_tokens_per_s = bt_bench_spread_of(row, BT_BENCH_DECODE).median;
    measured->roofline_ratio = bt_bench_spread_of(row, BT_BENCH_RATIO).median;
    if (measured->prefill_tokens_per_s > 0) measured->ttft_s = measured->prompt_tokens / measured->prefill_tokens_per_s;
}

static int keep(bt_running *running, const bt_bench *bench, bt_measured *measured) {
    const bt_cli_options *options = running->options;
    bt_error err = {0};
    bt_text text;
    if (options->bench_step) return 0;
    count(&bench->rows[0], measured);
    bt_running_keep(running, measured);
    if (!options->stats_file) return 0;
    bt_text_init(&text, 1); /* there is no text, and no token that anybody chose */
    bt_status status = bt_running_write_stats(running, measured, &text, NULL, 0, &err);
    bt_text_done(&text);
    return status == BT_OK ? 0 : bt_cli_fail(&err);
}

static int measure_and_print(bt_running *running, bt_bench *bench) {
    bt_error err = {0};
    if (measure(running, bench, &err) != BT_OK) return bt_running_fail(&err);
    bt_measured *measured = bt_heap_alloc(sizeof *measured);
    if (!measured) {
        (void)bt_fail(&err, BT_E_NOMEM, "heap", BT_MEASURE_NONE, 0, 0, "no memory to count");
        return bt_cli_fail(&err);
    }
    bt_running_measure(running, measured);
    bench->rows[0].peak_bytes = measured->peak_rss_bytes;
    int code = bt_bench_print(running->options, bench, running->facts, &running->machine);
    if (code == 0) code = keep(running, bench, measured);
    bt_heap_free(measured);
    return code;
}

typedef struct work {
    bt_cli_options options;
    bt_running running;
    bt_bench bench;
} work;

int bt_bench_here(const bt_cli_options *options, const char *model) {
    bt_error err = {0};
    work *w = bt_heap_alloc(sizeof *w);
    if (!w) {
        (void)bt_fail(&err, BT_E_NOMEM, "heap", BT_MEASURE_NONE, 0, 0, "no memory to measure");
        return bt_cli_fail(&err);
    }
    w->options = *options;
    const bt_running_asks asks = {
        .on_facts = ask_context, .facts_user = &w->options, .check = check_context, .check_user = &w->options};
    bt_bench_begin(options, &w->bench);
    int code = bt_running_open_asking(&w->options, model, bt_planning_one_row, &asks, &w->running);
    if (code == 0) {
        code = measure_and_print(&w->running, &w->bench);
        bt_running_close(&w->running);
    }
    bt_heap_free(w);
    return code;
}
