/* SPDX-License-Identifier: MIT
 *
 * shelf.c: the slots of one block: whose each is, and whose bytes stand in it.
 *
 * Identity is (block, part, expert). To whom a slot was given, and what stands in it, are two things: each slot
 * remembers for each of its parts whose bytes those are, and an expert is there when all parts of its slot are its own.
 * A read that never came to its end changes nothing of that but the part that it was to overwrite.
 *
 * Reads nothing and knows no time: the clock is its caller's. Bound: one slot for each expert of the block. */
#include "store/shelf.h"

#include "base/heap.h"

bool bt_shelf_open(bt_shelf *shelf, const bt_expert_block *facts, uint32_t n_slots, uint32_t n_expert) {
    shelf->facts = facts;
    shelf->n_slots = n_slots;
    shelf->n_expert = n_expert;
    shelf->slots = bt_heap_array(n_slots, sizeof *shelf->slots);
    shelf->slot_of = bt_heap_array(n_expert, sizeof *shelf->slot_of);
    if (!shelf->slots || !shelf->slot_of) return false;
    bt_shelf_forget(shelf);
    return true;
}

void bt_shelf_close(bt_shelf *shelf) {
    bt_heap_free(shelf->slots);
    bt_heap_free(shelf->slot_of);
}

void bt_shelf_forget(bt_shelf *shelf) {
    for (uint32_t i = 0; i < shelf->n_expert; i++)
        shelf->slot_of[i] = BT_SHELF_NONE;
    for (uint32_t i = 0; i < shelf->n_slots; i++) {
        shelf->slots[i].owner = BT_SHELF_NONE;
        shelf->slots[i].coming = false;
        for (uint32_t p = 0; p < BT_EXPERT_PART_MAX; p++)
            shelf->slots[i].holds[p] = BT_SHELF_NONE;
    }
}

static bool holds_all(const bt_shelf *shelf, uint32_t at, uint32_t expert) {
    for (uint32_t p = 0; p < shelf->facts->n_parts; p++)
        if (shelf->slots[at].holds[p] != expert) return false;
    return true;
}

bool bt_shelf_has(const bt_shelf *shelf, uint32_t expert) {
    return shelf->slot_of[expert] != BT_SHELF_NONE && holds_all(shelf, shelf->slot_of[expert], expert);
}

bool bt_shelf_expects(const bt_shelf *shelf, uint32_t expert) {
    return shelf->slot_of[expert] != BT_SHELF_NONE && shelf->slots[shelf->slot_of[expert]].coming;
}

void bt_shelf_give(bt_shelf *shelf, uint32_t at, uint32_t expert) {
    bt_shelf_slot *slot = &shelf->slots[at];
    uint32_t before = shelf->slot_of[expert];
    if (before != BT_SHELF_NONE) shelf->slots[before].owner = BT_SHELF_NONE;
    if (slot->owner != BT_SHELF_NONE) shelf->slot_of[slot->owner] = BT_SHELF_NONE;
    slot->owner = expert;
    shelf->slot_of[expert] = at;
}

uint32_t bt_shelf_oldest(const bt_shelf *shelf, const bool *is_wanted) {
    uint32_t found = BT_SHELF_NONE;
    for (uint32_t i = 0; i < shelf->n_slots; i++) {
        const bt_shelf_slot *slot = &shelf->slots[i];
        if (slot->coming || (slot->owner != BT_SHELF_NONE && is_wanted[slot->owner])) continue;
        if (found == BT_SHELF_NONE || slot->used < shelf->slots[found].used) found = i;
    }
    return found;
}
