/* SPDX-License-Identifier: MIT
 *
 * log_ring.c: the last lines of a source, in a ring of bytes.
 *
 * What is held is what may be shown: lines are escaped when they are whole, once, and then only copied. A line that
 * does not end is kept to BT_LOG_LINE_MAX bytes and the rest of it is dropped, so that a source which never ends a line
 * costs no more than one that does. Room for a new line is made by dropping the oldest; where the system refuses memory
 * the ring stays as large as it is.
 *
 * Listeners are flows, and the ring never waits for one: what does not fit is counted, and the count is the next thing
 * that the listener gets. History goes in as one piece, which an empty flow always takes. */
#include "router/log_ring.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/log.h"
#include "router/byte_ring.h"

#include <stdio.h>
#include <string.h>

#define CUT       " [cut]"
#define CUT_BYTES (sizeof CUT - 1)
/* A character is at most four bytes, and a byte at most four when it is escaped. */
#define CHARACTER_MAX 4u

typedef struct listener {
    bt_flow *flow; /* NULL: a free place */
    uint64_t n_lost;
} listener;

struct bt_log_ring {
    bt_byte_ring lines; /* each with its \n */
    listener listeners[BT_LOG_LISTENERS_MAX];
    void (*on_line)(void *user, const char *line, size_t n);
    void *user;
    size_t n_partial;
    bool is_long; /* more of the line came than partial holds */
    char partial[BT_LOG_LINE_MAX];
};

bt_status bt_log_ring_open(bt_log_ring **ret, bt_error *err) {
    bt_log_ring *ring = bt_heap_alloc(sizeof *ring);
    if (!ring) return bt_fail(err, BT_E_NOMEM, "log_ring", BT_MEASURE_BYTES, sizeof *ring, 0, "no memory for a log");
    *ret = ring;
    return BT_OK;
}

/* ---- listeners ---- */

static void leave(listener *l) {
    bt_flow *flow = l->flow;
    *l = (listener){0};
    bt_flow_drop_producer(flow);
}

/* Say how many lines are missing. No room for that either: room will be told again. */
static void tell_lost(listener *l) {
    char text[64];
    int n = snprintf(text, sizeof text, "[%llu %s lost]\n", (unsigned long long)l->n_lost,
                     l->n_lost == 1 ? "line" : "lines");
    if (n > 0 && bt_flow_put(l->flow, text, (size_t)n)) l->n_lost = 0;
}

static void on_room(void *user) {
    listener *l = user;
    if (!bt_flow_is_read(l->flow))
        leave(l);
    else if (l->n_lost > 0)
        tell_lost(l);
}

/* line ends in \n. While lines are missing no other goes before the word of that, which is given when there is room.
 * The consumer may go while it is told, and another take its place. */
static void hand_over(listener *l, const char *line, size_t n) {
    bt_flow *flow = l->flow;
    if (!flow) return;
    if ((l->n_lost > 0 || !bt_flow_put(flow, line, n)) && l->flow == flow) l->n_lost++;
    if (l->flow == flow && (bt_flow_failed(flow) || !bt_flow_is_read(flow))) leave(l);
}

bt_status bt_log_ring_listen(bt_log_ring *ring, bool history, bt_flow *flow, bt_error *err) {
    listener *l = NULL;
    for (uint32_t i = 0; i < BT_LOG_LISTENERS_MAX && !l; i++)
        if (!ring->listeners[i].flow) l = &ring->listeners[i];
    if (!l)
        return bt_fail(err, BT_E_LIMIT, "log_listeners", BT_MEASURE_NONE, 0, 0, "%u listen to this log already",
                       BT_LOG_LISTENERS_MAX);
    bt_text text;
    bt_text_init(&text, BT_LOG_RING_BYTES);
    if (history) bt_log_ring_text(ring, &text);
    bool failed = text.failed;
    if (!failed) {
        *l = (listener){.flow = flow};
        bt_flow_on_room(flow, on_room, l);
        if (!bt_flow_put(flow, bt_text_str(&text), text.n_bytes) && l->flow == flow) l->n_lost++;
    }
    bt_text_done(&text);
    if (failed) return bt_fail(err, BT_E_NOMEM, "log_ring", BT_MEASURE_NONE, 0, 0, "no memory for what a log holds");
    return BT_OK;
}

