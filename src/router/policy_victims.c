/* SPDX-License-Identifier: MIT
 *
 * policy_victims.c: who goes, so that a model can start.
 *
 * Two reasons there are to go: one must, because the two cannot run beside each other (a group says so; a size is not
 * known), or its bytes are needed. Of the latter the least recently used go first, no more than needed and only those
 * that hold something in a pool that is short. Taking them in that order may take small ones that a larger one behind
 * them makes superfluous: those stay, the most recently used asked first.
 *
 * The choice is made twice. For now: among models that are idle, and not on hold unless the waiter's patience is over;
 * what then is left must do for the waiters before it as well, with their victims gone. For later: among all that will
 * be idle one day, idle ones first. The draining flag plays no part in the second, and a draining model is given no
 * request, so that it stays where it is in the order: draining a model never changes who is to be drained.
 *
 * A resident of unknown size may be all that is missing. It must go for every start that takes something of a pool with
 * a limit, since with it there nobody can say that the limit holds; where there is no limit, only when bytes are short.
 */
#include "router/policy_internal.h"

static const bt_config_group *group_of(const bt_policy_view *view, const bt_policy_model *model) {
    return model->group < view->n_groups ? &view->groups[model->group] : NULL;
}

bool bt_policy_patient(const bt_policy_view *view, const bt_policy_model *model) {
    return model->waiting_ms < view->patience_ms;
}

bool bt_policy_stays(const bt_policy_view *view, const bt_policy_model *target, const bt_policy_model *other) {
    if (other->persistent) return true;
    const bt_config_group *group = group_of(view, other);
    /* Others do not end a persistent group's; one of its own does, where they take turns. */
    return group && group->persistent && !(group->swap && target->group == other->group);
}

static bool bounded(const bt_policy_view *view, const bt_policy_model *target) {
    for (uint32_t p = 0; p < view->n_pools; p++)
        if (view->pools[p].limit_bytes.known && (target->need_bytes[p] > 0 || target->least_bytes[p] > 0)) return true;
    return false;
}

bool bt_policy_apart(const bt_policy_view *view, const bt_policy_model *target, const bt_policy_model *other) {
    if (bt_policy_stays(view, target, other)) return false;
    const bt_config_group *mine = group_of(view, target), *its = group_of(view, other);
    if (mine && its && (mine == its ? mine->swap : mine->exclusive)) return true;
    if (!target->need_known) return !mine;
    bool size_known = bt_policy_holds(other) ? other->held_known : other->need_known;
    return !size_known && bounded(view, target);
}

/* ---- choosing ---- */

typedef enum rank {
    IDLE,  /* can go now */
    BUSY,  /* when its requests have ended, or its hold */
    LATER, /* is not there yet */
    N_RANKS,
} rank;

static rank rank_of(const bt_policy_view *view, const bt_policy_model *target, const bt_policy_model *m) {
    if (m->state != BT_MODEL_READY) return LATER;
    bool patient = bt_policy_patient(view, target);
    if (m->n_running > 0 || (patient && m->idle_ms < view->hold_ms)) return BUSY;
    /* What waits behind a drain starts again when its turn comes. */
    return m->n_waiting == 0 || (m->draining && !patient) ? IDLE : BUSY;
}

typedef struct chooser {
    const bt_policy_mind *mind;
    const bt_policy_model *target;
    const bt_policy_demand *demand;
    bool at_once;
    bt_policy_choice *choice;
    bool chosen[BT_CONFIG_MODELS_MAX];
} chooser;

static bool fits(const chooser *c) {
    const bt_policy_view *view = c->mind->view;
    return bt_policy_room_fits(view, &c->choice->ahead, c->demand) &&
           (!c->at_once || bt_policy_room_fits(view, &c->choice->now, c->demand));
}

