/* SPDX-License-Identifier: MIT
 * server_check.c: what is decided when a request's head is there, before any of its body is taken.
 *
 * In this order, so that nobody learns more than he may: is it one request and not two (400), does it know the name of
 * this server (403 "host"), may the page that asks change anything (403 "origin"), is the key right (401), does the
 * server take requests (503 "draining"), is there room for what is announced (413, 503 "bodies"). A request of a page
 * from elsewhere that changes nothing (GET, HEAD) is answered without CORS headers: the browser shows the page nothing.
 * OPTIONS is answered here, without a key: a browser asks it before it may send one. */
#include "router/server_access.h"
#include "router/server_parts.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* What a request may have once at most. */
typedef struct framing {
    uint32_t n_host, n_length, n_encoding;
    bool chunked;
} framing;

static enum MHD_Result count_header(void *cls, enum MHD_ValueKind kind, const char *name, const char *value) {
    framing *found = cls;
    (void)kind;
    if (strcasecmp(name, "Host") == 0) found->n_host++;
    if (strcasecmp(name, "Content-Length") == 0) found->n_length++;
    if (strcasecmp(name, "Transfer-Encoding") == 0) {
        found->n_encoding++;
        found->chunked = value && strcasecmp(value, "chunked") == 0;
    }
    return MHD_YES;
}

/* A proxy before us and we must see the same requests: what can be read in two ways is not read (RFC 9112, 6.3). */
static bool framing_ok(bt_request *request, const char *version) {
    framing found = {0};
    (void)MHD_get_connection_values(request->connection, MHD_HEADER_KIND, count_header, &found);
    bool old = strcmp(version, "HTTP/1.0") == 0;
    const char *wrong = NULL;
    if (found.n_host > 1 || (found.n_host == 0 && !old)) wrong = "The request must have one Host header.";
    if (found.n_length > 1 || found.n_encoding > 1 || (found.n_length && found.n_encoding))
        wrong = "The request says more than once how long it is.";
    if (found.n_encoding && (!found.chunked || old)) wrong = "The request's Transfer-Encoding is not \"chunked\".";
    const char *length = found.n_length ? bt_request_header(request, "Content-Length") : NULL;
    if (length) request->announced_bytes = (bt_known){.known = true, .value = strtoull(length, NULL, 10)};
    request->uploads = found.n_encoding > 0 || (length && request->announced_bytes.value > 0);
    if (wrong) bt_reply_refuse(request, 400, "request", "%s", wrong);
    return !wrong;
}

static bool is_reading(const char *method) {
    return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0 || strcmp(method, "OPTIONS") == 0;
}

/* Whether the page that asks may; what it may read is noted in the request. */
static bool origin_ok(bt_request *request, const char *host) {
    const char *origin = bt_request_header(request, "Origin");
    const char *asked = NULL;
    switch (bt_access_origin_find(request->server->config, origin, host)) {
    case BT_ORIGIN_NONE:
        return true;
    case BT_ORIGIN_SAME:
    case BT_ORIGIN_LISTED:
        request->cors_origin = origin;
        return true;
    case BT_ORIGIN_ANY:
        request->cors_origin = "*";
        return true;
    case BT_ORIGIN_FOREIGN:
        break;
    }
    asked = bt_request_header(request, "Access-Control-Request-Method");
    if (is_reading(request->method) && !asked) return true;
    bt_reply_refuse(request, 403, "origin", "Pages of %.200s may not ask this server: cors_origins does not name it.",
                    origin);
    return false;
}

/* A picture or a link of another page has no Origin; browsers say all the same whose page it is. */
bool bt_request_is_foreign(const bt_request *request) {
    if (request->cors_origin) return false;
    const char *site = bt_request_header(request, "Sec-Fetch-Site");
    if (site && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0) return true;
    return bt_request_header(request, "Origin") != NULL;
}

static bool key_ok(bt_request *request) {
    const bt_server_ask *ask = &request->server->ask;
    if (ask->is_open && ask->is_open(ask->user, request->method, request->target.path)) return true;
    if (bt_access_key(request->server->config, bt_request_header(request, "Authorization"),
                      bt_request_header(request, "x-api-key")))
        return true;
    bt_reply_refuse(request, 401, "api_key", "An API key is needed: Authorization: Bearer KEY.");
    return false;
}

static bool size_ok(bt_request *request) {
    const bt_config_limits *limits = &request->server->config->limits;
    if (!request->announced_bytes.known) return true;
    uint64_t announced = request->announced_bytes.value;
    if (announced > limits->request_bytes) {
        bt_reply_refuse(request, 413, "body_size", "The request's body has %llu bytes; the limit is %llu.",
                        (unsigned long long)announced, (unsigned long long)limits->request_bytes);
        return false;
    }
    uint64_t bodies_bytes = bt_config_bodies_bytes(request->server->config);
    if (request->server->bodies_bytes < bodies_bytes && announced <= bodies_bytes - request->server->bodies_bytes)
        return true;
    if (announced == 0) return true;
    bt_reply_refuse(request, 503, "bodies", "The requests that are held take all of %llu bytes: try again later.",
                    (unsigned long long)bodies_bytes);
    return false;
}

void bt_request_check(bt_request *request, const char *version) {
    const bt_server *server = request->server;
    if (request->answered || !framing_ok(request, version)) return;
    const char *host = bt_request_header(request, "Host");
    if (request->target.authority[0]) host = request->target.authority;
    if (!bt_access_host(server->config, host, server->listen.host)) {
        bt_reply_refuse(request, 403, "host", "This server is not known as \"%.200s\": allowed_hosts does not name it.",
                        host ? host : "");
        return;
    }
    if (!origin_ok(request, host)) return;
    if (strcmp(request->method, "OPTIONS") == 0) {
        bt_reply_preflight(request);
        return;
    }
    if (!key_ok(request)) return;
    if (server->draining) {
        bt_reply_refuse(request, 503, "draining", "The server is ending.");
        return;
    }
    (void)size_ok(request);
}
