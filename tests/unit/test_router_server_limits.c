/* SPDX-License-Identifier: MIT
 * test_router_server_limits.c: what clients can make the router's HTTP side hold, and that it notices when they leave.
 */
#include "router_server_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define HOST "Host: localhost\r\n"
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RSS_SLACK (1u << 30) /* what was freed is kept for a while, or shadowed: no measure */
#else
#define RSS_SLACK (2u << 20)
#endif

#define LINGER_MS 2000u /* router/server_linger.c */
/* Of a server that waits, for 300 ms at a time: who turns in circles takes all of them. */
#define IDLE_CPU_US 30000u

static kit server;
static bt_config config;

static int start(void **state) {
    (void)state;
    config = kit_config();
    server = kit_start(&config);
    return server.port ? 0 : -1;
}

static int stop(void **state) {
    (void)state;
    return kit_stop(&server);
}

/* A fresh server with the present config. */
static void restart(void) {
    assert_int_equal(kit_stop(&server), 0);
    server = kit_start(&config);
    assert_int_not_equal(server.port, 0);
}

static void send_zeros(int fd, size_t n) {
    static char zeros[65536];
    for (size_t left = n; left > 0;) {
        size_t step = left < sizeof zeros ? left : sizeof zeros;
        if (kit_send(fd, zeros, step) < step) return;
        left -= step;
    }
}

