/* SPDX-License-Identifier: MIT
 * cache.c: what lies in the folder of kept files, by kind.
 *
 * A kind is the beginning of a name, as those who keep it have it; the table below stands for docs/interfaces.md, and a
 * test holds them together. Removed is only what its owner makes again when it misses it. What others rely on while
 * they run stays: promises of memory, the notes by which a router's servers are found after it died, locks (two holders
 * of one name would have two locks). A file of no kind is counted and left alone: it is a newer version's, or
 * somebody's. Bound: BT_CACHE_FILES_MAX files of one folder; none is opened. */
#include "cli/cache.h"

#include "base/error.h"
#include "base/os.h"
#include "base/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct kind {
    const char *name, *prefix, *what;
    bool whole; /* prefix is a whole name */
    bool clearable;
} kind;

/* In the order in which they are shown. "learned.lock" is no "learned-". */
static const kind kinds[BT_CACHE_KINDS] = {
    {"prices", "prices-", "what dry runs of models measured", false, true},
    {"disks", "disk-", "how disks are read fastest", false, true},
    {"runs", "stats-", "last run of each model, for report", false, true},
    {"refusals", "refused-", "what exec refused last", false, true},
    {"learned", "learned-", "what programs took beside their plans", false, true},
    {"footprints", "footprint-", "what serve saw its servers take", false, true},
    {"reservations", "reservations", "memory promised to programs that run", true, false},
    {"routers", "serve-", "routers that run, and what they started", false, false},
    {"other", "", "locks, and files of no kind", false, false},
};
const char bt_cache_kinds[] = "prices|disks|runs|refusals|learned|footprints|reservations|routers|other";

uint32_t bt_cache_kind_find(const char *name) {
    uint32_t i = 0;
    while (i < BT_CACHE_KINDS && strcmp(kinds[i].name, name) != 0)
        i++;
    return i;
}

bt_cache_kind bt_cache_kind_at(uint32_t i) {
    return (bt_cache_kind){.name = kinds[i].name, .what = kinds[i].what, .clearable = kinds[i].clearable};
}

static uint32_t kind_of(const char *name) {
    for (uint32_t i = 0; i + 1 < BT_CACHE_KINDS; i++) {
        size_t n = strlen(kinds[i].prefix);
        if (strncmp(name, kinds[i].prefix, n) != 0) continue;
        if (!kinds[i].whole || name[n] == '\0') return i;
    }
    return BT_CACHE_KINDS - 1;
}

static void count_file(bt_cache *cache, int dir, const char *name, uint32_t chosen, bool clear) {
    struct stat found;
    if (fstatat(dir, name, &found, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(found.st_mode)) return;
    uint32_t i = kind_of(name);
    bt_cache_kind *k = &cache->kinds[i];
    int64_t written_s = (int64_t)found.st_mtim.tv_sec;
    if (k->n_files == 0 || written_s < k->oldest_s) k->oldest_s = written_s;
    if (k->n_files == 0 || written_s > k->newest_s) k->newest_s = written_s;
    k->n_files++;
    k->bytes += (uint64_t)found.st_size;
    if (!clear || !k->clearable || ((chosen >> i) & 1) == 0) return;
    if (unlinkat(dir, name, 0) == 0) {
        k->n_removed++;
    } else if (errno != ENOENT) { /* which another run has removed */
        if (cache->n_failed++ == 0) cache->sys = errno;
    }
}

static bt_status count_all(bt_cache *cache, int dir, uint32_t chosen, bool clear, bt_error *err) {
    char path[64];
    const char *name = NULL;
    uint32_t n = 0;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", dir);
    ssize_t length = readlink(path, cache->folder, sizeof cache->folder - 1);
    bt_os_folder *folder = length > 0 ? bt_os_folder_open(path) : NULL;
    if (!folder) return bt_fail_sys(err, errno, "state_dir", "cannot look at what is kept");
    while (n < BT_CACHE_FILES_MAX && (name = bt_os_folder_next(folder)) != NULL) {
        count_file(cache, dir, name, chosen, clear);
        n++;
    }
    cache->cut = n == BT_CACHE_FILES_MAX && bt_os_folder_next(folder) != NULL;
    bt_os_folder_close(folder);
    return BT_OK;
}

bt_status bt_cache_look(uint32_t chosen, bool clear, bt_cache *ret, bt_error *err) {
    int dir = -1;
    bt_error why = {0};
    *ret = (bt_cache){0};
    for (uint32_t i = 0; i < BT_CACHE_KINDS; i++)
        ret->kinds[i] = bt_cache_kind_at(i);
    if (bt_state_look(&dir, &why) != BT_OK) {
        if (why.sys == ENOENT) return BT_OK;
        if (err) *err = why;
        return why.status;
    }
    bt_status status = count_all(ret, dir, chosen, clear, err);
    (void)bt_os_close(dir);
    return status;
}
