/* SPDX-License-Identifier: MIT
 * log_line.h: an entry of the log as the line that is written. Pure. */
#pragma once

#include "base/log.h"

/* PIPE_BUF of Linux: a line up to this long, its newline with it, reaches a pipe in one piece. */
#define BT_LOG_LINE_BYTES 4096u

typedef enum bt_log_colour { BT_LOG_NO_COLOUR, BT_LOG_ANSI } bt_log_colour;

typedef struct bt_log_form {
    bool json;             /* an object (docs/schema/log.schema.json); else text */
    bool journal;          /* "<4>" in front, as sd-daemon(3) has it; text has no time then: the journal has its own */
    bool dated;            /* text begins with time, process and level */
    bt_log_colour colour;  /* of text */
    const char *component; /* the command */
    int64_t pid;
} bt_log_form;

/* One line with its newline, at most BT_LOG_LINE_BYTES, NUL-terminated: valid UTF-8 without control characters but that
 * newline (and colour), whatever stands in the entry; a message that is too long is cut. unix_ms: when. Returns its
 * length. */
size_t bt_log_line(const bt_log_form *form, const bt_log_entry *entry, int64_t unix_ms,
                   char ret[BT_LOG_LINE_BYTES + 1]);
