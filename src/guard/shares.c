/* SPDX-License-Identifier: MIT
 *
 * shares.c: one placement over several devices: as the command line deals it out, or dealt out anew.
 *
 * Shares that stand in a command line were written for devices that were empty. Where one of them is not, the same
 * layers may still fit with other shares. First what each has left beside its fixed part, as a ratio of two decimals
 * (research notes, seed 4, 2.9); layers are not sand, so where that is a layer off, numbers of layers themselves, each
 * device in its order filled as far as it goes. Every answer is priced before it is given. */
#include "guard/place_internal.h"

#include "base/size.h"

#include <math.h>
#include <string.h>

bool bt_guard_shares(const uint64_t *free_bytes, const uint64_t *fixed_bytes, uint32_t n, double *ret_shares) {
    uint64_t left[BT_POOL_MAX], all = 0;
    if (n > BT_POOL_MAX) return false;
    for (uint32_t i = 0; i < n; i++) {
        left[i] = bt_sat_sub_u64(free_bytes[i], fixed_bytes[i]);
        all = bt_sat_add_u64(all, left[i]);
    }
    for (uint32_t i = 0; i < n && all > 0; i++)
        ret_shares[i] = floor((double)left[i] / (double)all * 100 + 0.5) / 100;
    return all > 0;
}

uint32_t bt_guard_main(const uint64_t *free_bytes, uint32_t n) {
    uint32_t most = 0;
    for (uint32_t i = 1; i < n; i++)
        if (free_bytes[i] > free_bytes[most]) most = i;
    return most;
}

static bool holds(const bt_guard_search *s, const bt_placement *placement, bt_guard_price *ret_price) {
    bt_guard_prices_at(s->prices, placement, ret_price);
    return bt_guard_devices_hold(s, ret_price, BT_AGAINST_BUDGET);
}

static void set_main(const bt_guard_search *s, bt_placement *placement) {
    if (s->may_main) placement->main_gpu = bt_guard_main(s->free, s->n);
}

static bool try_ratio(const bt_guard_search *s, bt_placement *placement, bt_guard_price *ret_price) {
    uint64_t fixed[BT_POOL_MAX];
    for (uint32_t i = 0; i < s->n; i++) {
        const bt_guard_pool_price *pool = &ret_price->devices[i];
        uint64_t dealt = bt_sat_add_u64(pool->bytes[BT_GUARD_WEIGHTS], pool->bytes[BT_GUARD_KV]);
        fixed[i] = bt_sat_sub_u64(pool->total_bytes, dealt);
    }
    bt_placement other = *placement;
    if (!bt_guard_shares(s->budget, fixed, s->n, other.shares)) return false;
    other.n_shares = s->n;
    set_main(s, &other);
    if (!holds(s, &other, ret_price)) return false;
    *placement = other;
    return true;
}

/* As many of the layers that are left as a device holds; the price grows with them. */
static uint32_t most_layers(const bt_guard_search *s, bt_placement *trial, uint32_t device, uint32_t n_left) {
    uint32_t low = 0, high = n_left;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        bt_guard_price price;
        trial->shares[device] = middle;
        if (device + 1 < s->n) trial->shares[device + 1] = n_left - middle;
        bt_guard_prices_at(s->prices, trial, &price);
        if (price.devices[device].total_bytes <= s->budget[device])
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static bool try_counts(const bt_guard_search *s, bt_placement *placement, bt_guard_price *ret_price) {
    bt_placement other = *placement;
    uint32_t n_left = placement->n_gpu_layers;
    memset(other.shares, 0, sizeof other.shares);
    other.n_shares = s->n;
    for (uint32_t i = 0; i < s->n && n_left > 0; i++) {
        uint32_t n = i + 1 < s->n ? most_layers(s, &other, i, n_left) : n_left;
        other.shares[i] = n;
        if (i + 1 < s->n) other.shares[i + 1] = 0;
        n_left -= n;
    }
    set_main(s, &other);
    if (n_left > 0 || !holds(s, &other, ret_price)) return false;
    *placement = other;
    return true;
}

/* The whole model on one device: another one, the emptiest first. */
static bool try_mains(const bt_guard_search *s, bt_placement *placement, bt_guard_price *ret_price) {
    bt_placement other = *placement;
    other.main_gpu = bt_guard_main(s->free, s->n);
    if (other.main_gpu == placement->main_gpu || !holds(s, &other, ret_price)) return false;
    *placement = other;
    return true;
}

bool bt_guard_try(const bt_guard_search *s, bt_placement *placement, bt_guard_price *ret_price) {
    if (holds(s, placement, ret_price)) return true;
    bt_guard_price as_given = *ret_price;
    bool found = false;
    if (s->ask->price.effective->split_mode.value == BT_SPLIT_NONE) {
        found = s->may_main && try_mains(s, placement, ret_price);
    } else if (s->may_split && placement->n_gpu_layers > 0) {
        found = try_ratio(s, placement, ret_price) || try_counts(s, placement, ret_price);
    }
    if (!found) *ret_price = as_given;
    return found;
}
