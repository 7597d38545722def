/* SPDX-License-Identifier: MIT
 *
 * client.c: all connections to the servers behind the router, on one libcurl multi handle in the router's loop.
 *
 * libcurl never waits here: it says which descriptors and what time it waits for (socket and timer function), the loop
 * watches them, and curl_multi_socket_action is called when something is there. All its memory comes through the heap's
 * door, so that it is counted and can be refused in a test.
 *
 * Every socket is opened and closed here, which gives three things: descriptors that no child inherits, a watch that is
 * there before it is needed (the socket function has no way to say that memory was refused but to give everything up),
 * and the means to forget a server: libcurl cannot be told to drop the connections to one place, but a socket that
 * nobody uses can be shut down, which the server sees at once and libcurl when it next looks at it.
 *
 * Bounds: BT_CLIENT_IDLE_MAX idle connections, BT_CLIENT_HANDLES_MAX idle handles. A request under way costs its handle
 * (6 KiB), its head (up to 64 KiB until it is handed over), and 3 x 16 KiB: of a body that is sent (libcurl keeps the
 * buffer to the end), of the answer that is read, and of what a full flow did not take. How many are under way, the
 * router says. */
#include "router/exchange_internal.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- memory ---- */

/* libcurl 7.88 divides by zero when a hash of a few hundred bytes was refused to it (singlesocket goes on with what
 * could not be made). So small blocks are kept in reserve, from before anything can be refused; when it was drawn on
 * and cannot be filled up again, everything under way is given up, which frees what it took. Larger refusals libcurl
 * bears. libcurl's allocator has no argument to keep this in: it is the process's. */
#define RESERVE_BLOCKS      128u
#define RESERVE_BLOCK_BYTES 512u

static void *reserve[RESERVE_BLOCKS];
static uint32_t n_reserve;
static uint64_t n_refused; /* libcurl says "out of memory" of an overlong line, too */

uint64_t bt_client_refused(void) {
    return n_refused;
}

static bool fill_reserve(void) {
    while (n_reserve < RESERVE_BLOCKS) {
        void *block = bt_heap_alloc(RESERVE_BLOCK_BYTES);
        if (!block) return false;
        reserve[n_reserve++] = block;
    }
    return true;
}

static void drop_reserve(void) {
    while (n_reserve > 0)
        bt_heap_free(reserve[--n_reserve]);
}

static void *curl_array(size_t n, size_t bytes) {
    void *p = bt_heap_array(n, bytes);
    uint64_t all = 0;
    if (!p && n_reserve > 0 && bt_mul_u64(n, bytes, &all) && all <= RESERVE_BLOCK_BYTES) return reserve[--n_reserve];
    if (!p) n_refused++;
    return p;
}

static void *curl_alloc(size_t bytes) {
    return curl_array(1, bytes);
}

static void *curl_resize(void *old, size_t bytes) {
    void *p = bt_heap_resize(old, bytes);
    if (!p) n_refused++;
    return p;
}

static char *curl_copy(const char *s) {
    size_t n = strlen(s) + 1;
    char *p = curl_array(1, n);
    if (p) memcpy(p, s, n);
    return p;
}

/* ---- libcurl at work ---- */

static void take_messages(bt_client *client) {
    int n_left = 0;
    for (CURLMsg *m = curl_multi_info_read(client->multi, &n_left); m;
         m = curl_multi_info_read(client->multi, &n_left)) {
        bt_exchange *e = NULL;
        CURLcode code = m->data.result; /* m is gone with its handle */
        if (m->msg != CURLMSG_DONE) continue;
        if (curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &e) != CURLE_OK || !e) continue;
        if (!bt_exchange_ask_again(e, code)) bt_exchange_finish(e, code);
    }
}

/* libcurl was refused memory, and does not say what for: nothing may wait for it for ever. */
static void give_up(bt_client *client) {
    bt_exchange *e = client->exchanges;
    for (; e; e = e->next)
        bt_exchange_note(e, BT_EXCHANGE_LOCAL, "memory was refused to the router");
    /* Who is told may start others: those are not meant. */
    for (e = client->exchanges; e;) {
        bool meant = e->failure != BT_EXCHANGE_OK || e->cancelled;
        if (meant) bt_exchange_finish(e, CURLE_OK);
        e = meant ? client->exchanges : e->next;
    }
}

static void act(bt_client *client, curl_socket_t fd, int events) {
    int n_running = 0;
    uint64_t before = n_refused;
    client->n_inside++;
    CURLMcode code = curl_multi_socket_action(client->multi, fd, events, &n_running);
    client->n_inside--;
    take_messages(client);
    if (!fill_reserve() || n_refused != before || (code != CURLM_OK && code != CURLM_BAD_SOCKET)) give_up(client);
}

