/* SPDX-License-Identifier: MIT
 * test_router_filter.c: members of requests renamed, dropped and set, in order, and nothing else changed. */
#include "router_kit.h"

/* The new body, "same", or "!code". */
static const char *filter_n(const bt_config_model *m, const char *named, const char *body, size_t n) {
    static char got[4000];
    char *out = NULL;
    size_t n_out = 0;
    bt_error err = {0};
    uint64_t blocks = bt_heap_live_blocks();
    char *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    memcpy(copy, body, n);
    bt_status status = bt_config_filter(&m->filters, m->use_model_name, named, copy, n, &out, &n_out, &err);
    free(copy);
    if (status != BT_OK) {
        assert_int_equal(status, BT_E_FORMAT);
        (void)snprintf(got, sizeof got, "!%s", err.code);
        assert_null(out);
    } else {
        (void)snprintf(got, sizeof got, "%.*s", out ? (int)n_out : 4, out ? out : "same");
        if (out) assert_int_equal(strlen(out), n_out);
        bt_heap_free(out);
    }
    assert_int_equal(bt_heap_live_blocks(), blocks);
    return got;
}

static const char *filter(const bt_config_model *m, const char *named, const char *body) {
    return filter_n(m, named, body, strlen(body));
}

static void nothing(void **state) {
    (void)state;
    bt_config *c = kit_parse("models: {a: {model: x}, b: {model: x, filters: {strip_params: [t]}}}");
    for (uint32_t i = 0; i < 2; i++) {
        const bt_config_model *m = &c->models[i];
        assert_string_equal(filter(m, "a", " {\"model\": \"a\", \"n\": 1.0} \n"), "same");
        assert_string_equal(filter(m, NULL, "{}"), "same");
        static const char *const bad[] = {"",         "[]",          "x",           "{",           "{\"a\"}",
                                          "{\"a\":}", "{\"a\":1,}",  "{\"a\":1}x",  "{\"a\":[}}",  "{\"a\":\"x}",
                                          "{a:1}",    "{\"a\":1 2}", "{\"a\":\"\\", "{\"a\n\":1}", "{,}"};
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
            assert_string_equal(filter(m, "a", bad[k]), "!body");
        assert_string_equal(filter_n(m, "a", "{\"a\":\0}", 7), "!body");
    }
    char deep[2100] = "{\"a\":";
    memset(deep + 5, '[', 600);
    memset(deep + 605, ']', 600);
    deep[1205] = '}';
    assert_string_equal(filter_n(&c->models[1], NULL, deep, 1206), "!body");
    bt_config_close(c);
}

static void in_order(void **state) {
    (void)state;
    bt_config *c = kit_parse("models:\n"
                             "  a:\n"
                             "    model: x\n"
                             "    use_model_name: \"re\\\"al\"\n"
                             "    filters:\n"
                             "      strip_params: 'temperature, seed , n, model'\n"
                             "      set_params: {n: 1, top_k: 12345678901234567890, model: evil, x: {y: [1, 'z']}}\n"
                             "      set_params_by_id: {a:high: {effort: high, top_k: 2}, a: {effort: none}}\n");
    const bt_config_model *m = &c->models[0];
    assert_int_equal(m->filters.n_strip, 3);
    assert_true(kit_noted(6, "model is never dropped") && kit_noted(7, "model is never set"));
    assert_string_equal(filter(m, "other", "{\"model\":\"q\",\"temperature\":1}"),
                        "{\"model\":\"re\\\"al\",\"n\":1,\"top_k\":12345678901234567890,\"x\":{\"y\":[1,\"z\"]}}");
    assert_string_equal(
        filter(m, "a:high", "{\"top_k\" : 7, \"big\": 98765432109876543210.5 , \"model\":\"q\"}"),
        "{\"top_k\":2,\"big\":98765432109876543210.5,\"model\":\"re\\\"al\",\"n\":1,\"x\":{\"y\":[1,\"z\"]},"
        "\"effort\":\"high\"}");
    assert_string_equal(
        filter(m, "a", "{}"),
        "{\"model\":\"re\\\"al\",\"n\":1,\"top_k\":12345678901234567890,\"x\":{\"y\":[1,\"z\"]},\"effort\":"
        "\"none\"}");
    /* n is dropped and set: set comes later */
    assert_string_equal(
        filter(m, NULL, "{\"seed\":1,\"n\":9,\"z\":\"a,}\\\"\"}"),
        "{\"n\":1,\"z\":\"a,}\\\"\",\"model\":\"re\\\"al\",\"top_k\":12345678901234567890,\"x\":{\"y\":[1,"
        "\"z\"]}}");
    bt_config_close(c);
}

/* Whatever a reader behind us takes of two members of a name, and however the name is written, it is the rule's. */
static void no_way_around(void **state) {
    (void)state;
    bt_config *c =
        kit_parse("models:\n  a: {model: x, use_model_name: r, filters: {strip_params: [t, \"\\u00e9\\U0001F600\"], "
                  "set_params: {n: 1}}}\n");
    const bt_config_model *m = &c->models[0];
    assert_string_equal(filter(m, NULL, "{\"n\":8,\"\\u006e\":9,\"t\":1,\"\\u0074\":2,\"t\":3,\"k\":[{\"n\":2}]}"),
                        "{\"n\":1,\"k\":[{\"n\":2}],\"model\":\"r\"}");
    assert_string_equal(filter(m, NULL, "{\"model\":\"a\",\"n\":1,\"mode\\u006C\":\"b\"}"),
                        "{\"model\":\"r\",\"n\":1}");
    assert_string_equal(filter(m, NULL, "{\"\\u00e9\\ud83D\\ude00\":1,\"\xC3\xA9\xF0\x9F\x98\x80\":2,\"\\u00e9\":3}"),
                        "{\"\\u00e9\":3,\"model\":\"r\",\"n\":1}");
    assert_string_equal(filter(m, NULL, "{\"t\\u0000\":1,\"\\ud83d\":2,\"\\uZZZZ\":3,\"t\\q\":4}"),
                        "{\"t\\u0000\":1,\"\\ud83d\":2,\"\\uZZZZ\":3,\"t\\q\":4,\"model\":\"r\",\"n\":1}");
    bt_config_close(c);
}

/* A body of many namesakes takes one pass. */
static void large(void **state) {
    (void)state;
    bt_config *c = kit_parse("models: {a: {model: x, filters: {set_params: {n: 1}}}}");
    size_t n = 0;
    char *body = malloc(8000000);
    char *out = NULL;
    size_t n_out = 0;
    assert_non_null(body);
    body[n++] = '{';
    for (uint32_t i = 0; i < 1000000; i++) {
        memcpy(body + n, "\"n\":0,", 6);
        n += 6;
    }
    memcpy(body + n, "\"z\":1}", 6);
    assert_int_equal(bt_config_filter(&c->models[0].filters, NULL, NULL, body, n + 6, &out, &n_out, NULL), BT_OK);
    assert_string_equal(out, "{\"n\":1,\"z\":1}");
    bt_heap_free(out);
    free(body);
    bt_config_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing), cmocka_unit_test(in_order),
                                       cmocka_unit_test(no_way_around), cmocka_unit_test(large)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
