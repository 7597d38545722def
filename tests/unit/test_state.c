/* SPDX-License-Identifier: MIT
 * test_state.c: where things are kept, what is refused there, and that a file is whole or not there. */
#include "base/error.h"
#include "base/os.h"
#include "base/state.h"
#include "leave.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define FOLDER BT_TEST_OUT "/state"

static int start(void **state) {
    (void)state;
    assert_int_equal(system("rm -rf '" FOLDER "'"), 0); /* NOLINT(bugprone-command-processor) */
    assert_int_equal(mkdir(FOLDER, 0700), 0);
    assert_int_equal(setenv("BURTHEN_STATE_DIR", FOLDER "/own", 1), 0);
    return 0;
}

/* ---- where ------------------------------------------------------------------------------------------------------ */

static const char *values[4]; /* BURTHEN_STATE_DIR, XDG_STATE_HOME, HOME, XDG_RUNTIME_DIR */

static const char *get(const char *name) {
    static const char *const names[] = {"BURTHEN_STATE_DIR", "XDG_STATE_HOME", "HOME", "XDG_RUNTIME_DIR"};
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(names[i], name) == 0) return values[i];
    }
    return NULL;
}

static void expect_candidates(const char *ours, const char *state_home, const char *home, const char *runtime,
                              const char *wanted) {
    char all[BT_STATE_PATH_MAX] = "";
    char path[BT_STATE_PATH_MAX];
    values[0] = ours;
    values[1] = state_home;
    values[2] = home;
    values[3] = runtime;
    for (uint32_t i = 0; bt_state_candidate(i, get, path); i++) {
        size_t n = strlen(all);
        (void)snprintf(all + n, sizeof all - n, "%s%.1000s", n ? " " : "", path);
    }
    char last[64];
    (void)snprintf(last, sizeof last, "/tmp/burthen-%lu", (unsigned long)geteuid());
    char *tmp = strstr(all, last);
    if (tmp && tmp[strlen(last)] == '\0') (void)snprintf(tmp, 4, "TMP");
    assert_string_equal(all, wanted);
}

static void folders_are_tried_in_order(void **state) {
    (void)state;
    expect_candidates("/s", "/x", "/h", "/r", "/s"); /* named: that one or none */
    expect_candidates("rel", NULL, NULL, NULL, "rel");
    expect_candidates("", "/x", "/h", "/r", "/x/burthen /r/burthen TMP");
    expect_candidates(NULL, NULL, "/h", NULL, "/h/.local/state/burthen TMP");
    expect_candidates(NULL, "relative", "/h", "", "/h/.local/state/burthen TMP");
    expect_candidates(NULL, NULL, NULL, NULL, "TMP");
}

static void a_path_over_the_maximum_is_no_candidate(void **state) {
    (void)state;
    static char name[BT_STATE_PATH_MAX + 8];
    char path[BT_STATE_PATH_MAX];
    memset(name, 'x', sizeof name - 1);
    name[0] = '/';
    values[0] = name;
    assert_false(bt_state_candidate(0, get, path));
    values[0] = NULL;
}

/* ---- what is refused -------------------------------------------------------------------------------------------- */

static void expect_refused(int sys) {
    int dir = -1;
    bt_error err = {0};
    assert_int_equal(bt_state_open(true, &dir, &err), BT_E_IO);
    assert_string_equal(err.code, "state_dir");
    assert_int_equal(err.sys, sys);
    assert_non_null(strstr(err.text, FOLDER));
    assert_int_equal(dir, -1);
}

static int opened(void) {
    int dir = -1;
    bt_error err = {0};
    if (bt_state_open(true, &dir, &err) != BT_OK) fail_msg("%s", err.text);
    return dir;
}

static void a_folder_is_made_for_us_alone(void **state) {
    (void)state;
    int dir = -1;
    bt_error err = {0};
    assert_int_equal(bt_state_open(false, &dir, &err), BT_E_IO); /* looking makes nothing */
    assert_int_equal(err.sys, ENOENT);
    assert_int_equal(setenv("BURTHEN_STATE_DIR", FOLDER "/a/b/c", 1), 0);
    dir = opened();
    struct stat found;
    assert_int_equal(fstat(dir, &found), 0);
    assert_int_equal(found.st_mode & 0777, 0700);
    assert_int_equal(bt_os_close(dir), 0);
    assert_int_equal(bt_state_open(false, &dir, NULL), BT_OK);
    assert_int_equal(bt_os_close(dir), 0);
}

static void what_is_not_ours_alone_is_refused(void **state) {
    (void)state;
    assert_int_equal(mkdir(FOLDER "/real", 0700), 0);
    assert_int_equal(symlink("real", FOLDER "/own"), 0);
    expect_refused(ENOTDIR); /* a link, not followed */
    assert_int_equal(unlink(FOLDER "/own"), 0);
    assert_int_equal(mkdir(FOLDER "/own", 0700), 0);
    assert_int_equal(chmod(FOLDER "/own", 0770), 0);
    expect_refused(EPERM);
    struct stat found;
    assert_int_equal(stat(FOLDER "/own", &found), 0);
    assert_int_equal(found.st_mode & 0777, 0770); /* and not repaired */
    assert_int_equal(chmod(FOLDER "/own", 0755), 0);
    assert_int_equal(bt_os_close(opened()), 0); /* readable is fine: the files in it are not */
    assert_int_equal(rmdir(FOLDER "/own"), 0);
    FILE *file = fopen(FOLDER "/own", "w");
    assert_non_null(file);
    if (file) assert_int_equal(fclose(file), 0);
    expect_refused(ENOTDIR);
    if (geteuid() != 0) return;
    assert_int_equal(unlink(FOLDER "/own"), 0);
    assert_int_equal(mkdir(FOLDER "/own", 0700), 0);
    assert_int_equal(chown(FOLDER "/own", 65534, (gid_t)-1), 0);
    expect_refused(EPERM); /* another user's */
}

