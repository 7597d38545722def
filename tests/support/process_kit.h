/* SPDX-License-Identifier: MIT
 * process_kit.h: processes as a test sees them from outside. */
#pragma once

#include "base/os.h"

#include <stdio.h>
#include <string.h>
#include <sys/types.h>

/* Dead, or a zombie, of ours or of somebody else. */
static bool is_gone(pid_t pid) {
    char path[64];
    char text[256] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = bt_os_open(path, false);
    if (fd < 0) return true;
    (void)bt_os_pread(fd, text, sizeof text - 1, 0);
    (void)bt_os_close(fd);
    const char *state = strrchr(text, ')');
    return !state || state[2] == 'Z' || state[2] == 'X';
}
