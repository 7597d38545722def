/* SPDX-License-Identifier: MIT
 * test_plan.c: verdicts, wishes honoured or refused, micro-batch, tables, ladder and refusals, on one small model whose
 * numbers can be added up by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

#define BLOCK  UINT64_C(10000)
#define HEAD   UINT64_C(3000)
#define TABLE  UINT64_C(50000)
#define ROWS   UINT64_C(400)
#define BASE   UINT64_C(100000)
#define CELL   UINT64_C(10) /* KV bytes a token */
#define UBATCH UINT64_C(2)  /* compute bytes for each token of the micro-batch */
#define F16    1u
#define Q4_0   2u
#define Q8_0   8u

static bt_costs costs[12];
static bt_alternative alternatives[6];
static bt_plan_unit units[12];
static bt_problem problem;
static bt_arena *arena;
static bt_plan plan;

/* Eight blocks, two head panels, a table. At context c and micro-batch u, everything but units costs
 * BASE + CELL c + UBATCH u + ROWS. */
static uint64_t fixed(uint64_t ctx, uint64_t ubatch) {
    return BASE + CELL * ctx + UBATCH * ubatch + ROWS;
}

static bt_costs model(uint32_t type, uint64_t cell, uint32_t n_ubatch) {
    bt_costs c = {.n_ubatch = n_ubatch,
                  .n_parallel = 1,
                  .type_k = type,
                  .type_v = type,
                  .ctx_align = 256,
                  .ctx_step = 256,
                  .ctx_min = 256};
    c.line[BT_LINE_BASE].fixed_bytes = BASE;
    c.line[BT_LINE_KV].per_ctx_bytes = cell;
    c.line[BT_LINE_COMPUTE].fixed_bytes = UBATCH * n_ubatch;
    return c;
}

/* Behind the problem's own models: a change and the models it leads to. */
static void alternative(const char *flag, const char *value, const bt_costs *models, uint32_t n) {
    bt_alternative *other = &alternatives[problem.n_alternatives++];
    uint32_t first = problem.n_costs;
    for (uint32_t i = 0; i + 1 < problem.n_alternatives; i++)
        first += alternatives[i].n_costs;
    (void)snprintf(other->flag, sizeof other->flag, "%s", flag);
    (void)snprintf(other->value, sizeof other->value, "%s", value);
    other->first_cost = first;
    other->n_costs = n;
    memcpy(&costs[first], models, n * sizeof *models);
    problem.alternatives = alternatives;
}

/* An explicit micro-batch. */
static void ask_ubatch(uint32_t n_ubatch) {
    problem.wishes.n_ubatch = n_ubatch;
    problem.n_costs = 1;
    problem.n_alternatives = 0;
    costs[0] = model(F16, CELL, n_ubatch);
}

static int set_up(void **state) {
    (void)state;
    arena = bt_arena_open(8 << 20, 64 << 10);
    memset(&plan, 0, sizeof plan);
    memset(units, 0, sizeof units);
    memset(costs, 0, sizeof costs);
    memset(alternatives, 0, sizeof alternatives);
    for (uint32_t i = 0; i < 3; i++)
        costs[i] = model(F16, CELL, 512u >> i);
    for (uint32_t u = 0; u < 8; u++)
        units[u] = (bt_plan_unit){BLOCK, BLOCK, BLOCK, 0, 0, {0}, u % 2 ? BT_KIND_FEED_FORWARD : BT_KIND_ATTENTION};
    units[8] = units[9] = (bt_plan_unit){HEAD, HEAD, HEAD, 0, 0, {0}, BT_KIND_HEAD};
    units[10] = (bt_plan_unit){TABLE, TABLE, TABLE, ROWS, 0, {0}, BT_KIND_TABLE};
    problem = (bt_problem){.costs = costs,
                           .n_costs = 3,
                           .units = units,
                           .n_units = 11,
                           .wishes = {.budget_kind = BT_BUDGET_BYTES, .type_k = 1, .type_v = 1},
                           .n_ctx_train = 2048,
                           .n_ctx_default_cap = 4096,
                           .budget_state = BT_READING_REPORTED,
                           .budget_source = "asked",
                           .disk_bytes_per_s = {true, 100000},
                           .memory_bytes_per_s = {true, 8600000},
                           .kv_known = true};
    return arena ? 0 : 1;
}

static int tear_down(void **state) {
    (void)state;
    bt_arena_close(arena);
    return 0;
}

static void plan_with(uint64_t budget) {
    bt_error err = {0};
    problem.budget_bytes = problem.wishes.budget_bytes = budget;
    if (bt_plan_make(&problem, arena, &plan, &err) != BT_OK) fail_msg("%s: %s", err.code, err.text);
    assert_int_equal(bt_ledger_sum(&plan.ledger), plan.planned_bytes);
}

/* ---- verdicts ---- */

static const uint64_t all_blocks = 8 * BLOCK + 2 * HEAD;

static void fits(void **state) {
    (void)state;
    plan_with(fixed(2048, 512) + all_blocks);
    assert_int_equal(plan.verdict, BT_FITS);
    assert_int_equal(plan.n_ctx, 2048);
    assert_int_equal(plan.n_ctx_requested, 0);
    assert_string_equal(plan.ctx_reason, "");
    assert_int_equal(plan.n_slots, 0);
    assert_int_equal(plan.slot_bytes, 0);
    assert_int_equal(plan.n_pinned, 10);
    assert_int_equal(plan.n_streamed, 0);
    assert_int_equal(plan.place[10], BT_PLACE_ROWS);
    assert_int_equal(plan.planned_bytes, fixed(2048, 512) + all_blocks);
    assert_int_equal(plan.ledger.bytes[BT_LINE_PINNED], 8 * BLOCK);
    assert_int_equal(plan.ledger.bytes[BT_LINE_HEAD], 2 * HEAD);
    assert_int_equal(plan.ledger.bytes[BT_LINE_EMBEDDINGS], ROWS);
    assert_int_equal(plan.ledger.source[BT_LINE_PINNED], BT_SOURCE_TENSOR);
    assert_int_equal(plan.ceiling_bytes, all_blocks + ROWS);
    assert_true(plan.exact);
    assert_true(plan.head_resident);
    assert_int_equal(plan.n_batch, 2048);
    assert_int_equal(plan.n_ubatch, 512);
    assert_int_equal(plan.n_parallel, 1);
    assert_int_equal(plan.forecast.micro_tokens_per_s.value, 100000000);
    assert_int_equal(plan.forecast.bound, BT_BOUND_MEMORY);
    assert_string_equal(plan.refusal.code, "");
    assert_string_equal(plan.budget_source, "asked");
}

