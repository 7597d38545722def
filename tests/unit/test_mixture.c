/* SPDX-License-Identifier: MIT
 * test_mixture.c: what a plan gives to the experts of a mixture (docs/design.md P6), added up by hand; and how it is
 * said.
 *
 * Three blocks of eight experts, of which a token uses two or four. A slot of the last block is twice as large. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/heap.h"
#include "model_kit.h"
#include "plan/costs.h"
#include "plan/plan.h"
#include "report/report.h"

#include <stdlib.h>

#define N_EXPERT 8u
#define PINNED   UINT64_C(10000) /* what every token reads, in one unit */
#define EACH     (UINT64_C(4096) + 4096 + 8192)
#define LEAST    (UINT64_C(2) * 8192) /* of the largest, in the costs */
#define FIXED    (UINT64_C(100000) + 10 * 256)

static const uint64_t slot_bytes[] = {4096, 4096, 8192};
static const uint64_t read_bytes[] = {4000, 4000, 8000};
static bt_costs costs;
static bt_plan_unit unit;
static bt_problem problem;
static bt_arena *arena;
static bt_plan plan;

static int set_up(void **state) {
    (void)state;
    costs = (bt_costs){.n_ubatch = 512, .n_parallel = 1, .type_k = 1, .type_v = 1};
    costs.ctx_align = costs.ctx_step = costs.ctx_min = 256;
    costs.line[BT_LINE_BASE].fixed_bytes = 100000;
    costs.line[BT_LINE_KV].per_ctx_bytes = 10;
    costs.line[BT_LINE_EXPERTS].fixed_bytes = LEAST;
    unit = (bt_plan_unit){PINNED, PINNED, PINNED, 0, 0, {0}, BT_KIND_ATTENTION};
    problem = (bt_problem){.costs = &costs,
                           .n_costs = 1,
                           .units = &unit,
                           .n_units = 1,
                           .wishes = {.budget_kind = BT_BUDGET_BYTES, .n_ctx = 256, .type_k = 1, .type_v = 1},
                           .n_ctx_train = 256,
                           .n_ctx_default_cap = 4096,
                           .budget_state = BT_READING_REPORTED,
                           .budget_source = "asked",
                           .disk_bytes_per_s = {true, 1000000},
                           .memory_bytes_per_s = {true, UINT64_C(1000000000)},
                           .expert_slot_bytes = slot_bytes,
                           .expert_read_bytes = read_bytes,
                           .n_expert_blocks = 3,
                           .n_expert = N_EXPERT,
                           .n_expert_used = 2,
                           .kv_known = true};
    plan = (bt_plan){0};
    arena = bt_arena_open(1 << 20, 64 << 10);
    return arena ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    bt_arena_close(arena);
    return bt_heap_live_blocks() == 0 ? 0 : -1;
}

/* A budget that leaves so much when everything that each token reads is pinned. */
static void plan_with_room(uint64_t room) {
    bt_error err = {0};
    problem.budget_bytes = problem.wishes.budget_bytes = FIXED + LEAST + PINNED + room;
    if (bt_plan_make(&problem, arena, &plan, &err) != BT_OK) fail_msg("%s", err.text);
    assert_int_equal(plan.planned_bytes, bt_ledger_sum(&plan.ledger));
    assert_true(plan.planned_bytes <= problem.budget_bytes);
}

static void expect_slots(uint32_t n_slots, uint32_t n_extra, bool shared, uint64_t bytes, uint64_t read) {
    assert_int_equal(plan.n_expert_slots, n_slots);
    assert_int_equal(plan.n_expert_extra, n_extra);
    assert_int_equal(plan.experts_shared, shared);
    assert_int_equal(plan.ledger.bytes[BT_LINE_EXPERTS], bytes);
    assert_int_equal(plan.read_bytes_per_pass, read);
}

static void everything_has_a_slot(void **state) {
    (void)state;
    plan_with_room(8 * EACH - LEAST);
    expect_slots(8, 0, false, 8 * EACH, 0);
    assert_int_equal(plan.verdict, BT_FITS);
    assert_false(plan.reuse_micro_tokens_per_s.known);
    /* one byte less, and the last block has one slot less: 8192 of two experts are read once in eight times */
    plan_with_room(8 * EACH - LEAST - 1);
    expect_slots(7, 2, false, 8 * EACH - 8192, 2 * 8000 / 8);
    assert_int_equal(plan.verdict, BT_STREAMS);
}

