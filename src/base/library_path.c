/* SPDX-License-Identifier: MIT
 *
 * library_path.c: programs of llama.cpp's find their libraries by DT_RUNPATH, which comes after LD_LIBRARY_PATH: an
 * empty entry there, seldom meant, lets a server that we start take its libraries from the folder it was started in.
 * Our own are found by DT_RPATH (cmake/run_path.cmake). */
#include "base/library_path.h"

#include "base/error.h"
#include "base/heap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NAME "LD_LIBRARY_PATH"

/* ld.so(8): entries end at a colon or a semicolon. */
static bool is_end(char c) {
    return c == ':' || c == ';';
}

static void copy_entries(const char *from, char *to) {
    for (; *from; from++) {
        bool ends_empty = is_end(*from) && (is_end(from[1]) || from[1] == '\0');
        if (!ends_empty) *to++ = *from;
    }
    *to = '\0';
}

bt_status bt_library_path_clean(bt_error *err) {
    const char *path = getenv(NAME);
    if (!path) return BT_OK;
    char *clean = bt_heap_alloc(strlen(path) + 1);
    if (!clean) return bt_fail_sys(err, ENOMEM, "heap", "no memory for " NAME);
    copy_entries(path + strspn(path, ":;"), clean);
    int rc = strcmp(clean, path) == 0 ? 0 : clean[0] ? setenv(NAME, clean, 1) : unsetenv(NAME);
    int sys = errno;
    bt_heap_free(clean);
    return rc == 0 ? BT_OK : bt_fail_sys(err, sys, "heap", "cannot change " NAME);
}
