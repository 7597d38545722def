/* SPDX-License-Identifier: MIT
 * call_internal.h: a call, as its own files see it (call.c, call_exchange.c). Private to the router. */
#pragma once

#include "router/early.h"
#include "router/routing.h"

typedef struct bt_call {
    bt_job job;
    bt_router *router;
    bt_request *request;
    bt_model *model;                 /* NULL: a peer's */
    char name[BT_CONFIG_ID_MAX + 1]; /* as it was asked for */
    char id[BT_CONFIG_ID_MAX + 1];   /* whom it went to; for rows */
    const char *method;
    char *target;
    char *body; /* rewritten; NULL: the request's own */
    size_t n_body;
    bool is_json;
    bt_exchange *exchange;
    bt_flow *flow; /* the consumer's end, until the client's side takes it */
    bt_usage_reader *reader;
    uint64_t n_pieces; /* of its answer, that were counted for the model */
    bt_usage usage;
    bt_timer late; /* the answer of one whose server broke off: until then its end may come */
    uint64_t late_until_ms;
    bt_timer comment; /* when the next is due */
    bt_early *early;  /* NULL: its answer begins with the server's */
    bool streams;
    bool answered, gone;
    uint64_t granted_ms, first_ms;
    char code[48];
    struct bt_call *prev, *next;
} bt_call;

/* call.c */
void bt_call_leave(bt_call *call); /* its place in the queue, or its turn, is given back */
void bt_call_answer_error(bt_call *call, uint32_t status, const char *code, uint32_t retry_after_s, const char *detail,
                          const char *text); /* unless it was answered */
/* call_exchange.c */
/* more: one header more, or NULL. */
BT_MUST_CHECK bt_status bt_call_exchange(bt_call *call, const char *base, const bt_header *more, uint64_t connect_ms,
                                         uint64_t header_ms, bt_error *err);
void bt_call_stop(bt_call *call);     /* its exchange, if there is one; nobody is told */
void bt_call_answer_late(void *user); /* of its timer */
void bt_call_comment(void *user); /* of its timer: there is no answer yet, and the client shall know that all is well */
