/* SPDX-License-Identifier: MIT
 * test_placing.c: every allocation of splitting a model, and of planning blocks on devices, fails once, and then it and
 * all after it: a clean error with a sentence, nothing left behind, and what was placed before is still whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/heap.h"
#include "placing_kit.h"

#define FAULT_MAX 500u

static void refused(bt_status status, const bt_error *err) {
    assert_int_equal(status, BT_E_NOMEM);
    assert_int_equal(err->status, BT_E_NOMEM);
    assert_true(err->code[0] != '\0' && err->text[0] != '\0');
}

static void splitting(void **state) {
    (void)state;
    bt_facts *whole = kit_model("fault-split.gguf");
    static const bt_split splits[] = {{.n_devices = 1, .n_blocks = {2}},
                                      {.n_devices = 2, .n_blocks = {3, 3}, .head = true, .n_cpu_moe = 2}};
    for (size_t i = 0; i < 4; i++) {
        uint64_t blocks = bt_heap_live_blocks();
        for (uint64_t k = 0;; k++) {
            bt_error err = {0};
            bt_facts *split = NULL;
            assert_true(k < FAULT_MAX);
            bt_fault_arm(k, i >= 2);
            bt_status status = bt_facts_split(whole, &splits[i % 2], &split, &err);
            if (!bt_fault_disarm()) {
                assert_int_equal(status, BT_OK);
                assert_true(k >= 3); /* two arenas, a block at the least */
                bt_facts_close(split);
                break;
            }
            refused(status, &err);
            assert_null(split);
            assert_int_equal(bt_heap_live_blocks(), blocks);
        }
    }
    bt_facts_close(whole);
    assert_int_equal(bt_heap_live_bytes(), 0);
}

/* By formula, and anew by a dry run that says that the card holds more. */
static bt_status place(placing_kit *kit, uint64_t graph_bytes, bt_placed *placed, bt_error *err) {
    bool again = false;
    kit->arena = bt_arena_open(UINT64_C(16) << 20, 64u << 10);
    if (!kit->arena) return bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to make a plan");
    BT_TRY(bt_placing_make(&kit->options, kit->whole, &kit->machine, kit->arena, placed, err));
    assert_int_equal(bt_split_blocks(&placed->offload->split), 3);
    bt_price price = kit_price(placed, graph_bytes);
    const bt_facts *before = placed->facts;
    bt_status status = bt_placing_check(&kit->options, &kit->machine, &price, true, kit->arena, placed, &again, err);
    if (status != BT_OK) {
        assert_ptr_equal(placed->facts, before);
        assert_int_equal(bt_split_blocks(&placed->facts->split), 3);
        return status;
    }
    assert_true(again);
    assert_int_equal(bt_split_blocks(&placed->facts->split), 4);
    return BT_OK;
}

static void planning(void **state) {
    (void)state;
    placing_kit kit;
    bt_error err = {0};
    bt_placed placed = {0};
    kit_start(&kit, "fault-placing.gguf");
    kit_budget(&kit, UINT64_C(1) << 40);
    assert_int_equal(bt_placing_make(&kit.options, kit.whole, &kit.machine, kit.arena, &placed, &err), BT_OK);
    uint64_t graph = placed.offload->devices[0].compute_bytes;
    bt_placed_close(&placed);
    bt_arena_close(kit.arena);
    kit_budget(&kit, graph + kit_blocks_bytes(&kit, 4, false) - 10);
    for (int persistent = 0; persistent < 2; persistent++) {
        uint64_t blocks = bt_heap_live_blocks();
        for (uint64_t k = 0;; k++) {
            assert_true(k < FAULT_MAX);
            placed = (bt_placed){0};
            bt_fault_arm(k, persistent);
            bt_status status = place(&kit, graph - 10, &placed, &err);
            bool hit = bt_fault_disarm();
            bt_placed_close(&placed);
            bt_arena_close(kit.arena);
            assert_int_equal(bt_heap_live_blocks(), blocks);
            if (!hit) {
                assert_int_equal(status, BT_OK);
                assert_true(k >= 7); /* the arena, and two splits */
                break;
            }
            refused(status, &err);
        }
    }
    kit.arena = NULL;
    kit_stop(&kit);
    assert_int_equal(bt_heap_live_bytes(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(splitting), cmocka_unit_test(planning)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
