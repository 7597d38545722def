/* SPDX-License-Identifier: MIT
 * test_placing.c: blocks by formula, then by what a dry run says of devices: more once, then only less, and that ends;
 * a number that was asked for stays, with or without a refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "placing_kit.h"

static placing_kit kit;
static bt_placed placed;
static bool again;
static bt_error error;

static int start(void **state) {
    (void)state;
    kit_start(&kit, "placing.gguf");
    placed = (bt_placed){0};
    return 0;
}

static int stop(void **state) {
    (void)state;
    bt_placed_close(&placed);
    kit_stop(&kit);
    return 0;
}

static uint32_t n_blocks(void) {
    uint32_t n = bt_split_blocks(&placed.offload->split);
    assert_int_equal(placed.split != NULL, n > 0);
    assert_ptr_equal(placed.facts, n > 0 ? placed.split : kit.whole);
    if (n > 0) assert_memory_equal(&placed.split->split, &placed.offload->split, sizeof(bt_split));
    return n;
}

static uint32_t make(void) {
    if (bt_placing_make(&kit.options, kit.whole, &kit.machine, kit.arena, &placed, &error) != BT_OK)
        fail_msg("%s", error.text);
    return n_blocks();
}

static uint32_t check(const bt_price *price, bool may_grow) {
    if (bt_placing_check(&kit.options, &kit.machine, price, may_grow, kit.arena, &placed, &again, &error) != BT_OK)
        fail_msg("%s", error.text);
    return n_blocks();
}

static uint64_t formula_bytes(void) {
    return placed.offload->devices[0].compute_bytes;
}

static void count(uint32_t n) {
    kit.options.wishes.gpu_layers = BT_LAYERS_COUNT;
    kit.options.wishes.n_gpu_layers = n;
}

/* The size of the formula's graph, which no test knows better than the formula. */
static uint64_t probe(void) {
    kit_budget(&kit, UINT64_C(1) << 40);
    assert_int_equal(make(), KIT_BLOCKS);
    assert_true(placed.offload->split.head);
    assert_int_equal(placed.offload->devices[0].source, BT_SOURCE_FORMULA);
    uint64_t bytes = formula_bytes();
    assert_true(bytes > 0);
    bt_placed_close(&placed);
    return bytes;
}

static void a_smaller_graph_makes_room_once(void **state) {
    (void)state;
    uint64_t graph = probe(), block = kit_blocks_bytes(&kit, 1, false);
    assert_int_equal(kit_blocks_bytes(&kit, 2, false), 2 * block); /* alike */
    kit_budget(&kit, graph + 3 * block);
    assert_int_equal(make(), 3);
    bt_price price = kit_price(&placed, graph - 1);
    assert_int_equal(check(&price, true), 3); /* a byte is no block */
    assert_false(again);
    assert_int_equal(placed.offload->devices[0].source, BT_SOURCE_DRY_RUN);
    assert_int_equal(formula_bytes(), graph - 1);
    bt_placed_close(&placed);
    kit_budget(&kit, graph + 4 * block - 10);
    assert_int_equal(make(), 3);
    price = kit_price(&placed, graph - 10);
    assert_int_equal(check(&price, true), 4);
    assert_true(again);
    price = kit_price(&placed, 1); /* and if it were smaller still: enough is enough */
    assert_int_equal(check(&price, false), 4);
    assert_false(again);
    assert_string_equal(placed.refusal.code, "");
}

static void a_larger_graph_takes_blocks_back(void **state) {
    (void)state;
    uint64_t graph = probe(), block = kit_blocks_bytes(&kit, 1, false);
    kit_budget(&kit, graph + 3 * block);
    assert_int_equal(make(), 3);
    bt_price price = kit_price(&placed, graph + 1);
    assert_int_equal(check(&price, true), 2);
    assert_true(again);
    price = kit_price(&placed, graph + block); /* exactly */
    assert_int_equal(check(&price, false), 2);
    assert_false(again);
    price = kit_price(&placed, graph + 3 * block);
    assert_int_equal(check(&price, false), 0);
    assert_true(again);
    assert_int_equal(check(&price, false), 0); /* nothing there to be asked */
    assert_false(again);
    assert_string_equal(placed.refusal.code, "");
}

