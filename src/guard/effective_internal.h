/* SPDX-License-Identifier: MIT
 * effective_internal.h: what the files of bt_effective share: one assignment at a time, whoever makes it. */
#pragma once

#include "guard/effective.h"

/* What a file, the environment or argv says: in llama.cpp's order, each handled like one more option. */
typedef struct assignment {
    bt_flag_id flag;
    const char *value, *value_2; /* NULL: without one */
    bool negative;
    bt_set_by by;
} assignment;

typedef struct settling {
    bt_arena *arena;
    bt_effective *out;
    bt_error *err;
} settling;

void bt_effective_defaults(bt_effective *ret, bt_program program);
bt_status bt_effective_assign(settling *s, const assignment *a);
void bt_effective_derive(bt_effective *ret);             /* what the program makes of it in the end */
void bt_effective_bad(settling *s, const assignment *a); /* count it, and say it */
void bt_effective_note(settling *s, const char *fmt, ...) BT_PRINTF(2, 3);

/* Settings that are lists. false: llama.cpp refuses the text. */
bt_status bt_effective_rules_add(settling *s, bt_rules *rules, const assignment *a, bool *ret_good);
bt_status bt_effective_adapters_add(settling *s, bt_adapters *adapters, const assignment *a, bool scaled,
                                    bool *ret_good);
bool bt_effective_shares(bt_effective *out, const char *text);
bool bt_effective_fit_targets(bt_effective *out, const char *text);
bool bt_effective_drafters(bt_effective *out, const char *text);
