/* SPDX-License-Identifier: MIT
 * ring.c: slots, and the guesses of what they will be needed for.
 *
 *     order:   ... u3 | u4  u5  u6  u4 ...         head: position of the unit expected next (u4)
 *     guesses:          |   |   |   |
 *                       v   v   v   |              a guess is a position bound to a slot; a slot that is bound to
 *     slots:            s1  s0  s2 (s1)            several positions is read once and kept for all of them
 *
 * The guesses are a queue: they stand for the positions head, head + 1, ... without a gap. A slot may be overwritten
 * when it is not held and no guess is bound to it; of these the one released longest ago is taken. A unit is in one
 * slot at most. What is acquired falls in one of five cases, asked in this order:
 *
 *     the first guess        taken; head moves on. Every step of a graph that does what it did last time is this one
 *     held already           held once more; the graph uses it twice, nothing moves
 *     a later guess          those before it were wrong: dropped; head moves behind it
 *     in a slot, unguessed   taken without reading; re-anchored
 *     nowhere                guesses make room and leave the disk, it is read now; re-anchored
 *
 * Re-anchoring sets head behind the unit's next occurrence in the order; a unit that is not in the order leaves head
 * where it is. Dropping a guess cancels its read unless that is complete; a complete one stays where it is until the
 * slot is needed. A failed read empties its slot and drops the guesses; nothing is read again before it is asked for.
 *
 * Bounds: n_slots slots, as many guesses, orders of at most 2^20 positions. Every step costs at most n_slots, and
 * re-anchoring the length of the order. */
#include "store/ring.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"

#include <errno.h>
#include <string.h>

#define SLOT_MAX      1024u               /* a reader has at most as many jobs */
#define ORDER_MAX     (1u << 20)          /* every tensor of the largest model (BT_TENSOR_MAX) used 16 times a pass */
#define HUGE_BYTES    (UINT64_C(2) << 20) /* of x86-64, and of AArch64 with 4 KiB pages */
#define UNIT_RUNS_MAX 256u                /* of one job, reader.h */
#define NO_SLOT       UINT32_MAX

typedef enum slot_state { SLOT_EMPTY, SLOT_READING, SLOT_READY } slot_state;

typedef struct slot {
    uint8_t *image;
    slot_state state;
    uint32_t unit;      /* unless empty */
    uint32_t n_holds;   /* by the graph */
    uint32_t n_guesses; /* bound to it */
    int job;            /* while reading */
    uint64_t released;  /* ring clock: when it was last given back */
} slot;

struct bt_ring {
    bt_account *account;
    bt_reader *reader;
    const bt_ring_unit *units;
    uint32_t n_units;
    uint64_t slot_bytes;
    bt_mapping *mapping;
    slot *slots; /* [n_slots] */
    uint32_t n_slots;
    uint32_t *order; /* [n_order] */
    uint32_t n_order, order_capacity;
    uint32_t head;     /* position expected next; < n_order unless that is 0 */
    uint32_t *guesses; /* [n_slots] slot of position head + i */
    uint32_t n_guesses;
    bool resting; /* after a failed read: no guesses until something is asked for */
    uint64_t clock;
    bt_ring_stats stats;
    bt_run runs[UNIT_RUNS_MAX]; /* scratch of start_read */
};

/* ---- open and close --------------------------------------------------------------------------------------------- */

static bt_status open_slots(bt_ring *ring, bt_error *err) {
    uint64_t bytes = 0;
    if (!bt_mul_u64(ring->slot_bytes, ring->n_slots, &bytes)) bytes = UINT64_MAX; /* refused by the account */
    BT_TRY(bt_account_map(ring->account, BT_LINE_RING, bytes, &ring->mapping, err));
    BT_TRY(bt_account_commit(ring->account, ring->mapping, bytes, err));
    /* Only where a huge page cannot reach from a slot into what no slot uses. Advice. */
    if (ring->slot_bytes % HUGE_BYTES == 0) (void)bt_os_huge_pages(ring->mapping->base, bytes);
    /* Now and not in the reads: page faults inside a submission were a third of the time of a pass (spike). */
    int rc = bt_os_populate(ring->mapping->base, bytes);
    if (rc < 0) {
        return bt_fail_sys(err, -rc, "populate_failed", "host/ring: the system refused %s for %u slots", BT_SIZE(bytes),
                           ring->n_slots);
    }
    for (uint32_t i = 0; i < ring->n_slots; i++) {
        ring->slots[i].image = (uint8_t *)ring->mapping->base + i * ring->slot_bytes;
    }
    return BT_OK;
}

