/* SPDX-License-Identifier: MIT
 * test_fuzz_json.c: seeded mutations of a machine.json, a plan.json and a bench.json through their readers.
 *
 * Whatever is read: a status of the contract, an error that is plain text, values within their ranges, and nothing left
 * on the heap. What is read successfully is written and read again, and must stay the same. BT_SEED replays a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "random.h"
#include <cmocka.h>

#include "base/arena.h"
#include "base/heap.h"
#include "report/bench.h"
#include "report/report.h"
#include "report_fixture.h"

#include <stdlib.h>

#define N_ROUNDS       20000
#define N_BENCH_ROUNDS 5000 /* a short text */

static uint64_t seed = 20261129;
static uint64_t random_state;
static report_fixture fixture;

static uint64_t next_random(void) {
    return random_next(&random_state);
}

static size_t below(size_t n) {
    return (size_t)(next_random() % n);
}

static int start(void **state) {
    (void)state;
    random_state = seed;
    fixture_make(&fixture);
    return 0;
}

/* Pieces that are likely to be something in the place of something else. */
static const char *const pieces[] = {"null",
                                     "true",
                                     "-1",
                                     "0",
                                     "1e999",
                                     "1.5",
                                     "9223372036854775807",
                                     "[]",
                                     "{}",
                                     "\"\"",
                                     "\"x\"",
                                     "\\u0000",
                                     "\xFF",
                                     ",",
                                     ":",
                                     "[[[[[[[[",
                                     "}",
                                     "]",
                                     "\"",
                                     "99999999999999999999",
                                     "4294967296",
                                     "\"host\"",
                                     "\"reported\""};
enum { N_PIECES = sizeof pieces / sizeof *pieces };

/* Where a value starts: after ": ". */
static size_t some_value(const char *json, size_t n) {
    size_t at = below(n);
    for (size_t i = 0; i < n; i++, at = (at + 1) % n) {
        if (json[at] == ':' && at + 2 < n) return at + 2;
    }
    return 0;
}

/* json changed in one to three places; returns its length in out, which has room for all of them. */
static size_t mutate(const char *json, char *out) {
    size_t n = strlen(json);
    memcpy(out, json, n);
    for (size_t k = 1 + below(3); k > 0 && n > 2; k--) {
        const char *piece = pieces[below(N_PIECES)];
        size_t n_piece = strlen(piece);
        size_t at = below(n);
        size_t end = at;
        switch (below(6)) {
        case 0: /* a byte */
            out[at] = (char)below(256);
            continue;
        case 1: /* the end goes */
            n = below(4) == 0 ? at : n;
            continue;
        case 2: /* a stretch goes */
            end = at + below(20);
            n_piece = 0;
            break;
        case 3: /* a piece comes between */
            break;
        default: /* a value becomes another */
            at = some_value(out, n);
            end = at + strcspn(out + at, ",}\n]");
        }
        if (end > n) end = n;
        memmove(out + at + n_piece, out + end, n - end);
        memcpy(out + at, piece, n_piece);
        n = n - (end - at) + n_piece;
        out[n] = '\0';
    }
    out[n] = '\0';
    return n;
}

static void check_error(bt_status status, const bt_error *err) {
    assert_true(status == BT_E_FORMAT || status == BT_E_LIMIT);
    assert_int_equal(err->status, status);
    assert_string_equal(err->code, "json");
    size_t n = strlen(err->text);
    assert_true(n > 0);
    for (size_t i = 0; i < n;) {
        size_t length = bt_utf8_length(err->text + i, n - i);
        assert_true(length > 0);
        assert_false(bt_utf8_is_control(err->text + i, length));
        i += length;
    }
}

static void check_machine(const bt_machine *m) {
    assert_in_range(m->n_pools, 1, BT_POOL_MAX);
    assert_true(m->n_cgroup_levels <= BT_CGROUP_LEVEL_MAX);
    assert_true(m->cgroup_version <= 2 && m->n_threads <= 4096);
    assert_int_equal(m->pools[0].kind, BT_POOL_HOST);
    for (uint32_t i = 0; i < m->n_pools; i++) {
        assert_true(m->pools[i].free_bytes <= m->pools[i].total_bytes);
        assert_true(m->pools[i].name[0] != '\0');
        assert_true(m->pools[i].state == BT_READING_REPORTED || m->pools[i].total_bytes == 0);
    }
}

