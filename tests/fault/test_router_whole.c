/* SPDX-License-Identifier: MIT
 * test_router_whole.c: the router as a whole, in a process of its own, with the k-th of its fallible calls failing:
 * each request is answered or its connection closed, a signal ends it, its memory is all given back, and no process
 * that it started is left.
 *
 * Its model is a process that sleeps, and the server of that model one of this test's, the same for all lives: so a
 * life takes some tenths of a second. Of the thousands of calls that a life makes every FAULT_EVERY-th fails in turn;
 * what it is set to for a test that takes half a minute, and 1 for all of them. */
#include "base/fault.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/os.h"
#include "leave.h"
#include "report/report.h"
#include "router/flow.h"
#include "router/router.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define N_LIVES   50 /* of a quick test: some 20 s with sanitizers */
#define ANSWER_S  20 /* a life in which a sample of memory fails waits for the next */
#define END_MS    20000
#define KEEPS     3 /* exit statuses of a router's process: memory is left */
#define NOT_CLEAN 4 /* an error without a code */
#define NOT_READ  5 /* the configuration was refused: no life */

/* ---- the server of the model ---- */

static int listen_somewhere(uint32_t *ret_port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 64) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    *ret_port = ntohs(at.sin_port);
    return fd;
}

static void be_slow_to_wait(int fd, int seconds) {
    const struct timeval limit = {.tv_sec = seconds};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

static void answer_one(int fd) {
    static const char stream[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
                                 "data: {\"choices\":[{\"delta\":{\"content\":\"one\"}}]}\n\ndata: [DONE]\n\n";
    static const char whole[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 70\r\n"
                                "Connection: close\r\n\r\n"
                                "{\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}     \n";
    char text[4096] = "";
    size_t n = 0;
    be_slow_to_wait(fd, 10);
    while (n + 1 < sizeof text &&
           (n == 0 || !(text[n - 1] == '}' || (n > 4 && memcmp(text, "GET ", 4) == 0 && text[n - 1] == '\n')))) {
        ssize_t got = recv(fd, text + n, sizeof text - 1 - n, 0);
        if (got <= 0) break;
        n += (size_t)got;
        text[n] = '\0';
    }
    const char *answer = strstr(text, "\"stream\":true") ? stream : whole;
    (void)send(fd, answer, strlen(answer), MSG_NOSIGNAL);
    (void)shutdown(fd, SHUT_WR);
    (void)recv(fd, text, sizeof text, 0);
    (void)close(fd);
}

static pid_t start_server(uint32_t *ret_port) {
    int fd = listen_somewhere(ret_port);
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            int one = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
            if (one >= 0) answer_one(one);
        }
    }
    (void)close(fd);
    return pid;
}

/* ---- a life of the router ---- */

typedef struct world {
    char folder[64], burthen[96], config[1024];
    uint32_t server_port;
    pid_t server, router;
    bool refuses_all; /* nothing need be answered then */
    int address_fd;   /* of the router's process: where it says its address */
} world;

static world the_world;

static bt_status read_config(void *user, bt_config **ret, bt_error *err) {
    const world *w = user;
    bt_config_notes notes = {0};
    return bt_config_parse(w->config, strlen(w->config), "whole.yaml", NULL, ret, &notes, err);
}

static void on_log(const bt_log_entry *entry, void *user) {
    (void)user;
    (void)fprintf(stderr, "%s\n", entry->message);
}

static void on_ready(void *user, const char *address) {
    const world *w = user;
    (void)!write(w->address_fd, address, strlen(address));
    (void)close(w->address_fd);
}

typedef struct told {
    uint64_t n_calls;
    bool hit;
    char code[64];
} told;

_Noreturn static void be_the_router(world *w, uint64_t k, bool persistent, int address_fd, int told_fd) {
    bt_error err = {0};
    told t = {0};
    w->address_fd = address_fd;
    bt_router_ask ask = {.reload = read_config, .burthen = w->burthen, .root = "", .on_ready = on_ready, .user = w};
    bt_report_init(NULL);
    if (getenv("WHOLE_SAYS")) bt_log_set(on_log, NULL, BT_LOG_INFO);
    bt_fault_arm(k, persistent);
    bt_status status = read_config(w, &ask.config, &err);
    if (status == BT_OK) status = bt_router_run(&ask, &err);
    t.hit = bt_fault_disarm();
    t.n_calls = bt_fault_count();
    (void)snprintf(t.code, sizeof t.code, "%s", status == BT_OK ? "ended" : err.code);
    (void)!write(told_fd, &t, sizeof t);
    bool keeps = bt_heap_live_blocks() > 0 || bt_flow_total_bytes() > 0;
    leave(keeps ? KEEPS : t.code[0] == '\0' ? NOT_CLEAN : 0);
}

/* ---- a client ---- */

typedef enum came { ANSWERED, REFUSED, CLOSED, NOTHING } came;

static int connect_to(uint32_t port) {
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    be_slow_to_wait(fd, the_world.refuses_all ? 1 : ANSWER_S);
    if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0) return fd;
    (void)close(fd);
    return -1;
}

