/* SPDX-License-Identifier: MIT
 *
 * costs.c: prices by formula, where libllama is not loaded (docs/design.md section 6a).
 *
 * Weights are exact: they come from the tensor table. KV and state are exact too (kv.c), computing is a closed form
 * that errs upwards (compute.c); docs/prices.md has them all, and tests/truth/test_architectures.py holds them to dry
 * runs. Some lines cannot be known from a file and are given (process base, vocabulary) or bounded by a stated constant
 * (threads, schedules); a dry run replaces them all. The caller resolves wishes->n_threads first: 0 is priced as one
 * thread. */
#include "plan/costs.h"
#include "base/error.h"
#include "base/size.h"
#include "model/experts.h"
#include "model/types.h"
#include "plan/price.h"

#include <inttypes.h>

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1) << 20)

/* libllama's own record of a tensor (struct, name, loader entry), beside ours: under 1 KiB each. */
#define TENSOR_RECORD_BYTES KIB
/* A schedule of the device holds a copy of each node of a graph. For each tensor there are 2.3 to 4 nodes in a plain
 * transformer, and up to 7 where there are experts, recurrent mixers or fused matrices; the most that was measured over
 * the shapes of tests/support/shapes.py. A prompt of many micro-batches makes all schedules that may be kept
 * (src/device/device.h: BT_SCHEDULE_MAX); an encoder has one graph. */
#define SCHEDULE_PLAIN_BYTES (2 * KIB + 512)
#define SCHEDULE_DENSE_BYTES (3 * KIB + 512)
#define PLAIN_BLOCK_TENSORS  7u /* fewer in a block: some are fused */
#define SCHEDULES            3u
/* Loader: 4 x 1 MiB through the device's host buffers, and the 256 KiB buffer of the virtual file (docs/design.md M2,
 * section 9). */
#define STAGING_BYTES (4 * MIB + 256 * KIB)
/* What a worker touches: its stack, thread-local storage, and the first pages of its malloc arena, which glibc grows by
 * 132 KiB at a time but touches only as used. ggml keeps its big per-thread areas in the work buffer, priced in
 * compute.c. */
#define THREAD_BYTES (128 * KIB)
/* llama_token_data, one for each entry of the vocabulary: what the sampler holds (src/engine/price.c). */
#define SAMPLER_BYTES UINT64_C(12)
/* Each 4 KiB page has an entry of 8 bytes. */
#define PAGE_TABLE_DIVISOR 512u

/* ---- units ---- */

/* A row window as src/device/rows.c lays it out: for each token its row and its id, then a scratch in which
 * ROWS_AT_ONCE rows are read with all pages that may hold them. */
#define ROWS_AT_ONCE 64u
#define ROW_ID_BYTES 4u

static void row_window(const bt_tensor *tensor, bt_plan_unit *unit) {
    uint64_t pages = bt_sat_add_u64(tensor->row_bytes, UINT64_C(2) * BT_PAGE_BYTES - 1) / BT_PAGE_BYTES * BT_PAGE_BYTES;
    unit->token_rows_bytes = bt_sat_add_u64(tensor->row_bytes, ROW_ID_BYTES);
    unit->rows_bytes =
        bt_sat_add_u64(bt_sat_mul_u64(pages, ROWS_AT_ONCE), UINT64_C(2) * BT_PAGE_BYTES); /* and both aligned */
}

bt_status bt_costs_units(const bt_facts *facts, bool repacks, bt_arena *arena, bt_plan_unit **ret_units,
                         bt_error *err) {
    bt_plan_unit *units = bt_arena_array(arena, (uint64_t)facts->n_units + 1, sizeof *units);
    if (!units)
        return bt_fail(err, BT_E_NOMEM, "plan_arena", BT_MEASURE_ITEMS, facts->n_units, 0,
                       "the arena has no room for %" PRIu32 " units", facts->n_units);
    const bt_tensor *tied = NULL;
    for (uint32_t u = 0; u < facts->n_units; u++) {
        const bt_unit_facts *unit = &facts->units[u];
        units[u] = (bt_plan_unit){.pinned_bytes = unit->image_bytes,
                                  .slot_bytes = unit->image_bytes,
                                  .read_bytes = unit->image_bytes,
                                  .kind = unit->kind};
        if (repacks) units[u].layouts = bt_facts_layouts(facts, unit);
        if (unit->n_tensors == 0) continue;
        const bt_tensor *tensor = &facts->tensors[facts->unit_tensors[unit->first_tensor]];
        bool table = unit->kind == BT_KIND_TABLE;
        /* The panels of a tied table share one row window: the first carries it. */
        bool first_panel = unit->kind == BT_KIND_HEAD && tensor->role == BT_ROLE_TIED && tensor != tied;
        if (table || first_panel) row_window(tensor, &units[u]);
        if (first_panel) tied = tensor;
    }
    *ret_units = units;
    return BT_OK;
}

/* ---- KV ---- */

