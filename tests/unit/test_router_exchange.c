/* SPDX-License-Identifier: MIT
 * test_router_exchange.c: requests to a server that answers well and badly (raw_server.h), as the router sees them. */
#include "base/heap.h"
#include "base/os.h"
#include "router/exchange.h"

#include <ctype.h>
#include <dirent.h>
#include <netdb.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cmocka.h>

#include "raw_server.h"

#define FLOW_BYTES  65536u
#define GUARD_MS    60000u /* where a machine stands still for a while, nothing here fails */
#define CONNECT_MS  20000u
#define HEADER_MS   20000u
#define N_TRIES     20u /* of what must be quick at least once: a pause of the machine's is not ours */
#define PIECES_MAX  16u
#define BODY_MAX    (1u << 20)
#define HEADERS_MAX 2048u

typedef struct rig {
    raw_server server;
    bt_loop *loop;
    bt_client *client;
    bt_timer guard;
    uint32_t n_left;
    bool late;
} rig;

typedef enum act { ACT_NONE, ACT_CANCEL, ACT_LEAVE, ACT_STOP, ACT_CANCEL_OTHER, ACT_START } act;

/* One exchange and what came of it. */
typedef struct seen {
    rig *r;
    bt_exchange *exchange;
    bt_flow *flow;
    char *body; /* what is sent */
    uint32_t n_heads, n_ends, status;
    char headers[HEADERS_MAX]; /* "name=value\n" each */
    bt_known length;
    char *got;
    size_t n_got;
    bool counts_only; /* got is not kept */
    bool closed;      /* the consumer has seen the end */
    bool whole, dropped;
    bt_exchange_failure failure;
    char words[512];
    uint64_t came_ms[PIECES_MAX];
    size_t piece_ends[PIECES_MAX];
    uint32_t n_pieces;
    act on_head, on_data, on_end;
    struct seen *other;
    const char *next_path;
    bool throttled;
} seen;

static uint64_t now_ms(void) {
    return bt_os_now_ns() / 1000000u;
}

static void on_guard(void *user) {
    rig *r = user;
    r->late = true;
    bt_loop_stop(r->loop);
}

static void done_one(rig *r) {
    if (--r->n_left == 0) bt_loop_stop(r->loop);
}

static void run(rig *r, uint32_t n) {
    r->n_left = n;
    r->late = false;
    bt_loop_timer_set(r->loop, &r->guard, GUARD_MS);
    assert_int_equal(bt_loop_run(r->loop, NULL), BT_OK);
    bt_loop_timer_stop(r->loop, &r->guard);
    assert_false(r->late);
}

/* The loop for so long, whatever happens. */
static void turn(rig *r, uint64_t ms) {
    r->n_left = UINT32_MAX;
    bt_loop_timer_set(r->loop, &r->guard, ms);
    assert_int_equal(bt_loop_run(r->loop, NULL), BT_OK);
}

/* The loop until a count of the server's is what it should be. */
static void turn_until(rig *r, atomic_uint *count, unsigned value) {
    for (int i = 0; i < 2000 && atomic_load(count) != value; i++)
        turn(r, 10);
    assert_int_equal(atomic_load(count), value);
}

/* The loop until the head is there. */
static void turn_until_head(rig *r, const seen *s) {
    for (int i = 0; i < 2000 && s->n_heads == 0; i++)
        turn(r, 10);
    assert_int_equal(s->n_heads, 1);
}

static void start(rig *r, seen *s, const char *method, const char *path);

static void leave(seen *s) {
    if (s->dropped) return;
    s->dropped = true;
    bt_flow_drop_consumer(s->flow);
}

static void do_act(seen *s, act what) {
    switch (what) {
    case ACT_CANCEL:
        bt_exchange_cancel(s->exchange);
        free(s->body); /* no call reads it any more */
        s->body = NULL;
        done_one(s->r);
        break;
    case ACT_LEAVE:
        leave(s);
        break;
    case ACT_STOP:
        bt_loop_stop(s->r->loop);
        break;
    case ACT_CANCEL_OTHER:
        bt_exchange_cancel(s->other->exchange);
        free(s->other->body);
        s->other->body = NULL;
        done_one(s->r);
        break;
    case ACT_START:
        start(s->r, s->other, "GET", s->next_path);
        break;
    case ACT_NONE:
        break;
    }
}

static void take(seen *s) {
    char piece[4096];
    size_t n = 0;
    while (!s->dropped && (n = bt_flow_take(s->flow, piece, sizeof piece)) > 0) {
        if (!s->counts_only) {
            assert_true(s->n_got + n < BODY_MAX);
            memcpy(s->got + s->n_got, piece, n);
        }
        s->n_got += n;
    }
    if (!s->dropped && bt_flow_ended(s->flow)) {
        s->closed = true;
        s->whole = bt_flow_whole(s->flow);
    }
}

static void on_data(void *user) {
    seen *s = user;
    if (s->throttled) return;
    size_t before = s->n_got;
    take(s);
    if (s->n_got > before && s->n_pieces < PIECES_MAX) {
        s->came_ms[s->n_pieces] = now_ms();
        s->piece_ends[s->n_pieces++] = s->n_got;
    }
    if (s->n_got > before) {
        act what = s->on_data;
        s->on_data = ACT_NONE;
        do_act(s, what);
    }
}

