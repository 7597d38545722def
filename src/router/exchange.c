/* SPDX-License-Identifier: MIT
 *
 * exchange.c: one request to a server behind the router, from its start to its one end.
 *
 * libcurl calls in (body to send, lines of the head, pieces of the answer) and must not be called back for anything
 * that changes its list of transfers. What the owner does from inside of such a call (cancel this or another exchange,
 * start one, make room in the flow) is therefore remembered, and done by a timer of no delay. An exchange that is
 * cancelled meanwhile is dead for libcurl, too: each of its calls fails, and it reads nothing of the body, which its
 * owner may have freed.
 *
 * Pieces go into the flow as they come. When it has no room, the answer is paused: libcurl stops reading, the system's
 * buffers fill, and the server is held back. A flow that is not read any more ends the exchange.
 *
 * The head's time is counted from the start, the connection's with it. A kept connection that its server has closed is
 * replaced before anything of the answer has come, and the body is sent again from its beginning: by libcurl where it
 * finds that out when it reads, here where it does when it sends (7.88 gives up then). */
#include "router/exchange_internal.h"

#include "base/error.h"
#include "base/heap.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void bt_exchange_note(bt_exchange *e, bt_exchange_failure failure, const char *fmt, ...) {
    if (e->failure != BT_EXCHANGE_OK) return;
    e->failure = failure;
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(e->words, sizeof e->words, fmt, args);
    va_end(args);
}

static bool is_dead(const bt_exchange *e) {
    return e->cancelled || e->failure != BT_EXCHANGE_OK;
}

/* ---- called by libcurl ---- */

size_t bt_exchange_send(char *dest, size_t size, size_t n, void *exchange) {
    bt_exchange *e = exchange;
    if (is_dead(e)) return CURL_READFUNC_ABORT;
    size_t bytes = size * n; /* libcurl's own buffer */
    if (bytes > e->n_body - e->n_sent) bytes = e->n_body - e->n_sent;
    if (bytes > 0) memcpy(dest, e->body + e->n_sent, bytes);
    e->n_sent += bytes;
    return bytes;
}

