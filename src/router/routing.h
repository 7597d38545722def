/* SPDX-License-Identifier: MIT
 * routing.h: the router's parts, as its own files see them. Private to the router. */
#pragma once

#include "router/models.h"
#include "router/router.h"

/* Lines of the log that anybody can cause, and how many have been written this second (request_log.c). */
typedef struct bt_request_log {
    bt_timer told; /* when the second is over */
    uint32_t n_written;
    uint64_t n_left_out;
} bt_request_log;

typedef struct bt_router {
    const bt_router_ask *ask;
    bt_loop *loop;
    bt_client *client;
    bt_server *server;
    bt_sampler *sampler;
    bt_models *models;
    bt_events *events;
    bt_activity *activity;
    bt_log_ring *log;
    char mark[40];
    uint64_t began_ms;
    uint64_t n_calls_running; /* exchanges with servers, of models and peers */
    uint64_t peer_requests;
    uint32_t n_asides; /* of page_aside.c */
    bt_request_log request_log;
    bool closing;
    struct bt_call *calls; /* requests that are on their way to a model or a peer */
} bt_router;

/* routes.c: from a path to who answers it. */
void bt_routes_answer(bt_router *router, bt_request *request);
bool bt_routes_is_open(const char *method, const char *path);  /* needs no key */
bool bt_routes_is_quiet(const char *method, const char *path); /* asked so often that a success is no line of the log */

/* request_log.c: a line of the log for each request. */
void bt_request_log_open(bt_router *router);
void bt_request_log_ended(bt_router *router, const bt_request *request);   /* before bt_call_request_ended */
void bt_request_log_refused(bt_router *router, const bt_request *request); /* one that the router was never given */

/* call.c: a request that goes to a model or a peer. name: which, or NULL: the body says so (JSON, or a form). target:
 * what is asked of the server, path and query; NULL: what the client asked. */
void bt_call_begin(bt_router *router, bt_request *request, const char *name, const char *target);
/* The request is over: rows and counters; frees what belongs to it. */
void bt_call_request_ended(bt_router *router, const bt_request *request);
/* Whom a request went to; NULL: it is no call, or has not named anybody yet. */
const char *bt_call_model(const bt_request *request);
void bt_calls_close(bt_router *router);
/* One that is on its way now, as others may see it. */
typedef struct bt_call_view {
    uint64_t id, began_ms; /* of the loop's clock */
    uint64_t sent_bytes;
    const char *model; /* empty: its body has not named one yet */
    const char *path;
    const char *state; /* "waiting" for its turn, "running" without an answer yet, "answering" */
} bt_call_view;
void bt_calls_each(const bt_router *router, void (*each)(void *user, const bt_call_view *view), void *user);

/* call_body.c: what a request's body says that the router must know. */
typedef struct bt_call_body {
    char model[BT_CONFIG_ID_MAX + 1]; /* empty: not said */
    bool is_json;
    bool streams;
    uint64_t n_probs; /* the most of n_probs, logprobs, top_logprobs */
} bt_call_body;
/* BT_E_FORMAT, code "body": it is no JSON object (nor a form where content_type says so). */
BT_MUST_CHECK bt_status bt_call_body_read(const char *content_type, const char *body, size_t n_body, bt_call_body *ret,
                                          bt_error *err);

/* What pages have in common. A tree as the answer, taken; NULL: there was no memory for it. */
struct json_t; /* jansson */
void bt_page_tree(bt_request *request, struct json_t *root);
/* param: the name of the member that says id, or NULL. */
void bt_page_no_model(bt_router *router, bt_request *request, const char *param, const char *id);
/* Of the query; 0: not there, or no number above it. other: its name in llama-swap; NULL: none. */
int64_t bt_page_number(const bt_request *request, const char *name, const char *other);

/* Each answers a request of its own: */
void bt_page_models(bt_router *router, bt_request *request);
void bt_page_running(bt_router *router, bt_request *request);
void bt_page_requests(bt_router *router, bt_request *request);
void bt_page_memory(bt_router *router, bt_request *request);
void bt_page_activity(bt_router *router, bt_request *request);
void bt_page_machine(bt_router *router, bt_request *request);
void bt_page_plan(bt_router *router, bt_request *request);
void bt_page_metrics(bt_router *router, bt_request *request);
void bt_page_logs(bt_router *router, bt_request *request, const char *rest); /* after "/logs" */
void bt_page_events(bt_router *router, bt_request *request);
void bt_page_web(bt_router *router, bt_request *request);
bool bt_page_web_has(const char *path); /* it is a file of the page */
/* loading.c */
void bt_page_unload(bt_router *router, bt_request *request, const char *id); /* NULL: all */
void bt_page_load(bt_router *router, bt_request *request, const char *id);
/* Those that the configuration wants loaded. */
void bt_router_preload(bt_router *router);