static void streams(void **state) {
    (void)state;
    problem.wishes.n_ctx = 2048;
    plan_with(fixed(2048, 512) + 2 * HEAD + 5 * BLOCK + 7);
    assert_int_equal(plan.verdict, BT_STREAMS);
    assert_int_equal(plan.n_slots, 2);
    assert_int_equal(plan.slot_bytes, BLOCK);
    assert_int_equal(plan.n_pinned, 5);
    assert_int_equal(plan.n_streamed, 5);
    assert_int_equal(plan.read_bytes_per_pass, 5 * BLOCK);
    assert_int_equal(plan.ledger.bytes[BT_LINE_RING], 2 * BLOCK);
    assert_int_equal(plan.planned_bytes, fixed(2048, 512) + 2 * HEAD + 5 * BLOCK);
    assert_int_equal(plan.forecast.micro_tokens_per_s.value, 2000000);
    assert_int_equal(plan.forecast.bound, BT_BOUND_DISK);
    /* three of eight pinned, spread: never two beside each other */
    for (uint32_t u = 0; u + 1 < 8; u++)
        assert_false(plan.place[u] == BT_PLACE_PINNED && plan.place[u + 1] == BT_PLACE_PINNED);
}

static void refused_then_forced(void **state) {
    (void)state;
    uint64_t least = fixed(256, 128) + BLOCK;
    plan_with(least - 1);
    assert_int_equal(plan.verdict, BT_REFUSED);
    assert_false(plan.forced);
    assert_string_equal(plan.refusal.code, "ram_budget");
    assert_string_equal(plan.refusal.message,
                        "context 256 needs at least 110.6 KiB, the memory budget is 110.6 KiB: 1 B short");
    assert_int_equal(plan.refusal.need_bytes, least);
    assert_int_equal(plan.refusal.have_bytes, least - 1);
    assert_int_equal(plan.planned_bytes, least);
    assert_int_equal(plan.n_ctx, 256);
    assert_int_equal(plan.n_ubatch, 128);
    assert_int_equal(plan.n_slots, 1);
    assert_int_equal(plan.n_pinned, 0);
    assert_false(plan.head_resident);
    assert_string_equal(plan.ctx_reason, "the lowest tried (2048 by default)");
    assert_int_equal(plan.refusal.n_changes, 1);
    assert_string_equal(plan.refusal.changes[0].flag, "--ram-budget");
    assert_string_equal(plan.refusal.changes[0].value, "1M");
    assert_int_equal(plan.refusal.changes[0].need_bytes, least);
    bt_ledger ledger = plan.ledger;
    problem.wishes.force = true;
    plan_with(least - 1);
    assert_int_equal(plan.verdict, BT_REFUSED);
    assert_true(plan.forced);
    assert_memory_equal(&ledger, &plan.ledger, sizeof ledger);
    plan_with(least); /* force changes nothing where nothing is refused */
    assert_int_equal(plan.verdict, BT_STREAMS);
    assert_false(plan.forced);
}

static void forced_keeps_explicit_wishes(void **state) {
    (void)state;
    problem.wishes.force = true;
    problem.wishes.n_ctx = 1024;
    ask_ubatch(256);
    problem.wishes.stream_head = BT_OFF;
    plan_with(1);
    assert_true(plan.forced);
    assert_int_equal(plan.n_ctx, 1024);
    assert_int_equal(plan.n_ubatch, 256);
    assert_true(plan.head_resident);
    assert_int_equal(plan.planned_bytes, fixed(1024, 256) + 2 * HEAD + BLOCK);
}

static void unlimited(void **state) {
    (void)state;
    problem.budget_state = BT_READING_UNLIMITED;
    plan_with(5); /* a figure that is not known is not looked at */
    assert_int_equal(plan.verdict, BT_FITS);
    assert_int_equal(plan.budget_state, BT_READING_UNLIMITED);
    assert_int_equal(plan.budget_bytes, UINT64_MAX);
    assert_int_equal(plan.place[10], BT_PLACE_PINNED);
    assert_int_equal(plan.ledger.bytes[BT_LINE_EMBEDDINGS], TABLE);
    problem.budget_state = BT_READING_REPORTED;
    problem.wishes.budget_kind = BT_BUDGET_OFF;
    plan_with(5);
    assert_int_equal(plan.verdict, BT_FITS);
    assert_int_equal(plan.budget_state, BT_READING_UNLIMITED);
    problem.wishes.stream_head = BT_ON;
    plan_with(5);
    assert_int_equal(plan.verdict, BT_STREAMS);
    assert_int_equal(plan.n_streamed, 2);
    assert_int_equal(plan.slot_bytes, HEAD);
}

static void unknown_architecture(void **state) {
    (void)state;
    problem.kv_known = false;
    problem.kv_reason = "no formula";
    plan_with(fixed(0, 512) + all_blocks);
    assert_int_equal(plan.verdict, BT_VERDICT_UNKNOWN);
    assert_int_equal(plan.ledger.bytes[BT_LINE_KV], 0);
    assert_string_equal(plan.refusal.code, "arch_unknown");
    assert_string_equal(plan.refusal.message,
                        "the KV cache of this model cannot be priced and is not counted: no formula");
    assert_false(plan.ladder[BT_RUNG_MINIMUM].exists);
    assert_int_equal(plan.n_pinned, 10);
    assert_int_equal(costs[0].line[BT_LINE_KV].per_ctx_bytes, CELL); /* the caller's prices are untouched */
    plan_with(BASE);                                                 /* weights alone do not fit: that is known */
    assert_int_equal(plan.verdict, BT_REFUSED);
}

/* A larger budget is no way out where the system enforces less. */
static void budget_is_suggested_within_limits(void **state) {
    (void)state;
    problem.budget_limit = (bt_known){true, (1 << 20) - 1};
    plan_with(fixed(256, 128) + BLOCK - 1);
    assert_int_equal(plan.refusal.n_changes, 0);
    problem.budget_limit.value++;
    plan_with(fixed(256, 128) + BLOCK - 1);
    assert_string_equal(plan.refusal.changes[0].value, "1M");
}

/* ---- context ---- */

