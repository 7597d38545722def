/* SPDX-License-Identifier: MIT
 *
 * drop_in_plan.c: what a plan for a program with Burthen's device in it is asked, and about how little it can do with.
 *
 *   settings -> bt_drop_in -> wishes of a guest -> costs by formula -> the search, with a budget of a byte -> ladder
 *
 * The ladder's minimum is the budget at which the whole ask runs: base (of the program, measured), vocabulary, cache at
 * the context, a graph of the smallest micro-batch, a ring of one unit, the head by panels. `exec` plans by a dry run;
 * here nothing is started, since the answer is wanted of many models at once and may be asked before each start. Both
 * stand on the same formulas, and a test holds this one to what a budget was accepted at. */
#include "guard/drop_in.h"

#include "base/error.h"
#include "base/os.h"
#include "base/size.h"
#include "guard/base_costs.h"
#include "guard/price.h"
#include "plan/choices.h"
#include "plan/price.h"

#define UBATCH_DEFAULT  512u  /* llama.cpp's */
#define CTX_DEFAULT_CAP 4096u /* docs/interfaces.md: the cap of an unasked context */

/* Checkpoints are priced at the largest context that may be chosen: only who asked for some pays for that. */
static uint64_t checkpoint_bytes(const bt_drop_in *drop_in, const bt_facts *facts) {
    const bt_wishes *wishes = &drop_in->wishes;
    uint32_t n_ctx = wishes->n_ctx > 0 ? wishes->n_ctx : facts->n_ctx_train;
    uint64_t one = bt_guard_checkpoint_bytes(facts, wishes, drop_in->swa_full,
                                             wishes->n_ubatch > 0 ? wishes->n_ubatch : UBATCH_DEFAULT, n_ctx);
    return bt_sat_mul_u64(one, drop_in->n_checkpoints);
}

bt_wishes bt_drop_in_wishes(const bt_drop_in *drop_in, const bt_effective *effective, const bt_facts *facts,
                            uint64_t adapter_bytes) {
    bt_wishes wishes = drop_in->wishes;
    wishes.swa_full = drop_in->swa_full;
    wishes.embeddings = drop_in->embeddings;
    wishes.n_outputs = drop_in->n_outputs_max > wishes.n_parallel ? drop_in->n_outputs_max : 0;
    wishes.prompt_cache_bytes = drop_in->cache_ram_bytes;
    wishes.checkpoint_bytes = checkpoint_bytes(drop_in, facts);
    wishes.guest = true;
    wishes.no_devices = true;
    wishes.speculate = effective->draft_model.text ? BT_SPECULATE_DRAFT : BT_SPECULATE_OFF;
    wishes.adapter_bytes = bt_sat_add_u64(adapter_bytes, drop_in->drafter_bytes);
    return wishes;
}

/* What the program itself takes, and its vocabulary: the same for every budget. */
static bt_base_costs base_of(const bt_effective *effective, const bt_facts *facts) {
    bt_base_costs base = bt_base_costs_of(facts);
    base.base_bytes = bt_guest_base_bytes(effective->program);
    return base;
}

static void close_context(const bt_facts *facts, bt_wishes *wishes) {
    if (wishes->n_ctx > 0 && !wishes->allow_ctx_reduction) return;
    uint64_t streams = bt_kv_streams(wishes);
    uint64_t trained = facts->n_ctx_train > 0 ? facts->n_ctx_train : CTX_DEFAULT_CAP;
    wishes->n_ctx = (uint32_t)bt_min_u64(bt_min_u64(BT_CTX_FLOOR, trained) * streams, UINT32_MAX);
    wishes->allow_ctx_reduction = false;
}

static bt_status make_problem(const bt_effective *effective, const bt_facts *facts, const bt_wishes *wishes,
                              bt_arena *arena, bt_problem *ret, bt_error *err) {
    const bt_base_costs base = base_of(effective, facts);
    bt_choices choices;
    bt_plan_unit *units = NULL;
    BT_TRY(bt_choices_make(facts, wishes, &base, arena, &choices, err));
    BT_TRY(bt_costs_units(facts, false, arena, &units, err));
    *ret = (bt_problem){.costs = choices.costs,
                        .n_costs = choices.n_costs,
                        .units = units,
                        .n_units = facts->n_units,
                        .wishes = *wishes,
                        .n_ctx_train = facts->n_ctx_train,
                        .n_ctx_default_cap = CTX_DEFAULT_CAP,
                        .budget_bytes = wishes->budget_bytes,
                        .budget_state = BT_READING_REPORTED,
                        .budget_source = "asked",
                        .kv_known = facts->kv_known,
                        .kv_reason = facts->kv_reason};
    return bt_costs_experts(facts, arena, ret, err);
}

bt_status bt_drop_in_least_bytes(const bt_effective *effective, const bt_facts *facts, uint64_t adapter_bytes,
                                 bt_arena *arena, uint64_t *ret_bytes, bt_error *err) {
    bt_drop_in drop_in;
    bt_problem problem;
    BT_TRY(bt_drop_in_read(effective, facts, &drop_in, err));
    if (!facts->kv_known && !facts->encoder)
        return bt_fail(err, BT_E_UNSUPPORTED, "arch_unknown", BT_MEASURE_NONE, 0, 0, "%s", facts->kv_reason);
    bt_wishes wishes = bt_drop_in_wishes(&drop_in, effective, facts, adapter_bytes);
    wishes.speculate = BT_SPECULATE_OFF;
    wishes.budget_kind = BT_BUDGET_BYTES;
    wishes.budget_bytes = 1; /* nothing fits: all that is wanted is the ladder */
    if (wishes.n_threads == 0) wishes.n_threads = bt_os_n_cores();
    close_context(facts, &wishes);
    bt_plan *plan = bt_arena_alloc(arena, sizeof *plan);
    if (!plan) return bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to make a plan");
    BT_TRY(make_problem(effective, facts, &wishes, arena, &problem, err));
    BT_TRY(bt_plan_make(&problem, arena, plan, err));
    const bt_rung *least = &plan->ladder[BT_RUNG_MINIMUM];
    if (!least->exists)
        return bt_fail(err, BT_E_UNSUPPORTED, "drop_in", BT_MEASURE_NONE, 0, 0, "no budget is enough for this command");
    *ret_bytes = least->budget_bytes;
    return BT_OK;
}
