/* SPDX-License-Identifier: MIT
 * test_report.c: every call of the writers and readers of JSON that can fail, failing, once and for good: an error, or
 * the same answer as without; nothing leaks. The JSON library's memory comes through base/heap.h (bt_report_init). */
#include "base/arena.h"
#include "base/fault.h"
#include "base/heap.h"
#include "report/bench.h"
#include "report/report.h"
#include "report_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define N_FAULT_MAX 20000 /* a plan makes some 2,500 fallible calls */

static report_fixture fixture;
static char *machine_json, *plan_json;
static bt_machine machine;

typedef bt_status body(char **ret_json, bt_error *err);

static bt_status write_machine(char **ret_json, bt_error *err) {
    return bt_report_machine_json(&fixture.machine, ret_json, err);
}

static bt_status write_facts(char **ret_json, bt_error *err) {
    return bt_report_facts_json(&fixture.facts, ret_json, err);
}

static bt_status write_plan(char **ret_json, bt_error *err) {
    return bt_report_plan_json(&fixture.plan, &fixture.facts, &fixture.machine, ret_json, err);
}

static const bt_measured measured;

static bt_status write_stats(char **ret_json, bt_error *err) {
    static const int32_t tokens[] = {1, 2, 3};
    return bt_report_stats_json(&fixture.plan, &fixture.facts, &fixture.machine, &measured, "text \xFF", 6, tokens, 3,
                                ret_json, err);
}

static bt_status write_kept(char **ret_json, bt_error *err) {
    *ret_json = NULL;
    return bt_report_kept_json(&fixture.plan, &fixture.facts, &fixture.machine, &measured, 1, ret_json, err);
}

static bt_status write_share(char **ret_json, bt_error *err) {
    static char kept[8192];
    *ret_json = NULL;
    if (!kept[0]) { /* the first call, without faults */
        char *json = NULL;
        assert_int_equal(write_kept(&json, err), BT_OK);
        assert_true(strlen(json) < sizeof kept);
        memcpy(kept, json, strlen(json) + 1);
        bt_heap_free(json);
    }
    return bt_report_share_json(&fixture.plan, &fixture.facts, &fixture.machine, kept, ret_json, err);
}

/* A row that ran, and one that was refused. */
static bt_bench bench = {.n_prompt = 8, .n_gen = 2, .n_repetitions = 2, .n_rows = 2};
static char *bench_json;

static void bench_make(void) {
    bench.rows[0] = (bt_bench_row){.budget_bytes = 1000, .n_prompt = 8, .n_gen = 2, .n_repetitions = 2};
    bench.rows[0].repetitions[0] = bench.rows[0].repetitions[1] =
        (bt_bench_repetition){.prompt_ns = 1, .decode_ns = 2, .compute_ns = 1};
    bench.rows[1] = (bt_bench_row){.asked = "1M", .verdict = BT_REFUSED, .refusal = {.code = "ram_budget"}};
}

static bt_status write_bench(char **ret_json, bt_error *err) {
    return bt_bench_json(&bench, &fixture.facts, &fixture.machine, ret_json, err);
}

static bt_status read_bench(char **ret_json, bt_error *err) {
    static bt_bench_row row;
    *ret_json = NULL;
    bt_status status = bt_bench_row_from_json(bench_json, strlen(bench_json), &row, err);
    if (status == BT_OK) assert_int_equal(row.n_repetitions, 2);
    return status;
}

static bt_status read_machine(char **ret_json, bt_error *err) {
    *ret_json = NULL;
    return bt_machine_from_json(machine_json, strlen(machine_json), &machine, err);
}

static bt_status read_fingerprint(char **ret_json, bt_error *err) {
    bt_fingerprint print;
    *ret_json = NULL;
    return bt_fingerprint_from_json(plan_json, strlen(plan_json), &print, err);
}

/* A text in it that is nearly as long as the longest that is read: the parser's buffer must not have to grow. */
static bt_status read_long_text(char **ret_json, bt_error *err) {
    static char json[32000];
    *ret_json = NULL;
    memset(json, 'x', sizeof json - 1);
    memcpy(json, "{\"later\": \"", 11);
    memcpy(json + sizeof json - 16, "\", \"schema\": 1}", 16);
    return bt_machine_from_json(json, strlen(json), &machine, err);
}

