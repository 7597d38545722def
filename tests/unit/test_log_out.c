/* SPDX-License-Identifier: MIT
 * test_log_out.c: the log's file (mode, appending, reopening, a full disk), the journal, and readers that are slow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log_out.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/burthen-log-XXXXXX";
static char path[64], moved[64];

static int make_folder(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    (void)snprintf(path, sizeof path, "%s/log", folder);
    (void)snprintf(moved, sizeof moved, "%s/log.1", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    (void)unlink(path);
    (void)unlink(moved);
    return rmdir(folder);
}

static int remove_files(void **state) {
    (void)state;
    (void)unlink(path);
    (void)unlink(moved);
    return 0;
}

static void say(bt_log_out *out, const char *message) {
    bt_log_out_write(&(bt_log_entry){.level = BT_LOG_WARN, .message = message}, out);
}

static const char *read_all(const char *name) {
    static char text[65536];
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, text, sizeof text - 1);
    assert_true(n >= 0);
    text[n] = '\0';
    (void)close(fd);
    return text;
}

static uint32_t n_lines(const char *text) {
    uint32_t n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static bt_log_out_ask ask_file(void) {
    return (bt_log_out_ask){.file = path, .component = "run", .waits = true};
}

static void test_file(void **state) {
    (void)state;
    bt_log_out out;
    bt_error err = {0};
    struct stat found;
    const bt_log_out_ask ask = ask_file();
    mode_t mask = umask(0);
    for (int i = 0; i < 2; i++) { /* the second time it is appended to */
        assert_int_equal(bt_log_out_open(&ask, &out, &err), BT_OK);
        say(&out, "it is hot");
        assert_int_equal(bt_log_out_close(&out, &err), BT_OK);
    }
    (void)umask(mask);
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_mode & 07777, 0600); /* whatever the umask lets through */
    const char *text = read_all(path);
    assert_int_equal(n_lines(text), 4); /* each time a first line, and one more */
    assert_non_null(strstr(text, " info burthen: burthen " BT_VERSION " begins\n"));
    assert_non_null(strstr(text, " warn burthen: it is hot\n"));
}

/* logrotate moves the file away, and says so. */
static void test_reopen(void **state) {
    (void)state;
    bt_log_out out;
    bt_error err = {0};
    const bt_log_out_ask ask = ask_file();
    assert_int_equal(bt_log_out_open(&ask, &out, &err), BT_OK);
    say(&out, "one");
    assert_int_equal(rename(path, moved), 0);
    say(&out, "two");
    assert_int_equal(bt_log_out_reopen(&out, &err), BT_OK);
    say(&out, "three");
    assert_non_null(strstr(read_all(moved), "two\n"));
    assert_null(strstr(read_all(moved), "three"));
    assert_non_null(strstr(read_all(path), "three\n"));
    /* where there can be none the old one goes on */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(bt_log_out_reopen(&out, &err), BT_E_IO);
    assert_string_equal(err.code, "log_file");
    say(&out, "four");
    assert_int_equal(bt_log_out_close(&out, &err), BT_OK);
    assert_int_equal(rmdir(path), 0);
}

static void test_cannot(void **state) {
    (void)state;
    bt_log_out out;
    bt_error err = {0};
    bt_log_out_ask ask = {.file = "/dev/full", .component = "run", .waits = true};
    assert_int_equal(bt_log_out_open(&ask, &out, &err), BT_E_IO);
    assert_string_equal(err.code, "log_file");
    ask.file = folder;
    assert_int_equal(bt_log_out_open(&ask, &out, &err), BT_E_IO);
}

/* The disk is full while it runs: nothing ends; the next line that is written begins a line, after one that counts. */
static void test_full(void **state) {
    (void)state;
    bt_log_out out;
    bt_error err = {0};
    struct rlimit before, small;
    const bt_log_out_ask ask = ask_file();
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(bt_log_out_open(&ask, &out, &err), BT_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){strlen(read_all(path)) + 10, before.rlim_max}; /* room for a part of a line */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    say(&out, "lost");
    say(&out, "lost too");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    say(&out, "back");
    const char *text = read_all(path);
    assert_null(strstr(text, "burthen: lost"));
    assert_non_null(strstr(text, " warn burthen: 2 lines of the log lost\n"));
    assert_non_null(strstr(text, " warn burthen: back\n"));
    assert_int_equal(n_lines(text), 4); /* the first, the part, the count, the last */
    assert_int_equal(bt_log_out_close(&out, &err), BT_E_IO);
    assert_string_equal(err.code, "log_file");
    assert_int_equal(err.need, 2);
}

