/* SPDX-License-Identifier: MIT
 * test_typed.c: seeded random input for the two parsers that see what users type.
 *
 * Sizes are checked against a second reader, written from the documented grammar with the whole number in one 128-bit
 * product (possible since the inputs made here are short). Options are checked for what must hold whatever was typed:
 * a status, a plain text, values within their bounds, nothing left on the heap. BT_SEED replays a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "random.h"
#include <cmocka.h>

#include "base/heap.h"
#include "base/option.h"
#include "base/size.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_ROUNDS 40000

__extension__ typedef unsigned __int128 u128;

static uint64_t seed = 20240917;
static uint64_t random_state;

static uint64_t next_random(void) {
    return random_next(&random_state);
}

static size_t below(size_t n) {
    return (size_t)(next_random() % n);
}

static int start(void **state) {
    (void)state;
    random_state = seed;
    return 0;
}

/* ---- sizes ------------------------------------------------------------------------------------------------------ */

static const char *const suffixes[] = {"", "B", "K", "M", "G", "T", "KiB", "MiB", "GiB", "TiB", "KB", "MB", "GB", "TB"};
static const uint64_t scales[] = {1,
                                  1,
                                  UINT64_C(1) << 10,
                                  UINT64_C(1) << 20,
                                  UINT64_C(1) << 30,
                                  UINT64_C(1) << 40,
                                  UINT64_C(1) << 10,
                                  UINT64_C(1) << 20,
                                  UINT64_C(1) << 30,
                                  UINT64_C(1) << 40,
                                  UINT64_C(1000),
                                  UINT64_C(1000000),
                                  UINT64_C(1000000000),
                                  UINT64_C(1000000000000)};

static bool same_but_case(const char *a, const char *b) {
    for (; *a && *b; a++, b++) {
        if (*a != *b && (*a ^ 0x20) != *b) return false;
    }
    return *a == *b;
}

/* What text means, or false. At most 26 digits and a scale below 2^40.1: below 2^127. */
static bool reference(const char *text, uint64_t *ret) {
    u128 number = 0;
    u128 divisor = 1;
    size_t n[2] = {0, 0};
    int part = 0;
    const char *p = text;
    for (;; p++) {
        if (*p >= '0' && *p <= '9') {
            number = number * 10 + (unsigned)(*p - '0');
            if (part) divisor *= 10;
            n[part]++;
        } else if (*p == '.' && part == 0) {
            part = 1;
        } else {
            break;
        }
    }
    if (n[0] == 0 || (part && n[1] == 0)) return false;
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        if (!same_but_case(p, suffixes[i])) continue;
        u128 bytes = number * scales[i] / divisor;
        *ret = (uint64_t)bytes;
        return bytes <= UINT64_MAX;
    }
    return false;
}

static void check_size(const char *text) {
    bt_error err = {0};
    uint64_t bytes = 12345;
    uint64_t expected = 0;
    bool is_good = reference(text, &expected);
    bt_status status = bt_size_parse(text, "size", &bytes, &err);
    bool agrees = is_good ? status == BT_OK && bytes == expected : status == BT_E_ARG && bytes == 12345;
    if (!agrees) fail_msg("seed %llu: \"%s\" gave %llu", (unsigned long long)seed, text, (unsigned long long)bytes);
    if (!is_good) assert_string_equal(err.code, "size");
}

static void add_chars(char *text, size_t *n, size_t count, const char *set, size_t n_set) {
    for (size_t i = 0; i < count; i++) {
        text[(*n)++] = set ? set[below(n_set)] : (char)(1 + below(255));
    }
    text[*n] = '\0';
}

