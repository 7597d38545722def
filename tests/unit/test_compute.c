/* SPDX-License-Identifier: MIT
 * test_compute.c: the fullest moment of each kind of graph, added up by hand from the table of docs/prices.md
 * ("Compute"): recurrent mixers and their states, per-layer embeddings, latent attention, encoders; operands.
 *
 * E = 1000 and u = 512 everywhere. Whether the table is right is for tests/truth/test_architectures.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/costs.h"
#include "plan/price.h"

#include <stdio.h>

#define E     UINT64_C(1000)
#define U     UINT64_C(512)
#define F32   0u
#define F16   1u
#define Q4_K  12u
#define N_MAX 12u

static bt_tensor tensors[N_MAX];
static char names[N_MAX][48];
static bt_kv_block kv[1];
static bt_facts facts;
static bt_wishes wishes;

static int set_up(void **state) {
    (void)state;
    kv[0] = (bt_kv_block){0};
    facts = (bt_facts){.n_embd = E, .n_block = 1, .kv_known = true, .kv = kv, .tensors = tensors};
    wishes = (bt_wishes){.type_k = 1, .type_v = 1, .n_parallel = 1, .flash_attn = BT_ON};
    return 0;
}

static void add_typed(const char *part, uint32_t type, uint64_t ne0, uint64_t ne1, uint64_t ne2, uint64_t ne3) {
    uint32_t n = facts.n_tensors++;
    assert_true(n < N_MAX);
    (void)snprintf(names[n], sizeof names[n], "blk.0.%s.weight", part);
    tensors[n] = (bt_tensor){.name = names[n],
                             .type = type,
                             .n_dims = ne3 > 1   ? 4
                                       : ne2 > 1 ? 3
                                                 : 2,
                             .ne = {ne0, ne1, ne2, ne3},
                             .role = BT_ROLE_UNIT};
}

static void add(const char *part, uint64_t ne0, uint64_t ne1) {
    add_typed(part, Q4_K, ne0, ne1, 1, 1);
}

/* One of no block. */
static void add_outside(const char *part, uint64_t ne0, uint64_t ne2) {
    uint32_t n = facts.n_tensors;
    add_typed(part, Q4_K, ne0, 8, ne2, 1);
    (void)snprintf(names[n], sizeof names[n], "%s.weight", part);
    tensors[n].block = -1;
}

/* An input that embeddings could be given by, and a moment of so many elements a token, and so many of a sequence. */
static void expect(uint64_t moment, uint64_t of_sequence) {
    bt_cost cost = bt_graph_cost(&facts, &wishes, U);
    assert_int_equal(cost.fixed_bytes, 4 * U * E + 4 * U * moment + 4 * of_sequence * wishes.n_parallel);
}

static void mamba(void **state) {
    (void)state;
    kv[0].ssm_width = 3000;
    add("ssm_in", E, 4000), add("ssm_conv1d", 4, 2200), add("ssm_out", 2000, E);
    expect(2 * E + 4000 + 2 * 2200 + 2000, 3000 + 3 * 2200);
    wishes.n_parallel = 4;
    expect(2 * E + 4000 + 2 * 2200 + 2000, 3000 + 3 * 2200);
    /* Nemotron H: a feed-forward without a gate starts above what the mixer has kept */
    add("ffn_up", E, 9000), add("ffn_down", 9000, E);
    expect(2 * E + 4000 + 2200 + 9000, 3000 + 3 * 2200);
    assert_int_equal(bt_graph_cost(&facts, &wishes, U).per_ctx_bytes, 0); /* there is no cache */
}

/* Granite 4 with experts: the mixer's input, twice, is the hole under them. */
static void mamba_with_experts(void **state) {
    (void)state;
    facts.n_expert = 16, facts.n_expert_used = 4;
    add("ssm_in", E, 400), add("ssm_conv1d", 4, 220), add("ssm_out", 200, E), add("ffn_norm", E, 1);
    add_typed("ffn_gate_exps", Q4_K, E, 800, 16, 1), add_typed("ffn_down_exps", Q4_K, 800, E, 16, 1);
    expect(2 * E + 2 * E + 3 * 4 * 800 + 2 * 16, 0);
}

static void delta_net(void **state) {
    (void)state;
    kv[0].ssm_width = 5000;
    add("attn_gate", E, 2048), add("ssm_conv1d", 4, 4096), add("ssm_out", 2048, E);
    expect(2 * E + 3 * 4096 + 2 * 2048, 2 * 5000);
    wishes.n_parallel = 3; /* those of idle sequences are copied apart */
    expect(2 * E + 3 * 4096 + 2 * 2048, 3 * 5000);
}

