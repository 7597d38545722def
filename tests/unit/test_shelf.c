/* SPDX-License-Identifier: MIT
 * test_shelf.c: the slots of a block without any reads: when an expert is there, and whose slot goes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"
#include "heap_check.h"
#include "store/shelf.h"

#define N_SLOTS  3u
#define N_EXPERT 8u

static const bt_expert_block block = {.n_parts = 2};
static bt_shelf shelf;

static int start(void **state) {
    (void)state;
    shelf = (bt_shelf){0};
    return bt_shelf_open(&shelf, &block, N_SLOTS, N_EXPERT) ? 0 : -1;
}

static int stop(void **state) {
    bt_shelf_close(&shelf);
    return heap_is_empty(state);
}

/* As after a read of all its parts. */
static void fill(uint32_t at, uint32_t expert, uint64_t clock) {
    bt_shelf_give(&shelf, at, expert);
    shelf.slots[at].holds[0] = shelf.slots[at].holds[1] = expert;
    shelf.slots[at].used = clock;
}

static uint32_t oldest_beside(uint32_t a, uint32_t b) {
    bool is_wanted[N_EXPERT] = {false};
    is_wanted[a] = is_wanted[b] = true;
    return bt_shelf_oldest(&shelf, is_wanted);
}

static void all_parts_make_it_be_there(void **state) {
    (void)state;
    assert_false(bt_shelf_has(&shelf, 5));
    bt_shelf_give(&shelf, 1, 5);
    assert_int_equal(shelf.slot_of[5], 1);
    assert_false(bt_shelf_has(&shelf, 5));
    shelf.slots[1].holds[0] = 5;
    assert_false(bt_shelf_has(&shelf, 5)); /* one of two */
    shelf.slots[1].holds[1] = 5;
    assert_true(bt_shelf_has(&shelf, 5));
    assert_false(bt_shelf_expects(&shelf, 5));
    shelf.slots[1].coming = true;
    assert_true(bt_shelf_expects(&shelf, 5));
    assert_false(bt_shelf_expects(&shelf, 4));
    bt_shelf_forget(&shelf);
    assert_false(bt_shelf_has(&shelf, 5));
    assert_false(bt_shelf_expects(&shelf, 5));
    assert_int_equal(shelf.slot_of[5], BT_SHELF_NONE);
}

/* Whoever had the slot has none, and whoever gets another leaves the first to nobody. */
static void a_slot_changes_hands(void **state) {
    (void)state;
    fill(0, 2, 1);
    bt_shelf_give(&shelf, 0, 3);
    assert_int_equal(shelf.slot_of[2], BT_SHELF_NONE);
    assert_int_equal(shelf.slot_of[3], 0);
    assert_false(bt_shelf_has(&shelf, 3)); /* the bytes there are still the other's, */
    assert_int_equal(shelf.slots[0].holds[0], 2);
    bt_shelf_give(&shelf, 0, 2);
    assert_true(bt_shelf_has(&shelf, 2)); /* who finds them when it comes back */
    bt_shelf_give(&shelf, 2, 2);
    assert_int_equal(shelf.slots[0].owner, BT_SHELF_NONE);
    assert_int_equal(shelf.slot_of[2], 2);
    assert_false(bt_shelf_has(&shelf, 2));
}

static void the_oldest_goes(void **state) {
    (void)state;
    fill(0, 1, 30);
    fill(1, 2, 10);
    fill(2, 3, 20);
    assert_int_equal(oldest_beside(7, 7), 1);
    assert_int_equal(oldest_beside(2, 2), 2);
    assert_int_equal(oldest_beside(2, 3), 0);
    shelf.slots[0].coming = true; /* what is being read belongs to nobody else */
    assert_int_equal(oldest_beside(2, 3), BT_SHELF_NONE);
    shelf.slots[0].coming = false;
    shelf.slots[2].owner = BT_SHELF_NONE; /* nobody's: still by its age */
    assert_int_equal(oldest_beside(2, 3), 2);
}

#ifdef BT_FAULT
static void refused_memory(void **state) {
    (void)state;
    for (uint64_t k = 0; k < 2; k++) {
        bt_shelf other = {0};
        bt_fault_arm(k, false);
        assert_false(bt_shelf_open(&other, &block, N_SLOTS, N_EXPERT));
        assert_true(bt_fault_disarm());
        bt_shelf_close(&other);
    }
}
#endif

#define T(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(all_parts_make_it_be_there),
        T(a_slot_changes_hands),
        T(the_oldest_goes),
#ifdef BT_FAULT
        T(refused_memory),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
