/* SPDX-License-Identifier: MIT
 * test_bench.c: figures of a measurement, the list of budgets, and how both are shown. The numbers are chosen so that
 * every figure can be told by heart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/heap.h"
#include "base/option.h"
#include "heap_check.h"
#include "report/bench.h"
#include "report/report.h"
#include "report_fixture.h"

#include <math.h>
#include <stdlib.h>

#define MIB UINT64_C(1048576)
#define MS  UINT64_C(1000000)

static bt_bench bench; /* too large for the stack */

/* A token reads 100 MB at 1 GB/s bare (100 ms), computes 20 ms and takes 125 ms: 10 tokens. */
static bt_bench_repetition streamed(void) {
    return (bt_bench_repetition){.prompt_ns = 500 * MS,
                                 .decode_ns = 1250 * MS,
                                 .passes = 10,
                                 .read_bytes = 1000000000,
                                 .busy_ns = 1100 * MS,
                                 .wait_ns = 900 * MS,
                                 .compute_ns = 200 * MS,
                                 .major_faults = 5,
                                 .bare_bytes = 200000000,
                                 .bare_ns = 200 * MS};
}

/* The same with everything in memory: 25 ms. */
static bt_bench_repetition resident(void) {
    return (bt_bench_repetition){.prompt_ns = 250 * MS, .decode_ns = 250 * MS, .compute_ns = 200 * MS};
}

static bt_bench_row row_make(const char *asked, uint64_t budget_bytes, bt_bench_repetition repetition) {
    bt_bench_row row = {.budget_bytes = budget_bytes,
                        .verdict = BT_STREAMS,
                        .planned_bytes = budget_bytes - MIB,
                        .peak_bytes = budget_bytes - 2 * MIB,
                        .pinned_bytes = 30 * MIB,
                        .streamed_bytes = 90 * MIB,
                        .planned_read_bytes = 100000000,
                        .n_ctx = 512,
                        .n_ubatch = 256,
                        .n_threads = 2,
                        .n_parallel = 1,
                        .n_prompt = 100,
                        .n_gen = 10,
                        .n_repetitions = 1,
                        .repetitions = {repetition}};
    (void)snprintf(row.asked, sizeof row.asked, "%s", asked);
    return row;
}

static void bench_make(void) {
    memset(&bench, 0, sizeof bench);
    bench.n_prompt = 100;
    bench.n_gen = 10;
    bench.n_repetitions = 3;
    bench.elastic = BT_OFF;
    bench.io = BT_IO_DIRECT;
    bench.minimum_bytes = (bt_known){true, 40 * MIB};
    bench.all_pinned_bytes = (bt_known){true, 200 * MIB};
    bench.n_rows = 3;
    bench.rows[0] = row_make("25%", 80 * MIB, streamed());
    bench.rows[0].n_repetitions = 3;
    bench.rows[0].repetitions[1] = streamed();
    bench.rows[0].repetitions[1].decode_ns = 2000 * MS; /* 5 tokens a second */
    bench.rows[0].repetitions[2] = streamed();
    bench.rows[0].repetitions[2].decode_ns = 1000 * MS; /* 10 */
    bench.rows[1] = row_make("10M", 10 * MIB, (bt_bench_repetition){0});
    bench.rows[1].n_repetitions = 0;
    bench.rows[1].verdict = BT_REFUSED;
    (void)snprintf(bench.rows[1].refusal.code, sizeof bench.rows[1].refusal.code, "ram_budget");
    (void)snprintf(bench.rows[1].refusal.message, sizeof bench.rows[1].refusal.message, "30.0 MiB short");
    bench.rows[2] = row_make("100%", 200 * MIB, resident());
    bench.rows[2].verdict = BT_FITS;
    bench.rows[2].streamed_bytes = 0;
}

/* ---- figures ---- */

static void check_near(double got, double wanted) {
    if (!(fabs(got - wanted) <= 1e-9 * fabs(wanted))) fail_msg("%.15g, not %.15g", got, wanted);
}

