/* SPDX-License-Identifier: MIT
 * fault.h: one counter for every call that can fail, so that a test can make the k-th of them fail.
 *
 * Heap, files, mappings and io_uring ask bt_fault_hit() before they ask the system. In a build without BT_FAULT the
 * question is the constant false and costs nothing. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef BT_FAULT
bool bt_fault_hit(void);
/* From now on the call number k (from 0) fails; once, or it and all after it. */
void bt_fault_arm(uint64_t k, bool persistent);
/* Stop; true if a call was made to fail. */
bool bt_fault_disarm(void);
/* Calls counted since the last arm. A program of such a build arms itself, too, where its environment says so:
 * BURTHEN_FAULT=K, or K+ for it and all after it; each hit adds a line to the file that BURTHEN_FAULT_SAID names. */
uint64_t bt_fault_count(void);
#else
static inline bool bt_fault_hit(void) {
    return false;
}
#endif
