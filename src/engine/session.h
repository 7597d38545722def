/* SPDX-License-Identifier: MIT
 * session.h: one context of an engine's model: tokens in, logits out, every failure a status. */
#pragma once

#include "engine/engine.h"

struct llama_context;

typedef struct bt_session bt_session;

typedef struct bt_session_params {
    uint32_t n_ctx, n_batch, n_ubatch, n_parallel, n_threads;
    uint32_t n_outputs_max; /* rows of logits one call may ask for */
    uint32_t type_k, type_v;
    bt_choice flash_attn;
} bt_session_params;

/* As the plan says, with room for n_outputs_max rows of logits. */
bt_session_params bt_session_params_of(const bt_plan *plan, uint32_t n_outputs_max);

BT_MUST_CHECK bt_status bt_session_open(bt_engine *engine, const bt_session_params *params, bt_session **ret_session,
                                        bt_error *err);
void bt_session_close(bt_session *session); /* NULL is fine */
struct llama_context *bt_session_context(bt_session *session);
uint32_t bt_session_n_ctx(const bt_session *session); /* effective, of one sequence: its share of the context */
uint32_t bt_session_n_used(const bt_session *session);

/* Append tokens; logits are kept for the last one, or for those with a nonzero byte in wants_logits (n entries).
 * BT_E_LIMIT, code "context_full", when they do not fit; BT_E_CANCELLED when stopped; BT_E_IO and others as the device
 * reports. The session can be used again after any failure, from bt_session_clear. */
BT_MUST_CHECK bt_status bt_session_decode(bt_session *session, const int32_t *tokens, uint32_t n,
                                          const uint8_t *wants_logits, bt_error *err);
void bt_session_clear(bt_session *session);
uint64_t bt_session_passes(const bt_session *session); /* micro-batches computed so far */

/* Text to tokens, as llama.cpp's tools do for a prompt. The array is the caller's, freed with bt_heap_free. */
BT_MUST_CHECK bt_status bt_session_tokenize(bt_engine *engine, const char *text, size_t n_bytes, bool add_special,
                                            bool parse_special, int32_t **ret_tokens, uint32_t *ret_n, bt_error *err);
