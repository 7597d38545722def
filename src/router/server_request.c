/* SPDX-License-Identifier: MIT
 * server_request.c: one request: what was sent, and where its connection stands.
 *
 * A request is made when its first line is read and ends with the library's own notice, or where that fails to come
 * with its connection (server.c), exactly once, whatever happened between. Its headers stay in the library's memory;
 * its target and body are ours. A body grows by doubling, never beyond what was announced or limits.request_bytes, and
 * what it takes is charged to the sum of all bodies before it is taken; when that sum is full the request is refused
 * and the rest of its body is read and dropped, up to as much again: after that the connection is closed.
 *
 * While nothing is sent the connection is suspended: the library then neither reads nor times out, and would not see
 * the client leave. So the socket is watched in our own loop for that one event, edge-triggered: what the client sends
 * meanwhile (a pipelined request) wakes nobody. A client that has shut down its sending side counts as gone while it
 * waits for an answer or for more of a flow: it cannot be told from one that was closed, and servers must not compute
 * for nobody. It is told on_gone at once, the connection is shut down and resumed, and the library finds it broken and
 * gives its notice. An answer that is all there is still sent to it. One that shuts down in the middle of its own
 * request is cut off too: the library, which reads at edges, may never look again when the last bytes and the end came
 * together. */
#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"
#include "router/server_parts.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define BODY_BEGIN 16384u /* one read of the library's */
#define LOOK_MS    20u    /* the library reads what has come in a turn or two of the loop */

static void peer_write(const struct sockaddr *address, char *dest, size_t n_dest) {
    dest[0] = 0;
    if (address && address->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, address, sizeof in);
        (void)inet_ntop(AF_INET, &in.sin_addr, dest, (socklen_t)n_dest);
    } else if (address && address->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, address, sizeof in6);
        /* One socket for both families shows IPv4 as ::ffff:a.b.c.d. */
        bool mapped = IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr);
        const void *from = mapped ? (const void *)&in6.sin6_addr.s6_addr[12] : (const void *)&in6.sin6_addr;
        (void)inet_ntop(mapped ? AF_INET : AF_INET6, from, dest, (socklen_t)n_dest);
    }
}

static int socket_of(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info ? (int)info->connect_fd : -1;
}

static void look_whether_gone(void *user);
static void on_socket(void *user, uint32_t events);

bt_request *bt_request_open(bt_server *server, struct MHD_Connection *connection, const char *target) {
    bt_request *request = bt_heap_alloc(sizeof *request);
    if (!request) return NULL;
    request->server = server;
    request->connection = connection;
    request->began_ms = bt_loop_now_ms(server->ask.loop);
    request->watch = (bt_watch){.on_ready = on_socket, .user = request, .fd = socket_of(connection)};
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    peer_write(info ? info->client_addr : NULL, request->peer, sizeof request->peer);
    request->look = (bt_timer){.on_time = look_whether_gone, .user = request};
    /* Where the system refuses the watch, the client's leaving is seen when something is sent to it. */
    if (request->watch.fd >= 0 && bt_loop_add(server->ask.loop, &request->watch, EPOLLRDHUP | EPOLLET, NULL) != BT_OK)
        request->watch.added = false;
    request->id = ++server->n_requests;
    request->next = server->requests;
    if (request->next) request->next->prev = request;
    server->requests = request;
    server->n_open++;
    bt_error err;
    bt_status status = bt_target_parse(target, &request->target, &err);
    if (status == BT_E_NOMEM) bt_reply_refuse(request, 503, "memory", "%s", err.text);
    if (status == BT_E_ARG) bt_reply_refuse(request, 400, "target", "%s", err.text);
    return request;
}

static void drop_body(bt_request *request) {
    request->server->bodies_bytes -= request->body_capacity;
    bt_heap_free(request->body);
    request->body = NULL;
    request->n_body = request->body_capacity = 0;
}

