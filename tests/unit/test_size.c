/* SPDX-License-Identifier: MIT
 * test_size.c: arithmetic at its edges, and sizes as text in both directions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/size.h"

#include <locale.h>
#include <string.h>

static void test_checked(void **state) {
    (void)state;
    uint64_t r = 7;
    assert_true(bt_add_u64(UINT64_MAX - 1, 1, &r));
    assert_true(r == UINT64_MAX);
    r = 7;
    assert_false(bt_add_u64(UINT64_MAX, 1, &r));
    assert_int_equal(r, 7);
    assert_true(bt_mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 31, &r));
    assert_true(r == UINT64_C(1) << 63);
    r = 7;
    assert_false(bt_mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &r));
    assert_int_equal(r, 7);
}

static void test_align(void **state) {
    (void)state;
    uint64_t r = 7;
    assert_true(bt_align_up_u64(0, 4096, &r));
    assert_int_equal(r, 0);
    assert_true(bt_align_up_u64(4096, 4096, &r));
    assert_int_equal(r, 4096);
    assert_true(bt_align_up_u64(4097, 4096, &r));
    assert_int_equal(r, 8192);
    assert_true(bt_align_up_u64(10, 3, &r));
    assert_int_equal(r, 12);
    assert_true(bt_align_up_u64(UINT64_MAX, 1, &r));
    assert_true(r == UINT64_MAX);
    r = 7;
    assert_false(bt_align_up_u64(UINT64_MAX - 5, 4096, &r));
    assert_false(bt_align_up_u64(5, 0, &r));
    assert_int_equal(r, 7);
}

static void test_saturating(void **state) {
    (void)state;
    assert_true(bt_sat_add_u64(UINT64_MAX, 1) == UINT64_MAX);
    assert_true(bt_sat_add_u64(2, 3) == 5);
    assert_true(bt_sat_sub_u64(2, 3) == 0);
    assert_true(bt_sat_sub_u64(3, 2) == 1);
    assert_true(bt_sat_mul_u64(UINT64_MAX, 2) == UINT64_MAX);
    assert_true(bt_sat_mul_u64(6, 7) == 42);
    assert_true(bt_min_u64(1, 2) == 1 && bt_min_u64(2, 1) == 1);
    assert_true(bt_max_u64(1, 2) == 2 && bt_max_u64(2, 1) == 2);
    assert_true(bt_mul_div_u64(UINT64_MAX, UINT64_MAX, UINT64_MAX) == UINT64_MAX);
    assert_true(bt_mul_div_u64(UINT64_MAX, 3, 2) == UINT64_MAX);
    assert_true(bt_mul_div_u64(UINT64_C(1) << 40, UINT64_C(1) << 40, UINT64_C(1) << 30) == UINT64_C(1) << 50);
    assert_true(bt_mul_div_u64(10, 10, 3) == 33);
}

static void test_parse_good(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"0", 0},
        {"268435456", 268435456},
        {"512M", UINT64_C(512) << 20},
        {"1.5G", 1610612736},
        {"0.1K", 102},
        {"256MiB", UINT64_C(256) << 20},
        {"300MB", 300000000},
        {"300mb", 300000000},
        {"7b", 7},
        {"7B", 7},
        {"1k", 1024},
        {"1KiB", 1024},
        {"1kIb", 1024},
        {"1KB", 1000},
        {"2G", UINT64_C(2) << 30},
        {"2GB", 2000000000},
        {"3T", UINT64_C(3) << 40},
        {"3TiB", UINT64_C(3) << 40},
        {"3TB", UINT64_C(3000000000000)},
        {"1.9", 1}, /* a fraction of a byte rounds down */
        {"0.9999", 0},
        {"0.999999999999999999999999999999999999999999T", (UINT64_C(1) << 40) - 1},
        {"0.3GB", 300000000}, /* 0.3 is no binary fraction: 299999999 by way of a double */
        {"1.1GB", 1100000000},
        {"4.35KB", 4350},
        {"0.29KB", 290},
        {"000000000000000000000000000000001K", 1024},
        {"18446744073709551615", UINT64_MAX},
        {"16777215.99999999999999999999T", UINT64_MAX},
        {"18446744.073709551615TB", UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bt_error err = {0};
        uint64_t bytes = 99;
        bt_status status = bt_size_parse(cases[i].text, "--ram-budget", &bytes, &err);
        if (status != BT_OK || bytes != cases[i].bytes) {
            fail_msg("%s gave %llu: %s", cases[i].text, (unsigned long long)bytes, err.text);
        }
    }
}

