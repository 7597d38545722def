/* SPDX-License-Identifier: MIT
 * test_router_policy.c: the policy against a naive reference that tries every set of victims, over random views. With
 * one model that waits to start the answer is checked whole; with several, that nothing forbidden is done: no limit is
 * passed, nobody busy, pinned or on hold is ended, none too many, and who is first keeps its place. Steps come to
 * an end, and do not depend on the order of the models. BT_SEED=n replays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "policy_kit.h"
#include "random.h"

#include <stdio.h>
#include <stdlib.h>

static uint64_t rng;
static uint64_t below(uint64_t n) {
    return random_next(&rng) % n;
}
static bool chance(uint64_t percent) {
    return below(100) < percent;
}
static uint64_t seed(void) {
    uint64_t value = random_seed();
    return value;
}

/* ---- random views ---- */

static void random_bytes(uint64_t *bytes, uint32_t n_pools, uint64_t most) {
    for (uint32_t p = 0; p < n_pools; p++)
        bytes[p] = chance(30) ? 0 : below(most);
}

static void random_model(policy_kit *kit, bt_policy_model *m, bool settled) {
    static const bt_model_state states[] = {BT_MODEL_STOPPED,  BT_MODEL_READY,    BT_MODEL_READY,   BT_MODEL_READY,
                                            BT_MODEL_STARTING, BT_MODEL_ADMITTED, BT_MODEL_STOPPING};
    const uint32_t n_pools = kit->view.n_pools;
    *m = (bt_policy_model){.id = m->id};
    m->state = states[below(sizeof states / sizeof *states)];
    m->need_known = chance(95);
    random_bytes(m->need_bytes, n_pools, 14);
    m->can_shrink = chance(30);
    random_bytes(m->least_bytes, n_pools, 8);
    m->held_known = chance(95);
    random_bytes(m->held_bytes, n_pools, 10);
    for (uint32_t p = 0; p < n_pools; p++)
        m->untouched_bytes[p] = m->state == BT_MODEL_ADMITTED ? m->held_bytes[p]
                                : chance(50)                  ? 0
                                                              : below(m->held_bytes[p] + 1);
    m->persistent = chance(10);
    m->concurrency = 1 + (uint32_t)below(2);
    if (m->state == BT_MODEL_READY && chance(40)) m->n_running = m->concurrency;
    m->idle_ms = chance(30) ? below(20) : 1000;
    m->ready_ms = chance(30) ? below(20) : 1000;
    m->used = below(6);
    m->group = chance(25) ? (uint32_t)below(5) : UINT32_MAX; /* 4: beyond the last */
    m->priority = chance(30) ? (int32_t)below(3) - 1 : 0;
    m->draining = m->state == BT_MODEL_READY && chance(20);
    bool waits = m->state == BT_MODEL_STOPPED ? !settled : (m->n_running > 0 || m->draining) && chance(30);
    if (waits) m->n_waiting = 1 + (uint32_t)below(3), m->waiting_ms = below(60);
    if (waits && m->state == BT_MODEL_STOPPED && chance(10)) m->retry_ms = 1 + below(5);
    if (waits && m->n_running > 0 && chance(5)) m->n_running--;
}

static void random_view(policy_kit *kit, uint32_t n_models, bool settled) {
    static char ids[KIT_MODELS][16];
    kit_start(kit, 0);
    kit->view.n_pools = 1 + (uint32_t)below(3);
    kit->view.n_groups = 4;
    kit->view.hold_ms = 10, kit->view.patience_ms = 30;
    for (uint32_t g = 0; g < 4; g++)
        kit->groups[g] =
            (bt_config_group){.name = "g", .swap = chance(50), .exclusive = chance(40), .persistent = chance(25)};
    for (uint32_t p = 0; p < kit->view.n_pools; p++) {
        kit->pools[p].limit_bytes = (bt_known){.known = chance(80), .value = below(30)};
        kit->pools[p].free_bytes = (bt_known){.known = chance(40), .value = below(30)};
    }
    for (uint32_t i = 0; i < n_models; i++) {
        (void)snprintf(ids[i], sizeof ids[i], "m%02u", i);
        random_model(kit, kit_model(kit, ids[i], 0), settled);
    }
}

/* ---- the reference ---- */

static bool stays(const bt_policy_view *v, const bt_policy_model *t, const bt_policy_model *m) {
    if (m->persistent) return true;
    if (m->group >= v->n_groups || !v->groups[m->group].persistent) return false;
    return !(m->group == t->group && v->groups[m->group].swap);
}

