/* SPDX-License-Identifier: MIT
 *
 * bench_sweep.c: the measurement at each of several budgets.
 *
 *     ladder:  bench --ram-budget 1      refused: its plan says where the ladder begins and ends
 *     round 1: bench --ram-budget B1 -r 1, B2, B3 ...
 *     round 2: the same once more ...
 *
 * Each measurement is a process of its own, so that it has a peak of its own (docs/design.md C1), and one repetition;
 * the budgets take turns, so that what else the machine does falls on all of them. A process is given what we were
 * given, and behind it what is different. A refusal is a row; a failure ends the command with the exit code of the
 * process that failed, which has said why. */
#include "base/arena.h"
#include "base/error.h"
#include "base/heap.h"
#include "cli/bench.h"
#include "cli/child.h"
#include "cli/planning.h"
#include "cli/running.h"
#include "report/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define EXIT_REFUSED  3 /* docs/interfaces.md */
#define N_OWN_ARGS    16
#define ARENA_BLOCK   (64u << 10)
#define LABEL_BYTES   64
#define LADDER_BUDGET 1 /* byte: nothing runs in it */
#define NUMBER_BYTES  24

typedef struct sweep {
    const bt_cli_options *options;
    const bt_option_result *args;
    bt_bench_budget budgets[BT_BENCH_ROW_MAX];
    uint32_t n_budgets;
    bt_facts *facts;
    bt_machine machine;
    bt_terminal terminal;
    bt_text out; /* what the last process printed */
    bt_bench bench;
    bt_bench_row row; /* of the last process */
} sweep;

/* ---- a process -------------------------------------------------------------------------------------------------- */

static char program[] = "burthen";
static char command[] = "bench";
static char step[] = "--bench-step";
static char as_json[] = "--json";
static char quietly[] = "--quiet";
static char repetitions[] = "--repetitions=1";
static char ram_budget[] = "--ram-budget";
static char *const overrides[] = {step, as_json, quietly, repetitions, ram_budget}; /* the budget follows */

/* Ours behind the user's options, so that they win; before "--", if there is one. */
static bt_status make_argv(const sweep *s, char *budget, char ***ret_argv, bt_error *err) {
    const bt_cli_options *options = s->options;
    char **argv = bt_heap_array((size_t)options->argc + N_OWN_ARGS, sizeof *argv);
    if (!argv) return bt_fail(err, BT_E_NOMEM, "arguments", BT_MEASURE_NONE, 0, 0, "no memory for the arguments");
    int n_before = s->args->rest > 0 ? s->args->rest - 1 : options->argc;
    int n = 0;
    argv[n++] = program;
    argv[n++] = command;
    for (int i = 0; i < n_before; i++)
        argv[n++] = options->argv[i];
    for (size_t i = 0; i < sizeof overrides / sizeof *overrides; i++)
        argv[n++] = overrides[i];
    argv[n++] = budget;
    for (int i = n_before; i < options->argc; i++)
        argv[n++] = options->argv[i];
    argv[n] = NULL;
    *ret_argv = argv;
    return BT_OK;
}

/* ret_code: 0, or what the process ended with. */
static bt_status start(sweep *s, uint64_t budget_bytes, int *ret_code, bt_error *err) {
    char budget[NUMBER_BYTES];
    char **argv = NULL;
    (void)snprintf(budget, sizeof budget, "%" PRIu64, budget_bytes);
    BT_TRY(make_argv(s, budget, &argv, err));
    bt_text_done(&s->out);
    bt_text_init(&s->out, BT_JSON_IN_MAX_BYTES);
    const bt_child child = {.argv = argv, .what = "the measurement"};
    bt_status status = bt_child_run(&child, &s->out, ret_code, err);
    bt_heap_free(argv);
    return status;
}

static bt_status no_plan(bt_error *err) {
    return bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to make a plan");
}

