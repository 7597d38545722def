/* SPDX-License-Identifier: MIT
 *
 * call_exchange.c: a call's way to the server of a model, or to a peer, and the answer's way back into its flow.
 *
 * When a server breaks off before its answer's head, its process may just be dying: the client is answered when its end
 * is seen, with its last words, or a second later, when there was none. */
#include "router/call_internal.h"

#include "base/error.h"
#include "base/heap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define HEADERS_MAX   64u
#define LAST_WORDS_MS 1000u /* a process that was killed is reaped, and its output read, well within */
#define LATE_LOOK_MS  20u

static void drop_flow(bt_call *call) {
    if (call->flow) bt_flow_drop_consumer(call->flow);
    call->flow = NULL;
}

void bt_call_stop(bt_call *call) {
    if (call->exchange) {
        bt_exchange_cancel(call->exchange);
        call->exchange = NULL;
        call->router->n_calls_running--;
    }
    drop_flow(call);
}

static void on_put(void *user, const void *data, size_t n_bytes) {
    bt_call *call = user;
    bt_usage_add(call->reader, data, n_bytes);
    uint64_t n_pieces = bt_usage_pieces(call->reader);
    if (call->model) call->model->n_served += n_pieces - call->n_pieces;
    call->n_pieces = n_pieces;
}

static bool is_event_stream(const bt_exchange_head *head) {
    for (uint32_t i = 0; i < head->n_headers; i++)
        if (strcasecmp(head->headers[i].name, "content-type") == 0)
            return strncasecmp(head->headers[i].value, "text/event-stream", 17) == 0;
    return false;
}

/* The answer has begun, and was said to be an event stream: what is none comes too late to be passed on. */
static void refuse_late_head(bt_call *call, uint32_t status) {
    char text[100];
    (void)snprintf(text, sizeof text, "the server of the model answered %u, and no event stream", status);
    bt_call_stop(call);
    bt_call_answer_error(call, status >= 400 ? status : 502, "model_error", 0, NULL, text);
    bt_call_leave(call);
}

static void on_head(void *user, const bt_exchange_head *head) {
    bt_call *call = user;
    bt_loop_timer_stop(call->router->loop, &call->comment);
    if (call->early && (head->status != 200 || !is_event_stream(head))) {
        refuse_late_head(call, head->status);
        return;
    }
    call->first_ms = bt_loop_now_ms(call->router->loop);
    call->reader = bt_usage_open(is_event_stream(head));
    call->answered = true;
    bt_flow *flow = call->flow;
    call->flow = NULL;
    if (call->early)
        bt_early_pipe(call->early, flow);
    else
        bt_reply_flow(call->request, head->status, head->headers, head->n_headers, head->n_bytes, flow);
}

static const char *sentence_of(bt_exchange_failure failure) {
    switch (failure) {
    case BT_EXCHANGE_CONNECT:
        return "the server of the model did not answer";
    case BT_EXCHANGE_TIMEOUT:
        return "the server of the model took too long to answer";
    case BT_EXCHANGE_BROKEN:
        return "the server of the model broke its answer off";
    case BT_EXCHANGE_LOCAL:
        return "no memory for the answer";
    case BT_EXCHANGE_UNREAD: /* nobody reads it: nobody is told */
    case BT_EXCHANGE_OK:
        break;
    }
    return "";
}

void bt_call_comment(void *user) {
    bt_call *call = user;
    bt_error why = {0};
    const bt_config *config = bt_models_config(call->router->models);
    if (call->answered || call->gone || config->loading_comments_ms == 0) return;
    if (!call->early && bt_early_open(call->request, config->limits.flow_bytes, &call->early, &why) != BT_OK) return;
    bt_early_comment(call->early);
    bt_loop_timer_set(call->router->loop, &call->comment, config->loading_comments_ms);
}

