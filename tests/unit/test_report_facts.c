/* SPDX-License-Identifier: MIT
 * test_report_facts.c: facts as text and as JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/heap.h"
#include "report_kit.h"

#include <jansson.h>

static void check_text(const char *wanted, bool whole) {
    bt_text text;
    bt_text_init(&text, 1u << 16);
    bt_report_facts_text(&fixture.facts, &text);
    assert_false(text.failed);
    if (whole) assert_string_equal(bt_text_str(&text), wanted);
    if (!strstr(bt_text_str(&text), wanted)) fail_msg("no \"%s\" in\n%s", wanted, bt_text_str(&text));
    bt_text_done(&text);
}

static void test_text(void **state) {
    (void)state;
    check_text("Model\n"
               "  File                 models/m-00001-of-00002.gguf\n"
               "  Size                 19.1 MiB in 2 files, header 2.9 KiB\n"
               "  Architecture         llama\n"
               "  Name                 A model\n"
               "  Weights              18.1 MiB in 4 tensors, 8 M parameters\n"
               "  Blocks               3 of width 256, 4 heads, feed-forward 700\n"
               "  Trained context      8192 tokens\n"
               "  KV cache             1.5 KiB a token at f16, in 2 blocks\n"
               "  Sliding window       1024 tokens in 1 of them\n"
               "  Vocabulary           30000 tokens, head tied to the embedding\n"
               "  Tokenizer            gpt2\n"
               "  Pre-tokenizer        smollm\n"
               "  Chat template        yes\n"
               "\n"
               "Units (6; the largest that streams has 2.9 MiB)\n"
               "  attention                 2  1.9 MiB\n"
               "  feed-forward              3  8.6 MiB\n"
               "  tables                    1  7.6 MiB\n"
               "  always in memory             1.0 KiB\n",
               true);
}

static void test_text_of_odd_models(void **state) {
    (void)state;
    bt_facts *f = &fixture.facts;
    char name[400];
    memset(name, 'n', sizeof name);
    memcpy(name, "\x1b]0;title\a", 10); /* sets a window's title on a terminal */
    name[sizeof name - 1] = '\0';
    f->name = name;
    f->n_ctx_train = 0;
    f->kv_known = false;
    (void)snprintf(f->kv_reason, sizeof f->kv_reason, "recurrent state is not priced");
    f->n_expert = 8;
    f->n_expert_used = 2;
    f->has_chat_template = false;
    check_text("  Name                 \\x1b]0;title\\x07nnn", false);
    check_text("nnn...\n", false);
    check_text("  Trained context      unknown\n", false);
    check_text("  KV cache             recurrent state is not priced\n", false);
    check_text("  Experts              8, 2 used for a token: 13.4 MiB of the weights\n", false);
    check_text("  Chat template        none\n", false);
}

static void test_json(void **state) {
    (void)state;
    char *json = NULL;
    bt_error err = {0};
    assert_int_equal(bt_report_facts_json(&fixture.facts, &json, &err), BT_OK);
    json_t *root = json_loads(json, 0, NULL);
    const char *arch = NULL, *pre = NULL, *sha = NULL, *type = NULL, *kind = NULL;
    json_int_t schema = 0, token_bytes = 0, window = 0, tensors = 0, bytes = 0, image = 0;
    int chat = 0;
    assert_int_equal(json_unpack(root, "{s:I, s:s, s:{s:s, s:b}, s:s, s:{s:I}}", "schema", &schema, "arch", &arch,
                                 "tokenizer", "pre", &pre, "chat_template", &chat, "header_sha256", &sha, "kv",
                                 "f16_bytes_per_token", &token_bytes),
                     0);
    assert_int_equal(schema, 1);
    assert_string_equal(arch, "llama");
    assert_string_equal(pre, "smollm");
    assert_true(chat);
    assert_int_equal(strlen(sha), 64);
    assert_int_equal(token_bytes, 2 * (256 + 128) * 2);
    json_t *blocks = json_object_get(json_object_get(root, "kv"), "blocks");
    assert_int_equal(json_array_size(blocks), 3);
    assert_true(json_is_null(json_object_get(json_array_get(blocks, 0), "window")));
    assert_int_equal(json_unpack(json_array_get(blocks, 1), "{s:I}", "window", &window), 0);
    assert_int_equal(window, 1024);
    json_t *types = json_object_get(root, "types");
    assert_int_equal(json_array_size(types), 3); /* in the order of their numbers: f32, q8_0, q4_K */
    assert_int_equal(
        json_unpack(json_array_get(types, 2), "{s:s, s:I, s:I}", "type", &type, "tensors", &tensors, "bytes", &bytes),
        0);
    assert_string_equal(type, "q4_K");
    assert_int_equal(tensors, 2);
    assert_int_equal(bytes, 6000001);
    json_t *units = json_object_get(root, "units");
    assert_int_equal(json_array_size(units), FIXTURE_UNITS);
    assert_int_equal(
        json_unpack(json_array_get(units, 5), "{s:s, s:n, s:I}", "kind", &kind, "block", "image_bytes", &image), 0);
    assert_string_equal(kind, "table");
    assert_int_equal(image, 8008192);
    assert_int_equal(json_array_size(json_object_get(root, "shards")), 2);
    json_decref(root);
    bt_heap_free(json);
}

int main(void) {
    bt_report_init(NULL);
    const struct CMUnitTest tests[] = {REPORT_TEST(test_text), REPORT_TEST(test_text_of_odd_models),
                                       REPORT_TEST(test_json)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
