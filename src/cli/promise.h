/* SPDX-License-Identifier: MIT
 * promise.h: a plan's bytes, promised to this process beside the budgets of others. */
#pragma once

#include "cli/options.h"

/* One of those that plan at a time always comes through, so the tries bound a crowd. */
#define BT_PROMISE_TRIES_MAX 8u

/* machine: what the plan was made for. *ret_again: others promised memory while this was planned, and the plan does not
 * fit beside them: plan again. A host where nothing can be kept is no reason not to run. */
BT_MUST_CHECK bt_status bt_promise_make(const bt_cli_options *options, const bt_plan *plan, const bt_machine *machine,
                                        bool *ret_again, bt_error *err);
/* The same after BT_PROMISE_TRIES_MAX times: BT_E_BUDGET, code "reservations". */
BT_MUST_CHECK bt_status bt_promise_crowded(const bt_plan *plan, bt_error *err);
