/* SPDX-License-Identifier: MIT
 * layouts.h: which weights ggml's CPU kernels know in another layout than the file's. */
#pragma once

#include "burthen.h"

/* A replaced weight is repacked in place through a copy of so many rows: what the line staging has at least
 * (src/plan/costs.c, the buffer of the model's file). */
#define BT_LAYOUT_COPY_MAX_BYTES (UINT64_C(256) << 10)

/* What bt_tensor.layout says. Role, block, type, bytes of a row and dimensions are set. */
bt_layout bt_layout_of(const bt_tensor *tensor);
