/* SPDX-License-Identifier: MIT
 * price.h: what costs.c and kv.c share. */
#pragma once

#include "burthen.h"

/* libllama rounds the cells of a stream up to this (research notes, llama.cpp 2.1). */
#define BT_CTX_ALIGN 256u

/* Cells of a sliding-window cache at its full size, all sequences. */
uint64_t bt_kv_window_cells(uint32_t window, uint32_t n_ubatch, uint32_t n_parallel);
/* Bytes of one cell of a block; false when a width is no multiple of the type's block. */
bool bt_kv_cell_bytes(const bt_kv_block *block, uint32_t type_k, uint32_t type_v, uint64_t *ret_bytes);
