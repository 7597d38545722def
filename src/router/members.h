/* SPDX-License-Identifier: MIT
 * members.h: a few numbers out of a JSON text that passes in pieces: those at the paths that are asked for. Private to
 * usage.c. */
#pragma once

#include "burthen.h"

#define BT_MEMBERS_LEVELS    4u /* objects in each other on the way to a number, the outermost among them */
#define BT_MEMBERS_PATH_MAX  80u
#define BT_MEMBERS_TOKEN_MAX 40u

/* Zero-initialise, then set the first five. No memory but this is used. */
typedef struct bt_members {
    const char *const *paths; /* "usage.prompt_tokens": objects in objects; nothing inside lists but the outermost */
    uint32_t n_paths;
    /* A number at paths[path], as it is written: sign, digits, point, exponent; it may be malformed. */
    void (*on_number)(void *user, uint32_t path, const char *text);
    /* An outermost object has come to its end; in_list: as one of an outermost list. */
    void (*on_object)(void *user, bool in_list);
    void *user;

    uint8_t state;
    bool escaped, in_list, key_fits;
    uint32_t level; /* of the objects that lead to a path; 0: outside */
    uint32_t n_prefix[BT_MEMBERS_LEVELS + 1];
    uint32_t n_path, n_token;
    uint64_t n_skipped; /* brackets open in what is passed over */
    char path[BT_MEMBERS_PATH_MAX];
    char token[BT_MEMBERS_TOKEN_MAX];
} bt_members;

/* The next bytes. A text that is no JSON is passed over until the next bt_members_reset. */
void bt_members_add(bt_members *members, const char *data, size_t n_bytes);
/* Another text begins. */
void bt_members_reset(bt_members *members);
