/* SPDX-License-Identifier: MIT
 * test_leaf.c: a leaf is made in its order or not at all, and what was left behind is swept, on trees of plain files.
 *
 * That the kernel holds a process to it is tested in tests/integration/test_leaf.c. */
#include "probe/leaf.h"

#define KIT_ROOT BT_TEST_OUT "/leaf-root"
#include "leaf_kit.h"

#include "base/os.h"

#define MIB (UINT64_C(1) << 20)

static bt_leaf leaf;
static bt_error err;

static bt_status make(uint64_t limit_bytes) {
    memset(&leaf, 0xA5, sizeof leaf);
    memset(&err, 0, sizeof err);
    return bt_leaf_make(KIT_ROOT, limit_bytes, &leaf, &err);
}

/* Nothing of it is left. sys: errno of the call that failed, or 0; words: of the sentence. */
static void expect_undone(bt_status status, const char *code, int sys, const char *words) {
    assert_int_equal(make(64 * MIB), status);
    assert_string_equal(err.code, code);
    assert_int_equal(err.sys, sys);
    if (!strstr(err.text, words)) fail_msg("%s", err.text);
    assert_int_equal(leaf.version, 0xA5A5A5A5); /* not touched */
    assert_false(kit_has(kit.leaf));
}

/* ---- making ----------------------------------------------------------------------------------------------------- */

static void v1_is_limited_with_swap_and_entered(void **state) {
    (void)state;
    kit_start(1);
    assert_int_equal(make(64 * MIB + 5), BT_OK);
    assert_int_equal(leaf.version, 1);
    assert_int_equal(leaf.limit_bytes, 64 * MIB);
    assert_true(leaf.swap_held);
    char folder[256];
    (void)snprintf(folder, sizeof folder, "/sys/fs/cgroup/memory/a/burthen-%ld", (long)getpid());
    assert_string_equal(leaf.folder, folder);
    assert_string_equal(kit_get(kit.leaf, "memory.limit_in_bytes"), "67108864\n");
    assert_string_equal(kit_get(kit.leaf, "memory.memsw.limit_in_bytes"), "67108864\n");
    assert_string_equal(kit_get(kit.leaf, "cgroup.procs"), kit_own_line());
    assert_string_equal(kit_get(kit.group, "cgroup.procs"), "");
    /* nothing else was written */
    assert_string_equal(kit_get(kit.group, "memory.limit_in_bytes"), "9223372036854771712\n");
    bt_leaf_leave(KIT_ROOT, &leaf);
    assert_string_equal(kit_get(kit.group, "cgroup.procs"), kit_own_line());
    assert_false(kit_has(kit.leaf));
}

static void v2_is_limited_without_swap_and_entered(void **state) {
    (void)state;
    kit_start(2);
    assert_int_equal(make(64 * MIB), BT_OK);
    assert_int_equal(leaf.version, 2);
    assert_true(leaf.swap_held);
    assert_string_equal(kit_get(kit.leaf, "memory.max"), "67108864\n");
    assert_string_equal(kit_get(kit.leaf, "memory.swap.max"), "0\n");
    assert_string_equal(kit_get(kit.leaf, "cgroup.procs"), kit_own_line());
    assert_string_equal(kit_get(kit.group, "memory.max"), "max\n");
    assert_string_equal(kit_get(kit.group, "cgroup.subtree_control"), "");
}

static void a_kernel_that_does_not_account_swap_is_said(void **state) {
    (void)state;
    for (uint32_t version = 1; version <= 2; version++) {
        kit_start(version);
        kit.no_swap = true;
        assert_int_equal(make(64 * MIB), BT_OK);
        assert_false(leaf.swap_held);
        assert_string_equal(kit_get(kit.leaf, "memory.memsw.limit_in_bytes"), "");
    }
}

static void the_v1_controller_is_taken_beside_a_v2_tree(void **state) {
    (void)state;
    kit_start(1); /* whose v2 line is of another group */
    assert_int_equal(make(64 * MIB), BT_OK);
    assert_false(kit_has(KIT_V2 "/unified"));
    assert_true(kit_has(kit.leaf));
}

