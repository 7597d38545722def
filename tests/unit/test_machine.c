/* SPDX-License-Identifier: MIT
 * test_machine.c: whole machines, recorded (tests/data/roots) and this one.
 *
 * The trees are made by hand after real ones; only v2-nested has PSI files, since nothing here may depend on them. */
#include "chain_kit.h"
#include "probe/cgroup.h"
#include "probe/probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#define ROOT(name) BT_TEST_DATA "/roots/" name
#define KIB        UINT64_C(1024)
#define MIB        (UINT64_C(1) << 20)

static bt_machine machine;

static void probe(const char *root) {
    bt_error err = {0};
    memset(&machine, 0xA5, sizeof machine);
    assert_int_equal(bt_machine_probe(root, &machine, &err), BT_OK);
    assert_int_equal(err.status, BT_OK);
    assert_string_equal(err.text, "");
    assert_int_equal(machine.n_pools, 1);
    assert_string_equal(machine.pools[0].name, "host");
    assert_int_equal(machine.pools[0].kind, BT_POOL_HOST);
    assert_false(machine.pools[0].shares_host);
    /* what others add is unknown, not 0xA5 */
    assert_false(machine.disk_bytes_per_s.known);
    assert_false(machine.memory_bytes_per_s.known);
    assert_false(machine.disk_measured);
}

typedef struct expected {
    const char *root;
    uint64_t total_kib, available_kib;
    uint32_t cgroup_version, n_levels;
    uint64_t limit_mib; /* 0: none */
    const char *limit_source;
    uint64_t swap_kib, memlock_bytes;
    uint32_t n_threads;
} expected;

