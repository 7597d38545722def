/* SPDX-License-Identifier: MIT
 * test_router_watchdog.c: who goes, and when. V rules and T cases are of the research notes (seed 4). Sizes in MiB. */
#include "router/watchdog.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (1024 * MIB)

static bt_watchdog w;
static bt_watchdog_sample s;
static bt_watchdog_model models[8];
static bt_watchdog_step step;

static int set_up(void **state) {
    (void)state;
    memset(&w, 0, sizeof w);
    memset(models, 0, sizeof models);
    s = (bt_watchdog_sample){.evict = true, .reserve_bytes = {true, GIB}, .ceiling_bytes = {true, 0}, .models = models};
    return 0;
}

static bt_watchdog_model *holds(const char *id, uint64_t gib, bool may_go) {
    bt_watchdog_model *one = &models[s.n_models++];
    *one = (bt_watchdog_model){.id = id, .bytes = {true, gib * GIB}, .may_go = may_go, .used = s.n_models};
    return one;
}

/* "shed a b", "helpless", "quiet", "pressed", "cooling", "off", so much later. */
static const char *look(uint64_t later_ms) {
    static char text[128];
    s.now_ms += later_ms;
    bt_watchdog_look(&w, &s, &step);
    (void)snprintf(text, sizeof text, "%s",
                   step.kind == BT_WATCHDOG_SHED       ? "shed"
                   : step.kind == BT_WATCHDOG_HELPLESS ? "helpless"
                                                       : bt_watchdog_state_name(w.state));
    for (uint32_t i = 0; i < step.n_victims; i++) {
        (void)strcat(text, " ");
        (void)strcat(text, models[step.victims[i]].id);
    }
    return text;
}

/* With a ceiling and no gate, who goes at the second look with no grace. */
static const char *goes(uint64_t ceiling_gib) {
    s.ceiling_bytes.value = ceiling_gib * GIB;
    memset(&w, 0, sizeof w);
    const char *first = look(1000);
    return strcmp(first, "pressed") == 0 ? look(1000) : first;
}

static void t14_who(void **state) {
    (void)set_up(state), holds("big", 10, true), holds("mid", 6, true), holds("small", 2, true);
    assert_string_equal(goes(10), "shed big");
    (void)set_up(state), holds("a", 4, true), holds("b", 4, true);
    assert_string_equal(goes(12), "quiet");
    (void)set_up(state), holds("big", 10, false), holds("mid", 6, true), holds("small", 2, true); /* big is busy */
    assert_string_equal(goes(8), "shed mid small"); /* 18 of 8: all that may; the notes' case has no small */
    s.n_models = 2;
    assert_string_equal(goes(8), "shed mid");
    (void)set_up(state), holds("pinned", 6, false), holds("a", 5, true);
    assert_string_equal(goes(4), "shed a"); /* charged, not touched: 11 in all */
    assert_int_equal(step.over_bytes, 7 * GIB);
    (void)set_up(state), holds("cpu", 0, true), holds("a", 10, true);
    assert_string_equal(goes(9), "shed a"); /* nothing is won by the first: 10 in all */
    assert_int_equal(step.over_bytes, GIB);
    models[1].may_go = false;
    assert_string_equal(goes(9), "helpless");
    (void)set_up(state), holds("a", 4, false), holds("b", 4, false);
    assert_string_equal(goes(1), "helpless");
    (void)set_up(state), holds("loading", 10, false), holds("a", 6, true);
    assert_string_equal(goes(8), "shed a");
    assert_int_equal(step.over_bytes, 8 * GIB); /* 16 in all */
    (void)set_up(state), holds("a", 5, true), holds("b", 5, true), holds("c", 5, true);
    assert_string_equal(goes(4), "shed a b c");
    (void)set_up(state), holds("a", 5, true)->used = 9, holds("b", 5, true);
    assert_string_equal(goes(9), "shed b"); /* as large, used longer ago */
    (void)set_up(state), holds("a", 5, true)->bytes.known = false, holds("b", 2, true);
    assert_string_equal(goes(1), "shed b"); /* nobody knows what a holds: not counted, not touched */
}

/* T17: budget 24, others take 20 more, so the ceiling is 3; 10 are held. */
static void t17_when(void **state) {
    (void)state;
    holds("a", 10, true);
    s.ceiling_bytes.value = 3 * GIB;
    s.grace_ms = 30000;
    assert_string_equal(look(1000), "pressed");
    s.ceiling_bytes.value = 24 * GIB;
    assert_string_equal(look(29000), "quiet");
    s.ceiling_bytes.value = 3 * GIB;
    assert_string_equal(look(1000), "pressed"); /* begins anew */
    assert_string_equal(look(29000), "pressed");
    assert_string_equal(look(1000), "shed a");
    assert_string_equal(look(1000), "cooling");
    assert_string_equal(look(58000), "cooling");
    assert_string_equal(look(1000), "pressed"); /* a minute later: the grace, and not at once */
    memset(&w, 0, sizeof w);
    s.grace_ms = 0;
    assert_string_equal(look(1000), "pressed");
    assert_string_equal(look(1000), "shed a");
    s.grace_ms = 40000;
    memset(&w, 0, sizeof w);
    (void)look(1000);
    assert_string_equal(look(40000), "shed a");
    assert_string_equal(look(79000), "cooling"); /* twice the grace */
    assert_string_equal(look(1000), "pressed");
    s.evict = false;
    memset(&w, 0, sizeof w);
    for (int i = 0; i < 10; i++)
        assert_string_equal(look(60000), "off");
}

/* T18, V9: budget 22.8, 21.8 held, 0.2 GiB of others: admission may have 21.6, and nobody goes, for the card has room.
 */
