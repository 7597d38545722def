/* SPDX-License-Identifier: MIT
 * test_containers.c: recorded trees of containers, from /proc to the budget and the text that says where it comes from
 * (user-cases 25, 26 and 31 of the research notes).
 *
 * The trees' numbers are whole MiB: what is left can be checked by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "chain_kit.h"
#include "plan/plan.h"
#include "probe/cgroup.h"
#include "probe/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static bt_machine machine;

static const bt_machine *probe(const char *tree) {
    char root[512];
    bt_error err = {0};
    (void)snprintf(root, sizeof root, "%s/roots/%s", BT_TEST_DATA, tree);
    if (bt_machine_probe(root, &machine, &err) != BT_OK) fail_msg("%s: %s", tree, err.text);
    assert_string_equal(machine.cgroup_reason, "");
    assert_int_equal(machine.pools[0].state, BT_READING_REPORTED);
    return &machine;
}

static bt_budget resolve(bt_budget_kind kind, uint64_t bytes) {
    bt_wishes wishes = {.budget_kind = kind, .budget_bytes = bytes};
    return bt_budget_resolve(&machine, &wishes);
}

/* What `auto` takes, with its reserve put back. */
static uint64_t available(const char *tree) {
    (void)probe(tree);
    bt_budget budget = resolve(BT_BUDGET_AUTO, 0);
    assert_int_equal(budget.state, BT_READING_REPORTED);
    uint64_t low = budget.bytes + 512 * MIB; /* while 512 MiB is more than a twentieth */
    return low <= 10 * GIB ? low : budget.bytes * 20 / 19;
}

static void expect_ceiling(const char *tree, uint64_t limit_mib, uint64_t left_mib, const char *source) {
    char text[CHAIN_SOURCE_BYTES];
    char wanted[256];
    (void)probe(tree);
    bt_known left = chain_left(&machine, text);
    assert_true(left.known);
    assert_int_equal(left.value, left_mib * MIB);
    assert_string_equal(text, source);
    /* the machine's pool names the limit, the plan's budget the limit that cut it */
    assert_true(machine.pools[0].limit.known);
    assert_int_equal(machine.pools[0].limit.value, limit_mib * MIB);
    assert_string_equal(machine.pools[0].limit_source, source);
    bt_budget budget = resolve(BT_BUDGET_BYTES, 400 * GIB);
    assert_int_equal(budget.bytes, left_mib * MIB);
    (void)snprintf(wanted, sizeof wanted, "%s (asked 400.00 GiB)", source);
    assert_string_equal(budget.source, wanted);
}

static void user_case_26_the_containers_limit_is_the_ceiling(void **state) {
    (void)state;
#define USER_SERVICE "/user.slice/user-1000.slice/user@1000.service"
    /* limit, and that less what is used and not clean cache */
    expect_ceiling("docker-v2", 2048, 2048 - 98, "cgroup v2 / memory.max");
    expect_ceiling("docker-v2-host", 2048, 2048 - 98, "cgroup v2 /system.slice/docker-5f0c8e.scope memory.max");
    expect_ceiling("docker-v1", 2048, 2048 - 98, "cgroup v1 / memory.limit_in_bytes");
    expect_ceiling("lxc", 3072, 3072 - 150, "cgroup v2 / memory.max");
    expect_ceiling("k8s-guaranteed", 153600, 153600 - 1056, "cgroup v2 / memory.max");
    expect_ceiling("k8s-guaranteed-v1", 153600, 153600 - 1056, "cgroup v1 / memory.limit_in_bytes");
    expect_ceiling("v2-parent", 4096, 4096 - 640, "cgroup v2 / memory.max");
    expect_ceiling("v2-high", 6144, 6144 - 212, "cgroup v2 /app.slice/llm.service memory.high");
    expect_ceiling("hybrid", 1024, 993, "cgroup v1 /jobs/6fcc memory.limit_in_bytes");
}

