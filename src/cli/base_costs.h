/* SPDX-License-Identifier: MIT
 * base_costs.h: what this build costs before and beside the model, measured on the reference machine (docs/design.md
 * section 6): the process after its libraries are initialised, and libllama's vocabulary per token, kept and while it
 * is loaded. Corrected by measuring whenever llama.cpp is changed; a dry run replaces them by what it measured. */
#pragma once

#include "plan/costs.h"

static const bt_base_costs bt_base_costs_measured = {
    .base_bytes = UINT64_C(25) << 19, /* 12.5 MiB: with the code of libllama and ggml brought in */
    .vocab_fixed_bytes = 0,
    .vocab_per_token_bytes = 320,      /* SmolLM2 (49,152 tokens, BPE): 314; Gemma 3 (262,144, SPM): 156 */
    .vocab_load_per_token_bytes = 600, /* SmolLM2: 591 */
};
