/* SPDX-License-Identifier: MIT
 * config.c: a small reader of INI text.
 *
 *   key = value ; comment      before any header: section "default"
 *   [section]
 *   other-key = value          a key is a letter or '_', then letters, digits, '_', '-', '.'
 *
 * It follows the grammar in common/preset.cpp of llama.cpp, because what that reads is what will happen: a value ends
 * at
 * ';' or '#' wherever they stand, without the blanks before; a section that comes twice starts anew and what it held is
 * forgotten; of a key that comes twice the last value holds; one line that does not fit makes the whole file invalid.
 * Quotes and escapes mean nothing. Keys end up sorted by their bytes, as in the map that llama.cpp keeps them in. */
#include "guard/config.h"
#include "base/error.h"

#include <string.h>

typedef struct span {
    const char *at;
    size_t n;
} span;

typedef struct parser {
    bt_arena *arena;
    const char *section; /* the one that is asked for */
    bool inside;         /* are we in it? */
    bt_config_entry *entries;
    uint32_t n;
} parser;

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static void skip_blanks(span *s) {
    while (s->n > 0 && is_blank(*s->at)) {
        s->at++;
        s->n--;
    }
}

static bool ends_or_comments(span s) {
    skip_blanks(&s);
    return s.n == 0 || *s.at == ';' || *s.at == '#';
}

static span take_line(span *text) {
    span line = {text->at, 0};
    while (line.n < text->n && line.at[line.n] != '\n' && line.at[line.n] != '\r')
        line.n++;
    size_t taken = line.n;
    if (taken < text->n) taken += taken + 1 < text->n && line.at[taken] == '\r' && line.at[taken + 1] == '\n' ? 2 : 1;
    text->at += taken;
    text->n -= taken;
    return line;
}

static bool read_header(parser *p, span line) {
    line.at++;
    line.n--;
    skip_blanks(&line);
    const char *end = line.n > 0 ? memchr(line.at, ']', line.n) : NULL;
    if (!end || end == line.at) return false;
    size_t n = (size_t)(end - line.at);
    if (!ends_or_comments((span){end + 1, line.n - n - 1})) return false;
    p->inside = strlen(p->section) == n && memcmp(p->section, line.at, n) == 0;
    if (p->inside) p->n = 0;
    return true;
}

static bt_status keep(parser *p, span key, span value, bt_error *err) {
    const char *name = bt_arena_strndup(p->arena, key.at, key.n);
    const char *text = bt_arena_strndup(p->arena, value.at, value.n);
    if (!name || !text) return bt_fail(err, BT_E_NOMEM, "arguments", BT_MEASURE_NONE, 0, 0, "no memory for config.ini");
    uint32_t i = 0;
    while (i < p->n && strcmp(p->entries[i].key, name) < 0)
        i++;
    bool again = i < p->n && strcmp(p->entries[i].key, name) == 0;
    if (!again) {
        if (p->n == BT_CONFIG_ENTRY_MAX)
            return bt_fail(err, BT_E_ARG, "arguments", BT_MEASURE_ITEMS, p->n + 1, BT_CONFIG_ENTRY_MAX,
                           "a config.ini of llama.cpp has more than %u keys", (unsigned)BT_CONFIG_ENTRY_MAX);
        memmove(&p->entries[i + 1], &p->entries[i], (p->n - i) * sizeof *p->entries);
        p->n++;
    }
    p->entries[i] = (bt_config_entry){name, text};
    return BT_OK;
}

/* ret_good: does the line fit the grammar? */
static bt_status read_pair(parser *p, span line, bool *ret_good, bt_error *err) {
    span key = {line.at, 0};
    *ret_good = false;
    while (key.n < line.n &&
           (is_letter(key.at[key.n]) || (key.n > 0 && strchr("0123456789.-", key.at[key.n]) && key.at[key.n] != '\0')))
        key.n++;
    span rest = {line.at + key.n, line.n - key.n};
    skip_blanks(&rest);
    if (key.n == 0 || rest.n == 0 || *rest.at != '=') return BT_OK;
    rest.at++;
    rest.n--;
    skip_blanks(&rest);
    span value = {rest.at, 0};
    while (value.n < rest.n && value.at[value.n] != ';' && value.at[value.n] != '#')
        value.n++;
    while (value.n > 0 && is_blank(value.at[value.n - 1]))
        value.n--;
    *ret_good = true;
    return p->inside ? keep(p, key, value, err) : BT_OK;
}

static bt_status read_line(parser *p, span line, bool *ret_good, bt_error *err) {
    *ret_good = true;
    if (ends_or_comments(line)) return BT_OK;
    if (*line.at != '[') return read_pair(p, line, ret_good, err);
    *ret_good = read_header(p, line);
    return BT_OK;
}

bt_status bt_config_section(bt_arena *arena, const char *text, size_t n, const char *section, bt_config *ret,
                            bt_error *err) {
    parser p = {.arena = arena, .section = section, .inside = strcmp(section, "default") == 0};
    p.entries = bt_arena_array(arena, BT_CONFIG_ENTRY_MAX, sizeof *p.entries);
    if (!p.entries) return bt_fail(err, BT_E_NOMEM, "arguments", BT_MEASURE_NONE, 0, 0, "no memory for config.ini");
    span rest = {text, n};
    uint64_t bad_line = 0;
    for (uint64_t number = 1; rest.n > 0 && bad_line == 0; number++) {
        bool good;
        BT_TRY(read_line(&p, take_line(&rest), &good, err));
        if (!good) bad_line = number;
    }
    *ret = (bt_config){p.entries, p.n, bad_line};
    return BT_OK;
}
