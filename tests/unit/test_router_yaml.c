/* SPDX-License-Identifier: MIT
 * test_router_yaml.c: YAML as Go's yaml reads it, with lines, and refused where it is large by what it stands for. */
#include "yaml/yaml.h"

#include "base/error.h"
#include "base/heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bt_status write(void *user, const bt_yaml_node *node, bt_text *out) {
    (void)user;
    return bt_yaml_json_scalar(node->type, node->text, out)
               ? BT_OK
               : bt_fail(NULL, BT_E_FORMAT, "x", BT_MEASURE_NONE, 0, 0, "x");
}

/* The document as JSON, or the error. */
static const char *json_n(const char *text, size_t n) {
    static char got[4000];
    bt_arena *arena = bt_arena_open(BT_YAML_ARENA_MAX, 1u << 16);
    bt_yaml_node *root = NULL;
    bt_error err = {0};
    bt_text out;
    char *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    assert_non_null(arena);
    memcpy(copy, text, n);
    bt_text_init(&out, sizeof got - 1);
    bt_status status = bt_yaml_parse(copy, n, "f", arena, &root, &err);
    free(copy);
    if (status != BT_OK) {
        assert_true(status == BT_E_FORMAT || status == BT_E_LIMIT);
        assert_string_equal(err.code, "config");
        (void)snprintf(got, sizeof got, "%s", err.text);
    } else if (!root) {
        (void)snprintf(got, sizeof got, "none");
    } else if (bt_yaml_json(root, write, NULL, &out) != BT_OK) {
        (void)snprintf(got, sizeof got, "no JSON");
    } else {
        (void)snprintf(got, sizeof got, "%s", bt_text_str(&out));
    }
    bt_text_done(&out);
    bt_arena_close(arena);
    return got;
}

static const char *json(const char *text) {
    return json_n(text, strlen(text));
}

static void documents(void **state) {
    (void)state;
    assert_string_equal(json(""), "none");
    assert_string_equal(json("# nothing\n"), "none");
    assert_string_equal(json("---\n...\n"), "none");
    assert_string_equal(json("\xEF\xBB\xBF"
                             "a: 1"),
                        "{\"a\":1}");
    assert_string_equal(json("a: {b: [1, x, {}], c: }"), "{\"a\":{\"b\":[1,\"x\",{}],\"c\":null}}");
    assert_string_equal(json("a: 1\n---\nb: 2"), "f:2: a second document; a configuration is one");
    assert_string_equal(json("a: |\n  x\n  y\nb: >\n  x\n  y\n"), "{\"a\":\"x\\ny\\n\",\"b\":\"x y\\n\"}");
}

static void types(void **state) {
    (void)state;
    assert_string_equal(json("[1, -2, +3, 0x1F, 0o17, 00, 012, 1_000]"), "[1,-2,3,31,15,\"00\",\"012\",\"1_000\"]");
    assert_string_equal(json("[1.5, .5, -.5, 5., 1e3, 1.5E-7, +1.0]"), "[1.5,0.5,-0.5,5.0,1e3,1.5E-7,1.0]");
    assert_string_equal(json("[123456789012345678901234567890, 0.1000000000000000055]"),
                        "[123456789012345678901234567890,0.1000000000000000055]");
    assert_string_equal(json("[true, True, FALSE, yes, on, null, ~, Null, '', '1', \"true\"]"),
                        "[true,true,false,\"yes\",\"on\",null,null,null,\"\",\"1\",\"true\"]");
    assert_string_equal(json("[!!str 1, !!float 1, ! x, !!int 1]"), "[\"1\",1,\"x\",1]");
    assert_string_equal(json("[!!int x]"), "f:1: the value is not what its tag says");
    assert_string_equal(json("[1, .inf]"), "no JSON");
    assert_string_equal(json("[-.nan, 1.2.3, -, .]"), "[\"-.nan\",\"1.2.3\",\"-\",\".\"]");
    assert_string_equal(json("a: !x 1"), "f:1: tags are !!str, !!int, !!float, !!bool, !!null, !!map and !!seq");
    assert_string_equal(json("a: !!map [1]"), "f:1: tags are !!str, !!int, !!float, !!bool, !!null, !!map and !!seq");
    assert_string_equal(json("\"q\\\"\\\\\\t\\x01\": \"\\u00e9\\n\""), "{\"q\\\"\\\\\\u0009\\u0001\":\"\xC3\xA9\\n\"}");
}

