/* SPDX-License-Identifier: MIT
 *
 * child_group.c: the processes of a group.
 *
 * The system lists no members of a group, so all processes are asked which group they are in: one cheap call each (a
 * tenth of a microsecond), and /proc is read only of those that are. Processes that a server starts stay in its group
 * unless they leave it; one that makes a session of its own is not counted here, and is found by its mark when the
 * router goes (reaper.c).
 *
 * Sums of resident memory count pages that two processes share twice; a server and its helpers share their programs'
 * code and little else. */
#include "router/child_group.h"

#include "base/os.h"
#include "base/size.h"
#include "probe/proc.h"
#include "probe/process.h"
#include "router/processes.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES 4096u /* status is some 1.5 KiB */
#define KIB        UINT64_C(1024)

/* Bytes, or minus an errno value. */
static int64_t read_status(pid_t pid, char text[FILE_BYTES]) {
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    int fd = bt_os_open(path, false);
    if (fd < 0) return fd;
    int64_t n = bt_os_pread(fd, text, FILE_BYTES - 1, 0);
    (void)bt_os_close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n;
}

/* What cannot be read for another reason than that it is not there (no descriptors are left) may well live. */
static bool is_dead(pid_t pid) {
    bt_process_stat stat;
    int rc = bt_process_stat_read((uint64_t)pid, &stat);
    return rc < 0 ? bt_proc_is_absent(rc) || rc == -ESRCH : bt_process_is_dead(&stat);
}

typedef struct living {
    pid_t group;
    bool found;
} living;

static bool find_living(void *user, pid_t pid) {
    living *l = user;
    if (getpgid(pid) == l->group) l->found = !is_dead(pid);
    return !l->found;
}

bool bt_group_is_gone(pid_t group) {
    living l = {.group = group};
    if (kill(-group, 0) != 0 && errno == ESRCH) return true;
    return bt_processes_each(find_living, &l) && !l.found;
}

/* A line of status: "VmRSS:     123 kB". */
static void add_line(const char *text, const char *name, bt_known *sum) {
    bt_span rest;
    bt_span word;
    uint64_t kib = 0;
    if (!bt_span_find_line(text, name, &rest) || !bt_span_word(&rest, &word) || !bt_span_number(word, &kib)) return;
    sum->value = bt_sat_add_u64(sum->value, bt_sat_mul_u64(kib, KIB));
    sum->known = true;
}

static void add_memory(pid_t pid, bt_child_memory *sum) {
    char text[FILE_BYTES];
    if (read_status(pid, text) < 0) return;
    add_line(text, "VmRSS:", &sum->rss_bytes);
    add_line(text, "VmHWM:", &sum->peak_rss_bytes);
    add_line(text, "RssAnon:", &sum->anon_bytes);
    sum->n_processes += strstr(text, "\nVmRSS:") != NULL; /* the dead have none */
}

typedef struct sums {
    const pid_t *groups;
    bt_child_memory *const *of;
    uint32_t n;
} sums;

static bool add_to_group(void *user, pid_t pid) {
    const sums *s = user;
    pid_t group = getpgid(pid);
    for (uint32_t i = 0; i < s->n; i++)
        if (s->groups[i] == group) add_memory(pid, s->of[i]);
    return true;
}

void bt_groups_memory_read(const pid_t *groups, bt_child_memory *const *ret, uint32_t n) {
    sums s = {.groups = groups, .of = ret, .n = n};
    for (uint32_t i = 0; i < n; i++)
        *ret[i] = (bt_child_memory){0};
    if (n > 0) (void)bt_processes_each(add_to_group, &s); /* else nothing is known */
}
