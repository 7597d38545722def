/* SPDX-License-Identifier: MIT
 *
 * exchange_words.c: how an exchange ended, and a sentence that says so to a person.
 *
 * The sentence names what was seen (the place, how many bytes had come), not libcurl's function that saw it. libcurl
 * calls an answer complete whose head was cut short by the connection's end: that it was not handed over says more. */
#include "router/exchange_internal.h"

#include <stdio.h>
#include <string.h>

/* CURLE_TOO_LARGE, since 8.6: what we run with may be newer than what we were built with. */
#define TOO_LARGE 100

static bt_exchange_failure connect_words(bt_exchange *e) {
    long sys = 0;
    (void)curl_easy_getinfo(e->easy, CURLINFO_OS_ERRNO, &sys);
    (void)snprintf(e->words, sizeof e->words, "no connection to %s:%u%s%s", e->place.host, e->place.port,
                   sys ? ": " : "", sys ? strerror((int)sys) : "");
    return BT_EXCHANGE_CONNECT;
}

static bt_exchange_failure broken_words(bt_exchange *e, CURLcode code) {
    const char *how = code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR ? "broke off" : "closed";
    if (!e->headed) {
        if (e->head.n_seen > 0)
            (void)snprintf(e->words, sizeof e->words,
                           "the server %s the connection in the head of its answer, after %llu bytes", how,
                           (unsigned long long)e->head.n_seen);
        else
            (void)snprintf(e->words, sizeof e->words, "the server %s the connection before it answered", how);
        return BT_EXCHANGE_CONNECT;
    }
    int n = snprintf(e->words, sizeof e->words, "the server %s the connection after %llu bytes", how,
                     (unsigned long long)e->got_bytes);
    if (e->length.known)
        (void)snprintf(e->words + n, sizeof e->words - (size_t)n, " of %llu", (unsigned long long)e->length.value);
    return BT_EXCHANGE_BROKEN;
}

static bt_exchange_failure memory_words(bt_exchange *e) {
    (void)snprintf(e->words, sizeof e->words, "memory was refused to the router");
    return BT_EXCHANGE_LOCAL;
}

/* libcurl calls a line that is longer than it holds "out of memory". */
static bt_exchange_failure line_words(bt_exchange *e) {
    if (e->headed) return memory_words(e);
    (void)snprintf(e->words, sizeof e->words, "the head of the server's answer has over %u bytes", BT_HEAD_BYTES_MAX);
    return BT_EXCHANGE_BROKEN;
}

static bt_exchange_failure other_words(bt_exchange *e, CURLcode code) {
    (void)snprintf(e->words, sizeof e->words, "the exchange with the server failed: %s",
                   e->curl_words[0] ? e->curl_words : curl_easy_strerror(code));
    return e->headed ? BT_EXCHANGE_BROKEN : BT_EXCHANGE_CONNECT;
}

bt_exchange_failure bt_exchange_outcome(bt_exchange *e, CURLcode code) {
    if (e->failure != BT_EXCHANGE_OK || e->cancelled) return e->failure;
    if (code != CURLE_OK && bt_client_refused() > e->n_refused) return memory_words(e);
    switch ((int)code) { /* an enum of a hundred */
    case CURLE_OK:
        return e->headed ? BT_EXCHANGE_OK : broken_words(e, code);
    case CURLE_COULDNT_CONNECT:
        return connect_words(e);
    case CURLE_OPERATION_TIMEDOUT:
        (void)snprintf(e->words, sizeof e->words, "no connection to %s:%u within %llu ms", e->place.host, e->place.port,
                       (unsigned long long)e->connect_timeout_ms);
        return BT_EXCHANGE_TIMEOUT;
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
        return broken_words(e, code);
    case CURLE_OUT_OF_MEMORY:
    case TOO_LARGE:
        return line_words(e);
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
        (void)snprintf(e->words, sizeof e->words, "the server's answer is no HTTP/1.1");
        return BT_EXCHANGE_BROKEN;
    default:
        return other_words(e, code);
    }
}
