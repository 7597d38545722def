/* SPDX-License-Identifier: MIT
 *
 * ladder.c: the budgets at which an answer changes its kind (docs/design.md P9).
 *
 * The minimum is what the whole ask can be brought down to: at that budget it runs, with one byte less it is refused.
 * The rungs above are those of the context that was asked for: the least budget at which reading overlaps with
 * computing, at which the head stays in memory too, and at which nothing streams. Each is what a row needs, so planning
 * at a rung's budget gives at least that rung. A rung's forecast is that of the row with no pins beyond it, and no
 * expert kept: at least that fast. The last rung has slots for all experts. */
#include "base/size.h"
#include "plan/search.h"

static bool row_is_on(bt_option_row row, bt_rung_kind kind, uint32_t n_slots_wished) {
    bool overlaps = row.n_slots != 1;
    switch (kind) {
    case BT_RUNG_OVERLAP:
        return overlaps && n_slots_wished >= 2;
    case BT_RUNG_HEAD:
        return row.head == BT_HEAD_PINNED && (overlaps || n_slots_wished < 2);
    case BT_RUNG_ALL_PINNED:
        return row.head == BT_HEAD_PINNED && row.n_slots == 0;
    case BT_RUNG_MINIMUM:
    case BT_RUNG_COUNT:
        break;
    }
    return false;
}

static bt_rung rung_make(bt_search *search, const bt_minimum *least, uint32_t n_expert_slots) {
    bt_candidate c;
    const bt_problem *problem = search->problem;
    if (least->need_bytes == UINT64_MAX) return (bt_rung){.exists = false};
    bt_search_minimum_take(search, least, &c);
    uint64_t budget_bytes = least->need_bytes, read_bytes = c.read_bytes_per_pass;
    if (problem->n_expert_blocks > 0) {
        if (n_expert_slots == problem->n_expert)
            budget_bytes = bt_sat_add_u64(budget_bytes, bt_experts_most_bytes(problem, c.costs->page_table_divisor));
        read_bytes = bt_sat_add_u64(read_bytes, bt_experts_read_bytes(problem, n_expert_slots, 0));
    }
    return (bt_rung){.exists = true,
                     .budget_bytes = budget_bytes,
                     .n_ctx = c.n_ctx,
                     .forecast = bt_forecast_make(problem, read_bytes, search->weight_bytes_per_pass, c.n_slots)};
}

void bt_ladder_make(bt_search *search, const bt_ask *ask, bt_rung ret_ladder[BT_RUNG_COUNT]) {
    bt_minimum minimum = bt_search_minimum(search, ask);
    ret_ladder[BT_RUNG_MINIMUM] = rung_make(search, &minimum, 0);
    const bt_costs *costs = &search->costs[ask->first_cost];
    bt_option_row rows[BT_ROW_MAX];
    uint32_t n = bt_search_rows(search, ask, costs, rows);
    bool has_head = search->n_heads > 0 && !costs->head_always_resident;
    for (int kind = BT_RUNG_OVERLAP; kind < BT_RUNG_COUNT; kind++) {
        bt_minimum least = {.need_bytes = UINT64_MAX, .n_ctx = ask->n_ctx_start, .cost_index = ask->first_cost};
        for (uint32_t i = n; i-- > 0;) {
            if (!row_is_on(rows[i], (bt_rung_kind)kind, ask->n_slots)) continue;
            uint64_t need = bt_search_need(search, costs, ask->n_ctx_start, rows[i]);
            if (need >= least.need_bytes) continue;
            least.need_bytes = need;
            least.row = rows[i];
        }
        if (kind == BT_RUNG_HEAD && !has_head) least.need_bytes = UINT64_MAX;
        uint32_t n_slots = kind == BT_RUNG_ALL_PINNED ? search->problem->n_expert : 0;
        ret_ladder[kind] = rung_make(search, &least, n_slots);
    }
}
