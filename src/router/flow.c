/* SPDX-License-Identifier: MIT
 *
 * flow.c: a bounded buffer between two ends that do not know each other.
 *
 * The bound is what makes a slow reader harmless: a producer that is told "no" stops reading its own source, and the
 * system's buffers hold the sender back. It is told to go on when half is free, so that both ends work in large strokes
 * and not byte by byte. The buffer begins with a page, and is given back whenever it is empty: a router holds memory
 * for what is under way, not for what once was.
 *
 * Each end has a function that the other's calls may call. Such a call is made with a reference held, since the
 * function may give its end back, and never within itself: a call that comes while it runs is remembered and made by
 * the same loop. */
#include "router/flow.h"

#include "base/error.h"
#include "base/heap.h"
#include "router/byte_ring.h"

/* A function of an end, and where it stands. */
typedef struct told {
    void (*call)(void *user);
    void *user;
    bool running, again;
} told;

struct bt_flow {
    bt_byte_ring bytes;
    size_t max_bytes;
    told data, room;
    uint32_t n_references;
    bool full; /* the producer was refused, and waits */
    bool ended, whole, failed;
    bool unread; /* the consumer has gone */
};

static uint64_t total_bytes; /* of the process: one thread */

uint64_t bt_flow_total_bytes(void) {
    return total_bytes;
}

bt_status bt_flow_open(size_t max_bytes, bt_flow **ret, bt_error *err) {
    bt_flow *flow = bt_heap_alloc(sizeof *flow);
    if (!flow) return bt_fail(err, BT_E_NOMEM, "flow", BT_MEASURE_BYTES, sizeof *flow, 0, "no memory for a flow");
    flow->max_bytes = max_bytes;
    flow->n_references = 2;
    *ret = flow;
    return BT_OK;
}

static void give_buffer_back(bt_flow *flow) {
    total_bytes -= flow->bytes.capacity;
    bt_byte_ring_done(&flow->bytes);
}

static void release(bt_flow *flow) {
    if (--flow->n_references > 0) return;
    give_buffer_back(flow);
    bt_heap_free(flow);
}

static void tell(bt_flow *flow, told *who) {
    who->again = true;
    if (who->running) return;
    who->running = true;
    flow->n_references++;
    while (who->again && who->call) {
        who->again = false;
        who->call(who->user);
    }
    who->again = false;
    who->running = false;
    release(flow);
}

void bt_flow_on_data(bt_flow *flow, void (*on_data)(void *user), void *user) {
    flow->data.call = on_data;
    flow->data.user = user;
}

void bt_flow_on_room(bt_flow *flow, void (*on_room)(void *user), void *user) {
    flow->room.call = on_room;
    flow->room.user = user;
}

/* ---- the producer ---- */

static bool add(bt_flow *flow, const void *data, size_t n_bytes) {
    total_bytes -= flow->bytes.capacity;
    bool roomy = bt_byte_ring_make_room(&flow->bytes, n_bytes, flow->max_bytes);
    total_bytes += flow->bytes.capacity;
    if (roomy) bt_byte_ring_put(&flow->bytes, data, n_bytes);
    return roomy;
}

bool bt_flow_put(bt_flow *flow, const void *data, size_t n_bytes) {
    size_t held = flow->bytes.n_bytes;
    if (flow->unread || flow->ended || n_bytes == 0) return true;
    if (held > 0 && (held > flow->max_bytes || n_bytes > flow->max_bytes - held)) {
        flow->full = true;
        return false;
    }
    bool added = add(flow, data, n_bytes);
    if (!added) {
        flow->ended = true;
        flow->failed = true;
    }
    flow->n_references++; /* the consumer may make the producer go, too */
    tell(flow, &flow->data);
    /* A consumer that went at the news has told the producer already, who must not wait to be told. */
    bool done = added || flow->unread;
    release(flow);
    return done;
}

bool bt_flow_failed(const bt_flow *flow) {
    return flow->failed;
}

void bt_flow_end(bt_flow *flow, bool whole) {
    if (flow->ended) return;
    flow->ended = true;
    flow->whole = whole;
    tell(flow, &flow->data);
}

bool bt_flow_is_read(const bt_flow *flow) {
    return !flow->unread;
}

void bt_flow_drop_producer(bt_flow *flow) {
    bt_flow_on_room(flow, NULL, NULL);
    bt_flow_end(flow, false);
    release(flow);
}

/* ---- the consumer ---- */

size_t bt_flow_take(bt_flow *flow, void *dest, size_t capacity) {
    size_t n = bt_byte_ring_copy(&flow->bytes, 0, dest, capacity);
    bt_byte_ring_drop(&flow->bytes, n);
    if (flow->bytes.n_bytes == 0) give_buffer_back(flow);
    if (flow->full && flow->bytes.n_bytes <= flow->max_bytes / 2) {
        flow->full = false;
        tell(flow, &flow->room);
    }
    return n;
}

size_t bt_flow_held(const bt_flow *flow) {
    return flow->bytes.n_bytes;
}

bool bt_flow_ended(const bt_flow *flow) {
    return flow->ended && flow->bytes.n_bytes == 0;
}

bool bt_flow_whole(const bt_flow *flow) {
    return flow->whole;
}

void bt_flow_drop_consumer(bt_flow *flow) {
    bt_flow_on_data(flow, NULL, NULL);
    flow->unread = true;
    flow->full = false;
    give_buffer_back(flow);
    tell(flow, &flow->room);
    release(flow);
}
