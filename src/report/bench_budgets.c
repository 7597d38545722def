/* SPDX-License-Identifier: MIT
 * bench_budgets.c: the list of --vs-budget.
 *
 *     25%,50%,300M,1.5G        a share of the way from the least that runs (0%) to all in memory (100%), or a size
 *
 * Shares have up to three decimals. Bounds: BT_BENCH_ROW_MAX budgets, each of as many letters as a row keeps. */
#include "base/error.h"
#include "base/size.h"
#include "report/bench.h"

#include <stdio.h>
#include <string.h>

#define SHARE_ALL 100000u /* 100 % in thousandths */
#define DECIMALS  3u

static bt_status wrong(const char *item, const char *why, bt_error *err) {
    return bt_fail(err, BT_E_ARG, "vs_budget", BT_MEASURE_NONE, 0, 0, "--vs-budget: \"%s\" %s", item, why);
}

/* digits[.digits] without its '%', in thousandths; false: no such number, or over 100. */
static bool share_parse(const char *p, size_t n, uint32_t *ret) {
    uint64_t value = 0;
    uint32_t n_decimals = 0;
    bool has_point = false;
    if (n == 0 || p[0] == '.' || p[n - 1] == '.') return false;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '.' && !has_point) {
            has_point = true;
            continue;
        }
        if (p[i] < '0' || p[i] > '9') return false;
        n_decimals += has_point;
        value = value * 10 + (uint64_t)(p[i] - '0'); /* items are short: no overflow */
    }
    if (n_decimals > DECIMALS) return false;
    for (; n_decimals < DECIMALS; n_decimals++)
        value *= 10;
    *ret = (uint32_t)bt_min_u64(value, SHARE_ALL + 1);
    return value <= SHARE_ALL;
}

static bt_status item_parse(bt_bench_budget *budget, bt_error *err) {
    const char *item = budget->asked;
    size_t n = strlen(item);
    if (n == 0) return wrong(item, "is no budget", err);
    if (item[n - 1] == '%') {
        budget->is_share = true;
        if (share_parse(item, n - 1, &budget->milli_percent)) return BT_OK;
        return wrong(item, "is not a share from 0% to 100%", err);
    }
    if (bt_size_parse(item, "--vs-budget", &budget->bytes, NULL) != BT_OK)
        return wrong(item, "is neither a share, as 25%, nor a size, as 300M", err);
    return budget->bytes > 0 ? BT_OK : wrong(item, "is no budget", err);
}

bt_status bt_bench_budgets_parse(const char *list, bt_bench_budget ret[BT_BENCH_ROW_MAX], uint32_t *ret_n,
                                 bt_error *err) {
    uint32_t n = 0;
    for (const char *p = list;; p++) {
        size_t length = strcspn(p, ",");
        if (n == BT_BENCH_ROW_MAX)
            return bt_fail(err, BT_E_ARG, "vs_budget", BT_MEASURE_ITEMS, (uint64_t)n + 1, BT_BENCH_ROW_MAX,
                           "--vs-budget has more than %u budgets", BT_BENCH_ROW_MAX);
        bt_bench_budget *budget = &ret[n++];
        *budget = (bt_bench_budget){0};
        (void)snprintf(budget->asked, sizeof budget->asked, "%.*s", (int)bt_min_u64(length, sizeof budget->asked), p);
        if (length >= sizeof budget->asked) return wrong(budget->asked, "... is no budget", err);
        BT_TRY(item_parse(budget, err));
        p += length;
        if (*p == '\0') break;
    }
    *ret_n = n;
    return BT_OK;
}

uint64_t bt_bench_budget_bytes(const bt_bench_budget *budget, uint64_t minimum_bytes, uint64_t all_pinned_bytes) {
    if (!budget->is_share) return budget->bytes;
    uint64_t way = bt_sat_sub_u64(all_pinned_bytes, minimum_bytes);
    return bt_sat_add_u64(minimum_bytes, bt_mul_div_u64(way, budget->milli_percent, SHARE_ALL));
}
