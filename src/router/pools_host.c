/* SPDX-License-Identifier: MIT
 *
 * pools_host.c: the host's half of a sample: what models may be given, what a start gets now, and, for the watchdog,
 * what there is without any reserve and how long work has stood still for memory.
 *
 * The second pair leaves out what other budgets were promised and have not touched: our own children are among those,
 * and what is counted as taken must be there. */
#include "router/pools.h"

#include "base/heap.h"
#include "base/size.h"
#include "plan/plan.h"
#include "probe/probe.h"
#include "probe/psi.h"

#include <stdio.h>

/* The router's own line of the host. Measured: 9 to 14 MiB resident with 10 models (bench/serve.py), a copy of it that
 * reads a header with 262,000 tokens 20 MiB more; the rest is for what is on its way between servers and clients. */
#define OWN_BYTES (UINT64_C(48) << 20)
#define KIB       UINT64_C(1024)

/* RssAnon of this very process: what of it the host does not count as available. */
static uint64_t own_anon(void) {
    bt_proc_text *text = bt_heap_alloc(sizeof *text); /* 64 KiB */
    bt_span rest, word;
    uint64_t kib = 0;
    bool found = text && bt_proc_read("", "/proc/self/status", 0, text) == 0 &&
                 bt_span_find_line(text->data, "RssAnon:", &rest) && bt_span_word(&rest, &word) &&
                 bt_span_number(word, &kib);
    bt_heap_free(text);
    return found ? bt_sat_mul_u64(kib, KIB) : 0;
}

static void lower(bt_known *bytes, uint64_t other) {
    if (bytes->known) bytes->value = bt_min_u64(bytes->value, other);
}

/* A group at its limit is as full as a machine without memory. */
static void put_reach(bt_pools_one *host, const bt_machine *machine) {
    const bt_pool *pool = &machine->pools[0];
    host->whole_bytes = (bt_known){pool->state == BT_READING_REPORTED, pool->total_bytes};
    host->available_bytes = (bt_known){pool->state == BT_READING_REPORTED, pool->free_bytes};
    for (uint32_t i = 0; i < machine->n_cgroup_levels && i < BT_CGROUP_LEVEL_MAX; i++) {
        const bt_cgroup_level *level = &machine->cgroup[i];
        if (!level->limit.known) continue;
        uint64_t held = bt_sat_sub_u64(level->usage_bytes, level->reclaimable_bytes);
        lower(&host->whole_bytes, level->limit.value);
        lower(&host->available_bytes, bt_sat_sub_u64(level->limit.value, held));
    }
}

/* Without a budget `auto` leaves the system a reserve; one that was asked for is cut by what there is, and no more. */
static bt_known host_left(const bt_config *config, const bt_machine *machine) {
    bt_wishes wishes = {.budget_kind = BT_BUDGET_AUTO};
    if (config->ram_budget_given) wishes = (bt_wishes){.budget_kind = BT_BUDGET_BYTES, .budget_bytes = UINT64_MAX - 1};
    bt_budget left = bt_budget_resolve(machine, &wishes);
    if (left.state != BT_READING_REPORTED) return (bt_known){0};
    const bt_pool *pool = &machine->pools[0];
    if (pool->state == BT_READING_REPORTED) left.bytes = bt_min_u64(left.bytes, pool->free_bytes);
    return (bt_known){left.bytes < UINT64_MAX - 1, left.bytes};
}

uint64_t bt_pools_own_bytes(const bt_config *config) {
    return bt_sat_add_u64(OWN_BYTES, bt_config_bodies_bytes(config));
}

void bt_pools_read_host(bt_pools *pools, const char *root, const bt_config *config) {
    bt_pools_one *host = &pools->items[0];
    bt_machine *machine = bt_heap_alloc(sizeof *machine); /* 40 KiB */
    bt_error why = {0};
    pools->stall = (bt_known){0};
    pools->own_anon_bytes = own_anon();
    *host = (bt_pools_one){.name = "host", .state = BT_READING_FAILED, .users_complete = true};
    pools->own_bytes = bt_pools_own_bytes(config);
    if (config->ram_budget_given)
        host->limit_bytes = (bt_known){true, bt_sat_sub_u64(config->ram_budget_bytes, pools->own_bytes)};
    if (!machine || bt_machine_probe(root, machine, &why) != BT_OK) {
        (void)snprintf(host->reason, sizeof host->reason, "%.159s", machine ? why.text : "no memory to read it");
        bt_heap_free(machine);
        return;
    }
    const bt_pool *pool = &machine->pools[0];
    bt_known left = host_left(config, machine);
    host->state = pool->state;
    (void)snprintf(host->reason, sizeof host->reason, "%s", pool->reason);
    host->total_bytes = (bt_known){pool->state == BT_READING_REPORTED, pool->total_bytes};
    host->free_bytes = left;
    put_reach(host, machine);
    bt_psi psi;
    bt_psi_probe(root, &psi);
    pools->stall = psi.some_avg10;
    bt_heap_free(machine);
}