static void a_group_mounted_from_its_own_root(void **state) {
    (void)state;
    kit_start(1);
    kit_put(KIT_ROOT "/proc/self", "cgroup", "4:memory:/docker/5f0c/a\n");
    kit_put(KIT_ROOT "/proc/self", "mountinfo",
            "33 25 0:31 /docker/5f0c /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    assert_int_equal(make(64 * MIB), BT_OK);
    assert_true(kit_has(kit.leaf));
}

static void an_empty_group_of_our_number_is_taken_over(void **state) {
    (void)state;
    kit_start(1);
    assert_int_equal(mkdir(kit.leaf, 0755), 0);
    kit_put(kit.leaf, "memory.limit_in_bytes", "4096\n");
    assert_int_equal(make(64 * MIB), BT_OK);
    assert_int_equal(kit.n_removed, 1);
    assert_string_equal(kit_get(kit.leaf, "memory.limit_in_bytes"), "67108864\n");
}

/* ---- not at all ------------------------------------------------------------------------------------------------- */

static void one_of_our_number_with_somebody_in_it_is_left_alone(void **state) {
    (void)state;
    kit_start(1);
    assert_int_equal(mkdir(kit.leaf, 0755), 0);
    kit_put(kit.leaf, "cgroup.procs", "999999\n"); /* of another pid namespace, say */
    assert_int_equal(make(64 * MIB), BT_E_IO);
    assert_string_equal(err.code, "leaf");
    assert_int_equal(err.sys, EEXIST);
    assert_string_equal(kit_get(kit.leaf, "cgroup.procs"), "999999\n");
    assert_string_equal(kit_get(kit.leaf, "memory.limit_in_bytes"), "9223372036854771712\n");
}

static void no_memory_cgroup(void **state) {
    (void)state;
    kit_start(1);
    kit_put(KIT_ROOT "/proc/self", "cgroup", "3:cpuset:/\n");
    expect_undone(BT_E_UNSUPPORTED, "leaf_place", 0, "in no memory cgroup");
    assert_int_equal(remove(KIT_ROOT "/proc/self/cgroup"), 0);
    expect_undone(BT_E_UNSUPPORTED, "leaf_place", 0, "in no memory cgroup");
}

static void a_group_that_is_not_seen_is_not_guessed(void **state) {
    (void)state;
    kit_start(2);
    kit_put(KIT_ROOT "/proc/self", "cgroup", "0::/../a\n");
    expect_undone(BT_E_UNSUPPORTED, "leaf_place", 0, "is not seen below /sys/fs/cgroup");
    kit_put(KIT_ROOT "/proc/self", "mountinfo", "35 31 0:32 / /sys/fs/x rw - tmpfs tmpfs rw\n");
    expect_undone(BT_E_UNSUPPORTED, "cgroup", 0, "mounted nowhere");
}

static void v2_that_does_not_hand_memory_down(void **state) {
    (void)state;
    kit_start(2);
    kit.no_memory = true;
    expect_undone(BT_E_UNSUPPORTED, "leaf_place", 0,
                  "cgroup /sys/fs/cgroup/a does not hand the memory controller down to groups in it (a group with "
                  "processes of its own cannot: \"no internal processes\")");
    assert_int_equal(kit.n_removed, 1);
    assert_string_equal(kit.procs_then, ""); /* never entered */
}

static void the_systems_own_reason_is_said(void **state) {
    (void)state;
    const int errors[] = {EACCES, EPERM, EROFS, ENOSPC};
    for (uint32_t version = 1; version <= 2; version++) {
        for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
            kit_start(version);
            kit.make_error = errors[i];
            expect_undone(BT_E_IO, "leaf", errors[i], strerror(errors[i]));
            assert_int_equal(kit.n_removed, 0);
        }
    }
}

static void a_limit_that_is_not_kept_is_none(void **state) {
    (void)state;
    for (uint32_t version = 1; version <= 2; version++) {
        kit_start(version);
        kit.limit_to = "/dev/null";
        expect_undone(BT_E_IO, "leaf_limit", 0, "does not keep what is written there");
        assert_int_equal(err.need, 64 * MIB);
        assert_int_equal(kit.n_removed, 1);
        assert_string_equal(kit.procs_then, ""); /* never entered */
    }
}

