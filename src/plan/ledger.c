/* SPDX-License-Identifier: MIT
 *
 * ledger.c: the lines of a pool: their names, their sum, and what each costs at a context.
 *
 * Every line is an affine function of the context with one knee (the sliding window) and a floor, so a ledger at any
 * context is a handful of checked multiplications and the search can ask for hundreds of them. A line of 0 bytes stays
 * a line: that something costs nothing is worth showing. Sums saturate: a ledger that does not fit in 64 bits does not
 * fit in any budget either. Ring, pinned units and page tables depend on the placement and are added by the search. */
#include "base/size.h"
#include "plan/plan.h"

const char *bt_line_name(bt_line line) {
    static const char *const names[BT_LINE_COUNT] = {
#define X(name, text) [BT_LINE_##name] = (text),
        BT_LINE_MAP(X)
#undef X
    };
    return (unsigned)line < BT_LINE_COUNT ? names[line] : "?";
}

const char *bt_source_name(bt_source source) {
    switch (source) {
    case BT_SOURCE_FORMULA:
        return "formula";
    case BT_SOURCE_TENSOR:
        return "tensor";
    case BT_SOURCE_DRY_RUN:
        return "dry-run";
    case BT_SOURCE_MEASURED:
        return "measured";
    }
    return "?";
}

const char *bt_verdict_name(bt_verdict verdict) {
    switch (verdict) {
    case BT_FITS:
        return "fits";
    case BT_STREAMS:
        return "streams";
    case BT_REFUSED:
        return "refused";
    case BT_VERDICT_UNKNOWN:
        return "unknown";
    }
    return "?";
}

uint64_t bt_ledger_sum(const bt_ledger *ledger) {
    uint64_t sum = 0;
    for (int i = 0; i < BT_LINE_COUNT; i++)
        sum = bt_sat_add_u64(sum, ledger->bytes[i]);
    return sum;
}

static bool line_at(const bt_cost *cost, uint64_t cells, uint64_t window_cells, uint64_t *ret_bytes) {
    uint64_t by_ctx = 0;
    uint64_t by_window = 0;
    uint64_t sum = 0;
    if (!bt_mul_u64(cost->per_ctx_bytes, cells, &by_ctx)) return false;
    if (!bt_mul_u64(cost->per_window_bytes, bt_min_u64(cells, window_cells), &by_window)) return false;
    if (!bt_add_u64(cost->fixed_bytes, by_ctx, &sum)) return false;
    if (!bt_add_u64(sum, by_window, &sum)) return false;
    *ret_bytes = bt_max_u64(sum, cost->floor_bytes);
    return true;
}

bool bt_costs_at(const bt_costs *costs, uint32_t n_ctx, bt_ledger *ret_ledger) {
    bt_ledger ledger = {0};
    uint64_t cells = 0;
    if (!bt_align_up_u64(n_ctx, bt_max_u64(costs->ctx_align, 1), &cells)) return false;
    for (int i = 0; i < BT_LINE_COUNT; i++) {
        if (!line_at(&costs->line[i], cells, costs->window_cells, &ledger.bytes[i])) return false;
        ledger.source[i] = costs->line[i].source;
    }
    *ret_ledger = ledger;
    return true;
}
