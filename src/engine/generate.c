/* SPDX-License-Identifier: MIT
 *
 * generate.c: prompt in, tokens out. The chain of samplers is llama.cpp's, in its default order: penalties, top-k,
 * top-p, min-p, temperature, draw. */

#include "engine/generate.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"

#include "llama.h"

#include <inttypes.h>
#include <string.h>

#define PIECE_BYTES         256    /* the longest token of any known vocabulary has under 256 bytes */
#define LOOP_FIRST_TOKEN    2      /* the token loop is looked at from this token on */
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

/* Heap and faults at the second token: by then everything that is made or brought in once has been. */
typedef struct loop_state {
    uint64_t n_allocations;
    bt_known heap_bytes;
    bt_known major_faults;
} loop_state;

static loop_state loop_read(void) {
    return (loop_state){bt_heap_allocations(), bt_os_heap_bytes(), bt_os_major_faults()};
}

static void loop_note(const loop_state *start, bt_generated *ret) {
    loop_state now = loop_read();
    ret->loop_heap_allocations = (bt_known){true, now.n_allocations - start->n_allocations};
    ret->loop_heap_growth_bytes =
        (bt_known){now.heap_bytes.known, bt_sat_sub_u64(now.heap_bytes.value, start->heap_bytes.value)};
    ret->loop_major_faults =
        (bt_known){now.major_faults.known, bt_sat_sub_u64(now.major_faults.value, start->major_faults.value)};
    ret->loop_tokens = ret->n_generated - LOOP_FIRST_TOKEN;
}

static bt_status sample_all(bt_session *session, struct llama_sampler *sampler, const bt_generate_params *params,
                            uint64_t start_ns, bt_generated *ret, bt_error *err) {
    struct llama_context *context = bt_session_context(session);
    const struct llama_vocab *vocab = llama_model_get_vocab(llama_get_model(context));
    uint32_t n_left = params->n_predict < 0 ? UINT32_MAX : (uint32_t)params->n_predict;
    ret->stop = BT_STOP_LENGTH;
    loop_state second = {0};
    while (n_left > 0) {
        int32_t token = llama_sampler_sample(sampler, context, -1);
        if (ret->n_generated == 0) ret->first_token_ns = bt_os_now_ns() - start_ns;
        if (llama_vocab_is_eog(vocab, token) && !params->ignore_eos) {
            ret->stop = BT_STOP_END;
            break;
        }
        ret->n_generated++;
        if (!give_token(params, vocab, token)) {
            ret->stop = BT_STOP_CALLER;
            break;
        }
        if (--n_left == 0) break;
        if (bt_session_n_used(session) >= bt_session_n_ctx(session)) {
            ret->stop = BT_STOP_CONTEXT;
            break;
        }
        if (ret->n_generated == LOOP_FIRST_TOKEN) second = loop_read();
        BT_TRY(bt_session_decode(session, &token, 1, NULL, err));
    }
    if (ret->n_generated > LOOP_FIRST_TOKEN) loop_note(&second, ret);
    return BT_OK;
}

bt_status bt_generate(bt_session *session, const int32_t *prompt, uint32_t n_prompt, const bt_generate_params *params,
                      bt_generated *ret, bt_error *err) {
    memset(ret, 0, sizeof *ret);
    ret->n_prompt = n_prompt;
    if (n_prompt == 0)
        return bt_fail(err, BT_E_ARG, "prompt_empty", BT_MEASURE_TOKENS, 1, 0, "the prompt has no tokens");
    struct llama_sampler *sampler = NULL;
    BT_TRY(make_sampler(session, &params->sampling, &sampler, err));
    uint64_t start_ns = bt_os_now_ns();
    bt_status status = bt_session_decode(session, prompt, n_prompt, NULL, err);
    uint64_t prompt_end_ns = bt_os_now_ns();
    ret->prompt_ns = prompt_end_ns - start_ns;
    if (status == BT_OK) status = sample_all(session, sampler, params, start_ns, ret, err);
    ret->decode_ns = bt_os_now_ns() - prompt_end_ns;
    llama_sampler_free(sampler);
    return status;
}
