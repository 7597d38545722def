/* SPDX-License-Identifier: MIT
 * test_heap.c: the heap's door counts and refuses; the fault counter behind it hits exactly what was asked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/heap.h"

#include <pthread.h>
#include <string.h>

static void test_counts(void **state) {
    (void)state;
    assert_int_equal(bt_heap_live_bytes(), 0);
    uint64_t n_allocations = bt_heap_allocations();
    unsigned char *a = bt_heap_alloc(1000);
    unsigned char *b = bt_heap_array(10, 100);
    assert_non_null(a);
    assert_non_null(b);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(a[i] | b[i], 0);
    }
    assert_int_equal(bt_heap_live_blocks(), 2);
    assert_true(bt_heap_live_bytes() >= 2000 && bt_heap_live_bytes() < 2200);

    memset(a, 7, 1000);
    a = bt_heap_resize(a, 100000);
    assert_non_null(a);
    assert_int_equal(a[999], 7);
    assert_int_equal(bt_heap_live_blocks(), 2);
    assert_true(bt_heap_live_bytes() >= 101000 && bt_heap_live_bytes() < 110000);
    a = bt_heap_resize(a, 0);
    assert_non_null(a);
    assert_int_equal(bt_heap_live_blocks(), 2);
    assert_true(bt_heap_live_bytes() < 1200);

    char *copy = bt_heap_strdup("text");
    assert_string_equal(copy, "text");
    void *fresh = bt_heap_resize(NULL, 10);
    void *none = bt_heap_alloc(0);
    assert_non_null(fresh);
    assert_non_null(none);
    assert_int_equal(bt_heap_live_blocks(), 5);
    bt_heap_free(a);
    bt_heap_free(b);
    bt_heap_free(copy);
    bt_heap_free(fresh);
    bt_heap_free(none);
    bt_heap_free(NULL);
    assert_int_equal(bt_heap_live_blocks(), 0);
    assert_int_equal(bt_heap_live_bytes(), 0);
    assert_int_equal(bt_heap_allocations() - n_allocations, 7); /* two resizes among them */
}

static void test_refuses(void **state) {
    (void)state;
    volatile size_t huge = SIZE_MAX; /* or the compiler warns of what is tested here */
    assert_null(bt_heap_alloc(huge));
    assert_null(bt_heap_alloc((size_t)PTRDIFF_MAX + 1));
    assert_null(bt_heap_array(huge, 2));
    assert_null(bt_heap_array(huge / 2 + 2, 2)); /* wraps to 2 */
    void *p = bt_heap_alloc(10);
    assert_non_null(p);
    void *moved = bt_heap_resize(p, huge);
    assert_null(moved);
    assert_int_equal(bt_heap_live_blocks(), 1);
    bt_heap_free(p); /* still valid */
    assert_int_equal(bt_heap_live_bytes(), 0);
}

static void *allocate_much(void *user) {
    (void)user;
    for (size_t i = 1; i < 3000; i++) {
        void *p = bt_heap_alloc(i);
        void *q = bt_heap_resize(p, 3 * i);
        bt_heap_free(q ? q : p);
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_much, NULL), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(bt_heap_live_blocks(), 0);
    assert_int_equal(bt_heap_live_bytes(), 0);
}

#ifdef BT_FAULT
static void *ask_often(void *user) {
    uint64_t *n_hits = user;
    for (int i = 0; i < 1000; i++) {
        *n_hits += bt_fault_hit();
    }
    return NULL;
}

static uint64_t hits_of_four_threads(void) {
    pthread_t threads[4];
    uint64_t hits[4] = {0};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, ask_often, &hits[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    return hits[0] + hits[1] + hits[2] + hits[3];
}

static void test_faults(void **state) {
    (void)state;
    assert_false(bt_fault_hit());
    bt_fault_arm(1, false);
    void *first = bt_heap_alloc(1);
    void *second = bt_heap_alloc(1);
    void *third = bt_heap_resize(first, 100);
    assert_int_equal(bt_fault_count(), 3);
    assert_true(bt_fault_disarm());
    assert_non_null(first);
    assert_null(second);
    assert_non_null(third);
    assert_false(bt_fault_hit());
    assert_int_equal(bt_fault_count(), 3); /* only while armed */

    bt_fault_arm(1, true);
    first = bt_heap_alloc(1);
    assert_non_null(first);
    assert_null(bt_heap_alloc(1));
    assert_null(bt_heap_resize(third, 200));
    assert_null(bt_heap_strdup("x"));
    assert_true(bt_fault_disarm());

    bt_fault_arm(5, false);
    assert_false(bt_fault_hit());
    assert_false(bt_fault_disarm()); /* nothing was hit */
    assert_int_equal(bt_fault_count(), 1);
    bt_heap_free(first);
    bt_heap_free(third);
    assert_int_equal(bt_heap_live_blocks(), 0);
}

static void test_faults_of_threads(void **state) {
    (void)state;
    bt_fault_arm(1234, false);
    assert_int_equal(hits_of_four_threads(), 1);
    assert_int_equal(bt_fault_count(), 4000);
    assert_true(bt_fault_disarm());
    bt_fault_arm(1234, true);
    assert_int_equal(hits_of_four_threads(), 4000 - 1234);
    assert_true(bt_fault_disarm());
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts), cmocka_unit_test(test_refuses),           cmocka_unit_test(test_threads),
#ifdef BT_FAULT
        cmocka_unit_test(test_faults), cmocka_unit_test(test_faults_of_threads),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