static void test_machine(void **state) {
    (void)state;
    char *json = NULL;
    assert_int_equal(bt_report_machine_json(&fixture.machine, &json, NULL), BT_OK);
    char *changed = malloc(strlen(json) + 1024);
    assert_non_null(changed);
    static bt_machine machine, again;
    size_t n_good = 0;
    uint64_t live = bt_heap_live_blocks();
    for (size_t round = 0; round < N_ROUNDS; round++) {
        size_t n = mutate(json, changed);
        bt_error err = {0};
        bt_status status = bt_machine_from_json(changed, n, &machine, &err);
        if (status != BT_OK) {
            check_error(status, &err);
        } else {
            n_good++;
            check_machine(&machine);
            char *first = NULL;
            char *second = NULL;
            assert_int_equal(bt_report_machine_json(&machine, &first, NULL), BT_OK);
            if (bt_machine_from_json(first, strlen(first), &again, &err) != BT_OK) fail_msg("%s\n%s", err.text, first);
            assert_int_equal(bt_report_machine_json(&again, &second, NULL), BT_OK);
            assert_string_equal(first, second);
            bt_heap_free(first);
            bt_heap_free(second);
        }
        assert_int_equal(bt_heap_live_blocks(), live);
    }
    assert_in_range(n_good, N_ROUNDS / 100, N_ROUNDS * 9 / 10); /* both ways were taken */
    free(changed);
    bt_heap_free(json);
}

static void check_plan(const bt_plan *p) {
    assert_true(p->n_pinned <= p->n_units && p->n_streamed <= p->n_units && p->n_slots <= 1024);
    assert_int_equal(bt_ledger_sum(&p->ledger), p->planned_bytes);
    assert_true(p->refusal.n_changes <= BT_CHANGE_MAX);
    for (uint32_t i = 0; p->place && i < p->n_units; i++) {
        assert_in_range(p->place[i], BT_PLACE_PINNED, BT_PLACE_ROWS);
    }
}

static void test_plan(void **state) {
    (void)state;
    char *json = NULL;
    fixture_refuse(&fixture);
    assert_int_equal(bt_report_plan_json(&fixture.plan, &fixture.facts, &fixture.machine, &json, NULL), BT_OK);
    char *changed = malloc(strlen(json) + 1024);
    assert_non_null(changed);
    size_t n_good = 0;
    uint64_t live = bt_heap_live_blocks();
    for (size_t round = 0; round < N_ROUNDS; round++) {
        size_t n = mutate(json, changed);
        bt_arena *arena = bt_arena_open(1u << 16, 1u << 12);
        assert_non_null(arena);
        bt_plan plan;
        bt_fingerprint print;
        bt_error err = {0};
        bt_status status = bt_plan_from_json(changed, n, arena, &plan, &err);
        if (status == BT_OK) {
            n_good++;
            check_plan(&plan);
        } else {
            check_error(status, &err);
        }
        status = bt_fingerprint_from_json(changed, n, &print, &err);
        if (status != BT_OK) check_error(status, &err);
        bt_arena_close(arena);
        assert_int_equal(bt_heap_live_blocks(), live);
    }
    assert_in_range(n_good, N_ROUNDS / 100, N_ROUNDS * 9 / 10);
    free(changed);
    bt_heap_free(json);
}

/* A row as another process measured it: read, or refused; and whatever numbers stand in it, it can be shown. */
static void test_bench(void **state) {
    (void)state;
    static bt_bench bench;
    char *json = NULL;
    bench = (bt_bench){.n_prompt = 16, .n_gen = 4, .n_repetitions = 1, .n_rows = 1};
    bench.rows[0] = (bt_bench_row){.budget_bytes = 5000000, .n_prompt = 16, .n_gen = 4, .n_repetitions = 1};
    bench.rows[0].repetitions[0] =
        (bt_bench_repetition){.prompt_ns = 1000, .decode_ns = 2000, .compute_ns = 1000, .bare_bytes = 4, .bare_ns = 2};
    assert_int_equal(bt_bench_json(&bench, &fixture.facts, &fixture.machine, &json, NULL), BT_OK);
    char *changed = malloc(strlen(json) + 1024);
    assert_non_null(changed);
    size_t n_good = 0;
    uint64_t live = bt_heap_live_blocks();
    for (size_t round = 0; round < N_BENCH_ROUNDS; round++) {
        size_t n = mutate(json, changed);
        bt_error err = {0};
        bt_status status = bt_bench_row_from_json(changed, n, &bench.rows[0], &err);
        if (status != BT_OK) {
            check_error(status, &err);
            continue;
        }
        n_good++;
        assert_true(bench.rows[0].n_repetitions <= BT_BENCH_REPETITION_MAX);
        bt_text text;
        bt_text_init(&text, 1u << 20);
        bt_bench_text(&bench, "m", &text);
        bt_bench_svg(&bench, "m", &text);
        assert_false(text.failed);
        assert_null(strstr(bt_text_str(&text), "nan"));
        bt_text_done(&text);
        assert_int_equal(bt_heap_live_blocks(), live);
    }
    assert_in_range(n_good, N_BENCH_ROUNDS / 100, N_BENCH_ROUNDS * 9 / 10);
    free(changed);
    bt_heap_free(json);
}

int main(void) {
    const char *replay = getenv("BT_SEED");
    if (replay) seed = strtoull(replay, NULL, 10);
    (void)fprintf(stderr, "BT_SEED=%llu\n", (unsigned long long)seed);
    bt_report_init(NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_machine, start),
        cmocka_unit_test_setup(test_plan, start),
        cmocka_unit_test_setup(test_bench, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