/* At most 26 characters of a number and 3 of a unit. */
static void random_size(char text[40]) {
    static const char digits[] = "0123456789";
    static const char likely[] = "0123456789012345678901234567890123456789...kKmMgGtTiIbB -+,eE";
    size_t n = 0;
    text[0] = '\0';
    switch (below(3)) {
    case 0: /* anything */
        add_chars(text, &n, below(12), NULL, 0);
        break;
    case 1: /* the right letters in any order */
        add_chars(text, &n, below(26), likely, sizeof likely - 1);
        break;
    default: /* nearly right, often right */
        add_chars(text, &n, below(14), digits, 10);
        if (below(2)) {
            add_chars(text, &n, 1, ".", 1);
            add_chars(text, &n, below(11), digits, 10);
        }
        (void)snprintf(text + n, 40 - n, "%s", suffixes[below(sizeof suffixes / sizeof *suffixes)]);
        n = strlen(text);
        if (n > 0 && below(8) == 0) text[below(n)] = (char)(1 + below(127));
    }
}

static void test_sizes(void **state) {
    (void)state;
    for (size_t round = 0; round < N_ROUNDS; round++) {
        char text[40];
        random_size(text);
        check_size(text);
    }
}

/* What is shown, read back without its space, is the size to within half of the last digit shown. */
static void test_format_and_back(void **state) {
    (void)state;
    for (size_t round = 0; round < N_ROUNDS; round++) {
        uint64_t bytes = next_random() >> below(64);
        if (bytes >= UINT64_C(16777215) << 40) continue; /* may be shown as 2^64, which no size is */
        char text[BT_SIZE_TEXT];
        (void)bt_size_format(bytes, text);
        char *space = strchr(text, ' ');
        assert_non_null(space);
        memmove(space, space + 1, strlen(space));
        uint64_t back = 0;
        assert_int_equal(bt_size_parse(text, "size", &back, NULL), BT_OK);
        uint64_t slack = bytes < 1024                        ? 0
                         : bytes < (UINT64_C(1) << 20)       ? 52          /* 0.05 KiB */
                         : bytes < (UINT64_C(1) << 30)       ? 52429       /* 0.05 MiB */
                         : bytes < (UINT64_C(1) << 40) - 512 ? 5368710     /* 0.005 GiB */
                                                             : 5497558139; /* 0.005 TiB */
        uint64_t off = back > bytes ? back - bytes : bytes - back;
        if (off > slack) fail_msg("%llu is shown as %s", (unsigned long long)bytes, text);
    }
}

/* ---- options ---------------------------------------------------------------------------------------------------- */

typedef struct wishes {
    bool flag;
    const char *text;
    uint64_t size_bytes;
    uint32_t whole;
    int32_t signed_whole;
    double real;
    int choice;
    uint32_t n_custom;
    bool given;
} wishes;

static bt_status count(const char *value, void *target, bt_error *err) {
    (void)err;
    assert_true(value[0] != '\0');
    ((wishes *)target)->n_custom++;
    return BT_OK;
}

#define ROW(spelling, letters, type, member)                                                                           \
    .name = (spelling), .shorts = (letters), .kind = (type), .offset = offsetof(wishes, member),                       \
    .set_offset = offsetof(wishes, given), .commands = 1
static const bt_option table[] = {
    {ROW("flag", "f", BT_OPTION_FLAG, flag)},
    {ROW("text", "t x", BT_OPTION_TEXT, text)},
    {ROW("ram-budget", NULL, BT_OPTION_SIZE, size_bytes), .alias = "budget"},
    {ROW("ctx-size", "c", BT_OPTION_U32, whole), .min = 1, .max = 4096},
    {ROW("predict", "n np", BT_OPTION_I32, signed_whole), .min = -1, .max = 1000},
    {ROW("temp", NULL, BT_OPTION_REAL, real), .min = -1, .max = 2},
    {ROW("policy", "ctk", BT_OPTION_CHOICE, choice), .choices = "ctx|speed|auto"},
    {ROW("device", "d", BT_OPTION_CUSTOM, n_custom), .parse = count},
};
enum { N_TABLE = sizeof table / sizeof *table };