static void on_head(void *user, const bt_exchange_head *head) {
    seen *s = user;
    assert_int_equal(s->n_ends, 0);
    s->n_heads++;
    s->status = head->status;
    s->length = head->n_bytes;
    size_t n = 0;
    for (uint32_t i = 0; i < head->n_headers; i++)
        n +=
            (size_t)snprintf(s->headers + n, HEADERS_MAX - n, "%s=%s\n", head->headers[i].name, head->headers[i].value);
    do_act(s, s->on_head);
}

static void on_end(void *user, bt_exchange_failure failure, const char *words) {
    seen *s = user;
    s->n_ends++;
    s->failure = failure;
    (void)snprintf(s->words, sizeof s->words, "%s", words);
    s->exchange = NULL;
    do_act(s, s->on_end);
    done_one(s->r);
}

static void start_ask(rig *r, seen *s, bt_exchange_ask *ask, const char *path) {
    char url[256];
    (void)snprintf(url, sizeof url, "%s%s", strchr(path, ':') ? "" : r->server.url, path);
    s->r = r;
    if (!s->got && !s->counts_only) s->got = calloc(1, BODY_MAX);
    assert_int_equal(bt_flow_open(FLOW_BYTES, &s->flow, NULL), BT_OK);
    bt_flow_on_data(s->flow, on_data, s);
    ask->client = r->client;
    ask->url = url;
    ask->flow = s->flow;
    ask->on_head = on_head;
    ask->on_end = on_end;
    ask->user = s;
    bt_error err = {0};
    if (bt_exchange_start(ask, &s->exchange, &err) != BT_OK) fail_msg("%s", err.text);
}

static void start(rig *r, seen *s, const char *method, const char *path) {
    bt_exchange_ask ask = {.method = method, .connect_timeout_ms = CONNECT_MS, .header_timeout_ms = HEADER_MS};
    if (s->body) {
        ask.body = s->body;
        ask.n_body = strlen(s->body);
    }
    start_ask(r, s, &ask, path);
}

static void clear(seen *s) {
    if (s->flow) leave(s);
    free(s->body);
    free(s->got);
    *s = (seen){0};
}

static void get(rig *r, seen *s, const char *path) {
    *s = (seen){0};
    start(r, s, "GET", path);
    run(r, 1);
    assert_int_equal(s->n_ends, 1);
}

static void expect(const seen *s, uint32_t status, const char *body) {
    if (s->failure != BT_EXCHANGE_OK) fail_msg("%s", s->words);
    assert_string_equal(s->words, "");
    assert_int_equal(s->n_heads, 1);
    assert_int_equal(s->status, status);
    assert_true(s->closed);
    assert_true(s->whole);
    assert_int_equal(s->n_got, strlen(body));
    assert_memory_equal(s->got, body, strlen(body));
}

static int open_rig(void **state) {
    rig *r = calloc(1, sizeof *r);
    raw_server_open(&r->server);
    assert_int_equal(bt_loop_open(&r->loop, NULL), BT_OK);
    assert_int_equal(bt_client_open(r->loop, &r->client, NULL), BT_OK);
    r->guard = (bt_timer){.on_time = on_guard, .user = r};
    *state = r;
    return 0;
}

static int close_rig(void **state) {
    rig *r = *state;
    bt_client_close(r->client);
    bt_loop_close(r->loop);
    raw_server_close(&r->server);
    free(r);
    assert_int_equal(bt_heap_live_blocks(), 0);
    assert_int_equal(bt_flow_total_bytes(), 0);
    return 0;
}

/* ---- answers ---- */

static void test_whole(void **state) {
    seen s;
    get(*state, &s, "/whole");
    expect(&s, 200, "hello");
    assert_true(s.length.known);
    assert_int_equal(s.length.value, 5);
    assert_string_equal(s.headers, "Content-Type=text/plain\n");
    clear(&s);
}

static void test_chunked(void **state) {
    seen s;
    get(*state, &s, "/chunked");
    expect(&s, 200, "hello world");
    assert_false(s.length.known);
    assert_string_equal(s.headers, ""); /* Transfer-Encoding and Trailer are of the connection */
    clear(&s);
}

static void test_without_length(void **state) {
    seen s;
    get(*state, &s, "/eof");
    expect(&s, 200, "hello");
    assert_false(s.length.known);
    clear(&s);
}

static void test_interim_answers_are_skipped(void **state) {
    seen s;
    get(*state, &s, "/interim");
    expect(&s, 201, "ok");
    assert_string_equal(s.headers, "X-Real=yes\n");
    clear(&s);
}

static void test_headers_of_the_connection(void **state) {
    seen s;
    get(*state, &s, "/hop");
    expect(&s, 200, "");
    assert_string_equal(s.headers, "X-Yours=yes\n");
    clear(&s);
    get(*state, &s, "/names");
    assert_string_equal(s.headers, "X-Yours=\n");
    clear(&s);
    get(*state, &s, "/fold");
    assert_string_equal(s.headers, "X-Long=one two\n");
    clear(&s);
}