static void rwkv(void **state) {
    (void)state;
    kv[0].ssm_width = 640;
    add_typed("time_mix_lerp_fused", F32, E, 1, 1, 6), add("channel_mix_value", 3500, E);
    expect(18 * E, 2 * 640);
    tensors[0].ne[3] = 5;
    expect(13 * E, 2 * 640);
}

/* Gemma 3n, whose stream is four, and Gemma 4. */
static void per_layer_embeddings(void **state) {
    (void)state;
    facts.n_head = 8;
    add_outside("per_layer_token_embd", 7680, 1), add_outside("altup_proj", E, 3);
    add("attn_output", 2048, E), add("ffn_norm", E, 1), add("ffn_gate", E, 500), add("ffn_down", 500, E);
    expect(8 * E + 3 * 7680, 0); /* while they are made */
    tensors[5].ne[0] = 10000;
    expect((4 + 5) * E + 7680 + 3 * 10000, 0);
    tensors[1].role = BT_ROLE_UNUSED;
    expect(2 * E + 2048 + 7680 + 3 * 10000, 0);
}

static void latent(void **state) {
    (void)state;
    facts.latent = true, facts.n_head = 16;
    kv[0].k_width = 576;
    add("attn_q_b", 1536, 16 * 192), add("attn_kv_a_norm", 512, 1), add("attn_kv_a_mqa", E, 576);
    add("attn_output", 2048, E);
    expect(3 * E + UINT64_C(16) * (192 + 2 * 64 + 2 * 512 + 64), 0);
    assert_int_equal(bt_graph_cost(&facts, &wishes, U).per_ctx_bytes, 2 * U); /* the mask */
    add("indexer.attn_q_b", 1536, 1024);
    expect(3 * E + E + 3 * 1024 + UINT64_C(16) * (192 + 2 * 64 + 2 * 512 + 64), 0);
    assert_int_equal(bt_graph_cost(&facts, &wishes, U).per_ctx_bytes, 2 * U + 8 * U); /* scores, and who is chosen */
}

/* No cache: mask and scores are of the micro-batch itself. */
static void encoder(void **state) {
    (void)state;
    facts.encoder = true, facts.n_head = 4;
    add("attn_q", E, E), add("attn_output", E, E), add("attn_output_norm", E, 1), add("ffn_down", 4000, E);
    assert_int_equal(bt_graph_cost(&facts, &wishes, U).fixed_bytes, 4 * U * E + 2 * U * U + 4 * U * (2 * E + 4000));
    wishes.flash_attn = BT_OFF;
    /* stream, queries and values, and four heads' scores: a little more than the feed-forward and what attention put
     * out */
    assert_int_equal(bt_graph_cost(&facts, &wishes, U).fixed_bytes,
                     4 * U * E + 4 * U * U + 4 * U * (2 * E + 3 * E) + 4 * 4 * U * U);
    facts.n_head = 2;
    assert_int_equal(bt_graph_cost(&facts, &wishes, U).fixed_bytes, 4 * U * E + 4 * U * U + 4 * U * (2 * E + 4000 + E));
}

/* A matrix product converts its other side to the type that its kernel wants: F16 to two bytes, F32 to none. */
static void operands(void **state) {
    (void)state;
    add_typed("attn_k_b", F32, 512, 64, 16, 1); /* a stack: a column for each head */
    uint64_t without = bt_compute_cost(&facts, &wishes, U, 2).fixed_bytes;
    tensors[0].type = F16;
    assert_int_equal(bt_compute_cost(&facts, &wishes, U, 2).fixed_bytes - without, UINT64_C(2) * 512 * 16 * U);
    tensors[0].type = Q4_K;
    assert_int_equal(bt_compute_cost(&facts, &wishes, U, 2).fixed_bytes - without, UINT64_C(512) * 292 / 256 * 16 * U);
    /* half a MiB more for each thread; none asked for is one */
    assert_int_equal(bt_compute_cost(&facts, &wishes, U, 3).fixed_bytes - without,
                     UINT64_C(512) * 292 / 256 * 16 * U + (512u << 10));
    assert_int_equal(bt_compute_cost(&facts, &wishes, U, 0).fixed_bytes,
                     bt_compute_cost(&facts, &wishes, U, 1).fixed_bytes);
}

#define T(test) cmocka_unit_test_setup(test, set_up)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(mamba),   T(mamba_with_experts), T(delta_net), T(rwkv), T(per_layer_embeddings), T(latent),
        T(encoder), T(operands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
