/* SPDX-License-Identifier: MIT
 *
 * conversation.c: turns, and what of them is already in the context.
 *
 *   messages + the user's text -> template -> tokens -> longest common prefix with the context's tokens
 *     -> the tail is forgotten (or all of it, where the memory cannot go back) -> the new tokens are decoded -> answer
 *
 * The rendering is the truth: after a stopped answer, /undo or a template that rewrites old turns, the next turn finds
 * out by comparing what can stay. So a turn's answer is that of a fresh conversation with the same history.
 *
 * The bounds: tokens of one context, MESSAGES_MAX messages, ANSWER_BYTES_MAX of text in an answer. Left out: tools,
 * pictures, and the separation of reasoning from answers; it is text like any other. */
#include "engine/conversation.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/size.h"
#include "base/text.h"
#include "engine/chat_tokens.h"
#include "engine/template_wire.h"

#include "llama.h"

#include <string.h>

#define MESSAGES_MAX     65536u
#define MESSAGES_STEP    16u
#define ANSWER_BYTES_MAX (16u << 20) /* far over a context's text */
#define TOKEN_TEXT_BYTES 256         /* BOS and EOS, as written in a template */

struct bt_conversation {
    bt_engine *engine;
    bt_session *session;
    char *source; /* a copy of --chat-template */
    char bos[TOKEN_TEXT_BYTES], eos[TOKEN_TEXT_BYTES];
    bt_template template;
    bool is_fallback;
    bt_message *messages; /* their contents are ours */
    uint32_t n_messages, n_room;
    int32_t *tokens; /* in the context: the session's first n_tokens */
    int32_t *rendered;
    uint32_t n_tokens, n_ctx;
};

/* ---- the template ---- */

static void token_text(const struct llama_vocab *vocab, int32_t token, char text[TOKEN_TEXT_BYTES]) {
    int32_t n = token < 0 ? 0 : llama_token_to_piece(vocab, token, text, TOKEN_TEXT_BYTES - 1, 0, true);
    text[n > 0 ? n : 0] = '\0';
}

/* The text asked for: ChatML by name, Jinja, a variant of the file; else the file's own. */
static bt_status choose(const struct llama_model *model, const char *wanted, const char **ret_source,
                        bool *ret_is_fallback, bt_error *err) {
    *ret_is_fallback = false;
    if (!wanted) {
        *ret_source = llama_model_chat_template(model, NULL);
        *ret_is_fallback = !*ret_source || !**ret_source;
        if (*ret_is_fallback) *ret_source = bt_template_chatml;
        return BT_OK;
    }
    if (strcmp(wanted, "chatml") == 0) {
        *ret_source = bt_template_chatml;
        return BT_OK;
    }
    bool is_jinja = strstr(wanted, "{{") || strstr(wanted, "{%");
    *ret_source = is_jinja ? wanted : llama_model_chat_template(model, wanted);
    if (*ret_source) return BT_OK;
    return bt_fail(
        err, BT_E_ARG, "chat_template_name", BT_MEASURE_NONE, 0, 0,
        "\"%.64s\" is no chat template: give chatml, the name of a variant in the model's file, or Jinja text", wanted);
}

static bt_status make_template(const struct llama_model *model, const char *wanted, bt_template *t,
                               char bos[TOKEN_TEXT_BYTES], char eos[TOKEN_TEXT_BYTES], bool *ret_is_fallback,
                               bt_error *err) {
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    BT_TRY(choose(model, wanted, &t->source, ret_is_fallback, err));
    token_text(vocab, llama_vocab_bos(vocab), bos);
    token_text(vocab, llama_vocab_eos(vocab), eos);
    t->bos = bos;
    t->eos = eos;
    t->add_bos = llama_vocab_get_add_bos(vocab);
    t->add_eos = llama_vocab_get_add_eos(vocab);
    return BT_OK;
}

