/* SPDX-License-Identifier: MIT
 * Facts of models written for the purpose, number by number, and of a real one if it is there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/heap.h"
#include "model_kit.h"

static void refused(gw *w, const char *code, const char *words) {
    kit_file_refused(w, BT_E_FORMAT, code, words);
    gw_done(w);
}

static bt_facts *opened(gw *w) {
    bt_facts *facts = kit_file_open(w, "facts.gguf");
    gw_done(w);
    return facts;
}

/* The windows of all blocks, as text: "8 8 0" */
static void windows(gw *w, const char *expected) {
    char text[512] = "";
    bt_facts *facts = opened(w);
    assert_true(facts->kv_known);
    assert_true(facts->kv_exact);
    for (uint32_t i = 0; i < facts->n_block; i++) {
        size_t n = strlen(text);
        bool none = facts->kv[i].k_width == 0;
        snprintf(text + n, sizeof text - n, none ? "%s-" : "%s%" PRIu32, i > 0 ? " " : "", facts->kv[i].window);
    }
    assert_string_equal(text, expected);
    bt_facts_close(facts);
}

static void plain(void **state) {
    (void)state;
    gw w;
    kit_begin(&w, "llama", 2);
    gw_string(&w, "tokenizer.ggml.model", "gpt2"), gw_string(&w, "tokenizer.ggml.pre", "smollm");
    gw_string(&w, "tokenizer.chat_template", "{{ messages }}"), gw_tokens(&w, "tokenizer.ggml.tokens", 1024);
    bt_facts *f = opened(&w);
    assert_string_equal(f->arch, "llama");
    assert_string_equal(f->name, "made for a test");
    assert_string_equal(f->tokenizer, "gpt2");
    assert_string_equal(f->tokenizer_pre, "smollm");
    assert_true(f->has_chat_template);
    assert_int_equal(f->n_ctx_train, 2048);
    assert_int_equal(f->n_embd, 256);
    assert_int_equal(f->n_ff, 512);
    assert_int_equal(f->n_vocab, 1024);
    assert_int_equal(f->n_block, 2);
    assert_int_equal(f->n_head, 4);
    assert_int_equal(f->n_expert, 0);
    assert_int_equal(f->n_expert_used, 0);
    assert_false(f->tied_head);
    assert_true(f->kv_known && f->kv_exact);
    assert_string_equal(f->kv_reason, "");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(f->kv[i].k_width, 128);
        assert_int_equal(f->kv[i].v_width, 128);
        assert_int_equal(f->kv[i].window, 0);
    }
    uint64_t matrix = UINT64_C(256) * 256 / 32 * 34, small = 2048 + matrix, block = 2048 + 9 * matrix;
    assert_int_equal(f->weight_bytes, 2 * block + 1024 + 8 * matrix);
    /* k and v are below 64 KiB; the norms are small, and rounded to 64 */
    assert_int_equal(f->small_bytes, 2 * small + 1024);
    assert_true(f->arena_bytes >= 65536 && f->arena_bytes < 196608);
    assert_int_equal(f->shards[0].kv_end < f->header_bytes, 1);
    assert_int_equal(f->shards[0].data_offset, (f->header_bytes + 31) / 32 * 32);
    bt_facts_close(f);
    assert_int_equal(bt_heap_live_bytes(), 0);
}

static void tensor_fields(void **state) {
    (void)state;
    gw w;
    kit_begin(&w, "llama", 2);
    bt_facts *f = opened(&w);
    const bt_tensor *t = &f->tensors[2]; /* blk.0.ffn_down.weight */
    assert_string_equal(t->name, "blk.0.ffn_down.weight");
    assert_int_equal(t->type, 8);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->ne[0], 512);
    assert_int_equal(t->ne[1], 256);
    assert_int_equal(t->ne[2], 1);
    assert_int_equal(t->row_bytes, 16 * 34);
    assert_int_equal(t->bytes, 256 * 16 * 34);
    assert_int_equal(t->block, 0);
    assert_int_equal(t->shard, 0);
    assert_int_equal(t->file_offset, f->shards[0].data_offset + UINT64_C(1024) * 8 * 34 + 1024);
    assert_int_equal(f->tensors[0].block, -1);
    assert_int_equal(f->tensors[18].block, 1);
    bt_facts_close(f);
}

