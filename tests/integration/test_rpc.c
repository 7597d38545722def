/* SPDX-License-Identifier: MIT
 * test_rpc.c: workers are asked before ggml's client meets them: against servers that answer as they should, otherwise,
 * in part, or not at all. Each is a thread with a listening socket on this machine; none waits longer than it must.
 *
 * The last tests let ggml's own client lose its server. It ends its process, so each has one. */
#include "base/os.h"
#include "device/readings.h"
#include "engine/engine.h"
#include "engine/rpc.h"

#include "ggml-backend.h"
#include "ggml-rpc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "open_files.h"

#define WAIT_MS   300u   /* for what does not come */
#define LONG_MS   20000u /* for what comes */
#define SLACK_MS  20000u /* for a busy machine, and names that nobody answers for */
#define HELLO_N   33
#define ANSWER_N  36
#define NS_PER_MS UINT64_C(1000000)

/* ---- servers ---- */

typedef struct server {
    int fd; /* listening */
    char endpoint[64];
    const uint8_t *answer; /* to a greeting; NULL: none */
    size_t n_answer;
    bool hangs_up;        /* after that */
    bool is_ggml;         /* asked further, it has one device, and dies when asked for its memory */
    bool stops_listening; /* when it dies */
    uint8_t got[HELLO_N + 1];
    atomic_size_t n_got;
    uint32_t n_descriptors; /* of this process, before there was a server */
    atomic_int end;         /* what the other side did at last: 0 closed, else an errno */
    pthread_t thread;
} server;

static bool read_all(int fd, void *dest, size_t bytes) {
    return recv(fd, dest, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

static void send_all(int fd, const void *bytes, size_t n) {
    assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), (ssize_t)n);
}

/* One connection of ggml's client, after the greeting. false: it died. */
static bool serve_ggml(server *s, int fd) {
    for (;;) {
        uint8_t head[9];
        if (!read_all(fd, head, sizeof head)) return true;
        if (head[0] == 15) { /* RPC_CMD_DEVICE_COUNT */
            const uint8_t one[] = {4, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0};
            send_all(fd, one, sizeof one);
            continue;
        }
        if (s->stops_listening) (void)close(s->fd);
        return false;
    }
}

static void *serve(void *user) {
    server *s = user;
    for (bool lives = true; lives;) {
        int fd = accept(s->fd, NULL, NULL);
        if (fd < 0) return NULL;
        ssize_t n = recv(fd, s->got, HELLO_N, MSG_WAITALL);
        s->n_got = n > 0 ? (size_t)n : 0;
        if (s->answer) send_all(fd, s->answer, s->n_answer);
        if (s->is_ggml) lives = serve_ggml(s, fd);
        uint8_t more;
        errno = 0;
        if (!s->hangs_up && lives) s->end = recv(fd, &more, 1, 0) < 0 ? errno : 0;
        (void)close(fd);
    }
    return NULL;
}

static void listen_at(server *s) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    s->n_descriptors = n_open_files();
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(s->fd, 1), 0);
    assert_int_equal(getsockname(s->fd, (struct sockaddr *)&address, &n), 0);
    (void)snprintf(s->endpoint, sizeof s->endpoint, "127.0.0.1:%u", ntohs(address.sin_port));
    s->end = -1;
}

