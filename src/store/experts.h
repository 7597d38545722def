/* SPDX-License-Identifier: MIT
 * experts.h: slots in memory for the experts of a mixture, and what is in them.
 *
 *     block 0   [slot 0][slot 1] ... [slot n0 - 1]       each holds one expert of that block: all its parts
 *     block 1   [slot 0][slot 1] ... [slot n1 - 1]
 *
 * All of it is one mapping, made and touched once: that is the bound, whatever is asked for. A block's slots hold the
 * experts used last. What is not there is read when it is asked for; reads of one request go out together.
 *
 * One thread at a time. Blocks are numbered as in bt_facts.expert_blocks, parts as in bt_expert_block.parts. */
#pragma once

#include "memory/account.h"
#include "store/reader.h"

typedef struct bt_experts bt_experts;

typedef struct bt_experts_stats {
    uint64_t hits, misses; /* of the different experts that requests named, whether all of it was there at once */
    uint64_t guesses, guesses_used; /* experts that were read before they were asked for, and were asked for then */
    uint64_t waves;                 /* requests of more experts than there are slots */
    uint64_t read_bytes;            /* of experts, without the pages' margins */
    uint64_t wait_ns;
} bt_experts_stats;

/* n_slots: [facts->n_expert_blocks], each 1 to facts->n_expert. shared: the blocks use the same memory, one after
 * another, and keep nothing meanwhile. Everything is committed on BT_LINE_EXPERTS and populated. */
BT_MUST_CHECK bt_status bt_experts_open(bt_account *account, bt_reader *reader, const bt_facts *facts,
                                        const uint32_t *n_slots, bool shared, bt_experts **ret_experts, bt_error *err);
void bt_experts_close(bt_experts *experts); /* NULL is fine */
/* Where slot 0 of a block stands. Slots follow each other at the block's slot_bytes. */
uint8_t *bt_experts_base(const bt_experts *experts, uint32_t block);

/* Ask for different experts of a block that fit in its slots together: what is missing begins to be read, first_part's
 * parts first. Until the next request they stay. BT_E_IO and BT_E_LIMIT as bt_reader_start. */
BT_MUST_CHECK bt_status bt_experts_request(bt_experts *experts, uint32_t block, const uint32_t *wanted, uint32_t n,
                                           uint32_t first_part, bt_error *err);
/* After a request: wait until a part of all that was asked for is there. BT_E_IO as bt_reader_wait. */
BT_MUST_CHECK bt_status bt_experts_wait(bt_experts *experts, uint32_t part, bt_error *err);
/* The slot of an expert that was asked for. */
uint32_t bt_experts_slot(const bt_experts *experts, uint32_t block, uint32_t expert);

/* Begin to read experts that a block may want next, the likeliest first: [n], at most BT_EXPERT_GUESS_MAX are taken,
 * and none where a block has not the slots for it beside what a token uses. Between the last wait of a request and the
 * next request. Nothing can fail: what is not read by then is read when it is asked for. */
#define BT_EXPERT_GUESS_MAX 8u
void bt_experts_guess(bt_experts *experts, uint32_t block, const uint32_t *guessed, uint32_t n);

/* Ask for more experts than there are slots. They come one after another, in the order ret_order: [n] (what is there
 * first, so that it is used before it is overwritten). */
BT_MUST_CHECK bt_status bt_experts_request_in_turn(bt_experts *experts, uint32_t block, const uint32_t *wanted,
                                                   uint32_t n, uint32_t *ret_order, bt_error *err);
/* After that, for each part, positions 0 to n - 1 of the order: where that part of the expert stands, until the next
 * position is asked for. The ones behind it are being read meanwhile. BT_E_IO as bt_reader_wait. */
BT_MUST_CHECK bt_status bt_experts_turn(bt_experts *experts, uint32_t part, uint32_t position, void **ret_slice,
                                        bt_error *err);

/* Of a block that has a slot for each expert: read all of them, each to the slot of its number. progress: called with
 * bytes done; false cancels. */
typedef bool (*bt_experts_progress)(uint64_t done_bytes, void *user);
BT_MUST_CHECK bt_status bt_experts_read_all(bt_experts *experts, uint32_t block, bt_experts_progress progress,
                                            void *user, bt_error *err);

/* Called with each request and each guess, before it is served: tests hold simulations of the cache to it. */
typedef void (*bt_experts_trace)(uint32_t block, const uint32_t *experts, uint32_t n, bool is_guess, void *user);
void bt_experts_set_trace(bt_experts *experts, bt_experts_trace trace, void *user);
void bt_experts_stats_read(const bt_experts *experts, bt_experts_stats *ret);
