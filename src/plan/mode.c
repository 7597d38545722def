/* SPDX-License-Identifier: MIT
 *
 * mode.c: the units summed up for the search, once for each treatment of the head.
 *
 * A ring slot must hold the largest unit that streams, so pinning all of the largest units can make the ring smaller by
 * more than it costs. A mode therefore lists the slot sizes that come into question, each with the bytes that are then
 * pinned by force; the cheapest configuration is the least over that list. At most BT_PIN_STEP_MAX sizes are listed,
 * evenly taken from more; the largest (nothing forced) is always one of them. Tables are no part of it: they never
 * stream, and what they cost beside their rows is settled when everything else is pinned (ram.c). */
#include "base/size.h"
#include "plan/search.h"

typedef struct unit_key {
    uint64_t slot_bytes, pinned_bytes;
    uint32_t unit;
} unit_key;

static bool key_before(const unit_key *a, const unit_key *b) {
    if (a->slot_bytes != b->slot_bytes) return a->slot_bytes > b->slot_bytes;
    if (a->pinned_bytes != b->pinned_bytes) return a->pinned_bytes > b->pinned_bytes;
    return a->unit < b->unit;
}

static void keys_sort(unit_key *keys, uint32_t n) {
    uint32_t gap = 1;
    while (gap < n / 3)
        gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3) {
        for (uint32_t i = gap; i < n; i++) {
            unit_key key = keys[i];
            uint32_t j = i;
            for (; j >= gap && key_before(&key, &keys[j - gap]); j -= gap)
                keys[j] = keys[j - gap];
            keys[j] = key;
        }
    }
}

/* Class of a unit that the mode settles without a choice, or 0. */
static uint32_t class_settled(const bt_plan_unit *unit, bt_head_mode head) {
    if (unit->kind == BT_KIND_TABLE) return BT_CLASS_TABLE;
    if (unit->kind != BT_KIND_HEAD || head == BT_HEAD_MIXED) return 0;
    return head == BT_HEAD_PINNED ? BT_CLASS_PINNED : BT_CLASS_STREAMED;
}

static void classes_make(bt_pin_mode *mode, const unit_key *keys, uint32_t n_keys) {
    for (uint32_t i = 0; i < n_keys; i++) {
        bt_pin_class *last = mode->n_classes > 0 ? &mode->classes[mode->n_classes - 1] : NULL;
        if (!last || last->slot_bytes != keys[i].slot_bytes || last->pinned_bytes != keys[i].pinned_bytes) {
            last = &mode->classes[mode->n_classes++];
            *last = (bt_pin_class){.pinned_bytes = keys[i].pinned_bytes, .slot_bytes = keys[i].slot_bytes};
        }
        last->n++;
        mode->unit_class[keys[i].unit] = mode->n_classes - 1;
    }
}

/* always_slot: the largest slot that streams whatever is pinned; streams: whether there is one. */
static void steps_make(bt_pin_mode *mode, uint64_t always_slot, bool streams) {
    uint32_t n_sizes = 0;
    for (uint32_t c = 0; c < mode->n_classes && (!streams || mode->classes[c].slot_bytes > always_slot); c++)
        n_sizes += c == 0 || mode->classes[c].slot_bytes != mode->classes[c - 1].slot_bytes;
    uint32_t n_kept = n_sizes < BT_PIN_STEP_MAX - 1 ? n_sizes : BT_PIN_STEP_MAX - 1;
    uint64_t forced = mode->forced_bytes;
    uint32_t size = 0;
    uint32_t c = 0;
    while (size < n_sizes) {
        uint64_t slot = mode->classes[c].slot_bytes;
        if ((uint64_t)mode->n_steps * n_sizes / n_kept == size)
            mode->steps[mode->n_steps++] = (bt_pin_step){slot, forced, c};
        for (; c < mode->n_classes && mode->classes[c].slot_bytes == slot; c++)
            forced = bt_sat_add_u64(forced, bt_sat_mul_u64(mode->classes[c].pinned_bytes, mode->classes[c].n));
        size++;
    }
    if (streams) mode->steps[mode->n_steps++] = (bt_pin_step){always_slot, forced, c};
}

bool bt_pin_mode_make(const bt_problem *problem, bt_head_mode head, bt_arena *arena, bt_pin_mode *ret) {
    bt_pin_mode mode = {.head = head, .can_pin_all = true};
    uint64_t n = (uint64_t)problem->n_units + 1;
    unit_key *keys = bt_arena_array(arena, n, sizeof *keys);
    mode.classes = bt_arena_array(arena, n, sizeof *mode.classes);
    mode.unit_class = bt_arena_array(arena, n, sizeof *mode.unit_class);
    if (!keys || !mode.classes || !mode.unit_class) return false;

    uint32_t n_keys = 0;
    uint64_t always_slot = 0;
    for (uint32_t u = 0; u < problem->n_units; u++) {
        const bt_plan_unit *unit = &problem->units[u];
        uint32_t settled = class_settled(unit, head);
        mode.unit_class[u] = settled;
        if (settled == BT_CLASS_PINNED) mode.forced_bytes = bt_sat_add_u64(mode.forced_bytes, unit->pinned_bytes);
        if (settled == BT_CLASS_STREAMED) {
            mode.can_pin_all = false;
            always_slot = bt_max_u64(always_slot, unit->slot_bytes);
        }
        if (settled != 0) continue;
        keys[n_keys++] = (unit_key){unit->slot_bytes, unit->pinned_bytes, u};
        mode.most_bytes = bt_sat_add_u64(mode.most_bytes, unit->pinned_bytes);
    }
    mode.most_bytes = bt_sat_add_u64(mode.most_bytes, mode.forced_bytes);
    keys_sort(keys, n_keys);
    classes_make(&mode, keys, n_keys);
    steps_make(&mode, always_slot, !mode.can_pin_all);
    *ret = mode;
    return true;
}

uint64_t bt_pin_mode_least(const bt_pin_mode *mode, uint32_t n_slots, uint64_t slack_bytes, uint32_t *ret_step) {
    if (n_slots == 0) return mode->can_pin_all ? mode->most_bytes : UINT64_MAX;
    uint64_t least = UINT64_MAX;
    for (uint32_t k = 0; k < mode->n_steps; k++) {
        const bt_pin_step *step = &mode->steps[k];
        uint64_t ring = bt_sat_mul_u64(n_slots, bt_sat_add_u64(step->slot_bytes, slack_bytes));
        uint64_t need = bt_sat_add_u64(step->forced_bytes, ring);
        if (need >= least) continue;
        least = need;
        if (ret_step) *ret_step = k;
    }
    return least;
}
