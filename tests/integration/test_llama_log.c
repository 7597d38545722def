/* SPDX-License-Identifier: MIT
 * test_llama_log.c: llama.cpp's lines in our log: levels, pieces that are one line, lines without an end, what is
 * remembered of errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/engine.h"

#include "ggml.h"

#include <stdio.h>
#include <string.h>

static char said[16][2048];
static bt_log_level levels[16];
static char theirs[16][8];
static uint32_t n_said;

static void on_entry(const bt_log_entry *entry, void *user) {
    (void)user;
    assert_true(n_said < 16);
    (void)snprintf(said[n_said], sizeof said[0], "%s", entry->message);
    assert_int_equal(entry->n_fields, 1);
    assert_string_equal(entry->fields[0].name, "llama_level");
    (void)snprintf(theirs[n_said], sizeof theirs[0], "%s", entry->fields[0].text);
    levels[n_said++] = entry->level;
}

static ggml_log_callback callback;
static void *callback_user;

static void say(enum ggml_log_level level, const char *text) {
    callback(level, text, callback_user);
}

static int begin(void **state) {
    (void)state;
    n_said = 0;
    bt_log_set(on_entry, NULL, BT_LOG_DEBUG);
    bt_engine_log_init();
    ggml_log_get(&callback, &callback_user);
    return callback ? 0 : -1;
}

static int end(void **state) {
    (void)state;
    bt_log_set(NULL, NULL, BT_LOG_ERROR);
    return 0;
}

static void test_levels(void **state) {
    (void)state;
    say(GGML_LOG_LEVEL_ERROR, "e\n");
    say(GGML_LOG_LEVEL_WARN, "w\n");
    say(GGML_LOG_LEVEL_INFO, "i\n");
    say(GGML_LOG_LEVEL_DEBUG, "d\n");
    static const bt_log_level wanted[] = {BT_LOG_INFO, BT_LOG_INFO, BT_LOG_DEBUG, BT_LOG_DEBUG};
    static const char *const names[] = {"error", "warn", "info", "debug"};
    assert_int_equal(n_said, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(levels[i], wanted[i]);
        assert_string_equal(theirs[i], names[i]);
    }
    assert_string_equal(said[0], "llama.cpp: e");
}

static void test_pieces(void **state) {
    (void)state;
    say(GGML_LOG_LEVEL_WARN, "loading ");
    for (int i = 0; i < 5; i++)
        say(GGML_LOG_LEVEL_CONT, ".");
    assert_int_equal(n_said, 0);
    say(GGML_LOG_LEVEL_CONT, "\n");
    assert_int_equal(n_said, 1);
    assert_string_equal(said[0], "llama.cpp: loading .....");
    assert_string_equal(theirs[0], "warn");
    /* one that nobody goes on with ends when another comes, or the engine does */
    say(GGML_LOG_LEVEL_INFO, "half");
    say(GGML_LOG_LEVEL_INFO, "two\nthree\n");
    say(GGML_LOG_LEVEL_INFO, "last");
    bt_engine_log_end();
    assert_int_equal(n_said, 5);
    assert_string_equal(said[1], "llama.cpp: half");
    assert_string_equal(said[2], "llama.cpp: two");
    assert_string_equal(said[3], "llama.cpp: three");
    assert_string_equal(said[4], "llama.cpp: last");
    bt_engine_log_end();
    assert_int_equal(n_said, 5);
}

/* A line without an end is held to its bound; what it is not wanted for is not held at all. */
static void test_bound(void **state) {
    (void)state;
    say(GGML_LOG_LEVEL_INFO, "x");
    for (int i = 0; i < 100000; i++)
        say(GGML_LOG_LEVEL_CONT, "yz");
    say(GGML_LOG_LEVEL_CONT, "\n");
    assert_int_equal(n_said, 1);
    assert_int_equal(strlen(said[0]), strlen("llama.cpp: ") + 1024);
    bt_log_set(on_entry, NULL, BT_LOG_INFO);
    say(GGML_LOG_LEVEL_DEBUG, "not ");
    say(GGML_LOG_LEVEL_CONT, "wanted\n");
    assert_int_equal(n_said, 1);
    say(GGML_LOG_LEVEL_WARN, "a\033[2J\xff\n");
    assert_string_equal(said[1], "llama.cpp: a\\x1b[2J\\xff");
}

static void test_remembered(void **state) {
    (void)state;
    bt_error err = {0};
    bt_log_set(NULL, NULL, BT_LOG_ERROR); /* whoever listens */
    bt_engine_forget_errors();
    say(GGML_LOG_LEVEL_WARN, "not this\n");
    say(GGML_LOG_LEVEL_ERROR, "this one\n");
    say(GGML_LOG_LEVEL_ERROR, "not that\n");
    assert_int_equal(bt_engine_device_failure("failed", &err), BT_E_DEVICE);
    assert_string_equal(err.text, "a device failed; llama.cpp says: this one");
    assert_false(bt_engine_was_refused_memory());
    say(GGML_LOG_LEVEL_ERROR, "ggml: insufficient memory (attempted to allocate 1 MB)\n");
    assert_true(bt_engine_was_refused_memory());
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, end)
    const struct CMUnitTest tests[] = {CASE(test_levels), CASE(test_pieces), CASE(test_bound), CASE(test_remembered)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