static void what_is_left_goes_to_the_first_blocks(void **state) {
    (void)state;
    plan_with_room(3 * EACH - LEAST + 4096 + 4095);
    /* of two used experts: 4 of 8 are missing in the first block, 5 in the others */
    expect_slots(3, 1, false, 3 * EACH + 4096, 8000 * 4 / 8 + 8000 * 5 / 8 + 16000 * 5 / 8);
    assert_int_equal(plan.verdict, BT_STREAMS);
    /* 19 ms of the disk at 1 MB/s; 35 of 100 less where tokens use the same ones: 12.35 ms */
    assert_int_equal(plan.forecast.micro_tokens_per_s.value, UINT64_C(1000000000) / 19);
    assert_int_equal(plan.reuse_micro_tokens_per_s.value, UINT64_C(1000000000000) / 12350);
}

static void too_few_are_shared(void **state) {
    (void)state;
    problem.n_expert_used = 4;
    plan_with_room(4 * EACH - LEAST - 1); /* four of each would keep something */
    expect_slots(4, 0, true, UINT64_C(4) * 8192, 4 * (4000 + 4000 + 8000));
    assert_false(plan.reuse_micro_tokens_per_s.known);
    plan_with_room(8192 + 50);
    expect_slots(3, 0, true, UINT64_C(3) * 8192, 64000);
    plan_with_room(8191);
    expect_slots(2, 0, true, LEAST, 64000);
    plan_with_room(4 * EACH - LEAST);
    expect_slots(4, 0, false, 4 * EACH, 32000);
}

/* Slots beyond the least have page tables too: one byte of 512, and one. */
static void slots_have_page_tables(void **state) {
    (void)state;
    costs.page_table_divisor = 512;
    problem.n_expert_used = 2;
    problem.budget_bytes = UINT64_MAX;
    problem.wishes.budget_kind = BT_BUDGET_OFF;
    bt_error err = {0};
    if (bt_plan_make(&problem, arena, &plan, &err) != BT_OK) fail_msg("%s", err.text);
    expect_slots(8, 0, false, 8 * EACH, 0);
    uint64_t without = plan.ledger.bytes[BT_LINE_PAGETABLES];
    problem.n_expert_blocks = 0;
    if (bt_plan_make(&problem, arena, &plan, &err) != BT_OK) fail_msg("%s", err.text);
    assert_int_equal(without - plan.ledger.bytes[BT_LINE_PAGETABLES], (8 * EACH - LEAST) / 512 + 1);
    assert_int_equal(plan.n_expert_slots, 0);
}

/* The rung on which nothing is read holds all experts; those below it the least. */
static void the_ladder_counts_them(void **state) {
    (void)state;
    plan_with_room(0);
    const bt_rung *all = &plan.ladder[BT_RUNG_ALL_PINNED], *least = &plan.ladder[BT_RUNG_MINIMUM];
    assert_true(all->exists && least->exists);
    assert_int_equal(all->budget_bytes, FIXED + PINNED + 8 * EACH);
    assert_int_equal(all->forecast.micro_tokens_per_s.value, UINT64_C(1000000000000) / 42); /* of memory: 42 us */
    assert_true(least->budget_bytes <= FIXED + LEAST + PINNED);
    assert_true(least->forecast.micro_tokens_per_s.value <= UINT64_C(1000000000) / 32); /* 32000 bytes of experts */
}

/* ---- a model's own numbers -------------------------------------------------------------------------------------- */

static bt_facts *mixture_file(void) {
    gw w;
    gw_init(&w), gw_model_all(&w, &kit_small);
    gw_u32(&w, "llama.expert_count", N_EXPERT), gw_u32(&w, "llama.expert_used_count", 2);
    gw_tensor_3d(&w, "blk.1.ffn_gate_exps.weight", 8, 256, 96, N_EXPERT);
    gw_tensor_3d(&w, "blk.1.ffn_up_exps.weight", 8, 256, 96, N_EXPERT);
    gw_tensor_3d(&w, "blk.1.ffn_down_exps.weight", 8, 96, 256, N_EXPERT);
    bt_facts *facts = kit_file_open(&w, "mixture.gguf");
    gw_done(&w);
    return facts;
}

