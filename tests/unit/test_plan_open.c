/* SPDX-License-Identifier: MIT
 * test_plan_open.c: a plan as programs of others ask for it (burthen.h): verdicts, wishes that contradict the model,
 * and that it needs nothing of what it was made from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/heap.h"
#include "heap_check.h"
#include "model_kit.h"

#define MIB   (UINT64_C(1) << 20)
#define K_MAX 1000u
#define N_CTX 512u

static bt_machine machine;

static int setup(void **state) {
    (void)state;
    machine = (bt_machine){.n_pools = 1, .n_threads = 2};
    machine.pools[0] = (bt_pool){.name = "host", .kind = BT_POOL_HOST, .state = BT_READING_REPORTED};
    machine.pools[0].total_bytes = machine.pools[0].free_bytes = 8192 * MIB;
    return 0;
}

static bt_facts *model(void) {
    gw w;
    gw_init(&w);
    gw_model_keys(&w, &kit_small);
    gw_model_tensors(&w, &kit_small);
    bt_facts *facts = kit_file_open(&w, "plan-open.gguf");
    gw_done(&w);
    return facts;
}

static bt_wishes within(uint64_t bytes) {
    bt_wishes wishes = bt_wishes_default();
    wishes.n_ctx = N_CTX;
    wishes.budget_kind = BT_BUDGET_BYTES;
    wishes.budget_bytes = bytes;
    return wishes;
}

static void outlives_what_it_was_made_from(void **state) {
    (void)state;
    bt_plan *plan = NULL;
    bt_facts *facts = model();
    bt_wishes wishes = within(1024 * MIB);
    assert_int_equal(bt_plan_open(facts, &machine, &wishes, &plan, NULL), BT_OK);
    uint32_t n_units = facts->n_units;
    bt_facts_close(facts);
    memset(&machine, 0xff, sizeof machine);
    memset(&wishes, 0xff, sizeof wishes);
    assert_int_equal(plan->verdict, BT_FITS);
    assert_int_equal(plan->n_ctx, N_CTX);
    assert_int_equal(plan->n_threads, 2);
    assert_int_equal(plan->wishes.n_threads, 0); /* as asked */
    assert_int_equal(plan->n_units, n_units);
    assert_int_equal(plan->n_streamed, 0);
    assert_int_equal(plan->budget_bytes, 1024 * MIB);
    assert_true(plan->planned_bytes > 0 && plan->planned_bytes <= plan->budget_bytes);
    for (uint32_t i = 0; i < n_units; i++)
        assert_int_not_equal(plan->place[i], BT_PLACE_STREAMED);
    bt_plan_close(plan);
    bt_plan_close(NULL);
}

static void a_refusal_is_a_plan(void **state) {
    (void)state;
    bt_plan *plan = NULL;
    bt_facts *facts = model();
    const bt_wishes wishes = within(1 * MIB);
    assert_int_equal(bt_plan_open(facts, &machine, &wishes, &plan, NULL), BT_OK);
    assert_int_equal(plan->verdict, BT_REFUSED);
    assert_string_equal(plan->refusal.code, "ram_budget");
    assert_true(plan->ladder[BT_RUNG_MINIMUM].exists);
    uint64_t least_bytes = plan->ladder[BT_RUNG_MINIMUM].budget_bytes;
    bt_plan_close(plan);
    const bt_wishes enough = within(least_bytes);
    assert_int_equal(bt_plan_open(facts, &machine, &enough, &plan, NULL), BT_OK);
    assert_int_not_equal(plan->verdict, BT_REFUSED);
    bt_plan_close(plan);
    bt_facts_close(facts);
}

static void wishes_that_contradict_the_model(void **state) {
    (void)state;
    bt_error err = {0};
    bt_plan *plan = NULL;
    bt_facts *facts = model();
    bt_wishes wishes = within(1024 * MIB);
    wishes.n_ctx = UINT32_MAX;
    assert_int_equal(bt_plan_open(facts, &machine, &wishes, &plan, &err), BT_E_ARG);
    assert_null(plan);
    assert_true(err.code[0] && err.text[0]);
    bt_facts_close(facts);
}

/* What a program gives is not what the command line lets through: no search goes through all of it, no table is left.
 */
static void wishes_over_their_maximum(void **state) {
    (void)state;
    bt_facts *facts = model();
    bt_wishes cases[8];
    for (size_t i = 0; i < 8; i++)
        cases[i] = within(1 * MIB);
    cases[0].n_buffers = BT_WISH_BUFFERS_MAX + 1;
    cases[1].n_parallel = UINT32_MAX;
    cases[2].n_threads = UINT32_MAX;
    cases[3].n_devices = BT_DEVICE_MAX + 1;
    cases[4].n_tensor_splits = UINT32_MAX;
    cases[5].flash_attn = (bt_choice)7;
    cases[6].budget_kind = (bt_budget_kind)9;
    cases[7].n_ubatch = UINT32_MAX;
    for (size_t i = 0; i < 8; i++) {
        bt_error err = {0};
        bt_plan *plan = NULL;
        assert_int_equal(bt_plan_open(facts, &machine, &cases[i], &plan, &err), BT_E_ARG);
        assert_string_equal(err.code, "wishes");
        assert_true(err.need > err.have);
        assert_null(plan);
    }
    bt_error err = {0};
    bt_plan *plan = NULL;
    const bt_wishes wishes = within(1 * MIB);
    machine.n_pools = BT_POOL_MAX + 1;
    assert_int_equal(bt_plan_open(facts, &machine, &wishes, &plan, &err), BT_E_ARG);
    machine.n_pools = 1;
    bt_wishes most = within(1 * MIB);
    most.n_buffers = BT_WISH_BUFFERS_MAX;
    assert_int_equal(bt_plan_open(facts, &machine, &most, &plan, &err), BT_OK);
    assert_int_equal(plan->verdict, BT_REFUSED);
    bt_plan_close(plan);
    bt_facts_close(facts);
}

#ifdef BT_FAULT
static void refused_memory(void **state) {
    (void)state;
    bt_facts *facts = model();
    const bt_wishes wishes = within(1024 * MIB);
    uint64_t blocks = bt_heap_live_blocks();
    for (uint64_t k = 0;; k++) {
        bt_error err = {0};
        bt_plan *plan = NULL;
        assert_true(k < K_MAX);
        bt_fault_arm(k, false);
        bt_status status = bt_plan_open(facts, &machine, &wishes, &plan, &err);
        if (!bt_fault_disarm()) {
            assert_int_equal(status, BT_OK);
            assert_true(k >= 3); /* itself, the arena, a block of it */
            bt_plan_close(plan);
            break;
        }
        assert_int_equal(status, BT_E_NOMEM);
        assert_null(plan);
        assert_true(err.code[0] && err.text[0]);
        assert_int_equal(bt_heap_live_blocks(), blocks);
    }
    bt_facts_close(facts);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(outlives_what_it_was_made_from, setup, heap_is_empty),
        cmocka_unit_test_setup_teardown(a_refusal_is_a_plan, setup, heap_is_empty),
        cmocka_unit_test_setup_teardown(wishes_that_contradict_the_model, setup, heap_is_empty),
        cmocka_unit_test_setup_teardown(wishes_over_their_maximum, setup, heap_is_empty),
#ifdef BT_FAULT
        cmocka_unit_test_setup_teardown(refused_memory, setup, heap_is_empty),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
