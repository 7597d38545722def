/* SPDX-License-Identifier: MIT
 * test_footprint.c: each call that remembering makes, failing: the file is the one before or the one after, what is
 * read is what it says or nothing, and nothing leaks. */
#include "guard/footprint.h"

#include "base/fault.h"
#include "base/heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "open_files.h"

#define FOLDER      BT_TEST_OUT "/footprint-fault"
#define NAME        "footprint-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define N_FAULT_MAX 100 /* one file takes some 10 fallible calls */

static const char *const pools[] = {"host", "CUDA0"};

static int start(void **state) {
    (void)state;
    assert_int_equal(system("rm -rf '" FOLDER "'"), 0); /* NOLINT(bugprone-command-processor) */
    return setenv("BURTHEN_STATE_DIR", FOLDER, 1);
}

static uint64_t read_host(void) {
    bt_footprint got;
    bt_footprint_read(NAME, &got);
    return bt_footprint_find(&got, "host");
}

static void kept_or_as_before(void **state) {
    (void)state;
    uint32_t n_lost = 0;
    for (uint64_t k = 0;; k++) {
        assert_true(k < N_FAULT_MAX);
        (void)start(state);
        bt_footprint_keep(NAME, pools, 2, (const bt_known[]){{true, 500}, {true, 70}});
        assert_int_equal(read_host(), 500);
        uint64_t live = bt_heap_live_blocks();
        uint32_t n_files = n_open_files();
        bt_fault_arm(k, false);
        bt_footprint_keep(NAME, pools, 1, (const bt_known[]){{true, 600}});
        bool hit = bt_fault_disarm();
        assert_int_equal(bt_heap_live_blocks(), live);
        assert_int_equal(n_open_files(), n_files);
        bt_footprint got;
        bt_footprint_read(NAME, &got);
        uint64_t host = bt_footprint_find(&got, "host");
        assert_true(host == 500 || host == 600);
        assert_int_equal(bt_footprint_find(&got, "CUDA0"), 70); /* what could not be read is not replaced */
        n_lost += host == 500;
        if (hit) continue;
        assert_int_equal(host, 600);
        break;
    }
    assert_true(n_lost > 3);
}

static void read_or_nothing(void **state) {
    (void)state;
    bt_footprint_keep(NAME, pools, 1, (const bt_known[]){{true, 500}});
    for (uint64_t k = 0;; k++) {
        assert_true(k < N_FAULT_MAX);
        uint64_t live = bt_heap_live_blocks();
        uint32_t n_files = n_open_files();
        bt_fault_arm(k, false);
        uint64_t host = read_host();
        bool hit = bt_fault_disarm();
        assert_int_equal(bt_heap_live_blocks(), live);
        assert_int_equal(n_open_files(), n_files);
        assert_true(host == 500 || (hit && host == 0));
        if (!hit) break;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(kept_or_as_before, start),
        cmocka_unit_test_setup(read_or_nothing, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
