/* SPDX-License-Identifier: MIT
 * leaf.c: a memory cgroup for this process alone.
 *
 * A budget that a program keeps by itself covers what it counts; a group with a limit covers all that is charged to
 * it, kernel memory and the C library's heap too. `exec` enters one just before it becomes the program:
 *
 *   /sys/fs/cgroup/memory/a          the group of this process, whose limits go on to hold
 *   /sys/fs/cgroup/memory/a/burthen-PID    made, limited, entered, and read back, in this order
 *
 * v1: memory.limit_in_bytes, then memory.memsw.limit_in_bytes of the same, so that swap is no way out. v2: memory.max
 * and memory.swap.max 0; only where the group above hands the memory controller down, which on v2 a group with
 * processes of its own cannot, the root of the hierarchy excepted (cgroups(7), "no internal processes"). That is never
 * changed from here: cgroup.subtree_control and other processes are somebody else's. Where the v1 controller is mounted
 * beside a v2 tree the limit is made in v1, as cgroup_find.c has it.
 *
 * A process that is replaced by a program cannot remove its leaf when it ends: the empty group stays behind under its
 * number until the next one sweeps. The kernel refuses to remove a group with processes, so that sweeping can take
 * nothing from anybody but the group of one that is about to enter it; such a one is still in the group above.
 *
 * Bounds: N_NAME_MAX names and N_LEAF_MAX leaves a sweep. Left out: pages that are charged elsewhere already (they stay
 * there; a program that is started begins with none), and a leaf beside the own group, which would leave the limits of
 * that group. */
#include "probe/leaf.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/os.h"
#include "probe/cgroup.h"
#include "probe/process.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAME "burthen-" /* then the number of the process */
/* A group has some 60 files and its children; a host with more than 256 leaves is swept by several runs. */
#define N_NAME_MAX 4096u
#define N_LEAF_MAX 256u

/* ---- files of a group ------------------------------------------------------------------------------------------- */

/* false: too long. */
static bool put_path(char path[BT_PROC_PATH_MAX], const char *root, const char *folder, const char *file) {
    int n = snprintf(path, BT_PROC_PATH_MAX, "%s%s/%s", root, folder, file);
    return n > 0 && (uint32_t)n < BT_PROC_PATH_MAX;
}

static int read_file(bt_cgroup_walk *walk, const char *folder, const char *file) {
    if (!put_path(walk->path, "", folder, file)) return -ENAMETOOLONG;
    return bt_proc_read(walk->root, walk->path, 0, &walk->text);
}

static int write_file(const char *root, const char *folder, const char *file, uint64_t value) {
    char path[BT_PROC_PATH_MAX];
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64 "\n", value);
    return put_path(path, root, folder, file) ? bt_os_put(path, text) : -ENAMETOOLONG;
}

/* ---- making ----------------------------------------------------------------------------------------------------- */

/* v1 before Linux 5.11: a group that is not charged upwards. Its own limit would not hold a child. */
static bool lets_children_out(bt_cgroup_walk *walk) {
    bt_span word;
    bt_known limit = {0};
    if (walk->version != 1 || bt_cgroup_read(walk, "memory.use_hierarchy") < 0) return false;
    if (!bt_span_only_word(walk->text.data, &word) || !bt_span_is(word, "0")) return false;
    return bt_cgroup_read(walk, "memory.limit_in_bytes") < 0 || !bt_cgroup_limit_parse(walk->text.data, &limit) ||
           limit.known;
}

static bt_status find_place(bt_cgroup_walk *walk, bt_error *err) {
    BT_TRY(bt_cgroup_find(walk->root, "memory", walk, err));
    if (walk->version == 0)
        return bt_fail(err, BT_E_UNSUPPORTED, "leaf_place", BT_MEASURE_NONE, 0, 0,
                       "this process is in no memory cgroup");
    if (!walk->mount.holds_group)
        return bt_fail(err, BT_E_UNSUPPORTED, "leaf_place", BT_MEASURE_NONE, 0, 0,
                       "the cgroup of this process is not seen below %.200s", walk->mount.point);
    if (lets_children_out(walk))
        return bt_fail(err, BT_E_UNSUPPORTED, "leaf_place", BT_MEASURE_NONE, 0, 0,
                       "the limit of cgroup %.200s%.120s would not hold a group in it (memory.use_hierarchy is 0)",
                       walk->mount.point, walk->below);
    return BT_OK;
}