bt_status bt_conversation_price(const struct llama_model *model, const char *template_text, uint32_t n_ctx,
                                uint64_t *ret_bytes, bt_error *err) {
    bt_template t = {0};
    char bos[TOKEN_TEXT_BYTES];
    char eos[TOKEN_TEXT_BYTES];
    bool is_fallback = false;
    BT_TRY(make_template(model, template_text, &t, bos, eos, &is_fallback, err));
    return bt_template_price(&t, n_ctx, ret_bytes, err);
}

/* ---- messages ---- */

static bt_status push(bt_conversation *c, const char *role, const char *text, size_t n_bytes, bt_error *err) {
    if (c->n_messages >= MESSAGES_MAX)
        return bt_fail(err, BT_E_ARG, "chat_full", BT_MEASURE_ITEMS, MESSAGES_MAX + 1u, MESSAGES_MAX,
                       "a conversation holds at most %u messages: /clear makes room", MESSAGES_MAX);
    if (c->n_messages == c->n_room) {
        bt_message *more = bt_heap_resize(c->messages, (size_t)(c->n_room + MESSAGES_STEP) * sizeof *more);
        if (!more) return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_NONE, 0, 0, "no memory for a message");
        c->messages = more;
        c->n_room += MESSAGES_STEP;
    }
    char *copy = bt_heap_alloc(n_bytes + 1);
    if (!copy) return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, n_bytes, 0, "no memory for a message");
    memcpy(copy, text, n_bytes);
    c->messages[c->n_messages++] = (bt_message){role, copy, n_bytes};
    return BT_OK;
}

static void pop_to(bt_conversation *c, uint32_t n) {
    while (c->n_messages > n)
        bt_heap_free((char *)(uintptr_t)c->messages[--c->n_messages].content);
}

static uint32_t n_system(const bt_conversation *c) {
    return c->n_messages > 0 && strcmp(c->messages[0].role, "system") == 0 ? 1 : 0;
}

void bt_conversation_clear(bt_conversation *c) {
    pop_to(c, n_system(c));
}

bool bt_conversation_undo(bt_conversation *c) {
    uint32_t n = c->n_messages;
    while (n > n_system(c) && strcmp(c->messages[n - 1].role, "user") != 0)
        n--;
    if (n <= n_system(c)) return false;
    pop_to(c, n - 1);
    return true;
}

const bt_message *bt_conversation_messages(const bt_conversation *c, uint32_t *ret_n) {
    *ret_n = c->n_messages;
    return c->messages;
}

const int32_t *bt_conversation_tokens(const bt_conversation *c, uint32_t *ret_n) {
    *ret_n = c->n_tokens;
    return c->tokens;
}

/* Roles are compared and kept as our own constants: those of a file live no longer than it. */
static const char *role_of(const char *role) {
    static const char *const roles[] = {"system", "user", "assistant"};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(role, roles[i]) == 0) return roles[i];
    return NULL;
}

bt_status bt_conversation_restore(bt_conversation *c, const bt_message *messages, uint32_t n_messages,
                                  const int32_t *tokens, uint32_t n_tokens, bt_error *err) {
    pop_to(c, 0);
    c->n_tokens = (uint32_t)bt_min_u64(n_tokens, c->n_ctx);
    if (c->n_tokens > 0) memcpy(c->tokens, tokens, c->n_tokens * sizeof *tokens);
    for (uint32_t i = 0; i < n_messages; i++) {
        const char *role = role_of(messages[i].role);
        if (!role)
            return bt_fail(err, BT_E_FORMAT, "session_format", BT_MEASURE_NONE, 0, 0,
                           "the session has a message of %.32s", messages[i].role);
        BT_TRY(push(c, role, messages[i].content, messages[i].n_bytes, err));
    }
    return BT_OK;
}

/* ---- opening ---- */

/* One message through the template: a template that cannot be used is found before anything is typed. */
static bt_status try_template(const bt_conversation *c, bt_error *err) {
    static const bt_message hello = {"user", "hello", 5};
    bt_rendered rendered;
    BT_TRY(bt_template_render(&c->template, &hello, 1, &rendered, err));
    bt_rendered_done(&rendered);
    return BT_OK;
}

