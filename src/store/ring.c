/* SPDX-License-Identifier: MIT
 * ring.c: images of units in one stretch of memory, and the guesses of what they will be needed for.
 *
 *     order:   ... u3 | u4  u5  u6  u7 ...         head: position of the unit expected next (u4)
 *     guesses:          |   |   |
 *                       v   v   v                  a guess is a position bound to an image; an image that is bound to
 *     memory:  [ u6 |free| u3 held | u4 | u5 ]     several positions is read once and kept for all of them
 *                   ^ cursor
 *
 * The guesses are a queue: they stand for the positions head, head + 1, ... without a gap. An image may be overwritten
 * when it is not held and no guess is bound to it. A new image is placed behind the one placed last, at the start when
 * the rest is too short, else in any gap: while the graph follows the order this is a circular buffer, in which small
 * units are many and large ones few. A unit has one image at most. What is acquired falls in one of five cases, asked
 * in this order:
 *
 *     the first guess        taken; head moves on. Every step of a graph that does what it did last time is this one
 *     held already           held once more; the graph uses it twice, nothing moves
 *     a later guess          those before it were wrong: dropped; head moves behind it
 *     there, unguessed       taken without reading; re-anchored
 *     nowhere                guesses make room and leave the disk, it is read now; re-anchored
 *
 * Re-anchoring sets head behind the unit's next occurrence in the order; a unit that is not in the order leaves head
 * where it is. Dropping a guess cancels its read unless that is complete; a complete one stays where it is until its
 * place is needed. A failed read removes its image and drops the guesses; nothing is read again before it is asked for.
 * One that had begun before its unit was asked for is begun once more then: what went wrong may be over, since a guess
 * may be old. Units that are acquired together may find the memory cut up by each other; then all is dropped and they
 * are laid out from the start, so that they fit whenever their sum does.
 *
 * Bounds: IMAGE_MAX images, as many guesses, orders of at most 2^20 positions. Every step costs at most the square of
 * IMAGE_MAX, and re-anchoring the length of the order. */
#include "store/ring.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"

#include <errno.h>
#include <string.h>

/* Images at once. A reader has 64 jobs (reader.h): a quarter stays free for what is read beside the ring. */
#define IMAGE_MAX     48u
#define RUNS_MAX      512u       /* being read ahead, over all images; the reader has room for 768 */
#define ORDER_MAX     (1u << 20) /* every tensor of the largest model (BT_TENSOR_MAX) used 16 times a pass */
#define UNIT_RUNS_MAX 256u       /* of one job, reader.h */
#define NONE          UINT32_MAX

typedef enum image_state { IMAGE_EMPTY, IMAGE_READING, IMAGE_READY } image_state;

typedef struct image {
    image_state state; /* EMPTY: the rest means nothing */
    uint64_t offset, bytes;
    uint32_t unit;
    uint32_t n_runs;
    uint32_t n_holds;   /* by the graph */
    uint32_t n_guesses; /* bound to it */
    int job;            /* while reading */
} image;

struct bt_ring {
    bt_account *account;
    bt_reader *reader;
    const bt_ring_unit *units;
    uint32_t n_units;
    bt_mapping *mapping;
    uint64_t bytes;
    uint64_t cursor; /* end of the image placed last */
    image images[IMAGE_MAX];
    uint32_t *order; /* [n_order] */
    uint32_t n_order, order_capacity;
    uint32_t head;               /* position expected next; < n_order unless that is 0 */
    uint32_t guesses[IMAGE_MAX]; /* [n_guesses] image of position head + i */
    uint32_t n_guesses;
    bool resting; /* after a failed read: no guesses until something is asked for */
    bt_ring_stats stats;
    bt_run runs[UNIT_RUNS_MAX]; /* scratch of start_read */
};

/* ---- open and close --------------------------------------------------------------------------------------------- */

static bt_status open_memory(bt_ring *ring, bt_error *err) {
    BT_TRY(bt_account_map(ring->account, BT_LINE_RING, ring->bytes, &ring->mapping, err));
    BT_TRY(bt_account_commit(ring->account, ring->mapping, ring->bytes, err));
    (void)bt_os_huge_pages(ring->mapping->base, ring->bytes); /* advice */
    /* Now and not in the reads: page faults inside a submission were a third of the time of a pass (spike). */
    int rc = bt_os_populate(ring->mapping->base, ring->bytes);
    if (rc < 0)
        return bt_fail_sys(err, -rc, "populate_failed", "host/ring: the system refused %s", BT_SIZE(ring->bytes));
    return BT_OK;
}

