/* SPDX-License-Identifier: MIT
 *
 * json_escape.c: text as the inside of a JSON string (RFC 8259, section 7). For fixed buffers: nothing is allocated. */
#include "router/json_escape.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

char *bt_json_escape(const char *text, char *ret, size_t capacity) {
    size_t n = strlen(text), at = 0;
    for (size_t i = 0; i < n;) {
        char piece[8];
        size_t length = bt_utf8_length(text + i, n - i);
        unsigned char c = (unsigned char)text[i];
        if (length == 0) {
            (void)snprintf(piece, sizeof piece, "\xEF\xBF\xBD");
        } else if (c == '"' || c == '\\') {
            (void)snprintf(piece, sizeof piece, "\\%c", c);
        } else if (c < 0x20 || c == 0x7F) {
            (void)snprintf(piece, sizeof piece, "\\u%04x", c);
        } else {
            (void)snprintf(piece, sizeof piece, "%.*s", (int)length, text + i);
        }
        size_t n_piece = strlen(piece);
        if (at + n_piece + 1 > capacity) break;
        memcpy(ret + at, piece, n_piece);
        at += n_piece;
        i += length > 0 ? length : 1;
    }
    if (capacity > 0) ret[at] = '\0';
    return ret;
}