static bt_status make_group(bt_cgroup_walk *walk, bt_leaf *leaf, bt_error *err) {
    int n =
        snprintf(leaf->folder, sizeof leaf->folder, "%s%s/" NAME "%ld", walk->mount.point, walk->below, (long)getpid());
    bool fits = n > 0 && (size_t)n < sizeof leaf->folder;
    char path[BT_PROC_PATH_MAX];
    n = snprintf(path, sizeof path, "%s%s", walk->root, leaf->folder);
    fits = fits && n > 0 && (size_t)n < sizeof path;
    int rc = fits ? bt_os_make_folder(path) : -ENAMETOOLONG;
    /* Of an earlier process of our number, which is gone: with somebody in it, it cannot be removed. */
    if (rc == -EEXIST && bt_os_remove_folder(path) == 0) rc = bt_os_make_folder(path);
    return rc == 0 ? BT_OK : bt_fail_sys(err, -rc, "leaf", "cannot make the cgroup %.240s", leaf->folder);
}

/* Write a limit and read it back. *ret_kept: false where the system has no such file. */
static bt_status set_limit(bt_cgroup_walk *walk, const bt_leaf *leaf, const char *file, uint64_t bytes, bool *ret_kept,
                           bt_error *err) {
    bt_known kept = {0};
    int rc = read_file(walk, leaf->folder, file);
    *ret_kept = !bt_proc_is_absent(rc);
    if (!*ret_kept) return BT_OK;
    if (rc == 0) rc = write_file(walk->root, leaf->folder, file, bytes);
    if (rc < 0) return bt_fail_sys(err, -rc, "leaf", "cannot set %s of cgroup %.240s", file, leaf->folder);
    rc = read_file(walk, leaf->folder, file);
    if (rc < 0) return bt_fail_sys(err, -rc, "leaf", "cannot read %s of cgroup %.240s", file, leaf->folder);
    if (bt_cgroup_limit_parse(walk->text.data, &kept) && kept.known && kept.value == bytes) return BT_OK;
    return bt_fail(err, BT_E_IO, "leaf_limit", BT_MEASURE_BYTES, bytes, kept.known ? kept.value : 0,
                   "%s of cgroup %.240s does not keep what is written there", file, leaf->folder);
}

static bt_status limit_group(bt_cgroup_walk *walk, bt_leaf *leaf, bt_error *err) {
    bool is_v1 = walk->version == 1;
    bool kept = false;
    BT_TRY(set_limit(walk, leaf, is_v1 ? "memory.limit_in_bytes" : "memory.max", leaf->limit_bytes, &kept, err));
    if (!kept)
        return bt_fail(err, BT_E_UNSUPPORTED, "leaf_place", BT_MEASURE_NONE, 0, 0,
                       "cgroup %.200s%.120s does not hand the memory controller down to groups in it%s",
                       walk->mount.point, walk->below,
                       is_v1 ? "" : " (a group with processes of its own cannot: \"no internal processes\")");
    if (is_v1) return set_limit(walk, leaf, "memory.memsw.limit_in_bytes", leaf->limit_bytes, &leaf->swap_held, err);
    return set_limit(walk, leaf, "memory.swap.max", 0, &leaf->swap_held, err);
}

static bool lists_us(const char *text) {
    bt_span rest = bt_span_of(text);
    bt_span line;
    uint64_t pid = 0;
    while (bt_span_line(&rest, &line)) {
        if (bt_span_number(line, &pid) && pid == (uint64_t)getpid()) return true;
    }
    return false;
}

