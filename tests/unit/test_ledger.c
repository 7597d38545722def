/* SPDX-License-Identifier: MIT
 * test_ledger.c: names, saturating sums, lines as functions of the context, and the forecast. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/plan.h"

static void names(void **state) {
    (void)state;
    assert_string_equal(bt_line_name(BT_LINE_BASE), "base");
    assert_string_equal(bt_line_name(BT_LINE_KV), "kv");
    assert_string_equal(bt_line_name(BT_LINE_OUTPUT_NORM), "output_norm");
    assert_string_equal(bt_line_name(BT_LINE_STAGING), "staging");
    assert_string_equal(bt_line_name(BT_LINE_COUNT), "?");
    for (int i = 0; i < BT_LINE_COUNT; i++)
        assert_string_not_equal(bt_line_name((bt_line)i), "?");
    assert_string_equal(bt_source_name(BT_SOURCE_FORMULA), "formula");
    assert_string_equal(bt_source_name(BT_SOURCE_TENSOR), "tensor");
    assert_string_equal(bt_source_name(BT_SOURCE_DRY_RUN), "dry-run");
    assert_string_equal(bt_source_name(BT_SOURCE_MEASURED), "measured");
    assert_string_equal(bt_verdict_name(BT_FITS), "fits");
    assert_string_equal(bt_verdict_name(BT_STREAMS), "streams");
    assert_string_equal(bt_verdict_name(BT_REFUSED), "refused");
    assert_string_equal(bt_verdict_name(BT_VERDICT_UNKNOWN), "unknown");
}

static void sums_saturate(void **state) {
    (void)state;
    bt_ledger ledger = {0};
    assert_int_equal(bt_ledger_sum(&ledger), 0);
    for (int i = 0; i < BT_LINE_COUNT; i++)
        ledger.bytes[i] = (uint64_t)i + 1;
    assert_int_equal(bt_ledger_sum(&ledger), BT_LINE_COUNT * (BT_LINE_COUNT + 1) / 2);
    ledger.bytes[3] = UINT64_MAX - 2;
    assert_int_equal(bt_ledger_sum(&ledger), UINT64_MAX);
}

static void costs_follow_the_context(void **state) {
    (void)state;
    bt_costs costs = {.ctx_align = 256, .window_cells = 1536};
    costs.line[BT_LINE_KV] = (bt_cost){100, 10, 1000, 0, BT_SOURCE_DRY_RUN};
    costs.line[BT_LINE_BASE] = (bt_cost){7, 0, 0, 0, BT_SOURCE_MEASURED};
    costs.line[BT_LINE_COMPUTE] = (bt_cost){.fixed_bytes = 1, .per_ctx_bytes = 1, .floor_bytes = 300};
    bt_ledger ledger;
    assert_true(bt_costs_at(&costs, 1, &ledger));
    assert_int_equal(ledger.bytes[BT_LINE_KV], 100 + 256 * 10 + 256 * 1000);
    assert_int_equal(ledger.bytes[BT_LINE_BASE], 7);
    assert_int_equal(ledger.bytes[BT_LINE_COMPUTE], 300); /* 1 + 256 is under the floor */
    assert_int_equal(ledger.source[BT_LINE_KV], BT_SOURCE_DRY_RUN);
    assert_int_equal(ledger.source[BT_LINE_BASE], BT_SOURCE_MEASURED);
    assert_true(bt_costs_at(&costs, 1280, &ledger));
    assert_int_equal(ledger.bytes[BT_LINE_KV], 100 + 1280 * 1010);
    assert_int_equal(ledger.bytes[BT_LINE_COMPUTE], 1 + 1280);
    assert_true(bt_costs_at(&costs, 1281, &ledger));
    assert_int_equal(ledger.bytes[BT_LINE_KV], 100 + 1536 * 1010);
    assert_true(bt_costs_at(&costs, 4000, &ledger));
    assert_int_equal(ledger.bytes[BT_LINE_KV], 100 + 4096 * 10 + 1536 * 1000);
    costs.ctx_align = 0; /* not stated: no rounding */
    assert_true(bt_costs_at(&costs, 3, &ledger));
    assert_int_equal(ledger.bytes[BT_LINE_KV], 100 + 3 * 1010);
}

static void costs_overflow(void **state) {
    (void)state;
    bt_costs costs = {.ctx_align = 1};
    bt_ledger ledger;
    costs.line[BT_LINE_KV].per_ctx_bytes = UINT64_MAX / 2;
    assert_true(bt_costs_at(&costs, 2, &ledger));
    assert_false(bt_costs_at(&costs, 3, &ledger));
    costs.line[BT_LINE_KV].fixed_bytes = 2;
    assert_false(bt_costs_at(&costs, 2, &ledger));
}

/* ---- P4 ---- */

static bt_problem rates(uint64_t disk, uint64_t memory) {
    return (bt_problem){.disk_bytes_per_s = {disk > 0, disk}, .memory_bytes_per_s = {memory > 0, memory}};
}

static void forecast_p4(void **state) {
    (void)state;
    bt_problem p = rates(1000000, 10000000);
    /* 500,000 bytes: half a second of disk; 2,000,000 bytes of weights: a fifth of a second of memory */
    bt_forecast f = bt_forecast_make(&p, 500000, 2000000, 2);
    assert_true(f.micro_tokens_per_s.known);
    assert_int_equal(f.micro_tokens_per_s.value, 2000000);
    assert_int_equal(f.bound, BT_BOUND_DISK);
    f = bt_forecast_make(&p, 500000, 2000000, 1); /* one slot: they take turns, 0.7 s */
    assert_int_equal(f.micro_tokens_per_s.value, 1428571);
    f = bt_forecast_make(&p, 100000, 2000000, 2);
    assert_int_equal(f.micro_tokens_per_s.value, 5000000);
    assert_int_equal(f.bound, BT_BOUND_MEMORY);
    p.compute_ns_per_pass = (bt_known){true, 400000000};
    f = bt_forecast_make(&p, 100000, 2000000, 2);
    assert_int_equal(f.micro_tokens_per_s.value, 2500000);
    assert_int_equal(f.bound, BT_BOUND_COMPUTE);
    f = bt_forecast_make(&p, 0, 2000000, 0);
    assert_int_equal(f.micro_tokens_per_s.value, 2500000);
}

static void forecast_unknown(void **state) {
    (void)state;
    bt_problem p = rates(0, 10000000);
    assert_false(bt_forecast_make(&p, 1, 2000000, 2).micro_tokens_per_s.known);
    assert_true(bt_forecast_make(&p, 0, 2000000, 0).micro_tokens_per_s.known); /* no disk needed */
    p = rates(1000000, 0);
    assert_false(bt_forecast_make(&p, 1, 2000000, 2).micro_tokens_per_s.known);
    p.disk_bytes_per_s = (bt_known){true, 0};
    p.compute_ns_per_pass = (bt_known){true, 5};
    assert_false(bt_forecast_make(&p, 1, 2000000, 2).micro_tokens_per_s.known);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),          cmocka_unit_test(sums_saturate), cmocka_unit_test(costs_follow_the_context),
        cmocka_unit_test(costs_overflow), cmocka_unit_test(forecast_p4),   cmocka_unit_test(forecast_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
