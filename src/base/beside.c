/* SPDX-License-Identifier: MIT
 *
 * beside.c: where the files are that this program cannot do without: its helpers, and the library that others load. */
#include "base/beside.h"

#include <stdint.h>
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

/* Where this program's file lies, n_up names cut off its end; false: it has fewer, or cannot be known. The kernel's
 * path goes through no links, so that cutting names is what "/.." would do, and reads better where it is shown. */
static bool own_path(uint32_t n_up, char *ret_path, size_t capacity) {
    ssize_t n = capacity > 0 ? readlink("/proc/self/exe", ret_path, capacity - 1) : -1;
    if (n <= 0) return false;
    ret_path[n] = '\0';
    for (; n_up > 0; n_up--) {
        char *slash = strrchr(ret_path, '/');
        if (!slash) return false;
        *slash = '\0';
    }
    return true;
}

bool bt_beside_find(const char *name, int access_mode, char *ret_path, size_t capacity) {
    static const struct {
        uint32_t n_up;
        const char *below;
    } places[] = {{1, "/"}, {2, "/lib/burthen/"}, {3, "/bin/"}, {2, "/"}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (!own_path(places[i].n_up, ret_path, capacity)) continue;
        size_t n = strlen(ret_path);
        int written = snprintf(ret_path + n, capacity - n, "%s%s", places[i].below, name);
        if (written > 0 && (size_t)written < capacity - n && is_file(ret_path, access_mode)) return true;
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
