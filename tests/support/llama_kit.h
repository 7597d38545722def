/* SPDX-License-Identifier: MIT
 * llama_kit.h: for tests that load models through libllama. */
#pragma once

#include "llama.h"

static inline void kit_quiet(enum ggml_log_level level, const char *text, void *user) {
    (void)level;
    (void)text;
    (void)user;
}
