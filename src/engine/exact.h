/* SPDX-License-Identifier: MIT
 * exact.h: cost models from dry runs, and the plan that was checked against one. */
#pragma once

#include "burthen.h"
#include "engine/price_cache.h"
#include "plan/plan.h"

/* Rows of logits that a command needs. */
typedef uint32_t (*bt_outputs_fn)(uint32_t n_ctx, uint32_t n_ubatch);

/* Whose prices are asked for, and how. */
typedef struct bt_exact_ask {
    const bt_facts *facts;
    uint64_t base_bytes; /* what the process holds before the model is opened, measured */
    uint32_t n_threads;
    bt_outputs_fn outputs;
    bt_price_cache *cache; /* what earlier dry runs measured, added to and saved; NULL: everything is measured anew */
    const bt_facts *draft; /* a draft model beside it, of which the problem has lines; NULL: none */
    bt_price_cache *draft_cache;
    bt_price *ret_price; /* what was measured at the point that the plan chose; NULL: not wanted */
} bt_exact_ask;

/* The wishes that the prices of a draft depend on: of the model's, what is also the draft's (engine/draft.h). */
bt_wishes bt_exact_draft_wishes(const bt_wishes *wishes);
/* Make the plan of a problem whose costs[] are formulas, with prices asked of libllama instead: its units, wishes and
 * budget stand. The plan's ledger is that of a dry run at the very context and micro-batch it chose. */
BT_MUST_CHECK bt_status bt_exact_plan(const bt_exact_ask *ask, const bt_problem *problem, bt_arena *arena,
                                      bt_plan *ret_plan, bt_error *err);
