/* SPDX-License-Identifier: MIT
 *
 * marked.c: to find what a router has started, wherever it has gone, and to end it.
 *
 * Process groups, sessions and parents can all be left; the environment that a process was started with cannot, and its
 * children have it too, unless somebody clears it on purpose. The mark is random (128 bits), so what carries it was
 * started by that router or by what it started. Of other users' processes the system shows none: those are left.
 *
 * A number may be given to another process between the look and the signal. So the process is held by a pidfd, and the
 * mark looked for again behind it: if it is still there, the pidfd is of a process that carries it, and the signal goes
 * to that one or to nobody. Rounds go on until two find nothing: what is found may start more before it ends, and one
 * that becomes another program has no environment for a moment. SIGTERM once to each, SIGKILL to all after the grace.
 * Bound: N_TOLD_MAX that are remembered as told (more are told again), and END_MS behind the grace, for what the system
 * cannot kill. */
#include "router/marked.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/os.h"
#include "base/size.h"
#include "router/child.h"
#include "router/processes.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define N_RANDOM   16u
#define N_TOLD_MAX 1024u     /* processes of one router: servers and what they start are far fewer */
#define ROUND_NS   20000000L /* 20 ms: a server takes longer to end, and a look at all processes takes one */
#define END_MS     5000u     /* after SIGKILL it is the system that does not let go */
/* As much as an environment can have: the arguments and it are three quarters of 8 MiB at most (execve(2)). */
#define ENVIRON_MAX (UINT64_C(6) << 20)

/* ---- the mark ---- */

bt_status bt_mark_make(char ret_mark[BT_MARK_BYTES], bt_error *err) {
    static const char digits[] = "0123456789abcdef";
    unsigned char random[N_RANDOM];
    errno = EIO; /* of a test */
    ssize_t n =
        bt_fault_hit() ? -1 : getrandom(random, sizeof random, 0); /* not cut short: up to 256 bytes never are */
    if (n != (ssize_t)sizeof random) return bt_fail_sys(err, errno, "reaper", "the system gives no random bytes");
    char *at = ret_mark;
    for (size_t i = 0; i < N_RANDOM; i++) {
        *at++ = digits[random[i] >> 4];
        *at++ = digits[random[i] & 15];
    }
    *at = '\0';
    return BT_OK;
}

bool bt_mark_is_valid(const char *mark) {
    return strlen(mark) == BT_MARK_BYTES - 1 && strspn(mark, "0123456789abcdef") == BT_MARK_BYTES - 1;
}

/* ---- who carries it ---- */

/* Is wanted, with a NUL on both sides, in the file? The NUL before the first variable is thought, so is the last one.
 */
static bool file_has(int fd, const char *wanted, size_t n_wanted) {
    char window[4096 + 256]; /* what may still become a match, and a page */
    size_t n = 1;
    window[0] = '\0';
    for (uint64_t at = 0; at < ENVIRON_MAX;) {
        int64_t n_read = bt_os_pread(fd, window + n, 4096, at);
        if (n_read < 0) return false;
        size_t n_all = n + (size_t)n_read;
        if (n_read == 0) window[n_all++] = '\0';
        for (size_t i = 0; i + n_wanted + 2 <= n_all; i++) {
            if (window[i] == '\0' && window[i + n_wanted + 1] == '\0' && memcmp(window + i + 1, wanted, n_wanted) == 0)
                return true;
        }
        if (n_read == 0) return false;
        n = n_all < n_wanted + 1 ? n_all : n_wanted + 1;
        memmove(window, window + n_all - n, n);
        at += (uint64_t)n_read;
    }
    return false;
}

bool bt_marked_carries(pid_t pid, const char *mark) {
    char path[64];
    char wanted[128];
    (void)snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    int n = snprintf(wanted, sizeof wanted, "%s=%s", BT_CHILD_MARK, mark);
    int fd = bt_os_open(path, false);
    if (fd < 0) return false;
    bool has = n > 0 && (size_t)n < sizeof wanted && file_has(fd, wanted, (size_t)n);
    (void)bt_os_close(fd);
    return has;
}

/* ---- their end ---- */

_Static_assert(2 * N_RANDOM + 1 == BT_MARK_BYTES, "a mark is so many bytes in hexadecimal");

typedef struct sweep {
    const char *mark;
    uint32_t n_found; /* in all */
    uint32_t n_told;
    pid_t told[N_TOLD_MAX];
} sweep;

static bool was_told(const sweep *s, pid_t pid) {
    bool found = false;
    for (uint32_t i = 0; i < s->n_told && !found; i++)
        found = s->told[i] == pid;
    return found;
}

static void send(pid_t pid, int pidfd, int signal) {
#ifdef SYS_pidfd_send_signal
    if (pidfd >= 0 && syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0) == 0) return;
    if (pidfd >= 0 && errno != ENOSYS) return;
#endif
    (void)pidfd;
    (void)kill(pid, signal); /* no pidfds here: right after the second look */
}

/* true: it carried the mark, and has been signalled if it was not told the same before. */
static bool end_one(sweep *s, pid_t pid, bool must) {
    if (!bt_marked_carries(pid, s->mark)) return false;
    int pidfd = -1;
#ifdef SYS_pidfd_open
    pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0 && errno == ESRCH) return false;
#endif
    bool carries = bt_marked_carries(pid, s->mark);
    bool told = was_told(s, pid);
    if (carries && (must || !told)) send(pid, pidfd, must ? SIGKILL : SIGTERM);
    if (carries && !told) {
        s->n_found++;
        if (s->n_told < N_TOLD_MAX) s->told[s->n_told++] = pid;
    }
    if (pidfd >= 0) (void)close(pidfd);
    return carries;
}

typedef struct look {
    sweep *sweep;
    bool must;
    uint32_t n; /* that carried the mark */
} look;

static bool end_if_marked(void *user, pid_t pid) {
    look *r = user;
    if (pid != getpid()) r->n += end_one(r->sweep, pid, r->must);
    return true;
}

/* How many there were; at least one where the system does not say. */
static uint32_t end_round(sweep *s, bool must) {
    look r = {.sweep = s, .must = must};
    return bt_processes_each(end_if_marked, &r) ? r.n : 1;
}

uint32_t bt_reaper_sweep(const char *mark, uint64_t grace_ms) {
    sweep s = {.mark = mark};
    if (!bt_mark_is_valid(mark)) return 0;
    uint64_t start_ns = bt_os_now_ns();
    uint64_t last_ms = bt_sat_add_u64(grace_ms, END_MS);
    for (uint32_t n_empty = 0;;) {
        uint64_t now_ms = (bt_os_now_ns() - start_ns) / 1000000;
        n_empty = end_round(&s, now_ms >= grace_ms) == 0 ? n_empty + 1 : 0;
        if (n_empty == 2 || now_ms >= last_ms) break;
        struct timespec rest = {.tv_nsec = ROUND_NS};
        (void)nanosleep(&rest, NULL);
    }
    return s.n_found;
}
