/* SPDX-License-Identifier: MIT
 *
 * child.c: the life of a server: from its start to the last process of its group.
 *
 *   lives -> (told to end: stop_argv or SIGTERM, SIGKILL after its grace) -> its leader has ended -> the rest of its
 * group is told to end (SIGTERM, SIGKILL) -> nobody is left -> on_end
 *
 * Both outputs are one pipe, read as it fills, into the log and into a tail of its own: the log may hold words of an
 * earlier child, and what this one said last is what its end is told by. The pipe is read to the end of what is there
 * when the group has gone, and not waited for: a process that has left the group may hold it open for ever.
 *
 * The leader is taken (waitpid) before its group is asked after. The number of a group is not given to another while it
 * has members, and right after the last one has gone it is the last that comes again: the system counts up.
 *
 * Bounds: the tail's bytes; how long the rest of a group is waited for (what the system cannot kill, it waits on a
 * disk, is left, and on_end is called all the same). */
#include "router/child.h"

#include "base/error.h"
#include "base/heap.h"
#include "router/child_group.h"
#include "router/child_oom.h"
#include "router/pid_watch.h"
#include "router/spawn.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#define TAIL_BYTES    16384u     /* llama-server says some 2 KiB behind the line that says why */
#define READ_BYTES    8192u      /* an eighth of a pipe's buffer (pipe(7)) */
#define DRAIN_BYTES   (1u << 20) /* fs.pipe-max-size's default: as much as a pipe can hold */
#define N_READS_MAX   8          /* of one callback: who floods its output does not keep the others waiting */
#define LOOK_MS       250u       /* a group of its own is entered within that by `burthen exec`; then twice as late */
#define LOOK_MAX_MS   8000u      /* each time, to this: it may wait for memory before */
#define GROUP_LOOK_MS 20u        /* well below what a start costs */
#define GROUP_TERM_MS 2000u      /* for the rest of a group whose leader has gone already */
#define GROUP_WAIT_MS 7000u      /* five seconds after SIGKILL it is the system that does not let go */

struct bt_child {
    bt_child_ask ask; /* loop, log, on_end, user */
    pid_t pid;
    bt_pid_watch leader;
    bt_watch output;
    bt_timer kill_timer, look_timer, group_timer;
    uint64_t kill_at_ms, look_ms, group_since_ms;
    bool asked, ended; /* ended: the leader */
    bool killed, oom_killed;
    bool told;
    int wait_status;
    bt_oom_watch *oom;
    char **stop_argv, **env; /* of the command that ends it */
    char *mark;
    bt_child *stopper;
    size_t n_tail;
    char tail[TAIL_BYTES + 1];
};

/* ---- what it says ---- */

static void keep_tail(bt_child *child, const char *data, size_t n) {
    if (child->n_tail + n > TAIL_BYTES) { /* the older half goes; n is less than that */
        size_t n_kept = TAIL_BYTES / 2 < child->n_tail ? TAIL_BYTES / 2 : child->n_tail;
        memmove(child->tail, child->tail + child->n_tail - n_kept, n_kept);
        child->n_tail = n_kept;
    }
    for (size_t i = 0; i < n; i++)
        child->tail[child->n_tail++] = data[i];
}

static void close_output(bt_child *child) {
    if (child->output.fd < 0) return;
    bt_loop_remove(child->ask.loop, &child->output);
    (void)close(child->output.fd);
    child->output.fd = -1;
}

/* At most n_max bytes or a little more; false: nothing more is there now. */
static bool read_output(bt_child *child, size_t n_max) {
    char part[READ_BYTES];
    size_t n_read = 0;
    while (child->output.fd >= 0 && n_read < n_max) {
        ssize_t n = read(child->output.fd, part, sizeof part);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return false;
        if (n <= 0) {
            close_output(child);
            return false;
        }
        n_read += (size_t)n;
        keep_tail(child, part, (size_t)n);
        bt_log_ring_add(child->ask.log, part, (size_t)n);
    }
    return child->output.fd >= 0;
}

static void on_output(void *user, uint32_t events) {
    (void)events;
    (void)read_output(user, (size_t)N_READS_MAX * READ_BYTES);
}

/* ---- its end ---- */

/* What it holds in the loop and of the system. */
static void let_go(bt_child *child) {
    bt_loop *loop = child->ask.loop;
    close_output(child);
    bt_loop_timer_stop(loop, &child->kill_timer);
    bt_loop_timer_stop(loop, &child->look_timer);
    bt_loop_timer_stop(loop, &child->group_timer);
    bt_oom_watch_close(child->oom);
    child->oom = NULL;
}

