/* SPDX-License-Identifier: MIT
 * gguf_tensors.h: the tensor table, second half of a header. */
#pragma once

#include "model/gguf.h"
#include "model/header_file.h"

/* Reads gguf->n_tensors rows at the source's place and checks them; sets tensors, header_bytes and data_offset. */
BT_MUST_CHECK bt_status bt_gguf_tensors_read(bt_header_file *src, bt_gguf *gguf, bt_arena *arena, bt_error *err);
/* Names of n tensors are unique. what: whose they are, for the sentence. */
BT_MUST_CHECK bt_status bt_tensor_names_check(const bt_tensor *tensors, uint32_t n, const char *what, bt_error *err);
