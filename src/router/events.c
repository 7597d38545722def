/* SPDX-License-Identifier: MIT
 * events.c: a ring of what has happened, and a place in it for each listener.
 *
 * An event is kept as the bytes that are sent of it (a frame of text/event-stream, HTML standard 9.2.5), made once for
 * all listeners. A listener is a flow and the id that it is to get next. It reads from the ring, so one that is slow
 * loses nothing as long as the ring still holds what it has not had; only what was evicted meanwhile is lost, and told
 * in its place as an event "dropped" with how many. Nothing is ever kept for one listener alone.
 *
 * Ids go up by one, from 1 in each life of the router; a client that comes back with the last id that it saw goes on
 * there. An id beyond the last one is of another life: such a client gets everything that is kept.
 *
 * What is only true for a moment (a sample of memory, every second) would drive all else out of the ring: it is passed
 * on and not kept, but for the last one.
 *
 * Bounds: BT_EVENTS_KEPT events, BT_EVENTS_KEPT_BYTES of frames, BT_EVENTS_LISTENERS_MAX listeners, and what their
 * flows hold by their own bounds. An event that finds no memory leaves a hole in the ring that counts as lost.
 *
 * Flows call back while something is put into them: a consumer may take at once, or go. So a listener's place is read
 * anew after each put, and a call for one that is being served returns: the one above goes on. */
#include "router/events.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/text.h"
#include "router/json_text.h"

#include <stdio.h>
#include <string.h>

/* "id: ", "event: ", "data: " and the envelope's members around two numbers of at most 20 digits and two types. */
#define FRAME_EXTRA 192u
#define DROPPED_MAX 256u

typedef struct event {
    uint64_t id;
    uint32_t n_frame;
    uint32_t n_before; /* of the frame, before the envelope */
    char type[BT_EVENT_TYPE_MAX];
    char frame[]; /* ends in two line feeds */
} event;

typedef struct listener {
    bt_events *events;
    bt_flow *flow; /* NULL: a free place */
    uint64_t next; /* the id that it is to get next */
    bool served;   /* now, by a call further up */
} listener;

struct bt_events {
    event *kept[BT_EVENTS_KEPT]; /* by id; NULL in a place that should have one: it found no memory */
    uint64_t first, next;        /* ids: of the oldest that is kept, and of the one to come */
    uint64_t n_bytes, n_dropped;
    event *passing; /* the last that was not for keeping; NULL: none */
    listener listeners[BT_EVENTS_LISTENERS_MAX];
};

bt_status bt_events_open(bt_events **ret, bt_error *err) {
    bt_events *events = bt_heap_alloc(sizeof *events);
    if (!events) return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_NONE, 0, 0, "no memory for the list of events");
    events->first = events->next = 1;
    *ret = events;
    return BT_OK;
}

static event **place_of(bt_events *events, uint64_t id) {
    return &events->kept[id % BT_EVENTS_KEPT];
}

static void evict_oldest(bt_events *events) {
    event **place = place_of(events, events->first++);
    if (*place) events->n_bytes -= (*place)->n_frame;
    bt_heap_free(*place);
    *place = NULL;
}

static void leave(listener *l) {
    bt_flow *flow = l->flow;
    l->flow = NULL;
    bt_flow_on_room(flow, NULL, NULL);
    bt_flow_drop_producer(flow);
}

void bt_events_dismiss(bt_events *events) {
    for (uint32_t i = 0; i < BT_EVENTS_LISTENERS_MAX; i++) {
        if (!events->listeners[i].flow) continue;
        bt_flow_on_room(events->listeners[i].flow, NULL, NULL);
        bt_flow_end(events->listeners[i].flow, true);
        leave(&events->listeners[i]);
    }
}

void bt_events_close(bt_events *events) {
    if (!events) return;
    bt_events_dismiss(events);
    while (events->first < events->next)
        evict_oldest(events);
    bt_heap_free(events->passing);
    bt_heap_free(events);
}

uint64_t bt_events_dropped(const bt_events *events) {
    return events->n_dropped;
}

