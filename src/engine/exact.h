/* SPDX-License-Identifier: MIT
 * exact.h: cost models from dry runs, and the plan that was checked against one. */
#pragma once

#include "burthen.h"
#include "engine/price_cache.h"
#include "plan/plan.h"

/* Make the plan of a problem whose costs[] are formulas, with prices asked of libllama instead.
 *
 * problem       units, wishes, budget; its costs are replaced
 * base_bytes    what the process holds before the model is opened, measured
 * outputs       rows of logits the command needs at a context and micro-batch
 * cache         what earlier dry runs measured, added to and saved; NULL: everything is measured anew
 * The plan's ledger is that of a dry run at the very context and micro-batch it chose. */
typedef uint32_t (*bt_outputs_fn)(uint32_t n_ctx, uint32_t n_ubatch);
BT_MUST_CHECK bt_status bt_exact_plan(const bt_facts *facts, const bt_problem *problem, uint64_t base_bytes,
                                      uint32_t n_threads, bt_outputs_fn outputs, bt_price_cache *cache, bt_arena *arena,
                                      bt_plan *ret_plan, bt_error *err);
