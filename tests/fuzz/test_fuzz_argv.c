/* SPDX-License-Identifier: MIT
 * test_fuzz_argv.c: the corpus of tests/data/fuzz/argv (command lines, one element a line, and config.ini files) as it
 * is, and mutated: bytes flipped, pieces of other members and of the table put in. What must hold stands in argv_kit.h.
 * The seed is printed; BT_SEED=N runs that one again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define ARGV_CHECK(condition) assert_true(condition)
#include "argv_kit.h"
#include "base/heap.h"
#include "corpus.h"

#include <inttypes.h>

#define N_ROUNDS 3000
#define CORPUS   BT_TEST_DATA "/fuzz/argv"

static int load_corpus(void **state) {
    (void)state;
    return corpus_load(CORPUS, UINT64_C(0x61726776), 12);
}

static void check(const sample *s) {
    char *exact = bt_heap_alloc(s->n + 1); /* of exactly this size, so that a read past it is seen */
    assert_non_null(exact);
    memcpy(exact, s->data, s->n);
    argv_check_text(exact, s->n);
    bt_heap_free(exact);
}

static void splice(sample *s, size_t at, size_t n_old, const char *more, size_t n_new) {
    if (s->n - n_old + n_new > sizeof s->data) return;
    memmove(s->data + at + n_new, s->data + at + n_old, s->n - at - n_old);
    memcpy(s->data + at, more, n_new);
    s->n = s->n - n_old + n_new;
}

static void mutate(sample *s) {
    size_t at = below(s->n + 1);
    size_t left = s->n - at;
    const sample *other = &samples[below(n_samples)];
    const char *words = bt_flag_get((bt_flag_id)below(BT_FLAG_COUNT))->spellings;
    size_t from = below(other->n + 1);
    size_t n = below(other->n - from + 1);
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
    case 3:
        splice(s, at, 0, "\n", 1);
        break;
    default:
        splice(s, at, below((left < 8 ? left : 8) + 1), words, strcspn(words, " "));
    }
}

static void corpus(void **state) {
    (void)state;
    for (size_t i = 0; i < n_samples; i++)
        check(&samples[i]);
    assert_int_equal(bt_heap_live_blocks(), 0);
}

static void mutated(void **state) {
    (void)state;
    static sample s;
    for (uint32_t i = 0; i < N_ROUNDS; i++) {
        s = samples[below(n_samples)];
        for (size_t n = 1 + below(6); n > 0; n--)
            mutate(&s);
        check(&s);
    }
    assert_int_equal(bt_heap_live_blocks(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(corpus), cmocka_unit_test(mutated)};
    return cmocka_run_group_tests(tests, load_corpus, NULL);
}
