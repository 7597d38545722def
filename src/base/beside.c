/* SPDX-License-Identifier: MIT
 *
 * beside.c: where the files are that this program cannot do without: its helpers, and the library that others load. */
#include "base/beside.h"

#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

bool bt_beside_find(const char *name, int access_mode, char *ret_path, size_t capacity) {
    static const char *const places[] = {"/", "/../lib/burthen/", "/../"};
    ssize_t n = capacity > 0 ? readlink("/proc/self/exe", ret_path, capacity - 1) : -1;
    if (n <= 0) return false;
    ret_path[n] = '\0';
    char *slash = strrchr(ret_path, '/');
    if (!slash) return false;
    size_t left = capacity - (size_t)(slash - ret_path);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int written = snprintf(slash, left, "%s%s", places[i], name);
        if (written > 0 && (size_t)written < left && access(ret_path, access_mode) == 0) return true;
    }
    return false;
}