static void explicit_ctx_is_honoured_or_refused(void **state) {
    (void)state;
    problem.wishes.n_ctx = 1000;
    plan_with(fixed(1024, 128) + BLOCK);
    assert_int_equal(plan.verdict, BT_STREAMS);
    assert_int_equal(plan.n_ctx_requested, 1000);
    assert_int_equal(plan.n_ctx, 1024);
    assert_string_equal(plan.ctx_reason, "rounded up to a multiple of 256");
    plan_with(fixed(1024, 128) + BLOCK - 1);
    assert_int_equal(plan.verdict, BT_REFUSED);
    assert_int_equal(plan.n_ctx, 1024);
    assert_string_equal(plan.refusal.code, "ctx");
    assert_string_equal(
        plan.refusal.message,
        "context 1024 needs at least 118.1 KiB (110.6 KiB at context 256), the memory budget is 118.1 KiB: 1 B short");
    assert_int_equal(plan.refusal.n_changes, 2);
    assert_string_equal(plan.refusal.changes[0].flag, "-c");
    assert_string_equal(plan.refusal.changes[0].value, "768");
    assert_int_equal(plan.refusal.changes[0].need_bytes, fixed(768, 128) + BLOCK);
    assert_string_equal(plan.refusal.changes[1].flag, "--ram-budget");
    problem.wishes.n_ctx = 768; /* the change, made */
    plan_with(fixed(1024, 128) + BLOCK - 1);
    assert_int_equal(plan.verdict, BT_STREAMS);
}

static void explicit_ctx_may_shrink(void **state) {
    (void)state;
    problem.wishes.n_ctx = 1000;
    problem.wishes.allow_ctx_reduction = true;
    plan_with(fixed(512, 512) + BLOCK + 300);
    assert_int_equal(plan.verdict, BT_STREAMS);
    assert_int_equal(plan.n_ctx, 512);
    assert_int_equal(plan.n_ctx_requested, 1000);
    assert_string_equal(plan.ctx_reason, "the budget holds no more (1000 asked for)");
    assert_true(plan.exact);
    plan_with(fixed(512, 512) + BLOCK - 1);
    assert_int_equal(plan.n_ctx, 512); /* the micro-batch goes down before the context does */
    assert_int_equal(plan.n_ubatch, 256);
    assert_false(plan.exact);
}

static void default_ctx(void **state) {
    (void)state;
    plan_with(fixed(1536, 512) + BLOCK);
    assert_int_equal(plan.n_ctx, 1536);
    assert_string_equal(plan.ctx_reason, "the budget holds no more (2048 by default)");
    problem.n_ctx_default_cap = 512;
    plan_with(UINT32_MAX);
    assert_int_equal(plan.n_ctx, 512);
    problem.n_ctx_default_cap = 4096;
    problem.n_ctx_train = 100000;
    plan_with(UINT32_MAX);
    assert_int_equal(plan.n_ctx, 4096);
    problem.n_ctx_train = 0;
    plan_with(UINT32_MAX);
    assert_int_equal(plan.n_ctx, 2048);
    problem.n_ctx_train = 100; /* below the lowest: tried all the same */
    plan_with(UINT32_MAX);
    assert_int_equal(plan.n_ctx, 256);
}

static void wishes_that_contradict(void **state) {
    (void)state;
    bt_error err = {0};
    problem.budget_bytes = UINT32_MAX;
    problem.wishes.n_ctx = 2049;
    assert_int_equal(bt_plan_make(&problem, arena, &plan, &err), BT_E_ARG);
    assert_string_equal(err.code, "ctx_trained");
    assert_int_equal(err.need, 2049);
    assert_int_equal(err.have, 2048);
    assert_non_null(strstr(err.text, "--rope-scaling"));
    problem.wishes.rope_scaling = BT_ROPE_YARN;
    problem.wishes.rope_scale_micro = 1500000;
    problem.wishes.n_ctx = 3072;
    assert_int_equal(bt_plan_make(&problem, arena, &plan, &err), BT_OK);
    assert_int_equal(plan.n_ctx, 3072);
    problem.wishes.n_ctx = 3073;
    assert_int_equal(bt_plan_make(&problem, arena, &plan, &err), BT_E_ARG);
    assert_int_equal(err.have, 3072);
    problem.wishes.n_ctx = 2049;
    problem.wishes.rope_scaling = BT_ROPE_NONE; /* a factor that is not used stretches nothing */
    assert_int_equal(bt_plan_make(&problem, arena, &plan, &err), BT_E_ARG);
    problem.n_ctx_train = 2000; /* libllama rounds this up to 2048 */
    problem.wishes.n_ctx = 2048;
    assert_int_equal(bt_plan_make(&problem, arena, &plan, &err), BT_OK);
    problem.wishes.type_v = 8;
    assert_int_equal(bt_plan_make(&problem, arena, &plan, &err), BT_OK);
    problem.wishes.flash_attn = BT_OFF;
    assert_int_equal(bt_plan_make(&problem, arena, &plan, &err), BT_E_ARG);
    assert_string_equal(err.code, "flash_attn");
    problem.wishes.type_v = 1;
    problem.wishes.n_ubatch = 300; /* the models given are of others */
    assert_int_equal(bt_plan_make(&problem, arena, &plan, &err), BT_E_ARG);
    assert_string_equal(err.code, "plan_costs");
    problem.wishes.n_ubatch = 0;
    problem.n_costs = 0;
    assert_int_equal(bt_plan_make(&problem, arena, &plan, &err), BT_E_ARG);
}

/* ---- micro-batch, head, ring ---- */

