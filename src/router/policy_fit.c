/* SPDX-License-Identifier: MIT
 *
 * policy_fit.c: the bytes of admission: what is left of each pool, and what a start gets of it.
 *
 * A pool is bounded twice: by its limit, against which everything counts that is reserved or used, and by what the
 * system says is free, against which only that counts which is reserved and not in memory yet. When a model goes both
 * grow by what it holds: of the limit all of it, of the free bytes what was in memory comes back and what was not is no
 * longer kept for it. So a room is two numbers a pool, and comings and goings are added and taken away.
 *
 * A model in STOPPING has gone here: its bytes are on their way back, and who is admitted against them starts when they
 * are there (the executor measures). A resident of unknown size counts for nothing; what it gives back is not known
 * either, so that the free bytes prove nothing once one goes: then the limit alone decides, and the measurement before
 * the start. */
#include "router/policy_internal.h"

#include "base/size.h"

bool bt_policy_holds(const bt_policy_model *model) {
    return model->state == BT_MODEL_ADMITTED || model->state == BT_MODEL_STARTING || model->state == BT_MODEL_READY;
}

void bt_policy_room_now(const bt_policy_view *view, bt_policy_room *ret) {
    *ret = (bt_policy_room){0};
    for (uint32_t p = 0; p < view->n_pools; p++) {
        ret->limit_left[p] = (bt_policy_wide)view->pools[p].limit_bytes.value;
        ret->free_left[p] = (bt_policy_wide)view->pools[p].free_bytes.value;
    }
    for (uint32_t i = 0; i < view->n_models; i++) {
        const bt_policy_model *m = &view->models[i];
        bool holds = bt_policy_holds(m);
        if (!holds && m->state != BT_MODEL_STOPPING) continue;
        if (!m->held_known) {
            if (!holds) ret->n_unknown++;
            continue;
        }
        for (uint32_t p = 0; p < view->n_pools; p++) {
            if (holds) {
                ret->limit_left[p] -= (bt_policy_wide)m->held_bytes[p];
                ret->free_left[p] -= (bt_policy_wide)m->untouched_bytes[p];
            } else {
                ret->free_left[p] += (bt_policy_wide)bt_sat_sub_u64(m->held_bytes[p], m->untouched_bytes[p]);
            }
        }
    }
}

static void room_move(const bt_policy_view *view, bt_policy_room *room, const bt_policy_model *m, int direction) {
    if (!m->held_known) {
        room->n_unknown += direction > 0 ? 1 : UINT32_MAX;
        return;
    }
    for (uint32_t p = 0; p < view->n_pools; p++) {
        room->limit_left[p] += direction * (bt_policy_wide)m->held_bytes[p];
        /* what is in memory, and what was kept */
        room->free_left[p] += direction * (bt_policy_wide)bt_max_u64(m->held_bytes[p], m->untouched_bytes[p]);
    }
}

void bt_policy_room_leave(const bt_policy_view *view, bt_policy_room *room, const bt_policy_model *model) {
    room_move(view, room, model, 1);
}

void bt_policy_room_stay(const bt_policy_view *view, bt_policy_room *room, const bt_policy_model *model) {
    room_move(view, room, model, -1);
}

void bt_policy_room_enter(const bt_policy_view *view, bt_policy_room *room, const bt_policy_demand *demand) {
    for (uint32_t p = 0; p < view->n_pools; p++) {
        room->limit_left[p] -= (bt_policy_wide)demand->bytes[p];
        room->free_left[p] -= (bt_policy_wide)demand->bytes[p];
    }
}

static uint64_t narrow(bt_policy_wide bytes) {
    if (bytes < 0) return 0;
    return bytes > (bt_policy_wide)UINT64_MAX ? UINT64_MAX : (uint64_t)bytes;
}

