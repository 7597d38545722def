/* SPDX-License-Identifier: MIT
 * test_router_loop.c: descriptors and timers: who is called, in which order, and who is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/heap.h"
#include "base/os.h"
#include "router/loop.h"

#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <unistd.h>

static bt_loop *loop;

static int open_loop(void **state) {
    (void)state;
    return bt_loop_open(&loop, NULL);
}

static int close_loop(void **state) {
    (void)state;
    bt_loop_close(loop);
    return bt_heap_live_blocks() == 0 ? 0 : -1;
}

static void run(void) {
    bt_error err = {0};
    assert_int_equal(bt_loop_run(loop, &err), BT_OK);
}

static void on_stop(void *user) {
    (void)user;
    bt_loop_stop(loop);
}

static uint64_t now_ms(void) {
    return bt_os_now_ns() / 1000000;
}

/* ---- descriptors ---- */

typedef struct end {
    bt_watch watch;
    struct end *other; /* removed and freed by the first that is called */
    uint32_t n_calls, events;
    bool drain, stop;
} end;

static uint32_t n_ends_called;

static void on_end_ready(void *user, uint32_t events) {
    end *self = user;
    char c = 0;
    self->n_calls++;
    self->events = events;
    n_ends_called++;
    if (self->drain) assert_int_equal(read(self->watch.fd, &c, 1), 1);
    if (self->other) {
        bt_loop_remove(loop, &self->other->watch);
        bt_heap_free(self->other);
        self->other = NULL;
    }
    if (self->stop) bt_loop_stop(loop);
}

static void a_descriptor_is_ready_until_it_is_read(void **state) {
    (void)state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    end e = {.watch = {.on_ready = on_end_ready, .fd = fds[0]}};
    e.watch.user = &e;
    assert_int_equal(bt_loop_add(loop, &e.watch, EPOLLIN, NULL), BT_OK);
    assert_true(e.watch.added);
    assert_int_equal(write(fds[1], "ab", 2), 2);
    bt_timer stop = {.on_time = on_stop};
    e.drain = true;
    e.stop = true;
    run();
    run();
    assert_int_equal(e.n_calls, 2); /* a byte each time */
    assert_int_equal(e.events, EPOLLIN);
    bt_loop_timer_set(loop, &stop, 20);
    run();
    assert_int_equal(e.n_calls, 2); /* and no more of them */
    assert_int_equal(close(fds[1]), 0);
    e.drain = false;
    run();
    assert_int_equal(e.events, EPOLLHUP);
    bt_loop_remove(loop, &e.watch);
    assert_false(e.watch.added);
    bt_loop_remove(loop, &e.watch); /* nothing */
    assert_int_equal(close(fds[0]), 0);
}

static void what_is_wanted_can_change(void **state) {
    (void)state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    end e = {.watch = {.on_ready = on_end_ready, .fd = fds[1]}, .stop = true};
    e.watch.user = &e;
    assert_int_equal(bt_loop_add(loop, &e.watch, 0, NULL), BT_OK);
    bt_timer stop = {.on_time = on_stop};
    bt_loop_timer_set(loop, &stop, 5);
    run();
    assert_int_equal(e.n_calls, 0);
    assert_int_equal(bt_loop_change(loop, &e.watch, EPOLLOUT, NULL), BT_OK);
    run();
    assert_int_equal(e.n_calls, 1);
    assert_int_equal(e.events, EPOLLOUT);
    bt_loop_remove(loop, &e.watch);
    bt_error err = {0};
    assert_int_equal(bt_loop_change(loop, &e.watch, EPOLLIN, &err), BT_E_IO);
    assert_string_equal(err.code, "loop");
    assert_int_equal(close(fds[0]), 0);
    assert_int_equal(close(fds[1]), 0);
}

