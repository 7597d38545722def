/* SPDX-License-Identifier: MIT
 * test_log_line.c: one entry in each of its forms, to the byte; what is cut, and where. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/log_line.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define WHEN_MS INT64_C(1793030400123) /* 2026-10-26T16:00:00.123Z */

static const bt_log_form people = {.component = "run", .pid = 4711};

static const char *line_of(bt_log_form form, bt_log_entry entry) {
    static char line[BT_LOG_LINE_BYTES + 1];
    size_t n = bt_log_line(&form, &entry, WHEN_MS, line);
    assert_int_equal(n, strlen(line));
    return line;
}

static void test_people(void **state) {
    (void)state;
    bt_log_entry entry = {.level = BT_LOG_WARN, .message = "it is hot"};
    assert_string_equal(line_of(people, entry), "burthen: warning: it is hot\n");
    entry.level = BT_LOG_ERROR;
    assert_string_equal(line_of(people, entry), "burthen: error: it is hot\n");
    entry.level = BT_LOG_DEBUG;
    assert_string_equal(line_of(people, entry), "burthen: debug: it is hot\n");
    entry = (bt_log_entry){.level = BT_LOG_INFO, .plain = true, .message = "listening", .source = "smol"};
    assert_string_equal(line_of(people, entry), "smol: listening\n");
}

static void test_colour(void **state) {
    (void)state;
    bt_log_form form = people;
    form.colour = BT_LOG_ANSI;
    assert_string_equal(line_of(form, (bt_log_entry){.level = BT_LOG_WARN, .message = "hot"}),
                        "burthen: \033[33mwarning: \033[0mhot\n");
    assert_string_equal(line_of(form, (bt_log_entry){.level = BT_LOG_INFO, .message = "hot"}), "burthen: info: hot\n");
}

static void test_file(void **state) {
    (void)state;
    bt_log_form form = people;
    form.dated = true;
    assert_string_equal(line_of(form, (bt_log_entry){.level = BT_LOG_WARN, .message = "it is hot"}),
                        "2026-10-26T16:00:00.123Z 4711 warn burthen: it is hot\n");
}

/* sd-daemon(3): the numbers of syslog. */
static void test_journal(void **state) {
    (void)state;
    static const char *const wanted[] = {"<3>burthen: x\n", "<4>burthen: x\n", "<6>burthen: x\n", "<7>burthen: x\n"};
    bt_log_form form = people;
    form.journal = true;
    for (int level = BT_LOG_ERROR; level <= BT_LOG_DEBUG; level++)
        assert_string_equal(line_of(form, (bt_log_entry){.level = (bt_log_level)level, .message = "x"}), wanted[level]);
}

static void test_json(void **state) {
    (void)state;
    bt_log_form form = people;
    bt_error err = {0};
    bt_log_field fields[4];
    form.json = true;
    (void)bt_fail(&err, BT_E_BUDGET, "ram_budget", BT_MEASURE_BYTES, 200, 100, "no \"room\"");
    uint32_t n = bt_log_error_fields(&err, fields);
    assert_string_equal(
        line_of(form, (bt_log_entry){.level = BT_LOG_ERROR, .message = err.text, .fields = fields, .n_fields = n}),
        "{\"time\":\"2026-10-26T16:00:00.123Z\",\"level\":\"error\",\"component\":\"run\",\"pid\":4711,"
        "\"message\":\"no \\\"room\\\"\",\"code\":\"ram_budget\",\"need\":200,\"have\":100,\"unit\":\"bytes\"}\n");
    assert_string_equal(line_of(form, (bt_log_entry){.level = BT_LOG_INFO, .source = "a\\b", .message = "x"}),
                        "{\"time\":\"2026-10-26T16:00:00.123Z\",\"level\":\"info\",\"component\":\"run\",\"pid\":4711,"
                        "\"model\":\"a\\\\b\",\"message\":\"x\"}\n");
    form.journal = true;
    assert_memory_equal(line_of(form, (bt_log_entry){.level = BT_LOG_INFO, .message = "x"}), "<6>{\"time\"", 10);
}

/* What cannot be a line of its own, or look like one: each as it is shown. */
static void test_escapes(void **state) {
    (void)state;
    static const struct {
        const char *said, *shown;
    } cases[] = {
        {"a\nburthen: b", "a\\x0aburthen: b"},
        {"\033[2J\a\r\t", "\\x1b[2J\\x07\\x0d\\x09"},
        {"\xff\xc3(", "\\xff\\xc3("},
        {"caf\xc3\xa9 \xf0\x9f\x9a\xa2", "caf\xc3\xa9 \xf0\x9f\x9a\xa2"},
        {"\xc2\x9b[2J", "\\xc2\\x9b[2J"}, /* a C1 control */
        {"txt.\xe2\x80\xae"
         "exe",
         "txt.\\xe2\\x80\\xaeexe"}, /* U+202E turns what follows around */
        {"a\xe2\x80\xa8"
         "b\xe2\x81\xa6",
         "a\\xe2\\x80\\xa8"
         "b\\xe2\\x81\\xa6"}, /* U+2028 ends a line for some */
        {"\x7f", "\\x7f"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char wanted[128];
        (void)snprintf(wanted, sizeof wanted, "burthen: %s\n", cases[i].shown);
        assert_string_equal(line_of(people, (bt_log_entry){.plain = true, .message = cases[i].said}), wanted);
    }
}

/* A line has its newline, and JSON its end, however much was to be said. */
static void test_long(void **state) {
    (void)state;
    static char message[3 * BT_LOG_LINE_BYTES], text[1000];
    bt_log_field fields[BT_LOG_FIELDS_MAX];
    memset(message, '"', sizeof message - 1);
    memset(text, '\\', sizeof text - 1);
    for (uint32_t i = 0; i < BT_LOG_FIELDS_MAX; i++)
        fields[i] = (bt_log_field){.name = "some_name_of_it", .text = text};
    for (int json = 0; json < 2; json++) {
        bt_log_form form = people;
        form.json = json;
        form.dated = true;
        const char *line = line_of(form, (bt_log_entry){.level = BT_LOG_INFO,
                                                        .source = text,
                                                        .message = message,
                                                        .fields = fields,
                                                        .n_fields = BT_LOG_FIELDS_MAX});
        size_t n = strlen(line);
        assert_true(n <= BT_LOG_LINE_BYTES && n > BT_LOG_LINE_BYTES - 16);
        assert_int_equal(line[n - 1], '\n');
        assert_non_null(strstr(line, "..."));
        json_t *parsed = json_loads(line, 0, NULL);
        assert_true(json == 0 || json_object_size(parsed) > 6);
        json_decref(parsed);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_people),  cmocka_unit_test(test_colour), cmocka_unit_test(test_file),
        cmocka_unit_test(test_journal), cmocka_unit_test(test_json),   cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
