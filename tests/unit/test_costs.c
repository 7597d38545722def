/* SPDX-License-Identifier: MIT
 * test_costs.c: prices by formula: the KV and compute numbers that research notes, llama.cpp measured (2.6, 3.2), the
 * units, and every other line by its own formula. Facts are made by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kv_kit.h"

#include "plan/costs.h"
#include "plan/plan.h"

#include <string.h>

#define KIB  UINT64_C(1024)
#define MIB  (UINT64_C(1) << 20)
#define F16  1u
#define Q8_0 8u
#define Q4_0 2u
#define Q4_K 12u

#define BLOCKS 64
static bt_kv_block kv[BLOCKS];
static bt_facts facts;

static void llama8b(void) {
    facts = (bt_facts){.n_embd = 4096,
                       .n_vocab = 128256,
                       .n_ff = 14336,
                       .n_block = 32,
                       .n_head = 32,
                       .kv_known = true,
                       .kv_exact = true,
                       .kv = kv};
    for (int b = 0; b < 32; b++)
        kv[b] = (bt_kv_block){.k_width = 1024, .v_width = 1024, .window = 0};
}

static void tinyllama(void) {
    facts = (bt_facts){
        .n_embd = 2048, .n_vocab = 32000, .n_ff = 5632, .n_block = 22, .n_head = 32, .kv_known = true, .kv = kv};
    for (int b = 0; b < 22; b++)
        kv[b] = (bt_kv_block){.k_width = 256, .v_width = 256, .window = 0};
}

/* 62 blocks, every sixth looks at everything, the others at 1024 tokens */
static void gemma3_27b(void) {
    facts = (bt_facts){
        .n_embd = 5376, .n_vocab = 262208, .n_ff = 21504, .n_block = 62, .n_head = 32, .kv_known = true, .kv = kv};
    for (int b = 0; b < 62; b++)
        kv[b] = (bt_kv_block){.k_width = 2048, .v_width = 2048, .window = b % 6 == 5 ? 0 : 1024};
}

static void gpt_oss_20b(void) {
    facts = (bt_facts){
        .n_embd = 2880, .n_vocab = 201088, .n_ff = 2880, .n_block = 24, .n_head = 64, .kv_known = true, .kv = kv};
    for (int b = 0; b < 24; b++)
        kv[b] = (bt_kv_block){.k_width = 512, .v_width = 512, .window = b % 2 == 0 ? 128 : 0};
}

static const bt_base_costs no_base = {0};
static bt_wishes wishes_of(uint32_t type) {
    return (bt_wishes){.type_k = type, .type_v = type, .n_threads = 1};
}

static uint64_t kv_mib(uint32_t n_ctx, uint32_t n_parallel, uint32_t n_ubatch, uint32_t type) {
    uint64_t bytes = 0;
    assert_true(kv_bytes(&facts, n_ctx, n_parallel, n_ubatch, type, type, &bytes));
    assert_int_equal(bytes % MIB, 0);
    return bytes / MIB;
}

/* The line of the cost model must say the same as the count, at every context. */
static void kv_line_agrees(uint32_t n_parallel, uint32_t n_ubatch, uint32_t type) {
    bt_wishes w = wishes_of(type);
    w.n_parallel = n_parallel;
    bt_costs costs;
    assert_int_equal(bt_costs_formula(&facts, &w, &no_base, n_ubatch, &costs, NULL), BT_OK);
    for (uint32_t n_ctx = 1; n_ctx < 40000; n_ctx = n_ctx * 3 / 2 + 1) {
        bt_ledger ledger;
        uint64_t bytes = 0;
        assert_true(bt_costs_at(&costs, n_ctx, &ledger));
        uint32_t rounded = (n_ctx + costs.ctx_align - 1) / costs.ctx_align * costs.ctx_align;
        assert_true(kv_bytes(&facts, rounded, n_parallel, n_ubatch, type, type, &bytes));
        assert_int_equal(ledger.bytes[BT_LINE_KV], bytes);
    }
}

static void kv_llama8b(void **state) {
    (void)state;
    llama8b();
    assert_int_equal(kv_mib(32768, 1, 512, F16), 4096);
    assert_int_equal(kv_mib(32768, 1, 512, Q8_0), 2176);
    kv_line_agrees(1, 512, F16);
    kv_line_agrees(4, 512, Q8_0);
}

