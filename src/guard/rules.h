/* SPDX-License-Identifier: MIT
 * rules.h: where the rules of a command line (-ot, -cmoe, -ncmoe, -ncffn) send a tensor. */
#pragma once

#include "guard/effective.h"

/* The rules, ready to be asked. Holds compiled expressions: bt_rule_set_close. */
typedef struct bt_rule_set bt_rule_set;

typedef enum bt_destination_kind {
    BT_TO_LAYER,   /* no rule: to where its layer is */
    BT_TO_MOVABLE, /* experts whose block decides: to the host below the n that may be raised, else to their layer */
    BT_TO_HOST,
    BT_TO_DEVICE,  /* of the name that its rule has */
    BT_TO_UNKNOWN, /* experts that go to the host below an n, and to a device by name from there on: not followed */
} bt_destination_kind;

typedef struct bt_destination {
    bt_destination_kind kind;
    const char *device; /* of TO_DEVICE */
} bt_destination;

/* movable: one -ncmoe may be raised later (BT_TO_MOVABLE); else they all hold. ret_reason: NULL, or why the rules
 * cannot be followed (an expression that POSIX has no words for); then *ret is not set. E_NOMEM. */
BT_MUST_CHECK bt_status bt_rule_set_open(bt_arena *arena, const bt_rules *rules, bool movable, bt_rule_set **ret,
                                         const char **ret_reason, bt_error *err);
void bt_rule_set_close(bt_rule_set *set); /* NULL is fine */
bt_destination bt_rule_set_find(const bt_rule_set *set, const bt_tensor *tensor);

/* An expression of llama.cpp's (ECMAScript) in the words of POSIX; false: it has none for it, or it is over n_ret. */
bool bt_rule_translate(const char *pattern, char *ret, size_t n_ret);
