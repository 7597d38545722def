/* SPDX-License-Identifier: MIT
 * cmd_help.c: `burthen help [COMMAND]`. Everything shown comes from the two tables; with --json it is the tables, which
 * docs/options.md, the manual's pages and the tests of both are made from (tools/docs-options.py). */
#include "base/error.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/variables.h"
#include "cli/verbs.h"

#include <string.h>

#define HELP_MAX_BYTES  (1u << 20) /* far over the table */
#define USAGE_MAX_BYTES 4096u      /* of one command: a line */
#define NAME_COLUMNS    31
#define TWO_COLUMNS     70u

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

static void put_parts(bt_json_out *out, json_t *row, const char *key, const char *parts, char separator) {
    json_t *list = bt_json_put_array(out, row, key);
    const char end[] = {separator, '\0'};
    for (const char *p = parts ? parts : ""; *p;) {
        size_t n = strcspn(p, end);
        bt_json_add_text(out, list, p, n);
        p += n + (p[n] == separator);
    }
}

static void put_option(bt_json_out *out, json_t *options, const bt_option *row) {
    static const char *const kinds[] = {"flag", "text", "size", "whole", "whole", "real", "choice", "other"};
    char twin[96];
    bt_option_twin(row, twin, sizeof twin);
    json_t *one = bt_json_add_object(out, options);
    bt_json_put_text(out, one, "name", row->name);
    bt_json_put_text(out, one, "alias", row->alias);
    put_parts(out, one, "shorts", row->shorts, ' ');
    bt_json_put_text(out, one, "kind", kinds[row->kind]);
    bt_json_put_text(out, one, "argument", bt_option_arg(row));
    put_parts(out, one, "choices", row->choices, '|');
    bt_json_put_text(out, one, "default", row->shown_default);
    bt_json_put_text(out, one, "environment", row->no_env ? NULL : twin);
    bt_json_put_text(out, one, "help", row->help);
}

static void put_verb(bt_json_out *out, json_t *commands, const bt_verb *verb) {
    bt_text usage;
    bt_text_init(&usage, USAGE_MAX_BYTES);
    bt_verb_usage(verb, &usage);
    if (usage.failed) out->failed = true;
    json_t *one = bt_json_add_object(out, commands);
    bt_json_put_text(out, one, "name", verb->name);
    bt_json_put_text(out, one, "usage", bt_text_str(&usage));
    bt_json_put_text(out, one, "summary", verb->summary);
    json_t *options = bt_json_put_array(out, one, "options");
    for (size_t i = 0; i < bt_cli_option_count; i++) {
        const bt_option *row = &bt_cli_option_table[i];
        if (!row->hidden && (row->commands & (uint32_t)verb->bit)) put_option(out, options, row);
    }
    bt_text_done(&usage);
}

static void put_variables(bt_json_out *out, json_t *root) {
    json_t *variables = bt_json_put_array(out, root, "variables");
    for (size_t i = 0; i < bt_variable_count; i++) {
        json_t *one = bt_json_add_object(out, variables);
        bt_json_put_text(out, one, "name", bt_variables[i].name);
        bt_json_put_text(out, one, "set_by", bt_variables[i].set_by);
        bt_json_put_text(out, one, "meaning", bt_variables[i].meaning);
    }
}

static int print_json(const bt_verb *only) {
    bt_json_out out;
    json_t *root = bt_cli_json_begin(&out);
    json_t *commands = bt_json_put_array(&out, root, "commands");
    for (size_t i = 0; i < bt_verb_count; i++) {
        if (!only || only == &bt_verbs[i]) put_verb(&out, commands, &bt_verbs[i]);
    }
    put_variables(&out, root);
    return bt_cli_json_end(&out, root);
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