/* What could be had of a pool; UINT64_MAX: nothing bounds it. */
static uint64_t room_bytes(const bt_policy_view *view, const bt_policy_room *room, uint32_t pool) {
    uint64_t bytes = UINT64_MAX;
    if (view->pools[pool].limit_bytes.known) bytes = narrow(room->limit_left[pool]);
    if (view->pools[pool].free_bytes.known && room->n_unknown == 0)
        bytes = bt_min_u64(bytes, narrow(room->free_left[pool]));
    return bytes;
}

bool bt_policy_room_fits(const bt_policy_view *view, const bt_policy_room *room, const bt_policy_demand *demand) {
    for (uint32_t p = 0; p < view->n_pools; p++)
        if (demand->bytes[p] > 0 && demand->bytes[p] > room_bytes(view, room, p)) return false;
    return true;
}

bool bt_policy_room_helps(const bt_policy_view *view, const bt_policy_room *room, const bt_policy_demand *demand,
                          const bt_policy_model *model) {
    for (uint32_t p = 0; p < view->n_pools; p++) {
        if (demand->bytes[p] <= room_bytes(view, room, p)) continue;
        if (!model->held_known || model->held_bytes[p] > 0 || model->untouched_bytes[p] > 0) return true;
    }
    return false;
}

/* ---- what a start gets ---- */

/* The most that target can find. Persistent members of its own group that it takes turns with go for it alone. */
static void room_at_best(const bt_policy_mind *mind, const bt_policy_model *target, bt_policy_room *ret) {
    const bt_policy_view *view = mind->view;
    *ret = mind->all;
    if (target->group >= view->n_groups || !view->groups[target->group].persistent) return;
    for (uint32_t i = 0; i < mind->n_lru; i++) {
        const bt_policy_model *m = &view->models[mind->lru[i]];
        if (m->group == target->group && !bt_policy_stays(view, target, m)) bt_policy_room_leave(view, ret, m);
    }
}

static bool covers(const bt_policy_view *view, const uint64_t *have_bytes, const uint64_t *bytes) {
    for (uint32_t p = 0; p < view->n_pools; p++)
        if (bytes[p] > have_bytes[p]) return false;
    return true;
}

static void refuse(const bt_policy_view *view, uint32_t target, const uint64_t *have_bytes, bt_policy_step *step) {
    const bt_policy_model *t = &view->models[target];
    const uint64_t *asked = t->can_shrink ? t->least_bytes : t->need_bytes;
    uint64_t most = 0;
    *step = (bt_policy_step){.kind = BT_POLICY_REFUSE, .model = target, .wake_ms = UINT64_MAX};
    for (uint32_t p = 0; p < view->n_pools; p++) {
        uint64_t short_bytes = bt_sat_sub_u64(asked[p], have_bytes[p]);
        if (short_bytes <= most) continue;
        most = short_bytes;
        step->pool = p;
        step->need_bytes = asked[p];
        step->have_bytes = have_bytes[p];
    }
}

bool bt_policy_demand_find(const bt_policy_mind *mind, uint32_t target, bt_policy_demand *ret, bt_policy_step *step) {
    const bt_policy_view *view = mind->view;
    const bt_policy_model *t = &view->models[target];
    bt_policy_room best;
    uint64_t have_bytes[BT_POOL_MAX];
    *ret = (bt_policy_demand){0};
    if (!t->need_known) return true;
    room_at_best(mind, t, &best);
    for (uint32_t p = 0; p < view->n_pools; p++)
        have_bytes[p] = room_bytes(view, &best, p);
    ret->shrunk = !covers(view, have_bytes, t->need_bytes);
    if (ret->shrunk && !(t->can_shrink && covers(view, have_bytes, t->least_bytes))) {
        refuse(view, target, have_bytes, step);
        return false;
    }
    /* Less of one pool may be more of another: layers that are moved to the host. */
    for (uint32_t p = 0; p < view->n_pools; p++)
        ret->bytes[p] =
            ret->shrunk ? bt_min_u64(bt_max_u64(t->need_bytes[p], t->least_bytes[p]), have_bytes[p]) : t->need_bytes[p];
    return true;
}
