/* SPDX-License-Identifier: MIT
 * generate.h: text from a session, with libllama's samplers. */
#pragma once

#include "engine/draft.h"
#include "engine/session.h"

typedef struct bt_sampling {
    double temperature; /* <= 0: greedy */
    int32_t top_k;
    double top_p, min_p, repeat_penalty;
    uint32_t seed;
    bool has_seed;       /* else one is drawn */
    const char *grammar; /* GBNF text, or NULL */
} bt_sampling;

typedef struct bt_generate_params {
    bt_sampling sampling;
    int32_t n_predict; /* -1: to the context's end */
    bool ignore_eos;
    uint32_t n_draft;      /* tokens guessed at once, at most BT_DRAFT_MAX; 0: none */
    bool looks_up;         /* guesses are looked up in what came before */
    bt_draft *draft;       /* a model guesses, where nothing is found that does as well; NULL: none */
    bool always;           /* for tests: guesses are made whatever they cost */
    const int32_t *before; /* [n_before] what stands in the context before the prompt: guesses come from it too */
    uint32_t n_before;
    /* Called with each token and its bytes (not terminated); false stops. */
    bool (*on_token)(int32_t token, const char *bytes, size_t n_bytes, void *user);
    void *user;
} bt_generate_params;

typedef enum bt_stop { BT_STOP_LENGTH, BT_STOP_END, BT_STOP_CONTEXT, BT_STOP_CALLER } bt_stop;

typedef struct bt_generated {
    uint32_t n_prompt, n_generated;
    uint64_t prompt_ns, first_token_ns, decode_ns; /* first token: from the start of the prompt */
    bt_stop stop;
    uint64_t n_drafted, n_accepted; /* guesses, and those that were right */
    /* From the second token to the last; unknown with fewer than three. */
    bt_known loop_heap_allocations;  /* ours: must be none */
    bt_known loop_heap_growth_bytes; /* of the whole process; 0 when it shrank */
    bt_known loop_major_faults;      /* of the whole process */
    uint32_t loop_tokens;            /* computed meanwhile */
} bt_generated;

/* Decode the prompt, then sample. The last token's forward is not run: nobody would read its logits. */
BT_MUST_CHECK bt_status bt_generate(bt_session *session, const int32_t *prompt, uint32_t n_prompt,
                                    const bt_generate_params *params, bt_generated *ret, bt_error *err);
