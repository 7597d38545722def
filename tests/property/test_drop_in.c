/* SPDX-License-Identifier: MIT
 * test_drop_in.c: random command lines under a RAM budget, with options from argv and from the environment, each once
 * or more often. What is taken keeps to its plan: nothing of the line is lost, the line that comes of it says what was
 * planned, and the device holds everything. What is not is refused with a sentence. BT_SEED=n replays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* The command of this round, to be shown when something does not hold. */
static char typed[2048];
#define ARGV_CHECK(condition)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) fail_msg("%s: %s", typed, #condition);                                                       \
    } while (0)
#include "drop_in_kit.h"
#include "guard_kit.h"
#include "random.h"
#include "rounds.h"

#include <stdio.h>

#define N_LINES 6000

static uint64_t rng;
static kit_facts dense;
static char environment[4][64];
static uint32_t n_environment;

static uint32_t below(uint32_t n) {
    return (uint32_t)(random_next(&rng) % n);
}

static const char *variable(void *context, const char *name) {
    size_t n = strlen(name);
    (void)context;
    for (uint32_t i = 0; i < n_environment; i++)
        if (strncmp(environment[i], name, n) == 0 && environment[i][n] == '=') return environment[i] + n + 1;
    return NULL;
}

static void make_line(void) {
    static const char *const programs[] = {"llama-server", "llama-cli", "llama-completion", "llama-perplexity",
                                           "llama-embedding"};
    static const char *const options[] = {
        "-c 0",      "-c 700",        "-c 4096",    "--ctx-size 2048", "-np 1",     "-np 3",
        "-np -1",    "-b 64",         "-b 700",     "-ub 32",          "-ub 1024",  "-ctk q8_0",
        "-ctv q8_0", "-fa on",        "-fa auto",   "-fa off",         "-ngl 99",   "-ngl all",
        "-ngl 3",    "-fit on",       "-fit off",   "-lm auto",        "-lm none",  "-lm mmap",
        "-lzm on",   "-dev Burthen0", "-dev CUDA0", "-ot a=Burthen",   "-ot a=CPU", "-ot .*=Burthen",
        "-t 2",      "-tb 3",         "-nr",        "--rope-scale 2",  "-n 5",      "--no-warmup"};
    static const char *const of_servers[] = {"-kvu",        "-no-kvu",
                                             "-a name",     "--spec-default",
                                             "--embedding", "--pooling mean",
                                             "--port 80",   "--spec-type ngram-cache",
                                             "-cram 0",     "-cram 7",
                                             "-ctxcp 2",    "-ctxcp 0",
                                             "--swa-full",  "--kv-unified-per-slot 300"};
    static const char *const variables[] = {"LLAMA_ARG_CTX_SIZE=900",     "LLAMA_ARG_N_PARALLEL=2",
                                            "LLAMA_ARG_FIT=off",          "LLAMA_ARG_LOAD_MODE=none",
                                            "LLAMA_ARG_N_GPU_LAYERS=999", "LLAMA_ARG_UBATCH=128",
                                            "LLAMA_ARG_LAZY_MODE=off",    "LLAMA_ARG_DEVICE=Burthen0",
                                            "LLAMA_ARG_KV_UNIFIED=1",     "LLAMA_ARG_NO_KV_UNIFIED=1",
                                            "LLAMA_ARG_CACHE_RAM=9",      "LLAMA_ARG_BATCH=300",
                                            "LLAMA_ARG_CPU_MOE=1",        "LLAMA_ARG_MMAP=0"};
    uint32_t program = below(sizeof programs / sizeof *programs);
    (void)snprintf(typed, sizeof typed, "%s -m /models/x.gguf", programs[program]);
    for (uint32_t n = below(7); n > 0; n--)
        (void)strcat(strcat(typed, " "), options[below(sizeof options / sizeof *options)]);
    for (uint32_t n = program == 0 ? below(4) : 0; n > 0; n--)
        (void)strcat(strcat(typed, " "), of_servers[below(sizeof of_servers / sizeof *of_servers)]);
    n_environment = below(3);
    for (uint32_t i = 0; i < n_environment; i++)
        (void)strcpy(environment[i], variables[below(sizeof variables / sizeof *variables)]);
}

static bt_status read_line(bt_arena *arena, char *const *argv, const bt_argv **ret_view, bt_effective *ret_effective,
                           bt_drop_in *ret, bt_error *err) {
    static bt_command command;
    bt_command_find(argv, &command);
    assert_int_equal(bt_argv_parse(arena, argv, command.first, command.program, ret_view, err), BT_OK);
    bt_effective_input input = {&command, *ret_view, variable, NULL, NULL, NULL};
    assert_int_equal(bt_effective_resolve(arena, &input, ret_effective, err), BT_OK);
    return bt_drop_in_read(ret_effective, &dense.facts, ret, err);
}

static void keep_to_the_plan(bt_arena *arena, bool *ret_taken) {
    static line words;
    static bt_effective effective, after;
    bt_drop_in drop_in, again;
    bt_rewrite rewrite;
    bt_error err = {0};
    const bt_argv *view = NULL;
    bt_status status = read_line(arena, line_split(&words, typed), &view, &effective, &drop_in, &err);
    *ret_taken = status == BT_OK;
    if (status != BT_OK) {
        assert_int_equal(status, BT_E_UNSUPPORTED);
        assert_string_equal(err.code, "drop_in");
        assert_true(strlen(err.text) > 20);
        return;
    }
    const bt_plan plan = kit_plan_of(&drop_in.wishes, 256 * (1 + below(40)), 32u << below(5));
    assert_int_equal(bt_rewrite_open(&rewrite, arena, view, &err), BT_OK);
    assert_int_equal(bt_drop_in_apply(&effective, &plan, &rewrite, &err), BT_OK);
    argv_check_same(&rewrite);
    if (read_line(arena, rewrite.argv, &view, &after, &again, &err) != BT_OK) fail_msg("again: %s", err.text);
    kit_check_settings(&after);
    kit_check_same(&drop_in, &plan, &again);
    assert_int_equal(bt_rewrite_open(&rewrite, arena, view, &err), BT_OK);
    assert_int_equal(bt_drop_in_apply(&after, &plan, &rewrite, &err), BT_OK);
    assert_int_equal(rewrite.n_edits, 0);
}

static void random_lines(void **state) {
    (void)state;
    rng = random_seed();
    kit_dense(&dense);
    uint32_t n_taken = 0;
    const uint32_t n_lines = rounds_of(N_LINES);
    for (uint32_t i = 0; i < n_lines; i++) {
        bt_arena *arena = bt_arena_open(UINT64_C(4) << 20, 65536);
        bool taken = false;
        assert_non_null(arena);
        make_line();
        keep_to_the_plan(arena, &taken);
        n_taken += taken;
        bt_arena_close(arena);
    }
    print_message("%u of %u taken\n", (unsigned)n_taken, (unsigned)n_lines);
    assert_true(n_taken > n_lines / 4 && n_taken < n_lines);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_lines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
