/* SPDX-License-Identifier: MIT
 *
 * host.c: the two questions that need no facts of a model: resident or streamed, and how much for derived copies.
 *
 * They answer an unknown reading in opposite ways, on purpose. Streaming that was not needed costs speed for the whole
 * run, so unknown means resident; copies kept on a wrong guess grow without bound, so unknown means none. Headroom
 * comes off before anything is compared, and equality fits. Neither refuses: that takes a ledger (ram.c). */
#include "base/size.h"
#include "plan/plan.h"

/* Derived copies may take this part of what is left: they coexist with their source (docs/design.md P8). */
#define DERIVED_SHARE 4u

bt_host_plan bt_plan_host(uint64_t weight_bytes, bt_known available, uint64_t headroom_bytes, uint64_t floor_bytes) {
    if (!available.known) return (bt_host_plan){.stream = false, .cache_bytes = 0};
    uint64_t usable = bt_sat_sub_u64(available.value, headroom_bytes);
    if (weight_bytes <= usable) return (bt_host_plan){.stream = false, .cache_bytes = 0};
    return (bt_host_plan){.stream = true, .cache_bytes = bt_max_u64(usable, floor_bytes)};
}

uint64_t bt_plan_derived_bytes(bt_known available, uint64_t headroom_bytes, uint64_t committed_bytes) {
    if (!available.known) return 0;
    return bt_sat_sub_u64(bt_sat_sub_u64(available.value, headroom_bytes), committed_bytes) / DERIVED_SHARE;
}
