/* SPDX-License-Identifier: MIT
 * verbs.c: the commands by name, and what is said of each.
 *
 * A row here and the rows of the option table that bear its bit are all that help, completions, docs/options.md and the
 * manual's pages are made from. */
#include "cli/verbs.h"

#include "base/error.h"

#include <string.h>

#define USAGE_MAX_BYTES 4096u

const bt_verb bt_verbs[] = {
    {"plan", BT_CLI_PLAN, "MODEL", 1, 1, "what a model needs, what fits, what streams; loads nothing"},
    {"run", BT_CLI_RUN, "MODEL", 1, 1, "generate text within the budget"},
    {"bench", BT_CLI_BENCH, "MODEL", 1, 1, "tokens a second, what is read and what bounds it"},
    {"perplexity", BT_CLI_PERPLEXITY, "MODEL", 1, 1, "perplexity of a text, as llama-perplexity"},
    {"inspect", BT_CLI_INSPECT, "MODEL", 1, 1, "what stands in a model file"},
    {"devices", BT_CLI_DEVICES, "", 0, 0, "the memory of this machine"},
    {"report", BT_CLI_REPORT, "MODEL", 1, 1, "one JSON for a bug report; says nothing of who and where"},
    {"exec", BT_CLI_EXEC, "-- COMMAND ARGS...", 1, UINT32_MAX,
     "start a llama.cpp program so that it fits what devices have free"},
    {"serve", BT_CLI_SERVE, "[CONFIG.yaml | MODEL...]", 0, UINT32_MAX,
     "many models behind one address, within the memory of one machine"},
    {"worker", BT_CLI_WORKER, "", 0, 0, "offer this machine's memory and cores to other machines"},
    {"cache", BT_CLI_CACHE, "[KIND...]", 0, 16, "what is kept between runs, and how much it is; --clear removes it"},
    {"completion", BT_CLI_COMPLETION, "bash|zsh|fish", 1, UINT32_MAX, "what a shell needs to complete burthen's words"},
    {"version", BT_CLI_VERSION, "", 0, 0, "versions of burthen and llama.cpp"},
    {"help", BT_CLI_HELP, "[COMMAND]", 0, 1, "this, or the options of a command"},
};
const size_t bt_verb_count = sizeof bt_verbs / sizeof *bt_verbs;

const bt_verb *bt_verb_find(const char *name) {
    for (size_t i = 0; i < bt_verb_count; i++) {
        if (strcmp(bt_verbs[i].name, name) == 0) return &bt_verbs[i];
    }
    return NULL;
}

const bt_verb *bt_verb_of(uint32_t command_bit) {
    for (size_t i = 0; i < bt_verb_count; i++) {
        if ((uint32_t)bt_verbs[i].bit == command_bit) return &bt_verbs[i];
    }
    return NULL;
}

bt_status bt_verb_unknown(const char *name, bt_error *err) {
    const char *names[sizeof bt_verbs / sizeof *bt_verbs];
    for (size_t i = 0; i < bt_verb_count; i++) {
        names[i] = bt_verbs[i].name;
    }
    if (name[0] == '-')
        return bt_fail(err, BT_E_ARG, "command", BT_MEASURE_NONE, 0, 0,
                       "%s stands behind a command: burthen COMMAND %s ...; burthen help lists them", name, name);
    const char *nearest = bt_nearest(name, names, bt_verb_count);
    if (nearest) {
        return bt_fail(err, BT_E_ARG, "command", BT_MEASURE_NONE, 0, 0, "unknown command %s; the nearest is %s", name,
                       nearest);
    }
    return bt_fail(err, BT_E_ARG, "command", BT_MEASURE_NONE, 0, 0, "unknown command %s; burthen help lists them",
                   name);
}

void bt_verb_usage(const bt_verb *verb, bt_text *text) {
    bool options_first = strncmp(verb->args, "--", 2) == 0; /* what follows -- belongs to another program */
    bt_text_addf(text, "burthen %s", verb->name);
    if (options_first) bt_text_add(text, " [options]");
    if (verb->args[0]) bt_text_addf(text, " %s", verb->args);
    if (!options_first) bt_text_add(text, " [options]");
    if (verb->bit == BT_CLI_SERVE) bt_text_add(text, " [-- OPTIONS of each llama-server]");
}

void bt_verb_help(const bt_verb *verb, size_t n_columns, bt_text *text) {
    static const char before[] = "usage: ";
    bt_text usage;
    bt_text_init(&usage, USAGE_MAX_BYTES);
    bt_verb_usage(verb, &usage);
    bt_text_add(text, before);
    bt_help_words(text, bt_text_str(&usage), sizeof before - 1, n_columns);
    bt_text_done(&usage);
    bt_text_addf(text, "\n\n%s\n\n", verb->summary);
    bt_options_help(bt_cli_option_table, bt_cli_option_count, (uint32_t)verb->bit, n_columns, text);
    bt_text_add(text, "\n");
    bt_help_words(text,
                  "Every option but text and files of one run may stand in the environment, --ram-budget as "
                  "BURTHEN_RAM_BUDGET, or in ~/.config/burthen/config.yaml, as ram-budget: 8G. An option given on the "
                  "command line wins, then the environment.",
                  0, n_columns);
    bt_text_add(text, "\n");
}
