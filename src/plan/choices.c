/* SPDX-License-Identifier: MIT
 *
 * choices.c: the cost models of a problem.
 *
 * A cost model is a pair of KV types and a micro-batch. Those that the wishes allow come first, in the order of the
 * ranking (docs/design.md P2): f16 before q8_0, of each the largest micro-batch first. Behind them stand those of the
 * alternatives: the same list for wishes with one change, made only so that a refusal can say what would fit. Where
 * both KV types are auto they go down together: a cache of one type halves, of one kind only it loses a quarter.
 *
 * The bound: MODEL_MAX cost models, whatever is asked. */
#include "plan/choices.h"
#include "base/error.h"
#include "base/size.h"
#include "model/types.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TYPE_F16  1u
#define TYPE_Q4_0 2u
#define TYPE_Q8_0 8u

#define BATCH_DEFAULT 2048u /* docs/interfaces.md, -b */

static const uint32_t ubatches[BT_UBATCH_MAX] = {512, 256, 128, 64, 32};

#define KV_ALTERNATIVES 2u
#define NP_ALTERNATIVES 8u /* 256 sequences (LLAMA_MAX_SEQ) halved down to one */
#define ALTERNATIVE_MAX (KV_ALTERNATIVES + (BT_UBATCH_MAX - 1) + NP_ALTERNATIVES)
#define MODEL_MAX       (UINT64_C(1) * (1 + ALTERNATIVE_MAX) * BT_KV_CHOICE_MAX * BT_UBATCH_MAX)

typedef struct maker {
    const bt_facts *facts;
    const bt_base_costs *base;
    bt_choices choices;
} maker;

typedef struct kv_pair {
    uint32_t k, v;
} kv_pair;

/* libllama wants every head to be whole blocks. */
static bool type_fits(uint32_t head_gcd, uint32_t type) {
    uint32_t block = bt_type_block_elements(type);
    return block > 0 && (head_gcd == 0 || head_gcd % block == 0);
}

/* The pairs that the wishes allow, best first. */
static uint32_t kv_pairs(const bt_facts *facts, const bt_wishes *wishes, kv_pair pairs[BT_KV_CHOICE_MAX]) {
    kv_pair best = {wishes->type_k, wishes->type_v};
    if (best.k == BT_TYPE_AUTO) best.k = TYPE_F16;
    if (best.v == BT_TYPE_AUTO) best.v = TYPE_F16;
    kv_pair less = best;
    if (wishes->type_k == BT_TYPE_AUTO && type_fits(facts->k_head_gcd, TYPE_Q8_0)) less.k = TYPE_Q8_0;
    bool flash = wishes->flash_attn != BT_OFF; /* V is quantized only under flash attention */
    if (wishes->type_v == BT_TYPE_AUTO && flash && type_fits(facts->v_head_gcd, TYPE_Q8_0)) less.v = TYPE_Q8_0;
    pairs[0] = best;
    pairs[1] = less;
    return less.k == best.k && less.v == best.v ? 1 : 2;
}

/* The micro-batches that the wishes allow, largest first. */
static uint32_t ubatch_choices(const bt_wishes *wishes, uint32_t ret_n_ubatch[BT_UBATCH_MAX]) {
    if (wishes->n_ubatch > 0) {
        ret_n_ubatch[0] = wishes->n_ubatch;
        return 1;
    }
    uint32_t n_batch = wishes->n_batch ? wishes->n_batch : BATCH_DEFAULT;
    uint32_t n = 0;
    if (n_batch < ubatches[0]) ret_n_ubatch[n++] = n_batch; /* libllama takes the smaller of the two */
    for (uint32_t i = 0; i < BT_UBATCH_MAX && n < BT_UBATCH_MAX; i++)
        if (ubatches[i] <= n_batch && (n == 0 || ubatches[i] < ret_n_ubatch[n - 1])) ret_n_ubatch[n++] = ubatches[i];
    return n;
}

/* Append the models of one pair, or none of them. */
static bt_status pair_add(maker *m, const bt_wishes *wishes, kv_pair pair, bt_error *err) {
    uint32_t n_ubatch[BT_UBATCH_MAX];
    uint32_t n_ubatches = ubatch_choices(wishes, n_ubatch);
    uint32_t first = m->choices.n_all;
    bt_wishes of = *wishes;
    of.type_k = pair.k;
    of.type_v = pair.v;
    bt_status status = BT_OK;
    for (uint32_t u = 0; u < n_ubatches && status == BT_OK; u++) {
        status = bt_costs_formula(m->facts, &of, m->base, n_ubatch[u], &m->choices.costs[m->choices.n_all], err);
        if (status == BT_OK) m->choices.n_all++;
    }
    if (status != BT_OK) m->choices.n_all = first;
    return status;
}

/* Append the models of these wishes. A lesser pair that the architecture refuses (latent attention wants two equal
 * types, some have no flash attention) is no choice. */
static bt_status models_add(maker *m, const bt_wishes *wishes, bt_error *err) {
    kv_pair pairs[BT_KV_CHOICE_MAX];
    uint32_t n_pairs = kv_pairs(m->facts, wishes, pairs);
    BT_TRY(pair_add(m, wishes, pairs[0], err));
    for (uint32_t p = 1; p < n_pairs; p++)
        (void)pair_add(m, wishes, pairs[p], NULL);
    return BT_OK;
}

