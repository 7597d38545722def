/* SPDX-License-Identifier: MIT
 * price.h: what costs.c, kv.c and compute.c share. */
#pragma once

#include "burthen.h"

/* libllama rounds the cells of a stream up to this (research notes, llama.cpp 2.1). */
#define BT_CTX_ALIGN 256u

/* Flash attention is used: not forbidden, by the wishes or by llama.cpp for the architecture. */
bool bt_flash_is_on(const bt_facts *facts, const bt_wishes *wishes);
/* Streams that the context is shared out to: 1 when unified, else one for each sequence. */
uint32_t bt_kv_streams(const bt_wishes *wishes);
/* Cells of a sliding-window cache at its full size, all sequences. */
uint64_t bt_kv_window_cells(uint32_t window, uint32_t n_ubatch, uint32_t n_parallel, bool unified);
/* Bytes of one cell of a block; false when a width is no multiple of the type's block. */
bool bt_kv_cell_bytes(const bt_facts *facts, const bt_kv_block *block, const bt_wishes *wishes, uint64_t *ret_bytes);
/* There are blocks whose cache is as long as the context; it is not known: the worst that is likely. */
bool bt_kv_has_full(const bt_facts *facts);
/* Rows of logits in a graph, with three rows of the stream each (research notes, llama.cpp 3.2 and 3.3). */
uint64_t bt_logits_graph_bytes(const bt_facts *facts, uint64_t n_rows);
/* What computing takes beside weights and caches: graph buffer, work area, graph structures. n_threads is resolved. */
bt_cost bt_compute_cost(const bt_facts *facts, const bt_wishes *wishes, uint32_t n_ubatch, uint32_t n_threads);
/* Of that the graph buffer alone: what a device beside the host holds of it. */
bt_cost bt_graph_cost(const bt_facts *facts, const bt_wishes *wishes, uint32_t n_ubatch);

/* Candidates of samplers, 12 bytes (llama_token_data) for each entry of the vocabulary and sequence. */
uint64_t bt_sampling_bytes(const bt_facts *facts, const bt_wishes *wishes);
