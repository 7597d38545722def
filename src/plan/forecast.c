/* SPDX-License-Identifier: MIT
 *
 * forecast.c: tokens per second of a placement, from three rates (docs/design.md P4).
 *
 * With two slots reading and computing overlap and the slower of them sets the pace; with one slot they take turns and
 * add up. Computing a token touches every weight once, so when no time was measured the memory bandwidth bounds it. A
 * rate that is missing and needed leaves the forecast unknown. Integers only: the search may rank by it. */
#include "base/size.h"
#include "plan/search.h"

#define NS_PER_S UINT64_C(1000000000)

bool bt_forecast_ns(const bt_problem *problem, uint64_t read_bytes_per_pass, uint64_t weight_bytes_per_pass,
                    uint32_t n_slots, uint64_t *ret_ns, bt_bound *ret_bound) {
    uint64_t disk_ns = 0;
    if (read_bytes_per_pass > 0) {
        if (!problem->disk_bytes_per_s.known || problem->disk_bytes_per_s.value == 0) return false;
        disk_ns = bt_mul_div_u64(read_bytes_per_pass, NS_PER_S, problem->disk_bytes_per_s.value);
    }
    bt_bound bound = BT_BOUND_COMPUTE;
    uint64_t compute_ns = problem->compute_ns_per_pass.value;
    if (!problem->compute_ns_per_pass.known) {
        if (!problem->memory_bytes_per_s.known || problem->memory_bytes_per_s.value == 0) return false;
        compute_ns = bt_mul_div_u64(weight_bytes_per_pass, NS_PER_S, problem->memory_bytes_per_s.value);
        bound = BT_BOUND_MEMORY;
    }
    if (disk_ns > compute_ns) bound = BT_BOUND_DISK;
    *ret_bound = bound;
    *ret_ns = n_slots == 1 ? bt_sat_add_u64(disk_ns, compute_ns) : bt_max_u64(disk_ns, compute_ns);
    return true;
}

bt_forecast bt_forecast_make(const bt_problem *problem, uint64_t read_bytes_per_pass, uint64_t weight_bytes_per_pass,
                             uint32_t n_slots) {
    bt_forecast forecast = {0};
    uint64_t ns = 0;
    if (!bt_forecast_ns(problem, read_bytes_per_pass, weight_bytes_per_pass, n_slots, &ns, &forecast.bound) || ns == 0)
        return forecast;
    forecast.micro_tokens_per_s = (bt_known){true, bt_mul_div_u64(NS_PER_S, 1000000, ns)};
    return forecast;
}
