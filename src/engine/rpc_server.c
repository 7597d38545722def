/* SPDX-License-Identifier: MIT
 *
 * rpc_server.c: ggml's server in a thread, and what it does, told by what it prints.
 *
 *     server thread: ggml_backend_rpc_start_server ── printf ──> fd 1 = pipe ──> this thread: lines -> events
 *                                                                 stop_fd  ──> this thread: return
 *
 * It never returns by itself but when it cannot listen or accept; it has no way to be told anything, and says on
 * standard output that a client came or left. Whether it listens already is asked of the descriptors of this process.
 * Before it is started, an attempt of our own to listen finds the reason why that cannot be, which it does not tell. A
 * server that gave up after it had listened is started again: one bad connection must not end a worker.
 *
 * Left out: refusing a second client while one is served. It waits in the system's queue, as with llama.cpp's own
 * server, and bt_rpc_check tells it. */

#include "engine/rpc_server.h"

#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "base/size.h"

#include "ggml-backend.h"
#include "ggml-rpc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINE_BYTES     256
#define PEER_BYTES     32
#define FD_MAX         256 /* of those looked at for sockets: a worker has some ten open */
#define LISTEN_WAIT_MS 5   /* between two looks */
#define STAY_MS        1000
#define LISTEN_MS      5000 /* until it must listen: it takes some ms */
#define NS_PER_MS      UINT64_C(1000000)
/* A client that says nothing is asked after a minute whether it is there; gone when it misses three of these. */
#define KEEP_IDLE_S 60
#define KEEP_EACH_S 10
#define KEEP_N      3
#define SOON_NS     UINT64_C(1000000000) /* a server that gives up sooner than this is not started again */

typedef void (*start_server_fn)(const char *, const char *, size_t, size_t, ggml_backend_dev_t *);

typedef struct server {
    const bt_rpc_server_params *params;
    start_server_fn start;
    char endpoint[PEER_BYTES];
    int lines_fd;    /* what it prints */
    int ended_fd[2]; /* a byte when its thread ends */
    char line[LINE_BYTES];
    size_t n_line;
    bool listens;
    uint64_t stays_ns; /* when the client that there is will have stayed; 0: there is none, or it has */
} server;

static start_server_fn find_start(void) {
    start_server_fn found = NULL;
    ggml_backend_reg_t reg = ggml_backend_reg_by_name("RPC");
    void *symbol = reg ? ggml_backend_reg_get_proc_address(reg, "ggml_backend_rpc_start_server") : NULL;
    if (symbol) memcpy(&found, &symbol, sizeof found);
    return found;
}

/* ---- sockets ---------------------------------------------------------------------------------------------------- */

/* With the option that ggml sets: what keeps us from listening is another that listens, not one that has just ended. */
static bt_status try_to_listen(const bt_rpc_server_params *params, bt_error *err) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(params->port)};
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool good = fd >= 0 && inet_pton(AF_INET, params->host, &address.sin_addr) == 1 &&
                setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                bind(fd, (const struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 1) == 0;
    int sys = errno;
    if (fd >= 0) (void)close(fd);
    if (good) return BT_OK;
    return bt_fail_sys(err, sys, "worker_listen", "cannot listen at %s:%u", params->host, params->port);
}

static bool listens_at(int fd, uint16_t port) {
    struct sockaddr_in address = {0};
    int listens = 0;
    socklen_t n = sizeof listens, n_address = sizeof address;
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) == 0 && listens &&
           getsockname(fd, (struct sockaddr *)&address, &n_address) == 0 && n_address == sizeof address &&
           ntohs(address.sin_port) == port;
}

static bool any_listens(uint16_t port) {
    for (int fd = 0; fd < FD_MAX; fd++)
        if (listens_at(fd, port)) return true;
    return false;
}

/* A machine that vanishes without a word would else be served for ever, and nobody after it. */
static void notice_silence(int fd) {
    const int on = 1, idle_s = KEEP_IDLE_S, each_s = KEEP_EACH_S, n = KEEP_N;
    bool good = setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) == 0 &&
                setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s) == 0 &&
                setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &each_s, sizeof each_s) == 0 &&
                setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &n, sizeof n) == 0;
    if (!good) bt_log(BT_LOG_DEBUG, "a client that vanishes will not be noticed");
}

/* The other end of the one connection to our port, which is looked after from now on. */
static void find_peer(uint16_t port, char peer[PEER_BYTES]) {
    peer[0] = '\0';
    for (int fd = 0; fd < FD_MAX; fd++) {
        struct sockaddr_in own = {0}, other = {0};
        socklen_t n_own = sizeof own, n_other = sizeof other;
        char text[INET_ADDRSTRLEN];
        bool is_it = getsockname(fd, (struct sockaddr *)&own, &n_own) == 0 && n_own == sizeof own &&
                     own.sin_family == AF_INET && ntohs(own.sin_port) == port &&
                     getpeername(fd, (struct sockaddr *)&other, &n_other) == 0 && n_other == sizeof other;
        if (!is_it || !inet_ntop(AF_INET, &other.sin_addr, text, sizeof text)) continue;
        (void)snprintf(peer, PEER_BYTES, "%s:%u", text, ntohs(other.sin_port));
        notice_silence(fd);
        return;
    }
}

/* ---- what it prints --------------------------------------------------------------------------------------------- */

