/* SPDX-License-Identifier: MIT
 * pid_watch.h: the end of a process that the router has started. */
#pragma once

#include "router/loop.h"

#include <sys/types.h>

/* Zero-initialised, part of its owner. */
typedef struct bt_pid_watch {
    bt_loop *loop;
    pid_t pid;
    void (*on_exit)(void *user, int wait_status); /* of waitpid(2); -1: somebody else has taken it */
    void (*on_dead)(void *user);                  /* before that, once: it has ended, and is not taken yet. Or NULL */
    void *user;
    bt_watch watch; /* of its pidfd */
    bt_timer look;  /* where the system gives no pidfd */
    bool watched;
} bt_pid_watch;

/* on_exit is called once, from the loop, when the process has ended: nothing is left of it then, not even its number.
 * Who must read what goes with that (a group that others may remove then) sets on_dead, after this. */
void bt_pid_watch_start(bt_pid_watch *watch, bt_loop *loop, pid_t pid, void (*on_exit)(void *user, int wait_status),
                        void *user);
/* Nobody is told any more; the process is killed, and taken when it has ended, whoever is watched then. Not watched:
 * nothing. */
void bt_pid_watch_forsake(bt_pid_watch *watch);

/* ---- what both kinds of copies begin with (pid_copy.c) ---- */

/* In a copy of the router: die with it (it may be gone already: false), signals as a fresh program has them. */
bool bt_copy_begin(pid_t router);
void bt_copy_signals(void); /* the latter alone */
/* Nothing as standard input, output for what is said (-1: nothing), every other descriptor closed but keep (-1: none);
 * returns the number that keep has now, or -1. */
int bt_copy_descriptors(int output, int keep);
