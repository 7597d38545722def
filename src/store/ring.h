/* SPDX-License-Identifier: MIT
 * ring.h: a few slots through which all streamed units pass, pass after pass.
 *
 * The ring reads ahead along a cyclic order of units (what the graph used last time); from the last unit of a token it
 * goes on with the first of the next. It is driven by demand: a graph may start anywhere, skip or repeat a unit. A
 * wrong guess is a stall, never an error: the guesses are cancelled and the unit that is wanted is read at once.
 *
 *      order: u0 u1 u2 u3 ...        held: in use by the graph, may not be overwritten
 *      slot 0 [ u4 held ] slot 1 [ u5 being read ] slot 2 [ u6 queued ]
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
    uint64_t image_bytes; /* <= slot_bytes */
} bt_ring_unit;

typedef struct bt_ring_stats {
    uint64_t acquired, hits, stalls, wrong_guesses;
    uint64_t wait_ns;
} bt_ring_stats;

/* units: [n_units], borrowed for the ring's life, indexed by unit number. Slots are committed on BT_LINE_RING and
 * populated at once. slot_bytes: multiple of BT_PAGE_BYTES. */
BT_MUST_CHECK bt_status bt_ring_open(bt_account *account, bt_reader *reader, const bt_ring_unit *units,
                                     uint32_t n_units, uint32_t n_slots, uint64_t slot_bytes, bt_ring **ret_ring,
                                     bt_error *err);
void bt_ring_close(bt_ring *ring); /* NULL is fine */
/* The order units are expected in, as a cycle; copied. n may be 0: no reading ahead. */
BT_MUST_CHECK bt_status bt_ring_set_order(bt_ring *ring, const uint32_t *units, uint32_t n, bt_error *err);
/* The unit's image, held until bt_ring_release. Waits for the disk. BT_E_IO as bt_reader_wait; BT_E_LIMIT, code
 * "ring_full", when every slot is held. Acquiring a unit that is already held counts a second hold. */
BT_MUST_CHECK bt_status bt_ring_acquire(bt_ring *ring, uint32_t unit, void **ret_image, bt_error *err);
void bt_ring_release(bt_ring *ring, uint32_t unit); /* then reads ahead into the free slot */
void bt_ring_poll(bt_ring *ring);
void bt_ring_stats_read(const bt_ring *ring, bt_ring_stats *ret);
