/* SPDX-License-Identifier: MIT
 *
 * exact.c: planning with libllama's own numbers.
 *
 * Each micro-batch is priced at the smallest and at the largest context that may be chosen; in between, a line grows at
 * most linearly with the context, except for sliding windows, which bend it upwards. So the plan made from the straight
 * line is checked: the context it chose is priced itself, and the plan made again with that price, stepping down if it
 * does not fit after all. The bound is a few tries; each costs one dry run. */

#include "engine/exact.h"

#include "base/error.h"
#include "base/size.h"
#include "engine/price.h"
#include "plan/companions.h"

#include <string.h>

#define UBATCH_MAX 8u /* micro-batches of one problem: 512 halved down to 32 are five */
#define TRIES_MAX  6u

typedef struct pricing {
    const bt_facts *facts;
    const bt_problem *problem;
    uint64_t base_bytes;
    uint32_t n_threads;
    bt_outputs_fn outputs;
    bt_arena *arena;
} pricing;

static void set_line(bt_costs *costs, bt_line line, uint64_t low, uint64_t high, uint32_t ctx_low, uint32_t ctx_high) {
    bt_cost *cost = &costs->line[line];
    uint64_t slope = 0;
    if (ctx_high > ctx_low && high > low) slope = (high - low + (ctx_high - ctx_low) - 1) / (ctx_high - ctx_low);
    cost->per_ctx_bytes = slope;
    cost->per_window_bytes = 0;
    cost->fixed_bytes = bt_sat_sub_u64(bt_max_u64(low, ctx_high > ctx_low ? low : high), slope * ctx_low);
    cost->source = BT_SOURCE_DRY_RUN;
}

/* Heaps are measured in pages that depend a little on where the system put them. A plan must not: the same model and
 * wishes give the same plan, so measured lines are planned in steps of 256 KiB, with a quarter step in hand. */
static uint64_t in_steps(uint64_t bytes) {
    const uint64_t step = 256u << 10;
    return (bytes + step / 4 + step - 1) / step * step;
}

/* A cost model whose lines pass through two prices. What a dry run does not price keeps its formula. */
static void fit(const pricing *p, const bt_costs *formula, const bt_price *low, const bt_price *high, bt_costs *ret) {
    uint32_t ctx_low = low->n_ctx, ctx_high = high->n_ctx;
    *ret = *formula;
    uint64_t base_bytes = in_steps(p->base_bytes);
    set_line(ret, BT_LINE_BASE, base_bytes, base_bytes, 0, 0);
    ret->line[BT_LINE_BASE].source = BT_SOURCE_MEASURED;
    set_line(ret, BT_LINE_VOCAB, in_steps(low->vocab_bytes), in_steps(high->vocab_bytes), ctx_low, ctx_high);
    ret->line[BT_LINE_VOCAB].source = BT_SOURCE_MEASURED;
    uint64_t ours = p->facts->arena_bytes;
    set_line(ret, BT_LINE_METADATA, in_steps(low->metadata_bytes + ours), in_steps(high->metadata_bytes + ours),
             ctx_low, ctx_high);
    set_line(ret, BT_LINE_KV, low->kv_bytes, high->kv_bytes, ctx_low, ctx_high);
    set_line(ret, BT_LINE_COMPUTE, in_steps(low->compute_bytes), in_steps(high->compute_bytes), ctx_low, ctx_high);
    set_line(ret, BT_LINE_LOGITS, low->logits_bytes, high->logits_bytes, ctx_low, ctx_high);
    set_line(ret, BT_LINE_OUTPUT_NORM, low->small_bytes, high->small_bytes, ctx_low, ctx_high);
    ret->line[BT_LINE_OUTPUT_NORM].source = BT_SOURCE_TENSOR;
    set_line(ret, BT_LINE_STAGING, low->staging_bytes, high->staging_bytes, ctx_low, ctx_high);
    ret->load_peak_bytes = base_bytes + in_steps(bt_max_u64(low->load_peak_bytes, high->load_peak_bytes));
    ret->load_peak_bytes = bt_sat_add_u64(ret->load_peak_bytes, bt_companions_held_bytes(formula));
}

/* KV that bends (sliding windows) is taken from the formula when that is exact. */
static void keep_exact_kv(const pricing *p, const bt_costs *formula, const bt_price *high, bt_costs *costs) {
    bt_ledger ledger;
    if (!p->facts->kv_known || !p->facts->kv_exact || !bt_costs_at(formula, high->n_ctx, &ledger)) return;
    if (ledger.bytes[BT_LINE_KV] == high->kv_bytes) costs->line[BT_LINE_KV] = formula->line[BT_LINE_KV];
}

static bt_status price_models(const pricing *p, uint32_t ctx_low, uint32_t ctx_high, bt_costs *costs, uint32_t *ret_n,
                              bt_error *err) {
    const bt_problem *problem = p->problem;
    uint32_t n = (uint32_t)bt_min_u64(problem->n_costs, UBATCH_MAX);
    bt_price_point points[2 * UBATCH_MAX];
    bt_price *prices = bt_arena_array(p->arena, 2 * (uint64_t)n, sizeof *prices);
    if (!prices) return bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to make a plan");
    for (uint32_t i = 0; i < n; i++) {
        uint32_t n_ubatch = problem->costs[i].n_ubatch;
        /* Below its own size a micro-batch is cut to the context: another graph, off the line. */
        uint32_t low = (uint32_t)bt_min_u64(bt_max_u64(ctx_low, n_ubatch), ctx_high);
        points[(size_t)2 * i] = (bt_price_point){low, n_ubatch, p->outputs(low, n_ubatch)};
        points[(size_t)2 * i + 1] = (bt_price_point){ctx_high, n_ubatch, p->outputs(ctx_high, n_ubatch)};
    }
    BT_TRY(bt_price_points(p->facts, &problem->wishes, p->n_threads, points, 2 * n, prices, err));
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 2 * i; k < 2 * i + 2; k++)
            if (prices[k].error.status != BT_OK) {
                if (err) *err = prices[k].error;
                return prices[k].error.status;
            }
        fit(p, &problem->costs[i], &prices[(size_t)2 * i], &prices[(size_t)2 * i + 1], &costs[i]);
        keep_exact_kv(p, &problem->costs[i], &prices[(size_t)2 * i + 1], &costs[i]);
    }
    *ret_n = n;
    return BT_OK;
}

