/* SPDX-License-Identifier: MIT
 * test_router_ceiling.c: what others leave. V rules and T cases are of the research notes (seed 4), user cases bear
 * their numbers. Sizes are in MiB. */
#include "router/ceiling.h"

#include "router/attribution.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define GIB 1024u

static bt_ceiling c;
static bt_ceiling_sample s;
static bt_ceiling_child children[4];

static int set_up(void **state) {
    (void)state;
    memset(&c, 0, sizeof c);
    memset(children, 0, sizeof children);
    s = (bt_ceiling_sample){.total_bytes = {true, 24576 * MIB},
                            .budget_bytes = {true, 24576 * MIB},
                            .reserve_bytes = {true, 1024 * MIB},
                            .children = children};
    return 0;
}

/* One of ours; seen < 0: by nobody. */
static bt_ceiling_child *child(const char *id, bt_ceiling_phase phase, uint64_t reserved, int64_t seen) {
    bt_ceiling_child *one = &children[s.n_children++];
    *one = (bt_ceiling_child){id, phase, reserved * MIB, {seen >= 0, seen >= 0 ? (uint64_t)seen * MIB : 0}};
    return one;
}

/* A second later. Returns the ceiling in MiB; -1: the budget stands. */
static int64_t look(int64_t used) {
    s.now_ms += 1000;
    s.used_bytes = (bt_known){used >= 0, used >= 0 ? (uint64_t)used * MIB : 0};
    bt_ceiling_look(&c, &s);
    assert_int_equal(c.ceiling_bytes.known, c.trusted);
    return c.ceiling_bytes.known ? (int64_t)(c.ceiling_bytes.value / MIB) : -1;
}

static int64_t mib(bt_known bytes) {
    return bytes.known ? (int64_t)(bytes.value / MIB) : -1;
}

/* T16, and the document's own: a desktop at rest, a game of 8 GiB, and its end. */
static void t16_the_document(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(look(1536), 24 * GIB);
    assert_int_equal(look(9728), 15 * GIB);
    assert_int_equal(mib(c.foreign_bytes), 9728);
    assert_int_equal(mib(c.floor_bytes), 1536);
    assert_int_equal(mib(c.excess_bytes), 8192);
    assert_int_equal(look(1536), 24 * GIB);
    s.budget_bytes.known = false; /* the total stands in */
    assert_int_equal(look(1536), 24 * GIB);
    assert_int_equal(look(9728), 15 * GIB);
    s.total_bytes.known = false;
    assert_int_equal(look(9728), -1);
    assert_string_equal(c.reason, "there is no reading");
}

/* T15, V3 */
static void t15_whose(void **state) {
    (void)state;
    look(8192);
    assert_true(c.trusted);
    assert_int_equal(mib(c.foreign_bytes), 8192); /* none of ours: all of it */
    child("a", BT_CEILING_RUNNING, 10000, -1);
    assert_int_equal(look(18192), -1);
    assert_string_equal(c.reason, "a: nobody says what it holds");
    children[0].measured_bytes = (bt_known){true, 10000 * MIB};
    assert_int_equal(look(18192), 24 * GIB);
    assert_int_equal(mib(c.foreign_bytes), 8192);
    child("cpu", BT_CEILING_RUNNING, 0, 0); /* seen, with nothing */
    assert_int_equal(look(18192), 24 * GIB);
    look(2000); /* readings that contradict each other: nothing below nothing */
    assert_int_equal(mib(c.foreign_bytes), 0);
}

/* V4: down at once; kept while there is no trust; up after 30 minutes of looking and no sooner. */
static void v4_the_floor(void **state) {
    (void)state;
    look(3000);
    look(2000);
    assert_int_equal(mib(c.floor_bytes), 2000);
    look(1000);
    assert_int_equal(mib(c.floor_bytes), 1000);
    look(9000);
    assert_int_equal(mib(c.floor_bytes), 1000);
    for (int i = 0; i < 7200; i++) /* two hours without a reading, the game runs on */
        assert_int_equal(look(-1), -1);
    assert_int_equal(look(9000), 24 * GIB - 8000 - 1024);
    assert_int_equal(mib(c.floor_bytes), 1000);
    for (int i = 0; i < 28 * 60; i++)
        look(9000);
    assert_int_equal(mib(c.floor_bytes), 1000);
    for (int i = 0; i < 3 * 60; i++)
        look(9000);
    assert_int_equal(mib(c.floor_bytes), 9000); /* what has been there for half an hour is the desktop */
    assert_int_equal(look(9000), 24 * GIB);
    look(500);
    assert_int_equal(mib(c.floor_bytes), 500);
}

