/* SPDX-License-Identifier: MIT
 * test_settings.c: each call that reading the settings makes, failing: an error or the settings, and nothing leaks. */
#include "cli/settings.h"

#include "base/fault.h"
#include "base/heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "open_files.h"

#define PATH        BT_TEST_OUT "/settings-fault.yaml"
#define N_FAULT_MAX 200 /* a small file takes some 20 fallible calls */

static void the_settings_or_an_error(void **state) {
    (void)state;
    FILE *file = fopen(PATH, "wb");
    assert_non_null(file);
    assert_true(fputs("threads: 7\ndevice: [A, B]\nrun: {temp: 0.5}\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(setenv("BURTHEN_CONFIG", PATH, 1), 0);
    uint32_t n_failed = 0;
    for (uint64_t k = 0;; k++) {
        assert_true(k < N_FAULT_MAX);
        bt_settings *settings = NULL;
        bt_error err = {0};
        uint32_t n_fds = n_open_files();
        bt_fault_arm(k, false);
        bt_status status = bt_settings_open(NULL, &settings, &err);
        bool hit = bt_fault_disarm();
        assert_int_equal(n_open_files(), n_fds);
        assert_true((status == BT_OK) == (settings != NULL));
        assert_true(status == BT_OK || (err.text[0] && strcmp(err.code, "settings") == 0));
        if (status != BT_OK) n_failed++;
        bt_settings_close(settings);
        assert_int_equal(bt_heap_live_blocks(), 0);
        if (!hit) {
            assert_int_equal(status, BT_OK);
            break;
        }
    }
    assert_true(n_failed > 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_settings_or_an_error)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