static void nor_is_one_that_became_another(void **state) {
    (void)state;
    for (uint32_t version = 1; version <= 2; version++) {
        kit_start(version);
        kit.limit_to = "/proc/self/comm"; /* the name of a process, which the kernel cuts to 15 characters */
        assert_int_equal(make(UINT64_C(1) << 50), BT_E_IO);
        assert_string_equal(err.code, "leaf_limit");
        assert_int_equal(err.need, UINT64_C(1125899906842624));
        assert_int_equal(err.have, UINT64_C(112589990684262));
        assert_false(kit_has(kit.leaf));
        kit_start(version);
        assert_int_equal(make(UINT64_C(1) << 62), BT_E_IO); /* which v1 says for no limit */
        assert_string_equal(err.code, "leaf_limit");
        assert_false(kit_has(kit.leaf));
    }
}

static void who_cannot_enter_leaves_nothing(void **state) {
    (void)state;
    kit_start(1);
    kit.procs_to = KIT_ROOT "/proc"; /* a folder: EISDIR */
    expect_undone(BT_E_IO, "leaf", EISDIR, "cannot enter the cgroup /sys/fs/cgroup/memory/a/burthen-");
    kit_start(1);
    kit.procs_to = "/dev/null";
    expect_undone(BT_E_IO, "leaf", 0, "not in the cgroup");
    assert_string_equal(kit_get(kit.group, "cgroup.procs"), kit_own_line()); /* moved back */
}

static void a_group_whose_limit_does_not_hold_children(void **state) {
    (void)state;
    kit_start(1);
    kit_put(kit.group, "memory.use_hierarchy", "0\n");
    assert_int_equal(make(64 * MIB), BT_OK); /* no limit to lose */
    kit_start(1);
    kit_put(kit.group, "memory.use_hierarchy", "0\n");
    kit_put(kit.group, "memory.limit_in_bytes", "1073741824\n");
    expect_undone(BT_E_UNSUPPORTED, "leaf_place", 0, "would not hold a group in it");
    assert_int_equal(kit.n_removed, 0);
}

static void less_than_a_page_is_no_limit(void **state) {
    (void)state;
    kit_start(1);
    assert_int_equal(make(bt_os_page_bytes() - 1), BT_E_ARG);
    assert_string_equal(err.code, "leaf_limit");
    assert_int_equal(err.need, bt_os_page_bytes());
    assert_int_equal(err.have, bt_os_page_bytes() - 1);
    assert_false(kit_has(kit.leaf));
}

static void too_long_a_path_is_an_error(void **state) {
    (void)state;
    static char line[BT_PROC_PATH_MAX];
    kit_start(2);
    int n = snprintf(line, sizeof line, "0::/");
    memset(line + n, 'x', BT_PROC_PATH_MAX - 40);
    kit_put(KIT_ROOT "/proc/self", "cgroup", line);
    assert_int_equal(make(64 * MIB), BT_E_IO);
    assert_int_equal(err.sys, ENAMETOOLONG);
}

/* ---- sweeping --------------------------------------------------------------------------------------------------- */

static void put_process(uint32_t pid, const char *group) {
    char folder[256];
    char line[256];
    (void)snprintf(folder, sizeof folder, KIT_ROOT "/proc/%u", pid);
    kit_make_folders(folder);
    (void)snprintf(line, sizeof line, "%s%s\n", kit.version == 1 ? "7:cpu:/\n4:memory:" : "0::", group);
    kit_put(folder, "cgroup", line);
}

/* One that has ended, and whose parent has not heard of it. */
static void put_zombie(uint32_t pid, const char *group_v2) {
    char folder[256];
    char line[256];
    put_process(pid, kit.version == 1 ? "/" : group_v2);
    (void)snprintf(folder, sizeof folder, KIT_ROOT "/proc/%u", pid);
    (void)snprintf(line, sizeof line, "%u (a) (name) Z 1 1 1 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 51234 0 0\n", pid);
    kit_put(folder, "stat", line);
}

/* A leaf below folder; procs: who is in it. */
static void put_leaf(const char *folder, const char *name, const char *procs) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(mkdir(path, 0755), 0);
    if (procs[0]) kit_put(path, "cgroup.procs", procs);
}

static bool has_leaf(const char *folder, const char *name) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return kit_has(path);
}

