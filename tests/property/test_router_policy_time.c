/* SPDX-License-Identifier: MIT
 * test_router_policy_time.c: the policy over time: models, requests, starts, ends, clients that leave, starts that
 * fail, drawn at random and played event by event, with an executor that starts a process only when the bytes are
 * there. At every instant what is reserved, and what is in memory, is within the limits; a model that is asked for is
 * given a request within a bound; time alone changes nothing before wake_ms. BT_SEED=n replays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "policy_kit.h"
#include "random.h"

#include <inttypes.h>
#include <stdlib.h>

#define QUEUE 64u
#define SLOTS 4u
#define NEVER UINT64_MAX

static uint64_t rng;
static uint64_t below(uint64_t n) {
    return random_next(&rng) % n;
}
static bool chance(uint64_t percent) {
    return below(100) < percent;
}

typedef struct actor {
    uint64_t arrived[QUEUE], takes[QUEUE]; /* of its requests that wait */
    uint64_t ends[SLOTS];                  /* of those that run; NEVER: none */
    uint64_t next_arrival, mean_ms, work_ms, start_ms, stop_ms;
    uint64_t event;          /* its start or its end is over */
    uint64_t granted, retry; /* when it was last given a request; when it may try again */
    uint64_t idle_at, ready_at, admitted_at;
    uint64_t size[BT_POOL_MAX]; /* what it really takes, where need_known is false at first */
    bool fails;
} actor;

typedef struct world {
    policy_kit kit;
    actor actors[KIT_MODELS];
    uint64_t now, used, capacity[BT_POOL_MAX];
    uint64_t leaves_percent;
    uint64_t longest_ms, bound_ms;                                       /* of the requests; of waiting */
    uint64_t n_run, n_admitted, n_evicted, n_drained, n_refused, n_left; /* what happened */
} world;

