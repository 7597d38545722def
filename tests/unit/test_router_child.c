/* SPDX-License-Identifier: MIT
 * test_router_child.c: real processes, well-behaved and not: how they start, what they say, and that nothing is left of
 * them when their end is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/heap.h"
#include "base/os.h"
#include "open_files.h"
#include "probe/leaf.h"
#include "process_kit.h"
#include "router/child.h"
#include "router/child_group.h"
#include "router/child_oom.h"
#include "router/pid_watch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB  (UINT64_C(1) << 20)
#define MARK "0123456789abcdef0123456789abcdef"

static bt_loop *loop;
static bt_log_ring *ring;
static uint32_t n_files;

static int open_all(void **state) {
    (void)state;
    n_files = n_open_files();
    if (bt_loop_open(&loop, NULL) != BT_OK) return -1;
    return bt_log_ring_open(&ring, NULL) == BT_OK ? 0 : -1;
}

static int close_all(void **state) {
    (void)state;
    bt_loop_close(loop);
    bt_log_ring_close(ring);
    return bt_heap_live_blocks() == 0 && n_open_files() == n_files ? 0 : -1;
}

/* ---- one child ---- */

typedef struct life {
    bt_child *child;
    uint32_t n_ends;
    bt_child_end end;
    uint64_t end_ms;
} life;

static uint64_t now_ms(void) {
    return bt_os_now_ns() / 1000000;
}

static void on_end(void *user, const bt_child_end *end) {
    life *l = user;
    l->n_ends++;
    l->end = *end;
    l->end_ms = now_ms();
    bt_loop_stop(loop);
}

static void on_stop(void *user) {
    (void)user;
    bt_loop_stop(loop);
}

static void run_for(uint64_t ms) {
    bt_timer stop = {.on_time = on_stop};
    bt_loop_timer_set(loop, &stop, ms);
    assert_int_equal(bt_loop_run(loop, NULL), BT_OK);
    bt_loop_timer_stop(loop, &stop);
}

static void start_ask(bt_child_ask *ask, life *l) {
    ask->loop = loop;
    ask->log = ring;
    ask->mark = MARK;
    ask->on_end = on_end;
    ask->user = l;
    assert_int_equal(bt_child_start(ask, &l->child, NULL), BT_OK);
}

/* A script of /bin/sh. */
static void start(life *l, const char *script, char *const *stop_argv) {
    char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, (char *)(uintptr_t)script, NULL};
    bt_child_ask ask = {.argv = argv, .stop_argv = stop_argv};
    *l = (life){0};
    start_ask(&ask, l);
}

static void finish_within(life *l, uint64_t ms) {
    run_for(ms);
    assert_int_equal(l->n_ends, 1);
    bt_child_close(l->child);
    l->child = NULL;
}

static void run(life *l, const char *script) {
    start(l, script, NULL);
    finish_within(l, 20000);
}

/* What has been said, without ends of lines at the end. */
static const char *said(void) {
    static char text[4096];
    bt_text held;
    bt_text_init(&held, BT_LOG_RING_BYTES);
    bt_log_ring_text(ring, &held);
    assert_false(held.failed);
    assert_true(held.n_bytes < sizeof text);
    size_t n = held.n_bytes;
    memcpy(text, bt_text_str(&held), n);
    bt_text_done(&held);
    text[n > 0 ? n - 1 : 0] = '\0';
    return text;
}

