/* SPDX-License-Identifier: MIT
 * test_text.c: growing to the maximum and not past it; escapes; characters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/heap.h"
#include "base/text.h"
#include "heap_check.h"

#include <string.h>

static void test_grows(void **state) {
    (void)state;
    bt_text text;
    bt_text_init(&text, 100000);
    assert_string_equal(bt_text_str(&text), "");
    assert_null(text.data);
    for (int i = 0; i < 1000; i++) {
        bt_text_addf(&text, "%03d ", i);
    }
    assert_false(text.failed);
    assert_int_equal(text.n_bytes, 4000);
    assert_int_equal(strlen(bt_text_str(&text)), 4000);
    assert_memory_equal(text.data + 3996, "999 ", 5);
    bt_text_add(&text, "");
    bt_text_add_n(&text, "abcdef", 3);
    assert_string_equal(text.data + 4000, "abc");
    bt_text_done(&text);
    assert_null(text.data);
    bt_text_add(&text, "again"); /* the maximum is kept */
    assert_string_equal(bt_text_str(&text), "again");
    bt_text_done(&text);
    bt_text_done(NULL);
}

static void test_reserve(void **state) {
    (void)state;
    bt_text text;
    bt_text_init(&text, 1000);
    bt_text_add(&text, "ab");
    bt_text_reserve(&text, 1000);
    const char *data = text.data;
    uint64_t n_allocations = bt_heap_allocations();
    for (int i = 0; i < 998; i++)
        bt_text_add(&text, "x");
    assert_false(text.failed);
    assert_ptr_equal(text.data, data);
    assert_int_equal(bt_heap_allocations(), n_allocations);
    bt_text_reserve(&text, 1); /* less than there is */
    assert_false(text.failed);
    bt_text_done(&text);
    bt_text_reserve(&text, 10);
    assert_string_equal(bt_text_str(&text), "");
    bt_text_reserve(&text, 1001);
    assert_true(text.failed);
    bt_text_done(&text);
}

static void test_maximum(void **state) {
    (void)state;
    bt_text text;
    bt_text_init(&text, 8);
    bt_text_add(&text, "12345678"); /* exactly */
    assert_false(text.failed);
    assert_string_equal(bt_text_str(&text), "12345678");
    bt_text_add(&text, "9");
    assert_true(text.failed);
    assert_string_equal(bt_text_str(&text), "12345678");
    bt_text_done(&text);
    assert_false(text.failed);

    bt_text_addf(&text, "%d", 1234567890);
    assert_true(text.failed);
    assert_string_equal(bt_text_str(&text), "12345678");
    bt_text_add(&text, ""); /* nothing more goes in */
    bt_text_addf(&text, "x");
    assert_int_equal(text.n_bytes, 8);
    bt_text_done(&text);

    /* what fitted ends with a whole character */
    bt_text_add(&text, "123456\xE2\x82\xAC");
    assert_true(text.failed);
    assert_string_equal(bt_text_str(&text), "123456");
    bt_text_done(&text);
    bt_text_addf(&text, "1234567%s", "\xC3\xA9");
    assert_true(text.failed);
    assert_string_equal(bt_text_str(&text), "1234567");
    bt_text_done(&text);

    bt_text_init(&text, 0);
    bt_text_add(&text, "");
    assert_false(text.failed);
    bt_text_add(&text, "1");
    assert_true(text.failed);
    assert_string_equal(bt_text_str(&text), "");
    bt_text_done(&text);
}

static void test_escapes(void **state) {
    (void)state;
    bt_text text;
    bt_text_init(&text, 1000);
    static const char s[] =
        "a\x1b]0;x\x07\n\0\x7f \xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80 \xC2\x9B \xFF \xED\xA0\x80 \xE2\x82";
    bt_text_add_escaped(&text, s, sizeof s - 1);
    assert_string_equal(bt_text_str(&text), "a\\x1b]0;x\\x07\\x0a\\x00\\x7f \xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80 "
                                            "\\xc2\\x9b \\xff \\xed\\xa0\\x80 \\xe2\\x82");
    bt_text_done(&text);
    bt_text_add_escaped(&text, "", 0);
    assert_string_equal(bt_text_str(&text), "");
    bt_text_done(&text);
}

