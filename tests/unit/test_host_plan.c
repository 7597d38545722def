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

/* ---- the page cache ---------------------------------------------------------------------------------------------- */

static bt_machine machine;
static bt_plan plan;

/* 16 GiB free, a plan of 1 GiB that streams 11: three quarters, to the byte. */
static int start(void **state) {
    (void)state;
    machine = (bt_machine){.pools = {{.state = BT_READING_REPORTED, .free_bytes = 16 * G, .total_bytes = 32 * G}},
                           .n_pools = 1,
                           .cgroup_version = 2,
                           .n_cgroup_levels = 2};
    plan = (bt_plan){.verdict = BT_STREAMS, .planned_bytes = G, .read_bytes_per_pass = 11 * G};
    return 0;
}

static void cache_room_to_the_byte(void **state) {
    (void)state;
    assert_true(bt_plan_has_page_cache(&plan, &machine));
    plan.wishes.io = BT_IO_BUFFERED;
    assert_true(bt_plan_has_page_cache(&plan, &machine));
    plan.read_bytes_per_pass++;
    assert_false(bt_plan_has_page_cache(&plan, &machine));
    plan.read_bytes_per_pass = UINT64_MAX;
    assert_false(bt_plan_has_page_cache(&plan, &machine));
}
static void cache_not_where_others_were_promised_it(void **state) {
    (void)state;
    machine.untouched_bytes = 1;
    assert_false(bt_plan_has_page_cache(&plan, &machine));
    machine.untouched_bytes = UINT64_MAX;
    assert_false(bt_plan_has_page_cache(&plan, &machine));
}
static void cache_not_in_a_limited_cgroup(void **state) {
    (void)state;
    machine.cgroup[1].limit = known(1000 * G);
    assert_false(bt_plan_has_page_cache(&plan, &machine));
    machine.cgroup[1].limit = unknown;
    machine.cgroup_reason[0] = '?'; /* a chain that could not be read may be limited */
    assert_false(bt_plan_has_page_cache(&plan, &machine));
}
static void cache_not_unasked(void **state) {
    (void)state;
    plan.wishes.io = BT_IO_DIRECT;
    assert_false(bt_plan_has_page_cache(&plan, &machine));
}
static void cache_not_without_streaming(void **state) {
    (void)state;
    plan.read_bytes_per_pass = 0;
    assert_false(bt_plan_has_page_cache(&plan, &machine));
    plan.read_bytes_per_pass = G;
    plan.verdict = BT_REFUSED;
    assert_false(bt_plan_has_page_cache(&plan, &machine));
}
static void cache_not_where_free_is_unknown(void **state) {
    (void)state;
    machine.pools[0].state = BT_READING_FAILED;
    assert_false(bt_plan_has_page_cache(&plan, &machine));
    machine.n_pools = 0;
    assert_false(bt_plan_has_page_cache(&plan, &machine));
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
        cmocka_unit_test_setup(cache_room_to_the_byte, start),
        cmocka_unit_test_setup(cache_not_where_others_were_promised_it, start),
        cmocka_unit_test_setup(cache_not_in_a_limited_cgroup, start),
        cmocka_unit_test_setup(cache_not_unasked, start),
        cmocka_unit_test_setup(cache_not_without_streaming, start),
        cmocka_unit_test_setup(cache_not_where_free_is_unknown, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
