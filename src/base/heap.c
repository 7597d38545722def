/* SPDX-License-Identifier: MIT
 * heap.c: the door to the C heap, which counts what is out and can be told to refuse.
 *
 * Counted are usable bytes, not asked ones: that is what the C library really holds, and it can be asked again at free,
 * so no header of our own stands before a block. The counters are totals over all threads and exact when the threads
 * rest; between two steps of one resize they may briefly count both blocks. No cap stands here: a caller bounds what it
 * asks for, and big memory is taken elsewhere (memory/account.h). */
#include "base/heap.h"
#include "base/fault.h"
#include "base/size.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__APPLE__)
#include <malloc/malloc.h>
#define usable_bytes(p) malloc_size(p)
#else
#include <malloc.h>
#define usable_bytes(p) malloc_usable_size(p)
#endif

static _Atomic uint64_t live_bytes;
static _Atomic uint64_t live_blocks;
static _Atomic uint64_t n_allocations; /* so far; a resize is one */

/* Sizes over half of the address space are refused here: C libraries and sanitizers differ on them, some abort. */
static bool is_refused(size_t bytes) {
    return bytes > (size_t)PTRDIFF_MAX || bt_fault_hit();
}

static void *counted(void *p) {
    if (!p) return NULL;
    atomic_fetch_add_explicit(&n_allocations, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&live_bytes, usable_bytes(p), memory_order_relaxed);
    atomic_fetch_add_explicit(&live_blocks, 1, memory_order_relaxed);
    return p;
}

void *bt_heap_alloc(size_t bytes) {
    if (is_refused(bytes)) return NULL;
    return counted(calloc(1, bytes ? bytes : 1));
}

void *bt_heap_array(size_t n, size_t item_bytes) {
    uint64_t bytes = 0;
    if (!bt_mul_u64(n, item_bytes, &bytes) || bytes > SIZE_MAX / 2) return NULL;
    return bt_heap_alloc((size_t)bytes);
}

void *bt_heap_resize(void *p, size_t bytes) {
    if (is_refused(bytes)) return NULL;
    if (bytes == 0) bytes = 1; /* realloc(p, 0) may free p and return NULL, which would read as a refusal */
    if (!p) return counted(malloc(bytes));
    uint64_t before = usable_bytes(p);
    void *moved = realloc(p, bytes);
    if (!moved) return NULL;
    atomic_fetch_add_explicit(&n_allocations, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&live_bytes, usable_bytes(moved), memory_order_relaxed);
    atomic_fetch_sub_explicit(&live_bytes, before, memory_order_relaxed);
    return moved;
}

char *bt_heap_strdup(const char *text) {
    size_t n = strlen(text) + 1;
    char *copy = bt_heap_alloc(n);
    if (copy) memcpy(copy, text, n);
    return copy;
}

void bt_heap_free(void *p) {
    if (!p) return;
    atomic_fetch_sub_explicit(&live_bytes, usable_bytes(p), memory_order_relaxed);
    atomic_fetch_sub_explicit(&live_blocks, 1, memory_order_relaxed);
    free(p);
}

uint64_t bt_heap_live_bytes(void) {
    return atomic_load_explicit(&live_bytes, memory_order_relaxed);
}

uint64_t bt_heap_live_blocks(void) {
    return atomic_load_explicit(&live_blocks, memory_order_relaxed);
}

uint64_t bt_heap_allocations(void) {
    return atomic_load_explicit(&n_allocations, memory_order_relaxed);
}
