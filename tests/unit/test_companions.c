/* SPDX-License-Identifier: MIT
 * test_companions.c: prices of a draft model and of a projector, from facts made by hand. User cases 4, 5, 6, 60. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kv_kit.h"

#include "plan/companions.h"
#include "plan/plan.h"

#include <string.h>

#define MIB (UINT64_C(1) << 20)

static bt_kv_block target_kv[32], draft_kv[8];
static uint64_t target_marks[125], draft_marks[125]; /* of 32,000 tokens */
static bt_facts target, draft;
static bt_wishes wishes;
static bt_base_costs base;
static bt_costs costs;

static int setup(void **state) {
    (void)state;
    wishes = (bt_wishes){.type_k = 8, .type_v = 8, .n_threads = 2};
    base = (bt_base_costs){.vocab_per_token_bytes = 100};
    target = (bt_facts){.path = "m/big.gguf",
                        .tokenizer = "llama",
                        .tokenizer_pre = "default",
                        .n_embd = 4096,
                        .n_vocab = 32000,
                        .n_ff = 11008,
                        .n_block = 32,
                        .n_head = 32,
                        .kv_known = true,
                        .kv = target_kv,
                        .n_ctx_train = 131072,
                        .vocab_marks = target_marks,
                        .n_vocab_marks = 125};
    draft = (bt_facts){.path = "m/small.gguf",
                       .tokenizer = "llama",
                       .tokenizer_pre = "default",
                       .n_embd = 1024,
                       .n_vocab = 32000,
                       .n_ff = 2816,
                       .n_block = 8,
                       .n_head = 8,
                       .kv_known = true,
                       .kv = draft_kv,
                       .n_ctx_train = 2048,
                       .weight_bytes = 70 * MIB,
                       .arena_bytes = 5000,
                       .vocab_marks = draft_marks,
                       .n_vocab_marks = 125};
    for (int b = 0; b < 32; b++)
        target_kv[b] = (bt_kv_block){.k_width = 1024, .v_width = 1024};
    for (int b = 0; b < 8; b++)
        draft_kv[b] = (bt_kv_block){.k_width = 512, .v_width = 512};
    for (uint64_t i = 0; i < 125; i++)
        target_marks[i] = draft_marks[i] = i * UINT64_C(0x9e3779b97f4a7c15);
    assert_int_equal(bt_costs_formula(&target, &wishes, &base, 512, &costs, NULL), BT_OK);
    return 0;
}

/* ---- the draft's vocabulary (user case 60) ---- */

static void refused(const char *words) {
    bt_error err = {0};
    assert_int_equal(bt_companion_draft_check(&target, &draft, &err), BT_E_ARG);
    assert_string_equal(err.code, "draft_vocab");
    if (!strstr(err.text, words) || !strstr(err.text, "small.gguf") || !strstr(err.text, "big.gguf"))
        fail_msg("\"%s\" does not say \"%s\" and both names", err.text, words);
}

static void test_vocabulary(void **state) {
    (void)state;
    assert_int_equal(bt_companion_draft_check(&target, &draft, NULL), BT_OK);
    draft.tokenizer = "gpt2";
    refused("tokenizer is gpt2, not llama");
    draft.tokenizer = "llama";
    draft.tokenizer_pre = "starcoder";
    refused("pre-tokenizer is starcoder, not default");
    draft.tokenizer_pre = ""; /* files of before there was the key */
    assert_int_equal(bt_companion_draft_check(&target, &draft, NULL), BT_OK);
    draft_marks[124] ^= 1; /* the last run is a short one, and counts */
    refused("they differ between 31749 and 32004");
    draft_marks[124] ^= 1;
    draft_marks[0] ^= 1;
    refused("they differ between 5 and 260");
}

