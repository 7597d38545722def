/* SPDX-License-Identifier: MIT
 * policy.h: which request runs, which model starts, which one goes: decided from what is known, and from nothing else.
 */
#pragma once

#include "router/config.h"

typedef enum bt_model_state {
    BT_MODEL_STOPPED,
    BT_MODEL_ADMITTED, /* its memory is reserved; what is in its way is going */
    BT_MODEL_STARTING, /* its process lives and does not answer yet */
    BT_MODEL_READY,
    BT_MODEL_STOPPING, /* told to end, or ended, and its memory is not back yet */
    BT_MODEL_FAILED,   /* did not start; may be tried again after a while */
} bt_model_state;
const char *bt_model_state_name(bt_model_state state); /* "stopped" ... */

/* One memory, as admission sees it. */
typedef struct bt_policy_pool {
    char name[32];
    bt_known limit_bytes; /* budget, or the live ceiling when lower; unknown: nothing bounds it */
    bt_known free_bytes;  /* what the system says that a new allocation gets now; unknown: not said */
} bt_policy_pool;

typedef struct bt_policy_model {
    const char *id;
    bt_model_state state;
    /* What a start takes of each pool, at its peak. */
    bool need_known;
    uint64_t need_bytes[BT_POOL_MAX];
    /* It can be started with less (context trimmed, layers moved, weights streamed), down to this. false: as above. */
    bool can_shrink;
    uint64_t least_bytes[BT_POOL_MAX];
    /* What it is charged with now: reserved from ADMITTED to the end of STOPPING. held_known false: it runs, and nobody
     * knows what it takes. */
    bool held_known;
    uint64_t held_bytes[BT_POOL_MAX];
    /* Of that, what the system's free_bytes does not show yet: reserved and not touched. */
    uint64_t untouched_bytes[BT_POOL_MAX];
    bool persistent;
    bool draining; /* runs what it runs, takes nothing new */
    uint32_t n_running, n_waiting, concurrency;
    uint64_t waiting_ms; /* of its oldest request that waits */
    int32_t priority;    /* of the model; higher first */
    uint64_t used;       /* a counter, stamped when it was granted a request; 0: never */
    uint64_t idle_ms;    /* since its last request ended; of one that never had any: since it became ready */
    uint64_t ready_ms;   /* READY: for so long; a busy one is not drained before it was ready for hold_ms */
    uint64_t retry_ms;   /* FAILED, or refused a moment ago: no start for so long; 0: may be tried */
    uint32_t group;      /* index, or UINT32_MAX */
} bt_policy_model;

typedef struct bt_policy_view {
    const bt_policy_model *models;
    uint32_t n_models;
    const bt_policy_pool *pools; /* the host first */
    uint32_t n_pools;
    const bt_config_group *groups;
    uint32_t n_groups;
    /* A model that has just become idle is not evicted for so long; a busy one that has just become ready is not
     * drained. */
    uint64_t hold_ms;
    uint64_t patience_ms; /* who has waited so long: holds are not kept, and models in its way take nothing new */
} bt_policy_view;

typedef enum bt_policy_kind {
    BT_POLICY_WAIT,   /* nothing to do; look again in wake_ms, or when something has changed */
    BT_POLICY_RUN,    /* hand the model its next waiting request */
    BT_POLICY_ADMIT,  /* reserve for the model; end the victims; start it when they are gone */
    BT_POLICY_DRAIN,  /* victims take nothing new until they are evicted (the patience of model, a waiter, is over) */
    BT_POLICY_RESUME, /* the model need not drain any more: who wanted its place is gone */
    BT_POLICY_REFUSE, /* answer the model's waiting requests: it cannot fit, whatever is evicted */
} bt_policy_kind;

typedef struct bt_policy_step {
    bt_policy_kind kind;
    uint32_t model;
    uint32_t victims[BT_CONFIG_MODELS_MAX];
    uint32_t n_victims;
    bool shrunk;                 /* ADMIT: with less than need_bytes: bytes says with how much at most */
    uint64_t bytes[BT_POOL_MAX]; /* ADMIT: what is reserved of each pool */
    uint64_t wake_ms;            /* WAIT; UINT64_MAX: only when something has changed */
    /* REFUSE: the pool that is short, what is needed of it, and what could be had. */
    uint32_t pool;
    uint64_t need_bytes, have_bytes;
} bt_policy_step;

/* The next thing to do. Called again after each step that is no WAIT, with a view that shows it done. Pure. */
void bt_policy_next(const bt_policy_view *view, bt_policy_step *ret);
