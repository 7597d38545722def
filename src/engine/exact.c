/* SPDX-License-Identifier: MIT
 *
 * exact.c: planning with libllama's own numbers.
 *
 * A cost model (KV types and micro-batch) is priced at the smallest and at the largest context that may be chosen; in
 * between, a line grows at most linearly with the context, except for sliding windows, which bend it upwards. So the
 * plan made from the straight lines is checked: the point it chose is priced itself, and the plan made again with that
 * price. Where it does not hold after all, the model's lines are raised to it and the search is run again.
 *
 * Each point costs a dry run, so models are priced as the search comes to need them: the best and the cheapest (for the
 * ladder's minimum), which is all where the best holds the whole context; then the others; alternatives only for a
 * refusal, at the lowest context, where it is decided whether they fit. No point is priced twice. The bound is
 * POINT_MAX. */

#include "engine/exact.h"

#include "base/error.h"
#include "base/size.h"
#include "device/device.h"
#include "engine/price.h"
#include "plan/companions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two contexts of a model: at most 10 of the wishes and 14 alternatives, and what is checked. */
#define POINT_MAX 128u
#define TRIES_MAX 8u
#define CTX_TRIES 4u
#define MODEL_MAX 24u
#define TYPE_F16  1u /* a draft's cache, as it is priced by formula (plan/companions.c) */

typedef struct priced {
    bt_price_point point;
    bt_price price;
    bt_price draft; /* of the draft at the same context and micro-batch */
} priced;

/* A file, and what is known of its prices. */
typedef struct source {
    const bt_facts *facts;
    bt_wishes wishes;
    bt_price_cache *cache; /* NULL: everything is measured anew */
    bt_pricer *pricer;     /* opened when a price is not known */
} source;

typedef struct pricing {
    const bt_exact_ask *ask;
    const bt_problem *asked; /* its costs are formulas */
    source model, draft;
    uint64_t base_bytes;
    bt_arena *arena;
    priced *points; /* [POINT_MAX] */
    uint32_t n_points;
    uint32_t ctx_low, ctx_high; /* that bound the search */
} pricing;

/* The models that are priced so far, in the order of the problem's. */
typedef struct models {
    bt_costs costs[MODEL_MAX];
    uint32_t of[MODEL_MAX]; /* in the problem */
    uint32_t n;
} models;

/* ---- points ---- */

/* From the cache, or measured. */
static bt_status price_alone(const pricing *p, source *of, const bt_price_point *point, bt_price *ret, bt_error *err) {
    const bt_price *known = bt_price_cache_find(of->cache, point);
    if (known) {
        *ret = *known;
        return BT_OK;
    }
    if (!of->pricer) BT_TRY(bt_pricer_open(of->facts, &of->wishes, p->ask->n_threads, &of->pricer, err));
    BT_TRY(bt_pricer_price(of->pricer, point, ret, err));
    bt_price_cache_add(of->cache, point, ret);
    return BT_OK;
}

/* Where guesses are verified (a few rows of logits), prompts and single steps want one row as ever: their graphs are
 * others, and may take more. */
static bt_status price_find(pricing *p, const bt_price_point *point, bt_price *ret, bt_error *err) {
    BT_TRY(price_alone(p, &p->model, point, ret, err));
    if (point->n_outputs_max <= 1 || point->n_outputs_max > BT_TOKEN_BY_TOKEN_MAX || ret->error.status != BT_OK)
        return BT_OK;
    bt_price_point single = *point;
    bt_price one;
    single.n_outputs_max = 1;
    BT_TRY(price_alone(p, &p->model, &single, &one, err));
    if (one.error.status != BT_OK) return BT_OK;
    ret->compute_bytes = bt_max_u64(ret->compute_bytes, one.compute_bytes);
    ret->metadata_bytes = bt_max_u64(ret->metadata_bytes, one.metadata_bytes);
    ret->staging_bytes = bt_max_u64(ret->staging_bytes, one.staging_bytes);
    return BT_OK;
}

