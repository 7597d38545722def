/* SPDX-License-Identifier: MIT
 * server.c: the router's own HTTP side, on libmicrohttpd in the router's loop.
 *
 * The library runs without a thread of its own: its epoll descriptor is watched like any other, and it is run when that
 * is ready, when its own time has come (asked before every wait), and when a connection was resumed. What a connection
 * may hold is bounded by the library (BT_SERVER_CONNECTION_BYTES for the head and what is under way), the number of
 * connections by limits.n_connections (more wait in the system's queue), bodies by server_request.c, answers by their
 * flows. limits.idle_ms ends a client that neither sends nor reads; a request that waits for its turn, or for the next
 * bytes of its answer, has a suspended connection, which no clock runs for.
 *
 * A request's way: first line (made), head (server_check.c: refused, or go on), body (collected), then on_request,
 * once. The connection is then suspended until a reply is there. It ends with the library's notice, which also comes
 * when the client leaves, when the time is over and when the server is closed.
 *
 * A client whose end comes in one piece with the half of a first line is held until it is idle: the library reads such
 * a piece once, waits for an edge that does not come, and tells of no connection before its first line. It holds what
 * one that says nothing holds, and a look at every socket in turn would cost more than that.
 *
 * Left out: HTTP/2, WebSocket, byte ranges. The number of connections, the idle time and the certificate are those of
 * the start: the library cannot change them while it runs. */
#include "base/error.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/os.h"
#include "router/server_parts.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define PEM_MAX      (1u << 20) /* a chain of certificates has some 10 KiB */
#define TLS_VERSIONS "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"
#define N_RUNS_MAX   4 /* of the library, before the loop looks at others again */

/* ---- the library's calls ---- */

static void *on_first_line(void *cls, const char *target, struct MHD_Connection *connection) {
    return bt_request_open(cls, connection, target ? target : "");
}

static enum MHD_Result first_call(bt_request *request, const char *method, const char *version) {
    request->begun = true;
    request->method = method;
    bt_request_check(request, version);
    if (!request->answered) return MHD_YES;
    request->early = request->uploads;
    return bt_reply_queue(request);
}

static enum MHD_Result last_call(bt_request *request) {
    const bt_server_ask *ask = &request->server->ask;
    if (!request->given && !request->answered) {
        request->given = true;
        ask->on_request(ask->user, request);
    }
    if (request->answered) return bt_reply_queue(request);
    bt_request_suspend(request);
    return MHD_YES;
}

static enum MHD_Result on_access(void *cls, struct MHD_Connection *connection, const char *url, const char *method,
                                 const char *version, const char *upload, size_t *n_upload, void **con_cls) {
    bt_request *request = *con_cls;
    (void)cls, (void)connection, (void)url;
    if (!request || request->gone || request->broken) return MHD_NO;
    if (!request->begun) return first_call(request, method, version);
    if (*n_upload == 0) return last_call(request);
    bt_request_add_body(request, upload, *n_upload);
    *n_upload = 0;
    return request->broken ? MHD_NO : MHD_YES;
}

static void on_idle_time(void *user) {
    bt_server *server = user;
    void (*on_idle)(void *) = server->n_open == 0 ? server->on_idle : NULL;
    if (!on_idle) return;
    server->on_idle = NULL; /* once, also when a connection that was kept asks again */
    on_idle(server->idle_user);
}

static void look_whether_idle(bt_server *server) {
    if (server->draining && !server->closing && server->n_open == 0)
        bt_loop_timer_set(server->ask.loop, &server->idle_timer, 0);
}

/* A client that has shut down its side asks for nothing more. Where that came together with the request the library
 * does not see it (it takes a short read for the last, and no other edge comes), and would keep the connection until it
 * is idle. Its reading side shut down here, too, is such an edge; what was sent before is read all the same. */
static void wake_half_closed(int fd) {
    struct pollfd look = {.fd = fd, .events = POLLRDHUP};
    if (poll(&look, 1, 0) > 0 && (look.revents & POLLRDHUP)) (void)shutdown(fd, SHUT_RD);
}

static void on_completed(void *cls, struct MHD_Connection *connection, void **con_cls,
                         enum MHD_RequestTerminationCode code) {
    bt_server *server = cls;
    bt_request *request = *con_cls;
    (void)connection;
    if (!request) return;
    *con_cls = NULL;
    bool whole = code == MHD_REQUEST_TERMINATED_COMPLETED_OK;
    if (whole && request->early) bt_linger_start(&server->linger, server->ask.loop, request->watch.fd);
    if (whole) wake_half_closed(request->watch.fd);
    if (!whole && !request->broken) bt_request_leave(request);
    if (whole && !request->flow && strcmp(bt_request_method(request), "HEAD") != 0)
        request->sent_bytes = request->n_answer;
    if (request->given)
        server->ask.on_end(server->ask.user, request);
    else if (request->answered && server->ask.on_refused)
        server->ask.on_refused(server->ask.user, request);
    bt_request_close(request);
    look_whether_idle(server);
}

