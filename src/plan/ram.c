/* SPDX-License-Identifier: MIT
 *
 * ram.c: the search for the best way to run inside a budget (docs/design.md P2, which states the order).
 *
 * What there is to choose: KV types and micro-batch (together a cost model), the context, the head (in memory or
 * streamed), the ring (none, several slots, one) and the pins. Head and ring are a row; what a row needs at a context
 * under a cost model is a few additions. So each cost model is asked for the largest context that the budget holds; of
 * those with the largest the first wins (they stand best first), then the first row that fits, and what is left is
 * spent on pins. Micro-batches below BT_UBATCH_FLOOR have a turn of their own, where all
 * others hold less context than BT_CTX_FLOOR. Because need does not depend on the budget and pins only grow with it, a
 * larger budget never gives a lower rank (P10).
 *
 * Everything is integers. Page tables cost a fraction of all else, so the budget is first cut by it. */
#include "base/error.h"
#include "base/size.h"
#include "plan/search.h"

#include <string.h>

/* ---- prices that do not depend on which units are pinned ---- */

/* Window of rows that a unit needs while it is not in memory. */
static uint64_t rows_window(const bt_plan_unit *unit, const bt_costs *costs) {
    return bt_sat_add_u64(unit->rows_bytes, bt_sat_mul_u64(unit->token_rows_bytes, costs->n_ubatch));
}

/* Every table as rows (or pinned, where the window would be no smaller), and the rows of a tied head that streams. */
static uint64_t rows_bytes(const bt_problem *problem, const bt_costs *costs, bool head_pinned) {
    uint64_t sum = 0;
    for (uint32_t u = 0; u < problem->n_units; u++) {
        const bt_plan_unit *unit = &problem->units[u];
        uint64_t rows = rows_window(unit, costs);
        if (unit->kind == BT_KIND_TABLE) sum = bt_sat_add_u64(sum, bt_min_u64(rows, unit->pinned_bytes));
        if (unit->kind == BT_KIND_HEAD && !head_pinned) sum = bt_sat_add_u64(sum, rows);
    }
    return sum;
}

static uint64_t page_tables(uint64_t bytes, uint32_t divisor) {
    if (divisor == 0) return 0;
    return bytes / divisor + (bytes % divisor != 0);
}

/* The most that all other lines may be, so that with page tables they fit the budget: b d / (d + 1) is what it would be
 * without rounding up, so never less. */
static uint64_t without_page_tables(uint64_t budget, uint32_t divisor) {
    if (divisor == 0 || budget == UINT64_MAX) return budget;
    uint64_t bytes = bt_mul_div_u64(budget, divisor, (uint64_t)divisor + 1);
    while (bytes > 0 && bt_sat_add_u64(bytes, page_tables(bytes, divisor)) > budget)
        bytes--;
    return bytes;
}

uint32_t bt_ctx_round(const bt_costs *costs, uint32_t n_ctx) {
    uint64_t align = bt_max_u64(costs->ctx_align, 1);
    uint64_t rounded = (n_ctx + align - 1) / align * align;
    return (uint32_t)bt_min_u64(rounded, UINT32_MAX / align * align);
}

/* Fixed lines and rows; false when they do not fit in 64 bits. */
static bool fixed_bytes(const bt_search *search, const bt_costs *costs, uint32_t n_ctx, bt_head_mode head,
                        uint64_t *ret_bytes) {
    bt_ledger ledger;
    if (!bt_costs_at(costs, n_ctx, &ledger)) return false;
    uint64_t sum = bt_ledger_sum(&ledger);
    sum = bt_sat_add_u64(sum, rows_bytes(search->problem, costs, head == BT_HEAD_PINNED));
    *ret_bytes = sum;
    return sum != UINT64_MAX;
}

static uint64_t need_from(const bt_search *search, const bt_costs *costs, uint64_t fixed, bt_option_row row) {
    uint64_t units = bt_pin_mode_least(&search->mode[row.head], row.n_slots, costs->slot_slack_bytes, NULL);
    uint64_t sum = bt_sat_add_u64(fixed, units);
    return bt_max_u64(bt_sat_add_u64(sum, page_tables(sum, costs->page_table_divisor)), costs->load_peak_bytes);
}

uint64_t bt_search_need(const bt_search *search, const bt_costs *costs, uint32_t n_ctx, bt_option_row row) {
    uint64_t fixed = 0;
    if (!fixed_bytes(search, costs, n_ctx, row.head, &fixed)) return UINT64_MAX;
    return need_from(search, costs, fixed, row);
}

/* ---- the rows ---- */

