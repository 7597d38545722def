/* SPDX-License-Identifier: MIT
 * problem.h: what there is to decide about a model on a machine, priced by formula. */
#pragma once

#include "base/arena.h"
#include "burthen.h"
#include "plan/choices.h"
#include "plan/plan.h"

/* repacks   this processor's kernels know other layouts of weights (model/layouts.h)
 * ret_choices, ret_budget   what the problem stands on, for callers who add to its prices or take from its budget
 * (then problem.budget_bytes is theirs to set). All of it is the arena's. wishes: with n_threads filled in.
 * Errors as bt_choices_make and bt_costs_units. */
BT_MUST_CHECK bt_status bt_problem_make(const bt_facts *facts, const bt_machine *machine, const bt_wishes *wishes,
                                        bool repacks, bt_arena *arena, bt_problem *ret_problem, bt_choices *ret_choices,
                                        bt_budget **ret_budget, bt_error *err);
/* Wishes with what the machine says of threads. */
bt_wishes bt_problem_wishes(const bt_wishes *wishes, const bt_machine *machine);