/* The draft's session as engine/draft.c makes it. */
static bt_status draft_find(pricing *p, priced *entry, const bt_price_point *point, bt_error *err) {
    const bt_price_point own = {.n_ctx = point->n_ctx,
                                .n_ubatch = point->n_ubatch,
                                .n_parallel = 1,
                                .n_outputs_max = 1,
                                .type_k = p->draft.wishes.type_k,
                                .type_v = p->draft.wishes.type_v};
    if (!p->ask->draft || entry->price.error.status != BT_OK) return BT_OK;
    BT_TRY(price_alone(p, &p->draft, &own, &entry->draft, err));
    entry->price.error = entry->draft.error;
    return BT_OK;
}

/* BT_OK with a price whose error says that libllama cannot have it. */
static bt_status price_of(pricing *p, const bt_costs *model, uint32_t n_ctx, const priced **ret, bt_error *err) {
    n_ctx =
        bt_ctx_round(model, n_ctx); /* what libllama makes of it: the rows of logits that it brings are priced too */
    bt_price_point point = {
        .n_ctx = n_ctx,
        .n_ubatch = model->n_ubatch,
        .n_parallel = model->n_parallel,
        .n_outputs_max = (uint32_t)bt_max_u64(p->ask->outputs(n_ctx, model->n_ubatch), p->asked->wishes.n_outputs),
        .type_k = model->type_k,
        .type_v = model->type_v};
    for (uint32_t i = 0; i < p->n_points; i++)
        if (bt_price_point_equal(&p->points[i].point, &point)) {
            *ret = &p->points[i];
            return BT_OK;
        }
    if (p->n_points == POINT_MAX)
        return bt_fail(err, BT_E_LIMIT, "plan_size", BT_MEASURE_ITEMS, POINT_MAX + 1, POINT_MAX,
                       "planning took more than %u dry runs", POINT_MAX);
    priced *entry = &p->points[p->n_points];
    BT_TRY(price_find(p, &point, &entry->price, err));
    BT_TRY(draft_find(p, entry, &point, err));
    entry->point = point;
    p->n_points++;
    *ret = entry;
    return BT_OK;
}

/* ---- lines ---- */

/* A line through two prices, exact at one end: at the context that was asked for, else at the lowest, since that is
 * where a minimum is printed. In between and at the other end it is too high by less than a byte a token. */
static void set_line(const pricing *p, bt_costs *costs, bt_line line, uint64_t low, uint64_t high,
                     const uint32_t ctx[2]) {
    bool at_high = p->asked->wishes.n_ctx > 0 && !p->asked->wishes.allow_ctx_reduction;
    uint64_t range = ctx[1] > ctx[0] ? ctx[1] - ctx[0] : 0;
    uint64_t rise = range > 0 ? bt_sat_sub_u64(high, low) : 0;
    uint64_t slope = range > 0 ? (at_high ? rise / range : (rise + range - 1) / range) : 0;
    bt_cost *cost = &costs->line[line];
    cost->per_ctx_bytes = slope;
    cost->per_window_bytes = 0;
    cost->floor_bytes = 0;
    cost->fixed_bytes = range == 0 || at_high ? bt_sat_sub_u64(bt_max_u64(low, high), slope * ctx[1])
                                              : bt_sat_sub_u64(low, slope * ctx[0]);
    cost->source = BT_SOURCE_DRY_RUN;
}

/* Heaps are measured in pages that depend a little on where the system put them. A plan must not: the same model and
 * wishes give the same plan, so measured lines are planned in steps of 256 KiB, with a quarter step in hand. */
static uint64_t in_steps(uint64_t bytes) {
    const uint64_t step = 256u << 10;
    return (bytes + step / 4 + step - 1) / step * step;
}

/* What a draft holds for computing at a context: a graph, a row of logits, and the tokens it has read. It draws none,
 * so there are no candidates. */
static uint64_t draft_compute_bytes(const pricing *p, const bt_price *price) {
    uint64_t logits_bytes = bt_sat_sub_u64(price->logits_bytes, bt_price_sampler_bytes(p->ask->draft));
    return in_steps(price->compute_bytes) + logits_bytes + UINT64_C(4) * price->n_ctx;
}

