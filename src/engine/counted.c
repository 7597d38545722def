/* SPDX-License-Identifier: MIT
 *
 * counted.c: numbers, and strings behind their length, in a row of bytes: what is said to the template worker and
 * answered by it (template_wire.h), and the last part of a saved session (session_file.c).
 *
 *   number  u32 or u64 in the machine's own order: each of these rows is read by the build that wrote it
 *   string  u32 length, then so many bytes
 *
 * A reader believes no length: it takes what is there, or fails, and after that gives nothing more, so that whoever
 * reads a whole row looks once, at its end. It copies nothing and needs no memory; a count of things that are to follow
 * is for its caller to hold against n_left before room is made for them. Pure. */
#include "engine/counted.h"

#include <string.h>

const char *bt_counted_take(bt_counted *in, size_t n) {
    if (in->failed || n > in->n_left) {
        in->failed = true;
        return NULL;
    }
    const char *at = in->at;
    in->at += n;
    in->n_left -= n;
    return at;
}

uint32_t bt_counted_take_u32(bt_counted *in) {
    uint32_t value = 0;
    const char *at = bt_counted_take(in, sizeof value);
    if (at) memcpy(&value, at, sizeof value); /* it may stand anywhere */
    return value;
}

uint64_t bt_counted_take_u64(bt_counted *in) {
    uint64_t value = 0;
    const char *at = bt_counted_take(in, sizeof value);
    if (at) memcpy(&value, at, sizeof value);
    return value;
}

const char *bt_counted_take_string(bt_counted *in, size_t *ret_n) {
    *ret_n = bt_counted_take_u32(in);
    return bt_counted_take(in, *ret_n);
}

void bt_counted_put_u32(bt_text *out, uint32_t value) {
    bt_text_add_n(out, (const char *)&value, sizeof value);
}

void bt_counted_put_string(bt_text *out, const char *text, size_t n) {
    if (n > UINT32_MAX) {
        out->failed = true;
        return;
    }
    bt_counted_put_u32(out, (uint32_t)n);
    bt_text_add_n(out, text, n);
}