static void test_nothing_is_followed_or_decoded(void **state) {
    seen s;
    get(*state, &s, "/redirect");
    expect(&s, 302, "move");
    assert_string_equal(s.headers, "Location=/whole\n");
    clear(&s);
    get(*state, &s, "/gzip");
    expect(&s, 200, "plain");
    assert_string_equal(s.headers, "Content-Encoding=gzip\n");
    clear(&s);
}

static void test_no_body(void **state) {
    rig *r = *state;
    static const struct {
        const char *path;
        uint32_t status;
    } rows[] = {{"/status?204", 204}, {"/status?304", 304}, {"/status?200", 200}, {"/status?503", 503}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        seen s;
        get(r, &s, rows[i].path);
        expect(&s, rows[i].status, "");
        assert_true(s.length.known);
        assert_int_equal(s.length.value, 0);
        clear(&s);
    }
    seen s = {0};
    start(r, &s, "HEAD", "/head");
    run(r, 1);
    expect(&s, 200, "");
    assert_int_equal(s.length.value, 4321);
    clear(&s);
    get(r, &s, "/whole"); /* the connection is in step */
    expect(&s, 200, "hello");
    clear(&s);
    assert_int_equal(atomic_load(&r->server.n_connections), 1);
}

/* Each piece is there when the server has sent it, not when the next one comes. */
static void test_events_come_as_they_are_sent(void **state) {
    bool at_once = false;
    for (uint32_t try = 0; try < N_TRIES && !at_once; try++) {
        seen s;
        get(*state, &s, "/events");
        assert_int_equal(s.failure, BT_EXCHANGE_OK);
        assert_in_range(s.n_pieces, 1, 5);
        at_once = s.n_pieces == 5;
        size_t from = 0;
        for (uint32_t i = 0; i < s.n_pieces; i++) {
            unsigned long long sent_ms = 0;
            assert_int_equal(sscanf(s.got + from, "data: %llu", &sent_ms), 1);
            assert_true(s.came_ms[i] >= sent_ms);
            at_once = at_once && s.came_ms[i] - sent_ms < 50;
            from = s.piece_ends[i];
        }
        clear(&s);
    }
    assert_true(at_once);
}

/* ---- requests ---- */

static void test_what_is_sent(void **state) {
    rig *r = *state;
    const bt_header headers[] = {{"Connection", "close, X-Drop"},
                                 {"X-Drop", "1"},
                                 {"Host", "evil"},
                                 {"Content-Length", "99"},
                                 {"Transfer-Encoding", "chunked"},
                                 {"Expect", "100-continue"},
                                 {"X-Empty", ""},
                                 {"X-Keep", "a  b"},
                                 {"Accept-Encoding", "gzip"},
                                 {"Keep-Alive", "3"}};
    seen s = {0};
    bt_exchange_ask ask = {.method = "POST",
                           .headers = headers,
                           .n_headers = sizeof headers / sizeof *headers,
                           .body = "{\"a\":1}",
                           .n_body = 7};
    start_ask(r, &s, &ask, "/echo/../echo?x=%20y&z=/../");
    run(r, 1);
    assert_int_equal(s.failure, BT_EXCHANGE_OK);
    assert_int_equal(s.status, 404); /* the path is sent as it is */
    clear(&s);
    start_ask(r, &s, &ask, "/echo?x=%20y&z=/../");
    run(r, 1);
    char want[256];
    (void)snprintf(want, sizeof want,
                   "POST /echo?x=%%20y&z=/../ HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nX-Empty:\r\nX-Keep: a  b\r\n"
                   "Accept-Encoding: gzip\r\nContent-Length: 7\r\n\r\n{\"a\":1}",
                   r->server.port);
    expect(&s, 200, want);
    clear(&s);
}

static void expect_request(rig *r, const char *method, const char *body, const char *want) {
    seen s = {0};
    if (body) s.body = strdup(body);
    start(r, &s, method, "/echo");
    run(r, 1);
    char all[256];
    (void)snprintf(all, sizeof all, "%s /echo HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n%s", method, r->server.port, want);
    expect(&s, 200, all);
    clear(&s);
}

static void test_methods(void **state) {
    rig *r = *state;
    expect_request(r, "GET", NULL, "\r\n");
    expect_request(r, "GET", "body", "Content-Length: 4\r\n\r\nbody");
    expect_request(r, "DELETE", NULL, "\r\n");
    expect_request(r, "DELETE", "gone", "Content-Length: 4\r\n\r\ngone");
    expect_request(r, "OPTIONS", NULL, "\r\n");
    expect_request(r, "POST", NULL, "Content-Length: 0\r\n\r\n");
    expect_request(r, "PUT", "put", "Content-Length: 3\r\n\r\nput");
    expect_request(r, "PATCH", "patch", "Content-Length: 5\r\n\r\npatch");
    assert_int_equal(atomic_load(&r->server.n_connections), 1);
}

