/* SPDX-License-Identifier: MIT
 *
 * pid_watch.c: the end of a process, as a descriptor.
 *
 * A pidfd is readable when its process has ended, and names that process whatever becomes of its number. Where the
 * system gives none (a sandbox, no descriptors left) a timer looks instead. SIGCHLD is not used: it is one signal for
 * all of a process, libraries included, and says only that somebody has ended.
 *
 * Who is forsaken is killed and waited for by nobody, since waiting may take long: its number stands in a short list,
 * and each later call of this file takes those that have ended meanwhile. Until then it is a zombie, which costs a
 * number and nothing else; what does not find a place in the list stays one until the router ends. */
#include "router/pid_watch.h"

#include "base/fault.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS        20 /* without a pidfd: well below what a start or an end of a server takes */
#define N_FORSAKEN_MAX 64 /* each is being killed: more at once are no more than zombies for longer */

static pid_t forsaken[N_FORSAKEN_MAX];

/* true: it has ended, or is none of ours. */
static bool taken(pid_t pid, int *ret_status) {
    pid_t got = 0;
    do {
        got = waitpid(pid, ret_status, WNOHANG);
    } while (got < 0 && errno == EINTR);
    if (got < 0) *ret_status = -1;
    return got != 0;
}

/* It has ended, and is not taken: its number, and the group that it was in, are there. Or it is none of ours. */
static bool is_dead(pid_t pid) {
    siginfo_t info = {0};
    int rc = 0;
    do {
        rc = waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT);
    } while (rc < 0 && errno == EINTR);
    return rc < 0 || info.si_pid != 0;
}

static void take_forsaken(void) {
    int status = 0;
    for (uint32_t i = 0; i < N_FORSAKEN_MAX; i++)
        if (forsaken[i] > 0 && taken(forsaken[i], &status)) forsaken[i] = 0;
}

static void unwatch(bt_pid_watch *watch) {
    if (watch->watch.fd >= 0) {
        bt_loop_remove(watch->loop, &watch->watch);
        (void)close(watch->watch.fd);
    }
    watch->watch.fd = -1;
    bt_loop_timer_stop(watch->loop, &watch->look);
    watch->watched = false;
}

static void look(void *user) {
    bt_pid_watch *watch = user;
    int status = 0;
    take_forsaken();
    if (!is_dead(watch->pid)) {
        if (watch->watch.fd < 0) bt_loop_timer_set(watch->loop, &watch->look, LOOK_MS);
        return;
    }
    if (watch->on_dead) watch->on_dead(watch->user);
    (void)taken(watch->pid, &status);
    unwatch(watch);
    watch->on_exit(watch->user, status);
}

static void on_ready(void *user, uint32_t events) {
    (void)events;
    look(user);
}

/* -1 where there is none. Close-on-exec by itself (pidfd_open(2)). */
static int open_pidfd(pid_t pid) {
#ifdef SYS_pidfd_open
    return bt_fault_hit() ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
#else
    (void)pid;
    return -1;
#endif
}

void bt_pid_watch_start(bt_pid_watch *watch, bt_loop *loop, pid_t pid, void (*on_exit)(void *user, int wait_status),
                        void *user) {
    take_forsaken();
    *watch = (bt_pid_watch){.loop = loop, .pid = pid, .on_exit = on_exit, .user = user, .watched = true};
    watch->look = (bt_timer){.on_time = look, .user = watch};
    watch->watch = (bt_watch){.on_ready = on_ready, .user = watch, .fd = open_pidfd(pid)};
    if (watch->watch.fd >= 0 && bt_loop_add(loop, &watch->watch, EPOLLIN, NULL) == BT_OK) return;
    if (watch->watch.fd >= 0) (void)close(watch->watch.fd);
    watch->watch.fd = -1;
    bt_loop_timer_set(loop, &watch->look, LOOK_MS);
}

void bt_pid_watch_forsake(bt_pid_watch *watch) {
    if (!watch->watched) return;
    int status = 0;
    (void)kill(watch->pid, SIGKILL);
    unwatch(watch);
    take_forsaken();
    if (taken(watch->pid, &status)) return;
    for (uint32_t i = 0; i < N_FORSAKEN_MAX; i++) {
        if (forsaken[i] > 0) continue;
        forsaken[i] = watch->pid;
        return;
    }
}
