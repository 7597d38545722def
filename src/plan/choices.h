/* SPDX-License-Identifier: MIT
 * choices.h: what the wishes leave open, as cost models by formula, and the changes that a refusal may suggest. */
#pragma once

#include "base/arena.h"
#include "plan/costs.h"
#include "plan/plan.h"

/* Micro-batches that are tried when none was asked for (docs/design.md S1). */
#define BT_UBATCH_MAX 5u
/* KV types that are tried: as asked, and with q8_0 for what is auto. */
#define BT_KV_CHOICE_MAX 2u

typedef struct bt_choices {
    bt_costs *costs;  /* as bt_problem.costs; the caller may add to their lines */
    uint32_t n_costs; /* what the wishes allow */
    uint32_t n_all;   /* with those of the alternatives */
    bt_alternative *alternatives;
    uint32_t n_alternatives;
} bt_choices;

/* BT_E_ARG, code "kv_type", for a KV type that the model's heads cannot take; BT_E_LIMIT, BT_E_NOMEM. An alternative
 * that cannot be priced is left out. */
BT_MUST_CHECK bt_status bt_choices_make(const bt_facts *facts, const bt_wishes *wishes, const bt_base_costs *base,
                                        bt_arena *arena, bt_choices *ret, bt_error *err);
