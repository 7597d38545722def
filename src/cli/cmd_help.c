/* SPDX-License-Identifier: MIT
 * cmd_help.c: `burthen help [COMMAND]`. Everything shown comes from the two tables; with --json it is the tables, which
 * docs/options.md, the manual's pages and the tests of both are made from (tools/docs-options.py). */
#include "base/error.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/verbs.h"

#include <string.h>

#define HELP_MAX_BYTES (1u << 20) /* far over the table */
#define NAME_COLUMNS   31
#define TWO_COLUMNS    70u

/* Names beside what is said of them, or above it where that would be a narrow column. */
static void add_overview(size_t n_columns, bt_text *text) {
    size_t indent = n_columns < TWO_COLUMNS ? 6 : NAME_COLUMNS + 3;
    bt_text_add(text, "burthen " BT_VERSION ": local language models within a memory budget\n\n"
                      "usage: burthen COMMAND [options]\n\n");
    for (size_t i = 0; i < bt_verb_count; i++) {
        const bt_verb *command = &bt_verbs[i];
        char name[64];
        (void)snprintf(name, sizeof name, "%s%s%s", command->name, command->args[0] ? " " : "", command->args);
        if (n_columns < TWO_COLUMNS)
            bt_text_addf(text, "  %s\n%*s", name, (int)indent, "");
        else
            bt_text_addf(text, "  %-*s ", NAME_COLUMNS, name);
        bt_help_words(text, command->summary, indent, n_columns);
        bt_text_add(text, "\n");
    }
    bt_text_add(text, "\nburthen help COMMAND lists the options of one.\n");
    bt_help_words(text, "Exit codes: 0 done, 1 failed, 2 usage, 3 refused by the budget, 4 bad model file.", 0,
                  n_columns);
    bt_text_add(text, "\n");
}

/* ---- as JSON ---------------------------------------------------------------------------------------------------- */

static json_t *parts_json(const char *parts, char separator) {
    json_t *list = json_array();
    const char end[] = {separator, '\0'};
    for (const char *p = parts ? parts : ""; *p;) {
        size_t n = strcspn(p, end);
        (void)json_array_append_new(list, json_stringn(p, n)); /* json_pack fails on what is missing */
        p += n + (p[n] == separator);
    }
    return list;
}

static json_t *option_json(const bt_option *row) {
    static const char *const kinds[] = {"flag", "text", "size", "whole", "whole", "real", "choice", "other"};
    char twin[96];
    bt_option_twin(row, twin, sizeof twin);
    return json_pack("{s:s, s:s?, s:o, s:s, s:s?, s:o, s:s?, s:s?, s:s?}", "name", row->name, "alias", row->alias,
                     "shorts", parts_json(row->shorts, ' '), "kind", kinds[row->kind], "argument", bt_option_arg(row),
                     "choices", parts_json(row->choices, '|'), "default", row->shown_default, "environment",
                     row->no_env ? NULL : twin, "help", row->help);
}

static json_t *verb_json(const bt_verb *verb) {
    bt_text usage;
    json_t *options = json_array();
    bt_text_init(&usage, 4096);
    bt_verb_usage(verb, &usage);
    for (size_t i = 0; i < bt_cli_option_count; i++) {
        const bt_option *row = &bt_cli_option_table[i];
        if (!row->hidden && (row->commands & (uint32_t)verb->bit))
            (void)json_array_append_new(options, option_json(row));
    }
    json_t *made = json_pack("{s:s, s:s, s:s, s:o}", "name", verb->name, "usage", bt_text_str(&usage), "summary",
                             verb->summary, "options", options);
    bt_text_done(&usage);
    return made;
}

static int print_json(const bt_verb *only) {
    json_t *commands = json_array();
    for (size_t i = 0; i < bt_verb_count; i++) {
        if (!only || only == &bt_verbs[i]) (void)json_array_append_new(commands, verb_json(&bt_verbs[i]));
    }
    return bt_cli_print_json(json_pack("{s:s, s:i, s:o}", "burthen", BT_VERSION, "schema", 1, "commands", commands));
}

int bt_cmd_help(const bt_cli_options *options, bt_option_result *args) {
    const bt_verb *command = args->n_args > 0 ? bt_verb_find(args->args[0]) : NULL;
    if (args->n_args > 0 && !command) {
        bt_error err = {0};
        (void)bt_verb_unknown(args->args[0], &err);
        return bt_cli_fail(&err);
    }
    if (options->json) return print_json(command);
    bt_text text;
    bt_text_init(&text, HELP_MAX_BYTES);
    if (command) {
        bt_verb_help(command, bt_cli_help_columns(), &text);
    } else {
        add_overview(bt_cli_help_columns(), &text);
    }
    int code = bt_cli_print(&text);
    bt_text_done(&text);
    return code;
}