static void on_time(void *user) {
    act(user, CURL_SOCKET_TIMEOUT, 0);
}

static void on_ready(void *user, uint32_t events) {
    const bt_client_socket *s = user; /* gone, perhaps, when libcurl returns */
    int what = (events & EPOLLIN ? CURL_CSELECT_IN : 0) | (events & EPOLLOUT ? CURL_CSELECT_OUT : 0);
    /* As ready for both: reading or writing finds the error, and its words. */
    if (events & (EPOLLERR | EPOLLHUP)) what = CURL_CSELECT_IN | CURL_CSELECT_OUT;
    act(s->client, s->watch.fd, what);
}

static int on_timer(CURLM *multi, long ms, void *user) {
    (void)multi;
    bt_client *client = user;
    if (ms < 0)
        bt_loop_timer_stop(client->loop, &client->timer);
    else
        bt_loop_timer_set(client->loop, &client->timer, (uint64_t)ms);
    return 0;
}

static bt_client_socket *socket_of(const bt_client *client, curl_socket_t fd) {
    bt_client_socket *s = client->sockets;
    while (s && s->watch.fd != fd)
        s = s->next;
    return s;
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *known) {
    bt_client *client = user;
    bt_client_socket *s = known ? known : socket_of(client, fd);
    if (!s) return 0;
    if (!known) (void)curl_multi_assign(client->multi, fd, s);
    if (what == CURL_POLL_REMOVE) {
        bt_loop_remove(client->loop, &s->watch);
        return 0;
    }
    uint32_t events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
    s->events = events;
    bt_error err;
    bt_status status = s->watch.added ? bt_loop_change(client->loop, &s->watch, events, &err)
                                      : bt_loop_add(client->loop, &s->watch, events, &err);
    bt_exchange *e = NULL;
    if (curl_easy_getinfo(easy, CURLINFO_PRIVATE, &e) != CURLE_OK || !e) return 0;
    e->fd = fd;
    if (status != BT_OK) {
        bt_exchange_note(e, BT_EXCHANGE_LOCAL, "%s", err.text);
        bt_loop_timer_set(client->loop, &e->later, 0);
    }
    return 0;
}

/* ---- sockets ---- */

static void unlink_socket(bt_client_socket *s) {
    if (s->prev)
        s->prev->next = s->next;
    else
        s->client->sockets = s->next;
    if (s->next) s->next->prev = s->prev;
    bt_heap_free(s);
}

/* libcurl 7.88 closes a socket that did not get connected without saying so (cf_socket_close), and when the next one
 * has the same number it does not ask again that it be watched: to it, it is the same. So it is to us. What is known of
 * such a socket stays until then, one for each number at most; nothing is done with a socket that never served. */
static bool is_watched_again(bt_client_socket *s) {
    bool watched = s->watch.added;
    bt_loop_remove(s->client->loop, &s->watch);
    return !watched || bt_loop_add(s->client->loop, &s->watch, s->events, NULL) == BT_OK;
}

static bt_client_socket *new_socket(bt_exchange *e, curl_socket_t fd) {
    bt_client *client = e->client;
    bt_client_socket *s = bt_heap_alloc(sizeof *s);
    if (!s) return NULL;
    s->watch = (bt_watch){.on_ready = on_ready, .user = s, .fd = fd};
    s->client = client;
    s->next = client->sockets;
    if (s->next) s->next->prev = s;
    client->sockets = s;
    return s;
}

curl_socket_t bt_client_open_socket(void *exchange, curlsocktype purpose, struct curl_sockaddr *address) {
    bt_exchange *e = exchange;
    if (purpose != CURLSOCKTYPE_IPCXN) return CURL_SOCKET_BAD;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd < 0) {
        /* A family that this system does not have is the next address's turn. */
        if (errno != EAFNOSUPPORT)
            bt_exchange_note(e, BT_EXCHANGE_LOCAL, "the router gets no socket: %s", strerror(errno));
        return CURL_SOCKET_BAD;
    }
    bt_client_socket *s = socket_of(e->client, fd);
    bool good = !s || is_watched_again(s);
    if (!s) s = new_socket(e, fd);
    if (!s || !good) {
        bt_exchange_note(e, BT_EXCHANGE_LOCAL, "memory was refused to the router");
        (void)close(fd);
        return CURL_SOCKET_BAD;
    }
    s->key = e->key;
    s->owner = e;
    s->served = false;
    return fd;
}

