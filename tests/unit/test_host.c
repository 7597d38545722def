/* SPDX-License-Identifier: MIT
 * test_host.c: the texts a host describes itself with, good and bad (research notes, seed 3 sections 1 and 2: R1, R2,
 * A9, and the bad inputs listed as ours). */
#include "probe/host.h"
#include "probe/probe.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define GIB (UINT64_C(1) << 30)

static void expect_known(bt_known got, uint64_t value) {
    assert_true(got.known);
    assert_int_equal(got.value, value);
}

static void expect_unknown(bt_known got) {
    assert_false(got.known);
    assert_int_equal(got.value, 0);
}

static void meminfo_reads_available_in_bytes(void **state) {
    (void)state;
    static const char text[] = "MemTotal:       16303420 kB\n"
                               "MemFree:         2210044 kB\n"
                               "MemAvailable:    9120512 kB\n"
                               "SwapFree:        2097148 kB\n";
    expect_known(bt_meminfo_available(text), UINT64_C(9339404288));
    expect_known(bt_meminfo_field(text, "MemTotal"), UINT64_C(16694702080));
    expect_known(bt_meminfo_field(text, "SwapFree"), UINT64_C(2147479552));
    /* a field is found by its whole name */
    expect_unknown(bt_meminfo_field(text, "Mem"));
    expect_unknown(bt_meminfo_field(text, "MemAvailable:"));
    expect_unknown(bt_meminfo_field(text, "SwapTotal"));
    /* the unit may be missing, the last newline too */
    expect_known(bt_meminfo_available("MemAvailable: 3"), 3072);
    expect_known(bt_meminfo_available("MemAvailable:0 kB"), 0);
}

static void meminfo_never_takes_free_for_available(void **state) {
    (void)state;
    expect_unknown(bt_meminfo_available("MemTotal: 1024 kB\nMemFree: 512 kB\nCached: 256 kB\n"));
    bt_pool pool;
    bt_host_pool_parse("MemTotal: 1024 kB\nMemFree: 512 kB\nCached: 256 kB\n", &pool);
    assert_int_equal(pool.state, BT_READING_FAILED);
    assert_int_equal(pool.free_bytes, 0);
    assert_int_equal(pool.total_bytes, 0);
    assert_string_equal(pool.reason, "/proc/meminfo has no usable MemAvailable");
}

static void meminfo_refuses_what_is_no_number(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        "\n\n",
        "MemAvailable:",
        "MemAvailable: \n",
        "MemAvailable: kB\n",
        "MemAvailable: -1 kB\n",
        "MemAvailable: +1 kB\n",
        "MemAvailable: 1e6 kB\n",
        "MemAvailable: 0x10 kB\n",
        "MemAvailable: 1.5 kB\n",
        "MemAvailable: 12 MB\n",
        "MemAvailable: 12kB\n",
        " MemAvailable: 12 kB\n",
        "memavailable: 12 kB\n",
        "MemAvailable 12 kB\n",
        "MemAvailableX: 12 kB\n",
        /* 2^54 KiB is 2^64 bytes; the other does not fit 64 bits even in KiB */
        "MemAvailable: 18014398509481984 kB\n",
        "MemAvailable: 18446744073709551616 kB\n",
        "MemAvailable: 99999999999999999999999999 kB\n",
        /* the first line counts, even when a better one follows */
        "MemAvailable: x kB\nMemAvailable: 12 kB\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect_unknown(bt_meminfo_available(bad[i]));
    expect_known(bt_meminfo_available("MemAvailable: 18014398509481983 kB\n"), UINT64_C(18446744073709550592));
}

static void meminfo_takes_crlf_and_tabs(void **state) {
    (void)state;
    expect_known(bt_meminfo_available("MemTotal: 8 kB\r\nMemAvailable:\t4 kB\r\n"), 4096);
    expect_known(bt_meminfo_available("MemAvailable: 4\r\n"), 4096);
}

