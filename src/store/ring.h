/* SPDX-License-Identifier: MIT
 * ring.h: a stretch of memory through which all streamed units pass, pass after pass.
 *
 * The ring reads ahead along a cyclic order of units (what the graph used last time); from the last unit of a token it
 * goes on with the first of the next. It is driven by demand: a graph may start anywhere, skip or repeat a unit. A
 * wrong guess is a stall, never an error: the guesses are cancelled and the unit that is wanted is read at once.
 *
 *      order: u0 u1 u2 u3 ...        held: in use by the graph, may not be overwritten
 *      [ u6 being read | free | u4 held | u5 being read ]
 *
 * One thread at a time. */
#pragma once

#include "memory/account.h"
#include "store/reader.h"

typedef struct bt_ring bt_ring;

/* What the ring needs to know of a unit. */
typedef struct bt_ring_unit {
    const bt_extent *extents;
    uint32_t n_extents;
    uint64_t image_bytes; /* at most the ring's; an image lies in one piece */
} bt_ring_unit;

/* What tests hold the reading ahead to. */
typedef struct bt_ring_stats {
    uint64_t acquired, hits, stalls, wrong_guesses;
    uint64_t wait_ns;
} bt_ring_stats;

/* Units that can be acquired together. */
#define BT_RING_ACQUIRE_MAX 8u

/* units: [n_units], borrowed for the ring's life, indexed by unit number. ring_bytes are committed on BT_LINE_RING and
 * populated at once: a multiple of BT_PAGE_BYTES, as large as the largest unit at least; while that one is in use
 * nothing else is read ahead unless there is more. */
BT_MUST_CHECK bt_status bt_ring_open(bt_account *account, bt_reader *reader, const bt_ring_unit *units,
                                     uint32_t n_units, uint64_t ring_bytes, bt_ring **ret_ring, bt_error *err);
void bt_ring_close(bt_ring *ring); /* NULL is fine */
/* The order units are expected in, as a cycle; copied. n may be 0: no reading ahead. */
BT_MUST_CHECK bt_status bt_ring_set_order(bt_ring *ring, const uint32_t *units, uint32_t n, bt_error *err);
/* ret_images: [n] of units: [n], each held until bt_ring_release; all or none. Waits for the disk. BT_E_IO as
 * bt_reader_wait; BT_E_LIMIT, code "ring_full", when they do not fit beside each other and what is held already.
 * Acquiring a unit that is already held counts a second hold. */
BT_MUST_CHECK bt_status bt_ring_acquire(bt_ring *ring, const uint32_t *units, uint32_t n, void **ret_images,
                                        bt_error *err);
void bt_ring_release(bt_ring *ring, uint32_t unit); /* then reads ahead into what is free */
/* Read ahead into all that is free, and wait until nothing is in flight. BT_E_IO as bt_reader_wait. */
BT_MUST_CHECK bt_status bt_ring_settle(bt_ring *ring, bt_error *err);
/* The order that was set last: how many positions. Valid until the next is set. */
uint32_t bt_ring_order(const bt_ring *ring, const uint32_t **ret_units);
void bt_ring_stats_read(const bt_ring *ring, bt_ring_stats *ret);