/* The plan of a process that was refused. *ret_refused false: it printed none, and has said why. */
static bt_status refused_plan(sweep *s, bt_arena *arena, bt_plan *ret, bool *ret_refused, bt_error *err) {
    bt_error why = {0};
    bt_status status = bt_plan_from_json(bt_text_str(&s->out), s->out.n_bytes, arena, ret, &why);
    if (status == BT_E_NOMEM) { /* nothing was said there that would do for it */
        if (err) *err = why;
        return status;
    }
    *ret_refused = status == BT_OK && ret->refusal.code[0];
    return BT_OK;
}

/* ---- steps ------------------------------------------------------------------------------------------------------ */

/* Where the ladder begins and ends. *ret_code: not 0 when the process failed. */
static bt_status find_ladder(sweep *s, bt_arena *arena, bt_plan *plan, int *ret_code, bt_error *err) {
    int code = 0;
    BT_TRY(start(s, LADDER_BUDGET, &code, err));
    bool refused = false;
    if (code == EXIT_REFUSED) BT_TRY(refused_plan(s, arena, plan, &refused, err));
    *ret_code = refused ? 0 : code;
    if (!refused && code == 0)
        return bt_fail(err, BT_E_IO, "bench_child", BT_MEASURE_BYTES, 0, LADDER_BUDGET,
                       "the process that measured ran in a budget of one byte");
    if (!refused) return BT_OK;
    const bt_rung *low = &plan->ladder[BT_RUNG_MINIMUM];
    const bt_rung *high = &plan->ladder[BT_RUNG_ALL_PINNED];
    s->bench.minimum_bytes = (bt_known){low->exists, low->budget_bytes};
    s->bench.all_pinned_bytes = (bt_known){high->exists, high->budget_bytes};
    return BT_OK;
}

static bt_status make_rows(sweep *s, bt_error *err) {
    for (uint32_t i = 0; i < s->n_budgets; i++) {
        const bt_bench_budget *budget = &s->budgets[i];
        bt_bench_row *row = &s->bench.rows[i];
        if (budget->is_share && !(s->bench.minimum_bytes.known && s->bench.all_pinned_bytes.known))
            return bt_fail(err, BT_E_ARG, "vs_budget", BT_MEASURE_NONE, 0, 0,
                           "--vs-budget: %s of what cannot be said of this model; give sizes", budget->asked);
        memcpy(row->asked, budget->asked, sizeof row->asked);
        row->budget_bytes =
            bt_bench_budget_bytes(budget, s->bench.minimum_bytes.value, s->bench.all_pinned_bytes.value);
    }
    s->bench.n_rows = s->n_budgets;
    return BT_OK;
}

/* What a process measured, beside what others did at this budget. */
static void add_to_row(const bt_bench_row *measured, bt_bench_row *row) {
    if (row->n_repetitions == 0) {
        char asked[sizeof row->asked];
        memcpy(asked, row->asked, sizeof asked);
        *row = *measured;
        memcpy(row->asked, asked, sizeof asked);
        return;
    }
    if (measured->peak_bytes > row->peak_bytes) row->peak_bytes = measured->peak_bytes;
    if (measured->planned_bytes > row->planned_bytes) row->planned_bytes = measured->planned_bytes;
    for (uint32_t i = 0; i < measured->n_repetitions && row->n_repetitions < BT_BENCH_REPETITION_MAX; i++)
        row->repetitions[row->n_repetitions++] = measured->repetitions[i];
}

/* A row that ran before and is refused now keeps what it has: others took the memory meanwhile. */
static bt_status refuse_row(sweep *s, bt_bench_row *row, bool *ret_refused, bt_error *err) {
    bt_arena *arena = bt_arena_open(BT_PLANNING_ARENA_BYTES, ARENA_BLOCK);
    bt_plan *plan = arena ? bt_arena_alloc(arena, sizeof *plan) : NULL;
    bt_status status = plan ? refused_plan(s, arena, plan, ret_refused, err) : no_plan(err);
    if (status == BT_OK && *ret_refused && row->n_repetitions == 0) {
        row->verdict = plan->verdict;
        row->refusal = plan->refusal;
    }
    bt_arena_close(arena);
    return status;
}