static void recorded_machines_read_as_they_were(void **state) {
    (void)state;
    static const char high[] = "cgroup v2 /user.slice/user-1000.slice/user@1000.service memory.high";
    static const char hierarchical[] = "cgroup v1 / memory.stat hierarchical_memory_limit";
    static const char v2_max[] = "cgroup v2 / memory.max";
    static const expected cases[] = {
        {ROOT("v2-nested"), 16303420, 9120512, 2, 5, 6656, high, 2097148, 8388608, 8},
        {ROOT("v2-container"), 131924508, 98120512, 2, 2, 4096, v2_max, 0, 8388608, 2},
        /* user case 26: a container of 2 GiB on a 16 GiB machine, half a core of five */
        {ROOT("v2-namespace"), 16303420, 9120512, 2, 1, 2048, v2_max, 0, 8388608, 1},
        {ROOT("v2-outside"), 8051420, 7120512, 2, 1, 3072, v2_max, 0, 8388608, 8},
        {ROOT("v2-page-cache"), 33554432, 32505856, 2, 1, 4096, v2_max, 0, 8388608, 8},
        {ROOT("v1-plain"), 8051420, 7120512, 1, 3, 3072, "cgroup v1 /system.slice memory.limit_in_bytes", 0, 8388608,
         3},
        {ROOT("v1-nolimit"), 8051420, 7120512, 1, 2, 0, "", 0, 8388608, 8},
        {ROOT("v1-container"), 65792340, 48120512, 1, 1, 5120, hierarchical, 0, 8388608, 16},
        {ROOT("hybrid"), 24683656, 24335012, 1, 3, 1024, "cgroup v1 /jobs/6fcc memory.limit_in_bytes", 0, 8388608, 1},
        {ROOT("no-cgroup"), 1999340, 1120512, 0, 0, 0, "", 0, 8388608, 1},
        {ROOT("swap"), 4028340, 1048576, 2, 1, 0, "", 8388604, 8388608, 8},
        {ROOT("rlimit"), 16303420, 9120512, 2, 1, 2560, "RLIMIT_DATA", 0, 65536, 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const expected *e = &cases[i];
        probe(e->root);
        const bt_pool *host = &machine.pools[0];
        assert_int_equal(host->state, BT_READING_REPORTED);
        assert_int_equal(host->total_bytes, e->total_kib * KIB);
        assert_int_equal(host->free_bytes, e->available_kib * KIB);
        assert_false(host->clamped);
        assert_string_equal(host->reason, "");
        assert_int_equal(machine.cgroup_version, e->cgroup_version);
        assert_int_equal(machine.n_cgroup_levels, e->n_levels);
        assert_string_equal(machine.cgroup_reason, "");
        assert_int_equal(host->limit.known, e->limit_mib > 0);
        assert_int_equal(host->limit.value, e->limit_mib * MIB);
        assert_string_equal(host->limit_source, e->limit_source);
        assert_true(machine.swap_free_bytes.known);
        assert_int_equal(machine.swap_free_bytes.value, e->swap_kib * KIB);
        assert_true(machine.memlock_bytes.known);
        assert_int_equal(machine.memlock_bytes.value, e->memlock_bytes);
        assert_int_equal(machine.n_threads, e->n_threads);
    }
}

static void user_case_31_swap_is_never_memory(void **state) {
    (void)state;
    char source[CHAIN_SOURCE_BYTES];
    probe(ROOT("swap"));
    assert_int_equal(machine.swap_free_bytes.value, 8388604 * KIB);
    assert_int_equal(machine.pools[0].free_bytes, 1024 * MIB);
    assert_false(machine.pools[0].limit.known);
    assert_false(chain_left(&machine, source).known);
}

/* ---- trees made here, to be bad --------------------------------------------------------------------------------- */

#define BAD_ROOT BT_TEST_OUT "/machine-root"

static void put(const char *name, const char *text, size_t n_bytes) {
    FILE *file = fopen(name, "wb");
    assert_non_null(file);
    if (!file) return;
    assert_int_equal(fwrite(text, 1, n_bytes, file), n_bytes);
    assert_int_equal(fclose(file), 0);
}

static void put_meminfo(const char *text, size_t n_bytes) {
    /* NOLINTNEXTLINE(bugprone-command-processor): a fixed path of the build */
    assert_int_equal(system("rm -rf '" BAD_ROOT "' && mkdir -p '" BAD_ROOT "/proc/self'"), 0);
    put(BAD_ROOT "/proc/meminfo", text, n_bytes);
}

static void user_case_44_a_failed_reading_is_not_zero_free(void **state) {
    (void)state;
    static const struct {
        const char *text, *reason;
    } cases[] = {
        {"", "/proc/meminfo has no usable MemTotal"},
        {"\x7f\x45\x4c\x46\x02\x01\x01\n\xff\xfe\n", "/proc/meminfo has no usable MemTotal"},
        {"MemTotal: -5 kB\nMemAvailable: 5 kB\n", "/proc/meminfo has no usable MemTotal"},
        {"MemTotal: 5 kB\nMemFree: 4 kB\n", "/proc/meminfo has no usable MemAvailable"},
        {"MemTotal: 5 kB\nMemAvailable: -4 kB\n", "/proc/meminfo has no usable MemAvailable"},
        {"MemTotal: 5 kB\nMemAvailable: 18014398509481984 kB\n", "/proc/meminfo has no usable MemAvailable"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put_meminfo(cases[i].text, strlen(cases[i].text));
        probe(BAD_ROOT);
        assert_int_equal(machine.pools[0].state, BT_READING_FAILED);
        assert_string_equal(machine.pools[0].reason, cases[i].reason);
        assert_int_equal(machine.pools[0].total_bytes, 0);
        /* nothing else in that tree: all unknown */
        assert_false(machine.swap_free_bytes.known);
        assert_false(machine.memlock_bytes.known);
        assert_false(machine.pools[0].limit.known);
        assert_int_equal(machine.cgroup_version, 0);
        assert_int_equal(machine.n_threads, 0);
    }
    assert_int_equal(remove(BAD_ROOT "/proc/meminfo"), 0);
    probe(BAD_ROOT);
    assert_int_equal(machine.pools[0].state, BT_READING_FAILED);
    assert_string_equal(machine.pools[0].reason, "cannot read /proc/meminfo: No such file or directory");
}

static void odd_meminfo_is_read_for_what_it_says(void **state) {
    (void)state;
    static const char crlf[] = "MemTotal: 2048 kB\r\nMemAvailable: 1024 kB\r\nSwapFree: 512 kB\r\n";
    put_meminfo(crlf, strlen(crlf));
    probe(BAD_ROOT);
    assert_int_equal(machine.pools[0].free_bytes, 1024 * KIB);
    assert_int_equal(machine.swap_free_bytes.value, 512 * KIB);
    static const char over[] = "MemTotal: 2048 kB\nMemAvailable: 4096 kB\n";
    put_meminfo(over, strlen(over));
    probe(BAD_ROOT);
    assert_int_equal(machine.pools[0].free_bytes, 2048 * KIB);
    assert_true(machine.pools[0].clamped);
}

static void a_file_over_the_buffer_is_cut_between_lines(void **state) {
    (void)state;
    /* Filled so that the buffer ends inside the digits of MemAvailable: half of them would be a wrong number. */
    static char text[BT_PROC_TEXT_MAX + 64];
    static const char head[] = "MemTotal: 99999999 kB\nFiller: ";
    static const char tail[] = "\nMemAvailable: 12345678 kB\n";
    size_t at = BT_PROC_TEXT_MAX - strlen("\nMemAvailable: 1234");
    memset(text, 'x', sizeof text);
    for (size_t i = 0; head[i]; i++)
        text[i] = head[i];
    for (size_t i = 0; tail[i]; i++)
        text[at + i] = tail[i];
    put_meminfo(text, at + strlen(tail));
    probe(BAD_ROOT);
    assert_int_equal(machine.pools[0].state, BT_READING_FAILED);
    assert_string_equal(machine.pools[0].reason, "/proc/meminfo has no usable MemAvailable");
    /* one line without an end */
    memset(text, 'x', sizeof text);
    put_meminfo(text, sizeof text);
    probe(BAD_ROOT);
    assert_int_equal(machine.pools[0].state, BT_READING_FAILED);
    assert_memory_equal(machine.pools[0].reason, "cannot read /proc/meminfo: ", 27);
}

static void a_root_that_is_no_directory_is_an_error(void **state) {
    (void)state;
    static char long_root[8192];
    static bt_machine before;
    memset(long_root, 'r', sizeof long_root - 1);
    const char *const roots[] = {ROOT("none-such"), ROOT("swap/proc/meminfo"), long_root, NULL};
    for (size_t i = 0; i < sizeof roots / sizeof roots[0]; i++) {
        bt_error err = {0};
        memset(&machine, 0xA5, sizeof machine);
        before = machine;
        assert_int_equal(bt_machine_probe(roots[i], &machine, &err), BT_E_ARG);
        assert_int_equal(err.status, BT_E_ARG);
        assert_string_equal(err.code, "probe.root");
        assert_true(err.text[0] != '\0');
        assert_memory_equal(&machine, &before, sizeof machine);
        assert_int_equal(bt_machine_probe(roots[i], &machine, NULL), BT_E_ARG);
    }
}

static void this_machine_reads_sensibly(void **state) {
    (void)state;
    probe("");
    const bt_pool *host = &machine.pools[0];
    assert_int_equal(host->state, BT_READING_REPORTED);
    assert_true(host->total_bytes > 16 * MIB);
    assert_true(host->free_bytes > 0 && host->free_bytes <= host->total_bytes);
    assert_true(machine.n_threads >= 1);
    for (uint32_t i = 0; i < machine.n_cgroup_levels; i++)
        assert_int_equal(machine.cgroup[i].path[0], '/');
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    assert_int_equal(machine.memlock_bytes.known, limit.rlim_cur != RLIM_INFINITY);
    if (machine.memlock_bytes.known) assert_int_equal(machine.memlock_bytes.value, limit.rlim_cur);
}

static void this_process_rlimits_are_seen(void **state) {
    (void)state;
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_DATA, &old), 0);
    /* 1 PiB: over every address space of 47 bits, so that it hinders nobody (sanitizers map many TiB) */
    const uint64_t high = UINT64_C(1) << 50;
    struct rlimit lower = {high, old.rlim_max};
    if (old.rlim_max != RLIM_INFINITY && old.rlim_max < high) skip();
    assert_int_equal(setrlimit(RLIMIT_DATA, &lower), 0);
    probe("");
    assert_int_equal(setrlimit(RLIMIT_DATA, &old), 0);
    assert_true(machine.pools[0].limit.known);
    assert_true(machine.pools[0].limit.value <= high);
    if (machine.pools[0].limit.value == high) assert_string_equal(machine.pools[0].limit_source, "RLIMIT_DATA");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_machines_read_as_they_were),
        cmocka_unit_test(user_case_31_swap_is_never_memory),
        cmocka_unit_test(user_case_44_a_failed_reading_is_not_zero_free),
        cmocka_unit_test(odd_meminfo_is_read_for_what_it_says),
        cmocka_unit_test(a_file_over_the_buffer_is_cut_between_lines),
        cmocka_unit_test(a_root_that_is_no_directory_is_an_error),
        cmocka_unit_test(this_machine_reads_sensibly),
        cmocka_unit_test(this_process_rlimits_are_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
