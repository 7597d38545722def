/* SPDX-License-Identifier: MIT
 * test_settings.c: where the settings file is, what it may say, and which layer wins. */
#include "cli/settings.h"

#include "base/heap.h"
#include "base/text.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define FILE_NAME "settings.yaml"

static const char *variables[4][2];
static const char *environment(const char *name) {
    for (size_t i = 0; i < 4 && variables[i][0]; i++) {
        if (strcmp(variables[i][0], name) == 0) return variables[i][1];
    }
    return NULL;
}

static bt_error error;
static bt_settings *settings;
static bt_cli_options options;

static int nothing_left(void **state) {
    (void)state;
    bt_settings_close(settings);
    settings = NULL;
    memset(variables, 0, sizeof variables);
    return bt_heap_live_blocks() == 0 ? 0 : -1;
}

static bt_status take(const char *yaml) {
    memset(&error, 0, sizeof error);
    bt_settings_close(settings);
    return bt_settings_parse(yaml, strlen(yaml), FILE_NAME, &settings, &error);
}

/* Arguments of a command under the settings that were taken. */
static bt_status parse(bt_cli_command command, int argc, const char *const *argv) {
    const char *args[4];
    bt_option_result rest = {.args = args, .max_args = 4};
    const bt_option_file file = bt_settings_layer(settings, command);
    memset(&error, 0, sizeof error);
    return bt_cli_options_parse(command, argc, (char *const *)(uintptr_t)argv, environment, &file, &options, &rest,
                                &error);
}
#define RUN(...)                                                                                                       \
    parse(BT_CLI_RUN, sizeof(const char *[]){"model.gguf", __VA_ARGS__} / sizeof(char *),                              \
          (const char *const[]){"model.gguf", __VA_ARGS__})

static void a_flag_wins_then_the_environment(void **state) {
    (void)state;
    assert_int_equal(take("threads: 3\nram_budget: 2G\nforce: yes\nrun: {threads: 4, temp: 0.25, flash-attn: on}\n"),
                     BT_OK);
    assert_int_equal(RUN("-q"), BT_OK);
    assert_int_equal(options.wishes.n_threads, 4); /* what stands for run before what stands for all */
    assert_true(options.wishes.budget_bytes == UINT64_C(2) << 30 && options.wishes.force);
    assert_true(options.temperature > 0.24 && options.temperature < 0.26);
    assert_int_equal(options.wishes.flash_attn, 1);
    variables[0][0] = "BURTHEN_THREADS", variables[0][1] = "5";
    assert_int_equal(RUN("-q"), BT_OK);
    assert_int_equal(options.wishes.n_threads, 5);
    assert_int_equal(RUN("-t", "6", "--ram-budget", "0"), BT_OK);
    assert_int_equal(options.wishes.n_threads, 6);
    assert_int_equal(options.wishes.budget_kind, BT_BUDGET_OFF);
    const char *none[] = {"model.gguf"};
    variables[0][0] = NULL;
    assert_int_equal(parse(BT_CLI_PLAN, 1, none), BT_OK); /* run's is not plan's */
    assert_int_equal(options.wishes.n_threads, 3);
    assert_int_equal(parse(BT_CLI_INSPECT, 1, none), BT_OK); /* what a command does not have is passed over */
}

static void lists_nulls_and_nothing(void **state) {
    (void)state;
    assert_int_equal(take("device: [Fake0, Fake1]\nthreads: ~\nctx-size:\n"), BT_OK);
    assert_int_equal(RUN("-q"), BT_OK);
    assert_int_equal(options.wishes.n_devices, 2);
    assert_string_equal(options.wishes.devices[1].name, "Fake1");
    assert_int_equal(options.wishes.n_threads, 0);
    static const char *const empty[] = {"", "# nothing\n", "---\n", "~\n", "{}\n", "run: {}\n", "run:\n  # temp: 1\n"};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
        assert_int_equal(take(empty[i]), BT_OK);
        assert_int_equal(RUN("-q"), BT_OK);
    }
    bt_settings_close(settings);
    settings = NULL;
    assert_int_equal(RUN("-q"), BT_OK); /* no file */
}

static void what_is_wrong_names_its_line(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"threads: 2\nthread: 3\n", "settings.yaml:2: thread is not an option; the nearest is threads"},
        {"\nrun: {lisen: x}\n", "settings.yaml:2: lisen is not an option of run"},
        {"run: {listen: x}\n", "settings.yaml:1: listen is not an option of run"},
        {"prompt: hello\n", "settings.yaml:1: prompt is of one run"},
        {"exec: {ram-budget: 1G}\n", "settings.yaml:1: ram-budget is of one run"},
        {"threads: {a: 1}\n", "settings.yaml:1: threads takes a value, not a mapping"},
        {"device:\n- A\n- [B]\n", "settings.yaml:3: device takes a list of values"},
        {"ctx-size: 1\nctx_size: 2\n", "settings.yaml:2: ctx-size stands at line 1 already"},
        {"ram-budget-force: 1\nforce: 0\n", "settings.yaml:2: force stands at line 1 already"},
        {"- threads\n", "settings.yaml:1: a mapping of options is wanted"},
        {"threads: [1\n", "settings.yaml:2: "},
        {"run: 3\n", "settings.yaml:1: run is a command: a mapping of its options is wanted"},
        {"run: {serve: 3}\n", "settings.yaml:1: serve is not an option of run"},
        {"nonsense: 3\n", "settings.yaml:1: nonsense is not an option"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(take(cases[i][0]), BT_E_ARG);
        assert_null(settings);
        assert_string_equal(error.code, "settings");
        if (!strstr(error.text, cases[i][1])) fail_msg("%s: not %s", error.text, cases[i][1]);
    }
}

