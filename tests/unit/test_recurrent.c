/* SPDX-License-Identifier: MIT
 * test_recurrent.c: the state that each family keeps of a sequence, number by number (docs/prices.md, "State"), and in
 * which blocks; files whose numbers cannot be. The model is kit_small: E = 256, four heads of 64. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/heap.h"
#include "model_kit.h"

static bt_facts *opened(gw *w) {
    bt_facts *facts = kit_file_open(w, "recurrent.gguf");
    gw_done(w);
    assert_true(facts->kv_known && facts->kv_exact && !facts->encoder);
    return facts;
}

static void refused(gw *w, const char *code, const char *words) {
    kit_file_refused(w, BT_E_FORMAT, code, words);
    gw_done(w);
}

static void is_state(const bt_facts *f, uint32_t block, uint32_t conv, uint32_t state) {
    assert_int_equal(f->kv[block].conv_width, conv);
    assert_int_equal(f->kv[block].ssm_width, state);
    assert_int_equal(f->kv[block].k_width + f->kv[block].v_width, 0);
}

static void is_attention(const bt_facts *f, uint32_t block) {
    assert_int_equal(f->kv[block].conv_width + f->kv[block].ssm_width, 0);
    assert_true(f->kv[block].k_width > 0);
}

/* LFM2: E (l_cache - 1), and no state; the blocks without heads of keys. */
static void short_convolution(void **state) {
    (void)state;
    gw w;
    gw_model m = kit_small;
    m.arch = "lfm2", m.n_block = 3, m.no_heads = true;
    for (uint32_t l_cache = 0; l_cache < 5; l_cache += 4) {
        gw_init(&w), gw_model_all(&w, &m);
        gw_u32(&w, "lfm2.attention.head_count", 4);
        gw_u32s(&w, "lfm2.attention.head_count_kv", (uint32_t[]){0, 2, 0}, 3);
        gw_u32(&w, "lfm2.shortconv.l_cache", l_cache);
        if (l_cache == 0) refused(&w, "model_shape", "more elements than can be counted");
    }
    bt_facts *f = opened(&w);
    is_state(f, 0, 256 * 3, 0);
    is_attention(f, 1);
    assert_int_equal(f->kv[1].k_width, 2 * 64);
    is_state(f, 2, 256 * 3, 0);
    bt_facts_close(f);
    gw_init(&w), gw_model_all(&w, &m), gw_u32(&w, "lfm2.attention.head_count", 4);
    refused(&w, "gguf_key_missing", "key 'lfm2.shortconv.l_cache' is missing");
}

/* RWKV: E x shifts, which are 2 unless the file says so, and E x head. */
static void token_shift(void **state) {
    (void)state;
    gw w;
    kit_begin(&w, "rwkv7", 2), gw_u32(&w, "rwkv7.wkv.head_size", 64);
    bt_facts *f = opened(&w);
    is_state(f, 0, 256 * 2, 256 * 64);
    is_state(f, 1, 256 * 2, 256 * 64);
    bt_facts_close(f);
    kit_begin(&w, "rwkv6qwen2", 2), gw_u32(&w, "rwkv6qwen2.wkv.head_size", 32);
    gw_u32(&w, "rwkv6qwen2.token_shift_count", 1);
    f = opened(&w);
    is_state(f, 1, 256, 256 * 32);
    bt_facts_close(f);
    kit_begin(&w, "rwkv6", 2), refused(&w, "gguf_key_missing", "key 'rwkv6.wkv.head_size' is missing");
    kit_begin(&w, "rwkv6", 2), gw_u32(&w, "rwkv6.wkv.head_size", 1u << 30);
    refused(&w, "model_shape", "more elements than can be counted");
}

