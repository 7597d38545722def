/* SPDX-License-Identifier: MIT
 *
 * call_body.c: the few members of a request's body that the router must know: for which model it is, whether its answer
 * is a stream, and how much it makes the server hold a token.
 *
 * JSON is looked through where it lies (json_scan.c); no tree is made of it. Of a form (transcriptions, edits of
 * pictures) only the part named "model" is looked for, as its boundary separates it (RFC 7578): the rest may be
 * megabytes of sound. */
#include "router/routing.h"

#include "base/error.h"
#include "base/size.h"
#include "router/json_scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define BOUNDARY_MAX 70u /* RFC 2046, section 5.1.1 */

/* ---- JSON ---- */

/* A number that is written with a point or an exponent is one to servers, too. true, false: of another API. */
static uint64_t count_of(bt_scan_span value) {
    char text[64];
    char *end = NULL;
    if (value.n == 0 || value.n >= sizeof text) return 0;
    memcpy(text, value.at, value.n);
    text[value.n] = '\0';
    if (strspn(text, "+-.0123456789eE") != value.n) return 0;
    double number = strtod(text, &end);
    if (end == text || !(number > 0)) return 0;
    if (number >= 1e15) return UINT64_MAX;
    return (uint64_t)number + ((double)(uint64_t)number < number);
}

static bt_status not_an_object(bt_error *err) {
    return bt_fail(err, BT_E_FORMAT, "body", BT_MEASURE_NONE, 0, 0, "the body is no JSON object");
}

/* Of two members of one name the last counts, as it does to llama-server. */
static bt_status read_json(const char *body, size_t n_body, bt_call_body *ret, bt_error *err) {
    static const char *const counts[] = {"n_probs", "logprobs", "top_logprobs"};
    bt_scan scan;
    bt_scan_member member;
    bool fits = true;
    int got = bt_scan_start(&scan, body, n_body) ? bt_scan_next(&scan, &member) : -1;
    ret->is_json = true;
    for (; got == 1; got = bt_scan_next(&scan, &member)) {
        if (!member.named) continue;
        if (strcmp(member.name, "model") == 0) {
            bool given = member.value.at[0] == '"';
            fits = !given || bt_scan_text(member.value, ret->model, sizeof ret->model);
            if (!given || !fits) ret->model[0] = '\0';
        }
        if (strcmp(member.name, "stream") == 0)
            ret->streams = member.value.n == 4 && memcmp(member.value.at, "true", 4) == 0;
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            if (strcmp(member.name, counts[i]) == 0) ret->n_probs = bt_max_u64(ret->n_probs, count_of(member.value));
    }
    if (got < 0 || !bt_scan_at_end(&scan)) return not_an_object(err);
    if (!fits) return bt_fail(err, BT_E_FORMAT, "body", BT_MEASURE_NONE, 0, 0, "the name of the model is too long");
    return BT_OK;
}

/* ---- forms ---- */

/* The next place of a line "--boundary"; n_body: none. */
static size_t find_boundary(const char *body, size_t n_body, size_t from, const char *boundary, size_t n_boundary) {
    while (from + n_boundary <= n_body) {
        const char *at = memmem(body + from, n_body - from, boundary, n_boundary);
        if (!at) return n_body;
        size_t offset = (size_t)(at - body);
        if (offset == 0 || at[-1] == '\n') return offset;
        from = offset + 1;
    }
    return n_body;
}

static bool is_model_part(const char *head, size_t n_head) {
    static const char quoted[] = "name=\"model\"";
    return memmem(head, n_head, quoted, sizeof quoted - 1) != NULL;
}

static void read_part(const char *part, size_t n_part, bt_call_body *ret) {
    const char *blank = memmem(part, n_part, "\r\n\r\n", 4);
    if (!blank || !is_model_part(part, (size_t)(blank - part))) return;
    const char *value = blank + 4;
    size_t n = n_part - (size_t)(value - part);
    while (n > 0 && (value[n - 1] == '\n' || value[n - 1] == '\r'))
        n--;
    if (n < sizeof ret->model && memchr(value, 0, n) == NULL)
        (void)snprintf(ret->model, sizeof ret->model, "%.*s", (int)n, value);
}

static bt_status read_form(const char *content_type, const char *body, size_t n_body, bt_call_body *ret,
                           bt_error *err) {
    char boundary[BOUNDARY_MAX + 3] = "--";
    const char *given = strcasestr(content_type, "boundary=");
    if (!given) return bt_fail(err, BT_E_FORMAT, "body", BT_MEASURE_NONE, 0, 0, "the form has no boundary");
    given += sizeof "boundary=" - 1;
    bool quoted = *given == '"';
    given += quoted ? 1 : 0;
    size_t n = strcspn(given, quoted ? "\"" : " ;,\t");
    if (n == 0 || n > BOUNDARY_MAX)
        return bt_fail(err, BT_E_FORMAT, "body", BT_MEASURE_NONE, 0, 0, "the form's boundary cannot be used");
    (void)snprintf(boundary + 2, sizeof boundary - 2, "%.*s", (int)n, given);
    size_t n_boundary = n + 2;
    size_t at = find_boundary(body, n_body, 0, boundary, n_boundary);
    while (at < n_body && ret->model[0] == '\0') {
        size_t next = find_boundary(body, n_body, at + n_boundary, boundary, n_boundary);
        read_part(body + at, next - at, ret);
        at = next;
    }
    return BT_OK;
}

bt_status bt_call_body_read(const char *content_type, const char *body, size_t n_body, bt_call_body *ret,
                            bt_error *err) {
    *ret = (bt_call_body){0};
    if (content_type && strncasecmp(content_type, "multipart/form-data", 19) == 0)
        return read_form(content_type, body, n_body, ret, err);
    return read_json(body, n_body, ret, err);
}
