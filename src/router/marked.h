/* SPDX-License-Identifier: MIT
 * marked.h: the processes that carry a mark in their environment. */
#pragma once

#include "router/reaper.h"

/* Whether the environment that a process was started with has it; false where that cannot be read. */
bool bt_marked_carries(pid_t pid, const char *mark);
bool bt_mark_is_valid(const char *mark); /* 32 digits of hexadecimal */
