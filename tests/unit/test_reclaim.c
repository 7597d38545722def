/* SPDX-License-Identifier: MIT
 * test_reclaim.c: readings one after another, until one is decided on (research notes, seed 4, G16 and T11). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "guard/reclaim.h"

#define GIB 1073741824.0

/* T11: kept from 20 on, degraded from 4 on, else refused. */
static bt_reclaim_outcome outcome_of(double free_gib) {
    if (free_gib < 0) return BT_RECLAIM_BLIND;
    return free_gib >= 20 ? BT_RECLAIM_KEEPS : free_gib >= 4 ? BT_RECLAIM_DEGRADES : BT_RECLAIM_REFUSES;
}

/* readings end with the last, which then stays. */
static void runs(const double *readings, uint32_t n, bool wait, bt_reclaim_step step, bt_reclaim_outcome last,
                 uint32_t n_probes) {
    bt_reclaim reclaim = {0};
    bt_reclaim_outcome outcome = BT_RECLAIM_BLIND;
    bt_reclaim_step got = BT_RECLAIM_PROBE;
    uint32_t i = 0;
    for (; got == BT_RECLAIM_PROBE; i++) {
        assert_true(i <= BT_RECLAIM_PROBES);
        double reading = readings[i < n ? i : n - 1];
        outcome = outcome_of(reading);
        got = bt_reclaim_next(&reclaim, outcome, reading < 0 ? 0 : (uint64_t)(reading * GIB), wait);
    }
    assert_int_equal(got, step);
    assert_int_equal(outcome, last);
    assert_int_equal(i - 1, n_probes);
    assert_int_equal(reclaim.n_probes, n_probes);
}

#define RUNS(step, last, n_probes, ...)                                                                                \
    do {                                                                                                               \
        static const double readings[] = {__VA_ARGS__};                                                                \
        runs(readings, sizeof readings / sizeof *readings, true, step, last, n_probes);                                \
    } while (0)

static void t11(void **state) {
    (void)state;
    RUNS(BT_RECLAIM_TAKE, BT_RECLAIM_KEEPS, 0, 20);
    RUNS(BT_RECLAIM_TAKE, BT_RECLAIM_KEEPS, 1, 5, 99);
    RUNS(BT_RECLAIM_TAKE, BT_RECLAIM_DEGRADES, 2, 5, 10, 10);
    RUNS(BT_RECLAIM_TAKE, BT_RECLAIM_KEEPS, 3, 5, 6, 12, 30);
    RUNS(BT_RECLAIM_TAKE, BT_RECLAIM_KEEPS, 3, 1.8, 1.8, 1.9, 25);
    RUNS(BT_RECLAIM_REFUSE, BT_RECLAIM_REFUSES, 6, 1.8);
    RUNS(BT_RECLAIM_TAKE, BT_RECLAIM_BLIND, 0, -1);
}

static void beside_t11(void **state) {
    (void)state;
    RUNS(BT_RECLAIM_TAKE, BT_RECLAIM_DEGRADES, 2, 5);                   /* it never moves */
    RUNS(BT_RECLAIM_TAKE, BT_RECLAIM_DEGRADES, 3, 5, 6, 8, 8.1);        /* a rise under the epsilon is none */
    RUNS(BT_RECLAIM_TAKE, BT_RECLAIM_DEGRADES, 6, 1, 2, 3, 4, 5, 6, 7); /* it rises to the end */
    RUNS(BT_RECLAIM_REFUSE, BT_RECLAIM_REFUSES, 6, 1, 2, 2.5, 3, 3.2, 3.5, 3.9);
    RUNS(BT_RECLAIM_TAKE, BT_RECLAIM_DEGRADES, 3, 1, 1, 5, 5); /* refused before, and settled now */
    RUNS(BT_RECLAIM_TAKE, BT_RECLAIM_BLIND, 2, 1, 1, -1);      /* the reading is gone: nothing is known */
}

static void without_waiting(void **state) {
    (void)state;
    static const double refused[] = {1}, degraded[] = {5}, kept[] = {30};
    runs(refused, 1, false, BT_RECLAIM_REFUSE, BT_RECLAIM_REFUSES, 0);
    runs(degraded, 1, false, BT_RECLAIM_TAKE, BT_RECLAIM_DEGRADES, 0);
    runs(kept, 1, false, BT_RECLAIM_TAKE, BT_RECLAIM_KEEPS, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t11),
        cmocka_unit_test(beside_t11),
        cmocka_unit_test(without_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