/* Told at once that it is too much, a client that sends all of it first must still find the answer. */
static void too_large(void **state) {
    (void)state;
    kit_answer answer;
    uint32_t n_found = 0;
    for (uint32_t i = 0; i < KIT_TRIES && n_found < 5; i++) {
        int fd = kit_connect(&server);
        uint64_t began = kit_now_ms();
        (void)kit_say(fd, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 20000000\r\n\r\n");
        send_zeros(fd, 20000000);
        kit_read_answer(fd, false, &answer);
        if (kit_now_ms() - began < LINGER_MS) { /* the server waits no longer for who sends */
            assert_int_equal(answer.status, 413);
            assert_true(answer.whole && !answer.reset);
            assert_non_null(strstr(answer.body, "\"code\":\"body_size\""));
            n_found++;
        }
        kit_answer_done(&answer);
        (void)close(fd);
    }
    assert_int_equal(n_found, 5);
    /* Before any of it is sent. */
    int fd = kit_connect(&server);
    (void)kit_say(fd, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 18446744073709551615\r\n\r\n");
    kit_read_answer(fd, false, &answer);
    assert_int_equal(answer.status, 413);
    kit_answer_done(&answer);
    (void)close(fd);
    assert_int_equal(kit_count(&server, "bodies"), 0);
    assert_int_equal(kit_count(&server, "given"), 2); /* the two counts */
}

static void send_chunks(int fd, size_t n, bool ends) {
    char chunk[1032];
    (void)snprintf(chunk, sizeof chunk, "400\r\n%01024d\r\n", 0);
    for (size_t i = 0; i < n / 1024; i++)
        if (kit_say(fd, chunk) < strlen(chunk)) return;
    if (ends) (void)kit_say(fd, "0\r\n\r\n");
}

static void chunks(void **state) {
    (void)state;
    kit_answer answer;
    int fd = kit_connect(&server);
    (void)kit_say(fd, "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n");
    send_chunks(fd, 97 * 1024, true); /* 99,328 */
    kit_read_answer(fd, false, &answer);
    assert_int_equal(answer.status, 200);
    assert_int_equal(answer.n_body, 99328);
    kit_answer_done(&answer);
    (void)kit_say(fd, "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n");
    send_chunks(fd, 150 * 1024, true);
    kit_read_answer(fd, false, &answer);
    assert_int_equal(answer.status, 413);
    kit_answer_done(&answer);
    (void)kit_say(fd, "GET /nothing HTTP/1.1\r\n" HOST "\r\n"); /* all of it was read: the connection goes on */
    kit_read_answer(fd, false, &answer);
    assert_int_equal(answer.status, 404);
    kit_answer_done(&answer);
    (void)close(fd);
    /* One that never ends is closed. */
    fd = kit_connect(&server);
    (void)kit_say(fd, "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n");
    send_chunks(fd, 64u << 20, false);
    kit_read_answer(fd, false, &answer);
    assert_int_equal(answer.status, 0);
    kit_answer_done(&answer);
    (void)close(fd);
    assert_true(kit_until(&server, "open", 1));
    assert_int_equal(kit_count(&server, "bodies"), 0);
}

static int hold(const char *path, size_t n_body) {
    char head[256];
    int fd = kit_connect(&server);
    (void)snprintf(head, sizeof head, "POST %s HTTP/1.1\r\n" HOST "Content-Length: %zu\r\n\r\n", path, n_body);
    (void)kit_say(fd, head);
    send_zeros(fd, n_body);
    return fd;
}

static void all_bodies(void **state) {
    (void)state;
    kit_answer answer;
    int first = hold("/hold", 90000), second = hold("/hold", 90000);
    assert_true(kit_until(&server, "bodies", 180000));
    int third = hold("/hold", 90000);
    kit_read_answer(third, false, &answer);
    assert_int_equal(answer.status, 503);
    assert_string_equal(kit_header(&answer, "Retry-After"), "1");
    assert_non_null(strstr(answer.body, "\"code\":\"bodies\""));
    kit_answer_done(&answer);
    (void)close(third);
    third = kit_connect(&server); /* and when it is not announced */
    (void)kit_say(third, "POST /hold HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n");
    send_chunks(third, 90 * 1024, true);
    kit_read_answer(third, false, &answer);
    assert_int_equal(answer.status, 503);
    kit_answer_done(&answer);
    (void)close(third);
    (void)close(first);
    assert_true(kit_until(&server, "bodies", 90000));
    (void)close(second);
    assert_true(kit_until(&server, "open", 1));
    assert_int_equal(kit_count(&server, "bodies"), 0);
}

/* It waits, and does not turn: in one of several looks, since another's pause may end with work that is left. */
static bool is_idle(void) {
    bool idle = false;
    for (uint32_t i = 0; i < KIT_TRIES && !idle; i++) {
        uint64_t cpu_us = kit_count(&server, "cpu_us");
        (void)usleep(300000);
        idle = kit_count(&server, "cpu_us") - cpu_us < IDLE_CPU_US;
    }
    return idle;
}

static void slow_reader(void **state) {
    (void)state;
    int fd = kit_connect(&server);
    uint64_t rss = kit_count(&server, "rss");
    (void)kit_say(fd, "GET /stream?n=1000000000&piece=16384 HTTP/1.1\r\n" HOST "\r\n");
    assert_true(kit_until(&server, "open", 2));
    assert_true(is_idle());
    assert_in_range(kit_count(&server, "most"), 1, 65536);
    assert_true(kit_count(&server, "rss") < rss + RSS_SLACK);
    char text[65536];
    size_t n = 0;
    while (n < (64u << 20)) {
        ssize_t step = kit_read(fd, text, sizeof text, KIT_WAIT_MS, NULL);
        assert_true(step > 0);
        n += (size_t)step;
    }
    assert_true(kit_count(&server, "rss") < rss + RSS_SLACK);
    (void)close(fd); /* with bytes unread: reset */
    assert_true(kit_until(&server, "gone", 1));
    assert_true(kit_until(&server, "flows", 0));
}

/* How long after he left the server noticed. */
static uint64_t leave_once(const char *request, bool half) {
    uint64_t n_gone = kit_count(&server, "gone");
    int fd = kit_connect(&server);
    (void)kit_say(fd, request);
    assert_true(kit_until(&server, "open", 2));
    (void)usleep(60000);
    assert_int_equal(kit_count(&server, "gone"), n_gone);
    uint64_t left = kit_now_ms();
    if (half)
        (void)shutdown(fd, SHUT_WR);
    else
        (void)close(fd);
    assert_true(kit_until(&server, "gone", n_gone + 1));
    uint64_t gone_ms = kit_count(&server, "gone_ms");
    assert_true(gone_ms >= left);
    assert_true(kit_until(&server, "open", 1));
    if (half) (void)close(fd);
    return gone_ms - left;
}

/* It is noticed at once, when nothing else keeps the server. */
static void leave(const char *request, bool half) {
    bool at_once = false;
    for (uint32_t i = 0; i < KIT_TRIES && !at_once; i++)
        at_once = leave_once(request, half) < 100;
    assert_true(at_once);
}

static void leaves(void **state) {
    (void)state;
    leave("GET /hold HTTP/1.1\r\n" HOST "\r\n", false);
    leave("GET /hold HTTP/1.1\r\n" HOST "\r\n", true);
    leave("GET /hold HTTP/1.1\r\n" HOST "\r\nGET /hold HTTP/1.1\r\n" HOST "\r\n", false); /* pipelined */
    leave("GET /stream?silent=1 HTTP/1.1\r\n" HOST "\r\n", false);
    leave("GET /stream?n=100000&piece=10&ms=20 HTTP/1.1\r\n" HOST "\r\n", false);
    leave("GET /stream?n=100000&piece=10&ms=20 HTTP/1.1\r\n" HOST "\r\n", true);
    leave("GET /stream?n=100000&piece=10&ms=60000&sized=1 HTTP/1.1\r\n" HOST "\r\n", false);
    leave("GET /stream?n=900000000&piece=60000 HTTP/1.1\r\n" HOST "\r\n", false); /* while it is sent */
    uint64_t n_gone = kit_count(&server, "gone");
    uint64_t given = kit_count(&server, "given");
    int fd = kit_connect(&server); /* while it uploads: nobody was given it */
    (void)kit_say(fd, "POST /hold HTTP/1.1\r\n" HOST "Content-Length: 100\r\n\r\nabc");
    assert_true(kit_until(&server, "open", 2));
    (void)close(fd);
    assert_true(kit_until(&server, "open", 1));
    fd = kit_connect(&server);
    (void)kit_say(fd, "POST /hold HTTP/1.1\r\n" HOST "Content-Length: 100\r\n\r\nabc");
    (void)close(fd); /* the end comes with the bytes */
    assert_true(kit_until(&server, "open", 1));
    fd = kit_connect(&server); /* an answer that is there at once is sent to one that has shut down its side */
    (void)kit_say(fd, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc");
    (void)shutdown(fd, SHUT_WR);
    kit_answer answer;
    kit_read_answer(fd, false, &answer);
    assert_string_equal(answer.body, "abc");
    kit_answer_done(&answer);
    (void)close(fd);
    assert_int_equal(kit_count(&server, "gone"), n_gone);
    assert_true(kit_count(&server, "given") > given);
    /* One that waits costs no time. */
    fd = kit_connect(&server);
    (void)kit_say(fd, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    assert_true(kit_until(&server, "open", 2));
    assert_true(is_idle());
    (void)close(fd);
}

/* A first line with more members than the library has memory for is refused by it, or not answered at all: what was
 * made of the line goes with the connection. */
static void head_of_many_members(void **state) {
    (void)state;
    static char head[8000];
    char text[64];
    bool end = false;
    config.limits.idle_ms = 1000;
    restart();
    int n = snprintf(head, sizeof head, "GET /later?");
    for (uint32_t i = 0; i < 3000; i++)
        n += snprintf(head + n, sizeof head - (size_t)n, "b&");
    (void)snprintf(head + n, sizeof head - (size_t)n, " HTTP/1.1\r\n" HOST "\r\n");
    int fd = kit_connect(&server);
    assert_true(kit_say(fd, head));
    while (!end)
        (void)kit_read(fd, text, sizeof text, KIT_WAIT_MS, &end);
    (void)close(fd);
    assert_true(kit_until(&server, "open", 1)); /* that asks */
}

#define IDLE_MS 1000

/* One that said this before it could be idle. */
static int connect_and_say(const char *request) {
    for (;;) {
        uint64_t began = kit_now_ms();
        int fd = kit_connect(&server);
        (void)kit_say(fd, request);
        if (kit_now_ms() - began < IDLE_MS / 2) return fd;
        (void)close(fd);
    }
}

static void idle(void **state) {
    (void)state;
    config.limits.idle_ms = IDLE_MS;
    restart();
    kit_answer answer;
    char text[64];
    bool end = false;
    uint64_t began = kit_now_ms();
    int says_nothing = kit_connect(&server);
    int waits = connect_and_say("GET /later?ms=2600 HTTP/1.1\r\n" HOST "\r\n");
    int streams = connect_and_say("GET /stream?n=20&piece=10&ms=2600 HTTP/1.1\r\n" HOST "\r\n");
    int half_a_head = connect_and_say("GET /later");
    assert_int_equal(kit_read(says_nothing, text, sizeof text, KIT_WAIT_MS, &end), 0);
    assert_true(end);
    assert_true(kit_now_ms() - began >= 800);
    end = false;
    for (int i = 0; i < 3 && !end; i++) /* with words before, or without */
        (void)kit_read(half_a_head, text, sizeof text, KIT_WAIT_MS, &end);
    assert_true(end);
    kit_read_answer(waits, false, &answer);
    assert_int_equal(answer.status, 200);
    kit_answer_done(&answer);
    kit_read_answer(streams, false, &answer);
    assert_int_equal(answer.n_body, 20);
    assert_true(answer.whole);
    kit_answer_done(&answer);
    /* A client that does not read its answer. */
    int deaf = kit_connect(&server);
    (void)kit_say(deaf, "GET /stream?n=900000000&piece=60000 HTTP/1.1\r\n" HOST "\r\n");
    assert_true(kit_until(&server, "gone", 1));
    (void)close(deaf), (void)close(waits), (void)close(streams), (void)close(says_nothing), (void)close(half_a_head);
}

static void many(void **state) {
    (void)state;
    enum { N = 200 };
    uint64_t began_ms = kit_now_ms();
    static int fds[N];
    for (int i = 0; i < N; i++) { /* 2 s of waiting each, which is long beside asking */
        fds[i] = kit_connect(&server);
        (void)kit_say(fds[i], "GET /stream?n=5000&piece=100&ms=40 HTTP/1.1\r\n" HOST "\r\n");
    }
    uint64_t took_ms = kit_now_ms() - began_ms;
    uint64_t n_open = kit_count(&server, "open");
    assert_true(n_open > 150 || took_ms >= 1000 || kit_now_ms() - began_ms >= 1500);
    for (int i = 0; i < N; i++) {
        kit_answer answer;
        kit_read_answer(fds[i], false, &answer);
        assert_int_equal(answer.status, 200);
        assert_int_equal(answer.n_body, 5000);
        assert_true(answer.whole);
        kit_answer_done(&answer);
        (void)close(fds[i]);
    }
    assert_true(kit_until(&server, "open", 1));
    assert_int_equal(kit_count(&server, "gone"), 0);
    assert_int_equal(kit_count(&server, "flows"), 0);
}

static void connections(void **state) {
    (void)state;
    config.limits.n_connections = 2;
    restart();
    kit_answer answer;
    int one = kit_connect(&server), two = kit_connect(&server);
    (void)kit_say(one, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    (void)kit_say(two, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    int three = kit_connect(&server); /* in the system's queue */
    (void)kit_say(three, "GET /nothing HTTP/1.1\r\n" HOST "\r\n");
    char text[8];
    assert_int_equal(kit_read(three, text, sizeof text, 200, NULL), 0);
    (void)close(one);
    kit_read_answer(three, false, &answer);
    assert_int_equal(answer.status, 404);
    kit_answer_done(&answer);
    (void)close(two);
    (void)close(three);
}

static void drains(void **state) {
    (void)state;
    kit own = kit_start(&config);
    kit_answer answer;
    int waits = kit_connect(&own), kept = kit_connect(&own);
    (void)kit_say(kept, "GET /nothing HTTP/1.1\r\n" HOST "\r\n");
    kit_read_answer(kept, false, &answer);
    kit_answer_done(&answer);
    /* More than the system's buffers hold: it is under way until it is read. */
    (void)kit_say(waits, "GET /stream?n=60000000&piece=60000&sized=1 HTTP/1.1\r\n" HOST "\r\n");
    for (int i = 0; i < 2000 && kit_count(&own, "most") == 0; i++)
        (void)usleep(10000);
    kit_ask(&own, "POST /drain HTTP/1.1\r\n" HOST "\r\n", &answer);
    assert_int_equal(answer.status, 200);
    kit_answer_done(&answer);
    (void)kit_say(kept, "GET /echo HTTP/1.1\r\n" HOST "\r\n");
    kit_read_answer(kept, false, &answer);
    assert_int_equal(answer.status, 503);
    assert_string_equal(kit_header(&answer, "Connection"), "close");
    assert_non_null(strstr(answer.body, "\"code\":\"draining\""));
    kit_answer_done(&answer);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(own.port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), -1);
    assert_int_equal(errno, ECONNREFUSED);
    (void)close(fd);
    kit_read_answer(waits, false, &answer);
    assert_int_equal(answer.status, 200);
    assert_true(answer.whole && answer.n_body == 60000000);
    kit_answer_done(&answer);
    (void)close(waits);
    (void)close(kept);
    assert_int_equal(kit_wait(&own), 0); /* by itself: on_idle */
}

/* Closed with requests in every state: each ends, nothing leaks (the kit's exit status). */
static void closes(void **state) {
    (void)state;
    static const char *const requests[] = {"GET /hold HTTP/1.1\r\n" HOST "\r\n",
                                           "GET /stream?silent=1 HTTP/1.1\r\n" HOST "\r\n",
                                           "GET /stream?n=900000000&piece=60000 HTTP/1.1\r\n" HOST "\r\n",
                                           "GET /stream?n=9000&piece=10&ms=1 HTTP/1.1\r\n" HOST "\r\n",
                                           "POST /hold HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\nabc",
                                           "POST /hold HTTP/1.1\r\n" HOST "Content-Length: 1000000\r\n\r\nabc",
                                           "GET /later?ms=60000 HTTP/1.1\r\n",
                                           "GE"};
    enum { N = sizeof requests / sizeof *requests };
    int fds[N];
    kit own = kit_start(&config);
    for (size_t i = 0; i < N; i++) {
        fds[i] = kit_connect(&own);
        (void)kit_say(fds[i], requests[i]);
    }
    (void)usleep(100000);
    assert_int_equal(kit_stop(&own), 0);
    for (size_t i = 0; i < N; i++)
        (void)close(fds[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(too_large, start, stop),
        cmocka_unit_test_setup_teardown(chunks, start, stop),
        cmocka_unit_test_setup_teardown(all_bodies, start, stop),
        cmocka_unit_test_setup_teardown(slow_reader, start, stop),
        cmocka_unit_test_setup_teardown(leaves, start, stop),
        cmocka_unit_test_setup_teardown(head_of_many_members, start, stop),
        cmocka_unit_test_setup_teardown(idle, start, stop),
        cmocka_unit_test_setup_teardown(many, start, stop),
        cmocka_unit_test_setup_teardown(connections, start, stop),
        cmocka_unit_test_setup_teardown(drains, start, stop),
        cmocka_unit_test_setup_teardown(closes, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
