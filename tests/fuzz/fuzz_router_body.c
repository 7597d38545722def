/* SPDX-License-Identifier: MIT
 * fuzz_router_body.c: the body of a request: what the router reads of it, and what filters make of it. The first line,
 * where it begins with "multipart/", is its Content-Type. A body that a JSON library takes is taken, and comes out with
 * every member that no filter names; filtered twice it is the same. */
#include "fuzz.h"

#include "base/heap.h"
#include "json_check.h"
#include "router/json_scan.h"
#include "router/json_text.h"
#include "router/routing.h"

#include <jansson.h>
#include <stdlib.h>

static const char *const strip[] = {"t", "n", "o"};
static const bt_config_filters filters = {
    .strip = strip, .n_strip = 3, .set_json = "{\"n\":1,\"o\":{\"p\":[2]},\"temperature\":0.5}"};

/* Deeper than any request, the two readers differ on purpose. */
static bool is_deep(const char *text, size_t n) {
    size_t n_brackets = 0;
    for (size_t i = 0; i < n; i++)
        n_brackets += text[i] == '[' || text[i] == '{';
    return n_brackets >= BT_SCAN_DEPTH_MAX;
}

/* Members that no filter names are as they were. */
static void check_kept(json_t *before, const char *out, size_t n_out) {
    static const char *const named[] = {"model", "t", "n", "o", "temperature"};
    json_t *after = json_loadb(out, n_out, 0, NULL);
    FUZZ_CHECK(json_is_object(after));
    const char *key;
    json_t *value;
    json_object_foreach(before, key, value) {
        bool is_named = strlen(key) >= BT_SCAN_NAME_MAX;
        for (size_t i = 0; i < sizeof named / sizeof *named; i++)
            is_named = is_named || strcmp(named[i], key) == 0;
        if (!is_named) FUZZ_CHECK(json_equal(value, json_object_get(after, key)));
    }
    if (json_object_get(before, "model"))
        FUZZ_CHECK(strcmp(json_string_value(json_object_get(after, "model")), "r") == 0);
    FUZZ_CHECK(json_integer_value(json_object_get(after, "n")) == 1 && !json_object_get(after, "t"));
    json_decref(after);
}

static void check_filter(json_t *tree, const char *text, size_t n, bool taken) {
    char *out = NULL;
    char *again = NULL;
    size_t n_out = 0;
    size_t n_again = 0;
    bt_error err = {0};
    bt_status status = bt_config_filter(&filters, "r", NULL, text, n, &out, &n_out, &err);
    FUZZ_CHECK(status == BT_OK ? out != NULL : status == BT_E_FORMAT && !taken);
    if (status != BT_OK) return;
    FUZZ_CHECK(bt_config_filter(&filters, "r", NULL, out, n_out, &again, &n_again, NULL) == BT_OK);
    FUZZ_CHECK(again && n_again == n_out && memcmp(again, out, n_out) == 0);
    if (tree) check_kept(tree, out, n_out);
    bt_heap_free(out);
    bt_heap_free(again);
}

static bool check_json(const char *text, size_t n) {
    bt_call_body body;
    bt_error err = {0};
    bt_status status = bt_call_body_read(NULL, text, n, &body, &err);
    FUZZ_CHECK(status == BT_OK || (status == BT_E_FORMAT && strcmp(err.code, "body") == 0));
    json_t *tree = is_deep(text, n) ? NULL : json_loadb(text, n, 0, NULL);
    if (json_is_object(tree)) {
        const char *model = json_string_value(json_object_get(tree, "model"));
        bool too_long = model && strlen(model) > BT_CONFIG_ID_MAX;
        FUZZ_CHECK(status == BT_OK || too_long);
        if (status == BT_OK) FUZZ_CHECK(strcmp(body.model, model ? model : "") == 0);
        if (status == BT_OK) FUZZ_CHECK(body.streams == json_is_true(json_object_get(tree, "stream")));
    }
    check_filter(json_is_object(tree) ? tree : NULL, text, n, json_is_object(tree));
    json_decref(tree);
    return status == BT_OK;
}

/* As a string of an answer, any bytes are JSON. */
static void check_text(const char *text, size_t n) {
    bt_text out;
    bt_text_init(&out, 8u * FUZZ_BYTES_MAX);
    bt_json_text_string(&out, text, n);
    json_t *value = json_loadb(bt_text_str(&out), out.n_bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    FUZZ_CHECK(json_is_string(value));
    json_decref(value);
    bt_text_done(&out);
}

static bool one(char *text, size_t n) {
    check_text(text, n);
    char *end = n > 10 && strncmp(text, "multipart/", 10) == 0 ? memchr(text, '\n', n) : NULL;
    if (!end) return check_json(text, n);
    *end = '\0';
    bt_call_body body;
    size_t n_body = n - (size_t)(end + 1 - text);
    bt_status status = bt_call_body_read(text, end + 1, n_body, &body, NULL);
    FUZZ_CHECK(status == BT_OK || status == BT_E_FORMAT);
    FUZZ_CHECK(memchr(body.model, '\0', sizeof body.model) != NULL);
    return status == BT_OK;
}

static const char *word(size_t i) {
    static const char *const words[] = {" ",
                                        "\"model\":",
                                        "\"m\"",
                                        "\"n\":",
                                        "\"t\":",
                                        "\"o\":",
                                        "\"stream\":true",
                                        "\"n_probs\":",
                                        "\"top_logprobs\":",
                                        "\\u006d",
                                        "\\ud83d\\ude00",
                                        "\\ud83d",
                                        "\\u0000",
                                        "1e999",
                                        "-0",
                                        "1.5",
                                        "null",
                                        "false",
                                        "multipart/form-data; boundary=",
                                        "--",
                                        "\r\n\r\n",
                                        "name=\"model\"",
                                        "\"",
                                        "\xef\xbb\xbf",
                                        "\xc3\xa4",
                                        "\xed\xa0\x80"};
    if (i < JSON_MARKS) return json_mark(i);
    i -= JSON_MARKS;
    return i < sizeof words / sizeof *words ? words[i] : NULL;
}

const fuzz_target fuzz_here = {
    .name = "router_body", .one = one, .bare = true, .start = json_start, .word = word, .n_rounds = 8000};