static void what_was_left_behind_is_swept(void **state) {
    (void)state;
    for (uint32_t version = 1; version <= 2; version++) {
        kit_start(version);
        put_leaf(kit.group, "burthen-101", ""); /* ended */
        put_leaf(kit.group, "burthen-102", ""); /* its number is another's now */
        put_process(102, "/b");
        put_leaf(kit.group, "burthen-103", "103\n"); /* runs */
        put_process(103, "/a/burthen-103");
        put_leaf(kit.group, "burthen-104", ""); /* is about to enter */
        put_process(104, "/a");
        put_leaf(kit.group, "burthen-105", "977\n"); /* ended, a child of it goes on */
        put_leaf(kit.group, "burthen-106", "");      /* moved on by somebody */
        put_process(106, "/a/burthen-1067");
        put_leaf(kit.group, "burthen-107", ""); /* what was counted there may be read yet */
        put_zombie(107, "/a/burthen-107");
        put_leaf(kit.group, "burthen-108", ""); /* in the root: it has left */
        put_process(108, "/");
        assert_int_equal(bt_leaf_sweep(KIT_ROOT), 4);
        assert_false(has_leaf(kit.group, "burthen-101"));
        assert_false(has_leaf(kit.group, "burthen-102"));
        assert_true(has_leaf(kit.group, "burthen-103"));
        assert_true(has_leaf(kit.group, "burthen-104"));
        assert_true(has_leaf(kit.group, "burthen-105"));
        assert_false(has_leaf(kit.group, "burthen-106"));
        assert_true(has_leaf(kit.group, "burthen-107"));
        assert_false(has_leaf(kit.group, "burthen-108"));
        assert_int_equal(bt_leaf_sweep(KIT_ROOT), 0);
    }
}

