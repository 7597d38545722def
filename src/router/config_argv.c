/* SPDX-License-Identifier: MIT
 * config_argv.c: the words that a model is started with, and the address where it answers.
 *
 * For a model: of the configuration llama-server is told its file, where to listen (loopback, whatever the router
 * listens on: what it serves, the router has looked at), its name, and to leave out its web page; then come the user's
 * words, which may say more. It is asked for its metrics, which the router's page shows. Where the host has a budget,
 * its prompt cache is off unless they speak of it (llama.cpp lets it grow to 8 GiB on top of everything), and of states
 * that cannot be rolled back (sliding windows, recurrent models) it keeps CHECKPOINTS a slot instead of 32. */
#include "base/arena.h"
#include "base/error.h"
#include "guard/argv.h"
#include "router/config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PORT_MARK "${PORT}"
/* One at the start of the last message of the user's, two near the end of a prompt (tools/server/server-context.cpp of
 * llama.cpp: do_checkpoint, checkpoint_offsets): the next turn of a conversation finds one of them. */
#define CHECKPOINTS "3"

static bt_status no_memory(bt_error *err) {
    return bt_fail(err, BT_E_NOMEM, "config", BT_MEASURE_NONE, 0, 0, "no memory for a command");
}

/* text with the port in place of each mark. NULL: no memory. */
static char *with_port(const char *text, uint32_t port, bt_arena *arena) {
    char digits[16];
    int n_digits = snprintf(digits, sizeof digits, "%" PRIu32, port);
    if (n_digits < 0) return NULL;
    char *copy = bt_arena_alloc(arena, strlen(text) + 1 + 2 * strlen(text)); /* 10 digits for each 7 bytes at most */
    if (!copy) return NULL;
    char *to = copy;
    for (const char *p = text; *p;) {
        const char *mark = strstr(p, PORT_MARK);
        size_t n = mark ? (size_t)(mark - p) : strlen(p);
        memcpy(to, p, n);
        to += n;
        p += n;
        if (!mark) break;
        memcpy(to, digits, (size_t)n_digits);
        to += n_digits;
        p += sizeof PORT_MARK - 1;
    }
    *to = '\0';
    return copy;
}

static uint32_t n_words(const char *const *words) {
    uint32_t n = 0;
    while (words && words[n])
        n++;
    return n;
}

/* Whether the model's own words or variables set an option, under any of its names. */
static bool says(const bt_config_model *model, const bt_argv *args, bt_flag_id flag, const char *variable) {
    if (bt_argv_last(args, flag)) return true;
    size_t n = strlen(variable);
    for (uint32_t i = 0; model->env && model->env[i]; i++)
        if (strncmp(model->env[i], variable, n) == 0 && model->env[i][n] == '=') return true;
    return false;
}

/* What the router wants and the model's words are silent of. */
static bt_status add_defaults(const bt_config_model *model, bt_arena *arena, const char **words, uint32_t *n,
                              bt_error *err) {
    static char *const none[] = {NULL};
    const bt_argv *args = NULL;
    BT_TRY(bt_argv_parse(arena, model->args ? model->args : none, 0, BT_PROGRAM_SERVER, &args, err));
    if (!says(model, args, BT_FLAG_METRICS, "LLAMA_ARG_ENDPOINT_METRICS")) words[(*n)++] = "--metrics";
    if (!says(model, args, BT_FLAG_CACHE_RAM, "LLAMA_ARG_CACHE_RAM")) {
        words[(*n)++] = "--cache-ram";
        words[(*n)++] = "0";
    }
    if (!says(model, args, BT_FLAG_CHECKPOINTS, "LLAMA_ARG_CTX_CHECKPOINTS")) {
        words[(*n)++] = "--ctx-checkpoints";
        words[(*n)++] = model->ram == BT_CONFIG_RAM_SIZE ? "0" : CHECKPOINTS;
    }
    return BT_OK;
}

static bt_status server_argv(const bt_config *config, const bt_config_model *model, uint32_t port, bt_arena *arena,
                             char ***ret_argv, bt_error *err) {
    const char *words[16] = {config->llama_server ? config->llama_server : "llama-server",
                             "-m",
                             model->model,
                             "--host",
                             "127.0.0.1",
                             "--port",
                             PORT_MARK,
                             "--alias",
                             model->id,
                             "--no-webui"};
    uint32_t n = 10;
    BT_TRY(add_defaults(model, arena, words, &n, err));
    uint32_t n_args = n_words((const char *const *)model->args);
    char **argv = bt_arena_array(arena, (uint64_t)n + n_args + 1, sizeof *argv);
    if (!argv) return no_memory(err);
    for (uint32_t i = 0; i < n + n_args; i++) {
        /* A file or an id with the mark in it is that name. */
        bool own = i < n && words[i] != words[6];
        const char *word = i < n ? words[i] : model->args[i - n];
        argv[i] = own ? bt_arena_strdup(arena, word) : with_port(word, port, arena);
        if (!argv[i]) return no_memory(err);
    }
    *ret_argv = argv;
    return BT_OK;
}

bt_status bt_config_words(const char *const *words, uint32_t port, bt_arena *arena, char ***ret, bt_error *err) {
    *ret = NULL;
    if (!words) return BT_OK;
    uint32_t n = n_words(words);
    char **copy = bt_arena_array(arena, (uint64_t)n + 1, sizeof *copy);
    if (!copy) return no_memory(err);
    for (uint32_t i = 0; i < n; i++) {
        copy[i] = with_port(words[i], port, arena);
        if (!copy[i]) return no_memory(err);
    }
    *ret = copy;
    return BT_OK;
}

bt_status bt_config_argv(const bt_config *config, const bt_config_model *model, uint32_t port, bt_arena *arena,
                         char ***ret_argv, bt_error *err) {
    *ret_argv = NULL;
    if (model->model) return server_argv(config, model, port, arena, ret_argv, err);
    return bt_config_words((const char *const *)model->cmd, port, arena, ret_argv, err);
}

bt_status bt_config_url(const bt_config_model *model, uint32_t port, bt_arena *arena, char **ret_url, bt_error *err) {
    *ret_url = with_port(model->proxy, port, arena);
    if (!*ret_url) return no_memory(err);
    size_t n = strlen(*ret_url);
    while (n > 0 && (*ret_url)[n - 1] == '/') /* a path follows, with its own */
        (*ret_url)[--n] = '\0';
    return BT_OK;
}
