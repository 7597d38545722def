/* SPDX-License-Identifier: MIT
 * test_choices.c: which cost models wishes lead to, in which order, and which changes a refusal may suggest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/choices.h"

#include <stdio.h>
#include <string.h>

#define F16  1u
#define Q4_0 2u
#define Q8_0 8u

static bt_kv_block kv[2];
static bt_facts facts;
static bt_wishes wishes;
static bt_arena *arena;
static bt_choices choices;
static const bt_base_costs no_base = {0};

static int set_up(void **state) {
    (void)state;
    arena = bt_arena_open(1 << 20, 64 << 10);
    kv[0] = kv[1] = (bt_kv_block){.k_width = 192, .v_width = 192};
    facts = (bt_facts){.n_embd = 576,
                       .n_vocab = 1000,
                       .n_ff = 1536,
                       .n_block = 2,
                       .n_head = 9,
                       .kv_known = true,
                       .kv_exact = true,
                       .kv = kv,
                       .k_head_gcd = 64,
                       .v_head_gcd = 64};
    wishes = (bt_wishes){.type_k = F16, .type_v = F16, .n_threads = 1};
    return arena ? 0 : 1;
}

static int tear_down(void **state) {
    (void)state;
    bt_arena_close(arena);
    return 0;
}

static void make(void) {
    bt_error err = {0};
    if (bt_choices_make(&facts, &wishes, &no_base, arena, &choices, &err) != BT_OK)
        fail_msg("%s: %s", err.code, err.text);
}

/* "k v n_ubatch" of the first n models from first on, with commas. */
static const char *models(uint32_t first, uint32_t n) {
    static char text[512];
    size_t at = 0;
    text[0] = '\0';
    for (uint32_t i = first; i < first + n; i++) {
        const bt_costs *c = &choices.costs[i];
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%u %u %u", i > first ? ", " : "", c->type_k, c->type_v,
                               c->n_ubatch);
    }
    return text;
}

static void model_per_ubatch(void **state) {
    (void)state;
    make();
    assert_string_equal(models(0, choices.n_costs), "1 1 512, 1 1 256, 1 1 128, 1 1 64, 1 1 32");
    assert_int_equal(choices.costs[0].n_parallel, 1);
    wishes.n_ubatch = 300;
    make();
    assert_string_equal(models(0, choices.n_costs), "1 1 300");
    wishes.n_ubatch = 0;
    wishes.n_batch = 100; /* libllama cuts the micro-batch to it */
    make();
    assert_string_equal(models(0, choices.n_costs), "1 1 100, 1 1 64, 1 1 32");
    wishes.n_batch = 256;
    make();
    assert_string_equal(models(0, choices.n_costs), "1 1 256, 1 1 128, 1 1 64, 1 1 32");
}

static void open_types_come_after_f16(void **state) {
    (void)state;
    wishes.n_ubatch = 512;
    wishes.type_k = wishes.type_v = BT_TYPE_AUTO;
    make();
    assert_string_equal(models(0, choices.n_costs), "1 1 512, 8 8 512");
    assert_true(choices.costs[0].line[BT_LINE_KV].per_ctx_bytes > choices.costs[1].line[BT_LINE_KV].per_ctx_bytes);
    wishes.type_v = Q4_0; /* what is fixed stays */
    make();
    assert_string_equal(models(0, choices.n_costs), "1 2 512, 8 2 512");
    wishes.type_k = F16;
    wishes.type_v = BT_TYPE_AUTO;
    make();
    assert_string_equal(models(0, choices.n_costs), "1 1 512, 1 8 512");
    wishes.n_ubatch = 0;
    make();
    assert_int_equal(choices.n_costs, 10);
    assert_string_equal(models(4, 2), "1 1 32, 1 8 512"); /* all micro-batches before the next types */
}

