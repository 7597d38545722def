/* SPDX-License-Identifier: MIT
 * bench_run.h: one repetition of a measurement: a prompt, then tokens one by one, and what was counted meanwhile. */
#pragma once

#include "engine/session.h"
#include "report/bench.h"

/* n pseudo-random tokens, the same for a vocabulary each time: no control tokens, but the first is the one that the
 * model begins texts with, if it does. BT_E_UNSUPPORTED, code "bench_vocab", for a vocabulary of control tokens. */
BT_MUST_CHECK bt_status bt_bench_tokens(bt_engine *engine, uint32_t n, int32_t *ret_tokens, bt_error *err);
/* Compute one token that counts for nothing, so that the first repetition finds what is made once. */
BT_MUST_CHECK bt_status bt_bench_warm_up(bt_session *session, const int32_t *tokens, bt_error *err);
/* From an empty session: n_prompt tokens at once, then n_gen more, each in a pass of its own. tokens: as many as both.
 * Before and after the second part all that streams is read, once or more, without computing. */
BT_MUST_CHECK bt_status bt_bench_repeat(bt_engine *engine, bt_session *session, const int32_t *tokens,
                                        uint32_t n_prompt, uint32_t n_gen, bt_bench_repetition *ret, bt_error *err);
