/* SPDX-License-Identifier: MIT
 * server_parts.h: what the files of the server share of a server and a request; nobody else includes it. */
#pragma once

#include "router/server.h"
#include "router/server_linger.h"
#include "router/server_listen.h"
#include "router/server_target.h"

#include <microhttpd.h>

/* Of each connection: its head, and what is read and sent at a time. An answer's head and the request's must fit
 * together. Pages of it that are not touched are no memory. */
#define BT_SERVER_CONNECTION_BYTES 65536u
#define BT_SERVER_HEAD_MAX         32768u /* of an answer; longer ones are not sent */

struct bt_server {
    bt_server_ask ask;
    const bt_config *config;
    struct MHD_Daemon *daemon;
    bt_watch watch; /* the daemon's epoll descriptor */
    bool pending;   /* a connection was resumed: run before the next wait */
    bt_listen listen;
    char address[300];
    char *cert, *key; /* the library keeps pointing to them */
    bt_request *requests;
    uint64_t n_requests, n_refused, bodies_bytes;
    uint32_t n_open, n_connections;
    bool draining, closing;
    void (*on_idle)(void *user);
    void *idle_user;
    bt_timer idle_timer;
    bt_linger linger;
    char words[160]; /* what the library said last, while it starts */
};

struct bt_request {
    bt_server *server;
    struct MHD_Connection *connection;
    bt_request *prev, *next; /* of the server's */
    uint64_t id, began_ms;
    bt_target target;
    const char *method; /* the library's, until the end */
    char peer[64];
    const char *cors_origin; /* that may read the answer; NULL: none */
    char *body;
    size_t n_body, body_capacity;
    uint64_t discarded_bytes;
    bt_known announced_bytes; /* Content-Length */
    /* The answer. */
    struct MHD_Response *response; /* made, not yet queued */
    uint32_t status;
    char *answer; /* its bytes, where they are not a flow's */
    size_t n_answer;
    bt_flow *flow;
    uint64_t sent_bytes;
    bool sized;   /* of a flow's answer: its length was said */
    bool flushed; /* of a flow's answer: its head is on its way */
    /* Where it stands. */
    bool begun;     /* the library has called for it */
    bool uploads;   /* a body follows the head */
    bool early;     /* answered before its body was read */
    bool given;     /* on_request was called */
    bool answered;  /* a reply call was made */
    bool queued;    /* the library has the answer */
    bool suspended; /* the connection, by us */
    bool gone;
    bool broken;      /* we break the connection off: the answer cannot be whole */
    bool half_closed; /* the client sends no more */
    bt_watch watch;   /* for that */
    bt_timer look;
    void *user;
    void (*on_gone)(void *user);
    void *gone_user;
};

/* ---- server_request.c ---- */
bt_request *bt_request_open(bt_server *server, struct MHD_Connection *connection, const char *target);
void bt_request_close(bt_request *request);
/* Add to the body; a refusal is answered in the request when it cannot be held. */
void bt_request_add_body(bt_request *request, const char *data, size_t n);
/* Stop the connection until bt_request_resume, and watch for the client to leave. */
void bt_request_suspend(bt_request *request);
void bt_request_resume(bt_request *request);
/* The client has left: told once. */
void bt_request_leave(bt_request *request);

/* ---- server_reply.c ---- */
/* Hand a made answer to the library; from its own calls only. */
enum MHD_Result bt_reply_queue(bt_request *request);
/* As bt_reply_error, and counted as refused. */
void bt_reply_refuse(bt_request *request, uint32_t status, const char *code, const char *fmt, ...) BT_PRINTF(4, 5);
/* The answer to a browser that asks what it may ask. */
void bt_reply_preflight(bt_request *request);

/* ---- server_check.c ---- */
/* Everything that is known when the head is there; answers the request when it is refused. */
void bt_request_check(bt_request *request, const char *version);