/* By the option's own parser, when a command that has it is used. */
static void a_bad_value_names_its_line(void **state) {
    (void)state;
    assert_int_equal(take("threads: many\nrun:\n  gpu-layers: -2\n"), BT_OK);
    assert_int_equal(RUN("-t", "1"), BT_E_ARG);
    assert_non_null(strstr(error.text, "settings.yaml:3: "));
    assert_int_equal(RUN("-t", "1", "-ngl", "0"), BT_OK); /* what is overridden is not read */
    assert_int_equal(RUN("-ngl", "0"), BT_E_ARG);
    assert_string_equal(error.text, "settings.yaml:1: --threads wants a whole number, not \"many\"");
    assert_string_equal(error.code, "option");
}

static void too_much_is_refused(void **state) {
    (void)state;
    bt_text text;
    bt_text_init(&text, 1u << 22);
    bt_text_add(&text, "device: [A");
    while (text.n_bytes < (9u << 20 >> 2))
        bt_text_add(&text, ", AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    bt_text_add(&text, "]\n");
    assert_false(text.failed);
    assert_int_not_equal(take(bt_text_str(&text)), BT_OK);
    bt_text_done(&text);
}

static void where_it_is(void **state) {
    (void)state;
    char path[64];
    bool named = true;
    assert_false(bt_settings_path(environment, path, sizeof path, &named));
    variables[0][0] = "HOME", variables[0][1] = "/home/me";
    assert_true(bt_settings_path(environment, path, sizeof path, &named) && !named);
    assert_string_equal(path, "/home/me/.config/burthen/config.yaml");
    variables[1][0] = "XDG_CONFIG_HOME", variables[1][1] = "relative";
    assert_true(bt_settings_path(environment, path, sizeof path, &named));
    assert_string_equal(path, "/home/me/.config/burthen/config.yaml");
    variables[1][1] = "/etc/me";
    assert_true(bt_settings_path(environment, path, sizeof path, &named));
    assert_string_equal(path, "/etc/me/burthen/config.yaml");
    variables[2][0] = "BURTHEN_CONFIG", variables[2][1] = "mine.yaml";
    assert_true(bt_settings_path(environment, path, sizeof path, &named) && named);
    assert_string_equal(path, "mine.yaml");
    variables[2][1] = "";
    assert_false(bt_settings_path(environment, path, sizeof path, &named)); /* none, whatever lies at home */
    assert_int_equal(bt_settings_open(environment, &settings, &error), BT_OK);
    assert_null(settings);
}

static void files(void **state) {
    (void)state;
    static const char path[] = BT_TEST_OUT "/settings-unit.yaml";
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fputs("threads: 7\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
    variables[0][0] = "BURTHEN_CONFIG", variables[0][1] = path;
    assert_int_equal(bt_settings_open(environment, &settings, &error), BT_OK);
    assert_int_equal(RUN("-q"), BT_OK);
    assert_int_equal(options.wishes.n_threads, 7);
    bt_settings_close(settings);
    variables[0][1] = BT_TEST_OUT "/not-there.yaml"; /* that is named must be there */
    assert_int_equal(bt_settings_open(environment, &settings, &error), BT_E_IO);
    assert_string_equal(error.code, "settings");
    variables[0][1] = BT_TEST_OUT; /* no file */
    assert_int_equal(bt_settings_open(environment, &settings, &error), BT_E_IO);
    variables[0][0] = "HOME"; /* one that is looked for need not */
    assert_int_equal(bt_settings_open(environment, &settings, &error), BT_OK);
    assert_null(settings);
}

/* No setting that was named is passed over, and nobody is waited for. */
static void what_is_no_file(void **state) {
    (void)state;
    static const char fifo[] = BT_TEST_OUT "/settings-unit.fifo";
    static char too_long[5000];
    (void)unlink(fifo);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    variables[0][0] = "BURTHEN_CONFIG", variables[0][1] = fifo;
    assert_int_equal(bt_settings_open(environment, &settings, &error), BT_E_IO);
    assert_int_equal(error.sys, ESPIPE);
    assert_int_equal(unlink(fifo), 0);
    memset(too_long, '/', sizeof too_long - 1);
    variables[0][1] = too_long;
    assert_int_equal(bt_settings_open(environment, &settings, &error), BT_E_IO);
    assert_int_equal(error.sys, ENAMETOOLONG);
    assert_string_equal(error.code, "settings");
    variables[0][1] = "/dev/zero";
    assert_int_equal(bt_settings_open(environment, &settings, &error), BT_E_IO);
    assert_int_equal(error.sys, EFBIG);
    assert_null(settings);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_flag_wins_then_the_environment, nothing_left),
        cmocka_unit_test_teardown(lists_nulls_and_nothing, nothing_left),
        cmocka_unit_test_teardown(what_is_wrong_names_its_line, nothing_left),
        cmocka_unit_test_teardown(a_bad_value_names_its_line, nothing_left),
        cmocka_unit_test_teardown(too_much_is_refused, nothing_left),
        cmocka_unit_test_teardown(where_it_is, nothing_left),
        cmocka_unit_test_teardown(files, nothing_left),
        cmocka_unit_test_teardown(what_is_no_file, nothing_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
