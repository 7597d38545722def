/* SPDX-License-Identifier: MIT
 * offload.h: which blocks stand on devices beside the host (docs/design.md P5-P7). Pure. */
#pragma once

#include "burthen.h"
#include "plan/plan.h"

/* A device as it is offered to a plan. */
typedef struct bt_offer {
    bt_pool pool;
    bt_known budget_bytes; /* unknown: its reading failed and no size was named */
    char budget_source[96];
    uint64_t context_bytes; /* what a process takes of it before any model */
} bt_offer;

/* The devices of a machine that the wishes allow, in their order; the main one first. BT_E_ARG, code "device_unknown",
 * for a name that no pool has. */
BT_MUST_CHECK bt_status bt_offers_make(const bt_machine *machine, const bt_wishes *wishes,
                                       bt_offer ret_offers[BT_DEVICE_MAX], uint32_t *ret_n, bt_error *err);

/* Whether a machine has a device of that name, for one that was named without a size: BT_E_ARG, code "device_unknown",
 * names those that it has. BT_OK too for a card of CUDA's where NVML fails, and shows none by its name. */
BT_MUST_CHECK bt_status bt_offers_know(const bt_machine *machine, const char *name, bt_error *err);

/* The largest prefix of blocks that a budget holds beside a reserve (research notes, seed 1, F4). */
uint32_t bt_offload_prefix(uint64_t budget_bytes, const uint64_t *block_bytes, uint32_t n_blocks,
                           uint64_t reserve_bytes);

typedef struct bt_offload_ask {
    const bt_facts *facts; /* without a split */
    const bt_wishes *wishes;
    uint32_t n_ctx, n_ubatch; /* the most that the plan may choose */
    uint32_t n_blocks_max;    /* no more than this, whatever fits: what a plan before this one learned */
    const bt_offer *offers;
    uint32_t n_offers;
    /* Measured at such a split, for each offer: instead of the formula. NULL: not yet. */
    const uint64_t *compute_bytes;
} bt_offload_ask;

/* Decide. What does not fit, or cannot be known, is a refusal (code not empty) beside the placement that was asked for:
 * "device_memory", "device_query". BT_E_ARG for shares that are none. */
BT_MUST_CHECK bt_status bt_offload_choose(const bt_offload_ask *ask, bt_offload *ret_offload, bt_refusal *ret_refusal,
                                          bt_error *err);
/* What was chosen, with prices of a dry run in the place of formulas, against the budgets: false where one is over;
 * ret_device: the first of those. */
bool bt_offload_fits(const bt_offload *offload, uint32_t *ret_device);
/* What devices that share the host's memory take of its budget. NULL: nothing. */
uint64_t bt_offload_shared_bytes(const bt_offload *offload);
