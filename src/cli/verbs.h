/* SPDX-License-Identifier: MIT
 * verbs.h: the table of commands: what help, completions and documents say of each. What a command does is main.c's. */
#pragma once

#include "base/text.h"
#include "cli/options.h"

typedef struct bt_verb {
    const char *name;
    bt_cli_command bit;
    const char *args; /* "MODEL"; "" for none */
    uint32_t n_args_min, n_args_max;
    const char *summary;
} bt_verb;

extern const bt_verb bt_verbs[];
extern const size_t bt_verb_count;

const bt_verb *bt_verb_find(const char *name);   /* NULL if unknown */
const bt_verb *bt_verb_of(uint32_t command_bit); /* NULL if there is none */
/* BT_E_ARG, code "command", naming the nearest. */
bt_status bt_verb_unknown(const char *name, bt_error *err);
/* "burthen plan MODEL [options]" */
void bt_verb_usage(const bt_verb *verb, bt_text *text);
/* Usage, summary and options. */
void bt_verb_help(const bt_verb *verb, size_t n_columns, bt_text *text);