static void heads(void **state) {
    (void)state;
    gw_model m = kit_small;
    m.no_heads = true;
    gw w;
    /* absent KV heads are as many as heads; head lengths of their own */
    gw_init(&w), gw_model_all(&w, &m), gw_u32(&w, "llama.attention.head_count", 8);
    gw_u32(&w, "llama.attention.key_length", 96), gw_u32(&w, "llama.attention.value_length", 80);
    bt_facts *f = opened(&w);
    assert_int_equal(f->kv[0].k_width, 8 * 96);
    assert_int_equal(f->kv[0].v_width, 8 * 80);
    bt_facts_close(f);
    /* one value a block; a block without attention keeps nothing */
    m.arch = "deci";
    gw_init(&w), gw_model_all(&w, &m), gw_u32s(&w, "deci.attention.head_count", (uint32_t[]){4, 0}, 2);
    gw_u32s(&w, "deci.attention.head_count_kv", (uint32_t[]){2, 0}, 2);
    gw_u32s(&w, "deci.rope.scaling.x", (uint32_t[]){1, 2, 3}, 3);
    f = opened(&w);
    assert_int_equal(f->kv[0].k_width, 128);
    assert_int_equal(f->kv[1].k_width, 0);
    assert_int_equal(f->kv[1].v_width, 0);
    bt_facts_close(f);
    gw_init(&w), gw_model_all(&w, &m), gw_u32s(&w, "deci.attention.head_count", (uint32_t[]){4, 4, 4}, 3);
    refused(&w, "model_shape", "has 3 items for 2 blocks");
    m.arch = "llama";
    gw_init(&w), gw_model_all(&w, &m), refused(&w, "model_shape", "llama.attention.head_count is missing");
    gw_init(&w), gw_model_all(&w, &m), gw_u32(&w, "llama.attention.head_count", 4);
    gw_u32(&w, "llama.attention.head_count_kv", 3);
    refused(&w, "model_shape", "block 0 has 4 heads for 3 KV heads, no multiple"); /* ggml would abort */
}

static void sliding_windows(void **state) {
    (void)state;
    gw w;
    kit_begin(&w, "gemma2", 4), windows(&w, "4096 0 4096 0");
    kit_begin(&w, "gemma2", 3), gw_u32(&w, "gemma2.attention.sliding_window", 64), windows(&w, "64 0 64");
    kit_begin(&w, "gemma3", 8), gw_u32(&w, "gemma3.attention.sliding_window", 512),
        windows(&w, "512 512 512 512 512 0 512 512");
    kit_begin(&w, "gemma3", 2), windows(&w, "0 0");
    kit_begin(&w, "gpt-oss", 4), gw_u32(&w, "gpt-oss.attention.sliding_window", 128), windows(&w, "128 0 128 0");
    kit_begin(&w, "cohere2", 5), gw_u32(&w, "cohere2.attention.sliding_window", 9), windows(&w, "9 9 9 0 9");
    kit_begin(&w, "olmo2", 4), windows(&w, "0 0 0 0");
    kit_begin(&w, "olmo2", 4), gw_u32(&w, "olmo2.attention.sliding_window", 9), windows(&w, "9 9 9 0");
    kit_begin(&w, "smallthinker", 5), gw_u32(&w, "smallthinker.attention.sliding_window", 9);
    windows(&w, "0 4096 4096 4096 0");
    kit_begin(&w, "llama4", 5), windows(&w, "8192 8192 8192 0 8192");
    kit_begin(&w, "llama4", 2), gw_u32(&w, "llama4.attention.sliding_window", 0), windows(&w, "0 0");
    kit_begin(&w, "exaone4", 4), gw_u32(&w, "exaone4.attention.sliding_window", 9), windows(&w, "0 0 0 0");
    kit_begin(&w, "phi3", 2), gw_u32(&w, "phi3.attention.sliding_window", 9), windows(&w, "0 0");
    kit_begin(&w, "llama", 2), gw_u32(&w, "llama.attention.sliding_window", 9), windows(&w, "0 0");
    /* the file's own pattern: a period, or an array; what it does not reach is full */
    kit_begin(&w, "gemma2", 4), gw_u32(&w, "gemma2.attention.sliding_window_pattern", 3),
        windows(&w, "4096 4096 0 4096");
    kit_begin(&w, "gemma2", 3), gw_bools(&w, "gemma2.attention.sliding_window_pattern", (bool[]){0, 1}, 2);
    windows(&w, "0 4096 0");
    kit_begin(&w, "gemma2", 2), gw_u32s(&w, "gemma2.attention.sliding_window_pattern", (uint32_t[]){1, 0, 1}, 3);
    windows(&w, "4096 0");
}

