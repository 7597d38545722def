/* SPDX-License-Identifier: MIT
 *
 * ceiling.c: what others leave of a memory (research notes, seed 4, section 3: V2 to V6, V12; decision 029).
 *
 *     foreign = used - ours                          ours: what is measured of each child
 *     floor   = the lowest foreign that was seen     what the desktop takes: the budget was made with it there
 *     excess  = foreign - floor                      what came since: a game, a browser
 *     ceiling = budget                               while excess is 0
 *               budget - excess - reserve            else, not under 0
 *
 * Not total - foreign - reserve: that is "used > total - reserve" in disguise, and would end models on a card that is
 * full of our own.
 *
 * The floor follows down at once. It is kept while nothing can be trusted (a reading that comes back in the middle of a
 * game is no new floor), and rises only when 30 minutes of looking have shown nothing as low: minutes count in which a
 * certain reading was made, so that a gap of an hour is one.
 *
 * One of ours that runs and is seen by nobody makes foreign a guess, and a low one would free what is taken, a high one
 * would end everything: then there is no ceiling, and the static budget stands. One that is starting or going is
 * between nothing and all that it was promised: foreign is then between two bounds. What was known before stands as far
 * as they permit, so that a game that starts in that moment is seen as soon as it must be one; no floor is taken from
 * such a look.
 *
 * A budget that is apart, of a memory that has more than the budget and the floor: what others take is first taken
 * from what is beside it (a host of 64 GiB, of which models may have 12). */
#include "router/ceiling.h"

#include "base/size.h"

#include <stdio.h>

#define MINUTE_MS 60000u

/* ---- the floor ---- */

static uint64_t lowest(const bt_ceiling *c) {
    uint64_t floor_bytes = UINT64_MAX;
    for (uint32_t i = 0; i < c->n_minima; i++)
        floor_bytes = bt_min_u64(floor_bytes, c->minima[i]);
    return floor_bytes;
}

static void note_foreign(bt_ceiling *c, uint64_t now_ms, uint64_t foreign_bytes) {
    if (c->n_minima == 0 || now_ms - c->minute_began_ms >= MINUTE_MS) {
        c->at = c->n_minima == 0 ? 0 : (c->at + 1) % BT_CEILING_MINUTES;
        c->n_minima += c->n_minima < BT_CEILING_MINUTES;
        c->minima[c->at] = foreign_bytes;
        c->minute_began_ms = now_ms;
    }
    c->minima[c->at] = bt_min_u64(c->minima[c->at], foreign_bytes);
    c->floor_bytes = (bt_known){true, lowest(c)};
}

/* ---- ours ---- */

typedef struct bounds {
    uint64_t least_bytes, most_bytes; /* what of the used bytes is ours */
    const char *hidden;               /* a running one that nobody sees; NULL: none */
    const char *moving;               /* one of those that are starting or going */
} bounds;

static void add_child(bounds *b, const bt_ceiling_child *child) {
    uint64_t seen = child->measured_bytes.known ? child->measured_bytes.value : 0;
    uint64_t held = bt_max_u64(child->reserved_bytes, seen);
    if (child->phase == BT_CEILING_RUNNING) {
        if (!child->measured_bytes.known) b->hidden = child->id;
        b->least_bytes = bt_sat_add_u64(b->least_bytes, seen);
        b->most_bytes = bt_sat_add_u64(b->most_bytes, seen);
        return;
    }
    b->moving = child->id;
    if (child->phase == BT_CEILING_STARTING) b->least_bytes = bt_sat_add_u64(b->least_bytes, seen);
    b->most_bytes = bt_sat_add_u64(b->most_bytes, held);
}

static bounds ours(const bt_ceiling_sample *sample) {
    bounds b = {0};
    for (uint32_t i = 0; i < sample->n_children; i++)
        add_child(&b, &sample->children[i]);
    return b;
}

/* ---- the ceiling ---- */

static void put_ceiling(bt_ceiling *c, const bt_ceiling_sample *sample) {
    uint64_t total = sample->total_bytes.value;
    uint64_t budget = sample->budget_bytes.known ? sample->budget_bytes.value : total;
    uint64_t foreign = c->foreign_bytes.value;
    uint64_t floor_bytes = c->floor_bytes.known ? c->floor_bytes.value : foreign;
    uint64_t excess = bt_sat_sub_u64(foreign, floor_bytes);
    c->excess_bytes = (bt_known){true, excess};
    c->ceiling_bytes = (bt_known){true, budget};
    if (excess <= sample->noise_bytes) return;
    uint64_t beside = sample->apart ? bt_sat_sub_u64(total, bt_sat_add_u64(floor_bytes, budget)) : 0;
    uint64_t taken = bt_sat_add_u64(excess, sample->reserve_bytes.known ? sample->reserve_bytes.value : 0);
    c->ceiling_bytes.value = bt_sat_sub_u64(budget, bt_sat_sub_u64(taken, beside));
}

static void distrust(bt_ceiling *c, const char *who, const char *why) {
    c->trusted = false;
    c->ceiling_bytes = c->excess_bytes = (bt_known){0};
    (void)snprintf(c->reason, sizeof c->reason, "%.100s%.50s", who, why);
}

void bt_ceiling_look(bt_ceiling *c, const bt_ceiling_sample *sample) {
    bounds b = ours(sample);
    c->reason[0] = '\0';
    if (!sample->used_bytes.known || !sample->total_bytes.known) {
        distrust(c, "", "there is no reading");
        return;
    }
    if (b.hidden) {
        distrust(c, b.hidden, ": nobody says what it holds");
        return;
    }
    uint64_t used = sample->used_bytes.value;
    uint64_t low = bt_sat_sub_u64(used, b.most_bytes), high = bt_sat_sub_u64(used, b.least_bytes);
    uint64_t foreign = c->foreign_bytes.known ? c->foreign_bytes.value : low;
    c->trusted = true;
    c->foreign_bytes = (bt_known){true, bt_min_u64(bt_max_u64(foreign, low), high)};
    if (low == high)
        note_foreign(c, sample->now_ms, low);
    else
        (void)snprintf(c->reason, sizeof c->reason, "%.100s is on its way: between two bounds", b.moving);
    put_ceiling(c, sample);
}

bt_known bt_ceiling_limit(const bt_ceiling *ceiling, bt_known budget_bytes) {
    bt_known live = ceiling->ceiling_bytes;
    if (!live.known || (budget_bytes.known && budget_bytes.value <= live.value)) return budget_bytes;
    return live;
}