static bt_status measure_row(sweep *s, bt_bench_row *row, uint64_t budget_bytes, int *ret_code, bt_error *err) {
    int code = 0;
    BT_TRY(start(s, budget_bytes, &code, err));
    if (code == EXIT_REFUSED) {
        bool refused = false;
        BT_TRY(refuse_row(s, row, &refused, err));
        if (refused) code = 0;
    } else if (code == 0) {
        bt_error why = {0};
        if (bt_bench_row_from_json(bt_text_str(&s->out), s->out.n_bytes, &s->row, &why) != BT_OK)
            return bt_fail(err, BT_E_IO, "bench_child", BT_MEASURE_NONE, 0, 0,
                           "the process that measured gave no answer: %.200s", why.text);
        add_to_row(&s->row, row);
    }
    *ret_code = code;
    return BT_OK;
}

static bt_status measure_all(sweep *s, int *ret_code, bt_error *err) {
    uint32_t n_rounds = s->options->n_repetitions;
    uint32_t n_done = 0;
    uint64_t budgets[BT_BENCH_ROW_MAX] = {0}; /* as asked: a row's may be less, where the machine gives less */
    for (uint32_t i = 0; i < s->n_budgets; i++)
        budgets[i] = s->bench.rows[i].budget_bytes;
    for (uint32_t round = 0; round < n_rounds; round++) {
        for (uint32_t i = 0; i < s->n_budgets; i++, n_done++) {
            bt_bench_row *row = &s->bench.rows[i];
            char label[LABEL_BYTES];
            (void)snprintf(label, sizeof label, "round %u of %u, %s", round + 1, n_rounds, row->asked);
            bt_terminal_bar(&s->terminal, label, n_done, (uint64_t)n_rounds * s->n_budgets);
            if (row->refusal.code[0]) continue;
            BT_TRY(measure_row(s, row, budgets[i], ret_code, err));
            if (*ret_code != 0) return BT_OK;
        }
    }
    return BT_OK;
}

/* *ret_code: of a process that failed and has said why. */
static bt_status run(sweep *s, int *ret_code, bt_error *err) {
    BT_TRY(bt_bench_budgets_parse(s->options->vs_budget, s->budgets, &s->n_budgets, err));
    BT_TRY(bt_planning_machine(s->options, &s->machine, err));
    bt_arena *arena = bt_arena_open(BT_PLANNING_ARENA_BYTES, ARENA_BLOCK);
    bt_plan *plan = arena ? bt_arena_alloc(arena, sizeof *plan) : NULL;
    bt_status status = plan ? find_ladder(s, arena, plan, ret_code, err) : no_plan(err);
    bt_arena_close(arena);
    if (status != BT_OK || *ret_code != 0) return status;
    BT_TRY(make_rows(s, err));
    return measure_all(s, ret_code, err);
}

int bt_bench_sweep(const bt_cli_options *options, const bt_option_result *args) {
    const char *model = args->args[0];
    bt_error err = {0};
    sweep *s = bt_heap_alloc(sizeof *s);
    if (!s) {
        (void)bt_fail(&err, BT_E_NOMEM, "heap", BT_MEASURE_NONE, 0, 0, "no memory to measure");
        return bt_cli_fail(&err);
    }
    s->options = options;
    s->args = args;
    bt_text_init(&s->out, BT_JSON_IN_MAX_BYTES);
    bt_terminal_open(&s->terminal, stderr, NULL);
    if (options->quiet) s->terminal.has_bar = false;
    bt_running_signal_clear();
    bt_bench_begin(options, &s->bench);
    int code = 0;
    if (bt_facts_open(model, &s->facts, &err) != BT_OK) {
        code = bt_cli_fail_model(&err, model);
    } else {
        bt_status status = run(s, &code, &err);
        bt_terminal_bar_end(&s->terminal);
        if (status != BT_OK) code = bt_running_fail(&err);
        if (status == BT_OK && code == 0) code = bt_bench_print(options, &s->bench, s->facts, &s->machine);
    }
    bt_facts_close(s->facts);
    bt_text_done(&s->out);
    bt_heap_free(s);
    return code;
}