static void user_case_26_a_long_path_keeps_its_end(void **state) {
    (void)state;
    (void)probe("podman-rootless");
    bt_budget budget = resolve(BT_BUDGET_BYTES, 8 * GIB);
    assert_int_equal(budget.bytes, (3072 - 160) * MIB);
    assert_string_equal(budget.source, "cgroup v2 /user.slice/user-1000.slice/user@1000.service/user.slice/"
                                       "libpod-1b7e.scope memory.max (asked 8.00 GiB)");
}

static void user_case_26_the_tightest_ancestor_counts(void **state) {
    (void)state;
    (void)probe("v2-nested");
    assert_int_equal(resolve(BT_BUDGET_BYTES, 8 * GIB).bytes, 2432 * MIB);
    assert_string_equal(resolve(BT_BUDGET_AUTO, 0).source,
                        "auto: cgroup v2 /user.slice/user-1000.slice memory.max less 512.0 MiB");
}

static void user_case_26_the_sentinel_of_v1_is_no_limit(void **state) {
    (void)state;
    (void)probe("v1-sentinel");
    assert_false(machine.pools[0].limit.known);
    assert_false(machine.cgroup[0].limit.known);
    bt_budget budget = resolve(BT_BUDGET_AUTO, 0);
    assert_int_equal(budget.bytes, (6000 - 512) * MIB);
    assert_string_equal(budget.source, "auto: available memory less 512.0 MiB");
    assert_int_equal(resolve(BT_BUDGET_BYTES, 7 * GIB).bytes, 7 * GIB);
}

static void user_case_25_reading_a_file_changes_nothing(void **state) {
    (void)state;
    static const char *const groups[] = {"v1-cache-none", "v2-cache-none", "v1-cache-4g", "v2-cache-4g"};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        char tree[64];
        (void)snprintf(tree, sizeof tree, "%s-before", groups[i]);
        uint64_t before = available(tree);
        (void)snprintf(tree, sizeof tree, "%s-after", groups[i]);
        uint64_t after = available(tree);
        uint64_t change = before > after ? before - after : after - before;
        if (change >= before / 50) fail_msg("%s: %llu", groups[i], (unsigned long long)change);
    }
}

static void user_case_25_clean_cache_is_not_held(void **state) {
    (void)state;
    static const char *const trees[] = {"v1-cache-4g-after", "v2-cache-4g-after"};
    for (size_t i = 0; i < 2; i++) {
        /* 4 GiB less 35 MiB of the program and 12 of the kernel: not the 1 GiB that usage leaves */
        assert_int_equal(available(trees[i]), (4096 - 47) * MIB);
        assert_int_equal(machine.cgroup[0].usage_bytes, (3072 + 55) * MIB);
    }
}

static void user_case_31_free_swap_is_in_no_budget(void **state) {
    (void)state;
    static const struct {
        const char *tree;
        uint64_t swap_mib, available_mib;
    } cases[] = {{"v1-sentinel", 12288, 6000}, {"podman-rootless", 8192, 3072 - 160}};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(available(cases[i].tree), cases[i].available_mib * MIB);
        assert_true(machine.swap_free_bytes.known);
        assert_int_equal(machine.swap_free_bytes.value, cases[i].swap_mib * MIB);
        uint64_t with = resolve(BT_BUDGET_AUTO, 0).bytes;
        machine.swap_free_bytes.value = 0;
        assert_int_equal(resolve(BT_BUDGET_AUTO, 0).bytes, with);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(user_case_26_the_containers_limit_is_the_ceiling),
        cmocka_unit_test(user_case_26_a_long_path_keeps_its_end),
        cmocka_unit_test(user_case_26_the_tightest_ancestor_counts),
        cmocka_unit_test(user_case_26_the_sentinel_of_v1_is_no_limit),
        cmocka_unit_test(user_case_25_reading_a_file_changes_nothing),
        cmocka_unit_test(user_case_25_clean_cache_is_not_held),
        cmocka_unit_test(user_case_31_free_swap_is_in_no_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
