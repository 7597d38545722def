/* SPDX-License-Identifier: MIT
 * test_router_config.c: the corpus of tests/data/fuzz/router_config (configurations) as it is, and mutated: bytes
 * flipped, pieces of other members and of the table of keys put in. What must hold stands in router_check.h. The same
 * is done to bodies of requests that are filtered. The seed is printed; BT_SEED=N runs that one again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define ROUTER_CHECK(condition) assert_true(condition)
#include "corpus.h"
#include "router/config_read.h"
#include "router_check.h"

#include <inttypes.h>

#define N_ROUNDS 4000
#define CORPUS   BT_TEST_DATA "/fuzz/router_config"

static int load_corpus(void **state) {
    (void)state;
    return corpus_load(CORPUS, UINT64_C(0x79616d6c), 8);
}

static bool check(const sample *s) {
    char *exact = malloc(s->n ? s->n : 1); /* of exactly this size, so that a read past it is seen */
    assert_non_null(exact);
    memcpy(exact, s->data, s->n);
    bool taken = router_check_text(exact, s->n);
    free(exact);
    return taken;
}

static void splice(sample *s, size_t at, size_t n_old, const char *more, size_t n_new) {
    if (s->n - n_old + n_new > sizeof s->data) return;
    memmove(s->data + at + n_new, s->data + at + n_old, s->n - at - n_old);
    memcpy(s->data + at, more, n_new);
    s->n = s->n - n_old + n_new;
}

static const char *some_word(void) {
    static const char *const words[] = {
        "${PORT}", "${PID}", "${MODEL_ID}", "${env.KEY}", "${a}", "&a ", "*a",  "<<: *a", "[",   "]",      "{", "}",
        ": ",      "\n",     "\n  ",        "'",          "\"",   "|\n", "off", "-1",     "1e9", "!!str ", "#", "\\\n"};
    enum { N_WORDS = sizeof words / sizeof *words };
    size_t i = below(N_WORDS + bt_config_n_keys);
    if (i < N_WORDS) return words[i];
    const bt_key *key = &bt_config_keys[i - N_WORDS];
    return key->swap && below(2) == 0 ? key->swap : key->name ? key->name : key->swap;
}

static void mutate(sample *s) {
    size_t at = below(s->n + 1);
    size_t left = s->n - at;
    const sample *other = &samples[below(n_samples)];
    size_t from = below(other->n + 1);
    size_t n = below(other->n - from + 1);
    const char *word = some_word();
    switch (below(5)) {
    case 0:
        if (left > 0) s->data[at] = (char)(s->data[at] ^ (char)(1u << below(8)));
        break;
    case 1:
        splice(s, at, below((left < 64 ? left : 64) + 1), "", 0);
        break;
    case 2:
        splice(s, at, 0, other->data + from, n < 200 ? n : 200);
        break;
    default:
        splice(s, at, below((left < 8 ? left : 8) + 1), word, strlen(word));
    }
}

static void corpus(void **state) {
    (void)state;
    size_t n_taken = 0;
    for (size_t i = 0; i < n_samples; i++)
        n_taken += check(&samples[i]);
    assert_in_range(n_taken, 4, n_samples - 1);
}

static void mutated(void **state) {
    (void)state;
    static sample s;
    size_t n_taken = 0;
    for (uint32_t i = 0; i < N_ROUNDS; i++) {
        s = samples[below(n_samples)];
        for (size_t n = 1 + below(3); n > 0; n--)
            mutate(&s);
        n_taken += check(&s);
    }
    assert_in_range(n_taken, N_ROUNDS / 100, N_ROUNDS * 9 / 10); /* both ways were taken */
}

/* Bodies: taken or refused, nothing left, and a second pass changes nothing. */
static void bodies(void **state) {
    (void)state;
    static const char text[] =
        "models: {a: {model: x, use_model_name: r, filters: {strip_params: [t, n], set_params: {n: 1, "
        "o: {p: [2]}}}}}";
    static const char body[] = "{\"model\":\"a\",\"t\":1, \"n\":[1,{\"x\":\"y\\\"\"}],\"\\u006f\":null,\"z\":-1.5e3 }";
    bt_config *c = NULL;
    static sample s;
    size_t n_taken = 0;
    assert_int_equal(bt_config_parse(text, sizeof text - 1, "f", NULL, &c, NULL, NULL), BT_OK);
    uint64_t live = bt_heap_live_blocks();
    for (uint32_t i = 0; i < 10 * N_ROUNDS; i++) {
        static const char *const pieces[] = {"\"", "{",     "}",       "[",      "]", ",", ":",
                                             "\\", "\\u00", "\\ud83d", "\"n\":", " ", "1"};
        memcpy(s.data, body, s.n = sizeof body - 1);
        for (size_t n = 1 + below(3); n > 0; n--) {
            const char *piece = pieces[below(sizeof pieces / sizeof *pieces)];
            size_t at = below(s.n);
            splice(&s, at, below(2), piece, below(4) == 0 ? 0 : strlen(piece));
        }
        char *exact = malloc(s.n);
        char *out = NULL;
        char *again = NULL;
        size_t n_out = 0;
        size_t n_again = 0;
        assert_non_null(exact);
        memcpy(exact, s.data, s.n);
        bt_status status = bt_config_filter(&c->models[0].filters, "r", NULL, exact, s.n, &out, &n_out, NULL);
        free(exact);
        assert_true(status == BT_E_FORMAT || (status == BT_OK && out));
        if (status == BT_OK) {
            n_taken++;
            assert_int_equal(bt_config_filter(&c->models[0].filters, "r", NULL, out, n_out, &again, &n_again, NULL),
                             BT_OK);
            assert_int_equal(n_again, n_out);
            assert_memory_equal(again, out, n_out);
        }
        bt_heap_free(out);
        bt_heap_free(again);
        assert_int_equal(bt_heap_live_blocks(), live);
    }
    assert_in_range(n_taken, N_ROUNDS / 10, 9 * N_ROUNDS);
    bt_config_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(corpus), cmocka_unit_test(mutated), cmocka_unit_test(bodies)};
    return cmocka_run_group_tests(tests, load_corpus, NULL);
}