static void kv_gemma3(void **state) {
    (void)state;
    gemma3_27b();
    assert_int_equal(kv_mib(32768, 1, 512, F16), 3184);
    assert_int_equal(kv_mib(32768, 1, 2048, F16), 3808);
    assert_int_equal(kv_mib(32768, 4, 512, F16), 5056);
    kv_line_agrees(1, 512, F16);
    kv_line_agrees(1, 64, F16);
    kv_line_agrees(4, 512, F16);
}

static void kv_gpt_oss(void **state) {
    (void)state;
    gpt_oss_20b();
    /* 12 x 2 KiB x 32768 + 12 x 2 KiB x 768 = 786 MiB */
    assert_int_equal(kv_mib(32768, 1, 512, F16), 786);
}

static void kv_tinyllama(void **state) {
    (void)state;
    tinyllama();
    uint64_t bytes = 0;
    /* research notes, seed 2 A3: 45056 bytes a token as fp32, half of it as f16; rounded to 256 tokens */
    assert_true(kv_bytes(&facts, 2048, 1, 512, F16, F16, &bytes));
    assert_int_equal(bytes, 22528 * 2048);
    assert_true(kv_bytes(&facts, 2049, 1, 512, F16, F16, &bytes));
    assert_int_equal(bytes, 22528 * 2304);
    assert_true(kv_bytes(&facts, 1, 0, 512, F16, Q4_0, &bytes));
    assert_int_equal(bytes, 22 * 256 * (512 + 256 / 32 * 18));
}

/* DeepSeek V3 and Qwen3.5 27B of the same table: rows of 512 + 64 for all heads; 48 states beside 16 blocks of KV. */
static void kv_latent_and_recurrent(void **state) {
    (void)state;
    facts = (bt_facts){.n_block = 61, .kv_known = true, .latent = true, .kv = kv};
    for (uint32_t b = 0; b < 61; b++)
        kv[b] = (bt_kv_block){.k_width = 576};
    uint64_t bytes = 0;
    assert_true(kv_bytes(&facts, 32768, 1, 512, F16, F16, &bytes));
    assert_int_equal(bytes, UINT64_C(61) * 32768 * 576 * 2);
    assert_int_equal((bytes + MIB / 2) / MIB, 2196); /* 2196.0 as llama.cpp prints it */
    facts = (bt_facts){.n_block = 64, .kv_known = true, .kv = kv};
    for (uint32_t b = 0; b < 64; b++)
        kv[b] = b % 4 == 3 ? (bt_kv_block){.k_width = 1024, .v_width = 1024}
                           : (bt_kv_block){.conv_width = 3 * (6144 + 2 * 16 * 128), .ssm_width = 128 * 6144};
    assert_true(kv_bytes(&facts, 32768, 1, 512, F16, F16, &bytes));
    assert_int_equal((bytes - 2048 * MIB) * 1000 / MIB, 149625); /* 149.6 MiB */
    assert_int_equal(bt_kv_state_bytes(&facts, 4), 4 * bt_kv_state_bytes(&facts, 1));
    assert_true(kv_bytes(&facts, 32768, 4, 512, F16, F16, &bytes));
    assert_int_equal((bytes - 2048 * MIB) * 10 / MIB, 5985); /* 598.5 MiB */
    kv_line_agrees(4, 512, F16);
}

/* One cache for all sequences: windows of each in it, the context not rounded for each. */
static void kv_unified(void **state) {
    (void)state;
    gemma3_27b();
    bt_wishes w = wishes_of(F16);
    w.n_parallel = 4;
    w.kv_unified = true;
    uint64_t bytes = 0;
    assert_true(bt_kv_price(&facts, &w, 32768, 512, &bytes));
    assert_int_equal(bytes / MIB, 4432);
    bt_costs costs;
    bt_ledger ledger;
    assert_int_equal(bt_costs_formula(&facts, &w, &no_base, 512, &costs, NULL), BT_OK);
    assert_int_equal(costs.ctx_align, 256);
    assert_true(bt_costs_at(&costs, 32768, &ledger));
    assert_int_equal(ledger.bytes[BT_LINE_KV], bytes);
}

static void refused_as(const bt_wishes *w, const char *code, const char *text) {
    bt_error err = {0};
    assert_int_equal(bt_kv_check(&facts, w, &err), BT_E_ARG);
    assert_string_equal(err.code, code);
    assert_non_null(strstr(err.text, text));
}

