/* SPDX-License-Identifier: MIT
 *
 * page_streams.c: events and logs: what is kept of them, and on from there as it happens, for as long as somebody
 * listens. Who reads too slowly loses some, and is told how many (events.c, log_ring.c). */
#include "router/routing.h"

#include "base/heap.h"

#include <stdlib.h>
#include <string.h>

#define EVENTS_FLOW_BYTES (512u << 10) /* all events that are kept, once */
#define LOGS_FLOW_BYTES   (256u << 10) /* a ring and a half */
#define LOGS_TEXT_MAX     (1u << 20)

/* status: of listening, with the flow. */
static void reply_stream(bt_request *request, const char *type, bt_flow *flow, bt_status status, const bt_error *err) {
    const bt_header headers[] = {{"Content-Type", type}, {"Cache-Control", "no-cache"}};
    if (status == BT_OK) {
        bt_reply_flow(request, 200, headers, 2, (bt_known){0}, flow);
        return;
    }
    if (flow) bt_flow_drop_producer(flow);
    if (flow) bt_flow_drop_consumer(flow);
    bt_reply_error(request, 503, "listeners", NULL, 5, NULL, "%s", err->text);
}

/* The last ones, for who asks once. */
static void reply_events(bt_router *router, bt_request *request) {
    bt_error why = {0};
    char *json = NULL;
    if (bt_events_json(router->events, bt_request_query(request, "type"), &json, &why) == BT_OK)
        bt_reply_json(request, 200, json);
    else
        bt_reply_error(request, 503, "overloaded", NULL, 1, NULL, "%s", why.text);
    bt_heap_free(json);
}

void bt_page_events(bt_router *router, bt_request *request) {
    bt_error why = {0};
    const char *accept = bt_request_header(request, "Accept");
    if (!accept || !strstr(accept, "text/event-stream")) {
        reply_events(router, request);
        return;
    }
    bt_flow *flow = NULL;
    const char *last = bt_request_header(request, "Last-Event-ID");
    uint64_t after = last ? strtoull(last, NULL, 10) : (uint64_t)bt_page_number(request, "after", NULL);
    bt_status status = bt_flow_open(EVENTS_FLOW_BYTES, &flow, &why);
    if (status == BT_OK) status = bt_events_listen(router->events, after, flow, &why);
    reply_stream(request, "text/event-stream", flow, status, &why);
}

static void reply_log(bt_request *request, const bt_log_ring *ring) {
    bt_text text;
    bt_text_init(&text, LOGS_TEXT_MAX);
    bt_log_ring_text(ring, &text);
    bt_reply(request, 200, "text/plain; charset=utf-8", bt_text_str(&text), text.n_bytes, NULL, 0);
    bt_text_done(&text);
}

static void stream_log(bt_request *request, bt_log_ring *ring) {
    bt_error why = {0};
    bt_flow *flow = NULL;
    bool history = bt_request_query(request, "no-history") == NULL;
    bt_status status = bt_flow_open(LOGS_FLOW_BYTES, &flow, &why);
    if (status == BT_OK) status = bt_log_ring_listen(ring, history, flow, &why);
    reply_stream(request, "text/plain; charset=utf-8", flow, status, &why);
}

/* /logs, /logs/MODEL, /logs/stream, /logs/stream/MODEL. */
void bt_page_logs(bt_router *router, bt_request *request, const char *rest) {
    bool streams = strcmp(rest, "/stream") == 0 || strncmp(rest, "/stream/", 8) == 0;
    const char *id = streams ? rest + 7 : rest;
    if (*id == '/') id++;
    bt_log_ring *ring = router->log;
    if (*id && strcmp(id, "proxy") != 0) {
        const bt_model *model = bt_models_find(router->models, id);
        if (!model) {
            bt_page_no_model(router, request, NULL, id);
            return;
        }
        ring = model->log;
    }
    if (streams)
        stream_log(request, ring);
    else
        reply_log(request, ring);
}
