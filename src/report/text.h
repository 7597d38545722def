/* SPDX-License-Identifier: MIT
 * text.h: what the text reports share: aligned rows, escaped strings, numbers without a locale. Private to src/report.
 */
#pragma once

#include "base/text.h"
#include "burthen.h"

/* "  Label                value\n"; the value is printf's. */
void bt_row(bt_text *out, const char *label, const char *fmt, ...) BT_PRINTF(3, 4);
/* The same for a string of a file: escaped, and cut at a sane length. */
void bt_row_escaped(bt_text *out, const char *label, const char *value);
/* Where blocks are, and the lines of each device (offload.c); nothing where all is on the host. */
void bt_offload_rows(bt_text *out, const bt_plan *plan, const bt_facts *facts);
void bt_offload_ledger(bt_text *out, const bt_plan *plan);
/* "4.83", "12.3", "192": tokens/s from micro-tokens/s, in at least three digits. */
#define BT_RATE_TEXT 32
const char *bt_rate_format(uint64_t micro, char text[BT_RATE_TEXT]);
#define BT_RATE(micro) bt_rate_format((micro), (char[BT_RATE_TEXT]){0})
