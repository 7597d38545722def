/* SPDX-License-Identifier: MIT
 * heap_check.h: nothing is left on the heap: before a test, or as its end. */
#pragma once

#include "base/heap.h"

/* For cmocka: a set-up or tear-down. */
static inline int heap_is_empty(void **state) {
    (void)state;
    return bt_heap_live_blocks() == 0 ? 0 : -1;
}