/* The whole answer in text; NOTHING: it has not come in time. */
static came ask_router(uint32_t port, const char *method, const char *path, const char *body, char *text, size_t size) {
    char head[512];
    int fd = connect_to(port);
    if (fd < 0) return CLOSED;
    int n_head = snprintf(head, sizeof head,
                          "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n"
                          "Content-Type: application/json\r\n\r\n%s",
                          method, path, strlen(body), body);
    (void)send(fd, head, (size_t)n_head, MSG_NOSIGNAL);
    size_t n = 0;
    ssize_t got = 0;
    while (n + 1 < size && (got = recv(fd, text + n, size - 1 - n, 0)) > 0)
        n += (size_t)got;
    bool late = got < 0 && errno == EAGAIN;
    text[n] = '\0';
    (void)close(fd);
    if (late) return NOTHING;
    if (n < 12 || memcmp(text, "HTTP/1.1 ", 9) != 0) return CLOSED;
    return text[9] == '2' ? ANSWERED : REFUSED;
}

/* One that asks for a stream and leaves. */
static void leave_early(uint32_t port, const char *request) {
    int fd = connect_to(port);
    if (fd < 0) return;
    (void)send(fd, request, strlen(request), MSG_NOSIGNAL);
    char byte = 0;
    be_slow_to_wait(fd, 1);
    (void)recv(fd, &byte, 1, 0);
    (void)close(fd);
}

static const char *const pages[] = {
    "/v1/models",    "/running", "/api/memory", "/metrics", "/api/plan?model=m", "/logs", "/api/metrics/activity",
    "/api/requests", "/",        "/web/app.js"};

static void must_come(came said, uint64_t k, const char *what) {
    if (said == NOTHING && !the_world.refuses_all) fail_msg("call %llu: no answer of %s", (unsigned long long)k, what);
}

static void use(uint32_t port, pid_t router, uint64_t k, uint32_t *ret_good) {
    static char text[65536];
    char chat[] = "{\"model\":\"alias\",\"messages\":[]}", stream[] = "{\"model\":\"m\",\"stream\":true}";
    int listener = connect_to(port);
    static const char events[] = "GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    if (listener >= 0) (void)send(listener, events, sizeof events - 1, MSG_NOSIGNAL);
    for (uint32_t i = 0; i < 2; i++) {
        came said = ask_router(port, "POST", "/v1/chat/completions", i ? stream : chat, text, sizeof text);
        must_come(said, k, "the model");
        *ret_good += said == ANSWERED && strstr(text, i ? "[DONE]" : "prompt_tokens");
    }
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        came said = ask_router(port, "GET", pages[i], "", text, sizeof text);
        must_come(said, k, pages[i]);
        *ret_good += said == ANSWERED;
    }
    leave_early(port, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 27\r\n\r\n"
                      "{\"model\":\"m\",\"stream\":true}");
    (void)kill(router, SIGHUP);
    leave_early(port, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    must_come(ask_router(port, "POST", "/api/models/unload/m", "", text, sizeof text), k, "unloading");
    must_come(ask_router(port, "POST", "/upstream/other/x", chat, text, sizeof text), k, "the other model");
    if (listener >= 0) (void)close(listener);
}

/* The router's process and everything below it: this process is the parent of who has lost his own. */
static int wait_for_all(pid_t router, pid_t server, uint64_t k) {
    int status = -1, one = 0;
    uint64_t until_ms = bt_os_now_ns() / 1000000 + END_MS;
    bool server_left = false;
    while (bt_os_now_ns() / 1000000 < until_ms) {
        pid_t pid = waitpid(-1, &one, WNOHANG);
        if (pid == router) {
            status = one;
            the_world.router = 0;
        }
        if (pid == server) fail_msg("call %llu: the test's own server has ended", (unsigned long long)k);
        if (pid == 0) {
            /* only the server is left, when no other child lives */
            char path[64], list[256] = "";
            (void)snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
            FILE *file = fopen(path, "r");
            size_t n = file ? fread(list, 1, sizeof list - 1, file) : 0;
            if (file) (void)fclose(file);
            list[n] = '\0';
            server_left = atoi(list) == server && strchr(list, ' ') && strchr(list, ' ')[1] == '\0';
            if (server_left) break;
            (void)usleep(5000);
        }
    }
    if (!server_left) fail_msg("call %llu: a process is left", (unsigned long long)k);
    return status;
}

