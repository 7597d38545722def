/* SPDX-License-Identifier: MIT
 * costs.h: from a model's facts to the search's cost model and units, by formula (docs/design.md section 6a). */
#pragma once

#include "base/arena.h"
#include "burthen.h"
#include "plan/plan.h"

/* Measured properties of this build of burthen that a formula cannot know. */
typedef struct bt_base_costs {
    uint64_t base_bytes;                                         /* process before a model is opened */
    uint64_t vocab_fixed_bytes, vocab_per_token_bytes;           /* kept */
    uint64_t vocab_load_fixed_bytes, vocab_load_per_token_bytes; /* on top of it while loading */
} bt_base_costs;

/* The units of the facts as the search sees them, same indices. */
/* repacks: this processor's kernels know other layouts (model/layouts.h). */
BT_MUST_CHECK bt_status bt_costs_units(const bt_facts *facts, bool repacks, bt_arena *arena, bt_plan_unit **ret_units,
                                       bt_error *err);
/* Expert blocks of the facts, as the search sees them, into a problem. BT_E_NOMEM. */
BT_MUST_CHECK bt_status bt_costs_experts(const bt_facts *facts, bt_arena *arena, bt_problem *problem, bt_error *err);
/* Formula prices for one micro-batch. BT_E_LIMIT on overflow. */
BT_MUST_CHECK bt_status bt_costs_formula(const bt_facts *facts, const bt_wishes *wishes, const bt_base_costs *base,
                                         uint32_t n_ubatch, bt_costs *ret_costs, bt_error *err);
/* BT_E_ARG for what libllama would refuse: "flash_attn" quantised values without flash attention, "kv_type" heads
 * that are no multiple of the type's block, or latent attention with two types. */
BT_MUST_CHECK bt_status bt_kv_check(const bt_facts *facts, const bt_wishes *wishes, bt_error *err);
/* F32 recurrent state of all sequences. */
uint64_t bt_kv_state_bytes(const bt_facts *facts, uint32_t n_parallel);
/* Bytes of KV cache and state, all sequences, at a context (cells rounded as libllama rounds); of the wishes: types,
 * flash attention, sequences, unified. false on overflow, or when widths are no multiple of a type's block. */
bool bt_kv_price(const bt_facts *facts, const bt_wishes *wishes, uint32_t n_ctx, uint32_t n_ubatch,
                 uint64_t *ret_bytes);
/* Of one block. */
bool bt_kv_block_price(const bt_facts *facts, uint32_t block, const bt_wishes *wishes, uint32_t n_ctx,
                       uint32_t n_ubatch, uint64_t *ret_bytes);