void bt_log_ring_dismiss(bt_log_ring *ring) {
    for (uint32_t i = 0; i < BT_LOG_LISTENERS_MAX; i++) {
        listener *l = &ring->listeners[i];
        if (l->flow) bt_flow_on_room(l->flow, NULL, NULL); /* who goes now frees this place no more */
        if (l->flow) bt_flow_end(l->flow, true);
        if (l->flow) leave(l);
    }
}

void bt_log_ring_close(bt_log_ring *ring) {
    if (!ring) return;
    bt_log_ring_dismiss(ring);
    bt_byte_ring_done(&ring->lines);
    bt_heap_free(ring);
}

void bt_log_ring_on_line(bt_log_ring *ring, void (*on_line)(void *user, const char *line, size_t n), void *user) {
    ring->on_line = on_line;
    ring->user = user;
}

/* ---- lines ---- */

static void drop_oldest(bt_log_ring *ring) {
    bt_byte_ring_drop(&ring->lines, bt_byte_ring_find(&ring->lines, 0, '\n') + 1);
}

static void hold(bt_log_ring *ring, const char *line, size_t n) {
    bt_byte_ring *lines = &ring->lines;
    while (lines->n_bytes > 0 && lines->n_bytes + n > BT_LOG_RING_BYTES)
        drop_oldest(ring);
    if (!bt_byte_ring_make_room(lines, n, BT_LOG_RING_BYTES)) {
        if (lines->capacity < n) return;
        while (lines->n_bytes + n > lines->capacity)
            drop_oldest(ring);
    }
    bt_byte_ring_put(lines, line, n);
}

/* As a terminal may see it; stops where the next character might pass capacity. Returns its length, *ret_all false when
 * it stopped. */
static size_t escape(const char *raw, size_t n, char *ret, size_t capacity, bool *ret_all) {
    size_t n_out = 0;
    size_t i = 0;
    while (i < n && n_out + CHARACTER_MAX <= capacity) {
        size_t length = bt_utf8_length(raw + i, n - i);
        bool plain = raw[i] == '\t' || bt_log_is_plain(raw + i, length);
        if (plain) {
            memcpy(ret + n_out, raw + i, length);
            n_out += length;
            i += length;
        } else {
            static const char digits[] = "0123456789abcdef";
            unsigned char byte = (unsigned char)raw[i++];
            ret[n_out++] = '\\';
            ret[n_out++] = 'x';
            ret[n_out++] = digits[byte >> 4];
            ret[n_out++] = digits[byte & 15];
        }
    }
    *ret_all = i == n;
    return n_out;
}

static void add_line(bt_log_ring *ring) {
    char line[BT_LOG_LINE_MAX + 2];
    bool all = true;
    size_t n = escape(ring->partial, ring->n_partial, line, BT_LOG_LINE_MAX - CUT_BYTES, &all);
    if (!all || ring->is_long) {
        memcpy(line + n, CUT, CUT_BYTES);
        n += CUT_BYTES;
    }
    ring->n_partial = 0;
    ring->is_long = false;
    line[n] = '\n';
    line[n + 1] = '\0';
    hold(ring, line, n + 1);
    for (uint32_t i = 0; i < BT_LOG_LISTENERS_MAX; i++)
        hand_over(&ring->listeners[i], line, n + 1);
    line[n] = '\0';
    if (ring->on_line) ring->on_line(ring->user, line, n);
}

void bt_log_ring_end_line(bt_log_ring *ring) {
    if (ring->n_partial > 0) add_line(ring);
}

void bt_log_ring_add(bt_log_ring *ring, const char *data, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i++) {
        if (data[i] == '\n' || data[i] == '\r')
            bt_log_ring_end_line(ring);
        else if (ring->n_partial < sizeof ring->partial)
            ring->partial[ring->n_partial++] = data[i];
        else
            ring->is_long = true;
    }
}

/* ---- what is held ---- */

void bt_log_ring_text(const bt_log_ring *ring, bt_text *out) {
    char part[1024];
    size_t n = 0;
    bt_text_reserve(out, out->n_bytes + ring->lines.n_bytes);
    for (size_t at = 0; (n = bt_byte_ring_copy(&ring->lines, at, part, sizeof part)) > 0; at += n)
        bt_text_add_n(out, part, n);
}