static void host_pool_reports_or_says_why_not(void **state) {
    (void)state;
    bt_pool pool;
    bt_host_pool_parse("MemTotal: 1048576 kB\nMemAvailable: 1048576 kB\n", &pool);
    assert_int_equal(pool.state, BT_READING_REPORTED);
    assert_string_equal(pool.name, "host");
    assert_int_equal(pool.kind, BT_POOL_HOST);
    assert_int_equal(pool.free_bytes, GIB);
    assert_int_equal(pool.total_bytes, GIB);
    assert_false(pool.clamped);
    assert_string_equal(pool.reason, "");

    /* free over total is cut down to it, and flagged */
    bt_host_pool_parse("MemTotal: 1048576 kB\nMemAvailable: 1048577 kB\n", &pool);
    assert_int_equal(pool.state, BT_READING_REPORTED);
    assert_int_equal(pool.free_bytes, GIB);
    assert_true(pool.clamped);

    /* nothing left is a reading, and not the same as no reading */
    bt_host_pool_parse("MemTotal: 1048576 kB\nMemAvailable: 0 kB\n", &pool);
    assert_int_equal(pool.state, BT_READING_REPORTED);
    assert_int_equal(pool.free_bytes, 0);

    bt_host_pool_parse("MemAvailable: 1048577 kB\n", &pool);
    assert_int_equal(pool.state, BT_READING_FAILED);
    assert_int_equal(pool.free_bytes, 0);
    assert_string_equal(pool.reason, "/proc/meminfo has no usable MemTotal");
    bt_host_pool_parse("MemTotal: 0 kB\nMemAvailable: 1048577 kB\n", &pool);
    assert_int_equal(pool.state, BT_READING_FAILED);
}

static void limits_read_the_soft_column(void **state) {
    (void)state;
    static const char text[] = "Limit                     Soft Limit           Hard Limit           Units     \n"
                               "Max data size             2684354560           unlimited            bytes     \n"
                               "Max locked memory         65536                8388608              bytes     \n"
                               "Max address space         unlimited            3221225472           bytes     \n";
    expect_known(bt_host_limit_parse(text, "Max data size"), UINT64_C(2684354560));
    expect_known(bt_host_limit_parse(text, "Max locked memory"), 65536);
    expect_unknown(bt_host_limit_parse(text, "Max address space"));
    expect_unknown(bt_host_limit_parse(text, "Max stack size"));
    expect_unknown(bt_host_limit_parse(text, "Max loc"));
    expect_unknown(bt_host_limit_parse("Max address space -1 -1 bytes\n", "Max address space"));
}

static void cores_count_the_allowed_list(void **state) {
    (void)state;
    assert_int_equal(bt_host_cores_parse("Cpus_allowed:\tff\nCpus_allowed_list:\t0-3,8,10-11\n"), 7);
    assert_int_equal(bt_host_cores_parse("Cpus_allowed_list:\t0\r\n"), 1);
    assert_int_equal(bt_host_cores_parse("Cpus_allowed_list:\t0-8191\n"), 8192);
    static const char *const bad[] = {
        "",          "Cpus_allowed_list:\t\n",        "Cpus_allowed_list:\t3-1\n",   "Cpus_allowed_list:\t-3\n",
        "0-3\n",     "Cpus_allowed_list:\t0,,1\n",    "Cpus_allowed_list:\t0-3,2\n", "Cpus_allowed_list:\t0-9999\n",
        "a\nb: 1\n", "Cpus_allowed_list:\t0-3,x-4\n", "Cpus_allowed_list:\t1-2-3\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(bt_host_cores_parse(bad[i]), 0);
}

static void spans_take_text_apart(void **state) {
    (void)state;
    bt_span word;
    assert_true(bt_span_only_word("max\n", &word));
    assert_true(bt_span_is(word, "max"));
    assert_true(bt_span_only_word("  12\t\r\n", &word));
    assert_true(bt_span_is(word, "12"));
    assert_false(bt_span_only_word("", &word));
    assert_false(bt_span_only_word("\n", &word));
    assert_false(bt_span_only_word("1 2\n", &word));
    assert_false(bt_span_only_word("1\n2\n", &word));
    uint64_t value = 7;
    assert_false(bt_span_number(bt_span_of("18446744073709551616"), &value));
    assert_false(bt_span_number(bt_span_of(""), &value));
    assert_int_equal(value, 7);
    assert_true(bt_span_number(bt_span_of("18446744073709551615"), &value));
    assert_true(value == UINT64_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(meminfo_reads_available_in_bytes),  cmocka_unit_test(meminfo_never_takes_free_for_available),
        cmocka_unit_test(meminfo_refuses_what_is_no_number), cmocka_unit_test(meminfo_takes_crlf_and_tabs),
        cmocka_unit_test(host_pool_reports_or_says_why_not), cmocka_unit_test(limits_read_the_soft_column),
        cmocka_unit_test(cores_count_the_allowed_list),      cmocka_unit_test(spans_take_text_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
