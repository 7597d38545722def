/* SPDX-License-Identifier: MIT
 * completion.h: what may stand where a shell's cursor is, and the scripts that ask. */
#pragma once

#include "cli/verbs.h"

/* words: what was typed behind "burthen", the one that the cursor is in last ("" for none yet). Appends a line a word
 * that may stand there, "WORD<TAB>what it is" or "WORD", none where it does not begin as that one; then at most one
 * line of these:
 *
 *   :file ENDINGS   a file that ends in one of them ("gguf yaml"; none: any file), or a folder
 *   :folder         a folder
 *   :command N      words[N] names another program, and what follows is its own */
void bt_completion_words(const char *const *words, size_t n_words, bt_text *text);

/* What a shell reads once; NULL: no such shell. */
const char *bt_completion_script(const char *shell);
