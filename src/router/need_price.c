/* SPDX-License-Identifier: MIT
 *
 * need_price.c: a server's command line priced for admission.
 *
 *   the line as it is typed, on pools without end   -> bytes of each pool: what a start takes at its peak
 *   the guard's decision against what could be had  -> decision, code, words
 *   the least that a remedy leaves                  -> can_shrink, least_bytes
 *
 * The formulas are those of `exec` (docs/prices.md). Three things are otherwise, since a router promises that the sum
 * of what its servers hold stays under a budget, where `exec` only asks whether one will start:
 *   - weights in the page cache count, as they do in RSS; and while a mapped file is loaded all of it is there, with
 *     its header and the blocks that go on to devices (MAP_POPULATE of llama-mmap.cpp);
 *   - a context that nobody set is the trained one, of each slot that has its own (common/fit.cpp with enough memory);
 *     the guard takes the least that the program may shrink it to;
 *   - layers that nobody set (-ngl) are all on devices, if there are any.
 *
 * The least of a model that stands on the host alone and is started by the router itself is that of the memory device
 * (guard/drop_in.h): its weights stream. Else it is the guard's (guard/least.c): only what `exec` would do by itself.
 */
#include "router/need_find.h"

#include "base/beside.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"
#include "guard/drop_in.h"
#include "guard/price.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PLUGIN_NAME     "libggml-burthen.so"
#define ARENA_MAX_BYTES (256u << 20) /* as BT_PLANNING_ARENA_BYTES: units of a large model, and the search's tables */
#define ARENA_BLOCK     (64u << 10)

/* ---- the pools as a machine ---- */

static void put_pool(const bt_need_ask *ask, uint32_t i, bt_machine *machine) {
    bt_pool *pool = &machine->pools[machine->n_pools++];
    bool known = ask->free_bytes[i].known;
    (void)snprintf(pool->name, sizeof pool->name, "%s", ask->pools[i]);
    pool->kind = i == 0 ? BT_POOL_HOST : strncmp(pool->name, "RPC", 3) == 0 ? BT_POOL_RPC : BT_POOL_GPU;
    pool->state = known ? BT_READING_REPORTED : BT_READING_UNLIMITED;
    pool->free_bytes = pool->total_bytes = known ? ask->free_bytes[i].value : 0;
}

/* The host is what may be had of it, to the byte: a budget, and no reading of which something is left to others. */
static void put_machine(const bt_need_ask *ask, bt_machine *machine, bt_judge *judge) {
    for (uint32_t i = 0; i < ask->n_pools && i < BT_POOL_MAX; i++)
        put_pool(ask, i, machine);
    if (machine->n_pools == 0) return;
    machine->pools[0].state = BT_READING_FAILED;
    judge->settings.host_bytes = ask->free_bytes[0];
}

/* ---- the price ---- */

/* Of the pools of the ask, by name. */
static void put_bytes(const bt_need_ask *ask, const bt_guard_prices *prices, const bt_guard_price *price,
                      uint64_t *ret_bytes) {
    ret_bytes[0] = bt_sat_add_u64(price->host.total_bytes, bt_guard_loading_bytes(prices, price));
    for (uint32_t p = 1; p < ask->n_pools && p < BT_POOL_MAX; p++) {
        ret_bytes[p] = 0;
        for (uint32_t i = 0; i < price->n_devices; i++)
            if (strcmp(price->devices[i].name, ask->pools[p]) == 0) ret_bytes[p] = price->devices[i].total_bytes;
    }
}

/* What may be surprising of a price: that most of it is there for prompts to come. */
static void say_kept(const bt_guard_price *price, bt_need *ret) {
    uint64_t kept = bt_sat_add_u64(price->host.bytes[BT_GUARD_PROMPT_CACHE], price->host.bytes[BT_GUARD_CHECKPOINTS]);
    if (kept <= price->host.total_bytes / 2) return;
    (void)snprintf(ret->reason, sizeof ret->reason,
                   "%s of it is what the server may keep of former prompts (--cache-ram %s, --ctx-checkpoints %s)",
                   BT_SIZE(kept), BT_SIZE(price->host.bytes[BT_GUARD_PROMPT_CACHE]),
                   BT_SIZE(price->host.bytes[BT_GUARD_CHECKPOINTS]));
}

static void price_typed(const bt_need_ask *ask, const bt_guard_prices *prices, bt_guard_price *ret_price,
                        bt_need *ret) {
    bt_placement at;
    bt_guard_placement(prices, &at);
    at.n_ctx = bt_guard_open_ctx(prices);
    bt_guard_prices_at(prices, &at, ret_price);
    put_bytes(ask, prices, ret_price, ret->bytes);
    ret->host_firm_bytes = ret_price->host_firm_bytes;
    ret->how = BT_NEED_PRICED;
    say_kept(ret_price, ret);
}

