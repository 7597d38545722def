/* SPDX-License-Identifier: MIT
 * test_router_aside.c: work in a copy of the process: what comes back, and that nothing is left of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "open_files.h"
#include "router/aside.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static bt_loop *loop;
static uint32_t n_files;

static int open_loop(void **state) {
    (void)state;
    n_files = n_open_files();
    return bt_loop_open(&loop, NULL);
}

static int close_loop(void **state) {
    (void)state;
    bt_loop_close(loop);
    bool no_child = waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD;
    return bt_heap_live_blocks() == 0 && n_open_files() == n_files && no_child ? 0 : -1;
}

typedef struct answer {
    uint32_t n_calls;
    bool failed;
    bt_error err;
    size_t n_bytes;
    char text[256];
} answer;

static void on_done(void *user, const bt_text *text, const bt_error *err) {
    answer *a = user;
    a->n_calls++;
    a->failed = err != NULL;
    if (err) a->err = *err;
    a->n_bytes = text->n_bytes;
    (void)snprintf(a->text, sizeof a->text, "%s", bt_text_str(text));
    bt_loop_stop(loop);
}

static answer run_within(bt_aside_work *work, void *arg, uint64_t max_ms) {
    answer a = {0};
    bt_aside *aside = NULL;
    assert_int_equal(bt_aside_start(loop, work, arg, max_ms, on_done, &a, &aside, NULL), BT_OK);
    assert_int_equal(a.n_calls, 0);
    assert_int_equal(bt_loop_run(loop, NULL), BT_OK);
    assert_int_equal(a.n_calls, 1);
    return a;
}

static answer run(bt_aside_work *work, void *arg) {
    return run_within(work, arg, 20000);
}

static bt_status echo(void *arg, bt_text *text, bt_error *err) {
    (void)err;
    bt_text_addf(text, "%s, aside", (const char *)arg);
    if (!bt_heap_alloc(100)) return BT_E_NOMEM; /* nobody minds what a copy leaves */
    return BT_OK;
}

static void the_answer_comes_back(void **state) {
    (void)state;
    char word[] = "hello";
    answer a = run(echo, word);
    assert_false(a.failed);
    assert_string_equal(a.text, "hello, aside");
    assert_int_equal(a.n_bytes, 12);
}

static bt_status say_much(void *arg, bt_text *text, bt_error *err) {
    (void)err;
    for (size_t i = 0; i < *(size_t *)arg; i++)
        bt_text_add(text, "x");
    return BT_OK;
}

static void an_answer_has_a_maximum(void **state) {
    (void)state;
    size_t n = 0;
    answer a = run(say_much, &n);
    assert_false(a.failed);
    assert_int_equal(a.n_bytes, 0);
    n = BT_ASIDE_ANSWER_MAX;
    a = run(say_much, &n);
    assert_false(a.failed);
    assert_int_equal(a.n_bytes, n);
    n++;
    a = run(say_much, &n);
    assert_true(a.failed);
    assert_int_equal(a.err.status, BT_E_LIMIT);
    assert_string_equal(a.err.code, "aside");
    assert_int_equal(a.n_bytes, 0);
}

static bt_status refuse(void *arg, bt_text *text, bt_error *err) {
    (void)arg;
    bt_text_add(text, "not to be seen");
    return bt_fail(err, BT_E_BUDGET, "ram_budget", BT_MEASURE_BYTES, 7, 5, "too much of it");
}

static bt_status fail_without_a_word(void *arg, bt_text *text, bt_error *err) {
    (void)arg;
    (void)text;
    (void)err;
    return BT_E_FORMAT;
}

static void an_error_comes_back_as_it_is(void **state) {
    (void)state;
    answer a = run(refuse, NULL);
    assert_true(a.failed);
    assert_int_equal(a.err.status, BT_E_BUDGET);
    assert_string_equal(a.err.code, "ram_budget");
    assert_string_equal(a.err.text, "too much of it");
    assert_int_equal(a.err.need, 7);
    assert_int_equal(a.err.have, 5);
    assert_string_equal(a.text, "");
    a = run(fail_without_a_word, NULL);
    assert_int_equal(a.err.status, BT_E_FORMAT);
}

static bt_status die(void *arg, bt_text *text, bt_error *err) {
    (void)arg;
    (void)text;
    (void)err;
    (void)raise(SIGKILL);
    return BT_OK;
}

