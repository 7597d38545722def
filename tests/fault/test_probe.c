/* SPDX-License-Identifier: MIT
 * test_probe.c: each call of a probe that can fail, failing: what comes back is unknown, partial or an error, never a
 * wrong number; nothing leaks.
 *
 * A probe never gives up on the machine for one unreadable file, so most faults end in BT_OK. What is then known must
 * be what the sound probe knew; a chain that lost one level is no chain. */
#include "base/fault.h"
#include "base/heap.h"
#include "chain_kit.h"
#include "probe/cgroup.h"
#include "probe/host.h"
#include "probe/probe.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ROOT(name)  BT_TEST_DATA "/roots/" name
#define N_FAULT_MAX 500 /* v2-nested makes 60 fallible calls */

static bt_machine sound, hurt;
static uint32_t n_cores_sound;
static bool was_ok; /* the hurt probe; hurt is unset otherwise */

static void expect_same_or_unknown(bt_known got, bt_known want) {
    if (!got.known) return;
    assert_true(want.known);
    assert_int_equal(got.value, want.value);
}

static void expect_host_sound_or_failed(void) {
    const bt_pool *got = &hurt.pools[0];
    assert_int_equal(hurt.n_pools, 1);
    assert_string_equal(got->name, "host");
    if (got->state == BT_READING_REPORTED) {
        assert_int_equal(got->free_bytes, sound.pools[0].free_bytes);
        assert_int_equal(got->total_bytes, sound.pools[0].total_bytes);
        assert_string_equal(got->reason, "");
    } else {
        assert_int_equal(got->state, BT_READING_FAILED);
        assert_int_equal(got->free_bytes, 0);
        assert_int_equal(got->total_bytes, 0);
        assert_true(got->reason[0] != '\0');
    }
}

static void expect_same_level(const bt_cgroup_level *got, const bt_cgroup_level *want) {
    assert_string_equal(got->path, want->path);
    assert_int_equal(got->limit.known, want->limit.known);
    assert_int_equal(got->limit.value, want->limit.value);
    assert_int_equal(got->usage_bytes, want->usage_bytes);
    assert_int_equal(got->reclaimable_bytes, want->reclaimable_bytes);
    assert_string_equal(got->limit_file, want->limit_file);
}

static void expect_chain_sound_or_gone(void) {
    char source[CHAIN_SOURCE_BYTES];
    char want_source[CHAIN_SOURCE_BYTES];
    bt_known available = chain_left(&hurt, source);
    if (hurt.cgroup_reason[0] != '\0') {
        assert_int_equal(hurt.cgroup_version, 0);
        assert_int_equal(hurt.n_cgroup_levels, 0);
        assert_false(available.known);
        return;
    }
    bt_known want = chain_left(&sound, want_source);
    assert_int_equal(hurt.cgroup_version, sound.cgroup_version);
    assert_int_equal(hurt.n_cgroup_levels, sound.n_cgroup_levels);
    for (uint32_t i = 0; i < sound.n_cgroup_levels; i++)
        expect_same_level(&hurt.cgroup[i], &sound.cgroup[i]);
    assert_int_equal(available.known, want.known);
    assert_int_equal(available.value, want.value);
    assert_string_equal(source, want_source);
}

static void expect_rest_sound_or_unknown(void) {
    /* A limit that was found is a limit; another, tighter one may be missing beside it. */
    if (hurt.pools[0].limit.known) {
        assert_true(sound.pools[0].limit.known);
        assert_true(hurt.pools[0].limit.value >= sound.pools[0].limit.value);
        assert_true(hurt.pools[0].limit_source[0] != '\0');
    }
    expect_same_or_unknown(hurt.swap_free_bytes, sound.swap_free_bytes);
    expect_same_or_unknown(hurt.memlock_bytes, sound.memlock_bytes);
    assert_true(hurt.n_threads == 0 || hurt.n_threads == sound.n_threads || hurt.n_threads == n_cores_sound);
}

