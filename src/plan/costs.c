/* SPDX-License-Identifier: MIT
 *
 * costs.c: prices by formula, where libllama is not loaded (docs/design.md section 6a).
 *
 * Weights are exact: they come from the tensor table. The rest are the closed forms of research notes, llama.cpp 2 and
 * 3, checked there against measured buffers; they err upwards. Three lines cannot be known from a file and are given
 * (process base, vocabulary) or bounded by a stated constant (threads, schedules); a dry run replaces them all. The
 * caller resolves wishes->n_threads first: 0 is priced as one thread. */
#include "plan/costs.h"
#include "base/error.h"
#include "base/size.h"
#include "model/types.h"
#include "plan/price.h"

#include <inttypes.h>
#include <string.h>

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1) << 20)

/* libllama's own record of a tensor (struct, name, loader entry), beside ours: under 1 KiB each. */
#define TENSOR_RECORD_BYTES KIB
/* Loader: 4 x 1 MiB through the device's host buffers, and the 256 KiB buffer of the virtual file (docs/design.md M2,
 * section 9). */
#define STAGING_BYTES (4 * MIB + 256 * KIB)
/* What a worker touches: its stack, thread-local storage, and the first pages of its malloc arena, which glibc grows by
 * 132 KiB at a time but touches only as used. ggml keeps its big per-thread areas in the work buffer, priced below. */
#define THREAD_BYTES (128 * KIB)
/* Tensor structs of the graph and of the scheduler's copies: some 45 nodes and leaves a block, 368 bytes each, in three
 * arenas; and the hash tables of the scheduler (research notes, llama.cpp 3.4). */
#define GRAPH_BLOCK_BYTES (64 * KIB)
#define GRAPH_FIXED_BYTES MIB
/* Work area of ggml's tiled matrix product, each thread (research notes, llama.cpp 3.4). */
#define TILE_BYTES (512 * KIB)
/* ggml's flash attention takes 64 queries and keys at a time. */
#define FLASH_TILE UINT64_C(64)
/* Each 4 KiB page has an entry of 8 bytes. */
#define PAGE_TABLE_DIVISOR 512u

#define TYPE_F32  0u
#define TYPE_F16  1u
#define TYPE_BF16 30u

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

bt_status bt_costs_units(const bt_facts *facts, bt_arena *arena, bt_plan_unit **ret_units, bt_error *err) {
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

/* ---- compute ---- */

/* Bytes of one element of a matrix product's right side, in 256ths: it is converted to the type that the left side's
 * kernel wants. K-quants want 292 bytes for 256 elements, the most of all quantised types. */
static uint64_t operand_256ths(uint32_t type) {
    switch (type) {
    case TYPE_F32:
        return 0; /* taken as it is */
    case TYPE_F16:
    case TYPE_BF16:
        return 512;
    default:
        return 292;
    }
}

/* Hidden width of an expert: rows of its up projection. */
static uint64_t expert_width(const bt_facts *facts) {
    uint64_t width = 0;
    for (uint32_t i = 0; i < facts->n_tensors; i++)
        if (strstr(facts->tensors[i].name, "ffn_up_exps")) width = bt_max_u64(width, facts->tensors[i].ne[1]);
    return width > 0 ? width : facts->n_ff;
}

/* Floats that live at once for each token of the micro-batch. */
static uint64_t live_floats(const bt_facts *facts) {
    uint64_t embd = facts->n_embd;
    uint64_t dense = bt_sat_add_u64(4 * embd, UINT64_C(3) * facts->n_ff);
    if (facts->n_expert == 0) return dense;
    uint64_t used = facts->n_expert_used;
    uint64_t hidden = bt_sat_mul_u64(3 * used, expert_width(facts));
    return bt_max_u64(dense, bt_sat_add_u64(5 * embd, bt_sat_add_u64(hidden, used * embd)));
}

/* ggml's work buffer is the most that one node asks for. */
static uint64_t work_bytes(const bt_facts *facts, uint64_t n_ubatch, uint64_t n_threads) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < facts->n_tensors; i++) {
        const bt_tensor *tensor = &facts->tensors[i];
        if (tensor->role == BT_ROLE_UNUSED || tensor->n_dims < 2) continue;
        most = bt_max_u64(most, bt_mul_div_u64(tensor->ne[0], operand_256ths(tensor->type), 256));
    }
    uint64_t matrix = bt_sat_add_u64(bt_sat_mul_u64(most, n_ubatch), bt_sat_mul_u64(n_threads, TILE_BYTES));
    uint64_t routed = bt_sat_mul_u64(UINT64_C(8) * facts->n_expert, facts->n_expert_used * n_ubatch);
    uint64_t head = facts->n_embd / bt_max_u64(facts->n_head, 1);
    uint64_t flash = 4 * FLASH_TILE * (2 * head + 2 * FLASH_TILE + 2 * head);
    return bt_max_u64(bt_sat_add_u64(matrix, routed), bt_sat_mul_u64(n_threads, flash));
}

/* b / p, rounded up: cells are counted over all sequences, a mask only over one's. */
static uint64_t per_sequence(uint64_t bytes, uint64_t n_parallel) {
    return bytes / n_parallel + (bytes % n_parallel != 0);
}

