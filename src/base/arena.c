/* SPDX-License-Identifier: MIT
 * arena.c: blocks in a chain, allocated from front to back, freed together.
 *
 *   arena -> block [used......|free...] -> block [used...........] -> own block [one large request] -> NULL
 *
 * Only the first block is allocated from. A request that is larger than a block gets one of its own, linked behind the
 * first, so that the first one's free end is not lost. The cap counts everything that was asked of the heap, headers
 * and the arena itself included; close to it, blocks shrink to what is left. Blocks come zeroed and nothing is given
 * back before the end, so what is handed out is zero without being cleared. Not for use by two threads at once. */
#include "base/arena.h"
#include "base/heap.h"
#include "base/size.h"

#include <string.h>

#define ARENA_ALIGN 16 /* max_align_t on x86-64 and AArch64, and what malloc guarantees there */

typedef struct block {
    struct block *next;
    uint64_t capacity_bytes, used_bytes; /* of data; multiples of ARENA_ALIGN */
    _Alignas(ARENA_ALIGN) unsigned char data[];
} block;

struct bt_arena {
    uint64_t max_bytes, asked_bytes;
    uint64_t block_bytes; /* of data in an ordinary block; a multiple of ARENA_ALIGN */
    block *first;
};

bt_arena *bt_arena_open(uint64_t max_bytes, size_t block_bytes) {
    if (max_bytes < sizeof(bt_arena)) return NULL;
    bt_arena *arena = bt_heap_alloc(sizeof *arena);
    if (!arena) return NULL;
    arena->max_bytes = max_bytes;
    arena->asked_bytes = sizeof *arena;
    /* block_bytes is what the heap is asked for, with the header: a caller's power of two stays one */
    arena->block_bytes = bt_sat_sub_u64(block_bytes, sizeof(block)) / ARENA_ALIGN * ARENA_ALIGN;
    return arena;
}

void bt_arena_close(bt_arena *arena) {
    if (!arena) return;
    for (block *b = arena->first; b;) {
        block *next = b->next;
        bt_heap_free(b);
        b = next;
    }
    bt_heap_free(arena);
}

/* A block with room for need bytes (a multiple of ARENA_ALIGN), linked in; NULL over the cap or when refused. */
static block *add_block(bt_arena *arena, uint64_t need) {
    uint64_t left = bt_sat_sub_u64(arena->max_bytes - arena->asked_bytes, sizeof(block)) / ARENA_ALIGN * ARENA_ALIGN;
    if (need > left) return NULL;
    bool own = need > arena->block_bytes;
    uint64_t capacity = own ? need : bt_min_u64(arena->block_bytes, left);
    uint64_t asked = capacity + sizeof(block); /* at most max_bytes: cannot wrap */
    if (asked > SIZE_MAX / 2) return NULL;
    block *b = bt_heap_alloc((size_t)asked);
    if (!b) return NULL;
    b->capacity_bytes = capacity;
    arena->asked_bytes += asked;
    if (own && arena->first) {
        b->next = arena->first->next;
        arena->first->next = b;
    } else {
        b->next = arena->first;
        arena->first = b;
    }
    return b;
}

void *bt_arena_alloc(bt_arena *arena, uint64_t bytes) {
    uint64_t need = 0;
    if (!bt_align_up_u64(bytes ? bytes : 1, ARENA_ALIGN, &need)) return NULL;
    block *b = arena->first;
    if (!b || b->capacity_bytes - b->used_bytes < need) b = add_block(arena, need);
    if (!b) return NULL;
    void *p = b->data + b->used_bytes;
    b->used_bytes += need;
    return p;
}

void *bt_arena_array(bt_arena *arena, uint64_t n, uint64_t item_bytes) {
    uint64_t bytes = 0;
    if (!bt_mul_u64(n, item_bytes, &bytes)) return NULL;
    return bt_arena_alloc(arena, bytes);
}

char *bt_arena_strndup(bt_arena *arena, const char *text, size_t n) {
    uint64_t bytes = 0;
    if (!bt_add_u64(n, 1, &bytes)) return NULL;
    char *copy = bt_arena_alloc(arena, bytes);
    if (copy && n > 0) memcpy(copy, text, n);
    return copy;
}

char *bt_arena_strdup(bt_arena *arena, const char *text) {
    return bt_arena_strndup(arena, text, strlen(text));
}

uint64_t bt_arena_bytes(const bt_arena *arena) {
    return arena->asked_bytes;
}