bt_status bt_ring_open(bt_account *account, bt_reader *reader, const bt_ring_unit *units, uint32_t n_units,
                       uint64_t ring_bytes, bt_ring **ret_ring, bt_error *err) {
    if (ring_bytes == 0 || ring_bytes % BT_PAGE_BYTES != 0) {
        return bt_fail(err, BT_E_ARG, "ring_params", BT_MEASURE_BYTES, ring_bytes, 0,
                       "a ring of %llu bytes; whole pages can be", (unsigned long long)ring_bytes);
    }
    bt_ring *ring = bt_heap_alloc(sizeof *ring);
    if (!ring) return bt_fail_sys(err, ENOMEM, "heap", "cannot make a ring");
    ring->account = account;
    ring->reader = reader;
    ring->units = units;
    ring->n_units = n_units;
    ring->bytes = ring_bytes;
    bt_status status = open_memory(ring, err);
    if (status != BT_OK) {
        bt_ring_close(ring);
        return status;
    }
    *ret_ring = ring;
    return BT_OK;
}

void bt_ring_close(bt_ring *ring) {
    if (!ring) return;
    for (uint32_t i = 0; i < IMAGE_MAX; i++) {
        if (ring->images[i].state == IMAGE_READING) bt_reader_cancel(ring->reader, ring->images[i].job);
    }
    bt_account_unmap(ring->account, ring->mapping);
    bt_heap_free(ring->order);
    bt_heap_free(ring);
}

/* ---- images ----------------------------------------------------------------------------------------------------- */

static uint32_t find_image(const bt_ring *ring, uint32_t unit) {
    for (uint32_t i = 0; i < IMAGE_MAX; i++) {
        if (ring->images[i].state != IMAGE_EMPTY && ring->images[i].unit == unit) return i;
    }
    return NONE;
}

static bool is_needed(const image *m) {
    return m->state != IMAGE_EMPTY && (m->n_holds > 0 || m->n_guesses > 0);
}

/* Nothing is in the way of an empty image, nor it of others. */
static bool overlaps(const image *m, uint64_t offset, uint64_t bytes) {
    return m->bytes > 0 && m->offset < offset + bytes && offset < m->offset + m->bytes;
}

static bool place_is_free(const bt_ring *ring, uint64_t offset, uint64_t bytes) {
    if (offset > ring->bytes || bytes > ring->bytes - offset) return false;
    for (uint32_t i = 0; i < IMAGE_MAX; i++) {
        if (is_needed(&ring->images[i]) && overlaps(&ring->images[i], offset, bytes)) return false;
    }
    return true;
}

/* Where an image of so many bytes may lie; false: nowhere. */
static bool find_place(const bt_ring *ring, uint64_t bytes, uint64_t *ret_offset) {
    const uint64_t first[] = {ring->cursor, 0};
    for (uint32_t i = 0; i < IMAGE_MAX + 2; i++) {
        const image *m = i < 2 ? NULL : &ring->images[i - 2];
        if (m && !is_needed(m)) continue;
        *ret_offset = m ? m->offset + m->bytes : first[i];
        if (place_is_free(ring, *ret_offset, bytes)) return true;
    }
    return false;
}

/* A record for an image at a place: what stands there and is not needed goes. NONE: all records are needed. */
static uint32_t make_image(bt_ring *ring, uint64_t offset, uint64_t bytes) {
    uint32_t found = NONE;
    for (uint32_t i = 0; i < IMAGE_MAX; i++) {
        image *m = &ring->images[i];
        if (is_needed(m)) continue;
        if (m->state != IMAGE_EMPTY && overlaps(m, offset, bytes)) m->state = IMAGE_EMPTY;
        if (found == NONE || (m->state == IMAGE_EMPTY && ring->images[found].state != IMAGE_EMPTY)) found = i;
    }
    if (found != NONE) ring->images[found] = (image){.offset = offset, .bytes = bytes};
    return found;
}

