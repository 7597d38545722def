/* SPDX-License-Identifier: MIT
 *
 * make.c: the plan of a problem: wishes into an ask, the search's answer into plain data with a verdict.
 *
 * Wishes that contradict themselves or the model are errors; wishes that do not fit are a refused plan, complete with
 * the ledger of the least configuration, so that what is missing can be read line by line. --force changes neither
 * verdict nor numbers: it only says that the least configuration is to be run. Where the KV cache of an architecture is
 * not known its line is zero and the verdict says unknown; that its weights alone do not fit is still a refusal. */
#include "base/error.h"
#include "base/size.h"
#include "model/types.h"
#include "plan/search.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CTX_DEFAULT_UNTRAINED 2048u /* the seed's default where the file does not say (research notes, seed 2 R9) */
#define N_BATCH_DEFAULT       2048u /* docs/interfaces.md */
#define N_SLOTS_DEFAULT       2u
#define MICRO                 UINT64_C(1000000)

/* ---- wishes ---- */

uint32_t bt_plan_ctx_reach(const bt_wishes *w, uint32_t n_ctx_train) {
    bool stretches = w->rope_scaling == BT_ROPE_LINEAR || w->rope_scaling == BT_ROPE_YARN;
    if (!stretches || w->rope_scale_micro <= MICRO) return n_ctx_train;
    return (uint32_t)bt_min_u64(bt_mul_div_u64(n_ctx_train, w->rope_scale_micro, MICRO), UINT32_MAX);
}

bt_status bt_plan_wishes_check(const bt_problem *problem, bt_error *err) {
    const bt_wishes *w = &problem->wishes;
    if (problem->n_costs == 0)
        return bt_fail(err, BT_E_ARG, "plan_costs", BT_MEASURE_NONE, 0, 0, "no cost model was given to plan with");
    /* what libllama makes of the trained length is not above it */
    uint32_t reach = bt_plan_ctx_reach(w, problem->n_ctx_train);
    if (reach > 0 && w->n_ctx > bt_ctx_round(&problem->costs[0], reach))
        return bt_fail(err, BT_E_ARG, "ctx_trained", BT_MEASURE_TOKENS, w->n_ctx, reach,
                       "context %" PRIu32 " is above the %" PRIu32 " tokens the model was trained for%s", w->n_ctx,
                       problem->n_ctx_train,
                       reach > problem->n_ctx_train ? ", times --rope-scale"
                                                    : "; --rope-scaling linear or yarn with --rope-scale stretches it");
    for (uint32_t i = 0; w->n_ubatch > 0 && i < problem->n_costs; i++)
        if (problem->costs[i].n_ubatch != w->n_ubatch)
            return bt_fail(err, BT_E_ARG, "plan_costs", BT_MEASURE_NONE, 0, 0,
                           "a cost model was given for another micro-batch than %" PRIu32, w->n_ubatch);
    if (w->flash_attn == BT_OFF && bt_type_block_elements(w->type_v) > 1)
        return bt_fail(err, BT_E_ARG, "flash_attn", BT_MEASURE_NONE, 0, 0,
                       "a V cache of type %s needs flash attention, which is off", bt_type_name(w->type_v));
    return BT_OK;
}

static uint32_t ctx_start(const bt_problem *problem) {
    if (problem->wishes.n_ctx > 0) return problem->wishes.n_ctx;
    uint32_t trained = problem->n_ctx_train > 0 ? problem->n_ctx_train : CTX_DEFAULT_UNTRAINED;
    uint32_t cap = problem->n_ctx_default_cap;
    return cap > 0 && cap < trained ? cap : trained;
}

static bt_ask ask_make(const bt_problem *problem) {
    const bt_wishes *w = &problem->wishes;
    bool unlimited = problem->budget_state == BT_READING_UNLIMITED || w->budget_kind == BT_BUDGET_OFF;
    bt_ask ask = {
        .budget_bytes = unlimited ? UINT64_MAX : problem->budget_bytes,
        .n_ctx_wished = ctx_start(problem),
        .n_ctx_start = bt_ctx_round(&problem->costs[0], ctx_start(problem)),
        .n_ctx_min = problem->costs[0].ctx_min,
        .n_ctx_step = problem->costs[0].ctx_step,
        .n_slots = w->n_buffers > 0 ? w->n_buffers : N_SLOTS_DEFAULT,
        .slots_fixed = w->n_buffers > 0,
        .n_costs = problem->n_costs,
        .stream_head = w->stream_head,
        .policy = w->policy,
    };
    if (w->n_ctx > 0 && !w->allow_ctx_reduction) ask.n_ctx_step = 0;
    return ask;
}