void bt_request_close(bt_request *request) {
    bt_server *server = request->server;
    bt_loop_remove(server->ask.loop, &request->watch);
    bt_loop_timer_stop(server->ask.loop, &request->look);
    drop_body(request);
    if (request->flow) bt_flow_drop_consumer(request->flow);
    if (request->response) MHD_destroy_response(request->response);
    bt_heap_free(request->answer);
    bt_target_done(&request->target);
    if (request->prev)
        request->prev->next = request->next;
    else
        server->requests = request->next;
    if (request->next) request->next->prev = request->prev;
    server->n_open--;
    bt_heap_free(request);
}

/* ---- the body ---- */

/* One byte more than the capacity is taken, so that a body ends with NUL for those who look at it as text. */
static bool grow_body(bt_request *request, size_t n_want) {
    bt_server *server = request->server;
    uint64_t most =
        request->announced_bytes.known ? request->announced_bytes.value : server->config->limits.request_bytes;
    uint64_t want = bt_max_u64(bt_max_u64(n_want, BODY_BEGIN), bt_sat_mul_u64(request->body_capacity, 2));
    uint64_t capacity = bt_max_u64(bt_min_u64(want, most), n_want);
    uint64_t others = server->bodies_bytes - request->body_capacity;
    if (capacity > bt_sat_sub_u64(bt_config_bodies_bytes(server->config), others)) {
        bt_reply_refuse(request, 503, "bodies", "The requests that are held take all of %llu bytes: try again later.",
                        (unsigned long long)bt_config_bodies_bytes(server->config));
        return false;
    }
    char *body = capacity < SIZE_MAX ? bt_heap_resize(request->body, (size_t)capacity + 1) : NULL;
    if (!body) {
        bt_reply_refuse(request, 503, "memory", "Memory was refused for a request of %llu bytes.",
                        (unsigned long long)capacity);
        return false;
    }
    server->bodies_bytes = others + capacity;
    request->body = body;
    request->body_capacity = (size_t)capacity;
    return true;
}

void bt_request_add_body(bt_request *request, const char *data, size_t n) {
    uint64_t limit = request->server->config->limits.request_bytes;
    if (request->answered) { /* refused: the rest is dropped */
        request->discarded_bytes = bt_sat_add_u64(request->discarded_bytes, n);
        request->broken = request->discarded_bytes > limit;
        return;
    }
    if (n > limit || request->n_body > limit - n) {
        bt_reply_refuse(request, 413, "body_size", "The request's body has over %llu bytes, which is the limit.",
                        (unsigned long long)limit);
        drop_body(request);
        return;
    }
    if (request->n_body + n > request->body_capacity && !grow_body(request, request->n_body + n)) {
        drop_body(request);
        return;
    }
    memcpy(request->body + request->n_body, data, n);
    request->n_body += n;
    request->body[request->n_body] = 0;
}

const char *bt_request_body(const bt_request *request, size_t *ret_n) {
    *ret_n = request->n_body;
    return request->body ? request->body : "";
}

/* ---- the connection ---- */

void bt_request_suspend(bt_request *request) {
    if (request->suspended) return;
    request->suspended = true;
    MHD_suspend_connection(request->connection);
    if (request->half_closed) bt_loop_timer_set(request->server->ask.loop, &request->look, 0);
}

void bt_request_resume(bt_request *request) {
    if (!request->suspended) return;
    request->suspended = false;
    request->server->pending = true;
    MHD_resume_connection(request->connection);
}

void bt_request_leave(bt_request *request) {
    if (request->gone) return;
    request->gone = true;
    if (request->on_gone) request->on_gone(request->gone_user);
}

/* The client has shut down its side: who waits for an answer has left; who was still sending has sent all he will. */
static void look_whether_gone(void *user) {
    bt_request *request = user;
    int unread = 0;
    bool waits = request->given && (!request->answered || request->flow);
    if (request->gone || (!waits && (request->given || request->queued))) return; /* the answer is sent to its end */
    if (!waits && ioctl(request->watch.fd, FIONREAD, &unread) == 0 && unread > 0) {
        bt_loop_timer_set(request->server->ask.loop, &request->look, LOOK_MS);
        return;
    }
    if (waits) bt_request_leave(request);
    /* One that is sending, or waits until it can, is found broken by the library; one that is suspended is woken. */
    (void)shutdown(request->watch.fd, SHUT_RDWR);
    bt_request_resume(request);
}

