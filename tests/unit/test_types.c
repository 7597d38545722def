/* SPDX-License-Identifier: MIT
 * The type table against sizes worked out by hand; integration/types holds it to ggml's own. */
#include "model/types.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void sizes(void **state) {
    (void)state;
    static const struct {
        uint32_t type;
        const char *name;
        uint32_t elements, bytes;
    } rows[] = {
        {0, "f32", 1, 4},
        {1, "f16", 1, 2},
        {2, "q4_0", 32, 2 + 16},
        {3, "q4_1", 32, 4 + 16},
        {8, "q8_0", 32, 2 + 32},
        {12, "q4_K", 256, 4 + 12 + 128},
        {13, "q5_K", 256, 4 + 12 + 128 + 32},
        {14, "q6_K", 256, 2 + 16 + 192},
        {20, "iq4_nl", 32, 2 + 16},
        {30, "bf16", 1, 2},
        {39, "mxfp4", 32, 1 + 16},
        {40, "nvfp4", 64, 4 + 32},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t by_name = 999;
        assert_true(bt_type_is_known(rows[i].type));
        assert_string_equal(bt_type_name(rows[i].type), rows[i].name);
        assert_int_equal(bt_type_block_elements(rows[i].type), rows[i].elements);
        assert_int_equal(bt_type_block_bytes(rows[i].type), rows[i].bytes);
        assert_true(bt_type_by_name(rows[i].name, &by_name));
        assert_int_equal(by_name, rows[i].type);
    }
}

static void cache_types(void **state) {
    (void)state;
    static const uint32_t of_caches[] = {0, 1, 2, 3, 6, 7, 8, 20, 30};
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof of_caches / sizeof *of_caches; i++)
        assert_true(bt_type_is_cache(of_caches[i]));
    for (uint32_t i = 0; i < 1000; i++)
        n += bt_type_is_cache(i);
    assert_int_equal(n, sizeof of_caches / sizeof *of_caches);
}

static void removed_and_unknown(void **state) {
    (void)state;
    static const uint32_t none[] = {4, 5, 31, 32, 33, 36, 37, 38, 43, 44, 255, 0x7fffffff, UINT32_MAX};
    uint32_t n_known = 0, type = 0;
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        assert_false(bt_type_is_known(none[i]));
        assert_string_equal(bt_type_name(none[i]), "?");
        assert_int_equal(bt_type_block_elements(none[i]), 0);
    }
    for (uint32_t i = 0; i < 1000; i++)
        n_known += bt_type_is_known(i);
    assert_int_equal(n_known, 43 - 8); /* GGML_TYPE_COUNT less the removed */
    assert_false(bt_type_by_name("?", &type));
    assert_false(bt_type_by_name("Q4_K", &type));
    assert_false(bt_type_by_name("", &type));
}

static void rows_of_elements(void **state) {
    (void)state;
    uint64_t bytes = 7;
    assert_true(bt_type_row_bytes(3, 576, &bytes));
    assert_int_equal(bytes, 576 / 32 * 20);
    assert_true(bt_type_row_bytes(12, 2048, &bytes));
    assert_int_equal(bytes, 8 * 144);
    assert_true(bt_type_row_bytes(0, 0, &bytes));
    assert_int_equal(bytes, 0);
    bytes = 7;
    assert_false(bt_type_row_bytes(12, 2047, &bytes));
    assert_false(bt_type_row_bytes(4, 32, &bytes));
    assert_false(bt_type_row_bytes(0, UINT64_MAX / 2, &bytes));
    assert_int_equal(bytes, 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes), cmocka_unit_test(removed_and_unknown),
                                       cmocka_unit_test(rows_of_elements), cmocka_unit_test(cache_types)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
