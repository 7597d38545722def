/* SPDX-License-Identifier: MIT
 * log_line.c: an entry of the log as text, or as JSON.
 *
 *     burthen: warning: MESSAGE                                        people: the level where it is not plain
 *     <4>burthen: MESSAGE                                              the journal: it has level, time and process
 *     2026-11-30T16:09:26.123Z 4711 warn burthen: MESSAGE              a file
 *     {"time":...,"level":"warn","component":"run","pid":4711,"message":...,"code":...}
 *
 * What stands behind the message is made first, so that the message is what is cut when all is over one line's bound:
 * a line of JSON is whole whatever is in it. JSON is written by hand: an escaped message needs two characters escaped
 * more. */
#include "base/log_line.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define SOURCE_BYTES 160u /* of a model's name, escaped */
#define FIELD_BYTES  200u /* of a field's text, escaped */
#define CUT          "..."
#define TIME_BYTES   40u

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static const char *const level_words[] = {"error: ", "warning: ", "info: ", "debug: "};
static const int journal_levels[] = {3, 4, 6, 7}; /* LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG of syslog(3) */
static const char *const level_colours[] = {"\033[31m", "\033[33m", "", ""};

/* What has no room is left out: the callers' buffers hold what they can be asked to. */
typedef struct builder {
    char *data;
    size_t n, capacity;
} builder;

static void add_n(builder *b, const char *s, size_t n) {
    if (n >= b->capacity - b->n) return;
    memcpy(b->data + b->n, s, n);
    b->n += n;
    b->data[b->n] = '\0';
}

static void add(builder *b, const char *s) {
    add_n(b, s, strlen(s));
}

/* Of escaped text: quotes and backslashes are all that is left to escape. Cut between characters, with a mark, where
 * less than n_kept bytes of the builder would be left. */
static void add_json(builder *b, const char *s, size_t n_kept) {
    size_t n = strlen(s), limit = b->capacity - 1;
    n_kept += sizeof CUT - 1;
    limit = n_kept < limit ? limit - n_kept : 0;
    for (size_t i = 0; i < n;) {
        size_t length = bt_utf8_length(s + i, n - i);
        bool quoted = s[i] == '"' || s[i] == '\\';
        size_t n_more = length + (quoted ? 1 : 0);
        if (length == 0 || b->n + n_more > limit) {
            add(b, CUT);
            return;
        }
        if (quoted) add_n(b, "\\", 1);
        add_n(b, s + i, length);
        i += length;
    }
}

static void add_time(builder *b, int64_t unix_ms) {
    char text[TIME_BYTES];
    struct tm tm;
    time_t seconds = (time_t)(unix_ms / 1000);
    if (unix_ms < 0 || !gmtime_r(&seconds, &tm)) return;
    size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    add_n(b, text, n);
    (void)snprintf(text, sizeof text, ".%03dZ", (int)(unix_ms % 1000));
    add(b, text);
}

static void add_number(builder *b, uint64_t number) {
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, number);
    add(b, text);
}

static bt_log_level level_of(const bt_log_entry *entry) {
    return (unsigned)entry->level <= BT_LOG_DEBUG ? entry->level : BT_LOG_DEBUG;
}

static void add_journal(builder *b, const bt_log_entry *entry) {
    char text[8];
    (void)snprintf(text, sizeof text, "<%d>", journal_levels[level_of(entry)]);
    add(b, text);
}

static void add_source(builder *b, const bt_log_entry *entry, bool json) {
    char source[SOURCE_BYTES];
    (void)bt_log_escape(entry->source, strlen(entry->source), source, sizeof source);
    if (json)
        add_json(b, source, 0);
    else
        add(b, source);
}

/* ---- JSON ---- */

static void add_fields(builder *b, const bt_log_entry *entry) {
    for (uint32_t i = 0; i < entry->n_fields && i < BT_LOG_FIELDS_MAX; i++) {
        const bt_log_field *field = &entry->fields[i];
        char text[FIELD_BYTES];
        add(b, ",\"");
        add(b, field->name);
        add(b, "\":");
        if (!field->text && field->number <= INT64_MAX) {
            add_number(b, field->number);
            continue;
        }
        if (!field->text) {
            add(b, "null"); /* as everywhere: readers of JSON have no larger integers */
            continue;
        }
        (void)bt_log_escape(field->text, strlen(field->text), text, sizeof text);
        add(b, "\"");
        add_json(b, text, 0);
        add(b, "\"");
    }
}

static void make_json(builder *b, const bt_log_form *form, const bt_log_entry *entry, int64_t unix_ms,
                      const char *message) {
    char tail_data[BT_LOG_FIELDS_MAX * 2 * (FIELD_BYTES + 32)]; /* each character of them with a backslash */
    builder tail = {.data = tail_data, .capacity = sizeof tail_data};
    tail_data[0] = '\0';
    add_fields(&tail, entry);
    add(b, "{\"time\":\"");
    add_time(b, unix_ms);
    add(b, "\",\"level\":\"");
    add(b, level_names[level_of(entry)]);
    add(b, "\",\"component\":\"");
    add(b, form->component);
    add(b, "\",\"pid\":");
    add_number(b, form->pid > 0 ? (uint64_t)form->pid : 0);
    if (entry->source) {
        add(b, ",\"model\":\"");
        add_source(b, entry, true);
        add(b, "\"");
    }
    add(b, ",\"message\":\"");
    add_json(b, message, tail.n + sizeof "\"}\n" - 1);
    add(b, "\"");
    add_n(b, tail.data, tail.n);
    add(b, "}");
}

/* ---- text ---- */

static void make_text(builder *b, const bt_log_form *form, const bt_log_entry *entry, int64_t unix_ms,
                      const char *message) {
    bt_log_level level = level_of(entry);
    bool has_word = !form->dated && !form->journal && !entry->plain;
    if (form->dated) {
        add_time(b, unix_ms);
        add(b, " ");
        add_number(b, form->pid > 0 ? (uint64_t)form->pid : 0);
        add(b, " ");
        add(b, level_names[level]);
        add(b, " ");
    }
    if (entry->source)
        add_source(b, entry, false);
    else
        add(b, "burthen");
    add(b, ": ");
    bool coloured = has_word && form->colour == BT_LOG_ANSI && level_colours[level][0];
    if (coloured) add(b, level_colours[level]);
    if (has_word) add(b, level_words[level]);
    if (coloured) add(b, "\033[0m");
    size_t n = strlen(message), left = b->capacity - b->n - sizeof "\n";
    bool cut = n > left;
    add_n(b, message, cut ? bt_utf8_fit(message, left - (sizeof CUT - 1)) : n);
    if (cut) add(b, CUT);
}

size_t bt_log_line(const bt_log_form *form, const bt_log_entry *entry, int64_t unix_ms,
                   char ret[BT_LOG_LINE_BYTES + 1]) {
    char message[BT_LOG_LINE_BYTES];
    builder b = {.data = ret, .capacity = BT_LOG_LINE_BYTES + 1};
    ret[0] = '\0';
    (void)bt_log_escape(entry->message, strlen(entry->message), message, sizeof message);
    if (form->journal) add_journal(&b, entry);
    if (form->json)
        make_json(&b, form, entry, unix_ms, message);
    else
        make_text(&b, form, entry, unix_ms, message);
    add(&b, "\n");
    return b.n;
}
