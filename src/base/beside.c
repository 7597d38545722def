/* SPDX-License-Identifier: MIT
 *
 * beside.c: where the files are that this program cannot do without: its helpers, and the library that others load. */
#include "base/beside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

/* A folder may be "executed" too: lib/burthen is no program. */
static bool is_file(const char *path, int access_mode) {
    struct stat found;
    return access(path, access_mode) == 0 && stat(path, &found) == 0 && S_ISREG(found.st_mode);
}

bool bt_beside_find(const char *name, int access_mode, char *ret_path, size_t capacity) {
    static const char *const places[] = {"/", "/../lib/burthen/", "/../../bin/", "/../"};
    ssize_t n = capacity > 0 ? readlink("/proc/self/exe", ret_path, capacity - 1) : -1;
    if (n <= 0) return false;
    ret_path[n] = '\0';
    char *slash = strrchr(ret_path, '/');
    if (!slash) return false;
    size_t left = capacity - (size_t)(slash - ret_path);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int written = snprintf(slash, left, "%s%s", places[i], name);
        if (written > 0 && (size_t)written < left && is_file(ret_path, access_mode)) return true;
    }
    return false;
}

bool bt_beside_program(const char *name, char *ret_path, size_t capacity) {
    const char *folders = strchr(name, '/') ? "" : getenv("PATH");
    for (const char *at = folders ? folders : ""; at;) {
        size_t n = strcspn(at, ":");
        const char *slash = n > 0 ? "/" : "";
        int written = snprintf(ret_path, capacity, "%.*s%s%s", (int)n, at, slash, name);
        if (written > 0 && (size_t)written < capacity && access(ret_path, X_OK) == 0) return true;
        at = at[n] == ':' ? at + n + 1 : NULL;
    }
    return false;
}
