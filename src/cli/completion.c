/* SPDX-License-Identifier: MIT
 * completion.c: what may stand where the cursor is, by the two tables.
 *
 * The scripts of the shells (completion_scripts.c) are thin: they hand over the words and show what comes back, so that
 * there is one reading of a command line and not one a shell, and a program that was replaced completes what it takes
 * itself. The words are walked as base/option.c does it: an option that wants a value takes the next word, whatever it
 * looks like; behind "--" are arguments alone, of exec and serve those of another program. Nothing is looked at but the
 * words: no file, no device. */
#include "cli/completion.h"

#include "cli/cache.h"

#include <stdio.h>
#include <string.h>

#define ABOUT_MAX 120u /* columns of what is said of a word; shells cut it at their own width */

typedef struct place {
    const bt_verb *verb;
    const char *word;        /* that the cursor is in */
    const bt_option *option; /* whose value it is; NULL: none */
    const char *prefix;      /* "--opt=" of it, not terminated; "" */
    size_t n_prefix;
    size_t rest; /* index of the first word behind "--"; 0: there is none */
} place;

/* ---- reading ---------------------------------------------------------------------------------------------------- */

/* The row that takes a value, spelled in the first n bytes of word; NULL for flags, and for what is no option. */
static const bt_option *find_taker(const bt_verb *verb, const char *word, size_t n) {
    const bt_option *row = bt_option_find(bt_cli_option_table, bt_cli_option_count, (uint32_t)verb->bit, word, n);
    return row && row->kind != BT_OPTION_FLAG ? row : NULL;
}

static place find_place(const char *const *words, size_t n_words) {
    place at = {.word = words[n_words - 1], .prefix = ""};
    if (n_words < 2) return at;
    at.verb = bt_verb_find(words[0]);
    for (size_t i = 1; at.verb && i < n_words && at.rest == 0; i++) {
        const char *word = words[i];
        size_t n = strcspn(word, "=");
        bool is_last = i + 1 == n_words;
        const bt_option *taker = find_taker(at.verb, word, n);
        if (strcmp(word, "--") == 0 && !is_last) {
            at.rest = i + 1;
        } else if (taker && word[n] == '=' && is_last) {
            at.option = taker;
            at.prefix = word;
            at.n_prefix = n + 1;
            at.word = word + n + 1;
        } else if (taker && word[n] != '=' && i + 2 == n_words) {
            at.option = taker;
            break;
        } else if (taker && word[n] != '=') {
            i++;
        }
    }
    return at;
}

/* ---- answering -------------------------------------------------------------------------------------------------- */

/* A line, if the word begins as what was typed. */
static void offer(const place *at, const char *word, size_t n, const char *about, bt_text *text) {
    size_t n_typed = strlen(at->word);
    if (n_typed > n || strncmp(word, at->word, n_typed) != 0) return;
    size_t n_about = about ? bt_utf8_fit(about, strnlen(about, ABOUT_MAX)) : 0;
    bt_text_add_n(text, at->prefix, at->n_prefix);
    bt_text_add_n(text, word, n);
    if (n_about > 0) bt_text_addf(text, "\t%.*s", (int)n_about, about);
    bt_text_add(text, "\n");
}

static void offer_parts(const place *at, const char *parts, const char *about, bt_text *text) {
    for (const char *p = parts; *p;) {
        size_t n = strcspn(p, "|");
        offer(at, p, n, about, text);
        p += n + (p[n] == '|');
    }
}

static void offer_verbs(const place *at, bt_text *text) {
    for (size_t i = 0; i < bt_verb_count; i++)
        offer(at, bt_verbs[i].name, strlen(bt_verbs[i].name), bt_verbs[i].summary, text);
}

static void offer_options(const place *at, bt_text *text) {
    char name[80];
    for (size_t i = 0; i < bt_cli_option_count; i++) {
        const bt_option *row = &bt_cli_option_table[i];
        if (row->hidden || !(row->commands & (uint32_t)at->verb->bit)) continue;
        size_t n = (size_t)snprintf(name, sizeof name, "--%s", row->name);
        if (n < sizeof name) offer(at, name, n, row->help, text);
        for (const char *p = row->shorts ? row->shorts : ""; *p;) {
            size_t length = strcspn(p, " ");
            n = (size_t)snprintf(name, sizeof name, "-%.*s", (int)length, p);
            /* One dash alone asks for the long ones: two hundred words are no help. */
            if (n < sizeof name && strlen(at->word) > 1 && at->word[1] != '-') offer(at, name, n, row->help, text);
            p += length + strspn(p + length, " ");
        }
    }
}

static void offer_value(const place *at, bt_text *text) {
    const char *arg = bt_option_arg(at->option);
    if (at->option->choices) offer_parts(at, at->option->choices, NULL, text);
    if (!arg) return;
    if (strcmp(arg, "FILE") == 0 || strcmp(arg, "PATH") == 0) {
        bt_text_addf(text, ":file %s\n", at->option->files ? at->option->files : "");
    } else if (strcmp(arg, "DIR") == 0) {
        bt_text_add(text, ":folder\n");
    }
}

/* By what the table of commands calls its arguments. */
static void offer_argument(const place *at, bt_text *text) {
    const char *args = at->verb->args;
    if (strcmp(args, "[COMMAND]") == 0) offer_verbs(at, text);
    if (strcmp(args, "bash|zsh|fish") == 0) offer_parts(at, args, NULL, text);
    if (strstr(args, "[KIND...]")) offer_parts(at, bt_cache_kinds, NULL, text);
    if (strstr(args, "MODEL")) bt_text_addf(text, ":file gguf%s\n", strstr(args, "CONFIG.yaml") ? " yaml yml" : "");
}

void bt_completion_words(const char *const *words, size_t n_words, bt_text *text) {
    if (n_words == 0) return;
    const place at = find_place(words, n_words);
    if (n_words == 1) {
        offer_verbs(&at, text);
        if (at.word[0] == '-') offer_parts(&at, "--help|--version", NULL, text);
    } else if (at.verb && at.rest > 0) {
        if (at.verb->bit == BT_CLI_EXEC) {
            bt_text_addf(text, ":command %zu\n", at.rest);
        } else if (at.verb->bit == BT_CLI_SERVE) {
            bt_text_add(text, ":file \n"); /* words of a llama-server that is not named here */
        } else {
            offer_argument(&at, text);
        }
    } else if (at.verb && at.option) {
        offer_value(&at, text);
    } else if (at.verb && at.word[0] == '-') {
        offer_options(&at, text);
    } else if (at.verb) {
        offer_argument(&at, text);
    }
}