static void test_characters(void **state) {
    (void)state;
    assert_int_equal(bt_utf8_length("", 0), 0);
    assert_int_equal(bt_utf8_length("a", 1), 1);
    assert_int_equal(bt_utf8_length("\xC3\xA9", 2), 2);
    assert_int_equal(bt_utf8_length("\xC3\xA9", 1), 0);
    assert_int_equal(bt_utf8_length("\xC0\x80", 2), 0);         /* overlong */
    assert_int_equal(bt_utf8_length("\xE0\x80\x80", 3), 0);     /* overlong */
    assert_int_equal(bt_utf8_length("\xED\xA0\x80", 3), 0);     /* surrogate */
    assert_int_equal(bt_utf8_length("\xED\x9F\xBF", 3), 3);     /* U+D7FF */
    assert_int_equal(bt_utf8_length("\xF0\x8F\xBF\xBF", 4), 0); /* overlong */
    assert_int_equal(bt_utf8_length("\xF4\x8F\xBF\xBF", 4), 4); /* U+10FFFF */
    assert_int_equal(bt_utf8_length("\xF4\x90\x80\x80", 4), 0); /* behind it */
    assert_int_equal(bt_utf8_length("\xF5\x80\x80\x80", 4), 0);
    assert_int_equal(bt_utf8_length("\x80", 1), 0);
    assert_int_equal(bt_utf8_length("\xE2\x82x", 3), 0);
    assert_true(bt_utf8_is_control("\xC2\x9F", 2));
    assert_false(bt_utf8_is_control("\xC2\xA0", 2));
    assert_true(bt_utf8_is_control("\t", 1));
    assert_false(bt_utf8_is_control(" ", 1));
    assert_int_equal(bt_utf8_fit("\xE2\x82\xAC", 3), 3);
    assert_int_equal(bt_utf8_fit("\xE2\x82\xAC", 2), 0);
    assert_int_equal(bt_utf8_fit("a\xE2\x82\xAC", 2), 1);
    assert_int_equal(bt_utf8_fit("\xF0\x9F\x98\x80", 3), 0);
    assert_int_equal(bt_utf8_fit("\x80\x80\x80\x80", 4), 4); /* no character at all: nothing to save */
    assert_int_equal(bt_utf8_fit("", 0), 0);
}

static void test_faults(void **state) {
    (void)state;
#ifdef BT_FAULT
    bt_text text;
    bt_text_init(&text, 1000);
    bt_text_add(&text, "kept");
    char long_one[200];
    memset(long_one, 'x', sizeof long_one);
    bt_fault_arm(0, false);
    bt_text_add_n(&text, long_one, sizeof long_one);
    assert_true(bt_fault_disarm());
    assert_true(text.failed && text.refused);
    assert_string_equal(bt_text_str(&text), "kept");
    bt_text_done(&text);
#else
    skip();
#endif
}

static void test_is_among(void **state) {
    (void)state;
    const char *const names[] = {"a", "", "abc"};
    assert_true(bt_is_among("abc", names, 3));
    assert_true(bt_is_among("", names, 3));
    assert_false(bt_is_among("ab", names, 3));
    assert_false(bt_is_among("abc", names, 2));
    assert_false(bt_is_among("a", NULL, 0));
}

static void test_ends(void **state) {
    (void)state;
    assert_true(bt_ends_with("m.gguf", ".gguf"));
    assert_false(bt_ends_with(".gguf", ".gguf")); /* nothing before it */
    assert_false(bt_ends_with("gguf", ".gguf"));
    assert_false(bt_ends_with("", ".gguf"));
    assert_false(bt_ends_with("m.gguf.part", ".gguf"));
    assert_true(bt_ends_with("m", ""));
}

int main(void) {
#define CASE(f) cmocka_unit_test_teardown(f, heap_is_empty)
    const struct CMUnitTest tests[] = {
        CASE(test_grows),      CASE(test_reserve),  CASE(test_maximum), CASE(test_escapes),
        CASE(test_characters), CASE(test_is_among), CASE(test_ends),    CASE(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
