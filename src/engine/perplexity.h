/* SPDX-License-Identifier: MIT
 * perplexity.h: how well a model predicts a text, computed as llama-perplexity does, digit for digit. */
#pragma once

#include "engine/session.h"
#include "engine/tokenize.h"

typedef struct bt_perplexity {
    uint32_t n_chunks;
    uint64_t n_scored;   /* tokens */
    double value, error; /* e to the mean negative log-likelihood, and its standard error */
} bt_perplexity;

/* Rows of logits one call needs: the second half of a chunk, a micro-batch at a time. */
uint32_t bt_perplexity_outputs(uint32_t n_ctx, uint32_t n_ubatch);
/* Score a text's tokens in chunks of n_chunk, as the context was asked for: llama.cpp may make it longer. 3 to the
 * session's. They are made as they are needed: two chunks of them are held. tokens: just opened.
 * on_chunk: called after each with the running value; false stops (BT_E_CANCELLED). BT_E_ARG, code "text_short", for
 * fewer than two chunks. */
BT_MUST_CHECK bt_status bt_perplexity_compute(bt_session *session, bt_token_stream *tokens, uint32_t n_chunk,
                                              uint32_t n_ubatch, uint32_t max_chunks,
                                              bool (*on_chunk)(uint32_t chunk, double value, void *user), void *user,
                                              bt_perplexity *ret, bt_error *err);
