/* SPDX-License-Identifier: MIT
 * experts_internal.h: what the files of the slots of experts share: what is under way, and the steps that
 * requests, guesses and turns are made of. Not seen outside src/store.
 *
 *     experts.c        life, memory, one part of one expert, requests that fit
 *     experts_guess.c  guesses
 *     experts_turn.c   requests that do not fit
 *     shelf.c          whose each slot is */
#pragma once

#include "store/experts.h"
#include "store/shelf.h"

#define BT_EXPERT_AHEAD     8u   /* reads in turn: experts are a quarter of a MiB and more, so that is a full queue */
#define BT_EXPERT_JOB_RUNS  128u /* of one job; a reader has room for 256 beside the ring's (store/ring.c) */
#define BT_EXPERT_PART_JOBS 8u   /* 1024 experts */

/* A part of an expert on its way to a slot. */
typedef struct bt_expert_arrival {
    uint32_t expert, slot;
} bt_expert_arrival;

/* Reads of one part. */
typedef struct bt_expert_reads {
    int jobs[BT_EXPERT_PART_JOBS]; /* [n_jobs] of BT_EXPERT_JOB_RUNS arrivals each; -1: waited for */
    uint32_t n_jobs;
    bt_expert_arrival *arrivals; /* [n_expert] */
    uint32_t n;
} bt_expert_reads;

/* Experts that come in turn. */
typedef struct bt_expert_turns {
    uint32_t *order, *slot_at;         /* [n_expert] */
    uint32_t n, n_there;               /* of them, there at first */
    uint32_t next[BT_EXPERT_PART_MAX]; /* the first of those that were not there that was not started */
    int jobs[BT_EXPERT_AHEAD];         /* of it, at its number modulo BT_EXPERT_AHEAD; -1: nothing to wait for */
} bt_expert_turns;

/* Experts of a block that are being read before they were asked for. */
typedef struct bt_expert_guesses {
    uint32_t block, n;
    bt_expert_arrival arrivals[BT_EXPERT_GUESS_MAX];
    int jobs[BT_EXPERT_GUESS_MAX]; /* -1: waited for */
} bt_expert_guesses;

struct bt_experts {
    bt_account *account;
    bt_reader *reader;
    const bt_facts *facts;
    bt_mapping *mapping;
    bt_shelf *blocks; /* [facts->n_expert_blocks] */
    uint32_t current; /* block of the last request, or BT_SHELF_NONE */
    bool shared;      /* blocks stand on each other */
    bt_expert_reads reads[BT_EXPERT_PART_MAX];
    bt_expert_turns turns;
    bt_expert_guesses guesses;
    bool *is_wanted; /* [n_expert] scratch */
    uint64_t clock;
    bt_experts_trace trace;
    void *trace_user;
    bt_experts_stats stats;
};

/* ---- experts.c ---- */

/* Where a part stands in a slot of a block, and the pages of the file that hold it of an expert. */
uint8_t *bt_experts_region(const bt_experts *experts, const bt_shelf *block, uint32_t part, uint32_t at);
bt_run bt_experts_run(const bt_experts *experts, const bt_shelf *block, uint32_t part, bt_expert_arrival arrival);
/* A job that reads a part of [n] experts, at most BT_EXPERT_JOB_RUNS. first: the pass waits for it. */
BT_MUST_CHECK bt_status bt_experts_start(bt_experts *experts, const bt_shelf *block, uint32_t part,
                                         const bt_expert_arrival *arrivals, uint32_t n, bool first, int *ret_job,
                                         bt_error *err);
/* It was read: it stands where all stand, and the slot knows it. */
void bt_experts_arrive(bt_experts *experts, bt_shelf *block, uint32_t part, bt_expert_arrival arrival);
/* A request begins: what is wanted is marked and counted, what a pass that failed left behind is given up. */
void bt_experts_begin(bt_experts *experts, uint32_t index, const uint32_t *wanted, uint32_t n);
/* Nothing that was asked for is under way any more. */
void bt_experts_give_up(bt_experts *experts);

/* ---- experts_guess.c ---- */

/* Guesses that are still under way are forgotten. */
void bt_experts_drop_guesses(bt_experts *experts);
/* Wait for all that are under way. One that failed is not there, and is read again when it is asked for. */
void bt_experts_settle_guesses(bt_experts *experts);
/* The request wants one that is under way. */
bool bt_experts_wants_guess(const bt_experts *experts);
/* Wait for those. BT_E_IO as bt_reader_wait. */
BT_MUST_CHECK bt_status bt_experts_wait_guesses(bt_experts *experts, bt_error *err);
