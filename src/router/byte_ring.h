/* SPDX-License-Identifier: MIT
 * byte_ring.h: bytes in the order in which they came, in a buffer that goes round and grows as far as its owner says.
 */
#pragma once

#include "burthen.h"

/* Zero-initialise. */
typedef struct bt_byte_ring {
    char *data;
    size_t capacity, start, n_bytes;
} bt_byte_ring;

void bt_byte_ring_done(bt_byte_ring *ring); /* empty again, its memory given back */
/* Room for n bytes more: grows by doubling from 4 KiB, to max_bytes at most, or to exactly what is needed where that is
 * more. false: memory is refused, and all is as it was. */
BT_MUST_CHECK bool bt_byte_ring_make_room(bt_byte_ring *ring, size_t n_bytes, size_t max_bytes);
void bt_byte_ring_put(bt_byte_ring *ring, const void *data, size_t n_bytes); /* there is room */
/* Copy up to n bytes that begin offset bytes behind the oldest; returns how many. */
size_t bt_byte_ring_copy(const bt_byte_ring *ring, size_t offset, void *dest, size_t n_bytes);
void bt_byte_ring_drop(bt_byte_ring *ring, size_t n_bytes); /* the oldest */
/* How far behind the oldest byte is the first such byte at or after offset; n_bytes: none. */
size_t bt_byte_ring_find(const bt_byte_ring *ring, size_t offset, char byte);
