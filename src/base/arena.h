/* SPDX-License-Identifier: MIT
 * arena.h: many small things with one lifetime: allocate forward, free all at once. Always capped. */
#pragma once

#include "burthen.h"

typedef struct bt_arena bt_arena;

/* max_bytes: the arena never holds more; block_bytes: how much it asks of the heap at a time. NULL when refused. */
BT_MUST_CHECK bt_arena *bt_arena_open(uint64_t max_bytes, size_t block_bytes);
void bt_arena_close(bt_arena *arena); /* NULL is fine */
/* Zeroed, aligned to 16. NULL when the cap or the heap refuses. */
BT_MUST_CHECK void *bt_arena_alloc(bt_arena *arena, uint64_t bytes);
BT_MUST_CHECK void *bt_arena_array(bt_arena *arena, uint64_t n, uint64_t item_bytes);
BT_MUST_CHECK char *bt_arena_strndup(bt_arena *arena, const char *text, size_t n);
BT_MUST_CHECK char *bt_arena_strdup(bt_arena *arena, const char *text);
uint64_t bt_arena_bytes(const bt_arena *arena); /* asked of the heap so far */
