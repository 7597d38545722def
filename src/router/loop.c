/* SPDX-License-Identifier: MIT
 *
 * loop.c: epoll and a list of timers: the one place where the router waits.
 *
 * One turn: ask who wants to be asked (before_wait), wait, hand over the events, call the timers that are due. Events
 * are level-triggered and taken in batches; the batch stays here while it is handed over, so that a watch that is
 * removed by a callback is struck from it, and its owner may free it at once. A callback that stops the loop leaves the
 * rest of the batch: the system gives it again.
 *
 * Timers stand in a list sorted by time, equal times in the order in which they were set. There is one for each request
 * or child at most, nearly all later than those that are there: the place is looked for from the end. A timer that is
 * set by a timer comes behind a fence and waits for the next turn, so that no chain of timers keeps descriptors
 * waiting.
 *
 * Signals are not here: who wants them makes a descriptor of them (signalfd). A watch is removed before its descriptor
 * is closed, and everything before the loop is. */
#include "router/loop.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"

#include <errno.h>
#include <limits.h>
#include <sys/epoll.h>
#include <unistd.h>

#define N_EVENTS_MAX 64 /* of one batch: the rest comes with the next, nothing is lost */
#define NS_PER_MS    UINT64_C(1000000)

struct bt_loop {
    int fd;
    bool stopped;
    uint64_t now_ms;
    bt_timer *first, *last;
    uint64_t (*before)(void *user);
    void *before_user;
    int n_events; /* of the batch that is handed over */
    struct epoll_event events[N_EVENTS_MAX];
};

static void look_at_clock(bt_loop *loop) {
    loop->now_ms = bt_os_now_ns() / NS_PER_MS;
}

bt_status bt_loop_open(bt_loop **ret, bt_error *err) {
    bt_loop *loop = bt_heap_alloc(sizeof *loop);
    if (!loop) return bt_fail(err, BT_E_NOMEM, "loop", BT_MEASURE_BYTES, sizeof *loop, 0, "no memory for the loop");
    errno = EMFILE; /* of a test */
    loop->fd = bt_fault_hit() ? -1 : epoll_create1(EPOLL_CLOEXEC);
    if (loop->fd < 0) {
        int sys = errno;
        bt_heap_free(loop);
        return bt_fail_sys(err, sys, "loop", "the system gives no epoll descriptor");
    }
    look_at_clock(loop);
    *ret = loop;
    return BT_OK;
}

void bt_loop_close(bt_loop *loop) {
    if (!loop) return;
    (void)close(loop->fd);
    bt_heap_free(loop);
}

/* ---- descriptors ---- */

static bt_status control(bt_loop *loop, int what, bt_watch *watch, uint32_t events, bt_error *err) {
    struct epoll_event event = {.events = events, .data = {.ptr = watch}};
    errno = EIO; /* of a test */
    if (bt_fault_hit() || epoll_ctl(loop->fd, what, watch->fd, &event) != 0)
        return bt_fail_sys(err, errno, "loop", "descriptor %d cannot be watched", watch->fd);
    return BT_OK;
}

bt_status bt_loop_add(bt_loop *loop, bt_watch *watch, uint32_t events, bt_error *err) {
    BT_TRY(control(loop, EPOLL_CTL_ADD, watch, events, err));
    watch->added = true;
    return BT_OK;
}

bt_status bt_loop_change(bt_loop *loop, bt_watch *watch, uint32_t events, bt_error *err) {
    return control(loop, EPOLL_CTL_MOD, watch, events, err);
}

void bt_loop_remove(bt_loop *loop, bt_watch *watch) {
    if (!watch->added) return;
    watch->added = false;
    struct epoll_event none = {0};
    (void)epoll_ctl(loop->fd, EPOLL_CTL_DEL, watch->fd, &none);
    for (int i = 0; i < loop->n_events; i++)
        if (loop->events[i].data.ptr == watch) loop->events[i].data.ptr = NULL;
}

