/* SPDX-License-Identifier: MIT
 * test_router_usage.c: the tokens of answers, from what llama-server really said (tests/data/usage) and from other
 * servers' shapes, split everywhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/heap.h"
#include "usage_check.h"

#define ANY UINT64_MAX /* in the place of a count: it must not be known */

static void check_known(const char *what, bt_known got, uint64_t want) {
    if (want == ANY && got.known) fail_msg("%s: %llu, and nothing was said", what, (unsigned long long)got.value);
    if (want != ANY && (!got.known || got.value != want))
        fail_msg("%s: %s %llu, not %llu", what, got.known ? "known" : "unknown", (unsigned long long)got.value,
                 (unsigned long long)want);
}

static void check_rate(double got, double want) {
    if (got < want * (1 - 1e-12) || got > want * (1 + 1e-12)) fail_msg("%.17g, not %.17g", got, want);
}

/* The same, however the text comes. */
static bt_usage check(bool stream, const char *text, uint64_t prompt, uint64_t cached, uint64_t output) {
    size_t n = strlen(text);
    bt_usage whole = usage_of(stream, text, n, 0);
    check_known("prompt", whole.prompt_tokens, prompt);
    check_known("cached", whole.cached_tokens, cached);
    check_known("output", whole.output_tokens, output);
    for (size_t piece = 1; piece < 9; piece++) {
        bt_usage pieces = usage_of(stream, text, n, piece);
        assert_true(usage_same(&whole, &pieces));
    }
    for (size_t cut = 0; cut <= n; cut++) {
        bt_usage halves;
        bt_usage_reader *reader = bt_usage_open(stream);
        bt_usage_add(reader, text, cut);
        bt_usage_add(reader, text + cut, n - cut);
        bt_usage_finish(reader, &halves);
        assert_true(usage_same(&whole, &halves));
    }
    return whole;
}

/* ---- what llama-server said -------------------------------------------------------------------------------------- */

static char *read_file(const char *name) {
    static char text[65536];
    char path[512];
    (void)snprintf(path, sizeof path, BT_TEST_DATA "/usage/%s", name);
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("%s is missing", path);
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) (void)fclose(file);
    assert_in_range(n, 1, sizeof text - 2);
    text[n] = '\0';
    return text;
}

