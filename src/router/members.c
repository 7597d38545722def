/* SPDX-License-Identifier: MIT
 * members.c: numbers at known paths of a JSON text that is never held.
 *
 * An answer may be megabytes of embeddings or minutes of text, and what is wanted of it are ten numbers. So it is not
 * parsed into values: a scanner of one byte at a time knows where it is (in a key, in a string, before a value) and, as
 * long as that leads to a path that is wanted, the path. Everything else is passed over by counting brackets outside
 * strings. A text of the answer that looks like `"usage":{...}` is a string here, as it is in JSON, and never taken for
 * a member.
 *
 * Bound: the struct, and no heap: nothing can be refused in the middle of an answer. Of the text at most
 * BT_MEMBERS_TOKEN_MAX bytes are held, of a key or a number, never of a string.
 *
 * It is no validator: what is passed over need not be JSON, as long as its brackets and strings are closed. Keys with
 * escapes or dots are not known: no server writes those that are wanted so. */
#include "router/members.h"

#include <string.h>

enum {
    OUTSIDE, /* before an outermost value, or after it */
    KEY,     /* before a key, or the object's end */
    KEY_TEXT,
    COLON,
    VALUE,
    TEXT,
    WORD,  /* a number, true, false, null */
    AFTER, /* after a value: a comma, or the object's end */
    SKIP,
    SKIP_TEXT,
    BROKEN,
};

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_word(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '+' ||
           c == '.';
}

/* Of a value that has ended: what comes then. */
static uint8_t after(const bt_members *m) {
    return m->level == 0 ? OUTSIDE : AFTER;
}

static void skip(bt_members *m) {
    m->state = SKIP;
    m->n_skipped = 1;
}

/* The path to the member whose key was read; key_fits: there is one. */
static void name_member(bt_members *m) {
    uint32_t n = m->n_prefix[m->level];
    m->n_path = n + (n > 0) + m->n_token;
    if (m->n_path >= BT_MEMBERS_PATH_MAX) m->key_fits = false;
    if (!m->key_fits) return;
    if (n > 0) m->path[n++] = '.';
    memcpy(m->path + n, m->token, m->n_token);
    m->path[m->n_path] = '\0';
}

static void begin_object(bt_members *m) {
    bool leads = m->level == 0;
    for (uint32_t i = 0; m->level > 0 && m->key_fits && i < m->n_paths && !leads; i++) {
        leads = strncmp(m->paths[i], m->path, m->n_path) == 0 && m->paths[i][m->n_path] == '.';
    }
    if (!leads || m->level == BT_MEMBERS_LEVELS) {
        skip(m);
        return;
    }
    m->n_prefix[m->level + 1] = m->level == 0 ? 0 : m->n_path;
    m->level++;
    m->state = KEY;
}

static void end_object(bt_members *m) {
    m->level--;
    m->state = after(m);
    if (m->level == 0) m->on_object(m->user, m->in_list);
}

static void begin_value(bt_members *m, char c) {
    if (c == '{') {
        begin_object(m);
    } else if (c == '[') {
        skip(m);
    } else if (c == '"') {
        m->state = TEXT;
    } else if (is_word(c)) {
        m->token[0] = c;
        m->n_token = 1;
        m->state = WORD;
    } else {
        m->state = BROKEN;
    }
}

static void end_word(bt_members *m) {
    bool number = m->token[0] == '-' || (m->token[0] >= '0' && m->token[0] <= '9');
    bool whole = m->n_token < BT_MEMBERS_TOKEN_MAX;
    m->state = after(m);
    if (m->level == 0 || !m->key_fits || !number || !whole) return;
    m->token[m->n_token] = '\0';
    for (uint32_t i = 0; i < m->n_paths; i++) {
        if (strcmp(m->paths[i], m->path) == 0) m->on_number(m->user, i, m->token);
    }
}

/* A token that is too long is counted to its maximum, and known by that. */
static void keep(bt_members *m, char c) {
    if (m->n_token < BT_MEMBERS_TOKEN_MAX) m->token[m->n_token++] = c;
}

static void outside(bt_members *m, char c) {
    if (c == '[' && !m->in_list) {
        m->in_list = true;
    } else if (c == ']' && m->in_list) {
        m->in_list = false;
    } else if (c != ',' || !m->in_list) {
        begin_value(m, c);
    }
}

/* A byte of a string; true at its end. */
static bool ends_text(bt_members *m, char c) {
    if (m->escaped) {
        m->escaped = false;
        return false;
    }
    m->escaped = c == '\\';
    return c == '"';
}

static void key_text(bt_members *m, char c) {
    if (c == '\\' || c == '.' || m->n_token == BT_MEMBERS_TOKEN_MAX) m->key_fits = false;
    if (!ends_text(m, c)) {
        keep(m, c);
        return;
    }
    name_member(m);
    m->state = COLON;
}

static void skip_byte(bt_members *m, char c) {
    if (c == '"') {
        m->state = SKIP_TEXT;
    } else if (c == '{' || c == '[') {
        m->n_skipped++;
    } else if ((c == '}' || c == ']') && --m->n_skipped == 0) {
        m->state = after(m);
    }
}

/* A byte between the tokens of an object that leads somewhere, or outside. */
static void between(bt_members *m, char c) {
    if (is_space(c)) return;
    switch (m->state) {
    case OUTSIDE:
        outside(m, c);
        break;
    case KEY:
        m->state = c == '"' ? KEY_TEXT : BROKEN;
        m->n_token = 0;
        m->key_fits = true;
        if (c == '}') end_object(m);
        break;
    case COLON:
        m->state = c == ':' ? VALUE : BROKEN;
        break;
    case VALUE:
        begin_value(m, c);
        break;
    default: /* AFTER */
        m->state = c == ',' ? KEY : BROKEN;
        if (c == '}') end_object(m);
    }
}

static void step(bt_members *m, char c) {
    switch (m->state) {
    case KEY_TEXT:
        key_text(m, c);
        return;
    case TEXT:
        if (ends_text(m, c)) m->state = after(m);
        return;
    case SKIP:
        skip_byte(m, c);
        return;
    case SKIP_TEXT:
        if (ends_text(m, c)) m->state = SKIP;
        return;
    case BROKEN:
        return;
    case WORD:
        if (is_word(c)) {
            keep(m, c);
            return;
        }
        end_word(m); /* the byte belongs to what follows */
        between(m, c);
        return;
    default:
        between(m, c);
    }
}

void bt_members_add(bt_members *members, const char *data, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes && members->state != BROKEN; i++)
        step(members, data[i]);
}

void bt_members_reset(bt_members *members) {
    members->state = OUTSIDE;
    members->escaped = false;
    members->in_list = false;
    members->level = 0;
}
