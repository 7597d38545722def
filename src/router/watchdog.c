/* SPDX-License-Identifier: MIT
 *
 * watchdog.c: idle models go when others take the memory that they are in (research notes, seed 4: V7 to V11, B10).
 *
 * Of a device: what ours hold is over its ceiling, and (gate) the reserve is gone or ours have been driven out of it.
 * Without the gate a card that is full of ours, as it was planned, and 0.2 GiB of somebody's film would end a model
 * for nothing. Of the host: its reserve is gone, and either others took it (without them it would be there), or the
 * kernel says that work stands still for memory.
 *
 *     quiet --over--> pressed --grace--> shed --> cooling --> quiet
 *               <--not over--
 *
 * The first look that is over only starts the grace, so that nobody goes on a single reading; one that is not over ends
 * it. It is over no more when there is an eighth of the reserve more than the reserve: what is at the edge stays
 * what it is. Work that stands still (an average over 10 s) has waited already: then the second look is enough. After
 * a shed nobody goes for the longer of a minute and twice the grace: memory comes back late, and a start that is under
 * way must not be answered by an end.
 *
 * The largest go first, until what is left fits. Nobody with a request goes (a failed request is worse than a slow
 * one), nobody who starts, none that is persistent, and none of which nobody knows what it holds: all but the last
 * count. Where nobody may go, that is said once, and the slowness accepted. */
#include "router/watchdog.h"

#include "base/size.h"

#include <string.h>

#define COOLING_MIN_MS 60000u
#define EDGE_DIVISOR   8u

const char *bt_watchdog_state_name(bt_watchdog_state state) {
    static const char *const names[] = {"off", "quiet", "pressed", "cooling"};
    return (unsigned)state < sizeof names / sizeof *names ? names[state] : NULL;
}

static uint64_t sum_of(const bt_watchdog_sample *sample) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < sample->n_models; i++)
        if (sample->models[i].bytes.known) sum = bt_sat_add_u64(sum, sample->models[i].bytes.value);
    return sum;
}

/* runs: the grace has begun, and ends only a little above its edge. Without a reserve there is none to be short of. */
static bool reserve_is_gone(const bt_watchdog_sample *sample, bool runs) {
    uint64_t reserve = sample->reserve_bytes.value;
    if (!sample->reserve_bytes.known) return !sample->is_host;
    if (runs) reserve = bt_sat_add_u64(reserve, reserve / EDGE_DIVISOR);
    return sample->free_bytes.known && sample->free_bytes.value < reserve;
}

static bool stalls(const bt_watchdog_sample *sample) {
    return sample->is_host && sample->stall.known && sample->stall.value >= BT_WATCHDOG_STALL;
}

/* Of the host: the reserve would be there without what others have taken since. */
static bool by_others(const bt_watchdog_sample *sample) {
    uint64_t without = bt_sat_add_u64(sample->free_bytes.value, sample->excess_bytes.value);
    return sample->excess_bytes.known && sample->excess_bytes.value > 0 && without >= sample->reserve_bytes.value;
}

/* What must go; 0: nothing. */
static uint64_t over(const bt_watchdog_sample *sample, bool runs) {
    bool gone = reserve_is_gone(sample, runs);
    if (sample->is_host) {
        if (!gone || !(stalls(sample) || by_others(sample))) return 0;
        return bt_max_u64(bt_sat_sub_u64(sample->reserve_bytes.value, sample->free_bytes.value), 1);
    }
    if (!sample->ceiling_bytes.known) return 0;
    if (sample->gated && !gone && !sample->spilled) return 0;
    return bt_sat_sub_u64(sum_of(sample), sample->ceiling_bytes.value);
}

/* ---- who ---- */

static bool is_before(const bt_watchdog_model *a, const bt_watchdog_model *b) {
    if (a->bytes.value != b->bytes.value) return a->bytes.value > b->bytes.value;
    return a->used != b->used ? a->used < b->used : strcmp(a->id, b->id) < 0;
}

static void choose(const bt_watchdog_sample *sample, bt_watchdog_step *step) {
    bool chosen[BT_CONFIG_MODELS_MAX] = {0};
    uint64_t left = step->over_bytes;
    while (left > 0) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = 0; i < sample->n_models && i < BT_CONFIG_MODELS_MAX; i++) {
            const bt_watchdog_model *m = &sample->models[i];
            if (chosen[i] || !m->may_go || !m->bytes.known || m->bytes.value == 0) continue;
            if (best == UINT32_MAX || is_before(m, &sample->models[best])) best = i;
        }
        if (best == UINT32_MAX) return;
        chosen[best] = true;
        step->victims[step->n_victims++] = best;
        left = bt_sat_sub_u64(left, sample->models[best].bytes.value);
    }
}

/* ---- when ---- */

static void rest(bt_watchdog *w, bt_watchdog_state state) {
    w->state = state;
    w->runs = false;
}

static void act(bt_watchdog *w, const bt_watchdog_sample *sample, bt_watchdog_step *step) {
    choose(sample, step);
    if (step->n_victims > 0) {
        uint64_t cooling_ms = bt_max_u64(COOLING_MIN_MS, bt_sat_mul_u64(sample->grace_ms, 2));
        step->kind = BT_WATCHDOG_SHED;
        w->cooling_until_ms = bt_sat_add_u64(sample->now_ms, cooling_ms);
        rest(w, BT_WATCHDOG_COOLING);
        return;
    }
    if (!w->said) step->kind = BT_WATCHDOG_HELPLESS;
    w->said = true;
    w->since_ms = sample->now_ms; /* the grace begins anew */
}

void bt_watchdog_look(bt_watchdog *w, const bt_watchdog_sample *sample, bt_watchdog_step *ret) {
    memset(ret, 0, sizeof *ret);
    bool blind = sample->is_host ? !sample->free_bytes.known : !sample->ceiling_bytes.known;
    if (!sample->evict || blind) {
        rest(w, BT_WATCHDOG_OFF);
        return;
    }
    ret->over_bytes = over(sample, w->runs);
    if (ret->over_bytes == 0) w->said = false;
    if (sample->now_ms < w->cooling_until_ms) {
        rest(w, BT_WATCHDOG_COOLING);
        return;
    }
    if (ret->over_bytes == 0) {
        rest(w, BT_WATCHDOG_QUIET);
        return;
    }
    w->state = BT_WATCHDOG_PRESSED;
    if (!w->runs) {
        w->runs = true;
        w->since_ms = sample->now_ms;
        return;
    }
    ret->stalled = stalls(sample);
    if (!ret->stalled && sample->now_ms - w->since_ms < sample->grace_ms) return;
    act(w, sample, ret);
}
