/* SPDX-License-Identifier: MIT
 * json_scan.h: the members of a JSON object, one after the other, as they lie in its text. Private to the router. */
#pragma once

#include "burthen.h"

#define BT_SCAN_DEPTH_MAX 512u /* of brackets; llama.cpp's JSON reader and ours take far less in requests */
#define BT_SCAN_NAME_MAX  256u /* a longer name is none that anybody asks for */

typedef struct bt_scan_span {
    const char *at;
    size_t n;
} bt_scan_span;

typedef struct bt_scan_member {
    bt_scan_span key, value; /* with the quotes; without blanks around */
    char name[BT_SCAN_NAME_MAX];
    bool named; /* name holds it; false: it is too long, or no text */
} bt_scan_member;

/* Zero heap, one pass: a text of any size costs its length, and holds nothing. */
typedef struct bt_scan {
    const char *p, *end;
    bool first;
} bt_scan;

/* false: it does not begin as an object. */
bool bt_scan_start(bt_scan *s, const char *text, size_t n);
/* 1: a member; 0: the object has ended; -1: it is none. Only the shape is looked at: brackets in pairs, strings whole.
 */
int bt_scan_next(bt_scan *s, bt_scan_member *ret);
/* Nothing but blanks is left. */
bool bt_scan_at_end(bt_scan *s);
/* A string's text, its escapes resolved. false: it is no string, has no place in capacity bytes with its NUL, or has a
 * NUL in it. */
bool bt_scan_text(bt_scan_span string, char *ret, size_t capacity);
