/* SPDX-License-Identifier: MIT
 * test_router_server_access.c: who may ask, what a target means, what an address to listen on is. */
#include "base/error.h"
#include "base/heap.h"
#include "router/server_access.h"
#include "router/server_listen.h"
#include "router/server_target.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void keys(void **state) {
    (void)state;
    static const char *const two[] = {"sk-one", "a longer key with: a colon"};
    bt_config none = {0}, config = {.api_keys = two, .n_api_keys = 2};
    assert_true(bt_access_key(&none, NULL, NULL));
    assert_false(bt_access_key(&config, NULL, NULL));
    assert_true(bt_access_key(&config, "Bearer sk-one", NULL));
    assert_true(bt_access_key(&config, "bearer  sk-one", NULL));
    assert_true(bt_access_key(&config, "Bearer a longer key with: a colon", NULL));
    assert_true(bt_access_key(&config, NULL, "sk-one"));
    assert_true(bt_access_key(&config, "Bearer wrong", "sk-one"));
    assert_true(bt_access_key(&config, "Basic dXNlcjpzay1vbmU=", NULL)); /* user:sk-one */
    assert_true(bt_access_key(&config, "Basic OnNrLW9uZQ==", NULL));     /* :sk-one */
    assert_true(bt_access_key(&config, "Basic dTphIGxvbmdlciBrZXkgd2l0aDogYSBjb2xvbg==", NULL));
    static const char *const wrong[] = {"Bearer sk-on",
                                        "Bearer sk-one2",
                                        "Bearer ",
                                        "Bearer",
                                        "sk-one",
                                        "Basic",
                                        "Basic sk-one",
                                        "Basic c2stb25l",            /* sk-one, no colon */
                                        "Basic dXNlcjpzay1vbmU=x",   /* bytes behind the end */
                                        "Basic dXNlcj\xc3pzay1vbmU", /* no base64 */
                                        "Digest sk-one",
                                        ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_false(bt_access_key(&config, wrong[i], NULL));
        assert_false(bt_access_key(&config, NULL, wrong[i][0] ? wrong[i] + 1 : ""));
    }
    char longest[9000];
    memset(longest, 'Q', sizeof longest);
    memcpy(longest, "Basic ", 6);
    longest[sizeof longest - 1] = 0;
    assert_false(bt_access_key(&config, longest, longest));
    static const char *const empty[] = {""};
    bt_config nobody = {.api_keys = empty, .n_api_keys = 1};
    assert_false(bt_access_key(&nobody, "Bearer ", ""));
}

static void hosts(void **state) {
    (void)state;
    static const char *const names[] = {"box.lan", "port.lan:8080", "*.example.org"};
    bt_config config = {.allowed_hosts = names, .n_allowed_hosts = 3};
    static const char *const fine[] = {"localhost",     "localhost:8080", "LOCALHOST",         "localhost.",
                                       "app.localhost", "127.0.0.1:99",   "127.9.9.9",         "[::1]",
                                       "[::1]:8080",    "192.168.1.5:80", "[fe80::1]",         "box.lan",
                                       "BOX.lan:1",     "port.lan:8080",  "a.example.org:443", "a.b.example.org",
                                       "myhost:8080",   "localhost:",     "[::ffff:1.2.3.4]"};
    static const char *const foreign[] = {"evil.example",
                                          "localhost.evil.example",
                                          "port.lan",
                                          "port.lan:8081",
                                          "example.org",
                                          "xexample.org",
                                          "",
                                          "localhost:x",
                                          "a b",
                                          "[::1",
                                          "[localhost]",
                                          "127.0.0.1.evil",
                                          "notlocalhost",
                                          "[]",
                                          "localhost/x",
                                          "localhost:123456",
                                          "::1",
                                          "user@localhost",
                                          "otherhost"};
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
        assert_true(bt_access_host(&config, fine[i], "MyHost"));
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        if (bt_access_host(&config, foreign[i], "MyHost")) fail_msg("%s passes", foreign[i]);
    }
    assert_true(bt_access_host(&config, NULL, "MyHost"));
    static const char *const any[] = {"*"};
    bt_config open = {.allowed_hosts = any, .n_allowed_hosts = 1};
    assert_true(bt_access_host(&open, "evil.example", ""));
    char longest[400];
    memset(longest, 'a', sizeof longest);
    longest[sizeof longest - 1] = 0;
    assert_false(bt_access_host(&config, longest, ""));
    assert_false(bt_access_host(&config, "", ""));
}

