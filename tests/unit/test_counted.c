/* SPDX-License-Identifier: MIT
 * test_counted.c: what was put comes out as it was; a row that ends early fails, and gives nothing from there on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/heap.h"
#include "engine/counted.h"

#include <string.h>

#define ROW_MAX 64

static bt_text row;

static int start(void **state) {
    (void)state;
    bt_text_init(&row, ROW_MAX);
    return 0;
}

static int stop(void **state) {
    (void)state;
    bt_text_done(&row);
    return bt_heap_live_blocks() == 0 ? 0 : -1;
}

static bt_counted reader(size_t n) {
    return (bt_counted){.at = row.data, .n_left = n};
}

static void what_was_put(void **state) {
    (void)state;
    const uint64_t wide = UINT64_C(0x0123456789abcdef);
    bt_counted_put_string(&row, "a\0b", 3); /* so that the numbers stand where none is aligned */
    bt_counted_put_u32(&row, UINT32_MAX);
    bt_counted_put_string(&row, "", 0);
    bt_text_add_n(&row, (const char *)&wide, sizeof wide);
    assert_false(row.failed);
    assert_int_equal(row.n_bytes, 4 + 3 + 4 + 4 + 8);
    bt_counted in = reader(row.n_bytes);
    size_t n = 0;
    assert_ptr_equal(bt_counted_take_string(&in, &n), row.data + 4); /* in its place */
    assert_int_equal(n, 3);
    assert_int_equal(bt_counted_take_u32(&in), UINT32_MAX);
    assert_non_null(bt_counted_take_string(&in, &n)); /* empty is not missing */
    assert_int_equal(n, 0);
    assert_int_equal(bt_counted_take_u64(&in), wide);
    assert_int_equal(in.n_left, 0);
    assert_non_null(bt_counted_take(&in, 0));
    assert_false(in.failed);
    assert_null(bt_counted_take(&in, 1));
    assert_true(in.failed);
}

static void cut_short(void **state) {
    (void)state;
    bt_counted_put_string(&row, "abc", 3);
    bt_counted_put_u32(&row, 7);
    for (size_t n = 0; n < row.n_bytes; n++) {
        bt_counted in = reader(n);
        size_t n_text = 9;
        const char *text = bt_counted_take_string(&in, &n_text);
        assert_true((text != NULL) == (n >= 7));
        assert_int_equal(n_text, n < 4 ? 0 : 3);
        assert_int_equal(bt_counted_take_u32(&in), 0);
        assert_true(in.failed);
    }
}

/* Behind a failure nothing is given, though there be bytes for it. */
static void failed_for_good(void **state) {
    (void)state;
    bt_counted_put_u32(&row, UINT32_MAX);
    bt_counted_put_u32(&row, 5);
    bt_counted in = reader(row.n_bytes);
    size_t n = 0;
    assert_null(bt_counted_take_string(&in, &n));
    assert_int_equal(n, UINT32_MAX);
    assert_int_equal(in.n_left, 4);
    assert_int_equal(bt_counted_take_u32(&in), 0);
    assert_int_equal(bt_counted_take_u64(&in), 0);
    assert_null(bt_counted_take(&in, 0));
    assert_int_equal(in.n_left, 4);
}

static void over_the_maximum(void **state) {
    (void)state;
    char long_text[ROW_MAX] = {0};
    bt_counted_put_string(&row, long_text, sizeof long_text);
    assert_true(row.failed);
}

#if SIZE_MAX > UINT32_MAX
/* Its length cannot be written: not even the first of it is put. */
static void over_32_bits(void **state) {
    (void)state;
    bt_counted_put_string(&row, "", (size_t)UINT32_MAX + 1);
    assert_true(row.failed);
    assert_int_equal(row.n_bytes, 0);
}
#endif

#define T(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(what_was_put), T(cut_short), T(failed_for_good), T(over_the_maximum),
#if SIZE_MAX > UINT32_MAX
        T(over_32_bits),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
