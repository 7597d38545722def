/* SPDX-License-Identifier: MIT
 * exchange_internal.h: what client.c (connections), exchange.c (one request), exchange_ask.c (what is sent) and
 * exchange_words.c (what went wrong) know of each other. */
#pragma once

#include "router/exchange.h"
#include "router/head.h"
#include "router/resolve.h"

#include <curl/curl.h>

#define BT_CLIENT_HANDLES_MAX 32u /* easy handles kept for the next request, some 6 KiB each */
#define BT_CLIENT_IDLE_MAX    64L /* connections that are kept open and idle */
/* libcurl's buffer of a connection, its smallest choice above a TLS record's. A paused answer holds that much, and as
 * much again that it has not handed over. */
#define BT_CLIENT_BUFFER_BYTES 16384L
#define BT_EXCHANGE_WORDS      512u

/* Where a URL leads. */
typedef struct bt_url_place {
    char host[BT_RESOLVE_HOST_BYTES]; /* an IPv6 address in brackets */
    uint16_t port;
    bool numeric;
} bt_url_place;

/* A socket of libcurl's, from its opening to its end. */
typedef struct bt_client_socket {
    bt_watch watch;
    bt_client *client;
    uint32_t events;    /* that it was last watched for */
    uint64_t key;       /* of the place it leads to */
    bt_exchange *owner; /* who opened it, until that has ended */
    bool served;        /* an answer has come over it */
    struct bt_client_socket *prev, *next;
} bt_client_socket;

struct bt_client {
    bt_loop *loop;
    CURLM *multi;
    bt_timer timer; /* libcurl's */
    bt_resolver *resolver;
    bt_exchange *exchanges;
    bt_client_socket *sockets;
    CURL *idle[BT_CLIENT_HANDLES_MAX];
    uint32_t n_idle;
    uint32_t n_inside; /* calls of libcurl that are not over: it must not be asked to add or remove then */
};

struct bt_exchange {
    bt_client *client;
    CURL *easy;
    struct curl_slist *headers, *resolve;
    bt_flow *flow;
    bt_timer head_timer, later; /* later: what cannot be done now, since libcurl is at work */
    bt_resolve_wait wait;
    void (*on_head)(void *user, const bt_exchange_head *head);
    void (*on_end)(void *user, bt_exchange_failure failure, const char *words);
    void *user;
    const char *body;
    size_t n_body, n_sent;
    uint64_t connect_timeout_ms, header_timeout_ms;
    bt_url_place place;
    uint64_t key;
    curl_socket_t fd; /* CURL_SOCKET_BAD: none yet */
    bt_head head;
    bt_known length;    /* of the answer's body */
    uint64_t got_bytes; /* of it */
    uint64_t n_refused; /* bt_client_refused() at the start */
    bool is_head;       /* the method */
    bool added;         /* libcurl has it */
    bool headed;        /* on_head was called */
    bool paused;
    bool again; /* asked anew over a new connection */
    bool ending, cancelled;
    bt_exchange_failure failure; /* found by ourselves, before libcurl says so; words then says what */
    char words[BT_EXCHANGE_WORDS];
    char curl_words[CURL_ERROR_SIZE];
    bt_exchange *prev, *next;
};

/* ---- client.c ---- */

uint64_t bt_client_refused(void); /* how often libcurl was refused memory */
CURL *bt_client_take_handle(bt_client *client);
void bt_client_give_handle(bt_client *client, CURL *easy, bool good);
curl_socket_t bt_client_open_socket(void *exchange, curlsocktype purpose, struct curl_sockaddr *address);
int bt_client_close_socket(void *user, curl_socket_t fd); /* user: the client */
/* The exchange has been taken from libcurl: what it has opened is a connection now, or nothing. */
void bt_client_settle(bt_exchange *e);

/* ---- exchange.c ---- */

/* Libcurl is at work: what is found now is remembered, the first of it, and ends the exchange when libcurl is done. */
void bt_exchange_note(bt_exchange *e, bt_exchange_failure failure, const char *fmt, ...) BT_PRINTF(3, 4);
/* The end, from outside of libcurl; of a cancelled one a silent one. The exchange is gone. */
void bt_exchange_finish(bt_exchange *e, CURLcode code);
/* The request could not be sent over a connection that was kept: it is sent over a new one, once. false: it ends. */
BT_MUST_CHECK bool bt_exchange_ask_again(bt_exchange *e, CURLcode code);
size_t bt_exchange_send(char *dest, size_t size, size_t n, void *exchange);
int bt_exchange_seek(void *exchange, curl_off_t offset, int origin);
size_t bt_exchange_take_line(char *line, size_t size, size_t n, void *exchange);
size_t bt_exchange_take_body(char *data, size_t size, size_t n, void *exchange);

/* ---- exchange_ask.c ---- */

BT_MUST_CHECK bt_status bt_url_place_find(const char *url, bt_url_place *ret, bt_error *err);
uint64_t bt_url_place_key(const bt_url_place *place);
/* The easy handle gets all that is asked for. */
BT_MUST_CHECK bt_status bt_exchange_prepare(bt_exchange *e, const bt_exchange_ask *ask, bt_error *err);
BT_MUST_CHECK bool bt_exchange_set_addresses(bt_exchange *e, const char *addresses); /* false: memory */

/* ---- exchange_words.c ---- */

/* How it ended; fills e->words unless that was done before. */
bt_exchange_failure bt_exchange_outcome(bt_exchange *e, CURLcode code);
