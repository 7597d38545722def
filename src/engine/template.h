/* SPDX-License-Identifier: MIT
 * template.h: a conversation as the text that its model was trained on: llama.cpp's template engine, behind a C face.
 *
 * The engine runs in a worker process (template.cpp): what a template does cannot hurt the process that holds the
 * model. Nothing is kept between two calls. */
#pragma once

#include "burthen.h"

typedef struct bt_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
    size_t n_bytes; /* of the content, which may hold any byte */
} bt_message;

typedef struct bt_template {
    const char *source;    /* Jinja */
    const char *bos, *eos; /* texts of these tokens, or "" */
    bool add_bos, add_eos; /* the tokenizer adds them: they are cut from the text */
    uint64_t limit_bytes;  /* most memory that the worker may have */
    const char *worker;    /* path of the worker program; NULL: the one beside this program */
} bt_template;

/* A run of the text. Text of a message must not be read as control tokens. */
typedef struct bt_rendered_part {
    const char *text;
    size_t n_bytes;
    bool of_message;
} bt_rendered_part;

#define BT_TEMPLATE_STOPS_MAX 4

typedef struct bt_rendered {
    char *reply; /* what the rest points into */
    bt_rendered_part *parts;
    uint32_t n_parts;
    const char *stops[BT_TEMPLATE_STOPS_MAX]; /* texts that end a turn beside the model's own end tokens */
    size_t stop_bytes[BT_TEMPLATE_STOPS_MAX];
    uint32_t n_stops;
    uint64_t peak_bytes; /* most memory that the worker held: its heap, and a fixed amount for its code */
} bt_rendered;

extern const char bt_template_chatml[]; /* for models without a template, as llama.cpp does */

/* Render messages, followed by what opens the model's answer.
 * returns BT_E_FORMAT, code "chat_template": the template cannot be parsed or refuses this conversation, in its own
 *         words, or it broke a bound of the worker; BT_E_NOMEM, code "chat_memory": it needs more than limit_bytes;
 *         BT_E_LIMIT, code "chat_bytes": too much text at once; BT_E_IO, code "chat_worker": the worker cannot be run.
 */
BT_MUST_CHECK bt_status bt_template_render(const bt_template *t, const bt_message *messages, uint32_t n_messages,
                                           bt_rendered *ret, bt_error *err);
void bt_rendered_done(bt_rendered *rendered);

/* Most memory that rendering a conversation of n_ctx tokens takes, measured with one. */
BT_MUST_CHECK bt_status bt_template_price(const bt_template *t, uint32_t n_ctx, uint64_t *ret_peak_bytes,
                                          bt_error *err);
