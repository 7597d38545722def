/* SPDX-License-Identifier: MIT
 *
 * output.c: a file that is to be written when a long run ends, looked at before it begins.
 *
 * A file that is renamed into its place must not take that of something else: run as root, a session in /dev/null would
 * leave the machine without one. A named pipe that is opened for writing waits for its reader, who may never come; one
 * without a name has its other end already. What is true now may be false later: whoever writes still looks at what
 * comes of it. Left out: room on the disk. */
#include "base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/magic.h>
#include <sys/vfs.h>
#endif

/* Whether a file can be made in the folder of path. */
static int check_folder(const char *path) {
    char folder[PATH_MAX] = ".";
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) + 1 : 0; /* "/" too is a folder */
    if (n >= sizeof folder) return -ENAMETOOLONG;
    if (n > 0) {
        memcpy(folder, path, n);
        folder[n] = '\0';
    }
    return access(folder, W_OK | X_OK) == 0 ? 0 : -errno;
}

static bool has_name(const char *pipe) {
#if defined(__linux__)
    struct statfs found;
    return statfs(pipe, &found) != 0 || found.f_type != PIPEFS_MAGIC;
#else
    return strncmp(pipe, "/dev/", 5) != 0;
#endif
}

int bt_output_check(const char *path, bool replaces) {
    struct stat found;
    if (stat(path, &found) != 0) return errno == ENOENT ? check_folder(path) : -errno;
    if (S_ISDIR(found.st_mode)) return -EISDIR;
    if (replaces) return S_ISREG(found.st_mode) ? check_folder(path) : -ESPIPE;
    bool waits = S_ISFIFO(found.st_mode) && has_name(path);
    if (waits || S_ISBLK(found.st_mode) || S_ISSOCK(found.st_mode)) return -ESPIPE;
    return access(path, W_OK) == 0 ? 0 : -errno;
}
