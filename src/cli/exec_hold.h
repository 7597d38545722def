/* SPDX-License-Identifier: MIT
 * exec_hold.h: a memory cgroup for the command, entered just before it takes this process's place. */
#pragma once

#include "probe/leaf.h"

/* Zero-initialised. */
typedef struct bt_exec_hold {
    bt_leaf leaf;
    bool held; /* by the leaf */
} bt_exec_hold;

/* Leaves that others left behind are swept first. false: it cannot be held, and why says so; nothing has changed. */
bool bt_exec_hold_enter(bt_exec_hold *hold, uint64_t limit_bytes, bt_error *why);
/* The command could not be started. */
void bt_exec_hold_leave(bt_exec_hold *hold);
