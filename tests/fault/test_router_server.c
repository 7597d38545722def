/* SPDX-License-Identifier: MIT
 * test_router_server.c: every call of the router's HTTP side that can fail, failing, once and for good: on the way of a
 * request through it, and while it opens. The server lives, every request that was given has its end, nothing leaks. */
#include "router_server_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define HOST        "Host: localhost\r\n"
#define N_FAULT_MAX 200 /* a request makes some ten calls */

/* One request on a fresh server whose call k fails; whether one did. */
static bool one(const char *request, uint64_t k, bool persistent) {
    bt_config config = kit_config();
    kit server = kit_start_fault(&config, k, persistent);
    assert_int_not_equal(server.port, 0);
    kit_answer answer;
    kit_ask(&server, request, &answer);
    /* The right answer, one that says what is wrong, or a connection that broke: never half of one taken for whole. */
    if (answer.whole && answer.status == 200) assert_true(answer.n_body == 30 || strstr(answer.body, "late"));
    if (answer.whole && answer.status != 200) {
        assert_true(answer.status == 500 || answer.status == 503 || answer.status == 413 || answer.status == 404);
        assert_non_null(strstr(answer.body, "{\"error\":{\"message\":\""));
    }
    kit_answer_done(&answer);
    int code = kit_stop(&server);
    if (code != 0 && code != KIT_FAULT) fail_msg("call %llu: exit %d", (unsigned long long)k, code);
    return code == KIT_FAULT;
}

static void sweep(const char *request) {
    for (int persistent = 0; persistent < 2; persistent++) {
        uint64_t k = 0;
        while (k < N_FAULT_MAX && one(request, k, persistent != 0))
            k++;
        assert_true(k > 2 && k < N_FAULT_MAX);
    }
}

static void stream(void **state) {
    (void)state;
    sweep("POST /stream?n=30&ms=1 HTTP/1.1\r\n" HOST "Content-Length: 4\r\n\r\nbody");
}

static void later(void **state) {
    (void)state;
    sweep("POST /later HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n");
}

static void refused(void **state) {
    (void)state;
    sweep("POST /later HTTP/1.1\r\n" HOST "Content-Length: 10000000\r\n\r\nbody");
}

static void no_path(void **state) {
    (void)state;
    sweep("GET /nothing HTTP/1.1\r\n" HOST "\r\n");
}

static void nothing_asked(void *user, bt_request *request) {
    (void)user;
    bt_reply_json(request, 200, "{}");
}

static void nothing_ended(void *user, const bt_request *request) {
    (void)user, (void)request;
}

static void opening(void **state) {
    (void)state;
    bt_config config = kit_config();
    for (uint64_t k = 0;; k++) {
        bt_loop *loop = NULL;
        bt_server *server = NULL;
        bt_error err = {0};
        assert_int_equal(bt_loop_open(&loop, NULL), BT_OK);
        bt_server_ask ask = {.loop = loop, .config = &config, .on_request = nothing_asked, .on_end = nothing_ended};
        bt_fault_arm(k, false);
        bt_status status = bt_server_open(&ask, &server, &err);
        bool hit = bt_fault_disarm();
        assert_true((status == BT_OK) == !hit);
        if (hit) assert_true(err.code[0] && err.text[0]);
        if (status == BT_OK) bt_server_close(server);
        bt_loop_close(loop);
        assert_int_equal(bt_heap_live_blocks(), 0);
        if (!hit) break;
        assert_true(k < N_FAULT_MAX);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(stream), cmocka_unit_test(later), cmocka_unit_test(refused),
                                       cmocka_unit_test(no_path), cmocka_unit_test(opening)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
