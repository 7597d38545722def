/* SPDX-License-Identifier: MIT
 * fuzz_router_config.c: a configuration of the router, ours or llama-swap's. What must hold stands in router_check.h.
 */
#include "fuzz.h"

#define ROUTER_CHECK FUZZ_CHECK
#include "router/config_read.h"
#include "router_check.h"

static bool one(char *text, size_t n) {
    return router_check_text(text, n);
}

/* What YAML and macros are made of, then every key. */
static const char *word(size_t i) {
    static const char *const words[] = {
        "${PORT}", "${PID}", "${MODEL_ID}", "${env.KEY}", "${a}", "&a ", "*a",  "<<: *a", "[",   "]",      "{", "}",
        ": ",      "\n",     "\n  ",        "'",          "\"",   "|\n", "off", "-1",     "1e9", "!!str ", "#", "\\\n"};
    enum { N_WORDS = sizeof words / sizeof *words };
    if (i < N_WORDS) return words[i];
    i -= N_WORDS;
    if (i >= 2 * bt_config_n_keys) return NULL;
    const bt_key *key = &bt_config_keys[i / 2];
    const char *spelling = i % 2 == 0 ? key->name : key->swap;
    return spelling ? spelling : key->name ? key->name : key->swap;
}

const fuzz_target fuzz_here = {.name = "router_config", .one = one, .bare = true, .word = word, .n_rounds = 3000};
