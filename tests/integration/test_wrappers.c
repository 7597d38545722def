/* SPDX-License-Identifier: MIT
 * test_wrappers.c: the wrappers of this system against the guard's reading of them. A script called llama-server prints
 * what it was given; that must be what the guard takes for the program's own arguments and variables. Wrappers that are
 * not installed, or may not do what they are asked here, are left out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define ARGV_CHECK(condition) assert_true(condition)
#include "argv_kit.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SCRIPT BT_TEST_OUT "/llama-server"
#define MARK   "given to the program:"

static line words;
static bt_command command;

static const char *host(void *context, const char *name) {
    (void)context;
    return getenv(name);
}

static void write_script(void) {
    FILE *file = fopen(SCRIPT, "wb");
    assert_non_null(file);
    (void)fputs("#!/bin/sh\n"
                "printf '%s\\n' '" MARK "' \"A=${A-none}\" \"B=${B-none}\" \"C=${C-none}\" \"$@\"\n",
                file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(SCRIPT, 0700), 0);
}

/* Its output into text; false: it could not be run. */
static bool run(char *text, size_t capacity) {
    int ends[2];
    int status = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)alarm(30);
        (void)setenv("A", "host", 1);
        (void)unsetenv("B");
        (void)unsetenv("C");
        (void)dup2(ends[1], 1);
        (void)dup2(ends[1], 2);
        (void)close(ends[0]);
        (void)close(ends[1]);
        (void)execvp(words.argv[0], words.argv);
        _exit(127);
    }
    (void)close(ends[1]);
    FILE *output = fdopen(ends[0], "r");
    assert_non_null(output);
    size_t n = fread(text, 1, capacity - 1, output);
    text[n] = '\0';
    (void)fclose(output);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return strstr(text, MARK) != NULL;
}

static void hold(const char *text) {
    char output[8192];
    char expected[8192] = MARK "\n";
    bt_command_find(line_split(&words, text), &command);
    if (command.program != BT_PROGRAM_SERVER) fail_msg("%s: %s", text, command.reason);
    static const char *const names[] = {"A", "B", "C"};
    for (size_t i = 0; i < 3; i++) {
        const char *value = bt_command_env(&command, names[i], host, NULL);
        size_t n = strlen(expected);
        (void)snprintf(expected + n, sizeof expected - n, "%s=%s\n", names[i], value ? value : "none");
    }
    for (uint32_t i = command.first; words.argv[i]; i++) {
        size_t n = strlen(expected);
        (void)snprintf(expected + n, sizeof expected - n, "%s\n", words.argv[i]);
    }
    if (!run(output, sizeof output)) {
        print_message("left out: %s: %.60s\n", text, output);
        return;
    }
    assert_string_equal(strstr(output, MARK), expected);
}

static void wrappers(void **state) {
    (void)state;
    static const char *const before[] = {
        "env",
        "env -i B=1",
        "env -u A C=x=y B=",
        "env - --unset=A B=2",
        "env -iu A -- B=3",
        "env -C / env B=1 env -u B C=5",
        "nice",
        "nice -n 1",
        "nice -n1",
        "nice -1",
        "nice --adjustment=1",
        "nice --adjustment 1 --",
        "nohup",
        "timeout 20",
        "timeout -k 5 -s INT 20s",
        "timeout --foreground --signal=INT --kill-after 5 20",
        "stdbuf -oL -e 0",
        "stdbuf --output=L",
        "setsid -w",
        "taskset -c 0",
        "taskset 1",
        "taskset -ac 0",
        "taskset --cpu-list 0",
        "ionice -c 3",
        "ionice -c3 -t",
        "ionice --class idle",
        "chrt -b 0",
        "chrt --other 0",
        "chrt -i -v 0",
        "numactl -l",
        "numactl --interleave=all",
        "numactl -N 0 -m 0",
        "env A=1 nice -n 1 timeout 20 stdbuf -oL taskset -c 0",
    };
    write_script();
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        char text[2000];
        (void)snprintf(text, sizeof text, "%s " SCRIPT " -m x.gguf -c 4096 '' A=9 -n -- -i", before[i]);
        hold(text);
    }
    (void)unlink(SCRIPT);
}

int main(void) {
    (void)setenv("A", "host", 1);
    (void)unsetenv("B");
    (void)unsetenv("C");
    const struct CMUnitTest tests[] = {cmocka_unit_test(wrappers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
