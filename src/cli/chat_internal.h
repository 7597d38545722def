/* SPDX-License-Identifier: MIT
 * chat_internal.h: a conversation that is being held; shared by chat.c and chat_commands.c. */
#pragma once

#include "cli/input.h"
#include "cli/running.h"
#include "engine/conversation.h"

typedef struct bt_chat {
    bt_running running;
    bt_conversation *conversation;
    bt_terminal out; /* stdout */
    const char *grammar;
    bool is_terminal; /* stdin */
    bool leaves;      /* /exit */
    int leave_code;   /* of the signal that ends it, or 0 */
    int fail_code;    /* of the last turn that failed, or 0 */
    bool out_failed;
    int out_failed_sys; /* its errno */
    /* for --stats */
    bool keeps;
    bt_text text;
    int32_t *tokens;
    uint32_t n_tokens;
    /* over all turns */
    bt_generated sum;
    uint32_t n_turns;
    uint64_t first_token_ns;
} bt_chat;

/* "burthen: sentence" on stderr, unless quiet. */
void bt_chat_say(const bt_chat *chat, const char *fmt, ...) BT_PRINTF(2, 3);
/* A command, without its "/". */
void bt_chat_command(bt_chat *chat, const char *line);
BT_MUST_CHECK bt_status bt_chat_save(const bt_chat *chat, const char *path, bt_error *err);
/* A session that cannot be taken up leaves the conversation as it is. */
BT_MUST_CHECK bt_status bt_chat_load(bt_chat *chat, const char *path, bt_error *err);
void bt_chat_print_stats(bt_chat *chat);
