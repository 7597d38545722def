/* SPDX-License-Identifier: MIT
 * test_device_budget.c: what may be used of a device. B1 to B7: cases of the research notes, seed 1; B8 is of a
 * registry that we do not have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

static const bt_known nothing = {0};

static bt_pool reported(uint64_t free_bytes) {
    return (bt_pool){.name = "CUDA0",
                     .kind = BT_POOL_GPU,
                     .state = BT_READING_REPORTED,
                     .free_bytes = free_bytes,
                     .total_bytes = UINT64_MAX};
}

static bt_pool failed(void) {
    bt_pool pool = {.name = "CUDA0", .kind = BT_POOL_GPU, .state = BT_READING_FAILED};
    (void)snprintf(pool.reason, sizeof pool.reason, "no memory reported: query failed (cudaErrorIllegalAddress, 700)");
    return pool;
}

static const bt_pool absent = {.state = BT_READING_ABSENT};

static void check_reported(uint64_t free_bytes, uint64_t wanted_bytes) {
    bt_pool pool = reported(free_bytes);
    bt_device_budget budget = bt_device_budget_resolve(nothing, &pool);
    assert_int_equal(budget.bytes, wanted_bytes);
    assert_int_equal(budget.state, BT_READING_REPORTED);
    assert_string_equal(budget.note, "");
}

static void test_B1_B2_three_quarters(void **state) {
    (void)state;
    check_reported(4 * MIB, 3145728);
    check_reported(4000001, 3000000);
}

static void test_B3_a_full_device_has_a_budget_of_nothing(void **state) {
    (void)state;
    check_reported(0, 0);
}

static void test_B4_a_failed_query_bounds_nothing_and_is_said(void **state) {
    (void)state;
    bt_pool pool = failed();
    bt_device_budget budget = bt_device_budget_resolve(nothing, &pool);
    assert_int_equal(budget.bytes, UINT64_MAX);
    assert_int_equal(budget.state, BT_READING_FAILED);
    assert_string_equal(budget.note,
                        "memory of CUDA0 is unmeasured, its own allocator decides: no memory reported: query "
                        "failed (cudaErrorIllegalAddress, 700)");
    assert_null(strstr(budget.note, "0 MiB"));
    assert_null(strstr(budget.note, "0 byte budget"));
}

/* The longest that a reading can say is not cut. */
static void test_B4_the_note_has_room(void **state) {
    (void)state;
    bt_pool pool = failed();
    memset(pool.name, 'N', sizeof pool.name - 1);
    memset(pool.reason, 'r', sizeof pool.reason - 1);
    bt_device_budget budget = bt_device_budget_resolve(nothing, &pool);
    assert_non_null(strstr(budget.note, pool.name));
    assert_non_null(strstr(budget.note, pool.reason));
}

static void test_B5_no_device_no_budget(void **state) {
    (void)state;
    bt_device_budget budget = bt_device_budget_resolve(nothing, &absent);
    assert_int_equal(budget.bytes, 0);
    assert_int_equal(budget.state, BT_READING_ABSENT);
    assert_string_equal(budget.note, "");
}

static void test_no_limit_is_none(void **state) {
    (void)state;
    bt_pool pool = reported(4 * MIB);
    pool.state = BT_READING_UNLIMITED;
    bt_device_budget budget = bt_device_budget_resolve(nothing, &pool);
    assert_int_equal(budget.bytes, UINT64_MAX);
    assert_int_equal(budget.state, BT_READING_UNLIMITED);
    assert_string_equal(budget.note, "");
}

static void test_B6_what_was_asked_wins(void **state) {
    (void)state;
    const bt_pool readings[] = {reported(4 * MIB), failed(), absent, reported(0)};
    for (size_t i = 0; i < sizeof readings / sizeof *readings; i++)
        for (uint64_t asked = 0; asked <= 4096; asked += 4096) {
            bt_device_budget budget = bt_device_budget_resolve((bt_known){true, asked}, &readings[i]);
            assert_int_equal(budget.bytes, asked);
            assert_int_equal(budget.state, BT_READING_REPORTED);
            assert_string_equal(budget.note, "");
        }
}

static void test_B7_divided_first(void **state) {
    (void)state;
    check_reported(3, 0);
    check_reported(7, 3);
    check_reported(UINT64_MAX, UINT64_MAX / 4 * 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_B1_B2_three_quarters),
        cmocka_unit_test(test_B3_a_full_device_has_a_budget_of_nothing),
        cmocka_unit_test(test_B4_a_failed_query_bounds_nothing_and_is_said),
        cmocka_unit_test(test_B4_the_note_has_room),
        cmocka_unit_test(test_B5_no_device_no_budget),
        cmocka_unit_test(test_no_limit_is_none),
        cmocka_unit_test(test_B6_what_was_asked_wins),
        cmocka_unit_test(test_B7_divided_first),
    };
    return cmocka_run_group_tests_name("device budget", tests, NULL, NULL);
}