static void shared_kv(void **state) {
    (void)state;
    gw w;
    kit_begin(&w, "gemma3n", 22), gw_u32(&w, "gemma3n.attention.sliding_window", 7);
    windows(&w, "7 7 7 7 0 7 7 7 7 0 7 7 7 7 0 7 7 7 7 0 - -");
    kit_begin(&w, "gemma4", 4), gw_u32(&w, "gemma4.attention.sliding_window", 7);
    gw_bools(&w, "gemma4.attention.sliding_window_pattern", (bool[]){1, 0, 1, 0}, 4);
    gw_u32(&w, "gemma4.attention.shared_kv_layers", 1), gw_u32(&w, "gemma4.attention.key_length", 64);
    gw_u32(&w, "gemma4.attention.value_length", 64), gw_u32(&w, "gemma4.attention.key_length_swa", 32);
    gw_u32(&w, "gemma4.attention.value_length_swa", 16);
    bt_facts *f = kit_file_open(&w, "facts.gguf");
    assert_int_equal(f->kv[0].k_width, 2 * 32);
    assert_int_equal(f->kv[0].v_width, 2 * 16);
    assert_int_equal(f->kv[1].k_width, 2 * 64);
    bt_facts_close(f);
    windows(&w, "7 0 7 -");
    kit_begin(&w, "gemma4", 2), gw_u32(&w, "gemma4.attention.sliding_window", 7);
    refused(&w, "model_shape", "gemma4.attention.sliding_window_pattern is missing");
    kit_begin(&w, "gemma4", 4), gw_u32(&w, "gemma4.attention.sliding_window", 7);
    gw_bools(&w, "gemma4.attention.sliding_window_pattern", (bool[]){1, 0, 1, 0}, 4);
    gw_u32(&w, "gemma4.attention.shared_kv_layers", 3);
    refused(&w, "model_shape", "less than two blocks"); /* libllama would abort */
}

static void bad_windows(void **state) {
    (void)state;
    gw w;
    kit_begin(&w, "cohere2", 2), refused(&w, "model_shape", "cohere2.attention.sliding_window is missing or 0");
    kit_begin(&w, "gpt-oss", 2), gw_u64(&w, "gpt-oss.attention.sliding_window", 8),
        refused(&w, "model_shape", "not a u32");
    kit_begin(&w, "gemma2", 2), gw_u32(&w, "gemma2.attention.sliding_window_pattern", 1);
    refused(&w, "model_shape", "no block has"); /* "is set, but no block has one": libllama asserts */
    kit_begin(&w, "gemma2", 2), gw_f32(&w, "gemma2.attention.sliding_window_pattern", 1);
    refused(&w, "model_shape", "neither an array nor a u32");
    kit_begin(&w, "gemma2", 2), gw_tokens(&w, "gemma2.attention.sliding_window_pattern", 2);
    refused(&w, "model_shape", "no array of truth values");
}

static void unknown_kv(gw *w, const char *reason) {
    bt_facts *f = opened(w);
    assert_false(f->kv_known);
    assert_false(f->kv_exact);
    assert_string_equal(f->kv_reason, reason);
    assert_int_equal(f->kv[0].k_width, 0);
    assert_true(f->weight_bytes > 0 && f->n_units > 0); /* weights are exact all the same */
    bt_facts_close(f);
}

static void unpriced(void **state) {
    (void)state;
    gw w;
    kit_begin(&w, "deepseek4", 2), unknown_kv(&w, "the KV cache of architecture deepseek4 is not known");
    kit_begin(&w, "t5encoder", 2), unknown_kv(&w, "the memory of architecture t5encoder is not known");
    kit_begin(&w, "next-year", 2), unknown_kv(&w, "the KV cache of architecture next-year is not known");
}

