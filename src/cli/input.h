/* SPDX-License-Identifier: MIT
 * input.h: what the user says, a message at a time: from a line editor on a terminal, else from the lines of a file or
 * pipe. */
#pragma once

#include "base/text.h"
#include "cli/terminal.h"

typedef struct bt_input bt_input;

typedef enum bt_input_result {
    BT_INPUT_TEXT,
    BT_INPUT_END,         /* of the input */
    BT_INPUT_INTERRUPTED, /* a signal came; the line is dropped */
    BT_INPUT_FAILED,      /* errno says why */
} bt_input_result;

/* Reads stdin. prompt: shown on a terminal only, with what the user types. NULL when memory is refused. */
bt_input *bt_input_open(const char *prompt);
void bt_input_close(bt_input *input); /* NULL is fine */
/* One message without its line end, in place of what text held. A backslash at a line's end goes on with the next line;
 * on a terminal, so do lines that were pasted together. */
bt_input_result bt_input_read(bt_input *input, bt_text *text);
