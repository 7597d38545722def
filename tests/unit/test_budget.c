/* SPDX-License-Identifier: MIT
 * test_budget.c: which figure of the machine decides the budget, and what is said of it (docs/design.md P1, C1, C5). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/* One for all tests, set anew by each: some 16 KiB, too large for a stack frame. */
static bt_machine m;

static void machine_set(uint64_t free_bytes) {
    memset(&m, 0, sizeof m);
    m.n_pools = 1;
    m.cgroup_version = 2;
    m.pools[0] = (bt_pool){.name = "host",
                           .kind = BT_POOL_HOST,
                           .state = BT_READING_REPORTED,
                           .free_bytes = free_bytes,
                           .total_bytes = 64 * GIB};
}
static void machine_set_unreadable(void) {
    machine_set(0);
    m.pools[0].state = BT_READING_FAILED;
}
static void level_add(const char *path, uint64_t limit, uint64_t usage, uint64_t reclaimable) {
    bt_cgroup_level *level = &m.cgroup[m.n_cgroup_levels++];
    *level = (bt_cgroup_level){.limit = {true, limit}, .usage_bytes = usage, .reclaimable_bytes = reclaimable};
    (void)snprintf(level->path, sizeof level->path, "%s", path);
}
static const bt_wishes automatic = {.budget_kind = BT_BUDGET_AUTO};
static bt_wishes asked(uint64_t bytes) {
    return (bt_wishes){.budget_kind = BT_BUDGET_BYTES, .budget_bytes = bytes};
}

