/* SPDX-License-Identifier: MIT
 * cgroup.c: the memory cgroup chain of this process, leaf to root, and what it leaves.
 *
 * The kernel enforces every limit between a group and the root, and charges each page to all of them, so neither the
 * leaf's limit nor the root's is the answer: what can still be had is the least of what each level leaves,
 *
 *   limit - (usage - reclaimable) - promised
 *
 * with that level's own usage, in which its other children count. Clean file cache is given back before anything is
 * killed and so is not use; dirty pages and those being written are, until they are on disk. What was promised to other
 * budgets in the group and not touched yet is theirs (reservations.c).
 *
 * The chain is read as a whole or not at all: a level that is there and cannot be read could be the tightest, and what
 * the others leave would be a wrong number. Bound: BT_CGROUP_LEVEL_MAX levels, three or four small files each. Left
 * out: memory.low and memory.min of neighbours (protection makes their cache harder to reclaim, not impossible), swap
 * limits (swap is never budget), and levels above a container's mount, of which only v1 tells: its memory.stat has the
 * lowest limit up to the true root. */
#include "probe/cgroup.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"
#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* v1 has no word for "no limit": it says PAGE_COUNTER_MAX pages in bytes, 2^63 less a page of 4 to 64 KiB
 * (9223372036854771712 with 4 KiB). No machine has the 4 EiB from where we read it so. */
#define NO_LIMIT_BYTES (UINT64_C(1) << 62)

/* ---- parsers ---------------------------------------------------------------------------------------------------- */

bool bt_cgroup_limit_parse(const char *text, bt_known *ret_limit) {
    bt_span word;
    uint64_t bytes = 0;
    if (!bt_span_only_word(text, &word)) return false;
    if (bt_span_is(word, "max")) {
        *ret_limit = (bt_known){false, 0};
        return true;
    }
    if (!bt_span_number(word, &bytes)) return false;
    *ret_limit = bytes >= NO_LIMIT_BYTES ? (bt_known){false, 0} : (bt_known){true, bytes};
    return true;
}

/* "name 123" of memory.stat: 0 when the line is missing; false when it is no number. */
static bool stat_field(const char *text, const char *name, uint64_t *ret) {
    bt_span rest;
    bt_span word;
    bt_span more;
    *ret = 0;
    if (!bt_span_find_line(text, name, &rest)) return true;
    return bt_span_word(&rest, &word) && !bt_span_word(&rest, &more) && bt_span_number(word, ret);
}

bt_cgroup_stat bt_cgroup_stat_parse(const char *text, uint32_t version) {
    /* v1: those without "total_" are the group's own and leave out its children's, whom its limit holds too. */
    static const char *const names[2][4] = {
        {"total_inactive_file ", "total_active_file ", "total_dirty ", "total_writeback "},
        {"inactive_file ", "active_file ", "file_dirty ", "file_writeback "},
    };
    const char *const *name = names[version == 1 ? 0 : 1];
    uint64_t value[4] = {0};
    bt_cgroup_stat stat = {0};
    bool is_sound = true;
    for (int i = 0; i < 4; i++)
        is_sound = stat_field(text, name[i], &value[i]) && is_sound;
    if (is_sound) {
        uint64_t file_bytes = bt_sat_add_u64(value[0], value[1]);
        stat.reclaimable_bytes = bt_sat_sub_u64(file_bytes, bt_sat_add_u64(value[2], value[3]));
    }
    uint64_t lowest = 0;
    bt_span found;
    if (version == 1 && bt_span_find_line(text, "hierarchical_memory_limit ", &found) &&
        stat_field(text, "hierarchical_memory_limit ", &lowest) && lowest < NO_LIMIT_BYTES)
        stat.hierarchical_limit = (bt_known){true, lowest};
    return stat;
}

/* ---- one level -------------------------------------------------------------------------------------------------- */

/* Each returns 0, or minus an errno value: -EBADMSG for what is not a limit or not a number. */
static int read_limit(bt_cgroup_walk *walk, const char *file, bt_known *ret_limit) {
    int rc = bt_cgroup_read(walk, file);
    if (rc < 0) return rc;
    return bt_cgroup_limit_parse(walk->text.data, ret_limit) ? 0 : -EBADMSG;
}