static void of_a_file(void **state) {
    (void)state;
    bt_facts *facts = mixture_file();
    const uint64_t slice = UINT64_C(256) * 96 / 32 * 34; /* Q8_0: 34 bytes for 32 elements */
    assert_int_equal(facts->n_expert_blocks, 1);
    assert_int_equal(facts->expert_blocks[0].block, 1);
    assert_int_equal(facts->expert_blocks[0].expert_bytes, 3 * slice);
    /* 26112 bytes from anywhere in a page: eight pages */
    assert_int_equal(facts->expert_blocks[0].slot_bytes, UINT64_C(3) * 8 * 4096);
    /* for 100 tokens: I32 of two each, zeros, rows of 256 in and of 256 out; each begins at a cache line */
    bt_expert_work work = bt_facts_expert_work(facts, 100);
    assert_int_equal(work.numbers_bytes, 800);
    assert_int_equal(work.zeros_offset, 832);
    assert_int_equal(work.rows_offset, 832 + 448);
    assert_int_equal(work.results_offset, 832 + 448 + 4 * 256 * 100);
    assert_int_equal(work.bytes, (832 + 448 + 2 * 4 * 256 * 100 + 4095) / 4096 * 4096);
    /* what the planner is told of it */
    bt_problem told = {0};
    bt_error err = {0};
    assert_int_equal(bt_costs_experts(facts, arena, &told, &err), BT_OK);
    assert_int_equal(told.n_expert_blocks, 1);
    assert_int_equal(told.n_expert, N_EXPERT);
    assert_int_equal(told.n_expert_used, 2);
    assert_int_equal(told.expert_slot_bytes[0], facts->expert_blocks[0].slot_bytes);
    assert_int_equal(told.expert_read_bytes[0], 3 * slice);
    bt_wishes wishes = {.type_k = 1, .type_v = 1, .n_threads = 1};
    bt_base_costs base = {0};
    bt_costs priced;
    assert_int_equal(bt_costs_formula(facts, &wishes, &base, 100, &priced, &err), BT_OK);
    assert_int_equal(priced.line[BT_LINE_EXPERTS].fixed_bytes, work.bytes + UINT64_C(2) * 3 * 8 * 4096);
    bt_facts_close(facts);
    facts = kit_open(BT_TEST_OUT "/mixture.gguf");
    facts->n_expert_blocks = 0; /* as of a model without any */
    assert_int_equal(bt_facts_expert_work(facts, 100).bytes, 0);
    bt_facts_close(facts);
    bt_arena *full = bt_arena_open(64, 64);
    bt_facts many = {.n_expert_blocks = 100};
    assert_int_equal(bt_costs_experts(&many, full, &told, &err), BT_E_NOMEM);
    assert_string_equal(err.code, "plan_arena");
    bt_arena_close(full);
}

/* ---- what is said ----------------------------------------------------------------------------------------------- */

static bt_expert_block blocks[3] = {{.expert_bytes = 4000}, {.expert_bytes = 4000}, {.expert_bytes = 8000}};
static bt_unit_facts units[1] = {{.name = "blk.0.attn", .kind = BT_KIND_ATTENTION, .bytes = PINNED}};
static const bt_facts said_facts = {.units = units,
                                    .n_units = 1,
                                    .path = "m.gguf",
                                    .arch = "llama",
                                    .n_block = 3,
                                    .n_expert = N_EXPERT,
                                    .n_expert_used = 2,
                                    .expert_blocks = blocks,
                                    .n_expert_blocks = 3,
                                    .kv_known = true};

static bool says(const char *words) {
    bt_text text;
    bt_text_init(&text, 1 << 16);
    bt_report_plan_text(&plan, &said_facts, &text);
    assert_false(text.failed);
    bool there = strstr(bt_text_str(&text), words) != NULL;
    if (!there) print_message("%s", bt_text_str(&text));
    bt_text_done(&text);
    return there;
}

static bool says_json(const char *words) {
    static const bt_machine machine;
    bt_error err = {0};
    char *json = NULL;
    if (bt_report_plan_json(&plan, &said_facts, &machine, &json, &err) != BT_OK) fail_msg("%s", err.text);
    bool there = json && strstr(json, words) != NULL;
    if (!there) print_message("%s", json);
    bt_heap_free(json);
    return there;
}

static void slots_are_said(void **state) {
    (void)state;
    plan_with_room(8 * EACH);
    assert_true(says("2 of 8 used for a token"));
    assert_true(says("Experts in memory"));
    assert_true(says_json("\"slots\": 8"));
    assert_true(says_json("\"hit_rate\": 1.0"));
    assert_true(says_json("\"bytes_per_token\": 32000"));
    assert_true(says_json("\"tokens_per_s_reuse\": null"));
    plan_with_room(4 * EACH - LEAST);
    assert_true(says("4 of 8 of each block, those used last"));
    assert_true(says("where tokens share experts"));
    assert_true(says_json("\"shared\": false"));
    assert_true(says_json("\"hit_rate\": 0.5,"));
    assert_true(says_json("\"hit_rate_reuse\": 0.675")); /* and 35 of 100 of the other half */
    plan_with_room(0);
    assert_true(says("2 at once, of all blocks"));
    assert_true(says_json("\"shared\": true"));
    assert_true(says_json("\"hit_rate\": 0.0"));
}

#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(everything_has_a_slot),  T(what_is_left_goes_to_the_first_blocks),
        T(too_few_are_shared),     T(slots_have_page_tables),
        T(the_ladder_counts_them), T(of_a_file),
        T(slots_are_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
