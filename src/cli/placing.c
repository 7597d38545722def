/* SPDX-License-Identifier: MIT
 * placing.c: devices first, the host with what they leave.
 *
 *   machine, wishes -> offers -> blocks by formula -> facts of the rest -> the host's plan, with a dry run
 *                                     ^                                         |
 *                                     '--- what the dry run says of devices ----'   to more once, then only to less
 *
 * The dry run opens no device: others stand in for them (engine/engine.h), so that a plan can be made for a machine
 * that is not here, and costs no memory of a card. It says what caches and graphs take; a formula, which errs upwards,
 * may have left blocks on the host that fit. What loading then really takes is checked once more (cli/running.c). */
#include "cli/placing.h"

#include "base/error.h"
#include "base/log.h"
#include "base/size.h"
#include "plan/choices.h"
#include "plan/offload.h"
#include "plan/price.h"

#include <stdio.h>
#include <string.h>

#define CTX_DEFAULT_CAP 4096u /* docs/interfaces.md: the cap of an unasked context */
#define CTX_UNTRAINED   2048u /* plan/make.c */
#define UBATCH_DEFAULT  512u  /* docs/interfaces.md */
#define TYPE_F16        1u    /* what auto takes first (plan/choices.c) */

static uint32_t largest_ctx(const bt_wishes *wishes, const bt_facts *facts) {
    uint32_t trained = facts->n_ctx_train > 0 ? facts->n_ctx_train : CTX_UNTRAINED;
    uint64_t n_ctx = wishes->n_ctx > 0 ? wishes->n_ctx : bt_min_u64(trained, CTX_DEFAULT_CAP);
    uint64_t align = (uint64_t)BT_CTX_ALIGN * bt_max_u64(wishes->n_parallel, 1);
    return (uint32_t)bt_min_u64((n_ctx + align - 1) / align * align, UINT32_MAX / align * align);
}

static bool is_whole(const bt_offload *offload) {
    return offload->split.n_devices == 0;
}

/* The split of an offload, in the place of one before it. */
static bt_status split_take(const bt_offload *offload, bt_placed *placed, bt_error *err) {
    bt_facts *split = NULL;
    if (!is_whole(offload)) BT_TRY(bt_facts_split(placed->whole, &offload->split, &split, err));
    bt_facts_close(placed->split);
    placed->split = split;
    placed->facts = split ? split : placed->whole;
    return BT_OK;
}

typedef struct chooser {
    bt_offer offers[BT_DEVICE_MAX];
    uint32_t n_offers;
    bt_wishes wishes;
    uint64_t compute_bytes[BT_DEVICE_MAX];
} chooser;

/* What was asked for and cannot be, without being an error: llama.cpp's habit of -ngl 99 is one of many scripts. */
static void warn_of_none(const bt_wishes *wishes, uint32_t n_offers) {
    bool counted =
        wishes->gpu_layers == BT_LAYERS_ALL || (wishes->gpu_layers == BT_LAYERS_COUNT && wishes->n_gpu_layers);
    if (counted && n_offers == 0 && !wishes->no_devices)
        bt_log(BT_LOG_WARN, "--gpu-layers: there is no device beside the host, so all blocks stay on it");
}

static bt_status choose(const bt_cli_options *options, const bt_machine *machine, const bt_placed *placed,
                        uint32_t n_blocks_max, bt_arena *arena, bt_offload *ret, bt_refusal *ret_refusal,
                        bt_error *err) {
    chooser *c = bt_arena_alloc(arena, sizeof *c);
    if (!c) return bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to make a plan");
    c->wishes = options->wishes;
    if (c->wishes.n_threads == 0) c->wishes.n_threads = machine->n_threads ? machine->n_threads : 1;
    if (c->wishes.type_k == BT_TYPE_AUTO) c->wishes.type_k = TYPE_F16;
    if (c->wishes.type_v == BT_TYPE_AUTO) c->wishes.type_v = TYPE_F16;
    BT_TRY(bt_offers_make(machine, &c->wishes, c->offers, &c->n_offers, err));
    warn_of_none(&c->wishes, c->n_offers);
    bool measured = false;
    for (uint32_t i = 0; placed->offload && i < placed->offload->split.n_devices; i++)
        for (uint32_t k = 0; k < c->n_offers; k++) {
            const bt_device_plan *device = &placed->offload->devices[i];
            if (device->source != BT_SOURCE_DRY_RUN || strcmp(device->name, c->offers[k].pool.name) != 0) continue;
            c->compute_bytes[k] = device->compute_bytes;
            measured = true;
        }
    const bt_offload_ask ask = {
        .facts = placed->whole,
        .wishes = &c->wishes,
        .n_ctx = largest_ctx(&c->wishes, placed->whole),
        .n_ubatch = c->wishes.n_ubatch > 0 ? c->wishes.n_ubatch : UBATCH_DEFAULT,
        .n_blocks_max = n_blocks_max,
        .offers = c->offers,
        .n_offers = c->n_offers,
        .compute_bytes = measured ? c->compute_bytes : NULL,
    };
    return bt_offload_choose(&ask, ret, ret_refusal, err);
}