static bt_status enter_group(bt_cgroup_walk *walk, const bt_leaf *leaf, bt_error *err) {
    int rc = write_file(walk->root, leaf->folder, "cgroup.procs", (uint64_t)getpid());
    if (rc < 0) return bt_fail_sys(err, -rc, "leaf", "cannot enter the cgroup %.240s", leaf->folder);
    rc = read_file(walk, leaf->folder, "cgroup.procs");
    if (rc < 0) return bt_fail_sys(err, -rc, "leaf", "cannot read who is in the cgroup %.240s", leaf->folder);
    if (lists_us(walk->text.data)) return BT_OK;
    return bt_fail(err, BT_E_IO, "leaf", BT_MEASURE_NONE, 0, 0, "this process is not in the cgroup %.240s after all",
                   leaf->folder);
}

static bt_status make(bt_cgroup_walk *walk, uint64_t limit_bytes, bt_leaf *leaf, bt_error *err) {
    uint64_t page_bytes = bt_os_page_bytes();
    /* Both versions count pages (mm/page_counter.c): what is read back is rounded down. */
    leaf->limit_bytes = limit_bytes / page_bytes * page_bytes;
    if (leaf->limit_bytes == 0)
        return bt_fail(err, BT_E_ARG, "leaf_limit", BT_MEASURE_BYTES, page_bytes, limit_bytes,
                       "nothing can run in a cgroup of less than a page");
    BT_TRY(find_place(walk, err));
    leaf->version = walk->version;
    BT_TRY(make_group(walk, leaf, err));
    bt_status status = limit_group(walk, leaf, err);
    if (status == BT_OK) status = enter_group(walk, leaf, err);
    if (status != BT_OK) bt_leaf_leave(walk->root, leaf);
    return status;
}

bt_status bt_leaf_make(const char *root, uint64_t limit_bytes, bt_leaf *ret_leaf, bt_error *err) {
    bt_leaf leaf = {0};
    bt_cgroup_walk *walk = bt_heap_alloc(sizeof *walk);
    if (!walk) return bt_fail_sys(err, ENOMEM, "leaf", "cannot make a cgroup for this process");
    walk->root = root;
    bt_status status = make(walk, limit_bytes, &leaf, err);
    bt_heap_free(walk);
    if (status == BT_OK) *ret_leaf = leaf;
    return status;
}

void bt_leaf_leave(const char *root, const bt_leaf *leaf) {
    char path[BT_PROC_PATH_MAX];
    const char *name = strrchr(leaf->folder, '/');
    if (!name || snprintf(path, sizeof path, "%.*s", (int)(name - leaf->folder), leaf->folder) < 0) return;
    /* Whether we are in it already or not: to be moved to where one is, is nothing. */
    int moved = write_file(root, path, "cgroup.procs", (uint64_t)getpid());
    int n = snprintf(path, sizeof path, "%s%s", root, leaf->folder);
    int removed = n > 0 && (size_t)n < sizeof path ? bt_os_remove_folder(path) : -ENAMETOOLONG;
    if (removed < 0)
        bt_log(BT_LOG_INFO, "the cgroup %.240s stays: %s", leaf->folder, strerror(moved < 0 ? -moved : -removed));
}

/* ---- sweeping --------------------------------------------------------------------------------------------------- */

/* burthen-PID */
static bool parse_name(const char *name, uint32_t *ret_pid) {
    bt_span span = bt_span_of(name);
    uint64_t pid = 0;
    size_t n = strlen(NAME);
    if (!bt_span_starts(span, NAME)) return false;
    span = (bt_span){span.at + n, span.n_bytes - n};
    if (!bt_span_number(span, &pid) || span.at[0] == '0' || pid > INT32_MAX) return false; /* pid_t */
    *ret_pid = (uint32_t)pid;
    return true;
}

/* The group of a process is path, or the one below it that bears name. */
static bool is_at(const char *group, const char *path, const char *name) {
    size_t n = strlen(path);
    if (strncmp(group, path, n) != 0) return false;
    return group[n] == '\0' || (group[n] == '/' && strcmp(group + n + 1, name) == 0);
}

/* In v1 one that has ended and was not taken by its parent yet is in no group any more. Its parent may be about to read
 * what the kernel counted there (router/child_oom.c). */
static bool is_taken_later(bt_cgroup_walk *walk, uint32_t pid) {
    char file[32];
    (void)snprintf(file, sizeof file, "/proc/%" PRIu32 "/stat", pid);
    if (bt_proc_read(walk->root, file, 0, &walk->text) != 0) return false;
    bt_process_stat stat;
    return bt_process_stat_parse(walk->text.data, &stat) && stat.state == 'Z';
}