bt_status bt_ring_open(bt_account *account, bt_reader *reader, const bt_ring_unit *units, uint32_t n_units,
                       uint32_t n_slots, uint64_t slot_bytes, bt_ring **ret_ring, bt_error *err) {
    if (n_slots == 0 || n_slots > SLOT_MAX || slot_bytes == 0 || slot_bytes % BT_PAGE_BYTES != 0) {
        return bt_fail(err, BT_E_ARG, "ring_params", BT_MEASURE_NONE, 0, 0,
                       "a ring of %u slots of %llu bytes; 1 to %u slots of whole pages can be", n_slots,
                       (unsigned long long)slot_bytes, SLOT_MAX);
    }
    bt_ring *ring = bt_heap_alloc(sizeof *ring);
    if (!ring) return bt_fail_sys(err, ENOMEM, "heap", "cannot make a ring");
    ring->account = account;
    ring->reader = reader;
    ring->units = units;
    ring->n_units = n_units;
    ring->n_slots = n_slots;
    ring->slot_bytes = slot_bytes;
    ring->slots = bt_heap_array(n_slots, sizeof *ring->slots);
    ring->guesses = bt_heap_array(n_slots, sizeof *ring->guesses);
    bt_status status = BT_OK;
    if (!ring->slots || !ring->guesses) status = bt_fail_sys(err, ENOMEM, "heap", "cannot make a ring");
    if (status == BT_OK) status = open_slots(ring, err);
    if (status != BT_OK) {
        bt_ring_close(ring);
        return status;
    }
    *ret_ring = ring;
    return BT_OK;
}

void bt_ring_close(bt_ring *ring) {
    if (!ring) return;
    for (uint32_t i = 0; ring->slots && i < ring->n_slots; i++) {
        if (ring->slots[i].state == SLOT_READING) bt_reader_cancel(ring->reader, ring->slots[i].job);
    }
    bt_account_unmap(ring->account, ring->mapping);
    bt_heap_free(ring->order);
    bt_heap_free(ring->guesses);
    bt_heap_free(ring->slots);
    bt_heap_free(ring);
}

/* ---- slots ------------------------------------------------------------------------------------------------------ */

static uint32_t find_slot(const bt_ring *ring, uint32_t unit) {
    for (uint32_t i = 0; i < ring->n_slots; i++) {
        if (ring->slots[i].state != SLOT_EMPTY && ring->slots[i].unit == unit) return i;
    }
    return NO_SLOT;
}

/* A slot that may be overwritten: an empty one, else the one released longest ago. */
static uint32_t find_free_slot(const bt_ring *ring) {
    uint32_t best = NO_SLOT;
    for (uint32_t i = 0; i < ring->n_slots; i++) {
        const slot *s = &ring->slots[i];
        if (s->n_holds > 0 || s->n_guesses > 0) continue;
        if (s->state == SLOT_EMPTY) return i;
        if (best == NO_SLOT || s->released < ring->slots[best].released) best = i;
    }
    return best;
}

static bool all_held(const bt_ring *ring) {
    for (uint32_t i = 0; i < ring->n_slots; i++) {
        if (ring->slots[i].n_holds == 0) return false;
    }
    return true;
}

static bt_status start_read(bt_ring *ring, uint32_t at, uint32_t unit, bt_error *err) {
    const bt_ring_unit *u = &ring->units[unit];
    slot *s = &ring->slots[at];
    s->state = SLOT_EMPTY;
    if (u->n_extents > UNIT_RUNS_MAX || u->image_bytes > ring->slot_bytes) {
        return bt_fail(err, BT_E_LIMIT, "ring_unit", BT_MEASURE_BYTES, u->image_bytes, ring->slot_bytes,
                       "unit %u (%llu bytes in %u extents) does not fit in a slot of %llu bytes", unit,
                       (unsigned long long)u->image_bytes, u->n_extents, (unsigned long long)ring->slot_bytes);
    }
    for (uint32_t i = 0; i < u->n_extents; i++) {
        const bt_extent *extent = &u->extents[i];
        uint64_t end = 0;
        if (!bt_add_u64(extent->image_offset, extent->bytes, &end) || end > ring->slot_bytes) {
            return bt_fail(err, BT_E_ARG, "ring_unit", BT_MEASURE_BYTES, end, ring->slot_bytes,
                           "unit %u: extent %u leaves the slot", unit, i);
        }
        ring->runs[i] = (bt_run){.file = extent->shard,
                                 .offset = extent->file_offset,
                                 .bytes = extent->bytes,
                                 .dest = s->image + extent->image_offset};
    }
    BT_TRY(bt_reader_start(ring->reader, ring->runs, u->n_extents, &s->job, err));
    s->state = SLOT_READING;
    s->unit = unit;
    return BT_OK;
}

/* Wait for a slot's read. On failure the slot is empty. */
static bt_status complete_read(bt_ring *ring, uint32_t at, bt_error *err) {
    slot *s = &ring->slots[at];
    bt_status status = bt_reader_wait(ring->reader, s->job, err);
    s->state = status == BT_OK ? SLOT_READY : SLOT_EMPTY;
    return status;
}

