/* SPDX-License-Identifier: MIT
 * facts_check.h: what must hold of the facts of any file that is taken, since a planner relies on them, and of a
 * refusal; and the words of a header. For fuzz targets. */
#pragma once

#include "burthen.h"
#include "fuzz.h"
#include "plain_check.h"

#include <string.h>

static inline void facts_check_units(const bt_facts *f) {
    for (uint32_t i = 0; i < f->n_units; i++) {
        const bt_unit_facts *u = &f->units[i];
        uint64_t image = 0;
        FUZZ_CHECK(u->n_tensors > 0 && u->first_tensor + u->n_tensors <= f->n_unit_tensors);
        FUZZ_CHECK(u->n_extents > 0 && u->first_extent + u->n_extents <= f->n_extents);
        for (uint32_t k = 0; k < u->n_extents; k++) {
            const bt_extent *e = &f->extents[u->first_extent + k];
            FUZZ_CHECK(e->shard < f->n_shards && e->image_offset == image);
            FUZZ_CHECK(e->file_offset + e->bytes < f->shards[e->shard].file_bytes + BT_PAGE_BYTES);
            image += e->bytes;
        }
        FUZZ_CHECK(image == u->image_bytes && u->bytes <= image);
        FUZZ_CHECK(u->block >= -1 && u->block < (int32_t)f->n_block);
        FUZZ_CHECK(memchr(u->name, '\0', sizeof u->name) != NULL);
        for (uint32_t k = 0; k < u->n_tensors; k++)
            FUZZ_CHECK(f->unit_tensors[u->first_tensor + k] < f->n_tensors);
    }
}

static inline void facts_check(const bt_facts *f) {
    FUZZ_CHECK(f->n_block <= BT_BLOCK_MAX && f->n_tensors <= BT_TENSOR_MAX && f->n_shards >= 1);
    FUZZ_CHECK(f->arch && f->name && f->tokenizer && f->tokenizer_pre && f->kv);
    FUZZ_CHECK(f->kv_known || f->kv_reason[0] != '\0');
    for (uint32_t i = 0; i < f->n_tensors; i++) {
        const bt_tensor *t = &f->tensors[i];
        FUZZ_CHECK(t->file_offset + t->bytes <= f->shards[t->shard].file_bytes);
        FUZZ_CHECK(t->bytes > 0 && t->row_bytes > 0 && t->bytes % t->row_bytes == 0);
        FUZZ_CHECK(t->unit == BT_NO_UNIT || t->unit < f->n_units);
    }
    facts_check_units(f);
}

static inline void facts_check_refusal(bt_status status, const bt_error *err) {
    FUZZ_CHECK(status == BT_E_FORMAT || status == BT_E_LIMIT);
    FUZZ_CHECK(err->code[0] != '\0' && err->status == status);
    plain_check(err->text);
}

static inline const char *facts_word(size_t i) {
    static const char *const words[] = {"GGUF",
                                        "general.architecture",
                                        "general.alignment",
                                        "general.name",
                                        "split.no",
                                        "split.count",
                                        "split.tensors.count",
                                        "tokenizer.ggml.model",
                                        "tokenizer.ggml.pre",
                                        "tokenizer.ggml.tokens",
                                        "tokenizer.ggml.scores",
                                        "tokenizer.ggml.token_type",
                                        "tokenizer.ggml.merges",
                                        "tokenizer.ggml.bos_token_id",
                                        "tokenizer.chat_template",
                                        "llama.block_count",
                                        "llama.context_length",
                                        "llama.embedding_length",
                                        "llama.feed_forward_length",
                                        "llama.attention.head_count",
                                        "llama.attention.head_count_kv",
                                        "llama.attention.key_length",
                                        "llama.attention.sliding_window",
                                        "llama.attention.sliding_window_pattern",
                                        "llama.expert_count",
                                        "llama.expert_used_count",
                                        "llama.rope.scaling.type",
                                        "llama.ssm.conv_kernel",
                                        "llama.ssm.inner_size",
                                        "llama.nextn_predict_layers",
                                        "gemma3",
                                        "glm4moe",
                                        "deepseek2",
                                        "mamba",
                                        "qwen3next",
                                        "clip",
                                        "clip.has_vision_encoder",
                                        "clip.projector_type",
                                        "clip.vision.image_size",
                                        "clip.vision.patch_size",
                                        "token_embd.weight",
                                        "output.weight",
                                        "output_norm.weight",
                                        "blk.0.attn_q.weight",
                                        "blk.0.ffn_up.weight",
                                        "blk.0.ffn_gate_exps.weight",
                                        "blk.1.attn_kv_b.weight",
                                        "blk.99999.ffn_up.weight",
                                        "v.patch_embd.weight",
                                        "mm.0.weight"};
    return i < sizeof words / sizeof *words ? words[i] : NULL;
}