int bt_client_close_socket(void *user, curl_socket_t fd) {
    bt_client *client = user;
    bt_client_socket *s = socket_of(client, fd);
    if (s) {
        bt_loop_remove(client->loop, &s->watch);
        unlink_socket(s);
    }
    for (bt_exchange *e = client->exchanges; e; e = e->next)
        if (e->fd == fd) e->fd = CURL_SOCKET_BAD;
    return close(fd);
}

void bt_client_settle(bt_exchange *e) {
    for (bt_client_socket *s = e->client->sockets; s; s = s->next) {
        if (s->owner != e) continue;
        s->owner = NULL;
        s->served = e->headed && s->watch.fd == e->fd;
    }
}

static bool is_used(const bt_client *client, curl_socket_t fd) {
    for (const bt_exchange *e = client->exchanges; e; e = e->next)
        if (e->fd == fd) return true;
    return false;
}

void bt_client_forget(bt_client *client, const char *url) {
    bt_url_place place;
    if (bt_url_place_find(url, &place, NULL) != BT_OK) return;
    uint64_t key = bt_url_place_key(&place);
    for (const bt_client_socket *s = client->sockets; s; s = s->next)
        if (s->served && s->key == key && !is_used(client, s->watch.fd)) (void)shutdown(s->watch.fd, SHUT_RDWR);
}

/* ---- handles ---- */

CURL *bt_client_take_handle(bt_client *client) {
    return client->n_idle > 0 ? client->idle[--client->n_idle] : curl_easy_init();
}

/* One that memory was refused to in the middle of its work is of no use any more: libcurl 7.88 then fails to set its
 * options, for ever. */
void bt_client_give_handle(bt_client *client, CURL *easy, bool good) {
    if (!easy) return;
    if (!good || client->n_idle == BT_CLIENT_HANDLES_MAX) {
        curl_easy_cleanup(easy);
        return;
    }
    curl_easy_reset(easy);
    client->idle[client->n_idle++] = easy;
}

/* ---- from beginning to end ---- */

static bool set_up(bt_client *client) {
    client->multi = curl_multi_init();
    if (!client->multi) return false;
    return curl_multi_setopt(client->multi, CURLMOPT_SOCKETFUNCTION, on_socket) == CURLM_OK &&
           curl_multi_setopt(client->multi, CURLMOPT_SOCKETDATA, client) == CURLM_OK &&
           curl_multi_setopt(client->multi, CURLMOPT_TIMERFUNCTION, on_timer) == CURLM_OK &&
           curl_multi_setopt(client->multi, CURLMOPT_TIMERDATA, client) == CURLM_OK &&
           curl_multi_setopt(client->multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING) == CURLM_OK &&
           curl_multi_setopt(client->multi, CURLMOPT_MAXCONNECTS, BT_CLIENT_IDLE_MAX) == CURLM_OK;
}

bt_status bt_client_open(bt_loop *loop, bt_client **ret, bt_error *err) {
    bt_client *client = bt_heap_alloc(sizeof *client);
    if (!client) return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, sizeof *client, 0, "no memory for a client");
    if (!fill_reserve() || curl_global_init_mem(CURL_GLOBAL_DEFAULT, curl_alloc, bt_heap_free, curl_resize, curl_copy,
                                                curl_array) != CURLE_OK) {
        drop_reserve();
        bt_heap_free(client);
        return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_NONE, 0, 0, "libcurl cannot be set up");
    }
    client->loop = loop;
    client->timer = (bt_timer){.on_time = on_time, .user = client};
    bt_status status = bt_resolver_open(loop, &client->resolver, err);
    if (status == BT_OK && !set_up(client))
        status = bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_NONE, 0, 0, "libcurl cannot be set up");
    if (status != BT_OK) {
        bt_client_close(client);
        return status;
    }
    *ret = client;
    return BT_OK;
}

void bt_client_close(bt_client *client) {
    if (!client) return;
    while (client->exchanges) {
        bt_exchange_note(client->exchanges, BT_EXCHANGE_LOCAL, "the router is ending");
        bt_exchange_finish(client->exchanges, CURLE_OK);
    }
    for (uint32_t i = 0; i < client->n_idle; i++)
        curl_easy_cleanup(client->idle[i]);
    if (client->multi) (void)curl_multi_cleanup(client->multi);
    while (client->sockets)
        unlink_socket(client->sockets);
    bt_loop_timer_stop(client->loop, &client->timer);
    bt_resolver_close(client->resolver);
    curl_global_cleanup();
    drop_reserve();
    bt_heap_free(client);
}
