/* SPDX-License-Identifier: MIT
 * server_target.c: what a request's first line asks for.
 *
 * The library would decode it too, but says nothing of escapes that are none and lets %00 end a path early: two ways
 * for one request to be two things to two readers. Here what is not plainly a path is refused. Paths are compared with
 * known ones and shown, never opened; "." and ".." are refused all the same, so that a rule for "/api" cannot be
 * walked around. The bound is BT_TARGET_MAX; three copies of that are held while the request lives. */
#include "router/server_target.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/text.h"

#include <string.h>
#include <strings.h>

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* false: a wrong escape, or a NUL. */
static bool decode(const char *text, size_t n, bool plus_is_space, char *dest, size_t *ret_n) {
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '%') {
            if (n - i < 3) return false;
            int high = hex_value(text[i + 1]), low = hex_value(text[i + 2]);
            if (high < 0 || low < 0 || high + low == 0) return false;
            c = (char)(unsigned char)(high * 16 + low);
            i += 2;
        } else if (plus_is_space && c == '+') {
            c = ' ';
        }
        dest[used++] = c;
    }
    dest[used] = 0;
    *ret_n = used;
    return true;
}

static bool is_plain_text(const char *text, size_t n) {
    for (size_t i = 0; i < n;) {
        size_t length = bt_utf8_length(text + i, n - i);
        if (length == 0 || bt_utf8_is_control(text + i, length)) return false;
        i += length;
    }
    return true;
}

static bool has_dot_segment(const char *path) {
    while (path) {
        path++; /* behind the slash */
        size_t n = strcspn(path, "/");
        if ((n == 1 && path[0] == '.') || (n == 2 && path[0] == '.' && path[1] == '.')) return true;
        path = path[n] ? path + n : NULL;
    }
    return false;
}

static bool decode_query(const char *text, bt_target *target) {
    while (*text) {
        size_t n = strcspn(text, "&");
        const char *equals = memchr(text, '=', n);
        size_t n_name = equals ? (size_t)(equals - text) : n, used = 0;
        if (n) {
            if (!decode(text, n_name, true, target->query + target->n_query, &used)) return false;
            target->n_query += used + 1;
            size_t skip = equals ? n_name + 1 : n_name;
            if (!decode(text + skip, n - skip, true, target->query + target->n_query, &used)) return false;
            target->n_query += used + 1;
        }
        text += n;
        if (*text == '&') text++;
    }
    return true;
}

/* Skip the scheme and host of an absolute form, which every server must take (RFC 9112, 3.2.2). NULL: too long. */
static const char *skip_authority(const char *text, bt_target *target) {
    size_t n_scheme = strncasecmp(text, "http://", 7) == 0 ? 7 : strncasecmp(text, "https://", 8) == 0 ? 8 : 0;
    if (!n_scheme) return text;
    text += n_scheme;
    size_t n = strcspn(text, "/?");
    if (n == 0 || n >= sizeof target->authority) return NULL;
    memcpy(target->authority, text, n);
    return text + n;
}

static bool is_printable(const char *text) {
    for (; *text; text++)
        if ((unsigned char)*text <= ' ' || *text == 127) return false;
    return true;
}

/* Text that was checked for length and raw bytes; the strings have their room. */
static const char *parse(const char *text, bt_target *target) {
    size_t n = strlen(text), n_path = strcspn(text, "?"), used = 0;
    memcpy(target->raw, text, n + 1);
    if (!decode(text, n_path, false, target->path, &used)) return "has a wrong escape in its path";
    if (!is_plain_text(target->path, used)) return "has control characters or no UTF-8 in its path";
    if (has_dot_segment(target->path)) return "has \".\" or \"..\" in its path";
    if (text[n_path] && !decode_query(text + n_path + 1, target)) return "has a wrong escape in its query";
    return NULL;
}

bt_status bt_target_parse(const char *text, bt_target *ret, bt_error *err) {
    bt_target target = {0};
    if (strlen(text) > BT_TARGET_MAX)
        return bt_fail(err, BT_E_ARG, "target", BT_MEASURE_BYTES, strlen(text), BT_TARGET_MAX,
                       "The request's target is too long.");
    const char *from = skip_authority(text, &target);
    if (!from || *from != '/' || !is_printable(text))
        return bt_fail(err, BT_E_ARG, "target", BT_MEASURE_NONE, 0, 0, "The request's target is no path.");
    /* A query of "a&b" becomes "a\0\0b\0\0": at most twice as many bytes, and two more. */
    size_t n = strlen(from), n_part = n + 1;
    char *block = bt_heap_alloc(n_part * 4 + 2);
    if (!block)
        return bt_fail(err, BT_E_NOMEM, "memory", BT_MEASURE_BYTES, n_part * 4, 0, "Memory was refused for a request.");
    target.raw = block;
    target.path = block + n_part;
    target.query = block + n_part * 2;
    const char *wrong = parse(from, &target);
    if (wrong) {
        bt_heap_free(block);
        return bt_fail(err, BT_E_ARG, "target", BT_MEASURE_NONE, 0, 0, "The request's target %s.", wrong);
    }
    *ret = target;
    return BT_OK;
}

void bt_target_done(bt_target *target) {
    bt_heap_free(target->raw);
    *target = (bt_target){0};
}

bool bt_target_decode(const char *text, size_t n, char *dest) {
    size_t used = 0;
    return decode(text, n, false, dest, &used);
}

const char *bt_target_query(const bt_target *target, const char *name) {
    for (size_t i = 0; i < target->n_query;) {
        const char *at = target->query + i;
        const char *value = at + strlen(at) + 1;
        if (strcmp(at, name) == 0) return value;
        i = (size_t)(value - target->query) + strlen(value) + 1;
    }
    return NULL;
}

const char *bt_target_unknown(const bt_target *target, const char *const *known, size_t n) {
    for (size_t i = 0; i < target->n_query;) {
        const char *name = target->query + i;
        const char *value = name + strlen(name) + 1;
        if (!bt_is_among(name, known, n)) return name;
        i = (size_t)(value - target->query) + strlen(value) + 1;
    }
    return NULL;
}
