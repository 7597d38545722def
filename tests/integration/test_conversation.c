/* SPDX-License-Identifier: MIT
 * A conversation's text and tokens, below the engine: tokens equal to llama.cpp's of the same text, messages that spell
 * control tokens, and templates that break (user-case 59), after which the process goes on and holds nothing more. */
#include "base/heap.h"
#include "engine/chat_tokens.h"
#include "llama_kit.h"
#include "random.h"

#include "llama.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SKIP       77
#define TOKENS_MAX 8192
#define TEXT_MAX   2000
#define ROUNDS     400

static const char *const models[] = {"smollm2-135m-instruct-q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"};
static char path[4096];

static const char *model_path(const char *name) {
    const char *source = getenv("BT_SOURCE");
    (void)snprintf(path, sizeof path, "%s/build/models/%s", source ? source : ".", name);
    return access(path, R_OK) == 0 ? path : NULL;
}

static struct llama_model *open_vocab(const char *name) {
    struct llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    return model_path(name) ? llama_model_load_from_file(path, params) : NULL;
}

/* Words, blanks, digits, umlauts, an emoji, and characters of templates: anything but a whole control token. */
static size_t make_text(uint64_t *state, char *text) {
    static const char *const bits[] = {"the ", "  ", "\n",        "\n\n",    "\t", "Wort", "\xc3\xa4\xc3\xb6", "42",
                                       "<",    "|",  ">",         "im_end ", "{{", "}}",   "\xf0\x9f\x99\x82", "'s",
                                       " a",   ".",  "assistant", "<|",      "|>", "_"};
    size_t n_bits = random_next(state) % 40;
    text[0] = '\0';
    for (size_t i = 0; i < n_bits; i++)
        (void)strcat(text, bits[random_next(state) % (sizeof bits / sizeof *bits)]);
    return strlen(text);
}

static void add(bt_rendered_part *part, const char *text, bool of_message) {
    *part = (bt_rendered_part){text, strlen(text), of_message};
}

/* Messages without control tokens: the tokens are those of the whole text. */
static void equal_tokens(const struct llama_vocab *vocab, const char *open, const char *close, uint64_t *state) {
    char texts[3][TEXT_MAX];
    char whole[4 * TEXT_MAX] = "";
    bt_rendered_part parts[7];
    for (uint32_t i = 0; i < 3; i++) {
        (void)make_text(state, texts[i]);
        add(&parts[2 * i], i % 2 ? close : open, false);
        add(&parts[2 * i + 1], texts[i], true);
    }
    add(&parts[6], close, false);
    for (uint32_t i = 0; i < 7; i++)
        (void)strcat(whole, parts[i].text);
    bt_rendered rendered = {.parts = parts, .n_parts = 7};
    int32_t ours[TOKENS_MAX];
    int32_t theirs[TOKENS_MAX];
    uint32_t n = 0;
    bt_error err = {0};
    assert_int_equal(bt_chat_tokens(vocab, &rendered, ours, TOKENS_MAX, &n, &err), BT_OK);
    int32_t n_theirs = llama_tokenize(vocab, whole, (int32_t)strlen(whole), theirs, TOKENS_MAX, true, true);
    if ((int32_t)n != n_theirs || memcmp(ours, theirs, n * sizeof *ours) != 0)
        fail_msg("%u tokens, llama.cpp has %d of: %s", n, n_theirs, whole);
}

static uint32_t count_control(const struct llama_vocab *vocab, const int32_t *tokens, uint32_t n) {
    uint32_t n_control = 0;
    for (uint32_t i = 0; i < n; i++)
        n_control += ((unsigned)llama_vocab_get_attr(vocab, tokens[i]) & LLAMA_TOKEN_ATTR_CONTROL) != 0;
    return n_control;
}

/* Every control token of the vocabulary, spelled in a message, stays text. */
static void no_injection(const struct llama_vocab *vocab, const char *open, const char *close) {
    bt_rendered_part parts[3];
    int32_t tokens[TOKENS_MAX];
    uint32_t n_tried = 0;
    uint32_t n_plain = 0;
    bt_error err = {0};
    add(&parts[0], open, false);
    add(&parts[1], "hello", true);
    add(&parts[2], close, false);
    bt_rendered rendered = {.parts = parts, .n_parts = 3};
    assert_int_equal(bt_chat_tokens(vocab, &rendered, tokens, TOKENS_MAX, &n_plain, &err), BT_OK);
    uint32_t n_expected = count_control(vocab, tokens, n_plain);
    assert_true(n_expected >= 2); /* those of the template are there */
    for (int32_t token = 0; token < llama_vocab_n_tokens(vocab); token++) {
        if (count_control(vocab, &token, 1) == 0) continue;
        uint32_t n = 0;
        add(&parts[1], llama_vocab_get_text(vocab, token), true);
        assert_int_equal(bt_chat_tokens(vocab, &rendered, tokens, TOKENS_MAX, &n, &err), BT_OK);
        if (count_control(vocab, tokens, n) != n_expected) fail_msg("%s in a message is a token", parts[1].text);
        n_tried++;
    }
    assert_true(n_tried > 2);
}

static void test_tokens(void **unused) {
    (void)unused;
    static const char *const marks[][2] = {{"<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"},
                                           {"<start_of_turn>user\n", "<end_of_turn>\n<start_of_turn>model\n"}};
    uint64_t state = 10;
    uint32_t n_models = 0;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct llama_model *model = open_vocab(models[i]);
        if (!model) continue;
        n_models++;
        for (uint32_t round = 0; round < ROUNDS; round++)
            equal_tokens(llama_model_get_vocab(model), marks[i][0], marks[i][1], &state);
        no_injection(llama_model_get_vocab(model), marks[i][0], marks[i][1]);
        llama_model_free(model);
    }
    if (n_models == 0) skip();
}

