/* SPDX-License-Identifier: MIT
 * test_router_server_tls.c: the router's HTTP side over TLS, with a certificate that is made here, and what is said
 * when it cannot be opened. Without the program openssl the part that needs a certificate is skipped. */
#include "router_server_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <curl/curl.h>
#include <microhttpd.h>

#include <fcntl.h>

#define OUT BT_TEST_OUT "/router_server_"

static bool have_certificates;

static int make_certificates(void **state) {
    (void)state;
    static const char make[] =
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost "
        "-keyout " OUT "key.pem -out " OUT "cert.pem >" OUT "log 2>&1 && "
        "openssl genrsa -out " OUT "other.pem 2048 >>" OUT "log 2>&1";
    have_certificates = system(make) == 0 && MHD_is_feature_supported(MHD_FEATURE_TLS) == MHD_YES; /* NOLINT */
    if (!have_certificates) print_message("skipped: no program openssl, or a libmicrohttpd without TLS\n");
    FILE *file = fopen(OUT "empty.pem", "w");
    if (file) (void)fclose(file);
    return 0;
}

typedef struct received {
    size_t n;
    uint64_t first_ms, last_ms;
} received;

static size_t on_bytes(char *data, size_t size, size_t n, void *user) {
    received *to = user;
    (void)data;
    to->last_ms = kit_now_ms();
    if (!to->n) to->first_ms = to->last_ms;
    to->n += size * n;
    return size * n;
}

static CURLcode get(const kit *server, const char *path, const char *body, received *ret, long *ret_status) {
    char url[256];
    (void)snprintf(url, sizeof url, "https://localhost:%u%s", server->port, path);
    CURL *curl = curl_easy_init();
    assert_non_null(curl);
    *ret = (received){0};
    (void)curl_easy_setopt(curl, CURLOPT_URL, url);
    (void)curl_easy_setopt(curl, CURLOPT_CAINFO, OUT "cert.pem");
    (void)curl_easy_setopt(curl, CURLOPT_IPRESOLVE, (long)CURL_IPRESOLVE_V4);
    (void)curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, 60000L);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_bytes);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, ret);
    if (body) (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    CURLcode code = curl_easy_perform(curl);
    (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, ret_status);
    curl_easy_cleanup(curl);
    return code;
}

static void answers(void **state) {
    (void)state;
    if (!have_certificates) skip();
    bt_config config = kit_config();
    config.tls_cert = OUT "cert.pem";
    config.tls_key = OUT "key.pem";
    kit server = kit_start(&config);
    assert_int_not_equal(server.port, 0);
    received got;
    long status = 0;
    assert_int_equal(get(&server, "/echo", "hello", &got, &status), CURLE_OK);
    assert_int_equal(status, 200);
    assert_int_equal(got.n, 5);
    assert_int_equal(get(&server, "/later?ms=50", NULL, &got, &status), CURLE_OK);
    uint64_t took_ms = 0;
    for (uint32_t i = 0; i < KIT_TRIES && took_ms < 120; i++) { /* who reads late gets much at once */
        assert_int_equal(get(&server, "/stream?n=50&piece=10&ms=50", NULL, &got, &status), CURLE_OK);
        assert_int_equal(got.n, 50);
        took_ms = got.last_ms - got.first_ms;
    }
    assert_true(took_ms >= 120); /* as it came, not at the end */
    assert_int_equal(get(&server, "/stream?n=3000000&piece=60000&sized=1", NULL, &got, &status), CURLE_OK);
    assert_int_equal(got.n, 3000000);
    assert_int_equal(get(&server, "/stream?n=20&broken=1", NULL, &got, &status) != CURLE_OK, 1);
    static char body[150000];
    memset(body, 'x', sizeof body - 1);
    assert_int_equal(get(&server, "/echo", body, &got, &status), CURLE_OK);
    assert_int_equal(status, 413);
    body[90000] = 0;
    assert_int_equal(get(&server, "/echo", body, &got, &status), CURLE_OK);
    assert_int_equal(status, 200);
    assert_int_equal(got.n, 90000);
    /* Somebody who speaks plain HTTP, or nothing that is TLS, is closed. */
    kit_answer answer;
    kit_ask(&server, "GET /echo HTTP/1.1\r\nHost: localhost\r\n\r\n", &answer);
    assert_int_equal(answer.status, 0);
    kit_answer_done(&answer);
    /* Leaves while it waits: the server's process has ended the request when it is stopped. */
    (void)get(&server, "/stream?n=900000000&piece=60000&status=204", NULL, &got, &status);
    assert_int_equal(kit_stop(&server), 0);
}

