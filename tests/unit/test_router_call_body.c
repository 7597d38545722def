/* SPDX-License-Identifier: MIT
 * test_router_call_body.c: what the router reads of a request's body: the model, the stream, how much is asked for a
 * token; of JSON and of forms; and that no body makes it hold anything. */
#include "router_kit.h"

#include "report/report.h"
#include "router/routing.h"

/* "model stream n_probs", or "!code". */
static const char *read_n(const char *type, const char *body, size_t n) {
    static char got[400];
    bt_call_body said;
    bt_error err = {0};
    char *copy = malloc(n ? n : 1); /* exactly as long: what is read behind it is seen */
    assert_non_null(copy);
    memcpy(copy, body, n);
    bt_status status = bt_call_body_read(type, copy, n, &said, &err);
    free(copy);
    if (status == BT_OK)
        (void)snprintf(got, sizeof got, "%s %d %llu", said.model, said.streams, (unsigned long long)said.n_probs);
    else
        (void)snprintf(got, sizeof got, "!%s", err.code);
    return got;
}

static const char *read_json(const char *body) {
    return read_n("application/json", body, strlen(body));
}

static void members(void **state) {
    (void)state;
    assert_string_equal(read_json("{\"model\":\"a\",\"stream\":true,\"n_probs\":5}"), "a 1 5");
    assert_string_equal(read_json(" {\"x\":{\"model\":\"no\"},\"model\" : \"a\\/b\\u00e4\"} "), "a/b\xc3\xa4 0 0");
    assert_string_equal(read_json("{\"m\\u006fdel\":\"a\",\"stream\":\"true\"}"), "a 0 0");
    assert_string_equal(read_json("{\"model\":\"a\",\"model\":\"b\"}"), "b 0 0");
    assert_string_equal(read_json("{\"model\":\"a\",\"model\":7}"), " 0 0");
    assert_string_equal(read_json("{}"), " 0 0");
    assert_string_equal(read_json("{\"prompt\":\"\\u0000\",\"model\":\"a\"}"), "a 0 0");
    static const char *const bad[] = {
        "", "[]", "null", "{", "{\"model\":\"a\"", "{\"model\":\"a\"}x", "{\"model\":\"a\\u0000\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_string_equal(read_json(bad[i]), "!body");
    char name[BT_CONFIG_ID_MAX + 2], body[400];
    memset(name, 'x', sizeof name);
    name[BT_CONFIG_ID_MAX] = '\0';
    (void)snprintf(body, sizeof body, "{\"model\":\"%s\"}", name);
    assert_memory_equal(read_json(body), name, BT_CONFIG_ID_MAX);
    (void)snprintf(body, sizeof body, "{\"model\":\"x%s\"}", name);
    assert_string_equal(read_json(body), "!body");
}

/* However a number is written, it is one to a server. */
static void counts(void **state) {
    (void)state;
    assert_string_equal(read_json("{\"n_probs\":1e3}"), " 0 1000");
    assert_string_equal(read_json("{\"logprobs\":2.5}"), " 0 3");
    assert_string_equal(read_json("{\"top_logprobs\":20,\"logprobs\":true,\"n_probs\":null}"), " 0 20");
    assert_string_equal(read_json("{\"n_probs\":-1}"), " 0 0");
    assert_string_equal(read_json("{\"n_probs\":99999999999999999999999}"), " 0 18446744073709551615");
    assert_string_equal(read_json("{\"n_probs\":1e999}"), " 0 18446744073709551615");
    assert_string_equal(read_json("{\"n_probs\":7,\"n_probs\":1}"), " 0 7");
    assert_string_equal(read_json("{\"n_probs\":0x10,\"logprobs\":inf}"), " 0 0");
}

static void forms(void **state) {
    (void)state;
    static const char type[] = "multipart/form-data; boundary=x";
    static const char form[] = "--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nname=\"model\"\r\n--x\r\n"
                               "Content-Disposition: form-data; name=\"model\"\r\n\r\na\r\n--x--\r\n";
    assert_string_equal(read_n(type, form, sizeof form - 1), "a 0 0");
    assert_string_equal(read_n("multipart/form-data", form, sizeof form - 1), "!body");
    for (size_t n = 0; n < sizeof form - 1; n++)
        (void)read_n(type, form, n);
}

/* As a tree a list of 8 MiB of "{}," is hundreds: here it takes no block at all. */
static void bombs(void **state) {
    (void)state;
    enum { N = 8 << 20 };
    static const char *const pieces[] = {"{},", "[],", "1,", "\"\",", "[["};
    char *body = malloc(N + 64);
    assert_non_null(body);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        size_t n = (size_t)snprintf(body, N, "{\"model\":\"a\",\"x\":["), n_piece = strlen(pieces[i]);
        for (; n + n_piece < N; n += n_piece)
            memcpy(body + n, pieces[i], n_piece);
        n += (size_t)snprintf(body + n, 64, "1]}");
        bt_call_body said;
        uint64_t blocks = bt_heap_allocations();
        bt_status status = bt_call_body_read(NULL, body, n, &said, NULL);
        assert_int_equal(bt_heap_allocations(), blocks);
        assert_int_equal(status, i == 4 ? BT_E_FORMAT : BT_OK);
        assert_string_equal(said.model, "a");
    }
    free(body);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(members), cmocka_unit_test(counts), cmocka_unit_test(forms),
                                       cmocka_unit_test(bombs)};
    bt_report_init(NULL); /* jansson's blocks are counted with ours */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
