/* SPDX-License-Identifier: MIT
 *
 * refusal.c: why a plan is refused, in numbers, and which single change of the wishes would make it run.
 *
 * Nothing is suggested that was not planned: a change is made to a copy of the ask, the search is run on it, and only
 * what fits is listed, of several values of one flag the mildest. Changes that have prices of their own (KV types,
 * sequences, micro-batch) are the problem's alternatives. What was left open is no suggestion: the search has tried it.
 */
#include "base/size.h"
#include "plan/search.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

static void change_add(bt_refusal *refusal, const char *flag, const char *value, uint64_t need_bytes) {
    if (refusal->n_changes == BT_CHANGE_MAX) return;
    bt_change *change = &refusal->changes[refusal->n_changes++];
    (void)snprintf(change->flag, sizeof change->flag, "%s", flag);
    (void)snprintf(change->value, sizeof change->value, "%s", value);
    change->need_bytes = need_bytes;
}

static void change_add_number(bt_refusal *refusal, const char *flag, uint64_t number, const char *unit,
                              uint64_t need_bytes) {
    char value[24];
    (void)snprintf(value, sizeof value, "%" PRIu64 "%s", number, unit);
    change_add(refusal, flag, value, need_bytes);
}

/* The ask with its explicit context opened to the lowest. */
static bt_ask ask_any_ctx(const bt_search *search, const bt_ask *ask) {
    bt_ask any = *ask;
    const bt_costs *costs = &search->costs[ask->first_cost];
    any.n_ctx_step = costs->ctx_step;
    any.n_ctx_min = costs->ctx_min;
    return any;
}

static bool ctx_change(const bt_search *search, const bt_ask *ask, bt_refusal *refusal) {
    if (ask->n_ctx_step != 0) return false;
    bt_ask any = ask_any_ctx(search, ask);
    uint32_t n_ctx = 0;
    if (!bt_search_fits(search, &any, &n_ctx)) return false;
    bt_ask smaller = *ask;
    smaller.n_ctx_start = bt_ctx_round(&search->costs[ask->first_cost], n_ctx);
    change_add_number(refusal, "-c", smaller.n_ctx_start, "", bt_search_minimum(search, &smaller).need_bytes);
    return true;
}

static void head_change(const bt_search *search, const bt_ask *ask, bt_refusal *refusal) {
    if (ask->stream_head != BT_OFF) return;
    bt_ask changed = *ask;
    changed.stream_head = BT_ON;
    if (!bt_search_fits(search, &changed, NULL)) return;
    change_add(refusal, "--stream-head", "on", bt_search_minimum(search, &changed).need_bytes);
}

/* One slot less at a time: the last is the one without overlap. */
static void ring_change(const bt_search *search, const bt_ask *ask, bt_refusal *refusal) {
    bt_ask changed = *ask;
    while (ask->slots_fixed && changed.n_slots > 1) {
        changed.n_slots--;
        if (!bt_search_fits(search, &changed, NULL)) continue;
        change_add_number(refusal, "--buffers", changed.n_slots, "", bt_search_minimum(search, &changed).need_bytes);
        return;
    }
}

static bool has_flag(const bt_refusal *refusal, const char *flag) {
    for (uint32_t i = 0; i < refusal->n_changes; i++)
        if (strcmp(refusal->changes[i].flag, flag) == 0) return true;
    return false;
}

static void alternative_changes(const bt_search *search, const bt_ask *ask, bt_refusal *refusal) {
    for (uint32_t i = 0; i < search->problem->n_alternatives; i++) {
        const bt_alternative *other = &search->problem->alternatives[i];
        bt_ask changed = bt_ask_with(search, ask, other->first_cost, other->n_costs);
        if (has_flag(refusal, other->flag) || !bt_search_fits(search, &changed, NULL)) continue;
        change_add(refusal, other->flag, other->value, bt_search_minimum(search, &changed).need_bytes);
    }
}

static void message_make(const bt_search *search, const bt_ask *ask, const bt_minimum *minimum, bt_refusal *refusal) {
    char least[96] = "";
    if (ask->n_ctx_step == 0) {
        bt_ask any = ask_any_ctx(search, ask);
        bt_minimum lowest = bt_search_minimum(search, &any);
        if (lowest.n_ctx < minimum->n_ctx)
            (void)snprintf(least, sizeof least, " (%s at context %" PRIu32 ")", BT_SIZE(lowest.need_bytes),
                           bt_ctx_round(&search->costs[lowest.cost_index], lowest.n_ctx));
    }
    (void)snprintf(refusal->message, sizeof refusal->message,
                   "context %" PRIu32 " needs at least %s%s, the memory budget is %s: %s short",
                   bt_ctx_round(&search->costs[minimum->cost_index], minimum->n_ctx), BT_SIZE(minimum->need_bytes),
                   least, BT_SIZE(ask->budget_bytes), BT_SIZE(bt_sat_sub_u64(minimum->need_bytes, ask->budget_bytes)));
}

void bt_refusal_make(const bt_search *search, const bt_ask *ask, const bt_minimum *minimum, bt_refusal *ret) {
    bt_refusal refusal = {.need_bytes = minimum->need_bytes, .have_bytes = ask->budget_bytes};
    bool by_ctx = ctx_change(search, ask, &refusal);
    (void)snprintf(refusal.code, sizeof refusal.code, "%s", by_ctx ? "ctx" : "ram_budget");
    alternative_changes(search, ask, &refusal);
    head_change(search, ask, &refusal);
    ring_change(search, ask, &refusal);
    /* the minimum is exact, so whole mebibytes above it fit */
    uint64_t mib = minimum->need_bytes / MIB + (minimum->need_bytes % MIB != 0);
    bt_known limit = search->problem->budget_limit;
    if (!limit.known || bt_sat_mul_u64(mib, MIB) <= limit.value)
        change_add_number(&refusal, "--ram-budget", mib, "M", minimum->need_bytes);
    message_make(search, ask, minimum, &refusal);
    *ret = refusal;
}
