/* SPDX-License-Identifier: MIT
 * draft.h: the draft: a small model, held wholly in memory, that guesses what a larger one of the same tokens says
 * next.
 */
#pragma once

#include "engine/engine.h"

typedef struct bt_draft bt_draft;

/* Beside the engine of the larger model, which may still be opening: when its vocabulary is there and none of its
 * weights (bt_engine_params.check), so that no two loading peaks meet. plan is that of the larger model: its context,
 * micro-batch and threads are the draft's too, its lines draft.* are what the draft is charged to. facts and beside
 * outlive the draft. As bt_engine_open and bt_session_open fail; BT_E_UNSUPPORTED, code "draft_state", when it cannot
 * take tokens back. */
BT_MUST_CHECK bt_status bt_draft_open(const bt_facts *facts, bt_engine *beside, const bt_plan *plan,
                                      bt_reader_kind reader, bt_draft **ret_draft, bt_error *err);
void bt_draft_close(bt_draft *draft); /* NULL is fine */
/* As bt_device_set_abort: what is being guessed is stopped. */
void bt_draft_set_abort(bt_draft *draft, bool (*should_abort)(void *), void *user);

/* What the larger model would not read in a pass if it had the draft's memory, in 256ths of what it reads. */
uint32_t bt_draft_reads_256(const bt_draft *draft);
/* The draft does not pay: it is unloaded, and its weights' and cache's bytes are lent to weights of the larger model
 * (docs/design.md S5), for good. */
void bt_draft_give_up(bt_draft *draft);

/* Heap that its graphs took: noted on the line draft.compute. freed: heap that the process has less since it was given
 * up; the lines keep their notes. */
uint64_t bt_draft_heap_bytes(const bt_draft *draft);
uint64_t bt_draft_freed_bytes(const bt_draft *draft);

/* Both keep the draft's context in step: what it holds of other tokens than these is forgotten, what it does not hold
 * is decoded. They allocate nothing. false: nothing is guessed, now (the context is full, it was stopped) or, after a
 * failure, which is logged once, or when it was given up, from now on. */
/* Read tokens, the whole text from its start. */
bool bt_draft_follow(bt_draft *draft, const int32_t *tokens, uint32_t n_tokens);
/* The n tokens, n > 0, that the draft finds most likely behind them. */
bool bt_draft_guess(bt_draft *draft, const int32_t *tokens, uint32_t n_tokens, int32_t *ret_guesses, uint32_t n);
