/* SPDX-License-Identifier: MIT
 * test_leaf.c: each call that making a leaf makes, failing: an error with a code, and no group, no process in another
 * place, no descriptor and no memory that was not there before. */
#include "probe/leaf.h"

#define KIT_ROOT BT_TEST_OUT "/leaf-fault-root"
#include "leaf_kit.h"
#include "open_files.h"

#include "base/fault.h"
#include "base/heap.h"

#define MIB         (UINT64_C(1) << 20)
#define N_FAULT_MAX 200 /* one leaf takes some 30 fallible calls */

static void a_leaf_is_made_or_not(void **state) {
    (void)state;
    for (uint32_t version = 1; version <= 2; version++) {
        uint32_t n_entered = 0;
        uint32_t n_failed = 0;
        for (uint64_t k = 0;; k++) {
            assert_true(k < N_FAULT_MAX);
            kit_start(version);
            uint64_t live = bt_heap_live_blocks();
            uint32_t n_files = n_open_files();
            bt_leaf leaf = {0};
            bt_error err = {0};
            bt_fault_arm(k, false);
            bt_status status = bt_leaf_make(KIT_ROOT, 64 * MIB, &leaf, &err);
            bool hit = bt_fault_disarm();
            assert_int_equal(bt_heap_live_blocks(), live);
            assert_int_equal(n_open_files(), n_files);
            if (status == BT_OK) {
                /* Whatever could not be asked, the limit stands and we are under it. */
                assert_string_equal(kit_get(kit.leaf, version == 1 ? "memory.limit_in_bytes" : "memory.max"),
                                    "67108864\n");
                assert_string_equal(kit_get(kit.leaf, "cgroup.procs"), kit_own_line());
                assert_true(leaf.swap_held);
                if (!hit) break;
                continue;
            }
            n_failed++;
            assert_true(err.code[0] != '\0' && err.text[0] != '\0');
            assert_int_equal(leaf.version, 0);
            assert_false(kit_has(kit.leaf));
            if (kit.procs_then[0]) {
                n_entered++;
                assert_string_equal(kit_get(kit.group, "cgroup.procs"), kit_own_line());
            }
        }
        assert_true(n_failed > 10);
        assert_true(n_entered > 0);
    }
}

static void a_sweep_takes_only_what_is_left_behind(void **state) {
    (void)state;
    for (uint64_t k = 0;; k++) {
        assert_true(k < N_FAULT_MAX);
        kit_start(2);
        char path[320];
        (void)snprintf(path, sizeof path, "%s/burthen-101", kit.group);
        assert_int_equal(mkdir(path, 0755), 0);
        (void)snprintf(path, sizeof path, "%s/burthen-104", kit.group);
        assert_int_equal(mkdir(path, 0755), 0);
        kit_make_folders(KIT_ROOT "/proc/104");
        kit_put(KIT_ROOT "/proc/104", "cgroup", "0::/a\n"); /* about to enter */
        uint64_t live = bt_heap_live_blocks();
        uint32_t n_files = n_open_files();
        bt_fault_arm(k, false);
        uint32_t n_removed = bt_leaf_sweep(KIT_ROOT);
        bool hit = bt_fault_disarm();
        assert_int_equal(bt_heap_live_blocks(), live);
        assert_int_equal(n_open_files(), n_files);
        assert_true(kit_has(path));
        assert_int_equal(n_removed, kit.n_removed);
        if (!hit) {
            assert_int_equal(n_removed, 1);
            break;
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_leaf_is_made_or_not),
        cmocka_unit_test(a_sweep_takes_only_what_is_left_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
