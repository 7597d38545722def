/* SPDX-License-Identifier: MIT
 *
 * experts_turn.c: more experts than there are slots: the slots are a ring through which they pass, once for each part.
 *
 *     order   r0 r1 | n0 n1 n2 n3 n4 ...      r: there already, n: not; s slots
 *     slots   their own | free ones, then those of r0, r1, then again from the first
 *
 * A slot is read into when the expert that stood there has had its turn; up to BT_EXPERT_AHEAD reads are under way. The
 * order is the same for all parts, so that at the end the last s experts are there as wholes.
 *
 * To read all experts of a block that has a slot for each is the same, with each coming to the slot of its number. */
#include "base/error.h"
#include "base/os.h"
#include "store/experts_internal.h"

#include <string.h>

/* What is there, in the order of slots; then the others by number, which is the order of the file. */
static void make_order(bt_experts *e, const bt_shelf *b) {
    bt_expert_turns *t = &e->turns;
    t->n = 0;
    for (uint32_t i = 0; i < b->n_slots; i++) {
        uint32_t owner = b->slots[i].owner;
        if (owner == BT_SHELF_NONE || !e->is_wanted[owner] || !bt_shelf_has(b, owner)) continue;
        t->slot_at[t->n] = i;
        t->order[t->n++] = owner;
        e->is_wanted[owner] = false; /* has its turn */
    }
    t->n_there = t->n;
    for (uint32_t i = 0; i < e->facts->n_expert; i++)
        if (e->is_wanted[i]) t->order[t->n++] = i;
}

/* The k-th slot that the others pass through: first those of nobody who has a turn, then those of whom is there. */
static void give_turns(bt_experts *e, const bt_shelf *b) {
    bt_expert_turns *t = &e->turns;
    uint32_t n = t->n_there; /* positions that have a slot */
    for (uint32_t i = 0, there = 0; i < b->n_slots && n < t->n; i++) {
        if (there < t->n_there && t->slot_at[there] == i)
            there++;
        else
            t->slot_at[n++] = i;
    }
    for (uint32_t i = 0; i < t->n_there && n < t->n; i++)
        t->slot_at[n++] = t->slot_at[i];
    for (; n < t->n; n++)
        t->slot_at[n] = t->slot_at[n - b->n_slots];
}

/* Who stood in the slot of the k-th of the others before it: a position, or BT_SHELF_NONE. */
static uint32_t position_before(const bt_experts *e, const bt_shelf *b, uint32_t k) {
    const bt_expert_turns *t = &e->turns;
    if (k >= b->n_slots) return t->n_there + k - b->n_slots;
    uint32_t n_free = b->n_slots - t->n_there;
    return k < n_free ? BT_SHELF_NONE : k - n_free;
}

bt_status bt_experts_request_in_turn(bt_experts *e, uint32_t index, const uint32_t *wanted, uint32_t n,
                                     uint32_t *ret_order, bt_error *err) {
    bt_shelf *b = &e->blocks[index];
    bt_expert_turns *t = &e->turns;
    if (n > e->facts->n_expert)
        return bt_fail(err, BT_E_ARG, "expert_slots", BT_MEASURE_ITEMS, n, e->facts->n_expert,
                       "%u different experts, of %u", n, e->facts->n_expert);
    bt_experts_settle_guesses(e);
    bt_experts_begin(e, index, wanted, n);
    e->stats.waves++;
    make_order(e, b);
    give_turns(e, b);
    for (uint32_t i = 0; i < t->n; i++) { /* the last of a slot stays */
        bt_shelf_give(b, t->slot_at[i], t->order[i]);
        b->slots[t->slot_at[i]].used = e->clock;
    }
    memset(t->next, 0, sizeof t->next);
    memcpy(ret_order, t->order, t->n * sizeof *ret_order);
    return BT_OK;
}

