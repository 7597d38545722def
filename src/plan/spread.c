/* SPDX-License-Identifier: MIT
 *
 * spread.c: where in the pass the pins lie, once it is settled how many of each class there are.
 *
 * While a pinned unit is computed the reader is free to run ahead, but only as far as the ring has slots. So the bytes
 * that stream must come as evenly as can be: one walk over the units in order of use keeps the pinned bytes behind it
 * at the fraction that holds for the whole pass, give or take half a unit, as a line is drawn on a grid (docs/design.md
 * P3). Units of a class cost the same, so this moves pins without changing any sum. */
#include "base/size.h"
#include "plan/search.h"

/* Bytes are shifted so that a pass is below this: the products below then stay in 63 bits. */
#define PASS_BITS 31u

static uint32_t shift_for(uint64_t total) {
    uint32_t shift = 0;
    while (total >> shift >= UINT64_C(1) << PASS_BITS)
        shift++;
    return shift;
}

/* counts: pins of each class, used up. work: units of each class not yet passed. */
void bt_pins_spread(const bt_problem *problem, const bt_pin_mode *mode, uint32_t *counts, uint32_t *work,
                    bt_place *ret_place) {
    uint64_t pinned = 0;
    uint64_t total = 0;
    for (uint32_t c = 0; c < mode->n_classes; c++) {
        const bt_pin_class *class = &mode->classes[c];
        pinned = bt_sat_add_u64(pinned, bt_sat_mul_u64(class->pinned_bytes, counts[c]));
        total = bt_sat_add_u64(total, bt_sat_mul_u64(class->pinned_bytes, class->n));
        work[c] = class->n;
    }
    uint32_t shift = shift_for(total);
    int64_t pass = (int64_t)(total >> shift);
    int64_t share = (int64_t)(pinned >> shift);
    int64_t owed = 0; /* pinned bytes that the walk is behind by, times pass */
    for (uint32_t u = 0; u < problem->n_units; u++) {
        uint32_t c = mode->unit_class[u];
        if (c == BT_CLASS_TABLE) {
            ret_place[u] = BT_PLACE_ROWS;
            continue;
        }
        if (c == BT_CLASS_PINNED || c == BT_CLASS_STREAMED) {
            ret_place[u] = c == BT_CLASS_PINNED ? BT_PLACE_PINNED : BT_PLACE_STREAMED;
            continue;
        }
        int64_t bytes = (int64_t)(problem->units[u].pinned_bytes >> shift);
        owed += bytes * share;
        bool pin = counts[c] > 0 && (counts[c] == work[c] || owed >= bytes * pass / 2);
        work[c]--;
        ret_place[u] = pin ? BT_PLACE_PINNED : BT_PLACE_STREAMED;
        if (!pin) continue;
        counts[c]--;
        owed -= bytes * pass;
    }
}
