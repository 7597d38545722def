/* SPDX-License-Identifier: MIT
 * test_router_metrics.c: the whole text, read strictly; every value of it; and what servers really export, merged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/heap.h"
#include "exposition_check.h"
#include "router/exposition.h"
#include "router/metrics.h"
#include "router/scrape.h"

#define TEXT_MAX (16u << 20)

static char *read_file(const char *path, size_t *ret_n) {
    char *text = calloc(1, 65536);
    FILE *file = fopen(path, "r");
    if (!file || !text) fail_msg("%s is missing", path);
    *ret_n = fread(text, 1, 65535, file);
    (void)fclose(file);
    assert_in_range(*ret_n, 1, 65534);
    return text;
}

/* Read strictly, and without a fault. */
static expo *text_of(const bt_metrics_view *view) {
    bt_text out;
    bt_text_init(&out, TEXT_MAX);
    bt_metrics_text(view, &out);
    assert_false(out.failed);
    expo *e = expo_read(bt_text_str(&out), out.n_bytes, true);
    if (e->wrong[0]) fail_msg("%s\n%s", e->wrong, bt_text_str(&out));
    bt_text_done(&out);
    return e;
}

static void check(const expo *e, const char *series, double want) {
    const double *value = expo_value(e, series);
    if (!value)
        fail_msg("there is no %s", series);
    else if (*value != want && !(isnan(*value) && isnan(want)))
        fail_msg("%s is %.17g, not %.17g", series, *value, want);
}

static void check_none(const expo *e, const char *series) {
    if (expo_value(e, series)) fail_msg("%s is there", series);
}

/* ---- the reader that all this rests on ----------------------------------------------------------------------------
 */

static void the_checker_can_fail(void **state) {
    (void)state;
    static const char *const good[] = {
        "",
        "\n",
        "# TYPE a counter\na 1\n",
        "# HELP a x\\\\y\\n\n# TYPE a gauge\na{b=\"c\\\"\\\\\\n\",d=\"\"} NaN 5\n",
        "# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n",
        "# TYPE s summary\ns{quantile=\"0.5\"} 1\ns_sum 1\ns_count 2\n"};
    static const char *const bad[] = {
        "# TYPE a counter\na 1",
        "a 1\n",
        "# TYPE a counter\n# TYPE a counter\na 1\n",
        "# TYPE a counter\na 1\n# HELP a b\n",
        "# TYPE a counter\na 1\n# TYPE b counter\nb 1\na 2\n",
        "# TYPE a counter\na 1\n# TYPE b counter\n# TYPE a counter\n",
        "# TYPE a count\na 1\n",
        "# TYPE a counter\na\n",
        "# TYPE a counter\na x\n",
        "# TYPE a counter\na 1 2 3\n",
        "# TYPE a counter\na{b=\"c} 1\n",
        "# TYPE a counter\na{b=\"\\x\"} 1\n",
        "# TYPE a counter\na{b=\"c\",b=\"d\"} 1\n",
        "# TYPE a counter\na{b=c} 1\n",
        "# TYPE a counter\na 1\na 2\n",
        "# TYPE a counter\na_sum 1\n",
        "# HELP a \\x\n# TYPE a gauge\n",
        "# TYPE a-b counter\n",
        "# TYPE h histogram\nh_bucket{le=\"1\"} 3\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n",
        "# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 3\n",
        "# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_sum 3\nh_count 1\n",
        "# TYPE h histogram\nh_bucket{le=\"+Inf\"} 2\nh_count 2\n",
        "# TYPE h histogram\nh_bucket{le=\"2\"} 1\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n",
        "# TYPE s summary\ns 1\n",
        "# TYPE h histogram\nh 1\n"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        expo *e = expo_read(good[i], strlen(good[i]), true);
        if (e->wrong[0]) fail_msg("%s\n%s", e->wrong, good[i]);
        expo_close(e);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        expo *e = expo_read(bad[i], strlen(bad[i]), true);
        if (!e->wrong[0]) fail_msg("nothing is wrong with\n%s", bad[i]);
        expo_close(e);
    }
}

/* ---- our own ------------------------------------------------------------------------------------------------------
 */