/* ---- guesses ---------------------------------------------------------------------------------------------------- */

static uint32_t position(const bt_ring *ring, uint32_t ahead) {
    return (uint32_t)(((uint64_t)ring->head + ahead) % ring->n_order);
}

/* A slot lost a guess and perhaps its reason to be read. */
static void unbind(bt_ring *ring, uint32_t at) {
    slot *s = &ring->slots[at];
    s->n_guesses--;
    if (s->n_guesses > 0 || s->n_holds > 0 || s->state != SLOT_READING) return;
    if (bt_reader_is_done(ring->reader, s->job)) {
        (void)complete_read(ring, at, NULL); /* a failure nobody waited for: the slot is empty, which is all it means */
    } else {
        bt_reader_cancel(ring->reader, s->job);
        s->state = SLOT_EMPTY;
    }
    s->released = ++ring->clock;
}

/* Forget all guesses from the i-th on, the last first: the reader then has nothing of them left to submit. */
static void drop_guesses_from(bt_ring *ring, uint32_t i) {
    while (ring->n_guesses > i) {
        unbind(ring, ring->guesses[--ring->n_guesses]);
    }
}

/* Forget the first n guesses; head stands behind them. */
static void drop_first_guesses(bt_ring *ring, uint32_t n) {
    for (uint32_t i = n; i > 0; i--) {
        unbind(ring, ring->guesses[i - 1]);
    }
    ring->n_guesses -= n;
    memmove(ring->guesses, ring->guesses + n, ring->n_guesses * sizeof *ring->guesses);
    ring->head = position(ring, n);
}

/* Bind slots to the positions behind the last guess, and start their reads, while there is room. */
static void guess(bt_ring *ring) {
    if (ring->n_order == 0 || ring->resting) return;
    while (ring->n_guesses < ring->n_slots) {
        uint32_t unit = ring->order[position(ring, ring->n_guesses)];
        uint32_t at = find_slot(ring, unit);
        if (at == NO_SLOT) {
            at = find_free_slot(ring);
            if (at == NO_SLOT) return;
            /* Refused when the reader is full: tried again at the next release or poll. */
            if (start_read(ring, at, unit, NULL) != BT_OK) return;
        }
        ring->slots[at].n_guesses++;
        ring->guesses[ring->n_guesses++] = at;
    }
}

/* The first guess for a unit, or n_guesses. */
static uint32_t find_guess(const bt_ring *ring, uint32_t unit) {
    uint32_t i = 0;
    while (i < ring->n_guesses && ring->order[position(ring, i)] != unit) {
        i++;
    }
    return i;
}

/* Set head behind the unit's next occurrence, if it has one. */
static void anchor(bt_ring *ring, uint32_t unit) {
    for (uint32_t i = 0; i < ring->n_order; i++) {
        if (ring->order[position(ring, i)] != unit) continue;
        if (i + 1 != ring->n_order) { /* else head would come back to where it is, and the guesses are right */
            ring->stats.wrong_guesses += ring->n_guesses;
            drop_guesses_from(ring, 0);
            ring->head = position(ring, i + 1);
        }
        return;
    }
}

bt_status bt_ring_set_order(bt_ring *ring, const uint32_t *units, uint32_t n, bt_error *err) {
    if (n > ORDER_MAX) {
        return bt_fail(err, BT_E_LIMIT, "ring_order", BT_MEASURE_ITEMS, n, ORDER_MAX, "an order of %u units; %u can be",
                       n, ORDER_MAX);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (units[i] >= ring->n_units) {
            return bt_fail(err, BT_E_ARG, "ring_order", BT_MEASURE_ITEMS, units[i], ring->n_units,
                           "there is no unit %u to expect", units[i]);
        }
    }
    if (n > ring->order_capacity) {
        uint32_t *order = bt_heap_array(n, sizeof *order);
        if (!order) return bt_fail_sys(err, ENOMEM, "heap", "cannot keep an order of %u units", n);
        if (ring->n_order > 0) memcpy(order, ring->order, ring->n_order * sizeof *order);
        bt_heap_free(ring->order);
        ring->order = order;
        ring->order_capacity = n;
    }
    /* Guesses made from the end of the old order into its beginning are right for a new order that begins alike. */
    uint32_t n_kept = 0;
    while (n > 0 && n_kept < ring->n_guesses && ring->slots[ring->guesses[n_kept]].unit == units[n_kept % n] &&
           ring->slots[ring->guesses[n_kept]].state != SLOT_EMPTY) {
        n_kept++;
    }
    drop_guesses_from(ring, n_kept);
    if (n > 0) memcpy(ring->order, units, n * sizeof *ring->order);
    ring->n_order = n;
    ring->head = 0;
    ring->resting = false;
    guess(ring);
    return BT_OK;
}

