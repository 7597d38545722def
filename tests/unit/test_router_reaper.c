/* SPDX-License-Identifier: MIT
 * test_router_reaper.c: routers that are killed leave nothing, by the reaper, or by the next router's start; and nobody
 * else is hurt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/heap.h"
#include "base/os.h"
#include "base/state.h"
#include "open_files.h"
#include "process_kit.h"
#include "router/child.h"
#include "router/marked.h"
#include "router/reaper.h"
#include "router/reaper_note.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FOLDER BT_TEST_OUT "/reaper"
#define OTHER  "00000000000000000000000000000000"
/* A process that has been killed has no environment any more, and carries no mark, before it is seen as ended. */
#define GOING_MS 10000

static uint32_t n_files;

static int start_test(void **state) {
    (void)state;
    if (system("rm -rf '" FOLDER "'") != 0) return -1; /* NOLINT(bugprone-command-processor) */
    n_files = n_open_files();
    return setenv("BURTHEN_STATE_DIR", FOLDER, 1);
}

static int end_test(void **state) {
    (void)state;
    return bt_heap_live_blocks() == 0 && n_open_files() == n_files ? 0 : -1;
}

static bool gone_within(pid_t pid, int ms) {
    for (int i = 0; i < ms / 10 && !is_gone(pid); i++)
        (void)usleep(10000);
    return is_gone(pid);
}

/* A process with a mark and whatever else, which ends by itself in the end. */
static pid_t start_marked(const char *mark, const char *script, int fd) {
    pid_t pid = fork();
    if (pid != 0) return pid;
    char variable[128];
    (void)snprintf(variable, sizeof variable, "%s=%s", BT_CHILD_MARK, mark);
    char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, (char *)(uintptr_t)script, NULL};
    char *env[] = {(char[]){"PATH=/usr/bin:/bin"}, variable, (char[]){"LAST=x"}, NULL};
    if (fd >= 0) (void)dup2(fd, 1);
    (void)setsid();
    (void)execve("/bin/sh", argv, env);
    _exit(127);
}

static void wait_until_marked(pid_t pid, const char *mark) {
    bool carries = false; /* one look: a process that becomes another program has no environment for a moment */
    for (int i = 0; i < 1000 && !carries; i++) {
        if (i > 0) (void)usleep(10000);
        carries = bt_marked_carries(pid, mark);
    }
    assert_true(carries);
}

/* The same, once it has said that it has come so far. */
static pid_t start_ready(const char *mark, const char *script) {
    int fds[2];
    char c = 0;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t pid = start_marked(mark, script, fds[1]);
    assert_int_equal(close(fds[1]), 0);
    assert_int_equal(read(fds[0], &c, 1), 1);
    assert_int_equal(close(fds[0]), 0);
    return pid;
}

