/* SPDX-License-Identifier: MIT
 * test_argv.c: random command lines of real options, real values, and words that are both. Whatever they say: every
 * element belongs to one occurrence, writing a value changes that value alone, and what is read without wrappers is
 * read behind them. A line of options that llama.cpp takes is also read by a second, simpler reader. BT_SEED=n replays.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define ARGV_CHECK(condition) assert_true(condition)
#include "argv_kit.h"
#include "random.h"
#include "rounds.h"

#include <stdio.h>

#define N_LINES 4000
#define N_WORDS 40

static uint64_t rng;

static uint32_t below(uint32_t n) {
    return (uint32_t)(random_next(&rng) % n);
}

static void seed(void) {
    rng = random_seed();
}

static char word_text[N_WORDS + 1][80];
static char *word_list[N_WORDS + 8];

static void put(uint32_t at, const char *text, size_t n) {
    assert_true(n < sizeof word_text[0]);
    memcpy(word_text[at], text, n);
    word_text[at][n] = '\0';
    word_list[at] = word_text[at];
}

/* A spelling of a row: any of those it has. */
static size_t spelling(bt_flag_id flag, const char **ret) {
    const bt_flag *row = bt_flag_get(flag);
    const char *words = row->negatives && below(2) ? row->negatives : row->spellings;
    uint32_t n = 1;
    for (const char *p = words; *p; p++)
        n += *p == ' ';
    for (uint32_t skip = below(n); skip > 0; skip--)
        words = strchr(words, ' ') + 1;
    *ret = words;
    return strcspn(words, " ");
}

static void random_word(uint32_t at) {
    static const char *const odd[] = {"",
                                      "-",
                                      "--",
                                      "-1",
                                      "0",
                                      "on",
                                      "off",
                                      "auto",
                                      "a.gguf",
                                      "a.gguf:0.5",
                                      "0.5",
                                      "--new",
                                      "-x",
                                      "--new=1",
                                      "x=y",
                                      "-ngl=5",
                                      "--ctx_size",
                                      "--ctx-size=7",
                                      "=",
                                      "--=",
                                      "-fa",
                                      "--lora-scaled",
                                      "--control-vector-layer-range"};
    if (below(2)) {
        const char *text = odd[below(sizeof odd / sizeof *odd)];
        put(at, text, strlen(text));
        return;
    }
    const char *text;
    size_t n = spelling((bt_flag_id)below(BT_FLAG_COUNT), &text);
    put(at, text, n);
}

static bt_arena *arena_open(void) {
    bt_arena *arena = bt_arena_open(UINT64_C(64) << 20, 65536);
    assert_non_null(arena);
    return arena;
}

static void any_words(void **state) {
    (void)state;
    seed();
    for (uint32_t i = 0; i < rounds_of(N_LINES); i++) {
        uint32_t n = below(N_WORDS);
        for (uint32_t w = 0; w < n; w++)
            random_word(w);
        word_list[n] = NULL;
        bt_arena *arena = arena_open();
        const bt_argv *view = NULL;
        for (uint32_t p = BT_PROGRAM_SERVER; p < BT_PROGRAM_COUNT; p++) {
            assert_int_equal(bt_argv_parse(arena, word_list, below(n + 1), (bt_program)p, &view, NULL), BT_OK);
            argv_check_cover(view);
        }
        for (uint32_t f = 0; f < BT_FLAG_COUNT; f += 1 + below(20)) {
            if (bt_flag_get((bt_flag_id)f)->kind == BT_TAKES_FLASH) continue; /* its value must be one of its words */
            argv_check_rewrite(arena, view, (bt_flag_id)f, below(2) ? "17" : "-c");
        }
        argv_check_all(arena, word_list, (argv_file){0});
        bt_arena_close(arena);
    }
}

/* The second reader: on a line without anything odd each option takes as many words as its row says. */
typedef struct given {
    uint32_t at[BT_FLAG_COUNT]; /* 0: not given */
    bool negative[BT_FLAG_COUNT];
} given;

static uint32_t make_line(uint32_t at, given *ret) {
    memset(ret, 0, sizeof *ret);
    while (at < N_WORDS - 3) {
        bt_flag_id flag = (bt_flag_id)below(BT_FLAG_COUNT);
        bt_flag_kind kind = bt_flag_get(flag)->kind;
        if (!bt_flag_is_of(flag, BT_PROGRAM_SERVER) || kind == BT_TAKES_FLASH || kind == BT_TAKES_SCALED) continue;
        const char *text;
        size_t n = spelling(flag, &text);
        const char *negatives = bt_flag_get(flag)->negatives;
        ret->at[flag] = at;
        ret->negative[flag] = negatives && text >= negatives && text <= negatives + strlen(negatives);
        put(at++, text, n);
        for (uint32_t v = bt_flag_arity(flag); v > 0; v--) {
            n = spelling((bt_flag_id)below(BT_FLAG_COUNT), &text); /* values that look like options */
            if (below(2))
                put(at++, text, n);
            else
                put(at++, "-5", 2);
        }
        if (below(8) == 0) break;
    }
    word_list[at] = NULL;
    return at;
}

static void valid_lines(void **state) {
    (void)state;
    seed();
    static given expected;
    for (uint32_t i = 0; i < rounds_of(N_LINES); i++) {
        static const char *const before[] = {"nice", "llama-server"};
        put(0, before[0], strlen(before[0]));
        put(1, before[1], strlen(before[1]));
        (void)make_line(2, &expected);
        bt_arena *arena = arena_open();
        bt_command command;
        const bt_argv *view = NULL;
        bt_command_find(word_list, &command);
        assert_int_equal(command.program, BT_PROGRAM_SERVER);
        assert_int_equal(command.first, 2);
        assert_int_equal(bt_argv_parse(arena, word_list, 2, BT_PROGRAM_SERVER, &view, NULL), BT_OK);
        assert_int_equal(view->n_unknown + view->n_stray + view->n_attached, 0);
        assert_false(view->open);
        for (uint32_t f = 0; f < BT_FLAG_COUNT; f++) {
            const bt_occurrence *o = bt_argv_last(view, (bt_flag_id)f);
            assert_int_equal(o ? o->at : 0, expected.at[f]);
            if (!o) continue;
            uint32_t arity = bt_flag_arity((bt_flag_id)f);
            assert_int_equal(o->n, 1 + arity);
            assert_int_equal(o->negative, expected.negative[f]);
            assert_ptr_equal(o->value, arity > 0 ? word_list[o->at + 1] : NULL);
        }
        bt_arena_close(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_words), cmocka_unit_test(valid_lines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
