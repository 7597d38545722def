/* SPDX-License-Identifier: MIT
 * variables.h: the environment's variables of this program: those that no option has, and a word on misspelt ones. */
#pragma once

#include "burthen.h"

typedef struct bt_variable {
    const char *name;
    const char *set_by; /* "user", "exec", "serve", "tests" */
    const char *meaning;
} bt_variable;

/* Beside the twins of options (bt_option_twin). */
extern const bt_variable bt_variables[];
extern const size_t bt_variable_count;

#define BT_VARIABLES_SENTENCE_BYTES 256u
/* What is to be said of the k-th variable of an environment ("NAME=VALUE", NULL at the end) that begins as ours do,
 * that nothing reads, and that is near to one that is, or names an option without one: its sentence, and true. false:
 * there are no more than k. */
bool bt_variables_misspelt(char *const *environment, uint32_t k, char ret[BT_VARIABLES_SENTENCE_BYTES]);
/* Takes what would be spoken of out of the process's environment, for those that are started. */
void bt_variables_remove_misspelt(void);
/* A warning of the log for each, at most BT_VARIABLES_SAID. */
#define BT_VARIABLES_SAID 8u
void bt_variables_warn(void);
