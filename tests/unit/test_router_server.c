/* SPDX-License-Identifier: MIT
 * test_router_server.c: the router's HTTP side from outside: what is answered, to whom, and how connections go on. */
#include "router_server_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define HOST "Host: localhost\r\n"

static kit server;

static int start(void **state) {
    (void)state;
    bt_config config = kit_config();
    server = kit_start(&config);
    return server.port ? 0 : -1;
}

static int stop(void **state) {
    (void)state;
    return kit_stop(&server);
}

/* The status, and the answer's body in a place that the next call overwrites. */
static char body[70000];
static kit_answer last;

static uint32_t status_of(const char *request) {
    kit_answer_done(&last);
    kit_ask(&server, request, &last);
    (void)snprintf(body, sizeof body, "%s", last.body ? last.body : "");
    uint32_t status = last.status;
    free(last.body);
    last.body = NULL;
    return status;
}

static void answers(void **state) {
    (void)state;
    assert_int_equal(status_of("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello"), 200);
    assert_string_equal(body, "hello");
    assert_true(last.whole);
    assert_string_equal(kit_header(&last, "Content-Type"), "text/plain");
    assert_int_equal(status_of("POST /echo HTTP/1.1\r\n" HOST
                               "Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n"
                               "0\r\nTrailer: x\r\n\r\n"),
                     200);
    assert_string_equal(body, "hello");
    assert_int_equal(status_of("GET /echo HTTP/1.0\r\n\r\n"), 200); /* no Host, no body */
    assert_string_equal(body, "");
    assert_int_equal(status_of("HEAD /stream?sized=1&n=30 HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_string_equal(kit_header(&last, "Content-Length"), "30");
    assert_int_equal(status_of("HEAD /echo HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc"), 200);
    assert_string_equal(kit_header(&last, "Content-Length"), "3");
    assert_int_equal(status_of("GET /later?ms=30 HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_string_equal(body, "{\"late\":true}");
    assert_int_equal(status_of("GET /nothing HTTP/1.1\r\n" HOST "\r\n"), 404);
    assert_non_null(strstr(body, "\"type\":\"not_found_error\",\"code\":\"path\",\"param\":null}}"));
}

static void errors(void **state) {
    (void)state;
    assert_int_equal(status_of("GET /error?status=429 HTTP/1.1\r\n" HOST "\r\n"), 429);
    assert_string_equal(body,
                        "{\"error\":{\"message\":\"with \\\"quotes\\\", \\\\ and\\u000a\\u0001? of text\",\"type\":"
                        "\"rate_limit_error\",\"code\":\"a_code\",\"param\":\"model\",\"bytes\": 5}}");
    assert_string_equal(kit_header(&last, "Retry-After"), "7");
    static const struct {
        const char *request, *type;
    } rows[] = {
        {"GET /error?status=400 HTTP/1.1\r\n" HOST "\r\n", "invalid_request_error"},
        {"GET /error?status=401 HTTP/1.1\r\n" HOST "\r\n", "authentication_error"},
        {"GET /error?status=413 HTTP/1.1\r\n" HOST "\r\n", "invalid_request_error"},
        {"GET /error?status=500 HTTP/1.1\r\n" HOST "\r\n", "server_error"},
        {"GET /error?status=501 HTTP/1.1\r\n" HOST "\r\n", "not_supported_error"},
        {"GET /error?status=502 HTTP/1.1\r\n" HOST "\r\n", "server_error"},
        {"GET /error?status=503 HTTP/1.1\r\n" HOST "\r\n", "unavailable_error"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t status = status_of(rows[i].request);
        assert_int_equal(status, strtoul(strchr(rows[i].request, '=') + 1, NULL, 10));
        assert_non_null(strstr(body, rows[i].type));
    }
}

static void targets(void **state) {
    (void)state;
    static const char *const wrong[] = {
        "GET /../etc HTTP/1.1\r\n" HOST "\r\n",
        "GET /a/%2e%2e/b HTTP/1.1\r\n" HOST "\r\n",
        "GET /a%00b HTTP/1.1\r\n" HOST "\r\n",
        "GET /a%0a HTTP/1.1\r\n" HOST "\r\n",
        "GET a HTTP/1.1\r\n" HOST "\r\n",
        "GET /a%zz HTTP/1.1\r\n" HOST "\r\n",
        "GET /echo HTTP/1.1\r\n\r\n",
        "GET /echo HTTP/1.1\r\n" HOST HOST "\r\n",
        "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\n" HOST "Content-Length: -1\r\n\r\n",
        "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint32_t status = status_of(wrong[i]);
        if (status != 400) fail_msg("%u for %s", status, wrong[i]);
    }
    uint32_t spaced = status_of("GET /a b HTTP/1.1\r\n" HOST "\r\n");
    assert_true(spaced == 400 || spaced == 301); /* libmicrohttpd 1.0 says where it should have gone */
    static char request[9000];
    (void)snprintf(request, sizeof request, "GET /%8000d HTTP/1.1\r\n" HOST "\r\n", 0);
    for (char *c = request + 4; *c != '0'; c++)
        if (*c == ' ') *c = 'x';
    assert_int_equal(status_of(request), 400);
    assert_int_equal(kit_count(&server, "given"), 1); /* only this one */
}

static void facts(void **state) {
    (void)state;
    assert_int_equal(
        status_of("PUT http://localhost/facts?a=%41 HTTP/1.1\r\nHost: evil.example\r\nX-One: 1\r\n"
                  "Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nAuthorization: Bearer x\r\nX-Api-Key: y\r\n"
                  "Cookie: z\r\nTE: trailers\r\nAccept: a/b\r\nContent-Length: 0\r\n\r\n"),
        200);
    assert_string_equal(body, "PUT /facts target=/facts?a=%41 peer=127.0.0.1\nX-One: 1\nAccept: a/b\n");
}

static void allowed(void **state) {
    (void)state;
    static const char *const keys[] = {"sk-secret"}, *const pages[] = {"https://app.example"};
    bt_config config = kit_config();
    config.api_keys = keys;
    config.n_api_keys = 1;
    config.cors_origins = pages;
    config.n_cors_origins = 1;
    kit kept = server;
    server = kit_start(&config);
#define KEY "Authorization: Bearer sk-secret\r\n"
    assert_int_equal(status_of("GET /echo HTTP/1.1\r\n" HOST "\r\n"), 401);
    assert_string_equal(kit_header(&last, "WWW-Authenticate"), "Bearer realm=\"burthen\"");
    assert_non_null(strstr(body, "\"code\":\"api_key\""));
    assert_int_equal(status_of("GET /echo HTTP/1.1\r\n" HOST KEY "\r\n"), 200);
    assert_string_equal(kit_header(&last, "Vary"), "Origin");
    assert_null(kit_header(&last, "Access-Control-Allow-Origin"));
    assert_int_equal(status_of("GET /echo HTTP/1.1\r\n" HOST "x-api-key: sk-secret\r\n\r\n"), 200);
    assert_int_equal(status_of("GET /later?ms=1 HTTP/1.1\r\n" HOST "\r\n"), 200);  /* is open */
    assert_int_equal(status_of("POST /later?ms=1 HTTP/1.1\r\n" HOST "\r\n"), 401); /* only to GET */
    assert_int_equal(status_of("GET /later HTTP/1.1\r\nHost: evil.example\r\n" KEY "\r\n"), 403);
    assert_non_null(strstr(body, "\"type\":\"permission_error\",\"code\":\"host\""));
    assert_int_equal(status_of("GET http://evil.example/later HTTP/1.1\r\n" HOST KEY "\r\n"), 403);
    assert_int_equal(status_of("POST /echo HTTP/1.1\r\n" HOST KEY "Origin: https://evil.example\r\n\r\n"), 403);
    assert_non_null(strstr(body, "\"code\":\"origin\""));
    assert_int_equal(status_of("GET /echo HTTP/1.1\r\n" HOST KEY "Origin: https://evil.example\r\n\r\n"), 200);
    assert_null(kit_header(&last, "Access-Control-Allow-Origin"));
    assert_int_equal(status_of("POST /stream HTTP/1.1\r\n" HOST KEY "Origin: https://app.example\r\n\r\n"), 200);
    assert_string_equal(kit_header(&last, "Access-Control-Allow-Origin"), "https://app.example");
    assert_string_equal(kit_header(&last, "X-Kept"), "yes");
    assert_int_equal(status_of("POST /echo HTTP/1.1\r\n" HOST "Origin: https://app.example\r\n\r\n"), 401);
    assert_string_equal(kit_header(&last, "Access-Control-Allow-Origin"), "https://app.example");
    assert_int_equal(status_of("OPTIONS /echo HTTP/1.1\r\n" HOST "Origin: https://app.example\r\n"
                               "Access-Control-Request-Method: POST\r\n"
                               "Access-Control-Request-Headers: authorization,x-y\r\n\r\n"),
                     204);
    assert_string_equal(kit_header(&last, "Access-Control-Allow-Origin"), "https://app.example");
    assert_string_equal(kit_header(&last, "Access-Control-Allow-Headers"), "authorization,x-y");
    assert_non_null(strstr(kit_header(&last, "Access-Control-Allow-Methods"), "DELETE"));
    assert_int_equal(status_of("OPTIONS /echo HTTP/1.1\r\n" HOST "Origin: https://evil.example\r\n"
                               "Access-Control-Request-Method: POST\r\n\r\n"),
                     403);
    assert_null(kit_header(&last, "Access-Control-Allow-Origin"));
    assert_int_equal(status_of("OPTIONS /echo HTTP/1.1\r\n" HOST "\r\n"), 204);
    assert_int_equal(kit_count_with(&server, "refused", KEY), 7);
    assert_int_equal(kit_stop(&server), 0);
    server = kept;
}

static void kept_alive(void **state) {
    (void)state;
    int fd = kit_connect(&server);
    kit_reading from = {.fd = fd, .ms = KIT_WAIT_MS};
    kit_answer answer;
    for (int i = 0; i < 3; i++) {
        (void)kit_say(fd, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nab");
        kit_read_answer_from(&from, false, &answer);
        assert_int_equal(answer.status, 200);
        assert_string_equal(answer.body, "ab");
        kit_answer_done(&answer);
    }
    /* Several at once; one that waits and one that streams among them: answered in their order. */
    (void)kit_say(fd, "GET /later?ms=30 HTTP/1.1\r\n" HOST "\r\nGET /stream?n=40&ms=5 HTTP/1.1\r\n" HOST "\r\n"
                      "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\ncd"
                      "GET /nothing HTTP/1.1\r\n" HOST "\r\n");
    static const char *const want[] = {"{\"late\":true}", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "cd",
                                       "{\"error\""};
    for (int i = 0; i < 4; i++) {
        kit_read_answer_from(&from, false, &answer);
        assert_true(answer.whole);
        assert_memory_equal(answer.body, want[i], strlen(want[i]));
        kit_answer_done(&answer);
    }
    free(from.data);
    (void)close(fd);
    assert_int_equal(kit_count(&server, "gone"), 0);
}

/* Who shuts down his side in one breath with a request that is answered at once has the answer, and the end after it:
 * the connection is not kept until it is idle (KIT_IDLE_MS). */
static void half_closed(void **state) {
    (void)state;
    static const char one[] = "GET /facts HTTP/1.1\r\n" HOST "\r\n";
    for (int n_requests = 1; n_requests <= 2; n_requests++) {
        int fd = kit_connect(&server);
        char all[8192] = "";
        size_t n_all = 0;
        bool end = false;
        (void)snprintf(all, sizeof all, "%s%s", one, n_requests == 2 ? one : "");
        (void)kit_say(fd, all);
        (void)shutdown(fd, SHUT_WR);
        while (!end && n_all < sizeof all - 1) {
            ssize_t n = kit_read(fd, all + n_all, sizeof all - 1 - n_all, KIT_WAIT_MS, &end);
            if (n <= 0) break;
            n_all += (size_t)n;
        }
        all[n_all] = '\0';
        assert_true(end);
        const char *last_answer = all;
        for (int i = 1; i < n_requests && last_answer; i++)
            last_answer = strstr(last_answer + 1, "HTTP/1.1 200");
        assert_non_null(last_answer);
        (void)close(fd);
    }
}

static void expects(void **state) {
    (void)state;
    int fd = kit_connect(&server);
    char text[512] = {0};
    (void)kit_say(fd, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    assert_true(kit_read(fd, text, sizeof text - 1, KIT_WAIT_MS, NULL) > 0);
    assert_string_equal(text, "HTTP/1.1 100 Continue\r\n\r\n");
    (void)kit_say(fd, "xyz");
    kit_answer answer;
    kit_read_answer(fd, false, &answer);
    assert_string_equal(answer.body, "xyz");
    kit_answer_done(&answer);
    (void)close(fd);
    assert_int_equal(status_of("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 100001\r\nExpect: 100-continue\r\n\r\n"),
                     413);
}

static void streams(void **state) {
    (void)state;
    assert_int_equal(status_of("GET /stream?n=100&piece=7 HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_int_equal(strlen(body), 100);
    assert_true(last.whole);
    assert_string_equal(kit_header(&last, "Transfer-Encoding"), "chunked");
    assert_null(kit_header(&last, "Content-Length"));
    assert_null(kit_header(&last, "Cache-Control"));
    assert_int_equal(status_of("GET /stream?n=100&sse=1 HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_string_equal(kit_header(&last, "X-Accel-Buffering"), "no");
    assert_string_equal(kit_header(&last, "Cache-Control"), "no-cache");
    assert_int_equal(status_of("GET /stream?n=100&piece=7 HTTP/1.0\r\n\r\n"), 200); /* until the connection ends */
    assert_int_equal(strlen(body), 100);
    assert_int_equal(status_of("GET /stream?n=60000&piece=999&sized=1 HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_int_equal(strlen(body), 60000);
    assert_true(last.whole);
    assert_int_equal(kit_count(&server, "sent"), 60000);
    /* Broken off: the client sees it, and it is not the client that has left. */
    assert_int_equal(status_of("GET /stream?n=20&broken=1 HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_int_equal(strlen(body), 20);
    assert_false(last.whole);
    assert_int_equal(status_of("GET /stream?n=20&sized=1&size=30 HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_false(last.whole);
    assert_int_equal(status_of("GET /stream?n=50&sized=1&size=30 HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_int_equal(strlen(body), 30);
    assert_int_equal(status_of("GET /stream?n=0 HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_true(last.whole);
    assert_int_equal(status_of("GET /stream?n=0&sized=1 HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_true(last.whole);
    assert_int_equal(status_of("GET /stream?status=204 HTTP/1.1\r\n" HOST "\r\n"), 204);
    assert_int_equal(status_of("GET /stream?status=101 HTTP/1.1\r\n" HOST "\r\n"), 502);
    assert_int_equal(kit_count(&server, "gone"), 0);
}

/* The head of a stream that has no bytes yet: how long it takes. */
static uint64_t head_ms(void) {
    char text[4096];
    int fd = kit_connect(&server);
    uint64_t began = kit_now_ms();
    (void)kit_say(fd, "GET /stream?silent=1 HTTP/1.1\r\n" HOST "\r\n");
    assert_true(kit_read(fd, text, sizeof text, KIT_WAIT_MS, NULL) > 0);
    assert_memory_equal(text, "HTTP/1.1 200", 12);
    uint64_t took_ms = kit_now_ms() - began;
    (void)close(fd);
    return took_ms;
}

/* Five pieces that are made 60 ms apart: whether each came by itself. */
static bool come_one_by_one(void) {
    char text[4096];
    int fd = kit_connect(&server);
    (void)kit_say(fd, "GET /stream?n=50&piece=10&ms=60 HTTP/1.1\r\n" HOST "\r\n");
    uint64_t at[16];
    uint32_t n = 0;
    bool end = false;
    while (n < 16 && !end && kit_read(fd, text, sizeof text - 1, KIT_WAIT_MS, &end) > 0) {
        at[n++] = kit_now_ms();
        if (memmem(text, sizeof text, "\r\n0\r\n\r\n", 7) || !memcmp(text, "0\r\n", 3)) break;
        memset(text, 0, sizeof text);
    }
    (void)close(fd);
    return n >= 5 && at[4] - at[0] >= 120 && at[4] - at[0] < 2000;
}

static void streams_at_once(void **state) {
    (void)state;
    uint64_t least_ms = UINT64_MAX;
    for (uint32_t i = 0; i < KIT_TRIES && least_ms >= 150; i++) {
        uint64_t took_ms = head_ms();
        if (took_ms < least_ms) least_ms = took_ms;
    }
    assert_true(least_ms < 150); /* MSG_MORE alone: 200 */
    bool one_by_one = false;
    for (uint32_t i = 0; i < KIT_TRIES && !one_by_one; i++)
        one_by_one = come_one_by_one();
    assert_true(one_by_one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(answers, start, stop),
        cmocka_unit_test_setup_teardown(errors, start, stop),
        cmocka_unit_test_setup_teardown(targets, start, stop),
        cmocka_unit_test_setup_teardown(facts, start, stop),
        cmocka_unit_test_setup_teardown(allowed, start, stop),
        cmocka_unit_test_setup_teardown(kept_alive, start, stop),
        cmocka_unit_test_setup_teardown(half_closed, start, stop),
        cmocka_unit_test_setup_teardown(expects, start, stop),
        cmocka_unit_test_setup_teardown(streams, start, stop),
        cmocka_unit_test_setup_teardown(streams_at_once, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
