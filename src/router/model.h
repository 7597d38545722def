/* SPDX-License-Identifier: MIT
 * model.h: one model at run time: what it is now, who waits for it, what it holds. Private to the router. */
#pragma once

#include "router/activity.h"
#include "router/attribution.h"
#include "router/child.h"
#include "router/exchange.h"
#include "router/metrics.h"
#include "router/need.h"
#include "router/policy.h"
#include "router/server.h"
#include "router/trend.h"

typedef struct bt_models bt_models;
typedef struct bt_model bt_model;

/* A configuration, held by every model that came from it. */
typedef struct bt_held_config {
    bt_config *config;
    uint32_t n_holders;
} bt_held_config;

/* A request on its way to a model, or a wish that it be loaded (preload, the page's button). */
typedef struct bt_job {
    bt_model *model;
    /* Its turn has come; start = false: the model will not come: answer it. Once. */
    void (*on_turn)(struct bt_job *job, bool granted);
    void *user;
    uint64_t since_ms;
    bool waiting, running; /* set by queue.c */
    struct bt_job *prev, *next;
} bt_job;

/* Why a model cannot be had, as its waiting requests are told. */
typedef struct bt_model_refusal {
    uint32_t status; /* of HTTP: 503... */
    char code[48];
    char text[1024];
    uint32_t retry_after_s;
    char detail_json[2048]; /* need, have, pool, who holds it; empty: nothing */
} bt_model_refusal;

struct bt_model {
    bt_models *all;
    char id[BT_CONFIG_ID_MAX + 1];
    const bt_config_model *config;
    bt_held_config *source;
    /* A reload changed how it is started, or dropped it (next_source NULL): it takes nothing new, ends when it is idle,
     * and goes on as that. */
    bool outdated;
    const bt_config_model *next_config;
    bt_held_config *next_source;

    bt_model_state state;
    bool draining;               /* by the policy */
    bool crashed;                /* FAILED, but not in starting: who waits goes on waiting for the next try */
    const bt_model *evicted_for; /* STOPPING: who waits for it to be gone */
    bool unload_asked;           /* by the operator: ends as soon as it is idle */
    char stop_reason[96];

    bt_log_ring *log;
    bt_child *child;
    uint32_t port;
    char url[128];      /* "http://127.0.0.1:5800" */
    bt_exchange *probe; /* of /health */
    bt_flow *probe_flow;
    bt_timer timer; /* STARTING: the next look; STOPPING: release; READY: ttl; FAILED: the next try */
    uint64_t started_ms, ready_ms, deadline_ms;
    bt_model_state after_stop; /* STOPPING: STOPPED, or FAILED */
    uint64_t admitted_ms;

    /* memory */
    bool need_there;
    bt_need need;
    uint64_t need_at_ms;
    bool shrunk;
    uint64_t reserved_bytes[BT_POOL_MAX];
    bool streamed;          /* started with the memory device, within its reservation */
    bt_child_memory memory; /* the last sample */
    bt_known measured_bytes[BT_POOL_MAX], peak_bytes[BT_POOL_MAX];
    bt_attribution attribution[BT_POOL_MAX]; /* of devices */
    /* Of the host's memory, mapped for each device: now, and when it was ready. */
    bt_known mapped_bytes[BT_POOL_MAX], mapped_first_bytes[BT_POOL_MAX];
    bt_known free_last[BT_POOL_MAX];  /* of devices, at the last look */
    bt_known free_after[BT_POOL_MAX]; /* what they have when its bytes are back; unknown: nobody said what it held */
    uint64_t release_until_ms;        /* its process has gone: no longer than this it is waited for them */
    bt_trend trends[BT_POOL_MAX];     /* of devices */
    bool changed;                     /* the guard did not start it as it is typed */
    bool port_lost;                   /* at the last start: once more is tried */
    uint32_t cut_percent;             /* of devices: after a start that found no memory there; 0: none */

    /* requests */
    bt_job *waiting_first, *waiting_last;
    uint32_t n_waiting, n_running;
    uint64_t n_served; /* tokens that it has computed for clients, as far as answers tell: for trends */
    uint32_t n_calls;  /* that point here, also those whose client still reads */
    uint64_t used, idle_since_ms;
    uint32_t n_failures; /* starts in a row */
    uint64_t retry_at_ms;
    bt_model_refusal refusal; /* the last one */

    bt_metrics_model counts;
};

const char *bt_model_phase(const bt_model *model); /* as people are told: "draining" too */
