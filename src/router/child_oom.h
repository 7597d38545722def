/* SPDX-License-Identifier: MIT
 * child_oom.h: whether the kernel has killed for memory in the group that a child is in. */
#pragma once

#include "burthen.h"

#include <sys/types.h>

typedef struct bt_oom_watch bt_oom_watch;

/* Of a process that was just started, in the router's own group. NULL: the system does not say, or memory is refused.
 */
bt_oom_watch *bt_oom_watch_open(pid_t pid);
/* Look again where it is, while it lives: `burthen exec` enters a group of its own. NULL is fine. */
void bt_oom_watch_look(bt_oom_watch *watch);
bool bt_oom_watch_rose(bt_oom_watch *watch); /* at its end: somebody was killed there since; NULL: false */
void bt_oom_watch_close(bt_oom_watch *watch);

/* Pure: of memory.oom_control (v1) or memory.events (v2). */
bt_known bt_oom_count_parse(const char *text);