bt_status bt_placing_make(const bt_cli_options *options, const bt_facts *whole, const bt_machine *machine,
                          bt_arena *arena, bt_placed *ret_placed, bt_error *err) {
    bt_placed placed = {.whole = whole, .facts = whole};
    placed.offload = bt_arena_alloc(arena, sizeof *placed.offload);
    if (!placed.offload) return bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to make a plan");
    if (!whole->encoder) /* whose blocks have no cache to go with them: left to the host */
        BT_TRY(choose(options, machine, &placed, UINT32_MAX, arena, placed.offload, &placed.refusal, err));
    BT_TRY(split_take(placed.offload, &placed, err));
    *ret_placed = placed;
    return BT_OK;
}

static bool same_split(const bt_split *a, const bt_split *b) {
    bool same = a->n_devices == b->n_devices && a->head == b->head && a->n_cpu_moe == b->n_cpu_moe;
    for (uint32_t i = 0; same && i < a->n_devices; i++)
        same = a->n_blocks[i] == b->n_blocks[i];
    return same;
}

/* What the dry run measured, in the place of formulas. */
static void take_price(const bt_price *price, bt_offload *offload) {
    for (uint32_t i = 0; i < offload->split.n_devices; i++) {
        offload->devices[i].kv_bytes = price->device_kv_bytes[i];
        offload->devices[i].compute_bytes = price->device_compute_bytes[i];
        offload->devices[i].source = BT_SOURCE_DRY_RUN;
    }
}

/* Fewer blocks on devices, or of as many blocks fewer experts. */
static bool is_less(const bt_split *a, const bt_split *b) {
    uint32_t n_a = bt_split_blocks(a), n_b = bt_split_blocks(b);
    return n_a < n_b || (n_a == n_b && a->n_cpu_moe > b->n_cpu_moe);
}

/* Whether blocks are placed anew. A number of them that was asked for stays what it is: where it does not fit, that was
 * said. */
static bool is_taken(const bt_offload *other, const bt_offload *offload, bool fits, bool may_grow) {
    if (same_split(&other->split, &offload->split)) return false;
    bool less = is_less(&other->split, &offload->split);
    return fits ? may_grow && !less : may_grow || less;
}

bt_status bt_placing_check(const bt_cli_options *options, const bt_machine *machine, const bt_price *price,
                           bool may_grow, bt_arena *arena, bt_placed *placed, bool *ret_again, bt_error *err) {
    bt_offload *offload = placed->offload;
    uint32_t over = 0;
    *ret_again = false;
    if (is_whole(offload)) return BT_OK;
    take_price(price, offload);
    bool fits = bt_offload_fits(offload, &over);
    bool counted = options->wishes.gpu_layers == BT_LAYERS_COUNT || options->wishes.gpu_layers == BT_LAYERS_ALL;
    bt_offload *other = bt_arena_alloc(arena, sizeof *other);
    if (!other) return bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to make a plan");
    BT_TRY(choose(options, machine, placed, UINT32_MAX, arena, other, &placed->refusal, err));
    if (counted && placed->refusal.code[0]) return BT_OK;
    if (!fits && !counted && !is_less(&other->split, &offload->split))
        BT_TRY(choose(options, machine, placed, bt_split_blocks(&offload->split) - 1, arena, other, &placed->refusal,
                      err));
    if (!is_taken(other, offload, fits, may_grow)) return BT_OK;
    BT_TRY(split_take(other, placed, err));
    placed->offload = other;
    *ret_again = true;
    return BT_OK;
}

bt_status bt_placing_of_plan(const bt_facts *whole, const bt_plan *plan, bt_placed *ret_placed, bt_error *err) {
    bt_placed placed = {.whole = whole, .facts = whole};
    if (plan->offload) {
        bt_error why = {0};
        if (bt_facts_split(whole, &plan->offload->split, &placed.split, &why) != BT_OK)
            return bt_fail(err, BT_E_STALE, "plan_stale", BT_MEASURE_NONE, 0, 0, "the plan's devices: %s", why.text);
        placed.facts = placed.split;
    }
    *ret_placed = placed;
    return BT_OK;
}

void bt_placing_add(const bt_placed *placed, bt_plan *plan) {
    plan->offload = is_whole(placed->offload) ? NULL : placed->offload;
    if (!placed->refusal.code[0]) return;
    plan->verdict = BT_REFUSED;
    plan->forced = plan->wishes.force;
    plan->refusal = placed->refusal;
}

uint64_t bt_placing_shared_bytes(const bt_placed *placed) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < placed->offload->split.n_devices; i++)
        if (placed->offload->devices[i].shares_host)
            sum = bt_sat_add_u64(sum, bt_device_plan_bytes(&placed->offload->devices[i]));
    return sum;
}

void bt_placed_close(bt_placed *placed) {
    bt_facts_close(placed->split);
    placed->split = NULL;
}
