/* SPDX-License-Identifier: MIT
 * log.c: formatting a message and handing it to the one sink.
 *
 * The sink and its level are the only mutable globals of the library besides the counters of heap.c and fault.c. One
 * lock orders messages, and guarantees that after bt_log_set returns the former sink is not called any more. A message
 * is built on the stack before the lock is taken; one that is too long is cut and ends in "...".
 *
 * Messages quote model files, requests, file names and other programs. None of these may end a line, begin one that
 * looks like ours, drive a terminal or break a reader of UTF-8: so each message is escaped here, once, for all sinks.
 */
#include "base/log.h"
#include "base/text.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* PIPE_BUF of Linux: a line up to this long reaches a pipe in one piece. */
#define MESSAGE_BYTES 4096
#define CUT           "..."
#define CUT_BYTES     (sizeof CUT - 1)
#define ESCAPE_BYTES  4u /* \xNN */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bt_log_sink current_sink;
static void *current_user;
/* One more than the highest level that is wanted; 0 without a sink. Read without the lock. */
static atomic_int wanted_levels;
/* A sink must not log; if one does, its message is dropped instead of waiting for itself. */
static _Thread_local bool in_sink;

void bt_log_set(bt_log_sink sink, void *user, bt_log_level max_level) {
    pthread_mutex_lock(&lock);
    current_sink = sink;
    current_user = user;
    atomic_store(&wanted_levels, sink ? (int)max_level + 1 : 0);
    pthread_mutex_unlock(&lock);
}

bool bt_log_wanted(bt_log_level level) {
    return (int)level < atomic_load_explicit(&wanted_levels, memory_order_relaxed);
}

/* ---- one line ---- */

/* Line and paragraph separators, and marks that show text in another order than it has: U+200E, U+200F, U+2028 to
 * U+202E, U+2066 to U+2069 (all E2 80 or E2 81). */
static bool is_misleading(const char *s, size_t length) {
    const unsigned char *b = (const unsigned char *)s;
    if (length != 3 || b[0] != 0xE2) return false;
    if (b[1] == 0x80) return b[2] == 0x8E || b[2] == 0x8F || (b[2] >= 0xA8 && b[2] <= 0xAE);
    return b[1] == 0x81 && b[2] >= 0xA6 && b[2] <= 0xA9;
}

bool bt_log_is_plain(const char *s, size_t length) {
    return length > 0 && !bt_utf8_is_control(s, length) && !is_misleading(s, length);
}

/* Bytes of dest that the character takes; n_in: of s. 0: it does not fit. */
static size_t put_character(const char *s, size_t n, char *dest, size_t capacity, size_t *ret_n_in) {
    static const char digits[] = "0123456789abcdef";
    size_t length = bt_utf8_length(s, n);
    bool plain = bt_log_is_plain(s, length);
    *ret_n_in = length > 0 ? length : 1;
    size_t n_out = plain ? length : *ret_n_in * ESCAPE_BYTES;
    if (n_out > capacity) return 0;
    if (plain) {
        memcpy(dest, s, length);
        return n_out;
    }
    for (size_t i = 0; i < *ret_n_in; i++) {
        unsigned char byte = (unsigned char)s[i];
        dest[i * ESCAPE_BYTES] = '\\';
        dest[i * ESCAPE_BYTES + 1] = 'x';
        dest[i * ESCAPE_BYTES + 2] = digits[byte >> 4];
        dest[i * ESCAPE_BYTES + 3] = digits[byte & 15];
    }
    return n_out;
}

size_t bt_log_escape(const char *s, size_t n, char *dest, size_t capacity) {
    size_t n_out = 0, n_safe = 0; /* safe: room for the mark is left behind it */
    capacity--;                   /* its NUL */
    for (size_t i = 0, n_in = 0; i < n; i += n_in) {
        size_t more = put_character(s + i, n - i, dest + n_out, capacity - n_out, &n_in);
        if (more == 0) {
            memcpy(dest + n_safe, CUT, CUT_BYTES);
            n_out = n_safe + CUT_BYTES;
            break;
        }
        n_out += more;
        if (n_out + CUT_BYTES <= capacity) n_safe = n_out;
    }
    dest[n_out] = '\0';
    return n_out;
}

/* ---- to the sink ---- */

/* least: what must be wanted. */
static void send(const bt_log_entry *entry, size_t n, bt_log_level least) {
    char message[MESSAGE_BYTES];
    if (!bt_log_wanted(least) || in_sink) return;
    while (n > 0 && (entry->message[n - 1] == '\n' || entry->message[n - 1] == '\r'))
        n--; /* messages of ggml come with their newline */
    (void)bt_log_escape(entry->message, n, message, sizeof message);
    bt_log_entry clean = *entry;
    clean.message = message;
    pthread_mutex_lock(&lock);
    if (current_sink && bt_log_wanted(least)) { /* may have changed since */
        in_sink = true;
        current_sink(&clean, current_user);
        in_sink = false;
    }
    pthread_mutex_unlock(&lock);
}

void bt_log_send(const bt_log_entry *entry, size_t n) {
    send(entry, n, entry->level);
}

/* What is over the buffer is cut by the escaping: that it is too long must be seen there. */
static void send_formatted(const bt_log_entry *form, bt_log_level least, const char *fmt, va_list args) BT_PRINTF(3, 0);
static void send_formatted(const bt_log_entry *form, bt_log_level least, const char *fmt, va_list args) {
    char raw[MESSAGE_BYTES + ESCAPE_BYTES];
    int n = vsnprintf(raw, sizeof raw, fmt, args);
    if (n < 0) return;
    size_t length = (size_t)n < sizeof raw ? (size_t)n : bt_utf8_fit(raw, sizeof raw - 1);
    bt_log_entry entry = *form;
    entry.message = raw;
    send(&entry, length, least);
}

void bt_log(bt_log_level level, const char *fmt, ...) {
    if (!bt_log_wanted(level)) return;
    va_list args;
    va_start(args, fmt);
    send_formatted(&(bt_log_entry){.level = level}, level, fmt, args);
    va_end(args);
}

void bt_log_say(const char *fmt, ...) {
    if (!bt_log_wanted(BT_LOG_WARN)) return;
    va_list args;
    va_start(args, fmt);
    send_formatted(&(bt_log_entry){.level = BT_LOG_INFO, .plain = true}, BT_LOG_WARN, fmt, args);
    va_end(args);
}

/* ---- errors ---- */

static const char *unit_name(bt_measure measure) {
    switch (measure) {
    case BT_MEASURE_BYTES:
        return "bytes";
    case BT_MEASURE_TOKENS:
        return "tokens";
    case BT_MEASURE_ITEMS:
        return "items";
    case BT_MEASURE_NONE:
        break;
    }
    return NULL;
}

uint32_t bt_log_error_fields(const bt_error *err, bt_log_field ret[4]) {
    uint32_t n = 0;
    const char *unit = unit_name(err->measure);
    if (err->code[0]) ret[n++] = (bt_log_field){.name = "code", .text = err->code};
    if (!unit) return n;
    ret[n++] = (bt_log_field){.name = "need", .number = err->need};
    ret[n++] = (bt_log_field){.name = "have", .number = err->have};
    ret[n++] = (bt_log_field){.name = "unit", .text = unit};
    return n;
}

void bt_log_error(bt_log_level level, const bt_error *err) {
    bt_log_field fields[4];
    const bt_log_entry entry = {
        .level = level, .message = err->text, .fields = fields, .n_fields = bt_log_error_fields(err, fields)};
    bt_log_send(&entry, strlen(err->text));
}
