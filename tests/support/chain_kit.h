/* SPDX-License-Identifier: MIT
 * chain_kit.h: what the tightest group of a machine's chain leaves, as a plan's budget finds it, without anything that
 * is not of the chain. */
#pragma once

#include "plan/plan.h"

#include <string.h>

#define CHAIN_SOURCE_BYTES sizeof((bt_budget){0}.source)

/* Unknown, and an empty source: no group has a limit. source: "cgroup v2 /a/b memory.max", the group's. */
static inline bt_known chain_left(const bt_machine *machine, char source[CHAIN_SOURCE_BYTES]) {
    static bt_machine chain;
    chain = *machine;
    chain.n_pools = 0;
    chain.untouched_bytes = 0;
    const bt_wishes wishes = {.budget_kind = BT_BUDGET_BYTES, .budget_bytes = UINT64_MAX};
    bt_budget budget = bt_budget_resolve(&chain, &wishes);
    const char *asked = strstr(budget.source, " (asked");
    size_t n = asked ? (size_t)(asked - budget.source) : 0; /* not cut, that says "asked" alone */
    memcpy(source, budget.source, n);
    source[n] = '\0';
    return (bt_known){n > 0, n > 0 ? budget.bytes : 0};
}