static bt_status start_ahead(bt_experts *e, bt_shelf *b, uint32_t part, uint32_t position, bt_error *err) {
    bt_expert_turns *t = &e->turns;
    uint32_t n_others = t->n - t->n_there;
    uint32_t now = position < t->n_there ? 0 : position - t->n_there;
    while (t->next[part] < n_others && t->next[part] < now + BT_EXPERT_AHEAD) {
        uint32_t k = t->next[part], before = position_before(e, b, k);
        if (before != BT_SHELF_NONE && before >= position) break;
        bt_expert_arrival a = {t->order[t->n_there + k], t->slot_at[t->n_there + k]};
        if (b->slots[a.slot].holds[part] != a.expert)
            BT_TRY(bt_experts_start(e, b, part, &a, 1, false, &t->jobs[k % BT_EXPERT_AHEAD], err));
        t->next[part]++;
    }
    return BT_OK;
}

static bt_status finish_turn(bt_experts *e, bt_shelf *b, uint32_t part, uint32_t position, bt_error *err) {
    bt_expert_turns *t = &e->turns;
    int *job = &t->jobs[(position - t->n_there) % BT_EXPERT_AHEAD];
    if (*job < 0) return BT_OK;
    uint64_t since_ns = bt_os_now_ns();
    bt_status status = bt_reader_wait(e->reader, *job, err);
    *job = -1;
    e->stats.wait_ns += bt_os_now_ns() - since_ns;
    if (status == BT_OK) bt_experts_arrive(e, b, part, (bt_expert_arrival){t->order[position], t->slot_at[position]});
    return status;
}

bt_status bt_experts_turn(bt_experts *e, uint32_t part, uint32_t position, void **ret_slice, bt_error *err) {
    bt_shelf *b = &e->blocks[e->current];
    bt_expert_turns *t = &e->turns;
    if (position >= t->n)
        return bt_fail(err, BT_E_ARG, "expert_slots", BT_MEASURE_ITEMS, position, t->n, "turn %u of %u", position,
                       t->n);
    bt_status status = start_ahead(e, b, part, position, err);
    if (status == BT_OK && position >= t->n_there) status = finish_turn(e, b, part, position, err);
    if (status != BT_OK) {
        bt_experts_give_up(e);
        return status;
    }
    *ret_slice = bt_experts_region(e, b, part, t->slot_at[position]) + b->facts->parts[part].shift;
    return BT_OK;
}

bt_status bt_experts_read_all(bt_experts *e, uint32_t index, bt_experts_progress progress, void *user, bt_error *err) {
    bt_shelf *b = &e->blocks[index];
    uint64_t done = 0;
    if (b->n_slots < e->facts->n_expert)
        return bt_fail(err, BT_E_ARG, "expert_slots", BT_MEASURE_ITEMS, e->facts->n_expert, b->n_slots,
                       "%u slots for %u experts", b->n_slots, e->facts->n_expert);
    bt_experts_give_up(e);
    bt_experts_drop_guesses(e);
    if (e->shared && e->current != index) bt_shelf_forget(b);
    bt_expert_turns *t = &e->turns; /* each comes to a slot of its own */
    t->n = e->facts->n_expert;
    t->n_there = 0;
    e->current = index;
    memset(t->next, 0, sizeof t->next);
    for (uint32_t i = 0; i < t->n; i++) {
        t->order[i] = t->slot_at[i] = i;
        bt_shelf_give(b, i, i);
    }
    for (uint32_t p = 0; p < b->facts->n_parts; p++) {
        for (uint32_t i = 0; i < t->n; i++) {
            void *slice = NULL;
            BT_TRY(bt_experts_turn(e, p, i, &slice, err));
            done += b->facts->parts[p].slice_bytes;
            if (progress && !progress(done, user)) {
                bt_experts_give_up(e);
                return bt_fail(err, BT_E_CANCELLED, "cancelled", BT_MEASURE_NONE, 0, 0, "loading was cancelled");
            }
        }
    }
    return BT_OK;
}
