/* SPDX-License-Identifier: MIT
 * test_speculation.c: what is guessed from what came before, and when a guess is worth a pass. */
#include "engine/lookup.h"
#include "engine/speculate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bt_lookup *lookup_of(const int32_t *tokens, uint32_t n) {
    bt_lookup *lookup = bt_lookup_open(64);
    assert_non_null(lookup);
    bt_lookup_add(lookup, tokens, n);
    return lookup;
}

static void drafts(const int32_t *tokens, uint32_t n, const int32_t *expected, uint32_t n_expected) {
    bt_lookup *lookup = lookup_of(tokens, n);
    int32_t found[8] = {0};
    assert_true(bt_lookup_draft(lookup, found, n_expected));
    assert_memory_equal(found, expected, n_expected * sizeof *expected);
    bt_lookup_close(lookup);
}

static void test_what_followed(void **state) {
    (void)state;
    drafts((const int32_t[]){1, 2, 3, 4, 5, 6, 9, 1, 2, 3}, 10, (const int32_t[]){4, 5, 6}, 3);
    /* the last of two places of equal length */
    drafts((const int32_t[]){1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3}, 11, (const int32_t[]){5, 1, 2}, 3);
    /* the longer match, though it is further back */
    drafts((const int32_t[]){8, 1, 2, 3, 4, 7, 1, 2, 3, 5, 8, 1, 2, 3}, 14, (const int32_t[]){4, 7}, 2);
    /* a draft that reaches the end goes on with itself */
    drafts((const int32_t[]){1, 2, 3, 4, 1, 2, 3}, 7, (const int32_t[]){4, 1, 2, 3, 4, 1}, 6);
    drafts((const int32_t[]){5, 5, 5, 5}, 4, (const int32_t[]){5, 5, 5, 5, 5, 5}, 6);
}

static void test_nothing_followed(void **state) {
    (void)state;
    int32_t found[4];
    for (uint32_t n = 0; n <= 5; n++) {
        bt_lookup *lookup = lookup_of((const int32_t[]){1, 2, 9, 1, 2}, n); /* two equal tokens are not enough */
        assert_false(bt_lookup_draft(lookup, found, 4));
        bt_lookup_close(lookup);
    }
    bt_lookup_close(NULL);
}

/* More tokens than there is room for: no harm, and what is found is from those that were kept. */
static void test_full(void **state) {
    (void)state;
    bt_lookup *lookup = bt_lookup_open(8);
    assert_non_null(lookup);
    static const int32_t tokens[] = {1, 2, 3, 4, 1, 2, 3, 7, 8, 9};
    bt_lookup_add(lookup, tokens, 7);
    int32_t found[2];
    assert_true(bt_lookup_draft(lookup, found, 2));
    assert_int_equal(found[0], 4);
    bt_lookup_add(lookup, tokens + 7, 3);
    bt_lookup_add(lookup, tokens, 10);
    assert_false(bt_lookup_draft(lookup, found, 2));
    bt_lookup_close(lookup);
}

/* Against the definition, on random tokens of a small alphabet. */
static void test_brute_force(void **state) {
    (void)state;
    uint32_t x = 1;
    for (uint32_t round = 0; round < 2000; round++) {
        int32_t tokens[40];
        uint32_t n = 1 + round % 40;
        for (uint32_t i = 0; i < n; i++) {
            x = x * 1664525u + 1013904223u; /* Numerical Recipes */
            tokens[i] = (int32_t)(x >> 24) % 3;
        }
        uint32_t best = 0, best_end = 0;
        for (uint32_t end = 1; end < n; end++) {
            uint32_t length = 0;
            while (length < 8 && length < end && tokens[end - 1 - length] == tokens[n - 1 - length])
                length++;
            if (length >= best && length > 0) best = length, best_end = end;
        }
        bt_lookup *lookup = lookup_of(tokens, n);
        int32_t found[1] = {-1};
        bool has = bt_lookup_draft(lookup, found, 1);
        assert_int_equal(has, best >= 3);
        if (has) assert_int_equal(found[0], tokens[best_end]);
        bt_lookup_close(lookup);
    }
}

/* Where the disk sets the pace a draft costs what a step costs: always. */
static void test_free_drafts(void **state) {
    (void)state;
    bt_speculation s = {0};
    for (uint32_t i = 0; i < 200; i++) {
        assert_true(bt_speculation_pays(&s));
        bt_speculation_note_draft(&s, 6, i % 4 == 0, 1000);
        bt_speculation_note_step(&s, 1000);
    }
    assert_int_equal(s.drafted, 1200);
    assert_int_equal(s.accepted, 50);
}

/* Where computing does, and nothing is right: two at first, then one in 64 steps. */
static void test_dear_drafts(void **state) {
    (void)state;
    bt_speculation s = {0};
    uint32_t n_drafts = 0;
    for (uint32_t i = 0; i < 650; i++) {
        bool pays = bt_speculation_pays(&s);
        n_drafts += pays;
        if (pays)
            bt_speculation_note_draft(&s, 6, 0, 2000);
        else
            bt_speculation_note_step(&s, 1000);
        if (i == 0) bt_speculation_note_step(&s, 1000);
    }
    assert_in_range(n_drafts, 11, 12);
    /* when most is right again, drafts are taken again: seven tokens in the time of three */
    while (!bt_speculation_pays(&s))
        bt_speculation_note_step(&s, 1000);
    for (uint32_t i = 0; i < 8; i++)
        bt_speculation_note_draft(&s, 6, 6, 3000);
    assert_true(bt_speculation_pays(&s));
}

