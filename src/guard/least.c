/* SPDX-License-Identifier: MIT
 *
 * least.c: how little a command line could be brought down to (place.h), without asking what there is.
 *
 * Who has to decide whether room can be made for a start wants both ends: what the command takes as it is typed, and
 * below what no remedy goes. The remedies are those of place.c, and like there one of them is taken, not all: a context
 * that was trimmed goes with all layers on devices. Of two the one that leaves less on devices is the least, since they
 * are what is short. */
#include "guard/place_internal.h"

#include "base/size.h"

static bool trims(const bt_effective *e, bt_placement *placement) {
    uint32_t step = bt_guard_ctx_step(e);
    uint32_t cut = (placement->n_ctx - bt_guard_ctx_floor(placement->n_ctx)) / step * step;
    if (!bt_guard_may_trim(e) || cut == 0) return false;
    placement->n_ctx -= cut;
    return true;
}

/* Down to the last step that no floor refuses; one whose own line is below it has none. */
static bool moves(const bt_guard_ask *ask, const bt_guard_prices *prices, bt_placement *placement) {
    bool experts = bt_guard_experts_can_move(prices, placement->n_cpu_moe);
    double floor = bt_guard_floor(&ask->settings);
    bool has_floor = !bt_guard_is_worse(bt_guard_gpu_fraction(prices, placement), floor);
    bt_placement at = *placement;
    bool moved = false;
    for (;;) {
        if (!bt_guard_step_down(ask->price.facts, experts, &at)) {
            if (!experts || floor > 0) return moved;
            experts = false; /* layers follow their experts only where nothing would refuse it */
            continue;
        }
        if (has_floor && bt_guard_is_worse(bt_guard_gpu_fraction(prices, &at), floor)) return moved;
        *placement = at;
        moved = true;
    }
}

static bool has_devices(const bt_guard_prices *prices, const bt_placement *placement) {
    bt_guard_price price;
    bt_guard_prices_at(prices, placement, &price);
    return price.device_bytes > 0;
}

static bool holds_less(const bt_guard_prices *prices, const bt_placement *a, const bt_placement *b) {
    bt_guard_price price, other;
    bt_guard_prices_at(prices, a, &price);
    bt_guard_prices_at(prices, b, &other);
    return price.device_bytes < other.device_bytes;
}

/* The program fits itself: fewer layers, then a shorter context, which the price of an open one has already. */
static bool fits_itself(const bt_guard_ask *ask, const bt_guard_prices *prices, bt_placement *ret) {
    if (ask->price.effective->fit.value == 0 || !has_devices(prices, ret)) return false;
    ret->n_gpu_layers = 0;
    return true;
}

static bool is_remedied(const bt_guard_ask *ask, const bt_guard_prices *prices, bt_placement *ret) {
    const bt_effective *e = ask->price.effective;
    if (e->gpu_layers.value == BT_LAYERS_AUTO) return fits_itself(ask, prices, ret);
    bt_placement trimmed = *ret, moved = *ret;
    bool may_trim = trims(e, &trimmed);
    bool may_move = has_devices(prices, ret) && moves(ask, prices, &moved);
    if (may_move && (!may_trim || holds_less(prices, &moved, &trimmed)))
        *ret = moved;
    else if (may_trim)
        *ret = trimmed;
    return may_trim || may_move;
}

bool bt_guard_least(const bt_guard_ask *ask, const bt_guard_prices *prices, bt_placement *ret) {
    bt_guard_placement(prices, ret);
    bool is_less = is_remedied(ask, prices, ret);
    if (ask->price.effective->program != BT_PROGRAM_SERVER) return is_less;
    is_less = is_less || ret->cache_ram_mib > 0 || ret->checkpoints > 0;
    ret->cache_ram_mib = ret->checkpoints = 0;
    return is_less;
}
