/* SPDX-License-Identifier: MIT
 * test_psi.c: pressure stall information, from texts of kernels and from trees. */
#include "probe/psi.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static void reads_what_kernels_write(void **state) {
    (void)state;
    bt_psi psi = bt_psi_parse("some avg10=0.00 avg60=0.00 avg300=0.00 total=153116132\n"
                              "full avg10=0.00 avg60=0.00 avg300=0.00 total=109919016\n");
    assert_true(psi.some_avg10.known && psi.some_avg10.value == 0);
    assert_true(psi.full_avg10.known && psi.full_avg10.value == 0);
    psi = bt_psi_parse("some avg10=23.97 avg60=11.02 avg300=2.98 total=9471733\n"
                       "full avg10=9.05 avg60=4.00 avg300=1.00 total=3338311\n");
    assert_int_equal(psi.some_avg10.value, 2397);
    assert_int_equal(psi.full_avg10.value, 905);
    psi = bt_psi_parse("some avg10=100.00 avg60=0.00 avg300=0.00 total=1\n"); /* without the second line */
    assert_int_equal(psi.some_avg10.value, 10000);
    assert_false(psi.full_avg10.known);
}

static void takes_nothing_else(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",
        "some",
        "some avg10=\n",
        "some avg10=1\n",
        "some avg10=1.5 avg60=0.00\n",
        "some avg10=1.500 avg60=0.00\n",
        "some avg10=-1.50 avg60=0.00\n",
        "some avg10=100.01 avg60=0.00\n",
        "some avg10=101.00 avg60=0.00\n",
        "some avg10=99999999999999999999.00\n",
        "some avg10=nan avg60=0.00\n",
        "some avg60=1.50 avg10=1.50\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_false(bt_psi_parse(texts[i]).some_avg10.known);
}

static void write_file(const char *folder, const char *name, const char *text) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *at = path + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        (void)mkdir(path, 0700);
        *at = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* A group at its limit stalls alone: the higher of the two counts. */
static void the_machine_and_the_group(void **state) {
    (void)state;
    const char *root = BT_TEST_OUT "/psi";
    bt_psi psi;
    bt_psi_probe(BT_TEST_OUT "/psi-none", &psi);
    assert_false(psi.some_avg10.known);
    write_file(root, "proc/pressure/memory", "some avg10=1.50 avg60=0.00 avg300=0.00 total=1\n");
    bt_psi_probe(root, &psi);
    assert_int_equal(psi.some_avg10.value, 150);
    write_file(root, "proc/self/cgroup", "0::/box\n");
    write_file(root, "proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n");
    write_file(root, "sys/fs/cgroup/box/memory.pressure",
               "some avg10=42.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=7.00 avg60=0.00 avg300=0.00 total=1\n");
    bt_psi_probe(root, &psi);
    assert_int_equal(psi.some_avg10.value, 4200);
    assert_int_equal(psi.full_avg10.value, 700);
    write_file(root, "sys/fs/cgroup/box/memory.pressure", "some avg10=0.10 avg60=0.00 avg300=0.00 total=1\n");
    bt_psi_probe(root, &psi);
    assert_int_equal(psi.some_avg10.value, 150);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_kernels_write),
        cmocka_unit_test(takes_nothing_else),
        cmocka_unit_test(the_machine_and_the_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
