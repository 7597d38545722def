/* SPDX-License-Identifier: MIT
 * option.h: one table of options gives parsing, environment twins, help, the manual's pages and completions.
 *
 * A table row names its target by offset into the caller's struct, so that parsing needs no code per option. '-' and
 * '_' are alike in long names; "--opt value" and "--opt=value"; "--" ends options; an unknown option or a bad value is
 * BT_E_ARG (code "option") and names the nearest known option. A flag beats the environment, which beats a settings
 * file, which beats the table. The value of an option is what is attached with '=' or the next argument, whatever it
 * looks like; an empty one is an error. In the environment a flag is 1/on/true/yes or 0/off/false/no. A CUSTOM parser
 * reports with its own code. */
#pragma once

#include "base/text.h"
#include "burthen.h"

typedef enum bt_option_kind {
    BT_OPTION_FLAG,   /* bool; no value */
    BT_OPTION_TEXT,   /* const char *, points into argv or the environment */
    BT_OPTION_SIZE,   /* uint64_t bytes, bt_size_parse */
    BT_OPTION_U32,    /* uint32_t within [min, max] */
    BT_OPTION_I32,    /* int32_t within [min, max] */
    BT_OPTION_REAL,   /* double within [min, max]; '.' whatever the locale */
    BT_OPTION_CHOICE, /* int: index into choices, "a|b|c" */
    BT_OPTION_CUSTOM, /* parse(value, struct, err) */
} bt_option_kind;

typedef struct bt_option {
    const char *name;   /* "ctx-size" */
    const char *alias;  /* second long name, or NULL */
    const char *shorts; /* one or more single-dash spellings, space-separated: "c", "np", "ctk"; or NULL */
    bt_option_kind kind;
    size_t offset;       /* of the target in the caller's struct */
    size_t set_offset;   /* of a bool that is set when the option was given, or SIZE_MAX */
    double min, max;     /* U32, I32, REAL; both 0: all that the type holds */
    const char *choices; /* CHOICE; of CUSTOM words that it takes too, for completion: "auto|all" */
    bt_status (*parse)(const char *value, void *target_struct, bt_error *err); /* CUSTOM */
    const char *arg;           /* name of the value in help: "N", "SIZE" */
    const char *files;         /* endings of the FILE that arg names, for completion: "gguf"; NULL: any */
    const char *help;          /* one line */
    const char *shown_default; /* in help; NULL: none */
    uint32_t commands;         /* bit mask of the commands that accept it */
    bool hidden;               /* parsed, but not in help */
    bool no_env;               /* has no BURTHEN_* twin, and does not stand in a settings file */
    bool blank_unsets;         /* a twin of blanks, or of nothing, is as none */
} bt_option;

typedef struct bt_option_result {
    const char **args; /* what is not an option, in order; points into argv; at most max_args */
    uint32_t n_args, max_args;
    int rest; /* index in argv after "--", or 0 if there was none; what follows is not in args */
} bt_option_result;

/* What a settings file says of a row: its value, or NULL. ret_where: the place, for errors. */
typedef struct bt_option_file {
    const char *(*get)(void *user, const bt_option *row, const char **ret_where);
    void *user;
} bt_option_file;

/* argv: the arguments alone, without the names of program and command. command: one bit of bt_option.commands.
 * environ_get: how to read the environment (NULL: getenv); tests give their own. file: NULL for none. target holds the
 * defaults before, and after a failure may hold some of the values. result may be NULL where no arguments beside
 * options are allowed. */
BT_MUST_CHECK bt_status bt_options_parse(const bt_option *table, size_t n_options, uint32_t command, int argc,
                                         char *const *argv, const char *(*environ_get)(const char *),
                                         const bt_option_file *file, void *target, bt_option_result *result,
                                         bt_error *err);
/* The row of a command that the first n bytes of word spell, dashes and all: "--ctx_size", "-c". NULL: there is none.
 */
const bt_option *bt_option_find(const bt_option *table, size_t n_options, uint32_t command, const char *word, size_t n);
/* getenv(), where something else may be asked for variables in its place. Before any thread changes them. */
const char *bt_environ(const char *name);
/* The name of a row's twin, "BURTHEN_CTX_SIZE". */
void bt_option_twin(const bt_option *row, char *ret, size_t capacity);
/* What stands for the value in help: "N", "auto|on|off"; NULL for a flag. */
const char *bt_option_arg(const bt_option *row);
/* The nearest of n names to word by edit distance, or NULL if none is near. */
const char *bt_nearest(const char *word, const char *const *names, size_t n);
/* Lines of help: wide enough for two columns, and still inside the usual terminal on a laptop. */
#define BT_HELP_COLUMNS 100u
/* Append one paragraph an option that command accepts and that is not hidden, in the order of the table: aligned, and
 * wrapped at n_columns, which counts as 40 where it is less and as BT_HELP_COLUMNS where it is more. */
void bt_options_help(const bt_option *table, size_t n_options, uint32_t command, size_t n_columns, bt_text *text);
/* Append words to a line that stands at column indent, wrapped in the same way; further lines start there too. */
void bt_help_words(bt_text *text, const char *words, size_t indent, size_t n_columns);
