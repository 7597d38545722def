/* SPDX-License-Identifier: MIT
 *
 * speculate.c: when drafts are worth a pass.
 *
 * Verifying k tokens reads the weights once, as a single step does, and computes k + 1 times. So it costs nothing where
 * the disk sets the pace and the draft may be wrong; where computing does, or where a model made the draft, it must be
 * right often enough. All is measured: a pass with a draft pays while
 *
 *     (1 + accepted) / draft.ns > 1 / step.ns          tokens for a time
 *
 * where all three are averages of the last few (an eighth of each new one). A time enters as the median of it and of
 * the two before it: else the first draft, that met a disk asleep or a machine that was busy for a second, would say
 * for thousands of tokens that drafts are dear. Where it does not pay, a draft is tried all the same now and then,
 * since texts change: when the steps since the last one took TRY_EVERY times what it lost, at 1.6 % of the time. And
 * where drafts follow each other without an end, a step is taken now and then to know what one takes. What is decided
 * here changes when a token comes, never which. */
#include "engine/speculate.h"

#include "base/size.h"

#define TRY_EVERY    64u
#define N_FIRST      2u   /* drafts taken on trust */
#define STEP_EVERY   128u /* drafts: a step in place of a draft that is all right loses 6 of 7 tokens, 0.7 % of all */
#define AVERAGE_PART 8u

/* Of the last passes; of two, the shorter. */
static uint64_t median_ns(const bt_lately *lately) {
    const uint64_t *ns = lately->last_ns;
    if (lately->n_passes == 1) return ns[0];
    uint64_t low = bt_min_u64(ns[0], ns[1]), high = bt_max_u64(ns[0], ns[1]);
    return lately->n_passes == 2 ? low : bt_max_u64(low, bt_min_u64(high, ns[2]));
}

static void note(bt_lately *lately, uint64_t ns) {
    lately->last_ns[lately->n_passes++ % BT_LATELY_PASSES] = ns;
    uint64_t median = median_ns(lately);
    lately->ns =
        lately->n_passes <= BT_LATELY_PASSES ? median : lately->ns - lately->ns / AVERAGE_PART + median / AVERAGE_PART;
}

bool bt_speculation_pays(const bt_speculation *s) {
    if (s->n_drafts < N_FIRST) return true;
    if (s->step.n_passes < BT_LATELY_FIRST || s->n_drafts_since >= STEP_EVERY) return false;
    uint64_t worth_ns = bt_sat_mul_u64(s->step.ns, 256 + s->accepted_256) / 256; /* steps for the same tokens */
    uint64_t lost_ns = bt_sat_sub_u64(s->draft.ns, worth_ns);
    return bt_sat_mul_u64(s->step.ns, s->n_passes_since) >= bt_sat_mul_u64(lost_ns, TRY_EVERY);
}

bool bt_speculation_beats(const bt_speculation *s, const bt_speculation *other) {
    if (s->n_drafts < N_FIRST || other->n_drafts < N_FIRST || s->n_passes_since >= TRY_EVERY) return true;
    return bt_sat_mul_u64(other->draft.ns, 256 + s->accepted_256) >=
           bt_sat_mul_u64(s->draft.ns, 256 + other->accepted_256);
}

bool bt_speculation_holds(const bt_speculation *s, uint64_t off_ns) {
    if (s->n_drafts < N_FIRST || s->step.n_passes < BT_LATELY_FIRST) return true;
    return bt_sat_mul_u64(off_ns, 256 + s->accepted_256) >= bt_sat_mul_u64(s->draft.ns, 256);
}

void bt_speculation_note_step(bt_speculation *s, uint64_t ns) {
    note(&s->step, ns);
    s->n_passes_since++;
    s->n_drafts_since = 0;
}

void bt_speculation_note_other(bt_speculation *s) {
    s->n_passes_since++;
}

void bt_speculation_note_draft(bt_speculation *s, uint32_t n_drafted, uint32_t n_accepted, uint64_t ns) {
    note(&s->draft, ns);
    uint32_t now = n_accepted * 256;
    s->accepted_256 = s->n_drafts == 0 ? now : s->accepted_256 - s->accepted_256 / AVERAGE_PART + now / AVERAGE_PART;
    s->n_passes_since = 0;
    s->n_drafts++;
    s->n_drafts_since++;
    s->drafted += n_drafted;
    s->accepted += n_accepted;
}
