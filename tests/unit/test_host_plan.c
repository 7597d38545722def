/* SPDX-License-Identifier: MIT
 * test_host_plan.c: the seed's host rule: acceptance cases A1 to A8 of research notes, seed 3, and the edges beside
 * them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/plan.h"

#define G (UINT64_C(1) << 30)

static bt_known known(uint64_t bytes) {
    return (bt_known){true, bytes};
}
static const bt_known unknown = {false, 0};

static void expect(bt_host_plan plan, bool stream, uint64_t cache_bytes) {
    assert_int_equal(plan.stream, stream);
    assert_int_equal(plan.cache_bytes, cache_bytes);
}

static void a1_fits(void **state) {
    (void)state;
    expect(bt_plan_host(8 * G, known(32 * G), 4 * G, 1 * G), false, 0);
}
static void a2_headroom_first(void **state) {
    (void)state;
    expect(bt_plan_host(30 * G, known(32 * G), 4 * G, 1 * G), true, 28 * G);
}
static void a3_far_larger(void **state) {
    (void)state;
    expect(bt_plan_host(155 * G, known(32 * G), 4 * G, 1 * G), true, 28 * G);
}
static void a4_unknown_is_resident(void **state) {
    (void)state;
    expect(bt_plan_host(155 * G, unknown, 4 * G, 1 * G), false, 0);
}
static void a5_floor(void **state) {
    (void)state;
    expect(bt_plan_host(100 * G, known(5 * G), 4 * G, 2 * G), true, 2 * G);
}
static void a6_derived(void **state) {
    (void)state;
    assert_int_equal(bt_plan_derived_bytes(known(32 * G), 4 * G, 0), 7 * G);
    assert_int_equal(bt_plan_derived_bytes(known(32 * G), 4 * G, 20 * G), 2 * G);
}
static void a7_derived_saturates(void **state) {
    (void)state;
    assert_int_equal(bt_plan_derived_bytes(known(4 * G), 4 * G, 0), 0);
    assert_int_equal(bt_plan_derived_bytes(known(32 * G), 4 * G, 100 * G), 0);
}
static void a8_derived_unknown(void **state) {
    (void)state;
    assert_int_equal(bt_plan_derived_bytes(unknown, 4 * G, 0), 0);
    /* a value that is not known is not looked at */
    assert_int_equal(bt_plan_derived_bytes((bt_known){false, 32 * G}, 4 * G, 0), 0);
}
static void equality_fits(void **state) {
    (void)state;
    expect(bt_plan_host(28 * G, known(32 * G), 4 * G, 1 * G), false, 0);
    expect(bt_plan_host(28 * G + 1, known(32 * G), 4 * G, 1 * G), true, 28 * G);
}
static void known_zero_is_not_unknown(void **state) {
    (void)state;
    expect(bt_plan_host(1, known(0), 4 * G, 2 * G), true, 2 * G);
    expect(bt_plan_host(0, known(0), 4 * G, 2 * G), false, 0);
}
static void headroom_above_available(void **state) {
    (void)state;
    expect(bt_plan_host(1, known(3 * G), 4 * G, 0), true, 0);
}
static void largest_arguments(void **state) {
    (void)state;
    expect(bt_plan_host(UINT64_MAX, known(UINT64_MAX), UINT64_MAX, UINT64_MAX), true, UINT64_MAX);
    expect(bt_plan_host(UINT64_MAX, known(UINT64_MAX), 0, UINT64_MAX), false, 0);
    expect(bt_plan_host(UINT64_MAX, known(UINT64_MAX), 1, 0), true, UINT64_MAX - 1);
    assert_int_equal(bt_plan_derived_bytes(known(UINT64_MAX), UINT64_MAX, UINT64_MAX), 0);
    assert_int_equal(bt_plan_derived_bytes(known(UINT64_MAX), 0, 0), UINT64_MAX / 4);
}
static void derived_remainder(void **state) {
    (void)state;
    assert_int_equal(bt_plan_derived_bytes(known(7), 0, 0), 1);
    assert_int_equal(bt_plan_derived_bytes(known(3), 0, 0), 0);
}
static void headroom_constant(void **state) {
    (void)state;
    assert_int_equal(BT_HOST_HEADROOM_BYTES, UINT64_C(4294967296));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a1_fits),
        cmocka_unit_test(a2_headroom_first),
        cmocka_unit_test(a3_far_larger),
        cmocka_unit_test(a4_unknown_is_resident),
        cmocka_unit_test(a5_floor),
        cmocka_unit_test(a6_derived),
        cmocka_unit_test(a7_derived_saturates),
        cmocka_unit_test(a8_derived_unknown),
        cmocka_unit_test(equality_fits),
        cmocka_unit_test(known_zero_is_not_unknown),
        cmocka_unit_test(headroom_above_available),
        cmocka_unit_test(largest_arguments),
        cmocka_unit_test(derived_remainder),
        cmocka_unit_test(headroom_constant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
