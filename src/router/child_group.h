/* SPDX-License-Identifier: MIT
 * child_group.h: the processes of a process group: what lives of it, and what memory they have. */
#pragma once

#include "router/child.h"

bool bt_group_is_gone(pid_t group); /* nobody is in it but the dead that nobody has taken */
/* Of n groups, each into its own; the system is looked through once for all of them. */
void bt_groups_memory_read(const pid_t *groups, bt_child_memory *const *ret, uint32_t n);
