/* SPDX-License-Identifier: MIT
 * json_text.c: JSON written as it goes.
 *
 * The rows of activity and the envelopes of events are flat, many, and asked for while models answer: a tree of values
 * for each of them would be a hundred allocations a row for a text of known shape. Here a member is a comma, its name
 * and its value, appended; the text grows to its maximum and then fails, once, at the end.
 *
 * Numbers are written without the locale's help. Strings that others wrote may hold anything: what is no UTF-8 becomes
 * U+FFFD, control bytes become \u00XX (RFC 8259, section 7). Bound: the text's own. */
#include "router/json_text.h"
#include "base/error.h"

#include <math.h>
#include <string.h>

#define NO_CHARACTER "\xEF\xBF\xBD" /* U+FFFD */

void bt_json_text_string(bt_text *out, const char *text, size_t n_bytes) {
    bt_text_add_n(out, "\"", 1);
    size_t plain = 0; /* from here on nothing needs an escape, up to i */
    for (size_t i = 0; i < n_bytes;) {
        size_t length = bt_utf8_length(text + i, n_bytes - i);
        unsigned char c = (unsigned char)text[i];
        if (length > 0 && c >= 0x20 && c != '"' && c != '\\') {
            i += length;
            continue;
        }
        bt_text_add_n(out, text + plain, i - plain);
        if (length == 0) {
            bt_text_add(out, NO_CHARACTER);
        } else if (c < 0x20) {
            bt_text_addf(out, "\\u%04x", c);
        } else {
            bt_text_addf(out, "\\%c", c);
        }
        plain = ++i;
    }
    bt_text_add_n(out, text + plain, n_bytes - plain);
    bt_text_add_n(out, "\"", 1);
}

void bt_json_text_key(bt_text *out, const char *key) {
    bool first = out->n_bytes > 0 && out->data[out->n_bytes - 1] == '{';
    bt_text_addf(out, "%s\"%s\":", first ? "" : ",", key);
}

void bt_json_text_u64(bt_text *out, const char *key, uint64_t value) {
    bt_json_text_key(out, key);
    bt_text_addf(out, "%llu", (unsigned long long)value);
}

void bt_json_text_i64(bt_text *out, const char *key, int64_t value) {
    bt_json_text_key(out, key);
    bt_text_addf(out, "%lld", (long long)value);
}

void bt_json_text_known(bt_text *out, const char *key, bt_known value) {
    if (value.known) {
        bt_json_text_u64(out, key, value.value);
        return;
    }
    bt_json_text_key(out, key);
    bt_text_add(out, "null");
}

void bt_json_text_rate(bt_text *out, const char *key, double value) {
    /* hundredths in 64 bits: beyond it no rate is one */
    bool said = isfinite(value) && value > 0 && value < 1e15;
    unsigned long long hundredths = said ? (unsigned long long)(value * 100 + 0.5) : 0;
    bt_json_text_key(out, key);
    if (said) bt_text_addf(out, "%llu.%02llu", hundredths / 100, hundredths % 100);
    if (!said) bt_text_add(out, "null");
}

void bt_json_text_or_null(bt_text *out, const char *key, const char *text) {
    bt_json_text_key(out, key);
    if (text[0] == '\0') bt_text_add(out, "null");
    if (text[0] != '\0') bt_json_text_string(out, text, strlen(text));
}

bt_status bt_json_text_finish(bt_text *out, char **ret_json, bt_error *err) {
    if (!out->failed && out->data) {
        *ret_json = out->data;
        *out = (bt_text){0};
        return BT_OK;
    }
    bt_text_done(out);
    return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_NONE, 0, 0, "no memory to write JSON");
}