/* A head that the library refuses by itself (more members of a query, or headers, than it has memory for) never comes
 * to on_access, and older ones then give no notice of the request that its first line made. */
static void close_unnoticed(bt_server *server, const struct MHD_Connection *connection) {
    bt_request *request = server->requests;
    while (request && request->connection != connection)
        request = request->next;
    if (!request) return;
    bt_request_leave(request);
    bt_request_close(request);
    look_whether_idle(server);
}

/* The library looks at its listening socket again, after a connection has made place, only when it is run once more. */
static void on_connection(void *cls, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code) {
    bt_server *server = cls;
    (void)context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        server->n_connections++;
        return;
    }
    close_unnoticed(server, connection);
    server->n_connections--;
    server->pending = true;
}

__attribute__((format(printf, 2, 0))) static void on_words(void *cls, const char *fmt, va_list args) {
    bt_server *server = cls;
    char words[sizeof server->words];
    bool runs = server->daemon != NULL; /* then it is of a single connection: a client's doing */
    if (runs && !bt_log_wanted(BT_LOG_DEBUG)) return;
    (void)vsnprintf(words, sizeof words, fmt, args);
    words[strcspn(words, "\r\n")] = 0;
    if (runs)
        bt_log(BT_LOG_DEBUG, "libmicrohttpd: %s", words);
    else
        memcpy(server->words, words, sizeof words);
}

/* ---- in the loop ---- */

static void on_daemon_ready(void *user, uint32_t events) {
    bt_server *server = user;
    (void)events;
    server->pending = true; /* run once, before the next wait */
}

static uint64_t before_wait(void *user) {
    bt_server *server = user;
    MHD_UNSIGNED_LONG_LONG wait_ms = 0;
    for (int i = 0; i < N_RUNS_MAX; i++) {
        bool waits = MHD_get_timeout(server->daemon, &wait_ms) == MHD_YES;
        if (!server->pending && !waits) return UINT64_MAX;
        if (!server->pending && wait_ms > 0) return wait_ms;
        server->pending = false;
        (void)MHD_run(server->daemon);
    }
    return 0;
}

/* ---- opening ---- */

static bt_status pem_read(const char *path, char **ret, bt_error *err) {
    int fd = bt_os_open(path, false);
    if (fd < 0) return bt_fail_sys(err, -fd, "tls", "Cannot open %.200s", path);
    char *text = bt_heap_alloc(PEM_MAX + 1);
    int64_t n = text ? bt_os_pread(fd, text, PEM_MAX, 0) : 0;
    (void)bt_os_close(fd);
    bt_status status = BT_OK;
    if (!text)
        status = bt_fail(err, BT_E_NOMEM, "tls", BT_MEASURE_BYTES, PEM_MAX, 0, "Memory was refused for %.200s.", path);
    else if (n < 0)
        status = bt_fail_sys(err, (int)-n, "tls", "Cannot read %.200s", path);
    else if (n == 0 || n == PEM_MAX || !strstr(text, "-----BEGIN "))
        status = bt_fail(err, BT_E_IO, "tls", BT_MEASURE_NONE, 0, 0, "%.200s is no PEM file.", path);
    if (status != BT_OK) {
        bt_heap_free(text);
        return status;
    }
    char *fitting = bt_heap_resize(text, (size_t)n + 1);
    *ret = fitting ? fitting : text;
    return BT_OK;
}

static bt_status tls_read(bt_server *server, bt_error *err) {
    const bt_config *config = server->config;
    if (!config->tls_cert && !config->tls_key) return BT_OK;
    if (!config->tls_cert || !config->tls_key)
        return bt_fail(err, BT_E_ARG, "tls", BT_MEASURE_NONE, 0, 0,
                       "TLS needs a certificate and its key: one is given.");
    if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        return bt_fail(err, BT_E_UNSUPPORTED, "tls", BT_MEASURE_NONE, 0, 0,
                       "This libmicrohttpd was built without TLS.");
    BT_TRY(pem_read(config->tls_cert, &server->cert, err));
    return pem_read(config->tls_key, &server->key, err);
}

static unsigned idle_seconds(const bt_config *config) {
    uint64_t seconds = config->limits.idle_ms / 1000 + (config->limits.idle_ms % 1000 != 0);
    return seconds > INT32_MAX ? INT32_MAX : (unsigned)seconds;
}