static void histograms(void **state) {
    (void)state;
    bt_metrics_histogram h = {0};
    static const double seconds[] = {0, -1, 0.005, 0.0051, 0.015, 0.5, 0.50001, 300, 300.5, 1e9};
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++)
        bt_metrics_observe(&h, seconds[i]);
    bt_metrics_observe(&h, (double)NAN);
    assert_int_equal(h.n, 10);
    bt_metrics_model m = {.id = "m", .state = "ready", .wait = h};
    expo *e = text_of(&(bt_metrics_view){.models = &m, .n_models = 1});
    static const struct {
        const char *le;
        double n;
    } want[] = {{"0.005", 3}, {"0.015", 5}, {"0.05", 5}, {"0.15", 5}, {"0.5", 6}, {"1.5", 7},  {"5", 7},
                {"15", 7},    {"30", 7},    {"60", 7},   {"120", 7},  {"300", 8}, {"+Inf", 10}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        char series[128];
        (void)snprintf(series, sizeof series, "burthen_request_wait_seconds_bucket{model=\"m\",le=\"%s\"}", want[i].le);
        check(e, series, want[i].n);
    }
    check(e, "burthen_request_wait_seconds_count{model=\"m\"}", 10);
    check(e, "burthen_request_wait_seconds_sum{model=\"m\"}", 1000000601.52511);
    check(e, "burthen_model_start_seconds_count{model=\"m\"}", 0);
    expo_close(e);
    m.wait.sum_s = 1e300; /* a sum is a number, whatever was added */
    e = text_of(&(bt_metrics_view){.models = &m, .n_models = 1});
    check(e, "burthen_request_wait_seconds_sum{model=\"m\"}", 1e12);
    expo_close(e);
}

static void every_value(void **state) {
    (void)state;
    bt_metrics_model models[2] = {{.id = "a",
                                   .state = "ready",
                                   .n_ok = 1,
                                   .n_error = 2,
                                   .n_cancelled = 3,
                                   .n_refused = 4,
                                   .n_starts = 5,
                                   .n_start_failures = 6,
                                   .n_evictions = 7,
                                   .n_running = 8,
                                   .n_waiting = 9,
                                   .prompt_tokens = 10,
                                   .output_tokens = 11,
                                   .need_bytes = {{true, 12}, {false, 0}},
                                   .held_bytes = {{true, 0}, {true, 13}},
                                   .peak_bytes = {{false, 0}, {true, 14}}},
                                  {.id = "q\"\\\nq\xff\xc3\xa4", .state = NULL, .n_ok = UINT64_MAX}};
    bt_metrics_observe(&models[0].first_byte, 0.25);
    bt_metrics_observe(&models[0].total, 2.5);
    bt_metrics_observe(&models[0].start, 25);
    bt_metrics_pool pools[2] = {{.name = "host", .limit_bytes = {true, 100}, .free_bytes = {true, 101}},
                                {.name = "CUDA0", .held_bytes = {true, 0}, .measured_bytes = {true, 104}}};
    bt_metrics_view view = {.models = models,
                            .n_models = 2,
                            .pools = pools,
                            .n_pools = 2,
                            .n_requests = 20,
                            .n_refused = 21,
                            .n_connections = 22,
                            .n_open = 23,
                            .flow_bytes = 24,
                            .bodies_bytes = 25,
                            .rss_bytes = 26,
                            .uptime_s = 27,
                            .n_events_dropped = 28};
    expo *e = text_of(&view);
    check(e, "burthen_requests_total{model=\"a\",outcome=\"ok\"}", 1);
    check(e, "burthen_requests_total{model=\"a\",outcome=\"error\"}", 2);
    check(e, "burthen_requests_total{model=\"a\",outcome=\"cancelled\"}", 3);
    check(e, "burthen_requests_total{model=\"a\",outcome=\"refused\"}", 4);
    check(e, "burthen_model_starts_total{model=\"a\"}", 5);
    check(e, "burthen_model_start_failures_total{model=\"a\"}", 6);
    check(e, "burthen_model_evictions_total{model=\"a\"}", 7);
    check(e, "burthen_requests_running{model=\"a\"}", 8);
    check(e, "burthen_requests_waiting{model=\"a\"}", 9);
    check(e, "burthen_tokens_total{model=\"a\",kind=\"prompt\"}", 10);
    check(e, "burthen_tokens_total{model=\"a\",kind=\"output\"}", 11);
    check(e, "burthen_request_first_byte_seconds_sum{model=\"a\"}", 0.25);
    check(e, "burthen_request_seconds_sum{model=\"a\"}", 2.5);
    check(e, "burthen_model_start_seconds_sum{model=\"a\"}", 25);
    static const char *const states[] = {"stopped", "admitted", "starting", "ready", "stopping", "failed"};
    for (size_t i = 0; i < 6; i++) {
        char series[128];
        (void)snprintf(series, sizeof series, "burthen_model_state{model=\"a\",state=\"%s\"}", states[i]);
        check(e, series, strcmp(states[i], "ready") == 0);
        (void)snprintf(series, sizeof series,
                       "burthen_model_state{model=\"q\\\"\\\\\\nq\xEF\xBF\xBD\xc3\xa4\",state=\"%s\"}", states[i]);
        check(e, series, 0);
    }
    check(e, "burthen_requests_total{model=\"q\\\"\\\\\\nq\xEF\xBF\xBD\xc3\xa4\",outcome=\"ok\"}",
          18446744073709551615.0);
    check(e, "burthen_model_bytes{model=\"a\",pool=\"host\",kind=\"need\"}", 12);
    check(e, "burthen_model_bytes{model=\"a\",pool=\"host\",kind=\"held\"}", 0);
    check_none(e, "burthen_model_bytes{model=\"a\",pool=\"host\",kind=\"peak\"}"); /* not known is not 0 */
    check_none(e, "burthen_model_bytes{model=\"a\",pool=\"CUDA0\",kind=\"need\"}");
    check(e, "burthen_model_bytes{model=\"a\",pool=\"CUDA0\",kind=\"held\"}", 13);
    check(e, "burthen_model_bytes{model=\"a\",pool=\"CUDA0\",kind=\"peak\"}", 14);
    check(e, "burthen_pool_bytes{pool=\"host\",kind=\"limit\"}", 100);
    check(e, "burthen_pool_bytes{pool=\"host\",kind=\"free\"}", 101);
    check_none(e, "burthen_pool_bytes{pool=\"host\",kind=\"held\"}");
    check(e, "burthen_pool_bytes{pool=\"CUDA0\",kind=\"held\"}", 0);
    check(e, "burthen_pool_bytes{pool=\"CUDA0\",kind=\"measured\"}", 104);
    check(e, "burthen_http_requests_total", 20);
    check(e, "burthen_http_refused_total", 21);
    check(e, "burthen_http_connections", 22);
    check(e, "burthen_http_requests_open", 23);
    check(e, "burthen_flow_bytes", 24);
    check(e, "burthen_body_bytes", 25);
    check(e, "burthen_resident_bytes", 26);
    check(e, "burthen_uptime_seconds", 27);
    check(e, "burthen_events_dropped_total", 28);
    expo_close(e);
}

