/* SPDX-License-Identifier: MIT
 *
 * exchange_ask.c: what a server is asked, in libcurl's options.
 *
 * libcurl is a program's client by nature: it adds headers, reads the environment, follows and decodes when it is told
 * to. Here it is a router's: what was given goes out, but for what belongs to the connection, and nothing else. The
 * headers that it would add of itself (Accept, Content-Type of a POST, Expect) are switched off one by one. */
#include "router/exchange_internal.h"

#include "base/error.h"
#include "base/text.h"

#include <arpa/inet.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define METHOD_BYTES_MAX 32u
#define LINE_BYTES_MAX   65536u /* as of a head */
/* A peer that is gone without a word is noticed within two minutes: one minute of silence, then some probes. */
#define KEEPALIVE_IDLE_S  60L
#define KEEPALIVE_EVERY_S 15L

static bt_status refused(bt_error *err) {
    return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_NONE, 0, 0, "no memory for an exchange");
}

/* ---- the place ---- */

static bool is_ascii(const char *s) {
    while (*s > 0)
        s++;
    return *s == '\0';
}

static bool read_place(CURLU *u, bt_url_place *ret) {
    char *host = NULL, *port = NULL, *scheme = NULL;
    bool good = curl_url_get(u, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
                curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
                curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0) && strlen(host) < sizeof ret->host &&
                is_ascii(host) && strchr(host, ',') == NULL;
    if (good) {
        struct in_addr four;
        *ret = (bt_url_place){.numeric = host[0] == '[' || inet_pton(AF_INET, host, &four) == 1};
        (void)snprintf(ret->host, sizeof ret->host, "%s", host);
        for (const char *p = port; *p >= '0' && *p <= '9'; p++)
            ret->port = (uint16_t)(ret->port * 10 + (*p - '0')); /* libcurl has looked that it is one */
    }
    curl_free(host);
    curl_free(port);
    curl_free(scheme);
    return good;
}

bt_status bt_url_place_find(const char *url, bt_url_place *ret, bt_error *err) {
    CURLU *u = curl_url();
    if (!u) return refused(err);
    uint64_t n_refused = bt_client_refused();
    bool good = curl_url_set(u, CURLUPART_URL, url, CURLU_PATH_AS_IS) == CURLUE_OK && read_place(u, ret);
    curl_url_cleanup(u);
    if (good) return BT_OK;
    if (bt_client_refused() > n_refused) return refused(err);
    /* Not quoted: it may hold a password, or what a client has written. */
    return bt_fail(err, BT_E_ARG, "exchange", BT_MEASURE_NONE, 0, 0,
                   "no http or https URL that a server can be asked by");
}

uint64_t bt_url_place_key(const bt_url_place *place) {
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a, 64 bits */
    for (const char *p = place->host; *p; p++) {
        unsigned char c = (unsigned char)*p;
        hash = (hash ^ (c >= 'A' && c <= 'Z' ? c + 32u : c)) * UINT64_C(1099511628211);
    }
    return (hash ^ place->port) * UINT64_C(1099511628211);
}

bool bt_exchange_set_addresses(bt_exchange *e, const char *addresses) {
    char line[BT_RESOLVE_HOST_BYTES + BT_RESOLVE_ADDRESSES_BYTES + 16];
    char host[BT_RESOLVE_HOST_BYTES];
    (void)snprintf(host, sizeof host, "%s", e->place.host);
    size_t n = strlen(host);
    if (n > 1 && host[n - 1] == '.') host[n - 1] = '\0'; /* libcurl looks for it without the root's dot */
    (void)snprintf(line, sizeof line, "%s:%u:%s", host, e->place.port, addresses);
    e->resolve = curl_slist_append(NULL, line);
    return e->resolve && curl_easy_setopt(e->easy, CURLOPT_RESOLVE, e->resolve) == CURLE_OK;
}

/* ---- headers ---- */

static bool add_line(bt_exchange *e, const char *line) {
    struct curl_slist *longer = curl_slist_append(e->headers, line);
    if (longer) e->headers = longer;
    return longer != NULL;
}

static bool has_header(const bt_exchange_ask *ask, const char *name) {
    for (uint32_t i = 0; i < ask->n_headers; i++)
        if (strcasecmp(ask->headers[i].name, name) == 0) return true;
    return false;
}

static bool is_sent(const bt_exchange_ask *ask, const char *name) {
    return !bt_header_is_hop(name) && strcasecmp(name, "host") != 0 && strcasecmp(name, "content-length") != 0 &&
           !bt_header_is_named(ask->headers, ask->n_headers, name);
}

static bt_status set_headers(bt_exchange *e, const bt_exchange_ask *ask, bt_error *err) {
    bt_text line;
    bt_text_init(&line, LINE_BYTES_MAX);
    bool added = true;
    for (uint32_t i = 0; i < ask->n_headers && added; i++) {
        const bt_header *h = &ask->headers[i];
        if (!bt_header_is_valid(h->name, strlen(h->name), h->value, strlen(h->value))) {
            bt_text_done(&line);
            return bt_fail(err, BT_E_ARG, "exchange", BT_MEASURE_NONE, 0, 0, "'%.100s' is no header that can be sent",
                           h->name);
        }
        if (!is_sent(ask, h->name)) continue;
        bt_text_clear(&line);
        const char *value = h->value + strspn(h->value, " \t");
        /* libcurl's way to say a header without a value */
        bt_text_addf(&line, *value ? "%s: %s" : "%s;", h->name, value);
        added = !line.failed && add_line(e, bt_text_str(&line));
    }
    bool too_long = line.failed && !line.refused;
    bt_text_done(&line);
    added = added && add_line(e, "Expect:") && (has_header(ask, "accept") || add_line(e, "Accept:")) &&
            (has_header(ask, "content-type") || add_line(e, "Content-Type:"));
    if (!added && too_long)
        return bt_fail(err, BT_E_ARG, "exchange", BT_MEASURE_BYTES, 0, LINE_BYTES_MAX, "a header is too long");
    if (!added || curl_easy_setopt(e->easy, CURLOPT_HTTPHEADER, e->headers) != CURLE_OK) return refused(err);
    return BT_OK;
}

