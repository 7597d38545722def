/* SPDX-License-Identifier: MIT
 *
 * experts_guess.c: experts that are read before they are asked for.
 *
 * A guess is what a block may want next: it is read while nothing else is, into slots that were used longest ago, whole
 * experts at a time. The block's next request finds it there, or on its way, and waits for what it wants of it. Until
 * it was waited for, its slot is nobody else's.
 *
 * Nothing of it can fail: what was not read, or not in time, is read when it is asked for. Bound: BT_EXPERT_GUESS_MAX
 * of one block. */
#include "base/error.h"
#include "base/size.h"
#include "store/experts_internal.h"

#include <string.h>

void bt_experts_drop_guesses(bt_experts *e) {
    bt_expert_guesses *g = &e->guesses;
    for (uint32_t i = 0; i < g->n; i++) {
        if (g->jobs[i] < 0) continue;
        bt_reader_cancel(e->reader, g->jobs[i]);
        e->blocks[g->block].slots[g->arrivals[i].slot].coming = false;
    }
    g->n = 0;
}

static bt_status finish_guess(bt_experts *e, uint32_t i, bt_error *err) {
    bt_expert_guesses *g = &e->guesses;
    bt_shelf *b = &e->blocks[g->block];
    bt_shelf_slot *s = &b->slots[g->arrivals[i].slot];
    bt_status status = bt_reader_wait(e->reader, g->jobs[i], err);
    g->jobs[i] = -1;
    s->coming = false;
    for (uint32_t p = 0; p < b->facts->n_parts && status == BT_OK; p++)
        bt_experts_arrive(e, b, p, g->arrivals[i]);
    return status;
}

void bt_experts_settle_guesses(bt_experts *e) {
    for (uint32_t i = 0; i < e->guesses.n; i++)
        if (e->guesses.jobs[i] >= 0) (void)finish_guess(e, i, NULL);
    e->guesses.n = 0;
}

bool bt_experts_wants_guess(const bt_experts *e) {
    const bt_expert_guesses *g = &e->guesses;
    for (uint32_t i = 0; i < g->n && g->block == e->current; i++)
        if (g->jobs[i] >= 0 && e->is_wanted[g->arrivals[i].expert]) return true;
    return false;
}

bt_status bt_experts_wait_guesses(bt_experts *e, bt_error *err) {
    bt_expert_guesses *g = &e->guesses;
    for (uint32_t i = 0; i < g->n && g->block == e->current; i++)
        if (g->jobs[i] >= 0 && e->is_wanted[g->arrivals[i].expert]) BT_TRY(finish_guess(e, i, err));
    return BT_OK;
}

/* There is a slot: the block has them beside what a token uses. */
static void start_guess(bt_experts *e, bt_shelf *b, uint32_t expert) {
    bt_expert_guesses *g = &e->guesses;
    bt_run runs[BT_EXPERT_PART_MAX];
    bt_expert_arrival a = {expert, bt_shelf_oldest(b, e->is_wanted)};
    bt_shelf_slot *s = &b->slots[a.slot];
    int job = -1;
    for (uint32_t p = 0; p < b->facts->n_parts; p++) {
        runs[p] = bt_experts_run(e, b, p, a);
        s->holds[p] = BT_SHELF_NONE;
    }
    bt_shelf_give(b, a.slot, expert);
    s->used = e->clock;
    if (bt_reader_start(e->reader, runs, b->facts->n_parts, &job, NULL) != BT_OK) return; /* it is no promise */
    s->coming = true;
    e->stats.guesses++;
    g->arrivals[g->n] = a;
    g->jobs[g->n++] = job;
}

void bt_experts_guess(bt_experts *experts, uint32_t block, const uint32_t *guessed, uint32_t n) {
    bt_shelf *b = &experts->blocks[block];
    uint32_t n_most = (uint32_t)bt_min_u64(n, BT_EXPERT_GUESS_MAX);
    if (experts->shared || block == experts->current || b->n_slots < experts->facts->n_expert_used + n_most) return;
    bt_experts_settle_guesses(experts);
    if (experts->trace) experts->trace(block, guessed, n_most, true, experts->trace_user);
    experts->guesses.block = block;
    memset(experts->is_wanted, 0, experts->facts->n_expert * sizeof *experts->is_wanted);
    for (uint32_t i = 0; i < n_most; i++)
        experts->is_wanted[guessed[i]] = true;
    for (uint32_t i = 0; i < n_most; i++)
        if (!bt_shelf_has(b, guessed[i])) start_guess(experts, b, guessed[i]);
}
