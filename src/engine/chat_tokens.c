/* SPDX-License-Identifier: MIT
 *
 * chat_tokens.c: from rendered text to tokens, so that no message can say a control token.
 *
 * llama.cpp's tokenizer first cuts a text at its special tokens and then tokenizes what lies between. Here the cutting
 * is done with more knowledge: control tokens are looked for in the template's own text only. What lies between two of
 * them, template and messages together, goes to the tokenizer with special tokens off. So the tokens are those of
 * llama.cpp, also across the seams of messages, except where a message spells a control token.
 *
 * The bound: at most n_max tokens are kept; the rest is counted. */
#include "engine/chat_tokens.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"
#include "base/text.h"
#include "engine/template_wire.h"
#include "engine/tokenize.h"

#include "llama.h"

#include <string.h>

#define SOME 256u /* tokens handed over at once */

typedef struct cutter {
    const struct llama_vocab *vocab;
    bt_text plain;    /* not tokenized yet */
    bool strip_first; /* the control token before it swallows blanks */
    int32_t *tokens;
    uint32_t n, n_max;
} cutter;

static bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r'); /* isspace of the C locale, as llama.cpp asks */
}

static void keep(cutter *c, const int32_t *tokens, uint32_t n) {
    for (uint32_t i = 0; i < n; i++, c->n++)
        if (c->n < c->n_max) c->tokens[c->n] = tokens[i];
}

static bt_status no_memory(uint64_t n, bt_error *err) {
    return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_TOKENS, n, 0, "no memory for the tokens of a conversation");
}

/* Of a text alone. A text without a seam takes what it takes: models that converse cut theirs into words. */
static bt_tokenize_ask ask_of(const struct llama_vocab *vocab, const char *text, size_t n_bytes, bool parse_special) {
    return (bt_tokenize_ask){
        .vocab = vocab, .text = text, .n_bytes = n_bytes, .parse_special = parse_special, .room_bytes = UINT64_MAX};
}

static bt_status keep_text(cutter *c, const char *text, size_t n_bytes, bt_error *err) {
    bt_tokenize_ask ask = ask_of(c->vocab, text, n_bytes, false);
    bt_token_stream *stream = NULL;
    int32_t some[SOME];
    uint32_t n = 0;
    BT_TRY(bt_token_stream_open(&ask, &stream, err));
    bt_status status;
    do {
        status = bt_token_stream_next(stream, some, SOME, &n, err);
        if (status == BT_OK) keep(c, some, n);
    } while (status == BT_OK && n > 0);
    bt_token_stream_close(stream);
    return status;
}

static bt_status flush(cutter *c, bool strip_last, bt_error *err) {
    const char *text = bt_text_str(&c->plain);
    size_t n = c->plain.n_bytes;
    while (c->strip_first && n > 0 && is_blank(*text))
        text++, n--;
    while (strip_last && n > 0 && is_blank(text[n - 1]))
        n--;
    if (n > 0) BT_TRY(keep_text(c, text, n, err));
    bt_text_clear(&c->plain);
    c->strip_first = false;
    return BT_OK;
}

static bt_status add_plain(cutter *c, const char *text, size_t n, bt_error *err) {
    bt_text_add_n(&c->plain, text, n);
    return c->plain.failed ? no_memory(n, err) : BT_OK;
}

static bt_status add_control(cutter *c, int32_t token, bt_error *err) {
    unsigned attributes = (unsigned)llama_vocab_get_attr(c->vocab, token);
    BT_TRY(flush(c, (attributes & LLAMA_TOKEN_ATTR_LSTRIP) != 0, err));
    keep(c, &token, 1);
    c->strip_first = (attributes & LLAMA_TOKEN_ATTR_RSTRIP) != 0;
    return BT_OK;
}

static bool is_control(const struct llama_vocab *vocab, int32_t token) {
    return ((unsigned)llama_vocab_get_attr(vocab, token) & LLAMA_TOKEN_ATTR_CONTROL) != 0;
}

/* The template's own text: which control tokens it holds the tokenizer says; where, their texts. */
static bt_status add_template(cutter *c, const char *text, size_t n, bt_error *err) {
    int32_t *tokens = NULL;
    uint32_t n_tokens = 0;
    bt_tokenize_ask ask = ask_of(c->vocab, text, n, true);
    BT_TRY(bt_tokenize(&ask, &tokens, &n_tokens, err));
    bt_status status = BT_OK;
    for (uint32_t i = 0; i < n_tokens && status == BT_OK; i++) {
        if (!is_control(c->vocab, tokens[i])) continue;
        const char *word = llama_vocab_get_text(c->vocab, tokens[i]);
        const char *at = memmem(text, n, word, strlen(word));
        if (!at) continue; /* no tokenizer does that: a control token out of nothing */
        status = add_plain(c, text, (size_t)(at - text), err);
        if (status == BT_OK) status = add_control(c, tokens[i], err);
        n -= (size_t)(at - text) + strlen(word);
        text = at + strlen(word);
    }
    bt_heap_free(tokens);
    if (status == BT_OK) status = add_plain(c, text, n, err);
    return status;
}

bt_status bt_chat_tokens(const struct llama_vocab *vocab, const bt_rendered *rendered, int32_t *ret_tokens,
                         uint32_t n_max, uint32_t *ret_n, bt_error *err) {
    cutter c = {.vocab = vocab, .tokens = ret_tokens, .n_max = n_max};
    bt_text_init(&c.plain, BT_TEMPLATE_WIRE_MAX);
    if (llama_vocab_get_add_bos(vocab)) {
        int32_t bos = llama_vocab_bos(vocab);
        if (bos >= 0) keep(&c, &bos, 1);
    }
    bt_status status = BT_OK;
    for (uint32_t i = 0; i < rendered->n_parts && status == BT_OK; i++) {
        const bt_rendered_part *part = &rendered->parts[i];
        status = part->of_message ? add_plain(&c, part->text, part->n_bytes, err)
                                  : add_template(&c, part->text, part->n_bytes, err);
    }
    if (status == BT_OK) status = flush(&c, false, err);
    bt_text_done(&c.plain);
    if (status != BT_OK) return status;
    *ret_n = c.n;
    if (c.n <= n_max) return BT_OK;
    return bt_fail(err, BT_E_ARG, "chat_full", BT_MEASURE_TOKENS, c.n, n_max,
                   "the conversation with this turn has %u tokens, the context has room for %u and an answer: /undo or "
                   "/clear makes room, a larger -c holds more",
                   c.n, n_max);
}
