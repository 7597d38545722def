/* SPDX-License-Identifier: MIT
 * raw_server.c: what the paths of raw_server.h do. */
#include "raw_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define REQUEST_MAX (1u << 20)

typedef struct connection {
    raw_server *server;
    int fd;
    char *request; /* NUL-terminated */
    unsigned n_served;
    size_t n_request, n_held; /* of this request, and with what follows it */
} connection;

static void must(bool good, const char *what) {
    if (good) return;
    perror(what);
    abort();
}

static void pause_ms(long ms) {
    (void)nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static bool put(connection *c, const char *data, size_t n) {
    while (n > 0) {
        ssize_t sent = send(c->fd, data, n, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        data += sent;
        n -= (size_t)sent;
    }
    return true;
}

static bool say(connection *c, const char *text) {
    return put(c, text, strlen(text));
}

__attribute__((format(printf, 2, 3))) static bool sayf(connection *c, const char *fmt, ...) {
    char line[512];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    return say(c, line);
}

/* Head and body of the next request; false: the client has gone. */
static bool next_request(connection *c) {
    c->n_held -= c->n_request;
    memmove(c->request, c->request + c->n_request, c->n_held);
    c->n_request = 0;
    for (;;) {
        c->request[c->n_held] = '\0';
        char *end = strstr(c->request, "\r\n\r\n");
        if (end) {
            const char *length = strcasestr(c->request, "\r\ncontent-length:");
            bool early = strstr(c->request, " /early ") || strstr(c->request, " /once ");
            size_t n_body = !early && length && length < end ? strtoul(length + 17, NULL, 10) : 0;
            size_t all = (size_t)(end + 4 - c->request) + n_body;
            must(all < REQUEST_MAX, "a request that is too long");
            if (c->n_held >= all) {
                c->n_request = all;
                return true;
            }
        }
        ssize_t n = recv(c->fd, c->request + c->n_held, REQUEST_MAX - 1 - c->n_held, 0);
        if (n <= 0) return false;
        c->n_held += (size_t)n;
    }
}

static void wait_for_end(connection *c) {
    char dropped[8192];
    while (recv(c->fd, dropped, sizeof dropped, 0) > 0) {
    }
}

static bool big(connection *c, unsigned long bytes) {
    char piece[8192];
    memset(piece, 'x', sizeof piece);
    if (!sayf(c, "HTTP/1.1 200 OK\r\nContent-Length: %lu\r\n\r\n", bytes)) return false;
    while (bytes > 0) {
        size_t n = bytes < sizeof piece ? bytes : sizeof piece;
        if (!put(c, piece, n)) return false;
        bytes -= n;
        atomic_fetch_add(&c->server->sent_bytes, n);
    }
    return true;
}

static bool events(connection *c) {
    bool good = say(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 5 && good; i++) {
        struct timespec now;
        char event[64];
        if (i > 0) pause_ms(60);
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        int n = snprintf(event, sizeof event, "data: %lld\n\n",
                         (long long)now.tv_sec * 1000 + (long long)now.tv_nsec / 1000000);
        good = sayf(c, "%x\r\n%s\r\n", n, event);
    }
    return good && say(c, "0\r\n\r\n");
}

static bool drip(connection *c) {
    if (!say(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")) return false;
    while (!atomic_load(&c->server->stop) && say(c, "4\r\ndrip\r\n"))
        pause_ms(20);
    return false;
}

static bool huge(connection *c, const char *path) {
    if (!say(c, "HTTP/1.1 200 OK\r\n")) return false;
    if (strcmp(path, "/huge-line") == 0) {
        char *line = malloc(200000);
        must(line != NULL, "malloc");
        memset(line, 'y', 200000);
        bool good = say(c, "X: ") && put(c, line, 200000);
        free(line);
        return good && say(c, "\r\nContent-Length: 0\r\n\r\n");
    }
    for (int i = 0; i < 1000; i++)
        if (!sayf(c, "X-%03d: %s\r\n", i, "sixty-two bytes of a value that nobody wants to read at all, ok"))
            return false;
    return say(c, "Content-Length: 0\r\n\r\n");
}

static bool echo(connection *c) {
    return sayf(c, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", c->n_request) && put(c, c->request, c->n_request);
}

static bool stale(connection *c) {
    (void)say(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstale");
    return false;
}

static bool reset(connection *c) {
    (void)say(c, "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n12345678");
    pause_ms(30);
    struct linger now = {.l_onoff = 1};
    (void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    return false;
}

static bool cut(connection *c) {
    char piece[1234];
    memset(piece, 'c', sizeof piece);
    (void)(say(c, "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n") && put(c, piece, sizeof piece));
    return false;
}

/* Nothing of a request that comes over a connection that has served before is answered; the body of the others is
 * dropped. */
static bool once(connection *c) {
    if (c->n_served == 0) {
        (void)say(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nfresh");
        (void)shutdown(c->fd, SHUT_WR);
        wait_for_end(c);
        return false;
    }
    struct linger now = {.l_onoff = 1};
    (void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    return false;
}

/* Before the body is there, which is then read and dropped. */
static bool early(connection *c) {
    (void)say(c, "HTTP/1.1 413 Too Much\r\nConnection: close\r\nContent-Length: 8\r\n\r\ntoo much");
    (void)shutdown(c->fd, SHUT_WR);
    wait_for_end(c);
    return false;
}

static bool silent(connection *c) {
    wait_for_end(c);
    return false;
}

/* Answers that are one text; those that end the connection begin with a '-'. */
static const char *const texts[][2] = {
    {"/whole", "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"},
    {"/chunked",
     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-After\r\n\r\n5\r\nhello\r\n1\r\n \r\n5\r\n"
     "world\r\n0\r\nX-After: al\001l\r\n\r\n"},
    {"/eof", "-HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nhello"},
    {"/head", "HTTP/1.1 200 OK\r\nContent-Length: 4321\r\n\r\n"},
    {"/hop",
     "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Mine\r\nKeep-Alive: timeout=5\r\nX-Mine: no\r\nX-Yours: yes\r\n"
     "Upgrade: h2c\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n"},
    {"/names", "HTTP/1.1 200 OK\r\nx-mine: no\r\nX-Yours:\r\nConnection: X-Mine\r\nContent-Length: 0\r\n\r\n"},
    {"/interim", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 201 Created\r\n"
                 "X-Real: yes\r\nContent-Length: 2\r\n\r\nok"},
    {"/gzip", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nplain"},
    {"/cut-chunk", "-HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n5\r\nw"},
    {"/cut-head", "-HTTP/1.1 200 OK\r\nContent-Ty"},
    {"/cut-line", "-HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"},
    {"/nothing", "-"},
    {"/lengths", "-HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\nhello"},
    {"/noise", "-SSH-2.0-OpenSSH_9.2\r\n\r\n"},
    {"/redirect", "HTTP/1.1 302 Found\r\nLocation: /whole\r\nContent-Length: 4\r\n\r\nmove"},
    {"/switch", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nraw bytes"},
    {"/fold", "HTTP/1.1 200 OK\r\nX-Long: one\r\n  two\r\nContent-Length: 0\r\n\r\n"},
    {"/control", "-HTTP/1.1 200 OK\r\nX-Bad: one\001two\r\nContent-Length: 0\r\n\r\n"},
};

/* false: the connection ends. */
static bool answer(connection *c) {
    static bool (*const calls[])(connection *) = {echo, events, drip, stale, reset, cut, silent, early, once};
    static const char *const names[] = {"/echo", "/events", "/drip",  "/stale", "/reset",
                                        "/cut",  "/silent", "/early", "/once"};
    char path[64] = "";
    unsigned long number = 0;
    const char *start = strchr(c->request, ' ');
    if (start) (void)sscanf(start + 1, "%63[^ ?]?%lu", path, &number);
    atomic_fetch_add(&c->server->n_requests, 1);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(path, names[i]) == 0) return calls[i](c);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *text = texts[i][1];
        if (strcmp(path, texts[i][0]) == 0) return *text == '-' ? say(c, text + 1) && false : say(c, text);
    }
    if (strcmp(path, "/big") == 0) return big(c, number);
    if (strncmp(path, "/huge", 5) == 0) return huge(c, path);
    if (strcmp(path, "/status") == 0)
        return sayf(c, "HTTP/1.1 %lu Word\r\n%s\r\n", number,
                    number == 204 || number == 304 ? "" : "Content-Length: 0\r\n");
    return say(c, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
}

static void *serve(void *arg) {
    connection *c = arg;
    bool open = true;
    while (open && next_request(c)) {
        open = answer(c);
        c->n_served++;
    }
    if (open) atomic_fetch_add(&c->server->n_eofs, 1);
    (void)close(c->fd);
    free(c->request);
    atomic_fetch_sub(&c->server->n_open, 1);
    free(c);
    return NULL;
}

static void *listen_to_all(void *arg) {
    raw_server *server = arg;
    while (!atomic_load(&server->stop)) {
        struct pollfd p = {.fd = server->fd, .events = POLLIN};
        if (poll(&p, 1, 20) <= 0) continue;
        int fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) continue;
        int on = 1;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        connection *c = calloc(1, sizeof *c);
        must(c != NULL, "calloc");
        c->request = malloc(REQUEST_MAX);
        must(c->request != NULL, "malloc");
        c->server = server;
        c->fd = fd;
        atomic_fetch_add(&server->n_connections, 1);
        atomic_fetch_add(&server->n_open, 1);
        pthread_t thread;
        must(pthread_create(&thread, NULL, serve, c) == 0, "pthread_create");
        (void)pthread_detach(thread);
    }
    return NULL;
}

void raw_server_open(raw_server *server) {
    *server = (raw_server){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    must(server->fd >= 0, "socket");
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    must(bind(server->fd, (struct sockaddr *)&a, n) == 0 && listen(server->fd, 512) == 0, "listen");
    must(getsockname(server->fd, (struct sockaddr *)&a, &n) == 0, "getsockname");
    server->port = ntohs(a.sin_port);
    (void)snprintf(server->url, sizeof server->url, "http://127.0.0.1:%u", server->port);
    pthread_t thread;
    must(pthread_create(&thread, NULL, listen_to_all, server) == 0, "pthread_create");
    server->thread = thread;
}

/* The clients have gone before. */
void raw_server_close(raw_server *server) {
    atomic_store(&server->stop, true);
    (void)pthread_join(server->thread, NULL);
    (void)close(server->fd);
    for (int i = 0; atomic_load(&server->n_open) > 0 && i < 500; i++)
        pause_ms(10);
    must(atomic_load(&server->n_open) == 0, "a connection that does not end");
}
