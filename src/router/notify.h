/* SPDX-License-Identifier: MIT
 * notify.h: what a service manager is told of the router (sd_notify's protocol, without its library). */
#pragma once

#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

typedef struct bt_notify {
    struct sockaddr_un address;
    socklen_t n_address; /* 0: nobody wants to know */
} bt_notify;

/* Whom to tell: NOTIFY_SOCKET of the environment, which is taken out of it, so that no child speaks in our name. A path
 * or, behind '@', an abstract name; anything else, and a name longer than an address holds, is nobody. */
void bt_notify_open(bt_notify *ret);
/* One message of lines NAME=VALUE ("READY=1"). Never waits; what cannot be told is lost: a manager that hears nothing
 * does what it does with any silent service. */
void bt_notify_say(const bt_notify *notify, const char *lines);