static void ubatch_goes_down_when_the_context_needs_it(void **state) {
    (void)state;
    plan_with(fixed(2048, 512) + BLOCK);
    assert_true(plan.exact);
    assert_int_equal(plan.n_ubatch, 512);
    plan_with(fixed(2048, 512) + BLOCK - 1);
    assert_false(plan.exact);
    assert_int_equal(plan.n_ubatch, 256);
    assert_int_equal(plan.n_ctx, 2048);
    plan_with(fixed(2048, 128) + BLOCK - 1);
    assert_int_equal(plan.n_ctx, 1792);
    assert_int_equal(plan.n_ubatch, 512); /* at that context there is room for it again */
    ask_ubatch(512);
    for (uint32_t n_ubatch = 256; n_ubatch >= 64; n_ubatch /= 2) {
        char value[16];
        (void)snprintf(value, sizeof value, "%u", n_ubatch);
        bt_costs smaller = model(F16, CELL, n_ubatch);
        alternative("-ub", value, &smaller, 1);
    }
    plan_with(fixed(256, 512) + BLOCK - 1);
    assert_int_equal(plan.verdict, BT_REFUSED);
    assert_string_equal(plan.refusal.changes[0].flag, "-ub");
    assert_string_equal(plan.refusal.changes[0].value, "256");
    assert_int_equal(plan.refusal.changes[0].need_bytes, fixed(256, 256) + BLOCK);
    assert_string_equal(plan.refusal.changes[1].flag, "--ram-budget"); /* of one flag the mildest only */
    plan_with(fixed(256, 256) + BLOCK - 1);
    assert_string_equal(plan.refusal.changes[0].value, "128");
    ask_ubatch(256);
    plan_with(fixed(256, 256) + BLOCK);
    assert_int_equal(plan.n_ubatch, 256);
    assert_true(plan.exact); /* as asked for: nothing was lowered */
}

/* A prompt is not cut into pieces below 128 for the sake of context, except for the first 1024 tokens of it. */
static void small_ubatches_are_the_last_resort(void **state) {
    (void)state;
    problem.n_costs = 4;
    costs[3] = model(F16, CELL, 64);
    plan_with(fixed(2048, 128) + BLOCK - 1); /* holds 2048 tokens at 64 */
    assert_int_equal(plan.n_ctx, 1792);
    plan_with(fixed(1024, 128) + BLOCK);
    assert_int_equal(plan.n_ctx, 1024);
    assert_int_equal(plan.n_ubatch, 128);
    plan_with(fixed(1024, 128) + BLOCK - 1);
    assert_int_equal(plan.n_ctx, 1024);
    assert_int_equal(plan.n_ubatch, 64);
    plan_with(fixed(1024, 64) + BLOCK - 1); /* 768 at 64, and at 512 */
    assert_int_equal(plan.n_ctx, 768);
    assert_int_equal(plan.n_ubatch, 512);
    plan_with(fixed(256, 128) + BLOCK - 1);
    assert_int_equal(plan.n_ubatch, 64);
    assert_int_equal(plan.n_ctx, 256);
}

/* ---- KV types ---- */

/* f16 and q8_0, of each 512 and 256. */
static void open_types(void) {
    problem.wishes.type_k = problem.wishes.type_v = BT_TYPE_AUTO;
    problem.n_costs = 4;
    costs[0] = model(F16, CELL, 512);
    costs[1] = model(F16, CELL, 256);
    costs[2] = model(Q8_0, CELL / 2, 512);
    costs[3] = model(Q8_0, CELL / 2, 256);
}

static void types_go_down_when_the_context_needs_it(void **state) {
    (void)state;
    open_types();
    plan_with(fixed(2048, 512) + BLOCK);
    assert_int_equal(plan.type_k, F16);
    assert_true(plan.exact);
    assert_int_equal(plan.wishes.type_k, BT_TYPE_AUTO);
    plan_with(fixed(2048, 512) + BLOCK - 1); /* f16 stays while a smaller micro-batch will do */
    assert_int_equal(plan.type_k, F16);
    assert_int_equal(plan.n_ubatch, 256);
    plan_with(fixed(2048, 256) + BLOCK - 1);
    assert_int_equal(plan.type_k, Q8_0);
    assert_int_equal(plan.type_v, Q8_0);
    assert_int_equal(plan.n_ubatch, 512);
    assert_int_equal(plan.n_ctx, 2048);
    assert_false(plan.exact);
    assert_int_equal(plan.ledger.bytes[BT_LINE_KV], CELL / 2 * 2048);
}

static void types_are_suggested(void **state) {
    (void)state;
    problem.wishes.n_ctx = 2048;
    const bt_costs q8[2] = {model(Q8_0, CELL / 2, 512), model(Q8_0, CELL / 2, 256)};
    const bt_costs q4[2] = {model(Q4_0, CELL / 4, 512), model(Q4_0, CELL / 4, 256)};
    problem.n_costs = 2;
    alternative("-ctk", "q8_0 -ctv q8_0", q8, 2);
    alternative("-ctk", "q4_0 -ctv q4_0", q4, 2);
    uint64_t least = fixed(2048, 256) + BLOCK;
    plan_with(least - 1);
    assert_int_equal(plan.verdict, BT_REFUSED);
    assert_string_equal(plan.refusal.changes[0].flag, "-c");
    assert_string_equal(plan.refusal.changes[1].flag, "-ctk");
    assert_string_equal(plan.refusal.changes[1].value, "q8_0 -ctv q8_0");
    assert_int_equal(plan.refusal.changes[1].need_bytes, least - CELL / 2 * 2048);
    assert_string_equal(plan.refusal.changes[2].flag, "--ram-budget");
    assert_int_equal(plan.refusal.n_changes, 3);
    plan_with(least - CELL / 2 * 2048 - 1); /* q8_0 is not enough */
    assert_string_equal(plan.refusal.changes[1].value, "q4_0 -ctv q4_0");
    plan_with(least - (CELL - CELL / 4) * 2048 - 1); /* nor is q4_0 */
    assert_string_equal(plan.refusal.changes[1].flag, "--ram-budget");
}

/* Fewer sequences round the context to less, and may go lower. */
static void sequences_are_suggested(void **state) {
    (void)state;
    problem.wishes.n_parallel = 4;
    problem.n_costs = 1;
    costs[0].n_parallel = 4;
    costs[0].ctx_align = costs[0].ctx_step = costs[0].ctx_min = 1024;
    bt_costs two = costs[0];
    two.n_parallel = 2;
    two.ctx_align = two.ctx_step = two.ctx_min = 512;
    alternative("-np", "2", &two, 1);
    alternative("-np", "1", &costs[0], 1);
    plan_with(fixed(1024, 512) + BLOCK - 1);
    assert_int_equal(plan.verdict, BT_REFUSED);
    assert_string_equal(plan.refusal.changes[0].flag, "-np");
    assert_string_equal(plan.refusal.changes[0].value, "2");
    assert_int_equal(plan.refusal.changes[0].need_bytes, fixed(512, 512) + BLOCK);
}

