/* SPDX-License-Identifier: MIT
 *
 * problem.c: from facts, a machine and wishes to the planner's question, by formula.
 *
 *   facts, wishes -> choices (prices) -.
 *   facts         -> units              +-> bt_problem -> bt_plan_make
 *   machine       -> budget, limit     -'
 *
 * All the deciding is in src/plan. `burthen plan` adds what only the program knows: devices, a draft model, a projector
 * (src/cli/planning.c). Bound: the caller's arena. */
#include "guard/problem.h"

#include "base/error.h"
#include "guard/base_costs.h"
#include "model/types.h"

#define CTX_DEFAULT_CAP 4096u /* docs/interfaces.md: the cap of an unasked context */

bt_wishes bt_problem_wishes(const bt_wishes *wishes, const bt_machine *machine) {
    bt_wishes all = *wishes;
    if (all.n_threads == 0) all.n_threads = machine->n_threads ? machine->n_threads : 1;
    return all;
}

bt_status bt_problem_make(const bt_facts *facts, const bt_machine *machine, const bt_wishes *wishes, bool repacks,
                          bt_arena *arena, bt_problem *ret_problem, bt_choices *ret_choices, bt_budget **ret_budget,
                          bt_error *err) {
    const bt_base_costs base = bt_base_costs_of(facts);
    bt_plan_unit *units = NULL;
    BT_TRY(bt_choices_make(facts, wishes, &base, arena, ret_choices, err));
    BT_TRY(bt_costs_units(facts, repacks, arena, &units, err));
    bt_budget *budget = bt_arena_array(arena, 1, sizeof *budget); /* its words are the problem's */
    if (!budget) return bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to make a plan");
    *budget = bt_budget_resolve(machine, wishes);
    bt_wishes all = {.budget_kind = BT_BUDGET_BYTES, .budget_bytes = UINT64_MAX};
    uint64_t limit_bytes = bt_budget_resolve(machine, &all).bytes;
    *ret_problem = (bt_problem){
        .costs = ret_choices->costs,
        .n_costs = ret_choices->n_costs,
        .alternatives = ret_choices->alternatives,
        .n_alternatives = ret_choices->n_alternatives,
        .units = units,
        .n_units = facts->n_units,
        .small_layouts = repacks ? bt_facts_small_layouts(facts) : (bt_layouts){0},
        .wishes = *wishes,
        .n_ctx_train = facts->n_ctx_train,
        .n_ctx_default_cap = CTX_DEFAULT_CAP,
        .budget_bytes = budget->bytes,
        .budget_state = budget->state,
        .budget_source = budget->source,
        .budget_limit = {limit_bytes != UINT64_MAX, limit_bytes},
        .disk_bytes_per_s = machine->disk_bytes_per_s,
        .memory_bytes_per_s = machine->memory_bytes_per_s,
        .kv_known = facts->kv_known,
        .kv_reason = facts->kv_reason,
    };
    *ret_budget = budget;
    return bt_costs_experts(facts, arena, ret_problem, err);
}
