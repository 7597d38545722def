/* SPDX-License-Identifier: MIT
 * text.h: a string that grows to a stated maximum and then fails, never silently cut. */
#pragma once

#include "burthen.h"

/* Zero-initialise, then set max_bytes. After a failed append failed stays true and data holds what fitted; refused
 * tells why: the heap had no more, or else the text is over its maximum. */
typedef struct bt_text {
    char *data; /* NUL-terminated when not NULL */
    size_t n_bytes, capacity_bytes, max_bytes;
    bool failed, refused;
} bt_text;

void bt_text_init(bt_text *text, size_t max_bytes);
void bt_text_done(bt_text *text);
/* Empty again, nothing failed; what it has of the heap stays. */
void bt_text_clear(bt_text *text);
/* BT_E_NOMEM, code "heap", where the heap refused more: of a text that failed, what is left is that it is too long. */
BT_MUST_CHECK bt_status bt_text_memory(const bt_text *text, bt_error *err);
/* Room for n bytes at once, so that appending them asks the heap for nothing. failed when refused, or over the maximum.
 */
void bt_text_reserve(bt_text *text, size_t n);
void bt_text_add(bt_text *text, const char *s);
void bt_text_add_n(bt_text *text, const char *s, size_t n);
void bt_text_addf(bt_text *text, const char *fmt, ...) BT_PRINTF(2, 3);
/* Append with control bytes shown as \xNN, so that a file's strings cannot drive a terminal. UTF-8 passes. */
void bt_text_add_escaped(bt_text *text, const char *s, size_t n);
const char *bt_text_str(const bt_text *text); /* never NULL */

/* Bytes of the valid UTF-8 character at s, 1 to 4; 0 if there is none within n bytes. */
size_t bt_utf8_length(const char *s, size_t n);
/* A character that moves a terminal instead of showing something: C0, DEL, C1. length: of bt_utf8_length. */
bool bt_utf8_is_control(const char *s, size_t length);
/* The longest prefix of the first n bytes that does not end inside a character. */
size_t bt_utf8_fit(const char *s, size_t n);

/* A decimal one, whatever the locale. */
static inline bool bt_is_digit(char c) {
    return c >= '0' && c <= '9';
}
/* One of n names. */
bool bt_is_among(const char *text, const char *const *names, size_t n);
/* Something, and behind it end. */
bool bt_ends_with(const char *text, const char *end);
/* The last part of a path; the whole path where it ends with a slash. */
const char *bt_path_file(const char *path);
