/* SPDX-License-Identifier: MIT
 * test_router_child.c: each call that the loop, flows, logs, copies, children and the reaper make, failing: an error
 * with a code or an end that is told, nothing leaks, and no process is left. */
#include "base/fault.h"
#include "base/heap.h"
#include "base/os.h"
#include "router/aside.h"
#include "router/child.h"
#include "router/child_group.h"
#include "router/reaper.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "open_files.h"

#define N_FAULT_MAX 300 /* a child that says three lines makes some 60 fallible calls */
#define MARK        "0123456789abcdef0123456789abcdef"

/* What one life comes to. */
typedef enum outcome { REFUSED, ENDED, WAITED_TOO_LONG } outcome;

typedef struct scene {
    bt_loop *loop;
    bt_log_ring *ring;
    bt_flow *flow;
    bt_child *child;
    pid_t pid;
    bt_error err;
    uint32_t n_ends;
    bt_child_end end;
    bool told_by_error;
} scene;

static void on_late(void *user) {
    bt_loop_stop(user);
}

static void on_end(void *user, const bt_child_end *end) {
    scene *s = user;
    s->n_ends++;
    s->end = *end;
    bt_loop_stop(s->loop);
}

static bt_status open_scene(scene *s) {
    bt_status status = bt_loop_open(&s->loop, &s->err);
    if (status == BT_OK) status = bt_log_ring_open(&s->ring, &s->err);
    if (status == BT_OK) status = bt_flow_open(1000, &s->flow, &s->err);
    if (status != BT_OK) return status;
    bt_flow *flow = s->flow;
    status = bt_log_ring_listen(s->ring, true, flow, &s->err);
    if (status != BT_OK) bt_flow_drop_producer(flow);
    return status;
}

static void close_scene(scene *s) {
    bt_child_close(s->child);
    bt_log_ring_close(s->ring);
    if (s->flow) bt_flow_drop_consumer(s->flow);
    bt_loop_close(s->loop);
}

/* A child that says something, has a command that ends it, and is told to end. */
static outcome live(scene *s) {
    char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, (char[]){"echo a; echo b; exec sleep 1000"}, NULL};
    char *stop[] = {(char[]){"sh"}, (char[]){"-c"}, (char[]){"echo c; kill $0"}, (char[]){"${PID}"}, NULL};
    const char *env[] = {"A=b", NULL};
    if (open_scene(s) != BT_OK) return REFUSED;
    bt_child_ask ask = {.loop = s->loop,
                        .argv = argv,
                        .env = env,
                        .mark = MARK,
                        .log = s->ring,
                        .stop_argv = stop,
                        .on_end = on_end,
                        .user = s};
    if (bt_child_start(&ask, &s->child, &s->err) != BT_OK) return REFUSED;
    s->pid = bt_child_pid(s->child);
    bt_timer late = {.on_time = on_late, .user = s->loop};
    bt_loop_timer_set(s->loop, &late, 30);
    if (bt_loop_run(s->loop, &s->err) != BT_OK) return REFUSED;
    bt_child_memory memory;
    bt_children_memory_read(&(const bt_child *){s->child}, &(bt_child_memory *){&memory}, 1);
    bt_child_stop(s->child, 2000);
    bt_loop_timer_set(s->loop, &late, 30000);
    if (s->n_ends == 0 && bt_loop_run(s->loop, &s->err) != BT_OK) return REFUSED;
    bt_loop_timer_stop(s->loop, &late);
    return s->n_ends > 0 ? ENDED : WAITED_TOO_LONG;
}

/* Nothing to wait for: what was forsaken is taken by the next start. */
static void take_what_is_left(void) {
    for (int i = 0; i < 30000; i++) {
        if (waitpid(-1, NULL, WNOHANG) < 0) return;
        (void)usleep(1000);
    }
    fail_msg("a process is left");
}

static void a_child_starts_and_ends_or_is_refused(void **state) {
    (void)state;
    uint32_t n_files = n_open_files();
    uint32_t n_refused = 0;
    for (uint64_t k = 0;; k++) {
        assert_true(k < N_FAULT_MAX);
        scene s = {.err = {.status = BT_OK}};
        bt_fault_arm(k, false);
        outcome came = live(&s);
        close_scene(&s);
        bool hit = bt_fault_disarm();
        take_what_is_left();
        if (came == REFUSED) {
            n_refused++;
            if (s.err.code[0] == '\0') fail_msg("call %llu: no code", (unsigned long long)k);
        } else {
            assert_int_equal(came, ENDED);
            assert_int_equal(s.n_ends, 1);
            assert_true(s.end.asked);
            assert_int_equal(s.end.failure, BT_CHILD_NO_FAILURE);
        }
        if (s.pid > 0) assert_true(bt_group_is_gone(s.pid));
        assert_int_equal(bt_heap_live_blocks(), 0);
        assert_int_equal(bt_flow_total_bytes(), 0);
        assert_int_equal(n_open_files(), n_files);
        if (!hit) break;
    }
    assert_true(n_refused >= 8);
}

static bt_status answer(void *arg, bt_text *text, bt_error *err) {
    (void)arg;
    (void)err;
    bt_text_add(text, "an answer");
    return BT_OK;
}