/* The text has the families of the table and no others, also without any model, and the page describes each as it is.
 */
static void the_table(void **state) {
    (void)state;
    uint32_t n = 0;
    const bt_metrics_family *families = bt_metrics_families(&n);
    expo *e = text_of(&(bt_metrics_view){0});
    assert_int_equal(e->n_families, n);
    size_t n_page = 0;
    char *page = read_file(BT_TEST_DATA "/../../docs/metrics.md", &n_page);
    size_t n_rows = 0;
    for (const char *row = strstr(page, "\n| `burthen_"); row; row = strstr(row + 1, "\n| `burthen_"))
        n_rows++;
    assert_int_equal(n_rows, n);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(expo_has_family(e, families[i].name));
        char row[512];
        (void)snprintf(row, sizeof row, "\n| `%s` | %s | %s | %s | %s |\n", families[i].name, families[i].type,
                       families[i].labels, families[i].unit, families[i].help);
        if (!strstr(page, row)) fail_msg("docs/metrics.md has no row:%s", row);
        /* Prometheus's rules for names */
        size_t length = strlen(families[i].name);
        bool total = length > 6 && strcmp(families[i].name + length - 6, "_total") == 0;
        assert_int_equal(total, strcmp(families[i].type, "counter") == 0);
    }
    free(page);
    expo_close(e);
}

/* ---- servers ------------------------------------------------------------------------------------------------------
 */

/* Of up to 4 servers m0, m1...; to expo_close. */
static expo *merged(const char *const *texts, uint32_t n) {
    static const char *const ids[] = {"m0", "m1", "m\"2\\", "m3"};
    bt_metrics_model models[4] = {0};
    for (uint32_t i = 0; i < n; i++) {
        models[i] = (bt_metrics_model){
            .id = ids[i], .state = "ready", .child_text = texts[i], .n_child_text = texts[i] ? strlen(texts[i]) : 0};
    }
    return text_of(&(bt_metrics_view){.models = models, .n_models = n});
}