/* Prices without the KV line, for an architecture whose KV is not known. */
static bt_status costs_without_kv(const bt_problem *problem, bt_arena *arena, const bt_costs **ret, bt_error *err) {
    uint64_t n = problem->n_costs;
    for (uint32_t i = 0; i < problem->n_alternatives; i++)
        n = bt_max_u64(n, (uint64_t)problem->alternatives[i].first_cost + problem->alternatives[i].n_costs);
    bt_costs *costs = bt_arena_array(arena, n, sizeof *costs);
    if (!costs)
        return bt_fail(err, BT_E_NOMEM, "plan_arena", BT_MEASURE_BYTES, n * sizeof *costs, 0,
                       "the arena has no room for the plan's prices");
    memcpy(costs, problem->costs, n * sizeof *costs);
    for (uint64_t i = 0; i < n; i++)
        costs[i].line[BT_LINE_KV] = (bt_cost){0};
    *ret = costs;
    return BT_OK;
}

/* ---- the answer as plain data ---- */

/* Lines that are not weights of the model: what R16 of research notes, seed 2 takes off the budget, and companions. */
static uint64_t not_weights(const bt_ledger *ledger) {
    static const bt_line lines[] = {
        BT_LINE_BASE,        BT_LINE_VOCAB,          BT_LINE_METADATA,     BT_LINE_KV,
        BT_LINE_COMPUTE,     BT_LINE_PAGETABLES,     BT_LINE_THREADS,      BT_LINE_LOGITS,
        BT_LINE_STAGING,     BT_LINE_DRAFT_WEIGHTS,  BT_LINE_DRAFT_KV,     BT_LINE_DRAFT_COMPUTE,
        BT_LINE_DRAFT_VOCAB, BT_LINE_MMPROJ_WEIGHTS, BT_LINE_MMPROJ_ENCODE};
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        sum = bt_sat_add_u64(sum, ledger->bytes[lines[i]]);
    return sum;
}

static void ctx_reason_make(const bt_ask *ask, const bt_costs *costs, bt_plan *plan) {
    bool asked = plan->n_ctx_requested > 0;
    uint32_t from = asked ? plan->n_ctx_requested : ask->n_ctx_start;
    const char *of = asked ? "asked for" : "by default";
    const char *why = plan->verdict == BT_REFUSED      ? "the lowest tried"
                      : ask->policy == BT_POLICY_SPEED ? "a smaller one is faster"
                                                       : "the budget holds no more";
    if (plan->n_ctx < bt_ctx_round(costs, ask->n_ctx_start)) {
        (void)snprintf(plan->ctx_reason, sizeof plan->ctx_reason, "%s (%" PRIu32 " %s)", why, from, of);
    } else if (asked && plan->n_ctx != plan->n_ctx_requested) {
        (void)snprintf(plan->ctx_reason, sizeof plan->ctx_reason, "rounded up to a multiple of %" PRIu32,
                       costs->ctx_align);
    }
}

