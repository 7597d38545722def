/* SPDX-License-Identifier: MIT
 * test_router_activity.c: rows go in, the last thousand come out, newest first, and those that are asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "router/activity.h"
#include "router_json.h"

static bt_activity_row row_of(uint64_t id, const char *model) {
    bt_activity_row row = {.id = id, .began_ms = 1700000000000 + (int64_t)id, .status = 200, .outcome = "ok"};
    (void)snprintf(row.model, sizeof row.model, "%s", model);
    return row;
}

static bt_activity *open_it(void) {
    bt_activity *activity = NULL;
    assert_int_equal(bt_activity_open(&activity, NULL), BT_OK);
    return activity;
}

/* The rows that a filter leaves; to json_decref the owner that is set. */
static const json_t *rows_of(const bt_activity *activity, const bt_activity_filter *filter, json_t **owner) {
    char *text = NULL;
    assert_int_equal(bt_activity_json(activity, filter, &text, NULL), BT_OK);
    *owner = json_of(text);
    assert_int_equal(json_object_size(*owner), 1);
    return json_at(*owner, "rows");
}

static size_t n_rows(const bt_activity *activity, bt_activity_filter filter) {
    json_t *owner = NULL;
    size_t n = json_array_size(rows_of(activity, &filter, &owner));
    json_decref(owner);
    return n;
}

static void one_row(void **state) {
    (void)state;
    bt_activity_row row = {.id = 7,
                           .began_ms = 1796044215123,
                           .model = "qwen \"3\"\\\t",
                           .path = "/v1/chat/completions",
                           .outcome = "error",
                           .status = 503,
                           .waited_ms = 12,
                           .first_byte_ms = 34,
                           .total_ms = 56,
                           .request_bytes = 78,
                           .response_bytes = UINT64_C(1) << 40,
                           .usage = {.prompt_tokens = {true, 32},
                                     .cached_tokens = {true, 0},
                                     .output_tokens = {true, 6},
                                     .draft_tokens = {true, 9},
                                     .accepted_tokens = {true, 5},
                                     .prompt_per_s = 178.959,
                                     .output_per_s = 88.736},
                           .code = "insufficient_memory"};
    char *text = NULL;
    assert_int_equal(bt_activity_row_json(&row, &text, NULL), BT_OK);
    assert_null(strchr(text, '\n'));
    json_t *json = json_of(text);
    json_check_members(json, "activity", "row");
    assert_int_equal(json_int(json, "id"), 7);
    assert_int_equal(json_int(json, "began_ms"), 1796044215123);
    assert_string_equal(json_text(json, "model"), "qwen \"3\"\\\t");
    assert_string_equal(json_text(json, "path"), "/v1/chat/completions");
    assert_string_equal(json_text(json, "outcome"), "error");
    assert_int_equal(json_int(json, "status"), 503);
    assert_string_equal(json_text(json, "code"), "insufficient_memory");
    assert_int_equal(json_int(json, "waited_ms"), 12);
    assert_int_equal(json_int(json, "first_byte_ms"), 34);
    assert_int_equal(json_int(json, "total_ms"), 56);
    assert_int_equal(json_int(json, "request_bytes"), 78);
    assert_int_equal(json_int(json, "response_bytes"), 1099511627776);
    assert_int_equal(json_int(json, "prompt_tokens"), 32);
    assert_int_equal(json_int(json, "cached_tokens"), 0);
    assert_int_equal(json_int(json, "output_tokens"), 6);
    assert_int_equal(json_int(json, "draft_tokens"), 9);
    assert_int_equal(json_int(json, "accepted_tokens"), 5);
    assert_true(json_real_value(json_at(json, "prompt_tokens_per_s")) == 178.96);
    assert_true(json_real_value(json_at(json, "output_tokens_per_s")) == 88.74);
    json_decref(json);
}