static void t18_gate(void **state) {
    (void)state;
    holds("a", 0, true)->bytes.value = 22323 * MIB;
    s.gated = true;
    s.ceiling_bytes.value = (23347 - 205 - 1024) * MIB;
    s.free_bytes = (bt_known){true, 1100 * MIB};
    for (int i = 0; i < 100; i++)
        assert_string_equal(look(1000), "quiet");
    s.free_bytes.value = 800 * MIB; /* the reserve is gone */
    assert_string_equal(look(1000), "pressed");
    s.free_bytes.value = 1100 * MIB; /* the edge: an eighth of the reserve above it is over */
    assert_string_equal(look(1000), "shed a");
    memset(&w, 0, sizeof w);
    s.free_bytes.value = 800 * MIB;
    s.grace_ms = 30000;
    (void)look(1000);
    s.free_bytes.value = 1153 * MIB;
    assert_string_equal(look(1000), "quiet");
    s.spilled = true; /* ours have been driven out: the counter of the card does not show it */
    assert_string_equal(look(1000), "pressed");
    s.spilled = false;
    s.free_bytes.known = false;
    assert_string_equal(look(1000), "quiet");
    s.reserve_bytes.known = false; /* off: none to be short of; the sum decides */
    assert_string_equal(look(1000), "pressed");
}

/* V3, V8 */
static void blind_and_helpless(void **state) {
    (void)state;
    holds("a", 10, false);
    s.ceiling_bytes.known = false;
    s.free_bytes = (bt_known){true, 0};
    for (int i = 0; i < 10; i++)
        assert_string_equal(look(60000), "off"); /* no trust, no end */
    s.ceiling_bytes.known = true;
    s.grace_ms = 5000;
    assert_string_equal(look(1000), "pressed");
    assert_string_equal(look(5000), "helpless");
    assert_string_equal(look(1000), "pressed"); /* the timer began anew, and it is said once */
    assert_string_equal(look(5000), "pressed");
    models[0].may_go = true;
    assert_string_equal(look(1000), "pressed");
    assert_string_equal(look(5000), "shed a");
    memset(&w, 0, sizeof w);
    models[0].may_go = false;
    (void)look(1000);
    assert_string_equal(look(5000), "helpless");
    s.ceiling_bytes.value = 24 * GIB;
    assert_string_equal(look(1000), "quiet");
    s.ceiling_bytes.value = 0;
    (void)look(1000);
    assert_string_equal(look(5000), "helpless"); /* another time */
}

/* V11: settings count from the look on that they are there for. */
static void v11_settings(void **state) {
    (void)state;
    holds("a", 10, true);
    s.grace_ms = 600000;
    (void)look(1000);
    assert_string_equal(look(20000), "pressed");
    s.grace_ms = 10000;
    assert_string_equal(look(1000), "shed a");
    memset(&w, 0, sizeof w);
    (void)look(1000);
    s.evict = false;
    assert_string_equal(look(60000), "off");
    s.evict = true;
    assert_string_equal(look(1000), "pressed");
}

/* B10 of the host: free memory, others' part in it, and work that stands still. */
static void the_host(void **state) {
    (void)state;
    s = (bt_watchdog_sample){.evict = true, .is_host = true, .grace_ms = 30000, .models = models};
    s.reserve_bytes = (bt_known){true, GIB};
    holds("a", 3, true), holds("b", 1, true);
    assert_string_equal(look(1000), "off"); /* nobody says what is free */
    s.free_bytes = (bt_known){true, 200 * MIB};
    assert_string_equal(look(1000), "quiet"); /* full, of our own: as it was meant (V6) */
    s.excess_bytes = (bt_known){true, 300 * MIB};
    assert_string_equal(look(1000), "quiet"); /* without them it would be short too */
    s.excess_bytes.value = 2000 * MIB;
    assert_string_equal(look(1000), "pressed");
    s.free_bytes.value = 5 * GIB;
    assert_string_equal(look(29000), "quiet"); /* a blip */
    s.free_bytes.value = 200 * MIB;
    assert_string_equal(look(1000), "pressed");
    assert_string_equal(look(30000), "shed a"); /* 824 MiB are missing: the largest is enough */
    assert_int_equal(step.over_bytes, 824 * MIB);
    assert_false(step.stalled);
    memset(&w, 0, sizeof w);
    s.excess_bytes.known = false;
    s.stall = (bt_known){true, BT_WATCHDOG_STALL - 1};
    assert_string_equal(look(1000), "quiet");
    s.stall.value++;
    assert_string_equal(look(1000), "pressed");
    assert_string_equal(look(1000), "shed a"); /* it has waited for 10 s already */
    assert_true(step.stalled);
    memset(&w, 0, sizeof w);
    s.free_bytes.value = 5 * GIB; /* a stall for another reason than this */
    assert_string_equal(look(1000), "quiet");
    s.reserve_bytes.known = false;
    s.free_bytes.value = 0;
    assert_string_equal(look(1000), "quiet");
}

static void states_have_names(void **state) {
    (void)state;
    assert_string_equal(bt_watchdog_state_name(BT_WATCHDOG_PRESSED), "pressed");
    assert_null(bt_watchdog_state_name((bt_watchdog_state)9));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(t14_who, set_up),      cmocka_unit_test_setup(t17_when, set_up),
        cmocka_unit_test_setup(t18_gate, set_up),     cmocka_unit_test_setup(blind_and_helpless, set_up),
        cmocka_unit_test_setup(v11_settings, set_up), cmocka_unit_test_setup(the_host, set_up),
        cmocka_unit_test(states_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