/* A trial that costs little is made more often, so that no more than a 64th of the time goes to trials. */
static void test_trials_by_cost(void **state) {
    (void)state;
    for (uint64_t cost_ns = 1100; cost_ns <= 9000; cost_ns += 700) {
        bt_speculation s = {0};
        uint64_t lost_ns = 0, steps_ns = 0;
        for (uint32_t i = 0; i < 4000; i++) {
            if (bt_speculation_pays(&s)) {
                bt_speculation_note_draft(&s, 6, 0, cost_ns);
                lost_ns += cost_ns - 1000;
            } else {
                bt_speculation_note_step(&s, 1000);
                steps_ns += 1000;
            }
        }
        assert_in_range(lost_ns * 64, steps_ns / 2, steps_ns + UINT64_C(64) * 3 * cost_ns);
    }
}

/* One pass that stands still for a second decides nothing, whichever it is: the first steps, too. */
static void test_one_that_stood_still(void **state) {
    (void)state;
    for (uint32_t stall = 0; stall < 40; stall++) {
        bt_speculation good = {0}, bad = {0};
        for (uint32_t i = 0; i < 40; i++) {
            uint64_t ns = i == stall ? 1000 * 1000 : 1000;
            bool is_step = i == 2 || i == 3 || i % 8 == 7;
            assert_true(bt_speculation_pays(&good) || is_step);
            if (is_step) {
                bt_speculation_note_step(&good, ns);
                bt_speculation_note_step(&bad, ns);
                continue;
            }
            if (i >= 2 && i % 8 > 3) assert_false(bt_speculation_pays(&bad));
            bt_speculation_note_draft(&good, 6, 3, 3 * ns);
            bt_speculation_note_draft(&bad, 6, 0, 3 * ns);
        }
        assert_in_range(good.step.ns, 990, 1000);
        assert_in_range(good.draft.ns, 2900, 3000);
    }
}

/* But what lasts is seen: of drafts that take longer than what they bring, from the second on. */
static void test_what_lasts(void **state) {
    (void)state;
    bt_speculation s = {0};
    uint32_t n_taken = 0;
    bt_speculation_note_step(&s, 1000);
    bt_speculation_note_step(&s, 1000);
    for (uint32_t i = 0; i < 8; i++)
        bt_speculation_note_draft(&s, 6, 3, 3000);
    for (; bt_speculation_pays(&s); n_taken++)
        bt_speculation_note_draft(&s, 6, 3, 9000);
    assert_in_range(n_taken, 2, 4);
}

/* Drafts without an end: the step is measured all the same. */
static void test_steps_between(void **state) {
    (void)state;
    bt_speculation s = {0};
    uint32_t n_steps = 0;
    for (uint32_t i = 0; i < 1300; i++) {
        if (bt_speculation_pays(&s)) {
            bt_speculation_note_draft(&s, 6, 6, 1500);
        } else {
            bt_speculation_note_step(&s, 1000);
            n_steps++;
        }
        if (i == 1) assert_false(bt_speculation_pays(&s)); /* two on trust, then a step */
    }
    assert_in_range(n_steps, 10, 12);
}

/* Of two kinds the one that brings more for its time, and the other now and then. */
static void test_two_kinds(void **state) {
    (void)state;
    bt_speculation lookup = {0}, model = {0};
    assert_true(bt_speculation_beats(&lookup, &model)); /* nothing is known */
    bt_speculation_note_step(&lookup, 1000);
    bt_speculation_note_step(&model, 1000);
    bt_speculation_note_step(&lookup, 1000);
    bt_speculation_note_step(&model, 1000);
    for (uint32_t i = 0; i < 4; i++) {
        bt_speculation_note_draft(&lookup, 6, 1, 1000);
        bt_speculation_note_draft(&model, 6, 5, 1500);
    }
    assert_true(bt_speculation_pays(&lookup) && bt_speculation_pays(&model));
    assert_false(bt_speculation_beats(&lookup, &model)); /* 2 tokens in 1000, 6 in 1500 */
    assert_true(bt_speculation_beats(&model, &lookup));
    for (uint32_t i = 0; i < 64; i++)
        bt_speculation_note_other(&lookup);
    assert_true(bt_speculation_beats(&lookup, &model));
}

/* Against steps that are cheaper because the draft's memory holds weights. */
static void test_against_off(void **state) {
    (void)state;
    bt_speculation s = {0};
    assert_true(bt_speculation_holds(&s, 1));
    bt_speculation_note_step(&s, 1000);
    bt_speculation_note_step(&s, 1000);
    for (uint32_t i = 0; i < 4; i++)
        bt_speculation_note_draft(&s, 6, 2, 1200); /* 3 tokens: 400 each */
    assert_true(bt_speculation_pays(&s));
    assert_true(bt_speculation_holds(&s, 400));
    assert_false(bt_speculation_holds(&s, 399));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trials_by_cost), cmocka_unit_test(test_one_that_stood_still),
        cmocka_unit_test(test_what_lasts),     cmocka_unit_test(test_steps_between),
        cmocka_unit_test(test_two_kinds),      cmocka_unit_test(test_against_off),
        cmocka_unit_test(test_what_followed),  cmocka_unit_test(test_nothing_followed),
        cmocka_unit_test(test_full),           cmocka_unit_test(test_brute_force),
        cmocka_unit_test(test_free_drafts),    cmocka_unit_test(test_dear_drafts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