static void llama_server(void **state) {
    (void)state;
    bt_usage u = check(false, read_file("chat.json"), 32, 0, 6);
    check_rate(u.prompt_per_s, 178.95990738824793);
    check_rate(u.output_per_s, 88.73586881289155);
    check_known("draft", u.draft_tokens, ANY);
    u = check(true, read_file("chat.sse"), 32, 31, 6); /* of timings alone */
    check_rate(u.output_per_s, 90.07061536244416);
    u = check(true, read_file("chat-usage.sse"), 32, 31, 6);
    check_rate(u.prompt_per_s, 85.8074480864939);
    (void)check(false, read_file("completions.json"), 2, 0, 5);
    (void)check(false, read_file("completions-two.json"), 2, 1, 3); /* it says no more than the first one's */
    u = check(false, read_file("native.json"), 5, 4, 5);
    check_rate(u.prompt_per_s, 86.47526807333102);
    u = check(true, read_file("native.sse"), 5, 4, 3);
    check_rate(u.output_per_s, 89.44943870477212);
    (void)check(false, read_file("native-two.json"), 4 + 2, 3 + 1, 3 + 3); /* a list: added up */
    u = check(false, read_file("responses.json"), 32, 31, 5);
    check_rate(u.prompt_per_s + 1, 1); /* not said */
    u = check(true, read_file("responses.sse"), 32, 31, 5);
    check_rate(u.output_per_s, 87.72122195662186);
    (void)check(false, read_file("messages.json"), 32, 31, 6);
    (void)check(true, read_file("messages.sse"), 32, 31, 6);
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

static void bodies(void **state) {
    (void)state;
    (void)check(false,
                "{\"object\":\"list\",\"data\":[{\"embedding\":[0.5,-1e-3]}],\"usage\":{\"prompt_tokens\":7,\"total_"
                "tokens\":7}}",
                7, ANY, ANY);
    /* Anthropic's input_tokens are without those of the cache. */
    (void)check(false,
                "{\"usage\":{\"input_tokens\":5,\"cache_creation_input_tokens\":100,\"cache_read_input_tokens\":20,"
                "\"output_tokens\":9}}",
                125, 20, 9);
    (void)check(false,
                "{\"usage\":{\"input_tokens\":50,\"input_tokens_details\":{\"cached_tokens\":20},\"output_tokens\":9}}",
                50, 20, 9);
    bt_usage u = check(
        false, "{\"timings\":{\"prompt_n\":3,\"draft_n\":40,\"draft_n_accepted\":31,\"predicted_per_second\":1.5e+2}}",
        3, ANY, ANY);
    check_known("draft", u.draft_tokens, 40);
    check_known("accepted", u.accepted_tokens, 31);
    check_rate(u.output_per_s, 150);
    /* usage is believed before timings, in any order. */
    (void)check(false,
                "{\"timings\":{\"cache_n\":1,\"prompt_n\":1,\"predicted_n\":1},\"usage\":{\"prompt_tokens\":9,"
                "\"completion_tokens\":8}}",
                9, 1, 8);
    (void)check(false, " \t\r\n{ \"usage\" : { \"prompt_tokens\" : 4 , \"x\" : [ { \"prompt_tokens\" : 5 } ] } } \n", 4,
                ANY, ANY);
    /* One object a line: the last that says it. */
    (void)check(false, "{\"usage\":{\"prompt_tokens\":1}}\n{\"a\":1}\n{\"usage\":{\"prompt_tokens\":2}}\n", 2, ANY,
                ANY);
}

static void what_is_not_a_count(void **state) {
    (void)state;
    static const char *const values[] = {"-1",
                                         "1.5",
                                         "1e3",
                                         "2147483648",
                                         "99999999999999999999999",
                                         "\"7\"",
                                         "null",
                                         "true",
                                         "[7]",
                                         "{\"n\":7}",
                                         "0x7",
                                         "+7",
                                         "7a",
                                         "\"\\\"usage\\\":{\\\"prompt_tokens\\\":7}\""};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char text[256];
        (void)snprintf(text, sizeof text, "{\"usage\":{\"prompt_tokens\":%s,\"completion_tokens\":3}}", values[i]);
        (void)check(false, text, ANY, ANY, 3);
    }
    (void)check(false, "{\"usage\":{\"prompt_tokens\":2147483647,\"completion_tokens\":0}}", 2147483647, ANY, 0);
    static const char *const rates[] = {"-1",  "1e10", "1e999999999999", "1e-999", "null", "\"5\"", "0", "1.2.3", "5e",
                                        "NaN", "1e9x"};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        char text[256];
        (void)snprintf(text, sizeof text, "{\"timings\":{\"predicted_n\":2,\"predicted_per_second\":%s}}", rates[i]);
        bt_usage u = check(false, text, ANY, ANY, 2);
        if (u.output_per_s != 0) fail_msg("%s is %g", rates[i], u.output_per_s);
    }
    check_rate(check(false, "{\"timings\":{\"prompt_per_second\":0.00012345678901234567890123456789e5}}", ANY, ANY, ANY)
                   .prompt_per_s,
               12.345678901234567);
    check_rate(check(false, "{\"timings\":{\"prompt_per_second\":1000000000}}", ANY, ANY, ANY).prompt_per_s, 1e9);
}

/* Nothing but JSON's own members at their own paths. */
static void what_only_looks_like_usage(void **state) {
    (void)state;
    (void)check(false, "{\"content\":\"\\\"usage\\\":{\\\"prompt_tokens\\\":7}\"}", ANY, ANY, ANY);
    (void)check(false, "{\"content\":\"\\\\\",\"usage\":{\"prompt_tokens\":7}}", 7, ANY, ANY);
    (void)check(false, "{\"choices\":[{\"usage\":{\"prompt_tokens\":7}}]}", ANY, ANY, ANY);
    (void)check(false, "{\"other\":{\"usage\":{\"prompt_tokens\":7}}}", ANY, ANY, ANY);
    (void)check(false, "{\"usage\":{\"deep\":{\"prompt_tokens\":7}}}", ANY, ANY, ANY);
    (void)check(false, "{\"usage.prompt_tokens\":7,\"prompt_tokens\":7,\"usag\":{\"prompt_tokens\":7}}", ANY, ANY, ANY);
    (void)check(false, "{\"usages\":{\"prompt_tokens\":7},\"usage\":[{\"prompt_tokens\":7}]}", ANY, ANY, ANY);
    (void)check(false, "[[{\"usage\":{\"prompt_tokens\":7}}]]", ANY, ANY, ANY);
    /* Broken off, or no JSON at all. */
    (void)check(false, "{\"usage\":{\"prompt_tokens\":7}", ANY, ANY, ANY);
    (void)check(false, "{\"usage\":{\"prompt_tokens\" 7}}", ANY, ANY, ANY);
    (void)check(false, "<html>{\"usage\":{\"prompt_tokens\":7}}", ANY, ANY, ANY);
    (void)check(false, "", ANY, ANY, ANY);
    (void)check(false, "7", ANY, ANY, ANY);
}