static void on_socket(void *user, uint32_t events) {
    bt_request *request = user;
    (void)events;
    bt_loop_remove(request->server->ask.loop, &request->watch);
    request->half_closed = true;
    if (request->given)
        look_whether_gone(request);
    else /* the library reads what is there first */
        bt_loop_timer_set(request->server->ask.loop, &request->look, LOOK_MS);
}

/* ---- what was sent ---- */

uint64_t bt_request_id(const bt_request *request) {
    return request->id;
}

const char *bt_request_method(const bt_request *request) {
    return request->method ? request->method : "";
}

const char *bt_request_path(const bt_request *request) {
    return request->target.path ? request->target.path : "";
}

const char *bt_request_target(const bt_request *request) {
    return request->target.raw ? request->target.raw : "";
}

const char *bt_request_query(const bt_request *request, const char *name) {
    return bt_target_query(&request->target, name);
}

const char *bt_request_unknown(const bt_request *request, const char *const *known, size_t n) {
    return bt_target_unknown(&request->target, known, n);
}

const char *bt_request_header(const bt_request *request, const char *name) {
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

typedef struct forwarding {
    const char *connection; /* the header of that name: it names others that end here */
    bt_header *headers;
    uint32_t n, n_max;
    bool over;
} forwarding;

/* Whether a list of names, separated by commas, has a name. */
static bool list_has(const char *list, const char *name) {
    size_t n_name = strlen(name);
    while (list && *list) {
        list += strspn(list, ", \t");
        size_t n = strcspn(list, ", \t");
        if (n == n_name && strncasecmp(list, name, n) == 0) return true;
        list += n;
    }
    return false;
}

static enum MHD_Result forward(void *cls, enum MHD_ValueKind kind, const char *name, const char *value) {
    static const char stays[] =
        "Connection, Keep-Alive, Proxy-Authenticate, Proxy-Authorization, Proxy-Connection, TE, "
        "Trailer, Transfer-Encoding, Upgrade, Expect, Host, Content-Length, Authorization, "
        "x-api-key, Cookie, Origin";
    forwarding *to = cls;
    (void)kind;
    if (list_has(stays, name) || list_has(to->connection, name)) return MHD_YES;
    to->over = to->n == to->n_max;
    if (!to->over) to->headers[to->n++] = (bt_header){.name = name, .value = value ? value : ""};
    return to->over ? MHD_NO : MHD_YES;
}

bt_status bt_request_forwarded(const bt_request *request, bt_header *ret, uint32_t n_max, uint32_t *ret_n,
                               bt_error *err) {
    forwarding to = {.connection = bt_request_header(request, "Connection"), .headers = ret, .n_max = n_max};
    (void)MHD_get_connection_values(request->connection, MHD_HEADER_KIND, forward, &to);
    if (to.over)
        return bt_fail(err, BT_E_LIMIT, "headers", BT_MEASURE_ITEMS, (uint64_t)n_max + 1, n_max,
                       "The request has over %u headers that would go on to a server.", n_max);
    *ret_n = to.n;
    return BT_OK;
}

const char *bt_request_peer(const bt_request *request) {
    return request->peer;
}

uint64_t bt_request_began_ms(const bt_request *request) {
    return request->began_ms;
}

uint32_t bt_request_status(const bt_request *request) {
    return request->status;
}

uint64_t bt_request_sent_bytes(const bt_request *request) {
    return request->sent_bytes;
}

bool bt_request_gone(const bt_request *request) {
    return request->gone;
}

void bt_request_set_user(bt_request *request, void *user) {
    request->user = user;
}

void *bt_request_user(const bt_request *request) {
    return request->user;
}

void bt_request_on_gone(bt_request *request, void (*on_gone)(void *user), void *user) {
    request->on_gone = on_gone;
    request->gone_user = user;
}