/* ---- acquire and release ---------------------------------------------------------------------------------------- */

/* A slot for a unit that is nowhere, its read started before anything else's; re-anchored. Not all slots are held. */
static bt_status read_now(bt_ring *ring, uint32_t unit, uint32_t *ret_at, bt_error *err) {
    anchor(ring, unit);
    /* What is left are guesses for a graph that this unit is foreign to: complete ones may stay. */
    uint32_t n_ready = 0;
    while (n_ready < ring->n_guesses && ring->slots[ring->guesses[n_ready]].state == SLOT_READY) {
        n_ready++;
    }
    drop_guesses_from(ring, n_ready);
    uint32_t at = find_free_slot(ring);
    while (at == NO_SLOT && ring->n_guesses > 0) {
        drop_guesses_from(ring, ring->n_guesses - 1);
        ring->stats.wrong_guesses++;
        at = find_free_slot(ring);
    }
    if (at == NO_SLOT) { /* cannot be: a slot that is not held and not guessed is free */
        return bt_fail(err, BT_E_LIMIT, "ring_full", BT_MEASURE_ITEMS, (uint64_t)ring->n_slots + 1, ring->n_slots,
                       "no slot is free");
    }
    BT_TRY(start_read(ring, at, unit, err));
    *ret_at = at;
    return BT_OK;
}

/* Find or start the unit; *ret_at: its slot, with one hold more. */
static bt_status take(bt_ring *ring, uint32_t unit, uint32_t *ret_at, bt_error *err) {
    uint32_t i = find_guess(ring, unit);
    uint32_t at = find_slot(ring, unit);
    bool held = at != NO_SLOT && ring->slots[at].n_holds > 0;
    if (at != NO_SLOT && i < ring->n_guesses && (i == 0 || !held)) {
        ring->stats.wrong_guesses += i;
        ring->slots[at].n_holds++; /* first, so that dropping its guess keeps it */
        drop_first_guesses(ring, i + 1);
    } else if (held) {
        ring->slots[at].n_holds++;
    } else if (at != NO_SLOT) {
        ring->slots[at].n_holds++;
        anchor(ring, unit);
    } else {
        if (all_held(ring)) {
            return bt_fail(err, BT_E_LIMIT, "ring_full", BT_MEASURE_ITEMS, (uint64_t)ring->n_slots + 1, ring->n_slots,
                           "unit %u is wanted while all %u slots are in use", unit, ring->n_slots);
        }
        BT_TRY(read_now(ring, unit, &at, err));
        ring->slots[at].n_holds++;
    }
    *ret_at = at;
    return BT_OK;
}

bt_status bt_ring_acquire(bt_ring *ring, uint32_t unit, void **ret_image, bt_error *err) {
    if (unit >= ring->n_units) {
        return bt_fail(err, BT_E_ARG, "ring_unit", BT_MEASURE_ITEMS, unit, ring->n_units, "there is no unit %u", unit);
    }
    ring->stats.acquired++;
    ring->resting = false;
    uint32_t head = ring->head;
    bool foreseen = find_slot(ring, unit) != NO_SLOT;
    uint32_t at = NO_SLOT;
    BT_TRY(take(ring, unit, &at, err));
    guess(ring); /* behind the unit's own read, if it has one: requests go out in order */
    slot *s = &ring->slots[at];
    bool hit = s->state == SLOT_READY || bt_reader_is_done(ring->reader, s->job);
    if (hit && foreseen)
        ring->stats.hits++;
    else
        ring->stats.stalls++;
    if (s->state == SLOT_READING) {
        uint64_t since_ns = bt_os_now_ns();
        bt_status status = complete_read(ring, at, err);
        ring->stats.wait_ns += bt_os_now_ns() - since_ns;
        if (status != BT_OK) {
            s->n_holds--;
            drop_guesses_from(ring, 0);
            ring->head = head;
            ring->resting = true;
            return status;
        }
    }
    *ret_image = s->image;
    return BT_OK;
}

void bt_ring_release(bt_ring *ring, uint32_t unit) {
    uint32_t at = unit < ring->n_units ? find_slot(ring, unit) : NO_SLOT;
    if (at == NO_SLOT || ring->slots[at].n_holds == 0) return;
    slot *s = &ring->slots[at];
    if (--s->n_holds == 0) s->released = ++ring->clock;
    guess(ring);
}

void bt_ring_poll(bt_ring *ring) {
    bt_reader_poll(ring->reader);
    guess(ring);
}

void bt_ring_stats_read(const bt_ring *ring, bt_ring_stats *ret) {
    *ret = ring->stats;
}