uint32_t bt_search_rows(const bt_search *search, const bt_ask *ask, const bt_costs *costs,
                        bt_option_row rows[BT_ROW_MAX]) {
    bool one_thing = costs->head_always_resident || search->n_heads == 0;
    bool pinned = one_thing || ask->stream_head != BT_ON;
    bool streamed = !one_thing && ask->stream_head != BT_OFF;
    bt_head_mode stream_mode = ask->stream_head == BT_ON ? BT_HEAD_STREAMED : BT_HEAD_MIXED;
    uint32_t depth[2] = {ask->n_slots, 1};
    uint32_t n_depths = ask->slots_fixed || ask->n_slots < 2 ? 1 : 2;
    uint32_t n = 0;
    if (pinned) rows[n++] = (bt_option_row){BT_HEAD_PINNED, 0};
    for (uint32_t d = 0; d < n_depths; d++) {
        if (pinned) rows[n++] = (bt_option_row){BT_HEAD_PINNED, depth[d]};
        if (streamed) rows[n++] = (bt_option_row){stream_mode, depth[d]};
    }
    return n;
}

/* ---- one row at one context, filled with pins ---- */

/* Everything that a placement costs, exactly. */
static bool candidate_price(const bt_search *search, const bt_costs *costs, uint32_t n_ctx, uint32_t n_slots,
                            bt_candidate *ret) {
    bt_candidate c = {.n_ctx = bt_ctx_round(costs, n_ctx), .costs = costs, .n_slots = n_slots, .head_resident = true};
    if (!bt_costs_at(costs, n_ctx, &c.ledger)) return false;
    uint64_t *bytes = c.ledger.bytes;
    uint64_t largest = 0;
    uint64_t head_rows = 0;
    for (uint32_t u = 0; u < search->problem->n_units; u++) {
        const bt_plan_unit *unit = &search->problem->units[u];
        bt_line line = unit->kind == BT_KIND_TABLE  ? BT_LINE_EMBEDDINGS
                       : unit->kind == BT_KIND_HEAD ? BT_LINE_HEAD
                                                    : BT_LINE_PINNED;
        if (unit->kind == BT_KIND_HEAD) head_rows = bt_sat_add_u64(head_rows, rows_window(unit, costs));
        switch (search->place[u]) {
        case BT_PLACE_PINNED:
            c.n_pinned++;
            c.pinned_bytes = bt_sat_add_u64(c.pinned_bytes, unit->pinned_bytes);
            bytes[line] = bt_sat_add_u64(bytes[line], unit->pinned_bytes);
            break;
        case BT_PLACE_STREAMED:
            c.n_streamed++;
            c.read_bytes_per_pass = bt_sat_add_u64(c.read_bytes_per_pass, unit->read_bytes);
            largest = bt_max_u64(largest, unit->slot_bytes);
            if (unit->kind == BT_KIND_HEAD) c.head_resident = false;
            break;
        case BT_PLACE_ROWS:
            bytes[line] = bt_sat_add_u64(bytes[line], rows_window(unit, costs));
            break;
        }
    }
    if (!c.head_resident) bytes[BT_LINE_EMBEDDINGS] = bt_sat_add_u64(bytes[BT_LINE_EMBEDDINGS], head_rows);
    if (c.n_streamed == 0) c.n_slots = 0;
    if (c.n_slots > 0) c.slot_bytes = bt_sat_add_u64(largest, costs->slot_slack_bytes);
    bytes[BT_LINE_RING] = bt_sat_add_u64(bytes[BT_LINE_RING], bt_sat_mul_u64(c.n_slots, c.slot_bytes));
    c.ledger.source[BT_LINE_RING] = c.ledger.source[BT_LINE_PINNED] = BT_SOURCE_TENSOR;
    if (search->n_heads > 0) c.ledger.source[BT_LINE_HEAD] = BT_SOURCE_TENSOR;
    if (search->n_tables > 0) c.ledger.source[BT_LINE_EMBEDDINGS] = BT_SOURCE_TENSOR;
    uint64_t sum = bt_ledger_sum(&c.ledger);
    bytes[BT_LINE_PAGETABLES] = bt_sat_add_u64(bytes[BT_LINE_PAGETABLES], page_tables(sum, costs->page_table_divisor));
    c.planned_bytes = bt_ledger_sum(&c.ledger);
    *ret = c;
    return true;
}

