/* SPDX-License-Identifier: MIT
 *
 * byte_ring.c: a buffer that goes round.
 *
 * Small at first, since most of what flows through a router is small: a page. It doubles as it fills, and never grows
 * over the maximum that its owner gives with each call, but for a piece that is larger by itself. Growing copies what
 * is held to the front of a new buffer, so the oldest byte is where it begins. */
#include "router/byte_ring.h"

#include "base/heap.h"
#include "base/size.h"

#include <string.h>

#define FIRST_BYTES 4096u /* a page: an answer of one token, or a line, is far below it */

void bt_byte_ring_done(bt_byte_ring *ring) {
    bt_heap_free(ring->data);
    *ring = (bt_byte_ring){0};
}

bool bt_byte_ring_make_room(bt_byte_ring *ring, size_t n_bytes, size_t max_bytes) {
    uint64_t need = bt_sat_add_u64(ring->n_bytes, n_bytes);
    if (need <= ring->capacity) return true;
    uint64_t capacity = bt_max_u64(FIRST_BYTES, ring->capacity);
    while (capacity < need)
        capacity = bt_sat_mul_u64(capacity, 2);
    capacity = bt_max_u64(bt_min_u64(capacity, max_bytes), need);
    char *data = bt_heap_resize(NULL, capacity);
    if (!data) return false;
    (void)bt_byte_ring_copy(ring, 0, data, ring->n_bytes);
    bt_heap_free(ring->data);
    ring->data = data;
    ring->capacity = capacity;
    ring->start = 0;
    return true;
}

/* Bytes from a place in the buffer to its end. */
static size_t until_end(const bt_byte_ring *ring, size_t at, size_t n) {
    return n < ring->capacity - at ? n : ring->capacity - at;
}

static size_t place(const bt_byte_ring *ring, size_t offset) {
    size_t tail = ring->capacity - ring->start;
    return offset < tail ? ring->start + offset : offset - tail;
}

void bt_byte_ring_put(bt_byte_ring *ring, const void *data, size_t n_bytes) {
    if (n_bytes == 0) return;
    size_t at = place(ring, ring->n_bytes);
    size_t first = until_end(ring, at, n_bytes);
    memcpy(ring->data + at, data, first);
    memcpy(ring->data, (const char *)data + first, n_bytes - first);
    ring->n_bytes += n_bytes;
}

size_t bt_byte_ring_copy(const bt_byte_ring *ring, size_t offset, void *dest, size_t n_bytes) {
    if (offset >= ring->n_bytes) return 0;
    size_t n = n_bytes < ring->n_bytes - offset ? n_bytes : ring->n_bytes - offset;
    size_t at = place(ring, offset);
    size_t first = until_end(ring, at, n);
    memcpy(dest, ring->data + at, first);
    memcpy((char *)dest + first, ring->data, n - first);
    return n;
}

void bt_byte_ring_drop(bt_byte_ring *ring, size_t n_bytes) {
    ring->start = n_bytes < ring->n_bytes ? place(ring, n_bytes) : 0;
    ring->n_bytes -= n_bytes < ring->n_bytes ? n_bytes : ring->n_bytes;
}

size_t bt_byte_ring_find(const bt_byte_ring *ring, size_t offset, char byte) {
    while (offset < ring->n_bytes) {
        size_t at = place(ring, offset);
        size_t n = until_end(ring, at, ring->n_bytes - offset);
        const char *found = memchr(ring->data + at, byte, n);
        if (found) return offset + (size_t)(found - (ring->data + at));
        offset += n;
    }
    return ring->n_bytes;
}
