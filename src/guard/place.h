/* SPDX-License-Identifier: MIT
 * place.h: what to do with a command line when the devices have less free than it was written for: keep it, trim its
 * context, move layers or experts to the host, or refuse. */
#pragma once

#include "guard/price.h"
#include "guard/rewrite.h"

#define BT_GUARD_FRACTION_DEFAULT 0.5 /* of min_gpu_fraction */

typedef struct bt_guard_settings {
    bt_known target_bytes;    /* of all devices together; beside bt_guard_device.target_bytes */
    double min_gpu_fraction;  /* 0: the default; below 0: no floor */
    bool degrade;             /* no floor, this once */
    bt_known host_free_bytes; /* what the host has for it; unknown: the host decides nothing */
    bt_known host_total_bytes;
    bool host_is_budget; /* host_free_bytes is a budget (--ram-budget), not a reading */
    bool fit_target;     /* where nothing is pinned, hand a target to the program's own fitting */
} bt_guard_settings;

typedef struct bt_guard_ask {
    bt_guard_price_ask price; /* facts NULL: cannot be read, and facts_reason says why */
    const char *facts_reason;
    bt_guard_settings settings;
} bt_guard_ask;

typedef enum bt_guard_kind {
    BT_GUARD_UNCHANGED,
    BT_GUARD_TRIMMED,   /* less context, or less of what fills up beside it (--cache-ram, -ctxcp); or other shares */
    BT_GUARD_OFFLOADED, /* fewer layers or experts on devices */
    BT_GUARD_REFUSED,
    BT_GUARD_PASSED,   /* nothing was decided: reason says why. At most --fit-target is added */
    BT_GUARD_BUDGETED, /* started with the memory device (--ram-budget) */
} bt_guard_kind;
const char *
bt_guard_kind_name(bt_guard_kind kind); /* "unchanged", "trimmed", "offloaded", "refused", "passed", "budgeted" */

typedef struct bt_guard_decision {
    bt_guard_kind kind;
    /* Of a refusal: "insufficient_vram", "gpu_floor", "insufficient_ram", and, not priced, "draft_vocab"; else empty.
     */
    char code[24];
    char reason[480]; /* one sentence */
    bool priced;      /* what follows is set */
    bt_placement before, after;
    bool changes_ctx, changes_gpu_layers, changes_cpu_moe, changes_shares, changes_main_gpu;
    bool changes_cache_ram, changes_checkpoints;
    bt_guard_price price_before, price_after; /* refused: after is the least that was tried */
    double fraction_before, fraction_after;
    bt_known budget_bytes, free_bytes; /* of all devices in use: what may be used, and what is free */
    bool over_target; /* after does not fit what may be used, but what is free; nothing less could be done */
    /* Of a refusal: changes of the command line, each of which would fit, with its bytes on devices. Smallest first. */
    bt_change changes[BT_CHANGE_MAX];
    uint32_t n_changes;
    uint64_t fit_target_mib[BT_POOL_MAX]; /* PASSED: for --fit-target, of each device in use; 0 in number: none */
    uint32_t n_fit_targets;
    bool pins_much;           /* over half of the host's memory by a device's driver, weights among it */
    const char *const *notes; /* sentences on the price */
    uint32_t n_notes;
} bt_guard_decision;

/* A path that llama.cpp's programs load as a model; of others nothing is decided. */
bool bt_guard_names_gguf(const char *path);

/* A program whose memory is priced from its arguments. */
bool bt_guard_is_llama(bt_program program);

/* The least that a decision goes down to with these settings, whatever there is: the context trimmed as far as it may
 * be, or layers and experts moved down to the floor (where devices hold something), and nothing that grows beside it.
 * Where nothing is pinned the program moves its layers itself, all of them if it must. false: the command line is as it
 * is, and *ret is what it says. */
bool bt_guard_least(const bt_guard_ask *ask, const bt_guard_prices *prices, bt_placement *ret);

/* Decide. Refusing is a decision, not a failure. E_NOMEM, E_LIMIT. */
BT_MUST_CHECK bt_status bt_guard_place(const bt_guard_ask *ask, bt_guard_decision *ret, bt_error *err);
/* Write a decision into an argv, only where it changes something: a value in its place, and one that stood nowhere at
 * the end. rewrite is open. E_ARG as bt_rewrite_set. */
BT_MUST_CHECK bt_status bt_guard_apply(const bt_guard_decision *decision, bt_rewrite *rewrite, bt_error *err);

/* Shares of devices by what each has left (research notes, seed 4, 2.9): free bytes less fixed bytes, of all that is
 * left, rounded to hundredths. false: nothing is left. */
bool bt_guard_shares(const uint64_t *free_bytes, const uint64_t *fixed_bytes, uint32_t n, double *ret_shares);
/* The one with the most free bytes. */
uint32_t bt_guard_main(const uint64_t *free_bytes, uint32_t n);
