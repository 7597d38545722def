/* SPDX-License-Identifier: MIT
 *
 * policy.c: which request runs, which model starts, which one goes: one step at a time, from a view of everything.
 *
 * A request for a model that is ready and has a slot runs, always and first: admission starves nobody. Then models that
 * want to start are looked at one after another: by priority, then by how long they wait; but before them all those
 * whose patience is over, and of these the one first that was granted a request longest ago. Priorities, and a queue of
 * old requests that a model has after its turn too, would else be before a lone request for ever.
 * The first step that can be taken is the answer:
 *
 *     REFUSE  when it cannot fit, whoever went: nobody is ended for it
 *     ADMIT   when what is in its way can go now (policy_victims.c), or nothing is
 *     DRAIN   when its patience is over: what is in its way takes nothing new, the idle part of it included
 *     RESUME  for a draining model that nobody needs any more
 *
 * A waiter that must wait keeps its place before those behind it. Its start, and its victims gone, are entered in a
 * room of their own (mind.ahead), in which a later one has to fit too when it ends others for itself. Who needs to end
 * nobody may start even in what an earlier one hopes for, until that one's patience is over (mind.urgent). So waiting
 * is bounded: after its patience a model goes before all that came later, what is in its way drains, and none of the
 * bytes are given away. A busy model is not drained before it has been ready for hold_ms: two models that are both
 * always asked for, in a place for one, take turns that are worth a start.
 *
 * With no model that waits to start nothing is ever ended or drained here, however full the pools are.
 *
 * Steps come to an end: RUN takes a request, ADMIT a model, REFUSE requests away; draining does not change who is to be
 * drained. Costs: n_models * n_pools for each model that waits to start. */
#include "router/policy_internal.h"

#include "base/size.h"

#include <string.h>

const char *bt_model_state_name(bt_model_state state) {
    static const char *const names[] = {"stopped", "admitted", "starting", "ready", "stopping", "failed"};
    return (unsigned)state < sizeof names / sizeof *names ? names[state] : NULL;
}

/* ---- orders ---- */

typedef bool before_fn(const bt_policy_view *view, uint32_t a, uint32_t b);

static bool before_used(const bt_policy_view *view, uint32_t a, uint32_t b) {
    const bt_policy_model *x = &view->models[a], *y = &view->models[b];
    return x->used != y->used ? x->used < y->used : strcmp(x->id, y->id) < 0;
}

static bool before_waiting(const bt_policy_view *view, uint32_t a, uint32_t b) {
    const bt_policy_model *x = &view->models[a], *y = &view->models[b];
    bool patient = bt_policy_patient(view, x);
    if (patient != bt_policy_patient(view, y)) return !patient;
    if (patient && x->priority != y->priority) return x->priority > y->priority;
    if (!patient && x->used != y->used) return x->used < y->used;
    if (x->waiting_ms != y->waiting_ms) return x->waiting_ms > y->waiting_ms;
    if (x->priority != y->priority) return x->priority > y->priority;
    return strcmp(x->id, y->id) < 0;
}

/* Shell's: qsort may allocate. */
static void sort(const bt_policy_view *view, uint32_t *models, uint32_t n, before_fn *before) {
    for (uint32_t gap = n / 2; gap > 0; gap /= 2)
        for (uint32_t k = gap; k < n; k++) {
            uint32_t moved = models[k], to = k;
            for (; to >= gap && before(view, moved, models[to - gap]); to -= gap)
                models[to] = models[to - gap];
            models[to] = moved;
        }
}

/* ---- requests ---- */

/* Without a slot (0) nothing would ever run: it has one. */
static bool can_run(const bt_policy_model *m) {
    return m->state == BT_MODEL_READY && !m->draining && m->n_waiting > 0 &&
           (m->n_running < m->concurrency || m->n_running == 0);
}

