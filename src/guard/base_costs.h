/* SPDX-License-Identifier: MIT
 * base_costs.h: what this build costs before and beside the model, measured on the reference machine (docs/design.md
 * section 6): the process after its libraries are initialised, and libllama's vocabulary per token, kept and while it
 * is loaded. Corrected by measuring whenever llama.cpp is changed; a dry run replaces them by what it measured.
 *
 * Measured by the dry run (MiB kept, MiB at the loading peak over the base):
 *   SentencePiece  32,000 tokens 4.7, 15.8;  262,144 tokens 38.9, 59.3
 *   byte pairs     49,152 tokens 14.7, 27.7 (the merges are a second table of strings) */
#pragma once

#include "guard/flags.h"
#include "plan/costs.h"

#include <string.h>

#define BT_BASE_BYTES       (UINT64_C(25) << 19) /* 12.5 MiB, with the code of libllama and ggml brought in */
#define BT_LOAD_FIXED_BYTES (UINT64_C(6) << 20)  /* beside the 4 MiB of staging, which has its own line */

/* What a program of llama.cpp's own holds beside the lines of a plan: its libraries, its heap, its threads. Measured on
 * the reference machine while it worked (MiB; vocabulary, samplers and device taken off): llama-server 21 to 23 with
 * one slot or four, over 200 requests; 29 with 200 connections at once, 25 with 50 probabilities of each of 200 tokens;
 * llama-cli 21, llama-completion 16, llama-perplexity 15. What is more is learned (guard/learned.h). */
static inline uint64_t bt_guest_base_bytes(bt_program program) {
    if (program == BT_PROGRAM_SERVER) return UINT64_C(32) << 20;
    return (program == BT_PROGRAM_CLI ? UINT64_C(24) : UINT64_C(18)) << 20;
}

static inline bt_base_costs bt_base_costs_of(const bt_facts *facts) {
    bool pairs = facts->tokenizer && strcmp(facts->tokenizer, "gpt2") == 0;
    return (bt_base_costs){
        .base_bytes = BT_BASE_BYTES,
        .vocab_per_token_bytes = pairs ? 320 : 160,
        .vocab_load_fixed_bytes = BT_LOAD_FIXED_BYTES,
        .vocab_load_per_token_bytes = pairs ? 65 : 40,
    };
}