static void recurrent(void **state) {
    (void)state;
    gw w;
    kit_begin(&w, "mamba2", 2), refused(&w, "gguf_key_missing", "key 'mamba2.ssm.conv_kernel' is missing");
    kit_begin(&w, "mamba2", 2), gw_u32(&w, "mamba2.ssm.conv_kernel", 4), gw_u32(&w, "mamba2.ssm.inner_size", 64);
    gw_u32(&w, "mamba2.ssm.state_size", 16), gw_u32(&w, "mamba2.ssm.group_count", 2);
    bt_facts *f = opened(&w);
    assert_true(f->kv_known && f->kv_exact && !f->encoder);
    assert_int_equal(f->kv[1].k_width + f->kv[1].v_width, 0);
    assert_int_equal(f->kv[1].conv_width, 3 * (64 + 2 * 2 * 16));
    assert_int_equal(f->kv[1].ssm_width, 16 * 64);
    bt_facts_close(f);
    kit_begin(&w, "mamba2", 2), gw_u32(&w, "mamba2.ssm.conv_kernel", 4), gw_u32(&w, "mamba2.ssm.inner_size", 1u << 30);
    gw_u32(&w, "mamba2.ssm.state_size", 16), refused(&w, "model_shape", "more elements than can be counted");
    kit_begin(&w, "qwen3next", 2), gw_u32(&w, "qwen3next.ssm.conv_kernel", 4),
        gw_u32(&w, "qwen3next.ssm.inner_size", 64);
    gw_u32(&w, "qwen3next.ssm.state_size", 16), gw_u32(&w, "qwen3next.full_attention_interval", 2);
    f = opened(&w);
    assert_true(f->kv[0].ssm_width > 0 && f->kv[0].k_width == 0); /* the first of each two */
    assert_true(f->kv[1].ssm_width == 0 && f->kv[1].k_width > 0);
    bt_facts_close(f);
    kit_begin(&w, "qwen3next", 2), gw_u32(&w, "qwen3next.ssm.conv_kernel", 4),
        gw_u32(&w, "qwen3next.ssm.inner_size", 64);
    gw_u32(&w, "qwen3next.ssm.state_size", 16), gw_u32(&w, "qwen3next.full_attention_interval", 0);
    refused(&w, "model_shape", "full_attention_interval is 0"); /* libllama divides by it */
}

static void latent_and_encoders(void **state) {
    (void)state;
    gw w;
    kit_begin(&w, "deepseek2", 2), gw_u32(&w, "deepseek2.attention.key_length_mla", 192);
    refused(&w, "model_shape", "one is missing");
    kit_begin(&w, "deepseek2", 2), gw_u32(&w, "deepseek2.attention.key_length_mla", 192);
    gw_u32(&w, "deepseek2.attention.value_length_mla", 128);
    bt_facts *f = opened(&w);
    assert_true(f->latent && f->kv[0].k_width > 0 && f->kv[0].v_width == 0);
    bt_facts_close(f);
    kit_begin(&w, "deepseek32", 2), gw_u32(&w, "deepseek32.attention.key_length_mla", 192);
    gw_u32(&w, "deepseek32.attention.value_length_mla", 128), refused(&w, "model_shape", "no indexer");
    kit_begin(&w, "deepseek32", 2), gw_u32(&w, "deepseek32.attention.key_length_mla", 192);
    gw_u32(&w, "deepseek32.attention.value_length_mla", 128);
    gw_u32(&w, "deepseek32.attention.indexer.key_length", 128);
    f = opened(&w);
    assert_true(f->kv[0].k_width > 128 && f->kv[0].v_width == 0); /* the latent row, and the indexer's key */
    bt_facts_close(f);
    kit_begin(&w, "deepseek2", 2); /* an old file: keys and values of each head */
    f = opened(&w);
    assert_true(!f->latent && f->kv[0].v_width > 0);
    bt_facts_close(f);
    kit_begin(&w, "bert", 2);
    f = opened(&w);
    assert_true(f->encoder && f->kv_known && f->kv_exact);
    assert_int_equal(f->kv[0].k_width + f->kv[0].v_width + f->kv[0].ssm_width, 0);
    bt_facts_close(f);
}

static void tied(void **state) {
    (void)state;
    gw_model m = kit_small;
    m.tied = true;
    gw w;
    gw_init(&w), gw_model_all(&w, &m);
    bt_facts *f = opened(&w);
    assert_true(f->tied_head);
    assert_int_equal(f->tensors[0].role, BT_ROLE_TIED);
    bt_facts_close(f);
    m.arch = "bert"; /* has no head at all */
    gw_init(&w), gw_model_all(&w, &m);
    f = opened(&w);
    assert_false(f->tied_head);
    assert_int_equal(f->tensors[0].role, BT_ROLE_TABLE);
    bt_facts_close(f);
}

