/* SPDX-License-Identifier: MIT
 *
 * reaper.c: the process that stays when the router has gone.
 *
 * SIGKILL with the router (PR_SET_PDEATHSIG) reaches the servers that it started, not what those have started. So a
 * copy of the router is made at its start that waits for one thing: the end of a pipe whose other end only the router
 * has. However the router ends, the system closes that end. Then everything that carries the mark is told to end, and
 * killed, and the groups (cgroups) and the note that were left behind are removed.
 *
 * It is in a session of its own, so that what a terminal or a shell says to the router's group does not reach it, and
 * does not heed the signals that end a service: with the router alive it ends nothing, and without it, it ends by
 * itself. It has no descriptor but the pipe. What kills both (SIGKILL to all of a service, a machine that stops) leaves
 * a note to the next router: reaper_note.c. */
#include "router/reaper.h"

#include "base/error.h"
#include "base/fault.h"
#include "probe/leaf.h"
#include "router/marked.h"
#include "router/pid_watch.h"
#include "router/reaper_note.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#define NAME "burthen-reaper" /* at most 15 bytes (prctl(2)) */

static void ignore_signals(void) {
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2, SIGALRM, SIGTSTP};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        (void)signal(ignored[i], SIG_IGN);
}

static void wait_for_end(int fd) {
    char nothing[64];
    ssize_t n = 0;
    do {
        n = read(fd, nothing, sizeof nothing);
    } while (n > 0 || (n < 0 && errno == EINTR));
}

_Noreturn static void be_the_reaper(const char *mark, uint64_t grace_ms, pid_t router, int fd) {
    (void)setsid();
    (void)prctl(PR_SET_NAME, NAME);
    bt_copy_signals();
    ignore_signals();
    int kept = bt_copy_descriptors(-1, fd);
    if (kept >= 0) {
        wait_for_end(kept);
        (void)bt_reaper_sweep(mark, grace_ms);
        (void)bt_leaf_sweep("");
        bt_reaper_note_remove(router);
    }
    _exit(0);
}

bt_status bt_reaper_start(const char *mark, uint64_t grace_ms, pid_t *ret_pid, int *ret_fd, bt_error *err) {
    int fds[2] = {-1, -1};
    if (!bt_mark_is_valid(mark)) return bt_fail(err, BT_E_ARG, "reaper", BT_MEASURE_NONE, 0, 0, "a mark that is none");
    errno = EMFILE; /* of a test */
    if (bt_fault_hit() || pipe2(fds, O_CLOEXEC) != 0) return bt_fail_sys(err, errno, "reaper", "no pipe to a reaper");
    pid_t router = getpid();
    errno = EAGAIN; /* of a test */
    pid_t pid = bt_fault_hit() ? -1 : fork();
    if (pid == 0) be_the_reaper(mark, grace_ms, router, fds[0]);
    int sys = errno;
    (void)close(fds[0]);
    if (pid < 0) {
        (void)close(fds[1]);
        return bt_fail_sys(err, sys, "reaper", "the process that ends what a router leaves cannot be started");
    }
    *ret_pid = pid;
    *ret_fd = fds[1];
    return BT_OK;
}
