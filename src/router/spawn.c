/* SPDX-License-Identifier: MIT
 *
 * spawn.c: fork, and what stands between it and exec.
 *
 * posix_spawn cannot ask for SIGKILL with the router, which is the first of the two ways in which no child outlives it
 * (the other is the mark in the environment: reaper.c). A copy of the router is cheap: it has a few MiB. The list of
 * the environment is made before, so that nothing is allocated in the copy; both sides set the process group, since
 * either may come first. */
#include "router/spawn.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/heap.h"
#include "base/size.h"
#include "router/child.h"
#include "router/pid_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXIT_NO_START  126 /* as a shell has it: it is there and cannot be started */
#define EXIT_NOT_FOUND 127
/* Thousandths of the machine's memory (proc(5), oom_score_adj): as if it held half of it more. */
#define OOM_POINTS     500
#define OOM_POINTS_MAX 1000

/* ---- words ---- */

static size_t count(const char *const *words) {
    size_t n = 0;
    while (words && words[n])
        n++;
    return n;
}

/* A word with its names replaced; ret NULL: only its length, with the NUL. */
static size_t replace(const char *word, const char *name, const char *value, char *ret) {
    size_t n = 0;
    while (*word) {
        bool found = name && strncmp(word, name, strlen(name)) == 0;
        const char *from = found ? value : word;
        size_t n_from = found ? strlen(value) : 1;
        if (ret) memcpy(ret + n, from, n_from);
        n += n_from;
        word += found ? strlen(name) : 1;
    }
    if (ret) ret[n] = '\0';
    return n + 1;
}

char **bt_words_copy(const char *const *words, const char *name, const char *value, bool *ret_failed) {
    if (!words) return NULL;
    size_t n = count(words);
    uint64_t n_bytes = bt_sat_mul_u64(n + 1, sizeof(char *));
    uint64_t at = n_bytes;
    for (size_t i = 0; i < n; i++)
        n_bytes = bt_sat_add_u64(n_bytes, replace(words[i], name, value, NULL));
    char **copy = bt_heap_alloc(n_bytes);
    *ret_failed = !copy;
    if (!copy) return NULL;
    for (size_t i = 0; i < n; i++) {
        copy[i] = (char *)copy + at;
        at += replace(words[i], name, value, copy[i]);
    }
    return copy;
}

/* ---- the environment ---- */

static bool same_name(const char *a, const char *b) {
    size_t n = strcspn(a, "=");
    return n == strcspn(b, "=") && strncmp(a, b, n) == 0;
}

static bool is_replaced(const char *word, const bt_spawn *what) {
    bool replaced = same_name(word, BT_CHILD_MARK);
    for (size_t i = 0; what->env && what->env[i] && !replaced; i++)
        replaced = same_name(word, what->env[i]);
    return replaced;
}

/* The router's own, what is set beside it, the mark. The words are not copied; mark: the mark's. */
static const char **make_env(const bt_spawn *what, const char *mark) {
    size_t n_own = count((const char *const *)environ);
    const char **env = bt_heap_array(n_own + count(what->env) + 2, sizeof *env);
    size_t n = 0;
    if (!env) return NULL;
    for (size_t i = 0; i < n_own; i++)
        if (!is_replaced(environ[i], what)) env[n++] = environ[i];
    for (size_t i = 0; what->env && what->env[i]; i++)
        if (!same_name(what->env[i], BT_CHILD_MARK)) env[n++] = what->env[i];
    env[n] = mark;
    return env;
}

/* ---- the copy ---- */

/* Where the machine runs out of memory, a server is what the kernel ends, and not the router or somebody's editor, also
 * when most of what the server takes is not charged to it (a graphics processor's, of an APU: user case 39). What
 * cannot be written stays as it is. */
static void be_ended_first(void) {
    char text[16] = "";
    int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    if (read(fd, text, sizeof text - 1) > 0) {
        long points = strtol(text, NULL, 10) + OOM_POINTS;
        (void)dprintf(fd, "%ld", points < OOM_POINTS_MAX ? points : OOM_POINTS_MAX);
    }
    (void)close(fd);
}

_Noreturn static void be_the_program(const bt_spawn *what, const char **env, pid_t router, int output) {
    (void)setpgid(0, 0);
    if (!bt_copy_begin(router)) _exit(EXIT_NO_START);
    (void)bt_copy_descriptors(output, -1);
    be_ended_first();
    (void)execvpe(what->argv[0], what->argv, (char *const *)(uintptr_t)env);
    int sys = errno;
    (void)dprintf(STDERR_FILENO, "burthen: cannot start %s: %s\n", what->argv[0], strerror(sys));
    _exit(sys == ENOENT || sys == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NO_START);
}

static bt_status start(const bt_spawn *what, const char **env, pid_t *ret_pid, int *ret_output, bt_error *err) {
    int fds[2] = {-1, -1};
    errno = EMFILE; /* of a test */
    if (bt_fault_hit() || pipe2(fds, O_CLOEXEC) != 0) return bt_fail_sys(err, errno, "child", "no pipe to a child");
    pid_t router = getpid();
    errno = EAGAIN; /* of a test */
    pid_t pid = bt_fault_hit() ? -1 : fork();
    if (pid == 0) be_the_program(what, env, router, fds[1]);
    int sys = errno;
    (void)close(fds[1]);
    if (pid < 0) {
        (void)close(fds[0]);
        return bt_fail_sys(err, sys, "child", "%s cannot be started", what->argv[0]);
    }
    (void)setpgid(pid, pid); /* EACCES: it has become the program already, and is */
    (void)fcntl(fds[0], F_SETFL, O_NONBLOCK);
    *ret_pid = pid;
    *ret_output = fds[0];
    return BT_OK;
}

bt_status bt_spawn_start(const bt_spawn *what, pid_t *ret_pid, int *ret_output, bt_error *err) {
    char mark[128];
    int n = snprintf(mark, sizeof mark, "%s=%s", BT_CHILD_MARK, what->mark);
    if (n < 0 || (size_t)n >= sizeof mark)
        return bt_fail(err, BT_E_ARG, "child", BT_MEASURE_NONE, 0, 0, "a mark that is too long");
    const char **env = make_env(what, mark);
    if (!env) return bt_fail(err, BT_E_NOMEM, "child", BT_MEASURE_NONE, 0, 0, "no memory for an environment");
    bt_status status = start(what, env, ret_pid, ret_output, err);
    bt_heap_free((void *)(uintptr_t)env);
    return status;
}
