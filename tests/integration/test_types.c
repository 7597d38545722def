/* SPDX-License-Identifier: MIT
 * test_types.c: the planner's table of tensor types is ggml's own, row by row.
 *
 * The planner prices tensors without ggml; a type that ggml adds, removes or resizes must fail here before it makes a
 * plan wrong. Removed types are blocks of 0 elements in ggml, and unknown to the table. */
#include "model/types.h"

#include "ggml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static bool lives(uint32_t type) {
    return ggml_blck_size((enum ggml_type)type) > 0;
}

static void test_same_types(void **state) {
    (void)state;
    uint32_t n = 0;
    for (uint32_t type = 0; type < GGML_TYPE_COUNT; type++) {
        if (bt_type_is_known(type) != lives(type))
            fail_msg("type %u: known %d, in ggml %d", type, bt_type_is_known(type), lives(type));
        n += lives(type);
    }
    assert_true(n >= 30);
    /* The first number ggml does not have, and the last there is. */
    assert_false(bt_type_is_known(GGML_TYPE_COUNT));
    assert_false(bt_type_is_known(UINT32_MAX));
}

static void test_names(void **state) {
    (void)state;
    for (uint32_t type = 0; type < GGML_TYPE_COUNT; type++) {
        uint32_t found = UINT32_MAX;
        if (!lives(type)) {
            assert_string_equal(bt_type_name(type), "?");
            continue;
        }
        assert_string_equal(bt_type_name(type), ggml_type_name((enum ggml_type)type));
        assert_true(bt_type_by_name(ggml_type_name((enum ggml_type)type), &found));
        assert_int_equal(found, type);
    }
}

static void test_sizes(void **state) {
    (void)state;
    static const uint64_t n_blocks[] = {0, 1, 2, 3, 7, 64, 4096, 1u << 20};
    for (uint32_t type = 0; type < GGML_TYPE_COUNT; type++) {
        uint64_t bytes = UINT64_MAX;
        if (!lives(type)) {
            assert_int_equal(bt_type_block_elements(type), 0);
            assert_int_equal(bt_type_block_bytes(type), 0);
            assert_false(bt_type_row_bytes(type, 256, &bytes));
            continue;
        }
        uint64_t block = (uint64_t)ggml_blck_size((enum ggml_type)type);
        assert_int_equal(bt_type_block_elements(type), block);
        assert_int_equal(bt_type_block_bytes(type), ggml_type_size((enum ggml_type)type));
        for (size_t i = 0; i < sizeof n_blocks / sizeof *n_blocks; i++) {
            uint64_t n = n_blocks[i] * block;
            assert_true(bt_type_row_bytes(type, n, &bytes));
            assert_int_equal(bytes, ggml_row_size((enum ggml_type)type, (int64_t)n));
        }
        /* ggml asserts on a part of a block; the table says no. */
        if (block > 1) assert_false(bt_type_row_bytes(type, block + 1, &bytes));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_types),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
