/* SPDX-License-Identifier: MIT
 * test_memo.c: a refusal remembered (research notes, seed 4, G28 and T21). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "guard/memo.h"

#include <string.h>

#define GIB UINT64_C(1073741824)

static bt_memo memo;
static const bt_error error = {.status = BT_E_BUDGET, .code = "insufficient_vram", .text = "insufficient VRAM: none"};

static int fresh(void **state) {
    (void)state;
    memo = (bt_memo){0};
    return 0;
}

static bool hit(uint64_t free_bytes, int64_t now_ms) {
    return bt_memo_hit(&memo, (bt_known){true, free_bytes}, now_ms, NULL);
}

static void t21_rise(void **state) {
    (void)state;
    assert_false(hit(2 * GIB, 0)); /* nothing is held */
    bt_memo_store(&memo, &error, 2 * GIB, 1000);
    assert_true(hit(2 * GIB, 1000));
    assert_false(hit(12 * GIB, 1001));
    assert_false(hit(2 * GIB, 1002)); /* dropped, and stays dropped */
}

static void t21_jitter(void **state) {
    (void)state;
    bt_memo_store(&memo, &error, 2 * GIB, 0);
    assert_true(hit(2 * GIB + BT_GUARD_EPSILON_BYTES / 2, 1));
    assert_true(hit(2 * GIB + BT_GUARD_EPSILON_BYTES, 2));
    assert_true(hit(0, 3)); /* less is free */
    assert_false(hit(2 * GIB + BT_GUARD_EPSILON_BYTES + 1, 4));
}

static void t21_age(void **state) {
    (void)state;
    bt_memo_store(&memo, &error, 2 * GIB, 5);
    assert_true(hit(2 * GIB, 30005));
    assert_false(hit(2 * GIB, 30006));
    bt_memo_store(&memo, &error, 2 * GIB, 0);
    assert_false(hit(2 * GIB, 60000));
}

static void t21_cleared(void **state) {
    (void)state;
    bt_memo_store(&memo, &error, 2 * GIB, 0);
    bt_memo_clear(&memo);
    assert_false(hit(2 * GIB, 1));
}

static void g28_unknown_reading(void **state) {
    (void)state;
    bt_memo_store(&memo, &error, 2 * GIB, 0);
    assert_true(bt_memo_hit(&memo, (bt_known){0}, 1, NULL));
    assert_true(hit(2 * GIB, 2));
    assert_false(bt_memo_hit(&memo, (bt_known){0}, 60000, NULL)); /* but time passes */
}

static void g28_says_so(void **state) {
    (void)state;
    bt_error seen = {0};
    bt_memo_store(&memo, &error, 2 * GIB, 0);
    assert_true(bt_memo_hit(&memo, (bt_known){true, GIB}, 12345, &seen));
    assert_int_equal(seen.status, BT_E_BUDGET);
    assert_string_equal(seen.code, "insufficient_vram");
    assert_string_equal(seen.text, "insufficient VRAM: none (as 12 s ago)");
    assert_true(bt_memo_hit(&memo, (bt_known){true, GIB}, 13000, &seen)); /* once, not twice */
    assert_string_equal(seen.text, "insufficient VRAM: none (as 13 s ago)");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(t21_rise, fresh),
        cmocka_unit_test_setup(t21_jitter, fresh),
        cmocka_unit_test_setup(t21_age, fresh),
        cmocka_unit_test_setup(t21_cleared, fresh),
        cmocka_unit_test_setup(g28_unknown_reading, fresh),
        cmocka_unit_test_setup(g28_says_so, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
