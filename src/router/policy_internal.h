/* SPDX-License-Identifier: MIT
 * policy_internal.h: what the parts of the policy tell each other: bytes that are left, models in the way. */
#pragma once

#include "router/policy.h"

#define BT_POLICY_NOBODY UINT32_MAX

/* A sum of 256 sizes of 64 bits, below zero too (a ceiling may fall under what runs): exact, so that what was added can
 * be taken away again. */
__extension__ typedef __int128 bt_policy_wide;

/* What a newcomer would find of each pool, in some state of things (now; with a waiter in its place...). */
typedef struct bt_policy_room {
    bt_policy_wide limit_left[BT_POOL_MAX]; /* meant where the pool's limit is known */
    bt_policy_wide free_left[BT_POOL_MAX];  /* meant where its free bytes are */
    uint32_t n_unknown;                     /* that go, or have gone, and give back nobody knows what */
} bt_policy_room;

/* What a start is to get. */
typedef struct bt_policy_demand {
    bool shrunk;
    uint64_t bytes[BT_POOL_MAX]; /* zeros of a model whose need is not known */
} bt_policy_demand;

/* What one call has worked out. */
typedef struct bt_policy_mind {
    const bt_policy_view *view;
    uint32_t
        lru[BT_CONFIG_MODELS_MAX]; /* that hold something and are not on their way out, least recently used first */
    uint32_t n_lru;
    bt_policy_room now;                    /* who is on its way out has gone */
    bt_policy_room all;                    /* and so has everybody who may have to */
    bt_policy_room ahead;                  /* all waiters before this one have their places */
    bt_policy_room urgent;                 /* those of them have whose patience is over */
    bool gone[BT_CONFIG_MODELS_MAX];       /* in ahead: victims of a waiter before this one */
    bool wanted[BT_CONFIG_MODELS_MAX];     /* victims of a waiter whose patience is over */
    uint32_t before[BT_CONFIG_MODELS_MAX]; /* waiters before this one that are still waiting */
    uint32_t n_before;
    uint64_t wake_ms;
} bt_policy_mind;

/* Who would have to go. */
typedef struct bt_policy_choice {
    uint32_t models[BT_CONFIG_MODELS_MAX];
    uint32_t n;
    bt_policy_room now, ahead; /* without them */
} bt_policy_choice;

/* ---- policy_fit.c ---- */

/* Whether its bytes are its own: reserved, or in use, and not on their way back. */
bool bt_policy_holds(const bt_policy_model *model);
void bt_policy_room_now(const bt_policy_view *view, bt_policy_room *ret);
void bt_policy_room_leave(const bt_policy_view *view, bt_policy_room *room, const bt_policy_model *model);
void bt_policy_room_stay(const bt_policy_view *view, bt_policy_room *room, const bt_policy_model *model); /* undo */
void bt_policy_room_enter(const bt_policy_view *view, bt_policy_room *room, const bt_policy_demand *demand);
bool bt_policy_room_fits(const bt_policy_view *view, const bt_policy_room *room, const bt_policy_demand *demand);
/* Whether the model holds something of a pool that is short. */
bool bt_policy_room_helps(const bt_policy_view *view, const bt_policy_room *room, const bt_policy_demand *demand,
                          const bt_policy_model *model);
/* What a start gets at best; false: it cannot be, whoever goes, and *step says so. */
bool bt_policy_demand_find(const bt_policy_mind *mind, uint32_t target, bt_policy_demand *ret, bt_policy_step *step);

/* ---- policy_victims.c ---- */

/* Whether other is never ended for target. */
bool bt_policy_stays(const bt_policy_view *view, const bt_policy_model *target, const bt_policy_model *other);
/* Whether target cannot run beside other, whatever the bytes. */
bool bt_policy_apart(const bt_policy_view *view, const bt_policy_model *target, const bt_policy_model *other);
bool bt_policy_patient(const bt_policy_view *view, const bt_policy_model *model);
/* The victims that let target start at once, and still leave what waiters before it need; false: not now. */
bool bt_policy_choose_now(const bt_policy_mind *mind, uint32_t target, const bt_policy_demand *demand,
                          bt_policy_choice *ret);
/* Those that it will take, busy ones too, when the waiters before it have their places; false: its turn comes later. */
bool bt_policy_choose_later(const bt_policy_mind *mind, uint32_t target, const bt_policy_demand *demand,
                            bt_policy_choice *ret);
