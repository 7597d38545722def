/* SPDX-License-Identifier: MIT
 *
 * pid_copy.c: what a copy of the router does first, before it works or becomes another program.
 *
 * It has the router's descriptors (clients, the listening socket, logs of others), its signal handlers and its mask,
 * and would go on without it. All of that goes: what it may have is given by number. SIGKILL with the router is asked
 * for before it is looked whether the router is still there: in the other order it could die between the two. */
#include "router/pid_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define N_STANDARD 3 /* descriptors */

void bt_copy_signals(void) {
    struct sigaction fresh = {.sa_handler = SIG_DFL};
    for (int i = 1; i <= SIGRTMAX; i++)
        (void)sigaction(i, &fresh, NULL); /* those of the C library and SIGKILL are refused, which is right */
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

bool bt_copy_begin(pid_t router) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != router) return false;
    bt_copy_signals();
    return true;
}

/* Linux 5.9; before, one by one as far as there may be any. */
static void close_from(int first) {
#ifdef SYS_close_range
    if (syscall(SYS_close_range, (unsigned)first, ~0U, 0U) == 0) return;
#endif
    long n_max = sysconf(_SC_OPEN_MAX);
    for (int fd = first; fd < n_max; fd++)
        (void)close(fd);
}

/* Out of the way of those that are set below. */
static int lift(int fd) {
    return fd < 0 ? -1 : fcntl(fd, F_DUPFD, N_STANDARD + 1);
}

static void put_at(int from, int fd) {
    if (from < 0 || dup2(from, fd) < 0) (void)close(fd);
}

int bt_copy_descriptors(int output, int keep) {
    int nothing = lift(open("/dev/null", O_RDWR));
    output = output < 0 ? nothing : lift(output);
    keep = lift(keep);
    put_at(nothing, STDIN_FILENO);
    put_at(output, STDOUT_FILENO);
    put_at(output, STDERR_FILENO);
    int first = N_STANDARD;
    if (keep >= 0) keep = dup2(keep, first++);
    close_from(first);
    return keep;
}
