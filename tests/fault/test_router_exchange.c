/* SPDX-License-Identifier: MIT
 * test_router_exchange.c: each fallible call of an exchange fails, once, and then it and all after it: libcurl's own
 * memory, too. It ends exactly once, or does not start; nothing is left behind; what comes next is as ever. */
#include "base/fault.h"
#include "base/heap.h"
#include "router/exchange.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "open_files.h"
#include "raw_server.h"

#define FAULT_MAX 3000u
#define GUARD_MS  60000u /* where a machine stands still for a while, nothing here fails */
#define WAIT_MS   20000u

typedef struct one {
    bt_loop *loop;
    bt_flow *flow;
    bt_timer guard;
    uint32_t n_heads, n_ends, status;
    size_t n_got;
    bool late, whole;
    bt_exchange_failure failure;
    char words[512];
} one;

static void on_guard(void *user) {
    one *o = user;
    o->late = true;
    bt_loop_stop(o->loop);
}

static void on_data(void *user) {
    one *o = user;
    char piece[512];
    size_t n = 0;
    while ((n = bt_flow_take(o->flow, piece, sizeof piece)) > 0)
        o->n_got += n;
    if (bt_flow_ended(o->flow)) o->whole = bt_flow_whole(o->flow);
}

static void on_head(void *user, const bt_exchange_head *head) {
    one *o = user;
    o->n_heads++;
    o->status = head->status;
}

static void on_end(void *user, bt_exchange_failure failure, const char *words) {
    one *o = user;
    o->n_ends++;
    o->failure = failure;
    (void)snprintf(o->words, sizeof o->words, "%s", words);
    bt_loop_stop(o->loop);
}

/* true: it went as without faults. */
static bool exchange(one *o, bt_client *client, const char *url, const char *body, size_t want_bytes) {
    static const bt_header headers[] = {{"Content-Type", "application/json"}, {"X-Empty", ""}};
    bt_exchange *e = NULL;
    bt_error err = {0};
    o->n_heads = o->n_ends = o->status = 0;
    o->n_got = 0;
    o->late = o->whole = false;
    o->flow = NULL;
    if (bt_flow_open(16384, &o->flow, NULL) != BT_OK) return false;
    bt_flow_on_data(o->flow, on_data, o);
    bt_exchange_ask ask = {.client = client,
                           .method = body ? "POST" : "GET",
                           .url = url,
                           .headers = headers,
                           .n_headers = 2,
                           .body = body,
                           .n_body = body ? strlen(body) : 0,
                           .connect_timeout_ms = WAIT_MS,
                           .header_timeout_ms = WAIT_MS,
                           .flow = o->flow,
                           .on_head = on_head,
                           .on_end = on_end,
                           .user = o};
    if (bt_exchange_start(&ask, &e, &err) != BT_OK) {
        assert_true(err.status == BT_E_NOMEM || err.status == BT_E_IO);
        bt_flow_drop_producer(o->flow);
        bt_flow_drop_consumer(o->flow);
        return false;
    }
    o->guard = (bt_timer){.on_time = on_guard, .user = o};
    bt_loop_timer_set(o->loop, &o->guard, GUARD_MS);
    assert_int_equal(bt_loop_run(o->loop, NULL), BT_OK);
    bt_loop_timer_stop(o->loop, &o->guard);
    assert_false(o->late);
    assert_int_equal(o->n_ends, 1);
    assert_true(o->n_heads <= 1);
    assert_int_equal(o->whole, o->failure == BT_EXCHANGE_OK);
    assert_int_equal(o->words[0] == '\0', o->failure == BT_EXCHANGE_OK);
    if (o->failure == BT_EXCHANGE_OK) {
        assert_int_equal(o->status, 200);
        assert_int_equal(o->n_got, want_bytes);
    }
    bt_flow_drop_consumer(o->flow);
    return o->failure == BT_EXCHANGE_OK;
}

static bool run(const char *url, const char *body, size_t want_bytes) {
    one o = {0};
    bt_client *client = NULL;
    bool good = false;
    if (bt_loop_open(&o.loop, NULL) != BT_OK) return false;
    if (bt_client_open(o.loop, &client, NULL) == BT_OK) {
        good = exchange(&o, client, url, body, want_bytes);
        good = exchange(&o, client, url, body, want_bytes) && good; /* over the same connection */
    }
    bt_client_close(client);
    bt_loop_close(o.loop);
    return good;
}

/* The server's ends are in this process, too. */
static void expect_descriptors(raw_server *server, uint32_t n) {
    bool good = false;
    for (int i = 0; i < 200000 && !good; i++) {
        good = atomic_load(&server->n_open) == 0 && n_open_files() == n;
        if (!good) (void)usleep(100);
    }
    /* Once is enough: what is leaked stays, and a connection may be accepted after its client has gone. */
    assert_true(good);
}

static void sweep(raw_server *server, const char *path, const char *body, size_t want_bytes, bool persists,
                  uint32_t fds) {
    char url[128];
    (void)snprintf(url, sizeof url, "%s%s", server->url, path);
    assert_true(run(url, body, want_bytes));
    expect_descriptors(server, fds);
    uint64_t blocks = bt_heap_live_blocks();
    for (uint64_t k = 0; k < FAULT_MAX; k += k >= 8 && k < 128 ? 40 : 1) { /* the reserve is all the same */
        bt_fault_arm(k, persists);
        bool good = run(url, body, want_bytes);
        bool hit = bt_fault_disarm();
        if (bt_heap_live_blocks() != blocks) fail_msg("call %llu of %s leaks", (unsigned long long)k, path);
        expect_descriptors(server, fds);
        assert_true(good || hit);
        if (!hit) {
            assert_true(k > 30); /* the hooks are there */
            assert_true(run(url, body, want_bytes));
            return;
        }
    }
    fail_msg("more than %u fallible calls", FAULT_MAX);
}

static void test_every_call_fails(void **state) {
    (void)state;
    raw_server server;
    raw_server_open(&server);
    uint32_t fds = n_open_files();
    for (int persists = 0; persists < 2; persists++) {
        sweep(&server, "/whole", NULL, 5, persists, fds);
        sweep(&server, "/chunked", NULL, 11, persists, fds);
        sweep(&server, "/big?100000", NULL, 100000, persists, fds);
        sweep(&server, "/stale", "a body", 5, persists, fds);
        sweep(&server, "/names", "", 0, persists, fds);
    }
    raw_server_close(&server);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_call_fails)};
    return cmocka_run_group_tests_name("router_exchange_fault", tests, NULL, NULL);
}
