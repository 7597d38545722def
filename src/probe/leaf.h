/* SPDX-License-Identifier: MIT
 * leaf.h: a memory cgroup for this process alone, below the one that it is in, with a limit. */
#pragma once

#include "burthen.h"
#include "probe/proc.h"

/* Where this process is held. */
typedef struct bt_leaf {
    uint32_t version;     /* of the cgroups, 1 or 2 */
    uint64_t limit_bytes; /* as the kernel keeps it: whole pages */
    bool swap_held;       /* it bounds swap as well; false: the kernel keeps no account of swap */
    char folder[BT_PROC_PATH_MAX];
} bt_leaf;

/* Make the group burthen-PID, give it the limit and move this process, all of its threads, into it.
 * root         what stands before /proc and /sys, "" but for tests
 * limit_bytes  of all that is charged from now on; what this process has already taken stays charged where it is
 * returns BT_OK and *ret_leaf; else everything is as it was:
 *         BT_E_UNSUPPORTED, code "leaf_place": there is no memory cgroup, or none can be made below it;
 *         BT_E_IO, BT_E_NOMEM, code "leaf": the system refused (sys: EACCES, EROFS...); code "cgroup" of cgroup.h;
 *         BT_E_ARG, BT_E_IO, code "leaf_limit": less than a page, or a limit that the system does not keep */
BT_MUST_CHECK bt_status bt_leaf_make(const char *root, uint64_t limit_bytes, bt_leaf *ret_leaf, bt_error *err);
/* Back into the group above, and remove the leaf: for a program that could not be started after all. Silent: what
 * cannot be removed is swept by another. */
void bt_leaf_leave(const char *root, const bt_leaf *leaf);
/* Remove leaves that were left behind, beside the one that this process is in or could make. Silent: what cannot be
 * removed stays. Returns how many were removed. */
uint32_t bt_leaf_sweep(const char *root);