static void head_wishes(void **state) {
    (void)state;
    problem.wishes.n_ctx = 256;
    problem.wishes.stream_head = BT_ON;
    plan_with(fixed(256, 512) + 3 * BLOCK);
    assert_false(plan.head_resident);
    assert_int_equal(plan.ledger.bytes[BT_LINE_HEAD], 0);
    plan_with(UINT32_MAX); /* forced: even where it would fit */
    assert_int_equal(plan.verdict, BT_STREAMS);
    assert_int_equal(plan.n_streamed, 2);
    assert_int_equal(plan.slot_bytes, HEAD);
    assert_false(plan.ladder[BT_RUNG_HEAD].exists);
    assert_false(plan.ladder[BT_RUNG_ALL_PINNED].exists);
    problem.wishes.stream_head = BT_OFF;
    ask_ubatch(512);
    plan_with(fixed(256, 512) + BLOCK + 2 * HEAD - 1);
    assert_int_equal(plan.verdict, BT_REFUSED);
    assert_string_equal(plan.refusal.changes[0].flag, "--stream-head");
    assert_string_equal(plan.refusal.changes[0].value, "on");
    assert_int_equal(plan.refusal.changes[0].need_bytes, fixed(256, 512) + BLOCK);
    problem.wishes.stream_head = BT_AUTO;
    plan_with(fixed(256, 512) + 2 * BLOCK + 2 * HEAD - 1); /* one panel short: a part of the head is pinned */
    assert_int_equal(plan.n_slots, 2);
    assert_false(plan.head_resident);
    assert_int_equal(plan.ledger.bytes[BT_LINE_HEAD], HEAD);
}

static void ring_before_head_before_pins(void **state) {
    (void)state;
    problem.wishes.n_ctx = 256;
    plan_with(fixed(256, 512) + 2 * BLOCK);
    assert_int_equal(plan.n_slots, 2);
    assert_int_equal(plan.n_pinned, 0);
    plan_with(fixed(256, 512) + 2 * BLOCK - 1);
    assert_int_equal(plan.n_slots, 1);
    assert_true(plan.head_resident);
    problem.wishes.n_buffers = 1;
    plan_with(fixed(256, 512) + 3 * BLOCK + 2 * HEAD);
    assert_int_equal(plan.n_slots, 1);
    assert_int_equal(plan.n_pinned, 4);
    assert_false(plan.ladder[BT_RUNG_OVERLAP].exists);
    problem.wishes.n_buffers = 3;
    plan_with(fixed(256, 512) + 4 * BLOCK + 2 * HEAD);
    assert_int_equal(plan.n_slots, 3);
}

/* A depth that was asked for is kept or refused, like a context. */
static void ring_is_honoured_or_refused(void **state) {
    (void)state;
    problem.wishes.n_ctx = 256;
    problem.n_costs = 1;
    problem.wishes.n_buffers = 3;
    plan_with(fixed(256, 512) + 3 * BLOCK - 1);
    assert_int_equal(plan.verdict, BT_REFUSED);
    assert_int_equal(plan.n_slots, 3);
    assert_string_equal(plan.refusal.changes[0].flag, "--buffers");
    assert_string_equal(plan.refusal.changes[0].value, "2");
    assert_int_equal(plan.refusal.changes[0].need_bytes, fixed(256, 512) + 2 * BLOCK);
    plan_with(fixed(256, 512) + 2 * BLOCK - 1);
    assert_string_equal(plan.refusal.changes[0].value, "1");
    plan_with(fixed(256, 512) + 3 * BLOCK);
    assert_int_equal(plan.n_slots, 3);
}

/* Two ways to pin as many bytes: the one whose ring is smaller has fewer planned bytes, and wins. */
static void of_equal_pins_fewer_planned_bytes(void **state) {
    (void)state;
    problem.wishes.n_ctx = 256;
    problem.wishes.stream_head = BT_ON;
    units[5].slot_bytes = BLOCK + 2000;                 /* pinned, it costs what its equals cost */
    uint64_t room = 2 * (BLOCK + 2000) + 3 * BLOCK + 1; /* three pins, whichever the slots are */
    plan_with(fixed(256, 512) + room);
    assert_int_equal(plan.n_pinned, 3);
    assert_int_equal(plan.place[5], BT_PLACE_PINNED);
    assert_int_equal(plan.slot_bytes, BLOCK);
    assert_int_equal(plan.planned_bytes, fixed(256, 512) + 5 * BLOCK);
}

/* One unit four times the others: pinning it and shrinking the ring beats streaming it. */
static void pinning_the_largest_shrinks_the_ring(void **state) {
    (void)state;
    problem.wishes.n_ctx = 256;
    units[3] = (bt_plan_unit){4 * BLOCK, 4 * BLOCK, 4 * BLOCK, 0, 0, {0}, BT_KIND_FEED_FORWARD};
    plan_with(fixed(256, 512) + 6 * BLOCK);
    assert_int_equal(plan.n_slots, 2);
    assert_int_equal(plan.slot_bytes, BLOCK);
    assert_int_equal(plan.place[3], BT_PLACE_PINNED);
    assert_int_equal(plan.ladder[BT_RUNG_OVERLAP].budget_bytes, fixed(256, 512) + 6 * BLOCK);
}

/* ---- tables, tied heads, page tables, loading ---- */

static void tables_come_last(void **state) {
    (void)state;
    problem.wishes.n_ctx = 256;
    plan_with(fixed(256, 512) + all_blocks + TABLE - ROWS - 1);
    assert_int_equal(plan.place[10], BT_PLACE_ROWS);
    plan_with(fixed(256, 512) + all_blocks + TABLE - ROWS);
    assert_int_equal(plan.place[10], BT_PLACE_PINNED);
    assert_int_equal(plan.ledger.bytes[BT_LINE_EMBEDDINGS], TABLE);
    /* a table no larger than its row window is pinned from the start */
    units[10].rows_bytes = 0;
    units[10].token_rows_bytes = 100; /* 512 x 100 bytes */
    plan_with(fixed(256, 512) - ROWS + TABLE + BLOCK);
    assert_int_equal(plan.place[10], BT_PLACE_PINNED);
    assert_int_equal(plan.n_ubatch, 512);
    assert_int_equal(plan.n_streamed, 10);
    /* a smaller micro-batch has a smaller window */
    ask_ubatch(256);
    plan_with(fixed(256, 256) - ROWS + 25600 + BLOCK);
    assert_int_equal(plan.place[10], BT_PLACE_ROWS);
    assert_int_equal(plan.ledger.bytes[BT_LINE_EMBEDDINGS], 25600);
}