int bt_exchange_seek(void *exchange, curl_off_t offset, int origin) {
    bt_exchange *e = exchange;
    if (is_dead(e) || origin != SEEK_SET || offset < 0 || (uint64_t)offset > e->n_body) return CURL_SEEKFUNC_FAIL;
    e->n_sent = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

static void hand_over_head(bt_exchange *e) {
    bt_exchange_head head;
    bt_loop_timer_stop(e->client->loop, &e->head_timer);
    if (!bt_head_make(&e->head, &head)) {
        bt_exchange_note(e, BT_EXCHANGE_LOCAL, "memory was refused to the router");
        return;
    }
    e->headed = true;
    e->length = head.n_bytes;
    if (e->on_head) e->on_head(e->user, &head);
    bt_head_done(&e->head);
}

size_t bt_exchange_take_line(char *line, size_t size, size_t n, void *exchange) {
    bt_exchange *e = exchange;
    size_t bytes = size * n;
    if (is_dead(e)) return 0;
    if (e->headed) return bytes; /* trailers */
    switch (bt_head_line(&e->head, line, bytes)) {
    case BT_HEAD_DONE:
        hand_over_head(e);
        break;
    case BT_HEAD_BAD:
        bt_exchange_note(e, BT_EXCHANGE_BROKEN, "the server's answer is no HTTP/1.1");
        break;
    case BT_HEAD_LONG:
        bt_exchange_note(e, BT_EXCHANGE_BROKEN, "the head of the server's answer has over %u bytes or %u headers",
                         BT_HEAD_BYTES_MAX, BT_HEAD_HEADERS_MAX);
        break;
    case BT_HEAD_REFUSED:
        bt_exchange_note(e, BT_EXCHANGE_LOCAL, "memory was refused to the router");
        break;
    case BT_HEAD_MORE:
        break;
    }
    return is_dead(e) ? 0 : bytes;
}

size_t bt_exchange_take_body(char *data, size_t size, size_t n, void *exchange) {
    bt_exchange *e = exchange;
    size_t bytes = size * n;
    if (is_dead(e)) return 0;
    if (!bt_flow_is_read(e->flow)) {
        bt_exchange_note(e, BT_EXCHANGE_UNREAD, "nobody takes the answer any more");
        return 0;
    }
    if (!bt_flow_put(e->flow, data, bytes)) {
        if (!bt_flow_failed(e->flow)) {
            e->paused = true;
            return CURL_WRITEFUNC_PAUSE;
        }
        bt_exchange_note(e, BT_EXCHANGE_LOCAL, "memory was refused to the router");
    }
    e->got_bytes += bytes;
    return is_dead(e) ? 0 : bytes;
}

/* ---- the end ---- */

static void unlink_one(bt_exchange *e) {
    if (e->prev)
        e->prev->next = e->next;
    else
        e->client->exchanges = e->next;
    if (e->next) e->next->prev = e->prev;
}

static void take_back(bt_exchange *e) {
    if (!e->added) return;
    e->client->n_inside++;
    (void)curl_multi_remove_handle(e->client->multi, e->easy);
    e->client->n_inside--;
    bt_client_settle(e);
    e->added = false;
}

bool bt_exchange_ask_again(bt_exchange *e, CURLcode code) {
    long n_new = 1;
    bool broke = code == CURLE_SEND_ERROR || code == CURLE_RECV_ERROR || code == CURLE_GOT_NOTHING;
    if (!broke || is_dead(e) || e->again || e->headed || e->head.n_seen > 0) return false;
    if (curl_easy_getinfo(e->easy, CURLINFO_NUM_CONNECTS, &n_new) != CURLE_OK || n_new > 0) return false;
    take_back(e);
    e->again = true;
    e->n_sent = 0;
    e->fd = CURL_SOCKET_BAD;
    e->added = curl_easy_setopt(e->easy, CURLOPT_FRESH_CONNECT, 1L) == CURLE_OK &&
               curl_multi_add_handle(e->client->multi, e->easy) == CURLM_OK;
    return e->added;
}

/* Of one that was prepared, wholly or in part. The flow is not touched. */
static void let_go(bt_exchange *e) {
    bt_client *client = e->client;
    bt_loop_timer_stop(client->loop, &e->head_timer);
    bt_loop_timer_stop(client->loop, &e->later);
    bt_resolve_leave(&e->wait);
    take_back(e);
    bt_client_give_handle(client, e->easy, bt_client_refused() == e->n_refused);
    e->easy = NULL;
    curl_slist_free_all(e->headers);
    curl_slist_free_all(e->resolve);
    e->headers = e->resolve = NULL;
    bt_head_done(&e->head);
}

void bt_exchange_finish(bt_exchange *e, CURLcode code) {
    bt_exchange_failure failure = bt_exchange_outcome(e, code);
    e->ending = true;
    let_go(e);
    bt_flow_on_room(e->flow, NULL, NULL);
    /* Who is told here may cancel: then nobody is told below. */
    bt_flow_end(e->flow, failure == BT_EXCHANGE_OK && !e->cancelled);
    bt_flow_drop_producer(e->flow);
    if (!e->cancelled && e->on_end) e->on_end(e->user, failure, e->words);
    unlink_one(e);
    bt_heap_free(e);
}

void bt_exchange_cancel(bt_exchange *exchange) {
    if (!exchange) return;
    exchange->cancelled = true;
    if (exchange->ending) return;
    if (exchange->client->n_inside == 0)
        bt_exchange_finish(exchange, CURLE_OK);
    else
        bt_loop_timer_set(exchange->client->loop, &exchange->later, 0);
}

/* ---- called by the loop and the flow ---- */

static void on_head_time(void *user) {
    bt_exchange *e = user;
    bt_exchange_note(e, BT_EXCHANGE_TIMEOUT, "the server has not begun to answer within %llu ms",
                     (unsigned long long)e->header_timeout_ms);
    bt_exchange_finish(e, CURLE_OK);
}

static void on_room(void *user) {
    bt_exchange *e = user;
    bt_loop_timer_set(e->client->loop, &e->later, 0);
}

static void resume(bt_exchange *e) {
    uint64_t n_refused = bt_client_refused();
    e->paused = false;
    e->client->n_inside++;
    CURLcode code = curl_easy_pause(e->easy, CURLPAUSE_CONT); /* hands over what it holds */
    e->client->n_inside--;
    if (bt_client_refused() != n_refused) bt_exchange_note(e, BT_EXCHANGE_LOCAL, "memory was refused to the router");
    if (code != CURLE_OK || is_dead(e)) bt_exchange_finish(e, code);
}

static void on_later(void *user) {
    bt_exchange *e = user;
    if (!is_dead(e) && !bt_flow_is_read(e->flow))
        bt_exchange_note(e, BT_EXCHANGE_UNREAD, "nobody takes the answer any more");
    if (is_dead(e)) {
        bt_exchange_finish(e, CURLE_OK);
    } else if (!e->added && !e->wait.head) {
        if (curl_multi_add_handle(e->client->multi, e->easy) == CURLM_OK)
            e->added = true;
        else
            bt_exchange_finish(e, CURLE_OUT_OF_MEMORY);
    } else if (e->paused) {
        resume(e);
    }
}

static void on_resolved(void *user, const char *addresses, const bt_error *err) {
    bt_exchange *e = user;
    if (!addresses)
        bt_exchange_note(e, BT_EXCHANGE_CONNECT, "%s", err->text);
    else if (!bt_exchange_set_addresses(e, addresses))
        bt_exchange_note(e, BT_EXCHANGE_LOCAL, "memory was refused to the router");
    bt_loop_timer_set(e->client->loop, &e->later, 0);
}

/* ---- the start ---- */

/* Where it leads: known, or asked for; then it begins. */
static bt_status find_place(bt_exchange *e, bt_error *err) {
    bt_client *client = e->client;
    if (!e->place.numeric) {
        const char *addresses = bt_resolver_find(client->resolver, e->place.host);
        e->wait.on_done = on_resolved;
        e->wait.user = e;
        if (!addresses) return bt_resolver_wait(client->resolver, e->place.host, &e->wait, err);
        if (!bt_exchange_set_addresses(e, addresses))
            return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_NONE, 0, 0, "no memory for an exchange");
    }
    if (client->n_inside > 0) {
        bt_loop_timer_set(client->loop, &e->later, 0);
        return BT_OK;
    }
    if (curl_multi_add_handle(client->multi, e->easy) != CURLM_OK)
        return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_NONE, 0, 0, "no memory for an exchange");
    e->added = true;
    return BT_OK;
}

