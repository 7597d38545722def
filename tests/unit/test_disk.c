/* SPDX-License-Identifier: MIT
 * test_disk.c: what a file lies on, in a made-up /sys; what is remembered; and a real file tried out. */
#include "base/heap.h"
#include "base/os.h"
#include "base/state.h"
#include "plan/plan.h"
#include "probe/disk.h"
#include "store/disk_speed.h"
#include "store_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define ROOT BT_TEST_OUT "/disk"

static int start(void **state) {
    (void)state;
    assert_int_equal(system("rm -rf '" ROOT "'"), 0); /* NOLINT(bugprone-command-processor) */
    assert_int_equal(mkdir(ROOT, 0700), 0);
    assert_int_equal(setenv("BURTHEN_STATE_DIR", ROOT "/kept", 1), 0);
    return 0;
}

static void shell(const char *command) {
    assert_int_equal(system(command), 0); /* NOLINT(bugprone-command-processor) */
}

/* 8:0 is a disk, 8:1 its partition, as the kernel lays them out. */
static void make_disk(const char *rotational) {
    char command[1024];
    (void)snprintf(command, sizeof command,
                   "mkdir -p '" ROOT "/sys/devices/sda/queue' '" ROOT "/sys/devices/sda/sda1' '" ROOT
                   "/sys/dev/block' && cd '" ROOT "/sys/dev/block' && ln -sf ../../devices/sda 8:0 && "
                   "ln -sf ../../devices/sda/sda1 8:1 && printf 'MAJOR=8\\nMINOR=0\\nDEVNAME=sda\\n' > 8:0/uevent && "
                   "printf 'MAJOR=8\\nMINOR=1\\nDEVNAME=sda1\\n' > 8:1/uevent && printf '%s' > 8:0/queue/rotational",
                   rotational);
    shell(command);
}

static void expect_device(uint32_t device_minor, const char *name, bt_disk_kind kind) {
    bt_disk disk = {0};
    assert_true(bt_disk_of_device(ROOT, 8, device_minor, &disk));
    assert_string_equal(disk.name, name);
    assert_int_equal(disk.kind, kind);
}

static void test_devices(void **state) {
    (void)state;
    make_disk("0\\n");
    expect_device(0, "sda", BT_DISK_SOLID);
    expect_device(1, "sda1", BT_DISK_SOLID);
    make_disk("1\\n");
    expect_device(0, "sda", BT_DISK_ROTATING);
    expect_device(1, "sda1", BT_DISK_ROTATING);
    make_disk("maybe\\n");
    expect_device(1, "sda1", BT_DISK_UNKNOWN);
    shell("rm '" ROOT "/sys/devices/sda/queue/rotational'");
    expect_device(1, "sda1", BT_DISK_UNKNOWN);
    bt_disk disk = {0};
    assert_false(bt_disk_of_device(ROOT, 8, 2, &disk));
    assert_false(bt_disk_of_device(ROOT, 0, 0, &disk)); /* a number that is made up */
}

/* Virtual disks say that they rotate, whatever they are. */
static void test_speed_speaks_against_rotating(void **state) {
    (void)state;
    assert_true(bt_disk_rotates(&(bt_disk){.kind = BT_DISK_ROTATING}));
    assert_true(bt_disk_rotates(&(bt_disk){.kind = BT_DISK_ROTATING, .bytes_per_s = 250000000}));
    assert_false(bt_disk_rotates(&(bt_disk){.kind = BT_DISK_ROTATING, .bytes_per_s = 1300000000}));
    assert_false(bt_disk_rotates(&(bt_disk){.kind = BT_DISK_SOLID, .bytes_per_s = 100000000}));
}

