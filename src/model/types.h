/* SPDX-License-Identifier: MIT
 * types.h: ggml's tensor types as numbers: block sizes, held to ggml's own by a test (integration/types). */
#pragma once

#include "burthen.h"

/* false: not a type that a file may hold (unknown, or removed from ggml). */
bool bt_type_is_known(uint32_t type);
const char *bt_type_name(uint32_t type); /* "q4_K", or "?" */
uint32_t bt_type_block_elements(uint32_t type);
uint32_t bt_type_block_bytes(uint32_t type);
/* Bytes of n elements of one row; false when n is no multiple of the block or the result overflows. */
bool bt_type_row_bytes(uint32_t type, uint64_t n_elements, uint64_t *ret_bytes);
/* Whether a KV cache may be of it: what ggml's kernels write row by row and read in attention. */
bool bt_type_is_cache(uint32_t type);
/* By name, as in -ctk: "f16", "q8_0" ...; false if unknown */
bool bt_type_by_name(const char *name, uint32_t *ret_type);