static bt_status check_unit(const bt_ring *ring, uint32_t unit, bt_error *err) {
    const bt_ring_unit *u = &ring->units[unit];
    if (u->n_extents > UNIT_RUNS_MAX || u->image_bytes > ring->bytes) {
        return bt_fail(err, BT_E_LIMIT, "ring_unit", BT_MEASURE_BYTES, u->image_bytes, ring->bytes,
                       "unit %u (%llu bytes in %u extents) does not fit in a ring of %llu bytes", unit,
                       (unsigned long long)u->image_bytes, u->n_extents, (unsigned long long)ring->bytes);
    }
    for (uint32_t i = 0; i < u->n_extents; i++) {
        uint64_t end = 0;
        if (!bt_add_u64(u->extents[i].image_offset, u->extents[i].bytes, &end) || end > u->image_bytes) {
            return bt_fail(err, BT_E_ARG, "ring_unit", BT_MEASURE_BYTES, end, u->image_bytes,
                           "unit %u: extent %u leaves its image", unit, i);
        }
    }
    return BT_OK;
}

static bt_status start_read(bt_ring *ring, uint32_t unit, uint64_t offset, uint32_t *ret_at, bt_error *err) {
    BT_TRY(check_unit(ring, unit, err));
    const bt_ring_unit *u = &ring->units[unit];
    uint32_t at = make_image(ring, offset, u->image_bytes);
    if (at == NONE) {
        return bt_fail(err, BT_E_LIMIT, "ring_full", BT_MEASURE_ITEMS, (uint64_t)IMAGE_MAX + 1, IMAGE_MAX,
                       "unit %u is wanted while %u others are in use", unit, IMAGE_MAX);
    }
    for (uint32_t i = 0; i < u->n_extents; i++) {
        const bt_extent *extent = &u->extents[i];
        ring->runs[i] = (bt_run){.file = extent->shard,
                                 .offset = extent->file_offset,
                                 .bytes = extent->bytes,
                                 .dest = (uint8_t *)ring->mapping->base + offset + extent->image_offset};
    }
    image *m = &ring->images[at];
    BT_TRY(bt_reader_start(ring->reader, ring->runs, u->n_extents, &m->job, err));
    m->state = IMAGE_READING;
    m->unit = unit;
    m->n_runs = u->n_extents;
    ring->cursor = offset + u->image_bytes;
    *ret_at = at;
    return BT_OK;
}

/* Wait for an image's read. On failure it is empty. */
static bt_status complete_read(bt_ring *ring, uint32_t at, bt_error *err) {
    image *m = &ring->images[at];
    bt_status status = bt_reader_wait(ring->reader, m->job, err);
    m->state = status == BT_OK ? IMAGE_READY : IMAGE_EMPTY;
    return status;
}

static uint64_t runs_reading(const bt_ring *ring) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < IMAGE_MAX; i++) {
        if (ring->images[i].state == IMAGE_READING) n += ring->images[i].n_runs;
    }
    return n;
}

/* ---- guesses ---------------------------------------------------------------------------------------------------- */

static uint32_t position(const bt_ring *ring, uint32_t ahead) {
    return (uint32_t)(((uint64_t)ring->head + ahead) % ring->n_order);
}