static void tied_head_needs_rows_while_it_streams(void **state) {
    (void)state;
    problem.wishes.n_ctx = 256;
    problem.n_units = 10;
    units[8].token_rows_bytes = 1;
    plan_with(fixed(256, 512) - ROWS + 512 + 2 * BLOCK);
    assert_int_equal(plan.n_slots, 2);
    assert_false(plan.head_resident);
    assert_int_equal(plan.ledger.bytes[BT_LINE_EMBEDDINGS], 512);
    plan_with(fixed(256, 512) - ROWS + all_blocks);
    assert_int_equal(plan.verdict, BT_FITS);
    assert_int_equal(plan.ledger.bytes[BT_LINE_EMBEDDINGS], 0);
}

static void page_tables(void **state) {
    (void)state;
    problem.wishes.n_ctx = 256;
    for (int i = 0; i < 3; i++)
        costs[i].page_table_divisor = 512;
    uint64_t other = fixed(256, 512) + all_blocks;
    uint64_t least = other + (other + 511) / 512;
    plan_with(least);
    assert_int_equal(plan.verdict, BT_FITS);
    assert_int_equal(plan.ledger.bytes[BT_LINE_PAGETABLES], (other + 511) / 512);
    assert_int_equal(plan.planned_bytes, least);
    assert_int_equal(plan.ladder[BT_RUNG_ALL_PINNED].budget_bytes, least);
    plan_with(least - 1);
    assert_int_equal(plan.verdict, BT_STREAMS);
}

static void loading_has_a_peak(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++)
        costs[i].load_peak_bytes = 3 * BASE;
    plan_with(3 * BASE - 1);
    assert_int_equal(plan.verdict, BT_REFUSED);
    assert_int_equal(plan.refusal.need_bytes, 3 * BASE);
    plan_with(3 * BASE);
    assert_int_not_equal(plan.verdict, BT_REFUSED);
    assert_int_equal(plan.n_ctx, 2048);
}

/* ---- ladder and speed ---- */

static void ladder(void **state) {
    (void)state;
    plan_with(fixed(2048, 512) + 3 * BLOCK);
    const bt_rung *rung = plan.ladder;
    assert_int_equal(rung[BT_RUNG_MINIMUM].budget_bytes, fixed(256, 128) + BLOCK);
    assert_int_equal(rung[BT_RUNG_MINIMUM].n_ctx, 256);
    assert_int_equal(rung[BT_RUNG_OVERLAP].budget_bytes, fixed(2048, 512) + 2 * BLOCK);
    assert_int_equal(rung[BT_RUNG_OVERLAP].n_ctx, 2048);
    assert_int_equal(rung[BT_RUNG_HEAD].budget_bytes, fixed(2048, 512) + 2 * BLOCK + 2 * HEAD);
    assert_int_equal(rung[BT_RUNG_ALL_PINNED].budget_bytes, fixed(2048, 512) + all_blocks);
    /* 86,000 bytes at 100,000 a second, and a hundredth of a second of computing when they take turns */
    assert_int_equal(rung[BT_RUNG_MINIMUM].forecast.micro_tokens_per_s.value, 1149425);
    assert_int_equal(rung[BT_RUNG_OVERLAP].forecast.micro_tokens_per_s.value, 1162790);
    assert_int_equal(rung[BT_RUNG_HEAD].forecast.micro_tokens_per_s.value, 1250000);
    assert_int_equal(rung[BT_RUNG_ALL_PINNED].forecast.micro_tokens_per_s.value, 100000000);
    for (int i = 0; i < BT_RUNG_COUNT; i++)
        assert_true(rung[i].exists);
}

static void speed_policy(void **state) {
    (void)state;
    uint64_t budget = fixed(1024, 512) + all_blocks;
    plan_with(budget);
    assert_int_equal(plan.n_ctx, 2048);
    assert_int_equal(plan.verdict, BT_STREAMS);
    problem.wishes.policy = BT_POLICY_SPEED;
    plan_with(budget); /* the largest context at which nothing streams */
    assert_int_equal(plan.n_ctx, 1024);
    assert_int_equal(plan.verdict, BT_FITS);
    assert_string_equal(plan.ctx_reason, "a smaller one is faster (2048 by default)");
    problem.disk_bytes_per_s.known = false; /* without rates: what is read */
    plan_with(budget);
    assert_int_equal(plan.n_ctx, 1024);
    problem.n_costs = 1;
    plan_with(budget - 1); /* everything in memory would take a context of 768: too small for an exchange */
    assert_int_equal(plan.n_ctx, 1280);
    assert_int_equal(plan.verdict, BT_STREAMS);
    plan_with(fixed(1024, 512) + BLOCK - 1); /* but where nothing else runs */
    assert_int_equal(plan.n_ctx, 768);
    problem.wishes.n_ctx = 2048;
    plan_with(budget);
    assert_int_equal(plan.n_ctx, 2048);
}

/* A smaller micro-batch makes room for pins, and costs passes of the prompt. */
static void speed_policy_weighs_the_prompt(void **state) {
    (void)state;
    problem.wishes.n_ctx = 1024;
    problem.wishes.policy = BT_POLICY_SPEED;
    problem.n_costs = 2;
    costs[1] = model(F16, CELL, 32);
    plan_with(fixed(1024, 512) + 4 * BLOCK); /* 960 bytes saved pin nothing */
    assert_int_equal(plan.n_ubatch, 512);
    plan_with(fixed(1024, 512) + all_blocks - 1); /* here they pin the last block: 144 passes of no reading at all */
    assert_int_equal(plan.n_ubatch, 32);
    assert_int_equal(plan.verdict, BT_FITS);
    assert_false(plan.exact);
    problem.wishes.policy = BT_POLICY_CTX;
    plan_with(fixed(1024, 512) + all_blocks - 1);
    assert_int_equal(plan.n_ubatch, 512);
}

static void speed_policy_lowers_open_types(void **state) {
    (void)state;
    open_types();
    problem.wishes.n_ctx = 2048;
    problem.wishes.policy = BT_POLICY_SPEED;
    plan_with(fixed(2048, 512) + all_blocks);
    assert_int_equal(plan.type_k, F16); /* as fast */
    assert_true(plan.exact);
    plan_with(fixed(2048, 512) + all_blocks - 513); /* no micro-batch makes that good */
    assert_int_equal(plan.type_k, Q8_0);
    assert_int_equal(plan.n_ubatch, 512);
    assert_int_equal(plan.verdict, BT_FITS);
}