static void tell(const server *s, bt_rpc_event event) {
    char peer[PEER_BYTES] = "";
    if (event == BT_RPC_CLIENT_CAME) find_peer(s->params->port, peer);
    s->params->on_event(event, peer, s->params->user);
}

static void take_line(server *s) {
    bool came = strcmp(s->line, "Accepted client connection") == 0;
    bool left = strcmp(s->line, "Client connection closed") == 0;
    if (!came && !left) {
        bt_log(BT_LOG_DEBUG, "llama.cpp: %s", s->line);
        return;
    }
    s->stays_ns = came ? bt_os_now_ns() + STAY_MS * NS_PER_MS : 0;
    tell(s, came ? BT_RPC_CLIENT_CAME : BT_RPC_CLIENT_LEFT);
}

/* What came; a line that is too long comes in pieces. */
static void take_lines(server *s) {
    char bytes[LINE_BYTES];
    ssize_t n = read(s->lines_fd, bytes, sizeof bytes);
    for (ssize_t i = 0; i < n; i++) {
        bool is_end = bytes[i] == '\n' || s->n_line == sizeof s->line - 1;
        if (bytes[i] != '\n') s->line[s->n_line++] = bytes[i];
        if (!is_end) continue;
        s->line[s->n_line] = '\0';
        s->n_line = 0;
        take_line(s);
    }
}

static bt_status take_stdout(server *s, bt_error *err) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0 || pipe2(s->ended_fd, O_CLOEXEC) < 0)
        return bt_fail_sys(err, errno, "worker_ended", "cannot follow what the server does");
    (void)fflush(stdout);
    int rc = dup2(ends[1], STDOUT_FILENO) < 0 ? errno : 0;
    (void)close(ends[1]);
    s->lines_fd = ends[0];
    if (rc == 0) return BT_OK;
    return bt_fail_sys(err, rc, "worker_ended", "cannot follow what the server does");
}

/* ---- the thread ------------------------------------------------------------------------------------------------- */

static void *serve(void *user) {
    server *s = user;
    ggml_backend_dev_t device = s->params->device;
    uint64_t start_ns = 0;
    do {
        start_ns = bt_os_now_ns();
        s->start(s->endpoint, NULL, s->params->n_threads, 1, &device);
    } while (bt_os_now_ns() - start_ns > SOON_NS);
    (void)!write(s->ended_fd[1], "", 1); /* nobody left to tell if that fails */
    return NULL;
}

/* Signals are for the caller's thread: one in the server's would break the call that it waits in. */
static bt_status start_thread(server *s, bt_error *err) {
    pthread_t thread;
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&thread, NULL, serve, s);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) return bt_fail_sys(err, rc, "thread_refused", "cannot start the server's thread");
    (void)pthread_detach(thread);
    return BT_OK;
}

static bt_status ended(const server *s, bt_error *err) {
    return bt_fail(err, BT_E_DEVICE, "worker_ended", BT_MEASURE_NONE, 0, 0,
                   "ggml's RPC server at %s gave up; what it said stands above", s->endpoint);
}

/* What is told by no descriptor. */
static void look(server *s) {
    if (!s->listens && any_listens(s->params->port)) {
        s->listens = true;
        tell(s, BT_RPC_LISTENS);
    }
    if (s->stays_ns > 0 && bt_os_now_ns() >= s->stays_ns) {
        s->stays_ns = 0;
        tell(s, BT_RPC_CLIENT_STAYS);
    }
}

static bt_status follow(server *s, bt_error *err) {
    uint64_t deadline_ns = bt_os_now_ns() + LISTEN_MS * NS_PER_MS;
    for (;;) {
        struct pollfd fds[] = {{.fd = s->params->stop_fd, .events = POLLIN},
                               {.fd = s->ended_fd[0], .events = POLLIN},
                               {.fd = s->lines_fd, .events = POLLIN}};
        int rc = poll(fds, 3, !s->listens ? LISTEN_WAIT_MS : s->stays_ns > 0 ? STAY_MS : -1);
        if (rc < 0 && errno != EINTR) return bt_fail_sys(err, errno, "worker_ended", "cannot wait for the server");
        look(s);
        if (rc > 0 && fds[2].revents) take_lines(s);
        if (rc > 0 && fds[0].revents)
            return bt_fail(err, BT_E_CANCELLED, "worker_ended", BT_MEASURE_NONE, 0, 0, "stopped");
        if (rc > 0 && fds[1].revents) return ended(s, err);
        if (!s->listens && bt_os_now_ns() > deadline_ns) return ended(s, err);
    }
}

bt_status bt_rpc_serve(const bt_rpc_server_params *params, bt_error *err) {
    static server s; /* outlives this call: its thread cannot be stopped */
    s = (server){.params = params, .lines_fd = -1, .ended_fd = {-1, -1}};
    (void)snprintf(s.endpoint, sizeof s.endpoint, "%s:%u", params->host, params->port);
    s.start = find_start();
    if (!s.start)
        return bt_fail(err, BT_E_UNSUPPORTED, "rpc_missing", BT_MEASURE_NONE, 0, 0,
                       "this llama.cpp was built without RPC: build it with -DGGML_RPC=ON");
    BT_TRY(try_to_listen(params, err));
    BT_TRY(take_stdout(&s, err));
    BT_TRY(start_thread(&s, err));
    return follow(&s, err);
}
