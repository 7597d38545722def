/* SPDX-License-Identifier: MIT
 * fuzz_argv.c: a command line of llama.cpp's programs, one element a line, and a config.ini of it: found behind its
 * wrappers, read, and rewritten. What must hold stands in argv_kit.h. */
#include "fuzz.h"

#define ARGV_CHECK FUZZ_CHECK
#include "argv_kit.h"

#include <stdio.h>

static bool one(char *text, size_t n) {
    argv_check_text(text, n);
    return true;
}

/* Every spelling of every option, then what is no option. */
static const char *word(size_t i) {
    static const char *const others[] = {
        "\n",  "=",   "--",          "llama-server\n",   "env\n", "docker\nrun\n", "-ngl\n", ",", ":", "auto",
        "all", "CPU", "[default]\n", "blk\\..*_exps=CPU"};
    static char spelling[64];
    if (i < BT_FLAG_COUNT) {
        size_t n = 0;
        const char *text = bt_flag_canonical((bt_flag_id)i, &n);
        (void)snprintf(spelling, sizeof spelling, "%.*s", (int)n, text);
        return spelling;
    }
    i -= BT_FLAG_COUNT;
    return i < sizeof others / sizeof *others ? others[i] : NULL;
}

const fuzz_target fuzz_here = {.name = "argv", .one = one, .word = word, .n_rounds = 2000, .takes_all = true};
