/* SPDX-License-Identifier: MIT
 *
 * derive.c: what is left of a budget may hold a second layout of weights that are pinned (docs/design.md P8, S6).
 *
 *     budget   [ all other lines .............. | derived .......... | rest ]
 *
 * A second layout is worth nothing to a unit that streams, and makes the last digits of what is generated depend on
 * what was repacked. So by default it is taken only where nothing streams, which is where memory is left over; with
 * --repack on also beside units that stream. Units are taken in order of use, as many whole ones as there is room for,
 * each with its page tables. Of a budget that was not named, only a quarter of what is left is taken: that memory was
 * not promised to us by anybody. */
#include "base/size.h"
#include "plan/search.h"

static uint64_t room_for(const bt_problem *problem, const bt_plan *plan) {
    if (plan->budget_bytes == UINT64_MAX) return 0; /* how much there is, is not known */
    bt_known budget = {true, plan->budget_bytes};
    if (problem->wishes.budget_kind == BT_BUDGET_AUTO) return bt_plan_derived_bytes(budget, 0, plan->planned_bytes);
    return bt_sat_sub_u64(plan->budget_bytes, plan->planned_bytes);
}

void bt_derive(const bt_problem *problem, uint32_t page_table_divisor, bt_plan *plan) {
    bool wanted = problem->wishes.repack == BT_ON || (problem->wishes.repack == BT_AUTO && plan->n_streamed == 0);
    if (!wanted) return;
    uint64_t room = room_for(problem, plan);
    uint64_t bytes = 0;
    uint64_t tables = 0;
    for (uint32_t u = 0; u < problem->n_units; u++) {
        const bt_plan_unit *unit = &problem->units[u];
        if (unit->derived_bytes == 0 || plan->place[u] != BT_PLACE_PINNED) continue;
        uint64_t next = bt_sat_add_u64(bytes, unit->derived_bytes);
        uint64_t next_tables = page_table_divisor > 0 ? next / page_table_divisor + 1 : 0;
        if (bt_sat_add_u64(next, next_tables) > room) break;
        bytes = next;
        tables = next_tables;
    }
    if (bytes == 0) return;
    plan->exact = false;
    plan->ledger.bytes[BT_LINE_DERIVED] = bytes;
    plan->ledger.source[BT_LINE_DERIVED] = BT_SOURCE_TENSOR;
    plan->ledger.bytes[BT_LINE_PAGETABLES] = bt_sat_add_u64(plan->ledger.bytes[BT_LINE_PAGETABLES], tables);
    plan->planned_bytes = bt_ledger_sum(&plan->ledger);
}
