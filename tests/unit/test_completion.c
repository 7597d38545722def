/* SPDX-License-Identifier: MIT
 * test_completion.c: what may stand where the cursor is, for lines of any words: each answer is lines of the agreed
 * form, begins as what was typed, and what is offered is taken. */
#include "cli/completion.h"

#include "base/heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "random.h"

#define N_ROUNDS  20000
#define WORDS_MAX 6
#define SEED      20261130u

static const char *answer_to(bt_text *text, const char *const *words, size_t n) {
    bt_text_init(text, 1u << 18);
    bt_completion_words(words, n, text);
    assert_false(text->failed);
    return bt_text_str(text);
}

static void check(const char *expected, size_t n, const char *const *words) {
    bt_text text;
    assert_string_equal(answer_to(&text, words, n), expected);
    bt_text_done(&text);
}
#define CHECK(expected, ...)                                                                                           \
    check(expected, sizeof(const char *[]){__VA_ARGS__} / sizeof(char *), (const char *const[]){__VA_ARGS__})

static void the_place_decides(void **state) {
    (void)state;
    CHECK("", "nonsense", "");
    CHECK("--help\n", "--h");
    CHECK("ctx\nspeed\n", "plan", "--policy", "");
    CHECK("--policy=speed\n", "plan", "--policy=s");
    CHECK(":file gguf\n", "plan", "--policy", "ctx", "");
    CHECK(":file gguf\n", "plan", "--policy=ctx", "");
    CHECK(":file gguf\n", "run", "--mlock", ""); /* a flag takes nothing */
    CHECK("", "run", "-c", "");                  /* a number */
    CHECK(":file json\n", "run", "--plan", "");
    CHECK(":command 3\n", "exec", "--dry-run", "--", "llama");
    CHECK(":command 4\n", "exec", "--hold", "--", "--", "llama"); /* the first is a value */
    CHECK("", "exec", "");                                        /* what it starts stands behind -- */
    CHECK("", "plan", "--\xc3\xbc");
}

static void nothing_typed(void **state) {
    (void)state;
    bt_text text;
    assert_string_equal(answer_to(&text, NULL, 0), "");
    bt_text_done(&text);
}

static uint64_t below(uint64_t *random, uint64_t n) {
    return random_next(random) % n;
}

/* Pieces of lines that people type, and of those that nobody does. */
static const char *piece(uint64_t *random, char *room, size_t capacity) {
    static const char *const words[] = {
        "",  "-",   "--",   "plan",      "run",  "exec", "serve", "cache",   "--policy", "-ctk",
        "=", "ctx", "--x=", "--policy=", "a\tb", "\n",   "\x1b[", "--draft", ":file",    "\xff"};
    uint64_t k = below(random, sizeof words / sizeof *words + 4);
    if (k < sizeof words / sizeof *words) return words[k];
    size_t n = (size_t)below(random, capacity);
    for (size_t i = 0; i < n; i++)
        room[i] = (char)(1 + below(random, 255));
    room[n] = '\0';
    return room;
}

static void any_words(void **state) {
    (void)state;
    uint64_t random = SEED;
    size_t n_offered = 0;
    for (size_t round = 0; round < N_ROUNDS; round++) {
        char rooms[WORDS_MAX][24];
        const char *words[WORDS_MAX];
        size_t n = 1 + (size_t)below(&random, WORDS_MAX);
        for (size_t i = 0; i < n; i++)
            words[i] = piece(&random, rooms[i], sizeof rooms[i]);
        bt_text text;
        const char *line = answer_to(&text, words, n);
        for (; *line; line += strcspn(line, "\n") + 1) {
            size_t length = strcspn(line, "\t\n");
            assert_true(length > 0 && line[strcspn(line, "\n")] == '\n');
            if (line[0] == ':') continue;
            assert_true(length >= strlen(words[n - 1]) && memcmp(line, words[n - 1], strlen(words[n - 1])) == 0);
            n_offered++;
        }
        bt_text_done(&text);
    }
    assert_true(n_offered > N_ROUNDS / 10);
    assert_int_equal(bt_heap_live_blocks(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_place_decides), cmocka_unit_test(nothing_typed),
                                       cmocka_unit_test(any_words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
