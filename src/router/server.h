/* SPDX-License-Identifier: MIT
 * server.h: the router's own HTTP side: who may ask, what is held of a request, how it is answered. */
#pragma once

#include "base/text.h"
#include "router/config.h"
#include "router/exchange.h"
#include "router/flow.h"
#include "router/loop.h"

typedef struct bt_server bt_server;
typedef struct bt_request bt_request;

/* A request is given to on_request when all of its body is there and it was found allowed (key, Host, Origin, size).
 * It is answered later or at once, by exactly one of the calls below. */
typedef struct bt_server_ask {
    bt_loop *loop;
    const bt_config *config; /* listen, TLS, keys, hosts, origins, limits; replaced by bt_server_reconfigure */
    /* Whether it needs no key: /health. */
    bool (*is_open)(void *user, const char *method, const char *path);
    void (*on_request)(void *user, bt_request *request);
    /* A request has ended, answered or not: what the router counts and logs. After it nothing of request may be used.
     */
    void (*on_end)(void *user, const bt_request *request);
    /* One has ended that on_request was never given: refused by its head, or not read to its end. NULL: nobody asks. */
    void (*on_refused)(void *user, const bt_request *request);
    void *user;
} bt_server_ask;

/* Listens when it returns. Refused (BT_E_ARG, code "listen"): an address that is not loopback without keys and without
 * insecure. BT_E_IO, code "listen": the address cannot be had; code "tls": certificate or key cannot be used. */
BT_MUST_CHECK bt_status bt_server_open(const bt_server_ask *ask, bt_server **ret, bt_error *err);
/* Keys, hosts, origins and sizes of another configuration, which must live as long. What is listened on, the
 * certificate, the number of connections and their idle time stay those of the start. */
void bt_server_reconfigure(bt_server *server, const bt_config *config);
/* No new connections, and 503 "draining" to new requests on old ones; on_idle, once, when the last request has ended,
 * never from within this call. */
void bt_server_drain(bt_server *server, void (*on_idle)(void *user), void *user);
void bt_server_close(bt_server *server);                /* breaks off what is left */
const char *bt_server_address(const bt_server *server); /* "http://127.0.0.1:8080", with the port that was got (":0") */

typedef struct bt_server_counts {
    uint64_t n_requests, n_refused; /* refused: by key, Host, Origin, size, limits */
    uint32_t n_connections, n_open; /* open: requests not ended yet */
    uint64_t bodies_bytes;
} bt_server_counts;
void bt_server_count(const bt_server *server, bt_server_counts *ret);

/* ---- a request ---- */

uint64_t bt_request_id(const bt_request *request); /* from 1 on, one more each */
const char *bt_request_method(const bt_request *request);
const char *bt_request_path(const bt_request *request);   /* decoded, without query; "." and ".." are refused before */
const char *bt_request_target(const bt_request *request); /* as it was sent, with its query */
const char *bt_request_query(const bt_request *request, const char *name); /* decoded; NULL: not given */
/* The first name in the query that is none of the n known ones; NULL: there is none. */
const char *bt_request_unknown(const bt_request *request, const char *const *known, size_t n);
const char *bt_request_header(const bt_request *request, const char *name); /* NULL: none */
/* Those that go on to a server: all but hop-by-hop ones, Host, Content-Length, Authorization, x-api-key, Cookie,
 * Origin. */
BT_MUST_CHECK bt_status bt_request_forwarded(const bt_request *request, bt_header *ret, uint32_t n_max, uint32_t *ret_n,
                                             bt_error *err);
const char *bt_request_body(const bt_request *request, size_t *ret_n);
/* Asked by a page from elsewhere that the configuration does not name (its Origin, or Sec-Fetch-Site, says so): it must
 * change nothing, by whatever method. */
bool bt_request_is_foreign(const bt_request *request);
const char *bt_request_peer(const bt_request *request);  /* the client's address */
uint64_t bt_request_began_ms(const bt_request *request); /* of the loop's clock */
/* Of an answered one, for logs: */
uint32_t bt_request_status(const bt_request *request); /* 0: never answered */
uint64_t bt_request_sent_bytes(const bt_request *request);
bool bt_request_gone(const bt_request *request); /* the client left before the end */
/* A place for what the router knows of it; freed by the router in on_end. */
void bt_request_set_user(bt_request *request, void *user);
void *bt_request_user(const bt_request *request);
/* The client has left, before an answer or while it is sent: called once, at once, also while nothing is sent to it.
 * Who has shut down his sending side has left. Also when the server is closed. on_end follows. */
void bt_request_on_gone(bt_request *request, void (*on_gone)(void *user), void *user);

void bt_reply(bt_request *request, uint32_t status, const char *content_type, const char *data, size_t n_bytes,
              const bt_header *headers, uint32_t n_headers);
void bt_reply_json(bt_request *request, uint32_t status, const char *json);
/* The OpenAI envelope; type from the status ("invalid_request_error", "authentication_error", "not_found_error",
 * "server_error"...). retry_after_s 0: none. detail: more members of "error", an object as text, or NULL. */
void bt_reply_error(bt_request *request, uint32_t status, const char *code, const char *param, uint32_t retry_after_s,
                    const char *detail_json, const char *fmt, ...) BT_PRINTF(7, 8);
/* The body of such an answer; out is initialised here, and failed where memory was refused. */
void bt_error_text(bt_text *out, uint32_t status, const char *code, const char *param, const char *message,
                   const char *detail_json);
/* What comes out of the flow, as it comes: the server is its consumer. n_bytes unknown: chunked. An end that is not
 * whole breaks the connection off, so that the client sees it. */
void bt_reply_flow(bt_request *request, uint32_t status, const bt_header *headers, uint32_t n_headers, bt_known n_bytes,
                   bt_flow *flow);
