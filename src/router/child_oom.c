/* SPDX-License-Identifier: MIT
 *
 * child_oom.c: the kernel's count of what it has killed for memory.
 *
 * A child that ends by SIGKILL may have been killed by anybody. The kernel counts those that it killed for want of
 * memory, be it of a group's limit or of the machine, in the group of whom it killed: oom_kill of memory.oom_control
 * (v1) and of memory.events (v2). The count is read when the child starts and when it has ended; higher is taken to
 * mean this child, though in a group with others it may have been one of those.
 *
 * The group must be found while the process lives: of one that has ended v1 says "/", which is therefore believed only
 * at the start. The descriptor of its file is kept, and goes on to be read as long as the group is there. A leaf of
 * `burthen exec` (burthen-PID) was made for the child alone, and its count began with 0, whenever it is first seen. It
 * may be first seen at the end: a child that entered it and was killed between two looks left it below the group where
 * it was last. Where no group counts (the root of v2, no groups at all) the machine does: /proc/vmstat. Bound: one
 * descriptor, four paths. */
#include "router/child_oom.h"

#include "base/heap.h"
#include "base/os.h"
#include "base/text.h"
#include "probe/cgroup.h"

#include <stdio.h>
#include <string.h>

/* memory.events has six lines; vmstat some 5 KiB, and may grow: what is behind is not read, and then not known. */
#define COUNT_TEXT_BYTES 8192u
#define OF_MACHINE       "/proc/vmstat"

struct bt_oom_watch {
    pid_t pid;
    uint32_t version;
    bool holds_group;
    char *root, *point; /* of the mount */
    char *folder;       /* of the group it was last seen in */
    char *file;         /* that is open */
    int fd;             /* -1: none */
    uint64_t before;
};

bt_known bt_oom_count_parse(const char *text) {
    bt_known count = {0};
    bt_span rest;
    if (bt_span_find_line(text, "oom_kill ", &rest)) count.known = bt_span_number(rest, &count.value);
    return count;
}

static bt_known read_count(int fd) {
    char text[COUNT_TEXT_BYTES];
    int64_t n = fd < 0 ? -1 : bt_os_pread(fd, text, sizeof text - 1, 0);
    if (n < 0) return (bt_known){0};
    text[n] = '\0';
    return bt_oom_count_parse(text);
}

/* The leaf that `burthen exec` makes for the process itself (probe/leaf.c). */
static void put_leaf(char name[32], const char *before, pid_t pid) {
    (void)snprintf(name, 32, "%sburthen-%d", before, (int)pid);
}

static bool is_own_leaf(const char *group, pid_t pid) {
    char name[32];
    put_leaf(name, "", pid);
    return strcmp(bt_path_file(group), name) == 0;
}

/* From now on this file's count; one that has none changes nothing. */
static void take(bt_oom_watch *watch, const char *file, bool is_fresh) {
    int fd = bt_os_open(file, false);
    char *name = fd < 0 ? NULL : bt_heap_strdup(file);
    bt_known count = read_count(fd);
    if (!name || !count.known) {
        if (fd >= 0) (void)bt_os_close(fd);
        bt_heap_free(name);
        return;
    }
    if (watch->fd >= 0) (void)bt_os_close(watch->fd);
    bt_heap_free(watch->file);
    watch->fd = fd;
    watch->file = name;
    watch->before = is_fresh ? 0 : count.value;
}

/* Of the group in folder and, in it, below. */
static void take_group(bt_oom_watch *watch, const char *folder, const char *below, bool is_fresh) {
    char file[BT_PROC_PATH_MAX];
    int n = snprintf(file, sizeof file, "%s%s/%s", folder, below,
                     watch->version == 1 ? "memory.oom_control" : "memory.events");
    if (n < 0 || (size_t)n >= sizeof file || (watch->file && strcmp(file, watch->file) == 0)) return;
    take(watch, file, is_fresh);
}

static void enter(bt_oom_watch *watch, const char *group) {
    char folder[BT_PROC_PATH_MAX];
    const char *below = "";
    if (watch->holds_group) {
        size_t n = strcmp(watch->root, "/") == 0 ? 0 : strlen(watch->root);
        bool is_below = strncmp(group, watch->root, n) == 0 && (group[n] == '/' || group[n] == '\0');
        if (!is_below) return; /* it has left what we can see */
        below = strcmp(group + n, "/") == 0 ? "" : group + n;
    }
    int n = snprintf(folder, sizeof folder, "%s%s", watch->point, below);
    char *kept = n < 0 || (size_t)n >= sizeof folder ? NULL : bt_heap_strdup(folder);
    if (!kept) return;
    bt_heap_free(watch->folder);
    watch->folder = kept;
    take_group(watch, kept, "", is_own_leaf(group, watch->pid));
}

/* Of the hierarchy, seen from a namespace of groups or not: where v1 has those that have ended, too. */
static bool is_root(const char *group) {
    return strcmp(group, "/") == 0 || strncmp(group, "/..", 3) == 0;
}

static void look(bt_oom_watch *watch, bt_cgroup_walk *room) {
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/cgroup", (int)watch->pid);
    if (bt_proc_read("", path, 0, &room->text) != 0) return;
    if (!bt_cgroup_path_parse(room->text.data, watch->version == 1 ? "memory" : NULL, room->path)) return;
    if (!(watch->folder && is_root(room->path))) enter(watch, room->path);
}

void bt_oom_watch_look(bt_oom_watch *watch) {
    bt_cgroup_walk *room = watch && watch->version != 0 ? bt_heap_alloc(sizeof *room) : NULL;
    if (room) look(watch, room);
    bt_heap_free(room);
}

/* false: memory is refused. */
static bool find_group(bt_oom_watch *watch, bt_cgroup_walk *walk) {
    if (bt_cgroup_find("", "memory", walk, NULL) != BT_OK || walk->version == 0) return true;
    watch->holds_group = walk->mount.holds_group;
    watch->root = bt_heap_strdup(walk->mount.root);
    watch->point = bt_heap_strdup(walk->mount.point);
    if (!watch->root || !watch->point) return false;
    watch->version = walk->version;
    look(watch, walk);
    return true;
}

bt_oom_watch *bt_oom_watch_open(pid_t pid) {
    bt_oom_watch *watch = bt_heap_alloc(sizeof *watch);
    bt_cgroup_walk *walk = bt_heap_alloc(sizeof *walk);
    if (watch) *watch = (bt_oom_watch){.pid = pid, .fd = -1};
    bool found = watch && walk && find_group(watch, walk);
    bt_heap_free(walk);
    if (found && watch->fd < 0) take(watch, OF_MACHINE, false);
    if (found && watch->fd >= 0) return watch;
    bt_oom_watch_close(watch);
    return NULL;
}

bool bt_oom_watch_rose(bt_oom_watch *watch) {
    char leaf[32];
    if (watch && watch->folder && !is_own_leaf(watch->folder, watch->pid)) {
        put_leaf(leaf, "/", watch->pid);
        take_group(watch, watch->folder, leaf, true);
    }
    bt_known now = watch ? read_count(watch->fd) : (bt_known){0};
    return now.known && now.value > watch->before;
}

void bt_oom_watch_close(bt_oom_watch *watch) {
    if (!watch) return;
    if (watch->fd >= 0) (void)bt_os_close(watch->fd);
    bt_heap_free(watch->root);
    bt_heap_free(watch->point);
    bt_heap_free(watch->folder);
    bt_heap_free(watch->file);
    bt_heap_free(watch);
}
