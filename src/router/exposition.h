/* SPDX-License-Identifier: MIT
 * exposition.h: lines of the Prometheus text format 0.0.4, read strictly and written. Private to metrics.c and
 * scrape.c. */
#pragma once

#include "base/text.h"

typedef enum bt_metric_type {
    BT_METRIC_UNTYPED, /* as a word of the format, too; and what was never typed */
    BT_METRIC_COUNTER,
    BT_METRIC_GAUGE,
    BT_METRIC_HISTOGRAM,
    BT_METRIC_SUMMARY,
} bt_metric_type;
const char *bt_metric_type_name(bt_metric_type type);

/* Part of a text that somebody else holds. */
typedef struct bt_piece {
    const char *at;
    uint32_t n_bytes;
} bt_piece;

typedef enum bt_exposition_kind {
    BT_EXPOSITION_NOTHING, /* a blank line, a comment */
    BT_EXPOSITION_HELP,    /* name; value: the text as it was escaped */
    BT_EXPOSITION_TYPE,    /* name, type */
    BT_EXPOSITION_SAMPLE,  /* name; labels: between the braces; value; time: empty, or its time stamp */
    BT_EXPOSITION_WRONG,
} bt_exposition_kind;

typedef struct bt_exposition_line {
    bt_exposition_kind kind;
    bt_piece name, labels, value, time;
    bt_metric_type type;
} bt_exposition_line;

/* One line without its line feed. */
void bt_exposition_read(const char *line, size_t n_bytes, bt_exposition_line *ret);
/* The next label of *labels, which is moved behind it; false: no more, or (in what was not read before) not of the
 * format. value: as it was escaped. */
bool bt_exposition_label(bt_piece *labels, bt_piece *ret_name, bt_piece *ret_value);
/* A label's value, escaped; U+FFFD for what is no UTF-8. */
void bt_exposition_escape(bt_text *out, const char *value);
bool bt_piece_is(bt_piece piece, const char *text);