/* Caches that are larger than the formula says: it cannot choose by that, so a block at a time goes. */
static void larger_caches_take_blocks_back(void **state) {
    (void)state;
    uint64_t graph = probe(), block = kit_blocks_bytes(&kit, 1, false);
    kit_budget(&kit, graph + 3 * block);
    uint32_t n = make();
    assert_int_equal(n, 3);
    for (uint32_t rounds = 0;; rounds++) {
        assert_true(rounds < KIT_BLOCKS);
        bt_price price = kit_price(&placed, graph);
        price.device_kv_bytes[0] += block; /* each block's would be a third larger, or so */
        uint32_t now = check(&price, rounds == 0);
        if (!again) break;
        assert_int_equal(now, n - 1);
        n = now;
    }
    assert_int_equal(n, 2);
}

static void a_number_stays(void **state) {
    (void)state;
    uint64_t graph = probe(), block = kit_blocks_bytes(&kit, 1, false);
    count(3);
    kit_budget(&kit, graph + 3 * block - 10);
    assert_int_equal(make(), 3);
    assert_string_equal(placed.refusal.code, "device_memory"); /* by formula */
    assert_string_equal(placed.refusal.changes[0].value, "2");
    bt_price price = kit_price(&placed, graph - 10);
    assert_int_equal(check(&price, true), 3);
    assert_false(again);
    assert_string_equal(placed.refusal.code, ""); /* as it is */
    price = kit_price(&placed, graph - 9);
    assert_int_equal(check(&price, true), 3);
    assert_false(again);
    assert_string_equal(placed.refusal.code, "device_memory");
    assert_int_equal(placed.refusal.need_bytes, placed.refusal.have_bytes + 1);
}

static void the_head_goes_with_all_blocks(void **state) {
    (void)state;
    uint64_t graph = probe(), all = kit_blocks_bytes(&kit, KIT_BLOCKS, true);
    kit_budget(&kit, graph + all);
    assert_int_equal(make(), KIT_BLOCKS);
    assert_true(placed.offload->split.head);
    bt_price price = kit_price(&placed, graph + 1);
    assert_int_equal(check(&price, true), KIT_BLOCKS - 1);
    assert_false(placed.offload->split.head);
}

/* What is in the host's own memory is taken from its budget. */
static void shared_memory_is_counted_once(void **state) {
    (void)state;
    uint64_t graph = probe();
    kit_budget(&kit, graph + kit_blocks_bytes(&kit, 2, false));
    assert_int_equal(make(), 2);
    assert_int_equal(bt_placing_shared_bytes(&placed), 0);
    bt_placed_close(&placed);
    kit.machine.pools[1].shares_host = true;
    assert_int_equal(make(), 2);
    assert_int_equal(bt_placing_shared_bytes(&placed), graph + kit_blocks_bytes(&kit, 2, false));
}

static void of_a_plan(void **state) {
    (void)state;
    bt_offload offload = {.split = {.n_devices = 1, .n_blocks = {2}}};
    bt_plan plan = {.offload = &offload};
    assert_int_equal(bt_placing_of_plan(kit.whole, &plan, &placed, &error), BT_OK);
    assert_int_equal(bt_split_blocks(&placed.facts->split), 2);
    bt_placed_close(&placed);
    offload.split.n_blocks[0] = KIT_BLOCKS + 1;
    assert_int_equal(bt_placing_of_plan(kit.whole, &plan, &placed, &error), BT_E_STALE);
    assert_string_equal(error.code, "plan_stale");
    offload.split.n_blocks[0] = KIT_BLOCKS - 1, offload.split.head = true; /* a head without the last block */
    assert_int_equal(bt_placing_of_plan(kit.whole, &plan, &placed, &error), BT_E_STALE);
    plan.offload = NULL;
    assert_int_equal(bt_placing_of_plan(kit.whole, &plan, &placed, &error), BT_OK);
    assert_ptr_equal(placed.facts, kit.whole);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        TEST(a_smaller_graph_makes_room_once),
        TEST(a_larger_graph_takes_blocks_back),
        TEST(larger_caches_take_blocks_back),
        TEST(a_number_stays),
        TEST(the_head_goes_with_all_blocks),
        TEST(shared_memory_is_counted_once),
        TEST(of_a_plan),
    };
    return cmocka_run_group_tests_name("placing", tests, NULL, NULL);
}
