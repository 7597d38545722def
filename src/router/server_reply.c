/* SPDX-License-Identifier: MIT
 * server_reply.c: how a request is answered.
 *
 * An answer is made at once, whoever calls, and handed to the library only from the library's own calls: so no reply
 * call can end the request under its caller's feet. An answer that comes from a flow is read piece by piece, as much as
 * the connection takes; a flow that is empty suspends the connection, and its next bytes resume it. Nothing is copied
 * beside the library's buffer of one connection, and nothing is read that cannot be sent: a client that does not read
 * fills its flow, and the flow holds its producer back.
 *
 * Every piece goes out when it comes: the library sets TCP_NODELAY and ends each piece without MSG_MORE. Only the head
 * of an answer waits for its body; when that is not there, setting TCP_NODELAY again pushes it out.
 *
 * What a server behind us says of connections, lengths and CORS is left out: those are ours. When memory is refused the
 * answer is one that needs none. A second reply, and one to a client that has left, is dropped. */
#include "base/heap.h"
#include "base/text.h"
#include "router/server_parts.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#define MESSAGE_MAX    1024u
#define ERROR_JSON_MAX 65536u
#define BLOCK_BYTES    16384u /* of an answer of known length: one TLS record (RFC 8446, 5.1) */
#define EXTRA_MAX      6u

static bool takes_answer(const bt_request *request) {
    return !request->answered && !request->gone;
}

/* ---- headers ---- */

/* Of the answer's maker: whether a header of this name is left to us. */
static bool is_ours(const char *name) {
    static const char *const names[] = {"Connection",        "Content-Length", "Keep-Alive", "Proxy-Authenticate",
                                        "Transfer-Encoding", "Trailer",        "Upgrade"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcasecmp(name, names[i]) == 0) return true;
    return strncasecmp(name, "Access-Control-", 15) == 0;
}

static bool is_clean(const char *text) {
    for (; *text; text++)
        if (((unsigned char)*text < ' ' && *text != '\t') || *text == 127) return false;
    return true;
}

/* false: memory was refused. What no header can be is left out. */
static bool add_header(struct MHD_Response *response, const char *name, const char *value) {
    if (!*name || !*value || !is_clean(name) || !is_clean(value) || strpbrk(name, " \t:")) return true;
    /* The library takes no tab; within a value any white space is the same (RFC 9110, 5.5). */
    if (strchr(value, '\t')) return true;
    return MHD_add_response_header(response, name, value) == MHD_YES;
}

static bool add_headers(struct MHD_Response *response, const bt_header *headers, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (!is_ours(headers[i].name) && !add_header(response, headers[i].name, headers[i].value)) return false;
    return true;
}

/* CORS, and the end of the connection where the server ends. */
static bool add_own_headers(const bt_request *request, struct MHD_Response *response) {
    const bt_config *config = request->server->config;
    bool added = true;
    if (request->cors_origin) added = add_header(response, "Access-Control-Allow-Origin", request->cors_origin);
    if (config->n_cors_origins) added = added && add_header(response, "Vary", "Origin");
    if (request->cors_origin) added = added && add_header(response, "Access-Control-Expose-Headers", "*");
    if (request->server->draining) added = added && add_header(response, "Connection", "close");
    return added;
}

/* ---- answers ---- */

static void answered(bt_request *request, uint32_t status, struct MHD_Response *response) {
    request->answered = true;
    request->status = status;
    request->response = response;
    request->broken |= !response;
    bt_request_resume(request);
}

static void answer_without_memory(bt_request *request) {
    static char json[] = "{\"error\":{\"message\":\"Memory was refused for the answer.\",\"type\":\"server_error\","
                         "\"code\":\"memory\",\"param\":null}}"; /* the library wants it writable, and writes nothing */
    struct MHD_Response *response = MHD_create_response_from_buffer(sizeof json - 1, json, MHD_RESPMEM_PERSISTENT);
    if (response) (void)MHD_add_response_header(response, "Content-Type", "application/json");
    request->n_answer = sizeof json - 1;
    answered(request, 500, response);
}

/* answer: heap, the request's from here on. */
static void answer_with(bt_request *request, uint32_t status, const char *content_type, char *answer, size_t n_answer,
                        const bt_header *headers, uint32_t n_headers) {
    request->answer = answer;
    request->n_answer = n_answer;
    struct MHD_Response *response = MHD_create_response_from_buffer(n_answer, answer, MHD_RESPMEM_PERSISTENT);
    bool made = response && add_headers(response, headers, n_headers) && add_own_headers(request, response);
    if (made && content_type) made = add_header(response, "Content-Type", content_type);
    if (made) {
        answered(request, status, response);
        return;
    }
    if (response) MHD_destroy_response(response);
    answer_without_memory(request);
}

