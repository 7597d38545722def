/* SPDX-License-Identifier: MIT
 * cmd_help.c: `burthen help [COMMAND]` and `burthen version`. Everything shown comes from the two tables. */
#include "base/error.h"
#include "cli/commands.h"

#include <string.h>

#define HELP_MAX_BYTES (1u << 20) /* far over the table */

void bt_verb_help(const bt_verb *command, bt_text *text) {
    bool options_first = strncmp(command->args, "--", 2) == 0; /* what follows -- belongs to another program */
    bt_text_addf(text, "usage: burthen %s", command->name);
    if (options_first) bt_text_add(text, " [options]");
    if (command->args[0]) bt_text_addf(text, " %s", command->args);
    if (!options_first) bt_text_add(text, " [options]");
    if (command->bit == BT_CLI_SERVE) bt_text_add(text, " [-- OPTIONS of each llama-server]");
    bt_text_addf(text, "\n\n%s\n\n", command->summary);
    bt_options_help(bt_cli_option_table, bt_cli_option_count, (uint32_t)command->bit, text);
    bt_text_add(text, "\nEvery option but text and files of one run may stand in the environment: --ram-budget as\n"
                      "BURTHEN_RAM_BUDGET. An option given on the command line wins.\n");
}

static void add_overview(bt_text *text) {
    bt_text_add(text, "burthen " BT_VERSION ": local language models within a memory budget\n\n"
                      "usage: burthen COMMAND [options]\n\n");
    for (size_t i = 0; i < bt_verb_count; i++) {
        const bt_verb *command = &bt_verbs[i];
        char name[64];
        (void)snprintf(name, sizeof name, "%s%s%s", command->name, command->args[0] ? " " : "", command->args);
        bt_text_addf(text, "  %-31s %s\n", name, command->summary);
    }
    bt_text_add(text, "\nburthen help COMMAND lists the options of one.\n"
                      "Exit codes: 0 done, 1 failed, 2 usage, 3 refused by the budget, 4 bad model file.\n");
}

int bt_cmd_help(const bt_cli_options *options, bt_option_result *args) {
    (void)options;
    const bt_verb *command = args->n_args > 0 ? bt_verb_find(args->args[0]) : NULL;
    if (args->n_args > 0 && !command) {
        bt_error err = {0};
        (void)bt_verb_unknown(args->args[0], &err);
        return bt_cli_fail(&err);
    }
    bt_text text;
    bt_text_init(&text, HELP_MAX_BYTES);
    if (command) {
        bt_verb_help(command, &text);
    } else {
        add_overview(&text);
    }
    int code = bt_cli_print(&text);
    bt_text_done(&text);
    return code;
}

int bt_cmd_version(const bt_cli_options *options, bt_option_result *args) {
    (void)options;
    (void)args;
    bt_text text;
    bt_text_init(&text, HELP_MAX_BYTES);
    const char *engine = bt_cmd_engine_version();
    bt_text_addf(&text, "burthen %s\nllama.cpp %s\n", BT_VERSION, engine ? engine : "none");
    int code = bt_cli_print(&text);
    bt_text_done(&text);
    return code;
}