/* What is not known is null, and never 0. */
static void an_empty_row(void **state) {
    (void)state;
    bt_activity_row row = {.id = 1};
    char *text = NULL;
    assert_int_equal(bt_activity_row_json(&row, &text, NULL), BT_OK);
    json_t *json = json_of(text);
    json_check_members(json, "activity", "row");
    static const char *const unknown[] = {"model",
                                          "path",
                                          "status",
                                          "code",
                                          "first_byte_ms",
                                          "prompt_tokens",
                                          "cached_tokens",
                                          "output_tokens",
                                          "draft_tokens",
                                          "accepted_tokens",
                                          "outcome",
                                          "prompt_tokens_per_s",
                                          "output_tokens_per_s"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        assert_true(json_null_at(json, unknown[i]));
    json_decref(json);
}

/* Strings may come cut anywhere, without an end, or hold anything. */
static void strings_that_are_none(void **state) {
    (void)state;
    bt_activity_row row = {.id = 1,
                           .path = "/\xff\xc3\x01"
                                   "a"};
    memset(row.model, 'x', sizeof row.model);
    memcpy(row.model + 61, "\xE2\x82\xAC", 3); /* the euro sign: its third byte has no place beside the end */
    memset(row.code, 0x01, sizeof row.code);
    bt_activity *activity = open_it();
    bt_activity_add(activity, &row);
    json_t *owner = NULL;
    const json_t *rows = rows_of(activity, NULL, &owner);
    const json_t *json = json_array_get(rows, 0);
    assert_int_equal(strlen(json_text(json, "model")), 61);
    assert_string_equal(json_text(json, "path"), "/\xEF\xBF\xBD\xEF\xBF\xBD\x01"
                                                 "a");
    assert_int_equal(strlen(json_text(json, "code")), 31);
    json_decref(owner);
    bt_activity_close(activity);
}

static void the_ring_turns(void **state) {
    (void)state;
    bt_activity *activity = open_it();
    uint64_t empty = bt_heap_live_bytes();
    assert_int_equal(n_rows(activity, (bt_activity_filter){.limit = 5000}), 0);
    uint64_t full = 0;
    for (uint64_t id = 1; id <= 2 * BT_ACTIVITY_KEPT + 17; id++) {
        bt_activity_row row = row_of(id, "m");
        bt_activity_add(activity, &row);
        if (id == 1) assert_in_range(bt_heap_live_bytes() - empty, 1, 32768); /* a block */
        if (id == BT_ACTIVITY_KEPT) full = bt_heap_live_bytes();
        size_t n = id < BT_ACTIVITY_KEPT ? (size_t)id : BT_ACTIVITY_KEPT;
        if (id % 97 != 0 && id < 2 * BT_ACTIVITY_KEPT + 17) continue;
        json_t *owner = NULL;
        const json_t *rows = rows_of(activity, &(bt_activity_filter){.limit = 5000}, &owner);
        assert_int_equal(json_array_size(rows), n);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(json_int(json_array_get(rows, i), "id"), id - i);
        json_decref(owner);
    }
    assert_int_equal(bt_heap_live_bytes(), full);
    bt_activity_close(activity);
}

static void filters(void **state) {
    (void)state;
    bt_activity *activity = open_it();
    char longest[80];
    memset(longest, 'n', sizeof longest);
    longest[79] = '\0';
    static const char *const models[] = {"qwen-7b", "qwen-1b", "llama", "*", ""};
    for (uint64_t id = 1; id <= 300; id++) {
        bt_activity_row row = row_of(id, id % 6 == 5 ? longest : models[id % 6]);
        bt_activity_add(activity, &row);
    }
    assert_int_equal(n_rows(activity, (bt_activity_filter){0}), 100); /* the default */
    assert_int_equal(n_rows(activity, (bt_activity_filter){.limit = 7}), 7);
    assert_int_equal(n_rows(activity, (bt_activity_filter){.limit = 999}), 300);
    assert_int_equal(n_rows(activity, (bt_activity_filter){.limit = 999, .model = "llama"}), 50);
    assert_int_equal(n_rows(activity, (bt_activity_filter){.limit = 999, .model = "llam"}), 0);
    assert_int_equal(n_rows(activity, (bt_activity_filter){.limit = 999, .model = "llama-2"}), 0);
    assert_int_equal(n_rows(activity, (bt_activity_filter){.limit = 999, .model = "qwen*"}), 100);
    assert_int_equal(n_rows(activity, (bt_activity_filter){.limit = 999, .model = "*"}), 300);
    assert_int_equal(n_rows(activity, (bt_activity_filter){.limit = 999, .model = ""}), 50);
    /* A name that was cut is found by the whole of it, and by what it begins with. */
    assert_int_equal(n_rows(activity, (bt_activity_filter){.limit = 999, .model = longest}), 50);
    assert_int_equal(n_rows(activity, (bt_activity_filter){.limit = 999, .model = "nnn*"}), 50);
    longest[70] = '*';
    longest[71] = '\0';
    assert_int_equal(n_rows(activity, (bt_activity_filter){.limit = 999, .model = longest}), 50);
    longest[5] = 'm';
    assert_int_equal(n_rows(activity, (bt_activity_filter){.limit = 999, .model = longest}), 0);
    assert_int_equal(n_rows(activity, (bt_activity_filter){.limit = 999, .after_id = 290}), 10);
    assert_int_equal(
        n_rows(activity, (bt_activity_filter){.limit = 999, .from_ms = 1700000000011, .to_ms = 1700000000020}), 10);
    json_t *owner = NULL;
    const json_t *rows =
        rows_of(activity, &(bt_activity_filter){.model = "llama", .after_id = 280, .limit = 2}, &owner);
    assert_int_equal(json_array_size(rows), 2);
    assert_int_equal(json_int(json_array_get(rows, 0), "id"), 296);
    assert_int_equal(json_int(json_array_get(rows, 1), "id"), 290);
    json_decref(owner);
    bt_activity_close(activity);
    bt_activity_close(NULL);
}

/* All rows at their widest find room in a text. */
static void the_widest_rows(void **state) {
    (void)state;
    bt_activity_row row = {.id = UINT64_MAX, .began_ms = INT64_MIN, .status = UINT32_MAX};
    memset(row.model, 1, sizeof row.model);
    memset(row.path, 1, sizeof row.path);
    memset(row.outcome, 1, sizeof row.outcome);
    memset(row.code, 1, sizeof row.code);
    row.waited_ms = row.first_byte_ms = row.total_ms = row.request_bytes = row.response_bytes = UINT64_MAX;
    bt_known most = {true, UINT64_MAX};
    row.usage = (bt_usage){most, most, most, most, most, 1e14, 1e14};
    bt_activity *activity = open_it();
    for (uint32_t i = 0; i < BT_ACTIVITY_KEPT; i++)
        bt_activity_add(activity, &row);
    char *text = NULL;
    assert_int_equal(bt_activity_json(activity, &(bt_activity_filter){.limit = BT_ACTIVITY_KEPT}, &text, NULL), BT_OK);
    assert_in_range(strlen(text), 1000u * 1500, 1000u * 2048);
    bt_heap_free(text);
    assert_int_equal(bt_activity_row_json(&row, &text, NULL), BT_OK);
    bt_heap_free(text);
    bt_activity_close(activity);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_row),        cmocka_unit_test(an_empty_row), cmocka_unit_test(strings_that_are_none),
        cmocka_unit_test(the_ring_turns), cmocka_unit_test(filters),      cmocka_unit_test(the_widest_rows),
    };
    uint64_t live = bt_heap_live_blocks();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed || bt_heap_live_blocks() != live;
}