/* Tables whose row window is no smaller are pinned at once; the rest when room (beyond everything else) is left. */
static void tables_place(bt_search *search, const bt_costs *costs, uint64_t room) {
    const bt_problem *problem = search->problem;
    uint32_t n = 0;
    for (uint32_t u = 0; u < problem->n_units; u++) {
        const bt_plan_unit *unit = &problem->units[u];
        if (unit->kind != BT_KIND_TABLE) continue;
        uint64_t more = bt_sat_sub_u64(unit->pinned_bytes, rows_window(unit, costs));
        search->tables[n++] = (bt_pin_class){.pinned_bytes = more, .n = 1};
    }
    (void)bt_pins_choose(&search->scratch, search->tables, n, room, search->counts);
    n = 0;
    for (uint32_t u = 0; u < problem->n_units; u++) {
        if (problem->units[u].kind != BT_KIND_TABLE) continue;
        search->place[u] = search->counts[n++] > 0 ? BT_PLACE_PINNED : BT_PLACE_ROWS;
    }
}

/* Counts of each class for the most pinned bytes, over all slot sizes; smaller slots first, and they win a tie. */
static void counts_choose(bt_search *search, const bt_pin_mode *mode, uint32_t n_slots, uint64_t slack, uint64_t room) {
    uint64_t best = 0;
    bool found = false;
    memset(search->counts_best, 0, mode->n_classes * sizeof *search->counts_best);
    for (uint32_t k = mode->n_steps; k-- > 0;) {
        const bt_pin_step *step = &mode->steps[k];
        uint64_t ring = bt_sat_mul_u64(n_slots, bt_sat_add_u64(step->slot_bytes, slack));
        if (ring > room) break; /* slots only get larger from here */
        if (found && bt_min_u64(room - ring, mode->most_bytes) <= best) break;
        if (step->forced_bytes > room - ring) continue;
        for (uint32_t c = 0; c < step->first_class; c++)
            search->counts[c] = mode->classes[c].n;
        uint64_t sum =
            step->forced_bytes + bt_pins_choose(&search->scratch, mode->classes + step->first_class,
                                                mode->n_classes - step->first_class, room - ring - step->forced_bytes,
                                                search->counts + step->first_class);
        if (found && sum <= best) continue;
        best = sum;
        found = true;
        memcpy(search->counts_best, search->counts, mode->n_classes * sizeof *search->counts);
    }
}

bool bt_search_room(const bt_search *search, const bt_costs *costs, uint32_t n_ctx, bt_option_row row,
                    uint64_t budget_bytes, uint64_t *ret_bytes) {
    uint64_t fixed = 0;
    if (!fixed_bytes(search, costs, n_ctx, row.head, &fixed)) return false;
    *ret_bytes = bt_sat_sub_u64(without_page_tables(budget_bytes, costs->page_table_divisor), fixed);
    return true;
}

bool bt_search_fill(bt_search *search, const bt_costs *costs, uint32_t n_ctx, bt_option_row row, uint64_t budget_bytes,
                    bt_candidate *ret) {
    const bt_pin_mode *mode = &search->mode[row.head];
    uint64_t room = 0;
    if (!bt_search_room(search, costs, n_ctx, row, budget_bytes, &room)) return false;
    uint64_t left = 0;
    if (row.n_slots == 0) {
        for (uint32_t c = 0; c < mode->n_classes; c++)
            search->counts_best[c] = mode->classes[c].n;
        left = bt_sat_sub_u64(room, mode->most_bytes);
        left =
            bt_sat_sub_u64(left, bt_experts_most_bytes(search->problem, costs->page_table_divisor)); /* before tables */
    } else {
        counts_choose(search, mode, row.n_slots, costs->slot_slack_bytes, room);
    }
    bt_pins_spread(search->problem, mode, search->counts_best, search->work, search->place);
    tables_place(search, costs, left);
    return candidate_price(search, costs, n_ctx, row.n_slots, ret);
}

/* ---- contexts ---- */

uint32_t bt_ctx_steps(const bt_ask *ask) {
    if (ask->n_ctx_step == 0 || ask->n_ctx_start <= ask->n_ctx_min) return 0;
    return (ask->n_ctx_start - ask->n_ctx_min) / ask->n_ctx_step;
}

static uint32_t ctx_lowest(const bt_ask *ask) {
    return ask->n_ctx_start - bt_ctx_steps(ask) * ask->n_ctx_step;
}

uint32_t bt_ctx_floor(const bt_search *search, const bt_ask *ask) {
    uint64_t n_parallel = bt_max_u64(search->costs[ask->first_cost].n_parallel, 1);
    return (uint32_t)bt_min_u64(ask->n_ctx_start, BT_CTX_FLOOR * n_parallel);
}

