/* SPDX-License-Identifier: MIT
 * router_server_kit.h: the router's HTTP side in a process of its own, with a program behind it that does what a path
 * says. The process ends with 0 only when nothing of it leaked and every request that was given had its end. */
#pragma once

#include "base/fault.h"
#include "base/heap.h"
#include "base/os.h"
#include "http_client_kit.h"
#include "router/server.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIT_IDLE_MS 60000 /* beyond KIT_WAIT_MS: what ends in time has not ended by being idle */
#define KIT_TRIES   20    /* of what must be quick at least once: a pause of the machine's is not the server's */

#define KIT_LEAK     41 /* exit statuses of the server's process */
#define KIT_NO_END   42
#define KIT_NO_START 43
#define KIT_TWO_ENDS 44
#define KIT_FAULT    64 /* added: a call was made to fail */

/* ---- the program behind the server ---- */

typedef struct kit_app {
    bt_loop *loop;
    bt_server *server;
    bt_watch control;
    uint32_t n_given, n_end, n_gone, n_idle;
    uint64_t gone_ms, most_flow_bytes;
    uint32_t last_status;
    uint64_t last_sent;
    bool idle_stops;
} kit_app;

typedef struct kit_job {
    kit_app *app;
    bt_request *request;
    bt_timer timer;
    bt_flow *flow;
    uint64_t left, ms, piece;
    bool whole, ended, was_ended;
} kit_job;