/* User case 61 and its neighbours: what llama_init_from_model would refuse, refused before. */
static void kv_refused(void **state) {
    (void)state;
    llama8b();
    facts.arch = "llama";
    facts.head_k = facts.head_v = facts.head_k_swa = facts.head_v_swa = 128;
    bt_wishes w = {.type_k = F16, .type_v = Q4_0, .flash_attn = BT_OFF, .n_threads = 1};
    refused_as(&w, "flash_attn", "--flash-attn off forbids");
    w.flash_attn = BT_AUTO;
    assert_int_equal(bt_kv_check(&facts, &w, NULL), BT_OK);
    facts.arch = "grok"; /* llama.cpp turns flash attention off for it */
    refused_as(&w, "flash_attn", "does not use for this architecture");
    facts.arch = "llama";
    facts.head_k = facts.head_v = facts.head_k_swa = facts.head_v_swa = 80;
    refused_as(&w, "kv_type", "values of type q4_0 need heads of a multiple of 32");
    w = (bt_wishes){.type_k = Q8_0, .type_v = F16, .flash_attn = BT_OFF, .n_threads = 1};
    assert_int_equal(bt_kv_check(&facts, &w, NULL), BT_OK); /* keys may be, rows and not heads are converted */
    w.flash_attn = BT_ON;
    refused_as(&w, "kv_type", "keys of type q8_0");
    facts.latent = true;
    refused_as(&w, "kv_type", "latent attention keeps one row for both");
}

/* Without flash attention values stand transposed, as wide as the widest block's. */
static void kv_transposed(void **state) {
    (void)state;
    facts = (bt_facts){.n_block = 2, .kv_known = true, .kv = kv, .v_width_max = 512};
    kv[0] = (bt_kv_block){.k_width = 256, .v_width = 256};
    kv[1] = (bt_kv_block){.k_width = 512, .v_width = 512};
    bt_wishes w = wishes_of(F16);
    uint64_t bytes = 0;
    assert_true(bt_kv_price(&facts, &w, 256, 512, &bytes));
    assert_int_equal(bytes, 256 * 2 * (256 + 256 + 512 + 512));
    w.flash_attn = BT_OFF;
    assert_true(bt_kv_price(&facts, &w, 256, 512, &bytes));
    assert_int_equal(bytes, 256 * 2 * (256 + 512 + 512 + 512));
}

static void kv_edges(void **state) {
    (void)state;
    uint64_t bytes = 5;
    facts = (bt_facts){.n_block = 2, .kv_known = true, .kv = kv};
    kv[0] = (bt_kv_block){0};                                         /* no KV */
    kv[1] = (bt_kv_block){.k_width = 576, .v_width = 0, .window = 0}; /* latent attention: K alone */
    assert_true(kv_bytes(&facts, 256, 1, 512, F16, F16, &bytes));
    assert_int_equal(bytes, 256 * 576 * 2);
    kv[1] = (bt_kv_block){.k_width = 40, .v_width = 40, .window = 0};
    assert_false(kv_bytes(&facts, 256, 1, 512, Q8_0, Q8_0, &bytes));
    bt_wishes w = wishes_of(Q8_0);
    bt_costs costs;
    bt_error err = {0};
    assert_int_equal(bt_costs_formula(&facts, &w, &no_base, 512, &costs, &err), BT_E_ARG);
    assert_string_equal(err.code, "kv_type");
}

/* What compute.c adds to the graph buffer when there is no tensor table: one thread's tile and its row of scores, and
 * the heap of a context of at least 1024 nodes. */
static uint64_t beside_graph(uint64_t n_ctx, uint64_t n_cells) {
    return 512 * KIB + 4 * n_ctx + 3744 * KIB + UINT64_C(1024) * 1300 + 152 * n_cells;
}

/* Measured with one row of logits and flash attention: the form is exact for llama, and above for gemma. */
static uint64_t compute_at(uint32_t n_ctx, uint32_t n_ubatch, bt_choice flash) {
    bt_wishes w = wishes_of(F16);
    w.flash_attn = flash;
    bt_costs costs;
    bt_ledger ledger;
    assert_int_equal(bt_costs_formula(&facts, &w, &no_base, n_ubatch, &costs, NULL), BT_OK);
    assert_true(bt_costs_at(&costs, n_ctx, &ledger));
    bool windows = facts.kv[0].window > 0;
    return ledger.bytes[BT_LINE_COMPUTE] - beside_graph(n_ctx, n_ctx + (windows ? costs.window_cells : 0));
}