static bool apart(const bt_policy_view *v, const bt_policy_model *t, const bt_policy_model *m) {
    bool t_in = t->group < v->n_groups, m_in = m->group < v->n_groups;
    if (stays(v, t, m)) return false;
    if (t_in && m_in && t->group == m->group && v->groups[t->group].swap) return true;
    if (t_in && m_in && t->group != m->group && v->groups[t->group].exclusive) return true;
    if (!t->need_known && !t_in) return true;
    if (!t->need_known || m->held_known) return false;
    for (uint32_t p = 0; p < v->n_pools; p++)
        if (v->pools[p].limit_bytes.known && t->need_bytes[p] + t->least_bytes[p] > 0) return true;
    return false;
}

static bool idle_for(const bt_policy_view *v, const bt_policy_model *t, const bt_policy_model *m) {
    bool patient = t->waiting_ms < v->patience_ms;
    if (m->state != BT_MODEL_READY || m->n_running > 0) return false;
    if (m->n_waiting > 0 && (patient || !m->draining)) return false;
    return !patient || m->idle_ms >= v->hold_ms;
}

/* So much of a pool could be had with these gone; extra: another that has its place. */
static wide could_have(const bt_policy_view *v, uint32_t p, uint32_t gone, const uint64_t *extra) {
    wide limit = (wide)v->pools[p].limit_bytes.value, is_free = (wide)v->pools[p].free_bytes.value;
    bool guess = false;
    for (uint32_t i = 0; i < v->n_models; i++) {
        const bt_policy_model *m = &v->models[i];
        bool goes = m->state == BT_MODEL_STOPPING || (kit_charged(m) && (gone >> i & 1));
        if (!goes && !kit_charged(m)) continue;
        if (!m->held_known) {
            guess |= goes;
        } else if (goes) {
            is_free += (wide)(m->held_bytes[p] - m->untouched_bytes[p]);
        } else {
            limit -= (wide)m->held_bytes[p];
            is_free -= (wide)m->untouched_bytes[p];
        }
    }
    if (extra) limit -= (wide)extra[p], is_free -= (wide)extra[p];
    wide have = (wide)UINT64_MAX;
    if (v->pools[p].limit_bytes.known) have = limit;
    if (v->pools[p].free_bytes.known && !guess && is_free < have) have = is_free;
    return have < 0 ? 0 : have;
}

static bool all_fit(const bt_policy_view *v, const uint64_t *bytes, uint32_t gone, const uint64_t *extra) {
    for (uint32_t p = 0; p < v->n_pools; p++)
        if (bytes[p] > 0 && (wide)bytes[p] > could_have(v, p, gone, extra)) return false;
    return true;
}

typedef struct reference {
    uint32_t may_go, idle, must; /* sets */
    bool possible, as_typed;
    bool now; /* some set of idle ones does */
    uint64_t want[BT_POOL_MAX];
} reference;

static reference ask(const bt_policy_view *v, uint32_t target) {
    const bt_policy_model *t = &v->models[target];
    reference r = {0};
    for (uint32_t i = 0; i < v->n_models; i++) {
        const bt_policy_model *m = &v->models[i];
        if (!kit_charged(m) || i == target || stays(v, t, m)) continue;
        r.may_go |= 1u << i;
        if (idle_for(v, t, m)) r.idle |= 1u << i;
        if (apart(v, t, m)) r.must |= 1u << i;
    }
    r.as_typed = !t->need_known || all_fit(v, t->need_bytes, r.may_go, NULL);
    r.possible = r.as_typed || (t->can_shrink && all_fit(v, t->least_bytes, r.may_go, NULL));
    for (uint32_t p = 0; p < v->n_pools && t->need_known; p++) {
        r.want[p] = t->need_bytes[p];
        if (r.as_typed) continue;
        if (t->least_bytes[p] > r.want[p]) r.want[p] = t->least_bytes[p];
        wide have = could_have(v, p, r.may_go, NULL);
        if ((wide)r.want[p] > have) r.want[p] = (uint64_t)have;
    }
    for (uint32_t set = 0; set < 1u << v->n_models; set++)
        if ((set & ~r.idle) == 0 && (r.must & ~set) == 0 && all_fit(v, r.want, set, NULL)) r.now = true;
    return r;
}

/* ---- what is true of every step ---- */

static uint32_t set_of(const bt_policy_step *step) {
    uint32_t set = 0;
    for (uint32_t k = 0; k < step->n_victims; k++) {
        assert_false(set >> step->victims[k] & 1);
        set |= 1u << step->victims[k];
    }
    return set;
}

