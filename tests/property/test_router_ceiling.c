/* SPDX-License-Identifier: MIT
 * test_router_ceiling.c: a card with a desktop, games, and models of ours that start, run and go, for hours: what the
 * ceiling and the watchdog may never do, whatever comes. Sizes in MiB; the truth is kept beside. */
#include "router/ceiling.h"
#include "router/watchdog.h"

#include "random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MIB      (UINT64_C(1) << 20)
#define N        5u
#define TOTAL    24576u
#define WORLDS   400
#define SECONDS  4000
#define HISTORY  (BT_CEILING_MINUTES * 60u)
#define GRACE_MS 10000u

typedef struct world {
    uint64_t random, foreign, desktop;
    struct {
        char id[4];
        bool runs, busy, persistent, hidden;
        bt_ceiling_phase phase;
        uint64_t reserved, has;
    } models[N];
    bool blind;
    uint64_t now_s, pressed_since_s, last_shed_s;
    bool pressed, has_shed;
    struct {
        uint64_t foreign, at_s;
    } certain[HISTORY]; /* the last looks that were certain */
    uint64_t n_certain;
    bt_ceiling ceiling;
    bt_watchdog watchdog;
} world;

static uint64_t upto(world *x, uint64_t n) {
    return random_next(&x->random) % n;
}

static void move_foreign(world *x) {
    switch (upto(x, 40)) {
    case 0:
        x->foreign = x->desktop + upto(x, 12000); /* a game, or less of one */
        break;
    case 1:
        x->foreign = x->desktop;
        break;
    case 2:
        x->desktop = 200 + upto(x, 2000);
        x->foreign = x->desktop;
        break;
    default:
        break;
    }
    if (upto(x, 200) == 0) x->blind = !x->blind;
}

static void move_models(world *x) {
    for (uint32_t i = 0; i < N; i++) {
        if (!x->models[i].runs) {
            if (upto(x, 50) > 0) continue;
            x->models[i].runs = true;
            x->models[i].phase = BT_CEILING_STARTING;
            x->models[i].reserved = 500 + upto(x, 6000);
            x->models[i].has = 0;
            x->models[i].hidden = upto(x, 4) == 0; /* while it starts */
            continue;
        }
        if (x->models[i].phase == BT_CEILING_STARTING) {
            x->models[i].has += upto(x, 2000);
            if (x->models[i].has < x->models[i].reserved) continue;
            x->models[i].has = x->models[i].reserved;
            x->models[i].phase = BT_CEILING_RUNNING;
            x->models[i].hidden = upto(x, 30) == 0;
        } else if (x->models[i].phase == BT_CEILING_RUNNING) {
            if (upto(x, 20) == 0) x->models[i].busy = !x->models[i].busy;
            if (upto(x, 300) == 0 && !x->models[i].busy) x->models[i].phase = BT_CEILING_GOING;
        } else {
            x->models[i].has -= x->models[i].has < 3000 ? x->models[i].has : 3000;
            if (x->models[i].has == 0) x->models[i].runs = false;
        }
    }
}

static void look_at_ceiling(world *x) {
    bt_ceiling_child children[N];
    uint32_t n = 0;
    uint64_t used = x->foreign;
    bool hidden = false, moving = false;
    for (uint32_t i = 0; i < N; i++) {
        if (!x->models[i].runs) continue;
        used += x->models[i].has;
        hidden |= x->models[i].hidden && x->models[i].phase == BT_CEILING_RUNNING;
        moving |= x->models[i].phase != BT_CEILING_RUNNING;
        children[n++] = (bt_ceiling_child){x->models[i].id,
                                           x->models[i].phase,
                                           x->models[i].reserved * MIB,
                                           {!x->models[i].hidden, x->models[i].hidden ? 0 : x->models[i].has * MIB}};
    }
    const bt_ceiling_sample sample = {.now_ms = x->now_s * 1000,
                                      .total_bytes = {true, TOTAL * MIB},
                                      .used_bytes = {!x->blind, used * MIB},
                                      .budget_bytes = {true, 22000 * MIB},
                                      .reserve_bytes = {true, 1024 * MIB},
                                      .children = children,
                                      .n_children = n};
    bt_known floor_before = x->ceiling.floor_bytes;
    bt_ceiling_look(&x->ceiling, &sample);
    const bt_ceiling *c = &x->ceiling;
    assert_int_equal(c->trusted, !x->blind && !hidden);
    assert_int_equal(c->ceiling_bytes.known, c->trusted);
    if (!c->trusted || moving) {
        assert_int_equal(floor_before.value, c->floor_bytes.value); /* no floor of what is not certain */
    } else {
        assert_int_equal(c->foreign_bytes.value, x->foreign * MIB);
        x->certain[x->n_certain % HISTORY].foreign = x->foreign;
        x->certain[x->n_certain++ % HISTORY].at_s = x->now_s;
    }
    if (!c->trusted) return;
    /* never above the budget; exactly it without an excess; the formula else */
    assert_true(c->ceiling_bytes.value <= 22000 * MIB);
    uint64_t taken = c->excess_bytes.value + 1024 * MIB;
    uint64_t then = taken > 22000 * MIB ? 0 : 22000 * MIB - taken;
    assert_int_equal(c->ceiling_bytes.value, c->excess_bytes.value == 0 ? 22000 * MIB : then);
    /* what is said of others is what they have, or less, but for what a start may hide */
    if (!moving) assert_true(!c->floor_bytes.known || c->floor_bytes.value <= x->foreign * MIB);
    /* never above the lowest certain of the last half hour */
    uint64_t looks = x->n_certain < HISTORY ? x->n_certain : HISTORY;
    for (uint64_t k = 1; k <= looks; k++) {
        uint64_t at = (x->n_certain - k) % HISTORY;
        if (x->now_s - x->certain[at].at_s > (BT_CEILING_MINUTES - 1) * 60) break;
        assert_true(c->floor_bytes.value <= x->certain[at].foreign * MIB);
    }
}

