/* SPDX-License-Identifier: MIT
 * conversation.h: turns of a user and a model, in the model's own template, on one session.
 *
 * What the context holds is reused: of a turn only the tokens that differ from it are decoded. */
#pragma once

#include "engine/generate.h"
#include "engine/template.h"

typedef struct bt_conversation bt_conversation;

typedef struct bt_conversation_params {
    bt_engine *engine;
    bt_session *session;
    const char *template_text; /* Jinja, "chatml", the name of a variant in the file; NULL: the model's own */
    const char *system;        /* NULL: none */
    uint64_t limit_bytes;      /* most memory of one rendering (bt_conversation_price) */
    const char *worker;        /* NULL: as found (template.h) */
} bt_conversation_params;

/* How a turn went. */
typedef struct bt_turn {
    bt_generated generated;
    uint32_t n_rendered; /* tokens of the conversation with this turn */
    uint32_t n_reused;   /* of them found in the context */
    bool went_back;      /* the context had to be computed anew from its start */
} bt_turn;

/* All strings of params are copied. The template itself is tried here: BT_E_FORMAT as of bt_template_render. */
BT_MUST_CHECK bt_status bt_conversation_open(const bt_conversation_params *params, bt_conversation **ret,
                                             bt_error *err);
void bt_conversation_close(bt_conversation *conversation); /* NULL is fine */
/* The file has no template: ChatML is used, as by llama.cpp. */
bool bt_conversation_is_fallback(const bt_conversation *conversation);

/* One turn: the user's text, and the model's answer through generate->on_token (whose token is -1 for text that was
 * held back while it could have been a stop). An answer that was stopped stays in the history; a turn that failed
 * before it leaves no trace.
 * returns BT_E_LIMIT, code "chat_full", when the conversation with this turn does not fit in the context;
 *         BT_E_CANCELLED when stopped before the answer began; else as rendering, decoding and sampling fail. */
BT_MUST_CHECK bt_status bt_conversation_say(bt_conversation *conversation, const char *text, size_t n_bytes,
                                            const bt_generate_params *generate, bt_turn *ret, bt_error *err);

void bt_conversation_clear(bt_conversation *conversation); /* all but the system message */
bool bt_conversation_undo(bt_conversation *conversation);  /* the last turn; false: there is none */

/* For saving, and for telling. */
const bt_message *bt_conversation_messages(const bt_conversation *conversation, uint32_t *ret_n);
const int32_t *bt_conversation_tokens(const bt_conversation *conversation, uint32_t *ret_n); /* in the context */
/* Take messages and the tokens that the session now holds instead of the present ones. */
BT_MUST_CHECK bt_status bt_conversation_restore(bt_conversation *conversation, const bt_message *messages,
                                                uint32_t n_messages, const int32_t *tokens, uint32_t n_tokens,
                                                bt_error *err);

struct llama_model;
/* Most memory that renderings for a context of n_ctx tokens take (in the worker). model: may have no weights. */
BT_MUST_CHECK bt_status bt_conversation_price(const struct llama_model *model, const char *template_text,
                                              uint32_t n_ctx, uint64_t *ret_bytes, bt_error *err);
