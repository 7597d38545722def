/* SPDX-License-Identifier: MIT
 * placing.h: which blocks of the model go to devices beside the host, and the facts of what is left. */
#pragma once

#include "base/arena.h"
#include "cli/options.h"
#include "engine/price.h"

/* A model as it is planned and loaded. */
typedef struct bt_placed {
    const bt_facts *whole;
    const bt_facts *facts; /* what the host's plan is made of: the whole, or the split */
    bt_facts *split;       /* owned; NULL: all of it is on the host */
    bt_offload *offload;   /* in the arena it was made with; NULL as above */
    bt_refusal refusal;    /* why what was asked of devices cannot be; code empty: it can */
} bt_placed;

/* Choose by formula and split the facts. The largest context and micro-batch that the plan may have are assumed.
 * BT_E_ARG for devices that are not there. */
BT_MUST_CHECK bt_status bt_placing_make(const bt_cli_options *options, const bt_facts *whole, const bt_machine *machine,
                                        bt_arena *arena, bt_placed *ret_placed, bt_error *err);
/* What a dry run at the plan's own context says of the devices, in the place of formulas. *ret_again: that leads to
 * other blocks on devices, which stand in placed now: the host's plan is to be made anew. Without may_grow only to
 * less, so that this ends. */
BT_MUST_CHECK bt_status bt_placing_check(const bt_cli_options *options, const bt_machine *machine,
                                         const bt_price *price, bool may_grow, bt_arena *arena, bt_placed *placed,
                                         bool *ret_again, bt_error *err);
/* The split of a plan that was read from a file. BT_E_STALE where the model cannot be split so. */
BT_MUST_CHECK bt_status bt_placing_of_plan(const bt_facts *whole, const bt_plan *plan, bt_placed *ret_placed,
                                           bt_error *err);
/* Devices and refusal into the plan of the host. */
void bt_placing_add(const bt_placed *placed, bt_plan *plan);
/* What devices that share the host's memory take of its budget. */
uint64_t bt_placing_shared_bytes(const bt_placed *placed);
void bt_placed_close(bt_placed *placed); /* one of zeroes is fine */
