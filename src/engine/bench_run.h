/* SPDX-License-Identifier: MIT
 * bench_run.h: one repetition of a measurement: a prompt, then tokens one by one, and what was counted meanwhile. */
#pragma once

#include "engine/session.h"
#include "report/bench.h"

/* n_each pseudo-random tokens for each sequence, one behind the other, the same for a vocabulary each time: no control
 * tokens, but the first of each is the one that the model begins texts with, if it does. BT_E_UNSUPPORTED, code
 * "bench_vocab", for a vocabulary of control tokens. */
BT_MUST_CHECK bt_status bt_bench_tokens(bt_engine *engine, uint32_t n_sequences, uint32_t n_each, int32_t *ret_tokens,
                                        bt_error *err);
/* Compute one token of each sequence that counts for nothing, so that the first repetition finds what is made once. */
BT_MUST_CHECK bt_status bt_bench_warm_up(bt_session *session, const int32_t *tokens, uint32_t n_each, bt_error *err);
/* From an empty session: n_prompt tokens of each sequence at once, then n_gen more, each in a pass that is shared by a
 * token of every sequence. tokens: as many as both for each sequence, as bt_bench_tokens makes them. Before and after
 * the second part all that streams is read, once or more, without computing. */
BT_MUST_CHECK bt_status bt_bench_repeat(bt_engine *engine, bt_session *session, const int32_t *tokens,
                                        uint32_t n_prompt, uint32_t n_gen, bt_bench_repetition *ret, bt_error *err);