uint32_t bt_events_listeners(const bt_events *events) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < BT_EVENTS_LISTENERS_MAX; i++)
        n += events->listeners[i].flow != NULL;
    return n;
}

/* ---- frames ---- */

/* The head of a frame up to the value of "data". Returns its length; *ret_before: where the envelope begins. */
static size_t frame_head(char *dest, size_t capacity, uint64_t id, const char *type, uint32_t *ret_before) {
    unsigned long long number = id;
    int before = snprintf(dest, capacity, "id: %llu\nevent: %s\ndata: ", number, type);
    *ret_before = (uint32_t)before;
    int rest =
        snprintf(dest + before, capacity - (size_t)before,
                 "{\"id\":%llu,\"time_ms\":%lld,\"type\":\"%s\",\"data\":", number, (long long)bt_os_unix_ms(), type);
    return (size_t)before + (size_t)rest;
}

static bool is_type(const char *type) {
    size_t n = strspn(type, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    return n > 0 && n < BT_EVENT_TYPE_MAX && type[n] == '\0';
}

/* On one line and of characters; that it is an object is the caller's word, but for its braces. */
static bool is_object(const char *json, size_t n) {
    if (n < 2 || json[0] != '{' || json[n - 1] != '}') return false;
    for (size_t i = 0; i < n;) {
        size_t length = bt_utf8_length(json + i, n - i);
        if (length == 0 || (unsigned char)json[i] < 0x20) return false;
        i += length;
    }
    return true;
}

/* NULL: not of the form, too long, or no memory. */
static event *event_new(uint64_t id, const char *type, const char *json) {
    size_t n = strnlen(json, BT_EVENT_BYTES_MAX + 1);
    if (n > BT_EVENT_BYTES_MAX || !is_type(type) || !is_object(json, n)) return NULL;
    event *e = bt_heap_alloc(sizeof *e + n + FRAME_EXTRA);
    if (!e) return NULL;
    e->id = id;
    memcpy(e->type, type, strlen(type) + 1);
    size_t at = frame_head(e->frame, FRAME_EXTRA, id, type, &e->n_before);
    memcpy(e->frame + at, json, n);
    memcpy(e->frame + at + n, "}\n\n", 3);
    e->n_frame = (uint32_t)(at + n + 3);
    return e;
}

static size_t frame_dropped(char dest[DROPPED_MAX], uint64_t last_id, uint64_t n_lost) {
    uint32_t before = 0;
    size_t at = frame_head(dest, DROPPED_MAX, last_id, "dropped", &before);
    return at + (size_t)snprintf(dest + at, DROPPED_MAX - at, "{\"n\":%llu}}\n\n", (unsigned long long)n_lost);
}

/* ---- listeners ---- */

/* The next of what a listener has not had; false: there is no more, or no room. */
static bool serve_one(bt_events *events, listener *l) {
    uint64_t from = l->next;
    if (from == events->next) return false;
    uint64_t id = from < events->first ? events->first : from;
    while (id < events->next && !*place_of(events, id))
        id++;
    bool put = false;
    if (id > from) {
        char dropped[DROPPED_MAX];
        l->next = id;
        put = bt_flow_put(l->flow, dropped, frame_dropped(dropped, id - 1, id - from));
    } else {
        const event *e = *place_of(events, id);
        l->next = id + 1;
        put = bt_flow_put(l->flow, e->frame, e->n_frame);
    }
    if (!put) l->next = from;
    return put;
}

/* A flow that was refused memory has ended: its client comes back with the last id that it saw. */
static bool is_open(const bt_flow *flow) {
    return bt_flow_is_read(flow) && !bt_flow_failed(flow);
}

static void serve(bt_events *events, listener *l) {
    if (!l->flow || l->served) return;
    l->served = true;
    while (is_open(l->flow) && serve_one(events, l))
        continue;
    l->served = false;
    if (!is_open(l->flow)) leave(l);
}

/* To one that has had all; where there is no room for it now it is not missed. */
static void pass_to(bt_events *events, listener *l) {
    if (!l->flow || l->served || l->next != events->next || !is_open(l->flow)) return;
    const event *e = events->passing;
    size_t at = (size_t)(strchr(e->frame, '\n') - e->frame) + 1; /* without the line of its id, which it does not own */
    l->served = true;
    bool put = bt_flow_put(l->flow, e->frame + at, e->n_frame - at);
    l->served = false;
    if (put || bt_flow_failed(l->flow)) serve(events, l);
}

static void on_room(void *user) {
    listener *l = user;
    serve(l->events, l);
}

bt_status bt_events_listen(bt_events *events, uint64_t after, bt_flow *flow, bt_error *err) {
    listener *l = NULL;
    for (uint32_t i = 0; i < BT_EVENTS_LISTENERS_MAX && !l; i++) {
        if (!events->listeners[i].flow) l = &events->listeners[i];
    }
    if (!l)
        return bt_fail(err, BT_E_LIMIT, "events_full", BT_MEASURE_ITEMS, BT_EVENTS_LISTENERS_MAX + 1,
                       BT_EVENTS_LISTENERS_MAX, "%u clients listen to events already", BT_EVENTS_LISTENERS_MAX);
    bool all = after == 0 || after >= events->next;
    *l = (listener){.events = events, .flow = flow, .next = all ? events->first : after + 1};
    bt_flow_on_room(flow, on_room, l);
    serve(events, l);
    if (events->passing) pass_to(events, l);
    return BT_OK;
}

void bt_events_tick(bt_events *events) {
    static const char comment[] = ":\n\n";
    for (uint32_t i = 0; i < BT_EVENTS_LISTENERS_MAX; i++) {
        listener *l = &events->listeners[i];
        if (!l->flow) continue;
        l->served = true;
        bool full = !bt_flow_put(l->flow, comment, sizeof comment - 1); /* then it has bytes to live on */
        l->served = false;
        if (!full || bt_flow_failed(l->flow)) serve(events, l); /* or find that it has gone */
    }
}

/* ---- what happens ---- */

void bt_events_add(bt_events *events, const char *type, const char *json) {
    if (events->next - events->first == BT_EVENTS_KEPT) evict_oldest(events);
    event *e = event_new(events->next, type, json);
    if (!e) events->n_dropped++;
    while (e && events->n_bytes + e->n_frame > BT_EVENTS_KEPT_BYTES)
        evict_oldest(events);
    *place_of(events, events->next++) = e;
    if (e) events->n_bytes += e->n_frame;
    for (uint32_t i = 0; i < BT_EVENTS_LISTENERS_MAX; i++)
        serve(events, &events->listeners[i]);
}

void bt_events_pass(bt_events *events, const char *type, const char *json) {
    event *e = event_new(events->next - 1, type, json);
    if (!e) {
        events->n_dropped++;
        return;
    }
    bt_heap_free(events->passing);
    events->passing = e;
    for (uint32_t i = 0; i < BT_EVENTS_LISTENERS_MAX; i++)
        pass_to(events, &events->listeners[i]);
}

static void write_event(bt_text *out, const event *e) {
    if (out->data && out->n_bytes > 1) bt_text_add(out, ",");
    bt_text_add_n(out, e->frame + e->n_before, e->n_frame - e->n_before - 2);
}

bt_status bt_events_json(const bt_events *events, const char *type, char **ret_json, bt_error *err) {
    const event *passing = events->passing;
    bt_text out;
    bt_text_init(&out, BT_EVENTS_KEPT_BYTES + BT_EVENT_BYTES_MAX + FRAME_EXTRA);
    bt_text_add(&out, "[");
    for (uint64_t id = events->first; id < events->next && !out.failed; id++) {
        const event *e = events->kept[id % BT_EVENTS_KEPT];
        if (!e || (type && strcmp(e->type, type) != 0)) continue;
        write_event(&out, e);
    }
    if (passing && type && strcmp(passing->type, type) == 0) write_event(&out, passing);
    bt_text_add(&out, "]");
    return bt_json_text_finish(&out, ret_json, err);
}