static void test_figures(void **state) {
    (void)state;
    bt_bench_row row = row_make("", 80 * MIB, streamed());
    const bt_bench_repetition *r = &row.repetitions[0];
    check_near(bt_bench_figure_of(&row, r, BT_BENCH_PREFILL), 200);
    check_near(bt_bench_figure_of(&row, r, BT_BENCH_DECODE), 8);
    check_near(bt_bench_figure_of(&row, r, BT_BENCH_BYTES), 1e8);
    check_near(bt_bench_figure_of(&row, r, BT_BENCH_READ), 1e9 / 1.1);
    check_near(bt_bench_figure_of(&row, r, BT_BENCH_BARE), 1e9);
    check_near(bt_bench_figure_of(&row, r, BT_BENCH_WAIT), 0.09);
    check_near(bt_bench_figure_of(&row, r, BT_BENCH_COMPUTE), 0.02);
    check_near(bt_bench_figure_of(&row, r, BT_BENCH_FAULTS), 0.5);
    check_near(bt_bench_figure_of(&row, r, BT_BENCH_RATIO), 1.25); /* 125 ms by 100 */
    assert_int_equal(bt_bench_bound(&row), BT_BOUND_DISK);
    row.repetitions[0].compute_ns = 1100 * MS; /* computing is slower than reading */
    check_near(bt_bench_figure_of(&row, r, BT_BENCH_RATIO), 1250.0 / 1100);
    assert_int_equal(bt_bench_bound(&row), BT_BOUND_COMPUTE);
}

/* Four sequences: the same passes are of four times as many tokens. */
static void test_figures_of_sequences(void **state) {
    (void)state;
    bt_bench_row row = row_make("", 80 * MIB, streamed());
    const bt_bench_repetition *r = &row.repetitions[0];
    row.n_parallel = 4;
    check_near(bt_bench_figure_of(&row, r, BT_BENCH_PREFILL), 800);
    check_near(bt_bench_figure_of(&row, r, BT_BENCH_DECODE), 32);
    check_near(bt_bench_figure_of(&row, r, BT_BENCH_BYTES), 25e6);
    check_near(bt_bench_figure_of(&row, r, BT_BENCH_BARE), 1e9);
    check_near(bt_bench_figure_of(&row, r, BT_BENCH_WAIT), 0.09 / 4);
    check_near(bt_bench_figure_of(&row, r, BT_BENCH_COMPUTE), 0.005);
    check_near(bt_bench_figure_of(&row, r, BT_BENCH_FAULTS), 0.125);
    check_near(bt_bench_figure_of(&row, r, BT_BENCH_RATIO), 1.25);
    assert_int_equal(bt_bench_bound(&row), BT_BOUND_DISK);
}

/* Experts are read when they are asked for: there is no bare pass, and the reader's own 1.1 s of reading count. */
static void test_figures_of_experts(void **state) {
    (void)state;
    bt_bench_row row = row_make("", 80 * MIB, streamed());
    bt_bench_repetition *r = &row.repetitions[0];
    r->bare_bytes = 0;
    r->bare_ns = 0;
    check_near(bt_bench_figure_of(&row, r, BT_BENCH_RATIO), 1250.0 / 1100);
    check_near(bt_bench_read_s(&row), 0.11);
    assert_false(bt_bench_spread_of(&row, BT_BENCH_BARE).known);
    assert_int_equal(bt_bench_bound(&row), BT_BOUND_DISK);
    r->compute_ns = 1200 * MS;
    check_near(bt_bench_figure_of(&row, r, BT_BENCH_RATIO), 1250.0 / 1200);
    assert_int_equal(bt_bench_bound(&row), BT_BOUND_COMPUTE);
}

static void test_figures_without_reading(void **state) {
    (void)state;
    bt_bench_row row = row_make("", 200 * MIB, resident());
    const bt_bench_repetition *r = &row.repetitions[0];
    check_near(bt_bench_figure_of(&row, r, BT_BENCH_DECODE), 40);
    check_near(bt_bench_figure_of(&row, r, BT_BENCH_RATIO), 1.25); /* 25 ms by 20 */
    assert_true(isnan(bt_bench_figure_of(&row, r, BT_BENCH_READ)));
    assert_false(bt_bench_spread_of(&row, BT_BENCH_BARE).known);
    assert_int_equal(bt_bench_bound(&row), BT_BOUND_COMPUTE);
    row.n_repetitions = 0;
    assert_false(bt_bench_spread_of(&row, BT_BENCH_DECODE).known);
}