static bt_cost compute_cost(const bt_facts *facts, const bt_wishes *wishes, uint64_t n_ubatch, uint64_t n_parallel,
                            uint64_t n_threads) {
    bool windows = false;
    for (uint32_t b = 0; facts->kv && b < facts->n_block; b++)
        windows |= facts->kv[b].window > 0;
    bool flash = wishes->flash_attn != BT_OFF;
    uint64_t mask = (flash ? 2 : 4) * n_ubatch;
    uint64_t scores = flash ? 0 : bt_sat_mul_u64(4 * n_ubatch, facts->n_head);
    uint64_t graph = bt_sat_add_u64(GRAPH_FIXED_BYTES, GRAPH_BLOCK_BYTES * facts->n_block);
    bt_cost cost = {.fixed_bytes = bt_sat_mul_u64(4 * n_ubatch, live_floats(facts)),
                    .per_ctx_bytes = per_sequence(bt_sat_add_u64(mask, scores), n_parallel),
                    .per_window_bytes = windows ? per_sequence(mask, n_parallel) : 0,
                    .source = BT_SOURCE_FORMULA};
    cost.fixed_bytes = bt_sat_add_u64(cost.fixed_bytes, work_bytes(facts, n_ubatch, n_threads));
    cost.fixed_bytes = bt_sat_add_u64(cost.fixed_bytes, graph);
    return cost;
}

/* ---- KV ---- */

static bt_status kv_cost(const bt_facts *facts, const bt_wishes *wishes, uint32_t n_ubatch, uint32_t n_parallel,
                         bt_costs *costs, bt_error *err) {
    if (!facts->kv_known) return BT_OK;
    bt_cost cost = {.source = BT_SOURCE_FORMULA};
    uint32_t window = 0;
    for (uint32_t b = 0; b < facts->n_block; b++) {
        const bt_kv_block *block = &facts->kv[b];
        uint64_t cell = 0;
        if (!bt_kv_cell_bytes(block, wishes->type_k, wishes->type_v, &cell))
            return bt_fail(
                err, BT_E_ARG, "kv_type", BT_MEASURE_ITEMS, block->k_width, 0,
                "block %" PRIu32 "'s KV widths %" PRIu32 " and %" PRIu32 " are no multiple of a block of %s or %s", b,
                block->k_width, block->v_width, bt_type_name(wishes->type_k), bt_type_name(wishes->type_v));
        uint64_t *sum = block->window > 0 ? &cost.per_window_bytes : &cost.per_ctx_bytes;
        *sum = bt_sat_add_u64(*sum, cell);
        if (block->window > window) window = block->window; /* libllama knows one window; of several the widest */
    }
    costs->line[BT_LINE_KV] = cost;
    uint64_t cells = window > 0 ? bt_kv_window_cells(window, n_ubatch, n_parallel) : 0;
    costs->window_cells = (uint32_t)bt_min_u64(cells, UINT32_MAX);
    return BT_OK;
}

/* ---- all lines ---- */

static bool costs_in_range(const bt_costs *costs) {
    for (int i = 0; i < BT_LINE_COUNT; i++) {
        const bt_cost *line = &costs->line[i];
        if (line->fixed_bytes == UINT64_MAX || line->per_ctx_bytes == UINT64_MAX ||
            line->per_window_bytes == UINT64_MAX)
            return false;
    }
    return costs->load_peak_bytes != UINT64_MAX;
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
    bt_costs costs = {.n_ubatch = n_ubatch,
                      .n_parallel = n_parallel,
                      .type_k = wishes->type_k,
                      .type_v = wishes->type_v,
                      .ctx_align = BT_CTX_ALIGN * n_parallel,
                      .ctx_step = BT_CTX_ALIGN * n_parallel,
                      .ctx_min = BT_CTX_ALIGN * n_parallel,
                      .page_table_divisor = PAGE_TABLE_DIVISOR};
    uint64_t vocab =
        bt_sat_add_u64(base->vocab_fixed_bytes, bt_sat_mul_u64(base->vocab_per_token_bytes, facts->n_vocab));
    uint64_t records = TENSOR_RECORD_BYTES * facts->n_tensors;
    fix(&costs, BT_LINE_BASE, base->base_bytes, BT_SOURCE_MEASURED);
    fix(&costs, BT_LINE_VOCAB, vocab, BT_SOURCE_FORMULA);
    fix(&costs, BT_LINE_METADATA, bt_sat_add_u64(facts->arena_bytes, records), BT_SOURCE_FORMULA);
    fix(&costs, BT_LINE_THREADS, bt_sat_mul_u64(n_threads, THREAD_BYTES), BT_SOURCE_FORMULA);
    fix(&costs, BT_LINE_LOGITS, bt_sat_mul_u64(UINT64_C(4) * facts->n_vocab, n_parallel), BT_SOURCE_FORMULA);
    fix(&costs, BT_LINE_OUTPUT_NORM, facts->small_bytes, BT_SOURCE_TENSOR);
    fix(&costs, BT_LINE_STAGING, STAGING_BYTES, BT_SOURCE_FORMULA);
    costs.line[BT_LINE_COMPUTE] = compute_cost(facts, wishes, n_ubatch, n_parallel, n_threads);
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