void bt_call_answer_late(void *user) {
    bt_call *call = user;
    const bt_model *model = call->model;
    if (model && model->child && bt_loop_now_ms(call->router->loop) < call->late_until_ms) {
        bt_loop_timer_set(call->router->loop, &call->late, LATE_LOOK_MS);
        return;
    }
    bool died = model && model->state != BT_MODEL_READY && model->refusal.text[0];
    char text[1200];
    (void)snprintf(text, sizeof text, "%s%s%s", sentence_of(BT_EXCHANGE_CONNECT), died ? ": " : "",
                   died ? model->refusal.text : "");
    bt_call_answer_error(call, 502, died ? model->refusal.code : "model_unreachable", 1,
                         died && model->refusal.detail_json[0] ? model->refusal.detail_json : NULL, text);
    bt_call_leave(call);
}

static void on_end(void *user, bt_exchange_failure failure, const char *words) {
    bt_call *call = user;
    call->exchange = NULL;
    call->router->n_calls_running--;
    drop_flow(call);
    if (call->reader) bt_usage_finish(call->reader, &call->usage);
    call->reader = NULL;
    if (failure == BT_EXCHANGE_CONNECT && !call->answered && call->model) {
        call->late_until_ms = bt_loop_now_ms(call->router->loop) + LAST_WORDS_MS;
        bt_loop_timer_set(call->router->loop, &call->late, 0); /* its end may have been seen first */
        return;
    }
    if (failure != BT_EXCHANGE_OK) {
        char text[400];
        (void)snprintf(text, sizeof text, "%s%s%s", sentence_of(failure), words && *words ? ": " : "",
                       words ? words : "");
        (void)snprintf(call->code, sizeof call->code, "%s",
                       failure == BT_EXCHANGE_TIMEOUT ? "model_timeout" : "model_broken");
        bool timed_out = failure == BT_EXCHANGE_TIMEOUT;
        bt_call_answer_error(call, timed_out ? 504 : 502, timed_out ? "model_timeout" : "model_unreachable", 1, NULL,
                             text);
    }
    bt_call_leave(call);
}

bt_status bt_call_exchange(bt_call *call, const char *base, const bt_header *more, uint64_t connect_ms,
                           uint64_t header_ms, bt_error *err) {
    bt_router *router = call->router;
    bt_header headers[HEADERS_MAX + 1];
    uint32_t n = 0;
    char *url = NULL;
    bt_flow *flow = NULL;
    BT_TRY(bt_request_forwarded(call->request, headers, HEADERS_MAX, &n, err));
    if (more) headers[n++] = *more;
    size_t n_url = strlen(base) + strlen(call->target) + 1;
    url = bt_heap_alloc(n_url);
    if (!url) return bt_fail_sys(err, ENOMEM, "call", "no memory for an address");
    (void)snprintf(url, n_url, "%s%s", base, call->target);
    bt_status status = bt_flow_open(bt_models_config(router->models)->limits.flow_bytes, &flow, err);
    if (status == BT_OK) {
        bt_flow_on_put(flow, on_put, call);
        size_t n_own = 0;
        const char *own = bt_request_body(call->request, &n_own);
        const bt_exchange_ask ask = {.client = router->client,
                                     .method = call->method,
                                     .url = url,
                                     .headers = headers,
                                     .n_headers = n,
                                     .body = call->body ? call->body : own,
                                     .n_body = call->body ? call->n_body : n_own,
                                     .connect_timeout_ms = connect_ms,
                                     .header_timeout_ms = header_ms,
                                     .flow = flow,
                                     .on_head = on_head,
                                     .on_end = on_end,
                                     .user = call};
        call->flow = flow;
        status = bt_exchange_start(&ask, &call->exchange, err);
        if (status != BT_OK) {
            bt_flow_drop_producer(flow);
            drop_flow(call);
        }
    }
    bt_heap_free(url);
    if (status == BT_OK) router->n_calls_running++;
    return status;
}
