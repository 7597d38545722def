/* SPDX-License-Identifier: MIT
 *
 * state.c: the folder of what is kept between runs.
 *
 *   BURTHEN_STATE_DIR, and then no other
 *   $XDG_STATE_HOME/burthen, or $HOME/.local/state/burthen
 *   $XDG_RUNTIME_DIR/burthen          where the home cannot be written: services, read-only containers
 *   /tmp/burthen-UID
 *
 * The first that can be written and is ours alone is taken: a directory, not a link to one, owned by this user, not
 * writable for others. /tmp is everybody's, so what somebody put there before us under our name is refused, never
 * followed and never repaired; the same holds for the files in it. Nothing that is kept is needed: whoever asks does
 * without, and says so. A file is written aside and renamed, so that a reader sees all of it or the one before; who
 * reads, decides and writes holds the lock. Bound: the callers' (text.max_bytes), who keep the whole under 64 MiB. Left
 * out: file systems without flock, where the lock fails as an error. */
#include "base/state.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/os.h"
#include "base/text_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NAME_BYTES 256u /* NAME_MAX of Linux, and its end */
/* Between two tries: from about as long as a turn takes, so that a crowd does not spend it on asking. */
#define LOCK_REST_NS     1000000L
#define LOCK_REST_MAX_NS 16000000L

/* ---- where ------------------------------------------------------------------------------------------------------ */

static const char *variable(const char *(*environ_get)(const char *), const char *name) {
    const char *value = environ_get ? environ_get(name) : getenv(name);
    return value && value[0] == '/' ? value : NULL; /* XDG: a relative path counts as not set */
}

static bool put_path(char *path, const char *folder, const char *below) {
    int n = snprintf(path, BT_STATE_PATH_MAX, "%s%s", folder, below);
    return n > 0 && (uint32_t)n < BT_STATE_PATH_MAX;
}

bool bt_state_candidate(uint32_t i, const char *(*environ_get)(const char *), char ret_path[BT_STATE_PATH_MAX]) {
    const char *ours = environ_get ? environ_get("BURTHEN_STATE_DIR") : getenv("BURTHEN_STATE_DIR");
    if (ours && ours[0]) return i == 0 && put_path(ret_path, ours, "");
    const char *state = variable(environ_get, "XDG_STATE_HOME");
    const char *home = variable(environ_get, "HOME");
    const char *runtime = variable(environ_get, "XDG_RUNTIME_DIR");
    char uid[32];
    (void)snprintf(uid, sizeof uid, "/burthen-%lu", (unsigned long)geteuid());
    const char *folders[] = {state ? state : home, runtime, "/tmp"};
    const char *below[] = {state ? "/burthen" : "/.local/state/burthen", "/burthen", uid};
    for (uint32_t k = 0; k < 3; k++) {
        if (!folders[k] || i-- > 0) continue;
        return put_path(ret_path, folders[k], below[k]);
    }
    return false;
}

/* ---- open ------------------------------------------------------------------------------------------------------- */

/* The folder and what is missing above it. The error is that of the last step: the others may be there. */
static int make_folders(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, S_IRWXU);
        *slash = '/';
    }
    return mkdir(path, S_IRWXU) < 0 && errno != EEXIST ? -errno : 0;
}

/* 0 when the open folder is ours alone and can be entered and written (modes: W_OK | X_OK) or read; else minus an errno
 * value. */
static int check_folder(int dir, int modes) {
    struct stat found;
    if (fstat(dir, &found) < 0) return -errno;
    if (found.st_uid != geteuid() || (found.st_mode & (S_IWGRP | S_IWOTH)) != 0) return -EPERM;
    return faccessat(dir, ".", modes, AT_EACCESS) < 0 ? -errno : 0;
}

/* A descriptor, or minus an errno value. */
static int open_folder(char *path, bool create, int modes) {
    if (bt_fault_hit()) return -EIO;
    int rc = create ? make_folders(path) : 0;
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0) return rc < 0 ? rc : -errno;
    rc = check_folder(dir, modes);
    if (rc == 0) return dir;
    (void)bt_os_close(dir);
    return rc;
}

/* Whether a folder that is not there could be made: the nearest one above it can be written. */
static bool could_make(const char *path) {
    char above[BT_STATE_PATH_MAX];
    (void)snprintf(above, sizeof above, "%s", path);
    for (char *slash = strrchr(above, '/'); slash; slash = strrchr(above, '/')) {
        *slash = '\0';
        const char *folder = above[0] != '\0' ? above : "/";
        if (faccessat(AT_FDCWD, folder, F_OK, AT_EACCESS) == 0)
            return faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) == 0;
        if (errno != ENOENT) return false;
    }
    return false;
}

bt_status bt_state_open(bool create, int *ret_dir, bt_error *err) {
    char path[BT_STATE_PATH_MAX];
    char first[BT_STATE_PATH_MAX] = "";
    int first_sys = ENOENT;
    for (uint32_t i = 0; bt_state_candidate(i, NULL, path); i++) {
        int dir = open_folder(path, create, W_OK | X_OK);
        if (dir >= 0) {
            *ret_dir = dir;
            return BT_OK;
        }
        if (i == 0) {
            memcpy(first, path, sizeof first);
            first_sys = -dir;
        }
        /* Where something would be kept nothing is yet: what lies in the next folder is of another home. */
        if (!create && dir == -ENOENT && could_make(path)) break;
    }
    return bt_fail_sys(err, first_sys, "state_dir", "nothing can be kept in %.200s", first);
}

