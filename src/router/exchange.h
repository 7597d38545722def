/* SPDX-License-Identifier: MIT
 * exchange.h: one request to a server behind the router, and its answer as it comes. */
#pragma once

#include "router/flow.h"
#include "router/loop.h"

typedef struct bt_client bt_client; /* all connections to servers: one libcurl multi handle in the loop */
BT_MUST_CHECK bt_status bt_client_open(bt_loop *loop, bt_client **ret, bt_error *err);
void bt_client_close(bt_client *client); /* not from a callback; what is under way ends with LOCAL. NULL is fine */
/* Connections to a server that has gone: its next one may listen on the same port. Those that are idle are shut down;
 * what is under way goes on. */
void bt_client_forget(bt_client *client, const char *url);

typedef struct bt_header {
    const char *name, *value;
} bt_header;

typedef enum bt_exchange_failure {
    BT_EXCHANGE_OK,
    BT_EXCHANGE_CONNECT, /* nobody listens, or the connection broke before the answer's head */
    BT_EXCHANGE_TIMEOUT, /* of connecting, or of the head */
    BT_EXCHANGE_BROKEN,  /* the answer was broken off */
    BT_EXCHANGE_LOCAL,   /* memory or a descriptor was refused here */
    BT_EXCHANGE_UNREAD,  /* the flow's consumer has gone: the router broke it off */
} bt_exchange_failure;

typedef struct bt_exchange_head {
    uint32_t status;
    const bt_header *headers; /* without hop-by-hop ones (Connection, Transfer-Encoding, Keep-Alive...) */
    uint32_t n_headers;
    bt_known n_bytes; /* of the body, where it is said (Content-Length is no header here); of HEAD: of GET's */
} bt_exchange_head;

typedef struct bt_exchange bt_exchange;
typedef struct bt_exchange_ask {
    bt_client *client;
    const char *method, *url; /* the whole url with path and query */
    const bt_header *headers; /* as they are to be sent; hop-by-hop ones, Host and Content-Length are left out here */
    uint32_t n_headers;
    const char *body; /* must live as long as the exchange */
    size_t n_body;
    uint64_t connect_timeout_ms, header_timeout_ms; /* both from the start; 0: none */
    bt_flow *flow;                                  /* the body goes here: the exchange is its producer */
    /* Once, when the head is there; what it points to is good until it returns. NULL: nobody wants it. */
    void (*on_head)(void *user, const bt_exchange_head *head);
    /* Once, last, when the flow has been ended; the exchange is closed when it returns. words: what went wrong, a
     * sentence; empty: nothing. */
    void (*on_end)(void *user, bt_exchange_failure failure, const char *words);
    void *user;
} bt_exchange_ask;

/* Never follows redirects, decompresses nothing, speaks HTTP/1.1 (plain, or TLS with the system's roots for peers).
 * Reads no faster than the flow is taken. Response heads over 64 KiB fail. From any callback, of an exchange, too;
 * nothing is called before it returns. BT_E_ARG, code "exchange": URL, method or a header cannot be sent; then, and
 * whenever it fails, the flow's producer is still the caller. */
BT_MUST_CHECK bt_status bt_exchange_start(const bt_exchange_ask *ask, bt_exchange **ret, bt_error *err);
/* Break it off: the connection is closed, so that the server sees that nobody listens; neither on_head nor on_end is
 * called any more, and the body may be freed. From any callback, of this exchange or its flow, too. NULL is fine. */
void bt_exchange_cancel(bt_exchange *exchange);
