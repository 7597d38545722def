/* SPDX-License-Identifier: MIT
 *
 * grammar.c: llama.cpp's grammar sampler, a few candidates at a time.
 *
 * It spells out every candidate that it is given before it looks at the first: some 400 bytes each, so 19 MiB for a
 * vocabulary of 49,152 tokens and 99 for one of 262,144, which no line of a plan has (measured: SmolLM2 at its least
 * budget, 69.7 of 50.7 MiB). Whether one token is allowed does not depend on the others. So ours hands it PART_MAX of
 * them at once.
 *
 * The text is held against two bounds first: llama.cpp's parser calls itself for every bracket, and its search for left
 * recursion for every rule of a chain, and both ran out of stack before they ran out of text. Brackets of strings,
 * classes and comments count too: no grammar that says something comes near. */
#include "engine/grammar.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"

#include "llama.h"

#include <inttypes.h>
#include <string.h>

#define PART_MAX          1024u  /* candidates, 400 KiB; more are no faster */
#define GRAMMAR_DEPTH_MAX 1000u  /* some 2 KiB of stack each in llama.cpp's parser, of 8 MiB */
#define GRAMMAR_RULE_MAX  10000u /* some 200 bytes each in its search for left recursion */

static bt_status check(const char *text, bt_error *err) {
    uint32_t depth = 0, deepest = 0, n_rules = 0;
    for (const char *at = text; *at; at++) {
        if (*at == '(') depth++;
        if (*at == ')' && depth > 0) depth--;
        if (depth > deepest) deepest = depth;
        if (strncmp(at, "::=", 3) == 0) n_rules++;
    }
    if (deepest > GRAMMAR_DEPTH_MAX)
        return bt_fail(err, BT_E_ARG, "grammar", BT_MEASURE_ITEMS, deepest, GRAMMAR_DEPTH_MAX,
                       "the grammar opens %" PRIu32 " brackets in each other, of %u that may be", deepest,
                       GRAMMAR_DEPTH_MAX);
    if (n_rules > GRAMMAR_RULE_MAX)
        return bt_fail(err, BT_E_ARG, "grammar", BT_MEASURE_ITEMS, n_rules, GRAMMAR_RULE_MAX,
                       "the grammar has %" PRIu32 " rules, of %u that may be", n_rules, GRAMMAR_RULE_MAX);
    return BT_OK;
}

/* ---- the sampler; its context is llama.cpp's own ---- */

static const char *grammar_name(const struct llama_sampler *sampler) {
    (void)sampler;
    return "grammar";
}

static void grammar_accept(struct llama_sampler *sampler, llama_token token) {
    llama_sampler_accept(sampler->ctx, token);
}

static void grammar_apply(struct llama_sampler *sampler, llama_token_data_array *candidates) {
    for (size_t first = 0; first < candidates->size; first += PART_MAX) {
        llama_token_data_array part = {.data = candidates->data + first,
                                       .size = bt_min_u64(PART_MAX, candidates->size - first),
                                       .selected = -1,
                                       .sorted = false};
        llama_sampler_apply(sampler->ctx, &part); /* marks those that are not allowed, and moves none */
    }
}

static void grammar_reset(struct llama_sampler *sampler) {
    llama_sampler_reset(sampler->ctx);
}

static void grammar_free(struct llama_sampler *sampler) {
    llama_sampler_free(sampler->ctx);
}

bt_status bt_grammar_open(const struct llama_vocab *vocab, const char *text, struct llama_sampler **ret_sampler,
                          bt_error *err) {
    static struct llama_sampler_i calls = {
        .name = grammar_name,
        .accept = grammar_accept,
        .apply = grammar_apply,
        .reset = grammar_reset,
        .free = grammar_free,
    };
    BT_TRY(check(text, err));
    struct llama_sampler *inner = llama_sampler_init_grammar(vocab, text, "root");
    if (!inner) return bt_fail(err, BT_E_ARG, "grammar", BT_MEASURE_NONE, 0, 0, "the grammar cannot be parsed");
    *ret_sampler = llama_sampler_init(&calls, inner);
    return BT_OK;
}