static void look_at_watchdog(world *x) {
    bt_watchdog_model rows[N];
    uint32_t whose[N], n = 0;
    uint64_t used = x->foreign, sum = 0;
    bt_watchdog_step step;
    for (uint32_t i = 0; i < N; i++) {
        if (!x->models[i].runs) continue;
        used += x->models[i].has;
        if (x->models[i].phase == BT_CEILING_GOING) continue;
        bool known = !x->models[i].hidden;
        bool idle = x->models[i].phase == BT_CEILING_RUNNING && !x->models[i].busy && !x->models[i].persistent;
        if (known) sum += x->models[i].has;
        whose[n] = i;
        rows[n++] = (bt_watchdog_model){x->models[i].id, {known, x->models[i].has * MIB}, idle, i};
    }
    uint64_t left = used > TOTAL ? 0 : TOTAL - used;
    const bt_watchdog_sample sample = {.now_ms = x->now_s * 1000,
                                       .evict = true,
                                       .grace_ms = GRACE_MS,
                                       .reserve_bytes = {true, 1024 * MIB},
                                       .gated = true,
                                       .ceiling_bytes = x->ceiling.ceiling_bytes,
                                       .free_bytes = {!x->blind, left * MIB},
                                       .models = rows,
                                       .n_models = n};
    bt_known ceiling = x->ceiling.ceiling_bytes;
    bool over = ceiling.known && sum * MIB > ceiling.value && left < 1024 + 128;
    if (over && !x->pressed) x->pressed_since_s = x->now_s;
    x->pressed = over;
    bt_watchdog_look(&x->watchdog, &sample, &step);
    if (step.kind != BT_WATCHDOG_SHED) return;
    assert_true(over);                                             /* on trust, over the ceiling, and short */
    assert_true(x->now_s - x->pressed_since_s >= GRACE_MS / 1000); /* no blip */
    assert_true(!x->has_shed || x->now_s - x->last_shed_s >= 60);
    x->has_shed = true;
    x->last_shed_s = x->now_s;
    uint64_t freed = 0, last = UINT64_MAX;
    for (uint32_t k = 0; k < step.n_victims; k++) {
        uint32_t i = whose[step.victims[k]];
        assert_true(rows[step.victims[k]].may_go && !x->models[i].busy && !x->models[i].persistent);
        assert_true(x->models[i].has <= last && freed * MIB < step.over_bytes); /* largest first, no more than needed */
        last = x->models[i].has;
        freed += x->models[i].has;
        x->models[i].phase = BT_CEILING_GOING;
    }
}

static void hours_of_a_card(void **state) {
    (void)state;
    static world x;
    uint64_t n_sheds = 0;
    for (uint64_t seed = 1; seed <= WORLDS; seed++) {
        memset(&x, 0, sizeof x);
        x.random = seed;
        x.foreign = x.desktop = 500;
        for (uint32_t i = 0; i < N; i++) {
            (void)snprintf(x.models[i].id, sizeof x.models[i].id, "m%u", i % 10);
            x.models[i].persistent = i == 0;
        }
        for (; x.now_s < SECONDS; x.now_s++) {
            bool had = x.has_shed;
            uint64_t last = x.last_shed_s;
            move_foreign(&x);
            move_models(&x);
            look_at_ceiling(&x);
            look_at_watchdog(&x);
            n_sheds += x.has_shed && (!had || last != x.last_shed_s);
        }
        /* all that others took comes back, and ours are gone: the budget */
        x.blind = false;
        x.foreign = 0;
        memset(x.models, 0, sizeof x.models);
        look_at_ceiling(&x);
        assert_int_equal(x.ceiling.ceiling_bytes.value, 22000 * MIB);
    }
    assert_true(n_sheds > 100); /* it was worth it */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(hours_of_a_card)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
