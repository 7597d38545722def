/* SPDX-License-Identifier: MIT
 * leaf_kit.h: a tree of cgroups in plain files, and of the kernel what a leaf asks of it.
 *
 * mkdir and rmdir are replaced for the program that includes this: a new group gets its files, and one is removed with
 * them, but not while a process is in it. Include it in one file of a program, with KIT_ROOT defined. */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define KIT_V1 KIT_ROOT "/sys/fs/cgroup/memory"
#define KIT_V2 KIT_ROOT "/sys/fs/cgroup"

static struct {
    bool live;             /* what is made is a group */
    int make_error;        /* errno of mkdir, 0: none */
    bool no_memory;        /* the controller is not handed down */
    bool no_swap;          /* swap is not accounted */
    const char *limit_to;  /* the limit is a link to this */
    const char *procs_to;  /* cgroup.procs is a link to this */
    uint32_t n_removed;    /* groups */
    char procs_then[1024]; /* of the last group that was removed: who was in it */
    uint32_t version;
    char group[256]; /* folder of our own */
    char leaf[300];  /* and of the leaf in it */
} kit;

static void kit_put(const char *folder, const char *name, const char *text) {
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

/* "" for a file that is not there. */
static const char *kit_get(const char *folder, const char *name) {
    static char text[1024];
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    text[0] = '\0';
    FILE *file = fopen(path, "rb");
    if (!file) return text;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    (void)fclose(file);
    return text;
}

static bool kit_has(const char *folder) {
    return access(folder, F_OK) == 0;
}

static void kit_put_or_link(const char *folder, const char *name, const char *text, const char *to) {
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    if (to)
        assert_int_equal(symlink(to, path), 0);
    else
        kit_put(folder, name, text);
}

static void kit_fill(const char *folder) {
    bool is_v1 = kit.version == 1;
    kit_put_or_link(folder, "cgroup.procs", "", kit.procs_to);
    kit_put(kit.group, "cgroup.procs", ""); /* so that being moved back shows */
    if (kit.no_memory) return;
    kit_put_or_link(folder, is_v1 ? "memory.limit_in_bytes" : "memory.max", is_v1 ? "9223372036854771712\n" : "max\n",
                    kit.limit_to);
    if (kit.no_swap) return;
    kit_put(folder, is_v1 ? "memory.memsw.limit_in_bytes" : "memory.swap.max",
            is_v1 ? "9223372036854771712\n" : "max\n");
}

static void kit_make_folders(const char *path) {
    char copy[1024];
    (void)snprintf(copy, sizeof copy, "%s/", path);
    for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        assert_true(mkdirat(AT_FDCWD, copy, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
}

/* This process is in the group /a. */
static void kit_start(uint32_t version) {
    memset(&kit, 0, sizeof kit);
    kit.version = version;
    assert_int_equal(system("rm -rf '" KIT_ROOT "'"), 0); /* NOLINT(bugprone-command-processor) */
    (void)snprintf(kit.group, sizeof kit.group, "%s/a", version == 1 ? KIT_V1 : KIT_V2);
    (void)snprintf(kit.leaf, sizeof kit.leaf, "%s/burthen-%ld", kit.group, (long)getpid());
    kit_make_folders(kit.group);
    kit_make_folders(KIT_ROOT "/proc/self");
    if (version == 1) {
        kit_put(KIT_ROOT "/proc/self", "cgroup", "4:memory:/a\n0::/elsewhere\n");
        kit_put(KIT_ROOT "/proc/self", "mountinfo",
                "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
        kit_put(kit.group, "memory.limit_in_bytes", "9223372036854771712\n");
        kit_put(kit.group, "memory.use_hierarchy", "1\n");
    } else {
        kit_put(KIT_ROOT "/proc/self", "cgroup", "0::/a\n");
        kit_put(KIT_ROOT "/proc/self", "mountinfo", "35 31 0:32 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        kit_put(kit.group, "memory.max", "max\n");
    }
    kit.live = true;
}

static const char *kit_own_line(void) {
    static char line[32];
    (void)snprintf(line, sizeof line, "%ld\n", (long)getpid());
    return line;
}

/* ---- of the kernel ---------------------------------------------------------------------------------------------- */

static bool kit_is_group(const char *path) {
    return kit.live && strncmp(path, KIT_V2, strlen(KIT_V2)) == 0;
}

int mkdir(const char *path, mode_t mode) {
    if (kit_is_group(path) && kit.make_error) {
        errno = kit.make_error;
        return -1;
    }
    int rc = mkdirat(AT_FDCWD, path, mode);
    if (rc == 0 && kit_is_group(path)) kit_fill(path);
    return rc;
}

static void kit_remove_files(const char *folder) {
    char path[1024];
    DIR *list = opendir(folder);
    assert_non_null(list);
    for (const struct dirent *entry = readdir(list); entry; entry = readdir(list)) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        (void)unlinkat(AT_FDCWD, path, 0);
    }
    (void)closedir(list);
}

int rmdir(const char *path) {
    if (!kit_is_group(path)) return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
    char procs[1024];
    (void)snprintf(procs, sizeof procs, "%s", kit_get(path, "cgroup.procs"));
    /* We went back where the group above lists us. */
    bool is_us = strcmp(procs, kit_own_line()) == 0;
    if (procs[0] && !(is_us && strcmp(kit_get(kit.group, "cgroup.procs"), procs) == 0)) {
        errno = EBUSY;
        return -1;
    }
    memcpy(kit.procs_then, procs, sizeof procs);
    kit_remove_files(path);
    kit.n_removed++;
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}
