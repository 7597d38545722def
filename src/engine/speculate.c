/* SPDX-License-Identifier: MIT
 *
 * speculate.c: when drafts are worth a pass.
 *
 * Verifying k tokens reads the weights once, as a single step does, and computes k + 1 times. So it costs nothing where
 * the disk sets the pace and the draft may be wrong; where computing does, it must be right often enough. Both are
 * measured: a pass with a draft pays while
 *
 *     (1 + accepted) / draft_ns > 1 / step_ns          tokens for a time
 *
 * where all three are averages of the last few (an eighth of each new one). Where it does not pay, one draft in
 * TRY_EVERY steps is tried all the same, since texts change: at twice the time of a step for no token, that is 1.6 %.
 * What is decided here changes when a token comes, never which. */
#include "engine/speculate.h"

#include "base/size.h"

#define TRY_EVERY    64u
#define N_FIRST      2u /* drafts taken on trust */
#define AVERAGE_PART 8u

static uint64_t average(uint64_t old, uint64_t new) {
    return old == 0 ? new : old - old / AVERAGE_PART + new / AVERAGE_PART;
}

bool bt_speculation_pays(const bt_speculation *s) {
    if (s->drafted < (uint64_t)N_FIRST * BT_DRAFT_MAX || s->step_ns == 0 || s->n_steps_since >= TRY_EVERY) return true;
    return bt_sat_mul_u64(s->step_ns, 256 + s->accepted_256) > bt_sat_mul_u64(s->draft_ns, 256);
}

void bt_speculation_note_step(bt_speculation *s, uint64_t ns) {
    s->step_ns = average(s->step_ns, ns);
    s->n_steps_since++;
}

void bt_speculation_note_draft(bt_speculation *s, uint32_t n_drafted, uint32_t n_accepted, uint64_t ns) {
    s->draft_ns = average(s->draft_ns, ns);
    uint32_t now = n_accepted * 256;
    s->accepted_256 = s->drafted == 0 ? now : s->accepted_256 - s->accepted_256 / AVERAGE_PART + now / AVERAGE_PART;
    s->n_steps_since = 0;
    s->drafted += n_drafted;
    s->accepted += n_accepted;
}