static told live(uint64_t k, bool persistent, uint32_t *ret_good) {
    world *w = &the_world;
    int address[2], said[2];
    char at[256] = "";
    told t = {0};
    *ret_good = 0;
    assert_int_equal(pipe(address), 0);
    assert_int_equal(pipe(said), 0);
    pid_t router = fork();
    if (router == 0) {
        (void)close(address[0]);
        (void)close(said[0]);
        be_the_router(w, k, persistent, address[1], said[1]);
    }
    w->router = router;
    (void)close(address[1]);
    (void)close(said[1]);
    ssize_t n = read(address[0], at, sizeof at - 1);
    const char *colon = n > 0 ? strrchr(at, ':') : NULL;
    if (colon) use((uint32_t)strtoul(colon + 1, NULL, 10), router, k, ret_good);
    (void)kill(router, SIGTERM);
    int status = wait_for_all(router, w->server, k);
    ssize_t got = read(said[0], &t, sizeof t);
    (void)close(address[0]);
    (void)close(said[0]);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || got != (ssize_t)sizeof t)
        fail_msg("call %llu: the router ended with status %x, %s", (unsigned long long)k, (unsigned)status, t.code);
    return t;
}

/* ---- the tests ---- */

static int set_up(void **state) {
    (void)state;
    world *w = &the_world;
    static const char words[] = "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nexec \"$@\"\n";
    (void)snprintf(w->folder, sizeof w->folder, "/tmp/bt-whole-XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    (void)snprintf(w->burthen, sizeof w->burthen, "%s/burthen", w->folder);
    FILE *file = fopen(w->burthen, "w");
    assert_non_null(file);
    (void)fputs(words, file);
    (void)fclose(file);
    assert_int_equal(chmod(w->burthen, 0700), 0);
    assert_int_equal(setenv("BURTHEN_STATE_DIR", w->folder, 1), 0);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    w->server = start_server(&w->server_port);
    (void)snprintf(w->config, sizeof w->config,
                   "listen: 127.0.0.1:0\nhold: 0\nmodels:\n"
                   "  m: {cmd: sleep 1000, proxy: 'http://127.0.0.1:%u', memory: {host: 1M}, aliases: [alias],\n"
                   "      filters: {strip_params: 'messages'}, ttl: 100, cmdStop: 'kill ${PID}'}\n"
                   "  other: {cmd: sh -c 'echo no; exit 1', proxy: 'http://127.0.0.1:%u', memory: {host: 1M}, "
                   "preload: true}\n",
                   w->server_port, w->server_port);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    char command[128];
    if (the_world.router > 0)
        (void)kill(the_world.router, SIGKILL); /* of a test that failed; its reaper does the rest */
    (void)kill(the_world.server, SIGKILL);
    (void)waitpid(the_world.server, NULL, 0);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", the_world.folder);
    return system(command); /* NOLINT(cert-env33-c): a folder of ours */
}

static void a_call_fails(void **state) {
    (void)state;
    uint32_t good = 0;
    told t = live(UINT64_MAX, false, &good);
    assert_string_equal(t.code, "ended");
    assert_int_equal(good, 2 + sizeof pages / sizeof *pages - 1); /* no plan of a command */
    const char *every = getenv("FAULT_EVERY");
    uint64_t step = every ? strtoull(every, NULL, 10) : t.n_calls / N_LIVES;
    uint64_t first = getenv("FAULT_FROM") ? strtoull(getenv("FAULT_FROM"), NULL, 10) : 0;
    uint64_t n_calls = t.n_calls, n_hit = 0;
    print_message("%llu calls, every %llu-th fails\n", (unsigned long long)n_calls, (unsigned long long)step);
    for (uint64_t k = first; k < n_calls; k += step > 0 ? step : 1) {
        if (getenv("FAULT_SAYS")) print_message("%llu\n", (unsigned long long)k);
        t = live(k, false, &good);
        n_hit += t.hit;
    }
    if (first == 0) assert_true(n_hit > n_calls / (step > 0 ? step : 1) / 2);
}

/* It and all after it: nothing can be answered, but the end still is one. */
static void all_calls_fail(void **state) {
    (void)state;
    uint32_t good = 0;
    uint64_t n_calls = live(UINT64_MAX, false, &good).n_calls;
    the_world.refuses_all = true;
    for (uint64_t i = 0; i < 3; i++)
        (void)live(n_calls * i / 3, true, &good);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_call_fails), cmocka_unit_test(all_calls_fail)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