static void what_servers_export(void **state) {
    (void)state;
    size_t n = 0;
    char *llama = read_file(BT_TEST_DATA "/metrics/llama-server.txt", &n);
    char *python = read_file(BT_TEST_DATA "/metrics/python-client.txt", &n);
    expo *e = merged((const char *const[]){llama, python, llama, NULL}, 4);
    check(e, "llamacpp:prompt_tokens_total{model=\"m0\"}", 47);
    check(e, "llamacpp:prompt_tokens_total{model=\"m\\\"2\\\\\"}", 47);
    check_none(e, "llamacpp:prompt_tokens_total{model=\"m1\"}");
    check(e, "llamacpp:prompt_seconds_total{model=\"m0\"}", 0.338713);
    check(e, "llamacpp:n_busy_slots_per_decode{model=\"m0\"}", 1);
    check(e,
          "python_info{model=\"m1\",implementation=\"CPython\",major=\"3\",minor=\"12\",patchlevel=\"3\",version=\"3."
          "12.3\"}",
          1);
    check(
        e,
        "engine:request_success_total{model=\"m1\",finished_reason=\"stop\",exported_model=\"opt \\\"125m\\\"\\\\x\"}",
        3);
    check(e,
          "engine:request_success_total{model=\"m1\",finished_reason=\"length\",exported_model=\"opt "
          "\\\"125m\\\"\\\\x\"}",
          1);
    check(e, "engine:time_to_first_token_seconds_bucket{model=\"m1\",le=\"0.1\",model_name=\"opt\"}", 2);
    check(e, "engine:time_to_first_token_seconds_count{model=\"m1\",model_name=\"opt\"}", 4);
    check(e, "rpc_duration_seconds{model=\"m1\",quantile=\"0.99\"}", (double)NAN);
    check(e, "rpc_duration_seconds_sum{model=\"m1\"}", 1.7e7);
    check(e, "some_untyped_thing{model=\"m1\"}", -HUGE_VAL);
    check(e, "spaced{model=\"m1\",a=\"1\",b=\"2\"}", 7.5);
    for (size_t i = 0; i < 3; i++) {
        char series[64];
        (void)snprintf(series, sizeof series, "burthen_metrics_left_out{model=\"%s\"}",
                       i == 2 ? "m\\\"2\\\\"
                       : i    ? "m1"
                              : "m0");
        check(e, series, 0);
    }
    check_none(e, "burthen_metrics_left_out{model=\"m3\"}"); /* it said nothing */
    uint32_t n_ours = 0;
    (void)bt_metrics_families(&n_ours);
    assert_int_equal(e->n_families, n_ours + 15 + 7);
    expo_close(e);
    free(llama);
    free(python);
}