static void prediction_blocks(void **state) {
    (void)state;
    gw w;
    kit_begin(&w, "glm4moe", 3), gw_u32(&w, "glm4moe.nextn_predict_layers", 1);
    bt_facts *f = opened(&w);
    assert_int_equal(f->n_block, 2);
    uint64_t used = 0, unused = 0;
    for (uint32_t i = 0; i < f->n_tensors; i++) {
        const bt_tensor *t = &f->tensors[i];
        assert_int_equal(t->role == BT_ROLE_UNUSED, t->block == 2);
        *(t->block == 2 ? &unused : &used) += t->bytes;
        if (t->block == 2) assert_int_equal(t->unit, BT_NO_UNIT);
    }
    assert_true(unused > 0);
    assert_int_equal(f->weight_bytes, used);
    for (uint32_t i = 0; i < f->n_units; i++)
        assert_true(f->units[i].block < 2);
    bt_facts_close(f);
    kit_begin(&w, "glm4moe", 2), gw_u32(&w, "glm4moe.nextn_predict_layers", 3);
    refused(&w, "model_shape", "3 prediction blocks of 2");
    kit_begin(&w, "glm4moe", 2), gw_u32(&w, "glm4moe.nextn_predict_layers", 2);
    f = opened(&w);
    assert_int_equal(f->n_block, 0);
    assert_false(f->kv_known);
    bt_facts_close(f);
}

