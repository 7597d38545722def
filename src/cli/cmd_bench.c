/* SPDX-License-Identifier: MIT
 *
 * cmd_bench.c: `burthen bench MODEL`: tokens a second, and what bounds them.
 *
 * Without --vs-budget it measures in this process, under its own budget, as `run` would run. With it this process only
 * starts others, so that each budget has a peak of its own to be held to. */
#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "cli/bench.h"
#include "cli/planning.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_MAX_BYTES (1u << 20) /* 32 rows, or twice as many points, of some hundred letters */

void bt_bench_begin(const bt_cli_options *options, bt_bench *ret) {
    ret->n_prompt = options->n_prompt;
    ret->n_gen = options->n_gen;
    ret->n_repetitions = options->n_repetitions;
    ret->elastic = options->wishes.elastic;
    ret->io = options->wishes.io;
}

/* ---- the plot --------------------------------------------------------------------------------------------------- */

/* Written aside and renamed: a reader sees all of it, or what was there before. */
static bt_status write_aside(const char *path, const bt_text *text, bt_error *err) {
    char aside[PATH_MAX];
    int n = snprintf(aside, sizeof aside, "%s.%ld.new", path, (long)getpid());
    if (n < 0 || n >= (int)sizeof aside)
        return bt_fail_sys(err, ENAMETOOLONG, "plot_file", "cannot write the plot to %s", path);
    FILE *file = fopen(aside, "wxe");
    bool ok = file && fwrite(bt_text_str(text), 1, text->n_bytes, file) == text->n_bytes;
    int sys = errno;
    if (file && fclose(file) != 0 && ok) {
        ok = false;
        sys = errno;
    }
    if (ok && rename(aside, path) != 0) {
        ok = false;
        sys = errno;
    }
    if (!ok && file) (void)unlink(aside);
    return ok ? BT_OK : bt_fail_sys(err, sys, "plot_file", "cannot write the plot to %s", path);
}

static bt_status draw(const bt_cli_options *options, const bt_bench *bench, const char *name, bt_error *err) {
    bt_text text;
    bt_text_init(&text, ANSWER_MAX_BYTES);
    bt_bench_svg(bench, name, &text);
    bt_status status = text.failed ? bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_NONE, 0, 0, "no memory for the plot")
                                   : write_aside(options->plot_file, &text, err);
    bt_text_done(&text);
    return status;
}

/* ---- the answer ------------------------------------------------------------------------------------------------- */

static int print_json(const bt_bench *bench, const bt_facts *facts, const bt_machine *machine) {
    bt_error err = {0};
    char *json = NULL;
    if (bt_bench_json(bench, facts, machine, &json, &err) != BT_OK) return bt_cli_fail(&err);
    int code = bt_cli_print_bytes(json, strlen(json));
    bt_heap_free(json);
    return code;
}

int bt_bench_print(const bt_cli_options *options, const bt_bench *bench, const bt_facts *facts,
                   const bt_machine *machine) {
    const char *name = bt_path_file(facts->path);
    int code = 0;
    bt_error err = {0};
    if (options->json) {
        code = print_json(bench, facts, machine);
    } else {
        bt_text text;
        bt_text_init(&text, ANSWER_MAX_BYTES);
        bt_bench_text(bench, name, &text);
        code = bt_cli_print(&text);
        bt_text_done(&text);
    }
    bool draws = options->plot_file && !options->bench_step;
    if (code == 0 && draws && draw(options, bench, name, &err) != BT_OK) code = bt_cli_fail(&err);
    return code;
}

/* ---- the command ------------------------------------------------------------------------------------------------ */

static bt_status wrong(const char *why, bt_error *err) {
    return bt_fail(err, BT_E_ARG, "bench_options", BT_MEASURE_NONE, 0, 0, "%s", why);
}

/* What contradicts itself, before anything is measured. */
static bt_status check(const bt_cli_options *options, bt_error *err) {
    bt_bench_budget budgets[BT_BENCH_ROW_MAX];
    uint32_t n = 0;
    if (options->vs_budget) BT_TRY(bt_bench_budgets_parse(options->vs_budget, budgets, &n, err));
    if (options->plot_file && n < 2)
        return wrong("--plot draws speed over the budget: --vs-budget with two or more", err);
    if (options->vs_budget && options->plan_file)
        return wrong("--plan is one plan, --vs-budget asks for one at each budget", err);
    if (options->vs_budget && options->wishes.force)
        return wrong("--vs-budget does not go with --force: a budget that is refused is a row that says so", err);
    if (options->vs_budget && options->stats_file)
        return wrong("--stats is of one process, --vs-budget starts many; --json holds what they measured", err);
    return bt_cli_check_outputs(options, err);
}

int bt_cmd_bench(const bt_cli_options *options, bt_option_result *args) {
    bt_error err = {0};
    if (options->bench_step) {
        (void)bt_os_follow_parent();
        return bt_bench_here(options, args->args[0]);
    }
    if (check(options, &err) != BT_OK) return bt_cli_fail(&err);
    return options->vs_budget ? bt_bench_sweep(options, args) : bt_bench_here(options, args->args[0]);
}