bt_ask bt_ask_with(const bt_search *search, const bt_ask *ask, uint32_t first_cost, uint32_t n_costs) {
    const bt_costs *costs = &search->costs[first_cost];
    bt_ask with = *ask;
    with.first_cost = first_cost;
    with.n_costs = n_costs;
    with.n_ctx_start = bt_ctx_round(costs, ask->n_ctx_wished);
    with.n_ctx_min = costs->ctx_min;
    if (ask->n_ctx_step > 0) with.n_ctx_step = costs->ctx_step;
    return with;
}

/* The best row that fits at a context. */
static bool row_find(const bt_search *search, const bt_ask *ask, const bt_costs *costs, uint32_t n_ctx,
                     bt_option_row *ret_row) {
    bt_option_row rows[BT_ROW_MAX];
    uint32_t n = bt_search_rows(search, ask, costs, rows);
    uint64_t fixed[BT_HEAD_MODE_COUNT];
    for (int head = 0; head < BT_HEAD_MODE_COUNT; head++)
        if (!fixed_bytes(search, costs, n_ctx, (bt_head_mode)head, &fixed[head])) return false;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t need = need_from(search, costs, fixed[rows[i].head], rows[i]);
        if (need == UINT64_MAX || need > ask->budget_bytes) continue;
        *ret_row = rows[i];
        return true;
    }
    return false;
}

/* The largest context that fits, or false. Need grows with the context, so it can be bisected. */
static bool ctx_find(const bt_search *search, const bt_ask *ask, const bt_costs *costs, uint32_t *ret_ctx,
                     bt_option_row *ret_row) {
    uint32_t fits = 0; /* steps down from the start: fits is the least that fits, if any does */
    uint32_t last = bt_ctx_steps(ask);
    if (!row_find(search, ask, costs, ask->n_ctx_start - last * ask->n_ctx_step, ret_row)) return false;
    uint32_t high = last;
    while (fits < high) {
        uint32_t middle = fits + (high - fits) / 2;
        bt_option_row row;
        if (row_find(search, ask, costs, ask->n_ctx_start - middle * ask->n_ctx_step, &row)) {
            high = middle;
        } else {
            fits = middle + 1;
        }
    }
    *ret_ctx = ask->n_ctx_start - high * ask->n_ctx_step;
    return row_find(search, ask, costs, *ret_ctx, ret_row);
}

/* ---- cost models ---- */

typedef struct choice {
    const bt_costs *costs;
    uint32_t n_ctx;
    bt_option_row row;
} choice;

/* Micro-batches that a prompt should not be cut into while there is another way. */
static bool ubatch_is_small(const bt_search *search, const bt_ask *ask, const bt_costs *costs) {
    uint32_t largest = 0;
    for (uint32_t i = 0; i < ask->n_costs; i++)
        largest = (uint32_t)bt_max_u64(largest, search->costs[ask->first_cost + i].n_ubatch);
    return costs->n_ubatch < bt_min_u64(BT_UBATCH_FLOOR, largest);
}

/* Of the cost models with small micro-batches, or of the others, the first with the largest context. */
static bool choose(const bt_search *search, const bt_ask *ask, bool small, choice *ret) {
    bool found = false;
    for (uint32_t i = 0; i < ask->n_costs; i++) {
        choice c = {.costs = &search->costs[ask->first_cost + i]};
        if (found && ret->n_ctx == ask->n_ctx_start) break;
        if (ubatch_is_small(search, ask, c.costs) != small) continue;
        if (!ctx_find(search, ask, c.costs, &c.n_ctx, &c.row)) continue;
        if (found && c.n_ctx <= ret->n_ctx) continue;
        *ret = c;
        found = true;
    }
    return found;
}

/* The best of all: small micro-batches only for context up to the floor. */
static bool choose_any(const bt_search *search, const bt_ask *ask, choice *ret) {
    uint32_t floor = bt_ctx_floor(search, ask);
    choice small;
    bool found = choose(search, ask, false, ret);
    if (found && ret->n_ctx >= floor) return true;
    if (!choose(search, ask, true, &small)) return found;
    if (!found || small.n_ctx > ret->n_ctx) *ret = small;
    return true;
}

bool bt_search_fits(const bt_search *search, const bt_ask *ask, uint32_t *ret_ctx) {
    choice c;
    if (!choose_any(search, ask, &c)) return false;
    if (ret_ctx) *ret_ctx = c.n_ctx;
    return true;
}

/* ---- the answers ---- */

bool bt_search_best(bt_search *search, const bt_ask *ask, bt_candidate *ret) {
    choice c;
    if (ask->policy == BT_POLICY_SPEED) return bt_search_fastest(search, ask, ret);
    if (!choose_any(search, ask, &c)) return false;
    return bt_search_fill(search, c.costs, c.n_ctx, c.row, ask->budget_bytes, ret);
}