/* To all of the group; to the leader at least, should it have left the group. */
static void signal_all(const bt_child *child, int signal) {
    if (kill(-child->pid, signal) != 0 && errno == ESRCH && !child->ended) (void)kill(child->pid, signal);
}

/* Nobody is told. Its stopper is its owner's to forget before. */
static void forget(bt_child *child) {
    if (!child) return;
    if (!child->told) {
        if (child->pid > 0) signal_all(child, SIGKILL);
        bt_pid_watch_forsake(&child->leader);
        let_go(child);
    }
    bt_heap_free((void *)child->stop_argv);
    bt_heap_free((void *)child->env);
    bt_heap_free(child->mark);
    bt_heap_free(child);
}

static void forget_stopper(bt_child *child) {
    forget(child->stopper);
    child->stopper = NULL;
}

/* What it said before it ended the child is in its pipe by now, though the loop may not have come to it. */
static void hear_stopper(bt_child *child) {
    if (!child->stopper) return;
    (void)read_output(child->stopper, DRAIN_BYTES);
    bt_log_ring_end_line(child->ask.log);
}

/* Lines as the log would have them: bytes that would end a text are none. */
static const char *tail_text(bt_child *child) {
    for (size_t i = 0; i < child->n_tail; i++)
        if (child->tail[i] == '\0') child->tail[i] = '?';
    child->tail[child->n_tail] = '\0';
    return child->tail;
}

static void finish(bt_child *child) {
    bt_child_end end = {0};
    int status = child->wait_status;
    (void)read_output(child, DRAIN_BYTES);
    bt_log_ring_end_line(child->ask.log);
    hear_stopper(child);
    if (status < 0) /* somebody else has taken it: a handler of a library? */
        bt_child_classify(-1, 0, false, tail_text(child), &end);
    else if (WIFSIGNALED(status))
        bt_child_classify(-1, WTERMSIG(status), child->oom_killed, tail_text(child), &end);
    else
        bt_child_classify(WEXITSTATUS(status), 0, child->oom_killed, tail_text(child), &end);
    end.asked = child->asked;
    if (end.asked) end.failure = BT_CHILD_NO_FAILURE;
    forget_stopper(child);
    let_go(child);
    child->told = true;
    child->ask.on_end(child->ask.user, &end); /* it may be closed now */
}

static void kill_all(bt_child *child) {
    child->killed = true;
    bt_loop_timer_stop(child->ask.loop, &child->kill_timer);
    forget_stopper(child);
    signal_all(child, SIGKILL);
}

static void on_kill_time(void *user) {
    kill_all(user);
}

static void on_group_look(void *user) {
    bt_child *child = user;
    uint64_t waited_ms = bt_loop_now_ms(child->ask.loop) - child->group_since_ms;
    if (bt_group_is_gone(child->pid) || waited_ms >= GROUP_WAIT_MS) {
        finish(child);
        return;
    }
    if (waited_ms >= GROUP_TERM_MS && !child->killed) kill_all(child);
    bt_loop_timer_set(child->ask.loop, &child->group_timer, GROUP_LOOK_MS);
}

/* A leaf of a process that is taken may be removed by whoever starts in it next (probe/leaf.c), with its count. */
static void on_leader_dead(void *user) {
    bt_child *child = user;
    child->oom_killed = bt_oom_watch_rose(child->oom);
}

static void on_leader_end(void *user, int wait_status) {
    bt_child *child = user;
    child->ended = true;
    child->wait_status = wait_status;
    child->group_since_ms = bt_loop_now_ms(child->ask.loop);
    bt_loop_timer_stop(child->ask.loop, &child->look_timer);
    if (!bt_group_is_gone(child->pid)) signal_all(child, child->killed ? SIGKILL : SIGTERM);
    on_group_look(child);
}

/* ---- to end it ---- */

static void on_stopper_end(void *user, const bt_child_end *end) {
    bt_child *child = user;
    bt_child *stopper = child->stopper;
    child->stopper = NULL;
    if (end->failure != BT_CHILD_NO_FAILURE && !child->ended) signal_all(child, SIGTERM);
    forget(stopper);
}

static void tell_to_end(bt_child *child) {
    bt_child_ask ask = {
        .loop = child->ask.loop,
        .argv = child->stop_argv,
        .env = (const char *const *)child->env,
        .mark = child->mark,
        .log = child->ask.log,
        .on_end = on_stopper_end,
        .user = child,
    };
    if (!ask.argv || bt_child_start(&ask, &child->stopper, NULL) != BT_OK) signal_all(child, SIGTERM);
}

