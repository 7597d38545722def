/* SPDX-License-Identifier: MIT
 * drop_in.h: a llama.cpp program that is started with Burthen's device in it: what of its command line a plan needs to
 * know, and the command line that keeps to the plan. */
#pragma once

#include "guard/effective.h"
#include "guard/rewrite.h"

/* As the device of libggml-burthen.so calls itself and its buffers. */
#define BT_DROP_IN_DEVICE "Burthen0"
#define BT_DROP_IN_BUFFER "Burthen"

/* What of a command goes into a plan: of the command as bt_drop_in_apply leaves it. */
typedef struct bt_drop_in {
    bt_wishes wishes;         /* without a budget; what the user set is set, what he left open is open */
    uint32_t n_outputs_max;   /* rows of logits or embeddings that the program keeps at once, at most */
    bool swa_full;            /* windows are kept at the full context: --swa-full */
    bool embeddings;          /* it makes vectors, no text: --embedding, --rerank, llama-embedding, an encoder */
    uint64_t cache_ram_bytes; /* of --cache-ram; 0 where nobody asked for one */
    uint32_t n_checkpoints;   /* over all slots; only those that were asked for */
    uint64_t drafter_bytes;   /* tables of drafters that look n-grams up, as they are made */
} bt_drop_in;

/* BT_E_UNSUPPORTED (code "drop_in"): something would put memory outside the budget or off the device, or the program
 * refuses the line itself. The sentence names the option, where it came from if not from argv, and what to do. It may
 * hold bytes as the user wrote them. facts: of the model that the command names. */
BT_MUST_CHECK bt_status bt_drop_in_read(const bt_effective *effective, const bt_facts *facts, bt_drop_in *ret,
                                        bt_error *err);
/* The wishes of a plan for the program, but for the budget: the device holds the model and nothing else does.
 * adapter_bytes: LoRA and control vectors. */
bt_wishes bt_drop_in_wishes(const bt_drop_in *drop_in, const bt_effective *effective, const bt_facts *facts,
                            uint64_t adapter_bytes);
/* About the least budget that a plan for the program accepts, by formula (the plan itself is made by a dry run, whose
 * prices are not above these but by a few MiB). Draft and projector are not in it. An open context counts as
 * BT_CTX_FLOOR of each sequence: with less nobody is served. BT_E_UNSUPPORTED, code "drop_in", as bt_drop_in_read; also
 * code "arch_unknown": this model's cache cannot be priced. */
BT_MUST_CHECK bt_status bt_drop_in_least_bytes(const bt_effective *effective, const bt_facts *facts,
                                               uint64_t adapter_bytes, bt_arena *arena, uint64_t *ret_bytes,
                                               bt_error *err);
/* Write a plan that was made with these wishes into the argv: values in their place, what stood nowhere at the end;
 * nothing that says so already is touched, so that a second time there is nothing to do. effective: what
 * bt_drop_in_read took; rewrite: open. E_ARG as bt_rewrite_set. */
BT_MUST_CHECK bt_status bt_drop_in_apply(const bt_effective *effective, const bt_plan *plan, bt_rewrite *rewrite,
                                         bt_error *err);
