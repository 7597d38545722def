/* SPDX-License-Identifier: MIT
 *
 * derive.c: pinned weights in other layouts (docs/design.md P8, S6): in place of the plain one, or beside it.
 *
 *     budget   [ ... | pinned .............. | ... | derived .......... | rest ]
 *                      q4_0: replaced, no byte      q4_K: a second one, of what is left
 *
 * Either is worth nothing to a unit that streams, and makes the last digits of what is generated depend on what was
 * repacked. So by default it is done only where nothing streams; with --repack on also beside units that stream.
 * Replacing takes no memory and is done for all pinned units and small weights. A second layout takes what is left
 * over: units in order of use, as many whole ones as there is room for, each with its page tables. Of a budget that was
 * not named, only a quarter of what is left is taken: that memory was not promised to us by anybody. */
#include "base/size.h"
#include "plan/search.h"

static uint64_t room_for(const bt_problem *problem, const bt_plan *plan) {
    if (plan->budget_bytes == UINT64_MAX) return 0; /* how much there is, is not known */
    bt_known budget = {true, plan->budget_bytes};
    if (problem->wishes.budget_kind == BT_BUDGET_AUTO) return bt_plan_derived_bytes(budget, 0, plan->planned_bytes);
    return bt_sat_sub_u64(plan->budget_bytes, plan->planned_bytes);
}

static void replace(const bt_problem *problem, bt_plan *plan) {
    plan->layouts.n_replaced = problem->small_layouts.n_replaced;
    plan->layouts.replaced_bytes = problem->small_layouts.replaced_bytes;
    for (uint32_t u = 0; u < problem->n_units; u++) {
        const bt_layouts *unit = &problem->units[u].layouts;
        if (plan->place[u] != BT_PLACE_PINNED) continue;
        plan->layouts.n_replaced += unit->n_replaced;
        plan->layouts.replaced_bytes = bt_sat_add_u64(plan->layouts.replaced_bytes, unit->replaced_bytes);
    }
}

static void add_second(const bt_problem *problem, uint32_t page_table_divisor, bt_plan *plan) {
    uint64_t room = room_for(problem, plan);
    uint64_t tables = 0;
    bt_layouts *sum = &plan->layouts;
    for (uint32_t u = 0; u < problem->n_units; u++) {
        const bt_layouts *unit = &problem->units[u].layouts;
        if (unit->second_bytes == 0 || plan->place[u] != BT_PLACE_PINNED) continue;
        uint64_t next = bt_sat_add_u64(sum->second_bytes, unit->second_bytes);
        uint64_t next_tables = page_table_divisor > 0 ? next / page_table_divisor + 1 : 0;
        if (bt_sat_add_u64(next, next_tables) > room) break;
        sum->n_second += unit->n_second;
        sum->second_bytes = next;
        tables = next_tables;
    }
    if (sum->second_bytes == 0) return;
    plan->ledger.bytes[BT_LINE_DERIVED] = sum->second_bytes;
    plan->ledger.source[BT_LINE_DERIVED] = BT_SOURCE_TENSOR;
    plan->ledger.bytes[BT_LINE_PAGETABLES] = bt_sat_add_u64(plan->ledger.bytes[BT_LINE_PAGETABLES], tables);
    plan->planned_bytes = bt_ledger_sum(&plan->ledger);
}

void bt_derive(const bt_problem *problem, uint32_t page_table_divisor, bt_plan *plan) {
    bool wanted = problem->wishes.repack == BT_ON || (problem->wishes.repack == BT_AUTO && plan->verdict == BT_FITS);
    if (!wanted) return;
    replace(problem, plan);
    add_second(problem, page_table_divisor, plan);
    if (plan->layouts.replaced_bytes > 0 || plan->layouts.second_bytes > 0) plan->exact = false;
}
