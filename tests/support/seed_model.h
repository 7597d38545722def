/* SPDX-License-Identifier: MIT
 *
 * seed_model.h: the `seed` cost model: the prices of research notes, seed 2 section 1.2 and its four models, as data
 * for the search. Whole blocks are units, contexts step by 128, nothing is rounded. A streamed head has a window of its
 * own beside the ring: the window stands on the head line, the unit is what a resident head costs on top, and it needs
 * no slot. A tied head is the embedding table and is always there. */
#pragma once

#include "plan/plan.h"

#include <string.h>

#define SEED_MIB       (UINT64_C(1) << 20)
#define SEED_BLOCK_MAX 32

typedef struct seed_model {
    uint32_t n_block;
    uint64_t block, scratch, logits, output_norm, embeddings, head, window, kv, resid;
    uint32_t n_ctx_train;
    bool tied;
} seed_model;

static const seed_model seed_tinyllama = {.n_block = 22,
                                          .block = 27897856,
                                          .scratch = 120832,
                                          .logits = 128000,
                                          .output_norm = 8192,
                                          .head = 53760000,
                                          .window = 1720320,
                                          .kv = 45056,
                                          .resid = 8192,
                                          .n_ctx_train = 2048};
static const seed_model seed_smollm2 = {.n_block = 30,
                                        .block = 3764736,
                                        .scratch = 34560,
                                        .logits = 196608,
                                        .output_norm = 2304,
                                        .embeddings = 30081024,
                                        .kv = 46080,
                                        .resid = 2304,
                                        .n_ctx_train = 8192,
                                        .tied = true};
static const seed_model seed_llama8b = {.n_block = 32,
                                        .block = 138936320,
                                        .scratch = 270336,
                                        .logits = 513024,
                                        .output_norm = 16384,
                                        .head = 430940160,
                                        .window = UINT64_C(1024) * 4096 * 210 / 256,
                                        .kv = 262144,
                                        .resid = 16384,
                                        .n_ctx_train = 131072};
static const seed_model seed_toy8 = {.n_block = 8,
                                     .block = 147968,
                                     .scratch = 3584,
                                     .logits = 192,
                                     .output_norm = 256,
                                     .head = 12288,
                                     .window = 12288,
                                     .kv = 2048,
                                     .resid = 256,
                                     .n_ctx_train = 1024};

typedef struct seed_problem {
    bt_problem problem;
    bt_costs costs;
    bt_plan_unit units[SEED_BLOCK_MAX + 1];
} seed_problem;

/* f16_kv: our default KV, half the seed's fp32. n_ctx 0: the default. */
static inline void seed_problem_make(seed_problem *s, const seed_model *m, uint64_t budget, uint32_t n_ctx,
                                     bool f16_kv) {
    *s = (seed_problem){0};
    bt_costs *c = &s->costs;
    c->line[BT_LINE_BASE].fixed_bytes = 25165824;
    /* scratch, attention scores (4 bytes a token) and prefill residuals are the compute line */
    c->line[BT_LINE_COMPUTE] = (bt_cost){.fixed_bytes = m->scratch, .per_ctx_bytes = 4 + m->resid};
    c->line[BT_LINE_LOGITS].fixed_bytes = m->logits;
    c->line[BT_LINE_OUTPUT_NORM].fixed_bytes = m->output_norm;
    c->line[BT_LINE_EMBEDDINGS].fixed_bytes = m->embeddings;
    c->line[BT_LINE_KV].per_ctx_bytes = f16_kv ? m->kv / 2 : m->kv;
    c->line[BT_LINE_HEAD].fixed_bytes = m->window;
    c->n_ubatch = 512;
    c->ctx_align = 1;
    c->ctx_step = 128;
    c->ctx_min = 128;
    c->head_always_resident = m->tied;
    for (uint32_t i = 0; i < m->n_block; i++)
        s->units[i] = (bt_plan_unit){
            .pinned_bytes = m->block, .slot_bytes = m->block, .read_bytes = m->block, .kind = BT_KIND_FEED_FORWARD};
    uint32_t n = m->n_block;
    if (!m->tied)
        s->units[n++] =
            (bt_plan_unit){.pinned_bytes = m->head - m->window, .read_bytes = m->head, .kind = BT_KIND_HEAD};
    s->problem = (bt_problem){
        .costs = c,
        .n_costs = 1,
        .units = s->units,
        .n_units = n,
        .wishes = {.budget_kind = BT_BUDGET_BYTES, .budget_bytes = budget, .n_ctx = n_ctx, .type_k = 1, .type_v = 1},
        .n_ctx_train = m->n_ctx_train,
        .n_ctx_default_cap = 4096,
        .budget_bytes = budget,
        .budget_state = BT_READING_REPORTED,
        .kv_known = true};
}

/* Pinned blocks: the seed does not count the head. */
static inline uint32_t seed_pinned_blocks(const seed_problem *s, const bt_plan *plan) {
    uint32_t n = 0;
    for (uint32_t u = 0; u < plan->n_units; u++)
        n += s->units[u].kind != BT_KIND_HEAD && plan->place[u] == BT_PLACE_PINNED;
    return n;
}
