/* SPDX-License-Identifier: MIT
 * chat_tokens.h: a rendered conversation as tokens. */
#pragma once

#include "engine/template.h"

struct llama_vocab;

/* Tokens of all parts, with BOS where the model wants it. Equal to llama.cpp's tokens of the same text unless a message
 * spells a control token: its text then stays text.
 * ret_tokens: of n_max entries. BT_E_LIMIT, code "chat_full", when there are more; *ret_n is then their number. */
BT_MUST_CHECK bt_status bt_chat_tokens(const struct llama_vocab *vocab, const bt_rendered *rendered,
                                       int32_t *ret_tokens, uint32_t n_max, uint32_t *ret_n, bt_error *err);
