/* SPDX-License-Identifier: MIT
 * costs.h: from a model's facts to the search's cost model and units, by formula (docs/design.md section 6a). */
#pragma once

#include "base/arena.h"
#include "burthen.h"

/* Measured properties of this build of burthen that a formula cannot know. */
typedef struct bt_base_costs {
    uint64_t base_bytes;                                         /* process before a model is opened */
    uint64_t vocab_fixed_bytes, vocab_per_token_bytes;           /* kept */
    uint64_t vocab_load_fixed_bytes, vocab_load_per_token_bytes; /* on top of it while loading */
} bt_base_costs;

/* The units of the facts as the search sees them, same indices. */
BT_MUST_CHECK bt_status bt_costs_units(const bt_facts *facts, bt_arena *arena, bt_plan_unit **ret_units, bt_error *err);
/* Formula prices for one micro-batch. BT_E_LIMIT on overflow. */
BT_MUST_CHECK bt_status bt_costs_formula(const bt_facts *facts, const bt_wishes *wishes, const bt_base_costs *base,
                                         uint32_t n_ubatch, bt_costs *ret_costs, bt_error *err);
/* Bytes of KV cache, all sequences, at a context (cells rounded as libllama rounds). false on overflow. */
bool bt_kv_bytes(const bt_facts *facts, uint32_t n_ctx, uint32_t n_parallel, uint32_t n_ubatch, uint32_t type_k,
                 uint32_t type_v, uint64_t *ret_bytes);