static bool helps(const chooser *c, uint32_t i) {
    const bt_policy_view *view = c->mind->view;
    const bt_policy_model *m = &view->models[i];
    return (!c->mind->gone[i] && bt_policy_room_helps(view, &c->choice->ahead, c->demand, m)) ||
           (c->at_once && bt_policy_room_helps(view, &c->choice->now, c->demand, m));
}

static void take(chooser *c, uint32_t i) {
    const bt_policy_view *view = c->mind->view;
    c->chosen[i] = true;
    c->choice->models[c->choice->n++] = i;
    bt_policy_room_leave(view, &c->choice->now, &view->models[i]);
    if (!c->mind->gone[i]) bt_policy_room_leave(view, &c->choice->ahead, &view->models[i]);
}

static void put_back(chooser *c, uint32_t i) {
    const bt_policy_view *view = c->mind->view;
    bt_policy_room_stay(view, &c->choice->now, &view->models[i]);
    if (!c->mind->gone[i]) bt_policy_room_stay(view, &c->choice->ahead, &view->models[i]);
}

/* Those that must go. false: one cannot now. */
static bool take_apart(chooser *c) {
    const bt_policy_mind *mind = c->mind;
    const bt_policy_view *view = mind->view;
    for (uint32_t k = 0; k < mind->n_lru; k++) {
        uint32_t i = mind->lru[k];
        if (!bt_policy_apart(view, c->target, &view->models[i])) continue;
        if (c->at_once && rank_of(view, c->target, &view->models[i]) != IDLE) return false;
        if (c->at_once || !mind->gone[i]) take(c, i);
    }
    return true;
}

static void take_ranks(chooser *c) {
    const bt_policy_mind *mind = c->mind;
    const bt_policy_view *view = mind->view;
    for (uint32_t r = IDLE; r < N_RANKS; r++) {
        if (c->at_once && r != IDLE) return;
        for (uint32_t k = 0; k < mind->n_lru; k++) {
            uint32_t i = mind->lru[k];
            const bt_policy_model *m = &view->models[i];
            if (c->chosen[i] || (!c->at_once && mind->gone[i]) || rank_of(view, c->target, m) != (rank)r) continue;
            if (bt_policy_stays(view, c->target, m) || !helps(c, i)) continue;
            take(c, i);
            if (fits(c)) return;
        }
    }
}

static void give_back(chooser *c, uint32_t n_must) {
    bt_policy_choice *choice = c->choice;
    uint32_t n = choice->n;
    for (uint32_t k = n; k-- > n_must;) {
        uint32_t i = choice->models[k];
        put_back(c, i);
        if (fits(c)) {
            for (uint32_t j = k; j + 1 < choice->n; j++)
                choice->models[j] = choice->models[j + 1];
            choice->n--;
        } else {
            bt_policy_room_leave(c->mind->view, &choice->now, &c->mind->view->models[i]);
            if (!c->mind->gone[i]) bt_policy_room_leave(c->mind->view, &choice->ahead, &c->mind->view->models[i]);
        }
    }
}

static bool choose(const bt_policy_mind *mind, uint32_t target, const bt_policy_demand *demand, bool at_once,
                   bt_policy_choice *ret) {
    chooser c = {
        .mind = mind, .target = &mind->view->models[target], .demand = demand, .at_once = at_once, .choice = ret};
    ret->n = 0;
    ret->now = mind->now;
    ret->ahead = mind->ahead;
    if (!take_apart(&c)) return false;
    uint32_t n_must = ret->n;
    if (!fits(&c)) take_ranks(&c);
    if (!fits(&c)) return false;
    give_back(&c, n_must);
    return true;
}

bool bt_policy_choose_now(const bt_policy_mind *mind, uint32_t target, const bt_policy_demand *demand,
                          bt_policy_choice *ret) {
    return choose(mind, target, demand, true, ret);
}

bool bt_policy_choose_later(const bt_policy_mind *mind, uint32_t target, const bt_policy_demand *demand,
                            bt_policy_choice *ret) {
    return choose(mind, target, demand, false, ret);
}
