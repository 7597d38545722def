/* SPDX-License-Identifier: MIT
 * test_disk_text.c: what is said of the disk that weights stream from, and when it is a warning. */
#include "report/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static bt_plan plan;

static int start(void **state) {
    (void)state;
    plan = (bt_plan){.verdict = BT_STREAMS,
                     .read_bytes_per_pass = UINT64_C(1) << 30,
                     .disk = {.kind = BT_DISK_SOLID, .name = "sda"},
                     .disk_bytes_per_s = {true, 2000000000}};
    return 0;
}

static void expect_warning(const char *wanted) {
    bt_text text;
    bt_text_init(&text, 4096);
    assert_int_equal(bt_report_disk_warning(&plan, &text), wanted != NULL);
    assert_string_equal(bt_text_str(&text), wanted ? wanted : "");
    bt_text_done(&text);
}

static void expect_row(const char *wanted) {
    bt_text text;
    bt_text_init(&text, 4096);
    bt_report_disk_row(&plan, &text);
    assert_non_null(strstr(bt_text_str(&text), wanted));
    bt_text_done(&text);
}

static void test_warnings(void **state) {
    (void)state;
    expect_warning(NULL);
    plan.disk.kind = BT_DISK_ROTATING;
    plan.disk.bytes_per_s = plan.disk_bytes_per_s.value = 150000000;
    expect_warning("weights stream from sda, which rotates: a token reads 1.00 GiB at 150 MB/s, 7.1 s");
    plan.disk.bytes_per_s = plan.disk_bytes_per_s.value = 2000000000; /* a virtual disk, which says so in vain */
    expect_warning(NULL);
    plan.disk = (bt_disk){.kind = BT_DISK_NETWORK, .name = "nfs"};
    plan.disk_bytes_per_s.known = false;
    expect_warning("weights stream from nfs, over a network: a token reads 1.00 GiB");
    plan.page_cache = true;
    expect_warning("weights stream from nfs, over a network: a token reads 1.00 GiB the first time");
    plan.read_bytes_per_pass = 0;
    expect_warning(NULL);
}

static void test_slow(void **state) {
    (void)state;
    plan.disk = (bt_disk){.kind = BT_DISK_UNKNOWN};
    plan.disk_bytes_per_s.value = 250000000;
    expect_warning(NULL);
    plan.disk_bytes_per_s.value--;
    expect_warning("weights stream from a disk: a token reads 1.00 GiB at 249 MB/s, 4.2 s");
    plan.verdict = BT_REFUSED;
    expect_warning(NULL);
}

static void test_rows(void **state) {
    (void)state;
    expect_row("auto, sda\n");
    plan.disk.depth = 32;
    plan.disk.request_bytes = 1u << 20;
    plan.page_cache = true;
    expect_row("auto, sda, 32 reads of 1.0 MiB at once; the page cache where that is faster\n");
    plan = (bt_plan){.wishes.io = BT_IO_DIRECT, .disk = {.kind = BT_DISK_NETWORK, .name = "nfs"}};
    expect_row("direct, nfs (a network)\n");
    plan = (bt_plan){.wishes.io = BT_IO_BUFFERED};
    expect_row("buffered\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_warnings, start),
        cmocka_unit_test_setup(test_slow, start),
        cmocka_unit_test_setup(test_rows, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
