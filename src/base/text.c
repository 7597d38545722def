/* SPDX-License-Identifier: MIT
 * text.c: strings that grow to a stated maximum, and the few questions about UTF-8 that everyone asks.
 *
 * A text doubles until max_bytes of content (its NUL comes on top) and then refuses: what fitted stays, cut between
 * characters, and failed says so; so it does, with refused, when the heap has no more. The caller looks at failed once,
 * at the end. Left out: anything about characters
 * beyond their length; widths, folding and bidirectional marks are not known here. What is appended must not lie in the
 * text itself, which may move. */
#include "base/text.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FIRST_CAPACITY 64 /* one cache line: most texts here are one line of output */

size_t bt_utf8_length(const char *s, size_t n) {
    if (n == 0) return 0;
    const unsigned char *b = (const unsigned char *)s;
    if (b[0] < 0x80) return 1;
    /* RFC 3629, section 4: the second byte's range excludes overlong forms, surrogates and code points over 10FFFF */
    size_t length = b[0] >= 0xF0 ? 4 : b[0] >= 0xE0 ? 3 : 2;
    if (b[0] < 0xC2 || b[0] > 0xF4 || length > n) return 0;
    unsigned char low = b[0] == 0xE0 ? 0xA0 : b[0] == 0xF0 ? 0x90 : 0x80;
    unsigned char high = b[0] == 0xED ? 0x9F : b[0] == 0xF4 ? 0x8F : 0xBF;
    if (b[1] < low || b[1] > high) return 0;
    for (size_t i = 2; i < length; i++) {
        if ((b[i] & 0xC0) != 0x80) return 0;
    }
    return length;
}

bool bt_utf8_is_control(const char *s, size_t length) {
    const unsigned char *b = (const unsigned char *)s;
    if (length == 1) return b[0] < 0x20 || b[0] == 0x7F;
    return length == 2 && b[0] == 0xC2 && b[1] < 0xA0;
}

size_t bt_utf8_fit(const char *s, size_t n) {
    /* Only a character that starts in the last three bytes can reach over the end. */
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)s[n - back];
        if ((c & 0xC0) == 0x80) continue;
        size_t length = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
        return length > back ? n - back : n;
    }
    return n;
}

void bt_text_init(bt_text *text, size_t max_bytes) {
    *text = (bt_text){.max_bytes = max_bytes};
}

void bt_text_done(bt_text *text) {
    if (!text) return;
    bt_heap_free(text->data);
    *text = (bt_text){.max_bytes = text->max_bytes};
}

void bt_text_clear(bt_text *text) {
    text->n_bytes = 0;
    text->failed = text->refused = false;
    if (text->data) text->data[0] = '\0';
}

bt_status bt_text_memory(const bt_text *text, bt_error *err) {
    if (!text->refused) return BT_OK;
    return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, text->capacity_bytes, 0, "no memory for a text");
}

/* Room for n more bytes and the NUL; false, and failed, when the heap refuses. n fits under max_bytes. */
static bool make_room(bt_text *text, size_t n) {
    uint64_t want = 0;
    if (!bt_add_u64(text->n_bytes, n, &want) || !bt_add_u64(want, 1, &want) || want > SIZE_MAX) {
        text->failed = true;
        return false;
    }
    if (want <= text->capacity_bytes) return true;
    uint64_t most = bt_sat_add_u64(text->max_bytes, 1);
    uint64_t capacity = bt_max_u64(bt_sat_mul_u64(text->capacity_bytes, 2), FIRST_CAPACITY);
    capacity = bt_max_u64(bt_min_u64(capacity, most), want);
    char *data = bt_heap_resize(text->data, (size_t)capacity);
    if (!data) {
        text->failed = text->refused = true;
        return false;
    }
    text->data = data;
    text->capacity_bytes = (size_t)capacity;
    return true;
}

void bt_text_reserve(bt_text *text, size_t n) {
    if (n > text->max_bytes) {
        text->failed = true;
        return;
    }
    if (n > text->n_bytes) (void)make_room(text, n - text->n_bytes);
    if (text->data && text->n_bytes == 0) text->data[0] = '\0';
}

static size_t left(const bt_text *text) {
    return text->max_bytes > text->n_bytes ? text->max_bytes - text->n_bytes : 0;
}

void bt_text_add_n(bt_text *text, const char *s, size_t n) {
    if (text->failed) return;
    bool cut = n > left(text);
    if (cut) n = bt_utf8_fit(s, left(text));
    if (!make_room(text, n)) return;
    if (n > 0) memcpy(text->data + text->n_bytes, s, n);
    text->n_bytes += n;
    text->data[text->n_bytes] = '\0';
    text->failed = cut;
}

void bt_text_add(bt_text *text, const char *s) {
    bt_text_add_n(text, s, strlen(s));
}

void bt_text_addf(bt_text *text, const char *fmt, ...) {
    if (text->failed) return;
    va_list args;
    va_start(args, fmt);
    int need = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (need < 0) {
        text->failed = true;
        return;
    }
    bool cut = (size_t)need > left(text);
    size_t n = cut ? left(text) : (size_t)need;
    if (!make_room(text, n)) return;
    va_start(args, fmt);
    (void)vsnprintf(text->data + text->n_bytes, n + 1, fmt, args);
    va_end(args);
    if (cut) n = bt_utf8_fit(text->data + text->n_bytes, n);
    text->n_bytes += n;
    text->data[text->n_bytes] = '\0';
    text->failed = cut;
}

void bt_text_add_escaped(bt_text *text, const char *s, size_t n) {
    size_t plain = 0; /* start of the run that passes as it is */
    for (size_t i = 0; i < n;) {
        size_t length = bt_utf8_length(s + i, n - i);
        if (length > 0 && !bt_utf8_is_control(s + i, length)) {
            i += length;
            continue;
        }
        bt_text_add_n(text, s + plain, i - plain);
        size_t end = i + (length > 0 ? length : 1);
        for (; i < end; i++) {
            bt_text_addf(text, "\\x%02x", (unsigned)(unsigned char)s[i]);
        }
        plain = i;
    }
    bt_text_add_n(text, s + plain, n - plain);
}

const char *bt_text_str(const bt_text *text) {
    return text->data ? text->data : "";
}

bool bt_is_among(const char *text, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(text, names[i]) == 0) return true;
    return false;
}

bool bt_ends_with(const char *text, const char *end) {
    size_t n = strlen(text);
    size_t n_end = strlen(end);
    return n > n_end && memcmp(text + n - n_end, end, n_end) == 0;
}

const char *bt_path_file(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}
