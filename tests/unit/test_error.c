/* SPDX-License-Identifier: MIT
 * test_error.c: statuses, and what an error holds after any text went into it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/error.h"

#include <errno.h>
#include <string.h>

static void test_tables(void **state) {
    (void)state;
    assert_string_equal(bt_status_text(BT_E_BUDGET), "over the memory budget");
    assert_int_equal(bt_status_exit_code(BT_OK), 0);
    assert_int_equal(bt_status_exit_code(BT_E_ARG), 2);
    assert_int_equal(bt_status_exit_code(BT_E_BUDGET), 3);
    assert_int_equal(bt_status_exit_code(BT_E_STALE), 3);
    assert_int_equal(bt_status_exit_code(BT_E_FORMAT), 4);
    assert_int_equal(bt_status_exit_code(BT_E_IO), 1);
    assert_int_equal(bt_status_exit_code(BT_E_CANCELLED), 130);
    assert_string_equal(bt_status_text((bt_status)-1), "unknown status");
    assert_int_equal(bt_status_exit_code(BT_STATUS_COUNT), 1);
}

static void test_fail(void **state) {
    (void)state;
    bt_error err;
    memset(&err, 0xAB, sizeof err);
    bt_status status =
        bt_fail(&err, BT_E_BUDGET, "ram_budget", BT_MEASURE_BYTES, 200, 100, "%s needs %d", "host/kv", 200);
    assert_int_equal(status, BT_E_BUDGET);
    assert_int_equal(err.status, BT_E_BUDGET);
    assert_int_equal(err.measure, BT_MEASURE_BYTES);
    assert_int_equal(err.need, 200);
    assert_int_equal(err.have, 100);
    assert_int_equal(err.sys, 0);
    assert_string_equal(err.code, "ram_budget");
    assert_string_equal(err.text, "host/kv needs 200");

    assert_int_equal(bt_fail(&err, BT_E_ARG, "option", BT_MEASURE_NONE, 5, 6, "no"), BT_E_ARG);
    assert_int_equal(err.need, 0);
    assert_int_equal(err.have, 0);
    assert_int_equal(bt_fail(NULL, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0, "no"), BT_E_ARG);
}

static void test_wraps_itself(void **state) {
    (void)state;
    bt_error err = {0};
    (void)bt_fail(&err, BT_E_IO, "read", BT_MEASURE_NONE, 0, 0, "inner");
    (void)bt_fail(&err, err.status, err.code, BT_MEASURE_NONE, 0, 0, "outer: %s", err.text);
    assert_string_equal(err.text, "outer: inner");
    assert_string_equal(err.code, "read");
}

static void test_sys(void **state) {
    (void)state;
    bt_error err = {0};
    assert_int_equal(bt_fail_sys(&err, ENOENT, "open", "cannot open %s", "x.gguf"), BT_E_IO);
    assert_int_equal(err.sys, ENOENT);
    assert_string_equal(err.code, "open");
    assert_string_equal(err.text, "cannot open x.gguf: No such file or directory");
    assert_int_equal(bt_fail_sys(&err, ESPIPE, "open", "cannot read %s", "x"), BT_E_IO);
    assert_string_equal(err.text, "cannot read x: it is a pipe, a terminal or a device, not a file");
    assert_int_equal(bt_fail_sys(&err, ENOMEM, "map", "cannot map"), BT_E_NOMEM);
    assert_string_equal(err.text, "cannot map: Cannot allocate memory");
    assert_int_equal(bt_fail_sys(NULL, ENOMEM, "map", "cannot map"), BT_E_NOMEM);
}

static void test_truncation(void **state) {
    (void)state;
    bt_error err = {0};
    char text[1000];
    /* 399 bytes fit: 199 two-byte characters, and half of one that must not stay */
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        text[i] = i % 2 ? '\xA9' : '\xC3';
    }
    text[sizeof text - 2] = '\0';
    (void)bt_fail(&err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0, "%s", text);
    assert_int_equal(strlen(err.text), 398);
    assert_memory_equal(err.text + 396, "\xC3\xA9", 3);

    /* the reason of the system survives a long name */
    memset(text, 'n', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    (void)bt_fail_sys(&err, ENOENT, "open", "%s", text);
    assert_int_equal(strlen(err.text), 399);
    assert_string_equal(err.text + 399 - strlen("nn: No such file or directory"), "nn: No such file or directory");

    (void)bt_fail(&err, BT_E_ARG, text, BT_MEASURE_NONE, 0, 0, "x");
    assert_int_equal(strlen(err.code), 47);
}

static void test_plain(void **state) {
    (void)state;
    bt_error err = {0};
    (void)bt_fail(&err, BT_E_FORMAT, "key", BT_MEASURE_NONE, 0, 0, "%s",
                  "a\x1b[2J\n\xFF|\xC2\x9B|\xE2\x82|\xE2\x82\xAC\x7F");
    assert_string_equal(err.text, "a?[2J??|??|??|\xE2\x82\xAC?");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables), cmocka_unit_test(test_fail),       cmocka_unit_test(test_wraps_itself),
        cmocka_unit_test(test_sys),    cmocka_unit_test(test_truncation), cmocka_unit_test(test_plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