static void compute_llama8b(void **state) {
    (void)state;
    llama8b();
    assert_int_equal(compute_at(32768, 512, BT_AUTO), 148 * MIB);
    assert_int_equal(compute_at(32768, 64, BT_ON), 148 * MIB / 8);
    assert_int_equal(compute_at(32768, 2048, BT_AUTO), 592 * MIB);
    /* off, 32k: scores of every head, and as F16 in the work area; masks of F32; four streams; where 1024 values go */
    assert_int_equal(compute_at(32768, 512, BT_OFF), (2048 + 1024 + 64 + 4 * 8 + 8 + 4) * MIB);
    /* short: the feed-forward is fuller than the scores, and the masks of where both are equal are small */
    uint64_t short_bytes = compute_at(512, 512, BT_OFF);
    assert_true(short_bytes >= (8 + 24 + 84 + 8) * MIB && short_bytes < (8 + 24 + 84 + 8 + 12) * MIB);
}

static void compute_gemma3(void **state) {
    (void)state;
    gemma3_27b();
    uint64_t bytes = compute_at(32768, 512, BT_AUTO);
    assert_true(bytes >= 199 * MIB && bytes < 203 * MIB);
}

static void compute_moe(void **state) {
    (void)state;
    /* qwen3moe 30B: 120.0 MiB */
    bt_tensor tensors[] = {{.name = "blk.0.ffn_gate_exps.weight", .type = Q4_K, .n_dims = 3, .ne = {2048, 768, 128, 1}},
                           {.name = "blk.0.ffn_up_exps.weight", .type = Q4_K, .n_dims = 3, .ne = {2048, 768, 128, 1}},
                           {.name = "blk.0.ffn_down_exps.weight", .type = Q4_K, .n_dims = 3, .ne = {768, 2048, 128, 1}},
                           {.name = "blk.0.attn_output.weight", .type = Q4_K, .n_dims = 2, .ne = {4096, 2048, 1, 1}},
                           {.name = "blk.0.ffn_norm.weight", .type = 0, .n_dims = 1, .ne = {2048, 1, 1, 1}}};
    bt_wishes w = wishes_of(F16);
    bt_costs costs;
    facts = (bt_facts){.n_embd = 2048,
                       .n_ff = 6144,
                       .n_expert = 128,
                       .n_expert_used = 8,
                       .n_head = 32,
                       .tensors = tensors,
                       .n_tensors = 5};
    assert_int_equal(bt_costs_formula(&facts, &w, &no_base, 512, &costs, NULL), BT_OK);
    uint64_t work = UINT64_C(6144) * 292 / 256 * 512 + UINT64_C(8) * 128 * 8 * 512; /* 8 rows of 768 */
    uint64_t router = UINT64_C(2) * 128 * 512 * 4;
    assert_int_equal(costs.line[BT_LINE_COMPUTE].fixed_bytes + 32768 * costs.line[BT_LINE_COMPUTE].per_ctx_bytes,
                     120 * MIB + work + router + UINT64_C(5) * 1100 + beside_graph(32768, 32768));
}

static void other_lines(void **state) {
    (void)state;
    llama8b();
    facts.arena_bytes = 1000;
    facts.n_tensors = 0;
    facts.small_bytes = 77777;
    bt_wishes w = wishes_of(F16);
    w.n_parallel = 3;
    w.n_threads = 4;
    const bt_base_costs base = {
        .base_bytes = 8 * MIB, .vocab_fixed_bytes = 5, .vocab_per_token_bytes = 300, .vocab_load_per_token_bytes = 400};
    bt_costs c;
    assert_int_equal(bt_costs_formula(&facts, &w, &base, 256, &c, NULL), BT_OK);
    assert_int_equal(c.line[BT_LINE_BASE].fixed_bytes, 8 * MIB);
    assert_int_equal(c.line[BT_LINE_VOCAB].fixed_bytes, 5 + UINT64_C(300) * 128256);
    assert_int_equal(c.line[BT_LINE_METADATA].fixed_bytes, 1000);
    /* three rows are 375.75 pages */
    assert_int_equal(c.line[BT_LINE_LOGITS].fixed_bytes, UINT64_C(376) * 4096 + UINT64_C(12) * 128256);
    assert_int_equal(c.line[BT_LINE_OUTPUT_NORM].fixed_bytes, 77777);
    assert_int_equal(c.line[BT_LINE_STAGING].fixed_bytes, 4 * MIB + 256 * KIB);
    assert_int_equal(c.line[BT_LINE_THREADS].fixed_bytes, UINT64_C(4) * 128 * KIB);
    assert_int_equal(c.line[BT_LINE_RING].fixed_bytes, 0);
    assert_int_equal(c.page_table_divisor, 512);
    assert_int_equal(c.ctx_align, 768);
    assert_int_equal(c.ctx_step, 768);
    assert_int_equal(c.ctx_min, 768);
    assert_int_equal(c.n_ubatch, 256);
    assert_int_equal(c.load_peak_bytes, 8 * MIB + 5 + UINT64_C(700) * 128256 + 1000 + 77777 + 4 * MIB + 256 * KIB);
}