static uint32_t n_lines_said(void) {
    const char *text = said();
    uint32_t n = text[0] != '\0';
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* Wait until so many lines are in the log, of this child and of those before it. */
static void wait_for_lines(uint32_t n) {
    for (int i = 0; i < 2000 && n_lines_said() < n; i++)
        run_for(10);
    assert_true(n_lines_said() >= n);
}

static pid_t said_number(void) {
    return (pid_t)strtol(said(), NULL, 10);
}

/* ---- a start ---- */

static void a_child_has_nothing_of_the_router(void **state) {
    (void)state;
    assert_int_equal(setenv("BT_TEST_KEPT", "kept", 1), 0);
    assert_int_equal(setenv("BT_TEST_OTHER", "of the router", 1), 0);
    assert_int_equal(setenv(BT_CHILD_MARK, "of another", 1), 0);
    sigset_t blocked;
    (void)sigemptyset(&blocked);
    (void)sigaddset(&blocked, SIGTERM);
    assert_int_equal(sigprocmask(SIG_BLOCK, &blocked, NULL), 0);
    assert_true(signal(SIGINT, SIG_IGN) != SIG_ERR);
    int fd = dup(1);
    const char *env[] = {"BT_TEST_OTHER=of the child", NULL};
    /* 3 is the folder that ls reads */
    char script[] = "echo $BT_TEST_KEPT, $BT_TEST_OTHER, $" BT_CHILD_MARK "; readlink /proc/self/fd/0; "
                    "[ /proc/$$/fd/1 -ef /proc/$$/fd/2 ] && echo both; ls /proc/self/fd; "
                    "echo $$ $(cut -d' ' -f5 /proc/$$/stat); "
                    "sed -n 's/^SigBlk:.//p' /proc/self/status; ignored=$(sed -n 's/^SigIgn:.//p' /proc/self/status); "
                    /* 32 and 33 are the C library's own: it lets nobody set them, so they are as the test found them */
                    "echo $((0x$ignored & ~0x180000000))";
    char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, script, NULL};
    bt_child_ask ask = {.argv = argv, .env = env};
    life l = {0};
    start_ask(&ask, &l);
    pid_t pid = bt_child_pid(l.child);
    finish_within(&l, 20000);
    char want[512];
    (void)snprintf(want, sizeof want,
                   "kept, of the child, " MARK "\n/dev/null\nboth\n0\n1\n2\n3\n%d %d\n0000000000000000\n0", (int)pid,
                   (int)pid);
    assert_string_equal(said(), want);
    assert_int_equal(close(fd), 0);
    assert_true(signal(SIGINT, SIG_DFL) != SIG_ERR);
    assert_int_equal(sigprocmask(SIG_UNBLOCK, &blocked, NULL), 0);
    assert_int_equal(unsetenv(BT_CHILD_MARK), 0);
}

static void a_program_that_is_not_there_has_not_started(void **state) {
    (void)state;
    char *argv[] = {(char[]){"no-program-has-this-name"}, NULL};
    bt_child_ask ask = {.argv = argv};
    life l = {0};
    start_ask(&ask, &l);
    assert_int_equal(l.n_ends, 0);
    finish_within(&l, 20000);
    assert_int_equal(l.end.exit_code, 127);
    assert_int_equal(l.end.failure, BT_CHILD_NOT_STARTED);
    assert_string_equal(l.end.words, "burthen: cannot start no-program-has-this-name: No such file or directory");
    argv[0] = (char[]){"/proc"};
    l = (life){0};
    start_ask(&ask, &l);
    finish_within(&l, 20000);
    assert_int_equal(l.end.exit_code, 126);
    assert_int_equal(l.end.failure, BT_CHILD_NOT_STARTED);
}

/* ---- an end ---- */

