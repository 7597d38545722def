/* SPDX-License-Identifier: MIT
 * policy_kit.h: views for tests of the router's policy, and sums over them the slow and plain way. */
#pragma once

#include "router/policy.h"

#include <string.h>

__extension__ typedef __int128 wide;

#define KIT_MODELS 16u
#define MIN_MS     60000u

typedef struct policy_kit {
    bt_policy_view view;
    bt_policy_model models[KIT_MODELS];
    bt_policy_pool pools[BT_POOL_MAX];
    bt_config_group groups[4];
    bt_policy_step step;
} policy_kit;

static inline bt_known known(uint64_t value) {
    return (bt_known){.known = true, .value = value};
}

/* One pool without reading, holds of 10 s, patience of 5 min. */
static inline void kit_start(policy_kit *kit, uint64_t limit) {
    memset(kit, 0, sizeof *kit);
    kit->view = (bt_policy_view){.models = kit->models,
                                 .pools = kit->pools,
                                 .n_pools = 1,
                                 .groups = kit->groups,
                                 .hold_ms = 10000,
                                 .patience_ms = 5 * MIN_MS};
    kit->pools[0] = (bt_policy_pool){.name = "host", .limit_bytes = known(limit)};
}

/* A model that needs so much of the first pool, and is stopped. */
static inline bt_policy_model *kit_model(policy_kit *kit, const char *id, uint64_t bytes) {
    bt_policy_model *m = &kit->models[kit->view.n_models++];
    *m = (bt_policy_model){.id = id,
                           .state = BT_MODEL_STOPPED,
                           .need_known = true,
                           .need_bytes = {bytes},
                           .held_known = true,
                           .concurrency = 1,
                           .idle_ms = 10 * MIN_MS,
                           .group = UINT32_MAX};
    return m;
}

/* One that is ready and idle, last used after those that were added before it. */
static inline bt_policy_model *kit_resident(policy_kit *kit, const char *id, uint64_t bytes) {
    bt_policy_model *m = kit_model(kit, id, bytes);
    m->state = BT_MODEL_READY;
    memcpy(m->held_bytes, m->need_bytes, sizeof m->held_bytes);
    m->used = kit->view.n_models;
    m->ready_ms = 10 * MIN_MS;
    return m;
}

/* One that a request waits for. */
static inline bt_policy_model *kit_waiter(policy_kit *kit, const char *id, uint64_t bytes) {
    bt_policy_model *m = kit_model(kit, id, bytes);
    m->n_waiting = 1;
    m->waiting_ms = 100;
    return m;
}

static inline bool kit_charged(const bt_policy_model *m) {
    return m->state == BT_MODEL_ADMITTED || m->state == BT_MODEL_STARTING || m->state == BT_MODEL_READY;
}

static inline wide kit_sum(const bt_policy_view *view, uint32_t pool) {
    wide sum = 0;
    for (uint32_t i = 0; i < view->n_models; i++)
        if (kit_charged(&view->models[i]) && view->models[i].held_known) sum += (wide)view->models[i].held_bytes[pool];
    return sum;
}

/* Do what a step says to the view. What an executor does at another time (starts, ends) is left to the test. */
static inline void kit_apply(policy_kit *kit, const bt_policy_step *step, uint64_t *used) {
    bt_policy_model *m = &kit->models[step->model];
    switch (step->kind) {
    case BT_POLICY_RUN:
        m->n_running++;
        m->n_waiting--;
        if (m->n_waiting == 0) m->waiting_ms = 0;
        m->used = ++*used;
        break;
    case BT_POLICY_ADMIT:
        for (uint32_t k = 0; k < step->n_victims; k++)
            kit->models[step->victims[k]].state = BT_MODEL_STOPPING;
        for (uint32_t k = 0; k < step->n_victims; k++)
            kit->models[step->victims[k]].draining = false;
        m->state = BT_MODEL_ADMITTED;
        m->held_known = m->need_known;
        memcpy(m->held_bytes, step->bytes, sizeof m->held_bytes);
        memcpy(m->untouched_bytes, step->bytes, sizeof m->held_bytes);
        break;
    case BT_POLICY_DRAIN:
        for (uint32_t k = 0; k < step->n_victims; k++)
            kit->models[step->victims[k]].draining = true;
        break;
    case BT_POLICY_RESUME:
        m->draining = false;
        break;
    case BT_POLICY_REFUSE:
        m->n_waiting = 0;
        break;
    case BT_POLICY_WAIT:
        break;
    }
}
