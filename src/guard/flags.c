/* SPDX-License-Identifier: MIT
 * flags.c: the table of flag_list.h, and looking something up in it.
 *
 * The programs of llama.cpp share one set of options, and each accepts a part of it. A spelling means the same thing
 * in all of them, so one that a program does not accept is still recognised: the program will refuse its command line,
 * and until then the values of that option must not be taken for options themselves. Other engines share nothing and
 * see only their own rows. Looking up is a walk through the table: a command line has a few dozen options, the table
 * some 300 rows, and it is read once a spawn. */
#include "guard/flags.h"

#include <string.h>

#define ARG(name) "LLAMA_ARG_" #name
#define S         (1u << BT_PROGRAM_SERVER)
#define C         (1u << BT_PROGRAM_CLI)
#define O         (1u << BT_PROGRAM_COMPLETION)
#define P         (1u << BT_PROGRAM_PERPLEXITY)
#define E         (1u << BT_PROGRAM_EMBEDDING)
#define F         (1u << BT_PROGRAM_FIT_PARAMS)
#define D         (1u << BT_PROGRAM_SD_SERVER)
#define M         (1u << BT_PROGRAM_SAM)
#define ALL       (S | C | O | P | E | F)
#define LAST      false
#define ADDS      true

static const bt_flag table[BT_FLAG_COUNT] = {
#define X(name, kind, repeated, programs, spellings, negatives, variable)                                              \
    {#name, BT_TAKES_##kind, repeated, programs, spellings, negatives, variable},
    BT_FLAGS(X)
#undef X
};

static const char *const program_names[BT_PROGRAM_COUNT] = {
    "",
    "llama-server",
    "llama-cli",
    "llama-completion",
    "llama-perplexity",
    "llama-embedding",
    "llama-fit-params",
    "llama-bench",
    "sd-server",
    "sam3",
};

const bt_flag *bt_flag_get(bt_flag_id flag) {
    return &table[flag];
}

const char *bt_program_name(bt_program program) {
    return program < BT_PROGRAM_COUNT ? program_names[program] : "";
}

uint32_t bt_flag_arity(bt_flag_id flag) {
    switch (table[flag].kind) {
    case BT_TAKES_SWITCH:
    case BT_TAKES_PAIR:
    case BT_TAKES_ACTION:
    case BT_TAKES_FLASH:
        return 0;
    case BT_TAKES_RANGE:
        return 2;
    case BT_TAKES_INT:
    case BT_TAKES_REAL:
    case BT_TAKES_LAYERS:
    case BT_TAKES_TEXT:
    case BT_TAKES_PATH:
    case BT_TAKES_CHOICE:
    case BT_TAKES_LIST:
    case BT_TAKES_PATHS:
    case BT_TAKES_RULES:
    case BT_TAKES_SCALED:
        break;
    }
    return 1;
}

bool bt_flag_is_of(bt_flag_id flag, bt_program program) {
    return (table[flag].programs & (1u << program)) != 0;
}

/* ---- looking up ------------------------------------------------------------------------------------------------- */

static bool same(const char *text, const char *spelling, size_t n, bool long_one) {
    for (size_t i = 0; i < n; i++) {
        char c = long_one && text[i] == '_' ? '-' : text[i];
        if (c != spelling[i]) return false;
    }
    return true;
}

/* Is the text one of the words? skip_dashes: the words without the dashes in front of them. */
static bool among(const char *words, const char *text, size_t n, bool skip_dashes) {
    bool long_one = !skip_dashes && n > 2 && text[0] == '-' && text[1] == '-';
    for (const char *p = words; p && *p;) {
        if (skip_dashes) p += strspn(p, "-");
        size_t length = strcspn(p, " ");
        if (length == n && same(text, p, n, long_one)) return true;
        p += length;
        p += strspn(p, " ");
    }
    return false;
}

/* How near a row is to a program: 3 its own, 2 of earlier builds, 1 of a sister, 0 none of its. */
static int nearness(const bt_flag *row, bt_program program) {
    if (row->programs & (1u << program)) return 3;
    if (!(ALL & (1u << program))) return 0;
    if (row->programs == 0) return 2;
    return row->programs & ALL ? 1 : 0;
}

static bt_flag_id find(bt_program program, const char *text, size_t n, bool is_key, bool *ret_negative) {
    bt_flag_id best = BT_FLAG_UNKNOWN;
    int best_nearness = 0;
    bool negative = false;
    for (uint32_t i = 0; i < BT_FLAG_COUNT; i++) {
        int near = nearness(&table[i], program);
        if (near <= best_nearness) continue;
        bool no = among(table[i].negatives, text, n, is_key);
        if (!no && !among(table[i].spellings, text, n, is_key) && !(is_key && among(table[i].variable, text, n, false)))
            continue;
        best = (bt_flag_id)i;
        best_nearness = near;
        negative = no;
    }
    if (ret_negative) *ret_negative = negative;
    return best;
}

bt_flag_id bt_flag_find(bt_program program, const char *text, size_t n, bool *ret_negative) {
    return find(program, text, n, false, ret_negative);
}

bt_flag_id bt_flag_find_key(bt_program program, const char *key, size_t n, bool *ret_negative) {
    return find(program, key, n, true, ret_negative);
}

const char *bt_flag_canonical(bt_flag_id flag, size_t *ret_n) {
    const char *words = table[flag].spellings;
    const char *space = strrchr(words, ' ');
    const char *last = space ? space + 1 : words;
    *ret_n = strlen(last);
    return last;
}
