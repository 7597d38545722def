/* SPDX-License-Identifier: MIT
 * test_router_words.c: commands split as sh would, and what only a shell could do refused. */
#include "router/words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Words joined by "|", or "LINE!sentence". */
static const char *split(const char *text) {
    static char got[2000];
    bt_arena *arena = bt_arena_open(1u << 20, 4096);
    char **words = NULL;
    uint32_t n = 0;
    uint32_t line = 0;
    bt_error err = {0};
    assert_non_null(arena);
    if (bt_words_split(text, 16, arena, &words, &n, &line, &err) != BT_OK) {
        assert_string_equal(err.code, "config");
        (void)snprintf(got, sizeof got, "%u!%s", line, err.text);
    } else {
        got[0] = '\0';
        for (uint32_t i = 0; i < n; i++) {
            if (i > 0) strcat(got, "|");
            strcat(got, words[i]);
        }
        assert_null(words[n]);
    }
    bt_arena_close(arena);
    return got;
}

static void as_sh(void **state) {
    (void)state;
    assert_string_equal(split("a b  c\td\ne"), "a|b|c|d|e");
    assert_string_equal(split("  a  "), "a");
    assert_string_equal(split(""), "");
    assert_string_equal(split("a 'b c' \"d e\" f\\ g"), "a|b c|d e|f g");
    assert_string_equal(split("a'b'\"c\"d"), "abcd");
    assert_string_equal(split("a '' \"\""), "a||");
    assert_string_equal(split("a 'b\\n'"), "a|b\\n");
    assert_string_equal(split("a \"b\\\"c\\\\d\\$e\\n\""), "a|b\"c\\d$e\\n");
    assert_string_equal(split("a \"it's\" 'say \"x\"'"), "a|it's|say \"x\"");
    assert_string_equal(split("--json '{\"a\": [1, 2]}'"), "--json|{\"a\": [1, 2]}");
}

static void lines(void **state) {
    (void)state;
    assert_string_equal(split("a \\\n  b \\\n  c"), "a|b|c");
    assert_string_equal(split("a \\  \n b"), "a|b"); /* blanks behind it: nobody sees them */
    assert_string_equal(split("a \\\r\n b\r\n"), "a|b");
    assert_string_equal(split("a\\\nb"), "a|b");
    assert_string_equal(split("# all\na\n  # b \\\nc # d"), "a|c|#|d");
    assert_string_equal(split("a \\\n# off\n b"), "a|b");
    assert_string_equal(split("a\n#b"), "a");
}

static void no_shell(void **state) {
    (void)state;
    static const char *const bad[] = {"a | b", "a > log", "a >log", "a 2>&1", "a && b", "a ; b", "a $(b)",
                                      "a `b`", "a < b",   "a & b",  "a &> b", "a || b", "a >> b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (!strstr(split(bad[i]), "sh -c")) fail_msg("%s: %s", bad[i], split(bad[i]));
    }
    assert_string_equal(split("a '|' \">\" \\; '&&'"), "a|||>|;|&&");
    assert_string_equal(split("sh -c 'a | b > c'"), "sh|-c|a | b > c");
    assert_string_equal(split("a b;c $HOME x>y --a=>b"), "a|b;c|$HOME|x>y|--a=>b");
    assert_non_null(strstr(split("CUDA_VISIBLE_DEVICES=0 a"), "env:"));
    assert_string_equal(split("a B=0"), "a|B=0");
    assert_string_equal(split("./a=b c"), "./a=b|c");
}

static void wrong(void **state) {
    (void)state;
    assert_string_equal(split("a 'b"), "0!a ' without its end");
    assert_string_equal(split("a\nb\n \"c"), "2!a \" without its end");
    assert_string_equal(split("a \\"), "0!a \\ with nothing behind it");
    assert_string_equal(split("a \\\n b | c"),
                        "1!no shell reads this command, so \"|\" would go to the program: write sh "
                        "-c '...' if a shell shall, or '|' in quotes if it is meant so");
    assert_string_equal(split("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17"), "0!a command of more than 16 words");
    assert_string_equal(split("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"), "1|2|3|4|5|6|7|8|9|10|11|12|13|14|15|16");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_sh), cmocka_unit_test(lines), cmocka_unit_test(no_shell),
                                       cmocka_unit_test(wrong)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