static void end(pid_t pid) {
    (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* ---- marks ---- */

static void marks_are_random(void **state) {
    (void)state;
    char a[BT_MARK_BYTES];
    char b[BT_MARK_BYTES];
    assert_int_equal(bt_mark_make(a, NULL), BT_OK);
    assert_int_equal(bt_mark_make(b, NULL), BT_OK);
    assert_int_equal(strlen(a), 32);
    assert_true(bt_mark_is_valid(a) && bt_mark_is_valid(b));
    assert_string_not_equal(a, b);
    assert_false(bt_mark_is_valid(""));
    assert_false(bt_mark_is_valid("0123456789abcdef0123456789abcdeg"));
    assert_false(bt_mark_is_valid("0123456789abcdef0123456789abcdef0"));
}

/* Wherever in an environment it stands, over the bounds of what is read at once, and never a part of something else. */
static void a_mark_is_found_wherever_it_stands(void **state) {
    (void)state;
    char mark[BT_MARK_BYTES];
    char variable[128];
    char similar[130];
    char *filler = malloc(9000);
    assert_non_null(filler);
    assert_int_equal(bt_mark_make(mark, NULL), BT_OK);
    (void)snprintf(variable, sizeof variable, "%s=%s", BT_CHILD_MARK, mark);
    (void)snprintf(similar, sizeof similar, "X%s", variable);
    for (size_t n = 3990; n < 4120; n += 1) {
        memset(filler, 'x', n);
        filler[1] = '=';
        filler[n] = '\0';
        pid_t pid = fork();
        if (pid == 0) {
            char *argv[] = {(char[]){"sleep"}, (char[]){"100"}, NULL};
            char *with[] = {filler, variable, NULL};
            char *without[] = {filler, similar, NULL};
            (void)execve("/usr/bin/sleep", argv, n % 2 ? with : without);
            _exit(127);
        }
        char path[64];
        char first[2] = "";
        (void)snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
        for (int i = 0; i < 40000 && memcmp(first, "x=", 2) != 0; i++) { /* until it has become the program */
            int fd = open(path, O_RDONLY | O_CLOEXEC);
            if (fd >= 0 && read(fd, first, 2) != 2) first[0] = '\0';
            if (fd >= 0) (void)close(fd);
            (void)usleep(500);
        }
        bool carries = bt_marked_carries(pid, mark);
        assert_false(bt_marked_carries(pid, OTHER));
        end(pid);
        if (carries != (n % 2 == 1)) fail_msg("behind %zu bytes: %d", n, carries);
    }
    free(filler);
    assert_false(bt_marked_carries(getpid(), mark));
}

/* ---- sweeping ---- */

static void what_carries_the_mark_is_ended_and_nothing_else(void **state) {
    (void)state;
    char mark[BT_MARK_BYTES];
    char polite_mark[BT_MARK_BYTES];
    assert_int_equal(bt_mark_make(mark, NULL), BT_OK);
    assert_int_equal(bt_mark_make(polite_mark, NULL), BT_OK);
    /* It counts how often it is told while rounds go on, as its sleeps are found anew. */
    pid_t polite = start_ready(polite_mark, "n=0; trap 'n=$((n + 1))' TERM; echo; while [ $n = 0 ]; do sleep 0.05; "
                                            "done; sleep 0.2; sleep 0.2; exit $((n + 4))");
    pid_t deaf = start_ready(mark, "trap '' TERM; echo; while :; do sleep 0.05; done");
    pid_t other = start_ready(OTHER, "echo; while :; do sleep 0.05; done");
    assert_true(bt_reaper_sweep(polite_mark, 30000) >= 1); /* and the sleeps of the moment */
    int status = 0;
    assert_int_equal(waitpid(polite, &status, 0), polite);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 5); /* told once, and in its own time */
    assert_int_equal(waitpid(deaf, NULL, WNOHANG), 0);
    uint64_t start_ns = bt_os_now_ns();
    assert_true(bt_reaper_sweep(mark, 1000) >= 1);
    uint64_t took_ms = (bt_os_now_ns() - start_ns) / 1000000;
    assert_true(took_ms >= 1000);
    assert_int_equal(waitpid(deaf, &status, 0), deaf);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    assert_int_equal(waitpid(other, NULL, WNOHANG), 0); /* lives */
    end(other);
    assert_int_equal(bt_reaper_sweep(mark, 1000), 0);
    assert_int_equal(bt_reaper_sweep("", 1000), 0); /* no mark: nobody's */
}

/* ---- routers that are killed ---- */

typedef struct found {
    pid_t reaper, child, escaped;
} found;

/* A line of digits, however it comes. */
static pid_t read_number(int fd) {
    char text[32] = "";
    for (size_t n = 0; n + 1 < sizeof text && !strchr(text, '\n'); n++)
        assert_int_equal(read(fd, text + n, 1), 1);
    return (pid_t)strtol(text, NULL, 10);
}

/* A router: its reaper, its note, a child, and what that has started in a session of its own; then it waits. */
static pid_t start_router(const char *mark, bool with_reaper, found *ret) {
    int told[2], said[2]; /* by the router, and by its child */
    found f = {0};
    assert_int_equal(pipe2(told, O_CLOEXEC), 0);
    assert_int_equal(pipe2(said, O_CLOEXEC), 0);
    pid_t router = fork();
    if (router == 0) {
        int fd = -1;
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nothing either */
        if (with_reaper && bt_reaper_start(mark, 300, &f.reaper, &fd, NULL) != BT_OK) _exit(1);
        bt_reaper_remember(mark);
        f.child = start_marked(
            mark, "trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 0.1; done' & echo $!; wait", said[1]);
        if (write(told[1], &f, sizeof f) != sizeof f) _exit(1);
        for (;;)
            (void)pause();
    }
    assert_int_equal(close(told[1]), 0);
    assert_int_equal(close(said[1]), 0);
    assert_int_equal(read(told[0], &f, sizeof f), sizeof f);
    f.escaped = read_number(said[0]);
    assert_int_equal(close(told[0]), 0);
    assert_int_equal(close(said[0]), 0);
    wait_until_marked(f.child, mark);
    wait_until_marked(f.escaped, mark);
    *ret = f;
    return router;
}

static bool has_note(pid_t router) {
    char path[512];
    struct stat info;
    (void)snprintf(path, sizeof path, "%s/serve-%d", FOLDER, (int)router);
    return stat(path, &info) == 0;
}

/* What the test is about to send, and what the reaper ignores last: then it ignores all. */
static void wait_until_it_ignores(pid_t reaper) {
    const uint64_t wanted = UINT64_C(1) << (SIGTERM - 1) | UINT64_C(1) << (SIGINT - 1) | UINT64_C(1) << (SIGHUP - 1) |
                            UINT64_C(1) << (SIGTSTP - 1);
    char path[64];
    uint64_t ignored = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)reaper);
    for (int i = 0; i < 2000 && (ignored & wanted) != wanted; i++) {
        char text[4096] = "";
        if (i > 0) (void)usleep(10000);
        int fd = bt_os_open(path, false);
        assert_true(fd >= 0 && bt_os_pread(fd, text, sizeof text - 1, 0) > 0);
        (void)bt_os_close(fd);
        const char *line = strstr(text, "\nSigIgn:");
        assert_non_null(line);
        ignored = strtoull(line + strlen("\nSigIgn:"), NULL, 16);
    }
    assert_true((ignored & wanted) == wanted);
}