/* Takes the socket. */
static bt_status daemon_start(bt_server *server, int fd, bt_error *err) {
    const bt_config *config = server->config;
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | (server->cert ? MHD_USE_TLS : 0);
    struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, server->cert},
                                   {MHD_OPTION_HTTPS_MEM_KEY, 0, server->key},
                                   {MHD_OPTION_HTTPS_PRIORITIES, 0, (char[]){TLS_VERSIONS}},
                                   {MHD_OPTION_END, 0, NULL}};
    struct MHD_OptionItem plain[] = {{MHD_OPTION_END, 0, NULL}};
    server->daemon =
        MHD_start_daemon(flags, 0, NULL, NULL, on_access, server, MHD_OPTION_EXTERNAL_LOGGER, on_words, server,
                         MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, config->limits.n_connections,
                         MHD_OPTION_CONNECTION_TIMEOUT, idle_seconds(config), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                         (size_t)BT_SERVER_CONNECTION_BYTES, MHD_OPTION_URI_LOG_CALLBACK, on_first_line, server,
                         MHD_OPTION_NOTIFY_COMPLETED, on_completed, server, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
                         server, MHD_OPTION_ARRAY, server->cert ? tls : plain, MHD_OPTION_END);
    if (server->daemon) return BT_OK;
    (void)close(fd);
    if (server->cert)
        return bt_fail(err, BT_E_IO, "tls", BT_MEASURE_NONE, 0, 0, "%.120s and %.120s cannot be used together: %s",
                       config->tls_cert, config->tls_key, server->words);
    return bt_fail(err, BT_E_IO, "listen", BT_MEASURE_NONE, 0, 0, "The HTTP library does not start: %s", server->words);
}

static bt_status server_start(bt_server *server, bt_error *err) {
    const bt_config *config = server->config;
    BT_TRY(tls_read(server, err));
    int fd = -1;
    BT_TRY(bt_listen_open(config->listen, config->n_api_keys > 0 || config->insecure, &server->listen, &fd, err));
    BT_TRY(daemon_start(server, fd, err));
    char at[280];
    (void)snprintf(server->address, sizeof server->address, "%s://%s", server->cert ? "https" : "http",
                   bt_listen_text(&server->listen, at, sizeof at));
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info)
        return bt_fail(err, BT_E_IO, "listen", BT_MEASURE_NONE, 0, 0, "The HTTP library has no epoll descriptor.");
    server->watch = (bt_watch){.on_ready = on_daemon_ready, .user = server, .fd = info->epoll_fd};
    BT_TRY(bt_loop_add(server->ask.loop, &server->watch, EPOLLIN, err));
    bt_loop_before_wait(server->ask.loop, before_wait, server);
    server->pending = true; /* the library has not looked at its socket yet */
    return BT_OK;
}

bt_status bt_server_open(const bt_server_ask *ask, bt_server **ret, bt_error *err) {
    bt_server *server = bt_heap_alloc(sizeof *server);
    if (!server) return bt_fail(err, BT_E_NOMEM, "memory", BT_MEASURE_NONE, 0, 0, "Memory was refused for the server.");
    server->ask = *ask;
    server->config = ask->config;
    server->idle_timer = (bt_timer){.on_time = on_idle_time, .user = server};
    bt_status status = server_start(server, err);
    if (status != BT_OK) {
        bt_server_close(server);
        return status;
    }
    *ret = server;
    return BT_OK;
}

void bt_server_reconfigure(bt_server *server, const bt_config *config) {
    server->config = config;
}

/* ---- ending ---- */

static void stop_listening(bt_server *server) {
    int fd = MHD_quiesce_daemon(server->daemon);
    if (fd >= 0) (void)close(fd);
    server->pending = true;
}

void bt_server_drain(bt_server *server, void (*on_idle)(void *user), void *user) {
    server->on_idle = on_idle;
    server->idle_user = user;
    if (!server->draining) stop_listening(server);
    server->draining = true;
    look_whether_idle(server);
}

void bt_server_close(bt_server *server) {
    if (!server) return;
    server->closing = true;
    bt_loop *loop = server->ask.loop;
    bt_linger_done(&server->linger);
    bt_loop_timer_stop(loop, &server->idle_timer);
    if (server->watch.added) bt_loop_before_wait(loop, NULL, NULL);
    bt_loop_remove(loop, &server->watch);
    for (bt_request *request = server->requests; request; request = request->next) {
        bt_request_leave(request);
        bt_request_resume(request); /* the library must not stop with suspended connections */
    }
    if (server->daemon) MHD_stop_daemon(server->daemon); /* gives its notice of each request */
    bt_linger_done(&server->linger);
    bt_heap_free(server->cert);
    bt_heap_free(server->key);
    bt_heap_free(server);
}

const char *bt_server_address(const bt_server *server) {
    return server->address;
}

/* The library would count its connections too, but frees closed ones when asked: fatal within its own calls. */
void bt_server_count(const bt_server *server, bt_server_counts *ret) {
    *ret = (bt_server_counts){.n_requests = server->n_requests,
                              .n_refused = server->n_refused,
                              .n_connections = server->n_connections,
                              .n_open = server->n_open,
                              .bodies_bytes = server->bodies_bytes};
}