static void test_large_body(void **state) {
    rig *r = *state;
    seen s = {.body = malloc(900001)};
    for (int i = 0; i < 900000; i++)
        s.body[i] = (char)('a' + i % 23);
    s.body[900000] = '\0';
    start(r, &s, "POST", "/echo");
    run(r, 1);
    assert_int_equal(s.failure, BT_EXCHANGE_OK);
    assert_true(s.n_got > 900000);
    assert_memory_equal(s.got + s.n_got - 900000, s.body, 900000);
    clear(&s);
}

/* A server that answers before it has read everything is heard. */
static void test_early_answer(void **state) {
    rig *r = *state;
    for (int i = 0; i < 10; i++) {
        seen s = {.body = malloc(8000001)};
        memset(s.body, 'e', 8000000);
        s.body[8000000] = '\0';
        start(r, &s, "POST", "/early");
        run(r, 1);
        expect(&s, 413, "too much");
        clear(&s);
    }
}

static void test_what_cannot_be_sent(void **state) {
    rig *r = *state;
    static const bt_header bad[] = {{"X-A", "b\r\nX-C: d"}, {"X A", "b"}, {"X-A", "b\001"}, {"", "b"}};
    static const char *const urls[] = {"ftp://127.0.0.1/",        "file:///etc/passwd",  "nonsense",   "http://", "",
                                       "http://127.0.0.1:99999/", "http://h\xC3\xB6st/", "http://a b/"};
    static const char *const methods[] = {"", "G T", "GET\r\n", "CONNECT", "AMETHODTHATISLONGERTHANANYOTHERISALLOWED"};
    bt_flow *flow = NULL;
    bt_exchange *e = NULL;
    bt_error err;
    assert_int_equal(bt_flow_open(1024, &flow, NULL), BT_OK);
    bt_exchange_ask ask = {.client = r->client, .method = "GET", .url = "http://127.0.0.1:1/", .flow = flow};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ask.headers = &bad[i];
        ask.n_headers = 1;
        assert_int_equal(bt_exchange_start(&ask, &e, &err), BT_E_ARG);
        assert_string_equal(err.code, "exchange");
    }
    ask.n_headers = 0;
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        ask.url = urls[i];
        assert_int_equal(bt_exchange_start(&ask, &e, &err), BT_E_ARG);
        bt_client_forget(r->client, urls[i]); /* nothing */
    }
    ask.url = "http://127.0.0.1:1/";
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        ask.method = methods[i];
        assert_int_equal(bt_exchange_start(&ask, &e, &err), BT_E_ARG);
    }
    bt_flow_drop_producer(flow); /* it is still ours */
    bt_flow_drop_consumer(flow);
}

/* ---- failures ---- */

static void expect_failure(rig *r, const char *path, bt_exchange_failure failure, uint32_t n_heads, const char *words) {
    seen s;
    get(r, &s, path);
    if (s.failure != failure || strcmp(s.words, words) != 0)
        fail_msg("%s: %u '%s'", path, (unsigned)s.failure, s.words);
    assert_int_equal(s.n_heads, n_heads);
    assert_true(s.closed);
    assert_false(s.whole);
    clear(&s);
}

static void test_broken_answers(void **state) {
    rig *r = *state;
    expect_failure(r, "/cut", BT_EXCHANGE_BROKEN, 1, "the server closed the connection after 1234 bytes of 5000");
    expect_failure(r, "/cut-chunk", BT_EXCHANGE_BROKEN, 1, "the server closed the connection after 6 bytes");
    expect_failure(r, "/cut-head", BT_EXCHANGE_CONNECT, 0,
                   "the server closed the connection in the head of its answer, after 17 bytes");
    expect_failure(r, "/cut-line", BT_EXCHANGE_CONNECT, 0,
                   "the server closed the connection in the head of its answer, after 43 bytes");
    expect_failure(r, "/nothing", BT_EXCHANGE_CONNECT, 0, "the server closed the connection before it answered");
    expect_failure(r, "/reset", BT_EXCHANGE_BROKEN, 1, "the server broke off the connection after 8 bytes of 5000");
    expect_failure(r, "/noise", BT_EXCHANGE_BROKEN, 0, "the server's answer is no HTTP/1.1");
    expect_failure(r, "/switch", BT_EXCHANGE_BROKEN, 0, "the server's answer is no HTTP/1.1");
    expect_failure(r, "/control", BT_EXCHANGE_BROKEN, 0, "the server's answer is no HTTP/1.1");
    expect_failure(r, "/huge-head", BT_EXCHANGE_BROKEN, 0,
                   "the head of the server's answer has over 65536 bytes or 256 headers");
    seen s;
    get(r, &s, "/huge-line");
    assert_int_equal(s.failure, BT_EXCHANGE_BROKEN);
    assert_non_null(strstr(s.words, "has over 65536 bytes"));
    clear(&s);
}

/* Two lengths: whatever libcurl makes of it, nothing that contradicts a length we passed on. */
static void test_two_lengths(void **state) {
    seen s;
    get(*state, &s, "/lengths");
    assert_false(s.length.known);
    clear(&s);
}