/* ---- the least ---- */

/* Draft and projector are held beside the device, in full. */
static uint64_t companion_bytes(const bt_guard_price *price) {
    static const bt_guard_line lines[] = {BT_GUARD_DRAFT_WEIGHTS, BT_GUARD_DRAFT_KV, BT_GUARD_DRAFT_COMPUTE,
                                          BT_GUARD_MMPROJ_WEIGHTS, BT_GUARD_MMPROJ_ENCODE};
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        sum = bt_sat_add_u64(sum, price->host.bytes[lines[i]]);
    return sum;
}

/* Whether the router may start it with the memory device: its own line, of llama-server, that puts nothing on other
 * devices, and the device's library is there. Whether the server takes it, `exec` asks before it starts it. */
static bool may_stream(const bt_need_ask *ask, const bt_judge *judge, const bt_guard_price *price) {
    char path[PATH_MAX];
    const bt_effective *e = &judge->effective;
    bool on_host = price->device_bytes == 0 || e->gpu_layers.value == 0;
    return ask->model->model && ask->model->ram == BT_CONFIG_RAM_AUTO && e->program == BT_PROGRAM_SERVER && on_host &&
           !judge->command.container && !judge->command.forks && bt_beside_find(PLUGIN_NAME, R_OK, path, sizeof path);
}

/* false: no budget can hold it, or not with less than it takes without. */
static bool least_streamed(const bt_judge *judge, const bt_guard_price *price, bt_need *ret) {
    bt_error err = {0};
    uint64_t least = 0;
    bt_arena *arena = bt_arena_open(ARENA_MAX_BYTES, ARENA_BLOCK);
    bool found = arena && bt_drop_in_least_bytes(&judge->effective, judge->facts, bt_judge_adapter_bytes(judge), arena,
                                                 &least, &err) == BT_OK;
    bt_arena_close(arena);
    least = bt_sat_add_u64(least, companion_bytes(price));
    if (!found || least >= ret->bytes[0]) return false;
    ret->can_shrink = ret->by_budget = true;
    ret->least_bytes[0] = least;
    return true;
}

static void find_least(const bt_need_ask *ask, const bt_judge *judge, const bt_guard_ask *guard,
                       const bt_guard_prices *prices, const bt_guard_price *typed, bt_need *ret) {
    bt_placement least;
    bt_guard_price price;
    memcpy(ret->least_bytes, ret->bytes, sizeof ret->least_bytes);
    if (may_stream(ask, judge, typed) && least_streamed(judge, typed, ret)) return;
    if (!bt_guard_least(guard, prices, &least)) return;
    bt_guard_prices_at(prices, &least, &price);
    put_bytes(ask, prices, &price, ret->least_bytes);
    ret->can_shrink = true;
}

/* ---- both, and the decision ---- */

static bt_status decide(bt_judge *judge, const bt_machine *machine, bt_need *ret, bt_error *err) {
    bt_guard_decision decision;
    BT_TRY(bt_judge_decide(judge, machine, &decision, err));
    (void)snprintf(ret->decision, sizeof ret->decision, "%s", bt_guard_kind_name(decision.kind));
    (void)snprintf(ret->code, sizeof ret->code, "%s", decision.code);
    (void)snprintf(ret->words, sizeof ret->words, "%s", decision.reason);
    return BT_OK;
}

static bt_status price(const bt_need_ask *ask, bt_judge *judge, bt_arena *arena, bt_need *ret, bt_error *err) {
    const bt_guard_ask guard = bt_judge_ask(judge, arena);
    const bt_guard_prices *prices = NULL;
    const char *reason = NULL;
    bt_guard_price typed;
    BT_TRY(bt_guard_prices_make(&guard.price, &prices, &reason, err));
    if (reason) {
        (void)snprintf(ret->reason, sizeof ret->reason, "%s", reason);
        return BT_OK;
    }
    price_typed(ask, prices, &typed, ret);
    find_least(ask, judge, &guard, prices, &typed, ret);
    return BT_OK;
}

bt_status bt_need_price(const bt_need_ask *ask, bt_judge *judge, bt_need *ret, bt_error *err) {
    bt_machine *machine = bt_heap_alloc(sizeof *machine); /* too large for the stack */
    bt_arena *arena = bt_arena_open(ARENA_MAX_BYTES, ARENA_BLOCK);
    bt_status status = BT_OK;
    if (machine && arena) {
        put_machine(ask, machine, judge);
        status = decide(judge, machine, ret, err);
        if (status == BT_OK) status = price(ask, judge, arena, ret, err);
    } else {
        status = bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to price a command");
    }
    bt_arena_close(arena);
    bt_heap_free(machine);
    return status;
}