static void auto_leaves_512_mib(void **state) {
    (void)state;
    machine_set(8 * GIB);
    bt_budget b = bt_budget_resolve(&m, &automatic);
    assert_int_equal(b.bytes, 8 * GIB - 512 * MIB);
    assert_int_equal(b.state, BT_READING_REPORTED);
    assert_string_equal(b.source, "auto: available memory less 512.0 MiB");
}
static void auto_leaves_a_twentieth(void **state) {
    (void)state;
    machine_set(40 * GIB);
    assert_int_equal(bt_budget_resolve(&m, &automatic).bytes, 38 * GIB);
    machine_set(10 * GIB); /* where both reserves are 512 MiB */
    assert_int_equal(bt_budget_resolve(&m, &automatic).bytes, 10 * GIB - 512 * MIB);
    machine_set(10 * GIB + 20);
    assert_int_equal(bt_budget_resolve(&m, &automatic).bytes, 10 * GIB + 20 - 512 * MIB - 1);
}
static void auto_saturates(void **state) {
    (void)state;
    machine_set(100 * MIB);
    bt_budget b = bt_budget_resolve(&m, &automatic);
    assert_int_equal(b.bytes, 0);
    assert_int_equal(b.state, BT_READING_REPORTED);
}
static void auto_takes_the_tightest_level(void **state) {
    (void)state;
    machine_set(8 * GIB);
    level_add("/a/b", 6 * GIB, 1 * GIB, 0);
    level_add("/a", 5 * GIB, 4 * GIB, 3 * GIB); /* leaves 4 GiB: cache does not count */
    bt_budget b = bt_budget_resolve(&m, &automatic);
    assert_int_equal(b.bytes, 4 * GIB - 512 * MIB);
    assert_string_equal(b.source, "auto: cgroup v2 /a memory.max less 512.0 MiB");
}
static void auto_unknown_is_unlimited(void **state) {
    (void)state;
    machine_set_unreadable();
    (void)snprintf(m.pools[0].reason, sizeof m.pools[0].reason, "%s", "no MemAvailable");
    m.pools[0].free_bytes = 5; /* not a reading */
    bt_budget b = bt_budget_resolve(&m, &automatic);
    assert_int_equal(b.bytes, UINT64_MAX);
    assert_int_equal(b.state, BT_READING_UNLIMITED);
    assert_string_equal(b.source, "auto: available memory is unknown: no MemAvailable");
    m.n_pools = 0;
    assert_int_equal(bt_budget_resolve(&m, &automatic).state, BT_READING_UNLIMITED);
}
static void auto_unknown_under_a_limit(void **state) {
    (void)state;
    machine_set_unreadable();
    level_add("/box", 2 * GIB, 0, 0);
    bt_budget b = bt_budget_resolve(&m, &automatic);
    assert_int_equal(b.bytes, 2 * GIB - 512 * MIB);
    assert_int_equal(b.state, BT_READING_REPORTED);
}
static void asked_is_kept(void **state) {
    (void)state;
    machine_set(1 * GIB);
    bt_wishes w = asked(3 * GIB);
    bt_budget b = bt_budget_resolve(&m, &w); /* free memory does not cut a promise down */
    assert_int_equal(b.bytes, 3 * GIB);
    assert_string_equal(b.source, "asked");
    m.pools[0].state = BT_READING_FAILED;
    b = bt_budget_resolve(&m, &w);
    assert_int_equal(b.bytes, 3 * GIB);
    assert_int_equal(b.state, BT_READING_REPORTED);
}
static void asked_is_cut_by_limits(void **state) {
    (void)state;
    machine_set(8 * GIB);
    level_add("/box", 2 * GIB, 600 * MIB, 100 * MIB);
    bt_wishes w = asked(3 * GIB);
    bt_budget b = bt_budget_resolve(&m, &w);
    assert_int_equal(b.bytes, 2 * GIB - 500 * MIB);
    assert_string_equal(b.source, "cgroup v2 /box memory.max (asked 3.00 GiB)");
    w = asked(2 * GIB - 500 * MIB);
    assert_string_equal(bt_budget_resolve(&m, &w).source, "asked");
    m.pools[0].limit = (bt_known){true, 1 * GIB};
    (void)snprintf(m.pools[0].limit_source, sizeof m.pools[0].limit_source, "%s", "RLIMIT_AS");
    b = bt_budget_resolve(&m, &w);
    assert_int_equal(b.bytes, 1 * GIB);
    assert_string_equal(b.source, "limit RLIMIT_AS (asked 1.51 GiB)");
}
static void a_full_level_leaves_nothing(void **state) {
    (void)state;
    machine_set(8 * GIB);
    level_add("/box", 1 * GIB, 2 * GIB, 0);
    bt_wishes w = asked(1 * GIB);
    assert_int_equal(bt_budget_resolve(&m, &w).bytes, 0);
}
static void the_file_of_the_limit_is_named(void **state) {
    (void)state;
    machine_set(8 * GIB);
    level_add("/a/b", 2 * GIB, 0, 0);
    (void)snprintf(m.cgroup[0].limit_file, sizeof m.cgroup[0].limit_file, "%s", "memory.high");
    assert_string_equal(bt_budget_resolve(&m, &automatic).source, "auto: cgroup v2 /a/b memory.high less 512.0 MiB");
    m.cgroup_version = 1;
    (void)snprintf(m.cgroup[0].limit_file, sizeof m.cgroup[0].limit_file, "%s", "memory.limit_in_bytes");
    bt_wishes w = asked(3 * GIB);
    assert_string_equal(bt_budget_resolve(&m, &w).source, "cgroup v1 /a/b memory.limit_in_bytes (asked 3.00 GiB)");
    /* a path as long as can be, cut at a letter of two bytes: the end is shown, and the text is whole */
    memset(m.cgroup[0].path, 'x', sizeof m.cgroup[0].path - 1);
    for (size_t i = 1; i + 2 < sizeof m.cgroup[0].path; i += 2) {
        m.cgroup[0].path[i] = '\xc3';
        m.cgroup[0].path[i + 1] = '\xa4';
    }
    bt_budget b = bt_budget_resolve(&m, &w);
    assert_memory_equal(b.source, "cgroup v1 ...\xc3\xa4\xc3", 16);
    assert_non_null(strstr(b.source, "\xa4 memory.limit_in_bytes (asked 3.00 GiB)"));
}
static void other_budgets_come_first(void **state) {
    (void)state;
    machine_set(8 * GIB);
    m.promised_bytes = 5 * GIB;
    m.untouched_bytes = 3 * GIB;
    bt_budget b = bt_budget_resolve(&m, &automatic);
    assert_int_equal(b.bytes, 5 * GIB - 512 * MIB);
    assert_string_equal(b.source, "auto: available memory beside other budgets less 512.0 MiB");
    /* asked: not cut on the open host, but said */
    bt_wishes w = asked(6 * GIB);
    b = bt_budget_resolve(&m, &w);
    assert_int_equal(b.bytes, 6 * GIB);
    assert_string_equal(b.source, "asked; other budgets leave only 5.00 GiB of the host");
    w = asked(5 * GIB);
    assert_string_equal(bt_budget_resolve(&m, &w).source, "asked");
    /* in a group that is limited only what was promised in it counts, and that is enforced */
    level_add("/box", 4 * GIB, GIB, 0);
    assert_int_equal(bt_budget_resolve(&m, &w).bytes, 3 * GIB);
    m.cgroup[0].promised_bytes = 2 * GIB;
    b = bt_budget_resolve(&m, &w);
    assert_int_equal(b.bytes, GIB);
    assert_string_equal(b.source, "cgroup v2 /box memory.max (asked 5.00 GiB)");
    m.untouched_bytes = UINT64_MAX;
    m.cgroup[0].promised_bytes = UINT64_MAX;
    assert_int_equal(bt_budget_resolve(&m, &automatic).bytes, 0);
}
static void an_unreadable_chain_is_said(void **state) {
    (void)state;
    machine_set(8 * GIB);
    m.cgroup_version = 0;
    (void)snprintf(m.cgroup_reason, sizeof m.cgroup_reason, "%s", "cannot read memory.max");
    assert_string_equal(bt_budget_resolve(&m, &automatic).source,
                        "auto: available memory less 512.0 MiB; a cgroup's limit is not known");
}
static void user_case_31_free_swap_changes_nothing(void **state) {
    (void)state;
    machine_set(8 * GIB);
    m.swap_free_bytes = (bt_known){true, 0};
    bt_budget none = bt_budget_resolve(&m, &automatic);
    m.swap_free_bytes = (bt_known){true, 64 * GIB};
    bt_budget much = bt_budget_resolve(&m, &automatic);
    assert_int_equal(none.bytes, much.bytes);
    assert_string_equal(none.source, much.source);
}
static void off_is_unlimited(void **state) {
    (void)state;
    machine_set(1 * GIB);
    level_add("/box", 1 * GIB, 0, 0);
    bt_wishes w = {.budget_kind = BT_BUDGET_OFF};
    bt_budget b = bt_budget_resolve(&m, &w);
    assert_int_equal(b.bytes, UINT64_MAX);
    assert_int_equal(b.state, BT_READING_UNLIMITED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_leaves_512_mib),
        cmocka_unit_test(auto_leaves_a_twentieth),
        cmocka_unit_test(auto_saturates),
        cmocka_unit_test(auto_takes_the_tightest_level),
        cmocka_unit_test(auto_unknown_is_unlimited),
        cmocka_unit_test(auto_unknown_under_a_limit),
        cmocka_unit_test(asked_is_kept),
        cmocka_unit_test(asked_is_cut_by_limits),
        cmocka_unit_test(a_full_level_leaves_nothing),
        cmocka_unit_test(the_file_of_the_limit_is_named),
        cmocka_unit_test(other_budgets_come_first),
        cmocka_unit_test(an_unreadable_chain_is_said),
        cmocka_unit_test(user_case_31_free_swap_changes_nothing),
        cmocka_unit_test(off_is_unlimited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