static void test_nobody_listens(void **state) {
    rig *r = *state;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0); /* taken, and not listened on */
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    char url[64], words[96];
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u/x", ntohs(a.sin_port));
    (void)snprintf(words, sizeof words, "no connection to 127.0.0.1:%u: Connection refused", ntohs(a.sin_port));
    expect_failure(r, url, BT_EXCHANGE_CONNECT, 0, words);

    /* And one that does not take what waits: its queue is full, so no connection comes about. */
    assert_int_equal(listen(fd, 0), 0);
    int clients[4];
    for (int i = 0; i < 4; i++) {
        clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(clients[i], (struct sockaddr *)&a, n);
    }
    seen s = {0};
    bt_exchange_ask ask = {.method = "GET", .connect_timeout_ms = 150, .header_timeout_ms = HEADER_MS};
    uint64_t from = now_ms();
    start_ask(r, &s, &ask, url);
    run(r, 1);
    assert_int_equal(s.failure, BT_EXCHANGE_TIMEOUT);
    (void)snprintf(words, sizeof words, "no connection to 127.0.0.1:%u within 150 ms", ntohs(a.sin_port));
    assert_string_equal(s.words, words);
    assert_in_range(now_ms() - from, 140, HEADER_MS - 1);
    clear(&s);
    for (int i = 0; i < 4; i++)
        (void)close(clients[i]);
    (void)close(fd);
}

/* Two addresses, the first of them refuses: the second's socket may get the first one's number. */
static void test_second_address(void **state) {
    rig *r = *state;
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, n) != 0 || listen(fd, 8) != 0) skip();
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    char url[64];
    (void)snprintf(url, sizeof url, "http://localhost:%u/x", ntohs(a.sin6_port));
    seen s = {0};
    bt_exchange_ask ask = {.method = "GET", .connect_timeout_ms = CONNECT_MS, .header_timeout_ms = HEADER_MS};
    start_ask(r, &s, &ask, url);
    int server = -1;
    for (int i = 0; i < 2000 && server < 0; i++) { /* the client has its turns, so that it tries the next address */
        struct pollfd p = {.fd = fd, .events = POLLIN};
        turn(r, 10);
        if (poll(&p, 1, 0) == 1) server = accept(fd, NULL, NULL);
    }
    char request[256] = "";
    assert_true(server >= 0);
    turn(r, 10); /* what is to be sent is sent */
    assert_true(recv(server, request, sizeof request - 1, 0) > 20);
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nsix";
    assert_int_equal(send(server, answer, sizeof answer - 1, 0), sizeof answer - 1);
    run(r, 1);
    expect(&s, 200, "six");
    clear(&s);
    (void)close(server);
    (void)close(fd);
}

static void test_no_answer_in_time(void **state) {
    rig *r = *state;
    seen s = {0};
    bt_exchange_ask ask = {.method = "GET", .header_timeout_ms = 120};
    uint64_t from = now_ms();
    start_ask(r, &s, &ask, "/silent");
    run(r, 1);
    assert_int_equal(s.failure, BT_EXCHANGE_TIMEOUT);
    assert_string_equal(s.words, "the server has not begun to answer within 120 ms");
    assert_in_range(now_ms() - from, 120, HEADER_MS);
    clear(&s);
    /* After the head there is no such time: the answer takes 240 ms. Where the head itself is late, again. */
    ask.header_timeout_ms = 200;
    bool whole = false;
    for (uint32_t try = 0; try < N_TRIES && !whole; try++) {
        start_ask(r, &s, &ask, "/events");
        run(r, 1);
        if (s.n_heads == 1) assert_int_equal(s.failure, BT_EXCHANGE_OK);
        whole = s.whole;
        clear(&s);
    }
    assert_true(whole);
}

/* ---- connections ---- */

static void test_connections_are_kept(void **state) {
    rig *r = *state;
    for (int i = 0; i < 20; i++) {
        seen s;
        get(r, &s, i % 2 ? "/chunked" : "/whole");
        expect(&s, 200, i % 2 ? "hello world" : "hello");
        clear(&s);
    }
    assert_int_equal(atomic_load(&r->server.n_connections), 1);
    assert_int_equal(atomic_load(&r->server.n_requests), 20);
}

/* The server closes after each answer and says nothing of it: the next request finds out, and is not lost. */
static void test_stale_connection(void **state) {
    rig *r = *state;
    for (int i = 0; i < 20; i++) {
        seen s = {.body = strdup("body")};
        start(r, &s, "POST", i % 4 == 3 ? "/echo" : "/stale");
        run(r, 1);
        assert_int_equal(s.failure, BT_EXCHANGE_OK);
        assert_non_null(strstr(s.got, i % 4 == 3 ? "\r\n\r\nbody" : "stale"));
        clear(&s);
        if (i % 2) turn(r, 5);
    }
}

/* The same, found out while the body is on its way. */
static void test_reset_connection(void **state) {
    rig *r = *state;
    for (int i = 0; i < 30; i++) {
        seen s;
        get(r, &s, "/whole");
        clear(&s);
        s.body = malloc(3000001);
        memset(s.body, 'r', 3000000);
        s.body[3000000] = '\0';
        start(r, &s, "POST", "/once");
        run(r, 1);
        expect(&s, 200, "fresh");
        clear(&s);
    }
    assert_true(atomic_load(&r->server.n_connections) >= 60);
}

