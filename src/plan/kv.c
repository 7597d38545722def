/* SPDX-License-Identifier: MIT
 *
 * kv.c: bytes of the KV cache and of recurrent state as libllama allocates them, from the widths of the blocks.
 *
 * Every sequence has its own stream: the context is shared out, each share rounded up to 256 cells; or all share one
 * (unified). Blocks with a sliding window live in a second cache that needs no more cells than the window plus a
 * micro-batch, rounded the same way; in a unified cache every sequence needs its window (research notes, llama.cpp
 * 2.1-2.5; the numbers of 2.6 are the tests). Without flash attention values are stored transposed, and then all blocks
 * get the width of the widest. State is F32, for each sequence, and does not grow. */
#include "base/error.h"
#include "base/size.h"
#include "model/types.h"
#include "plan/costs.h"
#include "plan/price.h"

#include <inttypes.h>
#include <string.h>

#define STATE_BYTES 4u /* F32 whatever the type of the cache (llama_model::create_memory) */
/* ggml_backend_alloc_ctx_tensors gives each tensor of a cache a multiple of the device's alignment (src/device). */
#define CACHE_ALIGN UINT64_C(64)

bool bt_flash_is_on(const bt_facts *facts, const bt_wishes *wishes) {
    bool grok = facts->arch && strcmp(facts->arch, "grok") == 0; /* llama_init_from_model forces it off */
    return wishes->flash_attn != BT_OFF && !grok;
}

uint32_t bt_kv_streams(const bt_wishes *wishes) {
    uint32_t n = wishes->n_parallel > 0 ? wishes->n_parallel : 1;
    return wishes->kv_unified ? 1 : n;
}

uint64_t bt_kv_window_cells(uint32_t window, uint32_t n_ubatch, uint32_t n_parallel, bool unified) {
    uint64_t needed = (uint64_t)window * (unified ? n_parallel : 1) + n_ubatch;
    uint64_t cells = (needed + BT_CTX_ALIGN - 1) / BT_CTX_ALIGN * BT_CTX_ALIGN;
    return unified ? cells : cells * n_parallel;
}

/* Bytes of one cell of a block, K and V. */
bool bt_kv_cell_bytes(const bt_facts *facts, const bt_kv_block *block, const bt_wishes *wishes, uint64_t *ret_bytes) {
    uint64_t k = 0;
    uint64_t v = 0;
    bool transposed = !bt_flash_is_on(facts, wishes) && facts->v_width_max > 0;
    uint32_t v_width = block->v_width > 0 && transposed ? facts->v_width_max : block->v_width;
    if (block->k_width > 0 && !bt_type_row_bytes(wishes->type_k, block->k_width, &k)) return false;
    if (v_width > 0 && !bt_type_row_bytes(wishes->type_v, v_width, &v)) return false;
    return bt_add_u64(k, v, ret_bytes);
}

static uint64_t padded(uint64_t elements) {
    uint64_t bytes = elements * STATE_BYTES;
    return (bytes + CACHE_ALIGN - 1) / CACHE_ALIGN * CACHE_ALIGN;
}

static uint64_t block_state_bytes(const bt_kv_block *kv, uint64_t n_parallel) {
    return padded(n_parallel * kv->conv_width) + padded(n_parallel * kv->ssm_width);
}

uint64_t bt_kv_state_bytes(const bt_facts *facts, uint32_t n_parallel) {
    uint64_t n = n_parallel > 0 ? n_parallel : 1;
    uint64_t sum = 0;
    for (uint32_t b = 0; facts->kv && b < facts->n_block; b++)
        sum = bt_sat_add_u64(sum, block_state_bytes(&facts->kv[b], n));
    return sum;
}

bool bt_kv_block_price(const bt_facts *facts, uint32_t block, const bt_wishes *wishes, uint32_t n_ctx,
                       uint32_t n_ubatch, uint64_t *ret_bytes) {
    uint32_t n_parallel = wishes->n_parallel > 0 ? wishes->n_parallel : 1;
    uint64_t streams = bt_kv_streams(wishes);
    uint64_t share = (n_ctx / streams + BT_CTX_ALIGN - 1) / BT_CTX_ALIGN * BT_CTX_ALIGN;
    uint64_t cells = share * streams;
    const bt_kv_block *kv = &facts->kv[block];
    uint64_t cell = 0;
    uint64_t bytes = 0;
    if (!bt_kv_cell_bytes(facts, kv, wishes, &cell)) return false;
    if (kv->window > 0)
        cells = bt_min_u64(cells, bt_kv_window_cells(kv->window, n_ubatch, n_parallel, wishes->kv_unified));
    if (!bt_mul_u64(cell, cells, &bytes)) return false;
    return bt_add_u64(bytes, block_state_bytes(kv, n_parallel), ret_bytes);
}

bool bt_kv_price(const bt_facts *facts, const bt_wishes *wishes, uint32_t n_ctx, uint32_t n_ubatch,
                 uint64_t *ret_bytes) {
    uint64_t sum = 0;
    for (uint32_t b = 0; b < facts->n_block; b++) {
        uint64_t bytes = 0;
        if (!bt_kv_block_price(facts, b, wishes, n_ctx, n_ubatch, &bytes) || !bt_add_u64(sum, bytes, &sum))
            return false;
    }
    *ret_bytes = sum;
    return true;
}

/* ---- what libllama would refuse (llama_init_from_model) ---- */

static bt_status refuse_heads(const char *which, uint32_t type, uint32_t head, uint32_t block, bt_error *err) {
    return bt_fail(err, BT_E_ARG, "kv_type", BT_MEASURE_ITEMS, head, block,
                   "%s of type %s need heads of a multiple of %" PRIu32 " elements with flash attention; these have "
                   "%" PRIu32,
                   which, bt_type_name(type), block, head);
}

static bt_status check_heads(const char *which, uint32_t type, uint32_t full, uint32_t swa, bt_error *err) {
    uint32_t block = bt_type_block_elements(type);
    if (block <= 1) return BT_OK;
    if (full % block != 0) return refuse_heads(which, type, full, block, err);
    return swa % block == 0 ? BT_OK : refuse_heads(which, type, swa, block, err);
}

bt_status bt_kv_check(const bt_facts *facts, const bt_wishes *wishes, bt_error *err) {
    bool flash = bt_flash_is_on(facts, wishes);
    if (facts->latent && wishes->type_k != wishes->type_v)
        return bt_fail(err, BT_E_ARG, "kv_type", BT_MEASURE_NONE, 0, 0,
                       "keys of type %s and values of type %s: latent attention keeps one row for both",
                       bt_type_name(wishes->type_k), bt_type_name(wishes->type_v));
    if (!flash && facts->head_v > 0 && bt_type_block_elements(wishes->type_v) > 1)
        return bt_fail(err, BT_E_ARG, "flash_attn", BT_MEASURE_NONE, 0, 0,
                       "values of type %s need flash attention, which %s", bt_type_name(wishes->type_v),
                       wishes->flash_attn == BT_OFF ? "--flash-attn off forbids; auto turns it on"
                                                    : "llama.cpp does not use for this architecture");
    if (!flash) return BT_OK;
    BT_TRY(check_heads("keys", wishes->type_k, facts->head_k, facts->head_k_swa, err));
    return check_heads("values", wishes->type_v, facts->head_v, facts->head_v_swa, err);
}