static void a_killed_router_leaves_nothing(void **state) {
    (void)state;
    char mark[BT_MARK_BYTES];
    found f = {0};
    assert_int_equal(bt_mark_make(mark, NULL), BT_OK);
    pid_t router = start_router(mark, true, &f);
    assert_true(f.escaped > 1);
    assert_true(has_note(router));
    char name[32] = "";
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/comm", (int)f.reaper);
    for (int i = 0; i < 1000 && strcmp(name, "burthen-reaper\n") != 0; i++) { /* until it has come so far */
        memset(name, 0, sizeof name);
        int fd = bt_os_open(path, false);
        assert_true(fd >= 0 && bt_os_pread(fd, name, sizeof name - 1, 0) > 0);
        (void)bt_os_close(fd);
        (void)usleep(10000);
    }
    assert_string_equal(name, "burthen-reaper\n");
    wait_until_it_ignores(f.reaper);
    assert_false(bt_marked_carries(f.reaper, mark));
    assert_int_equal(getsid(f.reaper), f.reaper);
    /* What would end a service does not end it. */
    assert_int_equal(kill(f.reaper, SIGTERM), 0);
    assert_int_equal(kill(f.reaper, SIGINT), 0);
    assert_int_equal(kill(f.reaper, SIGHUP), 0);
    (void)usleep(100000);
    assert_false(is_gone(f.reaper) || is_gone(f.child) || is_gone(f.escaped));
    end(router);
    assert_true(gone_within(f.reaper, 20000)); /* when all is done */
    assert_true(gone_within(f.child, GOING_MS) && gone_within(f.escaped, GOING_MS));
    assert_int_equal(bt_reaper_sweep(mark, 0), 0);
    assert_false(has_note(router));
}

/* Router and reaper both are killed: the next start ends what they left, and no other. */
static void the_next_router_ends_what_is_left(void **state) {
    (void)state;
    char mark[BT_MARK_BYTES];
    char living_mark[BT_MARK_BYTES];
    found f = {0};
    found living = {0};
    assert_int_equal(bt_mark_make(mark, NULL), BT_OK);
    assert_int_equal(bt_mark_make(living_mark, NULL), BT_OK);
    pid_t router = start_router(mark, false, &f);
    pid_t living_router = start_router(living_mark, false, &living);
    end(router);
    (void)usleep(100000);
    assert_false(is_gone(f.child) || is_gone(f.escaped));
    assert_true(bt_reaper_recover(200) >= 2);
    assert_true(gone_within(f.child, GOING_MS) && gone_within(f.escaped, GOING_MS));
    assert_false(has_note(router));
    assert_true(has_note(living_router));
    assert_false(is_gone(living.child) || is_gone(living.escaped));
    assert_int_equal(bt_reaper_recover(200), 0);
    end(living_router);
    assert_true(bt_reaper_recover(0) >= 2);
    assert_false(has_note(living_router));
}

static void put_note(const char *name, const char *boot, int pid, unsigned long long start, unsigned long long ns,
                     const char *mark) {
    char text[256];
    (void)snprintf(text, sizeof text, "burthen-serve 1 %s\n%d %llu %llu %s\n", boot, pid, start, ns, mark);
    assert_int_equal(bt_state_keep(name, text, strlen(text), "serve-", 64, NULL), BT_OK);
}

