/* SPDX-License-Identifier: MIT
 *
 * device_budget.c: how many bytes of a device beyond the host a plan may use.
 *
 * What the user said holds on any reading. Of what a device reports, three quarters are used: the rest is for what no
 * plan of ours sees, the driver's context and kernels' scratch (research notes, seed 1, M2). A reading that failed is
 * not a device without memory: nothing is bounded then, the device's own allocator decides, and the note has the error
 * (docs/design.md C5). A device that is full is one: its budget of 0 refuses everything. */
#include "plan/plan.h"

#include <stdio.h>

/* research notes, seed 1, M2: divided first, which cannot overflow and loses at most 3 bytes */
#define SHARE_OF    4u
#define SHARE_PARTS 3u

bt_device_budget bt_device_budget_resolve(bt_known asked_bytes, const bt_pool *reading) {
    bt_device_budget budget = {.state = reading->state};
    if (asked_bytes.known) {
        budget.state = BT_READING_REPORTED;
        budget.bytes = asked_bytes.value;
        return budget;
    }
    switch (reading->state) {
    case BT_READING_ABSENT:
        break;
    case BT_READING_REPORTED:
        budget.bytes = reading->free_bytes / SHARE_OF * SHARE_PARTS;
        break;
    case BT_READING_FAILED:
        (void)snprintf(budget.note, sizeof budget.note,
                       "memory of %.31s is unmeasured, its own allocator decides: %.159s", reading->name,
                       reading->reason);
        budget.bytes = UINT64_MAX;
        break;
    case BT_READING_UNLIMITED:
        budget.bytes = UINT64_MAX;
        break;
    }
    return budget;
}