/* V5 */
static void v5_the_formula(void **state) {
    (void)state;
    look(1000);
    assert_int_equal(look(1001), 24 * GIB - 1 - 1024);
    assert_int_equal(look(24000), 24 * GIB - 23000 - 1024);
    assert_int_equal(look(24576), 0); /* not under nothing */
    s.reserve_bytes.known = false;
    assert_int_equal(look(9000), 24 * GIB - 8000);
    assert_int_equal(mib(bt_ceiling_limit(&c, (bt_known){true, 10000 * MIB})), 10000); /* never loosens */
    assert_int_equal(mib(bt_ceiling_limit(&c, (bt_known){true, 24000 * MIB})), 24 * GIB - 8000);
    assert_int_equal(mib(bt_ceiling_limit(&c, (bt_known){0})), 24 * GIB - 8000);
    look(-1);
    assert_int_equal(mib(bt_ceiling_limit(&c, (bt_known){true, 24000 * MIB})), 24000);
    assert_int_equal(mib(bt_ceiling_limit(&c, (bt_known){0})), -1);
}

/* V6: a card that is full of our own is no reason for anything. */
static void v6_full_of_ours(void **state) {
    (void)state;
    look(1536);
    child("a", BT_CEILING_RUNNING, 22000, 22900);
    assert_int_equal(look(1536 + 22900), 24 * GIB);
    assert_int_equal(mib(c.excess_bytes), 0);
}

/* V12: one that starts is charged with what it was promised; a look at it makes no floor and no excess. */
static void v12_starting(void **state) {
    (void)state;
    look(1536);
    child("a", BT_CEILING_STARTING, 10000, -1);
    for (int used = 1536; used <= 11536; used += 500) {
        assert_int_equal(look(used), 24 * GIB);
        assert_true(c.trusted);
        assert_int_equal(mib(c.foreign_bytes), 1536);
        assert_int_equal(mib(c.floor_bytes), 1536); /* not the 0 that 1536 - 10000 would be */
    }
    assert_string_equal(c.reason, "a is on its way: between two bounds");
    assert_int_equal(look(11536 + 2000), 24 * GIB - 2000 - 1024); /* more than it was promised is not its */
    children[0].measured_bytes = (bt_known){true, 12000 * MIB};   /* its driver says otherwise: the more counts */
    assert_int_equal(look(13536), 24 * GIB);
    children[0].phase = BT_CEILING_RUNNING;
    assert_int_equal(look(13536), 24 * GIB);
    assert_int_equal(mib(c.foreign_bytes), 1536);
    children[0].phase = BT_CEILING_GOING; /* its driver forgets whose it is before it is free */
    children[0].measured_bytes = (bt_known){0};
    assert_int_equal(look(11536), 24 * GIB);
    children[0].measured_bytes = (bt_known){true, 12000 * MIB}; /* it took more than it was promised */
    assert_int_equal(look(13536), 24 * GIB);
    assert_int_equal(look(6000), 24 * GIB);
    s.n_children = 0;
    assert_int_equal(look(1536), 24 * GIB);
    assert_int_equal(mib(c.floor_bytes), 1536);
}

/* The first look at all is at one that starts (a router whose driver came late). */
static void first_look_at_a_start(void **state) {
    (void)state;
    child("a", BT_CEILING_STARTING, 10000, -1);
    assert_int_equal(look(5000), 24 * GIB);
    assert_int_equal(mib(c.foreign_bytes), 0);
    assert_int_equal(mib(c.floor_bytes), -1);
    children[0] = (bt_ceiling_child){"a", BT_CEILING_RUNNING, 10000 * MIB, {true, 9000 * MIB}};
    assert_int_equal(look(10000), 24 * GIB);
    assert_int_equal(mib(c.floor_bytes), 1000);
}