static int read_usage(bt_cgroup_walk *walk, const char *file, uint64_t *ret_bytes) {
    bt_span word;
    int rc = bt_cgroup_read(walk, file);
    if (rc < 0) return rc;
    return bt_span_only_word(walk->text.data, &word) && bt_span_number(word, ret_bytes) ? 0 : -EBADMSG;
}

static void set_limit(bt_cgroup_level *level, bt_known limit, const char *file) {
    if (!limit.known || (level->limit.known && level->limit.value <= limit.value)) return;
    level->limit = limit;
    (void)snprintf(level->limit_file, sizeof level->limit_file, "%s", file);
}

/* Dest becomes text as UTF-8 without control bytes, cut with "..." in the middle when longer: both ends of a path tell
 * more than its middle. bytes: at least 8. */
static void put_path(char *dest, size_t bytes, const char *text) {
    size_t n = strlen(text);
    size_t front = n;
    const char *tail = text + n;
    if (n >= bytes) {
        front = bt_utf8_fit(text, (bytes - 4) / 2);
        tail -= bytes - 4 - (bytes - 4) / 2;
        while (((unsigned char)*tail & 0xC0) == 0x80)
            tail++;
    }
    (void)snprintf(dest, bytes, "%.*s%s%s", (int)front, text, n >= bytes ? "..." : "", tail);
    n = strlen(dest);
    for (size_t i = 0; i < n;) {
        size_t length = bt_utf8_length(dest + i, n - i);
        bool is_plain = length > 0 && !bt_utf8_is_control(dest + i, length);
        if (!is_plain) memset(dest + i, '?', length > 0 ? length : 1);
        i += length > 0 ? length : 1;
    }
}

/* Names of the group's whole path: those of the mount's root, and those below it. 0 where they are not known. */
static uint32_t depth_of(const bt_cgroup_walk *walk) {
    if (!walk->mount.holds_group) return 0;
    uint32_t depth = bt_cgroup_depth(walk) - 1;
    bt_span rest = bt_span_of(walk->mount.root);
    bt_span name;
    while (bt_span_part(&rest, '/', &name)) {
        if (name.n_bytes > 0) depth++;
    }
    return depth;
}

/* 1: the level was read; 0: no memory controller there; else minus an errno value, and *ret_file says which file. */
static int read_level(bt_cgroup_walk *walk, bt_cgroup_level *level, bt_known *ret_hierarchical, const char **ret_file) {
    bool is_v1 = walk->version == 1;
    bt_known limit = {0};
    memset(level, 0, sizeof *level);
    put_path(level->path, sizeof level->path, walk->below[0] ? walk->below : "/");
    level->depth = depth_of(walk);
    *ret_file = is_v1 ? "memory.limit_in_bytes" : "memory.max";
    int rc = read_limit(walk, *ret_file, &limit);
    if (rc < 0) return bt_proc_is_absent(rc) ? 0 : rc;
    set_limit(level, limit, *ret_file);
    if (!is_v1) {
        *ret_file = "memory.high";
        rc = read_limit(walk, *ret_file, &limit);
        if (rc < 0 && !bt_proc_is_absent(rc)) return rc;
        if (rc == 0) set_limit(level, limit, *ret_file);
    }
    *ret_file = is_v1 ? "memory.usage_in_bytes" : "memory.current";
    rc = read_usage(walk, *ret_file, &level->usage_bytes);
    if (rc < 0) return rc;
    *ret_file = "memory.stat";
    rc = bt_cgroup_read(walk, *ret_file);
    if (rc < 0 && !bt_proc_is_absent(rc)) return rc;
    /* An emulated cgroupfs may have no memory.stat: then nothing is known to be reclaimable. */
    bt_cgroup_stat stat = bt_cgroup_stat_parse(rc == 0 ? walk->text.data : "", walk->version);
    level->reclaimable_bytes = stat.reclaimable_bytes;
    *ret_hierarchical = stat.hierarchical_limit;
    return 1;
}

/* v1 before Linux 5.11 could charge a group without charging its parent. */
static bool parent_counts(bt_cgroup_walk *walk) {
    bt_span word;
    if (walk->version != 1 || bt_cgroup_read(walk, "memory.use_hierarchy") < 0) return true;
    return !bt_span_only_word(walk->text.data, &word) || !bt_span_is(word, "0");
}