static uint64_t draft_vocab_bytes(const pricing *p, const bt_price *price) {
    return in_steps(price->vocab_bytes) + in_steps(price->metadata_bytes + p->ask->draft->arena_bytes);
}

/* The lines of a draft; its weights are known. It is loaded when the model's vocabulary is there and nothing else is.
 */
static void fit_draft(const pricing *p, const priced *low, const priced *high, bt_costs *ret) {
    const bt_price *a = &low->draft;
    const bt_price *b = &high->draft;
    const uint32_t ctx[2] = {a->n_ctx, b->n_ctx};
    set_line(p, ret, BT_LINE_DRAFT_KV, a->kv_bytes, b->kv_bytes, ctx);
    set_line(p, ret, BT_LINE_DRAFT_COMPUTE, draft_compute_bytes(p, a), draft_compute_bytes(p, b), ctx);
    set_line(p, ret, BT_LINE_DRAFT_VOCAB, draft_vocab_bytes(p, a), draft_vocab_bytes(p, b), ctx);
    set_line(p, ret, BT_LINE_STAGING, bt_max_u64(low->price.staging_bytes, a->staging_bytes),
             bt_max_u64(high->price.staging_bytes, b->staging_bytes), ctx);
    static const bt_line held[] = {BT_LINE_BASE, BT_LINE_VOCAB, BT_LINE_METADATA, BT_LINE_OUTPUT_NORM};
    uint64_t peak_bytes = in_steps(bt_max_u64(a->load_peak_bytes, b->load_peak_bytes));
    bt_ledger ledger;
    if (!bt_costs_at(ret, ctx[1], &ledger)) return; /* more than can be counted: refused anyway */
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        peak_bytes = bt_sat_add_u64(peak_bytes, ledger.bytes[held[i]]);
    ret->load_peak_bytes = bt_max_u64(ret->load_peak_bytes, peak_bytes);
    ret->load_peak_bytes = bt_sat_add_u64(ret->load_peak_bytes, p->ask->draft->arena_bytes);
}

/* A cost model whose lines pass through two prices. What a dry run does not price keeps its formula. */
static void fit(const pricing *p, const bt_costs *formula, const priced *at_low, const priced *at_high, bt_costs *ret) {
    const bt_price *low = &at_low->price;
    const bt_price *high = &at_high->price;
    const uint32_t ctx[2] = {low->n_ctx, high->n_ctx};
    const uint32_t nowhere[2] = {0, 0};
    *ret = *formula;
    uint64_t base_bytes = in_steps(p->base_bytes);
    set_line(p, ret, BT_LINE_BASE, base_bytes, base_bytes, nowhere);
    ret->line[BT_LINE_BASE].source = BT_SOURCE_MEASURED;
    set_line(p, ret, BT_LINE_VOCAB, in_steps(low->vocab_bytes), in_steps(high->vocab_bytes), ctx);
    ret->line[BT_LINE_VOCAB].source = BT_SOURCE_MEASURED;
    uint64_t ours = p->ask->facts->arena_bytes;
    set_line(p, ret, BT_LINE_METADATA, in_steps(low->metadata_bytes + ours), in_steps(high->metadata_bytes + ours),
             ctx);
    set_line(p, ret, BT_LINE_KV, low->kv_bytes, high->kv_bytes, ctx);
    set_line(p, ret, BT_LINE_COMPUTE, in_steps(low->compute_bytes), in_steps(high->compute_bytes), ctx);
    set_line(p, ret, BT_LINE_LOGITS, low->logits_bytes, high->logits_bytes, ctx);
    set_line(p, ret, BT_LINE_OUTPUT_NORM, low->small_bytes, high->small_bytes, ctx);
    ret->line[BT_LINE_OUTPUT_NORM].source = BT_SOURCE_TENSOR;
    set_line(p, ret, BT_LINE_STAGING, low->staging_bytes, high->staging_bytes, ctx);
    ret->load_peak_bytes = base_bytes + in_steps(bt_max_u64(low->load_peak_bytes, high->load_peak_bytes));
    ret->load_peak_bytes = bt_sat_add_u64(ret->load_peak_bytes, bt_companions_held_bytes(formula));
    if (p->ask->draft) fit_draft(p, at_low, at_high, ret);
}