static void test_mount_source(void **state) {
    (void)state;
    static const char text[] = "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
                               "36 35 0:45 /sub /data rw,noatime master:1 shared:2 - btrfs /dev/sdb2 rw,ssd\n"
                               "40 35 0:50 / / rw - overlay overlay rw,lowerdir=/x\n"
                               "41 35 0:51 / /short rw\n";
    char path[64];
    assert_true(bt_disk_mount_source(text, 36, path, sizeof path));
    assert_string_equal(path, "/dev/sdb2");
    assert_false(bt_disk_mount_source(text, 36, path, 5));
    assert_false(bt_disk_mount_source(text, 22, path, sizeof path));
    assert_false(bt_disk_mount_source(text, 40, path, sizeof path));
    assert_false(bt_disk_mount_source(text, 41, path, sizeof path));
    assert_false(bt_disk_mount_source(text, 99, path, sizeof path));
}

static void test_find_on_this_machine(void **state) {
    (void)state;
    bt_disk disk;
    bt_disk_find("", ROOT, &disk);
    assert_true(disk.id[0]);
    bt_disk_find("", ROOT "/no such file", &disk);
    assert_int_equal(disk.kind, BT_DISK_UNKNOWN);
    assert_int_equal(disk.id[0], '\0');
    struct stat st;
    if (stat("/dev/shm", &st) != 0) return;
    bt_disk_find("", "/dev/shm", &disk);
    assert_int_equal(disk.kind, BT_DISK_MEMORY);
    assert_string_equal(disk.name, "tmpfs");
}

/* ---- remembered -------------------------------------------------------------------------------------------------- */

static void test_kept(void **state) {
    (void)state;
    bt_disk disk = {.id = "00000001-ef53", .depth = 16, .request_bytes = 4u << 20, .bytes_per_s = 1234567890};
    bt_disk other = {.id = "00000002-ef53"};
    bt_disk back = {.id = "00000001-ef53"};
    assert_false(bt_disk_recall(&back));
    bt_disk_keep(&disk);
    assert_true(bt_disk_recall(&back));
    assert_int_equal(back.depth, 16);
    assert_int_equal(back.request_bytes, 4u << 20);
    assert_int_equal(back.bytes_per_s, 1234567890);
    assert_false(bt_disk_recall(&other));
    assert_false(bt_disk_recall(&(bt_disk){0})); /* no id: nothing is kept or known */
}

/* What was measured now is remembered, and a forecast stands on it unless a speed was given. */
static void test_learned(void **state) {
    (void)state;
    static bt_machine machine;
    machine.disk = (bt_disk){.id = "00000003-ef53"};
    bt_disk_learn(&machine, 32, 1u << 20, 700000000);
    bt_disk back = {.id = "00000003-ef53"};
    assert_true(bt_disk_recall(&back));
    assert_int_equal(back.depth, 32);
    assert_int_equal(back.request_bytes, 1u << 20);
    assert_int_equal(back.bytes_per_s, 700000000);
    assert_true(machine.disk_measured && machine.disk_bytes_per_s.known);
    assert_int_equal(machine.disk_bytes_per_s.value, 700000000);
    machine.disk_measured = false;
    machine.disk_bytes_per_s = (bt_known){true, 5};
    bt_disk_learn(&machine, 8, 1u << 20, 800000000);
    assert_int_equal(machine.disk_bytes_per_s.value, 5);
    assert_int_equal(machine.disk.bytes_per_s, 800000000);
}

static void test_damaged_files_are_none(void **state) {
    (void)state;
    static const char *const wrong[] = {
        "",
        "burthen-disk 2\n32 1048576 1000\n",
        "burthen-disk 1\n",
        "burthen-disk 1\n32 1048576\n",
        "burthen-disk 1\n32 1048576 1000 7\n",
        "burthen-disk 1\n0 1048576 1000\n",
        "burthen-disk 1\n257 1048576 1000\n",
        "burthen-disk 1\n32 1048577 1000\n",
        "burthen-disk 1\n32 134217728 1000\n",
        "burthen-disk 1\n32 -4096 1000\n",
        "burthen-disk 1\n32 1048576 99999999999999999999999\n",
    };
    int dir = -1;
    assert_int_equal(bt_state_open(true, &dir, NULL), BT_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        bt_disk disk = {.id = "00000001-ef53"};
        assert_int_equal(bt_state_write(dir, "disk-00000001-ef53", wrong[i], strlen(wrong[i]), NULL), BT_OK);
        if (bt_disk_recall(&disk)) fail_msg("taken: %s", wrong[i]);
        assert_int_equal(disk.depth, 0);
    }
    (void)bt_os_close(dir);
}

