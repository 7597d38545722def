/* SPDX-License-Identifier: MIT
 * rewrite.h: a command line with other values, and nothing else changed. */
#pragma once

#include "guard/argv.h"

#define BT_EDIT_MAX 32

typedef struct bt_edit {
    bt_flag_id flag;
    bool appended;        /* else the value of an element was replaced */
    uint32_t at;          /* in the new argv: the element that was changed, or the first that was added */
    const char *old_text; /* the value before; NULL: appended, none stood there */
    const char *new_text; /* NULL: an option without a value */
} bt_edit;

/* Zero-initialised; bt_rewrite_open fills it. */
typedef struct bt_rewrite {
    bt_arena *arena;
    const bt_argv *before;
    char **argv; /* NULL at the end; an element that no edit names is the very pointer of the input */
    uint32_t n_argv;
    bt_edit edits[BT_EDIT_MAX];
    uint32_t n_edits; /* 0: argv is element by element the input */
} bt_rewrite;

/* A copy of what was read. before and its argv must outlive it; they are not written to. */
BT_MUST_CHECK bt_status bt_rewrite_open(bt_rewrite *rewrite, bt_arena *arena, const bt_argv *before, bt_error *err);
/* Give an option with one value another: in the element that counts if there is one (of "--name=value" what follows
 * '='), else, as when its value came from the environment, a file or the default, with two elements at the end. E_ARG
 * (code "option"): an option without a value or with two; nothing can be appended (bt_argv.open, or the program has no
 * such option); more than BT_EDIT_MAX edits. The same option twice: the second edit changes the first's. */
BT_MUST_CHECK bt_status bt_rewrite_set(bt_rewrite *rewrite, bt_flag_id flag, const char *value, bt_error *err);
BT_MUST_CHECK bt_status bt_rewrite_set_int(bt_rewrite *rewrite, bt_flag_id flag, int64_t value, bt_error *err);
/* Put an option at the end whatever stands before: one that adds up, or a switch (value NULL). spelling NULL: the
 * canonical one; else one of its own. */
BT_MUST_CHECK bt_status bt_rewrite_append(bt_rewrite *rewrite, bt_flag_id flag, const char *spelling, const char *value,
                                          bt_error *err);
/* The same with an option of a program whose options the table does not have (llama-bench): whether something may stand
 * behind the last one is the caller's to know. E_ARG: more than BT_EDIT_MAX edits. */
BT_MUST_CHECK bt_status bt_rewrite_append_word(bt_rewrite *rewrite, const char *option, const char *value,
                                               bt_error *err);