static void on_done(void *user, const bt_text *text, const bt_error *err) {
    scene *s = user;
    s->n_ends++;
    s->told_by_error = err != NULL;
    if (err) s->err = *err;
    if (!err) assert_int_equal(text->n_bytes, 9);
    bt_loop_stop(s->loop);
}

static void a_copy_answers_or_is_refused(void **state) {
    (void)state;
    uint32_t n_files = n_open_files();
    uint32_t n_failed = 0;
    for (uint64_t k = 0;; k++) {
        assert_true(k < N_FAULT_MAX);
        scene s = {.err = {.status = BT_OK}};
        bt_aside *aside = NULL;
        bt_fault_arm(k, false);
        bt_status status = bt_loop_open(&s.loop, &s.err);
        if (status == BT_OK) status = bt_aside_start(s.loop, answer, NULL, 20000, on_done, &s, &aside, &s.err);
        if (status == BT_OK) {
            assert_int_equal(bt_loop_run(s.loop, NULL), BT_OK);
            assert_int_equal(s.n_ends, 1);
        }
        bt_loop_close(s.loop);
        bool hit = bt_fault_disarm();
        take_what_is_left();
        if (status != BT_OK || s.told_by_error) {
            n_failed++;
            assert_true(s.err.code[0] != '\0');
        }
        assert_int_equal(bt_heap_live_blocks(), 0);
        assert_int_equal(n_open_files(), n_files);
        if (!hit) break;
    }
    assert_true(n_failed >= 5);
}

/* All calls from the k-th on: memory that is out stays out. */
static void words_are_lost_but_nothing_else(void **state) {
    (void)state;
    for (uint64_t k = 0; k < 40; k++) {
        scene s = {.err = {.status = BT_OK}};
        char line[512];
        assert_int_equal(open_scene(&s), BT_OK);
        bt_fault_arm(k, true);
        for (int i = 0; i < 1000; i++) {
            int n = snprintf(line, sizeof line, "%0400d\n", i);
            bt_log_ring_add(s.ring, line, (size_t)n);
        }
        bool hit = bt_fault_disarm();
        bt_text held;
        bt_text_init(&held, BT_LOG_RING_BYTES);
        bt_log_ring_text(s.ring, &held);
        assert_false(held.failed);
        if (held.n_bytes > 0) /* what is held is the newest, a line of 400 digits and its newline */
            assert_int_equal(strtol(held.data + held.n_bytes - 401, NULL, 10), 999);
        bt_text_done(&held);
        assert_true(hit || k > 5);
        close_scene(&s);
        assert_int_equal(bt_heap_live_blocks(), 0);
        assert_int_equal(bt_flow_total_bytes(), 0);
    }
}

/* A flow whose memory is refused ends broken off; what it held before comes out, and both ends know. */
static void a_flow_without_memory_is_broken_off(void **state) {
    (void)state;
    static char piece[5000];
    char out[8];
    bt_flow *flow = NULL;
    assert_int_equal(bt_flow_open(100000, &flow, NULL), BT_OK);
    assert_true(bt_flow_put(flow, "before", 6));
    bt_fault_arm(0, false);
    assert_false(bt_flow_put(flow, piece, sizeof piece));
    assert_true(bt_fault_disarm());
    assert_true(bt_flow_failed(flow));
    assert_true(bt_flow_put(flow, "after", 5)); /* dropped */
    assert_false(bt_flow_ended(flow));
    assert_int_equal(bt_flow_take(flow, out, sizeof out), 6);
    assert_memory_equal(out, "before", 6);
    assert_true(bt_flow_ended(flow));
    assert_false(bt_flow_whole(flow));
    bt_flow_drop_producer(flow);
    bt_flow_drop_consumer(flow);
    assert_int_equal(bt_heap_live_blocks(), 0);
}

static void a_reaper_starts_or_is_refused(void **state) {
    (void)state;
    uint32_t n_files = n_open_files();
    assert_int_equal(setenv("BURTHEN_STATE_DIR", BT_TEST_OUT "/reaper-fault", 1), 0);
    for (uint64_t k = 0;; k++) {
        assert_true(k < N_FAULT_MAX);
        char mark[BT_MARK_BYTES];
        bt_error err = {0};
        pid_t pid = 0;
        int fd = -1;
        bt_fault_arm(k, false);
        bt_status status = bt_mark_make(mark, &err);
        if (status == BT_OK) status = bt_reaper_start(mark, 0, &pid, &fd, &err);
        if (status == BT_OK) {
            bt_reaper_remember(mark); /* silent */
            (void)bt_reaper_recover(0);
            (void)bt_reaper_sweep(mark, 0);
            bt_reaper_forget();
            (void)close(fd);
        }
        bool hit = bt_fault_disarm();
        if (status != BT_OK) assert_string_equal(err.code, "reaper");
        take_what_is_left();
        assert_int_equal(bt_heap_live_blocks(), 0);
        assert_int_equal(n_open_files(), n_files);
        if (!hit || k > 60) break; /* what follows is a look at one process after the other */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_starts_and_ends_or_is_refused), cmocka_unit_test(a_copy_answers_or_is_refused),
        cmocka_unit_test(words_are_lost_but_nothing_else),       cmocka_unit_test(a_flow_without_memory_is_broken_off),
        cmocka_unit_test(a_reaper_starts_or_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
