/* SPDX-License-Identifier: MIT
 * words.h: a command line as words, as a shell would split it, without a shell. */
#pragma once

#include "base/arena.h"

/* text        quotes, backslashes and line continuations as in sh; a line that starts with # is left out. Nothing is
 *             expanded, piped or redirected: a word that a shell would take as that is an error.
 * ret         words, NULL at the end; at least the NULL
 * ret_line    of an error: the line of text, from 0 on
 * returns     BT_E_FORMAT (code "config", the sentence without a place); BT_E_LIMIT over n_max words; BT_E_NOMEM */
BT_MUST_CHECK bt_status bt_words_split(const char *text, uint32_t n_max, bt_arena *arena, char ***ret, uint32_t *ret_n,
                                       uint32_t *ret_line, bt_error *err);
/* The text without lines that start with #; the newlines stay. */
char *bt_words_strip_comments(const char *text, bt_arena *arena);