/* KV that bends (sliding windows) is taken from the formula when that is exact. */
static void keep_exact_kv(const pricing *p, const bt_costs *formula, const bt_price *high, bt_costs *costs) {
    bt_ledger ledger;
    if (!p->ask->facts->kv_known || !p->ask->facts->kv_exact || !bt_costs_at(formula, high->n_ctx, &ledger)) return;
    if (ledger.bytes[BT_LINE_KV] == high->kv_bytes) costs->line[BT_LINE_KV] = formula->line[BT_LINE_KV];
}

/* Which price a model has at two contexts. Below its own size a micro-batch is cut to the context: another graph, off
 * the line. ret_error: of the point that cannot be had, if any. */
static bt_status model_price(pricing *p, const bt_costs *formula, uint32_t ctx_low, bt_costs *ret,
                             bt_error *ret_unpriced, bt_error *err) {
    uint32_t low = (uint32_t)bt_min_u64(bt_max_u64(ctx_low, formula->n_ubatch), p->ctx_high);
    const priced *at_low = NULL;
    const priced *at_high = NULL;
    BT_TRY(price_of(p, formula, p->ctx_high, &at_high, err));
    BT_TRY(price_of(p, formula, low, &at_low, err));
    *ret_unpriced = at_high->price.error.status != BT_OK ? at_high->price.error : at_low->price.error;
    if (ret_unpriced->status != BT_OK) return BT_OK;
    fit(p, formula, at_low, at_high, ret);
    keep_exact_kv(p, formula, &at_high->price, ret);
    return BT_OK;
}

/* Price a model of the problem and put it in its place, unless it is there. Types that were asked for must be had;
 * those that auto may take are left out where libllama refuses them. */
static bt_status models_add(pricing *p, uint32_t of, models *m, bt_error *err) {
    uint32_t at = 0;
    while (at < m->n && m->of[at] < of)
        at++;
    if ((at < m->n && m->of[at] == of) || m->n == MODEL_MAX) return BT_OK;
    const bt_costs *formula = &p->asked->costs[of];
    bt_costs costs;
    bt_error unpriced;
    BT_TRY(model_price(p, formula, p->ctx_low, &costs, &unpriced, err));
    bool asked = formula->type_k == p->asked->costs[0].type_k && formula->type_v == p->asked->costs[0].type_v;
    if (unpriced.status != BT_OK) {
        if (!asked) return BT_OK;
        if (err) *err = unpriced;
        return unpriced.status;
    }
    memmove(&m->costs[at + 1], &m->costs[at], (m->n - at) * sizeof *m->costs);
    memmove(&m->of[at + 1], &m->of[at], (m->n - at) * sizeof *m->of);
    m->costs[at] = costs;
    m->of[at] = of;
    m->n++;
    return BT_OK;
}

/* ---- one point, checked ---- */

/* Lines that an exact price found too low are raised to it. */
static void raise_lines(bt_costs *model, const bt_costs *exact, uint32_t n_ctx) {
    bt_ledger want;
    bt_ledger have;
    if (!bt_costs_at(exact, n_ctx, &want) || !bt_costs_at(model, n_ctx, &have)) return;
    for (int i = 0; i < BT_LINE_COUNT; i++)
        model->line[i].fixed_bytes =
            bt_sat_add_u64(model->line[i].fixed_bytes, bt_sat_sub_u64(want.bytes[i], have.bytes[i]));
    model->load_peak_bytes = bt_max_u64(model->load_peak_bytes, exact->load_peak_bytes);
}