static void alternative_add(maker *m, const char *flag, const char *value, const bt_wishes *wishes) {
    uint32_t first = m->choices.n_all;
    if (models_add(m, wishes, NULL) != BT_OK) {
        m->choices.n_all = first;
        return;
    }
    bt_alternative *other = &m->choices.alternatives[m->choices.n_alternatives++];
    *other = (bt_alternative){.first_cost = first, .n_costs = m->choices.n_all - first};
    (void)snprintf(other->flag, sizeof other->flag, "%s", flag);
    (void)snprintf(other->value, sizeof other->value, "%s", value);
}

/* Whether a row of the first type takes less memory: a block of 32 divides the row of every quantized type. */
static bool type_is_smaller(uint32_t type, uint32_t than) {
    uint64_t a = (uint64_t)bt_type_block_bytes(type) * bt_type_block_elements(than);
    uint64_t b = (uint64_t)bt_type_block_bytes(than) * bt_type_block_elements(type);
    return a < b;
}

static void kv_alternatives(maker *m, const bt_wishes *wishes) {
    static const uint32_t types[KV_ALTERNATIVES] = {TYPE_Q8_0, TYPE_Q4_0};
    kv_pair pairs[BT_KV_CHOICE_MAX];
    kv_pair least = pairs[kv_pairs(m->facts, wishes, pairs) - 1];
    for (uint32_t i = 0; i < KV_ALTERNATIVES; i++) {
        const char *name = bt_type_name(types[i]);
        bool k = type_is_smaller(types[i], least.k) && type_fits(m->facts->k_head_gcd, types[i]);
        bool v = type_is_smaller(types[i], least.v) && type_fits(m->facts->v_head_gcd, types[i]) &&
                 wishes->flash_attn != BT_OFF;
        if (!k && !v) continue;
        bt_wishes changed = *wishes;
        if (k) changed.type_k = types[i];
        if (v) changed.type_v = types[i];
        char value[24];
        (void)snprintf(value, sizeof value, k && v ? "%s -ctv %s" : "%s", name, name);
        alternative_add(m, k ? "-ctk" : "-ctv", value, &changed);
    }
}

static void number_alternative(maker *m, const char *flag, uint32_t number, const bt_wishes *wishes) {
    char value[24];
    (void)snprintf(value, sizeof value, "%" PRIu32, number);
    alternative_add(m, flag, value, wishes);
}

static void alternatives_make(maker *m, const bt_wishes *wishes) {
    kv_alternatives(m, wishes);
    for (uint32_t i = 0; i < BT_UBATCH_MAX && wishes->n_ubatch > 0; i++) {
        bt_wishes changed = *wishes;
        changed.n_ubatch = ubatches[i];
        if (i > 0 && ubatches[i] < wishes->n_ubatch) number_alternative(m, "-ub", ubatches[i], &changed);
    }
    bt_wishes changed = *wishes;
    for (uint32_t i = 0; i < NP_ALTERNATIVES && changed.n_parallel > 1; i++) {
        changed.n_parallel /= 2;
        number_alternative(m, "-np", changed.n_parallel, &changed);
    }
}

static bt_status types_check(const bt_facts *facts, const bt_wishes *wishes, bt_error *err) {
    const uint32_t asked[] = {wishes->type_k, wishes->type_v};
    for (uint32_t i = 0; i < 2; i++)
        if (asked[i] != BT_TYPE_AUTO && !bt_type_is_cache(asked[i]))
            return bt_fail(err, BT_E_ARG, "kv_type", BT_MEASURE_NONE, 0, 0,
                           "a KV cache is f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0 or iq4_nl, not %s",
                           bt_type_name(asked[i]));
    bool k = wishes->type_k == BT_TYPE_AUTO || type_fits(facts->k_head_gcd, wishes->type_k);
    bool v = wishes->type_v == BT_TYPE_AUTO || type_fits(facts->v_head_gcd, wishes->type_v);
    if (k && v) return BT_OK;
    uint32_t type = k ? wishes->type_v : wishes->type_k;
    uint32_t head = k ? facts->v_head_gcd : facts->k_head_gcd;
    return bt_fail(err, BT_E_ARG, "kv_type", BT_MEASURE_ITEMS, head, bt_type_block_elements(type),
                   "KV heads of %" PRIu32 " elements are no whole number of blocks of %s", head, bt_type_name(type));
}

bt_status bt_choices_make(const bt_facts *facts, const bt_wishes *wishes, const bt_base_costs *base, bt_arena *arena,
                          bt_choices *ret, bt_error *err) {
    BT_TRY(types_check(facts, wishes, err));
    maker m = {.facts = facts, .base = base};
    m.choices.costs = bt_arena_array(arena, MODEL_MAX, sizeof *m.choices.costs);
    m.choices.alternatives = bt_arena_array(arena, ALTERNATIVE_MAX, sizeof *m.choices.alternatives);
    if (!m.choices.costs || !m.choices.alternatives)
        return bt_fail(err, BT_E_NOMEM, "plan_arena", BT_MEASURE_ITEMS, MODEL_MAX, 0,
                       "the arena has no room for the plan's prices");
    BT_TRY(models_add(&m, wishes, err));
    m.choices.n_costs = m.choices.n_all;
    alternatives_make(&m, wishes);
    *ret = m.choices;
    return BT_OK;
}