static void an_end_has_its_last_words(void **state) {
    (void)state;
    life l;
    run(&l, "echo out; echo err >&2; printf 'last words'; exit 7");
    assert_int_equal(l.end.exit_code, 7);
    assert_int_equal(l.end.signal, 0);
    assert_false(l.end.asked);
    assert_int_equal(l.end.failure, BT_CHILD_OTHER);
    assert_string_equal(l.end.words, "last words");
    assert_string_equal(said(), "out\nerr\nlast words");
    run(&l, "exit 0");
    assert_int_equal(l.end.failure, BT_CHILD_NO_FAILURE);
    run(&l, "echo allocating 3.00 MiB on device 0: cudaMalloc failed: out of memory; exit 1");
    assert_int_equal(l.end.failure, BT_CHILD_DEVICE_MEMORY);
    assert_int_equal(l.end.need_bytes.value, 3 * MIB);
    assert_string_equal(l.end.device, "CUDA0");
    run(&l, "exit 1"); /* what the one before said is not its word */
    assert_int_equal(l.end.failure, BT_CHILD_OTHER);
    assert_string_equal(l.end.words, "");
    run(&l, "kill -9 $$");
    assert_int_equal(l.end.signal, SIGKILL);
    assert_int_equal(l.end.exit_code, -1);
    assert_int_equal(l.end.failure, BT_CHILD_OTHER);
    assert_string_equal(l.end.words, "killed by signal 9");
}

static void outputs_that_are_closed_early_are_no_end(void **state) {
    (void)state;
    life l;
    uint64_t start_ms = now_ms();
    run(&l, "exec >&- 2>&-; sleep 0.3; exit 5");
    assert_int_equal(l.end.exit_code, 5);
    assert_true(l.end_ms - start_ms >= 300);
}

static uint32_t n_ticks;

static void on_tick(void *user) {
    n_ticks++;
    bt_loop_timer_set(loop, user, 1);
}

/* 40 MB without an end of line, and as many lines as there may be: the memory stays, and others have their turn. */
static void a_flood_of_words_is_bounded(void **state) {
    (void)state;
    life l;
    bt_timer tick = {.on_time = on_tick, .user = &tick};
    n_ticks = 0;
    bt_loop_timer_set(loop, &tick, 1);
    start(&l,
          "head -c 20000000 /dev/zero; head -c 20000000 /dev/zero | tr '\\0' '\\n'; yes 'a line' | head -c 20000000; "
          "echo; echo the end; exit 3",
          NULL);
    finish_within(&l, 60000);
    bt_loop_timer_stop(loop, &tick);
    assert_int_equal(l.end.exit_code, 3);
    assert_string_equal(l.end.words, "the end");
    assert_true(n_ticks >= 10);
    assert_true(bt_heap_live_bytes() < UINT64_C(2) * BT_LOG_RING_BYTES);
}

/* ---- to be told to end ---- */

static void a_polite_child_ends_when_told(void **state) {
    (void)state;
    life l;
    start(&l, "trap 'echo bye; exit 1' TERM; echo up; while :; do sleep 0.05; done", NULL);
    wait_for_lines(1);
    uint64_t start_ms = now_ms();
    bt_child_stop(l.child, 30000);
    bt_child_stop(l.child, 60000); /* the earlier end counts, and it is told once */
    finish_within(&l, 40000);
    assert_true(l.end.asked);
    assert_int_equal(l.end.exit_code, 1);
    assert_int_equal(l.end.failure, BT_CHILD_NO_FAILURE);
    assert_string_equal(l.end.words, "bye");
    assert_true(l.end_ms - start_ms < 30000); /* and its grace is not waited for */
}

static void a_deaf_child_is_killed_after_its_grace(void **state) {
    (void)state;
    life l;
    start(&l, "trap '' TERM; echo up; while :; do sleep 0.05; done", NULL);
    wait_for_lines(1);
    uint64_t start_ms = now_ms();
    bt_child_stop(l.child, 60000);
    bt_child_stop(l.child, 300); /* the earlier end counts */
    finish_within(&l, 20000);
    assert_true(l.end_ms - start_ms >= 300);
    assert_int_equal(l.end.signal, SIGKILL);
    assert_true(l.end.asked);
    assert_int_equal(l.end.failure, BT_CHILD_NO_FAILURE);
    start(&l, "trap '' TERM; echo up; while :; do sleep 0.05; done", NULL);
    wait_for_lines(2);
    bt_child_stop(l.child, 60000);
    bt_child_stop(l.child, 0); /* now */
    finish_within(&l, 20000);
    assert_int_equal(l.end.signal, SIGKILL);
}

