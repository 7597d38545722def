/* SPDX-License-Identifier: MIT
 * server_linger.c: sockets of clients that were answered early.
 *
 * A socket that is closed while bytes of the client are unread, or still arrive, is reset, and the reset may overtake
 * the answer: a client that is told "413" in the middle of its upload would see a broken connection and no reason. So
 * the connection is held a little longer by a descriptor of its own, read and thrown away, until the client closes it
 * or BT_LINGER_MS are over (RFC 9112, 9.6). At most BT_LINGER_SOCKETS_MAX are held, no memory but a buffer on the
 * stack. */
#include "router/server_linger.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define BT_LINGER_MS 2000u /* some round trips to anywhere; a bound, and no promise to slow uploads */
#define N_READS      16    /* a call: the loop has others to look after */

static void finish(bt_linger_socket *socket) {
    if (!socket->loop) return;
    bt_loop_remove(socket->loop, &socket->watch);
    bt_loop_timer_stop(socket->loop, &socket->timer);
    (void)close(socket->watch.fd);
    socket->loop = NULL;
}

static void on_time(void *user) {
    finish(user);
}

static void on_ready(void *user, uint32_t events) {
    bt_linger_socket *socket = user;
    char away[8192];
    (void)events;
    for (int i = 0; i < N_READS; i++) {
        ssize_t n = recv(socket->watch.fd, away, sizeof away, MSG_DONTWAIT);
        if (n > 0) continue;
        bool later = n < 0 && (errno == EAGAIN || errno == EINTR);
        if (!later) finish(socket);
        return;
    }
}

void bt_linger_start(bt_linger *linger, bt_loop *loop, int fd) {
    bt_linger_socket *socket = linger->sockets, *end = linger->sockets + BT_LINGER_SOCKETS_MAX;
    while (socket < end && socket->loop)
        socket++;
    if (socket == end) return;
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0) return;
    *socket = (bt_linger_socket){.watch = {.on_ready = on_ready, .user = socket, .fd = own},
                                 .timer = {.on_time = on_time, .user = socket},
                                 .loop = loop};
    bt_loop_timer_set(loop, &socket->timer, BT_LINGER_MS);
    if (bt_loop_add(loop, &socket->watch, EPOLLIN, NULL) != BT_OK) finish(socket);
}

void bt_linger_done(bt_linger *linger) {
    for (uint32_t i = 0; i < BT_LINGER_SOCKETS_MAX; i++)
        finish(&linger->sockets[i]);
}