static void test_parse_bad(void **state) {
    (void)state;
    static const char *const cases[] = {
        "",
        " ",
        "1 G",
        " 1G",
        "1G ",
        "+1",
        "-1",
        "1,5G",
        "1.5.1G",
        ".5G",
        "1.",
        "1.G",
        "G",
        "KiB",
        "1X",
        "1KiBs",
        "1Ki",
        "1BK",
        "1e3",
        "0x10",
        "nan",
        "inf",
        "1_000",
        "1'000",
        "1GG",
        "1bib",
        "1 B",
        "١",
        "1\xC2\xA0G",
        "1\n",
        "1E",
        "1P",
        "auto",
        "18446744073709551616",
        "16777216T",
        "18446744.073709551616TB",
        "99999999999999999999999999999999G",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bt_error err = {0};
        uint64_t bytes = 99;
        bt_status status = bt_size_parse(cases[i], "--ram-budget", &bytes, &err);
        if (status != BT_E_ARG) fail_msg("\"%s\" was taken for a size", cases[i]);
        assert_string_equal(err.code, "size");
        assert_int_equal(err.status, BT_E_ARG);
        assert_non_null(strstr(err.text, "--ram-budget"));
        assert_int_equal(bytes, 99);
        assert_int_equal(bt_size_parse(cases[i], "--ram-budget", &bytes, NULL), BT_E_ARG);
    }
}

static void test_locale(void **state) {
    (void)state;
    /* Not installed everywhere; where one of them is, the point must still be a point. */
    if (!setlocale(LC_ALL, "de_DE.UTF-8") && !setlocale(LC_ALL, "fr_FR.UTF-8")) skip();
    uint64_t bytes = 0;
    assert_int_equal(bt_size_parse("1.5G", "x", &bytes, NULL), BT_OK);
    assert_int_equal(bytes, 1610612736);
    assert_string_equal(BT_SIZE(UINT64_C(3) << 29), "1.50 GiB");
    setlocale(LC_ALL, "C");
}

static void test_format(void **state) {
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {512, "512 B"},
        {1023, "1023 B"},
        {1024, "1.0 KiB"},
        {3584, "3.5 KiB"},
        {1024 + 51, "1.0 KiB"}, /* 1.0498 */
        {1024 + 52, "1.1 KiB"}, /* 1.0508 */
        {1048575, "1.0 MiB"},   /* not 1024.0 KiB */
        {UINT64_C(96) << 20, "96.0 MiB"},
        {(UINT64_C(1) << 30) - 1, "1.00 GiB"},
        {UINT64_C(13249974108), "12.34 GiB"},
        {(UINT64_C(1) << 40) - 1, "1.00 TiB"},
        {UINT64_C(1536) << 30, "1.50 TiB"},
        {UINT64_MAX, "16777216.00 TiB"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[BT_SIZE_TEXT];
        assert_ptr_equal(bt_size_format(cases[i].bytes, text), text);
        assert_string_equal(text, cases[i].text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checked),    cmocka_unit_test(test_align),     cmocka_unit_test(test_saturating),
        cmocka_unit_test(test_parse_good), cmocka_unit_test(test_parse_bad), cmocka_unit_test(test_locale),
        cmocka_unit_test(test_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
