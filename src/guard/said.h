/* SPDX-License-Identifier: MIT
 * said.h: a decision about a command line, for a person and for scripts (docs/interfaces.md, exec). */
#pragma once

#include "base/text.h"
#include "guard/place.h"

/* A line for each element that was changed or added, then the reason. */
void bt_guard_said_text(const bt_guard_decision *decision, const bt_rewrite *rewrite, bt_text *out);
/* Of a refusal: what each pool would hold, line by line, and the changes that would fit. */
void bt_guard_ledger_text(const bt_guard_decision *decision, bt_text *out);
/* A variable that is set for the command; value NULL: a file with the plan. */
typedef struct bt_guard_env {
    const char *name, *value;
} bt_guard_env;
/* The same with a plan.json (text) in the place of the guard's own plan; NULL: none was made. */
BT_MUST_CHECK bt_status bt_guard_budget_json(const bt_guard_decision *decision, const bt_rewrite *rewrite,
                                             const bt_guard_env *env, uint32_t n_env, const char *plan_json,
                                             char **ret_json, bt_error *err);
/* {"decision","reason","code","argv","env","plan"}; free with bt_heap_free. BT_E_NOMEM. */
BT_MUST_CHECK bt_status bt_guard_said_json(const bt_guard_decision *decision, const bt_rewrite *rewrite,
                                           char **ret_json, bt_error *err);