static uint64_t least_of(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* ---- what the view shows ---- */

static bool in_memory(const bt_policy_model *m) {
    return m->state == BT_MODEL_STARTING || m->state == BT_MODEL_READY || m->state == BT_MODEL_STOPPING;
}

static uint64_t real_bytes(const world *w, uint32_t i, uint32_t pool) {
    return w->kit.models[i].held_known ? w->kit.models[i].held_bytes[pool] : w->actors[i].size[pool];
}

static void look(world *w) {
    bt_policy_view *v = &w->kit.view;
    for (uint32_t p = 0; p < v->n_pools; p++)
        w->kit.pools[p].free_bytes.value = w->capacity[p];
    for (uint32_t i = 0; i < v->n_models; i++) {
        bt_policy_model *m = &w->kit.models[i];
        const actor *a = &w->actors[i];
        m->waiting_ms = m->n_waiting > 0 ? w->now - a->arrived[0] : 0;
        m->idle_ms = w->now - a->idle_at;
        m->ready_ms = w->now - a->ready_at;
        m->retry_ms = a->retry > w->now ? a->retry - w->now : 0;
        for (uint32_t p = 0; p < v->n_pools; p++) {
            m->untouched_bytes[p] = m->state == BT_MODEL_ADMITTED   ? m->held_bytes[p]
                                    : m->state == BT_MODEL_STARTING ? m->held_bytes[p] / 2
                                                                    : 0;
            if (in_memory(m)) w->kit.pools[p].free_bytes.value -= real_bytes(w, i, p) - m->untouched_bytes[p];
        }
    }
}

static void limits_hold(const world *w) {
    const bt_policy_view *v = &w->kit.view;
    for (uint32_t p = 0; p < v->n_pools; p++) {
        wide real = 0;
        for (uint32_t i = 0; i < v->n_models; i++)
            if (in_memory(&v->models[i])) real += (wide)real_bytes(w, i, p);
        assert_true(kit_sum(v, p) <= (wide)v->pools[p].limit_bytes.value);
        assert_true(real <= (wide)v->pools[p].limit_bytes.value);
    }
}

/* A model that is asked for is given a request now and then, whatever the others do. */
static void waiting_is_bounded(const world *w) {
    for (uint32_t i = 0; i < w->kit.view.n_models; i++) {
        const bt_policy_model *m = &w->kit.models[i];
        const actor *a = &w->actors[i];
        if (m->n_waiting == 0 || m->retry_ms > 0) continue;
        uint64_t since = a->arrived[0] > a->granted ? a->arrived[0] : a->granted;
        if (since < a->retry) since = a->retry;
        if (w->now - since > w->bound_ms)
            fail_msg("%s waits for %" PRIu64 " ms of %" PRIu64, m->id, w->now - since, w->bound_ms);
    }
}

/* ---- the executor ---- */

static void drop_first(world *w, uint32_t i) {
    actor *a = &w->actors[i];
    for (uint32_t k = 0; k + 1 < QUEUE; k++)
        a->arrived[k] = a->arrived[k + 1], a->takes[k] = a->takes[k + 1];
}

static void stop(world *w, uint32_t i) {
    const bt_policy_model *m = &w->kit.models[i];
    assert_int_equal(m->n_running, 0);
    assert_true(m->state == BT_MODEL_READY && !m->persistent);
    w->actors[i].event = w->now + w->actors[i].stop_ms;
    w->n_evicted++;
}

static void act(world *w, const bt_policy_step *s) {
    actor *a = &w->actors[s->model];
    bt_policy_model *m = &w->kit.models[s->model];
    if (s->kind == BT_POLICY_RUN) {
        uint32_t slot = 0;
        while (a->ends[slot] != NEVER)
            slot++;
        a->ends[slot] = w->now + a->takes[0];
        a->granted = w->now;
        drop_first(w, s->model);
        w->n_run++;
    }
    if (s->kind == BT_POLICY_ADMIT) {
        for (uint32_t k = 0; k < s->n_victims; k++)
            stop(w, s->victims[k]);
        a->admitted_at = w->now;
        w->n_admitted++;
    }
    if (s->kind == BT_POLICY_DRAIN) w->n_drained += s->n_victims;
    if (s->kind == BT_POLICY_REFUSE) w->n_refused += m->n_waiting;
    kit_apply(&w->kit, s, &w->used);
}

/* A process is started when what it was promised is there, and nobody is on the way out that it cannot run beside. */
static void start_admitted(world *w) {
    const bt_policy_view *v = &w->kit.view;
    for (uint32_t i = 0; i < v->n_models; i++) {
        bt_policy_model *m = &w->kit.models[i];
        bool can = m->state == BT_MODEL_ADMITTED;
        for (uint32_t p = 0; p < v->n_pools && can; p++) {
            wide sum = (wide)(m->held_known ? m->held_bytes[p] : w->actors[i].size[p]);
            for (uint32_t k = 0; k < v->n_models; k++)
                if (in_memory(&v->models[k])) sum += (wide)real_bytes(w, k, p);
            can = sum <= (wide)v->pools[p].limit_bytes.value;
        }
        if (!can) continue;
        m->state = BT_MODEL_STARTING;
        w->actors[i].event = w->now + w->actors[i].start_ms;
    }
}

static void event_of(world *w, uint32_t i) {
    bt_policy_model *m = &w->kit.models[i];
    actor *a = &w->actors[i];
    a->event = NEVER;
    bool failed = m->state == BT_MODEL_STARTING && a->fails && chance(30);
    if (m->state == BT_MODEL_STARTING && !failed) {
        m->state = BT_MODEL_READY;
        a->ready_at = a->idle_at = w->now;
        if (!m->held_known) { /* now it is known */
            m->held_known = m->need_known = true;
            memcpy(m->need_bytes, a->size, sizeof a->size);
            memcpy(m->held_bytes, a->size, sizeof a->size);
        }
        return;
    }
    m->state = failed ? BT_MODEL_FAILED : BT_MODEL_STOPPED;
    m->held_known = true;
    memset(m->held_bytes, 0, sizeof m->held_bytes);
    if (!failed) return;
    a->retry = w->now + 500;
    m->n_waiting = 0; /* they were told */
}

static void happen(world *w, bool arrivals) {
    for (uint32_t i = 0; i < w->kit.view.n_models; i++) {
        bt_policy_model *m = &w->kit.models[i];
        actor *a = &w->actors[i];
        for (uint32_t slot = 0; slot < SLOTS; slot++) {
            if (a->ends[slot] > w->now) continue;
            a->ends[slot] = NEVER;
            m->n_running--;
            a->idle_at = w->now;
        }
        if (a->event <= w->now) event_of(w, i);
        if (m->n_waiting > 0 && chance(w->leaves_percent)) { /* a client leaves */
            drop_first(w, i);
            m->n_waiting--;
            w->n_left++;
        }
        if (a->next_arrival > w->now) continue;
        a->next_arrival = arrivals ? w->now + 1 + below(2 * a->mean_ms) : NEVER;
        if (!arrivals || m->n_waiting == QUEUE) continue;
        a->arrived[m->n_waiting] = w->now;
        a->takes[m->n_waiting] = 1 + below(a->work_ms);
        m->n_waiting++;
    }
}

static uint64_t next_event(const world *w) {
    uint64_t next = NEVER;
    for (uint32_t i = 0; i < w->kit.view.n_models; i++) {
        const actor *a = &w->actors[i];
        next = least_of(next, least_of(a->event, a->next_arrival));
        for (uint32_t slot = 0; slot < SLOTS; slot++)
            next = least_of(next, a->ends[slot]);
    }
    return next;
}

/* Play until a time, then let it end: nothing new comes, and all that waits is answered. */
static void play(world *w, uint64_t until) {
    for (;;) {
        happen(w, w->now < until);
        start_admitted(w);
        look(w);
        limits_hold(w);
        for (uint32_t n = 0;; n++) {
            assert_true(n < 1000);
            bt_policy_next(&w->kit.view, &w->kit.step);
            if (w->kit.step.kind == BT_POLICY_WAIT) break;
            act(w, &w->kit.step);
            start_admitted(w);
            look(w);
            limits_hold(w);
        }
        waiting_is_bounded(w);
        uint64_t event = next_event(w), wake_ms = w->kit.step.wake_ms;
        uint64_t wake = wake_ms == NEVER ? NEVER : w->now + wake_ms;
        if (least_of(event, wake) == NEVER) break;
        assert_true(wake > w->now);
        if (least_of(event, wake) > w->now + 1) { /* not before */
            uint64_t here = w->now;
            w->now = least_of(event, wake) - 1;
            look(w);
            bt_policy_next(&w->kit.view, &w->kit.step);
            assert_int_equal(w->kit.step.kind, BT_POLICY_WAIT);
            w->now = here;
        }
        w->now = least_of(event, wake);
    }
    for (uint32_t i = 0; i < w->kit.view.n_models; i++)
        assert_int_equal(w->kit.models[i].n_waiting + w->kit.models[i].n_running, 0);
}

/* ---- worlds ---- */

static bt_policy_model *add(world *w, const char *id, uint64_t bytes, uint64_t mean_ms, uint64_t work_ms) {
    actor *a = &w->actors[w->kit.view.n_models];
    *a = (actor){.next_arrival = 1 + below(2 * mean_ms),
                 .mean_ms = mean_ms,
                 .work_ms = work_ms,
                 .start_ms = 500,
                 .stop_ms = 100,
                 .event = NEVER};
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        a->ends[slot] = NEVER;
    return kit_model(&w->kit, id, bytes);
}

static void world_start(world *w, uint64_t limit) {
    memset(w, 0, sizeof *w);
    kit_start(&w->kit, limit);
    w->kit.view.hold_ms = 1000, w->kit.view.patience_ms = 10000;
    w->capacity[0] = limit;
}

static void random_actor(world *w, uint32_t i) {
    bt_policy_model *m = &w->kit.models[i];
    actor *a = &w->actors[i];
    m->persistent = chance(8);
    m->group = chance(30) ? (uint32_t)below(2) : UINT32_MAX;
    /* Of all that may stay so little that the largest of unknown size fits beside. */
    bool stays = m->persistent || (m->group == 1 && w->kit.groups[1].persistent);
    for (uint32_t p = 0; p < w->kit.view.n_pools; p++) {
        m->need_bytes[p] = chance(20) ? 0 : 1 + below(stays ? 7 : 60);
        m->least_bytes[p] = m->need_bytes[p] / 2;
        a->size[p] = 1 + below(40);
    }
    m->can_shrink = chance(30);
    if (!stays && chance(5)) m->need_bytes[0] = 80 + below(40);
    m->concurrency = 1 + (uint32_t)below(SLOTS);
    m->priority = (int32_t)below(3);
    m->need_known = m->persistent || m->group != UINT32_MAX || chance(85);
    a->start_ms = 100 + below(2000), a->stop_ms = 1 + below(1000);
    a->fails = chance(20);
}

static void random_world(world *w) {
    static const char *const ids[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    uint32_t n = 2 + (uint32_t)below(7);
    world_start(w, 100);
    w->kit.view.n_pools = 1 + (uint32_t)below(3);
    w->kit.view.n_groups = 2;
    w->kit.groups[0] = (bt_config_group){.name = "turns", .swap = true, .exclusive = chance(30)};
    w->kit.groups[1] = (bt_config_group){.name = "other", .exclusive = chance(30), .persistent = chance(20)};
    for (uint32_t p = 0; p < w->kit.view.n_pools; p++) {
        w->kit.pools[p].limit_bytes = known(100);
        w->kit.pools[p].free_bytes.known = chance(50);
        w->capacity[p] = 100 + below(10);
    }
    w->leaves_percent = below(3);
    w->longest_ms = 1 + below(8000);
    uint64_t mean_ms = 50 + below(10000);
    for (uint32_t i = 0; i < n; i++) {
        (void)add(w, ids[i], 0, mean_ms, w->longest_ms);
        random_actor(w, i);
    }
    /* Its own patience, then the turn of everyone else: to start, a hold, the longest request, to end. */
    w->bound_ms = w->kit.view.patience_ms + n * (2100 + w->kit.view.hold_ms + w->longest_ms + 1000);
}

static void random_worlds(void **state) {
    (void)state;
    uint64_t value = random_seed();
    static world w;
    uint64_t n_run = 0, n_admitted = 0, n_evicted = 0, n_drained = 0, n_refused = 0, n_left = 0;
    for (uint64_t round = 0; round < 300; round++) {
        rng = value * 1000 + round;
        random_world(&w);
        play(&w, 200000);
        n_run += w.n_run, n_admitted += w.n_admitted, n_evicted += w.n_evicted, n_drained += w.n_drained;
        n_refused += w.n_refused, n_left += w.n_left;
    }
    print_message("run %" PRIu64 ", admitted %" PRIu64 ", evicted %" PRIu64 ", drained %" PRIu64 ", refused %" PRIu64
                  ", left %" PRIu64 "\n",
                  n_run, n_admitted, n_evicted, n_drained, n_refused, n_left);
    assert_true(n_run > 10000 && n_admitted > 1000 && n_evicted > 1000 && n_drained > 100 && n_refused > 100);
}

/* B8: a stream at one model that never lets up, and one request for another in its place: its patience, the request
 * that runs, an end and a start. */
static void a_steady_stream_starves_nobody(void **state) {
    (void)state;
    static world w;
    rng = 7;
    world_start(&w, 10);
    add(&w, "stream", 8, 50, 2000)->concurrency = SLOTS;
    (void)add(&w, "rare", 8, 1, 100);
    w.actors[1].next_arrival = 20000, w.actors[1].mean_ms = 1000000;
    w.bound_ms = 10000 + 2000 + 100 + 500;
    w.actors[0].granted = NEVER; /* of the stream nothing is asked here */
    play(&w, 60000);
    assert_true(w.actors[1].granted >= 20000 && w.actors[1].granted <= 20000 + w.bound_ms);
}

/* Two that are always asked for, in a place for one: turns, each worth its start, and no more of them than that. */
static void two_in_one_place_take_turns(void **state) {
    (void)state;
    static world w;
    rng = 9;
    world_start(&w, 10);
    (void)add(&w, "a", 8, 100, 200);
    (void)add(&w, "b", 8, 100, 200);
    w.kit.view.patience_ms = 3000;
    w.bound_ms = 3000 + 2 * (500 + 1000 + 200 + 100);
    play(&w, 300000);
    assert_true(w.n_admitted > 20);                              /* 1.8 s a turn with its start and end at least, */
    assert_true(w.n_admitted <= 1 + w.now / (1000 + 500 + 100)); /* and never less */
}

/* Case 53, in time: nobody asks, nobody goes. Two that fit beside each other never end each other. */
static void what_fits_stays(void **state) {
    (void)state;
    static world w;
    rng = 11;
    world_start(&w, 100);
    (void)add(&w, "a", 46, 3000, 500);
    (void)add(&w, "b", 46, 3000, 500);
    w.bound_ms = 1000000;
    play(&w, 600000);
    assert_int_equal(w.n_admitted, 2);
    assert_int_equal(w.n_evicted + w.n_drained + w.n_refused, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_worlds),
        cmocka_unit_test(a_steady_stream_starves_nobody),
        cmocka_unit_test(two_in_one_place_take_turns),
        cmocka_unit_test(what_fits_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
