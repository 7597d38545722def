/* SPDX-License-Identifier: MIT
 * test_disk.c: while a disk is looked at, tried and remembered every fallible call fails once, and then it and all
 * after it: an answer or none, and nothing left behind. */
#include "base/fault.h"
#include "base/heap.h"
#include "base/os.h"
#include "probe/disk.h"
#include "store/disk_speed.h"
#include "store_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define FAULT_MAX 5000u

static bool run(const kit *k, bt_reader_kind kind, void *buffer) {
    bt_store store = {0};
    bt_disk disk;
    bt_disk_speed speed = {0};
    bt_disk_find("", k->paths[0], &disk);
    (void)bt_disk_recall(&disk);
    if (bt_store_open(&k->facts, BT_IO_DIRECT, &store, NULL) != BT_OK) return false;
    bool measured = bt_disk_speed_measure(&store, kind, buffer, &speed);
    assert_int_equal(measured, speed.bytes_per_s > 0);
    bt_store_close(&store);
    disk.depth = 32;
    disk.request_bytes = BT_PAGE_BYTES;
    disk.bytes_per_s = 1;
    bt_disk_keep(&disk);
    return measured;
}

static void sweep(const kit *k, bt_reader_kind kind, bool persists, void *buffer) {
    for (uint64_t i = 0; i < FAULT_MAX; i += i < 32 ? 1 : i / 2) {
        uint64_t blocks = bt_heap_live_blocks();
        uint32_t fds = kit_n_fds();
        bt_fault_arm(i, persists);
        (void)run(k, kind, buffer);
        bool hit = bt_fault_disarm();
        assert_int_equal(bt_heap_live_blocks(), blocks);
        assert_int_equal(kit_n_fds(), fds);
        if (!hit) {
            assert_true(i > 20); /* the hooks are there */
            return;
        }
    }
    /* A fast disk is read more of: all kinds of calls were among the first thousands. */
}

static void test_every_call_fails(void **state) {
    (void)state;
    static const uint64_t sizes[] = {BT_DISK_SPEED_FILE_MIN_BYTES};
    kit k;
    assert_int_equal(setenv("BURTHEN_STATE_DIR", BT_TEST_OUT "/disk_fault", 1), 0);
    kit_open(&k, "disk_fault", sizes, 1, 5);
    void *buffer = bt_os_reserve(BT_DISK_SPEED_BUFFER_BYTES);
    assert_non_null(buffer);
    sweep(&k, BT_READER_AUTO, true, buffer);
    sweep(&k, BT_READER_PREAD, false, buffer);
    (void)bt_os_unreserve(buffer, BT_DISK_SPEED_BUFFER_BYTES);
    kit_close(&k);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_call_fails)};
    return cmocka_run_group_tests_name("disk_fault", tests, NULL, NULL);
}
