/* SPDX-License-Identifier: MIT
 * test_drop_in_least.c: the least budget of a server as it is estimated without starting anything, against the one that
 * `exec --ram-budget` comes to by a dry run of the same command: never less, and at most a sixth more, so that what was
 * admitted with the least will start. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define ARGV_CHECK(condition) assert_true(condition)
#include "argv_kit.h"
#include "base/beside.h"
#include "base/state.h"
#include "guard/drop_in.h"
#include "guard/judge.h"
#include "program_kit.h"

#include <inttypes.h>

#define FOLDER BT_TEST_OUT "/drop-in-least"

static char program[4096];

/* The first rung of the ladder in what `exec --json` says. */
static uint64_t planned_least(const char *command) {
    char text[8192];
    char line_of_it[8192];
    static line words;
    uint64_t bytes = 0;
    int n = snprintf(text, sizeof text, "%s exec --ram-budget 8M --dry-run --json -q -- %s", program, command);
    assert_true(n > 0 && (size_t)n < sizeof text);
    FILE *output;
    pid_t pid = program_start((char *const *)line_split(&words, text), &output);
    while (fgets(line_of_it, sizeof line_of_it, output)) {
        const char *rung = strstr(line_of_it, "\"budget_bytes\": ");
        if (strstr(line_of_it, "\"minimum\"")) bytes = 1; /* the next number */
        if (rung && bytes == 1) assert_int_equal(sscanf(rung, "\"budget_bytes\": %" SCNu64, &bytes), 1);
    }
    (void)fclose(output);
    (void)waitpid(pid, NULL, 0);
    if (bytes <= 1) fail_msg("no ladder for: %s", command);
    return bytes;
}

static uint64_t estimated_least(const char *command) {
    static line words;
    bt_error err = {0};
    uint64_t bytes = 0;
    bt_judge *judge = calloc(1, sizeof *judge);
    bt_arena *arena = bt_arena_open(UINT64_C(256) << 20, 65536);
    const bt_judge_input input = {.argv = line_split(&words, command), .env = argv_no_variable};
    assert_int_equal(bt_judge_open(judge, &input, NULL), BT_OK);
    bt_judge_read(judge, NULL);
    if (!judge->facts) fail_msg("%s", judge->facts_reason);
    if (bt_drop_in_least_bytes(&judge->effective, judge->facts, 0, arena, &bytes, &err) != BT_OK)
        fail_msg("%s: %s", command, err.text);
    bt_judge_close(judge);
    bt_arena_close(arena);
    free(judge);
    return bytes;
}

static void hold(const char *model, const char *options) {
    char command[4096];
    int n = snprintf(command, sizeof command, "%s/llama-server -m %s/build/models/%s -t 1 %s", getenv("BT_LLAMA_BIN"),
                     getenv("BT_SOURCE"), model, options);
    assert_true(n > 0 && (size_t)n < sizeof command);
    uint64_t planned = planned_least(command), estimated = estimated_least(command);
    print_message("%s %s: %.1f of %.1f MiB\n", model, options, (double)estimated / 1048576, (double)planned / 1048576);
    if (estimated < planned || estimated > planned / 6 * 7)
        fail_msg("%s: %" PRIu64 " estimated, %" PRIu64 " planned", options, estimated, planned);
}

static void as_planned(void **state) {
    (void)state;
    static const char *const models[] = {"smollm2-135m-instruct-q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"};
    static const char *const options[] = {"-c 512 -np 1", "-c 2048 -np 2", "-c 4096 -np 4 --no-kv-unified",
                                          "-c 4096 -np 4 -kvu --cache-ram 16"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (size_t i = 0; i < sizeof options / sizeof *options; i++)
            hold(models[m], options[i]);
}

int main(void) {
    if (!getenv("BT_LLAMA_BIN") || !getenv("BT_SOURCE") || !bt_beside_find("burthen", X_OK, program, sizeof program)) {
        (void)fprintf(stderr, "skipped: no program, or no llama.cpp\n");
        return 77;
    }
    assert_int_equal(setenv("BURTHEN_STATE_DIR", FOLDER, 1), 0); /* nothing was learned */
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_planned)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