/* KDA: 3 (conv - 1) H d + H d^2; a convolution of 0 is one of 4. */
static void delta_attention(void **state) {
    (void)state;
    gw w;
    gw_model m = kit_small;
    m.arch = "kimi-linear", m.n_block = 2, m.no_heads = true;
    static const uint32_t kernels[] = {3, 0};
    for (size_t i = 0; i < 2; i++) {
        gw_init(&w), gw_model_all(&w, &m);
        gw_u32(&w, "kimi-linear.attention.head_count", 4);
        gw_u32s(&w, "kimi-linear.attention.head_count_kv", (uint32_t[]){0, 4}, 2);
        gw_u32(&w, "kimi-linear.kda.head_dim", 64), gw_u32(&w, "kimi-linear.ssm.conv_kernel", kernels[i]);
        bt_facts *f = opened(&w);
        is_state(f, 0, 3 * (kernels[i] > 0 ? 2 : 3) * 4 * 64, 4 * 64 * 64);
        is_attention(f, 1);
        bt_facts_close(f);
    }
    gw_init(&w), gw_model_all(&w, &m), gw_u32(&w, "kimi-linear.attention.head_count", 4);
    gw_u32(&w, "kimi-linear.kda.head_dim", 1u << 20), gw_u32(&w, "kimi-linear.ssm.conv_kernel", 4);
    refused(&w, "model_shape", "more elements than can be counted");
}

static void ssm(gw *w, const char *arch) {
    char name[64];
    (void)snprintf(name, sizeof name, "%s.ssm.conv_kernel", arch), gw_u32(w, name, 4);
    (void)snprintf(name, sizeof name, "%s.ssm.inner_size", arch), gw_u32(w, name, 64);
    (void)snprintf(name, sizeof name, "%s.ssm.state_size", arch), gw_u32(w, name, 16);
}

/* Nemotron H: a block is a mixer, or attention, or a feed-forward, which keeps nothing. */
static void a_feed_forward_keeps_nothing(void **state) {
    (void)state;
    gw w;
    gw_model m = {.arch = "nemotron_h", .n_block = 3, .n_embd = 256, .n_vocab = 1024, .type = 8, .no_heads = true};
    gw_init(&w), gw_string(&w, "general.architecture", "nemotron_h"), gw_u32(&w, "nemotron_h.block_count", 3);
    gw_u32(&w, "nemotron_h.context_length", 2048), gw_u32(&w, "nemotron_h.embedding_length", 256);
    gw_u32(&w, "nemotron_h.attention.head_count", 4);
    gw_u32s(&w, "nemotron_h.attention.head_count_kv", (uint32_t[]){0, 2, 0}, 3);
    gw_u32s(&w, "nemotron_h.feed_forward_length", (uint32_t[]){0, 0, 512}, 3);
    ssm(&w, "nemotron_h");
    m.n_ff = 512, gw_model_tensors(&w, &m);
    bt_facts *f = opened(&w);
    is_state(f, 0, 3 * 64, 16 * 64);
    is_attention(f, 1);
    is_state(f, 2, 0, 0);
    bt_facts_close(f);
}

/* Falcon H1 has both in each block; Qwen3.5 may list its blocks. */
static void beside_and_listed(void **state) {
    (void)state;
    gw w;
    kit_begin(&w, "falcon-h1", 1), ssm(&w, "falcon-h1");
    bt_facts *f = opened(&w);
    assert_int_equal(f->kv[0].conv_width, 3 * 64);
    assert_int_equal(f->kv[0].ssm_width, 16 * 64);
    assert_int_equal(f->kv[0].k_width, 2 * 64);
    bt_facts_close(f);
    kit_begin(&w, "qwen35", 3), ssm(&w, "qwen35");
    gw_bools(&w, "qwen35.attention.recurrent_layers", (bool[]){false, true, false}, 3);
    f = opened(&w);
    is_attention(f, 0);
    is_state(f, 1, 3 * 64, 16 * 64);
    is_attention(f, 2);
    bt_facts_close(f);
    assert_int_equal(bt_heap_live_bytes(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_convolution), cmocka_unit_test(token_shift),
        cmocka_unit_test(delta_attention),   cmocka_unit_test(a_feed_forward_keeps_nothing),
        cmocka_unit_test(beside_and_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