/* Plan at one context and cost model with the prices of exactly that point. */
static bt_status plan_at(pricing *p, const bt_problem *problem, bt_costs *model, uint32_t n_ctx, bt_plan *ret_plan,
                         bt_error *err) {
    const priced *found = NULL;
    BT_TRY(price_of(p, model, n_ctx, &found, err));
    if (found->price.error.status != BT_OK) {
        if (err) *err = found->price.error;
        return found->price.error.status;
    }
    bt_costs *exact = bt_arena_array(p->arena, 1, sizeof *exact);
    if (!exact) return bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to make a plan");
    fit(p, model, found, found, exact);
    exact->ctx_min = n_ctx;
    bt_problem at = *problem;
    at.costs = exact;
    at.n_costs = 1;
    at.n_alternatives = 0;
    at.n_ctx_default_cap = n_ctx;
    at.wishes.n_ctx = at.wishes.n_ctx ? n_ctx : 0;
    BT_TRY(bt_plan_make(&at, p->arena, ret_plan, err));
    if (ret_plan->verdict == BT_REFUSED) raise_lines(model, exact, n_ctx);
    return BT_OK;
}

/* The plan made with the prices of one point speaks of the search that led there. */
static void keep_search(const bt_problem *asked, const bt_plan *first, bt_plan *plan) {
    plan->wishes = asked->wishes;
    plan->n_ctx_requested = asked->wishes.n_ctx;
    memcpy(plan->ctx_reason, first->ctx_reason, sizeof plan->ctx_reason);
    memcpy(plan->ladder, first->ladder, sizeof plan->ladder);
    plan->exact = first->exact;
    plan->priced_by_dry_run = true;
}

static bt_costs *model_of(models *m, const bt_plan *plan) {
    for (uint32_t i = 0; i < m->n; i++)
        if (m->costs[i].n_ubatch == plan->n_ubatch && m->costs[i].type_k == plan->type_k &&
            m->costs[i].type_v == plan->type_v)
            return &m->costs[i];
    return &m->costs[0]; /* a batch smaller than the micro-batch that was asked for */
}

static bt_problem problem_of(const bt_problem *asked, const models *m) {
    bt_problem problem = *asked;
    problem.costs = m->costs;
    problem.n_costs = m->n;
    problem.n_alternatives = 0;
    problem.kv_known = true; /* libllama was asked: every architecture is known */
    return problem;
}

/* The best plan under the models priced so far. */
static bt_status search(pricing *p, const bt_problem *asked, models *m, bt_plan *ret_plan, bt_error *err) {
    bt_problem problem = problem_of(asked, m);
    bt_plan best_ladder = {0};
    for (uint32_t tries = 0; tries < TRIES_MAX; tries++) {
        bt_plan first;
        BT_TRY(bt_plan_make(&problem, p->arena, &first, err));
        if (tries == 0) best_ladder = first;
        memcpy(first.ladder, best_ladder.ladder, sizeof first.ladder);
        first.priced_by_dry_run = true;
        *ret_plan = first;
        if (first.verdict == BT_REFUSED) return BT_OK;
        bt_costs *model = model_of(m, &first);
        BT_TRY(plan_at(p, &problem, model, first.n_ctx, ret_plan, err));
        keep_search(asked, &first, ret_plan);
        if (ret_plan->verdict != BT_REFUSED) return BT_OK;
    }
    return BT_OK; /* the last refusal, with what it would need */
}

/* ---- refusals ---- */

/* The cheapest model of each alternative, at the lowest context. */
static bt_status alternatives_price(pricing *p, uint32_t ctx_lowest, bt_costs *costs, uint32_t n_costs,
                                    bt_alternative *others, uint32_t *ret_n, bt_error *err) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->asked->n_alternatives && n_costs + n < MODEL_MAX; i++) {
        const bt_alternative *other = &p->asked->alternatives[i];
        const bt_costs *formula = &p->asked->costs[other->first_cost + other->n_costs - 1];
        uint32_t n_ctx = (uint32_t)bt_max_u64(ctx_lowest, formula->ctx_min);
        if (p->asked->wishes.n_ctx == 0 || p->asked->wishes.allow_ctx_reduction) n_ctx = formula->ctx_min;
        const priced *found = NULL;
        BT_TRY(price_of(p, formula, n_ctx, &found, err));
        if (found->price.error.status != BT_OK) continue;
        fit(p, formula, found, found, &costs[n_costs + n]);
        others[n] = *other;
        others[n].first_cost = n_costs + n;
        others[n].n_costs = 1;
        n++;
    }
    *ret_n = n;
    return BT_OK;
}

