/* SPDX-License-Identifier: MIT
 * test_config.c: config.ini as llama.cpp's grammar has it. */
#include "guard/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void hold(void **state, const char *text, const char *section, uint64_t bad_line, const char *expected) {
    bt_config config;
    char got[4000] = "";
    char *copy = malloc(strlen(text) + 1); /* of exactly this size, so that a read past it is seen */
    assert_non_null(copy);
    memcpy(copy, text, strlen(text) + 1);
    assert_int_equal(bt_config_section(*state, copy, strlen(text), section, &config, NULL), BT_OK);
    free(copy);
    if (config.bad_line != bad_line) fail_msg("'%s': line %llu", text, (unsigned long long)config.bad_line);
    for (uint32_t i = 0; bad_line == 0 && i < config.n; i++) {
        size_t n = strlen(got);
        (void)snprintf(got + n, sizeof got - n, "%s%s=%s", i > 0 ? "|" : "", config.entries[i].key,
                       config.entries[i].value);
    }
    if (bad_line == 0) assert_string_equal(got, expected);
}

static void values(void **state) {
    hold(state, "ctx-size = 4096\n", "default", 0, "ctx-size=4096");
    hold(state, "ctx-size=4096", "default", 0, "ctx-size=4096");
    hold(state, "a =  b c \t \r\nd=\t\n", "default", 0, "a=b c|d=");
    hold(state, "a = b;c\nd = e # f\n", "default", 0, "a=b|d=e");
    hold(state, "a = \"x y\"\n", "default", 0, "a=\"x y\"");
    hold(state, "a = x=y\n", "default", 0, "a=x=y");
    hold(state, "a=1\rb=2\r\n\rc=3", "default", 0, "a=1|b=2|c=3");
    hold(state, "_a.b-9 = 1\n", "default", 0, "_a.b-9=1");
    hold(state, "", "default", 0, "");
    hold(state, "\n  \n; x\n\t# y\n", "default", 0, "");
}

static void order(void **state) {
    hold(state, "b=1\na=2\nc=3\na=4\n", "default", 0, "a=4|b=1|c=3");
}

static void sections(void **state) {
    static const char text[] = "a=1\n[*]\na=2\n[ m.gguf ] \na=3\n[default]\nb=4\n[default] ; again\nc=5\n";
    hold(state, text, "default", 0, "c=5");
    hold(state, text, "*", 0, "a=2");
    hold(state, text, "m.gguf ", 0, "a=3"); /* blanks before the name do not count, those behind do */
    hold(state, text, "none", 0, "");
    hold(state, "a=1\n[x]\nb=2\n", "default", 0, "a=1");
}

static void bad_lines(void **state) {
    hold(state, "a=1\nb\n", "default", 2, "");
    hold(state, " a=1\n", "default", 1, "");
    hold(state, "9a=1\n", "default", 1, "");
    hold(state, "-c=1\n", "default", 1, "");
    hold(state, "a=1\n\n[x\n", "default", 3, "");
    hold(state, "[]\n", "default", 1, "");
    hold(state, "[x] y\n", "default", 1, "");
    hold(state, " [x]\n", "default", 1, "");
    hold(state, "a b=1\n", "default", 1, "");
}

static void limit(void **state) {
    char *text = malloc(20 * (BT_CONFIG_ENTRY_MAX + 1));
    assert_non_null(text);
    size_t n = 0;
    for (uint32_t i = 0; i <= BT_CONFIG_ENTRY_MAX; i++)
        n += (size_t)sprintf(text + n, "k%u=1\n", (unsigned)i);
    bt_config config;
    bt_error err = {0};
    assert_int_equal(bt_config_section(*state, text, n, "default", &config, &err), BT_E_ARG);
    assert_string_equal(err.code, "arguments");
    n = (size_t)(strstr(text, "k1024=") - text);
    assert_int_equal(bt_config_section(*state, text, n, "default", &config, &err), BT_OK);
    assert_int_equal(config.n, BT_CONFIG_ENTRY_MAX);
    bt_arena *small = bt_arena_open(1024, 512);
    assert_non_null(small);
    assert_int_equal(bt_config_section(small, text, n, "default", &config, &err), BT_E_NOMEM);
    bt_arena_close(small);
    free(text);
}

static int open_arena(void **state) {
    *state = bt_arena_open(UINT64_C(16) << 20, 65536);
    return *state ? 0 : -1;
}

static int close_arena(void **state) {
    bt_arena_close(*state);
    return 0;
}

#define WITH_ARENA(test) cmocka_unit_test_setup_teardown(test, open_arena, close_arena)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_ARENA(values), WITH_ARENA(order), WITH_ARENA(sections), WITH_ARENA(bad_lines), WITH_ARENA(limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