/* ---- limits ---- */

static void prices_beyond_64_bits(void **state) {
    (void)state;
    bt_error err = {0};
    for (int i = 0; i < 3; i++)
        costs[i].line[BT_LINE_KV].per_ctx_bytes = UINT64_MAX / 4;
    problem.budget_bytes = 1000;
    assert_int_equal(bt_plan_make(&problem, arena, &plan, &err), BT_E_LIMIT);
    assert_string_equal(err.code, "plan_size");
    tear_down(NULL);
    assert_int_equal(set_up(NULL), 0);
    for (uint32_t u = 0; u < 8; u++)
        units[u].pinned_bytes = UINT64_MAX / 3;
    plan_with(fixed(256, 512) + BLOCK); /* they can stream, but never be pinned */
    assert_int_equal(plan.verdict, BT_STREAMS);
    assert_false(plan.ladder[BT_RUNG_ALL_PINNED].exists);
}

static void nothing_to_place(void **state) {
    (void)state;
    problem.n_units = 0;
    plan_with(UINT32_MAX);
    assert_int_equal(plan.verdict, BT_FITS);
    assert_int_equal(plan.planned_bytes, fixed(2048, 512) - ROWS);
    plan_with(5);
    assert_int_equal(plan.verdict, BT_REFUSED);
}

/* An arena too small is an error at every size, until it is large enough. */
static void arena_full(void **state) {
    (void)state;
    problem.budget_bytes = UINT32_MAX;
    problem.kv_known = false;
    bool made = false;
    for (uint64_t bytes = 64; bytes < 1 << 20 && !made; bytes += 64) {
        bt_error err = {0};
        bt_arena *small = bt_arena_open(bytes, 64);
        assert_non_null(small);
        bt_status status = bt_plan_make(&problem, small, &plan, &err);
        made = status == BT_OK;
        if (!made) {
            assert_int_equal(status, BT_E_NOMEM);
            assert_string_equal(err.code, "plan_arena");
        }
        bt_arena_close(small);
    }
    assert_true(made);
}

/* ---- second layouts ---- */

/* Every block's unit has one of half its size. */
static void derive_blocks(void) {
    for (uint32_t u = 0; u < 8; u++)
        units[u].layouts = (bt_layouts){.n_second = 3, .second_bytes = BLOCK / 2};
}

/* Two weights of every block's unit have one in their own place, and five small ones. */
static void replace_blocks(void) {
    for (uint32_t u = 0; u < 8; u++)
        units[u].layouts = (bt_layouts){.n_replaced = 2, .replaced_bytes = BLOCK / 4};
    problem.small_layouts = (bt_layouts){.n_replaced = 5, .replaced_bytes = 77};
}

static void second_layouts(void **state) {
    (void)state;
    const uint64_t full = fixed(2048, 512) + all_blocks + TABLE - ROWS; /* the table is pinned before them */
    derive_blocks();
    plan_with(full);
    assert_int_equal(plan.ledger.bytes[BT_LINE_DERIVED], 0);
    assert_true(plan.exact);
    plan_with(full + BLOCK / 2 - 1);
    assert_int_equal(plan.ledger.bytes[BT_LINE_DERIVED], 0);
    plan_with(full + BLOCK / 2);
    assert_int_equal(plan.ledger.bytes[BT_LINE_DERIVED], BLOCK / 2);
    assert_int_equal(plan.ledger.source[BT_LINE_DERIVED], BT_SOURCE_TENSOR);
    assert_int_equal(plan.layouts.n_second, 3);
    assert_int_equal(plan.layouts.second_bytes, BLOCK / 2);
    assert_int_equal(plan.layouts.n_replaced, 0);
    assert_false(plan.exact);
    assert_int_equal(plan.planned_bytes, full + BLOCK / 2);
    plan_with(full + 100 * BLOCK);
    assert_int_equal(plan.ledger.bytes[BT_LINE_DERIVED], 4 * BLOCK); /* all eight */
    problem.wishes.repack = BT_OFF;
    plan_with(full + 100 * BLOCK);
    assert_int_equal(plan.ledger.bytes[BT_LINE_DERIVED], 0);
}

/* Whole units in order: one that is too large ends it, so that what is repacked is a prefix. */
static void second_layouts_in_order(void **state) {
    (void)state;
    const uint64_t full = fixed(2048, 512) + all_blocks + TABLE - ROWS;
    derive_blocks();
    units[0].layouts = (bt_layouts){0};
    units[2].layouts.second_bytes = 3 * BLOCK;
    plan_with(full + 3 * BLOCK);
    assert_int_equal(plan.ledger.bytes[BT_LINE_DERIVED], BLOCK / 2);
}

static void second_layouts_with_page_tables(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        costs[i].page_table_divisor = 512;
    derive_blocks();
    for (uint64_t more = 0; more < 12 * BLOCK; more += 77) {
        plan_with(fixed(2048, 512) + all_blocks + TABLE + more);
        assert_true(plan.planned_bytes <= plan.budget_bytes);
        uint64_t pages = plan.ledger.bytes[BT_LINE_PAGETABLES];
        assert_true(pages >= (plan.planned_bytes - pages) / 512);
    }
    assert_int_equal(plan.ledger.bytes[BT_LINE_DERIVED], 4 * BLOCK);
}

static void second_layouts_of_streams(void **state) {
    (void)state;
    derive_blocks();
    for (uint64_t budget = fixed(2048, 512) + 2 * BLOCK; budget < fixed(2048, 512) + all_blocks; budget += 500) {
        problem.wishes.repack = BT_AUTO;
        plan_with(budget);
        if (plan.verdict != BT_STREAMS) continue;
        assert_int_equal(plan.ledger.bytes[BT_LINE_DERIVED], 0);
        problem.wishes.repack = BT_ON;
        plan_with(budget);
        assert_true(plan.planned_bytes <= budget);
        assert_true(plan.ledger.bytes[BT_LINE_DERIVED] <= plan.pinned_bytes / 2);
    }
}