/* Both are ready in one batch; whoever comes first removes and frees the other, whose event is not delivered. */
static void an_event_of_a_removed_watch_is_not_delivered(void **state) {
    (void)state;
    int fds[2][2];
    end *ends[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pipe(fds[i]), 0);
        assert_int_equal(write(fds[i][1], "x", 1), 1);
        ends[i] = bt_heap_alloc(sizeof *ends[i]);
        assert_non_null(ends[i]);
        ends[i]->watch = (bt_watch){.on_ready = on_end_ready, .fd = fds[i][0], .user = ends[i]};
        assert_int_equal(bt_loop_add(loop, &ends[i]->watch, EPOLLIN, NULL), BT_OK);
        ends[i]->drain = true;
    }
    ends[0]->other = ends[1];
    ends[1]->other = ends[0];
    n_ends_called = 0;
    bt_timer stop = {.on_time = on_stop};
    bt_loop_timer_set(loop, &stop, 10);
    run();
    assert_int_equal(n_ends_called, 1);
    char c = 0;
    int left = 0; /* the one that lives has read its byte */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(close(fds[i][1]), 0);
        if (read(fds[i][0], &c, 1) == 1) continue;
        left = i;
    }
    bt_loop_remove(loop, &ends[left]->watch);
    bt_heap_free(ends[left]);
    for (int i = 0; i < 2; i++)
        assert_int_equal(close(fds[i][0]), 0);
}

static void what_cannot_be_watched_is_an_error(void **state) {
    (void)state;
    bt_watch watch = {.on_ready = on_end_ready, .fd = -1};
    bt_error err = {0};
    assert_int_equal(bt_loop_add(loop, &watch, EPOLLIN, &err), BT_E_IO);
    assert_string_equal(err.code, "loop");
    assert_false(watch.added);
}

/* ---- timers ---- */

static char order[16];
static uint32_t n_order;

typedef struct mark {
    bt_timer timer, *stops;
    char name;
    uint64_t again_ms;
    uint32_t n_again;
} mark;

static void on_mark(void *user) {
    mark *self = user;
    if (n_order + 1 < sizeof order) order[n_order++] = self->name;
    order[n_order] = '\0';
    if (self->stops) bt_loop_timer_stop(loop, self->stops);
    if (self->n_again == 0) return;
    self->n_again--;
    bt_loop_timer_set(loop, &self->timer, self->again_ms);
}

static mark make_mark(char name) {
    return (mark){.timer = {.on_time = on_mark}, .name = name};
}

static void set(mark *m, uint64_t delay_ms) {
    m->timer.user = m;
    bt_loop_timer_set(loop, &m->timer, delay_ms);
}

static void timers_come_in_order_and_not_early(void **state) {
    (void)state;
    mark a = make_mark('a');
    mark b = make_mark('b');
    mark c = make_mark('c');
    mark d = make_mark('d');
    bt_timer stop = {.on_time = on_stop};
    uint64_t start_ms = 0;
    n_order = 0;
    do { /* each counts from when it is set: again, where the machine has made a pause between two of them */
        start_ms = now_ms();
        bt_loop_timer_set(loop, &stop, 40);
        set(&c, 20);
        set(&b, 1);
        set(&a, 0);
        set(&d, 30);
        assert_true(a.timer.set && d.timer.set);
        bt_loop_timer_stop(loop, &d.timer);
        bt_loop_timer_stop(loop, &d.timer); /* nothing */
        set(&b, 30);                        /* moved */
    } while (now_ms() - start_ms >= 5);
    run();
    assert_string_equal(order, "acb");
    assert_true(now_ms() - start_ms >= 40);
    assert_false(a.timer.set || b.timer.set || c.timer.set || stop.set);
}

/* Two of the same time come in the order they were set; one may stop the other in its call. */
static void a_timer_that_is_stopped_by_another_is_not_called(void **state) {
    (void)state;
    mark a = make_mark('a');
    mark b = make_mark('b');
    mark c = make_mark('c');
    bt_timer stop = {.on_time = on_stop};
    n_order = 0;
    a.stops = &b.timer;
    set(&a, 0);
    set(&b, 0);
    set(&c, 0);
    bt_loop_timer_set(loop, &stop, 5);
    run();
    assert_string_equal(order, "ac");
}

/* A timer that sets itself again with 0 leaves the descriptors their turn. */
static void timers_do_not_starve_descriptors(void **state) {
    (void)state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], "x", 1), 1);
    end e = {.watch = {.on_ready = on_end_ready, .fd = fds[0]}, .stop = true};
    e.watch.user = &e;
    mark a = make_mark('a');
    a.n_again = UINT32_MAX;
    n_order = 0;
    set(&a, 0);
    assert_int_equal(bt_loop_add(loop, &e.watch, EPOLLIN, NULL), BT_OK);
    run();
    assert_int_equal(e.n_calls, 1);
    bt_loop_timer_stop(loop, &a.timer);
    bt_loop_remove(loop, &e.watch);
    assert_int_equal(close(fds[0]), 0);
    assert_int_equal(close(fds[1]), 0);
}