static void merging(void **state) {
    (void)state;
    assert_string_equal(json("d: &d {a: 1, b: 2}\ne: {<<: *d, b: 3, c: 4}"),
                        "{\"d\":{\"a\":1,\"b\":2},\"e\":{\"b\":3,\"c\":4,\"a\":1}}");
    assert_string_equal(json("x: &x {a: 1}\ny: &y {a: 2, b: 2}\nz: {<<: [*x, *y]}"),
                        "{\"x\":{\"a\":1},\"y\":{\"a\":2,\"b\":2},\"z\":{\"a\":1,\"b\":2}}");
    /* what was merged is merged on */
    assert_string_equal(json("x: &x {a: 1}\ny: &y {<<: *x, b: 2}\nz: {<<: *y}"),
                        "{\"x\":{\"a\":1},\"y\":{\"b\":2,\"a\":1},\"z\":{\"b\":2,\"a\":1}}");
    assert_string_equal(json("'<<': 1"), "{\"<<\":1}");
    assert_string_equal(json("a: 1\n<<: 2"), "f:2: << takes a mapping (*anchor) or a list of mappings");
    assert_string_equal(json("a: &a [1]\nb: *a\nc: &a x\nd: *a"), "{\"a\":[1],\"b\":[1],\"c\":\"x\",\"d\":\"x\"}");
    assert_string_equal(json("a: &k x\n*k : 1"), "{\"a\":\"x\",\"x\":1}");
}

static void wrong(void **state) {
    (void)state;
    assert_string_equal(json("a: 1\nb: 2\na: 3"), "f:3: \"a\" stands at line 1 already");
    assert_string_equal(json("a: 1\n\"a\": 3"), "f:2: \"a\" stands at line 1 already");
    assert_string_equal(json("? [1]\n: 2"), "f:1: a key is a word, not a list or a mapping");
    assert_string_equal(json("a: *b"), "f:1: nothing is anchored as &b above");
    assert_string_equal(json("a: &a\n  b: *a"), "f:2: an alias inside of what it stands for");
    assert_non_null(strstr(json("\u00e4:\n \tb: 1"), "f:2: found character that cannot start any token"));
    assert_non_null(strstr(json("\u00e4:\n \tb: 1"), "a tab; YAML indents with spaces"));
    assert_non_null(strstr(json("a: @b"), "f:1: found character that cannot start any token"));
    assert_null(strstr(json("a: @b"), "a tab"));
    assert_non_null(strstr(json("a: 1\n b: 2"), "f:2: "));
    assert_non_null(strstr(json("a: [1"), "did not find expected ',' or ']'"));
    assert_non_null(strstr(json("a: \x80"), "f:1: "));
    assert_string_equal(json("\na: \"x\\0y\""), "f:2: a zero byte in a text");
    assert_non_null(strstr(json_n("a: \0", 4), "f:1: control characters are not allowed"));
}

static void bounds(void **state) {
    (void)state;
    char text[200000] = "a: &a [x,x,x,x,x,x,x,x,x,x]\n";
    for (char c = 'b'; c < 'k'; c++) { /* a billion words in ten lines */
        char line[100];
        (void)snprintf(line, sizeof line, "%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c - 1, c - 1,
                       c - 1, c - 1, c - 1, c - 1, c - 1, c - 1, c - 1, c - 1);
        strcat(text, line);
    }
    assert_string_equal(json(text), "f:5: too many values, with aliases written out; at most 65536");

    size_t n = 0;
    memset(text, '[', 40);
    text[40] = '\0';
    assert_string_equal(json(text), "f:1: lists and mappings too deep; at most 32");

    /* As deep as allowed, and again below itself. */
    n = (size_t)snprintf(text, sizeof text, "a: &a ");
    memset(text + n, '[', 20);
    memset(text + n + 20, ']', 20);
    (void)snprintf(text + n + 40, sizeof text - n - 40, "\nb: [[[[[[[[[[[[*a]]]]]]]]]]]]\n");
    assert_string_equal(json(text), "f:2: lists and mappings too deep, with aliases written out; at most 32");

    n = 0;
    for (uint32_t i = 0; i <= BT_YAML_KEYS_MAX; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%u: x\n", i);
    assert_non_null(strstr(json(text), "too many keys in one mapping; at most 1024"));
    n = 0;
    for (uint32_t i = 0; i <= BT_YAML_ANCHORS_MAX; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%u: &a%u x\n", i, i);
    assert_string_equal(json(text), "f:1025: too many anchors; at most 1024");
    n = 0;
    for (uint32_t i = 0; i < 10; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%%TAG !t%u! tag:x,2000:\n", i);
    assert_non_null(strstr(json(text), "too many lines that start with %"));

    char *many = malloc(200000); /* 99,999 items */
    assert_non_null(many);
    memset(many, ',', 200000);
    for (size_t i = 1; i < 200000; i += 2)
        many[i] = 'x';
    many[0] = '[';
    assert_string_equal(json_n(many, 200000), "f:1: too many values, with aliases written out; at most 65536");
    free(many);
    assert_int_equal(bt_heap_live_blocks(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(documents), cmocka_unit_test(types), cmocka_unit_test(merging),
                                       cmocka_unit_test(wrong), cmocka_unit_test(bounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
