/* SPDX-License-Identifier: MIT
 * test_arena.c: zeroed, aligned, capped, and all given back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/fault.h"
#include "base/heap.h"
#include "heap_check.h"

#include <string.h>

static int nothing_left(void **state) {
    (void)state;
    return bt_heap_live_blocks() == 0 && bt_heap_live_bytes() == 0 ? 0 : -1;
}

static void test_zeroed_and_aligned(void **state) {
    (void)state;
    bt_arena *arena = bt_arena_open(1 << 20, 4096);
    assert_non_null(arena);
    unsigned char *last = NULL;
    for (size_t bytes = 0; bytes < 300; bytes++) {
        unsigned char *p = bt_arena_alloc(arena, bytes);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        assert_ptr_not_equal(p, last);
        for (size_t i = 0; i < bytes; i++) {
            assert_int_equal(p[i], 0);
        }
        memset(p, 0xEE, bytes);
        last = p;
    }
    bt_arena_close(arena);
    bt_arena_close(NULL);
}

static void test_blocks(void **state) {
    (void)state;
    bt_arena *arena = bt_arena_open(1 << 20, 4096);
    assert_non_null(arena);
    uint64_t empty = bt_arena_bytes(arena);
    assert_true(empty > 0 && empty <= 64);
    assert_int_equal(bt_heap_live_blocks(), 1);
    unsigned char *a = bt_arena_alloc(arena, 16);
    assert_non_null(a);
    assert_int_equal(bt_arena_bytes(arena), empty + 4096); /* with its header a block is what was asked for */
    /* a large request has a block of its own, and the open one is used on */
    assert_non_null(bt_arena_alloc(arena, 100000));
    assert_int_equal(bt_heap_live_blocks(), 3);
    unsigned char *b = bt_arena_alloc(arena, 16);
    assert_ptr_equal(b, a + 16);
    assert_int_equal(bt_heap_live_blocks(), 3);
    bt_arena_close(arena);
}

static void test_cap(void **state) {
    (void)state;
    bt_arena *arena = bt_arena_open(10000, 4096);
    assert_non_null(arena);
    assert_null(bt_arena_alloc(arena, 10000)); /* the headers do not fit any more */
    assert_non_null(bt_arena_alloc(arena, 4000));
    assert_non_null(bt_arena_alloc(arena, 4000));
    /* what is left is less than a block, and is used nonetheless */
    assert_non_null(bt_arena_alloc(arena, 1600));
    assert_null(bt_arena_alloc(arena, 1600));
    assert_true(bt_arena_bytes(arena) <= 10000);
    assert_true(bt_arena_bytes(arena) > 9900);
    assert_non_null(bt_arena_alloc(arena, 16));
    bt_arena_close(arena);
    assert_null(bt_arena_open(8, 4096));
}

static void test_overflow(void **state) {
    (void)state;
    bt_arena *arena = bt_arena_open(UINT64_MAX, 4096);
    assert_non_null(arena);
    assert_null(bt_arena_alloc(arena, UINT64_MAX));
    assert_null(bt_arena_alloc(arena, UINT64_MAX - 64));
    assert_null(bt_arena_alloc(arena, UINT64_MAX / 2));
    assert_null(bt_arena_array(arena, UINT64_C(1) << 33, UINT64_C(1) << 31));
    assert_null(bt_arena_strndup(arena, "x", SIZE_MAX));
    assert_int_equal(bt_heap_live_blocks(), 1);
    uint64_t *items = bt_arena_array(arena, 3, sizeof *items);
    assert_non_null(items);
    assert_true(items[0] == 0 && items[2] == 0);
    bt_arena_close(arena);
}

static void test_strings(void **state) {
    (void)state;
    bt_arena *arena = bt_arena_open(4096, 0); /* no block size: a block per request */
    assert_non_null(arena);
    const char *whole = bt_arena_strdup(arena, "general.name");
    assert_string_equal(whole, "general.name");
    assert_string_equal(bt_arena_strndup(arena, "general.name", 7), "general");
    assert_string_equal(bt_arena_strndup(arena, "", 0), "");
    assert_int_equal(bt_heap_live_blocks(), 4);
    bt_arena_close(arena);
}

static void test_faults(void **state) {
    (void)state;
#ifdef BT_FAULT
    bt_fault_arm(0, false);
    assert_null(bt_arena_open(4096, 1024));
    assert_true(bt_fault_disarm());
    bt_arena *arena = bt_arena_open(1 << 20, 1024);
    assert_non_null(arena);
    uint64_t bytes = bt_arena_bytes(arena);
    bt_fault_arm(0, false);
    assert_null(bt_arena_alloc(arena, 100));
    assert_true(bt_fault_disarm());
    assert_int_equal(bt_arena_bytes(arena), bytes);
    assert_non_null(bt_arena_alloc(arena, 100));
    bt_arena_close(arena);
#else
    skip();
#endif
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, heap_is_empty, nothing_left)
    const struct CMUnitTest tests[] = {
        CASE(test_zeroed_and_aligned), CASE(test_blocks),  CASE(test_cap),
        CASE(test_overflow),           CASE(test_strings), CASE(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