static void a_command_can_end_it(void **state) {
    (void)state;
    life l;
    char *stop[] = {(char[]){"sh"}, (char[]){"-c"}, (char[]){"echo stopping $0 with $" BT_CHILD_MARK "; kill -USR1 $0"},
                    (char[]){"${PID}"}, NULL};
    char *wrong[] = {(char[]){"no-program-has-this-name"}, NULL};
    start(&l, "trap 'exit 4' USR1; trap 'exit 6' TERM; echo up; while :; do sleep 0.05; done", stop);
    wait_for_lines(1);
    char want[128];
    (void)snprintf(want, sizeof want, "up\nstopping %d with " MARK, (int)bt_child_pid(l.child));
    bt_child_stop(l.child, 10000);
    finish_within(&l, 20000);
    assert_int_equal(l.end.exit_code, 4);
    assert_true(l.end.asked);
    assert_string_equal(said(), want);
    /* One that fails is as good as none. */
    start(&l, "trap 'exit 6' TERM; echo up; while :; do sleep 0.05; done", wrong);
    wait_for_lines(3);
    bt_child_stop(l.child, 10000);
    finish_within(&l, 20000);
    assert_int_equal(l.end.exit_code, 6);
    /* One that hangs ends with the grace. */
    char *hangs[] = {(char[]){"sleep"}, (char[]){"1000"}, NULL};
    uint32_t n_before = n_lines_said();
    start(&l, "trap '' TERM; echo up; while :; do sleep 0.05; done", hangs);
    wait_for_lines(n_before + 1);
    bt_child_stop(l.child, 300);
    finish_within(&l, 20000);
    assert_int_equal(l.end.signal, SIGKILL);
}

/* ---- what it has started ---- */

static void the_rest_of_its_group_goes_with_it(void **state) {
    (void)state;
    life l;
    start(&l, "sh -c 'sleep 1000 & echo $!' ; exit 3", NULL); /* a grandchild whose parent has gone */
    finish_within(&l, 20000);
    assert_int_equal(l.end.exit_code, 3);
    assert_true(is_gone(said_number()));
    /* It ends when the one that stays has said that it hears nothing. */
    start(&l,
          "trap 'exit 3' USR1; (trap '' TERM; kill -USR1 $$; while :; do sleep 0.1; done) & "
          "while :; do sleep 0.05; done",
          NULL);
    pid_t group = bt_child_pid(l.child);
    uint64_t start_ms = now_ms();
    finish_within(&l, 20000);
    assert_true(bt_group_is_gone(group));
    assert_true(l.end_ms - start_ms >= 2000); /* it was told, and had its time */
}

static void who_has_left_the_group_holds_nothing_up(void **state) {
    (void)state;
    life l;
    /* It ends when the other has left. */
    start(&l,
          "setsid sleep 1000 & echo $!; until [ $(cut -d' ' -f6 /proc/$!/stat) = $! ]; do sleep 0.05; done; "
          "exit 3",
          NULL);
    run_for(20000);
    assert_int_equal(l.n_ends, 1);
    bt_child_close(l.child);
    assert_int_equal(l.end.exit_code, 3);
    pid_t escaped = said_number();
    assert_true(escaped > 1);
    assert_false(is_gone(escaped));
    assert_int_equal(kill(escaped, SIGKILL), 0);
}

static void one_that_is_forgotten_is_killed(void **state) {
    (void)state;
    life l;
    start(&l, "sleep 1000 & echo $!; wait", NULL);
    pid_t pid = bt_child_pid(l.child);
    wait_for_lines(1);
    pid_t below = said_number();
    bt_child_close(l.child);
    bt_child_close(NULL);
    for (int i = 0; i < 1000 && !(is_gone(pid) && is_gone(below)); i++)
        (void)usleep(10000);
    assert_true(is_gone(pid) && is_gone(below));
    assert_int_equal(l.n_ends, 0);
    run(&l, "exit 0"); /* takes it */
    assert_true(waitpid(pid, NULL, WNOHANG) == -1 && errno == ECHILD);
}

