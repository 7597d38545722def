/* SPDX-License-Identifier: MIT
 * test_output.c: what a file that a user named may be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER BT_TEST_OUT "/output"

static int make_folder(void **state) {
    (void)state;
    (void)mkdir(BT_TEST_OUT, 0700);
    (void)mkdir(FOLDER, 0700);
    (void)unlink(FOLDER "/new");
    (void)unlink(FOLDER "/pipe");
    int fd = open(FOLDER "/there", O_WRONLY | O_CREAT, 0600);
    if (fd < 0 || close(fd) != 0) return -1;
    return mkfifo(FOLDER "/pipe", 0600);
}

/* Each path both ways: opened and written, and written aside and renamed. */
static void what_it_may_be(void **state) {
    (void)state;
    static const struct {
        const char *path;
        int written, replaced;
    } rows[] = {
        {FOLDER "/there", 0, 0},
        {FOLDER "/new", 0, 0},
        {FOLDER "/none/new", -ENOENT, -ENOENT},
        {FOLDER "/there/new", -ENOTDIR, -ENOTDIR},
        {FOLDER, -EISDIR, -EISDIR},
        {FOLDER "/pipe", -ESPIPE, -ESPIPE},
        {"/dev/null", 0, -ESPIPE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (bt_output_check(rows[i].path, false) != rows[i].written) fail_msg("%s, written", rows[i].path);
        if (bt_output_check(rows[i].path, true) != rows[i].replaced) fail_msg("%s, replaced", rows[i].path);
    }
    assert_int_equal(access(FOLDER "/new", F_OK), -1); /* looking makes nothing */
}

/* /dev/stdout of a pipeline, and a shell's >(...): their other end is there. */
static void a_pipe_without_a_name(void **state) {
    (void)state;
    int ends[2];
    char path[64];
    assert_int_equal(pipe(ends), 0);
    (void)snprintf(path, sizeof path, "/dev/fd/%d", ends[1]);
    assert_int_equal(bt_output_check(path, false), 0);
    assert_int_equal(bt_output_check(path, true), -ESPIPE);
    assert_int_equal(close(ends[0]), 0);
    assert_int_equal(close(ends[1]), 0);
}

static void a_path_that_is_too_long(void **state) {
    (void)state;
    char path[PATH_MAX + 16];
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    assert_int_equal(bt_output_check(path, false), -ENAMETOOLONG);
    assert_int_equal(bt_output_check(path, true), -ENAMETOOLONG);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_it_may_be), cmocka_unit_test(a_pipe_without_a_name),
                                       cmocka_unit_test(a_path_that_is_too_long)};
    return cmocka_run_group_tests(tests, make_folder, NULL);
}
