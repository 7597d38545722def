/* SPDX-License-Identifier: MIT
 * flags.h: the options of the llama.cpp programs: how each is spelled, what follows it, which variable is its twin. */
#pragma once

#include "burthen.h"
#include "guard/flag_list.h"

/* The programs whose command lines can be read, and two of other engines. */
typedef enum bt_program {
    BT_PROGRAM_NONE,
    BT_PROGRAM_SERVER,
    BT_PROGRAM_CLI,
    BT_PROGRAM_COMPLETION,
    BT_PROGRAM_PERPLEXITY,
    BT_PROGRAM_EMBEDDING,
    BT_PROGRAM_FIT_PARAMS,
    BT_PROGRAM_BENCH, /* its options are lists of runs, and none of this table (drop_in_bench.h reads them) */
    BT_PROGRAM_SD_SERVER,
    BT_PROGRAM_SAM,
    BT_PROGRAM_COUNT
} bt_program;

typedef enum bt_flag_id {
#define X(name, kind, repeated, programs, spellings, negatives, variable) BT_FLAG_##name,
    BT_FLAGS(X)
#undef X
        BT_FLAG_COUNT,
    BT_FLAG_UNKNOWN = BT_FLAG_COUNT, /* looks like an option, and is none of the table */
    BT_FLAG_STRAY,                   /* no option, and no option's value */
} bt_flag_id;

/* What follows an option. */
typedef enum bt_flag_kind {
    BT_TAKES_SWITCH, /* nothing: it is on */
    BT_TAKES_PAIR,   /* nothing: it is on, or off under another spelling; the last of the two wins */
    BT_TAKES_ACTION, /* nothing: the program prints something and ends */
    BT_TAKES_INT,
    BT_TAKES_REAL,
    BT_TAKES_LAYERS, /* a number, auto or all */
    BT_TAKES_TEXT,
    BT_TAKES_PATH,
    BT_TAKES_CHOICE,
    BT_TAKES_LIST,   /* a,b,c */
    BT_TAKES_PATHS,  /* files, as a row of CSV */
    BT_TAKES_RULES,  /* pattern=buffer,... */
    BT_TAKES_FLASH,  /* on, off or auto; in earlier builds nothing */
    BT_TAKES_SCALED, /* file:scale,...; in earlier builds file and scale, two arguments */
    BT_TAKES_RANGE,  /* two arguments */
} bt_flag_kind;

typedef struct bt_flag {
    const char *name; /* of the row: "CTX_SIZE" */
    bt_flag_kind kind;
    bool adds;             /* each one counts; else the last one does */
    uint32_t programs;     /* bit 1 << bt_program; 0: only of earlier builds */
    const char *spellings; /* separated by spaces, the longest form last */
    const char *negatives; /* of a pair: those that say no */
    const char *variable;  /* of the environment, or NULL */
} bt_flag;

const bt_flag *bt_flag_get(bt_flag_id flag); /* flag < BT_FLAG_COUNT */
/* Values that must follow: 0, 1 or 2; of FLASH and SCALED the fewest. */
uint32_t bt_flag_arity(bt_flag_id flag);
bool bt_flag_is_of(bt_flag_id flag, bt_program program); /* may program of today be given it */
/* The option that n bytes spell on program's command line: one of its own, of earlier builds, or of a sister program
 * (which program refuses); of other engines only their own. '_' is '-' after "--". BT_FLAG_UNKNOWN if there is none.
 * ret_negative, if not NULL: was it spelled as a no? */
bt_flag_id bt_flag_find(bt_program program, const char *text, size_t n, bool *ret_negative);
/* The same for a key of a configuration file: a spelling without its dashes, or a variable. */
bt_flag_id bt_flag_find_key(bt_program program, const char *key, size_t n, bool *ret_negative);
/* The spelling that is written where none is given: the last one. Stays valid; ret_n: its length. */
const char *bt_flag_canonical(bt_flag_id flag, size_t *ret_n);
const char *bt_program_name(bt_program program); /* "llama-server" */
