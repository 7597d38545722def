/* SPDX-License-Identifier: MIT
 * drop_in_kit.h: what a planner would make of a command's wishes, and what must hold of every line that is written:
 * read again it says what was planned, and there is nothing left to do. For tests that define ARGV_CHECK first. */
#pragma once

#include "argv_kit.h"
#include "guard/drop_in.h"

#include <stdio.h>

/* Cells of the cache that libllama makes of so many tokens. */
static inline uint32_t kit_cells(const bt_wishes *w, uint32_t n_ctx) {
    uint32_t n_streams = w->kv_unified ? 1 : w->n_parallel;
    uint32_t all = (n_ctx + 255) / 256 * 256;
    return (all / n_streams + 255) / 256 * 256 * n_streams;
}

/* What is set stays; what is open is as given. */
static inline bt_plan kit_plan_of(const bt_wishes *w, uint32_t open_ctx, uint32_t open_ubatch) {
    bool fixed = w->n_ctx > 0 && !w->allow_ctx_reduction;
    uint32_t n_ubatch = w->n_ubatch ? w->n_ubatch : open_ubatch;
    return (bt_plan){.n_ctx_requested = w->n_ctx,
                     .n_ctx = kit_cells(w, fixed ? w->n_ctx : open_ctx),
                     .n_parallel = w->n_parallel,
                     .n_batch = w->n_batch,
                     .n_ubatch = n_ubatch < w->n_batch ? n_ubatch : w->n_batch,
                     .type_k = w->type_k,
                     .type_v = w->type_v};
}

/* again: what was read of the line that came of before and plan. */
static inline void kit_check_same(const bt_drop_in *before, const bt_plan *plan, const bt_drop_in *again) {
    const bt_wishes *w = &again->wishes;
    ARGV_CHECK(w->n_ctx > 0 && !w->allow_ctx_reduction && kit_cells(w, w->n_ctx) == plan->n_ctx);
    ARGV_CHECK(w->n_parallel == before->wishes.n_parallel && w->kv_unified == before->wishes.kv_unified);
    ARGV_CHECK(w->n_batch == plan->n_batch);
    ARGV_CHECK(w->n_ubatch == plan->n_ubatch || (w->n_ubatch == 0 && before->wishes.n_ubatch == 0));
    ARGV_CHECK(w->type_k == plan->type_k && w->type_v == plan->type_v);
    ARGV_CHECK(w->flash_attn == before->wishes.flash_attn && w->n_threads == before->wishes.n_threads);
    ARGV_CHECK(w->rope_scale_micro == before->wishes.rope_scale_micro && w->repack == before->wishes.repack);
    ARGV_CHECK(again->n_outputs_max <= before->n_outputs_max); /* less, where it is a micro-batch that was lowered */
    ARGV_CHECK(again->embeddings == before->embeddings);
    ARGV_CHECK(again->drafter_bytes == before->drafter_bytes);
    ARGV_CHECK(again->cache_ram_bytes == before->cache_ram_bytes && again->n_checkpoints == before->n_checkpoints);
}

/* The settings under which the device holds everything. */
static inline void kit_check_settings(const bt_effective *e) {
    ARGV_CHECK(e->device.text && strcmp(e->device.text, BT_DROP_IN_DEVICE) == 0);
    ARGV_CHECK(e->gpu_layers.value == 999 && e->fit.value == 0);
    ARGV_CHECK(e->load_mode.value == BT_LOAD_NONE && e->lazy_mode.value == BT_LAZY_OFF);
    ARGV_CHECK(e->rules.n > 0 && strcmp(e->rules.items[e->rules.n - 1].buffer, BT_DROP_IN_BUFFER) == 0);
    bool all = false;
    for (uint32_t i = 0; i < e->rules.n; i++)
        all = all || strcmp(e->rules.items[i].pattern, ".*") == 0;
    ARGV_CHECK(all);
}
