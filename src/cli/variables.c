/* SPDX-License-Identifier: MIT
 *
 * variables.c: the variables of the environment, and those that were meant to be one.
 *
 * An option that is misspelt is an error; a variable that is misspelt would be nothing at all, and a budget that was
 * set in a unit file would not hold. Others may have variables that begin as ours do (a cluster gives every program
 * BURTHEN_SERVICE_HOST where a service is called so), so only what is near to one of ours is spoken of, and what names
 * an option that has no variable; it is a warning. Nearness is that of options (bt_nearest), of what stands behind the
 * prefix. Left out: a prefix that is misspelt, and the value. */
#include "cli/variables.h"

#include "base/log.h"
#include "base/option.h"
#include "cli/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX    "BURTHEN_"
#define LETTERS   "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"
#define NAME_MAX  96u  /* of a twin */
#define NAMES_MAX 256u /* with those of options, of which there are some ninety */

const bt_variable bt_variables[] = {
    {"BURTHEN_CONFIG", "user", "the settings file, in place of the usual one; empty: none"},
    {"BURTHEN_STATE_DIR", "user", "the folder where things are kept, in place of the usual one"},
    {"BURTHEN_GPU_MEM", "user", "MiB of each device that a plan may use, where --device gives it no size"},
    {"BURTHEN_GUEST_STATS", "user",
     "a file: the memory device of exec --ram-budget writes there once a second what it holds"},
    {"BURTHEN_PLAN", "exec", "the plan of the memory device in another program; by hand: a plan.json"},
    {"BURTHEN_PLAN_PID", "exec", "the one process that may have it"},
    {"BURTHEN_LEARN", "exec", "where the memory device writes what the program took beside its plan"},
    {"BURTHEN_SERVE_MARK", "serve", "whose child a process is"},
    {"BURTHEN_FAULT", "tests", "of builds for tests: the call that fails"},
    {"BURTHEN_FAULT_SAID", "tests", "of builds for tests: a file for which calls there were"},
};
const size_t bt_variable_count = sizeof bt_variables / sizeof *bt_variables;

/* The names behind the prefix, those that people set first. */
typedef struct names {
    char twins[NAMES_MAX][NAME_MAX];
    const char *all[NAMES_MAX];
    size_t n, n_offered;
} names;

static void add(names *known, const char *name) {
    if (known->n == NAMES_MAX) return;
    (void)snprintf(known->twins[known->n], NAME_MAX, "%s", name + sizeof PREFIX - 1);
    known->all[known->n] = known->twins[known->n];
    known->n++;
}

/* Those that people set, or the others. */
static void add_all(names *known, bool others) {
    for (size_t i = 0; i < bt_variable_count; i++) {
        bool people = strcmp(bt_variables[i].set_by, "user") == 0;
        if (people != others) add(known, bt_variables[i].name);
    }
    for (size_t i = 0; i < bt_cli_option_count; i++) {
        const bt_option *row = &bt_cli_option_table[i];
        char twin[NAME_MAX];
        bt_option_twin(row, twin, sizeof twin);
        if (!row->no_env && row->hidden == others) add(known, twin);
    }
}

static void read_names(names *ret) {
    ret->n = 0;
    add_all(ret, false);
    ret->n_offered = ret->n;
    add_all(ret, true);
}

static bool is_known(const names *known, const char *name) {
    for (size_t i = 0; i < known->n; i++)
        if (strcmp(known->all[i], name) == 0) return true;
    return false;
}

/* The option of that name, which has no variable; NULL: there is none. */
static const bt_option *bare_option(const char *name) {
    for (size_t i = 0; i < bt_cli_option_count; i++) {
        const bt_option *row = &bt_cli_option_table[i];
        char twin[NAME_MAX];
        bt_option_twin(row, twin, sizeof twin);
        if (row->no_env && !row->hidden && strcmp(twin + sizeof PREFIX - 1, name) == 0) return row;
    }
    return NULL;
}

/* name: of the variable, behind the prefix */
static bool sentence(const names *known, const char *name, char ret[BT_VARIABLES_SENTENCE_BYTES]) {
    if (is_known(known, name)) return false;
    const bt_option *bare = bare_option(name);
    const char *near = bare ? NULL : bt_nearest(name, known->all, known->n_offered);
    if (bare)
        (void)snprintf(ret, BT_VARIABLES_SENTENCE_BYTES, PREFIX "%s is not read: --%s has no variable", name,
                       bare->name);
    else if (near)
        (void)snprintf(ret, BT_VARIABLES_SENTENCE_BYTES, PREFIX "%s is not read; the nearest is " PREFIX "%s", name,
                       near);
    return bare || near;
}

/* Whether an entry of an environment begins as ours do; its name behind the prefix. What no name of ours could be meant
 * by, since it is too long or has other bytes, is none. */
static bool read_entry(const char *entry, char ret_name[NAME_MAX]) {
    const char *equals = strchr(entry, '=');
    if (!equals || strncmp(entry, PREFIX, sizeof PREFIX - 1) != 0) return false;
    size_t n = (size_t)(equals - entry) - (sizeof PREFIX - 1);
    if (n == 0 || n >= NAME_MAX) return false;
    memcpy(ret_name, entry + sizeof PREFIX - 1, n);
    ret_name[n] = '\0';
    return ret_name[strspn(ret_name, LETTERS)] == '\0';
}

bool bt_variables_misspelt(char *const *environment, uint32_t k, char ret[BT_VARIABLES_SENTENCE_BYTES]) {
    static names known; /* some 26 KiB: too large for the stack; the same each time */
    char name[NAME_MAX];
    if (known.n == 0) read_names(&known);
    for (; *environment; environment++)
        if (read_entry(*environment, name) && sentence(&known, name, ret) && k-- == 0) return true;
    return false;
}

void bt_variables_remove_misspelt(void) {
    char said[BT_VARIABLES_SENTENCE_BYTES];
    while (bt_variables_misspelt(environ, 0, said)) {
        said[strcspn(said, " ")] = '\0'; /* it begins with the name */
        if (unsetenv(said) != 0) return;
    }
}

void bt_variables_warn(void) {
    char said[BT_VARIABLES_SENTENCE_BYTES];
    for (uint32_t k = 0; k < BT_VARIABLES_SAID && bt_variables_misspelt(environ, k, said); k++)
        bt_log(BT_LOG_WARN, "%s", said);
}