static bt_status open_parts(bt_conversation *c, const bt_conversation_params *params, bt_error *err) {
    c->n_ctx = bt_session_n_ctx(params->session);
    c->tokens = bt_heap_array((size_t)c->n_ctx + 1, sizeof *c->tokens);
    c->rendered = bt_heap_array((size_t)c->n_ctx + 1, sizeof *c->rendered);
    if (params->template_text) c->source = bt_heap_strdup(params->template_text);
    if (!c->tokens || !c->rendered || (params->template_text && !c->source))
        return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_TOKENS, c->n_ctx, 0, "no memory for a conversation");
    c->template.limit_bytes = params->limit_bytes;
    c->template.worker = params->worker;
    BT_TRY(
        make_template(bt_engine_model(params->engine), c->source, &c->template, c->bos, c->eos, &c->is_fallback, err));
    if (params->system) BT_TRY(push(c, "system", params->system, strlen(params->system), err));
    return try_template(c, err);
}

bt_status bt_conversation_open(const bt_conversation_params *params, bt_conversation **ret, bt_error *err) {
    bt_conversation *c = bt_heap_alloc(sizeof *c);
    if (!c) return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, sizeof *c, 0, "no memory for a conversation");
    c->engine = params->engine;
    c->session = params->session;
    bt_status status = open_parts(c, params, err);
    if (status != BT_OK) {
        bt_conversation_close(c);
        return status;
    }
    *ret = c;
    return BT_OK;
}

void bt_conversation_close(bt_conversation *c) {
    if (!c) return;
    pop_to(c, 0);
    bt_heap_free(c->messages);
    bt_heap_free(c->tokens);
    bt_heap_free(c->rendered);
    bt_heap_free(c->source);
    bt_heap_free(c);
}

bool bt_conversation_is_fallback(const bt_conversation *c) {
    return c->is_fallback;
}

/* ---- an answer, as it comes ---- */

typedef struct answer {
    bt_conversation *c;
    const bt_generate_params *outer;
    const bt_rendered *stops;
    bt_text text;
    size_t n_given; /* bytes handed on: behind the rest a stop may begin */
    bool stopped;
} answer;

/* Bytes at the end of text that could be the beginning of a stop; *ret_whole: they are one. */
static size_t stop_tail(const answer *a, bool *ret_whole) {
    size_t longest = 0;
    *ret_whole = false;
    for (uint32_t i = 0; i < a->stops->n_stops; i++) {
        size_t n = bt_min_u64(a->stops->stop_bytes[i], a->text.n_bytes);
        while (n > 0 && memcmp(a->text.data + a->text.n_bytes - n, a->stops->stops[i], n) != 0)
            n--;
        if (n > 0 && n == a->stops->stop_bytes[i]) {
            *ret_whole = true;
            return n;
        }
        longest = bt_max_u64(longest, n);
    }
    return longest;
}

static bool give(answer *a, int32_t token, size_t n_until) {
    size_t from = a->n_given;
    a->n_given = bt_max_u64(from, n_until);
    return a->outer->on_token(token, bt_text_str(&a->text) + from, a->n_given - from, a->outer->user);
}

static bool on_token(int32_t token, const char *bytes, size_t n_bytes, void *user) {
    answer *a = user;
    bt_conversation *c = a->c;
    if (c->n_tokens < c->n_ctx) c->tokens[c->n_tokens++] = token; /* not in the context yet: say() counts */
    bt_text_add_n(&a->text, bytes, n_bytes);
    if (a->text.failed) return false;
    if (a->stops->n_stops == 0) return give(a, token, a->text.n_bytes);
    bool whole = false;
    size_t n_tail = stop_tail(a, &whole);
    a->stopped = whole;
    if (whole) a->text.n_bytes -= n_tail;
    return give(a, token, a->text.n_bytes - (whole ? 0 : n_tail)) && !whole;
}

/* ---- a turn ---- */