static inline uint64_t kit_number(const bt_request *request, const char *name, uint64_t otherwise) {
    const char *text = bt_request_query(request, name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static inline void kit_watch_flows(kit_app *app) {
    uint64_t now = bt_flow_total_bytes();
    if (now > app->most_flow_bytes) app->most_flow_bytes = now;
}

/* Pieces of the flow's answer until there is no room, or one a time where it takes its time. */
static inline void kit_produce(void *user) {
    kit_job *job = user;
    static char bytes[65536];
    memset(bytes, 'x', sizeof bytes);
    while (!job->ended && job->left > 0 && bt_flow_is_read(job->flow)) {
        uint64_t n = job->left < job->piece ? job->left : job->piece;
        if (!bt_flow_put(job->flow, bytes, (size_t)n)) return;
        kit_watch_flows(job->app);
        job->left -= n;
        if (job->ms && job->left > 0) {
            bt_loop_timer_set(job->app->loop, &job->timer, job->ms);
            return;
        }
    }
    if (job->ended) return;
    job->ended = true;
    bt_flow_end(job->flow, job->whole);
}

static inline void kit_on_later(void *user) {
    kit_job *job = user;
    if (job->flow)
        kit_produce(job);
    else
        bt_reply_json(job->request, 200, "{\"late\":true}");
}

static inline void kit_on_gone(void *user) {
    kit_job *job = user;
    job->app->n_gone++;
    job->app->gone_ms = bt_os_now_ns() / 1000000;
    bt_loop_timer_stop(job->app->loop, &job->timer);
}

static inline void kit_reply_counts(kit_app *app, bt_request *request) {
    bt_server_counts counts;
    bt_server_count(app->server, &counts);
    bt_os_memory memory;
    bt_os_memory_read(&memory);
    struct rusage used;
    (void)getrusage(RUSAGE_SELF, &used);
    char text[512];
    (void)snprintf(
        text, sizeof text,
        "given=%u end=%u gone=%u gone_ms=%llu flows=%llu most=%llu requests=%llu refused=%llu connections=%u "
        "open=%u bodies=%llu rss=%llu status=%u sent=%llu cpu_us=%lld ",
        app->n_given, app->n_end, app->n_gone, (unsigned long long)app->gone_ms,
        (unsigned long long)bt_flow_total_bytes(), (unsigned long long)app->most_flow_bytes,
        (unsigned long long)counts.n_requests, (unsigned long long)counts.n_refused, counts.n_connections,
        counts.n_open, (unsigned long long)counts.bodies_bytes, (unsigned long long)memory.rss_bytes.value,
        app->last_status, (unsigned long long)app->last_sent,
        (long long)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 + used.ru_utime.tv_usec +
            used.ru_stime.tv_usec);
    bt_reply(request, 200, "text/plain", text, strlen(text), NULL, 0);
}

static inline void kit_reply_facts(bt_request *request) {
    bt_header headers[32];
    uint32_t n = 0;
    char text[4096];
    if (bt_request_forwarded(request, headers, 32, &n, NULL) != BT_OK) {
        bt_reply_error(request, 400, "headers", NULL, 0, NULL, "too many");
        return;
    }
    int at = snprintf(text, sizeof text, "%s %s target=%s peer=%s\n", bt_request_method(request),
                      bt_request_path(request), bt_request_target(request), bt_request_peer(request));
    for (uint32_t i = 0; i < n; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s: %s\n", headers[i].name, headers[i].value);
    bt_reply(request, 200, "text/plain", text, (size_t)at, NULL, 0);
}

static inline void kit_stream(kit_job *job) {
    bt_request *request = job->request;
    bt_header headers[] = {{"Content-Type", bt_request_query(request, "sse") ? "text/event-stream" : "text/plain"},
                           {"Access-Control-Allow-Origin", "*"},
                           {"Content-Length", "7"},
                           {"X-Kept", "yes"}};
    uint64_t n = kit_number(request, "n", 3);
    job->piece = kit_number(request, "piece", 10);
    job->ms = kit_number(request, "ms", 0);
    job->left = n;
    job->whole = !bt_request_query(request, "broken");
    bt_known size = {.known = bt_request_query(request, "sized") != NULL, .value = kit_number(request, "size", n)};
    if (bt_flow_open((size_t)kit_number(request, "max", 65536), &job->flow, NULL) != BT_OK) {
        bt_reply_error(request, 500, "memory", NULL, 0, NULL, "no flow");
        return;
    }
    bt_flow_on_room(job->flow, kit_produce, job);
    bt_reply_flow(request, (uint32_t)kit_number(request, "status", 200), headers, 4, size, job->flow);
    if (!bt_request_query(request, "silent")) kit_produce(job);
}

static inline void kit_idle(void *user) {
    kit_app *app = user;
    app->n_idle++;
    bt_loop_stop(app->loop);
}

static inline void kit_on_request(void *user, bt_request *request) {
    kit_app *app = user;
    const char *path = bt_request_path(request);
    size_t n = 0;
    app->n_given++;
    kit_job *job = calloc(1, sizeof *job);
    if (!job) abort();
    *job = (kit_job){.app = app, .request = request};
    job->timer = (bt_timer){.on_time = kit_on_later, .user = job};
    bt_request_set_user(request, job);
    bt_request_on_gone(request, kit_on_gone, job);
    if (strcmp(path, "/counts") == 0) {
        kit_reply_counts(app, request);
    } else if (strcmp(path, "/echo") == 0) {
        const char *body = bt_request_body(request, &n);
        bt_reply(request, 200, "text/plain", body, n, NULL, 0);
        bt_reply(request, 500, "text/plain", "second", 6, NULL, 0); /* is dropped */
    } else if (strcmp(path, "/facts") == 0) {
        kit_reply_facts(request);
    } else if (strcmp(path, "/later") == 0) {
        bt_loop_timer_set(app->loop, &job->timer, kit_number(request, "ms", 20));
    } else if (strcmp(path, "/stream") == 0) {
        kit_stream(job);
    } else if (strcmp(path, "/error") == 0) {
        bt_reply_error(request, (uint32_t)kit_number(request, "status", 400), "a_code", "model", 7, "{\"bytes\": 5}",
                       "with \"quotes\", \\ and\n\x01\xff of %s", "text");
    } else if (strcmp(path, "/drain") == 0) {
        bt_reply_json(request, 200, "{}");
        bt_server_drain(app->server, kit_idle, app);
    } else if (strcmp(path, "/hold") != 0) {
        bt_reply_error(request, 404, "path", NULL, 0, NULL, "There is no %s.", path);
    }
}

static inline void kit_on_end(void *user, const bt_request *request) {
    kit_app *app = user;
    kit_job *job = bt_request_user(request);
    if (!job || job->was_ended) _exit(KIT_TWO_ENDS);
    job->was_ended = true;
    app->n_end++;
    app->last_status = bt_request_status(request);
    app->last_sent = bt_request_sent_bytes(request);
    bt_loop_timer_stop(app->loop, &job->timer);
    job->ended = true;
    if (job->flow) bt_flow_drop_producer(job->flow);
    free(job);
}

static inline bool kit_is_open(void *user, const char *method, const char *path) {
    (void)user;
    return strcmp(method, "GET") == 0 && strcmp(path, "/later") == 0;
}

static inline void kit_on_control(void *user, uint32_t events) {
    kit_app *app = user;
    (void)events;
    bt_loop_stop(app->loop);
}

/* ---- its process ---- */

typedef struct kit {
    pid_t pid;
    int control;
    uint16_t port;
} kit;

static inline bt_config kit_config(void) {
    return (bt_config){.listen = "127.0.0.1:0",
                       .limits = {.request_bytes = 100000,
                                  .bodies_bytes = 250000,
                                  .n_connections = 300,
                                  .flow_bytes = 65536,
                                  .idle_ms = KIT_IDLE_MS}};
}

/* fault_at: the call that fails, counted from the first connection on; UINT64_MAX: none. */
static inline int kit_serve(const bt_config *config, int control, int ready, uint64_t fault_at, bool persistent) {
    kit_app app = {0};
    bool hit = false;
    if (bt_loop_open(&app.loop, NULL) != BT_OK) return KIT_NO_START;
    bt_server_ask ask = {.loop = app.loop,
                         .config = config,
                         .is_open = kit_is_open,
                         .on_request = kit_on_request,
                         .on_end = kit_on_end,
                         .user = &app};
    bt_error err;
    if (bt_server_open(&ask, &app.server, &err) != BT_OK) {
        (void)fprintf(stderr, "%s: %s\n", err.code, err.text);
        return KIT_NO_START;
    }
    const char *port = strrchr(bt_server_address(app.server), ':') + 1;
    app.control = (bt_watch){.on_ready = kit_on_control, .user = &app, .fd = control};
    if (bt_loop_add(app.loop, &app.control, EPOLLIN, NULL) != BT_OK) return KIT_NO_START;
    if (write(ready, port, strlen(port) + 1) < 0) return KIT_NO_START;
    (void)close(ready);
#ifdef BT_FAULT
    if (fault_at != UINT64_MAX) bt_fault_arm(fault_at, persistent);
#else
    (void)fault_at, (void)persistent;
#endif
    bt_status status = bt_loop_run(app.loop, NULL);
#ifdef BT_FAULT
    hit = bt_fault_disarm();
#endif
    bt_loop_remove(app.loop, &app.control);
    bt_server_close(app.server);
    bt_loop_close(app.loop);
    int code = status == BT_OK ? 0 : KIT_NO_START;
    if (app.n_given != app.n_end) code = KIT_NO_END;
    if (bt_heap_live_blocks() != 0 || bt_flow_total_bytes() != 0) code = KIT_LEAK;
    return code + (hit && fault_at != UINT64_MAX ? KIT_FAULT : 0);
}

static inline kit kit_start_fault(const bt_config *config, uint64_t fault_at, bool persistent) {
    int control[2], ready[2];
    if (pipe(control) != 0 || pipe(ready) != 0) abort();
    kit it = {.pid = fork(), .control = control[1]};
    if (it.pid == 0) {
        /* A crash is one: cmocka's handlers would go on with the tests in this process. */
        (void)signal(SIGSEGV, SIG_DFL), (void)signal(SIGBUS, SIG_DFL), (void)signal(SIGFPE, SIG_DFL);
        (void)close(control[1]);
        (void)close(ready[0]);
        int code = kit_serve(config, control[0], ready[1], fault_at, persistent);
        exit(code); /* so that a leak checker looks */
    }
    (void)close(control[0]);
    (void)close(ready[1]);
    char port[16] = {0};
    ssize_t n = read(ready[0], port, sizeof port - 1);
    (void)close(ready[0]);
    it.port = n > 0 ? (uint16_t)atoi(port) : 0;
    return it;
}

static inline kit kit_start(const bt_config *config) {
    return kit_start_fault(config, UINT64_MAX, false);
}

static inline int kit_wait(kit *it) {
    int status = 0;
    while (waitpid(it->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    (void)close(it->control);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Ends the server; 0: clean. */
static inline int kit_stop(kit *it) {
    if (write(it->control, "q", 1) < 0) return -1;
    return kit_wait(it);
}

/* ---- asking it ---- */

static inline int kit_connect(const kit *it) {
    return kit_connect_to(it->port);
}

/* One connection, one request, as it is given; false: the connection broke while it was sent. */
static inline void kit_ask(const kit *it, const char *request, kit_answer *answer) {
    int fd = kit_connect(it);
    (void)kit_say(fd, request);
    kit_read_answer(fd, strncmp(request, "HEAD ", 5) == 0, answer);
    (void)close(fd);
}

/* A number of /counts. */
static inline uint64_t kit_count_with(const kit *it, const char *name, const char *more_headers) {
    kit_answer answer;
    char request[512], want[32];
    (void)snprintf(request, sizeof request, "GET /counts HTTP/1.1\r\nHost: localhost\r\n%sConnection: close\r\n\r\n",
                   more_headers);
    kit_ask(it, request, &answer);
    (void)snprintf(want, sizeof want, "%s=", name);
    const char *at = answer.body ? answer.body : "";
    while (at && (strncmp(at, want, strlen(want)) != 0)) {
        at = strchr(at, ' ');
        if (at) at++;
    }
    uint64_t value = at ? strtoull(at + strlen(want), NULL, 10) : UINT64_MAX;
    kit_answer_done(&answer);
    return value;
}

static inline uint64_t kit_count(const kit *it, const char *name) {
    return kit_count_with(it, name, "");
}

/* Until a number is what it should be, KIT_WAIT_MS at most. */
static inline bool kit_until(const kit *it, const char *name, uint64_t value) {
    uint64_t end_ms = kit_now_ms() + KIT_WAIT_MS;
    while (kit_now_ms() < end_ms) {
        if (kit_count(it, name) == value) return true;
        (void)usleep(10000);
    }
    return false;
}
