/* SPDX-License-Identifier: MIT
 * bench.h: the two ways to measure: at the budget of the options in this process, or at each of a list in processes of
 * their own. Private to cmd_bench.c and the files that do it. */
#pragma once

#include "cli/commands.h"
#include "report/bench.h"

/* Print what was measured on standard output, and draw it where --plot says. The exit code. */
int bt_bench_print(const bt_cli_options *options, const bt_bench *bench, const bt_facts *facts,
                   const bt_machine *machine);
/* What was asked for, without rows. */
void bt_bench_begin(const bt_cli_options *options, bt_bench *ret);

/* Plan, load, measure, print; the exit code. */
int bt_bench_here(const bt_cli_options *options, const char *model);
/* The same for each budget of --vs-budget, one process a budget and repetition. args: what the command line holds
 * beside options, as it was parsed. */
int bt_bench_sweep(const bt_cli_options *options, const bt_option_result *args);