/* The number is another process's by now: that one is not hurt, what carries the mark is ended. */
static void a_number_that_is_used_again_is_nobody(void **state) {
    (void)state;
    char mark[BT_MARK_BYTES];
    bt_reaper_note note;
    char name[32];
    bt_text text;
    assert_int_equal(bt_mark_make(mark, NULL), BT_OK);
    bt_reaper_remember(mark);
    (void)snprintf(name, sizeof name, "serve-%d", (int)getpid());
    bt_text_init(&text, 4096);
    assert_int_equal(bt_state_recall(name, &text, NULL), BT_OK);
    assert_true(bt_reaper_note_parse(bt_text_str(&text), &note));
    bt_text_done(&text);
    assert_int_equal(note.pid, getpid());
    assert_string_equal(note.mark, mark);
    bt_reaper_forget();
    assert_false(has_note(getpid()));

    pid_t other = start_marked(OTHER, "while :; do sleep 0.05; done", -1);
    pid_t left = start_marked(mark, "while :; do sleep 0.05; done", -1);
    wait_until_marked(other, OTHER);
    wait_until_marked(left, mark);
    (void)snprintf(name, sizeof name, "serve-%d", (int)other);
    put_note(name, note.home.boot, (int)other, 12345, note.home.pid_ns + 1,
             mark); /* of a container: not to be judged */
    assert_int_equal(bt_reaper_recover(0), 0);
    assert_true(has_note(other));
    put_note(name, "another-boot", (int)other, 12345, note.home.pid_ns, mark); /* nothing of it can be left */
    assert_int_equal(bt_reaper_recover(0), 0);
    assert_false(has_note(other));
    assert_false(is_gone(left));
    put_note(name, note.home.boot, (int)other, 12345, note.home.pid_ns, mark);
    assert_true(bt_reaper_recover(0) >= 1);
    assert_false(has_note(other));
    assert_true(gone_within(left, GOING_MS));
    assert_false(is_gone(other));
    end(other);
    end(left);
}

static void notes_of_others_are_none(void **state) {
    (void)state;
    bt_reaper_note note;
    assert_true(bt_reaper_note_parse("burthen-serve 1 b\n1 2 3 " OTHER "\n", &note));
    assert_int_equal(note.pid, 1);
    assert_int_equal(note.start_ticks, 2);
    assert_int_equal(note.home.pid_ns, 3);
    assert_string_equal(note.home.boot, "b");
    static const char *const wrong[] = {
        "",
        "burthen-serve 1 b\n",
        "burthen-serve 1 \n1 2 3 " OTHER "\n",
        "burthen-serve 2 b\n1 2 3 " OTHER "\n",
        "burthen-serve 1 b\n1 2 " OTHER "\n",
        "burthen-serve 1 b\n1 2 3 " OTHER " 4\n",
        "burthen-serve 1 b\n1 2 3 " OTHER "0\n",
        "burthen-serve 1 b\n1 2 3 X\n",
        "burthen-serve 1 b\nx 2 3 " OTHER "\n",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (bt_reaper_note_parse(wrong[i], &note)) fail_msg("taken: %s", wrong[i]);
    assert_int_equal(bt_reaper_recover(0), 0); /* no folder */
}

static void a_reaper_without_work_ends(void **state) {
    (void)state;
    char mark[BT_MARK_BYTES];
    pid_t pid = 0;
    int fd = -1;
    bt_error err = {0};
    assert_int_equal(bt_mark_make(mark, NULL), BT_OK);
    assert_int_equal(bt_reaper_start(mark, 10000, &pid, &fd, NULL), BT_OK);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    (void)usleep(50000);
    assert_false(is_gone(pid));
    assert_int_equal(close(fd), 0);
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(bt_reaper_start("no mark", 0, &pid, &fd, &err), BT_E_ARG);
    assert_string_equal(err.code, "reaper");
}

#define CHECKED(test) cmocka_unit_test_setup_teardown(test, start_test, end_test)

int main(void) {
    const struct CMUnitTest tests[] = {
        CHECKED(marks_are_random),
        CHECKED(a_mark_is_found_wherever_it_stands),
        CHECKED(what_carries_the_mark_is_ended_and_nothing_else),
        CHECKED(a_killed_router_leaves_nothing),
        CHECKED(the_next_router_ends_what_is_left),
        CHECKED(a_number_that_is_used_again_is_nobody),
        CHECKED(notes_of_others_are_none),
        CHECKED(a_reaper_without_work_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
