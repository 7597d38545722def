/* SPDX-License-Identifier: MIT
 *
 * call_body.c: the few members of a request's body that the router must know: for which model it is, whether its answer
 * is a stream, and how much it makes the server hold a token.
 *
 * JSON is read whole by jansson, whose tree is gone when this returns. Of a form (transcriptions, edits of pictures)
 * only the part named "model" is looked for, as its boundary separates it (RFC 7578): the rest may be megabytes of
 * sound. */
#include "router/routing.h"

#include "base/error.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define BOUNDARY_MAX 70u /* RFC 2046, section 5.1.1 */

/* ---- JSON ---- */

static uint64_t count_of(const json_t *root, const char *key) {
    const json_t *value = json_object_get(root, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0) return 0; /* true and false are of another API */
    return (uint64_t)json_integer_value(value);
}

static bt_status read_json(const char *body, size_t n_body, bt_call_body *ret, bt_error *err) {
    json_error_t where;
    json_t *root = json_loadb(body, n_body, JSON_DECODE_ANY, &where);
    if (!json_is_object(root)) {
        bt_status status = bt_fail(err, BT_E_FORMAT, "body", BT_MEASURE_NONE, 0, 0,
                                   "the body is no JSON object%s%.150s", root ? "" : ": ", root ? "" : where.text);
        json_decref(root);
        return status;
    }
    const json_t *model = json_object_get(root, "model");
    static const char *const counts[] = {"n_probs", "logprobs", "top_logprobs"};
    bool fits = !json_is_string(model) || json_string_length(model) < sizeof ret->model;
    ret->is_json = true;
    if (json_is_string(model))
        (void)snprintf(ret->model, sizeof ret->model, "%.*s", BT_CONFIG_ID_MAX, json_string_value(model));
    ret->streams = json_is_true(json_object_get(root, "stream"));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (count_of(root, counts[i]) > ret->n_probs) ret->n_probs = count_of(root, counts[i]);
    json_decref(root);
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