/* ---- method and body ---- */

static bool has_body(const bt_exchange_ask *ask) {
    static const char *const always[] = {"POST", "PUT", "PATCH"};
    return ask->n_body > 0 || bt_is_among(ask->method, always, sizeof always / sizeof *always);
}

static bt_status set_method(bt_exchange *e, const bt_exchange_ask *ask, bt_error *err) {
    size_t n = strlen(ask->method);
    if (n > METHOD_BYTES_MAX || !bt_header_is_valid(ask->method, n, "", 0) || strcmp(ask->method, "CONNECT") == 0)
        return bt_fail(err, BT_E_ARG, "exchange", BT_MEASURE_NONE, 0, 0, "'%.40s' is no method of a request",
                       ask->method);
    e->is_head = strcmp(ask->method, "HEAD") == 0;
    CURLcode code = CURLE_OK;
    if (e->is_head) {
        code = curl_easy_setopt(e->easy, CURLOPT_NOBODY, 1L);
    } else {
        if (has_body(ask)) {
            code = curl_easy_setopt(e->easy, CURLOPT_POST, 1L);
            if (!code) code = curl_easy_setopt(e->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)ask->n_body);
            if (!code && ask->n_body == 0) code = curl_easy_setopt(e->easy, CURLOPT_POSTFIELDS, "");
        }
        if (!code) code = curl_easy_setopt(e->easy, CURLOPT_CUSTOMREQUEST, ask->method);
    }
    return code == CURLE_OK ? BT_OK : refused(err);
}

/* ---- all of it ---- */

static CURLcode set_functions(bt_exchange *e) {
    CURL *h = e->easy;
    CURLcode code = curl_easy_setopt(h, CURLOPT_PRIVATE, e);
    if (!code) code = curl_easy_setopt(h, CURLOPT_ERRORBUFFER, e->curl_words);
    if (!code) code = curl_easy_setopt(h, CURLOPT_READFUNCTION, bt_exchange_send);
    if (!code) code = curl_easy_setopt(h, CURLOPT_READDATA, e);
    if (!code) code = curl_easy_setopt(h, CURLOPT_SEEKFUNCTION, bt_exchange_seek);
    if (!code) code = curl_easy_setopt(h, CURLOPT_SEEKDATA, e);
    if (!code) code = curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, bt_exchange_take_line);
    if (!code) code = curl_easy_setopt(h, CURLOPT_HEADERDATA, e);
    if (!code) code = curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, bt_exchange_take_body);
    if (!code) code = curl_easy_setopt(h, CURLOPT_WRITEDATA, e);
    if (!code) code = curl_easy_setopt(h, CURLOPT_OPENSOCKETFUNCTION, bt_client_open_socket);
    if (!code) code = curl_easy_setopt(h, CURLOPT_OPENSOCKETDATA, e);
    /* The connection outlives the exchange. */
    if (!code) code = curl_easy_setopt(h, CURLOPT_CLOSESOCKETFUNCTION, bt_client_close_socket);
    if (!code) code = curl_easy_setopt(h, CURLOPT_CLOSESOCKETDATA, e->client);
    return code;
}

static CURLcode set_manners(bt_exchange *e, const char *url) {
    CURL *h = e->easy;
    /* 0 is libcurl's word for five minutes, and int the widest it takes everywhere. */
    uint64_t connect_ms = e->connect_timeout_ms;
    long ms = connect_ms == 0 || connect_ms > INT_MAX ? INT_MAX : (long)connect_ms;
    CURLcode code = curl_easy_setopt(h, CURLOPT_URL, url);
    if (!code) code = curl_easy_setopt(h, CURLOPT_PATH_AS_IS, 1L);
    if (!code) code = curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
    if (!code) code = curl_easy_setopt(h, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    if (!code) code = curl_easy_setopt(h, CURLOPT_PROXY, "");
    if (!code) code = curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    if (!code) code = curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 0L);
    if (!code) code = curl_easy_setopt(h, CURLOPT_BUFFERSIZE, BT_CLIENT_BUFFER_BYTES);
    if (!code) code = curl_easy_setopt(h, CURLOPT_UPLOAD_BUFFERSIZE, BT_CLIENT_BUFFER_BYTES);
    if (!code) code = curl_easy_setopt(h, CURLOPT_TCP_NODELAY, 1L);
    if (!code) code = curl_easy_setopt(h, CURLOPT_TCP_KEEPALIVE, 1L);
    if (!code) code = curl_easy_setopt(h, CURLOPT_TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    if (!code) code = curl_easy_setopt(h, CURLOPT_TCP_KEEPINTVL, KEEPALIVE_EVERY_S);
    if (!code) code = curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, ms);
    return code;
}

bt_status bt_exchange_prepare(bt_exchange *e, const bt_exchange_ask *ask, bt_error *err) {
    BT_TRY(bt_url_place_find(ask->url, &e->place, err));
    e->key = bt_url_place_key(&e->place);
    e->easy = bt_client_take_handle(e->client);
    if (!e->easy) return refused(err);
    if (set_functions(e) != CURLE_OK || set_manners(e, ask->url) != CURLE_OK) return refused(err);
    BT_TRY(set_method(e, ask, err));
    return set_headers(e, ask, err);
}
