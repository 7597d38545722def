/* SPDX-License-Identifier: MIT
 * child_group.h: the processes of a process group: what lives of it, and what memory they have. */
#pragma once

#include "router/child.h"

bool bt_group_is_gone(pid_t group); /* nobody is in it but the dead that nobody has taken */
void bt_group_memory_read(pid_t group, bt_child_memory *ret);