static void admission_is_sound(const bt_policy_view *v, const bt_policy_step *step, const reference *r) {
    uint32_t victims = set_of(step);
    assert_int_equal(victims & ~r->idle, 0);
    assert_int_equal(r->must & ~victims, 0);
    assert_true(all_fit(v, step->bytes, victims, NULL));
    assert_int_equal(step->shrunk, !r->as_typed);
    assert_memory_equal(step->bytes, r->want, sizeof r->want);
}

static void step_is_sound(const bt_policy_view *v, const bt_policy_step *step) {
    if (step->kind == BT_POLICY_WAIT) return;
    const bt_policy_model *t = &v->models[step->model];
    bool wants = (t->state == BT_MODEL_STOPPED || t->state == BT_MODEL_FAILED) && t->n_waiting > 0 && t->retry_ms == 0;
    reference r = ask(v, step->model);
    switch (step->kind) {
    case BT_POLICY_RUN:
        assert_true(t->state == BT_MODEL_READY && !t->draining && t->n_waiting > 0 && t->n_running < t->concurrency);
        break;
    case BT_POLICY_ADMIT:
        assert_true(wants && r.possible);
        admission_is_sound(v, step, &r);
        break;
    case BT_POLICY_DRAIN:
        assert_true(wants && r.possible && t->waiting_ms >= v->patience_ms && step->n_victims > 0);
        assert_int_equal(set_of(step) & ~r.may_go, 0);
        for (uint32_t k = 0; k < step->n_victims; k++) {
            const bt_policy_model *m = &v->models[step->victims[k]];
            assert_true(m->state == BT_MODEL_READY && !m->draining);
            assert_true(m->n_running == 0 || m->ready_ms >= v->hold_ms);
        }
        break;
    case BT_POLICY_RESUME:
        assert_true(t->state == BT_MODEL_READY && t->draining);
        break;
    case BT_POLICY_REFUSE:
        assert_true(wants && !r.possible);
        assert_true(step->need_bytes > step->have_bytes);
        assert_true((wide)step->have_bytes == could_have(v, step->pool, r.may_go, NULL));
        break;
    case BT_POLICY_WAIT:
        break;
    }
}

/* ---- properties ---- */

static bool none_too_many(const bt_policy_view *v, const reference *r, uint32_t victims) {
    for (uint32_t i = 0; i < v->n_models; i++)
        if ((victims >> i & 1) && !(r->must >> i & 1) && all_fit(v, r->want, victims & ~(1u << i), NULL)) return false;
    return true;
}

static void one_waiter_gets_the_right_answer(void **state) {
    (void)state;
    rng = seed();
    uint32_t counts[6] = {0};
    for (int round = 0; round < 30000; round++) {
        policy_kit kit;
        random_view(&kit, 1 + (uint32_t)below(7), true);
        uint32_t target = kit.view.n_models;
        bt_policy_model *t = kit_model(&kit, "target", 0);
        do
            random_model(&kit, t, false);
        while (t->state != BT_MODEL_STOPPED || t->n_waiting == 0 || t->retry_ms > 0);
        policy_kit before = kit;
        bt_policy_next(&kit.view, &kit.step);
        assert_memory_equal(before.models, kit.models, sizeof kit.models);
        step_is_sound(&kit.view, &kit.step);
        reference r = ask(&kit.view, target);
        bt_policy_kind kind = kit.step.kind;
        counts[kind]++;
        if (kind == BT_POLICY_RUN) continue;
        assert_int_equal(kind == BT_POLICY_REFUSE, !r.possible);
        assert_int_equal(kind == BT_POLICY_ADMIT, r.possible && r.now);
        if (kind == BT_POLICY_ADMIT) {
            assert_true(none_too_many(&kit.view, &r, set_of(&kit.step)));
            if (r.must == 0 && all_fit(&kit.view, r.want, 0, NULL)) assert_int_equal(kit.step.n_victims, 0);
        }
        if (kind == BT_POLICY_WAIT && t->waiting_ms < kit.view.patience_ms)
            assert_true(kit.step.wake_ms > 0 && kit.step.wake_ms <= kit.view.patience_ms - t->waiting_ms);
    }
    for (uint32_t k = 0; k < 6; k++) /* all of it was seen */
        assert_true(counts[k] > 100);
}

