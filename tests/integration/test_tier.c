/* SPDX-License-Identifier: MIT
 * test_tier.c: disk or page cache: the trial, a tie, prompts in between, and a cache that is taken away. */
#include "device/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define N_TRIAL 5u

static bt_tier tier;

/* Passes until the trial is over, at what each way costs. */
static void run_trial(uint64_t cached_cost, uint64_t disk_cost) {
    for (uint32_t i = 0; i < N_TRIAL; i++)
        bt_tier_decide(&tier, tier.cached ? cached_cost : disk_cost, true);
}

static int start(void **state) {
    (void)state;
    tier = (bt_tier){0};
    bt_tier_start(&tier);
    return 0;
}

static void test_the_cheaper_one_is_kept(void **state) {
    assert_true(tier.cached); /* the first passes fill it */
    run_trial(100, 400);
    assert_true(tier.cached);
    assert_int_equal(tier.cached_ns_per_mib, 100);
    assert_int_equal(tier.disk_ns_per_mib, 400);
    start(state);
    run_trial(400, 100);
    assert_false(tier.cached);
}

static void test_a_tie_goes_to_the_disk(void **state) {
    run_trial(100, 110);
    assert_false(tier.cached);
    start(state);
    run_trial(100, 111);
    assert_true(tier.cached);
}

/* What fills the cache costs anything; so does the pass in which reads are still of the other way. */
static void test_only_settled_passes_count(void **state) {
    (void)state;
    static const uint64_t costs[N_TRIAL] = {9000, 8000, 100, 1, 400};
    for (uint32_t i = 0; i < N_TRIAL; i++)
        bt_tier_decide(&tier, costs[i], true);
    assert_true(tier.cached);
    assert_int_equal(tier.cached_ns_per_mib, 100);
    assert_int_equal(tier.disk_ns_per_mib, 400);
}

/* A prompt hides what its reads cost: it may be the first pass, and none that counts. */
static void test_prompts_do_not_count(void **state) {
    (void)state;
    bt_tier_decide(&tier, 1, false);
    for (uint32_t i = 0; i < 20; i++)
        bt_tier_decide(&tier, 1, false);
    bt_tier_decide(&tier, 100, true);
    bt_tier_decide(&tier, 1, false);
    bt_tier_decide(&tier, 100, true);
    bt_tier_decide(&tier, 400, true);
    bt_tier_decide(&tier, 1, false);
    bt_tier_decide(&tier, 400, true);
    assert_true(tier.cached);
    assert_int_equal(tier.cached_ns_per_mib, 100);
    assert_int_equal(tier.disk_ns_per_mib, 400);
}

static void test_a_cache_that_is_taken_away(void **state) {
    (void)state;
    run_trial(100, 400);
    for (uint32_t i = 0; i < 10; i++) { /* now and then is chance */
        for (uint32_t k = 0; k < 3; k++)
            bt_tier_decide(&tier, 401, true);
        bt_tier_decide(&tier, 400, true);
        assert_true(tier.cached);
    }
    for (uint32_t k = 0; k < 4; k++) {
        assert_true(tier.cached);
        bt_tier_decide(&tier, 5000, true);
    }
    assert_false(tier.cached);
    for (uint32_t i = 0; i < 255; i++)
        bt_tier_decide(&tier, 400, true);
    assert_false(tier.cached);
    bt_tier_decide(&tier, 400, true); /* tried again */
    assert_true(tier.cached);
    run_trial(100, 400);
    assert_true(tier.cached);
}

/* The disk won: nothing was taken from us, and it stays. */
static void test_the_disk_stays(void **state) {
    (void)state;
    run_trial(400, 100);
    for (uint32_t i = 0; i < 1000; i++) {
        bt_tier_decide(&tier, 9000, true);
        assert_false(tier.cached);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_the_cheaper_one_is_kept, start),
        cmocka_unit_test_setup(test_a_tie_goes_to_the_disk, start),
        cmocka_unit_test_setup(test_only_settled_passes_count, start),
        cmocka_unit_test_setup(test_prompts_do_not_count, start),
        cmocka_unit_test_setup(test_a_cache_that_is_taken_away, start),
        cmocka_unit_test_setup(test_the_disk_stays, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
