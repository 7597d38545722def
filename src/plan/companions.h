/* SPDX-License-Identifier: MIT
 * companions.h: what files beside the model cost: a draft model, a multimodal projector. */
#pragma once

#include "burthen.h"
#include "model/projector.h"
#include "plan/costs.h"

/* Tokens that a draft may be ahead (docs/interfaces.md, --speculate): the model computes logits for each of them. */
#define BT_DRAFT_TOKENS_MAX 6u
/* llama.cpp takes two vocabularies for the same when one is padded by no more (common/speculative.cpp). */
#define BT_DRAFT_VOCAB_SLACK 128u

/* Does the draft speak the model's tokens? BT_E_ARG code "draft_vocab", naming both, when it does not. */
BT_MUST_CHECK bt_status bt_companion_draft_check(const bt_facts *model, const bt_facts *draft, bt_error *err);
/* Adds the draft's lines to the model's prices of one micro-batch, and what the model itself needs more to check
 * drafted tokens. The draft's KV follows the context that is chosen. base: of the draft. The draft is loaded when the
 * model's vocabulary is there, before any weights.
 * returns BT_OK; BT_E_UNSUPPORTED code "draft_kv" when its KV cannot be priced; BT_E_LIMIT on overflow. */
BT_MUST_CHECK bt_status bt_companion_draft_add(const bt_facts *model, const bt_facts *draft, const bt_wishes *wishes,
                                               const bt_base_costs *base, bt_costs *costs, bt_error *err);

/* What is asked of a projector. */
typedef struct bt_encode_ask {
    uint32_t n_embd;       /* of the model: width of the tokens that come out */
    uint32_t n_tokens_max; /* --image-max-tokens; 0: the projector type's own limit */
    uint32_t n_threads;    /* 0 = 1 */
    bool flash_off;        /* --flash-attn off */
} bt_encode_ask;

/* The largest picture of an encoder (of a piece of sound, its frames). */
typedef struct bt_encode_size {
    uint64_t n_patches; /* of one picture or tile */
    uint64_t n_tokens;  /* that come out of it */
    uint64_t edge_px;   /* of a square picture of that size; 0 for sound */
} bt_encode_size;
bt_encode_size bt_encode_size_of(const bt_encoder *encoder, const bt_encode_ask *ask);
/* The most that is held while the largest picture (or sound) is encoded, beside the weights; an upper bound.
 * returns BT_OK; BT_E_UNSUPPORTED code "mmproj_unknown": an encoder of a type that is not known; BT_E_ARG code
 *         "mmproj_width": it makes tokens of another width than the model's; BT_E_LIMIT on overflow. */
BT_MUST_CHECK bt_status bt_encode_peak_bytes(const bt_projector *projector, const bt_encode_ask *ask,
                                             uint64_t *ret_bytes, bt_error *err);
/* Adds the projector's lines. */
BT_MUST_CHECK bt_status bt_companion_mmproj_add(const bt_projector *projector, const bt_encode_ask *ask,
                                                bt_costs *costs, bt_error *err);

/* Bytes of companions that are there before the model is loaded: what that is added to. */
uint64_t bt_companions_held_bytes(const bt_costs *costs);
/* Whether a plan has the line: those of a companion are not shown where there is none. */
bool bt_plan_has_line(const bt_plan *plan, bt_line line);
