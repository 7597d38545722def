/* SPDX-License-Identifier: MIT
 *
 * exec_hold.c: the kernel's own limit on a command (probe/leaf.h).
 *
 *     group of this process  ->  burthen-PID in it, limited, entered  ->  the command, its threads and children
 *
 * It counts all that the command and what it starts are charged with: heap, kernel memory, and the pages of files that
 * it is the first to touch; these go first when the limit is met. Nobody removes the group when the command has ended,
 * since nobody of ours is left to do it: the next `exec` beside it sweeps (so does a router, when a child has ended).
 * Where no group can be made the command starts all the same, and that is said: a limit of the kernel's is the last of
 * several, and most systems give it to root alone. */
#include "cli/exec_hold.h"

bool bt_exec_hold_enter(bt_exec_hold *hold, uint64_t limit_bytes, bt_error *why) {
    (void)bt_leaf_sweep("");
    hold->held = bt_leaf_make("", limit_bytes, &hold->leaf, why) == BT_OK;
    return hold->held;
}

void bt_exec_hold_leave(bt_exec_hold *hold) {
    if (hold->held) bt_leaf_leave("", &hold->leaf);
    hold->held = false;
}
