/* SPDX-License-Identifier: MIT
 * layouts.h: which weights ggml's CPU kernels know in a second layout. */
#pragma once

#include "burthen.h"

/* Rows that are interleaved with each other: a matrix needs a multiple of them (ggml-cpu/repack.cpp, AVX2). */
#define BT_LAYOUT_ROWS 8u

/* What bt_tensor.has_second says. Role, block and dimensions are set. */
bool bt_layout_has_second(const bt_tensor *tensor);