static void test_spread(void **state) {
    (void)state;
    bench_make();
    bt_bench_spread s = bt_bench_spread_of(&bench.rows[0], BT_BENCH_DECODE); /* 8, 5, 10 */
    assert_true(s.known);
    check_near(s.median, 8);
    check_near(s.min, 5);
    check_near(s.max, 10);
    bench.rows[0].n_repetitions = 2; /* of two the median lies between */
    check_near(bt_bench_spread_of(&bench.rows[0], BT_BENCH_DECODE).median, 6.5);
}

/* ---- budgets ---- */

static void test_budgets(void **state) {
    (void)state;
    bt_bench_budget budgets[BT_BENCH_ROW_MAX];
    uint32_t n = 0;
    assert_int_equal(bt_bench_budgets_parse("0%,12.5%,300M,100%,1", budgets, &n, NULL), BT_OK);
    assert_int_equal(n, 5);
    assert_true(budgets[0].is_share && budgets[1].is_share && budgets[3].is_share);
    assert_int_equal(budgets[0].milli_percent, 0);
    assert_int_equal(budgets[1].milli_percent, 12500);
    assert_int_equal(budgets[3].milli_percent, 100000);
    assert_false(budgets[2].is_share || budgets[4].is_share);
    assert_int_equal(budgets[2].bytes, 300 * MIB);
    assert_string_equal(budgets[2].asked, "300M");
    assert_int_equal(budgets[4].bytes, 1);
    assert_int_equal(bt_bench_budget_bytes(&budgets[0], 1000, 2001), 1000);
    assert_int_equal(bt_bench_budget_bytes(&budgets[1], 1000, 2001), 1125);
    assert_int_equal(bt_bench_budget_bytes(&budgets[3], 1000, 2001), 2001);
    assert_int_equal(bt_bench_budget_bytes(&budgets[2], 1000, 2001), 300 * MIB);
    assert_int_equal(bt_bench_budget_bytes(&budgets[3], 0, UINT64_MAX), UINT64_MAX);
    assert_int_equal(bt_bench_budget_bytes(&budgets[1], 2000, 1000), 2000); /* a ladder upside down: its foot */
}

static void test_budgets_wrong(void **state) {
    (void)state;
    static const char *const lists[] = {"",
                                        ",",
                                        "25%,",
                                        ",25%",
                                        "25%,,50%",
                                        "101%",
                                        "100.001%",
                                        "-1%",
                                        "%",
                                        "5.%",
                                        ".5%",
                                        "1.2345%",
                                        "1.2.3%",
                                        "1e1%",
                                        "0",
                                        "0M",
                                        "banana",
                                        "300 M",
                                        "25% ",
                                        "5%%",
                                        "+5M",
                                        "99999999T",
                                        "12345678901234567890123%",
                                        "4294967297%"};
    bt_bench_budget budgets[BT_BENCH_ROW_MAX];
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        bt_error err = {0};
        uint32_t n = 77;
        if (bt_bench_budgets_parse(lists[i], budgets, &n, &err) != BT_E_ARG) fail_msg("\"%s\" is taken", lists[i]);
        assert_string_equal(err.code, "vs_budget");
        assert_int_equal(n, 77);
    }
}

static void test_budgets_at_most(void **state) {
    (void)state;
    char list[4 * (BT_BENCH_ROW_MAX + 1)] = "";
    bt_bench_budget budgets[BT_BENCH_ROW_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < BT_BENCH_ROW_MAX; i++)
        (void)strcat(list, i ? ",5M" : "5M");
    assert_int_equal(bt_bench_budgets_parse(list, budgets, &n, NULL), BT_OK);
    assert_int_equal(n, BT_BENCH_ROW_MAX);
    (void)strcat(list, ",5M");
    bt_error err = {0};
    assert_int_equal(bt_bench_budgets_parse(list, budgets, &n, &err), BT_E_ARG);
    assert_int_equal(err.need, BT_BENCH_ROW_MAX + 1);
}

/* ---- text ---- */

