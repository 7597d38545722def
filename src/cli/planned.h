/* SPDX-License-Identifier: MIT
 * planned.h: a plan of one model for one command, and all that it was made of. */
#pragma once

#include "cli/planning.h"

/* Too large for the stack. */
typedef struct bt_planned {
    bt_machine machine;
    bt_placed placed; /* closed by who made it */
    bt_plan plan;
} bt_planned;

/* The command's own work; returns its exit code. base_bytes: 0 where nothing is exact. */
typedef int (*bt_planned_fn)(const bt_cli_options *options, const bt_facts *facts, uint64_t base_bytes, bt_arena *arena,
                             bt_planned *planned);
/* Opens the model, makes room, and has the work done. Returns its exit code, or that of what failed before. */
int bt_planned_run(const bt_cli_options *options, const char *path, bool exact, bt_planned_fn work);
/* From the machine that stands there: by dry run where exact, else by formula. */
BT_MUST_CHECK bt_status bt_planned_make(const bt_cli_options *options, const bt_facts *facts, bool exact,
                                        uint64_t base_bytes, bt_arena *arena, bt_planned *planned, bt_error *err);
