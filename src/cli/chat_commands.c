/* SPDX-License-Identifier: MIT
 *
 * chat_commands.c: what a line that begins with "/" does. One table: name, argument, help, call. An unknown command is
 * said with the nearest one and never goes to the model. */
#include "base/error.h"
#include "base/option.h"
#include "base/size.h"
#include "cli/chat_internal.h"
#include "engine/session_file.h"

#include <stdarg.h>
#include <string.h>

void bt_chat_say(const bt_chat *chat, const char *fmt, ...) {
    if (chat->running.options->quiet) return;
    bt_text text;
    bt_text_init(&text, 4096);
    char line[1024];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    bt_text_add_escaped(&text, line, n > 0 ? bt_min_u64((uint64_t)n, sizeof line - 1) : 0);
    (void)fprintf(stderr, "burthen: %s\n", bt_text_str(&text)); /* where else to say that it failed */
    bt_text_done(&text);
}

/* ---- sessions ---- */

bt_status bt_chat_save(const bt_chat *chat, const char *path, bt_error *err) {
    bt_saved saved = {0};
    uint32_t n_messages = 0;
    uint32_t n_tokens = 0;
    const bt_message *messages = bt_conversation_messages(chat->conversation, &n_messages);
    const int32_t *tokens = bt_conversation_tokens(chat->conversation, &n_tokens);
    /* only read */
    saved.messages = (bt_message *)(uintptr_t)messages;
    saved.tokens = (int32_t *)(uintptr_t)tokens;
    saved.n_messages = n_messages;
    saved.n_decoded = saved.n_tokens = n_tokens;
    return bt_session_file_save(path, chat->running.session, chat->running.facts, &chat->running.plan, &saved, err);
}

bt_status bt_chat_load(bt_chat *chat, const char *path, bt_error *err) {
    bt_saved saved;
    BT_TRY(bt_session_file_load(path, chat->running.session, chat->running.facts, &chat->running.plan, &saved, err));
    bt_status status = bt_conversation_restore(chat->conversation, saved.messages, saved.n_messages, saved.tokens,
                                               saved.n_decoded, err);
    if (status == BT_OK)
        bt_chat_say(chat, "%u messages, %u tokens taken up from %s", saved.n_messages, saved.n_decoded, path);
    bt_saved_done(&saved);
    return status;
}

/* ---- the commands ---- */

static void do_help(bt_chat *chat, const char *argument);

static void do_clear(bt_chat *chat, const char *argument) {
    (void)argument;
    bt_conversation_clear(chat->conversation);
    bt_chat_say(chat, "the conversation begins anew");
}

static void do_undo(bt_chat *chat, const char *argument) {
    (void)argument;
    bool done = bt_conversation_undo(chat->conversation);
    bt_chat_say(chat, done ? "the last turn is taken back" : "there is no turn to take back");
}

/* The file named, or that of --session. */
static const char *session_path(const bt_chat *chat, const char *argument) {
    const char *path = *argument ? argument : chat->running.options->session_file;
    if (!path) bt_chat_say(chat, "which file? /save FILE, /load FILE, or start with --session FILE");
    return path;
}

static void do_save(bt_chat *chat, const char *argument) {
    const char *path = session_path(chat, argument);
    bt_error err = {0};
    if (!path) return;
    if (bt_chat_save(chat, path, &err) != BT_OK)
        chat->fail_code = bt_cli_fail(&err);
    else
        bt_chat_say(chat, "saved to %s", path);
}

static void do_load(bt_chat *chat, const char *argument) {
    const char *path = session_path(chat, argument);
    bt_error err = {0};
    if (path && bt_chat_load(chat, path, &err) != BT_OK) chat->fail_code = bt_cli_fail(&err);
}

static void do_stats(bt_chat *chat, const char *argument) {
    (void)argument;
    bt_chat_print_stats(chat);
}

static void do_exit(bt_chat *chat, const char *argument) {
    (void)argument;
    chat->leaves = true;
}

static const struct {
    const char *name, *argument, *help;
    void (*call)(bt_chat *chat, const char *argument);
} commands[] = {
    {"help", "", "this", do_help},
    {"clear", "", "forget the conversation, but for the system prompt", do_clear},
    {"undo", "", "take back the last message and its answer", do_undo},
    {"save", " FILE", "save the conversation and its KV cache", do_save},
    {"load", " FILE", "take up a saved conversation", do_load},
    {"stats", "", "tokens, speeds, and memory as planned and as used", do_stats},
    {"exit", "", "leave; so does Ctrl-D", do_exit},
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

static void do_help(bt_chat *chat, const char *argument) {
    (void)chat;
    (void)argument;
    for (size_t i = 0; i < N_COMMANDS; i++)
        (void)fprintf(stderr, "  /%s%-*s %s\n", commands[i].name, (int)(12 - strlen(commands[i].name)),
                      commands[i].argument, commands[i].help);
    (void)fputs("  A backslash at the end of a line goes on with the next; // begins a message with a slash.\n",
                stderr);
}

void bt_chat_command(bt_chat *chat, const char *line) {
    size_t n = strcspn(line, " \t");
    const char *argument = line + n + strspn(line + n, " \t");
    const char *names[N_COMMANDS];
    for (size_t i = 0; i < N_COMMANDS; i++) {
        names[i] = commands[i].name;
        if (strlen(commands[i].name) != n || strncmp(commands[i].name, line, n) != 0) continue;
        commands[i].call(chat, argument);
        return;
    }
    char word[64];
    (void)snprintf(word, sizeof word, "%.*s", (int)bt_min_u64(n, sizeof word - 1), line);
    const char *nearest = bt_nearest(word, names, N_COMMANDS);
    bt_error err = {0};
    (void)bt_fail(&err, BT_E_ARG, "chat_command", BT_MEASURE_NONE, 0, 0,
                  "there is no command /%s; %s%s (// begins a message with a slash)", word,
                  nearest ? "the nearest is /" : "/help lists them", nearest ? nearest : "");
    chat->fail_code = bt_cli_fail(&err);
}
