/* SPDX-License-Identifier: MIT
 *
 * kv.c: bytes of the KV cache as libllama allocates it, from the widths and windows of the blocks.
 *
 * Every sequence has its own stream: the context is shared out, each share rounded up to 256 cells. Blocks with a
 * sliding window live in a second cache that needs no more cells than the window plus a micro-batch, rounded the same
 * way (research notes, llama.cpp 2.1-2.3; the numbers of 2.6 are the tests). Blocks that hold no KV have no width.
 * Recurrent state is no part of it: bt_facts says so by kv_exact. */
#include "base/size.h"
#include "model/types.h"
#include "plan/costs.h"
#include "plan/price.h"

uint64_t bt_kv_window_cells(uint32_t window, uint32_t n_ubatch, uint32_t n_parallel) {
    uint64_t cells = ((uint64_t)window + n_ubatch + BT_CTX_ALIGN - 1) / BT_CTX_ALIGN * BT_CTX_ALIGN;
    return cells * n_parallel;
}

/* Bytes of one cell of a block, K and V. */
bool bt_kv_cell_bytes(const bt_kv_block *block, uint32_t type_k, uint32_t type_v, uint64_t *ret_bytes) {
    uint64_t k = 0;
    uint64_t v = 0;
    if (block->k_width > 0 && !bt_type_row_bytes(type_k, block->k_width, &k)) return false;
    if (block->v_width > 0 && !bt_type_row_bytes(type_v, block->v_width, &v)) return false;
    return bt_add_u64(k, v, ret_bytes);
}

bool bt_kv_bytes(const bt_facts *facts, uint32_t n_ctx, uint32_t n_parallel, uint32_t n_ubatch, uint32_t type_k,
                 uint32_t type_v, uint64_t *ret_bytes) {
    uint64_t streams = n_parallel > 0 ? n_parallel : 1;
    uint64_t share = (n_ctx / streams + BT_CTX_ALIGN - 1) / BT_CTX_ALIGN * BT_CTX_ALIGN;
    uint64_t cells = share * streams;
    uint64_t sum = 0;
    for (uint32_t b = 0; b < facts->n_block; b++) {
        const bt_kv_block *block = &facts->kv[b];
        uint64_t cell = 0;
        uint64_t bytes = 0;
        if (!bt_kv_cell_bytes(block, type_k, type_v, &cell)) return false;
        uint64_t held = cells;
        if (block->window > 0) held = bt_min_u64(cells, bt_kv_window_cells(block->window, n_ubatch, (uint32_t)streams));
        if (!bt_mul_u64(cell, held, &bytes) || !bt_add_u64(sum, bytes, &sum)) return false;
    }
    *ret_bytes = sum;
    return true;
}