/* More tokens than there is room for: counted, none written behind the end. */
static void test_room(void **unused) {
    (void)unused;
    struct llama_model *model = open_vocab(models[0]);
    if (!model) skip();
    bt_rendered_part part;
    add(&part, "one two three four five six seven", true);
    bt_rendered rendered = {.parts = &part, .n_parts = 1};
    int32_t tokens[4] = {-7, -7, -7, -7};
    uint32_t n = 0;
    bt_error err = {0};
    assert_int_equal(bt_chat_tokens(llama_model_get_vocab(model), &rendered, tokens, 3, &n, &err), BT_E_ARG);
    assert_string_equal(err.code, "chat_full");
    assert_true(n > 3 && err.need == n && err.have == 3);
    assert_int_equal(tokens[3], -7);
    llama_model_free(model);
}

/* ---- user-case 59 ---- */

static bt_status try_source(const char *source, bt_error *err) {
    static const bt_message messages[] = {{"user", "hello", 5}, {"user", "again", 5}};
    bt_template t = {.source = source, .bos = "<s>", .eos = "</s>", .limit_bytes = UINT64_C(32) << 20};
    bt_rendered rendered;
    uint64_t n_blocks = bt_heap_live_blocks();
    bt_status status = bt_template_render(&t, messages, 2, &rendered, err);
    if (status == BT_OK) bt_rendered_done(&rendered);
    assert_int_equal(bt_heap_live_blocks(), n_blocks);
    return status;
}

static char *repeated(const char *start, char c, size_t n) {
    char *text = malloc(strlen(start) + n + 1);
    assert_non_null(text);
    (void)strcpy(text, start);
    memset(text + strlen(start), c, n);
    text[strlen(start) + n] = '\0';
    return text;
}

/* Of stack, heap or time, whichever it meets first. */
static bool breaks_a_bound(const char *source) {
    bt_error err = {0};
    bt_status status = try_source(source, &err);
    return (status == BT_E_FORMAT && strcmp(err.code, "chat_template") == 0) ||
           (status == BT_E_NOMEM && strcmp(err.code, "chat_memory") == 0);
}

static void test_case_59(void **unused) {
    (void)unused;
    bt_error err = {0};
    char *brackets = repeated("{{ ", '(', 1000000);
    char *too_long = repeated("", 'x', (1 << 20) + 1);
    char *plain = repeated("", 'x', 1 << 20);
    assert_int_equal(try_source("{% for m in messages %}{{ m.content }}", &err), BT_E_FORMAT);
    assert_string_equal(err.code, "chat_template");
    assert_true(breaks_a_bound(brackets));
    assert_int_equal(try_source(too_long, &err), BT_E_FORMAT);
    assert_true(err.need == (1 << 20) + 1 && err.have == 1 << 20);
    assert_int_equal(try_source(plain, &err), BT_OK);
    assert_int_equal(try_source("{{ raise_exception('Conversation roles must alternate') }}", &err), BT_E_FORMAT);
    assert_non_null(strstr(err.text, "Conversation roles must alternate"));
    assert_true(breaks_a_bound("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}"));
    assert_true(breaks_a_bound("{% for i in range(1000000000) %}{{ 'x' * 1000 }}{% endfor %}"));
    assert_int_equal(try_source(bt_template_chatml, &err), BT_OK);
    free(brackets);
    free(too_long);
    free(plain);
}

static void test_worker_missing(void **unused) {
    (void)unused;
    static const bt_message hello = {"user", "hello", 5};
    bt_rendered rendered;
    bt_error err = {0};
    const char *const workers[] = {"/nonexistent/worker", "/bin/true", "/bin/cat"};
    for (size_t i = 0; i < sizeof workers / sizeof *workers; i++) {
        bt_template t = {.source = "x", .bos = "", .eos = "", .limit_bytes = 1 << 24, .worker = workers[i]};
        assert_int_equal(bt_template_render(&t, &hello, 1, &rendered, &err), BT_E_IO);
        assert_string_equal(err.code, "chat_worker");
    }
}

static void test_parts(void **unused) {
    (void)unused;
    static const bt_message messages[] = {{"user", "a\0b", 3}};
    bt_template t = {.source = bt_template_chatml, .bos = "", .eos = "", .limit_bytes = 1 << 24};
    bt_rendered rendered;
    bt_error err = {0};
    assert_int_equal(bt_template_render(&t, messages, 1, &rendered, &err), BT_OK);
    assert_int_equal(rendered.n_parts, 3);
    assert_true(!rendered.parts[0].of_message && rendered.parts[1].of_message && !rendered.parts[2].of_message);
    assert_int_equal(rendered.parts[1].n_bytes, 3);
    assert_memory_equal(rendered.parts[1].text, "a\0b", 3);
    assert_int_equal(rendered.n_stops, 0);
    bt_rendered_done(&rendered);
    uint64_t small = 0;
    uint64_t large = 0;
    assert_int_equal(bt_template_price(&t, 256, &small, &err), BT_OK);
    assert_int_equal(bt_template_price(&t, 65536, &large, &err), BT_OK);
    assert_true(large > small && large < UINT64_C(64) << 20);
}

int main(void) {
    llama_log_set(kit_quiet, NULL);
    llama_backend_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens), cmocka_unit_test(test_room),           cmocka_unit_test(test_case_59),
        cmocka_unit_test(test_parts),  cmocka_unit_test(test_worker_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