static void test_what_is_given_stands(void **state) {
    (void)state;
    bt_machine *machine = bt_heap_alloc(sizeof *machine);
    assert_non_null(machine);
    bt_disk_apply(machine);
    assert_false(machine->disk_bytes_per_s.known);
    machine->disk.bytes_per_s = 500;
    bt_disk_apply(machine);
    assert_int_equal(machine->disk_bytes_per_s.value, 500);
    assert_true(machine->disk_measured);
    machine->disk.bytes_per_s = 600;
    bt_disk_apply(machine);
    assert_int_equal(machine->disk_bytes_per_s.value, 600);
    machine->disk_measured = false; /* given */
    machine->disk.bytes_per_s = 700;
    bt_disk_apply(machine);
    assert_int_equal(machine->disk_bytes_per_s.value, 600);
    bt_heap_free(machine);
}

/* ---- tried out --------------------------------------------------------------------------------------------------- */

static void test_a_real_file(void **state) {
    (void)state;
    static const uint64_t sizes[] = {(20u << 20) + 77};
    static const bt_reader_kind kinds[] = {BT_READER_AUTO, BT_READER_PREAD};
    kit k;
    uint32_t n_fds = kit_n_fds();
    kit_open(&k, "disk_speed", sizes, 1, 3);
    bt_store store;
    assert_int_equal(bt_store_open(&k.facts, BT_IO_DIRECT, &store, NULL), BT_OK);
    void *buffer = bt_os_reserve(BT_DISK_SPEED_BUFFER_BYTES);
    assert_non_null(buffer);
    for (size_t i = 0; i < 2; i++) {
        bt_disk_speed speed = {0};
        bool measured = bt_disk_speed_measure(&store, kinds[i], buffer, &speed);
        assert_int_equal(measured, store.direct);
        if (!measured) continue;
        assert_true(speed.depth >= 1 && speed.depth <= 64);
        assert_int_equal(speed.request_bytes % BT_PAGE_BYTES, 0);
        assert_true(speed.bytes_per_s > 0);
    }
    bt_store_close(&store);
    bt_disk_speed speed = {0};
    assert_int_equal(bt_store_open(&k.facts, BT_IO_BUFFERED, &store, NULL), BT_OK);
    assert_false(bt_disk_speed_measure(&store, BT_READER_AUTO, buffer, &speed)); /* that would be the page cache */
    bt_store_close(&store);
    kit_close(&k);
    static const uint64_t short_sizes[] = {BT_DISK_SPEED_FILE_MIN_BYTES - 1};
    kit_open(&k, "disk_speed", short_sizes, 1, 3);
    assert_int_equal(bt_store_open(&k.facts, BT_IO_DIRECT, &store, NULL), BT_OK);
    assert_false(bt_disk_speed_measure(&store, BT_READER_AUTO, buffer, &speed));
    bt_store_close(&store);
    kit_close(&k);
    (void)bt_os_unreserve(buffer, BT_DISK_SPEED_BUFFER_BYTES);
    assert_int_equal(kit_n_fds(), n_fds); /* nothing stays open */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_devices, start),
        cmocka_unit_test(test_speed_speaks_against_rotating),
        cmocka_unit_test(test_mount_source),
        cmocka_unit_test_setup(test_find_on_this_machine, start),
        cmocka_unit_test_setup(test_kept, start),
        cmocka_unit_test_setup(test_learned, start),
        cmocka_unit_test_setup(test_damaged_files_are_none, start),
        cmocka_unit_test(test_what_is_given_stands),
        cmocka_unit_test(test_a_real_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
