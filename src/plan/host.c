/* SPDX-License-Identifier: MIT
 *
 * host.c: questions that need no facts of a model: resident or streamed, how much for derived copies, and whether the
 * page cache may serve what streams.
 *
 * They answer an unknown reading in opposite ways, on purpose. Streaming that was not needed costs speed for the whole
 * run, so unknown means resident; copies kept on a wrong guess grow without bound, so unknown means none. Headroom
 * comes off before anything is compared, and equality fits. Neither refuses: that takes a ledger (ram.c). */
#include "base/size.h"
#include "plan/plan.h"

/* What the page cache takes of the free memory leaves this part to everybody else: it is given back when it is wanted,
 * but not before something was reclaimed for it. */
#define CACHE_LEAVES 4u

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

static bool is_limited(const bt_machine *machine) {
    if (machine->cgroup_reason[0]) return true; /* nobody can say */
    for (uint32_t i = 0; i < machine->n_cgroup_levels && i < BT_CGROUP_LEVEL_MAX; i++)
        if (machine->cgroup[i].limit.known) return true;
    return false;
}

bool bt_plan_has_page_cache(const bt_plan *plan, const bt_machine *machine) {
    const bt_pool *host = &machine->pools[0];
    if (plan->verdict == BT_REFUSED || plan->read_bytes_per_pass == 0 || plan->wishes.io == BT_IO_DIRECT) return false;
    if (machine->n_pools == 0 || host->state != BT_READING_REPORTED || is_limited(machine)) return false;
    uint64_t room = bt_sat_sub_u64(host->free_bytes - host->free_bytes / CACHE_LEAVES, machine->untouched_bytes);
    return bt_sat_add_u64(plan->planned_bytes, plan->read_bytes_per_pass) <= room;
}
