/* SPDX-License-Identifier: MIT
 * cgroup.h: the whole memory cgroup chain of this process, v1 and v2, leaf to root. */
#pragma once

#include "burthen.h"
#include "probe/proc.h"

#define BT_CGROUP_SOURCE_TEXT 192

/* Fills cgroup_version, cgroup[], n_cgroup_levels. A chain that cannot be read leaves version 0; when there is one all
 * the same, cgroup_reason says what went wrong. A level whose directory holds no memory files (the controller is off
 * there, or it is the true root of v2) is left out. */
void bt_cgroup_probe(const char *root, bt_machine *machine);
/* The lowest limit of the chain, whatever is used of it (what it leaves, src/plan/budget.c finds); unknown when no
 * level has one. source: "cgroup v2 /a/b memory.max" of that level. */
bt_known bt_cgroup_limit(const bt_machine *machine, char source[BT_CGROUP_SOURCE_TEXT]);
/* CPU quota of the chain in whole cores, rounded up, at least 1; unknown = none, or not readable. */
bt_known bt_cgroup_cores(const char *root);

/* ---- where the groups of this process are (cgroup_find.c) ---- */

/* The mount through which a group is seen. */
typedef struct bt_cgroup_mount {
    bool found;
    bool holds_group;            /* the group lies below root; else only the mount point itself can be read */
    char root[BT_PROC_PATH_MAX]; /* the group that stands at point */
    char point[BT_PROC_PATH_MAX];
} bt_cgroup_mount;

/* Everything a walk needs; some 90 KiB, so it lives on the heap. */
typedef struct bt_cgroup_walk {
    const char *root;
    uint32_t version; /* 0 = this process is in no such group */
    bt_cgroup_mount mount;
    char below[BT_PROC_PATH_MAX]; /* the level: its path below mount.point, "" for the mount point */
    char path[BT_PROC_PATH_MAX];
    bt_proc_text text;
} bt_cgroup_walk;

/* Find the leaf of a controller ("memory", "cpu"), v1 where it is mounted so, else v2. BT_OK and version 0: none. An
 * error when the chain exists and its place cannot be known. */
BT_MUST_CHECK bt_status bt_cgroup_find(const char *root, const char *controller, bt_cgroup_walk *walk, bt_error *err);
/* Read a file of the level into walk->text; bt_proc_read's values. */
int bt_cgroup_read(bt_cgroup_walk *walk, const char *file);
/* To the parent; false at the mount point. */
bool bt_cgroup_climb(bt_cgroup_walk *walk);
/* Levels from here to the mount point, both counted. */
uint32_t bt_cgroup_depth(const bt_cgroup_walk *walk);

/* ---- pure parsers ---- */

/* Of /proc/PID/cgroup: the path of a v1 controller, or of the unified hierarchy for NULL. */
bool bt_cgroup_path_parse(const char *text, const char *controller, char ret_path[BT_PROC_PATH_MAX]);
/* Of (a window of) /proc/PID/mountinfo: improve *best, which starts as {0}, by what text holds: a mount that shows the
 * group and most of what is above it. controller as above. */
void bt_cgroup_mount_parse(const char *text, const char *controller, const char *group, bt_cgroup_mount *best);
/* memory.max, memory.high, memory.limit_in_bytes. false: malformed. */
bool bt_cgroup_limit_parse(const char *text, bt_known *ret_limit);
typedef struct bt_cgroup_stat {
    uint64_t reclaimable_bytes;  /* clean file cache; 0 where the text does not say */
    bt_known hierarchical_limit; /* v1 only: the lowest limit up to the true root, also of levels that are not seen */
} bt_cgroup_stat;
bt_cgroup_stat bt_cgroup_stat_parse(const char *text, uint32_t version);
/* "50000 100000" of cpu.max, or quota and period of v1: cores rounded up; unknown = no quota. false: malformed. */
bool bt_cgroup_cpu_max_parse(const char *text, bt_known *ret_cores);