static bt_status render(bt_conversation *c, bt_rendered *ret, uint32_t *ret_n, bt_error *err) {
    const struct llama_vocab *vocab = llama_model_get_vocab(bt_engine_model(c->engine));
    BT_TRY(bt_template_render(&c->template, c->messages, c->n_messages, ret, err));
    /* The answer needs room for one token at least. */
    bt_status status = bt_chat_tokens(vocab, ret, c->rendered, c->n_ctx - 1, ret_n, err);
    if (status == BT_OK && *ret_n == 0)
        status = bt_fail(err, BT_E_FORMAT, "chat_template", BT_MEASURE_TOKENS, 1, 0, "the chat template makes no text");
    if (status != BT_OK) bt_rendered_done(ret);
    return status;
}

/* Keep of the context what the rendering begins with. The last token is decoded again: its logits are wanted. */
static void reuse(bt_conversation *c, uint32_t n_rendered, bt_turn *turn) {
    uint32_t n_same = 0;
    while (n_same < c->n_tokens && n_same < n_rendered - 1 && c->tokens[n_same] == c->rendered[n_same])
        n_same++;
    turn->n_reused = bt_session_keep(c->session, n_same);
    turn->went_back = turn->n_reused < n_same;
    turn->n_rendered = n_rendered;
    c->n_tokens = turn->n_reused;
    if (turn->went_back)
        bt_log(BT_LOG_INFO,
               "this model's memory cannot go back to token %u: the conversation of %u tokens is computed again",
               n_same, n_rendered);
}

static bt_status generate(bt_conversation *c, const bt_rendered *rendered, const bt_generate_params *params,
                          bt_turn *turn, bt_text *ret_text, bt_error *err) {
    answer a = {.c = c, .outer = params, .stops = rendered};
    bt_text_init(&a.text, ANSWER_BYTES_MAX);
    bt_generate_params inner = *params;
    inner.on_token = on_token;
    inner.user = &a;
    inner.before = c->tokens;
    inner.n_before = turn->n_reused;
    uint32_t n_new = turn->n_rendered - c->n_tokens;
    memcpy(c->tokens + c->n_tokens, c->rendered + c->n_tokens, n_new * sizeof *c->tokens);
    c->n_tokens = turn->n_rendered;
    bt_status status = bt_generate(c->session, c->tokens + turn->n_reused, n_new, &inner, &turn->generated, err);
    if (a.stopped) turn->generated.stop = BT_STOP_END;
    if (!a.stopped && a.n_given < a.text.n_bytes) (void)give(&a, -1, a.text.n_bytes); /* was no stop after all */
    /* What was decoded, and nothing behind it: a stopped graph may have left cells. */
    c->n_tokens = bt_session_keep(c->session, bt_session_n_used(c->session));
    *ret_text = a.text;
    return status;
}

bt_status bt_conversation_say(bt_conversation *c, const char *text, size_t n_bytes,
                              const bt_generate_params *generate_params, bt_turn *ret, bt_error *err) {
    uint32_t n_before = c->n_messages;
    bt_rendered rendered;
    bt_turn turn = {0};
    BT_TRY(push(c, "user", text, n_bytes, err));
    bt_status status = render(c, &rendered, &turn.n_rendered, err);
    if (status != BT_OK) {
        pop_to(c, n_before);
        return status;
    }
    reuse(c, turn.n_rendered, &turn);
    bt_text answer_text;
    status = generate(c, &rendered, generate_params, &turn, &answer_text, err);
    bt_rendered_done(&rendered);
    if (status == BT_E_CANCELLED && turn.generated.n_generated > 0) {
        status = BT_OK; /* a partial answer is an answer */
        turn.generated.stop = BT_STOP_CALLER;
    }
    if (status == BT_OK) status = push(c, "assistant", bt_text_str(&answer_text), answer_text.n_bytes, err);
    bt_text_done(&answer_text);
    if (status != BT_OK)
        pop_to(c, n_before);
    else
        *ret = turn;
    return status;
}
