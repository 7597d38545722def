/* SPDX-License-Identifier: MIT
 *
 * experts.c: what is left of a budget becomes slots for experts (docs/design.md P6).
 *
 *     budget   [ other lines | two slots | pins ................... | more slots ............. | rest ]
 *
 * What every token reads is pinned first: a byte of it saves a byte a token, a byte of a slot saves it only when the
 * router comes back to that expert. What is left then goes to the blocks, equally many slots to each, since each routes
 * for itself, and the rest to the first ones. A block with fewer slots than a token uses experts would keep nothing
 * from one token to the next; below that all blocks share what slots there are, and every expert is read when it is
 * used. Of what a token uses, the share that has slots is taken to be there: routers of many experts use them nearly
 * evenly (research notes, seed 3, section 10), and what is used again soon makes it better. */
#include "base/size.h"
#include "plan/search.h"

static uint64_t sum(const uint64_t *bytes, uint32_t n) {
    uint64_t all = 0;
    for (uint32_t i = 0; i < n; i++)
        all = bt_sat_add_u64(all, bytes[i]);
    return all;
}

/* With its page tables, what a number of bytes more costs. */
static uint64_t with_tables(uint64_t bytes, uint32_t divisor) {
    return divisor > 0 && bytes > 0 ? bt_sat_add_u64(bytes, bytes / divisor + 1) : bytes;
}

static uint64_t largest(const bt_problem *problem) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < problem->n_expert_blocks; i++)
        most = bt_max_u64(most, problem->expert_slot_bytes[i]);
    return most;
}

/* What slots take beyond what the costs hold. */
static uint64_t beyond_least(const bt_problem *problem, uint64_t bytes) {
    return bt_sat_sub_u64(bytes, bt_sat_mul_u64(largest(problem), BT_EXPERT_SLOTS_MIN));
}

uint64_t bt_experts_most_bytes(const bt_problem *problem, uint32_t page_table_divisor) {
    uint64_t each = sum(problem->expert_slot_bytes, problem->n_expert_blocks);
    return with_tables(beyond_least(problem, bt_sat_mul_u64(each, problem->n_expert)), page_table_divisor);
}

static bool fits(const bt_problem *problem, uint32_t divisor, uint64_t bytes, uint64_t room) {
    return with_tables(beyond_least(problem, bytes), divisor) <= room;
}

/* Slots of each block's own; returns their bytes, 0 when there are fewer than a token uses. */
static uint64_t give_each(const bt_problem *problem, uint32_t divisor, uint64_t room, bt_plan *plan) {
    uint64_t each = sum(problem->expert_slot_bytes, problem->n_expert_blocks);
    uint64_t n_least = bt_max_u64(problem->n_expert_used, BT_EXPERT_SLOTS_MIN);
    uint64_t bytes = bt_sat_mul_u64(each, n_least);
    if (!fits(problem, divisor, bytes, room)) return 0;
    plan->n_expert_slots = (uint32_t)n_least;
    while (plan->n_expert_slots < problem->n_expert && fits(problem, divisor, bt_sat_add_u64(bytes, each), room)) {
        bytes += each;
        plan->n_expert_slots++;
    }
    for (uint32_t i = 0; i < problem->n_expert_blocks && plan->n_expert_slots < problem->n_expert; i++) {
        uint64_t next = bt_sat_add_u64(bytes, problem->expert_slot_bytes[i]);
        if (!fits(problem, divisor, next, room)) break;
        bytes = next;
        plan->n_expert_extra++;
    }
    return bytes;
}

/* Slots that all blocks share, as many as a token uses of one. */
static uint64_t give_all(const bt_problem *problem, uint32_t divisor, uint64_t room, bt_plan *plan) {
    uint64_t slot = largest(problem);
    plan->experts_shared = true;
    plan->n_expert_slots = BT_EXPERT_SLOTS_MIN;
    while (plan->n_expert_slots < problem->n_expert_used &&
           fits(problem, divisor, bt_sat_mul_u64(slot, UINT64_C(1) + plan->n_expert_slots), room))
        plan->n_expert_slots++;
    return bt_sat_mul_u64(slot, plan->n_expert_slots);
}

uint64_t bt_experts_read_bytes(const bt_problem *problem, uint32_t n_slots, uint32_t n_extra) {
    uint64_t all = 0;
    for (uint32_t i = 0; i < problem->n_expert_blocks; i++) {
        uint64_t n_missing = problem->n_expert - n_slots - (i < n_extra);
        uint64_t used = bt_sat_mul_u64(problem->expert_read_bytes[i], problem->n_expert_used);
        all = bt_sat_add_u64(all, bt_mul_div_u64(used, n_missing, problem->n_expert));
    }
    return all;
}

void bt_experts_spend(const bt_problem *problem, uint32_t page_table_divisor, bt_plan *plan) {
    if (problem->n_expert_blocks == 0) return;
    uint64_t room = plan->verdict == BT_REFUSED ? 0 : bt_sat_sub_u64(plan->budget_bytes, plan->planned_bytes);
    if (plan->budget_bytes == UINT64_MAX) room = UINT64_MAX;
    uint64_t bytes = give_each(problem, page_table_divisor, room, plan);
    if (bytes == 0) bytes = give_all(problem, page_table_divisor, room, plan);
    uint64_t more = beyond_least(problem, bytes);
    uint64_t tables = bt_sat_sub_u64(with_tables(more, page_table_divisor), more);
    plan->ledger.bytes[BT_LINE_EXPERTS] = bt_sat_add_u64(plan->ledger.bytes[BT_LINE_EXPERTS], more);
    plan->ledger.bytes[BT_LINE_PAGETABLES] = bt_sat_add_u64(plan->ledger.bytes[BT_LINE_PAGETABLES], tables);
    plan->planned_bytes = bt_ledger_sum(&plan->ledger);
    uint32_t n_kept = plan->experts_shared ? 0 : plan->n_expert_slots;
    plan->read_bytes_per_pass =
        bt_sat_add_u64(plan->read_bytes_per_pass, bt_experts_read_bytes(problem, n_kept, plan->n_expert_extra));
    if (n_kept < problem->n_expert && plan->verdict == BT_FITS) plan->verdict = BT_STREAMS;
}

bt_known bt_experts_reuse_forecast(const bt_problem *problem, const bt_plan *plan, uint64_t weight_bytes_per_pass) {
    bool keeps_some = problem->n_expert_blocks > 0 && !plan->experts_shared && plan->n_expert_slots < problem->n_expert;
    if (!keeps_some) return (bt_known){0};
    uint64_t read = bt_experts_read_bytes(problem, plan->n_expert_slots, plan->n_expert_extra);
    uint64_t saved = bt_mul_div_u64(read, BT_EXPERT_REUSE_PERCENT, 100);
    return bt_forecast_make(problem, bt_sat_sub_u64(plan->read_bytes_per_pass, saved), weight_bytes_per_pass,
                            plan->n_slots)
        .micro_tokens_per_s;
}
