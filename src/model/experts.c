/* SPDX-License-Identifier: MIT
 *
 * experts.c: a mixture of experts, cut by expert.
 *
 *     file     ffn_gate_exps [e0][e1][e2]...   ffn_up_exps [e0][e1]...   ffn_down_exps [e0][e1]...
 *     slot     [gate of e | margin][up of e | margin][down of e | margin]      one expert, of one block
 *
 * A token uses a few experts of each block, so the experts are read and kept one by one, never as whole tensors. The
 * tensors are three-dimensional; their last dimension counts the experts, and an expert's part of each is one run of
 * the file. A slot has a region for each tensor, wide enough for the pages that the run touches wherever it begins.
 * Tensors that do not have that shape stay units, which are read as wholes; biases and scales of experts are small and
 * always in memory, and indexed by what the router chose. */
#include "model/experts.h"

#include "base/error.h"
#include "base/size.h"
#include "base/text.h"
#include "model/gguf.h"

#include <string.h>

static const char *const parts[] = {"ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_gate_up_exps.weight",
                                    "ffn_down_exps.weight"};

bool bt_experts_can_split(const bt_facts *facts, const bt_tensor *tensor) {
    if (facts->n_expert < 2 || tensor->block < 0 || tensor->n_dims != 3) return false;
    if (tensor->ne[2] != facts->n_expert || tensor->bytes % facts->n_expert != 0) return false;
    const char *dot = strchr(tensor->name + 4, '.'); /* "blk.N." */
    return dot && bt_is_among(dot + 1, parts, sizeof parts / sizeof *parts);
}

/* Where the pages of a run end at most, from the page that it begins in. */
static uint64_t region_bytes(uint64_t slice_bytes) {
    return (slice_bytes + UINT64_C(2) * BT_PAGE_BYTES - 2) / BT_PAGE_BYTES * BT_PAGE_BYTES;
}

static void add_part(bt_facts *facts, uint32_t tensor, bt_expert_block *block) {
    const bt_tensor *t = &facts->tensors[tensor];
    bt_expert_part *part = &block->parts[block->n_parts++];
    *part = (bt_expert_part){.tensor = tensor, .slice_bytes = t->bytes / facts->n_expert};
    part->slot_offset = block->slot_bytes;
    block->expert_bytes = bt_sat_add_u64(block->expert_bytes, part->slice_bytes);
    /* With slices of whole pages each begins at the same place of its first page; others are moved to its start. */
    part->shift = part->slice_bytes % BT_PAGE_BYTES == 0 ? (uint32_t)(t->file_offset % BT_PAGE_BYTES) : 0;
    block->slot_bytes = bt_sat_add_u64(block->slot_bytes, region_bytes(part->slice_bytes));
}

bt_status bt_experts_fill(bt_facts *facts, bt_arena *arena, const char *name, bt_error *err) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < facts->n_tensors; i++)
        n += facts->tensors[i].role == BT_ROLE_EXPERTS;
    if (n == 0) return BT_OK;
    facts->expert_blocks = bt_arena_array(arena, facts->n_block, sizeof *facts->expert_blocks);
    if (!facts->expert_blocks) return bt_model_no_room(name, err);
    for (uint32_t b = 0; b < facts->n_block; b++) {
        bt_expert_block *block = &facts->expert_blocks[facts->n_expert_blocks];
        *block = (bt_expert_block){.block = b};
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
            for (uint32_t i = 0; i < facts->n_tensors; i++) {
                const bt_tensor *t = &facts->tensors[i];
                if (t->role != BT_ROLE_EXPERTS || t->block != (int32_t)b || !strstr(t->name, parts[p])) continue;
                add_part(facts, i, block);
            }
        }
        if (block->n_parts > 0) facts->n_expert_blocks++;
    }
    return BT_OK;
}

#define WORK_ALIGN 64u /* of what kernels read: a cache line */

static uint64_t take(uint64_t *total, uint64_t bytes) {
    uint64_t offset = *total;
    *total = bt_sat_add_u64(bt_sat_add_u64(offset, bytes), WORK_ALIGN - 1) / WORK_ALIGN * WORK_ALIGN;
    return offset;
}

bt_expert_work bt_facts_expert_work(const bt_facts *facts, uint32_t n_tokens) {
    bt_expert_work work = {0};
    uint64_t widest_in = 0, widest_out = 0;
    if (facts->n_expert_blocks == 0) return work;
    for (uint32_t b = 0; b < facts->n_expert_blocks; b++)
        for (uint32_t p = 0; p < facts->expert_blocks[b].n_parts; p++) {
            const bt_tensor *t = &facts->tensors[facts->expert_blocks[b].parts[p].tensor];
            widest_in = bt_max_u64(widest_in, t->ne[0]);
            widest_out = bt_max_u64(widest_out, t->ne[1]);
        }
    work.numbers_bytes = bt_sat_mul_u64(UINT64_C(4) * facts->n_expert_used, n_tokens);
    (void)take(&work.bytes, work.numbers_bytes);
    work.zeros_offset = take(&work.bytes, UINT64_C(4) * n_tokens);
    work.rows_offset = take(&work.bytes, bt_sat_mul_u64(bt_sat_mul_u64(4, widest_in), n_tokens));
    work.results_offset = take(&work.bytes, bt_sat_mul_u64(bt_sat_mul_u64(4, widest_out), n_tokens));
    work.bytes = bt_sat_add_u64(work.bytes, BT_PAGE_BYTES - 1) / BT_PAGE_BYTES * BT_PAGE_BYTES;
    return work;
}