static void start(server *s) {
    listen_at(s);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void stop(server *s) {
    (void)shutdown(s->fd, SHUT_RDWR); /* accept returns */
    (void)pthread_join(s->thread, NULL);
    (void)close(s->fd);
    assert_int_equal(n_open_files(), s->n_descriptors);
}

/* The answer of a server of a version. */
static void make_answer(uint8_t answer[ANSWER_N], int major, int minor, int patch) {
    memset(answer, 0, ANSWER_N);
    answer[0] = ANSWER_N - 8;
    answer[8] = (uint8_t)major;
    answer[9] = (uint8_t)minor;
    answer[10] = (uint8_t)patch;
}

/* ---- asking ---- */

static bt_status ask(const char *endpoint, uint32_t wait_ms, bt_error *err) {
    *err = (bt_error){0};
    uint64_t start_ns = bt_os_now_ns();
    bt_status status = bt_rpc_check(endpoint, wait_ms, err);
    assert_true(bt_os_now_ns() - start_ns < (wait_ms + SLACK_MS) * NS_PER_MS);
    return status;
}

static void expect_failure(const char *endpoint, const bt_error *err, bt_status got, bt_status status, const char *code,
                           const char *words) {
    if (got != status) fail_msg("%s: status %d, not %d: %s", endpoint, (int)got, (int)status, err->text);
    assert_string_equal(err->code, code);
    if (!strstr(err->text, words)) fail_msg("%s: \"%s\" lacks \"%s\"", endpoint, err->text, words);
}

static void check_failure(const char *endpoint, bt_status status, const char *code, const char *words) {
    bt_error err;
    bt_status got = ask(endpoint, WAIT_MS, &err);
    expect_failure(endpoint, &err, got, status, code, words);
}

static void check_good(const char *endpoint) {
    bt_error err;
    if (ask(endpoint, LONG_MS, &err) != BT_OK) fail_msg("%s: %s", endpoint, err.text);
}

/* A server that answers this: asked again and waited for longer, should it not have had its turn in time. */
static void check_answer(const void *answer, size_t n, bool hangs_up, bt_status status, const char *code,
                         const char *words) {
    for (uint32_t wait_ms = WAIT_MS;; wait_ms *= 4) {
        server s = {.answer = answer, .n_answer = n, .hangs_up = hangs_up};
        bt_error err;
        start(&s);
        bt_status got = ask(s.endpoint, wait_ms, &err);
        bool late = strcmp(err.code, "rpc_busy") == 0 && wait_ms < LONG_MS;
        if (!late) expect_failure(s.endpoint, &err, got, status, code, words);
        stop(&s);
        if (!late) return;
    }
}

static void test_addresses(void **state) {
    (void)state;
    static const char *const wrong[] = {"",           "host",    ":1",      "host:",      "host:0",
                                        "host:65536", "host:1x", "host: 1", "[::1]:5",    "::1:5",
                                        "host:1:2",   "host:-1", "host:+1", "host:00001x"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        check_failure(wrong[i], BT_E_ARG, "rpc_endpoint", "HOST:PORT");
    char host[64], long_one[80];
    uint16_t port = 0;
    assert_true(bt_rpc_endpoint_parse("a.b-c:65535", host, &port));
    assert_string_equal(host, "a.b-c");
    assert_int_equal(port, 65535);
    memset(long_one, 'a', sizeof long_one);
    memcpy(long_one + 64, ":1", 3);
    assert_false(bt_rpc_endpoint_parse(long_one, host, &port));
    assert_true(bt_rpc_endpoint_parse(long_one + 1, host, &port));
    check_failure("256.1.1.1:5", BT_E_IO, "rpc_host", "256.1.1.1 has no IPv4 address");
}

static void test_nobody_listens(void **state) {
    (void)state;
    server s = {0};
    listen_at(&s);
    (void)close(s.fd);
    check_failure(s.endpoint, BT_E_IO, "rpc_connect", "no worker listens at 127.0.0.1:");
    assert_int_equal(n_open_files(), s.n_descriptors);
}

static void test_a_worker(void **state) {
    (void)state;
    uint8_t answer[ANSWER_N];
    make_answer(answer, RPC_PROTO_MAJOR_VERSION, RPC_PROTO_MINOR_VERSION, RPC_PROTO_PATCH_VERSION + 1);
    server s = {.answer = answer, .n_answer = sizeof answer};
    start(&s);
    check_good(s.endpoint);
    check_good(s.endpoint); /* it is left as it was */
    stop(&s);
    assert_int_equal(s.n_got, HELLO_N);
    uint8_t expected[HELLO_N] = {14, 24};
    assert_memory_equal(s.got, expected, HELLO_N);
    assert_int_equal(s.end, 0); /* closed in order */
}

static void test_by_name(void **state) {
    (void)state;
    uint8_t answer[ANSWER_N];
    make_answer(answer, RPC_PROTO_MAJOR_VERSION, RPC_PROTO_MINOR_VERSION, 0);
    server s = {.answer = answer, .n_answer = sizeof answer};
    start(&s);
    char endpoint[64];
    (void)snprintf(endpoint, sizeof endpoint, "localhost%s", strchr(s.endpoint, ':'));
    check_good(endpoint);
    stop(&s);
}

/* Its queue takes us, nobody answers: as one that serves another client. */
static void test_busy(void **state) {
    (void)state;
    server s = {0};
    listen_at(&s);
    check_failure(s.endpoint, BT_E_DEVICE, "rpc_busy", "does not answer within 300 ms: it serves one client at a time");
    (void)close(s.fd);
    assert_int_equal(n_open_files(), s.n_descriptors);
}

/* One that took us and says nothing finds the connection reset, not closed: answering a closed one would kill it. */
static void test_silent_and_reset(void **state) {
    (void)state;
    server s = {0};
    start(&s);
    check_failure(s.endpoint, BT_E_DEVICE, "rpc_busy", s.endpoint);
    stop(&s);
    assert_int_equal(s.end, ECONNRESET);
}

static void test_other_protocols(void **state) {
    (void)state;
    static const char http[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    uint8_t answer[ANSWER_N];
    make_answer(answer, RPC_PROTO_MAJOR_VERSION, RPC_PROTO_MINOR_VERSION, 0);
    check_answer(http, sizeof http - 1, true, BT_E_DEVICE, "rpc_protocol", "answers something else");
    check_answer("ok", 2, true, BT_E_DEVICE, "rpc_protocol", "answers a part and no more");
    check_answer(NULL, 0, true, BT_E_DEVICE, "rpc_protocol", "hangs up when greeted");
    check_answer(answer, 7, false, BT_E_DEVICE, "rpc_protocol", "answers a part and no more");
    check_answer(answer, 8, false, BT_E_DEVICE, "rpc_protocol", "answers a part and no more");
    check_answer(answer, ANSWER_N - 1, true, BT_E_DEVICE, "rpc_protocol", "answers a part and no more");
    answer[0] = 3; /* as the servers of the first versions */
    check_answer(answer, 8 + 3, false, BT_E_DEVICE, "rpc_protocol", "answers something else");
    answer[0] = ANSWER_N - 8;
    answer[7] = 1;
    check_answer(answer, ANSWER_N, false, BT_E_DEVICE, "rpc_protocol", "answers something else");
}

/* As ggml's client: the same major version, a minor one that is no newer. */
static void test_versions(void **state) {
    (void)state;
    char words[64];
    uint8_t answer[ANSWER_N];
    make_answer(answer, RPC_PROTO_MAJOR_VERSION - 1, 9, 2);
    (void)snprintf(words, sizeof words, "speaks version %d.9.2 of ggml's RPC protocol, this program %d.%d.%d",
                   RPC_PROTO_MAJOR_VERSION - 1, RPC_PROTO_MAJOR_VERSION, RPC_PROTO_MINOR_VERSION,
                   RPC_PROTO_PATCH_VERSION);
    check_answer(answer, ANSWER_N, false, BT_E_UNSUPPORTED, "rpc_version", words);
    make_answer(answer, RPC_PROTO_MAJOR_VERSION + 1, 0, 0);
    check_answer(answer, ANSWER_N, false, BT_E_UNSUPPORTED, "rpc_version", "speaks version");
    make_answer(answer, RPC_PROTO_MAJOR_VERSION, RPC_PROTO_MINOR_VERSION + 1, 0);
    check_answer(answer, ANSWER_N, false, BT_E_UNSUPPORTED, "rpc_version", "speaks version");
    make_answer(answer, RPC_PROTO_MAJOR_VERSION, 255, 255);
    check_answer(answer, ANSWER_N, false, BT_E_UNSUPPORTED, "rpc_version", ".255.255");
}

/* ---- adding, and losing: in processes of their own ---- */

static int said_fd;

static void say(const char *message) {
    (void)!write(said_fd, message, strlen(message));
    _exit(7);
}

static void lose(server *s, bool stops_listening) {
    bt_error err = {0};
    bt_pool pool;
    uint8_t answer[ANSWER_N];
    make_answer(answer, RPC_PROTO_MAJOR_VERSION, RPC_PROTO_MINOR_VERSION, 0);
    *s = (server){.answer = answer, .n_answer = sizeof answer, .is_ggml = true, .stops_listening = stops_listening};
    bt_engine_on_abort(say);
    if (bt_engine_init(&err) != BT_OK) say(err.text);
    start(s);
    if (bt_rpc_add(s->endpoint, &err) != BT_OK) say(err.text);
    if (bt_rpc_add(s->endpoint, &err) != BT_OK) say(err.text); /* again: nothing changes */
    if (!ggml_backend_dev_by_name("RPC0") || ggml_backend_dev_by_name("RPC1")) say("not one device");
    bt_device_reading(ggml_backend_dev_by_name("RPC0"), &pool);
    say("it was not missed");
}

static void check_loss(bool stops_listening, const char *words) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        static server s;
        said_fd = ends[1];
        lose(&s, stops_listening);
    }
    (void)close(ends[1]);
    char text[512] = "";
    size_t n = 0;
    for (ssize_t got = 1; got > 0 && n < sizeof text - 1; n += got > 0 ? (size_t)got : 0)
        got = read(ends[0], text + n, sizeof text - 1 - n);
    (void)close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
    if (!strstr(text, words)) fail_msg("\"%s\" lacks \"%s\"", text, words);
}

static void test_a_worker_that_is_gone(void **state) {
    (void)state;
    check_loss(true, "the worker 127.0.0.1:");
    check_loss(true, " is gone");
}

static void test_a_worker_that_broke_off(void **state) {
    (void)state;
    check_loss(false, "the connection to a worker broke; in use: 127.0.0.1:");
}

static void test_adding_nobody(void **state) {
    (void)state;
    server s = {0};
    bt_error err = {0};
    listen_at(&s);
    (void)close(s.fd);
    assert_int_equal(bt_rpc_add(s.endpoint, &err), BT_E_IO);
    assert_string_equal(err.code, "rpc_connect");
    assert_int_equal(bt_rpc_add("nonsense", &err), BT_E_ARG);
    assert_null(ggml_backend_dev_by_name("RPC0"));
}

int main(void) {
    (void)setenv("RES_OPTIONS", "timeout:1 attempts:1", 1); /* where no name server answers, that is known soon */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_nobody_listens),
        cmocka_unit_test(test_a_worker),
        cmocka_unit_test(test_by_name),
        cmocka_unit_test(test_busy),
        cmocka_unit_test(test_silent_and_reset),
        cmocka_unit_test(test_other_protocols),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_a_worker_that_is_gone),
        cmocka_unit_test(test_a_worker_that_broke_off),
        cmocka_unit_test(test_adding_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
