/* SPDX-License-Identifier: MIT
 *
 * elastic.c: weights in the memory that the context will need later (docs/design.md S5).
 *
 * A plan pays for the cache at the full context and for the graph of a full micro-batch. A short chat uses little of
 * either. Until they are needed, their bytes hold copies of units that would stream:
 *
 *     kv       [####|..............................]     #### touched, charged
 *     compute  [########|..........................]     .... lendable: charged once in full, not touched
 *     elastic  [blk.8.ffn blk.24.ffn blk.16.attn ...]    at most as many bytes as are lendable
 *
 * Who lends. Buffers of the device that libllama writes only through us: the caches, and the compute buffers of graphs
 * (lender.c knows their pages). Before a graph runs, the pages it will touch are counted, units are released if they
 * stand in the way, the pages are charged, and then it runs: release comes before commit, and the account checks it.
 *
 * Who borrows. Streamed units, in an order that keeps every prefix of it spread over the pass. A unit is copied from
 * its ring slot while it is there, so holding it costs no read. When the set changes, schedules are built anew: a held
 * unit is like a pinned one. Units are given back in the reverse order.
 *
 * A unit is taken only if what is lendable was enough during the last graphs and will be for a while at the present
 * growth, so that a run of prompts or of cleared contexts does not copy in vain.
 *
 * Bounds: the plan's own lines; at most n_units copies. Left out: lending of ring slots, and of host buffers, which
 * libllama writes to directly. */

#include "device/internal.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"

#include <string.h>

/* Growth of this many graphs is left free when a unit is taken: it then stays for at least as many tokens. */
#define STAY_GRAPHS 64u

typedef enum unit_state {
    UNIT_STREAMS, /* through the ring, or pinned by the plan */
    UNIT_WANTED,  /* to be copied when it is next in a slot */
    UNIT_COPIED,  /* copied by the graph that runs, which does not know yet */
    UNIT_HELD,
} unit_state;

struct bt_elastic {
    bt_device *device;
    bt_mapping *memory; /* room for every streamed unit; borrows */
    uint64_t *offset;   /* [n_units] in memory; UINT64_MAX: does not stream */
    uint8_t *state;     /* [n_units] unit_state */
    uint32_t *order;    /* [n_order] streamed units in the order they are taken */
    uint32_t *held;     /* [n_held] units that are copied or held, first taken first */
    uint32_t n_order, n_held;
    uint64_t n_graphs;                 /* ever */
    uint64_t lendable[BT_CALM_GRAPHS]; /* during each of the last graphs */
    uint64_t grown_bytes;              /* by the caches, for the last graph */
    bt_elastic_stats stats;
};

/* ---- opening ---- */

/* Bit-reversed counting: every prefix of the order is spread evenly over the pass (van der Corput). */
static void order_make(bt_elastic *e, const uint32_t *streamed, uint32_t n) {
    uint32_t n_bits = 0;
    while ((UINT64_C(1) << n_bits) < n)
        n_bits++;
    for (uint64_t i = 0; i < UINT64_C(1) << n_bits; i++) {
        uint64_t at = 0;
        for (uint32_t bit = 0; bit < n_bits; bit++)
            at |= (i >> bit & 1) << (n_bits - 1 - bit);
        if (at < n) e->order[e->n_order++] = streamed[at];
    }
}

static uint64_t lay_out(bt_elastic *e) {
    const bt_facts *facts = e->device->facts;
    uint64_t bytes = 0;
    uint32_t n = 0;
    for (uint32_t u = 0; u < facts->n_units; u++) {
        e->offset[u] = UINT64_MAX;
        if (!e->device->params.elastic || facts->units[u].kind == BT_KIND_TABLE ||
            !bt_weights_unit_streams(e->device->weights, u))
            continue;
        e->offset[u] = bytes;
        bytes = bt_sat_add_u64(bytes, facts->units[u].image_bytes);
        e->held[n++] = u; /* not yet in use: a list of what streams */
    }
    order_make(e, e->held, n);
    return bytes;
}

bt_status bt_elastic_open(bt_device *device, bt_error *err) {
    uint32_t n = device->facts->n_units;
    bt_elastic *e = bt_heap_alloc(sizeof *e);
    if (!e) return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, sizeof *e, 0, "no memory for elastic pins");
    e->device = device;
    device->elastic = e;
    e->offset = bt_heap_array(n + 1, sizeof *e->offset);
    e->state = bt_heap_array(n + 1, sizeof *e->state);
    e->order = bt_heap_array(n + 1, sizeof *e->order);
    e->held = bt_heap_array(n + 1, sizeof *e->held);
    if (!e->offset || !e->state || !e->order || !e->held)
        return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_ITEMS, n, 0, "no memory for the elastic pins of %u units",
                       n);
    BT_TRY(bt_account_map_borrower(device->account, BT_LINE_PINNED, lay_out(e), &e->memory, err));
    (void)bt_os_no_huge_pages(e->memory->base, e->memory->bytes); /* but for those that lie in one unit */
    return BT_OK;
}

