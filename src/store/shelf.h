/* SPDX-License-Identifier: MIT
 * shelf.h: the slots of one block: whose each is, and whose bytes stand in it. Not seen outside src/store. */
#pragma once

#include "burthen.h"

#define BT_SHELF_NONE UINT32_MAX

typedef struct bt_shelf_slot {
    uint32_t owner;                     /* the expert that it was given to, or NONE */
    uint32_t holds[BT_EXPERT_PART_MAX]; /* whose bytes stand there, or NONE */
    uint64_t used;                      /* clock of the last request */
    bool coming;                        /* a guess is being read into it */
} bt_shelf_slot;

typedef struct bt_shelf {
    const bt_expert_block *facts;
    uint64_t offset;      /* of slot 0 in the mapping */
    bt_shelf_slot *slots; /* [n_slots] */
    uint32_t n_slots, n_expert;
    uint32_t *slot_of; /* [n_expert] or NONE */
} bt_shelf;

/* A shelf with nothing in it. false: no memory; to be closed all the same. */
bool bt_shelf_open(bt_shelf *shelf, const bt_expert_block *facts, uint32_t n_slots, uint32_t n_expert);
void bt_shelf_close(bt_shelf *shelf); /* one of zeros is fine */
/* Nothing is in it any more. */
void bt_shelf_forget(bt_shelf *shelf);

/* All parts of the expert stand in its slot. */
bool bt_shelf_has(const bt_shelf *shelf, uint32_t expert);
/* It has a slot, and a guess is being read into that. */
bool bt_shelf_expects(const bt_shelf *shelf, uint32_t expert);
/* The slot becomes the expert's, whoever had it. What stands there stays known as whose it is. */
void bt_shelf_give(bt_shelf *shelf, uint32_t at, uint32_t expert);
/* The slot used longest ago whose owner is not wanted: [n_expert], and into which nothing is coming; NONE where there
 * is no such slot. */
uint32_t bt_shelf_oldest(const bt_shelf *shelf, const bool *is_wanted);