/* The least budget at which a problem runs, checked: the lines may promise a little less. */
static bt_status need_check(pricing *p, const bt_problem *asked, models *m, uint64_t *need_bytes, bt_error *err) {
    bt_problem problem = *asked;
    for (uint32_t i = 0; i < CTX_TRIES; i++) {
        bt_plan plan;
        problem.budget_bytes = *need_bytes;
        BT_TRY(search(p, &problem, m, &plan, err));
        if (plan.verdict != BT_REFUSED) return BT_OK;
        *need_bytes = bt_max_u64(*need_bytes, plan.refusal.need_bytes);
    }
    return BT_OK;
}

/* A smaller context is suggested from the lines; try it, and less where it does not hold. */
static bt_status ctx_change_check(pricing *p, models *m, bt_change *change, bool *ret_holds, bt_error *err) {
    *ret_holds = false;
    uint32_t n_ctx = (uint32_t)strtoul(change->value, NULL, 10);
    uint32_t step = m->costs[0].ctx_step;
    for (uint32_t i = 0; i < CTX_TRIES && n_ctx >= m->costs[0].ctx_min; i++, n_ctx -= step) {
        bt_problem smaller = *p->asked;
        smaller.wishes.n_ctx = n_ctx;
        bt_plan plan;
        BT_TRY(search(p, &smaller, m, &plan, err));
        if (plan.verdict == BT_REFUSED) continue;
        (void)snprintf(change->value, sizeof change->value, "%u", n_ctx);
        change->need_bytes = plan.ladder[BT_RUNG_MINIMUM].budget_bytes;
        *ret_holds = true;
        return need_check(p, &smaller, m, &change->need_bytes, err);
    }
    return BT_OK;
}

/* The refusal again, with everything that might be suggested priced. */
static bt_status refuse(pricing *p, models *m, bt_plan *ret_plan, bt_error *err) {
    uint32_t asked_low = p->ctx_low;
    p->ctx_low = (uint32_t)bt_min_u64(p->asked->costs[0].ctx_min, p->ctx_high);
    m->n = 0;
    for (uint32_t i = 0; i < p->asked->n_costs; i++)
        BT_TRY(models_add(p, i, m, err));
    bt_problem problem = problem_of(p->asked, m);
    bt_alternative *others = bt_arena_array(p->arena, (uint64_t)p->asked->n_alternatives + 1, sizeof *others);
    if (!others) return bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to make a plan");
    BT_TRY(alternatives_price(p, asked_low, m->costs, m->n, others, &problem.n_alternatives, err));
    problem.alternatives = others;
    BT_TRY(bt_plan_make(&problem, p->arena, ret_plan, err));
    ret_plan->priced_by_dry_run = true;
    bt_refusal *refusal = &ret_plan->refusal;
    if (ret_plan->verdict != BT_REFUSED || refusal->n_changes == 0 || strcmp(refusal->changes[0].flag, "-c") != 0)
        return BT_OK;
    bool holds = false;
    BT_TRY(ctx_change_check(p, m, &refusal->changes[0], &holds, err));
    if (holds) return BT_OK;
    memmove(&refusal->changes[0], &refusal->changes[1], (refusal->n_changes - 1) * sizeof *refusal->changes);
    refusal->n_changes--;
    return BT_OK;
}

/* ---- in stages ---- */

/* Contexts that bound the search. */
static void context_range(pricing *p) {
    const bt_problem *asked = p->asked;
    uint32_t high = asked->wishes.n_ctx;
    if (high == 0) {
        high = asked->n_ctx_default_cap;
        if (asked->n_ctx_train > 0) high = (uint32_t)bt_min_u64(high, asked->n_ctx_train);
    }
    uint32_t low = asked->wishes.n_ctx && !asked->wishes.allow_ctx_reduction ? high : asked->costs[0].ctx_min;
    p->ctx_low = (uint32_t)bt_min_u64(low, high);
    p->ctx_high = high;
}

/* Whether no other model can rank higher. */
static bool is_settled(const pricing *p, const bt_plan *plan) {
    if (plan->verdict == BT_REFUSED || !plan->exact || plan->n_ctx < p->ctx_high) return false;
    return p->asked->wishes.policy == BT_POLICY_CTX || plan->verdict == BT_FITS;
}

