/* SPDX-License-Identifier: MIT
 * heap.h: the one door to the C heap: counted, able to fail on request. Big memory never comes from here
 * (memory/account.h); what does is bounded by its caller. */
#pragma once

#include "burthen.h"

BT_MUST_CHECK void *bt_heap_alloc(size_t bytes);                /* zeroed; NULL when refused; 0 bytes gives 1 */
BT_MUST_CHECK void *bt_heap_array(size_t n, size_t item_bytes); /* zeroed; NULL on overflow too */
BT_MUST_CHECK void *bt_heap_resize(void *p, size_t bytes);      /* new bytes are not zeroed; p stays valid on NULL */
BT_MUST_CHECK char *bt_heap_strdup(const char *text);
void bt_heap_free(void *p);
uint64_t bt_heap_live_bytes(void);  /* usable bytes now held through this door */
uint64_t bt_heap_live_blocks(void); /* what tests end with none of */
/* Done so far through this door, in all threads; a resize is one too. */
uint64_t bt_heap_allocations(void);