static uint64_t took_at_ms;

static void on_slow(void *user) {
    uint64_t now = bt_loop_now_ms(loop);
    (void)usleep(30000);
    assert_int_equal(bt_loop_now_ms(loop), now); /* the same within one callback */
    took_at_ms = now_ms();
    bt_loop_timer_set(loop, user, 20);
}

/* A callback that takes long does not shorten the delay that it asks for. */
static void a_delay_counts_from_the_call(void **state) {
    (void)state;
    bt_timer stop = {.on_time = on_stop};
    bt_timer slow = {.on_time = on_slow, .user = &stop};
    bt_loop_timer_set(loop, &slow, 0);
    run();
    assert_true(now_ms() - took_at_ms >= 20);
}

/* ---- turns ---- */

static uint32_t n_before;

static uint64_t before_that_stops(void *user) {
    if (++n_before == 3) bt_loop_stop(loop);
    return *(uint64_t *)user;
}

static void who_wants_to_be_asked_bounds_the_wait(void **state) {
    (void)state;
    uint64_t wait_ms = 10;
    n_before = 0;
    uint64_t start_ms = now_ms();
    bt_loop_before_wait(loop, before_that_stops, &wait_ms);
    run();
    assert_int_equal(n_before, 3);
    assert_true(now_ms() - start_ms >= 19); /* two waits */
    n_before = 0;
    bt_timer stop = {.on_time = on_stop};
    bt_loop_timer_set(loop, &stop, 60000); /* later than what is asked for, which is waited for */
    start_ms = now_ms();
    run();
    assert_int_equal(n_before, 3);
    assert_true(now_ms() - start_ms < 60000);
    n_before = 0;
    wait_ms = UINT64_MAX; /* no bound: the timer is */
    bt_loop_timer_set(loop, &stop, 15);
    start_ms = now_ms();
    run();
    assert_true(n_before < 3);
    assert_true(now_ms() - start_ms >= 14);
}

static void on_alarm(int signal) {
    (void)signal;
}

static void signals_do_not_end_the_wait_with_an_error(void **state) {
    (void)state;
    struct sigaction action = {.sa_handler = on_alarm};
    struct sigaction old;
    assert_int_equal(sigaction(SIGALRM, &action, &old), 0);
    struct itimerval soon = {.it_value = {.tv_usec = 5000}};
    assert_int_equal(setitimer(ITIMER_REAL, &soon, NULL), 0);
    bt_timer stop = {.on_time = on_stop};
    uint64_t start_ms = now_ms();
    bt_loop_timer_set(loop, &stop, 30);
    run();
    assert_true(now_ms() - start_ms >= 30);
    assert_int_equal(sigaction(SIGALRM, &old, NULL), 0);
}

static void stopped_before_it_runs_it_returns(void **state) {
    (void)state;
    mark a = make_mark('a');
    n_order = 0;
    order[0] = '\0';
    set(&a, 0);
    bt_loop_stop(loop);
    run();
    assert_string_equal(order, "");
    bt_loop_timer_stop(loop, &a.timer);
}

#define WITH_LOOP(test) cmocka_unit_test_setup_teardown(test, open_loop, close_loop)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_LOOP(a_descriptor_is_ready_until_it_is_read),
        WITH_LOOP(what_is_wanted_can_change),
        WITH_LOOP(an_event_of_a_removed_watch_is_not_delivered),
        WITH_LOOP(what_cannot_be_watched_is_an_error),
        WITH_LOOP(timers_come_in_order_and_not_early),
        WITH_LOOP(a_timer_that_is_stopped_by_another_is_not_called),
        WITH_LOOP(timers_do_not_starve_descriptors),
        WITH_LOOP(a_delay_counts_from_the_call),
        WITH_LOOP(who_wants_to_be_asked_bounds_the_wait),
        WITH_LOOP(signals_do_not_end_the_wait_with_an_error),
        WITH_LOOP(stopped_before_it_runs_it_returns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