/* Price the models whose micro-batch is small, or the others, and search all that are priced. */
static bt_status stage(pricing *p, bool small, models *m, bt_plan *ret_plan, bt_error *err) {
    for (uint32_t i = 0; i < p->asked->n_costs; i++)
        if ((p->asked->costs[i].n_ubatch < BT_UBATCH_FLOOR) == small) BT_TRY(models_add(p, i, m, err));
    return search(p, p->asked, m, ret_plan, err);
}

static bt_status in_stages(pricing *p, bt_plan *ret_plan, bt_error *err) {
    models *m = bt_arena_array(p->arena, 1, sizeof *m);
    p->points = bt_arena_array(p->arena, POINT_MAX, sizeof *p->points);
    if (!m || !p->points)
        return bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to make a plan");
    m->n = 0;
    BT_TRY(models_add(p, 0, m, err));
    BT_TRY(models_add(p, p->asked->n_costs - 1, m, err));
    BT_TRY(search(p, p->asked, m, ret_plan, err));
    if (!is_settled(p, ret_plan)) BT_TRY(stage(p, false, m, ret_plan, err));
    uint64_t floor = bt_min_u64(p->ctx_high, (uint64_t)BT_CTX_FLOOR * bt_max_u64(p->asked->costs[0].n_parallel, 1));
    bool runs = ret_plan->verdict != BT_REFUSED && ret_plan->n_ubatch >= BT_UBATCH_FLOOR && ret_plan->n_ctx >= floor;
    bool settled = is_settled(p, ret_plan) || (p->asked->wishes.policy == BT_POLICY_CTX && runs);
    if (!settled) BT_TRY(stage(p, true, m, ret_plan, err));
    return ret_plan->verdict == BT_REFUSED ? refuse(p, m, ret_plan, err) : BT_OK;
}

/* A refusal chose none: then that of the last point. */
static void chosen_price(const pricing *p, const bt_plan *plan, bt_price *ret) {
    for (uint32_t i = 0; i < p->n_points; i++) {
        const bt_price_point *point = &p->points[i].point;
        *ret = p->points[i].price;
        if (point->n_ctx == plan->n_ctx && point->n_ubatch == plan->n_ubatch && point->type_k == plan->type_k &&
            point->type_v == plan->type_v)
            return;
    }
}

bt_wishes bt_exact_draft_wishes(const bt_wishes *wishes) {
    return (bt_wishes){.n_batch = wishes->n_batch,
                       .n_parallel = 1,
                       .flash_attn = wishes->flash_attn,
                       .type_k = TYPE_F16,
                       .type_v = TYPE_F16};
}

bt_status bt_exact_plan(const bt_exact_ask *ask, const bt_problem *problem, bt_arena *arena, bt_plan *ret_plan,
                        bt_error *err) {
    pricing p = {
        .ask = ask,
        .asked = problem,
        .model = {.facts = ask->facts, .wishes = problem->wishes, .cache = ask->cache},
        .draft = {.facts = ask->draft, .wishes = bt_exact_draft_wishes(&problem->wishes), .cache = ask->draft_cache},
        .base_bytes = bt_price_cache_base(ask->cache, ask->base_bytes),
        .arena = arena};
    BT_TRY(bt_plan_wishes_check(problem, err)); /* before a context of 2^30 is tried, which takes minutes */
    context_range(&p);
    /* Loading goes on in the child while the first plans are made, unless they will not need it. */
    if (bt_price_cache_count(ask->cache) == 0)
        BT_TRY(bt_pricer_open(ask->facts, &problem->wishes, ask->n_threads, &p.model.pricer, err));
    bt_status status = in_stages(&p, ret_plan, err);
    if (status == BT_OK && ask->ret_price) chosen_price(&p, ret_plan, ask->ret_price);
    bt_pricer_close(p.model.pricer);
    bt_pricer_close(p.draft.pricer);
    bt_price_cache_save(ask->cache);
    bt_price_cache_save(ask->draft_cache);
    return status;
}
