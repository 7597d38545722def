/* SPDX-License-Identifier: MIT
 * need.h: what a model's server will take of each pool, before it is started. */
#pragma once

#include "router/aside.h"
#include "router/config.h"

typedef enum bt_need_how {
    BT_NEED_UNKNOWN,  /* nobody can say: reason says why */
    BT_NEED_DECLARED, /* memory: in the configuration */
    BT_NEED_BUDGET,   /* ram_budget: of the model: that is what it is held to */
    BT_NEED_PRICED,   /* by the guard's formulas, for the command as it is typed */
    BT_NEED_LEARNED,  /* seen in former runs, where nothing else is known; of what is priced, more that was seen counts
                       * too, and it stays PRICED */
} bt_need_how;
const char *bt_need_how_name(bt_need_how how); /* "unknown", "declared", "budget", "priced", "learned" */

typedef struct bt_need {
    bt_need_how how;
    char reason[200]; /* UNKNOWN: why; PRICED: what most of it is kept for, where that may be surprising; DECLARED: what
                       * of it is not counted; LEARNED: where it is remembered */
    uint64_t bytes[BT_POOL_MAX]; /* of the pools of the ask, in that order, at the peak; weights in the page cache
                                  * count, as they do in RSS */
    uint64_t host_firm_bytes;    /* PRICED: of the host without those, which the system may take back */
    /* What the guard would make of it against the free bytes of the ask: "unchanged", "trimmed", "offloaded",
     * "refused", "passed"; then the sentence, and what it takes then. */
    char decision[16];
    char code[24];
    char words[480];
    bool can_shrink; /* it can be started with less, down to this: of one remedy, so that of a pool it may be more */
    bool by_budget;  /* namely with the memory device, in a RAM budget of least_bytes[0] or more */
    uint64_t least_bytes[BT_POOL_MAX];
    uint32_t n_slots; /* that it is started with; 0: not known */
    uint32_t n_ctx;   /* of a request: what one slot has; 0: not known */
    /* Of the file, for /v1/models. */
    char arch[32];
    uint64_t file_bytes, n_params;
    uint32_t n_ctx_train;
    bool has_template, embeds;
    char learned_name[80]; /* where what is seen of it is kept; empty: nowhere */
} bt_need;

typedef struct bt_need_ask {
    bt_loop *loop;
    const bt_config *config;
    const bt_config_model *model;
    const char *const *pools; /* names; the host first */
    uint32_t n_pools;
    bt_known free_bytes[BT_POOL_MAX]; /* what it could have, after evictions */
    const char *root;                 /* of /proc and /sys */
} bt_need_ask;

/* Found aside, in some 30 ms (a header of a large vocabulary), at most 20 s. on_done exactly once, unless cancelled;
 * nothing of the ask is used after the call returns. Fails only where nothing can be started. */
typedef void bt_need_done(void *user, const bt_need *need);
typedef struct bt_needing bt_needing;
BT_MUST_CHECK bt_status bt_need_start(const bt_need_ask *ask, bt_need_done *on_done, void *user, bt_needing **ret,
                                      bt_error *err);
void bt_need_cancel(bt_needing *needing);

/* Remember what was seen at the peak (host: RSS of all its processes; devices: bytes). More than that, when seen
 * before, stands. */
void bt_need_learn(const char *learned_name, const char *const *pools, uint32_t n_pools, const bt_known *peak_bytes);