/* The router is killed: its child goes at once, by the system. */
static void a_child_dies_with_its_router(void **state) {
    (void)state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t router = fork();
    if (router == 0) {
        life l;
        start(&l, "while :; do sleep 0.1; done", NULL);
        pid_t pid = bt_child_pid(l.child);
        if (write(fds[1], &pid, sizeof pid) != sizeof pid) _exit(1);
        for (;;)
            (void)pause();
    }
    pid_t pid = 0;
    assert_int_equal(read(fds[0], &pid, sizeof pid), sizeof pid);
    assert_false(is_gone(pid));
    assert_int_equal(kill(router, SIGKILL), 0);
    assert_int_equal(waitpid(router, NULL, 0), router);
    for (int i = 0; i < 1000 && !is_gone(pid); i++)
        (void)usleep(10000);
    assert_true(is_gone(pid));
    assert_int_equal(close(fds[0]), 0);
    assert_int_equal(close(fds[1]), 0);
}

/* ---- memory ---- */

/* This program again: `eat MIB` holds so much until it is killed; `leaf MIB` enters a group of 16 MiB before. */
static int be_a_child(const char *what, uint64_t bytes) {
    bt_leaf *leaf = calloc(1, sizeof *leaf);
    bt_error err = {0};
    if (!leaf || (strncmp(what, "leaf", 4) == 0 && bt_leaf_make("", 16 * MIB, leaf, &err) != BT_OK)) {
        (void)printf("no leaf: %s\n", err.text);
        return 77;
    }
    if (strcmp(what, "leaf") == 0) (void)usleep(700000); /* until the router has looked */
    char *memory = malloc(bytes);
    if (!memory) return 1;
    memset(memory, 7, bytes);
    (void)printf("%s %d\n", what, memory[bytes / 2]);
    (void)fflush(stdout);
    for (;;)
        (void)pause();
}

static char self[4096];

static void start_self(life *l, const char *what, const char *mib) {
    char *argv[] = {self, (char *)(uintptr_t)what, (char *)(uintptr_t)mib, NULL};
    bt_child_ask ask = {.argv = argv};
    *l = (life){0};
    start_ask(&ask, l);
}

static void read_memory(const bt_child *child, bt_child_memory *ret) {
    bt_children_memory_read(&child, &ret, 1);
}

static void memory_of_the_group_is_summed(void **state) {
    (void)state;
    life l;
    char script[3 * 4096];
    (void)snprintf(script, sizeof script, "%s eat 64 & %s eat 32; :", self, self); /* the shell stays */
    start(&l, script, NULL);
    wait_for_lines(2); /* both hold what they hold */
    bt_child_memory memory = {0};
    read_memory(l.child, &memory);
    assert_int_equal(memory.n_processes, 3);
    assert_true(memory.rss_bytes.known && memory.peak_rss_bytes.known && memory.anon_bytes.known);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    /* Since Linux 6.2 what status says may lack some pages a core. */
    assert_in_range(memory.anon_bytes.value, 94 * MIB, 110 * MIB);
#endif
    assert_true(memory.rss_bytes.value >= memory.anon_bytes.value);
    assert_true(memory.peak_rss_bytes.value >= memory.rss_bytes.value);
    bt_child_stop(l.child, 0);
    run_for(20000);
    assert_int_equal(l.n_ends, 1);
    read_memory(l.child, &memory);
    assert_false(memory.rss_bytes.known);
    assert_int_equal(memory.n_processes, 0);
    bt_child_close(l.child);
}

