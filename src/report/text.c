/* SPDX-License-Identifier: MIT
 * text.c: rows and numbers of the text reports. All is integer arithmetic, so that a report is the same bytes in every
 * locale; what came from a file is escaped and bounded (SHOWN_MAX), so that it can neither drive a terminal nor bury
 * the report. */
#include "report/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LABEL_COLUMNS 20  /* the longest label of the seed's layout, "Mandatory memory", and room for ours */
#define SHOWN_MAX     256 /* bytes of a foreign string; longer ones are cut */
#define MICRO         UINT64_C(1000000)

void bt_row(bt_text *out, const char *label, const char *fmt, ...) {
    char value[512];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(value, sizeof value, fmt, args);
    va_end(args);
    bt_text_addf(out, "  %-*s %s\n", LABEL_COLUMNS, label, value);
}

void bt_row_escaped(bt_text *out, const char *label, const char *value) {
    size_t n = strlen(value);
    size_t shown = n > SHOWN_MAX ? bt_utf8_fit(value, SHOWN_MAX) : n;
    bt_text_addf(out, "  %-*s ", LABEL_COLUMNS, label);
    bt_text_add_escaped(out, value, shown);
    bt_text_add(out, shown < n ? "...\n" : "\n");
}

const char *bt_rate_format(uint64_t micro, char text[BT_RATE_TEXT]) {
    uint64_t unit = micro < 10 * MICRO ? MICRO / 100 : micro < 100 * MICRO ? MICRO / 10 : MICRO;
    uint64_t parts = micro / unit + (micro % unit >= unit / 2); /* to the nearest, half up */
    uint64_t per_whole = MICRO / unit;
    if (per_whole == 1) {
        (void)snprintf(text, BT_RATE_TEXT, "%" PRIu64, parts);
    } else {
        (void)snprintf(text, BT_RATE_TEXT, "%" PRIu64 ".%0*" PRIu64, parts / per_whole, per_whole == 100 ? 2 : 1,
                       parts % per_whole);
    }
    return text;
}