static void types_that_cannot_be(void **state) {
    (void)state;
    bt_error err = {0};
    wishes.n_ubatch = 512;
    wishes.type_k = wishes.type_v = BT_TYPE_AUTO;
    wishes.flash_attn = BT_OFF; /* V is quantized only under flash attention */
    make();
    assert_string_equal(models(0, choices.n_costs), "1 1 512, 8 1 512");
    wishes.flash_attn = BT_AUTO;
    facts.v_head_gcd = 80; /* no whole blocks of 32, though three heads of them are */
    kv[0] = kv[1] = (bt_kv_block){.k_width = 192, .v_width = 160};
    make();
    assert_string_equal(models(0, choices.n_costs), "1 1 512, 8 1 512");
    facts.k_head_gcd = 80;
    make();
    assert_string_equal(models(0, choices.n_costs), "1 1 512");
    assert_int_equal(choices.n_alternatives, 4); /* smaller micro-batches, no other types */
    assert_string_equal(choices.alternatives[0].flag, "-ub");
    wishes.type_v = Q8_0;
    assert_int_equal(bt_choices_make(&facts, &wishes, &no_base, arena, &choices, &err), BT_E_ARG);
    assert_string_equal(err.code, "kv_type");
    assert_int_equal(err.need, 80);
    assert_int_equal(err.have, 32);
    facts.k_head_gcd = facts.v_head_gcd = 0; /* unknown heads: libllama is asked */
    make();
    assert_string_equal(models(0, choices.n_costs), "1 8 512, 8 8 512");
}

static void alternative_is(uint32_t i, const char *flag, const char *value, const char *of) {
    assert_true(i < choices.n_alternatives);
    const bt_alternative *other = &choices.alternatives[i];
    assert_string_equal(other->flag, flag);
    assert_string_equal(other->value, value);
    assert_true(other->first_cost >= choices.n_costs);
    assert_true(other->first_cost + other->n_costs <= choices.n_all);
    assert_string_equal(models(other->first_cost, other->n_costs), of);
}

static void alternatives_of_types(void **state) {
    (void)state;
    wishes.n_batch = 64;
    make();
    assert_int_equal(choices.n_alternatives, 2);
    alternative_is(0, "-ctk", "q8_0 -ctv q8_0", "8 8 64, 8 8 32");
    alternative_is(1, "-ctk", "q4_0 -ctv q4_0", "2 2 64, 2 2 32");
    wishes.type_v = Q4_0;
    make();
    alternative_is(0, "-ctk", "q8_0", "8 2 64, 8 2 32");
    alternative_is(1, "-ctk", "q4_0", "2 2 64, 2 2 32");
    wishes.type_k = Q4_0;
    wishes.type_v = Q8_0;
    make();
    assert_int_equal(choices.n_alternatives, 1);
    alternative_is(0, "-ctv", "q4_0", "2 2 64, 2 2 32");
    wishes.type_k = wishes.type_v = BT_TYPE_AUTO; /* q8_0 is tried anyway */
    make();
    assert_int_equal(choices.n_alternatives, 1);
    alternative_is(0, "-ctk", "q4_0 -ctv q4_0", "2 2 64, 2 2 32");
    wishes.type_k = wishes.type_v = F16;
    wishes.flash_attn = BT_OFF;
    make();
    alternative_is(0, "-ctk", "q8_0", "8 1 64, 8 1 32");
}

static void alternatives_of_numbers(void **state) {
    (void)state;
    wishes.type_k = wishes.type_v = Q4_0;
    wishes.n_ubatch = 128;
    wishes.n_parallel = 5;
    make();
    assert_int_equal(choices.n_alternatives, 4);
    alternative_is(0, "-ub", "64", "2 2 64");
    alternative_is(1, "-ub", "32", "2 2 32");
    alternative_is(2, "-np", "2", "2 2 128");
    alternative_is(3, "-np", "1", "2 2 128");
    assert_int_equal(choices.costs[choices.alternatives[2].first_cost].n_parallel, 2);
    assert_int_equal(choices.costs[choices.alternatives[2].first_cost].ctx_align, 512);
    wishes.type_k = wishes.type_v = BT_TYPE_AUTO; /* the most models that there can be */
    wishes.n_ubatch = 0;
    wishes.n_parallel = 256;
    make();
    assert_int_equal(choices.n_alternatives, 9);
    assert_int_equal(choices.n_all, 10 + 5 + 8 * 10);
}

static void no_room(void **state) {
    (void)state;
    bt_error err = {0};
    bt_arena *small = bt_arena_open(4096, 64);
    assert_int_equal(bt_choices_make(&facts, &wishes, &no_base, small, &choices, &err), BT_E_NOMEM);
    assert_string_equal(err.code, "plan_arena");
    bt_arena_close(small);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(model_per_ubatch),      TEST(open_types_come_after_f16), TEST(types_that_cannot_be),
        TEST(alternatives_of_types), TEST(alternatives_of_numbers),   TEST(no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
