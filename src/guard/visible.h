/* SPDX-License-Identifier: MIT
 * visible.h: which of a machine's devices a program sees, and in which order it counts them. */
#pragma once

#include "burthen.h"

typedef struct bt_visible {
    bool all; /* nothing hides any, or it cannot be said which */
    uint32_t n;
    uint32_t index[BT_POOL_MAX]; /* as the machine counts: what the program calls CUDA0 is CUDA<index[0]> */
} bt_visible;

/* text         of CUDA_VISIBLE_DEVICES; NULL: not set
 * n_devices    that there are
 * returns      false: it names devices in a way that is not followed (UUIDs); ret: all of them */
bool bt_visible_read(const char *text, uint32_t n_devices, bt_visible *ret);
/* The number of "CUDA7"; UINT32_MAX: it is no such name. */
uint32_t bt_visible_number(const char *name);