/* A padded vocabulary (Qwen 2.5: 151,936 and 152,064) is the same one, up to what llama.cpp lets pass. */
static void test_padded_vocabulary(void **state) {
    (void)state;
    draft.n_vocab = 32000 - 128;
    draft_marks[124] ^= 1; /* a run that only one of them has in full */
    assert_int_equal(bt_companion_draft_check(&target, &draft, NULL), BT_OK);
    draft_marks[123] ^= 1;
    refused("they differ between 31493 and 31748");
    draft.n_vocab = 32000 - 129;
    refused("it has 31871 of them, not 32000");
    draft.n_vocab = 32000;
    draft.n_vocab_marks = 0; /* a file that holds no tokens */
    refused("they differ");
}

/* ---- the draft's prices (user case 6) ---- */

static uint64_t line_at(uint32_t n_ctx, bt_line line) {
    bt_ledger ledger;
    assert_true(bt_costs_at(&costs, n_ctx, &ledger));
    return ledger.bytes[line];
}

static void test_draft_lines(void **state) {
    (void)state;
    bt_costs alone = costs;
    assert_int_equal(bt_companion_draft_add(&target, &draft, &wishes, &base, &costs, NULL), BT_OK);
    assert_int_equal(line_at(8192, BT_LINE_DRAFT_WEIGHTS), 70 * MIB);
    /* f16 whatever the model's cache is; its own trained length, 2048, plays no part */
    assert_int_equal(line_at(8192, BT_LINE_DRAFT_KV), UINT64_C(8) * 8192 * (512 + 512) * 2);
    assert_int_equal(line_at(16384, BT_LINE_DRAFT_KV), 2 * line_at(8192, BT_LINE_DRAFT_KV));
    uint64_t kv = 0;
    assert_true(kv_bytes(&draft, 8192, 1, 512, 1, 1, &kv));
    assert_int_equal(line_at(8192, BT_LINE_DRAFT_KV), kv);
    bt_costs own;
    bt_wishes its = wishes; /* compute depends on the cache's type, too */
    its.type_k = its.type_v = 1;
    assert_int_equal(bt_costs_formula(&draft, &its, &base, 512, &own, NULL), BT_OK);
    bt_ledger ledger;
    assert_true(bt_costs_at(&own, 8192, &ledger));
    uint64_t checked = UINT64_C(4) * 32000 * BT_DRAFT_TOKENS_MAX;
    assert_int_equal(line_at(8192, BT_LINE_DRAFT_COMPUTE),
                     ledger.bytes[BT_LINE_COMPUTE] + ledger.bytes[BT_LINE_LOGITS] + checked);
    assert_int_equal(line_at(8192, BT_LINE_DRAFT_VOCAB), ledger.bytes[BT_LINE_VOCAB] + ledger.bytes[BT_LINE_METADATA]);
    for (int i = 0; i <= BT_LINE_STAGING; i++) /* and the model's own lines are as they were */
        assert_memory_equal(&costs.line[i], &alone.line[i], sizeof alone.line[i]);
    /* it is loaded beside the model's vocabulary, when none of its weights are there */
    uint64_t held = line_at(8192, BT_LINE_VOCAB) + line_at(8192, BT_LINE_METADATA) + line_at(8192, BT_LINE_OUTPUT_NORM);
    assert_int_equal(costs.load_peak_bytes, own.load_peak_bytes + held);
    assert_true(costs.load_peak_bytes > alone.load_peak_bytes);
    assert_int_equal(bt_companions_held_bytes(&costs), 0);
}

/* Weights are pinned in whole pages. */
static void test_draft_margins(void **state) {
    (void)state;
    bt_unit_facts units[2] = {{.bytes = 30 * MIB, .image_bytes = 30 * MIB + 4096},
                              {.bytes = 39 * MIB, .image_bytes = 39 * MIB + 8192}};
    draft.units = units;
    draft.n_units = 2;
    draft.small_bytes = MIB;
    assert_int_equal(bt_companion_draft_add(&target, &draft, &wishes, &base, &costs, NULL), BT_OK);
    assert_int_equal(line_at(8192, BT_LINE_DRAFT_WEIGHTS), 70 * MIB + 4096 + 8192 + 4096);
}