static void unknown_kv_is_no_line(void **state) {
    (void)state;
    llama8b();
    facts.kv_known = false;
    bt_wishes w = wishes_of(F16);
    bt_costs c;
    assert_int_equal(bt_costs_formula(&facts, &w, &no_base, 512, &c, NULL), BT_OK);
    assert_int_equal(c.line[BT_LINE_KV].per_ctx_bytes, 0);
}

static void prices_out_of_range(void **state) {
    (void)state;
    llama8b();
    bt_wishes w = wishes_of(F16);
    const bt_base_costs base = {.vocab_per_token_bytes = UINT64_MAX / 2};
    bt_costs c;
    bt_error err = {0};
    assert_int_equal(bt_costs_formula(&facts, &w, &base, 512, &c, &err), BT_E_LIMIT);
    assert_string_equal(err.code, "plan_size");
}

static void units_of_facts(void **state) {
    (void)state;
    bt_tensor tensors[] = {{.name = "blk.0.ffn_up.weight", .row_bytes = 2304, .role = BT_ROLE_UNIT},
                           {.name = "token_embd.weight", .row_bytes = 2304, .role = BT_ROLE_TIED},
                           {.name = "position_embd.weight", .row_bytes = 8192, .role = BT_ROLE_TABLE}};
    uint32_t index[] = {0, 1, 2};
    bt_unit_facts units[] = {
        {.kind = BT_KIND_FEED_FORWARD, .image_bytes = 40960, .first_tensor = 0, .n_tensors = 1},
        {.kind = BT_KIND_HEAD, .image_bytes = 8192, .first_tensor = 1, .n_tensors = 1},
        {.kind = BT_KIND_HEAD, .image_bytes = 12288, .first_tensor = 1, .n_tensors = 1},
        {.kind = BT_KIND_TABLE, .image_bytes = 65536, .first_tensor = 2, .n_tensors = 1},
    };
    facts = (bt_facts){
        .tensors = tensors, .n_tensors = 3, .units = units, .n_units = 4, .unit_tensors = index, .n_unit_tensors = 3};
    bt_arena *arena = bt_arena_open(MIB, 4096);
    bt_plan_unit *u = NULL;
    assert_int_equal(bt_costs_units(&facts, false, arena, &u, NULL), BT_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(u[i].kind, units[i].kind);
        assert_int_equal(u[i].pinned_bytes, units[i].image_bytes);
        assert_int_equal(u[i].slot_bytes, units[i].image_bytes);
        assert_int_equal(u[i].read_bytes, units[i].image_bytes);
    }
    assert_int_equal(u[0].token_rows_bytes, 0);
    assert_int_equal(u[1].token_rows_bytes, 2304 + 4); /* a tied table: its rows, once */
    assert_int_equal(u[1].rows_bytes, 64 * 8192 + 8192);
    assert_int_equal(u[2].token_rows_bytes + u[2].rows_bytes, 0);
    assert_int_equal(u[3].token_rows_bytes, 8192 + 4);
    assert_int_equal(u[3].rows_bytes, 64 * 12288 + 8192);
    bt_arena_close(arena);
    bt_arena *full = bt_arena_open(64, 64);
    bt_error err = {0};
    assert_int_equal(bt_costs_units(&facts, false, full, &u, &err), BT_E_NOMEM);
    bt_arena_close(full);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kv_llama8b),
        cmocka_unit_test(kv_gemma3),
        cmocka_unit_test(kv_gpt_oss),
        cmocka_unit_test(kv_tinyllama),
        cmocka_unit_test(kv_latent_and_recurrent),
        cmocka_unit_test(kv_unified),
        cmocka_unit_test(kv_refused),
        cmocka_unit_test(kv_transposed),
        cmocka_unit_test(kv_edges),
        cmocka_unit_test(compute_llama8b),
        cmocka_unit_test(compute_gemma3),
        cmocka_unit_test(compute_moe),
        cmocka_unit_test(other_lines),
        cmocka_unit_test(unknown_kv_is_no_line),
        cmocka_unit_test(prices_out_of_range),
        cmocka_unit_test(units_of_facts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
