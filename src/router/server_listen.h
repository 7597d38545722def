/* SPDX-License-Identifier: MIT
 * server_listen.h: the address that a server listens on. */
#pragma once

#include "burthen.h"

typedef struct bt_listen {
    char host[256]; /* as it was written, without brackets; empty: all addresses */
    uint16_t port;  /* that was asked for, then that was got */
    bool loopback;  /* nobody outside this machine can reach it */
} bt_listen;

/* "HOST:PORT", "[::1]:8080", ":8080" and "*:8080" for all addresses; port 0: the system's choice. Pure. BT_E_ARG, code
 * "listen". */
BT_MUST_CHECK bt_status bt_listen_parse(const char *text, bt_listen *ret, bt_error *err);
/* A socket that listens, close-on-exec. open_to_all false: what is not loopback is refused (BT_E_ARG, code "listen").
 * BT_E_IO, code "listen": no such host, taken, not ours. */
BT_MUST_CHECK bt_status bt_listen_open(const char *text, bool open_to_all, bt_listen *ret, int *ret_fd, bt_error *err);
/* "127.0.0.1:8080", "[::1]:8080"; returns text. */
const char *bt_listen_text(const bt_listen *listen, char *text, size_t n_text);