bt_status bt_exchange_start(const bt_exchange_ask *ask, bt_exchange **ret, bt_error *err) {
    bt_exchange *e = bt_heap_alloc(sizeof *e);
    if (!e) return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, sizeof *e, 0, "no memory for an exchange");
    e->client = ask->client;
    e->flow = ask->flow;
    e->on_head = ask->on_head;
    e->on_end = ask->on_end;
    e->user = ask->user;
    e->body = ask->body;
    e->n_body = ask->n_body;
    e->connect_timeout_ms = ask->connect_timeout_ms;
    e->header_timeout_ms = ask->header_timeout_ms;
    e->fd = CURL_SOCKET_BAD;
    e->n_refused = bt_client_refused();
    e->head_timer = (bt_timer){.on_time = on_head_time, .user = e};
    e->later = (bt_timer){.on_time = on_later, .user = e};
    bt_status status = bt_exchange_prepare(e, ask, err);
    if (status == BT_OK) status = find_place(e, err);
    if (status != BT_OK) {
        let_go(e);
        bt_heap_free(e);
        return status;
    }
    e->next = e->client->exchanges;
    if (e->next) e->next->prev = e;
    e->client->exchanges = e;
    bt_flow_on_room(e->flow, on_room, e);
    if (e->header_timeout_ms > 0) bt_loop_timer_set(e->client->loop, &e->head_timer, e->header_timeout_ms);
    *ret = e;
    return BT_OK;
}