/* Whether the router has seen it in its own group while it lived, or not. */
static void the_kernel_counts_whom_it_kills_for_memory(void **state) {
    (void)state;
    static const char *const whats[] = {"leaf", "leaf-at-once"};
    for (size_t i = 0; i < sizeof whats / sizeof *whats; i++) {
        life l;
        start_self(&l, whats[i], "64");
        finish_within(&l, 30000);
        (void)bt_leaf_sweep("");
        if (l.end.exit_code == 77) {
            print_message("no group can be made here: %s\n", l.end.words);
            skip();
        }
        assert_int_equal(l.end.signal, SIGKILL);
        assert_int_equal(l.end.failure, BT_CHILD_HOST_MEMORY);
    }
}

typedef struct end_seen {
    bt_pid_watch watch;
    bool was_there, is_there;
    int status;
} end_seen;

static void see_dead(void *user) {
    end_seen *seen = user;
    seen->was_there = kill(seen->watch.pid, 0) == 0;
}

static void see_end(void *user, int wait_status) {
    end_seen *seen = user;
    seen->is_there = kill(seen->watch.pid, 0) == 0;
    seen->status = wait_status;
    bt_loop_stop(loop);
}

/* What goes with a process can be read before it is taken: with it others may remove the group that it was in. */
static void the_dead_are_looked_at_first(void **state) {
    (void)state;
    end_seen seen = {0};
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(3);
    bt_pid_watch_start(&seen.watch, loop, pid, see_end, &seen);
    seen.watch.on_dead = see_dead;
    run_for(20000);
    assert_true(seen.was_there && !seen.is_there);
    assert_true(WIFEXITED(seen.status) && WEXITSTATUS(seen.status) == 3);
}

static void counts_of_both_kinds_of_groups_are_read(void **state) {
    (void)state;
    bt_known count = bt_oom_count_parse("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
    assert_true(count.known);
    assert_int_equal(count.value, 3);
    count = bt_oom_count_parse("low 0\nhigh 0\nmax 120\noom 5\noom_kill 2\noom_group_kill 0\n");
    assert_true(count.known);
    assert_int_equal(count.value, 2);
    count = bt_oom_count_parse("pgmigrate_fail 0\noom_kill 1\ndrop_pagecache 0\n"); /* of the machine */
    assert_true(count.known);
    assert_int_equal(count.value, 1);
    assert_false(bt_oom_count_parse("oom_kill_disable 0\nunder_oom 0\n").known); /* before Linux 4.13 */
    assert_false(bt_oom_count_parse("oom_kill x\n").known);
}

#define WITH_ALL(test) cmocka_unit_test_setup_teardown(test, open_all, close_all)

int main(int argc, char **argv) {
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (argc == 3) return be_a_child(argv[1], strtoull(argv[2], NULL, 10) * MIB);
    if (n <= 0) return 1;
    const struct CMUnitTest tests[] = {
        WITH_ALL(a_child_has_nothing_of_the_router),
        WITH_ALL(a_program_that_is_not_there_has_not_started),
        WITH_ALL(an_end_has_its_last_words),
        WITH_ALL(outputs_that_are_closed_early_are_no_end),
        WITH_ALL(a_flood_of_words_is_bounded),
        WITH_ALL(a_polite_child_ends_when_told),
        WITH_ALL(a_deaf_child_is_killed_after_its_grace),
        WITH_ALL(a_command_can_end_it),
        WITH_ALL(the_rest_of_its_group_goes_with_it),
        WITH_ALL(who_has_left_the_group_holds_nothing_up),
        WITH_ALL(one_that_is_forgotten_is_killed),
        WITH_ALL(a_child_dies_with_its_router),
        WITH_ALL(memory_of_the_group_is_summed),
        WITH_ALL(the_kernel_counts_whom_it_kills_for_memory),
        WITH_ALL(the_dead_are_looked_at_first),
        WITH_ALL(counts_of_both_kinds_of_groups_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