static bt_status kv_cost(const bt_facts *facts, const bt_wishes *wishes, uint32_t n_ubatch, uint32_t n_parallel,
                         bt_costs *costs, bt_error *err) {
    if (!facts->kv_known) return BT_OK;
    BT_TRY(bt_kv_check(facts, wishes, err));
    bt_cost cost = {.fixed_bytes = bt_kv_state_bytes(facts, n_parallel), .source = BT_SOURCE_FORMULA};
    uint32_t window = 0;
    for (uint32_t b = 0; b < facts->n_block; b++) {
        const bt_kv_block *block = &facts->kv[b];
        uint64_t cell = 0;
        if (!bt_kv_cell_bytes(facts, block, wishes, &cell))
            return bt_fail(
                err, BT_E_ARG, "kv_type", BT_MEASURE_ITEMS, block->k_width, 0,
                "block %" PRIu32 "'s KV widths %" PRIu32 " and %" PRIu32 " are no multiple of a block of %s or %s", b,
                block->k_width, block->v_width, bt_type_name(wishes->type_k), bt_type_name(wishes->type_v));
        uint64_t *sum = block->window > 0 ? &cost.per_window_bytes : &cost.per_ctx_bytes;
        *sum = bt_sat_add_u64(*sum, cell);
        if (block->window > window) window = block->window; /* libllama knows one window; of several the widest */
    }
    costs->line[BT_LINE_KV] = cost;
    uint64_t cells = window > 0 ? bt_kv_window_cells(window, n_ubatch, n_parallel, wishes->kv_unified) : 0;
    costs->window_cells = (uint32_t)bt_min_u64(cells, UINT32_MAX);
    return BT_OK;
}

/* ---- all lines ---- */

static bool costs_in_range(const bt_costs *costs) {
    for (int i = 0; i < BT_LINE_COUNT; i++) {
        const bt_cost *line = &costs->line[i];
        if (line->fixed_bytes == UINT64_MAX || line->per_ctx_bytes == UINT64_MAX ||
            line->per_window_bytes == UINT64_MAX || line->floor_bytes == UINT64_MAX)
            return false;
    }
    return costs->load_peak_bytes != UINT64_MAX;
}

uint64_t bt_sampling_bytes(const bt_facts *facts, const bt_wishes *wishes) {
    /* our own programs have one for all sequences */
    uint64_t samplers = wishes->guest && !wishes->embeddings ? bt_max_u64(wishes->n_parallel, 1) : 1;
    return bt_sat_mul_u64(SAMPLER_BYTES * facts->n_vocab, samplers);
}

/* A row of logits for each sequence, and the sampler's candidates. Of an encoder, a vector for each token, and beside
 * it a row of logits that nobody asked for: llama_context::output_reserve makes room for both. */
static uint64_t logits_bytes(const bt_facts *facts, const bt_wishes *wishes, uint32_t n_ubatch, uint32_t n_parallel) {
    uint64_t row = UINT64_C(4) * facts->n_vocab + (facts->encoder ? UINT64_C(4) * facts->n_embd : 0);
    uint64_t n_rows = bt_max_u64(n_parallel, wishes->n_outputs);
    uint64_t rows = bt_sat_mul_u64(row, facts->encoder ? n_ubatch : n_rows);
    /* a page that is touched is held whole (exact prices round in the same way, engine/price.c) */
    uint64_t pages = bt_sat_add_u64(rows, BT_PAGE_BYTES - 1) / BT_PAGE_BYTES * BT_PAGE_BYTES;
    return bt_sat_add_u64(pages, bt_sampling_bytes(facts, wishes));
}

/* Of all schedules, for each tensor. */
static uint64_t schedule_bytes(const bt_facts *facts) {
    bool plain = facts->n_expert == 0 && bt_kv_state_bytes(facts, 1) == 0 &&
                 facts->n_tensors >= PLAIN_BLOCK_TENSORS * facts->n_block;
    return (facts->encoder ? 1 : SCHEDULES) * (plain ? SCHEDULE_PLAIN_BYTES : SCHEDULE_DENSE_BYTES);
}

/* Of the least number of slots, which all blocks share; more is bought with what a plan leaves (experts.c). */
static uint64_t least_expert_bytes(const bt_facts *facts, uint32_t n_ubatch) {
    uint64_t largest = 0;
    for (uint32_t b = 0; b < facts->n_expert_blocks; b++)
        largest = bt_max_u64(largest, facts->expert_blocks[b].slot_bytes);
    return bt_sat_add_u64(bt_facts_expert_work(facts, n_ubatch).bytes, bt_sat_mul_u64(BT_EXPERT_SLOTS_MIN, largest));
}