/* The set that goes, by brute force, where all sizes are equal: the k least recently used idle ones. */
static void equal_ones_go_by_use(void **state) {
    (void)state;
    rng = seed();
    for (int round = 0; round < 5000; round++) {
        policy_kit kit;
        kit_start(&kit, 8);
        static const char *const ids[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
        for (uint32_t i = 0; i < 8; i++) {
            bt_policy_model *m = kit_resident(&kit, ids[i], 1);
            m->used = below(100);
            m->n_running = chance(30);
        }
        bt_policy_model *t = kit_waiter(&kit, "t", 1 + below(4));
        t->waiting_ms = below(2) * 10 * MIN_MS;
        bt_policy_next(&kit.view, &kit.step);
        if (kit.step.kind != BT_POLICY_ADMIT) continue;
        assert_int_equal(kit.step.n_victims, t->need_bytes[0]);
        uint32_t set = set_of(&kit.step);
        for (uint32_t in = 0; in < 8; in++)
            for (uint32_t out = 0; out < 8; out++)
                if ((set >> in & 1) && !(set >> out & 1) && kit.models[out].n_running == 0)
                    assert_true(kit.models[in].used <= kit.models[out].used);
    }
}

/* Of those whose patience is over: who was served longest ago. UINT32_MAX: none, or several are alike in that. */
static uint32_t first_of(const bt_policy_view *v) {
    uint32_t first = UINT32_MAX, n_alike = 0;
    for (uint32_t i = 0; i < v->n_models; i++) {
        const bt_policy_model *m = &v->models[i];
        if (m->state != BT_MODEL_STOPPED || m->n_waiting == 0 || m->retry_ms > 0) continue;
        if (m->waiting_ms < v->patience_ms) continue;
        if (first != UINT32_MAX && m->used == v->models[first].used) n_alike++;
        if (first != UINT32_MAX && m->used >= v->models[first].used) continue;
        first = i;
        n_alike = 1;
    }
    return n_alike == 1 ? first : UINT32_MAX;
}

static void several_waiters_and_an_end(void **state) {
    (void)state;
    rng = seed();
    uint32_t n_kept = 0;
    for (int round = 0; round < 20000; round++) {
        policy_kit kit;
        random_view(&kit, 2 + (uint32_t)below(8), false);
        uint64_t used = 100, n_steps = 0;
        for (;; n_steps++) {
            assert_true(n_steps < 100);
            bt_policy_next(&kit.view, &kit.step);
            const bt_policy_step *s = &kit.step;
            step_is_sound(&kit.view, s);
            if (s->kind == BT_POLICY_WAIT) break;
            uint32_t first = first_of(&kit.view);
            if (s->kind == BT_POLICY_ADMIT && first != UINT32_MAX && first != s->model) {
                /* whoever else has to go for the one that is first: not who starts now, in whose place nobody else is
                 */
                reference r = ask(&kit.view, first);
                bool tie = kit.models[first].used == kit.models[s->model].used;
                if (r.possible && !tie) {
                    assert_true(all_fit(&kit.view, r.want, r.may_go | set_of(s), s->bytes));
                    n_kept++;
                }
            }
            kit_apply(&kit, s, &used);
        }
    }
    assert_true(n_kept > 100);
}

static void the_order_of_models_does_not_matter(void **state) {
    (void)state;
    rng = seed();
    for (int round = 0; round < 5000; round++) {
        policy_kit kit, turned;
        random_view(&kit, 2 + (uint32_t)below(8), false);
        for (uint32_t i = 0; i < kit.view.n_models; i++) /* RUN has no ties by id */
            if (kit.models[i].n_waiting > 0) kit.models[i].waiting_ms = below(30) * 16 + i;
        turned = kit;
        turned.view.models = turned.models, turned.view.pools = turned.pools, turned.view.groups = turned.groups;
        for (uint32_t i = 0; i < kit.view.n_models; i++)
            turned.models[kit.view.n_models - 1 - i] = kit.models[i];
        bt_policy_next(&kit.view, &kit.step);
        bt_policy_next(&turned.view, &turned.step);
        assert_int_equal(kit.step.kind, turned.step.kind);
        assert_true(kit.step.wake_ms == turned.step.wake_ms);
        if (kit.step.kind == BT_POLICY_WAIT || kit.step.kind == BT_POLICY_RESUME) continue;
        assert_string_equal(kit.models[kit.step.model].id, turned.models[turned.step.model].id);
        assert_int_equal(kit.step.n_victims, turned.step.n_victims);
        for (uint32_t k = 0; k < kit.step.n_victims; k++)
            assert_string_equal(kit.models[kit.step.victims[k]].id, turned.models[turned.step.victims[k]].id);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_waiter_gets_the_right_answer),
        cmocka_unit_test(equal_ones_go_by_use),
        cmocka_unit_test(several_waiters_and_an_end),
        cmocka_unit_test(the_order_of_models_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