static void test_forget(void **state) {
    rig *r = *state;
    seen s, long_one = {.on_data = ACT_STOP};
    get(r, &s, "/whole"); /* its connection is taken again */
    clear(&s);
    start(r, &long_one, "GET", "/drip");
    run(r, 2);
    get(r, &s, "/whole");
    clear(&s);
    assert_int_equal(atomic_load(&r->server.n_connections), 2);
    bt_client_forget(r->client, "http://127.0.0.1:1/whole"); /* another place */
    turn(r, 40);
    assert_int_equal(atomic_load(&r->server.n_eofs), 0);
    char url[96];
    (void)snprintf(url, sizeof url, "%s/other", r->server.url);
    bt_client_forget(r->client, url);
    turn_until(r, &r->server.n_eofs, 1);
    assert_int_equal(long_one.n_ends, 0); /* what is under way goes on */
    size_t before = long_one.n_got;
    for (int i = 0; i < 2000 && long_one.n_got == before; i++)
        turn(r, 10);
    assert_true(long_one.n_got > before);
    get(r, &s, "/whole");
    expect(&s, 200, "hello");
    clear(&s);
    assert_int_equal(atomic_load(&r->server.n_connections), 3);
    bt_exchange_cancel(long_one.exchange);
    clear(&long_one);
}

/* ---- back pressure ---- */

static void test_slow_consumer(void **state) {
    rig *r = *state;
    const unsigned long all = 32u << 20;
    seen s = {.counts_only = true, .throttled = true};
    char path[32];
    (void)snprintf(path, sizeof path, "/big?%lu", all);
    start(r, &s, "GET", path);
    uint64_t idle_bytes = bt_heap_live_bytes();
    turn_until_head(r, &s);
    unsigned long long sent = 0, before = 0;
    for (int i = 0; i < 200; i++) { /* until nothing moves any more */
        turn(r, 200);
        sent = atomic_load(&r->server.sent_bytes);
        if (sent == before && sent > 0) break;
        before = sent;
    }
    /* The flow, its ring's room, libcurl's buffer and what it had not handed over. */
    assert_true(bt_heap_live_bytes() - idle_bytes < 2 * FLOW_BYTES + 3 * 16384);
    assert_true(sent < all / 2); /* what the system's buffers hold */
    bool rests = false;          /* nobody turns in circles, and nothing goes on filling up */
    for (uint32_t try = 0; try < N_TRIES && !rests; try++) {
        clock_t from = clock();
        sent = atomic_load(&r->server.sent_bytes);
        turn(r, 100);
        rests = clock() - from < CLOCKS_PER_SEC / 20 && atomic_load(&r->server.sent_bytes) - sent < 1u << 20;
    }
    assert_true(rests && sent < all / 2);
    /* A taste at a time, and then all of it. */
    for (int i = 0; i < 50; i++) {
        take(&s);
        turn(r, 1);
    }
    assert_int_equal(s.n_ends, 0);
    s.throttled = false;
    take(&s);
    run(r, 1);
    assert_int_equal(s.failure, BT_EXCHANGE_OK);
    assert_int_equal(s.n_got, all);
    assert_true(s.whole);
    clear(&s);
}

static void test_many_paused(void **state) {
    rig *r = *state;
    enum { N = 50 };
    seen *s = calloc(N, sizeof *s);
    for (int i = 0; i < N; i++) {
        s[i].counts_only = s[i].throttled = true;
        start(r, &s[i], "GET", "/big?4000000");
    }
    for (int i = 0; i < N; i++)
        turn_until_head(r, &s[i]);
    turn(r, 100);
    assert_true(bt_flow_total_bytes() <= N * 2 * FLOW_BYTES);
    assert_true(bt_heap_live_bytes() < N * (2 * FLOW_BYTES + 3 * 16384 + 32768));
    for (int i = 0; i < N; i++) {
        assert_int_equal(s[i].n_heads, 1);
        if (i % 2)
            leave(&s[i]); /* the server is told */
        else
            s[i].throttled = false;
        take(&s[i]);
    }
    run(r, N);
    for (int i = 0; i < N; i++) {
        assert_int_equal(s[i].n_ends, 1);
        assert_int_equal(s[i].failure, i % 2 ? BT_EXCHANGE_UNREAD : BT_EXCHANGE_OK);
        if (i % 2 == 0) assert_int_equal(s[i].n_got, 4000000);
        clear(&s[i]);
    }
    free(s);
}