static const char *const words[] = {
    "--flag", "--text",   "--ram-budget", "--ram_budget", "--budget", "--ctx-size", "--predict",
    "--temp", "--policy", "-f",           "-t",           "-x",       "-c",         "-np",
    "-ctk",   "-d",       "-n",           "--device",     "--",       "-",          "",
    "5",      "-1",       "1.5G",         "0.5",          "1e1",      "speed",      "=",
    "--=",    "-=",       "--ctx",        "4096",         "4097",     "-2",         "1e999",
    "auto",   "=5",       "=-1",          "=speed",       "=1.5G",    "=0.25",      "--flga",
    "a.gguf", "nan",      "2147483648",
};
enum { N_WORDS = sizeof words / sizeof *words };

static char one_variable[24];

static const char *random_environment(const char *name) {
    if (strncmp(name, "BURTHEN_", 8) != 0) return "";
    return below(64) == 0 ? one_variable : NULL;
}

static void random_word(char *word, size_t capacity) {
    (void)snprintf(word, capacity, "%s", words[below(N_WORDS)]);
    if (below(3) == 0) {
        size_t n = strlen(word);
        (void)snprintf(word + n, capacity - n, "%s", words[below(N_WORDS)]);
    }
    if (below(6) == 0) word[below(strlen(word) + 1)] = (char)below(256);
}

static void check_text(const char *text) {
    size_t n = strlen(text);
    assert_true(n > 0);
    for (size_t i = 0; i < n;) {
        size_t length = bt_utf8_length(text + i, n - i);
        assert_true(length > 0);
        assert_false(bt_utf8_is_control(text + i, length));
        i += length;
    }
}

static void test_options(void **state) {
    (void)state;
    size_t n_good = 0;
    for (size_t round = 0; round < N_ROUNDS; round++) {
        char storage[6][64] = {{0}};
        char *argv[6];
        int argc = (int)below(7);
        for (int i = 0; i < argc; i++) {
            random_word(storage[i], sizeof storage[i] - 1);
            argv[i] = storage[i];
        }
        random_word(one_variable, sizeof one_variable - 1);
        wishes w = {.whole = 1};
        const char *args[3];
        bt_option_result result = {.args = args, .max_args = 3};
        bt_error err = {0};
        bt_status status = bt_options_parse(table, N_TABLE, 1, argc, argv, random_environment, NULL, &w, &result, &err);
        assert_int_equal(bt_heap_live_blocks(), 0);
        assert_true(w.whole >= 1 && w.whole <= 4096);
        assert_true(w.signed_whole >= -1 && w.signed_whole <= 1000);
        assert_true(w.real >= -1 && w.real <= 2);
        assert_true(w.choice >= 0 && w.choice < 3);
        assert_true(result.n_args <= 3 && result.rest >= 0 && result.rest <= argc);
        if (status == BT_OK) {
            n_good++;
            assert_int_equal(err.status, BT_OK);
            if (result.rest) assert_string_equal(argv[result.rest - 1], "--");
        } else {
            assert_int_equal(status, BT_E_ARG);
            assert_int_equal(err.status, BT_E_ARG);
            assert_string_equal(err.code, "option");
            check_text(err.text);
        }
    }
    assert_in_range(n_good, N_ROUNDS / 20, N_ROUNDS * 19 / 20); /* both ways were taken */
}

static void test_nearest(void **state) {
    (void)state;
    for (size_t round = 0; round < N_ROUNDS / 10; round++) {
        char word[80];
        size_t n = below(sizeof word);
        for (size_t i = 0; i < n; i++) {
            word[i] = (char)(1 + below(255));
        }
        word[n] = '\0';
        (void)bt_nearest(word, words, N_WORDS);
        /* a known word with one letter changed has a near one */
        (void)snprintf(word, sizeof word, "%s", words[below(N_WORDS)]);
        n = strlen(word);
        if (n < 3) continue;
        word[below(n)] = 'z';
        assert_non_null(bt_nearest(word, words, N_WORDS));
    }
}

int main(void) {
    const char *replay = getenv("BT_SEED");
    if (replay) seed = strtoull(replay, NULL, 10);
    (void)fprintf(stderr, "BT_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_sizes, start),
        cmocka_unit_test_setup(test_format_and_back, start),
        cmocka_unit_test_setup(test_options, start),
        cmocka_unit_test_setup(test_nearest, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
