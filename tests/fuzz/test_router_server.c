/* SPDX-License-Identifier: MIT
 * test_router_server.c: the corpus of tests/data/fuzz/router_http (what clients send, raw) to a server in a process of
 * its own, in one piece or several, cut, read or not: it lives, ends every request that it gave away, and holds nothing
 * at the end. Changed samples are fuzz_router_http.c's. The seed is printed; BT_SEED=N runs that one again. */
#include "corpus.h"
#include "router_server_kit.h"

#define CORPUS BT_TEST_DATA "/fuzz/router_http"

static kit server;

static int load_corpus(void **state) {
    (void)state;
    int loaded = corpus_load(CORPUS, UINT64_C(0x68747470), 20);
    bt_config config = kit_config();
    server = kit_start(&config);
    return server.port ? loaded : -1;
}

static int nothing_left(void **state) {
    (void)state;
    return kit_stop(&server);
}

static void send_sample(const char *data, size_t n_bytes, bool in_pieces, bool reads, bool half) {
    int fd = kit_connect(&server);
    size_t at = 0;
    while (at < n_bytes) {
        size_t n = in_pieces ? 1 + below(n_bytes - at) : n_bytes - at;
        if (kit_send(fd, data + at, n) < n) break;
        at += n;
        if (in_pieces) (void)usleep(200);
    }
    if (half) (void)shutdown(fd, SHUT_WR);
    char text[4096];
    if (reads) (void)kit_read(fd, text, sizeof text, 5, NULL);
    (void)close(fd);
}

static void as_they_are(void **state) {
    (void)state;
    for (size_t i = 0; i < n_samples; i++) {
        const sample *s = &samples[i];
        send_sample(s->data, s->n, false, true, false);
        send_sample(s->data, s->n, true, true, true);
        send_sample(s->data, s->n, false, false, false);
        send_sample(s->data, s->n / 2, false, false, true);
    }
    assert_true(kit_until(&server, "open", 1));
    assert_int_equal(kit_count(&server, "bodies"), 0);
    assert_int_equal(kit_count(&server, "flows"), 0);
}

/* More of a head than is held. */
static void floods(void **state) {
    (void)state;
    kit_answer answer;
    for (int i = 0; i < 3; i++) {
        int fd = kit_connect(&server);
        (void)kit_say(fd, "GET /facts HTTP/1.1\r\nHost: localhost\r\n");
        char line[1002];
        memset(line, 'a', sizeof line);
        memcpy(line, "X: ", 3);
        memcpy(line + sizeof line - 3, "\r\n", 3);
        for (int j = 0; j < 2000; j++)
            if (kit_say(fd, i == 0 ? line : i == 1 ? "A:\r\n" : "aaaaaaaaaaaaaaaa") == 0) break;
        kit_reading from = {.fd = fd, .ms = 5000}; /* one of them gets none */
        kit_read_answer_from(&from, false, &answer);
        free(from.data);
        if (answer.status) assert_int_equal(answer.status, i == 2 ? answer.status : 431);
        kit_answer_done(&answer);
        (void)close(fd);
    }
    assert_true(kit_until(&server, "open", 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_they_are), cmocka_unit_test(floods)};
    return cmocka_run_group_tests(tests, load_corpus, nothing_left);
}