void bt_elastic_close(bt_device *device) {
    bt_elastic *e = device->elastic;
    if (!e) return;
    bt_account_unmap(device->account, e->memory);
    bt_heap_free(e->offset);
    bt_heap_free(e->state);
    bt_heap_free(e->order);
    bt_heap_free(e->held);
    bt_heap_free(e);
    device->elastic = NULL;
}

/* ---- units ---- */

uint8_t *bt_elastic_image(const bt_device *device, uint32_t unit) {
    const bt_elastic *e = device->elastic;
    if (!e || e->state[unit] != UNIT_HELD) return NULL;
    return (uint8_t *)e->memory->base + e->offset[unit];
}

/* What was built for another set of held units must be built again. */
static void set_changed(bt_elastic *e) {
    e->device->generation++;
    e->device->ring_order_of = NULL;
}

static void unit_release(bt_elastic *e) {
    uint32_t unit = e->held[--e->n_held];
    uint64_t bytes = e->device->facts->units[unit].image_bytes;
    if (e->state[unit] == UNIT_HELD) set_changed(e);
    bt_account_measure(e->device->account); /* the peak, before it is gone */
    e->state[unit] = UNIT_STREAMS;
    e->stats.released++;
    (void)bt_os_drop((uint8_t *)e->memory->base + e->offset[unit], bytes); /* whole pages of ours: cannot fail */
    bt_account_release(e->device->account, e->memory, bytes);
}

static bt_lending lending_of(const bt_elastic *e) {
    bt_lending lending;
    bt_account_lending_read(e->device->account, &lending);
    return lending;
}

/* Give back units until bytes more can be committed by those that lend. */
static void make_room(bt_elastic *e, uint64_t bytes) {
    for (;;) {
        bt_lending lending = lending_of(e);
        if (e->n_held == 0 || bt_sat_sub_u64(lending.lendable_bytes, lending.lent_bytes) >= bytes) return;
        unit_release(e);
    }
}

void bt_elastic_release_all(bt_device *device) {
    while (device->elastic && device->elastic->n_held > 0)
        unit_release(device->elastic);
}

void bt_elastic_offer(bt_device *device, uint32_t unit, const void *image) {
    bt_elastic *e = device->elastic;
    if (!e || e->state[unit] != UNIT_WANTED) return;
    uint64_t bytes = device->facts->units[unit].image_bytes;
    uint8_t *dest = (uint8_t *)e->memory->base + e->offset[unit];
    if (bt_account_commit(device->account, e->memory, bytes, NULL) != BT_OK) return; /* it streams on */
    (void)bt_os_huge_pages(dest, bytes);                                             /* advice */
    memcpy(dest, image, bytes);
    e->state[unit] = UNIT_COPIED;
    e->held[e->n_held++] = unit;
    e->stats.taken++;
}

/* ---- buffers that lend ---- */

/* All pages of it are gone, and its charge with them. */
static void drop_all(bt_elastic *e, bt_buffer *buffer) {
    bt_mapping *mapping = buffer->memory->mapping;
    (void)bt_os_drop(mapping->base, mapping->bytes); /* whole pages of ours: cannot fail */
    bt_elastic_cleared(e->device, buffer);
}

/* Charge what was marked. Where that is refused the pages must not be there unpaid for the next graph: a compute buffer
 * holds nothing for it, so that all of it is dropped; a cache was charged in full before it lent, and has it back. A
 * buffer's last page may be charged in part: it lends no more than it was charged. One that
 * was charged nothing (buffers.c) lends nothing, and is charged what it touches. */
static bt_status commit_fresh(bt_elastic *e, bt_buffer *buffer, bt_error *err) {
    bt_mapping *mapping = buffer->memory->mapping;
    uint64_t bytes = bt_lender_take_fresh_bytes(buffer->lender);
    if (bt_lender_keeps(buffer->lender)) e->grown_bytes += bytes;
    bool lends = mapping->lends_bytes > 0;
    if (lends) bytes = bt_min_u64(bytes, bt_sat_sub_u64(mapping->lends_bytes, mapping->committed_bytes));
    if (bytes == 0) return BT_OK;
    if (lends) make_room(e, bytes);
    bt_status status = bt_account_commit(e->device->account, mapping, bytes, err);
    if (status != BT_OK && !bt_lender_keeps(buffer->lender)) drop_all(e, buffer);
    return status;
}

