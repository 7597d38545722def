/* SPDX-License-Identifier: MIT
 * exec_budget.h: a command of llama.cpp's own under a RAM budget: its plan, its command line, its environment. */
#pragma once

#include "cli/exec_hold.h"
#include "cli/options.h"
#include "cli/placing.h"
#include "guard/drop_in.h"
#include "guard/drop_in_bench.h"
#include "guard/learned.h"
#include "guard/said.h"
#include "guard/wrapper.h"

#include <limits.h>

typedef struct bt_exec_budget_ask {
    const bt_cli_options *options;
    char *const *argv;         /* as it was typed */
    const bt_command *command; /* what was found in it */
    const bt_effective *effective;
    const bt_drop_in_bench *bench; /* in the place of effective, where the program is llama-bench; NULL else */
    const bt_facts *facts;
    uint64_t adapter_bytes;
} bt_exec_budget_ask;

/* Zero-initialised. */
typedef struct bt_exec_budget {
    bt_cli_options options; /* with the wishes of the command */
    bt_arena *arena;
    bt_machine machine;
    bt_placed placed;
    bt_plan plan;
    char plugin[PATH_MAX], preload[PATH_MAX];
    int plan_fd; /* 0: none */
    char plan_path[32];
    bt_guard_env env[4];
    uint32_t n_env;
    char pid[16];
    char learned[BT_LEARNED_NAME_BYTES]; /* empty: nothing is learned of this program */
    bt_exec_hold hold;
} bt_exec_budget;

/* Plan for the command, and promise that to other budgets of this host. A refusal is BT_OK and a verdict of the plan.
 * BT_E_UNSUPPORTED, code "drop_in": the command has something that no budget can hold. */
BT_MUST_CHECK bt_status bt_exec_budget_plan(bt_exec_budget *budget, const bt_exec_budget_ask *ask, bt_error *err);
/* Write the command line that holds the plan. */
BT_MUST_CHECK bt_status bt_exec_budget_apply(bt_exec_budget *budget, const bt_exec_budget_ask *ask, bt_rewrite *rewrite,
                                             bt_error *err);
/* What the command needs beside its line: the plan where it finds it, variables of this process, which the command
 * inherits; and whether the program can use the device, by asking it for its devices. argv: as it will be started.
 * BT_E_UNSUPPORTED, code "drop_in", with what the program says. */
BT_MUST_CHECK bt_status bt_exec_budget_prepare(bt_exec_budget *budget, const bt_exec_budget_ask *ask,
                                               const bt_rewrite *rewrite, bt_error *err);
/* The last step before the command takes this process's place: a cgroup of its own with the budget as its limit, where
 * one can be made. note: whether it was, in a sentence. */
void bt_exec_budget_enter(bt_exec_budget *budget, bt_text *note);
/* The command could not be started. */
void bt_exec_budget_leave(bt_exec_budget *budget);
void bt_exec_budget_close(bt_exec_budget *budget);
