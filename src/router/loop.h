/* SPDX-License-Identifier: MIT
 * loop.h: the one thread of the router: descriptors and timers, each with a function that is called. Signals are
 * descriptors too (signalfd), of whoever wants them. */
#pragma once

#include "burthen.h"

typedef struct bt_loop bt_loop;

/* A descriptor that is watched. Zero-initialised, part of its owner; the descriptor stays the owner's, who removes the
 * watch before it closes it. One watch a descriptor. */
typedef struct bt_watch {
    void (*on_ready)(void *user, uint32_t events); /* EPOLLIN, EPOLLOUT... of epoll(7) */
    void *user;
    int fd;
    bool added; /* set by the loop */
} bt_watch;

/* Something later. Zero-initialised, part of its owner. */
typedef struct bt_timer {
    void (*on_time)(void *user);
    void *user;
    uint64_t at_ms; /* of the loop's clock; set by the loop */
    bool set;
    struct bt_timer *prev, *next; /* the loop's */
} bt_timer;

BT_MUST_CHECK bt_status bt_loop_open(bt_loop **ret, bt_error *err);
void bt_loop_close(bt_loop *loop); /* NULL is fine */

/* fd and the functions are set by the caller before. BT_E_IO, code "loop". */
BT_MUST_CHECK bt_status bt_loop_add(bt_loop *loop, bt_watch *watch, uint32_t events, bt_error *err);
BT_MUST_CHECK bt_status bt_loop_change(bt_loop *loop, bt_watch *watch, uint32_t events, bt_error *err);
/* From any callback, of any watch: an event that is already there for it is not delivered. Not added: nothing. */
void bt_loop_remove(bt_loop *loop, bt_watch *watch);

/* Call on_time once, in delay_ms or later; set again, it is moved. 0: after the callbacks that are running now. */
void bt_loop_timer_set(bt_loop *loop, bt_timer *timer, uint64_t delay_ms);
void bt_loop_timer_stop(bt_loop *loop, bt_timer *timer);

/* Milliseconds, monotonic, as of the last time the loop looked: the same within one callback. */
uint64_t bt_loop_now_ms(const bt_loop *loop);

/* Called once before every wait: for libraries that want to be asked how long they can wait (libmicrohttpd). Returns
 * the longest wait, or UINT64_MAX. One is enough. */
void bt_loop_before_wait(bt_loop *loop, uint64_t (*before)(void *user), void *user);

/* Until bt_loop_stop, which may also come before: then it returns at once. Not from a callback. BT_E_IO, code "loop":
 * the system's wait fails. */
BT_MUST_CHECK bt_status bt_loop_run(bt_loop *loop, bt_error *err);
void bt_loop_stop(bt_loop *loop);