static bool run_next(const bt_policy_view *view, bt_policy_step *step) {
    uint32_t best = BT_POLICY_NOBODY;
    for (uint32_t i = 0; i < view->n_models; i++) {
        const bt_policy_model *m = &view->models[i];
        if (!can_run(m)) continue;
        const bt_policy_model *b = best == BT_POLICY_NOBODY ? NULL : &view->models[best];
        if (!b || m->priority > b->priority || (m->priority == b->priority && m->waiting_ms > b->waiting_ms)) best = i;
    }
    if (best == BT_POLICY_NOBODY) return false;
    step->kind = BT_POLICY_RUN;
    step->model = best;
    return true;
}

/* ---- starts ---- */

static bool wants_start(const bt_policy_model *m) {
    return (m->state == BT_MODEL_STOPPED || m->state == BT_MODEL_FAILED) && m->n_waiting > 0 && m->retry_ms == 0;
}

static void wake_in(bt_policy_mind *mind, uint64_t ms) {
    mind->wake_ms = bt_min_u64(mind->wake_ms, ms);
}

static void mind_make(const bt_policy_view *view, bt_policy_mind *ret) {
    ret->view = view;
    ret->n_lru = ret->n_before = 0;
    ret->wake_ms = UINT64_MAX;
    memset(ret->gone, 0, sizeof ret->gone);
    memset(ret->wanted, 0, sizeof ret->wanted);
    bt_policy_room_now(view, &ret->now);
    ret->all = ret->ahead = ret->urgent = ret->now;
    for (uint32_t i = 0; i < view->n_models; i++) {
        const bt_policy_model *m = &view->models[i];
        if (!bt_policy_holds(m)) continue;
        ret->lru[ret->n_lru++] = i;
        bool stays = m->persistent || (m->group < view->n_groups && view->groups[m->group].persistent);
        if (!stays) bt_policy_room_leave(view, &ret->all, m);
    }
    sort(view, ret->lru, ret->n_lru, before_used);
}

/* Whether a waiter before it could not run beside it: its start would be in that one's way. */
static bool in_the_way(const bt_policy_mind *mind, const bt_policy_model *target, bool of_urgent_ones) {
    for (uint32_t k = 0; k < mind->n_before; k++) {
        const bt_policy_model *first = &mind->view->models[mind->before[k]];
        if (of_urgent_ones && bt_policy_patient(mind->view, first)) continue;
        if (bt_policy_apart(mind->view, first, target)) return true;
    }
    return false;
}

static bool nobody_apart(const bt_policy_mind *mind, const bt_policy_model *target) {
    for (uint32_t k = 0; k < mind->n_lru; k++)
        if (bt_policy_apart(mind->view, target, &mind->view->models[mind->lru[k]])) return false;
    return true;
}

static bool admit(bt_policy_mind *mind, uint32_t target, const bt_policy_demand *demand, bt_policy_choice *choice,
                  bt_policy_step *step) {
    const bt_policy_view *view = mind->view;
    const bt_policy_model *t = &view->models[target];
    choice->n = 0;
    bool beside = !in_the_way(mind, t, true) && nobody_apart(mind, t) &&
                  bt_policy_room_fits(view, &mind->now, demand) && bt_policy_room_fits(view, &mind->urgent, demand);
    if (!beside && (in_the_way(mind, t, false) || !bt_policy_choose_now(mind, target, demand, choice))) return false;
    *step = (bt_policy_step){.kind = BT_POLICY_ADMIT, .model = target, .shrunk = demand->shrunk, .wake_ms = UINT64_MAX};
    memcpy(step->bytes, demand->bytes, sizeof step->bytes);
    memcpy(step->victims, choice->models, choice->n * sizeof *choice->models);
    step->n_victims = choice->n;
    return true;
}

/* What is in the way of a waiter whose patience is over takes nothing new; what is idle of it stays so. */
static bool drain(bt_policy_mind *mind, uint32_t target, const bt_policy_choice *choice, bt_policy_step *step) {
    const bt_policy_view *view = mind->view;
    uint32_t n = 0;
    for (uint32_t k = 0; k < choice->n; k++) {
        const bt_policy_model *m = &view->models[choice->models[k]];
        mind->wanted[choice->models[k]] = true;
        if (m->state != BT_MODEL_READY || m->draining) continue;
        bool idle = m->n_running == 0 && m->n_waiting == 0;
        if (idle || m->ready_ms >= view->hold_ms)
            step->victims[n++] = choice->models[k];
        else
            wake_in(mind, view->hold_ms - m->ready_ms);
    }
    step->n_victims = n;
    if (n == 0) return false;
    step->kind = BT_POLICY_DRAIN;
    step->model = target;
    return true;
}