static void other_names_are_nobodys_leaf(void **state) {
    (void)state;
    static const char *const names[] = {"burthen-",   "burthen-0",           "burthen-07",
                                        "burthen-7x", "burthen-test-7",      "burthen--7",
                                        "xburthen-7", "burthen-99999999999", "Burthen-7"};
    kit_start(1);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        put_leaf(kit.group, names[i], "");
    put_leaf(KIT_V1, "burthen-8", ""); /* in the group above */
    assert_int_equal(bt_leaf_sweep(KIT_ROOT), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_true(has_leaf(kit.group, names[i]));
    assert_true(has_leaf(KIT_V1, "burthen-8"));
}

static void from_within_a_leaf_those_beside_it_are_swept(void **state) {
    (void)state;
    kit_start(1);
    put_leaf(kit.group, "burthen-7", "7\n");
    put_process(7, "/a/burthen-7");
    put_leaf(kit.group, "burthen-101", "");
    kit_put(KIT_ROOT "/proc/self", "cgroup", "4:memory:/a/burthen-7\n");
    char own[300];
    (void)snprintf(own, sizeof own, "%s/burthen-7", kit.group);
    put_leaf(own, "burthen-102", "");
    assert_int_equal(bt_leaf_sweep(KIT_ROOT), 2);
    assert_true(has_leaf(kit.group, "burthen-7"));
    assert_false(has_leaf(kit.group, "burthen-101"));
    assert_false(has_leaf(own, "burthen-102"));
}

/* A router that was held ended, and of its servers one goes on and one is about to enter. */
static void leaves_in_a_leaf(void **state) {
    (void)state;
    char router[300];
    for (uint32_t version = 1; version <= 2; version++) {
        kit_start(version);
        put_leaf(kit.group, "burthen-50", "");
        (void)snprintf(router, sizeof router, "%s/burthen-50", kit.group);
        put_leaf(router, "burthen-51", "");     /* ended */
        put_leaf(router, "burthen-52", "52\n"); /* runs */
        put_process(52, "/a/burthen-50/burthen-52");
        put_leaf(router, "burthen-53", "");
        put_process(53, "/a/burthen-50");
        put_leaf(router, "other", "");
        kit_put(router, "cgroup.procs", "53\n");
        assert_int_equal(bt_leaf_sweep(KIT_ROOT), 0);
        assert_false(has_leaf(router, "burthen-51"));
        assert_true(has_leaf(router, "burthen-52"));
        assert_true(has_leaf(router, "burthen-53"));
        assert_true(has_leaf(router, "other"));
    }
    kit_start(1);
    put_leaf(kit.group, "burthen-50", "");
    (void)snprintf(router, sizeof router, "%s/burthen-50", kit.group);
    put_leaf(router, "burthen-51", "");
    assert_int_equal(bt_leaf_sweep(KIT_ROOT), 1);
    assert_false(kit_has(router));
}

static void at_the_mount_point(void **state) {
    (void)state;
    kit_start(2);
    kit_put(KIT_ROOT "/proc/self", "cgroup", "0::/\n");
    put_leaf(KIT_V2, "burthen-101", "");
    put_leaf(KIT_V2, "burthen-104", "");
    put_process(104, "/");
    assert_int_equal(bt_leaf_sweep(KIT_ROOT), 1);
    assert_true(has_leaf(KIT_V2, "burthen-104"));
    /* and a leaf can be made there */
    assert_int_equal(make(64 * MIB), BT_OK);
    char folder[64];
    (void)snprintf(folder, sizeof folder, "/sys/fs/cgroup/burthen-%ld", (long)getpid());
    assert_string_equal(leaf.folder, folder);
}

static void a_sweep_is_bounded(void **state) {
    (void)state;
    char name[32];
    kit_start(1);
    for (uint32_t i = 0; i < 300; i++) {
        (void)snprintf(name, sizeof name, "burthen-%u", 1000 + i);
        put_leaf(kit.group, name, "");
    }
    assert_int_equal(bt_leaf_sweep(KIT_ROOT), 256);
    assert_int_equal(bt_leaf_sweep(KIT_ROOT), 44);
}

static void nothing_is_swept_where_nothing_is_known(void **state) {
    (void)state;
    kit_start(2);
    put_leaf(kit.group, "burthen-101", "");
    put_leaf(KIT_V2, "burthen-101", "");
    kit_put(KIT_ROOT "/proc/self", "cgroup", "0::/../a\n");
    assert_int_equal(bt_leaf_sweep(KIT_ROOT), 0);
    assert_int_equal(remove(KIT_ROOT "/proc/self/cgroup"), 0);
    assert_int_equal(bt_leaf_sweep(KIT_ROOT), 0);
    kit_put(KIT_ROOT "/proc/self", "cgroup", "0::/gone\n");
    assert_int_equal(bt_leaf_sweep(KIT_ROOT), 0);
    assert_true(has_leaf(kit.group, "burthen-101"));
    assert_true(has_leaf(KIT_V2, "burthen-101"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(v1_is_limited_with_swap_and_entered),
        cmocka_unit_test(v2_is_limited_without_swap_and_entered),
        cmocka_unit_test(a_kernel_that_does_not_account_swap_is_said),
        cmocka_unit_test(the_v1_controller_is_taken_beside_a_v2_tree),
        cmocka_unit_test(a_group_mounted_from_its_own_root),
        cmocka_unit_test(an_empty_group_of_our_number_is_taken_over),
        cmocka_unit_test(one_of_our_number_with_somebody_in_it_is_left_alone),
        cmocka_unit_test(no_memory_cgroup),
        cmocka_unit_test(a_group_that_is_not_seen_is_not_guessed),
        cmocka_unit_test(v2_that_does_not_hand_memory_down),
        cmocka_unit_test(the_systems_own_reason_is_said),
        cmocka_unit_test(a_limit_that_is_not_kept_is_none),
        cmocka_unit_test(nor_is_one_that_became_another),
        cmocka_unit_test(who_cannot_enter_leaves_nothing),
        cmocka_unit_test(a_group_whose_limit_does_not_hold_children),
        cmocka_unit_test(less_than_a_page_is_no_limit),
        cmocka_unit_test(too_long_a_path_is_an_error),
        cmocka_unit_test(what_was_left_behind_is_swept),
        cmocka_unit_test(other_names_are_nobodys_leaf),
        cmocka_unit_test(from_within_a_leaf_those_beside_it_are_swept),
        cmocka_unit_test(at_the_mount_point),
        cmocka_unit_test(leaves_in_a_leaf),
        cmocka_unit_test(a_sweep_is_bounded),
        cmocka_unit_test(nothing_is_swept_where_nothing_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
