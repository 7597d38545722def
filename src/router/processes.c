/* SPDX-License-Identifier: MIT
 *
 * processes.c: a look at all processes. What begins and ends meanwhile may be seen or not. */
#include "router/processes.h"

#include "base/os.h"
#include "probe/proc.h"

bool bt_processes_each(bool (*what)(void *user, pid_t pid), void *user) {
    bt_os_folder *folder = bt_os_folder_open("/proc");
    if (!folder) return false;
    const char *name = NULL;
    bool on = true;
    while (on && (name = bt_os_folder_next(folder)) != NULL) {
        uint64_t number = 0;
        if (!bt_span_number(bt_span_of(name), &number) || number > INT32_MAX) continue;
        on = what(user, (pid_t)number);
    }
    bt_os_folder_close(folder);
    return true;
}