static void test_many_at_once(void **state) {
    rig *r = *state;
    enum { N = 200 };
    seen *s = calloc(N, sizeof *s);
    static const char *const paths[] = {"/whole", "/events", "/chunked", "/eof", "/big?100000"};
    for (int i = 0; i < N; i++)
        start(r, &s[i], "GET", paths[i % 5]);
    run(r, N);
    for (int i = 0; i < N; i++) {
        if (s[i].failure != BT_EXCHANGE_OK) fail_msg("%d: %s", i, s[i].words);
        assert_int_equal(s[i].n_ends, 1);
        assert_true(s[i].whole);
        if (i % 5 == 4) assert_int_equal(s[i].n_got, 100000);
        if (i % 5 == 2) assert_memory_equal(s[i].got, "hello world", 11);
        clear(&s[i]);
    }
    free(s);
    for (int i = 0; i < 2000 && atomic_load(&r->server.n_open) > 64; i++)
        turn(r, 10);
    assert_true(atomic_load(&r->server.n_open) <= 64); /* BT_CLIENT_IDLE_MAX */
}

/* ---- cancelling ---- */

static void wait_for_no_connection(rig *r) {
    turn_until(r, &r->server.n_open, 0);
}

static void cancelled(rig *r, seen *s) {
    size_t n_got = s->n_got;
    turn(r, 30);
    assert_int_equal(s->n_ends, 0);
    assert_int_equal(s->n_got, n_got);
    wait_for_no_connection(r); /* the server sees it */
    clear(s);
}

static void test_cancel_at_each_stage(void **state) {
    rig *r = *state;
    seen s = {.body = strdup("body")};
    start(r, &s, "POST", "/drip");
    bt_exchange_cancel(s.exchange); /* before anything */
    cancelled(r, &s);

    start(r, &s, "GET", "/silent");
    turn(r, 30);
    bt_exchange_cancel(s.exchange); /* it waits for the head */
    assert_int_equal(s.n_heads, 0);
    cancelled(r, &s);

    s.on_head = ACT_CANCEL;
    start(r, &s, "GET", "/drip");
    run(r, 1);
    assert_int_equal(s.n_heads, 1);
    assert_int_equal(s.n_got, 0);
    cancelled(r, &s);

    s.on_data = ACT_CANCEL; /* from within the flow */
    start(r, &s, "GET", "/drip");
    run(r, 1);
    assert_true(s.n_got > 0); /* one drip, or what had come by then */
    cancelled(r, &s);

    s.throttled = true; /* paused */
    start(r, &s, "GET", "/big?20000000");
    turn_until_head(r, &s);
    turn(r, 60);
    bt_exchange_cancel(s.exchange);
    cancelled(r, &s);

    s.on_end = ACT_CANCEL_OTHER; /* its own end: nothing more happens */
    s.other = &s;
    start(r, &s, "GET", "/whole");
    r->n_left = 0;
    run(r, 2);
    assert_int_equal(s.n_ends, 1);
    clear(&s);
}

/* While its body is sent, from within another one's callback; the body is freed there. */
static void test_cancel_another(void **state) {
    rig *r = *state;
    for (int i = 0; i < 30; i++) {
        seen a = {0}, b = {0};
        a.other = &b;
        a.on_head = i % 2 ? ACT_CANCEL_OTHER : ACT_NONE;
        a.on_data = i % 2 ? ACT_NONE : ACT_CANCEL_OTHER;
        b.body = malloc(800001);
        memset(b.body, 'b', 800000);
        b.body[800000] = '\0';
        start(r, i % 4 < 2 ? &a : &b, i % 4 < 2 ? "GET" : "POST", i % 4 < 2 ? "/drip" : "/silent");
        start(r, i % 4 < 2 ? &b : &a, i % 4 < 2 ? "POST" : "GET", i % 4 < 2 ? "/silent" : "/drip");
        run(r, 1);
        assert_int_equal(a.n_ends + b.n_ends, 0);
        turn(r, 2);
        bt_exchange_cancel(a.exchange);
        clear(&a);
        clear(&b);
    }
    wait_for_no_connection(r);
}

static void test_consumer_leaves(void **state) {
    rig *r = *state;
    seen s = {.on_data = ACT_LEAVE};
    start(r, &s, "GET", "/drip");
    run(r, 1);
    assert_int_equal(s.failure, BT_EXCHANGE_UNREAD);
    assert_string_equal(s.words, "nobody takes the answer any more");
    clear(&s);
    start(r, &s, "GET", "/silent"); /* before the head */
    turn(r, 20);
    leave(&s);
    run(r, 1);
    assert_int_equal(s.failure, BT_EXCHANGE_UNREAD);
    assert_int_equal(s.n_heads, 0);
    clear(&s);
    s.on_head = ACT_LEAVE;
    start(r, &s, "GET", "/events");
    run(r, 1);
    assert_int_equal(s.failure, BT_EXCHANGE_UNREAD);
    clear(&s);
    wait_for_no_connection(r);
}

static void test_start_from_callbacks(void **state) {
    rig *r = *state;
    seen d = {0}, c = {.on_end = ACT_START, .other = &d, .next_path = "/chunked"};
    seen b = {.on_data = ACT_START, .other = &c, .next_path = "/whole"};
    seen a = {.on_head = ACT_START, .other = &b, .next_path = "/eof"};
    start(r, &a, "GET", "/whole");
    run(r, 4);
    expect(&a, 200, "hello");
    expect(&b, 200, "hello");
    expect(&c, 200, "hello");
    expect(&d, 200, "hello world");
    clear(&a);
    clear(&b);
    clear(&c);
    clear(&d);
}