/* Who does not read a pipe does not hold us up, and is told how much he missed. */
static void test_slow(void **state) {
    (void)state;
    int ends[2];
    char bytes[65536];
    bt_log_out out;
    bt_error err = {0};
    const bt_log_out_ask ask = {.component = "serve"};
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(bt_log_out_open(&ask, &out, &err), BT_OK);
    out.fd = ends[1];
    memset(bytes, 'x', 4000);
    bytes[4000] = '\0';
    for (int i = 0; i < 100; i++)
        say(&out, bytes); /* a pipe holds 64 KiB */
    assert_true(out.n_lost > 80 && out.n_lost < 90);
    uint64_t n_lost = out.n_lost;
    assert_true(read(ends[0], bytes, sizeof bytes) > 0);
    say(&out, "again");
    assert_int_equal(out.n_lost, 0);
    ssize_t n = read(ends[0], bytes, sizeof bytes - 1);
    assert_true(n > 0);
    bytes[n] = '\0';
    char wanted[96];
    (void)snprintf(wanted, sizeof wanted, "burthen: warning: %llu lines of the log lost\nburthen: warning: again\n",
                   (unsigned long long)n_lost);
    assert_non_null(strstr(bytes, wanted));
    (void)close(ends[0]);
    (void)close(ends[1]);
}

/* A named pipe: nobody is waited for, when it is opened, opened anew, or full. */
static void test_pipe(void **state) {
    (void)state;
    bt_log_out out;
    bt_error err = {0};
    char bytes[4001];
    bt_log_out_ask ask = ask_file();
    memset(bytes, 'x', sizeof bytes - 1);
    bytes[sizeof bytes - 1] = '\0';
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(bt_log_out_open(&ask, &out, &err), BT_E_IO);
    assert_int_equal(err.sys, ENXIO);
    int reader = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    assert_true(reader >= 0);
    assert_int_equal(bt_log_out_open(&ask, &out, &err), BT_OK);
    assert_int_equal(fcntl(out.fd, F_GETFL) & O_NONBLOCK, 0); /* a slow reader is waited for */
    assert_int_equal(bt_log_out_close(&out, &err), BT_OK);
    ask.waits = false;
    assert_int_equal(bt_log_out_open(&ask, &out, &err), BT_OK);
    for (int i = 0; i < 100; i++)
        say(&out, bytes);
    assert_true(out.n_lost > 80 && out.n_lost < 90);
    assert_int_equal(bt_log_out_reopen(&out, &err), BT_E_IO); /* no room for its first line */
    assert_int_equal(err.sys, EAGAIN);
    assert_int_equal(close(reader), 0);
    assert_int_equal(bt_log_out_reopen(&out, &err), BT_E_IO); /* the reader has left */
    assert_int_equal(err.sys, ENXIO);
    assert_int_equal(bt_log_out_close(&out, &err), BT_E_IO);
}

static char journal_stream[64];

static const char *environment(const char *name) {
    return strcmp(name, "JOURNAL_STREAM") == 0 && journal_stream[0] ? journal_stream : NULL;
}

static void test_journal(void **state) {
    (void)state;
    int ends[2];
    struct stat found;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(fstat(ends[1], &found), 0);
    journal_stream[0] = '\0';
    assert_false(bt_log_is_journal(ends[1], environment));
    (void)snprintf(journal_stream, sizeof journal_stream, "%llu:%llu", (unsigned long long)found.st_dev,
                   (unsigned long long)found.st_ino);
    assert_true(bt_log_is_journal(ends[1], environment));
    assert_false(bt_log_is_journal(STDIN_FILENO, environment)); /* redirected since: the variable is inherited */
    static const char *const wrong[] = {"", "1", "1:", ":1", "-1:1", "1:1x", "x", " 8:1", "8: 1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        (void)snprintf(journal_stream, sizeof journal_stream, "%s", wrong[i]);
        assert_false(bt_log_is_journal(ends[1], environment));
    }
    (void)close(ends[0]);
    (void)close(ends[1]);
}

int main(void) {
#define CASE(f) cmocka_unit_test_teardown(f, remove_files)
    const struct CMUnitTest tests[] = {
        CASE(test_file), CASE(test_reopen), CASE(test_cannot),  CASE(test_full),
        CASE(test_slow), CASE(test_pipe),   CASE(test_journal),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
