/* SPDX-License-Identifier: MIT
 * test_flag_list.c: the table of options against what the programs themselves print for --help: every spelling, whether
 * a value follows, and the variable of the environment; none is missing on either side.
 *
 * Help prints an option at the start of a line, its text from column 40, on the same line if the option fits before it:
 *
 *   -c,    --ctx-size N                     size of the prompt context (default: 0, 0 = loaded from model)
 *                                           (env: LLAMA_ARG_CTX_SIZE)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "guard/flags.h"

#define HELP_MAX    (256 * 1024)
#define TEXT_COLUMN 40

typedef struct help {
    bt_program program;
    char text[HELP_MAX];
    bool seen[BT_FLAG_COUNT];
    uint32_t n_options, n_wrong;
} help;

static help page;

static bool read_help(bt_program program) {
    const char *folder = getenv("BT_LLAMA_BIN");
    char command[1200];
    if (!folder) return false;
    (void)snprintf(command, sizeof command, "%s/%s", folder, bt_program_name(program));
    FILE *exists = fopen(command, "rb");
    if (!exists) return false;
    (void)fclose(exists);
    (void)snprintf(command, sizeof command, "env -i '%s/%s' --help 2>/dev/null", folder, bt_program_name(program));
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    memset(&page, 0, sizeof page);
    page.program = program;
    size_t n = fread(page.text, 1, sizeof page.text - 1, pipe);
    assert_true(n < sizeof page.text - 1);
    assert_int_equal(pclose(pipe), 0);
    return true;
}

static void wrong(const char *what, const char *option) {
    print_error("%s: %s: %s\n", bt_program_name(page.program), option, what);
    page.n_wrong++;
}

/* Where the option of a line ends and its text starts. */
static size_t head_length(const char *line, size_t n) {
    if (n > TEXT_COLUMN && memcmp(line + TEXT_COLUMN - 3, "   ", 3) == 0) n = TEXT_COLUMN;
    while (n > 0 && line[n - 1] == ' ')
        n--;
    return n;
}

static size_t word_length(const char *p, const char *end) {
    size_t n = 0;
    while (p + n < end && p[n] != ' ')
        n++;
    return n;
}

/* Is the spelling one of flag's, and no other's? *flag BT_FLAG_UNKNOWN: the first of them. */
static void hold_spelling(bt_flag_id *flag, const char *text, size_t n, const char *shown) {
    bool negative;
    bt_flag_id found = bt_flag_find(page.program, text, n, &negative);
    if (found == BT_FLAG_UNKNOWN || !bt_flag_is_of(found, page.program)) {
        wrong("has a spelling that the table lacks", shown);
    } else if (*flag != BT_FLAG_UNKNOWN && found != *flag) {
        wrong("has spellings of two rows", shown);
    } else {
        bool no = strncmp(text, "-no", 3) == 0 || strncmp(text, "--no-", 5) == 0 || strncmp(text, "-nkvo", 5) == 0 ||
                  (n == 3 && memcmp(text, "-nr", 3) == 0);
        if (bt_flag_get(found)->kind == BT_TAKES_PAIR && no != negative) wrong("is a no on one side only", shown);
    }
    if (*flag == BT_FLAG_UNKNOWN) *flag = found;
}

static uint32_t count_words(const char *words) {
    uint32_t n = 0;
    for (const char *p = words; p && *p; p += strspn(p, " ")) {
        p += strcspn(p, " ");
        n++;
    }
    return n;
}

/* Values that the names after the spellings stand for. START END are two; others may hold blanks, and are one. */
static uint32_t values_named(const char *p, const char *end) {
    if (p >= end) return 0;
    return (size_t)(end - p) == strlen("START END") && memcmp(p, "START END", (size_t)(end - p)) == 0 ? 2 : 1;
}

static void hold_option(const char *line, size_t n_line, const char *help_text) {
    char shown[160];
    const char *end = line + head_length(line, n_line);
    (void)snprintf(shown, sizeof shown, "%.*s", (int)(end - line), line);
    bt_flag_id flag = BT_FLAG_UNKNOWN;
    uint32_t n_spellings = 0;
    const char *p = line;
    for (bool more = true; more && p < end; n_spellings++) {
        size_t n = word_length(p, end);
        more = p[n - 1] == ',';
        hold_spelling(&flag, p, more ? n - 1 : n, shown);
        p += n;
        while (p < end && *p == ' ')
            p++;
    }
    page.n_options++;
    if (flag >= BT_FLAG_COUNT) return;
    const bt_flag *row = bt_flag_get(flag);
    page.seen[flag] = true;
    uint32_t arity = row->kind == BT_TAKES_FLASH ? 1 : bt_flag_arity(flag);
    if (values_named(p, end) != arity) wrong("takes another number of values", shown);
    if (n_spellings != count_words(row->spellings) + count_words(row->negatives)) wrong("lacks a spelling", shown);
    char variable[128] = "";
    const char *next = help_text;
    while (*next && *next != '-') { /* to the next option */
        const char *stop = strchr(next, '\n');
        const char *env = strstr(next, "(env: ");
        if (env && stop && env < stop) (void)sscanf(env, "(env: %127[^)]", variable);
        if (!stop) break;
        next = stop + 1;
    }
    if (strcmp(variable, row->variable ? row->variable : "") != 0) wrong("has another variable", shown);
}

static void hold_program(bt_program program) {
    if (!read_help(program)) {
        print_message("%s is not built\n", bt_program_name(program));
        return;
    }
    for (const char *line = page.text; *line;) {
        const char *end = strchr(line, '\n');
        const char *next = end ? end + 1 : line + strlen(line);
        if (*line == '-' && strncmp(line, "-----", 5) != 0)
            hold_option(line, (size_t)(next - line) - (end ? 1 : 0), next);
        line = next;
    }
    for (uint32_t i = 0; i < BT_FLAG_COUNT; i++) {
        if (bt_flag_is_of((bt_flag_id)i, program) && !page.seen[i])
            wrong("is of no such program", bt_flag_get((bt_flag_id)i)->spellings);
    }
    print_message("%s: %u options\n", bt_program_name(program), (unsigned)page.n_options);
    assert_int_equal(page.n_wrong, 0);
    assert_true(page.n_options > 100); /* the page was understood at all */
}

static void every_option(void **state) {
    (void)state;
    for (uint32_t i = BT_PROGRAM_SERVER; i <= BT_PROGRAM_FIT_PARAMS; i++)
        hold_program((bt_program)i);
}

int main(void) {
    const char *folder = getenv("BT_LLAMA_BIN");
    if (!folder) {
        print_message("skipped: BT_LLAMA_BIN is not set\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_option)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
