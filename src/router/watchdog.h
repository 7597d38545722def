/* SPDX-License-Identifier: MIT
 * watchdog.h: who goes when others take the memory that models are in. Pure: no clock, no files. */
#pragma once

#include "router/config.h"

/* Work that stands still for memory, in hundredths of a percent: the kernel's own example of a trigger, 150 ms of a
 * second (Documentation/accounting/psi.rst). */
#define BT_WATCHDOG_STALL 1500u

typedef struct bt_watchdog_model {
    const char *id;
    bt_known bytes; /* what it holds of this memory; unknown: nobody knows, and it is not touched */
    bool may_go;    /* ready, nothing runs on it or waits for it, not persistent */
    uint64_t used;  /* of two that hold the same the one that was used longer ago goes first */
} bt_watchdog_model;

/* One memory at one moment. */
typedef struct bt_watchdog_sample {
    uint64_t now_ms;
    /* settings, as they are now */
    bool evict;
    uint64_t grace_ms;
    bt_known reserve_bytes; /* unknown: off */
    bool gated;             /* over the ceiling alone is not enough: the reserve must be gone, or a spill be seen */
    /* readings */
    bool is_host;           /* by what is free, not by a ceiling */
    bt_known ceiling_bytes; /* of a device; unknown: not trusted, and nothing is done */
    bt_known free_bytes;
    bt_known excess_bytes; /* what others have taken; of the host */
    bool spilled;          /* of a device: ours have been driven out of it to the host */
    bt_known stall;        /* of the host: some avg10 */
    const bt_watchdog_model *models;
    uint32_t n_models;
} bt_watchdog_sample;

typedef enum bt_watchdog_state {
    BT_WATCHDOG_OFF,     /* evict: false, or nothing to go by */
    BT_WATCHDOG_QUIET,   /* all fits */
    BT_WATCHDOG_PRESSED, /* the grace runs */
    BT_WATCHDOG_COOLING, /* somebody went a moment ago */
} bt_watchdog_state;
const char *bt_watchdog_state_name(bt_watchdog_state state);

typedef enum bt_watchdog_kind {
    BT_WATCHDOG_NOTHING,
    BT_WATCHDOG_SHED,    /* the victims go */
    BT_WATCHDOG_HELPLESS /* somebody should, and nobody may: to be said; once until all fits again */
} bt_watchdog_kind;

typedef struct bt_watchdog_step {
    bt_watchdog_kind kind;
    uint32_t victims[BT_CONFIG_MODELS_MAX];
    uint32_t n_victims;
    uint64_t over_bytes; /* so much must go */
    bool stalled;        /* the kernel says that work stands still: the grace was not waited for */
} bt_watchdog_step;

/* Starts as {0}. */
typedef struct bt_watchdog {
    bt_watchdog_state state;
    bool runs; /* the grace */
    uint64_t since_ms;
    uint64_t cooling_until_ms;
    bool said;
} bt_watchdog;

void bt_watchdog_look(bt_watchdog *watchdog, const bt_watchdog_sample *sample, bt_watchdog_step *ret);