bt_status bt_costs_experts(const bt_facts *facts, bt_arena *arena, bt_problem *problem, bt_error *err) {
    uint32_t n = facts->n_expert_blocks;
    uint64_t *slots = bt_arena_array(arena, (uint64_t)n + 1, sizeof *slots);
    uint64_t *reads = bt_arena_array(arena, (uint64_t)n + 1, sizeof *reads);
    if (!slots || !reads)
        return bt_fail(err, BT_E_NOMEM, "plan_arena", BT_MEASURE_ITEMS, n, 0,
                       "the arena has no room for the experts of %" PRIu32 " blocks", n);
    for (uint32_t b = 0; b < n; b++) {
        const bt_expert_block *block = &facts->expert_blocks[b];
        slots[b] = block->slot_bytes;
        reads[b] = block->expert_bytes;
    }
    problem->expert_slot_bytes = slots;
    problem->expert_read_bytes = reads;
    problem->n_expert_blocks = n;
    problem->n_expert = facts->n_expert;
    problem->n_expert_used = facts->n_expert_used;
    return BT_OK;
}

static void fix(bt_costs *costs, bt_line line, uint64_t bytes, bt_source source) {
    costs->line[line] = (bt_cost){.fixed_bytes = bytes, .source = source};
}

bt_status bt_costs_formula(const bt_facts *facts, const bt_wishes *wishes, const bt_base_costs *base, uint32_t n_ubatch,
                           bt_costs *ret_costs, bt_error *err) {
    uint32_t n_parallel = wishes->n_parallel > 0 ? wishes->n_parallel : 1;
    uint64_t n_threads = wishes->n_threads > 0 ? wishes->n_threads : 1;
    if (n_parallel > UINT32_MAX / BT_CTX_ALIGN)
        return bt_fail(err, BT_E_LIMIT, "plan_size", BT_MEASURE_ITEMS, n_parallel, UINT32_MAX / BT_CTX_ALIGN,
                       "%" PRIu32 " sequences are more than contexts can be counted for", n_parallel);
    uint32_t align = BT_CTX_ALIGN * bt_kv_streams(wishes);
    bt_costs costs = {.n_ubatch = n_ubatch,
                      .n_parallel = n_parallel,
                      .type_k = wishes->type_k,
                      .type_v = wishes->type_v,
                      .ctx_align = align,
                      .ctx_step = align,
                      .ctx_min = align,
                      .page_table_divisor = PAGE_TABLE_DIVISOR};
    uint64_t vocab =
        bt_sat_add_u64(base->vocab_fixed_bytes, bt_sat_mul_u64(base->vocab_per_token_bytes, facts->n_vocab));
    uint64_t records = (TENSOR_RECORD_BYTES + schedule_bytes(facts)) * facts->n_tensors;
    fix(&costs, BT_LINE_BASE, base->base_bytes, BT_SOURCE_MEASURED);
    fix(&costs, BT_LINE_VOCAB, vocab, BT_SOURCE_FORMULA);
    fix(&costs, BT_LINE_METADATA, bt_sat_add_u64(facts->arena_bytes, records), BT_SOURCE_FORMULA);
    fix(&costs, BT_LINE_THREADS, bt_sat_mul_u64(n_threads, THREAD_BYTES), BT_SOURCE_FORMULA);
    fix(&costs, BT_LINE_LOGITS, logits_bytes(facts, wishes, n_ubatch, n_parallel), BT_SOURCE_FORMULA);
    fix(&costs, BT_LINE_OUTPUT_NORM, facts->small_bytes, BT_SOURCE_TENSOR);
    fix(&costs, BT_LINE_STAGING, STAGING_BYTES, BT_SOURCE_FORMULA);
    fix(&costs, BT_LINE_ADAPTERS, wishes->adapter_bytes, BT_SOURCE_TENSOR);
    fix(&costs, BT_LINE_PROMPT_CACHE, wishes->prompt_cache_bytes, BT_SOURCE_FORMULA);
    fix(&costs, BT_LINE_CHECKPOINTS, wishes->checkpoint_bytes, BT_SOURCE_FORMULA);
    if (facts->n_expert_blocks > 0) fix(&costs, BT_LINE_EXPERTS, least_expert_bytes(facts, n_ubatch), BT_SOURCE_TENSOR);
    costs.line[BT_LINE_COMPUTE] = bt_compute_cost(facts, wishes, n_ubatch, (uint32_t)n_threads);
    BT_TRY(kv_cost(facts, wishes, n_ubatch, n_parallel, &costs, err));

    /* While the vocabulary is built: everything that is there by then, and what building it takes for a while. */
    static const bt_line loaded[] = {BT_LINE_BASE, BT_LINE_VOCAB, BT_LINE_METADATA, BT_LINE_OUTPUT_NORM,
                                     BT_LINE_STAGING};
    costs.load_peak_bytes =
        bt_sat_add_u64(base->vocab_load_fixed_bytes, bt_sat_mul_u64(base->vocab_load_per_token_bytes, facts->n_vocab));
    for (size_t i = 0; i < sizeof loaded / sizeof loaded[0]; i++)
        costs.load_peak_bytes = bt_sat_add_u64(costs.load_peak_bytes, costs.line[loaded[i]].fixed_bytes);
    if (!costs_in_range(&costs))
        return bt_fail(err, BT_E_LIMIT, "plan_size", BT_MEASURE_NONE, 0, 0,
                       "a price of this model does not fit in 64 bits");
    *ret_costs = costs;
    return BT_OK;
}
