/* SPDX-License-Identifier: MIT
 * live.h: what is known of others' memory, from sample to sample. Private to live.c and live_tell.c. */
#pragma once

#include "router/models.h"

/* What was last said of a pool's ceiling, so that a reading that trembles is not said each second. */
typedef struct bt_live_said {
    bool trusted, lowered;
    bt_known ceiling_bytes;
    uint64_t at_ms;
    bool once;
} bt_live_said;

struct bt_live {
    bt_ceiling ceilings[BT_POOL_MAX], devices;
    bt_watchdog watchdogs[BT_POOL_MAX];
    bt_live_said said[BT_POOL_MAX];
    char names[BT_POOL_MAX][32]; /* whose all that is: a place may be taken by another device */
    /* for one look, too large for the stack */
    bt_ceiling_child children[BT_CONFIG_MODELS_MAX];
    bt_watchdog_model rows[BT_CONFIG_MODELS_MAX];
    bt_model *holders[BT_CONFIG_MODELS_MAX]; /* of rows */
    bt_watchdog_step step;
};

/* The numbers of one pool for all devices together. */
typedef struct bt_live_sum {
    bt_known total_bytes, used_bytes, budget_bytes;
} bt_live_sum;
