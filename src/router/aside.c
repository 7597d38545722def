/* SPDX-License-Identifier: MIT
 *
 * aside.c: a copy of the router that does one thing, says what came of it, and ends.
 *
 * The router has one thread, so a copy made by fork is whole: no lock is held in it, and everything that the work reads
 * is there. It has one descriptor, a pipe, and ends by _exit, so that nothing of the router's is flushed or closed a
 * second time. The answer is one message: a head with the error and the length, then the text; it is good when all of
 * it has come, whatever the process did then. The router reads as it comes, up to the maximum, and takes the answer
 * when the process has ended: nothing is left of it when on_done is called.
 *
 * A copy that takes too long is killed; one that cannot be killed at once (it waits for a disk) is forsaken, so that
 * on_done is never late. */
#include "router/aside.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/heap.h"
#include "base/os.h"
#include "router/pid_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

/* What comes first through the pipe. Both ends are the same program, so it is written as it lies in memory. */
typedef struct head {
    bt_status status;
    uint64_t n_text_bytes;
    bt_error error;
} head;

struct bt_aside {
    bt_loop *loop;
    bt_aside_done *on_done;
    void *user;
    bt_pid_watch process;
    bt_watch pipe;
    bt_timer limit;
    uint64_t max_ms;
    bt_text answer; /* head and text */
    bool done;
};

/* ---- the copy ---- */

static void work_and_tell(bt_aside_work *work, void *arg, int fd) {
    bt_text text;
    bt_text_init(&text, BT_ASIDE_ANSWER_MAX);
    head h = {0};
    h.status = work(arg, &text, &h.error);
    if (h.status == BT_OK) h.status = bt_text_memory(&text, &h.error);
    if (h.status == BT_OK && text.failed)
        h.status = bt_fail(&h.error, BT_E_LIMIT, "aside", BT_MEASURE_BYTES, 0, BT_ASIDE_ANSWER_MAX,
                           "the answer is larger than can be handed over");
    if (h.status == BT_OK) h.n_text_bytes = text.n_bytes;
    if (bt_os_write(fd, &h, sizeof h) == 0 && h.n_text_bytes > 0) (void)bt_os_write(fd, text.data, text.n_bytes);
}

_Noreturn static void be_a_copy(pid_t router, bt_aside_work *work, void *arg, int fd) {
    if (bt_copy_begin(router)) {
        int kept = bt_copy_descriptors(-1, fd);
        if (kept >= 0) work_and_tell(work, arg, kept);
    }
    _exit(0);
}

/* ---- the router ---- */

static void stop_reading(bt_aside *aside) {
    if (aside->pipe.fd < 0) return;
    bt_loop_remove(aside->loop, &aside->pipe);
    (void)close(aside->pipe.fd);
    aside->pipe.fd = -1;
}

static void free_aside(bt_aside *aside) {
    stop_reading(aside);
    bt_loop_timer_stop(aside->loop, &aside->limit);
    bt_pid_watch_forsake(&aside->process);
    bt_text_done(&aside->answer);
    bt_heap_free(aside);
}

static void finish(bt_aside *aside, const bt_error *err) {
    bt_text text = {.data = NULL};
    aside->done = true;
    if (!err && aside->answer.n_bytes > sizeof(head)) {
        text.data = aside->answer.data + sizeof(head);
        text.n_bytes = aside->answer.n_bytes - sizeof(head);
        text.max_bytes = text.n_bytes;
    }
    aside->on_done(aside->user, &text, err);
    free_aside(aside);
}

/* What has come, to the end or until nothing is there now. */
static void read_answer(bt_aside *aside) {
    char part[8192]; /* an eighth of a pipe's buffer (pipe(7)) */
    while (aside->pipe.fd >= 0) {
        ssize_t n = read(aside->pipe.fd, part, sizeof part);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n > 0) bt_text_add_n(&aside->answer, part, (size_t)n);
        if (n <= 0 || aside->answer.failed) stop_reading(aside);
    }
}

