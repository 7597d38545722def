/* SPDX-License-Identifier: MIT
 * fuzz_router_http.c: bytes of a client, through a socket, to the router's HTTP side and a program behind it
 * (router_server_kit.h). A byte 0xFE is where the client pauses. Every request that is given away ends; nothing is held
 * when the client has gone. */
#include "fuzz.h"

#include "router_server_kit.h"

#define PAUSE     '\xfe'
#define LATEST_MS 100 /* for a client that the server waits for: half a head, say */

typedef struct client {
    kit_app *app;
    bt_watch watch;
    bt_timer late, step;
    const char *data;
    size_t n, at;
    bool answered;
} client;

static kit_app app;
static bt_config config;
static uint16_t port;

/* One that drains the server ends it for the samples that follow. */
static void on_request(void *user, bt_request *request) {
    if (strcmp(bt_request_path(request), "/drain") == 0) {
        kit_job *job = calloc(1, sizeof *job);
        if (!job) abort();
        job->app = user;
        job->app->n_given++;
        bt_request_set_user(request, job);
        bt_reply_json(request, 200, "{}");
        return;
    }
    kit_on_request(user, request);
}

static void start(void) {
    config = kit_config();
    config.limits.idle_ms = 5000;
    bt_server_ask ask = {
        .config = &config, .is_open = kit_is_open, .on_request = on_request, .on_end = kit_on_end, .user = &app};
    bool up = bt_loop_open(&app.loop, NULL) == BT_OK;
    ask.loop = app.loop;
    if (!up || bt_server_open(&ask, &app.server, NULL) != BT_OK) abort();
    port = (uint16_t)atoi(strrchr(bt_server_address(app.server), ':') + 1);
}

static void stop(void) {
    bt_server_close(app.server);
    bt_loop_close(app.loop);
}

static void on_late(void *user) {
    bt_loop_stop(((client *)user)->app->loop);
}

/* The next piece; behind the last the client's end. */
static void on_step(void *user) {
    client *c = user;
    const char *pause = memchr(c->data + c->at, PAUSE, c->n - c->at);
    size_t n = pause ? (size_t)(pause - c->data) - c->at : c->n - c->at;
    (void)send(c->watch.fd, c->data + c->at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    c->at += n + (pause ? 1 : 0);
    if (c->at < c->n)
        bt_loop_timer_set(c->app->loop, &c->step, 0);
    else
        (void)shutdown(c->watch.fd, SHUT_WR);
}

static void on_ready(void *user, uint32_t events) {
    client *c = user;
    char away[16384];
    ssize_t n = recv(c->watch.fd, away, sizeof away, MSG_DONTWAIT);
    c->answered = c->answered || (n >= 12 && memcmp(away, "HTTP/1.", 7) == 0 && away[9] == '2');
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR) && !(events & EPOLLHUP))) return;
    bt_loop_stop(c->app->loop);
}

/* What is left of requests when the client has gone ends within a turn or two of the loop. */
static void settle(void) {
    bt_server_counts counts = {.n_connections = 1};
    for (int i = 0; i < 1000 && counts.n_connections > 0; i++) {
        bt_timer turn = {.on_time = on_late, .user = &(client){.app = &app}};
        bt_loop_timer_set(app.loop, &turn, i < 10 ? 0 : 1);
        (void)bt_loop_run(app.loop, NULL);
        bt_server_count(app.server, &counts);
    }
    FUZZ_CHECK(counts.n_connections == 0 && counts.n_open == 0 && counts.bodies_bytes == 0);
    FUZZ_CHECK(app.n_given == app.n_end && bt_flow_total_bytes() == 0);
}

static bool one(char *text, size_t n) {
    client c = {.app = &app, .data = text, .n = n};
    c.watch = (bt_watch){.on_ready = on_ready, .user = &c, .fd = kit_connect_to(port)};
    c.late = (bt_timer){.on_time = on_late, .user = &c};
    c.step = (bt_timer){.on_time = on_step, .user = &c};
    FUZZ_CHECK(bt_loop_add(app.loop, &c.watch, EPOLLIN, NULL) == BT_OK);
    bt_loop_timer_set(app.loop, &c.late, LATEST_MS);
    bt_loop_timer_set(app.loop, &c.step, 0);
    FUZZ_CHECK(bt_loop_run(app.loop, NULL) == BT_OK);
    bt_loop_timer_stop(app.loop, &c.late);
    bt_loop_timer_stop(app.loop, &c.step);
    bt_loop_remove(app.loop, &c.watch);
    /* It goes with a reset: one that leaves half a head is not waited for. */
    (void)setsockopt(c.watch.fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    (void)close(c.watch.fd);
    settle();
    return c.answered;
}

static const char *word(size_t i) {
    static const char *const words[] = {"GET /facts HTTP/1.1\r\nHost: localhost\r\n\r\n",
                                        "POST /echo HTTP/1.1\r\n",
                                        "HEAD ",
                                        "OPTIONS ",
                                        "PUT ",
                                        "/stream?n=5&piece=2",
                                        "/error?status=500",
                                        "/hold",
                                        "/later?ms=1",
                                        "/counts",
                                        " HTTP/1.0\r\n",
                                        "Host: localhost\r\n",
                                        "Content-Length: 5\r\n",
                                        "Transfer-Encoding: chunked\r\n",
                                        "Expect: 100-continue\r\n",
                                        "Connection: close\r\n",
                                        "Connection: keep-alive\r\n",
                                        "Origin: null\r\n",
                                        "Origin: http://evil\r\n",
                                        "Access-Control-Request-Method: POST\r\n",
                                        "Authorization: Bearer x\r\n",
                                        "5\r\nhello\r\n",
                                        "0\r\n\r\n",
                                        "\r\n\r\n",
                                        "\r\n",
                                        "\xfe",
                                        "%00",
                                        "/../",
                                        "Sec-Fetch-Site: cross-site\r\n",
                                        "X: \t\r\n"};
    return i < sizeof words / sizeof *words ? words[i] : NULL;
}

const fuzz_target fuzz_here = {
    .name = "router_http", .one = one, .bare = true, .start = start, .stop = stop, .word = word, .n_rounds = 1500};