void bt_reply(bt_request *request, uint32_t status, const char *content_type, const char *data, size_t n_bytes,
              const bt_header *headers, uint32_t n_headers) {
    if (!takes_answer(request)) return;
    char *answer = n_bytes < SIZE_MAX ? bt_heap_alloc(n_bytes + 1) : NULL;
    if (!answer) {
        answer_without_memory(request);
        return;
    }
    if (n_bytes) memcpy(answer, data, n_bytes);
    answer_with(request, status, content_type, answer, n_bytes, headers, n_headers);
}

void bt_reply_json(bt_request *request, uint32_t status, const char *json) {
    bt_reply(request, status, "application/json; charset=utf-8", json, strlen(json), NULL, 0);
}

/* ---- errors ---- */

/* The names of llama.cpp's server and of OpenAI, where they have one. */
static const char *error_type(uint32_t status) {
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    case 501:
        return "not_supported_error";
    case 503:
        return "unavailable_error";
    default:
        return status < 500 ? "invalid_request_error" : "server_error";
    }
}

static void add_json_string(bt_text *out, const char *text) {
    size_t left = strlen(text);
    bt_text_add(out, "\"");
    while (left > 0) {
        size_t n = bt_utf8_length(text, left);
        unsigned char c = (unsigned char)*text;
        if (n == 0)
            bt_text_add(out, "?"); /* no character at all */
        else if (c < ' ' || c == 127)
            bt_text_addf(out, "\\u%04x", (unsigned)c);
        else if (c == '"' || c == '\\')
            bt_text_addf(out, "\\%c", c);
        else
            bt_text_add_n(out, text, n);
        text += n ? n : 1;
        left -= n ? n : 1;
    }
    bt_text_add(out, "\"");
}

/* The members of an object as text, without its braces. */
static void add_members(bt_text *out, const char *json) {
    const char *begin = json ? strchr(json, '{') : NULL, *end = begin ? strrchr(begin, '}') : NULL;
    if (!end) return;
    begin++;
    if (strspn(begin, " \t\r\n") >= (size_t)(end - begin)) return;
    bt_text_add(out, ",");
    bt_text_add_n(out, begin, (size_t)(end - begin));
}

void bt_error_text(bt_text *out, uint32_t status, const char *code, const char *param, const char *message,
                   const char *detail_json) {
    bt_text_init(out, ERROR_JSON_MAX);
    bt_text_add(out, "{\"error\":{\"message\":");
    add_json_string(out, message);
    bt_text_addf(out, ",\"type\":\"%s\",\"code\":", error_type(status));
    add_json_string(out, code);
    bt_text_add(out, ",\"param\":");
    if (param)
        add_json_string(out, param);
    else
        bt_text_add(out, "null");
    add_members(out, detail_json);
    bt_text_add(out, "}}");
}

static void reply_error(bt_request *request, uint32_t status, const char *code, const char *param,
                        uint32_t retry_after_s, const char *detail_json, const char *message) {
    if (!takes_answer(request)) return;
    bt_text text;
    bt_error_text(&text, status, code, param, message, detail_json);
    if (text.failed) {
        bt_text_done(&text);
        answer_without_memory(request);
        return;
    }
    bt_header headers[EXTRA_MAX];
    uint32_t n = 0;
    char seconds[16];
    if (retry_after_s) {
        (void)snprintf(seconds, sizeof seconds, "%u", retry_after_s);
        headers[n++] = (bt_header){"Retry-After", seconds};
    }
    if (status == 401) {
        headers[n++] = (bt_header){"WWW-Authenticate", "Bearer realm=\"burthen\""};
        headers[n++] = (bt_header){"WWW-Authenticate", "Basic realm=\"burthen\", charset=\"UTF-8\""};
    }
    answer_with(request, status, "application/json; charset=utf-8", text.data, text.n_bytes, headers, n);
}

void bt_reply_error(bt_request *request, uint32_t status, const char *code, const char *param, uint32_t retry_after_s,
                    const char *detail_json, const char *fmt, ...) {
    char message[MESSAGE_MAX];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    message[bt_utf8_fit(message, strlen(message))] = 0;
    reply_error(request, status, code, param, retry_after_s, detail_json, message);
}

void bt_reply_refuse(bt_request *request, uint32_t status, const char *code, const char *fmt, ...) {
    char message[MESSAGE_MAX];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    message[bt_utf8_fit(message, strlen(message))] = 0;
    request->server->n_refused++;
    reply_error(request, status, code, NULL, status == 503 ? 1 : 0, NULL, message);
}