static void on_pipe(void *user, uint32_t events) {
    (void)events;
    read_answer(user);
}

static bt_status died(int status, bt_error *err) {
    if (status >= 0 && WIFSIGNALED(status))
        return bt_fail(err, BT_E_IO, "aside", BT_MEASURE_NONE, 0, 0, "the copy of the router was killed by signal %d",
                       WTERMSIG(status));
    return bt_fail(err, BT_E_IO, "aside", BT_MEASURE_NONE, 0, 0, "the copy of the router gave no answer");
}

static void on_exit_of_copy(void *user, int status) {
    bt_aside *aside = user;
    head h = {0};
    read_answer(aside);
    bool whole = !aside->answer.failed && aside->answer.n_bytes >= sizeof h;
    if (whole) memcpy(&h, aside->answer.data, sizeof h);
    if (!whole || aside->answer.n_bytes - sizeof h != h.n_text_bytes) {
        h.status = died(status, &h.error);
    } else if (h.status != BT_OK && h.error.status == BT_OK) {
        h.error.status = h.status; /* the work did not say more */
    }
    finish(aside, h.status == BT_OK ? NULL : &h.error);
}

static void on_limit(void *user) {
    bt_aside *aside = user;
    bt_error err = {0};
    (void)bt_fail(&err, BT_E_IO, "aside", BT_MEASURE_NONE, 0, 0, "the copy of the router took longer than %llu ms",
                  (unsigned long long)aside->max_ms);
    err.sys = ETIMEDOUT;
    bt_pid_watch_forsake(&aside->process);
    finish(aside, &err);
}

static bt_status start_copy(bt_aside *aside, bt_aside_work *work, void *arg, bt_error *err) {
    int fds[2] = {-1, -1};
    errno = EMFILE; /* of a test */
    if (bt_fault_hit() || pipe2(fds, O_CLOEXEC) != 0) return bt_fail_sys(err, errno, "aside", "no pipe to a copy");
    pid_t router = getpid();
    errno = EAGAIN; /* of a test */
    pid_t pid = bt_fault_hit() ? -1 : fork();
    if (pid == 0) be_a_copy(router, work, arg, fds[1]);
    int sys = errno;
    (void)close(fds[1]);
    if (pid < 0) {
        (void)close(fds[0]);
        return bt_fail_sys(err, sys, "aside", "the router cannot be copied");
    }
    aside->pipe.fd = fds[0];
    bt_pid_watch_start(&aside->process, aside->loop, pid, on_exit_of_copy, aside);
    (void)fcntl(fds[0], F_SETFL, O_NONBLOCK);
    return bt_loop_add(aside->loop, &aside->pipe, EPOLLIN, err);
}

bt_status bt_aside_start(bt_loop *loop, bt_aside_work *work, void *arg, uint64_t max_ms, bt_aside_done *on_done,
                         void *user, bt_aside **ret, bt_error *err) {
    bt_aside *aside = bt_heap_alloc(sizeof *aside);
    if (!aside) return bt_fail(err, BT_E_NOMEM, "aside", BT_MEASURE_BYTES, sizeof *aside, 0, "no memory for a copy");
    aside->loop = loop;
    aside->on_done = on_done;
    aside->user = user;
    aside->max_ms = max_ms;
    aside->pipe = (bt_watch){.on_ready = on_pipe, .user = aside, .fd = -1};
    aside->limit = (bt_timer){.on_time = on_limit, .user = aside};
    bt_text_init(&aside->answer, sizeof(head) + BT_ASIDE_ANSWER_MAX);
    bt_status status = start_copy(aside, work, arg, err);
    if (status != BT_OK) {
        free_aside(aside);
        return status;
    }
    bt_loop_timer_set(loop, &aside->limit, max_ms);
    *ret = aside;
    return BT_OK;
}

void bt_aside_cancel(bt_aside *aside) {
    if (aside && !aside->done) free_aside(aside);
}
