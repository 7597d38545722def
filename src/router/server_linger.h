/* SPDX-License-Identifier: MIT
 * server_linger.h: sockets of clients that were answered before they had sent everything. */
#pragma once

#include "router/loop.h"

#define BT_LINGER_SOCKETS_MAX 16u

typedef struct bt_linger_socket {
    bt_watch watch;
    bt_timer timer;
    bt_loop *loop; /* NULL: free */
} bt_linger_socket;

typedef struct bt_linger {
    bt_linger_socket sockets[BT_LINGER_SOCKETS_MAX];
} bt_linger;

/* Keep the connection of fd (which its owner closes now) until the client has seen the answer, and read what it still
 * sends away. Where there is no place left it is closed as ever. */
void bt_linger_start(bt_linger *linger, bt_loop *loop, int fd);
void bt_linger_done(bt_linger *linger);