/* No process of that number lives, or it is another's: neither in the leaf nor, about to enter it, in the group above.
 * path: that group as /proc says it, without a last slash. What cannot be known stays. */
static bool is_left_behind(bt_cgroup_walk *walk, const char *path, const char *name, uint32_t pid) {
    char group[BT_PROC_PATH_MAX];
    char file[32];
    (void)snprintf(file, sizeof file, "/proc/%" PRIu32 "/cgroup", pid);
    int rc = bt_proc_read(walk->root, file, 0, &walk->text);
    if (bt_proc_is_absent(rc) || rc == -ESRCH) return true;
    if (rc < 0 || !bt_cgroup_path_parse(walk->text.data, walk->version == 1 ? "memory" : NULL, group)) return false;
    if (strcmp(group, "/") == 0) group[0] = '\0';
    return !is_at(group, path, name) && !is_taken_later(walk, pid);
}

/* A leaf in which others were made (a router that was itself held) goes when those are gone. walk->path: the leaf's
 * folder; group: the leaf as /proc says it. One level: what is made in a leaf of a leaf is swept from inside. */
static void sweep_inner(bt_cgroup_walk *walk, const char *group) {
    size_t n_folder = strlen(walk->path);
    bt_os_folder *names = bt_os_folder_open(walk->path);
    if (!names) return;
    for (uint32_t i = 0; i < N_NAME_MAX; i++) {
        uint32_t pid = 0;
        const char *name = bt_os_folder_next(names);
        if (!name) break;
        if (!parse_name(name, &pid) || !is_left_behind(walk, group, name, pid)) continue;
        int n = snprintf(walk->path + n_folder, sizeof walk->path - n_folder, "/%s", name);
        if (n > 0 && (size_t)n < sizeof walk->path - n_folder) (void)bt_os_remove_folder(walk->path);
        walk->path[n_folder] = '\0';
    }
    bt_os_folder_close(names);
}

/* The leaves in the group that the walk stands at. */
static uint32_t sweep_group(bt_cgroup_walk *walk) {
    char folder[BT_PROC_PATH_MAX];
    char path[BT_PROC_PATH_MAX];
    char inner[BT_PROC_PATH_MAX];
    const char *above = strcmp(walk->mount.root, "/") == 0 ? "" : walk->mount.root;
    if (!put_path(folder, walk->root, walk->mount.point, walk->below[0] ? walk->below + 1 : "")) return 0;
    int n = snprintf(path, sizeof path, "%s%s", above, walk->below);
    bt_os_folder *names = n >= 0 && (size_t)n < sizeof path ? bt_os_folder_open(folder) : NULL;
    if (!names) return 0;
    uint32_t n_leaves = 0;
    uint32_t n_removed = 0;
    for (uint32_t i = 0; i < N_NAME_MAX && n_leaves < N_LEAF_MAX; i++) {
        uint32_t pid = 0;
        const char *name = bt_os_folder_next(names);
        if (!name) break;
        if (!parse_name(name, &pid)) continue;
        n_leaves++;
        if (!is_left_behind(walk, path, name, pid) || !put_path(walk->path, folder, "", name)) continue;
        if (put_path(inner, path, "", name)) sweep_inner(walk, inner);
        if (bt_os_remove_folder(walk->path) == 0) n_removed++;
    }
    bt_os_folder_close(names);
    return n_removed;
}

uint32_t bt_leaf_sweep(const char *root) {
    uint32_t n_removed = 0;
    uint32_t pid = 0;
    bt_cgroup_walk *walk = bt_heap_alloc(sizeof *walk);
    if (!walk) return 0;
    if (bt_cgroup_find(root, "memory", walk, NULL) == BT_OK && walk->version > 0 && walk->mount.holds_group) {
        n_removed = sweep_group(walk);
        const char *name = strrchr(walk->below, '/');
        if (name && parse_name(name + 1, &pid) && bt_cgroup_climb(walk)) n_removed += sweep_group(walk);
    }
    bt_heap_free(walk);
    return n_removed;
}