/* Each line by its own is not of the format, and spoils nothing else. */
static void lines_that_are_left_out(void **state) {
    (void)state;
    static const char *const lines[] = {"a",
                                        "a ",
                                        "a x",
                                        "a 1 x",
                                        "a 1 2 3",
                                        "a 1,5",
                                        "a 0x10",
                                        "a 1e",
                                        "a --1",
                                        "a .",
                                        "a +NaN",
                                        "a Infinity",
                                        "9a 1",
                                        "a-b 1",
                                        "a{ 1",
                                        "a{} ",
                                        "a{b} 1",
                                        "a{b=} 1",
                                        "a{b=c} 1",
                                        "a{b=\"c} 1",
                                        "a{b=\"c\" 1",
                                        "a{b=\"c\"d=\"e\"} 1",
                                        "a{,} 1",
                                        "a{b=\"c\",,} 1",
                                        "a{b:c=\"d\"} 1",
                                        "a{b=\"\\x\"} 1",
                                        "a{b=\"\\\"} 1",
                                        "a{b=\"c\",b=\"d\"} 1",
                                        "a{b=\"\xff\"} 1",
                                        "a{b=\"\x01\"} 1",
                                        "a 1\r",
                                        "a{model=\"x\",exported_model=\"y\"} 1",
                                        "a 1 99999999999999999999",
                                        "a 1 1.5",
                                        "{} 1",
                                        "# TYPE a",
                                        "# TYPE a thing",
                                        "# TYPE a counter more",
                                        "# TYPE good gauge",
                                        "# HELP 9",
                                        "# HELP a \\x",
                                        "# HELP good twice",
                                        "burthen_mine 1",
                                        "# TYPE burthen_requests_total counter",
                                        "# TYPE summed summary",
                                        "h_bucket 1",
                                        "h 1",
                                        "h_sum{le=\"1\"} 1",
                                        "s 1",
                                        "s_sum{quantile=\"1\"} 2"};
    size_t n = sizeof lines / sizeof *lines;
    for (size_t i = 0; i < n; i++) {
        char text[1024];
        (void)snprintf(text, sizeof text,
                       "# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n# TYPE s summary\ns_sum "
                       "1\nsummed 3\n# HELP good of it\n"
                       "# TYPE good counter\ngood 1\n%s\nlast 2\n",
                       lines[i]);
        expo *e = merged((const char *const[]){text}, 1);
        const double *left_out = expo_value(e, "burthen_metrics_left_out{model=\"m0\"}");
        if (!left_out || *left_out != 1) fail_msg("it was not left out: %s", lines[i]);
        check(e, "good{model=\"m0\"}", 1);
        check(e, "last{model=\"m0\"}", 2);
        check(e, "h_count{model=\"m0\"}", 1);
        check(e, "summed{model=\"m0\"}", 3);
        uint32_t n_ours = 0;
        (void)bt_metrics_families(&n_ours);
        assert_int_equal(e->n_families, n_ours + 5);
        expo_close(e);
    }
    /* And those that are: at the edges of the format. */
    expo *e = merged(
        (const char *const[]){
            "a{}1\na{b=\"\",}\t.5e+3\na{b=\"}\"} 5. -9\n  \n# HELP\n# TYPE\n#\n# x\na{c=\"\xc3\xa4\"} +Inf"},
        1);
    check(e, "a{model=\"m0\"}", 1);
    check(e, "a{model=\"m0\",b=\"\"}", 500);
    check(e, "a{model=\"m0\",b=\"}\"}", 5);
    check(e, "a{model=\"m0\",c=\"\xc3\xa4\"}", HUGE_VAL);
    check(e, "burthen_metrics_left_out{model=\"m0\"}", 2); /* HELP and TYPE of nothing */
    expo_close(e);
}

static void types_that_differ(void **state) {
    (void)state;
    /* In whatever order they come, and also where one of them says nothing of it. */
    static const char counter[] = "# TYPE a counter\na 1\na{b=\"c\"} 2\n# TYPE ok gauge\nok 1\n";
    static const char gauge[] = "# TYPE a gauge\na 3\n# HELP ok the second\n# TYPE ok gauge\nok 2\n";
    static const char none[] = "a 4\n# TYPE ok gauge\nok 3\n";
    static const char typed_only[] = "# HELP a x\n# TYPE a gauge\n"; /* and no sample */
    const char *const cases[][2] = {
        {counter, gauge}, {gauge, counter}, {counter, none}, {none, counter}, {counter, typed_only}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expo *e = merged(cases[i], 2);
        assert_false(expo_has_family(e, "a"));
        for (uint32_t k = 0; k < 2; k++) {
            char series[64];
            (void)snprintf(series, sizeof series, "burthen_metrics_left_out{model=\"m%u\"}", k);
            check(e, series, cases[i][k] == counter ? 2 : cases[i][k] == typed_only ? 0 : 1);
            (void)snprintf(series, sizeof series, "ok{model=\"m%u\"}", k);
            if (cases[i][k] != typed_only) check(e, series, cases[i][k] == counter ? 1 : cases[i][k] == gauge ? 2 : 3);
        }
        expo_close(e);
    }
    /* A name that is a part of one server's histogram, and another's counter. */
    expo *e = merged((const char *const[]){"# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n",
                                           "# TYPE h_count counter\nh_count 7\n"},
                     2);
    check(e, "h_count{model=\"m0\"}", 1);
    check(e, "h_count{model=\"m1\"}", 7);
    expo_close(e);
}

/* Samples of a family lie apart in a server's text, and together in ours (text_of is strict). */
static void families_apart(void **state) {
    (void)state;
    expo *e = merged(
        (const char *const[]){
            "# TYPE a counter\n# TYPE b counter\na{x=\"1\"} 1\nb{x=\"1\"} 2\na{x=\"2\"} 3\nb{x=\"2\"} 4\n",
            "b 5\n# TYPE b counter\n# TYPE a counter\na 6\n"},
        2);
    check(e, "a{model=\"m0\",x=\"2\"}", 3);
    check(e, "a{model=\"m1\"}", 6);
    assert_false(expo_has_family(e, "b")); /* its type came too late in the second: there it has none */
    expo_close(e);
}

