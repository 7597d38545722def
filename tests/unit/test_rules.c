/* SPDX-License-Identifier: MIT
 * test_rules.c: where rules for tensors send them: llama.cpp's expressions in POSIX's words, and the order of rules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ARGV_CHECK(condition) assert_true(condition)
#include "argv_kit.h"
#include "guard/rules.h"

#include <regex.h>
#include <stdio.h>

static void translates(const char *pattern, const char *expected) {
    char text[128];
    bool can = bt_rule_translate(pattern, text, sizeof text);
    if (!expected) {
        if (can) fail_msg("%s became %s", pattern, text);
        return;
    }
    if (!can) fail_msg("%s was not translated", pattern);
    assert_string_equal(text, expected);
    regex_t regex;
    assert_int_equal(regcomp(&regex, text, REG_EXTENDED | REG_NOSUB), 0);
    regfree(&regex);
}

static void expressions(void **state) {
    (void)state;
    translates("exps", "exps");
    translates("\\.ffn_(up|down|gate|gate_up)_(ch|)exps", "\\.ffn_(up|down|gate|gate_up)_(ch|)exps");
    translates("blk\\.\\d+\\.ffn", "blk\\.[0-9]+\\.ffn");
    translates("blk\\.(?:[0-9]|1[0-9])\\.", "blk\\.([0-9]|1[0-9])\\.");
    translates("blk\\.[\\d]\\.", "blk\\.[0-9]\\.");
    translates("[^\\d.]x", "[^0-9.]x");
    translates("\\w\\-\\_\\/", "[A-Za-z0-9_]-_/");
    translates("^a{2,3}$", "^a{2,3}$");
    translates("", "");
    translates("blk(?=\\.)", NULL);
    translates("blk(?!\\.)", NULL);
    translates("a+?", NULL);
    translates("a{2}?", NULL);
    translates("\\bffn", NULL);
    translates("(a)\\1", NULL);
    translates("a\\", NULL);
    translates("[]a]", NULL);
    translates("[[:alpha:]]", NULL);
    translates("[a", NULL);
    translates("a{1000}", NULL); /* and nested ones would be a thousand times as much */
    translates("((a{9}){9}){9}", NULL);
    char small[4];
    assert_false(bt_rule_translate("abcdef", small, sizeof small));
}

static bt_rules rules;

static int start(void **state) {
    *state = bt_arena_open(UINT64_C(1) << 24, 65536);
    return *state ? 0 : -1;
}

static int stop(void **state) {
    bt_arena_close(*state);
    return 0;
}

static bt_rule_set *read(void **state, const char *text, bool movable) {
    static line words;
    static bt_command command;
    static bt_effective effective;
    const bt_argv *argv = NULL;
    bt_rule_set *set = NULL;
    const char *reason = NULL;
    bt_command_find(line_split(&words, text), &command);
    assert_int_equal(bt_argv_parse(*state, words.argv, command.first, command.program, &argv, NULL), BT_OK);
    bt_effective_input input = {&command, argv, argv_no_variable, NULL, NULL, NULL};
    assert_int_equal(bt_effective_resolve(*state, &input, &effective, NULL), BT_OK);
    rules = effective.rules;
    assert_int_equal(bt_rule_set_open(*state, &rules, movable, &set, &reason, NULL), BT_OK);
    assert_null(reason);
    return set;
}

static void goes(const bt_rule_set *set, const char *name, int32_t block, bt_destination_kind kind) {
    bt_tensor tensor = {.name = name, .block = block};
    bt_destination to = bt_rule_set_find(set, &tensor);
    if (to.kind != kind) fail_msg("%s goes to %d, expected %d", name, (int)to.kind, (int)kind);
}

#define UP_3   "blk.3.ffn_up_exps.weight"
#define Q_3    "blk.3.attn_q.weight"
#define DOWN_3 "blk.3.ffn_down.weight"

static void order(void **state) {
    bt_rule_set *set = read(state, "llama-server -m x.gguf", true);
    goes(set, UP_3, 3, BT_TO_MOVABLE);
    goes(set, Q_3, 3, BT_TO_LAYER);
    goes(set, "output.weight", -1, BT_TO_LAYER);
    bt_rule_set_close(set);
    /* the number of -ncmoe is the placement's, whatever it says */
    set = read(state, "llama-server -m x.gguf -ncmoe 10", true);
    goes(set, UP_3, 3, BT_TO_MOVABLE);
    bt_rule_set_close(set);
    /* of two only the last one is; nobody moves a draft's */
    set = read(state, "llama-server -m x.gguf -ncmoe 4 -ncmoe 2", true);
    goes(set, UP_3, 3, BT_TO_HOST);
    goes(set, "blk.4.ffn_up_exps.weight", 4, BT_TO_MOVABLE);
    bt_rule_set_close(set);
    set = read(state, "llama-server -m x.gguf -ncmoe 4", false);
    goes(set, UP_3, 3, BT_TO_HOST);
    goes(set, "blk.4.ffn_up_exps.weight", 4, BT_TO_LAYER);
    bt_rule_set_close(set);
    set = read(state, "llama-server -m x.gguf -cmoe -ncffn 4", true);
    goes(set, UP_3, 3, BT_TO_HOST);
    goes(set, DOWN_3, 3, BT_TO_HOST);
    goes(set, "blk.4.ffn_down.weight", 4, BT_TO_LAYER);
    goes(set, Q_3, 3, BT_TO_LAYER);
    bt_rule_set_close(set);
}

/* The first that is found decides (llama_model_loader::create_tensor). */
static void patterns(void **state) {
    bt_rule_set *set = read(state, "llama-server -m x.gguf -ot 'blk\\.3\\.=CUDA1,exps=CPU' -ncmoe 9", true);
    goes(set, UP_3, 3, BT_TO_DEVICE);
    goes(set, Q_3, 3, BT_TO_DEVICE);
    goes(set, "blk.4.ffn_up_exps.weight", 4, BT_TO_HOST);
    goes(set, "blk.13.attn_q.weight", 13, BT_TO_LAYER); /* "blk.3." is not in "blk.13." */
    bt_rule_set_close(set);
    /* behind the -ncmoe: up to its number the host, from there on the device */
    set = read(state, "llama-server -m x.gguf -ncmoe 9 -ot exps=CUDA1,attn=CUDA1", true);
    goes(set, UP_3, 3, BT_TO_UNKNOWN);
    goes(set, Q_3, 3, BT_TO_DEVICE);
    bt_rule_set_close(set);
    set = read(state, "llama-server -m x.gguf -ncmoe 9 -ot exps=CPU", true);
    goes(set, UP_3, 3, BT_TO_HOST);
    bt_rule_set_close(set);
}

static void unreadable(void **state) {
    bt_tensor_rule item = {.kind = BT_RULE_PATTERN, .pattern = "a(?=b)", .buffer = "CPU"};
    bt_rules one = {.items = &item, .n = 1};
    bt_rule_set *set = NULL;
    const char *reason = NULL;
    assert_int_equal(bt_rule_set_open(*state, &one, true, &set, &reason, NULL), BT_OK);
    assert_null(set);
    assert_non_null(strstr(reason, "a(?=b)"));
    item.pattern = "a(b"; /* in order for translating, and none for POSIX */
    assert_int_equal(bt_rule_set_open(*state, &one, true, &set, &reason, NULL), BT_OK);
    assert_non_null(reason);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expressions),
        cmocka_unit_test_setup_teardown(order, start, stop),
        cmocka_unit_test_setup_teardown(patterns, start, stop),
        cmocka_unit_test_setup_teardown(unreadable, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