static void blocks(void **state) {
    (void)state;
    gw_model m = kit_small;
    gw w;
    m.n_block = 1;
    gw_init(&w), gw_model_keys(&w, &m), gw_model_tensors(&w, &kit_small);
    refused(&w, "model_blocks", "block_count says 1, but there is a tensor 'blk.1.attn_norm.weight'");
    m.n_block = 3;
    gw_init(&w), gw_model_keys(&w, &m), gw_model_tensors(&w, &kit_small);
    refused(&w, "model_blocks", "block_count says 3, but block 2 has no tensors");
    m.n_block = 0;
    gw_init(&w), gw_model_all(&w, &m), refused(&w, "model_shape", "llama.block_count is 0");
    static const char *const bad[] = {
        "blk.x.a.weight",  "blk.01.a.weight",           "blk..a.weight", "blk.1", "blk.1.",
        "blk.-1.a.weight", "blk.9999999999999.a.weight"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        kit_begin(&w, "llama", 2), gw_tensor(&w, bad[i], 0, 32, 1), refused(&w, "gguf_tensor", "has no block number");
    gw_init(&w), gw_string(&w, "general.architecture", "llama"), gw_model_tensors(&w, &kit_small);
    refused(&w, "gguf_key_missing", "key 'llama.block_count' is missing");
    gw_init(&w), gw_model_keys(&w, &kit_small), refused(&w, "model_no_tensors", "has no tensors");
}

/* What libllama asserts of experts and rope is refused first. */
static void asserted_shapes(void **state) {
    (void)state;
    gw w;
    kit_begin(&w, "llama", 2), gw_u32(&w, "llama.expert_count", 8), refused(&w, "model_shape", "0 used, of 8 experts");
    kit_begin(&w, "llama", 2), gw_u32(&w, "llama.expert_used_count", 2),
        refused(&w, "model_shape", "2 used, of 0 experts");
    kit_begin(&w, "llama", 2), gw_u32(&w, "llama.expert_count", 1025);
    kit_file_refused(&w, BT_E_LIMIT, "model_shape", "llama.cpp takes 1024"), gw_done(&w);
    kit_begin(&w, "llama", 2), gw_u32(&w, "llama.expert_count", 8), gw_u32(&w, "llama.expert_used_count", 2);
    gw_u32(&w, "llama.expert_group_count", 8), refused(&w, "model_shape", "8 groups, of 8 experts");
    kit_begin(&w, "llama", 2), gw_u32(&w, "llama.expert_count", 8), gw_u32(&w, "llama.expert_used_count", 2);
    gw_u32(&w, "llama.expert_group_count", 3), refused(&w, "model_shape", "3 uneven groups");
    kit_begin(&w, "llama", 2), gw_u32(&w, "llama.expert_count", 8), gw_u32(&w, "llama.expert_used_count", 2);
    gw_u32(&w, "llama.expert_group_count", 4), gw_u32(&w, "llama.expert_group_used_count", 4);
    refused(&w, "model_shape", "4 groups used");
    kit_begin(&w, "llama", 2), gw_u32(&w, "llama.expert_count", 8);
    gw_u32s(&w, "llama.expert_used_count", (uint32_t[]){2, 3}, 2);
    bt_facts *f = opened(&w);
    assert_int_equal(f->n_expert, 8);
    assert_int_equal(f->n_expert_used, 3);
    bt_facts_close(f);
    kit_begin(&w, "llama", 2), gw_string(&w, "llama.rope.scaling.type", "su"),
        refused(&w, "model_shape", "rope.scaling.type");
    kit_begin(&w, "llama", 2), gw_u32(&w, "llama.rope.dimension_count", 66),
        refused(&w, "model_shape", "heads have 64");
    kit_begin(&w, "llama", 2), gw_u32(&w, "llama.rope.dimension_count", 63), refused(&w, "model_shape", "is 63");
    kit_begin(&w, "llama", 2), gw_tokens(&w, "tokenizer.ggml.tokens", 1000);
    refused(&w, "model_shape", "token_embd.weight is 256 x 1024, the model has 256 x 1000");
}

static void long_name(void **state) {
    (void)state;
    gw_model m = kit_small;
    gw w;
    char name[600];
    memset(name, 'n', sizeof name), memcpy(name + 255, "\xc3\xa9", 2), name[599] = '\0';
    gw_init(&w), gw_string(&w, "general.architecture", "llama"), gw_string(&w, "general.name", name);
    gw w2;
    gw_init(&w2), gw_model_keys(&w2, &m);
    /* the same keys without the first two */
    size_t skip = 8 + 20 + 4 + 8 + 5 + 8 + 12 + 4 + 8 + 15;
    gw_put(&w.keys, w2.keys.data + skip, w2.keys.n - skip), w.n_keys += w2.n_keys - 2;
    gw_done(&w2), gw_model_tensors(&w, &m);
    bt_facts *f = opened(&w);
    assert_int_equal(strlen(f->name), 255); /* not cut within a character */
    bt_facts_close(f);
}

/* The model that the other tests run, if it has been fetched. */
static void smollm2(void **state) {
    (void)state;
    static const char path[] = BT_TEST_DATA "/../../build/models/smollm2-135m-instruct-q4_1.gguf";
    struct stat st;
    if (stat(path, &st) != 0) skip();
    bt_facts *f = kit_open(path);
    assert_string_equal(f->arch, "llama");
    assert_string_equal(f->tokenizer_pre, "smollm");
    assert_int_equal(f->n_block, 30);
    assert_int_equal(f->n_embd, 576);
    assert_int_equal(f->n_ff, 1536);
    assert_int_equal(f->n_head, 9);
    assert_int_equal(f->n_vocab, 49152);
    assert_int_equal(f->n_ctx_train, 8192);
    assert_true(f->tied_head && f->has_chat_template && f->kv_exact);
    for (uint32_t i = 0; i < 30; i++)
        assert_int_equal(f->kv[i].k_width, 192);
    assert_int_equal(f->n_tensors, 272);
    assert_int_equal(f->units[0].bytes, (576 * 576 * 2 + 576 * 192 * 2) / 32 * 20);
    assert_int_equal(f->units[1].bytes, 3 * 576 * 1536 / 32 * 20);
    bt_facts_close(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain),
        cmocka_unit_test(tensor_fields),
        cmocka_unit_test(heads),
        cmocka_unit_test(sliding_windows),
        cmocka_unit_test(shared_kv),
        cmocka_unit_test(bad_windows),
        cmocka_unit_test(unpriced),
        cmocka_unit_test(recurrent),
        cmocka_unit_test(latent_and_encoders),
        cmocka_unit_test(tied),
        cmocka_unit_test(prediction_blocks),
        cmocka_unit_test(blocks),
        cmocka_unit_test(asserted_shapes),
        cmocka_unit_test(long_name),
        cmocka_unit_test(smollm2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