void bt_child_stop(bt_child *child, uint64_t grace_ms) {
    if (child->told || child->killed) return;
    bool first = !child->asked && !child->ended;
    uint64_t at_ms = bt_loop_now_ms(child->ask.loop) + grace_ms;
    if (!child->ended) child->asked = true;
    if (grace_ms == 0) {
        kill_all(child);
        return;
    }
    if (!child->kill_timer.set || at_ms < child->kill_at_ms) {
        child->kill_at_ms = at_ms;
        bt_loop_timer_set(child->ask.loop, &child->kill_timer, grace_ms);
    }
    if (first) tell_to_end(child);
}

void bt_child_close(bt_child *child) {
    if (!child) return;
    forget_stopper(child);
    forget(child);
}

/* ---- its start ---- */

static void on_look(void *user) {
    bt_child *child = user;
    bt_oom_watch_look(child->oom);
    if (child->look_ms < LOOK_MAX_MS) child->look_ms *= 2;
    bt_loop_timer_set(child->ask.loop, &child->look_timer, child->look_ms);
}

/* What is used after the start is copied. ${PID} of stop_argv is only known behind it. */
static bt_status keep_stop(bt_child *child, const bt_child_ask *ask, bt_error *err) {
    char pid[16];
    bool failed = false;
    if (!ask->stop_argv) return BT_OK;
    (void)snprintf(pid, sizeof pid, "%d", (int)child->pid);
    child->stop_argv = bt_words_copy((const char *const *)ask->stop_argv, "${PID}", pid, &failed);
    if (!failed) child->env = bt_words_copy(ask->env, NULL, NULL, &failed);
    child->mark = bt_heap_strdup(ask->mark);
    if (failed || !child->mark)
        return bt_fail(err, BT_E_NOMEM, "child", BT_MEASURE_NONE, 0, 0, "no memory for a command that ends a child");
    return BT_OK;
}

static bt_status start(bt_child *child, const bt_child_ask *ask, bt_error *err) {
    bt_spawn what = {.argv = ask->argv, .env = ask->env, .mark = ask->mark};
    BT_TRY(bt_spawn_start(&what, &child->pid, &child->output.fd, err));
    bt_pid_watch_start(&child->leader, ask->loop, child->pid, on_leader_end, child);
    child->leader.on_dead = on_leader_dead;
    BT_TRY(bt_loop_add(ask->loop, &child->output, EPOLLIN, err));
    return keep_stop(child, ask, err);
}

bt_status bt_child_start(const bt_child_ask *ask, bt_child **ret, bt_error *err) {
    bt_child *child = bt_heap_alloc(sizeof *child);
    if (!child) return bt_fail(err, BT_E_NOMEM, "child", BT_MEASURE_BYTES, sizeof *child, 0, "no memory for a child");
    child->ask = (bt_child_ask){.loop = ask->loop, .log = ask->log, .on_end = ask->on_end, .user = ask->user};
    child->output = (bt_watch){.on_ready = on_output, .user = child, .fd = -1};
    child->kill_timer = (bt_timer){.on_time = on_kill_time, .user = child};
    child->look_timer = (bt_timer){.on_time = on_look, .user = child};
    child->group_timer = (bt_timer){.on_time = on_group_look, .user = child};
    child->look_ms = LOOK_MS;
    bt_status status = start(child, ask, err);
    if (status != BT_OK) {
        bt_child_close(child);
        return status;
    }
    child->oom = bt_oom_watch_open(child->pid);
    if (child->oom) bt_loop_timer_set(ask->loop, &child->look_timer, child->look_ms);
    *ret = child;
    return BT_OK;
}

pid_t bt_child_pid(const bt_child *child) {
    return child->pid;
}

void bt_children_memory_read(const bt_child *const *children, bt_child_memory *const *ret, uint32_t n) {
    pid_t groups[BT_CHILDREN_MAX];
    bt_child_memory *of[BT_CHILDREN_MAX];
    uint32_t n_living = 0;
    for (uint32_t i = 0; i < n; i++) {
        *ret[i] = (bt_child_memory){0};
        if (children[i]->told || n_living == BT_CHILDREN_MAX) continue;
        groups[n_living] = children[i]->pid;
        of[n_living++] = ret[i];
    }
    bt_groups_memory_read(groups, of, n_living);
}