static void plan_fill(const bt_problem *problem, const bt_search *search, const bt_ask *ask, const bt_candidate *c,
                      bt_plan *plan) {
    const bt_wishes *w = &problem->wishes;
    plan->wishes = *w;
    plan->n_ctx_requested = w->n_ctx;
    plan->n_ctx = c->n_ctx;
    plan->n_ctx_train = problem->n_ctx_train;
    plan->n_parallel = w->n_parallel > 0 ? w->n_parallel : 1;
    plan->n_threads = w->n_threads;
    plan->n_batch = w->n_batch > 0 ? w->n_batch : N_BATCH_DEFAULT;
    plan->n_ubatch = c->costs->n_ubatch < plan->n_batch ? c->costs->n_ubatch : plan->n_batch;
    plan->type_k = c->costs->type_k;
    plan->type_v = c->costs->type_v;
    plan->exact = c->costs == &search->costs[ask->first_cost];
    plan->head_resident = c->head_resident;
    plan->n_slots = c->n_slots;
    plan->slot_bytes = c->slot_bytes;
    plan->place = search->place;
    plan->n_units = problem->n_units;
    plan->n_pinned = c->n_pinned;
    plan->n_streamed = c->n_streamed;
    plan->pinned_bytes = c->pinned_bytes;
    plan->read_bytes_per_pass = c->read_bytes_per_pass;
    plan->ledger = c->ledger;
    plan->planned_bytes = c->planned_bytes;
    plan->budget_bytes = ask->budget_bytes;
    plan->budget_state = ask->budget_bytes == UINT64_MAX ? BT_READING_UNLIMITED : problem->budget_state;
    (void)snprintf(plan->budget_source, sizeof plan->budget_source, "%s",
                   problem->budget_source ? problem->budget_source : "");
    plan->ceiling_bytes =
        ask->budget_bytes == UINT64_MAX
            ? UINT64_MAX
            : bt_sat_sub_u64(bt_max_u64(ask->budget_bytes, c->planned_bytes), not_weights(&c->ledger));
    if (problem->draft) plan->draft = *problem->draft;
    if (problem->mmproj) plan->mmproj = *problem->mmproj;
    plan->disk_bytes_per_s = problem->disk_bytes_per_s;
    for (int i = 0; i < BT_LINE_COUNT; i++)
        plan->priced_by_dry_run |= c->ledger.source[i] == BT_SOURCE_DRY_RUN;
}

/* Not refused, and yet no answer: said where a refusal would be read. */
static void unknown_say(const bt_problem *problem, bt_plan *plan) {
    (void)snprintf(plan->refusal.code, sizeof plan->refusal.code, "arch_unknown");
    (void)snprintf(plan->refusal.message, sizeof plan->refusal.message,
                   "the KV cache of this model cannot be priced and is not counted%s%.200s",
                   problem->kv_reason ? ": " : "", problem->kv_reason ? problem->kv_reason : "");
    plan->refusal.need_bytes = plan->planned_bytes;
    plan->refusal.have_bytes = plan->budget_bytes;
}

bt_status bt_plan_make(const bt_problem *problem, bt_arena *arena, bt_plan *ret_plan, bt_error *err) {
    bt_search search = {0};
    BT_TRY(bt_plan_wishes_check(problem, err));
    const bt_ask ask = ask_make(problem);
    BT_TRY(bt_search_make(problem, arena, &search, err));
    if (!problem->kv_known) BT_TRY(costs_without_kv(problem, arena, &search.costs, err));
    bt_minimum minimum = bt_search_minimum(&search, &ask);
    if (minimum.need_bytes == UINT64_MAX)
        return bt_fail(err, BT_E_LIMIT, "plan_size", BT_MEASURE_NONE, 0, 0,
                       "what the model needs at the lowest context does not fit in 64 bits");

    bt_plan plan = {0};
    if (problem->kv_known) bt_ladder_make(&search, &ask, plan.ladder);
    bt_candidate best = {0};
    bool found = bt_search_best(&search, &ask, &best);
    if (!found) bt_search_minimum_take(&search, &minimum, &best);
    plan_fill(problem, &search, &ask, &best, &plan);
    if (!found) {
        plan.verdict = BT_REFUSED;
        plan.forced = problem->wishes.force;
        bt_refusal_make(&search, &ask, &minimum, &plan.refusal);
    } else if (!problem->kv_known) {
        plan.verdict = BT_VERDICT_UNKNOWN;
        unknown_say(problem, &plan);
    } else {
        plan.verdict = best.n_streamed == 0 ? BT_FITS : BT_STREAMS;
    }
    bt_experts_spend(problem, best.costs->page_table_divisor, &plan);
    if (plan.verdict == BT_FITS || plan.verdict == BT_STREAMS)
        bt_derive(problem, best.costs->page_table_divisor, &plan);
    plan.forecast = bt_forecast_make(problem, plan.read_bytes_per_pass, search.weight_bytes_per_pass, best.n_slots);
    plan.reuse_micro_tokens_per_s = bt_experts_reuse_forecast(problem, &plan, search.weight_bytes_per_pass);
    ctx_reason_make(&ask, best.costs, &plan);
    *ret_plan = plan;
    return BT_OK;
}
