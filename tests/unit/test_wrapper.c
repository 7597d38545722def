/* SPDX-License-Identifier: MIT
 * test_wrapper.c: where the program starts behind every wrapper that is known, which commands are not read, and which
 * variables the program will see. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define ARGV_CHECK(condition) assert_true(condition)
#include "argv_kit.h"

static line words;
static bt_command command;

static void find(const char *text) {
    bt_command_find(line_split(&words, text), &command);
}

static void programs(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bt_program program;
        const char *first; /* the first of its own arguments */
        uint32_t n_wrappers;
    } rows[] = {
        {"llama-server -m @", BT_PROGRAM_SERVER, "-m", 0},
        {"/opt/llama.cpp/build/bin/llama-server -m @", BT_PROGRAM_SERVER, "-m", 0},
        {"./llama-cli.exe -m @", BT_PROGRAM_CLI, "-m", 0},
        {"llama-completion @", BT_PROGRAM_COMPLETION, "@", 0},
        {"llama-bench @", BT_PROGRAM_BENCH, "@", 0},
        {"llama-perplexity @", BT_PROGRAM_PERPLEXITY, "@", 0},
        {"llama-embedding @", BT_PROGRAM_EMBEDDING, "@", 0},
        {"llama-fit-params @", BT_PROGRAM_FIT_PARAMS, "@", 0},
        {"sd-server @", BT_PROGRAM_SD_SERVER, "@", 0},
        {"/x/sam3-server @", BT_PROGRAM_SAM, "@", 0},
        {"llama serve -c @", BT_PROGRAM_SERVER, "-c", 0},
        {"/usr/bin/llama server @", BT_PROGRAM_SERVER, "@", 0},
        {"llama cli @", BT_PROGRAM_CLI, "@", 0},
        {"llama perplexity @", BT_PROGRAM_PERPLEXITY, "@", 0},
        {"nohup llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"env llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"env -i A=1 B=x=y -u C D= llama-server @", BT_PROGRAM_NONE, NULL, 0}, /* env: no option after a variable */
        {"env -i -u C A=1 B=x=y D= llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"env - --unset=C -C /tmp llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"env -iuC --chdir=/tmp -- llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"nice llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"nice -n 10 llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"nice -n10 llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"nice -10 llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"nice --adjustment=10 llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"nice --adjustment 10 -- llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"numactl -N 0 -m 0 llama-server -m @", BT_PROGRAM_SERVER, "-m", 1},
        {"numactl --interleave=all llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"numactl -C 0-7 --localalloc llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"taskset -c 0-7 llama-server -c @", BT_PROGRAM_SERVER, "-c", 1},
        {"taskset 0xff llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"taskset -ac 0,2 llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"systemd-run --user --scope -p MemoryMax=8G llama-server -p @", BT_PROGRAM_SERVER, "-p", 1},
        {"systemd-run -G -E A=1 --unit=x --property=MemoryMax=8G llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"ionice -c 2 -n 7 llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"ionice -c3 -t llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"chrt -b 0 llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"chrt -b llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"stdbuf -oL -e 0 llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"timeout -k 5 1h llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"timeout --signal=INT --foreground 60 llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"setsid -fw llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"/usr/bin/time -v -o log llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"env A=1 nice -n 5 ionice -c3 taskset -c 0 stdbuf -oL timeout 9 llama-server @", BT_PROGRAM_SERVER, "@", 6},
        {"docker run -m 8g -c 512 -p 8080:8080 image llama-server -m @", BT_PROGRAM_SERVER, "-m", 1},
        {"docker run --rm -it --gpus all -v /m:/m -eA=1 image /app/llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"docker run -itp 8080:80 --memory=8g --name=x image nice -n 5 llama-server @", BT_PROGRAM_SERVER, "@", 2},
        {"docker --context x -D container run image llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"docker run --entrypoint /app/llama-server image:tag @", BT_PROGRAM_SERVER, "@", 1},
        {"docker run --entrypoint= image llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"docker run ghcr.io/ggml-org/llama.cpp:server-cuda -m @", BT_PROGRAM_SERVER, "-m", 1},
        {"docker run ghcr.io/ggml-org/llama.cpp:server", BT_PROGRAM_SERVER, NULL, 1},
        {"docker run localhost:5000/llama.cpp:server-b1@sha256:00 @", BT_PROGRAM_SERVER, "@", 1},
        {"docker run ghcr.io/ggml-org/llama.cpp:light @", BT_PROGRAM_CLI, "@", 1},
        {"docker run ghcr.io/ggml-org/llama.cpp:full --server -m @", BT_PROGRAM_SERVER, "-m", 1},
        {"docker run ghcr.io/ggml-org/llama.cpp:full-cuda --run-legacy @", BT_PROGRAM_COMPLETION, "@", 1},
        {"podman run --replace --userns keep-id -e HOME image llama-server @", BT_PROGRAM_SERVER, "@", 1},
        {"sudo nice llama-server", BT_PROGRAM_NONE, NULL, 0},
        {"sh -c 'llama-server -m x'", BT_PROGRAM_NONE, NULL, 0},
        {"python -m llama_cpp.server", BT_PROGRAM_NONE, NULL, 0},
        {"ollama serve", BT_PROGRAM_NONE, NULL, 0},
        {"server -m x", BT_PROGRAM_NONE, NULL, 0},
        {"llama-server-wrapper -m x", BT_PROGRAM_NONE, NULL, 0},
        {"llama", BT_PROGRAM_NONE, NULL, 0},
        {"llama quantize x", BT_PROGRAM_NONE, NULL, 0},
        {"", BT_PROGRAM_NONE, NULL, 0},
        {"''", BT_PROGRAM_NONE, NULL, 0},
        {"nice", BT_PROGRAM_NONE, NULL, 0},
        {"nice -n", BT_PROGRAM_NONE, NULL, 0},
        {"nice --new llama-server", BT_PROGRAM_NONE, NULL, 0},
        {"taskset -p 0xff 1234", BT_PROGRAM_NONE, NULL, 0},
        {"ionice -p 1", BT_PROGRAM_NONE, NULL, 0},
        {"timeout", BT_PROGRAM_NONE, NULL, 0},
        {"env -S 'llama-server -m x'", BT_PROGRAM_NONE, NULL, 0},
        {"docker exec x llama-server", BT_PROGRAM_NONE, NULL, 0},
        {"docker run", BT_PROGRAM_NONE, NULL, 0},
        {"docker run image", BT_PROGRAM_NONE, NULL, 0},
        {"docker run image sh -c llama-server", BT_PROGRAM_NONE, NULL, 0},
        {"docker run --new-option x image llama-server", BT_PROGRAM_NONE, NULL, 0},
        {"docker run ghcr.io/ggml-org/llama.cpp:full --convert x", BT_PROGRAM_NONE, NULL, 0},
        {"docker run --entrypoint sh image -c llama-server", BT_PROGRAM_NONE, NULL, 0},
        {"docker compose up", BT_PROGRAM_NONE, NULL, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        find(rows[i].text);
        if (command.program != rows[i].program)
            fail_msg("%s: %s %s", rows[i].text, bt_program_name(command.program), command.reason);
        assert_int_equal(command.reason[0] == '\0', rows[i].program != BT_PROGRAM_NONE);
        if (rows[i].program == BT_PROGRAM_NONE) continue;
        assert_int_equal(command.n_wrappers, rows[i].n_wrappers);
        const char *first = words.argv[command.first];
        if (rows[i].first && (!first || strcmp(first, rows[i].first) != 0)) fail_msg("%s: %s", rows[i].text, first);
        if (!rows[i].first) assert_null(first);
    }
}

/* Under which the program is a process of its own. */
static void forks(void **state) {
    (void)state;
    static const struct {
        const char *text, *name;
    } rows[] = {
        {"llama-server", NULL},
        {"env A=1 nice -n 5 nohup taskset -c 0 stdbuf -oL llama-server", NULL},
        {"timeout 9 llama-server", "timeout"},
        {"nice timeout 9 env A=1 llama-server", "timeout"},
        {"setsid -w llama-server", "setsid"},
        {"/usr/bin/time -v llama-server", "time"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        find(rows[i].text);
        if (!rows[i].name) assert_null(command.forks);
        if (rows[i].name) assert_string_equal(command.forks, rows[i].name);
    }
}

/* The environment of the whole command: A=host, B=host. */
static const char *host(void *context, const char *name) {
    (void)context;
    return strcmp(name, "A") == 0 || strcmp(name, "B") == 0 ? "host" : NULL;
}

static void environment(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const char *a, *b, *c;
        bool unknown;
    } rows[] = {
        {"llama-server", "host", "host", NULL, false},
        {"nice llama-server", "host", "host", NULL, false},
        {"env A=1 C=2 llama-server", "1", "host", "2", false},
        {"env A=1 env A=2 llama-server", "2", "host", NULL, false},
        {"env A= llama-server", "", "host", NULL, false},
        {"env -u A llama-server", NULL, "host", NULL, false},
        {"env C=3 env -u C llama-server", "host", "host", NULL, false},
        {"env -i C=3 llama-server", NULL, NULL, "3", false},
        {"env C=3 env - llama-server", NULL, NULL, NULL, false},
        {"env - A=1 llama-server", "1", NULL, NULL, false},
        {"env -u A A=5 llama-server", "5", "host", NULL, false},
        {"docker run -e A -e C=9 image llama-server", "host", NULL, "9", true},
        {"env A=1 docker run -e A -e B=2 image llama-server", "1", "2", NULL, true},
        {"docker run --env=A --env B image env A=in llama-server", "in", "host", NULL, true},
        {"docker run -eA=x --env-file f image llama-server", "x", NULL, NULL, true},
        {"systemd-run --scope -E C=1 llama-server", "host", "host", "1", false},
        {"systemd-run -E C=1 -E A llama-server", "host", NULL, "1", true},
        {"env AA=1 llama-server", "host", "host", NULL, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static const char *const names[] = {"A", "B", "C"};
        const char *const expected[] = {rows[i].a, rows[i].b, rows[i].c};
        find(rows[i].text);
        assert_int_equal(command.program, BT_PROGRAM_SERVER);
        assert_int_equal(command.env_unknown, rows[i].unknown);
        for (size_t n = 0; n < 3; n++) {
            const char *value = bt_command_env(&command, names[n], host, NULL);
            if (!value != !expected[n] || (value && strcmp(value, expected[n]) != 0))
                fail_msg("%s: %s is %s", rows[i].text, names[n], value ? value : "not set");
        }
    }
    find("llama-server");
    assert_null(bt_command_env(&command, "A", NULL, NULL));
}

static void containers(void **state) {
    (void)state;
    find("docker run image llama-server");
    assert_true(command.container);
    assert_int_equal(command.program_at, 3);
    find("docker run llama.cpp:server -c 5");
    assert_int_equal(command.program_at, 2);
    assert_int_equal(command.first, 3);
    find("systemd-run llama-server");
    assert_false(command.container);
}

static void reasons(void **state) {
    (void)state;
    find("nice --new llama-server");
    assert_string_equal(command.reason, "an option of a wrapper that is not known: --new");
    find("sh -c llama-server");
    assert_string_equal(command.reason, "neither a llama.cpp program nor a wrapper that is known: sh");
    find("docker run myimage");
    assert_string_equal(command.reason, "not known what the image starts: myimage");
}

static void too_many_variables(void **state) {
    (void)state;
    char text[BT_ENV_CHANGE_MAX * 5 + 100] = "env";
    for (uint32_t i = 0; i < BT_ENV_CHANGE_MAX; i++)
        (void)strcat(text, " A=1");
    char *end = text + strlen(text);
    (void)strcpy(end, " llama-server");
    find(text);
    assert_int_equal(command.program, BT_PROGRAM_SERVER);
    (void)strcpy(end, " A=1 llama-server");
    find(text);
    assert_int_equal(command.program, BT_PROGRAM_NONE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs),   cmocka_unit_test(forks),   cmocka_unit_test(environment),
        cmocka_unit_test(containers), cmocka_unit_test(reasons), cmocka_unit_test(too_many_variables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