/* Windows of the draft are priced exactly where the model has none, and never below what they take. */
static void test_draft_windows(void **state) {
    (void)state;
    for (int b = 0; b < 8; b++)
        draft_kv[b].window = b % 2 ? 0 : 1024;
    bt_costs without = costs;
    for (uint32_t cells = 0; cells <= 4096; cells += 1024) {
        costs = without;
        costs.window_cells = cells;
        assert_int_equal(bt_companion_draft_add(&target, &draft, &wishes, &base, &costs, NULL), BT_OK);
        for (uint32_t n_ctx = 256; n_ctx <= 16384; n_ctx *= 2) {
            uint64_t kv = 0;
            assert_true(kv_bytes(&draft, n_ctx, 1, 512, 1, 1, &kv));
            assert_true(line_at(n_ctx, BT_LINE_DRAFT_KV) >= kv);
            if (cells == 0) assert_int_equal(line_at(n_ctx, BT_LINE_DRAFT_KV), kv);
        }
        if (cells > 0) assert_int_equal(costs.window_cells, cells);
    }
}

static void test_draft_errors(void **state) {
    (void)state;
    bt_error err = {0};
    draft.kv_known = false;
    strcpy(draft.kv_reason, "its state is recurrent");
    assert_int_equal(bt_companion_draft_add(&target, &draft, &wishes, &base, &costs, &err), BT_E_UNSUPPORTED);
    assert_string_equal(err.code, "draft_kv");
    assert_non_null(strstr(err.text, "its state is recurrent"));
    draft.kv_known = true;
    draft.weight_bytes = UINT64_MAX - 1;
    assert_int_equal(bt_companion_draft_add(&target, &draft, &wishes, &base, &costs, &err), BT_E_LIMIT);
    assert_string_equal(err.code, "plan_size");
}

/* With the context left to the plan, the draft's KV follows what is chosen, and stands in the same pool. */
static void test_draft_in_a_plan(void **state) {
    (void)state;
    bt_arena *arena = bt_arena_open(MIB, 4096);
    bt_plan_unit unit = {.pinned_bytes = MIB, .slot_bytes = MIB, .read_bytes = MIB};
    bt_companion named = {.file = "small.gguf", .weight_bytes = 70 * MIB};
    bt_problem problem = {.costs = &costs,
                          .n_costs = 1,
                          .units = &unit,
                          .n_units = 1,
                          .wishes = wishes,
                          .n_ctx_train = 131072,
                          .n_ctx_default_cap = 4096,
                          .budget_state = BT_READING_REPORTED,
                          .kv_known = true,
                          .draft = &named};
    assert_int_equal(bt_companion_draft_add(&target, &draft, &wishes, &base, &costs, NULL), BT_OK);
    uint32_t contexts[2];
    for (int i = 0; i < 2; i++) {
        bt_plan plan;
        problem.budget_bytes = i == 0 ? 800 * MIB : 400 * MIB;
        assert_int_equal(bt_plan_make(&problem, arena, &plan, NULL), BT_OK);
        assert_int_equal(plan.verdict, BT_FITS);
        assert_int_equal(plan.ledger.bytes[BT_LINE_DRAFT_KV], UINT64_C(8) * plan.n_ctx * 2048);
        assert_int_equal(plan.planned_bytes, bt_ledger_sum(&plan.ledger));
        assert_true(plan.planned_bytes <= problem.budget_bytes);
        assert_string_equal(plan.draft.file, "small.gguf");
        assert_string_equal(plan.mmproj.file, "");
        assert_true(bt_plan_has_line(&plan, BT_LINE_DRAFT_KV) && !bt_plan_has_line(&plan, BT_LINE_MMPROJ_ENCODE));
        contexts[i] = plan.n_ctx;
        /* what is left for weights of the model: nothing of the draft counts as that */
        uint64_t beside =
            plan.planned_bytes - plan.ledger.bytes[BT_LINE_PINNED] - plan.ledger.bytes[BT_LINE_OUTPUT_NORM];
        assert_int_equal(plan.ceiling_bytes, problem.budget_bytes - beside);
    }
    assert_int_equal(contexts[0], 4096);
    assert_true(contexts[1] < 4096 && contexts[1] >= 256);
    bt_arena_close(arena);
}

