/* SPDX-License-Identifier: MIT
 *
 * json_scan.c: an object's members without a tree.
 *
 * What a client sends may be 32 MiB of "{},{},{}": as a tree it is some hundred times as much, of which the router has
 * nothing to spare. So a request's body is looked through where it lies, member by member, and what nobody asked for is
 * passed over; only its shape is checked, the server behind reads all of it. Names are compared with their escapes
 * resolved, so that "\u006dodel" is model.
 *
 * Bound: nesting BT_SCAN_DEPTH_MAX, no heap. Left out: numbers that are none, words that are none. */
#include "router/json_scan.h"

#include <string.h>

static void skip_blanks(bt_scan *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
        s->p++;
}

static bool take(bt_scan *s, char c) {
    skip_blanks(s);
    if (s->p == s->end || *s->p != c) return false;
    s->p++;
    return true;
}

static bool scan_string(bt_scan *s, bt_scan_span *ret) {
    ret->at = s->p;
    if (s->p == s->end || *s->p != '"') return false;
    for (s->p++; s->p < s->end && *s->p != '"'; s->p++) {
        if ((unsigned char)*s->p < 0x20) return false;
        if (*s->p != '\\') continue;
        s->p++;
        if (s->p == s->end) return false;
    }
    if (s->p == s->end) return false;
    s->p++;
    ret->n = (size_t)(s->p - ret->at);
    return true;
}

/* A number or a word: bytes that can be in one. */
static bool scan_atom(bt_scan *s) {
    const char *begin = s->p;
    while (s->p < s->end && *s->p != '\0' &&
           strchr("+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", *s->p))
        s->p++;
    return s->p > begin;
}

/* Any value: brackets in pairs, strings whole. */
static bool scan_value(bt_scan *s, bt_scan_span *ret) {
    char close[BT_SCAN_DEPTH_MAX];
    uint32_t depth = 0;
    bt_scan_span string;
    skip_blanks(s);
    ret->at = s->p;
    do {
        skip_blanks(s);
        if (s->p == s->end) return false;
        char c = *s->p;
        if (c == '"') {
            if (!scan_string(s, &string)) return false;
        } else if (c == '{' || c == '[') {
            if (depth == BT_SCAN_DEPTH_MAX) return false;
            close[depth++] = c == '{' ? '}' : ']';
            s->p++;
        } else if (depth > 0 && c == close[depth - 1]) {
            depth--;
            s->p++;
        } else if (depth > 0 && (c == ',' || c == ':')) {
            s->p++;
        } else if (!scan_atom(s)) {
            return false;
        }
    } while (depth > 0);
    ret->n = (size_t)(s->p - ret->at);
    return true;
}

static int hex4(const char *p, size_t n) {
    static const char digits[] = "0123456789abcdef";
    int value = 0;
    if (n < 4) return -1;
    for (size_t i = 0; i < 4; i++) {
        const char *at = p[i] ? strchr(digits, p[i] >= 'A' && p[i] <= 'F' ? p[i] - 'A' + 'a' : p[i]) : NULL;
        if (!at) return -1;
        value = value * 16 + (int)(at - digits);
    }
    return value;
}

/* "\uXXXX", or a pair of them, whose first p points behind the u of: as UTF-8. The bytes read of p; 0: none. */
static size_t decode_unicode(const char *p, size_t n, char out[4], size_t *ret_n) {
    int unit = hex4(p, n);
    uint32_t code = (uint32_t)unit;
    size_t used = 4;
    if (unit <= 0 || (unit >= 0xDC00 && unit < 0xE000)) return 0;
    if (unit >= 0xD800 && unit < 0xDC00) {
        int low = n >= 10 && p[4] == '\\' && p[5] == 'u' ? hex4(p + 6, n - 6) : -1;
        if (low < 0xDC00 || low >= 0xE000) return 0;
        code = 0x10000u + ((uint32_t)(unit - 0xD800) << 10) + (uint32_t)(low - 0xDC00);
        used = 10;
    }
    *ret_n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = *ret_n; i-- > 1; code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)(lead[*ret_n] | code);
    return used;
}

bool bt_scan_text(bt_scan_span string, char *ret, size_t capacity) {
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    size_t n = 0;
    if (string.n < 2 || string.at[0] != '"') return false;
    for (size_t i = 1; i + 1 < string.n; i++) {
        char bytes[4] = {string.at[i]};
        size_t n_bytes = 1;
        if (bytes[0] == '\\') {
            char c = string.at[++i];
            const char *at = strchr(from, c);
            size_t used = c == 'u' ? decode_unicode(string.at + i + 1, string.n - i - 2, bytes, &n_bytes) : 0;
            if (c == 'u' ? used == 0 : !at || !*at) return false;
            if (c != 'u') bytes[0] = to[at - from];
            i += used;
        }
        if (n + n_bytes >= capacity) return false;
        memcpy(ret + n, bytes, n_bytes);
        n += n_bytes;
    }
    ret[n] = '\0';
    return true;
}

int bt_scan_next(bt_scan *s, bt_scan_member *ret) {
    if (take(s, '}')) return 0;
    if (!s->first && !take(s, ',')) return -1;
    s->first = false;
    skip_blanks(s);
    if (!scan_string(s, &ret->key) || !take(s, ':') || !scan_value(s, &ret->value)) return -1;
    ret->named = bt_scan_text(ret->key, ret->name, sizeof ret->name);
    return 1;
}

bool bt_scan_start(bt_scan *s, const char *text, size_t n) {
    *s = (bt_scan){.p = text, .end = text + n, .first = true};
    return take(s, '{');
}

bool bt_scan_at_end(bt_scan *s) {
    skip_blanks(s);
    return s->p == s->end;
}