static void test_client_closes_first(void **state) {
    rig *r = *state;
    seen a = {0}, b = {.on_head = ACT_STOP}, c = {0};
    start(r, &a, "GET", "/silent");
    start(r, &b, "GET", "/drip");
    run(r, 9);
    start(r, &c, "GET", "/whole");
    r->n_left = 9;
    bt_client_close(r->client);
    r->client = NULL;
    seen *all[] = {&a, &b, &c};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(all[i]->n_ends, 1);
        assert_int_equal(all[i]->failure, BT_EXCHANGE_LOCAL);
        assert_string_equal(all[i]->words, "the router is ending");
        clear(all[i]);
    }
}

/* ---- names ---- */

static unsigned n_threads(void) {
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    (void)closedir(dir);
    return n;
}

static void on_look(void *user) {
    unsigned *most = user;
    unsigned n = n_threads();
    if (n > *most) *most = n;
}

/* Names are looked for in another process, never in a thread. */
static void test_names(void **state) {
    rig *r = *state;
    char url[96];
    seen s = {0};
    (void)snprintf(url, sizeof url, "http://LocalHost:%u/whole", r->server.port);
    get(r, &s, url);
    expect(&s, 200, "hello");
    clear(&s);
    char host[65] = "";
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    turn(r, 10);
    unsigned most = 0, before = n_threads();
    bt_timer look = {.on_time = on_look, .user = &most};
    bt_loop_timer_set(r->loop, &look, 1);
    /* RFC 2606: this name exists nowhere. */
    get(r, &s, "http://nowhere.invalid:8080/x");
    assert_int_equal(s.failure, BT_EXCHANGE_CONNECT);
    assert_non_null(strstr(s.words, "the host 'nowhere.invalid' is not known: "));
    clear(&s);
    bt_loop_timer_stop(r->loop, &look);
    assert_true(most <= before);
    /* Our own name has an address, whoever listens there; in any spelling libcurl takes what we found. */
    struct addrinfo *found = NULL;
    if (getaddrinfo(host, NULL, NULL, &found) == 0) {
        freeaddrinfo(found);
        for (char *p = host; *p; p++)
            *p = (char)toupper((unsigned char)*p);
        for (int i = 0; i < 3; i++) { /* as it is, with the root's dot, again */
            seen two[2] = {{0}, {0}};
            (void)snprintf(url, sizeof url,
                           i == 0   ? "http://%s:1/whole"
                           : i == 1 ? "http://%s.:1/"
                                    : "http://%s:1/",
                           host);
            start(r, &two[0], "GET", url);
            start(r, &two[1], "GET", url);
            run(r, 2);
            for (int j = 0; j < 2; j++) {
                assert_int_equal(two[j].failure, BT_EXCHANGE_CONNECT);
                /* A name server need not know it with a dot: then we are told by ourselves. */
                if (i != 1) assert_non_null(strstr(two[j].words, "no connection to "));
                clear(&two[j]);
            }
        }
    }
    /* Cancelled while it is looked for. */
    start(r, &s, "GET", "http://elsewhere.invalid/");
    bt_exchange_cancel(s.exchange);
    turn(r, 50);
    assert_int_equal(s.n_ends, 0);
    clear(&s);
    start(r, &s, "GET", "http://elsewhere.invalid/");
    bt_client_close(r->client);
    r->client = NULL;
    assert_int_equal(s.n_ends, 1);
    clear(&s);
}

#define T(name) cmocka_unit_test_setup_teardown(name, open_rig, close_rig)

int main(void) {
    /* Where no name server answers, that is known soon. */
    (void)setenv("RES_OPTIONS", "timeout:1 attempts:1", 1);
    /* Proxies of the environment are not for servers. */
    (void)setenv("http_proxy", "http://127.0.0.1:9", 1);
    (void)setenv("ALL_PROXY", "http://127.0.0.1:9", 1);
    const struct CMUnitTest tests[] = {
        T(test_whole),
        T(test_chunked),
        T(test_without_length),
        T(test_interim_answers_are_skipped),
        T(test_headers_of_the_connection),
        T(test_nothing_is_followed_or_decoded),
        T(test_no_body),
        T(test_events_come_as_they_are_sent),
        T(test_what_is_sent),
        T(test_methods),
        T(test_large_body),
        T(test_early_answer),
        T(test_what_cannot_be_sent),
        T(test_broken_answers),
        T(test_two_lengths),
        T(test_nobody_listens),
        T(test_second_address),
        T(test_no_answer_in_time),
        T(test_connections_are_kept),
        T(test_stale_connection),
        T(test_reset_connection),
        T(test_forget),
        T(test_slow_consumer),
        T(test_many_paused),
        T(test_many_at_once),
        T(test_cancel_at_each_stage),
        T(test_cancel_another),
        T(test_consumer_leaves),
        T(test_start_from_callbacks),
        T(test_client_closes_first),
        T(test_names),
    };
    return cmocka_run_group_tests_name("router_exchange", tests, NULL, NULL);
}
