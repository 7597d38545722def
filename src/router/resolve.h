/* SPDX-License-Identifier: MIT
 * resolve.h: names of hosts, found aside: nobody waits for a name server but the copy of the router that asks it. */
#pragma once

#include "router/aside.h"

#define BT_RESOLVE_HOST_BYTES      254u /* RFC 1035: 253 characters */
#define BT_RESOLVE_ADDRESSES_BYTES 400u /* eight IPv6 addresses in brackets */
#define BT_RESOLVE_NAMES_MAX       32u
#define BT_RESOLVE_KEEP_MS         60000u /* libcurl's own default of CURLOPT_DNS_CACHE_TIMEOUT */
#define BT_RESOLVE_MAX_MS          10000u /* resolv.conf(5): two tries of 5 s */

typedef struct bt_resolver bt_resolver;
BT_MUST_CHECK bt_status bt_resolver_open(bt_loop *loop, bt_resolver **ret, bt_error *err);
void bt_resolver_close(bt_resolver *resolver); /* NULL is fine; nobody waits any more */

/* Who waits for a name. Zero-initialised, part of its owner. */
typedef struct bt_resolve_wait {
    /* Once: addresses as CURLOPT_RESOLVE takes them, or NULL and why. */
    void (*on_done)(void *user, const char *addresses, const bt_error *err);
    void *user;
    struct bt_resolve_wait **head; /* the resolver's: set while it waits */
    struct bt_resolve_wait *next;
} bt_resolve_wait;

/* "1.2.3.4,[::1]" when it is known; else NULL. Good until the next call. */
const char *bt_resolver_find(bt_resolver *resolver, const char *host);
/* Several that wait for one name ask once. BT_E_LIMIT, code "resolve": too many names at once. */
BT_MUST_CHECK bt_status bt_resolver_wait(bt_resolver *resolver, const char *host, bt_resolve_wait *wait, bt_error *err);
void bt_resolve_leave(bt_resolve_wait *wait); /* not waiting: nothing */
