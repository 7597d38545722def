/* SPDX-License-Identifier: MIT
 * terminal.h: what may be written where: colour, width, a progress bar, and strings that cannot drive a terminal. */
#pragma once

#include "base/text.h"
#include "burthen.h"

#include <stdio.h>

typedef struct bt_terminal {
    FILE *stream;
    bool is_terminal;
    bool has_colour; /* a terminal, without NO_COLOR and TERM=dumb */
    bool has_bar;    /* a terminal that moves its cursor */
    uint32_t n_columns;
    /* bytes of a character that has not ended yet */
    char pending[4];
    size_t n_pending;
    /* the bar that is drawn, if any */
    bool bar_drawn;
    uint64_t bar_drawn_ns;
} bt_terminal;

typedef enum bt_colour { BT_COLOUR_NONE, BT_COLOUR_RED, BT_COLOUR_YELLOW, BT_COLOUR_BOLD } bt_colour;

/* environ_get: NULL is getenv. */
void bt_terminal_open(bt_terminal *terminal, FILE *stream, const char *(*environ_get)(const char *));
/* The sequence that switches to a colour (NONE: back), or "" where there is none. */
const char *bt_terminal_colour(const bt_terminal *terminal, bt_colour colour);

/* Write text of a model or file. On a terminal control bytes but newline and tab are shown as \xNN and a character cut
 * at the end waits for its rest; elsewhere the bytes go out as they are. */
void bt_terminal_write(bt_terminal *terminal, const char *s, size_t n);
/* Write what waits, and flush. false: writing failed at some time. */
bool bt_terminal_flush(bt_terminal *terminal);
/* What bt_terminal_write does on a terminal: append to out, leave the cut character in pending. */
void bt_terminal_escape(bt_terminal *terminal, const char *s, size_t n, bt_text *out);

/* Append text to out, sentences that are wider than the terminal broken at spaces, with further lines two columns in.
 * Rows of a table (two spaces somewhere) and words that are too long stay as they are; so does all where the stream is
 * no terminal. */
void bt_terminal_fold(const bt_terminal *terminal, const char *s, bt_text *out);

/* One line that is drawn over and over, at most ten times a second, and is gone after bar_end. Nothing where has_bar is
 * false. */
void bt_terminal_bar(bt_terminal *terminal, const char *label, uint64_t done, uint64_t total);
void bt_terminal_bar_end(bt_terminal *terminal);
/* "label [#####.....]  50 %" in at most n_columns - 1 columns; the bar goes when there is no room for it. */
void bt_terminal_bar_format(uint32_t n_columns, const char *label, uint64_t done, uint64_t total, bt_text *out);
