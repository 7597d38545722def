/* SPDX-License-Identifier: MIT
 * ceiling.h: what others leave of a memory: the live ceiling under the budget. Pure: no clock, no files. */
#pragma once

#include "burthen.h"

#define BT_CEILING_MINUTES 30u /* the floor rises when nothing as low was seen for so many minutes of looking */

typedef enum bt_ceiling_phase {
    BT_CEILING_STARTING, /* its memory is on the way: between nothing and what it holds */
    BT_CEILING_RUNNING,
    BT_CEILING_GOING, /* told to end, or ended: its memory is on the way back */
} bt_ceiling_phase;

/* One of ours that may hold something of this memory. */
typedef struct bt_ceiling_child {
    const char *id;
    bt_ceiling_phase phase;
    uint64_t reserved_bytes;
    bt_known measured_bytes; /* unknown: nobody sees it there */
} bt_ceiling_child;

/* One moment. */
typedef struct bt_ceiling_sample {
    uint64_t now_ms;
    bt_known total_bytes, used_bytes; /* unknown: there is no reading */
    bt_known budget_bytes;            /* unknown: the total stands in */
    bt_known reserve_bytes;           /* held back while others press; unknown: off */
    /* The budget is only a part of what there is (the host's): what others take beside it costs it nothing. */
    bool apart;
    uint64_t noise_bytes; /* an excess of no more is none; 0 of a device */
    const bt_ceiling_child *children;
    uint32_t n_children;
} bt_ceiling_sample;

/* Starts as {0}. */
typedef struct bt_ceiling {
    /* the lowest foreign bytes of each of the last minutes, the current one at `at` */
    uint64_t minima[BT_CEILING_MINUTES];
    uint32_t n_minima, at;
    uint64_t minute_began_ms;
    /* what it came to */
    bool trusted;
    char reason[160];       /* why not; or what is only known between two bounds; else empty */
    bt_known foreign_bytes; /* the last that was known, also when it is not trusted now */
    bt_known floor_bytes, excess_bytes;
    bt_known ceiling_bytes; /* unknown: the static budget stands */
} bt_ceiling;

void bt_ceiling_look(bt_ceiling *ceiling, const bt_ceiling_sample *sample);
/* What admission goes by: the budget, or the ceiling when that is known and lower. */
bt_known bt_ceiling_limit(const bt_ceiling *ceiling, bt_known budget_bytes);
