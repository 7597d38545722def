/* SPDX-License-Identifier: MIT
 * price.h: the dry run: what a model needs at a context and micro-batch, asked of libllama in a child process that
 * reads nothing but the header and computes nothing (docs/design.md section 6b). */
#pragma once

#include "burthen.h"

typedef struct bt_price_point {
    uint32_t n_ctx, n_ubatch, n_parallel, n_outputs_max;
    uint32_t type_k, type_v;
} bt_price_point;

bool bt_price_point_equal(const bt_price_point *a, const bt_price_point *b);

/* Bytes by line. Lines that depend on pins (head, ring, pinned, embeddings) are not priced here. */
typedef struct bt_price {
    uint64_t vocab_bytes, metadata_bytes, kv_bytes, compute_bytes, logits_bytes, small_bytes, staging_bytes;
    uint64_t load_peak_bytes; /* most that loading holds, over what the process held before it */
    uint32_t n_ctx;           /* effective: as libllama rounded it */
    uint64_t device_kv_bytes[BT_DEVICE_MAX], device_compute_bytes[BT_DEVICE_MAX]; /* of a split */
    bt_error error; /* status not BT_OK: this point cannot be had, and why */
} bt_price;

/* Through which a program of llama.cpp's own reads a model's file: llama_model_loader::load_all_data has four buffers
 * of a MiB, and libllama's files one of the C library's. */
#define BT_GUEST_STAGING_BYTES (UINT64_C(4) << 20)
/* What a sampler holds: one candidate per vocabulary entry. Part of the line logits. */
uint64_t bt_price_sampler_bytes(const bt_facts *facts);

/* A loaded model that waits in a child to be priced. Loading goes on there while the caller does something else. */
typedef struct bt_pricer bt_pricer;

/* wishes: flash attention, batch and RoPE scaling; facts and wishes are not needed once this returned. BT_E_NOMEM,
 * BT_E_IO. */
BT_MUST_CHECK bt_status bt_pricer_open(const bt_facts *facts, const bt_wishes *wishes, uint32_t n_threads,
                                       bt_pricer **ret_pricer, bt_error *err);
/* BT_E_IO, code "price_child", when the child died; else the price carries the point's own failure, if any. */
BT_MUST_CHECK bt_status bt_pricer_price(bt_pricer *pricer, const bt_price_point *point, bt_price *ret_price,
                                        bt_error *err);
void bt_pricer_close(bt_pricer *pricer); /* NULL is fine */
