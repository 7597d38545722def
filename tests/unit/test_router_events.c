/* SPDX-License-Identifier: MIT
 * test_router_events.c: what listeners get of events: all of them in order, or how many are missing, and well formed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "router/events.h"
#include "router_json.h"

#include <stdlib.h>
#include <time.h>

/* ---- a client of text/event-stream --------------------------------------------------------------------------------
 */

typedef struct client {
    bt_flow *flow;
    char text[1u << 16]; /* that was taken and not looked at */
    size_t n;
    uint64_t last_id;                                          /* of the last event */
    uint64_t n_events, n_lost, n_comments, n_passing, passing; /* the number in the last that passed */
    bool stalled, leaves;                                      /* takes nothing; goes at the next news */
    bool taking;
} client;

/* One event or comment of whole lines. */
static void look_at(client *c, char *frame) {
    if (frame[0] == ':') {
        assert_string_equal(frame, ":");
        c->n_comments++;
        return;
    }
    if (strncmp(frame, "event: memory\ndata: ", 20) == 0) { /* without an id of its own */
        json_t *passing = json_loads(frame + 20, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(passing);
        assert_int_equal(json_int(passing, "id"), c->last_id);
        c->passing = (uint64_t)json_int(json_at(passing, "data"), "number");
        c->n_passing++;
        json_decref(passing);
        return;
    }
    unsigned long long id = 0;
    char type[32];
    int at = 0;
    assert_int_equal(sscanf(frame, "id: %llu\nevent: %31[A-Za-z0-9_]\ndata: %n", &id, type, &at), 2);
    assert_null(strchr(frame + at, '\n'));
    json_error_t error;
    json_t *json = json_loads(frame + at, JSON_REJECT_DUPLICATES, &error);
    if (!json) fail_msg("%s in: %s", error.text, frame);
    json_check_members(json, "events", "event");
    assert_int_equal(json_int(json, "id"), id);
    assert_string_equal(json_text(json, "type"), type);
    /* time() may be a tick behind the clock that events are stamped with */
    long long now_s = (long long)time(NULL);
    assert_in_range(json_int(json, "time_ms"), (now_s - 3600) * 1000, (now_s + 2) * 1000);
    const json_t *data = json_at(json, "data");
    if (strcmp(type, "dropped") == 0) {
        assert_int_equal(id, c->last_id + (uint64_t)json_int(data, "n"));
        c->n_lost += (uint64_t)json_int(data, "n");
    } else {
        if (c->last_id > 0) assert_int_equal(id, c->last_id + 1);
        assert_int_equal(json_int(data, "number"), id); /* tests give it the id that it will have */
        c->n_events++;
    }
    c->last_id = id;
    json_decref(json);
}

static void on_data(void *user) {
    client *c = user;
    if (c->leaves) {
        bt_flow *flow = c->flow;
        c->flow = NULL;
        if (flow) bt_flow_drop_consumer(flow);
        return;
    }
    if (c->taking) return; /* the take below has made room, and the news is of what came into it */
    while (!c->stalled) {
        c->taking = true;
        size_t n = bt_flow_take(c->flow, c->text + c->n, sizeof c->text - 1 - c->n);
        c->taking = false;
        if (n == 0) return;
        c->n += n;
        c->text[c->n] = '\0';
        for (char *end = strstr(c->text, "\n\n"); end; end = strstr(c->text, "\n\n")) {
            *end = '\0';
            look_at(c, c->text);
            c->n -= (size_t)(end + 2 - c->text);
            memmove(c->text, end + 2, c->n + 1);
        }
    }
}

/* A client that listens; its flow holds max_bytes. */
static client *listen_to(bt_events *events, uint64_t after, size_t max_bytes, bool stalled) {
    client *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->stalled = stalled;
    c->last_id = after;
    assert_int_equal(bt_flow_open(max_bytes, &c->flow, NULL), BT_OK);
    bt_flow_on_data(c->flow, on_data, c);
    assert_int_equal(bt_events_listen(events, after, c->flow, NULL), BT_OK);
    on_data(c);
    return c;
}

static void go_on(client *c) {
    c->stalled = false;
    on_data(c);
}

static void leave(client *c) {
    if (c->flow) bt_flow_drop_consumer(c->flow);
    free(c);
}

static bt_events *open_it(void) {
    bt_events *events = NULL;
    assert_int_equal(bt_events_open(&events, NULL), BT_OK);
    return events;
}

static uint64_t n_given;

static void happen(bt_events *events, const char *type, size_t n_padding) {
    static char json[BT_EVENT_BYTES_MAX];
    assert_true(n_padding < sizeof json - 64);
    n_given++;
    (void)snprintf(json, sizeof json, "{\"number\":%llu,\"padding\":\"%*s\"}", (unsigned long long)n_given,
                   (int)n_padding, "");
    bt_events_add(events, type, json);
}

static int start(void **state) {
    (void)state;
    n_given = 0;
    return 0;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void as_it_happens(void **state) {
    (void)state;
    bt_events *events = open_it();
    client *a = listen_to(events, 0, 4096, false);
    assert_int_equal(a->n_events, 0);
    happen(events, "model", 0);
    happen(events, "decision", 10);
    assert_int_equal(a->n_events, 2);
    /* One who comes later gets what is kept, and then the same. */
    client *b = listen_to(events, 0, 4096, false);
    assert_int_equal(b->n_events, 2);
    happen(events, "request", 0);
    assert_int_equal(a->n_events, 3);
    assert_int_equal(b->n_events, 3);
    assert_int_equal(bt_events_listeners(events), 2);
    bt_events_tick(events);
    assert_int_equal(a->n_comments, 1);
    assert_int_equal(b->n_comments, 1);
    assert_int_equal(bt_flow_held(a->flow), 0);
    leave(a);
    assert_int_equal(bt_events_listeners(events), 1); /* at once */
    happen(events, "request", 0);
    assert_int_equal(b->n_events, 4);
    bt_events_close(events);
    assert_true(bt_flow_ended(b->flow) && bt_flow_whole(b->flow));
    leave(b);
    bt_events_close(NULL);
}

static void after_an_id(void **state) {
    (void)state;
    bt_events *events = open_it();
    for (uint32_t i = 0; i < 10; i++)
        happen(events, "model", 0);
    static const struct {
        uint64_t after, n;
    } cases[] = {{0, 10}, {1, 9}, {7, 3}, {9, 1}, {10, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        client *c = listen_to(events, cases[i].after, 4096, false);
        assert_int_equal(c->n_events, cases[i].n);
        assert_int_equal(c->n_lost, 0);
        leave(c);
    }
    /* An id of another life. */
    static const uint64_t others[] = {11, 1000, UINT64_MAX};
    for (size_t i = 0; i < 3; i++) {
        client *c = listen_to(events, 10, 4096, true);
        leave(c);
        c = calloc(1, sizeof *c);
        assert_non_null(c);
        assert_int_equal(bt_flow_open(4096, &c->flow, NULL), BT_OK);
        bt_flow_on_data(c->flow, on_data, c);
        assert_int_equal(bt_events_listen(events, others[i], c->flow, NULL), BT_OK);
        assert_int_equal(c->n_events, 10);
        leave(c);
    }
    /* What is kept no more is lost to one who says where it was, and to nobody else. */
    for (uint32_t i = 0; i < BT_EVENTS_KEPT; i++)
        happen(events, "model", 0);
    client *c = listen_to(events, 4, 4096, false);
    assert_int_equal(c->n_lost, 6);
    assert_int_equal(c->n_events, BT_EVENTS_KEPT);
    leave(c);
    c = listen_to(events, 0, 4096, false);
    assert_int_equal(c->n_lost, 0);
    assert_int_equal(c->n_events, BT_EVENTS_KEPT);
    leave(c);
    bt_events_close(events);
}

static void slow_listeners(void **state) {
    (void)state;
    bt_events *events = open_it();
    client *slow = listen_to(events, 0, 600, true);
    client *quick = listen_to(events, 0, 600, false);
    for (uint32_t i = 0; i < 200; i++)
        happen(events, "model", i % 50);
    assert_in_range(bt_flow_held(slow->flow), 1, 600);
    go_on(slow); /* nothing is lost: the ring has it */
    assert_int_equal(slow->n_events, 200);
    assert_int_equal(slow->n_lost, 0);
    slow->stalled = true;
    for (uint32_t i = 0; i < 3 * BT_EVENTS_KEPT; i++)
        happen(events, "model", 0);
    assert_in_range(bt_flow_held(slow->flow), 1, 600);
    go_on(slow);
    uint64_t all = 200 + 3 * BT_EVENTS_KEPT;
    assert_int_equal(slow->last_id, all);
    assert_int_equal(slow->n_events + slow->n_lost, all);
    assert_in_range(slow->n_lost, 2 * BT_EVENTS_KEPT - 10, 2 * BT_EVENTS_KEPT);
    assert_int_equal(quick->n_events, all);
    bt_events_tick(events); /* with one that is full, too */
    slow->stalled = true;
    for (uint32_t i = 0; i < 20; i++)
        happen(events, "model", 0);
    bt_events_tick(events);
    go_on(slow);
    assert_int_equal(slow->last_id, all + 20);
    /* One event over what a flow holds goes through it alone. */
    happen(events, "model", 2000);
    happen(events, "model", 2000);
    assert_int_equal(slow->last_id, all + 22);
    leave(slow);
    leave(quick);
    bt_events_close(events);
}

static void bounds(void **state) {
    (void)state;
    bt_events *events = open_it();
    uint64_t live = bt_heap_live_bytes();
    for (uint32_t i = 0; i < 200; i++)
        happen(events, "model", 8000);
    assert_in_range(bt_heap_live_bytes() - live, 200000, 2 * BT_EVENTS_KEPT_BYTES);
    char *text = NULL;
    assert_int_equal(bt_events_json(events, NULL, &text, NULL), BT_OK);
    assert_in_range(strlen(text), BT_EVENTS_KEPT_BYTES - 2 * BT_EVENT_BYTES_MAX, BT_EVENTS_KEPT_BYTES);
    json_t *json = json_of(text);
    size_t n = json_array_size(json);
    assert_in_range(n, 30, 33);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(json_int(json_array_get(json, i), "id"), 200 - n + 1 + i);
    json_decref(json);
    for (uint32_t i = 0; i < 2 * BT_EVENTS_KEPT; i++)
        happen(events, "memory", 0);
    happen(events, "model", 0);
    assert_int_equal(bt_events_json(events, NULL, &text, NULL), BT_OK);
    json = json_of(text);
    assert_int_equal(json_array_size(json), BT_EVENTS_KEPT);
    json_decref(json);
    assert_int_equal(bt_events_json(events, "model", &text, NULL), BT_OK);
    json = json_of(text);
    assert_int_equal(json_array_size(json), 1);
    json_check_members(json_array_get(json, 0), "events", "event");
    assert_int_equal(json_int(json_array_get(json, 0), "id"), n_given);
    json_decref(json);
    assert_int_equal(bt_events_json(events, "none", &text, NULL), BT_OK);
    assert_string_equal(text, "[]");
    bt_heap_free(text);
    bt_events_close(events);
}

static void too_many(void **state) {
    (void)state;
    bt_events *events = open_it();
    client *clients[BT_EVENTS_LISTENERS_MAX];
    for (uint32_t i = 0; i < BT_EVENTS_LISTENERS_MAX; i++)
        clients[i] = listen_to(events, 0, 4096, false);
    bt_flow *flow = NULL;
    bt_error err = {0};
    assert_int_equal(bt_flow_open(4096, &flow, NULL), BT_OK);
    assert_int_equal(bt_events_listen(events, 0, flow, &err), BT_E_LIMIT);
    assert_string_equal(err.code, "events_full");
    assert_int_equal(err.have, BT_EVENTS_LISTENERS_MAX);
    happen(events, "model", 0);
    assert_int_equal(bt_flow_held(flow), 0);
    leave(clients[5]);
    assert_int_equal(bt_events_listen(events, 0, flow, NULL), BT_OK); /* the place is free again */
    assert_true(bt_flow_held(flow) > 0);
    bt_flow_drop_consumer(flow);
    for (uint32_t i = 0; i < BT_EVENTS_LISTENERS_MAX; i++) {
        if (i == 5) continue;
        assert_int_equal(clients[i]->n_events, 1);
        leave(clients[i]);
    }
    bt_events_close(events);
}

/* A client that goes while it is being told. */
static void gone_in_between(void **state) {
    (void)state;
    bt_events *events = open_it();
    client *a = listen_to(events, 0, 4096, false);
    client *b = listen_to(events, 0, 4096, false);
    a->leaves = true;
    happen(events, "model", 0);
    assert_null(a->flow);
    assert_int_equal(bt_events_listeners(events), 1);
    assert_int_equal(b->n_events, 1);
    b->leaves = true;
    bt_events_tick(events);
    assert_int_equal(bt_events_listeners(events), 0);
    client *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->leaves = true;
    assert_int_equal(bt_flow_open(4096, &c->flow, NULL), BT_OK);
    bt_flow_on_data(c->flow, on_data, c);
    assert_int_equal(bt_events_listen(events, 0, c->flow, NULL), BT_OK); /* and is gone before it returns */
    assert_int_equal(bt_events_listeners(events), 0);
    leave(a);
    leave(b);
    leave(c);
    bt_events_close(events);
}

/* What would break the stream is not put into it, and listeners learn that there was something. */
static void what_is_no_event(void **state) {
    (void)state;
    bt_events *events = open_it();
    client *c = listen_to(events, 0, 4096, false);
    static char large[BT_EVENT_BYTES_MAX + 2];
    memset(large, ' ', sizeof large - 1);
    large[0] = '{';
    large[sizeof large - 2] = '}';
    static const char *const texts[] = {"", "7", "{", "[1]", "{\n}", "{\"a\":\"\xff\"}", "{\"a\":\"\r\"}", large};
    static const char *const types[] = {"", "a b", "a\nb", "sixteen_letters_", "\xc3\xa4", "a:b"};
    uint64_t n = 0;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++, n++)
        bt_events_add(events, "model", texts[i]);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++, n++)
        bt_events_add(events, types[i], "{}");
    assert_int_equal(bt_events_dropped(events), n);
    assert_int_equal(c->n_events, 0);
    assert_int_equal(c->n_lost, n);
    n_given = n;
    happen(events, "fifteen_letters", BT_EVENT_BYTES_MAX - 100);
    assert_int_equal(c->n_events, 1);
    assert_int_equal(bt_events_dropped(events), n);
    large[BT_EVENT_BYTES_MAX - 1] = '}'; /* just the most */
    large[BT_EVENT_BYTES_MAX] = '\0';
    leave(c);
    bt_events_add(events, "model", large);
    assert_int_equal(bt_events_dropped(events), n);
    bt_events_close(events);
}

/* A sample of memory: to those who have had all, the last to who comes, and nothing kept beside. */
static void what_passes(void **state) {
    (void)state;
    char *json = NULL;
    bt_events *events = open_it();
    client *a = listen_to(events, 0, 4096, false);
    client *slow = listen_to(events, 0, 256, true);
    bt_events_pass(events, "memory", "{\"number\":1}"); /* before anything else: its id is 0 */
    happen(events, "model", 0);
    happen(events, "model", 100);
    bt_events_pass(events, "memory", "{\"number\":2}");
    assert_int_equal(a->n_passing, 2);
    assert_int_equal(a->passing, 2);
    assert_int_equal(a->n_events, 2);
    client *late = listen_to(events, 0, 4096, false);
    assert_int_equal(late->n_passing, 1);
    assert_int_equal(late->passing, 2);
    go_on(slow); /* it had not had all: nothing of it is missing but what was true for a moment */
    assert_int_equal(slow->n_events, 2);
    assert_int_equal(slow->n_lost, 0);
    bt_events_pass(events, "memory", "no object");
    assert_int_equal(bt_events_dropped(events), 1);
    assert_int_equal(bt_events_json(events, NULL, &json, NULL), BT_OK);
    assert_null(strstr(json, "memory"));
    bt_heap_free(json);
    assert_int_equal(bt_events_json(events, "memory", &json, NULL), BT_OK);
    assert_non_null(strstr(json, "{\"number\":2}}]"));
    assert_null(strstr(json, "{\"number\":1}"));
    bt_heap_free(json);
    a->leaves = true; /* in the middle of it */
    bt_events_pass(events, "memory", "{\"number\":3}");
    assert_int_equal(bt_events_listeners(events), 2);
    leave(a);
    leave(slow);
    leave(late);
    bt_events_close(events);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(as_it_happens, start),    cmocka_unit_test_setup(after_an_id, start),
        cmocka_unit_test_setup(slow_listeners, start),   cmocka_unit_test_setup(bounds, start),
        cmocka_unit_test_setup(too_many, start),         cmocka_unit_test_setup(gone_in_between, start),
        cmocka_unit_test_setup(what_is_no_event, start), cmocka_unit_test_setup(what_passes, start),
    };
    uint64_t live = bt_heap_live_blocks();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed || bt_heap_live_blocks() != live || bt_flow_total_bytes() != 0;
}
