/* SPDX-License-Identifier: MIT
 *
 * disk_measure.c: `devices --disk PATH`: a disk measured now, and remembered for the runs that follow.
 *
 * A model's file is what will be read, so a file is measured: PATH, or the largest one in the folder PATH. Nothing is
 * written to the disk. Bound: one reader and the buffer of store/disk_speed.h. */
#include "cli/disk_measure.h"

#include "base/error.h"
#include "base/os.h"
#include "base/size.h"
#include "probe/disk.h"
#include "store/disk_speed.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

static void try_entry(const char *folder, const char *name, struct stat *best, char path[PATH_MAX]) {
    char full[PATH_MAX];
    struct stat st;
    int n = snprintf(full, sizeof full, "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= sizeof full || stat(full, &st) != 0 || !S_ISREG(st.st_mode)) return;
    if (st.st_size <= best->st_size) return;
    *best = st;
    (void)snprintf(path, PATH_MAX, "%s", full);
}

static bt_status find_file(const char *asked, char path[PATH_MAX], struct stat *ret, bt_error *err) {
    if (stat(asked, ret) != 0) return bt_fail_sys(err, errno, "open_failed", "cannot look at %s", asked);
    (void)snprintf(path, PATH_MAX, "%s", asked);
    if (!S_ISDIR(ret->st_mode)) return BT_OK;
    DIR *folder = opendir(asked);
    if (!folder) return bt_fail_sys(err, errno, "open_failed", "cannot look into %s", asked);
    ret->st_size = 0;
    for (const struct dirent *entry = readdir(folder); entry; entry = readdir(folder))
        try_entry(asked, entry->d_name, ret, path);
    (void)closedir(folder);
    if (ret->st_size == 0)
        return bt_fail(err, BT_E_IO, "disk_speed", BT_MEASURE_NONE, 0, 0,
                       "the disk cannot be measured with %s: there is no file in it", asked);
    return BT_OK;
}

static bt_status measure(const char *path, const struct stat *st, bt_machine *machine, bt_error *err) {
    bt_shard shard = {.path = path,
                      .file_bytes = (uint64_t)st->st_size,
                      .device = (uint64_t)st->st_dev,
                      .inode = (uint64_t)st->st_ino,
                      .mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec};
    const bt_facts facts = {.shards = &shard, .n_shards = 1};
    bt_disk_speed speed = {0};
    BT_TRY(bt_disk_speed_of(&facts, &speed, err));
    machine->disk_bytes_per_s = (bt_known){false, 0}; /* what was measured just now is the better one */
    bt_disk_learn(machine, speed.depth, speed.request_bytes, speed.bytes_per_s);
    return BT_OK;
}

bt_status bt_cli_disk_measure(const char *asked, bt_machine *machine, bt_error *err) {
    char path[PATH_MAX];
    struct stat st;
    BT_TRY(find_file(asked, path, &st, err));
    bt_disk_find("", path, &machine->disk);
    return measure(path, &st, machine, err);
}
