/* SPDX-License-Identifier: MIT
 * fuzz_size.c: what is typed as a size, a number, a list of budgets, a rule of tensors or a value of llama.cpp's
 * options. What is taken is what the text says, by a second reader where there is a simple one. */
#include "fuzz.h"

#include "base/size.h"
#include "guard/rules.h"
#include "guard/values.h"
#include "plain_check.h"
#include "report/bench.h"

#include <math.h>
#include <regex.h>
#include <stdlib.h>

/* As strtoull reads digits alone, for a size that is written without a unit. */
static void check_plain_size(const char *text, bt_status status, uint64_t bytes) {
    size_t n = strlen(text);
    if (n == 0 || n > 18 || strspn(text, "0123456789") != n) return;
    FUZZ_CHECK(status == BT_OK && bytes == strtoull(text, NULL, 10));
}

static bool check_size(const char *text) {
    bt_error err = {0};
    uint64_t bytes = 12345;
    bt_status status = bt_size_parse(text, "size", &bytes, &err);
    check_plain_size(text, status, bytes);
    if (status == BT_OK) {
        FUZZ_CHECK(text[0] >= '0' && text[0] <= '9');
        return true;
    }
    FUZZ_CHECK(status == BT_E_ARG && bytes == 12345 && strcmp(err.code, "size") == 0);
    plain_check(err.text);
    return false;
}

static void check_values(const char *text) {
    int32_t whole = 0;
    double real = 0;
    bool on = false;
    bt_flash flash;
    if (bt_value_int(text, &whole)) FUZZ_CHECK(whole == strtol(text, NULL, 10));
    if (bt_value_real(text, &real)) FUZZ_CHECK(real == strtod(text, NULL) || isnan(real) || fabs(real) < 1.0e-37);
    if (bt_value_on(text, &on)) FUZZ_CHECK(bt_value_flash(text, &flash));
    if (bt_value_layers(text, &whole)) FUZZ_CHECK(whole >= BT_LAYERS_ALL);
    if (bt_value_choice(text, "none|linear|yarn", &whole)) FUZZ_CHECK(whole >= 0 && whole < 3);
}

static void check_budgets(const char *text) {
    static bt_bench_budget budgets[BT_BENCH_ROW_MAX];
    bt_error err = {0};
    uint32_t n = 0;
    bt_status status = bt_bench_budgets_parse(text, budgets, &n, &err);
    FUZZ_CHECK(status == BT_OK ? n >= 1 && n <= BT_BENCH_ROW_MAX : status == BT_E_ARG);
    if (status != BT_OK) plain_check(err.text);
    for (uint32_t i = 0; status == BT_OK && i < n; i++)
        FUZZ_CHECK(bt_bench_budget_bytes(&budgets[i], 1000, 5000) <= 5000 || !budgets[i].is_share);
}

/* What is translated is an expression. */
static void check_rule(const char *text) {
    char posix[512];
    regex_t regex;
    if (!bt_rule_translate(text, posix, sizeof posix)) return;
    FUZZ_CHECK(memchr(posix, '\0', sizeof posix) != NULL);
    if (regcomp(&regex, posix, REG_EXTENDED | REG_NOSUB) == 0) regfree(&regex);
}

static bool one(char *text, size_t n) {
    (void)n;
    check_values(text);
    check_budgets(text);
    if (strlen(text) < 200) check_rule(text); /* the C library's own expressions grow without a bound */
    return check_size(text);
}

static const char *word(size_t i) {
    static const char *const words[] = {"K",
                                        "MiB",
                                        "GB",
                                        "t",
                                        ".",
                                        "%",
                                        ",",
                                        "-",
                                        "+",
                                        "e",
                                        "0x",
                                        "nan",
                                        "inf",
                                        "auto",
                                        "all",
                                        "on",
                                        "off",
                                        "yarn",
                                        "\\d",
                                        "\\.",
                                        "(",
                                        ")",
                                        "[",
                                        "]",
                                        "{1,2}",
                                        "?",
                                        "*",
                                        "|",
                                        "^",
                                        "$",
                                        "18446744073709551615",
                                        " "};
    return i < sizeof words / sizeof *words ? words[i] : NULL;
}

const fuzz_target fuzz_here = {.name = "size", .one = one, .word = word, .n_rounds = 20000};