static bt_status leave(void *arg, bt_text *text, bt_error *err) {
    (void)arg;
    (void)text;
    (void)err;
    _exit(0);
}

static bt_status sleep_long(void *arg, bt_text *text, bt_error *err) {
    (void)arg;
    (void)text;
    (void)err;
    (void)sleep(1000);
    return BT_OK;
}

/* Each start takes what was forsaken, when it has ended: at once, or on a full machine a little later. */
static void take_forsaken(void) {
    for (int i = 0; i < 1000; i++) {
        (void)run(refuse, NULL);
        if (waitpid(-1, NULL, WNOHANG) == -1) break;
        (void)usleep(1000);
    }
}

static void a_copy_may_die_or_take_too_long(void **state) {
    (void)state;
    answer a = run(die, NULL);
    assert_true(a.failed);
    assert_int_equal(a.err.status, BT_E_IO);
    assert_string_equal(a.err.code, "aside");
    assert_non_null(strstr(a.err.text, "signal 9"));
    a = run(leave, NULL);
    assert_int_equal(a.err.status, BT_E_IO);
    assert_string_equal(a.err.code, "aside");
    uint64_t start_ns = bt_os_now_ns();
    a = run_within(sleep_long, NULL, 50);
    assert_string_equal(a.err.code, "aside");
    assert_non_null(strstr(a.err.text, "50 ms"));
    assert_true(bt_os_now_ns() - start_ns < UINT64_C(10000000000));
    take_forsaken();
}

/* No descriptor but the answer's leads anywhere, no handler and no blocked signal is left. */
static bt_status look_around(void *arg, bt_text *text, bt_error *err) {
    (void)arg;
    (void)err;
    char name[64];
    char target[256];
    for (int fd = 0; fd < 64; fd++) {
        (void)snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(name, target, sizeof target - 1);
        if (n > 0) bt_text_addf(text, "%d %.*s\n", fd, n > 5 && memcmp(target, "pipe:", 5) == 0 ? 5 : (int)n, target);
    }
    sigset_t mask;
    struct sigaction action;
    if (sigprocmask(SIG_SETMASK, NULL, &mask) != 0 || sigaction(SIGUSR1, NULL, &action) != 0) return BT_E_IO;
    bt_text_addf(text, "%d %d\n", sigismember(&mask, SIGTERM), action.sa_handler == SIG_DFL);
    return BT_OK;
}

static void on_signal(int signal) {
    (void)signal;
}

static void a_copy_has_nothing_of_the_router(void **state) {
    (void)state;
    sigset_t blocked;
    (void)sigemptyset(&blocked);
    (void)sigaddset(&blocked, SIGTERM);
    assert_int_equal(sigprocmask(SIG_BLOCK, &blocked, NULL), 0);
    struct sigaction action = {.sa_handler = on_signal};
    struct sigaction old;
    assert_int_equal(sigaction(SIGUSR1, &action, &old), 0);
    int fd = dup(1); /* something of the router's */
    answer a = run(look_around, NULL);
    assert_string_equal(a.text, "0 /dev/null\n1 /dev/null\n2 /dev/null\n3 pipe:\n0 1\n");
    assert_int_equal(close(fd), 0);
    assert_int_equal(sigaction(SIGUSR1, &old, NULL), 0);
    assert_int_equal(sigprocmask(SIG_UNBLOCK, &blocked, NULL), 0);
}

static void one_that_is_cancelled_tells_nobody(void **state) {
    (void)state;
    answer cancelled = {0};
    bt_aside *aside = NULL;
    assert_int_equal(bt_aside_start(loop, sleep_long, NULL, 20000, on_done, &cancelled, &aside, NULL), BT_OK);
    bt_aside_cancel(aside);
    bt_aside_cancel(NULL);
    take_forsaken();
    assert_int_equal(cancelled.n_calls, 0);
}

#define WITH_LOOP(test) cmocka_unit_test_setup_teardown(test, open_loop, close_loop)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_LOOP(the_answer_comes_back),
        WITH_LOOP(an_answer_has_a_maximum),
        WITH_LOOP(an_error_comes_back_as_it_is),
        WITH_LOOP(a_copy_may_die_or_take_too_long),
        WITH_LOOP(a_copy_has_nothing_of_the_router),
        WITH_LOOP(one_that_is_cancelled_tells_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
