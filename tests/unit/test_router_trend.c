/* SPDX-License-Identifier: MIT
 * test_router_trend.c: whether a server grows with what it serves. User case 47. Sizes in MiB. */
#include "router/trend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

static bt_trend t;
static bt_trend_sample s;

static int set_up(void **state) {
    (void)state;
    memset(&t, 0, sizeof t);
    s = (bt_trend_sample){.free_bytes = {true, 4096 * MIB}};
    return 0;
}

/* After so many more tokens so much is held. */
static bool look(uint64_t n_tokens, uint64_t held) {
    s.n_tokens += n_tokens;
    s.held_bytes = (bt_known){true, held * MIB};
    return bt_trend_look(&t, &s);
}

/* The report's: 4096 tokens, a look every 256, and 10 MiB more each time. */
static void case_47_each_token(void **state) {
    (void)state;
    uint32_t n_said = 0, first = 0;
    uint64_t held = 1000;
    (void)look(0, held);
    for (uint32_t i = 1; i <= 16; i++) {
        held += 10;
        bool said = look(256, held);
        if (said && n_said == 0) first = i;
        n_said += said;
    }
    assert_int_equal(first, 1 + BT_TREND_STEPS); /* the first step warms up */
    assert_int_equal(n_said, 1);                 /* and it has not doubled since */
    assert_int_equal(t.grown_bytes, 150 * MIB);
    assert_int_equal(t.n_tokens, 15 * 256);
    assert_true(t.left_tokens.known);
    assert_int_equal(t.left_tokens.value, UINT64_C(4096) * 15 * 256 / 150);
    for (uint32_t i = 0; i < 16; i++)
        n_said += look(256, held += 10);
    assert_int_equal(n_said, 2);
    assert_int_equal(t.told_bytes, 160 * MIB); /* twice the 80 that were said first */
}

/* What is allocated once, however much and however late, is none; nor is what goes up and comes back. */
static void no_trend(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 40; i++)
        assert_false(look(256, 1000 + i / 10 * 500));
    assert_int_equal(t.grown_bytes, 0);
    for (uint32_t i = 0; i < 200; i++)
        assert_false(look(256, 3000 + i % 7 * 50));
    for (uint32_t i = 0; i < 50; i++)
        assert_false(look(0, 3000 + i * 50)); /* nothing was served: nothing is known */
    assert_int_equal(t.grown_bytes, 0);
}

/* Inside of a step it may hold more for a moment: what it holds at the end counts. */
static void peaks_are_none(void **state) {
    (void)state;
    (void)look(0, 1000);
    for (uint32_t i = 0; i < 30; i++) {
        assert_false(look(100, 1000 + i * 40));
        assert_false(look(200, 1000));
    }
    assert_int_equal(t.grown_bytes, 0);
}

/* 1 % of it, at least. */
static void a_small_one(void **state) {
    (void)state;
    uint64_t held = 20000;
    uint32_t n_steps = 0;
    (void)look(0, held);
    while (!look(256, held += 10)) {
        n_steps++;
        assert_in_range(n_steps, 0, 100);
    }
    assert_int_equal(t.grown_bytes, 210 * MIB); /* of 20,010 after the first step 1 % is 200.1 */
    assert_int_equal(t.n_tokens, 21 * 256);
}

/* It ends, and is forgotten; another one is said anew. */
static void it_ends(void **state) {
    (void)state;
    uint64_t held = 1000;
    uint32_t n_said = 0;
    for (uint32_t i = 0; i < 12; i++)
        n_said += look(256, held += 10);
    assert_int_equal(n_said, 1);
    assert_false(look(256, held));
    assert_int_equal(t.grown_bytes, 0);
    assert_false(t.left_tokens.known);
    for (uint32_t i = 0; i < BT_TREND_STEPS - 1; i++)
        assert_false(look(256, held += 10));
    assert_true(look(256, held += 10));
    assert_int_equal(t.grown_bytes, UINT64_C(10) * BT_TREND_STEPS * MIB);
}

/* A device that does not say what is free, or what the model holds. */
static void unknown(void **state) {
    (void)state;
    uint64_t held = 1000;
    s.free_bytes.known = false;
    for (uint32_t i = 0; i < 9; i++)
        assert_false(look(256, held += 10));
    s.held_bytes.known = false;
    s.n_tokens += 5000;
    assert_false(bt_trend_look(&t, &s));
    assert_true(look(256, held += 10));
    assert_false(t.left_tokens.known);
    s.n_tokens = UINT64_MAX; /* as far as counting goes */
    s.free_bytes = (bt_known){true, UINT64_MAX};
    s.held_bytes.value = UINT64_MAX;
    assert_true(bt_trend_look(&t, &s));
    assert_true(t.left_tokens.known);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(case_47_each_token, set_up),
        cmocka_unit_test_setup(no_trend, set_up),
        cmocka_unit_test_setup(peaks_are_none, set_up),
        cmocka_unit_test_setup(a_small_one, set_up),
        cmocka_unit_test_setup(it_ends, set_up),
        cmocka_unit_test_setup(unknown, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
