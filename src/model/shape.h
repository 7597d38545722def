/* SPDX-License-Identifier: MIT
 * shape.h: the numbers of a model: how many blocks, how wide, how many experts. */
#pragma once

#include "model/gguf.h"

/* Fills arch, name, tokenizer and the counts of facts (strings copied into the arena). What libllama asserts of these
 * numbers is checked: BT_E_FORMAT, code "model_shape" or "gguf_key_missing".
 * ret_n_block_all: block_count, with MTP blocks. */
BT_MUST_CHECK bt_status bt_shape_fill(const bt_gguf *gguf, bt_facts *facts, uint32_t *ret_n_block_all, bt_arena *arena,
                                      bt_error *err);
