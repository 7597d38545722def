/* SPDX-License-Identifier: MIT
 *
 * reclaim.c: whether to look once more. A reading is older than the eviction that made room, and a driver gives memory
 * back late; so a first decision that is not "as it stands" is no decision yet. Six more readings, 0.7 s apart: one on
 * which the command line fits as it stands ends the wait at once; one on which it fits with less is taken where two in
 * a row show that nothing is coming back any more; a refusal waits for the last (research notes, seed 4, G16). */
#include "guard/reclaim.h"

#include "base/size.h"
#include "guard/memo.h"

static bt_reclaim_step settle(bt_reclaim_outcome outcome) {
    return outcome == BT_RECLAIM_REFUSES ? BT_RECLAIM_REFUSE : BT_RECLAIM_TAKE;
}

bt_reclaim_step bt_reclaim_next(bt_reclaim *reclaim, bt_reclaim_outcome outcome, uint64_t free_bytes, bool wait) {
    bool first = reclaim->n_readings++ == 0;
    bool second = !first && reclaim->n_probes++ > 0; /* a probe before this one */
    bool rising = free_bytes > bt_sat_add_u64(reclaim->free_bytes, BT_GUARD_EPSILON_BYTES);
    reclaim->free_bytes = free_bytes;
    if (outcome == BT_RECLAIM_KEEPS || outcome == BT_RECLAIM_BLIND) return BT_RECLAIM_TAKE;
    if (!wait || reclaim->n_probes >= BT_RECLAIM_PROBES) return settle(outcome);
    if (outcome == BT_RECLAIM_DEGRADES && second && !rising) return BT_RECLAIM_TAKE;
    return BT_RECLAIM_PROBE;
}
