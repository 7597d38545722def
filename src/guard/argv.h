/* SPDX-License-Identifier: MIT
 * argv.h: a command line read: which element is which option, and which are its values. It points into the argv. */
#pragma once

#include "base/arena.h"
#include "guard/flags.h"
#include "guard/values.h"

#define BT_ARGV_MAX 4096 /* elements; llama.cpp's whole table, each option twice with two values, is 1900 */

/* One option as it was written. value NULL: it takes none, or the command line ends before it. */
typedef struct bt_occurrence {
    bt_flag_id flag; /* BT_FLAG_UNKNOWN and BT_FLAG_STRAY too: every element belongs to one occurrence */
    uint32_t at;     /* index of its element */
    uint32_t n;      /* elements that belong to it, 1 to 3 */
    const char *value, *value_2;
    bool attached; /* --name=value: no llama.cpp program takes it */
    bool negative; /* spelled as a no */
} bt_occurrence;

typedef struct bt_argv {
    char *const *argv; /* the whole of it, NULL at the end */
    uint32_t n_argv;
    uint32_t first; /* the first element that was read */
    bt_program program;
    const bt_occurrence *occurrences;
    uint32_t n_occurrences;
    uint32_t n_unknown;           /* options of no row */
    uint32_t n_foreign;           /* options of earlier builds or of a sister program, which today's program refuses */
    uint32_t n_stray, n_attached; /* words of no option, and "--name=value": refused too */
    bool open; /* the last option lacks its value, or is unknown: an argument put after it would become its value */
} bt_argv;

/* Elements between the program's name and the end that llama.cpp reads; argv ends with NULL. E_ARG (code "arguments"):
 * over BT_ARGV_MAX elements. An option takes as many of the next elements as it needs, whatever they look like. An
 * unknown one is given the next element unless that starts with '-': either way what follows is read the same. */
BT_MUST_CHECK bt_status bt_argv_parse(bt_arena *arena, char *const *argv, uint32_t first, bt_program program,
                                      const bt_argv **ret, bt_error *err);

/* The occurrence that counts, the last; NULL: none. */
const bt_occurrence *bt_argv_last(const bt_argv *argv, bt_flag_id flag);

typedef enum bt_reading {
    BT_VALUE_ABSENT, /* was not given */
    BT_VALUE_GIVEN,
    BT_VALUE_BAD, /* was given, and llama.cpp refuses it */
} bt_reading;

bt_reading bt_argv_text(const bt_argv *argv, bt_flag_id flag, const char **ret);
bt_reading bt_argv_real(const bt_argv *argv, bt_flag_id flag, double *ret);
