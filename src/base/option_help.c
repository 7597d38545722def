/* SPDX-License-Identifier: MIT
 * option_help.c: the options of a command as text for a terminal of any width.
 *
 *     -c, --ctx-size N            Tokens of context ...
 *                                 ... wrapped [default: 4096]
 *
 * The left column is as wide as the widest entry, up to a third; an entry that is wider stands on a line of its own.
 * Lines break at spaces only; a word that is longer than its line stays whole. Widths are counted in characters, which
 * is right for texts without wide or combining ones. */
#include "base/option.h"

#include <string.h>

#define WIDTH_MAX BT_HELP_COLUMNS
#define WIDTH_MIN 40u /* a terminal that is narrower breaks lines itself */
#define GAP       2

static size_t width_of(size_t n_columns) {
    return n_columns < WIDTH_MIN ? WIDTH_MIN : n_columns > WIDTH_MAX ? WIDTH_MAX : n_columns;
}

/* The left column's, without the gap: 34 of 100, 27 of 80. */
static size_t left_max(size_t width) {
    return (width + 2) / 3;
}

static size_t columns(const char *s, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        count += ((unsigned char)s[i] & 0xC0) != 0x80;
    }
    return count;
}

static bool is_shown(const bt_option *row, uint32_t command) {
    return !row->hidden && (row->commands & command) != 0;
}

const char *bt_option_arg(const bt_option *row) {
    if (row->kind == BT_OPTION_FLAG) return NULL;
    if (row->arg) return row->arg;
    return row->kind == BT_OPTION_CHOICE ? row->choices : "VALUE";
}

/* "  -c, --ctx-size N" */
static void add_left(const bt_option *row, bt_text *text) {
    bt_text_add(text, "  ");
    for (const char *p = row->shorts ? row->shorts : ""; *p;) {
        size_t n = strcspn(p, " ");
        if (n > 0) bt_text_addf(text, "-%.*s, ", (int)n, p);
        p += n + strspn(p + n, " ");
    }
    bt_text_addf(text, "--%s", row->name);
    if (row->alias) bt_text_addf(text, ", --%s", row->alias);
    const char *arg = bt_option_arg(row);
    if (arg) bt_text_addf(text, " %s", arg);
}

static size_t left_columns(const bt_option *row) {
    size_t n = 2; /* the indent */
    for (const char *p = row->shorts ? row->shorts : ""; *p;) {
        size_t length = strcspn(p, " ");
        if (length > 0) n += length + 3; /* "-", ", " */
        p += length + strspn(p + length, " ");
    }
    n += 2 + columns(row->name, strlen(row->name));
    if (row->alias) n += 4 + columns(row->alias, strlen(row->alias));
    const char *arg = bt_option_arg(row);
    return n + (arg ? 1 + columns(arg, strlen(arg)) : 0);
}

static void new_line(bt_text *text, size_t indent) {
    bt_text_addf(text, "\n%*s", (int)indent, "");
}

/* Get ready for a word of n columns: a space before it, or a new line if it would not fit. */
static void make_room(bt_text *text, size_t n, size_t indent, size_t width, size_t *at) {
    if (*at > indent && *at + 1 + n > width) {
        new_line(text, indent);
        *at = indent;
    } else if (*at > indent) {
        bt_text_add(text, " ");
        *at += 1;
    }
    *at += n;
}

/* at: the column that the line has reached. */
static void add_words(bt_text *text, const char *words, size_t indent, size_t width, size_t *at) {
    for (const char *p = words + strspn(words, " "); *p;) {
        size_t n = strcspn(p, " ");
        make_room(text, columns(p, n), indent, width, at);
        bt_text_add_n(text, p, n);
        p += n + strspn(p + n, " ");
    }
}

void bt_help_words(bt_text *text, const char *words, size_t indent, size_t n_columns) {
    size_t at = indent;
    add_words(text, words, indent, width_of(n_columns), &at);
}

/* The words of help, then "[default: ...]" in one piece where it fits a line. */
static void add_right(const bt_option *row, bt_text *text, size_t indent, size_t width) {
    size_t at = indent;
    add_words(text, row->help ? row->help : "", indent, width, &at);
    const char *shown = row->shown_default;
    size_t n = shown ? strlen("[default: ]") + columns(shown, strlen(shown)) : 0;
    if (shown && indent + n > width) {
        add_words(text, "[default:", indent, width, &at);
        add_words(text, shown, indent, width - 1, &at); /* a column is left for the end */
        bt_text_add(text, "]");
    } else if (shown) {
        make_room(text, n, indent, width, &at);
        bt_text_addf(text, "[default: %s]", shown);
    }
}

void bt_options_help(const bt_option *table, size_t n_options, uint32_t command, size_t n_columns, bt_text *text) {
    size_t width = width_of(n_columns);
    size_t widest = 0;
    for (size_t i = 0; i < n_options; i++) {
        size_t n = left_columns(&table[i]);
        if (is_shown(&table[i], command) && n <= left_max(width) && n > widest) widest = n;
    }
    size_t indent = (widest ? widest : left_max(width)) + GAP;
    for (size_t i = 0; i < n_options; i++) {
        const bt_option *row = &table[i];
        if (!is_shown(row, command)) continue;
        size_t n = left_columns(row);
        add_left(row, text);
        if (n + GAP > indent) {
            new_line(text, indent);
        } else {
            bt_text_addf(text, "%*s", (int)(indent - n), "");
        }
        add_right(row, text, indent, width);
        bt_text_add(text, "\n");
    }
}