/* Contexts that bound the search. */
static void context_range(const bt_problem *problem, uint32_t *ret_low, uint32_t *ret_high) {
    uint32_t high = problem->wishes.n_ctx;
    if (high == 0) {
        high = problem->n_ctx_default_cap;
        if (problem->n_ctx_train > 0) high = (uint32_t)bt_min_u64(high, problem->n_ctx_train);
    }
    uint32_t low = problem->wishes.n_ctx && !problem->wishes.allow_ctx_reduction ? high : problem->costs[0].ctx_min;
    *ret_low = (uint32_t)bt_min_u64(low, high);
    *ret_high = high;
}

/* Plan at one context and micro-batch with the prices of exactly that point. */
static bt_status plan_at(const pricing *p, const bt_costs *model, uint32_t n_ctx, bt_arena *arena, bt_plan *ret_plan,
                         bt_error *err) {
    bt_price_point point = {n_ctx, model->n_ubatch, p->outputs(n_ctx, model->n_ubatch)};
    bt_price price;
    BT_TRY(bt_price_points(p->facts, &p->problem->wishes, p->n_threads, &point, 1, &price, err));
    if (price.error.status != BT_OK) {
        if (err) *err = price.error;
        return price.error.status;
    }
    bt_costs costs;
    fit(p, model, &price, &price, &costs);
    costs.ctx_min = n_ctx;
    bt_problem problem = *p->problem;
    problem.costs = &costs;
    problem.n_costs = 1;
    problem.n_ctx_default_cap = n_ctx;
    problem.wishes.n_ctx = problem.wishes.n_ctx ? n_ctx : 0;
    return bt_plan_make(&problem, arena, ret_plan, err);
}

/* The plan made with the prices of one point speaks of the search that led there. */
static void keep_search(const bt_problem *problem, const bt_plan *first, bt_plan *plan) {
    plan->wishes = problem->wishes;
    plan->n_ctx_requested = problem->wishes.n_ctx;
    memcpy(plan->ctx_reason, first->ctx_reason, sizeof plan->ctx_reason);
    memcpy(plan->ladder, first->ladder, sizeof plan->ladder);
    plan->exact = first->exact;
    plan->priced_by_dry_run = true;
}

static const bt_costs *model_of(const bt_problem *problem, uint32_t n_ubatch) {
    for (uint32_t i = 0; i < problem->n_costs; i++)
        if (problem->costs[i].n_ubatch == n_ubatch) return &problem->costs[i];
    return &problem->costs[0];
}

/* From here on no context above n_ctx is tried. */
static void lower_context(bt_problem *problem, uint32_t n_ctx) {
    problem->n_ctx_default_cap = n_ctx;
    if (problem->wishes.n_ctx != 0) problem->wishes.n_ctx = n_ctx;
}

static bt_status search(const pricing *p, const bt_problem *asked, bt_problem *priced, bt_arena *arena,
                        bt_plan *ret_plan, bt_error *err) {
    bool may_shrink = asked->wishes.n_ctx == 0 || asked->wishes.allow_ctx_reduction;
    bt_plan best_ladder = {0};
    for (uint32_t tries = 0; tries < TRIES_MAX; tries++) {
        bt_plan first;
        BT_TRY(bt_plan_make(priced, arena, &first, err));
        if (tries == 0) best_ladder = first;
        if (first.verdict == BT_REFUSED) {
            *ret_plan = first;
            keep_search(asked, &best_ladder, ret_plan);
            return BT_OK;
        }
        const bt_costs *model = model_of(priced, first.n_ubatch);
        bt_plan plan;
        BT_TRY(plan_at(p, model, first.n_ctx, arena, &plan, err));
        memcpy(first.ladder, best_ladder.ladder, sizeof first.ladder);
        keep_search(asked, &first, &plan);
        *ret_plan = plan;
        if (plan.verdict != BT_REFUSED || !may_shrink || first.n_ctx <= model->ctx_min) return BT_OK;
        lower_context(priced, first.n_ctx - model->ctx_step);
    }
    return BT_OK; /* the last refusal, with what it would need */
}

bt_status bt_exact_plan(const bt_facts *facts, const bt_problem *problem, uint64_t base_bytes, uint32_t n_threads,
                        bt_outputs_fn outputs, bt_arena *arena, bt_plan *ret_plan, bt_error *err) {
    bt_problem priced = *problem;
    pricing p = {facts, &priced, base_bytes, n_threads, outputs, arena};
    bt_costs *costs = bt_arena_array(arena, UBATCH_MAX, sizeof *costs);
    if (!costs) return bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to make a plan");
    uint32_t n_costs = 0;
    uint32_t ctx_low = 0;
    uint32_t ctx_high = 0;
    context_range(problem, &ctx_low, &ctx_high);
    BT_TRY(price_models(&p, ctx_low, ctx_high, costs, &n_costs, err));
    priced.costs = costs;
    priced.n_costs = n_costs;
    priced.kv_known = true; /* libllama was asked: every architecture is known */
    return search(&p, problem, &priced, arena, ret_plan, err);
}