bt_minimum bt_search_minimum(const bt_search *search, const bt_ask *ask) {
    uint32_t n_ctx = ctx_lowest(ask);
    bt_minimum least = {.need_bytes = UINT64_MAX, .n_ctx = n_ctx, .cost_index = ask->first_cost};
    for (uint32_t i = 0; i < ask->n_costs; i++) {
        const bt_costs *costs = &search->costs[ask->first_cost + i];
        bt_option_row rows[BT_ROW_MAX];
        uint32_t n = bt_search_rows(search, ask, costs, rows);
        if (i == 0) least.row = rows[n - 1];
        while (n-- > 0) { /* from the last row up: of equals the one that asks for least stays */
            uint64_t need = bt_search_need(search, costs, n_ctx, rows[n]);
            if (need >= least.need_bytes) continue;
            least.need_bytes = need;
            least.cost_index = ask->first_cost + i;
            least.row = rows[n];
        }
    }
    return least;
}

void bt_search_minimum_take(bt_search *search, const bt_minimum *minimum, bt_candidate *ret) {
    const bt_costs *costs = &search->costs[minimum->cost_index];
    const bt_pin_mode *mode = &search->mode[minimum->row.head];
    uint32_t step = 0;
    (void)bt_pin_mode_least(mode, minimum->row.n_slots, costs->slot_slack_bytes, &step);
    uint32_t n_forced =
        minimum->row.n_slots == 0 || mode->n_steps == 0 ? mode->n_classes : mode->steps[step].first_class;
    for (uint32_t c = 0; c < mode->n_classes; c++)
        search->counts_best[c] = c < n_forced ? mode->classes[c].n : 0;
    bt_pins_spread(search->problem, mode, search->counts_best, search->work, search->place);
    tables_place(search, costs, 0);
    if (!candidate_price(search, costs, minimum->n_ctx, minimum->row.n_slots, ret))
        *ret = (bt_candidate){.n_ctx = minimum->n_ctx, .costs = costs, .planned_bytes = UINT64_MAX};
}

bt_status bt_search_make(const bt_problem *problem, bt_arena *arena, bt_search *ret, bt_error *err) {
    bt_search s = {.problem = problem, .costs = problem->costs, .pins_pay_at_most = true};
    uint64_t n = (uint64_t)problem->n_units + 1;
    uint64_t cell = 0;
    uint64_t total = 0;
    for (uint32_t u = 0; u < problem->n_units; u++) {
        const bt_plan_unit *unit = &problem->units[u];
        s.n_tables += unit->kind == BT_KIND_TABLE;
        s.n_heads += unit->kind == BT_KIND_HEAD;
        if (unit->kind == BT_KIND_TABLE) continue;
        cell = bt_pins_gcd(cell, unit->pinned_bytes);
        total = bt_sat_add_u64(total, unit->pinned_bytes);
        s.weight_bytes_per_pass = bt_sat_add_u64(s.weight_bytes_per_pass, unit->read_bytes);
        s.pins_pay_at_most &= unit->read_bytes <= unit->pinned_bytes;
    }
    for (uint32_t i = 0; i < problem->n_expert_blocks; i++)
        s.weight_bytes_per_pass = bt_sat_add_u64(s.weight_bytes_per_pass,
                                                 bt_sat_mul_u64(problem->expert_read_bytes[i], problem->n_expert_used));
    s.counts = bt_arena_array(arena, n, sizeof *s.counts);
    s.counts_best = bt_arena_array(arena, n, sizeof *s.counts_best);
    s.work = bt_arena_array(arena, n, sizeof *s.work);
    s.place = bt_arena_array(arena, n, sizeof *s.place);
    s.place_best = bt_arena_array(arena, n, sizeof *s.place_best);
    s.tables = bt_arena_array(arena, (uint64_t)s.n_tables + 1, sizeof *s.tables);
    bool made = s.counts && s.counts_best && s.work && s.place && s.place_best && s.tables;
    made = made && bt_pin_scratch_make(arena, problem->n_units, total / bt_max_u64(cell, 1), &s.scratch);
    for (int head = 0; made && head < BT_HEAD_MODE_COUNT; head++)
        made = bt_pin_mode_make(problem, (bt_head_mode)head, arena, &s.mode[head]);
    if (!made)
        return bt_fail(err, BT_E_NOMEM, "plan_arena", BT_MEASURE_BYTES, bt_arena_bytes(arena), 0,
                       "the arena has no room to plan %u units", problem->n_units);
    *ret = s;
    return BT_OK;
}
