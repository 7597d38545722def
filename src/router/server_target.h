/* SPDX-License-Identifier: MIT
 * server_target.h: what a request's first line asks for, decoded: its path and its query. Pure. */
#pragma once

#include "burthen.h"

#define BT_TARGET_MAX 8000u /* bytes; RFC 9110, 4.1 wants at least so many to be understood */

typedef struct bt_target {
    char *raw;           /* as it was sent, from the first slash of its path */
    char *path;          /* decoded */
    char *query;         /* "name\0value\0", decoded, one after another */
    size_t n_query;      /* bytes of it */
    char authority[256]; /* of "http://host/path", which stands for Host; empty: none */
} bt_target;

/* BT_E_ARG, code "target": it cannot be meant by anybody: no path, over BT_TARGET_MAX, "." or ".." in it, a wrong
 * escape, NUL or another control character, no UTF-8. BT_E_NOMEM. The three strings are one block of heap. */
BT_MUST_CHECK bt_status bt_target_parse(const char *text, bt_target *ret, bt_error *err);
void bt_target_done(bt_target *target);
/* A part of a path that was sent, without its escapes; dest has room for n + 1. false: a wrong escape, or a NUL. */
bool bt_target_decode(const char *text, size_t n, char *dest);
/* The first name in the query that is none of the n known ones; NULL: there is none. */
const char *bt_target_unknown(const bt_target *target, const char *const *known, size_t n);
const char *bt_target_query(const bt_target *target, const char *name); /* the first of that name; NULL: none */
