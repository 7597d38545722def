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
    bool kv_unified, swa_full; /* as bt_wishes */
    bool embeddings;           /* vectors are asked for, not logits */
    uint32_t pooling;          /* as bt_wishes */
    bt_rope_scaling rope_scaling;
    uint64_t rope_scale_micro; /* 0 = the model's own */
    uint32_t yarn_orig_ctx;    /* 0 = the model's own */
} bt_session_params;

/* As the plan says, with room for n_outputs_max rows of logits. */
bt_session_params bt_session_params_of(const bt_plan *plan, uint32_t n_outputs_max);

BT_MUST_CHECK bt_status bt_session_open(bt_engine *engine, const bt_session_params *params, bt_session **ret_session,
                                        bt_error *err);
void bt_session_close(bt_session *session); /* NULL is fine */
struct llama_context *bt_session_context(bt_session *session);
uint32_t bt_session_n_ctx(const bt_session *session);  /* effective, of one sequence */
uint32_t bt_session_n_used(const bt_session *session); /* of one sequence */

/* Append tokens; logits are kept for the last one, or for those with a nonzero byte in wants_logits (n entries).
 * BT_E_LIMIT, code "context_full", when they do not fit; BT_E_CANCELLED when stopped; BT_E_IO and others as the device
 * reports. The session can be used again after any failure, from bt_session_clear. */
BT_MUST_CHECK bt_status bt_session_decode(bt_session *session, const int32_t *tokens, uint32_t n,
                                          const uint8_t *wants_logits, bt_error *err);
/* Append n tokens to each sequence of the context: those of sequence s are at tokens + s * stride. As many sequences
 * as a micro-batch has rows are computed together, one pass for all of them; logits are kept for the last token of
 * each, those of the last such group. Sequences are as long as one another: from bt_session_clear on, they grow by this
 * call only. Failures as above. */
BT_MUST_CHECK bt_status bt_session_decode_each(bt_session *session, const int32_t *tokens, uint32_t stride, uint32_t n,
                                               bt_error *err);
/* The same as bt_session_decode for tokens that were guessed, at most BT_TOKEN_BY_TOKEN_MAX of them, with logits for
 * each: to the bit those of single steps where no border of 256 cells lies between them (after
 * bt_device_learn_same_rows, or slower). */
BT_MUST_CHECK bt_status bt_session_verify(bt_session *session, const int32_t *tokens, uint32_t n, bt_error *err);
/* Whether tokens can be taken back one by one: not from a recurrent state. */
bool bt_session_goes_back(const bt_session *session);
/* Take back what was decoded last, until n tokens are left: at most those of the last call. BT_E_DEVICE, code
 * "take_back", when libllama does not do it. */
BT_MUST_CHECK bt_status bt_session_take_back(bt_session *session, uint32_t n, bt_error *err);
void bt_session_clear(bt_session *session);
/* Forget all but the first n tokens (n <= used). Returns how many are kept: 0 where the model's memory cannot go back
 * (recurrent state; a sliding window that has passed on). Also puts right what a failed decode left behind. */
uint32_t bt_session_keep(bt_session *session, uint32_t n);
/* The state of the tokens so far, written to a file by libllama, tensor by tensor, with the tokens given. The file may
 * exist. BT_E_IO, code "session_write". */
BT_MUST_CHECK bt_status bt_session_state_save(bt_session *session, const char *path, const int32_t *tokens, uint32_t n,
                                              bt_error *err);
/* Take up such a state instead of the present one. tokens: room for n_max. BT_E_STALE, code "session_stale", when it
 * is of another kind of memory; the session is then empty. */
BT_MUST_CHECK bt_status bt_session_state_load(bt_session *session, const char *path, int32_t *tokens, uint32_t n_max,
                                              uint32_t *ret_n, bt_error *err);
uint64_t bt_session_passes(const bt_session *session); /* micro-batches computed so far */
uint64_t bt_session_wait_ns(bt_session *session);      /* time that its engine waited for the disk, so far */