static void origins(void **state) {
    (void)state;
    static const char *const pages[] = {"https://app.example", "http://other:3000/"};
    static const char *const any[] = {"*"};
    bt_config config = {.cors_origins = pages, .n_cors_origins = 2}, open = {.cors_origins = any, .n_cors_origins = 1};
    assert_int_equal(bt_access_origin_find(&config, NULL, "localhost"), BT_ORIGIN_NONE);
    assert_int_equal(bt_access_origin_find(&config, "http://localhost:8080", "localhost:8080"), BT_ORIGIN_SAME);
    assert_int_equal(bt_access_origin_find(&config, "http://LocalHost", "localhost:80"), BT_ORIGIN_SAME);
    assert_int_equal(bt_access_origin_find(&config, "https://box", "box"), BT_ORIGIN_SAME); /* behind a TLS proxy */
    assert_int_equal(bt_access_origin_find(&config, "https://box:443", "box"), BT_ORIGIN_SAME);
    assert_int_equal(bt_access_origin_find(&config, "http://[::1]:80", "[::1]"), BT_ORIGIN_SAME);
    assert_int_equal(bt_access_origin_find(&config, "http://localhost:8081", "localhost:8080"), BT_ORIGIN_FOREIGN);
    assert_int_equal(bt_access_origin_find(&config, "null", "localhost"), BT_ORIGIN_FOREIGN);
    assert_int_equal(bt_access_origin_find(&config, "http://localhost", NULL), BT_ORIGIN_FOREIGN);
    assert_int_equal(bt_access_origin_find(&config, "https://app.example", "localhost"), BT_ORIGIN_LISTED);
    assert_int_equal(bt_access_origin_find(&config, "http://other:3000", "localhost"), BT_ORIGIN_LISTED);
    assert_int_equal(bt_access_origin_find(&config, "http://app.example", "localhost"), BT_ORIGIN_FOREIGN);
    assert_int_equal(bt_access_origin_find(&config, "https://app.example.evil", "localhost"), BT_ORIGIN_FOREIGN);
    assert_int_equal(bt_access_origin_find(&config, "https://app.exampl", "localhost"), BT_ORIGIN_FOREIGN);
    assert_int_equal(bt_access_origin_find(&open, "https://any.example", "localhost"), BT_ORIGIN_ANY);
    assert_int_equal(bt_access_origin_find(&open, "http://localhost", "localhost"), BT_ORIGIN_SAME);
}

static void targets(void **state) {
    (void)state;
    bt_target target;
    bt_error err;
    assert_int_equal(bt_target_parse("/v1/a%20b%2Fc?x=1&empty&y=a+b%26&x=2&&=z", &target, &err), BT_OK);
    assert_string_equal(target.raw, "/v1/a%20b%2Fc?x=1&empty&y=a+b%26&x=2&&=z");
    assert_string_equal(target.path, "/v1/a b/c");
    assert_string_equal(bt_target_query(&target, "x"), "1");
    assert_string_equal(bt_target_query(&target, "empty"), "");
    assert_string_equal(bt_target_query(&target, "y"), "a b&");
    assert_string_equal(bt_target_query(&target, ""), "z");
    assert_null(bt_target_query(&target, "1"));
    assert_string_equal(target.authority, "");
    bt_target_done(&target);
    assert_int_equal(bt_target_parse("http://Evil.example:80/x?a&b&c", &target, &err), BT_OK);
    assert_string_equal(target.authority, "Evil.example:80");
    assert_string_equal(target.raw, "/x?a&b&c");
    assert_string_equal(bt_target_query(&target, "c"), "");
    bt_target_done(&target);
    assert_int_equal(bt_target_parse("/%e2%82%ac..a/...", &target, &err), BT_OK);
    assert_string_equal(target.path, "/\xe2\x82\xac..a/...");
    bt_target_done(&target);
    static const char *const wrong[] = {
        "",       "x",     "*",       "/..",      "/a/../b",     "/./a",     "/%2e%2E/a", "/a%2f..", "/a%00b",
        "/a%0ab", "/a%",   "/a%4",    "/a%zz",    "/%ff",        "/a b",     "/a\x01",    "/a\x7f",  "/%c2%80",
        "/?a=%",  "/?%00", "http://", "http:///", "http://host", "//x/../a", "http://h?"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (bt_target_parse(wrong[i], &target, &err) == BT_OK) fail_msg("%s passes", wrong[i]);
        assert_string_equal(err.code, "target");
    }
    static char longest[BT_TARGET_MAX + 2];
    memset(longest, '/', sizeof longest - 2);
    assert_int_equal(bt_target_parse(longest, &target, &err), BT_OK);
    bt_target_done(&target);
    longest[sizeof longest - 2] = '/';
    assert_int_equal(bt_target_parse(longest, &target, &err), BT_E_ARG);
    /* What takes most room when decoded. */
    for (size_t i = 1; i + 1 < sizeof longest; i++)
        longest[i] = i % 2 ? '=' : '&';
    longest[1] = '?';
    longest[sizeof longest - 2] = 0;
    assert_int_equal(bt_target_parse(longest, &target, &err), BT_OK);
    bt_target_done(&target);
    assert_int_equal(bt_heap_live_blocks(), 0);
}

