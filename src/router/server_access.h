/* SPDX-License-Identifier: MIT
 * server_access.h: who may ask: keys, the Host header, the Origin header. Pure. */
#pragma once

#include "router/config.h"

/* Whether one of the configured keys was given; true where none is configured. Takes as long for a wrong key as for a
 * right one. NULL: that header was not sent. */
bool bt_access_key(const bt_config *config, const char *authorization, const char *x_api_key);
/* host: the header as sent, NULL: none. listen_host: what is listened on, as it was written. */
bool bt_access_host(const bt_config *config, const char *host, const char *listen_host);

typedef enum bt_access_origin {
    BT_ORIGIN_NONE,    /* not a browser, or a page's own navigation */
    BT_ORIGIN_SAME,    /* a page of this router */
    BT_ORIGIN_LISTED,  /* named in cors_origins */
    BT_ORIGIN_ANY,     /* cors_origins has "*" */
    BT_ORIGIN_FOREIGN, /* may not read, and may change nothing */
} bt_access_origin;
bt_access_origin bt_access_origin_find(const bt_config *config, const char *origin, const char *host);