/* When time alone may change the answer for a waiter whose patience lasts. */
static void wake_for(bt_policy_mind *mind, const bt_policy_model *target) {
    const bt_policy_view *view = mind->view;
    wake_in(mind, view->patience_ms - target->waiting_ms);
    for (uint32_t k = 0; k < mind->n_lru; k++) {
        const bt_policy_model *m = &view->models[mind->lru[k]];
        if (m->state != BT_MODEL_READY || m->n_running > 0 || m->n_waiting > 0 || m->idle_ms >= view->hold_ms) continue;
        if (!bt_policy_stays(view, target, m)) wake_in(mind, view->hold_ms - m->idle_ms);
    }
}

/* A step for a model that wants to start; false: it waits, and its place is kept. */
static bool start_next(bt_policy_mind *mind, uint32_t target, bt_policy_step *step) {
    const bt_policy_view *view = mind->view;
    const bt_policy_model *t = &view->models[target];
    bool patient = bt_policy_patient(view, t);
    bt_policy_demand demand;
    bt_policy_choice choice;
    if (!bt_policy_demand_find(mind, target, &demand, step)) return true;
    if (admit(mind, target, &demand, &choice, step)) return true;
    if (patient) wake_for(mind, t);
    /* Behind one that it cannot run beside, or that takes all: its turn comes when that one is there. */
    if (in_the_way(mind, t, false) || !bt_policy_choose_later(mind, target, &demand, &choice)) return false;
    if (!patient && drain(mind, target, &choice, step)) return true;
    for (uint32_t k = 0; k < choice.n; k++)
        mind->gone[choice.models[k]] = true;
    mind->ahead = choice.ahead;
    bt_policy_room_enter(view, &mind->ahead, &demand);
    if (!patient) mind->urgent = mind->ahead;
    mind->before[mind->n_before++] = target;
    return false;
}

static bool resume_next(const bt_policy_mind *mind, bt_policy_step *step) {
    for (uint32_t i = 0; i < mind->view->n_models; i++) {
        const bt_policy_model *m = &mind->view->models[i];
        if (m->state != BT_MODEL_READY || !m->draining || mind->wanted[i]) continue;
        step->kind = BT_POLICY_RESUME;
        step->model = i;
        return true;
    }
    return false;
}

static bool change_next(const bt_policy_view *view, bt_policy_step *step) {
    bt_policy_mind mind;
    uint32_t waiters[BT_CONFIG_MODELS_MAX];
    uint32_t n = 0;
    bool draining = false;
    uint64_t retry_ms = UINT64_MAX;
    for (uint32_t i = 0; i < view->n_models; i++) {
        const bt_policy_model *m = &view->models[i];
        draining |= m->draining;
        if (wants_start(m))
            waiters[n++] = i;
        else if (m->n_waiting > 0 && m->retry_ms > 0 && !bt_policy_holds(m))
            retry_ms = bt_min_u64(retry_ms, m->retry_ms);
    }
    step->wake_ms = retry_ms;
    if (n == 0 && !draining) return false;
    mind_make(view, &mind);
    sort(view, waiters, n, before_waiting);
    for (uint32_t k = 0; k < n; k++)
        if (start_next(&mind, waiters[k], step)) return true;
    step->wake_ms = bt_min_u64(retry_ms, mind.wake_ms);
    return draining && resume_next(&mind, step);
}

void bt_policy_next(const bt_policy_view *view, bt_policy_step *ret) {
    *ret = (bt_policy_step){.kind = BT_POLICY_WAIT, .wake_ms = UINT64_MAX};
    if (!run_next(view, ret)) (void)change_next(view, ret);
}
