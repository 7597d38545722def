/* SPDX-License-Identifier: MIT
 * child.c: a program started for what it prints.
 *
 * The peak of a process is known only once and never falls, so what is to have a peak of its own is a process of its
 * own. posix_spawn, so that nothing of ours is copied; signals are as a shell would leave them. The child stays in our
 * group: Ctrl-C reaches both. A signal that reaches only us is handed on, and we wait: nobody is left behind. */
#include "cli/child.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/os.h"
#include "cli/running.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS 100 /* a signal between a look and the wait is seen this much later: below what one notices */

/* errno, or 0. fd: becomes its standard output. */
static int set_up(const bt_child *child, posix_spawn_file_actions_t *actions, posix_spawnattr_t *attributes, int fd) {
    sigset_t all;
    sigset_t none;
    (void)sigfillset(&all);
    (void)sigemptyset(&none);
    (void)posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    (void)posix_spawnattr_setsigdefault(attributes, &all);
    (void)posix_spawnattr_setsigmask(attributes, &none);
    int failed = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!failed && child->errors_too) failed = posix_spawn_file_actions_adddup2(actions, fd, STDERR_FILENO);
    return failed ? failed : posix_spawn_file_actions_adddup2(actions, fd, STDOUT_FILENO);
}

static int spawn(const bt_child *child, int fd, pid_t *ret_pid) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int failed = posix_spawn_file_actions_init(&actions);
    if (failed) return failed;
    failed = posix_spawnattr_init(&attributes);
    if (!failed) {
        failed = set_up(child, &actions, &attributes, fd);
        if (!failed && child->program)
            failed = posix_spawnp(ret_pid, child->program, &actions, &attributes, child->argv, environ);
        else if (!failed)
            failed = posix_spawn(ret_pid, bt_os_self(), &actions, &attributes, child->argv, environ);
        (void)posix_spawnattr_destroy(&attributes);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    return failed;
}

/* Read to the end, or until there is no room; a signal is handed on. *ret_late: its time was over. */
static void read_all(const bt_child *child, int fd, pid_t pid, bt_text *out, bool *ret_late) {
    bool told = false;
    char buffer[4096]; /* a page */
    uint64_t start_ns = bt_os_now_ns();
    for (;;) {
        struct pollfd poller = {.fd = fd, .events = POLLIN};
        *ret_late = child->limit_ms > 0 && bt_os_now_ns() - start_ns > child->limit_ms * UINT64_C(1000000);
        if (*ret_late) {
            (void)kill(pid, SIGKILL);
            return;
        }
        if (bt_running_signal() != 0 && !told) {
            (void)kill(pid, SIGTERM);
            told = true;
        }
        int ready = poll(&poller, 1, LOOK_MS);
        if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
        ssize_t n = ready > 0 ? read(fd, buffer, sizeof buffer) : -1;
        if (n < 0 && errno == EINTR) continue;
        if (n > 0) bt_text_add_n(out, buffer, (size_t)n);
        if (n <= 0) return;
        if (out->failed) {
            (void)kill(pid, SIGTERM);
            return;
        }
    }
}

static bt_status outcome(const bt_child *child, int state, bool late, const bt_text *out, int *ret_code,
                         bt_error *err) {
    if (bt_running_signal() != 0)
        return bt_fail(err, BT_E_CANCELLED, "cancelled", BT_MEASURE_NONE, 0, 0, "%s was stopped", child->what);
    BT_TRY(bt_text_memory(out, err));
    if (out->failed)
        return bt_fail(err, BT_E_IO, "child", BT_MEASURE_BYTES, 0, out->max_bytes, "%s says more than can be read",
                       child->what);
    if (late)
        return bt_fail(err, BT_E_IO, "child", BT_MEASURE_NONE, 0, 0, "%s took longer than %u ms", child->what,
                       child->limit_ms);
    if (!WIFEXITED(state))
        return bt_fail(err, BT_E_IO, "child", BT_MEASURE_NONE, 0, 0, "%s was killed by signal %d", child->what,
                       WIFSIGNALED(state) ? WTERMSIG(state) : 0);
    *ret_code = WEXITSTATUS(state);
    return BT_OK;
}

bt_status bt_child_run(const bt_child *child, bt_text *out, int *ret_code, bt_error *err) {
    int fds[2];
    errno = EMFILE; /* of a test */
    if (bt_fault_hit() || pipe2(fds, O_CLOEXEC) != 0)
        return bt_fail_sys(err, errno, "child", "cannot start %s", child->what);
    pid_t pid = 0;
    int failed = bt_fault_hit() ? EAGAIN : spawn(child, fds[1], &pid);
    (void)close(fds[1]);
    if (failed) {
        (void)close(fds[0]);
        return bt_fail_sys(err, failed, "child", "cannot start %s", child->what);
    }
    bool late = false;
    read_all(child, fds[0], pid, out, &late);
    (void)close(fds[0]);
    int state = 0;
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR) {
        if (bt_running_signal() != 0) (void)kill(pid, SIGTERM);
    }
    return outcome(child, state, late, out, ret_code, err);
}
