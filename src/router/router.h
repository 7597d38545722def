/* SPDX-License-Identifier: MIT
 * router.h: many models behind one address: everything put together, from the first line to the last child's end. */
#pragma once

#include "router/config.h"

typedef struct bt_router_ask {
    bt_config *config; /* taken over, also when running fails */
    /* The configuration as it is now, of the same sources; for SIGHUP, and when a file has changed. */
    bt_status (*reload)(void *user, bt_config **ret, bt_error *err);
    const char *watch_file;                            /* NULL: none */
    const char *burthen;                               /* the program whose `exec` starts llama.cpp programs */
    const char *root;                                  /* of /proc and /sys; "" */
    void (*on_ready)(void *user, const char *address); /* it listens; NULL: nobody wants to know */
    void (*on_hangup)(void *user);                     /* SIGHUP: a file of the log may have been moved; NULL: nobody */
    void *user;
} bt_router_ask;

/* What there is to say goes to bt_log. Until SIGINT or SIGTERM, which it takes over, as SIGHUP; a second one ends it at
 * once. All children have ended when it returns. Single-threaded: the process must have no other thread. Errors as
 * bt_server_open; BT_E_IO, BT_E_NOMEM. */
BT_MUST_CHECK bt_status bt_router_run(const bt_router_ask *ask, bt_error *err);