void bt_reply_preflight(bt_request *request) {
    static const char methods[] = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
    const char *asked = bt_request_header(request, "Access-Control-Request-Headers");
    struct MHD_Response *response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    bool made = response && add_header(response, "Allow", methods) && add_own_headers(request, response);
    if (request->cors_origin) {
        made = made && add_header(response, "Access-Control-Allow-Methods", methods) &&
               add_header(response, "Access-Control-Allow-Headers", asked ? asked : "Authorization, Content-Type") &&
               add_header(response, "Access-Control-Max-Age", "600");
    }
    if (!made && response) {
        MHD_destroy_response(response);
        response = NULL;
    }
    answered(request, 204, response);
}

/* ---- flows ---- */

/* The head of an answer whose body is not there yet has been sent with MSG_MORE: out with it. */
static void flush_head(bt_request *request) {
    int on = 1;
    if (!request->flushed) (void)setsockopt(request->watch.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    request->flushed = true;
}

static ssize_t read_flow(void *cls, uint64_t position, char *dest, size_t capacity) {
    bt_request *request = cls;
    (void)position;
    if (request->gone) return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t n = bt_flow_take(request->flow, dest, capacity);
    if (n) {
        request->sent_bytes += n;
        return (ssize_t)n;
    }
    if (!bt_flow_ended(request->flow)) {
        flush_head(request);
        bt_request_suspend(request);
        return 0;
    }
    /* An answer of known length that ends before it is no whole one, whatever its producer thinks. */
    bool whole = bt_flow_whole(request->flow) && !request->sized;
    request->broken |= !whole;
    return whole ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
}

static void on_data(void *user) {
    bt_request_resume(user);
}

static const char *find_header(const bt_header *headers, uint32_t n, const char *name) {
    for (uint32_t i = 0; i < n; i++)
        if (strcasecmp(headers[i].name, name) == 0) return headers[i].value;
    return NULL;
}

static bool head_fits(const bt_header *headers, uint32_t n) {
    size_t left = BT_SERVER_HEAD_MAX;
    for (uint32_t i = 0; i < n; i++) {
        size_t length = strlen(headers[i].name) + strlen(headers[i].value) + 4;
        if (length > left) return false;
        left -= length;
    }
    return true;
}

/* What keeps proxies in front of us from collecting a stream, where its maker did not say. */
static bool add_stream_headers(struct MHD_Response *response, const bt_header *headers, uint32_t n) {
    const char *type = find_header(headers, n, "Content-Type");
    if (!type || strncasecmp(type, "text/event-stream", 17) != 0) return true;
    bool added = true;
    if (!find_header(headers, n, "Cache-Control")) added = add_header(response, "Cache-Control", "no-cache");
    if (!find_header(headers, n, "X-Accel-Buffering")) added = added && add_header(response, "X-Accel-Buffering", "no");
    return added;
}

void bt_reply_flow(bt_request *request, uint32_t status, const bt_header *headers, uint32_t n_headers, bt_known n_bytes,
                   bt_flow *flow) {
    if (!takes_answer(request)) {
        bt_flow_drop_consumer(flow);
        return;
    }
    if (status < 200 || status > 599 || !head_fits(headers, n_headers)) {
        bt_flow_drop_consumer(flow);
        reply_error(request, 502, "upstream", NULL, 0, NULL,
                    "The server's answer has a head that cannot be passed on.");
        return;
    }
    uint64_t size = n_bytes.known ? n_bytes.value : MHD_SIZE_UNKNOWN;
    struct MHD_Response *response = MHD_create_response_from_callback(size, BLOCK_BYTES, read_flow, request, NULL);
    bool made = response && add_headers(response, headers, n_headers) && add_own_headers(request, response) &&
                add_stream_headers(response, headers, n_headers);
    if (!made) {
        if (response) MHD_destroy_response(response);
        bt_flow_drop_consumer(flow);
        answer_without_memory(request);
        return;
    }
    request->flow = flow;
    request->sized = n_bytes.known;
    bt_flow_on_data(flow, on_data, request);
    answered(request, status, response);
}

enum MHD_Result bt_reply_queue(bt_request *request) {
    struct MHD_Response *response = request->response;
    if (!response) return MHD_NO;
    request->response = NULL;
    request->queued = true;
    enum MHD_Result queued = MHD_queue_response(request->connection, request->status, response);
    MHD_destroy_response(response); /* the library has its own reference now */
    return queued;
}