static void servers_that_say_too_much(void **state) {
    (void)state;
    bt_text large;
    bt_text_init(&large, 8u << 20);
    for (uint32_t i = 0; i < 12000; i++)
        bt_text_addf(&large, "many{i=\"%u\"} %u\n", i, i);
    expo *e = merged((const char *const[]){bt_text_str(&large), "after 1\n"}, 2);
    check(e, "many{model=\"m0\",i=\"9999\"}", 9999);
    check_none(e, "many{model=\"m0\",i=\"10000\"}");
    check(e, "burthen_metrics_left_out{model=\"m0\"}", 2000);
    check(e, "after{model=\"m1\"}", 1);
    expo_close(e);
    bt_text_done(&large);
    /* Families: 1024 of all servers. */
    for (uint32_t i = 0; i < 1030; i++)
        bt_text_addf(&large, "family_%u 1\n", i);
    e = merged((const char *const[]){bt_text_str(&large), "family_3 1\nfamily_2000 1\n"}, 2);
    check(e, "family_1023{model=\"m0\"}", 1);
    check_none(e, "family_1024{model=\"m0\"}");
    check(e, "burthen_metrics_left_out{model=\"m0\"}", 6);
    check(e, "family_3{model=\"m1\"}", 1);
    check(e, "burthen_metrics_left_out{model=\"m1\"}", 1);
    expo_close(e);
    bt_text_done(&large);
    /* A text over 1 MiB is cut at a line. */
    bt_text_add(&large, "first 1\n");
    while (large.n_bytes < BT_SCRAPE_TEXT_MAX)
        bt_text_add(&large, "# a comment of some length that says nothing at all, again and again\n");
    bt_text_add(&large, "second 2\nthird 3");
    e = merged((const char *const[]){bt_text_str(&large)}, 1);
    check(e, "first{model=\"m0\"}", 1);
    assert_false(expo_has_family(e, "second"));
    check(e, "burthen_metrics_left_out{model=\"m0\"}", 3);
    expo_close(e);
    bt_text_done(&large);
}

/* Where there is too little room, whole families are left out, and what is written stays whole. */
static void little_room(void **state) {
    (void)state;
    bt_text one;
    bt_text_init(&one, 1u << 20);
    bt_text_add(&one, "# TYPE small gauge\nsmall 1\n# TYPE large gauge\n");
    for (uint32_t i = 0; i < 1000; i++)
        bt_text_addf(&one, "large{i=\"%u\"} 1\n", i);
    bt_text_add(&one, "# TYPE little gauge\nlittle 1\n");
    bt_metrics_model m = {.id = "m", .state = "ready", .child_text = one.data, .n_child_text = one.n_bytes};
    bt_metrics_view view = {.models = &m, .n_models = 1};
    bt_text whole;
    bt_text_init(&whole, TEXT_MAX);
    bt_metrics_text(&view, &whole);
    uint32_t n_with = 0;
    uint32_t n_without = 0;
    for (size_t max = whole.n_bytes - 34000; max < whole.n_bytes + 34000; max += 499) {
        bt_text out;
        bt_text_init(&out, max);
        bt_metrics_text(&view, &out);
        if (out.failed) { /* not even our own had room */
            bt_text_done(&out);
            continue;
        }
        expo *e = expo_read(bt_text_str(&out), out.n_bytes, true);
        if (e->wrong[0]) fail_msg("%s", e->wrong);
        bool large = expo_has_family(e, "large");
        n_with += large;
        n_without += !large;
        if (large) check(e, "large{model=\"m\",i=\"999\"}", 1);
        expo_close(e);
        bt_text_done(&out);
    }
    assert_true(n_with > 10 && n_without > 10);
    bt_text_done(&whole);
    bt_text_done(&one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_checker_can_fail),
        cmocka_unit_test(histograms),
        cmocka_unit_test(every_value),
        cmocka_unit_test(the_table),
        cmocka_unit_test(what_servers_export),
        cmocka_unit_test(lines_that_are_left_out),
        cmocka_unit_test(types_that_differ),
        cmocka_unit_test(families_apart),
        cmocka_unit_test(servers_that_say_too_much),
        cmocka_unit_test(little_room),
    };
    uint64_t live = bt_heap_live_blocks();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed || bt_heap_live_blocks() != live;
}