static void refuse(const bt_config *config, bt_status want, const char *code, const char *words) {
    bt_loop *loop = NULL;
    bt_server *server = NULL;
    bt_error err = {0};
    assert_int_equal(bt_loop_open(&loop, NULL), BT_OK);
    bt_server_ask ask = {.loop = loop, .config = config, .on_request = kit_on_request, .on_end = kit_on_end};
    int before = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)close(before);
    assert_int_equal(bt_server_open(&ask, &server, &err), want);
    int after = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)close(after);
    assert_int_equal(before, after); /* no descriptor stays open */
    if (!strstr(err.text, words)) fail_msg("\"%s\" does not say \"%s\"", err.text, words);
    assert_string_equal(err.code, code);
    bt_loop_close(loop);
    assert_int_equal(bt_heap_live_blocks(), 0);
}

static void refusals(void **state) {
    (void)state;
    bt_config config = kit_config();
    config.listen = "0.0.0.0:0";
    refuse(&config, BT_E_ARG, "listen", "API key");
    config.listen = "nonsense";
    refuse(&config, BT_E_ARG, "listen", "nonsense");
    config.listen = "127.0.0.1:0";
    kit taken = kit_start(&config);
    char address[32];
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", taken.port);
    config.listen = address;
    refuse(&config, BT_E_IO, "listen", "in use");
    assert_int_equal(kit_stop(&taken), 0);
    config.listen = "127.0.0.1:0";
    config.tls_cert = "/nowhere/cert.pem";
    refuse(&config, BT_E_ARG, "tls", "one is given");
    config.tls_key = OUT "empty.pem";
    refuse(&config, BT_E_IO, "tls", "/nowhere/cert.pem");
    config.tls_cert = OUT "empty.pem";
    refuse(&config, BT_E_IO, "tls", "no PEM");
    if (!have_certificates) return;
    config.tls_cert = OUT "cert.pem";
    config.tls_key = OUT "other.pem";
    refuse(&config, BT_E_IO, "tls", "cannot be used together");
    config.tls_key = OUT "cert.pem";
    refuse(&config, BT_E_IO, "tls", "cannot be used together");
}

static void open_to_all(void **state) {
    (void)state;
    static const char *const keys[] = {"sk"};
    bt_config config = kit_config();
    config.listen = ":0";
    config.api_keys = keys;
    config.n_api_keys = 1;
    kit server = kit_start(&config);
    assert_int_not_equal(server.port, 0);
    kit_answer answer;
    kit_ask(&server, "GET /facts HTTP/1.1\r\nHost: 192.168.1.5\r\nx-api-key: sk\r\n\r\n", &answer);
    assert_int_equal(answer.status, 200);
    assert_non_null(strstr(answer.body, "peer=127.0.0.1\n")); /* also when the socket is IPv6's */
    kit_answer_done(&answer);
    kit_ask(&server, "GET /facts HTTP/1.1\r\nHost: box.lan\r\nx-api-key: sk\r\n\r\n", &answer);
    assert_int_equal(answer.status, 403);
    kit_answer_done(&answer);
    assert_int_equal(kit_stop(&server), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers), cmocka_unit_test(refusals),
                                       cmocka_unit_test(open_to_all)};
    return cmocka_run_group_tests(tests, make_certificates, NULL);
}
