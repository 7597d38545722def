/* SPDX-License-Identifier: MIT
 * reclaim.h: memory of a program that has just ended comes back late: whether to look once more before deciding. */
#pragma once

#include "burthen.h"

#define BT_RECLAIM_PROBES      6u
#define BT_RECLAIM_INTERVAL_MS 700u  /* between two probes */
#define BT_RECLAIM_PROBE_MS    4000u /* a probe that takes longer counts as none */

/* What a decision on a reading came to. */
typedef enum bt_reclaim_outcome {
    BT_RECLAIM_KEEPS,    /* argv as it stands */
    BT_RECLAIM_DEGRADES, /* it would start, with less */
    BT_RECLAIM_REFUSES,
    BT_RECLAIM_BLIND, /* there is no reading */
} bt_reclaim_outcome;

typedef enum bt_reclaim_step {
    BT_RECLAIM_PROBE,  /* wait BT_RECLAIM_INTERVAL_MS, read again, decide again */
    BT_RECLAIM_TAKE,   /* what the last outcome decided */
    BT_RECLAIM_REFUSE, /* the last outcome is a refusal, and stays one */
} bt_reclaim_step;

/* Zero-initialised. */
typedef struct bt_reclaim {
    uint32_t n_readings, n_probes; /* probes are the readings after the first */
    uint64_t free_bytes;           /* of the last probe */
} bt_reclaim;

/* The outcome of the next reading, the first included. wait false (--no-wait): the first one stands. */
bt_reclaim_step bt_reclaim_next(bt_reclaim *reclaim, bt_reclaim_outcome outcome, uint64_t free_bytes, bool wait);