bt_status bt_elastic_lend(bt_device *device, bt_buffer *buffer, bt_error *err) {
    if (!device->elastic || buffer->lender || buffer->host) return BT_OK;
    uint64_t bytes = buffer->memory->mapping->bytes;
    bt_lender *lender = bt_lender_make(bytes, buffer->memory->line == BT_LINE_KV);
    if (!lender)
        return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, bytes, 0, "no memory for the pages of a buffer of %s",
                       BT_SIZE(bytes));
    buffer->lender = lender;
    if (device->phase == BT_PHASE_CONTEXT || device->guest) {
        /* Nothing of it is meant to be kept: caches were cleared, and no graph has run. Of a guest it is the first
         * time that it is written to, by a graph or from outside. */
        (void)bt_os_drop(buffer->memory->mapping->base, bytes);
        bt_account_lend(device->account, buffer->memory->mapping);
        return BT_OK;
    }
    /* Made later, for a graph larger than those libllama had foreseen: its inputs stand in it already. */
    bt_account_lend(device->account, buffer->memory->mapping);
    return bt_elastic_touch(device, buffer, 0, bytes, err);
}

void bt_elastic_forget(bt_device *device, bt_buffer *buffer) {
    if (!buffer->lender) return;
    if (!bt_account_lend_end(device->account, buffer->memory->mapping)) {
        bt_elastic_release_all(device);
        (void)bt_account_lend_end(device->account, buffer->memory->mapping); /* nothing is lent now */
    }
    bt_lender_free(buffer->lender);
    buffer->lender = NULL;
}

void bt_elastic_cleared(bt_device *device, bt_buffer *buffer) {
    bt_lender *lender = buffer->lender;
    if (!lender) return;
    bt_account_measure(device->account); /* the peak of the line, before it is gone */
    bt_lender_clear(lender);
    bt_account_release(device->account, buffer->memory->mapping, buffer->memory->mapping->committed_bytes);
}

bt_status bt_elastic_touch(bt_device *device, bt_buffer *buffer, uint64_t offset, uint64_t bytes, bt_error *err) {
    if (!buffer->lender || !device->elastic) return BT_OK;
    bt_lender_mark(buffer->lender, offset, bytes);
    return commit_fresh(device->elastic, buffer, err);
}

bt_status bt_elastic_prepare(bt_device *device, const struct ggml_cgraph *graph, bt_error *err) {
    bt_elastic *e = device->elastic;
    if (!e) return BT_OK;
    bt_status status = BT_OK;
    e->grown_bytes = 0;
    pthread_mutex_lock(&device->buffer_lock);
    bt_lenders_follow(device, graph);
    e->n_graphs++;
    bt_lenders_mark_graph(device, graph);
    for (bt_buffer *buffer = device->buffers; buffer && status == BT_OK; buffer = buffer->next)
        if (buffer->lender) status = commit_fresh(e, buffer, err);
    pthread_mutex_unlock(&device->buffer_lock);
    e->lendable[e->n_graphs % BT_CALM_GRAPHS] = lending_of(e).lendable_bytes;
    return status;
}

/* ---- between graphs ---- */

/* Copies made by the graph that has run are held from the next one on. */
static void keep_copies(bt_elastic *e) {
    uint32_t first = e->n_held;
    while (first > 0 && e->state[e->held[first - 1]] == UNIT_COPIED)
        first--;
    for (uint32_t i = first; i < e->n_held; i++)
        e->state[e->held[i]] = UNIT_HELD;
    if (first < e->n_held) set_changed(e);
}

static uint64_t room_now(const bt_elastic *e) {
    if (e->n_graphs < BT_CALM_GRAPHS) return 0;
    uint64_t least = e->lendable[0];
    for (uint32_t i = 1; i < BT_CALM_GRAPHS; i++)
        least = bt_min_u64(least, e->lendable[i]);
    uint64_t stays = bt_sat_sub_u64(least, bt_sat_mul_u64(e->grown_bytes, STAY_GRAPHS));
    return bt_sat_sub_u64(stays, lending_of(e).lent_bytes);
}

void bt_elastic_settle(bt_device *device) {
    bt_elastic *e = device->elastic;
    if (!e) return;
    keep_copies(e);
    uint64_t room = room_now(e);
    bool full = false;
    for (uint32_t i = 0; i < e->n_order; i++) {
        uint32_t unit = e->order[i];
        if (e->state[unit] == UNIT_HELD) continue;
        uint64_t bytes = device->facts->units[unit].image_bytes;
        full |= bytes > room; /* in order: a later, smaller unit would be given back before an earlier one */
        e->state[unit] = full ? UNIT_STREAMS : UNIT_WANTED;
        if (!full) room -= bytes;
    }
}

void bt_device_elastic_stats_read(bt_device *device, bt_elastic_stats *ret) {
    *ret = (bt_elastic_stats){0};
    pthread_mutex_lock(&device->graph_lock);
    if (device->elastic) {
        *ret = device->elastic->stats;
        ret->held = device->elastic->n_held;
    }
    pthread_mutex_unlock(&device->graph_lock);
}
