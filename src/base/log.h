/* SPDX-License-Identifier: MIT
 * log.h: one sink for what happens. The library writes nothing unless the program sets a sink. */
#pragma once

#include "burthen.h"

typedef enum bt_log_level { BT_LOG_ERROR, BT_LOG_WARN, BT_LOG_INFO, BT_LOG_DEBUG } bt_log_level;

/* What a program reads of a line beside its sentence. */
typedef struct bt_log_field {
    const char *name; /* ours: letters, digits, '_' */
    const char *text; /* anybody's; NULL: it is a number */
    uint64_t number;
} bt_log_field;

#define BT_LOG_FIELDS_MAX 8u

typedef struct bt_log_entry {
    bt_log_level level;
    bool plain;          /* a sentence to the user: where people read it, no word says its level */
    const char *source;  /* who said it, of those that the program has started; NULL: the program itself */
    const char *message; /* one line of valid UTF-8 without control characters */
    const bt_log_field *fields;
    uint32_t n_fields; /* at most BT_LOG_FIELDS_MAX */
} bt_log_entry;

/* Called under a lock: it must not log. */
typedef void (*bt_log_sink)(const bt_log_entry *entry, void *user);
void bt_log_set(bt_log_sink sink, void *user, bt_log_level max_level);
bool bt_log_wanted(bt_log_level level);

/* Whatever is quoted in a message arrives as one line of valid UTF-8 without control characters, cut at 4 KiB. */
void bt_log(bt_log_level level, const char *fmt, ...) BT_PRINTF(2, 3);
/* What is said to the user while a command runs: of level info, and heard by those too who want no more than warnings.
 */
void bt_log_say(const char *fmt, ...) BT_PRINTF(1, 2);
/* An error, with its code, need and have. */
void bt_log_error(bt_log_level level, const bt_error *err);
/* All of an entry; its message is n bytes of anything. */
void bt_log_send(const bt_log_entry *entry, size_t n);

/* A character (length: of bt_utf8_length) that shows as itself: no control character, none that reorders or breaks a
 * line (U+2028 and the like). */
bool bt_log_is_plain(const char *s, size_t length);
/* The n bytes at s as one line: control characters, those that reorder or break a line (U+2028 and the like), and bytes
 * that are no UTF-8, as \xNN. Cut between characters, with "..." at the end. Returns the length; capacity >= 8. */
size_t bt_log_escape(const char *s, size_t n, char *dest, size_t capacity);
/* code, need, have and unit of an error. */
uint32_t bt_log_error_fields(const bt_error *err, bt_log_field ret[4]);