/* ---- the chain -------------------------------------------------------------------------------------------------- */

static bt_status read_chain(bt_cgroup_walk *walk, bt_machine *machine, bt_error *err) {
    uint32_t depth = bt_cgroup_depth(walk);
    if (depth > BT_CGROUP_LEVEL_MAX)
        return bt_fail(err, BT_E_LIMIT, "cgroup", BT_MEASURE_ITEMS, depth, BT_CGROUP_LEVEL_MAX,
                       "the memory cgroup lies %u levels deep, at most %d are read", depth, BT_CGROUP_LEVEL_MAX);
    bt_known hierarchical = {0};
    do {
        bt_cgroup_level *level = &machine->cgroup[machine->n_cgroup_levels];
        if (machine->n_cgroup_levels > 0 && !parent_counts(walk)) break;
        const char *file = "";
        int rc = read_level(walk, level, &hierarchical, &file);
        if (rc < 0) return bt_fail_sys(err, -rc, "cgroup", "cannot read %s of cgroup %.80s", file, level->path);
        if (rc > 0) machine->n_cgroup_levels++;
    } while (machine->n_cgroup_levels < BT_CGROUP_LEVEL_MAX && bt_cgroup_climb(walk));
    if (machine->n_cgroup_levels > 0)
        set_limit(&machine->cgroup[machine->n_cgroup_levels - 1], hierarchical,
                  "memory.stat hierarchical_memory_limit");
    /* The root of v1 has all files, so at least that one is readable unless the mount is not what it seems. */
    if (walk->version == 1 && machine->n_cgroup_levels == 0)
        return bt_fail(err, BT_E_IO, "cgroup", BT_MEASURE_NONE, 0, 0,
                       "the cgroup v1 mount at %.80s holds no memory.limit_in_bytes", walk->mount.point);
    return BT_OK;
}

void bt_cgroup_probe(const char *root, bt_machine *machine) {
    bt_error err = {0};
    bt_status status;
    machine->cgroup_version = 0;
    machine->n_cgroup_levels = 0;
    machine->cgroup_reason[0] = '\0';
    bt_cgroup_walk *walk = bt_heap_alloc(sizeof *walk);
    if (walk) {
        status = bt_cgroup_find(root, "memory", walk, &err);
        if (status == BT_OK && walk->version > 0) status = read_chain(walk, machine, &err);
        if (status == BT_OK) machine->cgroup_version = walk->version;
    } else {
        status = bt_fail_sys(&err, ENOMEM, "cgroup", "cannot read the cgroup chain");
    }
    bt_heap_free(walk);
    if (status == BT_OK) return;
    memset(machine->cgroup, 0, sizeof machine->cgroup);
    machine->n_cgroup_levels = 0;
    put_path(machine->cgroup_reason, sizeof machine->cgroup_reason, err.text);
}

/* ---- its limit -------------------------------------------------------------------------------------------------- */

static void put_source(const bt_machine *machine, const bt_cgroup_level *level, char source[BT_CGROUP_SOURCE_TEXT]) {
    const char *file = level->limit_file;
    /* A machine read from a file names no limit_file. */
    if (!file[0]) file = machine->cgroup_version == 1 ? "memory.limit_in_bytes" : "memory.max";
    char path[120]; /* "cgroup v1 ", a blank and the 39 of limit_file fit beside it */
    put_path(path, sizeof path, level->path);
    (void)snprintf(source, BT_CGROUP_SOURCE_TEXT, "cgroup v%u %s %s", machine->cgroup_version, path, file);
}

bt_known bt_cgroup_limit(const bt_machine *machine, char source[BT_CGROUP_SOURCE_TEXT]) {
    const bt_cgroup_level *found = NULL; /* of equal ones that nearest to the leaf */
    source[0] = '\0';
    for (uint32_t i = 0; i < machine->n_cgroup_levels && i < BT_CGROUP_LEVEL_MAX; i++) {
        const bt_cgroup_level *level = &machine->cgroup[i];
        if (level->limit.known && (!found || level->limit.value < found->limit.value)) found = level;
    }
    if (!found) return (bt_known){false, 0};
    put_source(machine, found, source);
    return found->limit;
}
