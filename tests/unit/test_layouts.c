/* SPDX-License-Identifier: MIT
 * test_layouts.c: which weights can be held in another layout, and what those of a unit sum to. */
#include "model/layouts.h"
#include "model/types.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static uint32_t type_of(const char *name) {
    uint32_t type = 0;
    assert_true(bt_type_by_name(name, &type));
    return type;
}

static bt_tensor matrix(const char *type, uint64_t n_columns, uint64_t n_rows) {
    bt_tensor t = {.type = type_of(type), .n_dims = 2, .ne = {n_columns, n_rows, 1, 1}, .role = BT_ROLE_UNIT};
    assert_true(bt_type_row_bytes(t.type, n_columns, &t.row_bytes));
    t.bytes = t.row_bytes * n_rows;
    t.layout = bt_layout_of(&t);
    return t;
}

static void test_types(void **state) {
    (void)state;
    for (uint32_t type = 0; type < 64; type++) {
        if (!bt_type_is_known(type)) continue;
        const char *name = bt_type_name(type);
        bool replaced = strcmp(name, "q4_0") == 0 || strcmp(name, "iq4_nl") == 0 || strcmp(name, "mxfp4") == 0;
        bt_layout wanted = replaced                    ? BT_LAYOUT_REPLACED
                           : strcmp(name, "q4_K") == 0 ? BT_LAYOUT_SECOND
                                                       : BT_LAYOUT_PLAIN;
        if (matrix(name, 512, 64).layout != wanted) fail_msg("%s", name);
    }
}

static void test_shapes(void **state) {
    (void)state;
    assert_int_equal(matrix("q4_0", 32, 8).layout, BT_LAYOUT_REPLACED);
    assert_int_equal(matrix("q4_0", 32, 12).layout, BT_LAYOUT_PLAIN);
    assert_int_equal(matrix("q4_K", 256, 7).layout, BT_LAYOUT_PLAIN);
    bt_tensor t = matrix("q4_0", 512, 64);
    t.n_dims = 3; /* experts */
    assert_int_equal(bt_layout_of(&t), BT_LAYOUT_PLAIN);
    t = matrix("q4_0", 512, 64);
    t.block = -1;
    assert_int_equal(bt_layout_of(&t), BT_LAYOUT_PLAIN);
}

/* Eight rows of the widest that is replaced are 256 KiB: 58,254 elements of q4_0, in blocks of 32. */
static void test_widest(void **state) {
    (void)state;
    assert_int_equal(matrix("q4_0", 58240, 8).layout, BT_LAYOUT_REPLACED);
    assert_int_equal(matrix("q4_0", 58272, 8).layout, BT_LAYOUT_PLAIN);
    assert_int_equal(matrix("q4_K", 65536, 8).layout, BT_LAYOUT_SECOND); /* needs no copy */
}

static void test_roles(void **state) {
    (void)state;
    static const bt_tensor_role roles[] = {BT_ROLE_SMALL, BT_ROLE_UNIT, BT_ROLE_TABLE,
                                           BT_ROLE_HEAD,  BT_ROLE_TIED, BT_ROLE_UNUSED};
    bt_tensor four = matrix("iq4_nl", 512, 64), k = matrix("q4_K", 512, 64);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        four.role = k.role = roles[i];
        bool in_memory = roles[i] == BT_ROLE_UNIT || roles[i] == BT_ROLE_SMALL;
        assert_int_equal(bt_layout_of(&four), in_memory ? BT_LAYOUT_REPLACED : BT_LAYOUT_PLAIN);
        assert_int_equal(bt_layout_of(&k), roles[i] == BT_ROLE_UNIT ? BT_LAYOUT_SECOND : BT_LAYOUT_PLAIN);
    }
}

static void test_sums(void **state) {
    (void)state;
    bt_tensor tensors[] = {matrix("q4_0", 64, 8), matrix("q4_K", 256, 16), matrix("q8_0", 64, 8),
                           matrix("mxfp4", 64, 8), matrix("q4_0", 32, 8)};
    tensors[4].role = BT_ROLE_SMALL;
    uint32_t unit_tensors[] = {3, 0, 1, 2};
    bt_unit_facts units[] = {
        {.first_tensor = 1, .n_tensors = 3}, {.first_tensor = 0, .n_tensors = 2}, {.n_tensors = 0}};
    const bt_facts facts = {
        .tensors = tensors, .n_tensors = 5, .units = units, .n_units = 3, .unit_tensors = unit_tensors};
    bt_layouts sum = bt_facts_layouts(&facts, &units[0]);
    assert_int_equal(sum.n_replaced, 1);
    assert_int_equal(sum.replaced_bytes, 8 * 2 * 18);
    assert_int_equal(sum.n_second, 1);
    assert_int_equal(sum.second_bytes, 16 * 144);
    sum = bt_facts_layouts(&facts, &units[1]);
    assert_int_equal(sum.n_replaced, 2);
    assert_int_equal(sum.replaced_bytes, 8 * 2 * 18 + 8 * 2 * 17);
    assert_int_equal(sum.n_second, 0);
    sum = bt_facts_layouts(&facts, &units[2]);
    assert_int_equal(sum.n_replaced + sum.n_second, 0);
    sum = bt_facts_small_layouts(&facts);
    assert_int_equal(sum.n_replaced, 1);
    assert_int_equal(sum.replaced_bytes, 8 * 18);
    tensors[0].bytes = tensors[3].bytes = UINT64_MAX; /* saturates */
    assert_true(bt_facts_layouts(&facts, &units[1]).replaced_bytes == UINT64_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types), cmocka_unit_test(test_shapes), cmocka_unit_test(test_widest),
        cmocka_unit_test(test_roles), cmocka_unit_test(test_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
