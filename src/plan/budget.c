/* SPDX-License-Identifier: MIT
 *
 * budget.c: how many bytes of the host pool a run may use, and which of the machine's figures decided it.
 *
 * A budget that was asked for is a promise about ourselves, so free memory does not cut it down; a limit that the
 * system enforces (a memory cgroup anywhere up the chain, an rlimit) does, because beyond it the promise is broken for
 * us. What other budgets were promised and have not touched yet (probe/reservations.c) is not available, and not left
 * in a cgroup; an asked budget is cut by it only there, since on the open host the kernel enforces nothing and the
 * user may know better: then it is said (docs/decisions/008). `auto` takes what is available and leaves a reserve. What
 * cannot be read never becomes a number: with nothing readable `auto` is unlimited and says so (docs/design.md P1, C5).
 * A chain level leaves its limit less what it holds and cannot drop: clean file cache is reclaimed before anything is
 * killed. */
#include "base/size.h"
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

/* Reserve of `auto`: the larger of 512 MiB and a twentieth of what is available (docs/design.md P1). */
#define RESERVE_MIN_BYTES (UINT64_C(512) << 20)
#define RESERVE_DIVISOR   20u

#define CAP_TEXT  160
#define PATH_TEXT 104 /* of a group's path, its end: "cgroup v2 ... " and the 39 of limit_file fit beside it */

typedef struct cap {
    bt_known bytes;
    char source[CAP_TEXT];
} cap;

static void cap_lower(cap *c, uint64_t bytes, const char *what, const char *which) {
    if (c->bytes.known && c->bytes.value <= bytes) return;
    c->bytes = (bt_known){true, bytes};
    (void)snprintf(c->source, sizeof c->source, "%s%s%.140s", what, *which ? " " : "", which);
}

/* "cgroup v2 /a/b memory.max": the file that a person would look at. A machine read from a file may name none. */
static void level_source(const bt_machine *machine, const bt_cgroup_level *level, char source[CAP_TEXT]) {
    const char *file = level->limit_file;
    if (!*file) file = machine->cgroup_version == 1 ? "memory.limit_in_bytes" : "memory.max";
    size_t n = strnlen(level->path, sizeof level->path);
    const char *tail = n > PATH_TEXT ? level->path + n - PATH_TEXT : level->path;
    while (((unsigned char)*tail & 0xC0) == 0x80)
        tail++; /* not inside a character */
    (void)snprintf(source, CAP_TEXT, "cgroup v%u %s%.104s %.39s", machine->cgroup_version, n > PATH_TEXT ? "..." : "",
                   tail, file);
}

/* What the system enforces: the cgroup chain and the pool's own limit. */
static void limits_apply(const bt_machine *machine, cap *c) {
    uint32_t n = machine->n_cgroup_levels < BT_CGROUP_LEVEL_MAX ? machine->n_cgroup_levels : BT_CGROUP_LEVEL_MAX;
    for (uint32_t i = 0; i < n; i++) {
        const bt_cgroup_level *level = &machine->cgroup[i];
        if (!level->limit.known) continue;
        uint64_t held = bt_sat_sub_u64(level->usage_bytes, level->reclaimable_bytes);
        held = bt_sat_add_u64(held, level->promised_bytes);
        char source[CAP_TEXT];
        level_source(machine, level, source);
        cap_lower(c, bt_sat_sub_u64(level->limit.value, held), source, "");
    }
    if (machine->n_pools == 0 || !machine->pools[0].limit.known) return;
    cap_lower(c, machine->pools[0].limit.value, "limit", machine->pools[0].limit_source);
}

static bt_budget budget_off(void) {
    return (bt_budget){.bytes = UINT64_MAX, .state = BT_READING_UNLIMITED, .source = "no budget (asked)"};
}

/* What the host has free and nobody was promised. */
static bt_known host_left(const bt_machine *machine) {
    if (machine->n_pools == 0 || machine->pools[0].state != BT_READING_REPORTED) return (bt_known){0};
    return (bt_known){true, bt_sat_sub_u64(machine->pools[0].free_bytes, machine->untouched_bytes)};
}

static bt_budget budget_asked(const bt_machine *machine, uint64_t asked_bytes) {
    bt_budget budget = {.bytes = asked_bytes, .state = BT_READING_REPORTED, .source = "asked"};
    bt_known left = host_left(machine);
    if (machine->untouched_bytes > 0 && left.known && left.value < asked_bytes) {
        (void)snprintf(budget.source, sizeof budget.source, "asked; other budgets leave only %s of the host",
                       BT_SIZE(left.value));
    }
    cap enforced = {0};
    limits_apply(machine, &enforced);
    if (!enforced.bytes.known || enforced.bytes.value >= asked_bytes) return budget;
    budget.bytes = enforced.bytes.value;
    (void)snprintf(budget.source, sizeof budget.source, "%s (asked %.12s)", enforced.source, BT_SIZE(asked_bytes));
    return budget;
}

static bt_budget budget_auto(const bt_machine *machine) {
    bt_budget budget = {.bytes = UINT64_MAX, .state = BT_READING_UNLIMITED};
    cap available = {0};
    bt_known left = host_left(machine);
    if (left.known)
        cap_lower(&available, left.value, "available memory",
                  machine->untouched_bytes > 0 ? "beside other budgets" : "");
    limits_apply(machine, &available);
    if (!available.bytes.known) {
        const char *why = machine->n_pools > 0 ? machine->pools[0].reason : "";
        (void)snprintf(budget.source, sizeof budget.source, "auto: available memory is unknown%s%.120s",
                       *why ? ": " : "", why);
        return budget;
    }
    uint64_t reserve = bt_max_u64(RESERVE_MIN_BYTES, available.bytes.value / RESERVE_DIVISOR);
    budget.bytes = bt_sat_sub_u64(available.bytes.value, reserve);
    budget.state = BT_READING_REPORTED;
    (void)snprintf(budget.source, sizeof budget.source, "auto: %s less %.12s", available.source, BT_SIZE(reserve));
    if (machine->cgroup_reason[0]) {
        (void)snprintf(budget.source, sizeof budget.source, "auto: %.100s less %.12s; a cgroup's limit is not known",
                       available.source, BT_SIZE(reserve));
    }
    return budget;
}

bt_budget bt_budget_resolve(const bt_machine *machine, const bt_wishes *wishes) {
    switch (wishes->budget_kind) {
    case BT_BUDGET_OFF:
        return budget_off();
    case BT_BUDGET_BYTES:
        return budget_asked(machine, wishes->budget_bytes);
    case BT_BUDGET_AUTO:
        break;
    }
    return budget_auto(machine);
}