/* User case 54: somebody takes half of the card, and gives it back. */
static void case_54_half_a_card(void **state) {
    (void)state;
    look(500);
    child("a", BT_CEILING_RUNNING, 10000, 10000);
    assert_int_equal(look(10500), 24 * GIB);
    assert_int_equal(look(10500 + 12288), 24 * GIB - 12288 - 1024); /* at the first look */
    assert_int_equal(look(10500), 24 * GIB);
}

/* User case 44: a reading that failed is neither nothing nor all; the floor of before holds when it is back. */
static void case_44_no_reading(void **state) {
    (void)state;
    look(1000);
    assert_int_equal(look(-1), -1);
    assert_int_equal(mib(c.foreign_bytes), 1000); /* what was known last */
    assert_int_equal(mib(c.excess_bytes), -1);
    assert_int_equal(look(3000), 24 * GIB - 2000 - 1024);
}

/* The host: models may have 4 of 24 GiB; who takes of the other 20 takes nothing from them. */
static void a_budget_apart(void **state) {
    (void)state;
    s.apart = true;
    s.noise_bytes = 256 * MIB;
    s.budget_bytes.value = 4 * GIB * MIB;
    look(2000);
    assert_int_equal(look(2250), 4 * GIB); /* the kernel's own comings and goings */
    assert_int_equal(look(12000), 4 * GIB);
    assert_int_equal(mib(c.excess_bytes), 10000);
    int64_t beside = 24576 - 2000 - 4096;
    assert_int_equal(look(2000 + beside - 1024), 4 * GIB);
    assert_int_equal(look(2000 + beside - 24), 4 * GIB - 1000); /* into the reserve */
    assert_int_equal(look(2000 + beside + 1000), 4 * GIB - 2024);
    assert_int_equal(look(24576), 0);
    s.budget_bytes.value = 24576 * MIB; /* nothing is beside it: as of a device */
    assert_int_equal(look(2300), 24576 - 300 - 1024);
}

/* ---- attribution by difference (B3) ---- */

static bt_known known(uint64_t bytes) {
    return (bt_known){true, bytes};
}

static void by_difference(void **state) {
    (void)state;
    bt_attribution a = {0};
    bt_attribution_ready(&a, known(9)); /* was never started here */
    assert_false(a.bytes.known || a.done);
    bt_attribution_begin(&a, known(3), true);
    bt_attribution_ready(&a, known(10));
    assert_true(a.bytes.known && a.bytes.value == 7);
    bt_attribution_disturb(&a); /* too late to matter */
    bt_attribution_ready(&a, known(20));
    assert_true(a.bytes.known && a.bytes.value == 7); /* kept until it ends */
    bt_attribution_begin(&a, known(3), true);
    assert_false(a.bytes.known);
    bt_attribution_disturb(&a); /* another started in between */
    bt_attribution_ready(&a, known(10));
    assert_true(a.done && !a.bytes.known);
    bt_attribution_begin(&a, known(3), false); /* another was on the way */
    bt_attribution_ready(&a, known(10));
    assert_true(a.done && !a.bytes.known);
    bt_attribution_begin(&a, (bt_known){0}, true);
    bt_attribution_ready(&a, known(10));
    assert_false(a.bytes.known);
    bt_attribution_begin(&a, known(3), true);
    bt_attribution_ready(&a, (bt_known){0});
    assert_false(a.bytes.known);
    bt_attribution_begin(&a, known(3), true);
    bt_attribution_ready(&a, known(3)); /* expected there, and takes nothing: not 0 */
    assert_false(a.bytes.known);
    bt_attribution_begin(&a, known(3), true);
    bt_attribution_ready(&a, known(2));
    assert_false(a.bytes.known);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(t16_the_document, set_up),
        cmocka_unit_test_setup(t15_whose, set_up),
        cmocka_unit_test_setup(v4_the_floor, set_up),
        cmocka_unit_test_setup(v5_the_formula, set_up),
        cmocka_unit_test_setup(v6_full_of_ours, set_up),
        cmocka_unit_test_setup(v12_starting, set_up),
        cmocka_unit_test_setup(first_look_at_a_start, set_up),
        cmocka_unit_test_setup(case_54_half_a_card, set_up),
        cmocka_unit_test_setup(case_44_no_reading, set_up),
        cmocka_unit_test_setup(a_budget_apart, set_up),
        cmocka_unit_test(by_difference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