static void streams(void **state) {
    (void)state;
    static const char *const ends[] = {"\n", "\r\n", "\r"};
    for (size_t i = 0; i < 3; i++) {
        const char *e = ends[i];
        char text[1024];
        /* no space after the colon; an event of two lines; a comment; other fields; usage null; a later one replaces */
        (void)snprintf(text, sizeof text,
                       "data:{\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}%s%s: hello%sevent: x%sid: 3%s"
                       "data: {\"usage\":%sdata: {\"completion_tokens\":2}}%s%sdata: {\"usage\":null}%s%sdatax: "
                       "{\"usage\":{\"completion_tokens\":"
                       "3}}%s%sdata: [DONE]%s%s",
                       e, e, e, e, e, e, e, e, e, e, e, e, e, e);
        (void)check(true, text, 1, ANY, 2);
    }
    /* Anthropic: from two events. */
    (void)check(true,
                "event: message_start\ndata: "
                "{\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\n\n"
                "data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15}}\n\n",
                10, ANY, 15);
    /* A broken event is over at the blank line, and spoils no other; one without its end says nothing. */
    (void)check(true, "data: {\"usage\":{\"prompt_tokens\":1}\n\ndata: {\"usage\":{\"prompt_tokens\":2}}\n\n", 2, ANY,
                ANY);
    (void)check(true, "data: {\"usage\":{\"prompt_tokens\":1}}\n\ndata: {\"usage\":{\"prompt_tokens\":2}", 1, ANY, ANY);
    (void)check(true, "data: {\"usage\":{\"prompt_tokens\":2}}", 2, ANY, ANY); /* the last event need not be ended */
    (void)check(true, "{\"usage\":{\"prompt_tokens\":1}}\n\n", ANY, ANY, ANY);
}

/* Megabytes of embeddings, or of one string: usage at the end, and the memory of one reader. */
/* Events with data are counted as they pass, however they are cut; what keeps a connection alive is none. */
static void pieces(void **state) {
    (void)state;
    static const char text[] =
        ": wait\n\ndata: {\"a\":1}\n\nevent: x\ndata: {\"a\":2}\r\n\r\n: wait\n\n\ndata: [DONE]\n\n";
    for (size_t cut = 0; cut < sizeof text; cut++) {
        bt_usage usage;
        bt_usage_reader *reader = bt_usage_open(true);
        bt_usage_add(reader, text, cut);
        bt_usage_add(reader, text + cut, sizeof text - 1 - cut);
        assert_int_equal(bt_usage_pieces(reader), 3);
        bt_usage_finish(reader, &usage);
    }
    bt_usage usage;
    bt_usage_reader *body = bt_usage_open(false);
    bt_usage_add(body, text, sizeof text - 1);
    assert_int_equal(bt_usage_pieces(body), 0);
    bt_usage_finish(body, &usage);
    assert_int_equal(bt_usage_pieces(NULL), 0);
}

static void a_large_body(void **state) {
    (void)state;
    uint64_t live = bt_heap_live_bytes();
    uint64_t blocks = bt_heap_live_blocks();
    bt_usage_reader *reader = bt_usage_open(false);
    uint64_t allocations = bt_heap_allocations();
    assert_int_equal(bt_heap_live_blocks(), blocks + 1);
    assert_in_range(bt_heap_live_bytes() - live, 1, BT_USAGE_READER_BYTES + 64);
    static const char start[] = "{\"data\":[{\"embedding\":[0";
    static const char number[] = ",-0.0123456789";
    static const char middle[] = "]}],\"text\":\"";
    static const char end[] = "\",\"usage\":{\"prompt_tokens\":12345}}";
    bt_usage_add(reader, start, sizeof start - 1);
    for (size_t i = 0; i < 300000; i++)
        bt_usage_add(reader, number, sizeof number - 1);
    bt_usage_add(reader, middle, sizeof middle - 1);
    for (size_t i = 0; i < 300000; i++)
        bt_usage_add(reader, "some words \\\" ", 14);
    bt_usage_add(reader, end, sizeof end - 1);
    assert_int_equal(bt_heap_allocations(), allocations);
    bt_usage usage;
    bt_usage_finish(reader, &usage);
    check_known("prompt", usage.prompt_tokens, 12345);
    assert_int_equal(bt_heap_live_blocks(), blocks);
}

static void without_a_reader(void **state) {
    (void)state;
    bt_usage usage = {.prompt_tokens = {true, 3}, .output_per_s = 4};
    bt_usage_add(NULL, "{", 1);
    bt_usage_finish(NULL, &usage);
    assert_false(usage.prompt_tokens.known);
    assert_true(usage.output_per_s == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_server),
        cmocka_unit_test(bodies),
        cmocka_unit_test(what_is_not_a_count),
        cmocka_unit_test(what_only_looks_like_usage),
        cmocka_unit_test(streams),
        cmocka_unit_test(pieces),
        cmocka_unit_test(a_large_body),
        cmocka_unit_test(without_a_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
