/* SPDX-License-Identifier: MIT
 * grammar.h: a grammar's rules on what may come next, in little memory. */
#pragma once

#include "burthen.h"

struct llama_sampler;
struct llama_vocab;

/* A sampler that leaves of the candidates those that the GBNF text allows: as llama.cpp's own, and its memory does not
 * grow with the vocabulary. BT_E_ARG, code "grammar": it cannot be parsed, or is larger than a parser's stack.
 * BT_E_NOMEM.
 */
BT_MUST_CHECK bt_status bt_grammar_open(const struct llama_vocab *vocab, const char *text,
                                        struct llama_sampler **ret_sampler, bt_error *err);
