/* SPDX-License-Identifier: MIT
 *
 * early.c: an answer that begins before there is one.
 *
 *   200, text/event-stream -> ": loading" ... -> the server's own events, as they are | event: error
 *
 * A model that loads for minutes is silence to the proxies in between, and to clients with a short patience. Comments
 * of an event stream are no events to anybody who reads one (WHATWG, server-sent events), and keep it alive. The price:
 * 200 was said, so what fails later is an event (OpenAI's and Anthropic's clients raise it as the error that it is) and
 * no status. So it is done only where the configuration asks for it, and only after a while without an answer.
 *
 * The server's events come in a flow of their own, of which this is the consumer: a server that breaks off before its
 * answer began must leave ours whole, for the error. At most one piece is between the two flows. */
#include "router/early.h"

#include "base/error.h"
#include "base/heap.h"

#include <string.h>

#define PIECE_BYTES 8192u

struct bt_early {
    bt_flow *out; /* the producer's end; NULL: given back */
    bt_flow *in;  /* the consumer's end; NULL: none yet, or given back */
    size_t n_piece;
    char piece[PIECE_BYTES];
};

static void drop_in(bt_early *early) {
    if (early->in) bt_flow_drop_consumer(early->in);
    early->in = NULL;
}

static void end(bt_early *early, bool whole) {
    bt_flow *out = early->out;
    if (!out) return;
    early->out = NULL;
    bt_flow_on_room(out, NULL, NULL);
    bt_flow_end(out, whole);
    bt_flow_drop_producer(out);
}

bt_status bt_early_open(bt_request *request, size_t max_bytes, bt_early **ret, bt_error *err) {
    static const bt_header headers[] = {{"Content-Type", "text/event-stream"}, {"Cache-Control", "no-cache"}};
    bt_early *early = bt_heap_alloc(sizeof *early);
    if (!early) return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, sizeof *early, 0, "no memory for an answer");
    bt_status status = bt_flow_open(max_bytes, &early->out, err);
    if (status != BT_OK) {
        bt_heap_free(early);
        return status;
    }
    *ret = early;
    bt_reply_flow(request, 200, headers, 2, (bt_known){0}, early->out);
    return BT_OK;
}

void bt_early_close(bt_early *early) {
    if (!early) return;
    drop_in(early);
    end(early, false);
    bt_heap_free(early);
}

void bt_early_comment(bt_early *early) {
    static const char comment[] = ": loading\n\n";
    bool sent = !early->out || bt_flow_put(early->out, comment, sizeof comment - 1);
    (void)sent; /* who has not taken the last ones needs no more */
}

/* What there is, as long as there is room; called again when there is more of either. */
static void pump(void *user) {
    bt_early *early = user;
    while (early->in && early->out) {
        if (early->n_piece == 0) early->n_piece = bt_flow_take(early->in, early->piece, sizeof early->piece);
        if (early->n_piece == 0) break;
        if (!bt_flow_put(early->out, early->piece, early->n_piece)) return;
        early->n_piece = 0;
    }
    if (early->in && bt_flow_ended(early->in)) {
        bool whole = bt_flow_whole(early->in);
        drop_in(early);
        end(early, whole);
    } else if (early->out && !bt_flow_is_read(early->out)) {
        drop_in(early); /* so that the server is told */
    }
}

void bt_early_pipe(bt_early *early, bt_flow *flow) {
    early->in = flow;
    bt_flow_on_data(flow, pump, early);
    if (early->out) bt_flow_on_room(early->out, pump, early);
    pump(early);
}

void bt_early_error(bt_early *early, uint32_t status, const char *code, const char *detail_json, const char *text) {
    bt_text body, event;
    bt_error_text(&body, status, code, NULL, text, detail_json);
    bt_text_init(&event, body.n_bytes + 64);
    /* {"error":{...}} with Anthropic's type before it. No line ends within: strings are escaped. */
    bt_text_add(&event, "event: error\ndata: {\"type\":\"error\",");
    if (body.n_bytes > 1) bt_text_add_n(&event, bt_text_str(&body) + 1, body.n_bytes - 1);
    bt_text_add(&event, "\n\n");
    bool made = !body.failed && !event.failed && early->out;
    bool told = made && bt_flow_put(early->out, bt_text_str(&event), event.n_bytes);
    bt_text_done(&event);
    bt_text_done(&body);
    end(early, told); /* else it is broken off, which is an error too */
}