static void hand_over(bt_loop *loop, int n) {
    loop->n_events = n;
    for (int i = 0; i < n && !loop->stopped; i++) {
        bt_watch *watch = loop->events[i].data.ptr;
        if (watch) watch->on_ready(watch->user, loop->events[i].events);
    }
    loop->n_events = 0;
}

/* ---- timers ---- */

/* Behind all that are not later. */
static void insert(bt_loop *loop, bt_timer *timer) {
    bt_timer *before = loop->last;
    while (before && before->at_ms > timer->at_ms)
        before = before->prev;
    timer->prev = before;
    timer->next = before ? before->next : loop->first;
    if (timer->next)
        timer->next->prev = timer;
    else
        loop->last = timer;
    if (before)
        before->next = timer;
    else
        loop->first = timer;
    timer->set = true;
}

void bt_loop_timer_set(bt_loop *loop, bt_timer *timer, uint64_t delay_ms) {
    bt_loop_timer_stop(loop, timer);
    /* By the clock, not by the loop's last look at it, and rounded up: a long callback shortens no delay. */
    uint64_t now_ms = delay_ms == 0 ? loop->now_ms : bt_os_now_ns() / NS_PER_MS + 1;
    timer->at_ms = bt_sat_add_u64(now_ms, delay_ms);
    insert(loop, timer);
}

void bt_loop_timer_stop(bt_loop *loop, bt_timer *timer) {
    if (!timer->set) return;
    if (timer->prev)
        timer->prev->next = timer->next;
    else
        loop->first = timer->next;
    if (timer->next)
        timer->next->prev = timer->prev;
    else
        loop->last = timer->prev;
    timer->prev = timer->next = NULL;
    timer->set = false;
}

static void call_due(bt_loop *loop) {
    bt_timer fence = {.at_ms = loop->now_ms};
    insert(loop, &fence);
    while (loop->first != &fence && !loop->stopped) {
        bt_timer *timer = loop->first;
        bt_loop_timer_stop(loop, timer); /* before the call, which may set it again or free it */
        timer->on_time(timer->user);
    }
    bt_loop_timer_stop(loop, &fence);
}

uint64_t bt_loop_now_ms(const bt_loop *loop) {
    return loop->now_ms;
}

/* ---- turns ---- */

void bt_loop_before_wait(bt_loop *loop, uint64_t (*before)(void *user), void *user) {
    loop->before = before;
    loop->before_user = user;
}

/* For epoll_wait: -1 is for ever. */
static int longest_wait(bt_loop *loop, uint64_t asked_ms) {
    look_at_clock(loop);
    uint64_t wait_ms = asked_ms;
    if (loop->first) wait_ms = bt_min_u64(wait_ms, bt_sat_sub_u64(loop->first->at_ms, loop->now_ms));
    if (wait_ms == UINT64_MAX) return -1;
    return wait_ms > INT_MAX ? INT_MAX : (int)wait_ms;
}

bt_status bt_loop_run(bt_loop *loop, bt_error *err) {
    bt_status status = BT_OK;
    while (!loop->stopped && status == BT_OK) {
        look_at_clock(loop);
        uint64_t asked_ms = loop->before ? loop->before(loop->before_user) : UINT64_MAX;
        if (loop->stopped) break;
        int n = epoll_wait(loop->fd, loop->events, N_EVENTS_MAX, longest_wait(loop, asked_ms));
        if (n < 0 && errno != EINTR) status = bt_fail_sys(err, errno, "loop", "the system's wait fails");
        look_at_clock(loop);
        if (n > 0) hand_over(loop, n);
        look_at_clock(loop);
        if (!loop->stopped && status == BT_OK) call_due(loop);
    }
    loop->stopped = false; /* it may be run again */
    return status;
}

void bt_loop_stop(bt_loop *loop) {
    loop->stopped = true;
}
