/* SPDX-License-Identifier: MIT
 *
 * suggest.c: what could be typed instead of a command line that is refused. Every change is priced as a whole command
 * line before it is named: less context than a trim would go down to, a cache of half the size, smaller batches, less
 * on devices than the floor allows. In the order in which they hurt. */
#include "guard/place_internal.h"

#include "base/size.h"

#include <inttypes.h>
#include <stdio.h>

#define TYPE_F16     1
#define TYPE_Q8_0    8
#define UBATCH_LEAST 64
#define CTX_LEAST    1024u /* tokens: with less nobody does anything */

static bool fits(const bt_guard_search *s, bt_placement *placement, bt_guard_price *ret_price) {
    return bt_guard_try(s, placement, ret_price) && bt_guard_host_holds(s, ret_price, false);
}

static bt_change *change_add(bt_guard_decision *ret, const char *flag, uint64_t need_bytes) {
    if (ret->n_changes == BT_CHANGE_MAX) return NULL;
    bt_change *change = &ret->changes[ret->n_changes++];
    *change = (bt_change){.need_bytes = need_bytes};
    (void)snprintf(change->flag, sizeof change->flag, "%s", flag);
    return change;
}

static void suggest_ctx(const bt_guard_search *s, bt_guard_decision *ret) {
    bt_placement at;
    bt_guard_price price;
    if (!bt_guard_try_ctx(s, CTX_LEAST, &at, &price)) return;
    bt_change *change = change_add(ret, "-c", price.device_bytes);
    if (change) (void)snprintf(change->value, sizeof change->value, "%" PRIu32, at.n_ctx);
}

/* The same command line with another setting. */
static bt_status try_setting(const bt_guard_search *s, const bt_effective *other, const char *flag, const char *value,
                             bt_guard_decision *ret, bt_error *err) {
    bt_guard_ask ask = *s->ask;
    bt_guard_search its = *s;
    const char *reason = NULL;
    bt_guard_price price;
    ask.price.effective = other;
    its.ask = &ask;
    bt_status status = bt_guard_prices_make(&ask.price, &its.prices, &reason, err);
    if (status != BT_OK || reason) return status;
    bt_placement at = s->baked;
    if (!fits(&its, &at, &price)) return BT_OK;
    bt_change *change = change_add(ret, flag, price.device_bytes);
    if (change) (void)snprintf(change->value, sizeof change->value, "%s", value);
    return BT_OK;
}

static bt_status suggest_types(const bt_guard_search *s, bt_guard_decision *ret, bt_error *err) {
    bt_effective other = *s->ask->price.effective;
    if (other.cache_k.value != TYPE_F16 || other.cache_v.value != TYPE_F16 || other.flash.value == BT_FLASH_OFF)
        return BT_OK;
    other.cache_k.value = other.cache_v.value = TYPE_Q8_0;
    return try_setting(s, &other, "-ctk", "q8_0 -ctv q8_0", ret, err);
}

static bt_status suggest_ubatch(const bt_guard_search *s, bt_guard_decision *ret, bt_error *err) {
    bt_effective other = *s->ask->price.effective;
    uint32_t before = ret->n_changes;
    while (other.ubatch.value / 2 >= UBATCH_LEAST && ret->n_changes == before) {
        char value[16];
        other.ubatch.value /= 2;
        (void)snprintf(value, sizeof value, "%" PRId32, other.ubatch.value);
        bt_status status = try_setting(s, &other, "-ub", value, ret, err);
        if (status != BT_OK) return status;
    }
    return BT_OK;
}

/* Less on devices than the floor allows, which no floor refuses once it stands in the command line. Of a mixture first
 * experts, then layers as well. */
static void suggest_offload(const bt_guard_search *s, bt_guard_decision *ret) {
    uint32_t n_block_all = s->ask->price.facts->n_block_all;
    bool experts = bt_guard_experts_can_move(s->prices, s->baked.n_cpu_moe);
    bt_placement at = s->baked;
    bt_guard_price price;
    for (;;) {
        if (experts && at.n_cpu_moe < n_block_all)
            at.n_cpu_moe++;
        else if (at.n_gpu_layers > 0)
            at.n_gpu_layers--;
        else
            return;
        bt_placement trial = at;
        if (bt_guard_try(s, &trial, &price)) break;
    }
    if (!bt_guard_host_holds(s, &price, true)) return;
    bt_change *change = change_add(ret, experts ? "--n-cpu-moe" : "-ngl", price.device_bytes);
    if (!change) return;
    if (experts && at.n_gpu_layers < s->baked.n_gpu_layers)
        (void)snprintf(change->value, sizeof change->value, "%" PRIu32 " -ngl %" PRIu32, at.n_cpu_moe, at.n_gpu_layers);
    else
        (void)snprintf(change->value, sizeof change->value, "%" PRIu32, experts ? at.n_cpu_moe : at.n_gpu_layers);
}

bt_status bt_guard_suggest(const bt_guard_search *s, bt_guard_decision *ret, bt_error *err) {
    suggest_ctx(s, ret);
    bt_status status = suggest_types(s, ret, err);
    if (status == BT_OK) status = suggest_ubatch(s, ret, err);
    if (status == BT_OK) suggest_offload(s, ret);
    return status;
}
