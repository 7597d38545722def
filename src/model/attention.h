/* SPDX-License-Identifier: MIT
 * attention.h: the KV geometry of each block, where the architecture is one whose cache is plain attention. */
#pragma once

#include "model/gguf.h"

/* Fills facts->kv (allocated here, [n_block]), kv_known, kv_exact and kv_reason. facts->arch, n_embd and n_block are
 * set. BT_E_FORMAT: the file contradicts what libllama asserts of such a model. */
BT_MUST_CHECK bt_status bt_attention_fill(const bt_gguf *gguf, bt_facts *facts, bt_arena *arena, bt_error *err);

/* The architecture has a row of its own: what libllama reads for it is known, and may be held against the file. */
bool bt_attention_is_known(const char *arch);
/* The architecture has no output head, so a missing one does not mean that it is tied. */
bool bt_attention_is_encoder(const char *arch);
