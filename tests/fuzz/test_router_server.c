/* SPDX-License-Identifier: MIT
 * test_router_server.c: the corpus of tests/data/fuzz/http (what clients send, raw) as it is, and mutated, in one piece
 * or several, read or not: the server lives, ends every request that it gave away, and holds nothing at the end. The
 * seed is printed; BT_SEED=N runs that one again. */
#include "corpus.h"
#include "router_server_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>

#define N_ROUNDS 1000
#define CORPUS   BT_TEST_DATA "/fuzz/http"

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

static void send_sample(const sample *s, bool in_pieces, bool reads, bool half) {
    int fd = kit_connect(&server);
    size_t at = 0;
    while (at < s->n) {
        size_t n = in_pieces ? 1 + below(s->n - at) : s->n - at;
        if (kit_send(fd, s->data + at, n) < n) break;
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
        send_sample(&samples[i], false, true, false);
        send_sample(&samples[i], true, true, true);
        send_sample(&samples[i], false, false, false);
        sample cut = samples[i];
        cut.n = cut.n / 2;
        send_sample(&cut, false, false, true);
    }
    assert_true(kit_until(&server, "open", 1));
    assert_int_equal(kit_count(&server, "bodies"), 0);
}

static void mutate(sample *s) {
    for (size_t n = 1 + below(6); n > 0; n--) {
        const sample *other = &samples[below(n_samples)];
        size_t at = s->n ? below(s->n) : 0;
        switch (below(4)) {
        case 0:
            if (s->n) s->data[at] = (char)(unsigned char)below(256);
            break;
        case 1:
            if (s->n) s->data[at] = "\r\n :/%?&\t\0"[below(10)];
            break;
        case 2: { /* a piece of another in its place */
            size_t from = below(other->n), length = 1 + below(other->n - from);
            if (length > sizeof s->data - at) length = sizeof s->data - at;
            memmove(s->data + at, other->data + from, length);
            if (at + length > s->n) s->n = at + length;
            break;
        }
        default:
            s->n = at;
        }
    }
}

static void mutated(void **state) {
    (void)state;
    for (int i = 0; i < N_ROUNDS; i++) {
        sample s = samples[below(n_samples)];
        mutate(&s);
        send_sample(&s, below(4) == 0, below(2) == 0, below(3) == 0);
        if (i % 100 == 0 && kit_count(&server, "requests") == UINT64_MAX) fail_msg("round %d: no answer", i);
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
        kit_read_answer(fd, false, &answer);
        if (answer.status) assert_int_equal(answer.status, i == 2 ? answer.status : 431);
        kit_answer_done(&answer);
        (void)close(fd);
    }
    assert_true(kit_until(&server, "open", 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_they_are), cmocka_unit_test(mutated),
                                       cmocka_unit_test(floods)};
    return cmocka_run_group_tests(tests, load_corpus, nothing_left);
}