static void expect_file_refused(int dir, int sys) {
    bt_text text;
    bt_error err = {0};
    bt_text_init(&text, 100);
    assert_int_equal(bt_state_read(dir, "f", &text, &err), BT_E_IO);
    assert_string_equal(err.code, "state_file");
    assert_int_equal(err.sys, sys);
    assert_int_equal(text.n_bytes, 0);
    bt_text_done(&text);
}

static void links_and_pipes_are_not_read(void **state) {
    (void)state;
    int dir = opened();
    expect_file_refused(dir, ENOENT);
    assert_int_equal(symlink("/etc/passwd", FOLDER "/own/f"), 0);
    expect_file_refused(dir, ELOOP);
    int lock = -1;
    assert_int_equal(bt_state_lock(dir, "f", &lock, NULL), BT_E_IO);
    /* written over, not through */
    assert_int_equal(bt_state_write(dir, "f", "mine", 4, NULL), BT_OK);
    struct stat found;
    assert_int_equal(lstat(FOLDER "/own/f", &found), 0);
    assert_true(S_ISREG(found.st_mode));
    assert_int_equal(found.st_mode & 0777, 0600);
    assert_int_equal(unlink(FOLDER "/own/f"), 0);
    assert_int_equal(mkfifo(FOLDER "/own/f", 0600), 0);
    expect_file_refused(dir, EPERM); /* and does not wait for a writer */
    assert_int_equal(bt_os_close(dir), 0);
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

static void expect_text(int dir, const char *wanted) {
    bt_text text;
    bt_text_init(&text, 100);
    assert_int_equal(bt_state_read(dir, "f", &text, NULL), BT_OK);
    assert_string_equal(bt_text_str(&text), wanted);
    bt_text_done(&text);
}

static void a_file_is_replaced_as_a_whole(void **state) {
    (void)state;
    int dir = opened();
    assert_int_equal(bt_state_write(dir, "f", "first", 5, NULL), BT_OK);
    expect_text(dir, "first");
    assert_int_equal(bt_state_write(dir, "f", "2", 1, NULL), BT_OK);
    expect_text(dir, "2");
    char large[200];
    memset(large, 'x', sizeof large);
    assert_int_equal(bt_state_write(dir, "f", large, sizeof large, NULL), BT_OK);
    bt_text text;
    bt_text_init(&text, 100);
    assert_int_equal(bt_state_read(dir, "f", &text, NULL), BT_E_LIMIT);
    bt_text_done(&text);
    assert_int_equal(bt_os_close(dir), 0);
}

static void a_write_that_fails_leaves_the_old_file(void **state) {
    (void)state;
    int dir = opened();
    assert_int_equal(bt_state_write(dir, "f", "old", 3, NULL), BT_OK);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit none = {0, 0};
        (void)signal(SIGXFSZ, SIG_IGN); /* as the program does */
        bt_error err = {0};
        bool as_wanted = setrlimit(RLIMIT_FSIZE, &none) == 0 && bt_state_write(dir, "f", "new", 3, &err) == BT_E_IO &&
                         err.sys == EFBIG;
        leave(as_wanted ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    expect_text(dir, "old");
    assert_int_equal(bt_os_close(dir), 0);
    assert_int_equal(system("test $(ls -A '" FOLDER "/own' | wc -l) = 1"), 0); /* NOLINT(bugprone-command-processor) */
}

static void a_lock_is_held_until_it_is_closed(void **state) {
    (void)state;
    int dir = opened();
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        int mine = -1;
        bool good = bt_state_lock(dir, "l", &mine, NULL) == BT_OK && write(ready[1], "x", 1) == 1;
        (void)usleep(50000);
        good = good && bt_state_write(dir, "f", "done", 4, NULL) == BT_OK;
        leave(good ? 0 : 1); /* which lets go of the lock */
    }
    char byte = 0;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    int lock = -1;
    assert_int_equal(bt_state_lock(dir, "l", &lock, NULL), BT_OK); /* after the child's turn */
    expect_text(dir, "done");
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(bt_os_close(lock), 0);
    assert_int_equal(bt_os_close(dir), 0);
    (void)close(ready[0]);
    (void)close(ready[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(folders_are_tried_in_order, start),
        cmocka_unit_test_setup(a_path_over_the_maximum_is_no_candidate, start),
        cmocka_unit_test_setup(a_folder_is_made_for_us_alone, start),
        cmocka_unit_test_setup(what_is_not_ours_alone_is_refused, start),
        cmocka_unit_test_setup(links_and_pipes_are_not_read, start),
        cmocka_unit_test_setup(a_file_is_replaced_as_a_whole, start),
        cmocka_unit_test_setup(a_write_that_fails_leaves_the_old_file, start),
        cmocka_unit_test_setup(a_lock_is_held_until_it_is_closed, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
