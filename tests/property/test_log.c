/* SPDX-License-Identifier: MIT
 * test_log.c: whatever bytes a model file, a request or a program has, they are one line of the log: valid UTF-8, no
 * control character, no more than its bound; and JSON is JSON, with that text in it. Through bt_log, as everybody logs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log_line.h"
#include "base/text.h"
#include "random.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_ROUNDS 4000
#define RAW_MAX  6000u

/* Pieces that readers trip over, beside plain random bytes. */
static const char *const pieces[] = {
    "\n",       "\r\n", "\033[31m",  "\033]0;x\a", "\xe2\x80\xae",     "\xe2\x80\xa8",     "\xc2\x85",
    "\xff\xfe", "\\",   "\"",        "\\\"",       "\\u0000",          "\xed\xa0\x80",     "\xf4\x90\x80\x80",
    "\xc0\x80", "%s%n", "{\"a\":1}", "<3>",        "burthen: error: ", "\xf0\x9f\x9a\xa2", "\x7f",
    "\t"};

static uint64_t rng;

static uint64_t random_up_to(uint64_t most) {
    return random_next(&rng) % (most + 1);
}

static int seed(void **state) {
    (void)state;
    const char *text = getenv("BT_SEED");
    rng = text ? strtoull(text, NULL, 10) : 20261130;
    print_message("BT_SEED=%llu\n", (unsigned long long)rng);
    return 0;
}

/* No NUL: these are strings of C. */
static size_t random_bytes(char *ret, size_t n_max) {
    size_t n = 0, n_wanted = random_up_to(4) == 0 ? n_max : random_up_to(200);
    while (n < n_wanted) {
        if (random_up_to(3) == 0) {
            const char *piece = pieces[random_up_to(sizeof pieces / sizeof *pieces - 1)];
            size_t length = strlen(piece);
            if (n + length > n_wanted) break;
            memcpy(ret + n, piece, length);
            n += length;
        } else {
            ret[n++] = (char)(unsigned char)(1 + random_up_to(254));
        }
    }
    ret[n] = '\0';
    return n;
}

static void check_line(const char *line, size_t n) {
    assert_true(n > 0 && n <= BT_LOG_LINE_BYTES);
    assert_int_equal(line[n - 1], '\n');
    for (size_t i = 0; i < n - 1;) {
        size_t length = bt_utf8_length(line + i, n - 1 - i);
        assert_true(length > 0);
        assert_false(bt_utf8_is_control(line + i, length));
        i += length;
    }
}

/* The text that stands for the bytes: each that was not shown as it is, is \xNN. */
static void check_json(const char *line, const char *message) {
    json_error_t why;
    const char *at = line[0] == '<' ? strchr(line, '>') + 1 : line;
    json_t *root = json_loads(at, JSON_REJECT_DUPLICATES, &why);
    if (!root) fail_msg("%s: %s", why.text, line);
    const char *said = json_string_value(json_object_get(root, "message"));
    assert_non_null(said);
    size_t n = strlen(said);
    if (n >= 3 && strcmp(said + n - 3, "...") == 0) n -= 3;
    assert_true(strncmp(said, message, n) == 0); /* all of it, or its beginning */
    assert_int_equal(json_object_size(root), 8);
    json_decref(root);
}

typedef struct seen {
    bt_log_form form;
    const bt_log_field *fields;
    const char *source;
    uint32_t n;
} seen;

static void on_entry(const bt_log_entry *said, void *user) {
    seen *s = user;
    char line[BT_LOG_LINE_BYTES + 1];
    bt_log_entry entry = *said;
    entry.source = s->source;
    entry.fields = s->fields;
    entry.n_fields = 2;
    s->n++;
    check_line(line, bt_log_line(&s->form, &entry, (int64_t)random_up_to(UINT64_C(4000000000000)), line));
    if (s->form.json) check_json(line, entry.message);
}

static void test_any_bytes(void **state) {
    (void)state;
    static char raw[RAW_MAX + 1], source[RAW_MAX + 1], text[RAW_MAX + 1];
    const bt_log_field fields[] = {{.name = "path", .text = text}, {.name = "n", .number = UINT64_MAX}};
    for (int i = 0; i < N_ROUNDS; i++) {
        seen s = {.form = {.json = random_up_to(1) == 1,
                           .journal = random_up_to(1) == 1,
                           .dated = random_up_to(1) == 1,
                           .component = "run",
                           .pid = 1},
                  .fields = fields,
                  .source = source};
        (void)random_bytes(raw, RAW_MAX);
        (void)random_bytes(source, RAW_MAX);
        (void)random_bytes(text, RAW_MAX);
        bt_log_set(on_entry, &s, BT_LOG_INFO);
        bt_log(BT_LOG_INFO, "%s", raw);
        bt_log_say("%s", raw);
        bt_log_send(&(bt_log_entry){.level = BT_LOG_WARN, .message = raw}, strlen(raw));
        bt_log_set(NULL, NULL, BT_LOG_ERROR);
        assert_int_equal(s.n, 3);
    }
}

/* What was escaped is not escaped again: a child's line that the router holds and then logs stays as it is. */
static void test_twice(void **state) {
    (void)state;
    static char raw[RAW_MAX + 1], once[BT_LOG_LINE_BYTES], twice[BT_LOG_LINE_BYTES];
    for (int i = 0; i < N_ROUNDS; i++) {
        size_t n = random_bytes(raw, RAW_MAX);
        size_t n_once = bt_log_escape(raw, n, once, sizeof once);
        assert_true(n_once < sizeof once && strlen(once) == n_once);
        assert_int_equal(bt_log_escape(once, n_once, twice, sizeof twice), n_once);
        assert_string_equal(once, twice);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_bytes), cmocka_unit_test(test_twice)};
    return cmocka_run_group_tests(tests, seed, NULL);
}