/* An image lost a guess and perhaps its reason to be read. */
static void unbind(bt_ring *ring, uint32_t at) {
    image *m = &ring->images[at];
    m->n_guesses--;
    if (m->n_guesses > 0 || m->n_holds > 0 || m->state != IMAGE_READING) return;
    if (bt_reader_is_done(ring->reader, m->job)) {
        (void)complete_read(ring, at, NULL); /* a failure nobody waited for: it is gone, which is all it means */
    } else {
        bt_reader_cancel(ring->reader, m->job);
        m->state = IMAGE_EMPTY;
    }
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

/* Start to read a unit that is expected, if there is room for it now. */
static bool read_ahead(bt_ring *ring, uint32_t unit, uint32_t *ret_at) {
    const bt_ring_unit *u = &ring->units[unit];
    uint64_t offset = 0;
    if (runs_reading(ring) + u->n_extents > RUNS_MAX || !find_place(ring, u->image_bytes, &offset)) return false;
    /* Refused when the reader is full: tried again at the next release or poll. */
    return start_read(ring, unit, offset, ret_at, NULL) == BT_OK;
}

/* Bind images to the positions behind the last guess, and start their reads, while there is room. */
static void guess(bt_ring *ring) {
    if (ring->resting) return;
    uint32_t n = (uint32_t)bt_min_u64(ring->n_order, IMAGE_MAX);
    while (ring->n_guesses < n) {
        uint32_t unit = ring->order[position(ring, ring->n_guesses)];
        uint32_t at = find_image(ring, unit);
        if (at == NONE && !read_ahead(ring, unit, &at)) return;
        ring->images[at].n_guesses++;
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
    while (n > 0 && n_kept < ring->n_guesses && ring->images[ring->guesses[n_kept]].unit == units[n_kept % n] &&
           ring->images[ring->guesses[n_kept]].state != IMAGE_EMPTY) {
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

/* An image of a unit that is nowhere, its read started before anything else's; re-anchored. */
static bt_status read_now(bt_ring *ring, uint32_t unit, uint32_t *ret_at, bt_error *err) {
    BT_TRY(check_unit(ring, unit, err));
    anchor(ring, unit);
    /* What is left are guesses for a graph that this unit is foreign to: complete ones may stay. */
    uint32_t n_ready = 0;
    while (n_ready < ring->n_guesses && ring->images[ring->guesses[n_ready]].state == IMAGE_READY) {
        n_ready++;
    }
    drop_guesses_from(ring, n_ready);
    uint64_t bytes = ring->units[unit].image_bytes, offset = 0;
    bool found = find_place(ring, bytes, &offset);
    while (!found && ring->n_guesses > 0) {
        drop_guesses_from(ring, ring->n_guesses - 1);
        ring->stats.wrong_guesses++;
        found = find_place(ring, bytes, &offset);
    }
    if (!found) {
        return bt_fail(err, BT_E_LIMIT, "ring_full", BT_MEASURE_BYTES, bytes, ring->bytes,
                       "unit %u is wanted while others that are in use leave no room for it in a ring of %s", unit,
                       BT_SIZE(ring->bytes));
    }
    return start_read(ring, unit, offset, ret_at, err);
}

/* Find or start the unit; *ret_at: its image, with one hold more. */
static bt_status take(bt_ring *ring, uint32_t unit, uint32_t *ret_at, bt_error *err) {
    uint32_t i = find_guess(ring, unit);
    uint32_t at = find_image(ring, unit);
    bool held = at != NONE && ring->images[at].n_holds > 0;
    if (at != NONE && i < ring->n_guesses && (i == 0 || !held)) {
        ring->stats.wrong_guesses += i;
        ring->images[at].n_holds++; /* first, so that dropping its guess keeps it */
        drop_first_guesses(ring, i + 1);
    } else if (held) {
        ring->images[at].n_holds++;
    } else if (at != NONE) {
        ring->images[at].n_holds++;
        anchor(ring, unit);
    } else {
        BT_TRY(read_now(ring, unit, &at, err));
        ring->images[at].n_holds++;
    }
    *ret_at = at;
    return BT_OK;
}

static void give_back(bt_ring *ring, const uint32_t *taken, uint32_t n) {
    while (n-- > 0) {
        image *m = &ring->images[taken[n]];
        m->n_holds--;
        if (is_needed(m) || m->state != IMAGE_READING) continue;
        bt_reader_cancel(ring->reader, m->job);
        m->state = IMAGE_EMPTY;
    }
}

/* All or none. */
static bt_status take_all(bt_ring *ring, const uint32_t *units, uint32_t n, uint32_t *taken, bt_error *err) {
    for (uint32_t k = 0; k < n; k++) {
        bool foreseen = find_image(ring, units[k]) != NONE;
        bt_status status = take(ring, units[k], &taken[k], err);
        if (status != BT_OK) {
            give_back(ring, taken, k);
            return status;
        }
        image *m = &ring->images[taken[k]];
        if (foreseen && (m->state == IMAGE_READY || bt_reader_is_done(ring->reader, m->job)))
            ring->stats.hits++;
        else
            ring->stats.stalls++;
    }
    return BT_OK;
}

/* Units stand so that another does not fit between them: lay them out anew. */
static bt_status take_anew(bt_ring *ring, const uint32_t *units, uint32_t n, uint32_t *taken, bt_error *err) {
    drop_guesses_from(ring, 0);
    for (uint32_t i = 0; i < IMAGE_MAX; i++) {
        if (!is_needed(&ring->images[i])) ring->images[i].state = IMAGE_EMPTY;
    }
    ring->cursor = 0;
    return take_all(ring, units, n, taken, err);
}

/* After a failed read: nothing is held, and head stands where it was. */
static void rest(bt_ring *ring, const uint32_t *taken, uint32_t n, uint32_t head) {
    give_back(ring, taken, n);
    drop_guesses_from(ring, 0);
    ring->head = head;
    ring->resting = true;
}

static bt_status wait_all(bt_ring *ring, const uint32_t *taken, uint32_t n, bt_error *err) {
    bt_status status = BT_OK;
    for (uint32_t k = 0; k < n && status == BT_OK; k++) {
        if (ring->images[taken[k]].state != IMAGE_READING) continue;
        uint64_t since_ns = bt_os_now_ns();
        status = complete_read(ring, taken[k], err);
        ring->stats.wait_ns += bt_os_now_ns() - since_ns;
    }
    return status;
}

/* *ret_ahead: a read that was waited for had begun before it was asked for. */
static bt_status acquire(bt_ring *ring, const uint32_t *units, uint32_t n, uint32_t *taken, bool *ret_ahead,
                         bt_error *err) {
    uint32_t head = ring->head;
    *ret_ahead = false;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t at = find_image(ring, units[k]);
        *ret_ahead = *ret_ahead || (at != NONE && ring->images[at].state == IMAGE_READING);
    }
    ring->resting = false;
    bt_status status = take_all(ring, units, n, taken, err);
    if (status == BT_E_LIMIT && n > 1) status = take_anew(ring, units, n, taken, err);
    if (status != BT_OK) {
        *ret_ahead = false;
        return status;
    }
    guess(ring); /* behind the units' own reads, if they have any: requests go out in order */
    status = wait_all(ring, taken, n, err);
    if (status != BT_OK) rest(ring, taken, n, head);
    return status;
}

bt_status bt_ring_acquire(bt_ring *ring, const uint32_t *units, uint32_t n, void **ret_images, bt_error *err) {
    uint32_t taken[BT_RING_ACQUIRE_MAX];
    if (n > BT_RING_ACQUIRE_MAX) {
        return bt_fail(err, BT_E_ARG, "ring_units", BT_MEASURE_ITEMS, n, BT_RING_ACQUIRE_MAX,
                       "%u units at once; %u can be", n, BT_RING_ACQUIRE_MAX);
    }
    for (uint32_t k = 0; k < n; k++) {
        if (units[k] >= ring->n_units)
            return bt_fail(err, BT_E_ARG, "ring_unit", BT_MEASURE_ITEMS, units[k], ring->n_units, "there is no unit %u",
                           units[k]);
    }
    ring->stats.acquired += n;
    bool ahead = false;
    bt_error why = {0}; /* a caller takes an error that is set for one that is left */
    bt_status status = acquire(ring, units, n, taken, &ahead, &why);
    if (status != BT_OK && ahead)
        BT_TRY(acquire(ring, units, n, taken, &ahead, err));
    else if (status != BT_OK) {
        if (err) *err = why;
        return status;
    }
    for (uint32_t k = 0; k < n; k++) {
        ret_images[k] = (uint8_t *)ring->mapping->base + ring->images[taken[k]].offset;
    }
    return BT_OK;
}

void bt_ring_release(bt_ring *ring, uint32_t unit) {
    uint32_t at = unit < ring->n_units ? find_image(ring, unit) : NONE;
    if (at == NONE || ring->images[at].n_holds == 0) return;
    ring->images[at].n_holds--;
    guess(ring);
}

/* Each turn completes at least one read, and a place that was read into stays taken by its guess: it ends. */
bt_status bt_ring_settle(bt_ring *ring, bt_error *err) {
    guess(ring);
    for (uint32_t i = 0; i < IMAGE_MAX;) {
        if (ring->images[i].state != IMAGE_READING) {
            i++;
            continue;
        }
        bt_status status = complete_read(ring, i, err);
        if (status != BT_OK) {
            rest(ring, NULL, 0, ring->head);
            return status;
        }
        guess(ring); /* what the reader had no room for */
        i = 0;
    }
    return BT_OK;
}

uint32_t bt_ring_order(const bt_ring *ring, const uint32_t **ret_units) {
    *ret_units = ring->order;
    return ring->n_order;
}

void bt_ring_stats_read(const bt_ring *ring, bt_ring_stats *ret) {
    *ret = ring->stats;
}
