/* SPDX-License-Identifier: MIT
 *
 * attribution.c: the last rung of "whose memory is it" (research notes, seed 4, B3).
 *
 *     1  the driver's list of processes, by process group (NVML; DRM fdinfo, KFD)     model_memory.c
 *     2  what more of the device is used when a child is ready than before it was started, when nobody else of ours
 *        came or went there meanwhile; kept until the child ends                       here
 *     3  unknown: the ceiling of the device is not trusted, and the budget stands      ceiling.c
 *
 * The second cannot tell a child from a game that started in the same seconds, and does not see a child grow. It is
 * used where the first says nothing, and never put together with it. */
#include "router/attribution.h"

#include "base/size.h"

void bt_attribution_begin(bt_attribution *a, bt_known used_bytes, bool alone) {
    *a = (bt_attribution){.began = true, .spoiled = !alone, .used_before_bytes = used_bytes};
}

void bt_attribution_disturb(bt_attribution *a) {
    if (!a->done) a->spoiled = true;
}

void bt_attribution_ready(bt_attribution *a, bt_known used_bytes) {
    if (!a->began || a->done) return;
    a->done = true;
    if (a->spoiled || !a->used_before_bytes.known || !used_bytes.known) return;
    uint64_t more = bt_sat_sub_u64(used_bytes.value, a->used_before_bytes.value);
    a->bytes = (bt_known){more > 0, more}; /* one that is expected there and takes nothing has not taken it yet */
}
