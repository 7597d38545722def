/* SPDX-License-Identifier: MIT
 * test_router_json_tree.c: a tree that lost a member is none: memory is refused at each step in turn, and what comes
 * out is the whole answer or NULL; what is no UTF-8 has an answer all the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "router/json_tree.h"

#include <stdlib.h>
#include <string.h>

static long n_left; /* allocations that the library still gets; below 0: all */
static long n_live;

static void *give(size_t n) {
    if (n_left == 0) return NULL;
    if (n_left > 0) n_left--;
    void *p = malloc(n);
    n_live += p != NULL;
    return p;
}

static void take(void *p) {
    n_live -= p != NULL;
    free(p);
}

static char *build(void) {
    json_t *list = json_array(), *root = json_object(), *one = json_object();
    bt_json_tree_set(&one, "name", bt_json_tree_text("smol"));
    bt_json_tree_set(&one, "bytes", bt_json_tree_number(42));
    bt_json_tree_set(&one, "unknown", bt_json_tree_known((bt_known){0}));
    bt_json_tree_add(&list, one);
    bt_json_tree_add(&list, bt_json_tree_text("b"));
    bt_json_tree_set(&root, "list", list);
    bt_json_tree_set(&root, "n", bt_json_tree_number(2));
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return text;
}

static void test_all_or_nothing(void **state) {
    (void)state;
    static const char wanted[] = "{\"list\":[{\"name\":\"smol\",\"bytes\":42,\"unknown\":null},\"b\"],\"n\":2}";
    bool whole = false;
    long k = 0;
    json_set_alloc_funcs(give, take);
    for (; k < 1000 && !whole; k++) {
        n_left = k;
        n_live = 0;
        char *text = build();
        n_left = -1;
        whole = text != NULL;
        if (text) assert_string_equal(text, wanted);
        take(text);
        assert_int_equal(n_live, 0);
    }
    json_set_alloc_funcs(malloc, free);
    assert_true(whole && k > 10);
}

static void test_text(void **state) {
    (void)state;
    json_t *text = bt_json_tree_text("a\xff"
                                     "b\n");
    assert_string_equal(json_string_value(text), "a\\xffb\\x0a");
    json_decref(text);
    text = bt_json_tree_text("caf\xc3\xa9\n");
    assert_string_equal(json_string_value(text), "caf\xc3\xa9\n"); /* as it is, where it can be */
    json_decref(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_or_nothing), cmocka_unit_test(test_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
