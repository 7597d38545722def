/* SPDX-License-Identifier: MIT
 *
 * generate.c: prompt in, tokens out. The chain of samplers is llama.cpp's, in its default order: penalties, top-k,
 * top-p, min-p, temperature, draw. */

#include "engine/generate.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"
#include "engine/lookup.h"
#include "engine/speculate.h"

#include "llama.h"

#include <inttypes.h>
#include <string.h>

#define PIECE_BYTES         256    /* the longest token of any known vocabulary has under 256 bytes */
#define LOOP_FIRST_TOKEN    2      /* the heap of the token loop is looked at from this token on */
#define GRAMMAR_DEPTH_MAX   1000u  /* some 2 KiB of stack each in llama.cpp's parser, of 8 MiB */
#define GRAMMAR_RULE_MAX    10000u /* some 200 bytes each in its search for left recursion */
#define PENALTY_LAST_TOKENS 64     /* llama.cpp's default for the repeat penalty's memory */

/* llama.cpp's parser calls itself for every bracket, and its search for left recursion for every rule of a chain; both
 * ran out of stack before they ran out of text. Brackets of strings, classes and comments count too: no grammar that
 * says something comes near. */
static bt_status grammar_check(const char *grammar, bt_error *err) {
    uint32_t depth = 0, deepest = 0, n_rules = 0;
    for (const char *at = grammar; *at; at++) {
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

static bt_status make_sampler(bt_session *session, const bt_sampling *sampling, struct llama_sampler **ret_sampler,
                              bt_error *err) {
    if (sampling->grammar) BT_TRY(grammar_check(sampling->grammar, err));
    struct llama_sampler *chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    const struct llama_vocab *vocab = llama_model_get_vocab(llama_get_model(bt_session_context(session)));
    if (sampling->grammar) {
        struct llama_sampler *grammar = llama_sampler_init_grammar(vocab, sampling->grammar, "root");
        if (!grammar) {
            llama_sampler_free(chain);
            return bt_fail(err, BT_E_ARG, "grammar", BT_MEASURE_NONE, 0, 0, "the grammar cannot be parsed");
        }
        llama_sampler_chain_add(chain, grammar);
    }
    double penalty = sampling->repeat_penalty;
    if (penalty < 1.0 || penalty > 1.0)
        llama_sampler_chain_add(chain, llama_sampler_init_penalties(llama_vocab_n_tokens(vocab), PENALTY_LAST_TOKENS,
                                                                    (float)penalty, 0.0f, 0.0f));
    if (sampling->temperature <= 0.0) {
        llama_sampler_chain_add(chain, llama_sampler_init_greedy());
    } else {
        llama_sampler_chain_add(chain, llama_sampler_init_top_k(sampling->top_k));
        llama_sampler_chain_add(chain, llama_sampler_init_top_p((float)sampling->top_p, 0));
        llama_sampler_chain_add(chain, llama_sampler_init_min_p((float)sampling->min_p, 0));
        llama_sampler_chain_add(chain, llama_sampler_init_temp((float)sampling->temperature));
        llama_sampler_chain_add(chain,
                                llama_sampler_init_dist(sampling->has_seed ? sampling->seed : LLAMA_DEFAULT_SEED));
    }
    *ret_sampler = chain;
    return BT_OK;
}

static bool give_token(const bt_generate_params *params, const struct llama_vocab *vocab, int32_t token) {
    char piece[PIECE_BYTES];
    int32_t n = llama_token_to_piece(vocab, token, piece, sizeof piece, 0, false);
    return params->on_token(token, piece, n > 0 ? (size_t)n : 0, params->user);
}

/* The heap at the second token: by then everything that is made once has been made. */
typedef struct loop_heap {
    uint64_t n_allocations;
    bt_known bytes;
} loop_heap;

static loop_heap loop_heap_read(void) {
    return (loop_heap){bt_heap_allocations(), bt_os_heap_bytes()};
}

static void loop_heap_note(const loop_heap *start, bt_generated *ret) {
    loop_heap now = loop_heap_read();
    ret->loop_heap_allocations = (bt_known){true, now.n_allocations - start->n_allocations};
    ret->loop_heap_growth_bytes = (bt_known){now.bytes.known, bt_sat_sub_u64(now.bytes.value, start->bytes.value)};
}

/* ---- the loop ---- */

#define CELLS 256u /* libllama pads the cells that attention goes over to a multiple of this (llama_kv_cache) */

typedef struct loop {
    bt_session *session;
    struct llama_sampler *sampler;
    const bt_generate_params *params;
    const struct llama_vocab *vocab;
    bt_lookup *lookup; /* NULL: no guesses */
    bt_speculation speculation;
    uint32_t n_left;
    uint64_t start_ns;
    loop_heap second;
    bt_generated *ret;
} loop;

static int32_t sample(loop *l, int32_t row) {
    return llama_sampler_sample(l->sampler, bt_session_context(l->session), row);
}

/* A token that was sampled; false: it was the last. */
static bool take(loop *l, int32_t token) {
    bt_generated *ret = l->ret;
    if (ret->n_generated == 0) ret->first_token_ns = bt_os_now_ns() - l->start_ns;
    if (llama_vocab_is_eog(l->vocab, token) && !l->params->ignore_eos) {
        ret->stop = BT_STOP_END;
        return false;
    }
    ret->n_generated++;
    if (l->lookup) bt_lookup_add(l->lookup, &token, 1);
    if (!give_token(l->params, l->vocab, token)) {
        ret->stop = BT_STOP_CALLER;
        return false;
    }
    return --l->n_left > 0;
}

/* The token, and n guesses behind it, as one batch. false: there are none, or they are not worth it. */
static bool draft(const loop *l, int32_t token, uint32_t n, int32_t *ret_batch) {
    uint32_t n_used = bt_session_n_used(l->session);
    if (!l->lookup || n == 0 || l->n_left <= n || n_used + 1 + n > bt_session_n_ctx(l->session)) return false;
    if (n_used / CELLS != (n_used + n) / CELLS) return false; /* the first would see more cells than alone */
    ret_batch[0] = token;
    return bt_speculation_pays(&l->speculation) && bt_lookup_draft(l->lookup, ret_batch + 1, n);
}

/* One pass of one token. */
static bt_status step(loop *l, int32_t token, int32_t *ret_next, bt_error *err) {
    uint64_t start_ns = bt_os_now_ns();
    BT_TRY(bt_session_decode(l->session, &token, 1, NULL, err));
    *ret_next = sample(l, -1);
    bt_speculation_note_step(&l->speculation, bt_os_now_ns() - start_ns);
    return BT_OK;
}

/* One pass of a token and n guesses: those that the sampler would have drawn are taken, as it would have drawn them.
 * *ret_next is the first it drew that was not guessed, and *ret_on false when an accepted one was the last. */
static bt_status step_guessing(loop *l, const int32_t *batch, uint32_t n, int32_t *ret_next, bool *ret_on,
                               bt_error *err) {
    uint64_t start_ns = bt_os_now_ns();
    uint32_t n_before = bt_session_n_used(l->session), n_right = 0;
    BT_TRY(bt_session_verify(l->session, batch, n + 1, err));
    *ret_next = sample(l, 0);
    while (n_right < n && *ret_next == batch[n_right + 1]) {
        *ret_on = take(l, *ret_next);
        if (!*ret_on) break;
        *ret_next = sample(l, (int32_t)++n_right);
    }
    bt_speculation_note_draft(&l->speculation, n, n_right, bt_os_now_ns() - start_ns);
    return bt_session_take_back(l->session, n_before + 1 + n_right, err);
}

static bt_status sample_all(loop *l, bt_error *err) {
    bt_generated *ret = l->ret;
    uint32_t n = (uint32_t)bt_min_u64(l->params->n_draft, BT_DRAFT_MAX);
    int32_t batch[BT_DRAFT_MAX + 1];
    ret->stop = BT_STOP_LENGTH;
    if (l->n_left == 0) return BT_OK;
    int32_t token = sample(l, -1);
    for (bool on = true; on && take(l, token);) {
        if (bt_session_n_used(l->session) >= bt_session_n_ctx(l->session)) {
            ret->stop = BT_STOP_CONTEXT;
            break;
        }
        if (ret->n_generated == LOOP_FIRST_TOKEN) l->second = loop_heap_read();
        if (!draft(l, token, n, batch)) {
            BT_TRY(step(l, token, &token, err));
            continue;
        }
        bool first = l->speculation.drafted == 0; /* libllama makes room for more rows of logits, once */
        BT_TRY(step_guessing(l, batch, n, &token, &on, err));
        if (first) l->second = loop_heap_read();
    }
    if (l->second.n_allocations > 0) loop_heap_note(&l->second, ret);
    return BT_OK;
}

/* Without room for it, or where tokens cannot be taken back, nothing is guessed. */
static void open_lookup(loop *l, const int32_t *prompt, uint32_t n_prompt) {
    const bt_generate_params *params = l->params;
    if (params->n_draft == 0 || !bt_session_goes_back(l->session)) return;
    l->lookup = bt_lookup_open(bt_session_n_ctx(l->session) + 1);
    if (!l->lookup) return;
    bt_lookup_add(l->lookup, params->before, params->n_before);
    bt_lookup_add(l->lookup, prompt, n_prompt);
}

bt_status bt_generate(bt_session *session, const int32_t *prompt, uint32_t n_prompt, const bt_generate_params *params,
                      bt_generated *ret, bt_error *err) {
    memset(ret, 0, sizeof *ret);
    ret->n_prompt = n_prompt;
    if (n_prompt == 0)
        return bt_fail(err, BT_E_ARG, "prompt_empty", BT_MEASURE_TOKENS, 1, 0, "the prompt has no tokens");
    loop l = {.session = session,
              .params = params,
              .vocab = llama_model_get_vocab(llama_get_model(bt_session_context(session))),
              .n_left = params->n_predict < 0 ? UINT32_MAX : (uint32_t)params->n_predict,
              .ret = ret};
    BT_TRY(make_sampler(session, &params->sampling, &l.sampler, err));
    open_lookup(&l, prompt, n_prompt);
    l.start_ns = bt_os_now_ns();
    bt_status status = bt_session_decode(session, prompt, n_prompt, NULL, err);
    uint64_t prompt_end_ns = bt_os_now_ns();
    ret->prompt_ns = prompt_end_ns - l.start_ns;
    if (status == BT_OK) status = sample_all(&l, err);
    ret->decode_ns = bt_os_now_ns() - prompt_end_ns;
    ret->n_drafted = l.speculation.drafted;
    ret->n_accepted = l.speculation.accepted;
    bt_lookup_close(l.lookup);
    llama_sampler_free(l.sampler);
    return status;
}
