/* SPDX-License-Identifier: MIT
 * tokenize.h: a text's tokens, a window of the text at a time. */
#pragma once

#include "engine/engine.h"

struct llama_vocab;

#define BT_TOKENIZE_TEXT_MAX (64u << 20) /* bytes of a text; far over any context */

typedef struct bt_tokenize_ask {
    const struct llama_vocab *vocab;
    const char *text; /* outlives the stream */
    size_t n_bytes;
    bool add_special, parse_special; /* as of llama_tokenize */
    uint64_t room_bytes; /* what llama.cpp's lists may take where a text has no seam; else they take little */
} bt_tokenize_ask;

/* Tokens of a text, in order, equal to those of the whole text at once. */
typedef struct bt_token_stream bt_token_stream;

/* For an engine's model: what its budget has left now is the room. */
bt_tokenize_ask bt_tokenize_ask_of(bt_engine *engine, const char *text, size_t n_bytes, bool add_special,
                                   bool parse_special);
/* BT_E_ARG, code "prompt_bytes": more than BT_TOKENIZE_TEXT_MAX; BT_E_FORMAT, code "text_utf8": bytes that llama.cpp
 * would end the process over. Then as _next. */
BT_MUST_CHECK bt_status bt_token_stream_open(const bt_tokenize_ask *ask, bt_token_stream **ret, bt_error *err);
/* The next n_max tokens, fewer at the end; 0: there are no more. A failure is for good.
 * BT_E_FORMAT, code "tokenize": llama.cpp refuses the text; BT_E_LIMIT, code "tokenize_room": it has no seam for so
 * long that the lists would pass the room; BT_E_NOMEM. */
BT_MUST_CHECK bt_status bt_token_stream_next(bt_token_stream *stream, int32_t *tokens, uint32_t n_max, uint32_t *ret_n,
                                             bt_error *err);
void bt_token_stream_close(bt_token_stream *stream); /* NULL is fine */

/* How many there are; nothing is kept. */
BT_MUST_CHECK bt_status bt_tokenize_count(const bt_tokenize_ask *ask, uint32_t *ret_n, bt_error *err);
/* All of them. The array is the caller's, freed with bt_heap_free. */
BT_MUST_CHECK bt_status bt_tokenize(const bt_tokenize_ask *ask, int32_t **ret_tokens, uint32_t *ret_n, bt_error *err);