static bt_status read_plan(char **ret_json, bt_error *err) {
    *ret_json = NULL;
    bt_arena *arena = bt_arena_open(1u << 20, 1u << 12);
    if (!arena) return BT_E_NOMEM;
    bt_plan plan;
    bt_status status = bt_plan_from_json(plan_json, strlen(plan_json), arena, &plan, err);
    if (status == BT_OK) assert_int_equal(plan.place[3], BT_PLACE_STREAMED);
    bt_arena_close(arena);
    return status;
}

static void sweep(body *call, bool persistent) {
    char *sound = NULL;
    bt_error err = {0};
    assert_int_equal(call(&sound, &err), BT_OK);
    for (uint64_t k = 0; k < N_FAULT_MAX; k++) {
        uint64_t live = bt_heap_live_blocks();
        char *json = NULL;
        bt_fault_arm(k, persistent);
        bt_status status = call(&json, &err);
        bool hit = bt_fault_disarm();
        if (status == BT_OK && sound) {
            assert_string_equal(json, sound); /* whole, or an error */
        } else {
            assert_null(json);
        }
        assert_true(status == BT_OK || status == BT_E_NOMEM);
        bt_heap_free(json);
        assert_int_equal(bt_heap_live_blocks(), live);
        if (!hit) {
            assert_int_equal(status, BT_OK);
            assert_true(k > 10);
            bt_heap_free(sound);
            return;
        }
    }
    fail_msg("more than %d fallible calls", N_FAULT_MAX);
}

static void test_writers(void **state) {
    (void)state;
    static body *const all[] = {write_machine, write_facts, write_plan, write_stats,
                                write_kept,    write_share, write_bench};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        sweep(all[i], false);
        sweep(all[i], true);
    }
}

static void test_readers(void **state) {
    (void)state;
    static body *const all[] = {read_machine, read_fingerprint, read_long_text, read_plan, read_bench};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        sweep(all[i], false);
        sweep(all[i], true);
    }
}

/* The same with blocks on devices: the last of these tests, since the plan keeps them. */
static void test_devices(void **state) {
    (void)state;
    bt_error err = {0};
    fixture_offload(&fixture);
    bt_heap_free(plan_json);
    assert_int_equal(bt_report_plan_json(&fixture.plan, &fixture.facts, &fixture.machine, &plan_json, &err), BT_OK);
    static body *const all[] = {write_plan, write_stats, read_plan};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        sweep(all[i], false);
        sweep(all[i], true);
    }
    for (uint64_t k = 0;; k++) {
        bt_text text;
        bt_text_init(&text, 1u << 16);
        bt_fault_arm(k, false);
        bt_report_plan_text(&fixture.plan, &fixture.facts, &text);
        bt_report_devices_text(&fixture.plan, &measured, &text);
        bool hit = bt_fault_disarm();
        if (!hit) assert_non_null(strstr(bt_text_str(&text), "1 on Vulkan0, 1 on CUDA0"));
        bt_text_done(&text);
        if (!hit) return;
        assert_true(k < 200);
    }
}

static void test_text(void **state) {
    (void)state;
    for (uint64_t k = 0; k < 200; k++) {
        bt_text text;
        bt_text_init(&text, 1u << 16);
        bt_fault_arm(k, false);
        bt_report_plan_text(&fixture.plan, &fixture.facts, &text);
        bt_report_facts_text(&fixture.facts, &text);
        bt_report_machine_text(&fixture.machine, &text);
        bt_bench_text(&bench, "m", &text);
        bt_bench_svg(&bench, "m", &text);
        bool hit = bt_fault_disarm();
        assert_int_equal(text.failed, hit);
        bt_text_done(&text);
        if (!hit) return;
    }
    fail();
}

int main(void) {
    bt_report_init("b9");
    fixture_make(&fixture);
    bt_error err = {0};
    if (bt_report_machine_json(&fixture.machine, &machine_json, &err) != BT_OK) return 1;
    if (bt_report_plan_json(&fixture.plan, &fixture.facts, &fixture.machine, &plan_json, &err) != BT_OK) return 1;
    bench_make();
    if (write_bench(&bench_json, &err) != BT_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writers),
        cmocka_unit_test(test_readers),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_devices),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_heap_free(machine_json);
    bt_heap_free(plan_json);
    bt_heap_free(bench_json);
    return failed;
}
