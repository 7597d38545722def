/* SPDX-License-Identifier: MIT
 * test_reservations.c: each call that promising memory makes, failing: an error with a code, nothing leaks, and the
 * file is the one before or the one after, never a part of either. */
#include "base/fault.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/state.h"
#include "probe/reservations.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "open_files.h"

#define FOLDER      BT_TEST_OUT "/reservations-fault"
#define N_FAULT_MAX 200 /* one promise makes some 20 fallible calls */
#define MIB         (UINT64_C(1) << 20)

static int start(void **state) {
    (void)state;
    assert_int_equal(system("rm -rf '" FOLDER "'"), 0); /* NOLINT(bugprone-command-processor) */
    return setenv("BURTHEN_STATE_DIR", FOLDER, 1);
}

/* The file, read without faults; "" when there is none. */
static void read_book(char text[1024]) {
    int dir = -1;
    bt_text book;
    bt_text_init(&book, 1023);
    text[0] = '\0';
    if (bt_state_open(false, &dir, NULL) == BT_OK) {
        if (bt_state_read(dir, "reservations", &book, NULL) == BT_OK) memcpy(text, book.data, book.n_bytes + 1);
        (void)bt_os_close(dir);
    }
    bt_text_done(&book);
}

static void a_promise_is_made_or_not(void **state) {
    (void)state;
    bool promised = false;
    assert_int_equal(bt_reservation_make("run", MIB, UINT64_MAX, &promised, NULL), BT_OK);
    char before[1024];
    char after[1024];
    read_book(before);
    assert_non_null(strstr(before, " 1048576 run\n"));
    uint32_t n_files = n_open_files();
    uint32_t n_failed = 0;
    for (uint64_t k = 0;; k++) {
        assert_true(k < N_FAULT_MAX);
        uint64_t live = bt_heap_live_blocks();
        bt_error err = {0};
        bt_fault_arm(k, false);
        bt_status status = bt_reservation_make("run", 2 * MIB, UINT64_MAX, &promised, &err);
        bool hit = bt_fault_disarm();
        assert_int_equal(bt_heap_live_blocks(), live);
        assert_int_equal(n_open_files(), n_files);
        read_book(after);
        if (status == BT_OK) {
            assert_non_null(strstr(after, " 2097152 run\n"));
            if (!hit) break;
            continue;
        }
        n_failed++;
        assert_true(err.code[0] != '\0' && err.text[0] != '\0');
        if (!strstr(after, " 2097152 run\n")) assert_string_equal(after, before);
        assert_int_equal(bt_reservation_make("run", MIB, UINT64_MAX, &promised, NULL), BT_OK);
    }
    assert_true(n_failed > 3);
    bt_reservation_drop();
}

static void a_look_knows_or_says_why_not(void **state) {
    (void)state;
    static bt_machine machine;
    bool promised = false;
    assert_int_equal(bt_reservation_make("run", MIB, UINT64_MAX, &promised, NULL), BT_OK);
    for (uint64_t k = 0;; k++) {
        assert_true(k < N_FAULT_MAX);
        uint64_t live = bt_heap_live_blocks();
        memset(&machine, 0, sizeof machine);
        bt_fault_arm(k, false);
        bt_reservations_probe(&machine);
        bool hit = bt_fault_disarm();
        assert_int_equal(bt_heap_live_blocks(), live);
        assert_int_equal(machine.n_reservations, 0); /* there is nobody but us */
        assert_int_equal(machine.promised_bytes, 0);
        if (!hit) break;
    }
    bt_reservation_drop();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_promise_is_made_or_not, start),
        cmocka_unit_test_setup(a_look_knows_or_says_why_not, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