/* ---- the projector (user cases 4, 5) ---- */

/* Mistral Small 3.1's: 1540 px, patches of 14, four of them a token. */
static bt_projector pixtral(void) {
    return (bt_projector){.path = "mm/mmproj.gguf",
                          .vision = {.exists = true,
                                     .type = "pixtral",
                                     .known = true,
                                     .rule = BT_IMAGE_TOKENS,
                                     .n_embd = 1024,
                                     .n_ff = 4096,
                                     .n_block = 24,
                                     .n_head = 16,
                                     .patch_px = 14,
                                     .image_px = 1540,
                                     .merge = 2,
                                     .n_tokens_max = 1024,
                                     .n_tiles_max = 1,
                                     .gated = true,
                                     .reuses = true,
                                     .n_attention_embd = 6,
                                     .n_forward_embd = 4,
                                     .n_hidden_live = 2,
                                     .n_hidden = 5120,
                                     .sides = {5120, 1024, 4096},
                                     .n_sides = 3},
                          .weight_bytes = 837 * MIB,
                          .tensor_bytes = 50 * MIB};
}

static void test_projector_lines(void **state) {
    (void)state;
    bt_projector p = pixtral();
    bt_encode_ask ask = {.n_embd = 5120, .n_tokens_max = 110 * 110 / 4, .n_threads = 2};
    bt_encode_size size = bt_encode_size_of(&p.vision, &ask);
    assert_int_equal(size.n_patches, 110 * 110);
    assert_int_equal(size.edge_px, 1540);
    bt_costs alone = costs;
    bt_costs half = costs;
    assert_int_equal(bt_companion_mmproj_add(&p, &ask, &costs, NULL), BT_OK);
    ask.n_tokens_max /= 2;
    assert_int_equal(bt_companion_mmproj_add(&p, &ask, &half, NULL), BT_OK);
    assert_int_equal(costs.line[BT_LINE_MMPROJ_WEIGHTS].fixed_bytes, 837 * MIB);
    assert_int_equal(half.line[BT_LINE_MMPROJ_WEIGHTS].fixed_bytes, 837 * MIB);
    uint64_t whole = costs.line[BT_LINE_MMPROJ_ENCODE].fixed_bytes;
    assert_true(half.line[BT_LINE_MMPROJ_ENCODE].fixed_bytes < whole * 55 / 100); /* attention scores are not held */
    assert_int_equal(costs.load_peak_bytes, alone.load_peak_bytes + 837 * MIB);
    /* its own limit, where none is asked for */
    ask.n_tokens_max = 0;
    assert_int_equal(bt_encode_size_of(&p.vision, &ask).n_patches, 4096);
    /* scores of every head, without flash attention: nothing is rounded away at 12,100 patches */
    ask = (bt_encode_ask){.n_embd = 5120, .n_tokens_max = 3025, .n_threads = 2, .flash_off = true};
    uint64_t scores = 0;
    assert_int_equal(bt_encode_peak_bytes(&p, &ask, &scores, NULL), BT_OK);
    assert_true(scores > UINT64_C(4) * 16 * 12100 * 12100);
}

static void test_projector_grows_with_the_picture(void **state) {
    (void)state;
    bt_projector p = pixtral();
    uint64_t last = 0;
    for (uint32_t tokens = 1; tokens <= 1u << 20; tokens *= 2) {
        bt_encode_ask ask = {.n_embd = 5120, .n_tokens_max = tokens};
        uint64_t bytes = 0;
        assert_int_equal(bt_encode_peak_bytes(&p, &ask, &bytes, NULL), BT_OK);
        assert_true(bytes >= last);
        last = bytes;
    }
    p.vision.windows = true; /* a mask of patches by patches: four times the picture, sixteen times the mask */
    bt_encode_ask ask = {.n_embd = 5120, .n_tokens_max = 4096};
    uint64_t small = 0;
    uint64_t large = 0;
    assert_int_equal(bt_encode_peak_bytes(&p, &ask, &small, NULL), BT_OK);
    ask.n_tokens_max *= 4;
    assert_int_equal(bt_encode_peak_bytes(&p, &ask, &large, NULL), BT_OK);
    assert_true(large > 8 * small);
}

