/* SPDX-License-Identifier: MIT
 * test_learned.c: each call that remembering makes, failing: the file is the one before or the one after, what is read
 * is what it says or unknown, and nothing leaks. */
#include "guard/learned.h"

#include "base/fault.h"
#include "base/heap.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "open_files.h"

#define FOLDER      BT_TEST_OUT "/learned-fault"
#define NAME        "learned-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define N_FAULT_MAX 100 /* one file takes some 10 fallible calls */
#define MIB         (UINT64_C(1) << 20)

static int start(void **state) {
    (void)state;
    assert_int_equal(system("rm -rf '" FOLDER "'"), 0); /* NOLINT(bugprone-command-processor) */
    return setenv("BURTHEN_STATE_DIR", FOLDER, 1);
}

static uint32_t n_files(void) {
    uint32_t n = 0;
    DIR *list = opendir(FOLDER);
    assert_non_null(list);
    while (readdir(list))
        n++;
    (void)closedir(list);
    return n - 2; /* "." and ".." */
}

static void a_run_is_remembered_or_not(void **state) {
    (void)state;
    uint32_t n_lost = 0;
    bt_learned_keep(NAME, MIB);
    for (uint64_t k = 0;; k++) {
        assert_true(k < N_FAULT_MAX);
        bt_known before;
        bt_known after;
        bt_learned_read(NAME, &before);
        assert_true(before.known);
        uint64_t live = bt_heap_live_blocks();
        uint32_t n_fds = n_open_files();
        bt_fault_arm(k, false);
        bt_learned_keep(NAME, before.value + MIB);
        bool hit = bt_fault_disarm();
        assert_int_equal(bt_heap_live_blocks(), live);
        assert_int_equal(n_open_files(), n_fds);
        assert_int_equal(n_files(), 2); /* it and the lock: nothing half written */
        bt_learned_read(NAME, &after);
        assert_true(after.known);
        assert_true(after.value == before.value || after.value == before.value + MIB);
        if (after.value == before.value) n_lost++;
        if (!hit) {
            assert_int_equal(after.value, before.value + MIB);
            break;
        }
    }
    assert_true(n_lost > 2);
}

static void what_cannot_be_read_is_not_made_less(void **state) {
    (void)state;
    bt_known got;
    bt_learned_keep(NAME, 5 * MIB);
    for (uint64_t k = 0;; k++) {
        assert_true(k < N_FAULT_MAX);
        bt_fault_arm(k, false);
        bt_learned_keep(NAME, MIB);
        bool hit = bt_fault_disarm();
        bt_learned_read(NAME, &got);
        assert_int_equal(got.value, 5 * MIB);
        if (!hit) break;
    }
}

static void a_look_knows_or_does_not(void **state) {
    (void)state;
    uint32_t n_unknown = 0;
    bt_learned_keep(NAME, 5 * MIB);
    for (uint64_t k = 0;; k++) {
        assert_true(k < N_FAULT_MAX);
        bt_known got;
        uint64_t live = bt_heap_live_blocks();
        uint32_t n_fds = n_open_files();
        bt_fault_arm(k, false);
        bt_learned_read(NAME, &got);
        bool hit = bt_fault_disarm();
        assert_int_equal(bt_heap_live_blocks(), live);
        assert_int_equal(n_open_files(), n_fds);
        assert_int_equal(got.value, got.known ? 5 * MIB : 0);
        if (!got.known) n_unknown++;
        if (!hit) {
            assert_true(got.known);
            break;
        }
    }
    assert_true(n_unknown > 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_run_is_remembered_or_not, start),
        cmocka_unit_test_setup(what_cannot_be_read_is_not_made_less, start),
        cmocka_unit_test_setup(a_look_knows_or_does_not, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
