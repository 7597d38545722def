/* SPDX-License-Identifier: MIT
 * cgroup_cores.c: the CPU quota of the cgroup chain, in cores.
 *
 * A container may be allowed on 64 cores and given the time of two: threads beyond the quota only make the group run
 * out of its period sooner and then stand still, all together. As with memory every level counts, and the tightest
 * decides. A quota of 1.5 cores is 2: two threads use it up, one could not. Unlike memory a wrong answer here costs
 * speed only, so levels that cannot be read are passed over. Bound: BT_CGROUP_LEVEL_MAX levels. Left out: cpu.weight,
 * which limits nothing while others sleep. */
#include "base/heap.h"
#include "probe/cgroup.h"

static bool whole_cores(bt_span quota, bt_span period, bt_known *ret_cores) {
    uint64_t quota_us = 0;
    uint64_t period_us = 0;
    if (!bt_span_number(period, &period_us) || period_us == 0) return false;
    if (bt_span_is(quota, "max") || bt_span_is(quota, "-1")) {
        *ret_cores = (bt_known){false, 0};
        return true;
    }
    if (!bt_span_number(quota, &quota_us)) return false;
    uint64_t n = quota_us / period_us + (quota_us % period_us != 0 ? 1 : 0);
    *ret_cores = (bt_known){true, n > 0 ? n : 1};
    return true;
}

bool bt_cgroup_cpu_max_parse(const char *text, bt_known *ret_cores) {
    bt_span rest = bt_span_of(text);
    bt_span line;
    bt_span quota;
    bt_span period;
    bt_span more;
    if (!bt_span_line(&rest, &line) || rest.n_bytes > 0) return false;
    if (!bt_span_word(&line, &quota) || !bt_span_word(&line, &period) || bt_span_word(&line, &more)) return false;
    return whole_cores(quota, period, ret_cores);
}

/* v1 keeps the two numbers in two files; joined they read like cpu.max. */
static bt_known level_cores(bt_cgroup_walk *walk) {
    bt_known cores = {0};
    if (walk->version == 2) {
        if (bt_cgroup_read(walk, "cpu.max") == 0) (void)bt_cgroup_cpu_max_parse(walk->text.data, &cores);
        return cores;
    }
    char digits[24]; /* 2^64 has 20 */
    bt_span quota;
    bt_span period;
    if (bt_cgroup_read(walk, "cpu.cfs_quota_us") < 0 || !bt_span_only_word(walk->text.data, &quota)) return cores;
    if (quota.n_bytes > sizeof digits) return cores;
    for (size_t i = 0; i < quota.n_bytes; i++)
        digits[i] = quota.at[i];
    quota.at = digits;
    if (bt_cgroup_read(walk, "cpu.cfs_period_us") < 0 || !bt_span_only_word(walk->text.data, &period)) return cores;
    (void)whole_cores(quota, period, &cores);
    return cores;
}

bt_known bt_cgroup_cores(const char *root) {
    bt_known fewest = {0};
    bt_cgroup_walk *walk = bt_heap_alloc(sizeof *walk);
    if (!walk) return fewest;
    if (bt_cgroup_find(root, "cpu", walk, NULL) == BT_OK && walk->version > 0) {
        uint32_t n_levels = 0;
        do {
            bt_known cores = level_cores(walk);
            if (cores.known && (!fewest.known || cores.value < fewest.value)) fewest = cores;
        } while (++n_levels < BT_CGROUP_LEVEL_MAX && bt_cgroup_climb(walk));
    }
    bt_heap_free(walk);
    return fewest;
}