/* Without a fault everything is there again; that it is also right was checked before. */
static void expect_nothing_unknown(void) {
    assert_int_equal(hurt.pools[0].state, sound.pools[0].state);
    assert_int_equal(hurt.pools[0].limit.known, sound.pools[0].limit.known);
    assert_int_equal(hurt.pools[0].limit.value, sound.pools[0].limit.value);
    assert_string_equal(hurt.pools[0].limit_source, sound.pools[0].limit_source);
    assert_string_equal(hurt.cgroup_reason, "");
    assert_int_equal(hurt.swap_free_bytes.known, sound.swap_free_bytes.known);
    assert_int_equal(hurt.memlock_bytes.known, sound.memlock_bytes.known);
    assert_int_equal(hurt.n_threads, sound.n_threads);
}

static int next_descriptor(void) {
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    return fd;
}

/* true: the k-th call was there to fail. */
static bool probe_with_fault(const char *root, uint64_t k, bool persistent) {
    bt_error err = {0};
    int fd = next_descriptor();
    uint64_t n_blocks = bt_heap_live_blocks();
    memset(&hurt, 0xA5, sizeof hurt);
    bt_fault_arm(k, persistent);
    bt_status status = bt_machine_probe(root, &hurt, &err);
    bool hit = bt_fault_disarm();
    assert_int_equal(bt_heap_live_blocks(), n_blocks);
    assert_int_equal(next_descriptor(), fd);
    was_ok = status == BT_OK;
    if (!was_ok) {
        const unsigned char *bytes = (const unsigned char *)&hurt;
        assert_true(hit);
        assert_int_equal(status, BT_E_NOMEM);
        assert_int_equal(err.status, BT_E_NOMEM);
        for (size_t i = 0; i < sizeof hurt; i++)
            assert_int_equal(bytes[i], 0xA5);
        return true;
    }
    expect_host_sound_or_failed();
    expect_chain_sound_or_gone();
    expect_rest_sound_or_unknown();
    if (!hit) expect_nothing_unknown();
    return hit;
}

static void sweep(const char *root, bool persistent) {
    static bt_proc_text text;
    assert_int_equal(bt_machine_probe(root, &sound, NULL), BT_OK);
    n_cores_sound = bt_host_cores_probe(root, &text);
    for (uint64_t k = 0; k < N_FAULT_MAX; k++) {
        if (probe_with_fault(root, k, persistent)) continue;
        assert_true(k > 4); /* the sweep did fail something */
        return;
    }
    fail_msg("more than %d fallible calls", N_FAULT_MAX);
}

static const char *const roots[] = {ROOT("v2-nested"), ROOT("v2-container"), ROOT("v1-plain"), ROOT("v1-container"),
                                    ROOT("hybrid"),    ROOT("no-cgroup"),    ROOT("rlimit"),   ROOT("swap")};

static void one_failing_call_gives_no_wrong_number(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof roots / sizeof roots[0]; i++)
        sweep(roots[i], false);
}

static void everything_failing_from_a_call_on_gives_no_wrong_number(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof roots / sizeof roots[0]; i++)
        sweep(roots[i], true);
}

static void an_unreadable_level_is_named(void **state) {
    (void)state;
    /* The last of the chain's reads fails: all levels but one were fine, and none may be used. */
    bool seen = false;
    assert_int_equal(bt_machine_probe(ROOT("v2-nested"), &sound, NULL), BT_OK);
    for (uint64_t k = 0; k < N_FAULT_MAX && probe_with_fault(ROOT("v2-nested"), k, false); k++)
        seen =
            seen || (was_ok && strstr(hurt.cgroup_reason, "cannot read memory.stat of cgroup /user.slice: ") != NULL);
    assert_true(seen);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_failing_call_gives_no_wrong_number),
        cmocka_unit_test(everything_failing_from_a_call_on_gives_no_wrong_number),
        cmocka_unit_test(an_unreadable_level_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
