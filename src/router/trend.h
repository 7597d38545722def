/* SPDX-License-Identifier: MIT
 * trend.h: whether what a server holds of a device grows with each token that it serves. Pure: no clock, no files. */
#pragma once

#include "burthen.h"

#define BT_TREND_TOKENS  256u /* a step: at least so many tokens were served in it */
#define BT_TREND_STEPS   8u   /* that grew, one after the other, are a trend */
#define BT_TREND_PERCENT 1u   /* of what was held before the first of them, at least */

/* One look at a server that is ready. */
typedef struct bt_trend_sample {
    uint64_t n_tokens;   /* that it has computed; only more and more */
    bt_known held_bytes; /* now; unknown: nobody says, and nothing is learned */
    bt_known free_bytes; /* of the device */
} bt_trend_sample;

/* Starts as {0}; so it is set when a server is started. */
typedef struct bt_trend {
    bool began;
    uint64_t step_tokens;  /* served before the step under way */
    bt_known before_bytes; /* held when it began; unknown: it is the first, in which buffers are made */
    uint32_t n_grown;      /* steps in a row, and where they began */
    uint64_t from_tokens, from_bytes;
    uint64_t told_bytes; /* it had grown by so much when that was last said; 0: never */
    /* what it came to */
    uint64_t grown_bytes, n_tokens; /* by so much, with so many tokens; 0: no trend */
    bt_known left_tokens;           /* at this pace until the device is full; unknown: what is free is not known */
} bt_trend;

/* Whether there is something to say: a trend, when it is first seen and each time it has doubled since. */
bool bt_trend_look(bt_trend *trend, const bt_trend_sample *sample);