static void test_projector_errors(void **state) {
    (void)state;
    bt_projector p = pixtral();
    bt_encode_ask ask = {.n_embd = 4000};
    bt_error err = {0};
    uint64_t bytes = 7;
    assert_int_equal(bt_encode_peak_bytes(&p, &ask, &bytes, &err), BT_E_ARG);
    assert_string_equal(err.code, "mmproj_width");
    assert_non_null(strstr(err.text, "mmproj.gguf"));
    ask.n_embd = 5120;
    p.audio = (bt_encoder){.exists = true, .type = "lfm2a"};
    assert_int_equal(bt_encode_peak_bytes(&p, &ask, &bytes, &err), BT_E_UNSUPPORTED);
    assert_string_equal(err.code, "mmproj_unknown");
    assert_non_null(strstr(err.text, "lfm2a"));
    assert_int_equal(bytes, 7);
    p.audio.exists = false;
    p.tensor_bytes = UINT64_MAX;
    assert_int_equal(bt_encode_peak_bytes(&p, &ask, &bytes, &err), BT_E_LIMIT);
}

static void is_size(const bt_encoder *e, uint32_t n_tokens_asked, uint64_t n_patches, uint64_t n_tokens,
                    uint64_t edge_px) {
    bt_encode_ask ask = {.n_tokens_max = n_tokens_asked};
    bt_encode_size size = bt_encode_size_of(e, &ask);
    assert_int_equal(size.n_patches, n_patches);
    assert_int_equal(size.n_tokens, n_tokens);
    assert_int_equal(size.edge_px, edge_px);
}

/* The largest picture, in patches of 14 x 14, four of which are a token. */
static void test_largest_picture(void **state) {
    (void)state;
    bt_encoder e = {.rule = BT_IMAGE_TILE, .patch_px = 14, .merge = 2, .image_px = 448, .n_tokens_max = 1024};
    is_size(&e, 100, 32 * 32, 256, 448); /* a tile is a tile, whatever is asked */
    e.n_queries = 64;
    is_size(&e, 0, 32 * 32, 64, 448);
    e.n_queries = 0;
    e.rule = BT_IMAGE_TOKENS;
    is_size(&e, 0, 4096, 1024, 64 * 14);
    is_size(&e, 100, 400, 100, 20 * 14);
    e.rule = BT_IMAGE_PIXELS;
    e.pixels_max = 1000000; /* 5102 patches, 71.4 of them a side */
    is_size(&e, 100, 5102, 1276, 72 * 14);
    e.rule = BT_IMAGE_EDGE;
    is_size(&e, 0, 5102, 1276, 72 * 14);
    is_size(&e, 100, 400, 100, 20 * 14);
    is_size(&e, 2000, 5102, 1276, 72 * 14); /* no more than the file says */
    e.pixels_max = 0;
    is_size(&e, 0, 1, 1, 14); /* at least one */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_vocabulary, setup),
        cmocka_unit_test_setup(test_padded_vocabulary, setup),
        cmocka_unit_test_setup(test_draft_lines, setup),
        cmocka_unit_test_setup(test_draft_margins, setup),
        cmocka_unit_test_setup(test_draft_windows, setup),
        cmocka_unit_test_setup(test_draft_errors, setup),
        cmocka_unit_test_setup(test_draft_in_a_plan, setup),
        cmocka_unit_test_setup(test_projector_lines, setup),
        cmocka_unit_test_setup(test_projector_grows_with_the_picture, setup),
        cmocka_unit_test_setup(test_projector_errors, setup),
        cmocka_unit_test(test_largest_picture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