bt_status bt_state_look(int *ret_dir, bt_error *err) {
    char path[BT_STATE_PATH_MAX];
    bt_error why = {0};
    if (bt_state_open(false, ret_dir, &why) == BT_OK) return BT_OK;
    for (uint32_t i = 0; why.sys != ENOENT && bt_state_candidate(i, NULL, path); i++) {
        *ret_dir = open_folder(path, false, R_OK | X_OK);
        if (*ret_dir >= 0) return BT_OK;
    }
    if (err) *err = why;
    return why.status;
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

/* A descriptor, or minus an errno value: a file of ours, no link, no device, no pipe. */
static int open_file(int dir, const char *name, int flags) {
    if (bt_fault_hit()) return -EIO;
    int fd = openat(dir, name, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, S_IRUSR | S_IWUSR);
    if (fd < 0) return -errno;
    struct stat found;
    int rc = fstat(fd, &found) < 0 ? -errno : 0;
    if (rc == 0 && (!S_ISREG(found.st_mode) || found.st_uid != geteuid())) rc = -EPERM;
    if (rc == 0) return fd;
    (void)bt_os_close(fd);
    return rc;
}

bt_status bt_state_read(int dir, const char *name, bt_text *text, bt_error *err) {
    int fd = open_file(dir, name, O_RDONLY);
    if (fd < 0) return bt_fail_sys(err, -fd, "state_file", "cannot read %s of what was kept", name);
    int rc = bt_text_read(text, fd);
    (void)bt_os_close(fd);
    if (rc == -EFBIG)
        return bt_fail(err, BT_E_LIMIT, "state_file", BT_MEASURE_BYTES, 0, text->max_bytes,
                       "%s of what was kept is too large", name);
    if (rc < 0) return bt_fail_sys(err, -rc, "state_file", "cannot read %s of what was kept", name);
    return BT_OK;
}

bt_status bt_state_write(int dir, const char *name, const char *data, size_t bytes, bt_error *err) {
    char aside[128];
    (void)snprintf(aside, sizeof aside, ".%.64s.%ld", name, (long)getpid());
    (void)unlinkat(dir, aside, 0); /* of a former process of our number that was killed */
    int fd = open_file(dir, aside, O_WRONLY | O_CREAT | O_EXCL);
    int rc = fd < 0 ? fd : bt_os_write(fd, data, bytes);
    if (fd >= 0) {
        int closed = bt_os_close(fd);
        if (rc == 0) rc = closed;
        if (rc == 0 && renameat(dir, aside, dir, name) < 0) rc = -errno;
        if (rc < 0) (void)unlinkat(dir, aside, 0);
    }
    return rc == 0 ? BT_OK : bt_fail_sys(err, -rc, "state_file", "cannot write %s of what is kept", name);
}

/* The oldest of the files with the prefix; how many there are. */
static uint32_t find_oldest(DIR *list, int dir, const char *prefix, char ret_name[NAME_BYTES]) {
    uint32_t n = 0;
    struct timespec oldest = {0};
    struct dirent *entry = NULL;
    rewinddir(list);
    while ((entry = readdir(list)) != NULL) {
        struct stat found;
        size_t n_bytes = strlen(entry->d_name);
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 || n_bytes >= NAME_BYTES) continue;
        if (fstatat(dir, entry->d_name, &found, AT_SYMLINK_NOFOLLOW) < 0) continue;
        bool is_older = found.st_mtim.tv_sec < oldest.tv_sec ||
                        (found.st_mtim.tv_sec == oldest.tv_sec && found.st_mtim.tv_nsec < oldest.tv_nsec);
        if (n++ > 0 && !is_older) continue;
        oldest = found.st_mtim;
        memcpy(ret_name, entry->d_name, n_bytes + 1);
    }
    return n;
}

void bt_state_remove(int dir, const char *name) {
    (void)unlinkat(dir, name, 0);
}

void bt_state_trim(int dir, const char *prefix, uint32_t n_max) {
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* of its own: reading moves it */
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    char name[NAME_BYTES];
    if (!list) {
        if (fd >= 0) (void)bt_os_close(fd);
        return;
    }
    while (find_oldest(list, dir, prefix, name) > n_max) {
        if (unlinkat(dir, name, 0) < 0) break;
    }
    (void)closedir(list);
}

bt_status bt_state_lock(int dir, const char *name, int *ret_lock, bt_error *err) {
    int fd = open_file(dir, name, O_RDWR | O_CREAT);
    if (fd < 0) return bt_fail_sys(err, -fd, "state_file", "cannot open %s of what is kept", name);
    const uint64_t until_ns = bt_os_now_ns() + UINT64_C(1000000) * BT_STATE_LOCK_MS;
    struct timespec pause = {.tv_nsec = LOCK_REST_NS};
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        int sys = errno;
        if ((sys != EWOULDBLOCK && sys != EINTR) || bt_os_now_ns() > until_ns) {
            (void)bt_os_close(fd);
            return bt_fail_sys(err, sys, "state_busy", "%s of what is kept cannot be locked", name);
        }
        (void)nanosleep(&pause, NULL);
        if (pause.tv_nsec < LOCK_REST_MAX_NS) pause.tv_nsec *= 2;
    }
    *ret_lock = fd;
    return BT_OK;
}