/* In the plain one's place: no byte more, and so without room, and without a budget. */
static void replaced_layouts(void **state) {
    (void)state;
    const uint64_t full = fixed(2048, 512) + all_blocks + TABLE - ROWS;
    plan_with(full);
    const uint64_t planned = plan.planned_bytes;
    replace_blocks();
    plan_with(full);
    assert_int_equal(plan.planned_bytes, planned);
    assert_int_equal(plan.ledger.bytes[BT_LINE_DERIVED], 0);
    assert_int_equal(plan.layouts.n_replaced, 8 * 2 + 5);
    assert_int_equal(plan.layouts.replaced_bytes, 8 * (BLOCK / 4) + 77);
    assert_int_equal(plan.layouts.n_second, 0);
    assert_false(plan.exact);
    problem.wishes.repack = BT_OFF;
    plan_with(full);
    assert_int_equal(plan.layouts.n_replaced, 0);
    assert_int_equal(plan.layouts.replaced_bytes, 0);
    assert_true(plan.exact);
    problem.wishes.repack = BT_AUTO;
    problem.wishes.budget_kind = BT_BUDGET_OFF;
    plan_with(UINT64_MAX);
    assert_int_equal(plan.layouts.n_replaced, 8 * 2 + 5);
}

/* Beside weights that stream on request, and then what is pinned, whatever room there is. */
static void replaced_layouts_of_streams(void **state) {
    (void)state;
    uint32_t n_streams = 0;
    replace_blocks();
    for (uint64_t budget = fixed(2048, 512) + 2 * BLOCK; budget < fixed(2048, 512) + all_blocks; budget += 500) {
        problem.wishes.repack = BT_AUTO;
        plan_with(budget);
        if (plan.verdict != BT_STREAMS) continue;
        n_streams++;
        const uint64_t planned = plan.planned_bytes;
        assert_int_equal(plan.layouts.n_replaced, 0);
        problem.wishes.repack = BT_ON;
        plan_with(budget);
        uint32_t n_pinned = 0;
        for (uint32_t u = 0; u < 8; u++)
            n_pinned += plan.place[u] == BT_PLACE_PINNED;
        assert_int_equal(plan.layouts.n_replaced, n_pinned * 2 + 5);
        assert_int_equal(plan.layouts.replaced_bytes, n_pinned * (BLOCK / 4) + 77);
        assert_int_equal(plan.planned_bytes, planned);
        assert_false(plan.exact);
    }
    assert_true(n_streams > 5);
}

/* A unit may have weights of both kinds; only the second ones take room. */
static void replaced_and_second_layouts(void **state) {
    (void)state;
    const uint64_t full = fixed(2048, 512) + all_blocks + TABLE - ROWS;
    replace_blocks();
    units[1].layouts.n_second = units[4].layouts.n_second = 1;
    units[1].layouts.second_bytes = units[4].layouts.second_bytes = BLOCK / 2;
    plan_with(full + BLOCK);
    assert_int_equal(plan.layouts.n_replaced, 8 * 2 + 5);
    assert_int_equal(plan.layouts.n_second, 2);
    assert_int_equal(plan.layouts.second_bytes, BLOCK);
    assert_int_equal(plan.ledger.bytes[BT_LINE_DERIVED], BLOCK);
    plan_with(full + BLOCK - 1);
    assert_int_equal(plan.layouts.n_replaced, 8 * 2 + 5);
    assert_int_equal(plan.layouts.n_second, 1);
    assert_int_equal(plan.planned_bytes, full + BLOCK / 2);
}

/* What is refused is not laid out, nor what is not priced. */
static void no_layouts_without_a_plan(void **state) {
    (void)state;
    replace_blocks();
    problem.wishes.repack = BT_ON;
    plan_with(1);
    assert_int_equal(plan.verdict, BT_REFUSED);
    assert_int_equal(plan.layouts.n_replaced, 0);
    problem.kv_known = false;
    plan_with(fixed(2048, 512) + all_blocks + TABLE);
    assert_int_equal(plan.verdict, BT_VERDICT_UNKNOWN);
    assert_int_equal(plan.layouts.n_replaced, 0);
}

/* Of a budget that nobody named, a quarter of what is left; of no budget, nothing. */
static void second_layouts_of_a_guess(void **state) {
    (void)state;
    const uint64_t full = fixed(2048, 512) + all_blocks + TABLE - ROWS;
    derive_blocks();
    problem.wishes.budget_kind = BT_BUDGET_AUTO;
    plan_with(full + 4 * BLOCK);
    assert_int_equal(plan.ledger.bytes[BT_LINE_DERIVED], BLOCK);
    problem.wishes.budget_kind = BT_BUDGET_OFF;
    plan_with(UINT64_MAX);
    assert_int_equal(plan.verdict, BT_FITS);
    assert_int_equal(plan.ledger.bytes[BT_LINE_DERIVED], 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(fits),
        TEST(streams),
        TEST(refused_then_forced),
        TEST(forced_keeps_explicit_wishes),
        TEST(unlimited),
        TEST(unknown_architecture),
        TEST(budget_is_suggested_within_limits),
        TEST(explicit_ctx_is_honoured_or_refused),
        TEST(explicit_ctx_may_shrink),
        TEST(default_ctx),
        TEST(wishes_that_contradict),
        TEST(ubatch_goes_down_when_the_context_needs_it),
        TEST(small_ubatches_are_the_last_resort),
        TEST(types_go_down_when_the_context_needs_it),
        TEST(types_are_suggested),
        TEST(sequences_are_suggested),
        TEST(head_wishes),
        TEST(ring_before_head_before_pins),
        TEST(ring_is_honoured_or_refused),
        TEST(of_equal_pins_fewer_planned_bytes),
        TEST(pinning_the_largest_shrinks_the_ring),
        TEST(tables_come_last),
        TEST(tied_head_needs_rows_while_it_streams),
        TEST(page_tables),
        TEST(loading_has_a_peak),
        TEST(ladder),
        TEST(speed_policy),
        TEST(speed_policy_weighs_the_prompt),
        TEST(speed_policy_lowers_open_types),
        TEST(prices_beyond_64_bits),
        TEST(nothing_to_place),
        TEST(arena_full),
        TEST(second_layouts),
        TEST(second_layouts_in_order),
        TEST(second_layouts_with_page_tables),
        TEST(second_layouts_of_streams),
        TEST(second_layouts_of_a_guess),
        TEST(replaced_layouts),
        TEST(replaced_layouts_of_streams),
        TEST(replaced_and_second_layouts),
        TEST(no_layouts_without_a_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