static void addresses(void **state) {
    (void)state;
    bt_listen at;
    bt_error err;
    char text[300];
    assert_int_equal(bt_listen_parse("127.0.0.1:8080", &at, &err), BT_OK);
    assert_string_equal(at.host, "127.0.0.1");
    assert_int_equal(at.port, 8080);
    assert_int_equal(bt_listen_parse("[::1]:65535", &at, &err), BT_OK);
    assert_string_equal(at.host, "::1");
    assert_string_equal(bt_listen_text(&at, text, sizeof text), "[::1]:65535");
    assert_int_equal(bt_listen_parse(":0", &at, &err), BT_OK);
    assert_string_equal(at.host, "");
    assert_int_equal(bt_listen_parse("*:1", &at, &err), BT_OK);
    assert_string_equal(at.host, "");
    assert_string_equal(bt_listen_text(&at, text, sizeof text), "0.0.0.0:1");
    static const char *const wrong[] = {"",     "8080",   "host",  "host:",   "host:x", "host:65536", "host:123456",
                                        "::1",  "::1:80", "[::1]", "[]:80",   "[::1:8", "host:-1",    "host: 1",
                                        "[:80", "a:1:2",  "]:80:", "host:80 "};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (bt_listen_parse(wrong[i], &at, &err) == BT_OK) fail_msg("%s passes", wrong[i]);
        assert_string_equal(err.code, "listen");
    }
}

static void sockets(void **state) {
    (void)state;
    bt_listen at, again;
    bt_error err;
    int fd = -1, other = -1;
    char text[300];
    assert_int_equal(bt_listen_open("localhost:0", false, &at, &fd, &err), BT_OK);
    assert_true(at.port > 0 && at.loopback);
    (void)snprintf(text, sizeof text, "127.0.0.1:%u", at.port);
    assert_int_equal(bt_listen_open(text, false, &again, &other, &err), BT_E_IO);
    assert_string_equal(err.code, "listen");
    assert_non_null(strstr(err.text, text));
    assert_non_null(strstr(err.text, "in use"));
    (void)close(fd);
    static const char *const outside[] = {":0", "*:0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0"};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        assert_int_equal(bt_listen_open(outside[i], false, &at, &other, &err), BT_E_ARG);
        assert_string_equal(err.code, "listen");
        assert_non_null(strstr(err.text, "API key"));
    }
    assert_int_equal(bt_listen_open("192.0.2.1:0", true, &at, &other, &err), BT_E_IO); /* not ours (TEST-NET-1) */
    assert_string_equal(err.code, "listen");
    assert_int_equal(bt_listen_open("no-such-host.invalid:0", true, &at, &other, &err), BT_E_IO);
    assert_string_equal(err.code, "listen");
    assert_int_equal(bt_listen_open(":0", true, &at, &fd, &err), BT_OK);
    assert_false(at.loopback);
    (void)close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys),    cmocka_unit_test(hosts),     cmocka_unit_test(origins),
        cmocka_unit_test(targets), cmocka_unit_test(addresses), cmocka_unit_test(sockets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
