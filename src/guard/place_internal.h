/* SPDX-License-Identifier: MIT
 * place_internal.h: what place.c, shares.c and refusal.c share: placements tried against what there is. */
#pragma once

#include "guard/place.h"

/* What a command line is held against. */
typedef struct bt_guard_search {
    const bt_guard_ask *ask;
    const bt_guard_prices *prices;
    uint64_t budget[BT_POOL_MAX], free[BT_POOL_MAX]; /* of each device in use */
    uint32_t n;
    uint64_t budget_all, free_all;
    bt_placement baked;
    bool uses_devices;        /* the command line puts something there */
    bool may_split, may_main; /* --tensor-split, --main-gpu stand in it and may be given other values */
    uint32_t ctx_step;
} bt_guard_search;

typedef enum bt_guard_against {
    BT_AGAINST_BUDGET,
    BT_AGAINST_FREE,
} bt_guard_against;

/* The devices hold it. */
bool bt_guard_devices_hold(const bt_guard_search *s, const bt_guard_price *price, bt_guard_against against);
/* The host holds it, without what grows beside it (checkpoints, prompt cache). moved: something was moved there, so
 * that mapped weights count too. */
bool bt_guard_host_holds(const bt_guard_search *s, const bt_guard_price *price, bool moved);
/* A placement whose devices hold it, with other shares or another main device if it must be and may be. */
bool bt_guard_try(const bt_guard_search *s, bt_placement *placement, bt_guard_price *ret_price);

/* The largest context below the baked one, by whole steps, that is no less than least and fits; false: none. */
bool bt_guard_try_ctx(const bt_guard_search *s, uint32_t least, bt_placement *ret, bt_guard_price *ret_price);

/* A context that somebody wrote, which alone is trimmed. */
bool bt_guard_may_trim(const bt_effective *effective);
/* How far down a context may be trimmed: none below that share of what was asked. */
uint32_t bt_guard_ctx_floor(uint32_t n_ctx);
/* Whole steps of a context: of each slot's where slots have their own. */
uint32_t bt_guard_ctx_step(const bt_effective *effective);
/* Share of layers below which a start is refused; 0: none. */
double bt_guard_floor(const bt_guard_settings *settings);
bool bt_guard_is_worse(double fraction, double floor);
/* One more layer (or block's experts) to the host; false: there is none. */
bool bt_guard_step_down(const bt_facts *facts, bool experts, bt_placement *placement);

/* Changes of the command line that would do, into a refusal. */
BT_MUST_CHECK bt_status bt_guard_suggest(const bt_guard_search *s, bt_guard_decision *ret, bt_error *err);
