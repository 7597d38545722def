/* SPDX-License-Identifier: MIT
 * fuzz_replay.c: the program test_fuzz_NAME: every sample of a target as it is, then n_rounds samples changed in some
 * places by a seeded hand: bytes flipped, stretches cut, doubled, or taken from another sample, words of the reader and
 * numbers that mean trouble put in.
 *
 * This guards what was found; to search is libFuzzer's part. BT_SEED=N runs one again, BT_ROUNDS=N makes it longer,
 * an argument --dictionary prints the words as libFuzzer wants them, and files that are named are run alone. */
#include "corpus.h"
#include "fuzz.h"
#include "rounds.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

/* ---- what it died of ---- */

static void keep(int signal_number) {
    static char path[1024]; /* made before: a signal handler may not print */
    size_t n = 0;
    const void *data = fuzz_now(&n);
    (void)snprintf(path, sizeof path, "%s/fuzz-%s-died", BT_TEST_OUT, fuzz_here.name);
    FILE *file = fopen(path, "wb"); /* the program ends in any case: what may go wrong here has gone wrong */
    if (file && data) (void)fwrite(data, 1, n, file);
    if (file) (void)fclose(file);
    (void)fprintf(stderr, "fuzz %s: BT_SEED=%" PRIu64 ", the input is %s\n", fuzz_here.name, corpus_seed, path);
    (void)signal(signal_number, SIG_DFL);
    (void)raise(signal_number);
}

static size_t n_words(void) {
    static size_t n;
    while (fuzz_here.word && fuzz_here.word(n))
        n++;
    return n;
}

/* ---- runs ---- */

static uint64_t rounds(void) {
    const char *asked = getenv("BT_ROUNDS");
    return asked ? strtoull(asked, NULL, 10) : rounds_of(fuzz_here.n_rounds);
}

static void replay(void **state) {
    (void)state;
    static sample s;
    uint64_t n_taken = 0;
    for (size_t i = 0; i < n_samples; i++)
        n_taken += fuzz_run(samples[i].data, samples[i].n);
    uint64_t n_rounds = rounds();
    for (uint64_t i = 0; i < n_rounds; i++) {
        s = samples[below(n_samples)];
        for (size_t n = 1 + below(4); n > 0; n--)
            corpus_change(&s, n_words(), fuzz_here.word);
        n_taken += fuzz_run(s.data, s.n);
    }
    print_message("%s: %zu samples, %" PRIu64 " changed, %" PRIu64 " taken\n", fuzz_here.name, n_samples, n_rounds,
                  n_taken);
    if (fuzz_here.takes_all) return;
    assert_true(n_taken > 0 && n_taken < n_samples + n_rounds); /* both ways were taken */
}

static void print_dictionary(void) {
    for (size_t i = 0; i < n_words(); i++) {
        (void)putchar('"');
        for (const char *p = fuzz_here.word(i); *p; p++) {
            unsigned char c = (unsigned char)*p;
            if (c < 0x20 || c >= 0x7f || c == '"' || c == '\\')
                (void)printf("\\x%02X", c);
            else
                (void)putchar(c);
        }
        (void)puts("\"");
    }
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--dictionary") == 0) {
        print_dictionary();
        return 0;
    }
    if (fuzz_here.start) fuzz_here.start();
    (void)signal(SIGABRT, keep);
    corpus_begin(UINT64_C(0x62757274));
    bool read = true;
    for (int i = 1; i < argc; i++)
        read = corpus_add(argv[i]) && read;
    if (argc == 1) {
        char path[1024];
        (void)snprintf(path, sizeof path, BT_TEST_DATA "/fuzz/%s", fuzz_here.name);
        read = corpus_add(path);
        for (const char *const *more = fuzz_here.more; more && *more; more++) {
            (void)snprintf(path, sizeof path, BT_TEST_DATA "/%s", *more);
            read = corpus_add(path) && read;
        }
    }
    if (!read || n_samples == 0) {
        (void)fprintf(stderr, "fuzz %s: samples are missing\n", fuzz_here.name);
        return 1;
    }
    int failed = 0;
    if (argc > 1) {
        for (size_t i = 0; i < n_samples; i++)
            (void)fuzz_run(samples[i].data, samples[i].n);
    } else {
        const struct CMUnitTest tests[] = {cmocka_unit_test(replay)};
        failed = cmocka_run_group_tests(tests, NULL, NULL);
    }
    if (fuzz_here.stop) fuzz_here.stop();
    return failed;
}