static char *text_of(void) {
    bt_text text;
    bt_text_init(&text, 1u << 16);
    bt_bench_text(&bench, "m\x1b[31m.gguf", &text);
    assert_false(text.failed);
    return text.data;
}

static void test_table(void **state) {
    (void)state;
    bench_make();
    char *text = text_of();
    static const char wanted[] =
        "m\\x1b[31m.gguf: 100 pseudo-random tokens of prompt, 10 more one by one; 3 repetitions, 2 threads\n"
        "\n"
        "             budget      planned         peak  pinned  prefill tok/s            decode tok/s\n"
        "  25%      80.0 MiB     79.0 MiB     78.0 MiB    25 %          200.0       8.00 (5.00-10.00)\n"
        "  10M      10.0 MiB  refused: 30.0 MiB short\n"
        "  100%    200.0 MiB    199.0 MiB    198.0 MiB   100 %          400.0                   40.00\n"
        "\n"
        "        MB/token  read MB/s  bare MB/s  wait ms  compute ms  ratio\n"
        "  25%      100.0        909       1000     90.0        20.0   1.25\n"
        "  100%       0.0          -          -      0.0        20.0   1.25\n"
        "\n"
        "Decoding is bound by the disk at 25%, by computing at 100%.\n";
    assert_string_equal(text, wanted);
    bt_heap_free(text);
    (void)snprintf(bench.rows[0].asked, sizeof bench.rows[0].asked, "1234567.125M"); /* the longest that still fits */
    text = text_of();
    for (const char *line = strstr(text, "\n\n") + 2; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        assert_in_range(strcspn(line, "\n"), 0, BT_HELP_COLUMNS);
    bt_heap_free(text);
}

static void test_table_of_one(void **state) {
    (void)state;
    bench_make();
    bench.n_rows = 1;
    bench.n_repetitions = 1;
    bench.rows[0] = row_make("", UINT64_MAX, streamed());
    bench.rows[0].planned_bytes = bench.rows[0].peak_bytes = MIB;
    bench.rows[0].n_prompt = 60;
    char *text = text_of();
    assert_non_null(strstr(text, "; 1 repetition, 2 threads\n\n       budget "));
    assert_non_null(strstr(text, "\n         none      1.0 MiB "));
    assert_non_null(strstr(text, "  8.00\n\n       budget  MB/token  read MB/s"));
    assert_non_null(strstr(text, "\n         none     100.0 "));
    assert_non_null(strstr(text,
                           "\nhere: the prompt was cut to 60 tokens, which is what the context of 512 holds beside "
                           "10 more\n"));
    assert_non_null(strstr(text, "Decoding is bound by the disk: reading a token alone takes 100.0 ms, computing it "
                                 "20.0 ms.\n"));
    bt_heap_free(text);
    bench.rows[0] = row_make("", 10 * MIB, resident());
    text = text_of();
    assert_non_null(strstr(text, "Decoding is bound by computing: nothing is read.\n"));
    assert_null(strstr(text, "cut to"));
    bt_heap_free(text);
}

static void test_table_of_sequences(void **state) {
    (void)state;
    bench_make();
    bench.n_rows = 2; /* the first is refused: how many there are the second says */
    bench.rows[0] = bench.rows[1];
    bench.rows[1] = row_make("50%", 80 * MIB, streamed());
    bench.rows[1].n_parallel = 4;
    bench.rows[1].n_prompt = 60;
    char *text = text_of();
    assert_non_null(strstr(text, ": 4 sequences at once, of each 100 pseudo-random tokens of prompt, 10 more one by "
                                 "one; 3 repetitions, 2 threads\n"));
    assert_non_null(strstr(text, "cut to 60 tokens, which is what the context of 128 holds beside 10 more\n"));
    bt_heap_free(text);
    bt_text svg;
    bt_text_init(&svg, 1u << 20);
    bt_bench_svg(&bench, "m", &svg);
    assert_non_null(
        strstr(bt_text_str(&svg), ">4 sequences at once, of each 100 tokens of prompt, 10 more one by one; "));
    bt_text_done(&svg);
}

/* ---- plot ---- */

static uint32_t count(const char *text, const char *what) {
    uint32_t n = 0;
    for (const char *p = strstr(text, what); p; p = strstr(p + 1, what))
        n++;
    return n;
}

static void test_plot(void **state) {
    (void)state;
    bench_make();
    bt_text text;
    bt_text_init(&text, 1u << 20);
    bt_bench_svg(&bench, "a<b>&\"c\xff\x01.gguf", &text);
    assert_false(text.failed);
    const char *svg = bt_text_str(&text);
    assert_int_equal(strncmp(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\" ", 40), 0);
    assert_non_null(strstr(svg, "a&#60;b&#62;&#38;&#34;c??.gguf"));
    assert_int_equal(count(svg, "http"), 1); /* the name space: nothing is loaded */
    assert_int_equal(count(svg, "url("), 0);
    assert_int_equal(count(svg, "nan"), 0);
    assert_int_equal(count(svg, "inf"), 0);
    assert_int_equal(count(svg, "<polyline"), 2);
    assert_int_equal(count(svg, "tok/s ("), 4);      /* two rows, two panels */
    assert_int_equal(count(svg, "class=\"no\""), 6); /* a cross in each panel and in the legend */
    assert_int_equal(count(svg, "class=\"mark\""), 4);
    /* 10 to 200 MiB on an axis from 0 to 200; 40 tokens a second at the top */
    assert_non_null(strstr(svg, "<polyline class=\"decode\" points=\"321.6,228.0 696.0,84.0 \"/>"));
    bt_text_done(&text);
}

static void test_plot_of_nothing(void **state) {
    (void)state;
    bench_make();
    bench.rows[0] = bench.rows[1];
    bench.n_rows = 1;
    bench.minimum_bytes = bench.all_pinned_bytes = (bt_known){0};
    bt_text text;
    bt_text_init(&text, 1u << 20);
    bt_bench_svg(&bench, "m", &text);
    assert_int_equal(count(bt_text_str(&text), "<polyline"), 0);
    assert_int_equal(count(bt_text_str(&text), "nan"), 0);
    bt_text_done(&text);
    bt_text_init(&text, 100); /* no room: failed, not cut */
    bt_bench_svg(&bench, "m", &text);
    assert_true(text.failed);
    bt_text_done(&text);
}

/* ---- JSON ---- */

static void test_row_there_and_back(void **state) {
    (void)state;
    static report_fixture fixture;
    static bt_bench_row got;
    fixture_make(&fixture);
    bench_make();
    char *json = NULL;
    assert_int_equal(bt_bench_json(&bench, &fixture.facts, &fixture.machine, &json, NULL), BT_OK);
    assert_int_equal(bt_bench_row_from_json(json, strlen(json), &got, NULL), BT_OK);
    bt_bench_row wanted = bench.rows[0];
    wanted.asked[0] = '\0';
    memset(wanted.asked, 0, sizeof wanted.asked);
    assert_memory_equal(&got, &wanted, sizeof got);
    char *end = strstr(json, "\"wait_ns\"");
    memcpy(end, "\"wart_ns\"", 9);
    bt_error err = {0};
    assert_int_equal(bt_bench_row_from_json(json, strlen(json), &got, &err), BT_E_FORMAT);
    assert_non_null(strstr(err.text, "rows[0].repetitions[0].wait_ns"));
    bt_heap_free(json);
    assert_int_equal(bt_bench_row_from_json("{\"rows\": []}", 12, &got, &err), BT_E_FORMAT);
    assert_int_equal(bt_bench_row_from_json("{}", 2, &got, &err), BT_E_FORMAT);
}

static int start(void **state) {
    (void)state;
    bt_report_init("ggml 1.2.3");
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_figures_of_sequences),
        cmocka_unit_test(test_figures_of_experts),
        cmocka_unit_test(test_figures_without_reading),
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_budgets_wrong),
        cmocka_unit_test(test_budgets_at_most),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_table_of_one),
        cmocka_unit_test(test_table_of_sequences),
        cmocka_unit_test(test_plot),
        cmocka_unit_test(test_plot_of_nothing),
        cmocka_unit_test(test_row_there_and_back),
    };
    return cmocka_run_group_tests_name("bench", tests, start, heap_is_empty);
}
