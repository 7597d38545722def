/* SPDX-License-Identifier: MIT
 * price.h: the dry run: what a model needs at a context and micro-batch, asked of libllama in a child process that
 * reads nothing but the header and computes nothing (docs/design.md section 6b). */
#pragma once

#include "burthen.h"

#define BT_PRICE_POINT_MAX 16 /* points of one call: a few micro-batches at two contexts each */

typedef struct bt_price_point {
    uint32_t n_ctx, n_ubatch, n_outputs_max;
} bt_price_point;

/* Bytes by line. Lines that depend on pins (head, ring, pinned, embeddings) are not priced here. */
typedef struct bt_price {
    uint64_t vocab_bytes, metadata_bytes, kv_bytes, compute_bytes, logits_bytes, small_bytes, staging_bytes;
    uint64_t load_peak_bytes; /* most that loading holds, over what the process held before it */
    uint32_t n_ctx;           /* effective: as libllama rounded it */
    bt_error error;           /* status not BT_OK: this point cannot be had, and why */
} bt_price;

/* What a sampler holds: one candidate per vocabulary entry. Part of the line logits. */
uint64_t bt_price_sampler_bytes(const bt_facts *facts);

/* Price all points. wishes: KV types, flash attention, parallel sequences, batch. BT_E_IO, code "price_child", when the
 * child dies; otherwise each point carries its own failure. */
BT_MUST_CHECK bt_status bt_price_points(const bt_facts *facts, const bt_wishes *wishes, uint32_t n_threads,
                                        const bt_price_point *points, uint32_t n_points, bt_price *ret_prices,
                                        bt_error *err);
