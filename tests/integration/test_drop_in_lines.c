/* SPDX-License-Identifier: MIT
 * test_drop_in_lines.c: command lines as they are written for a RAM budget, given to the programs themselves: they take
 * every option, put every weight on the device, and have the context, the batches and the rows of outputs that were
 * planned. A device that only bears the name stands in for ours (support/fake_device_env.c). And llama-perplexity comes
 * to the same number a chunk at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define ARGV_CHECK(condition) assert_true(condition)
#include "drop_in_kit.h"
#include "program_kit.h"

static char model_path[1024];
static line words;
static bt_command command;
static const bt_argv *view;
static bt_effective effective;
static bt_drop_in drop_in;
static bt_rewrite rewrite;
static bt_facts *facts;
static bt_arena *arena;
static bt_error err;

/* "env -i ... PROGRAM -m MODEL OPTIONS", read. */
static void read_command(bt_program program, const char *options) {
    char text[4096];
    int n =
        snprintf(text, sizeof text,
                 "env -i XDG_CONFIG_HOME=/nowhere GGML_BACKEND_PATH=%s FAKE_DEVICES=%s=4G %s/%s -m %s%s%s "
                 "-lv 5 -t 1%s",
                 getenv("BT_FAKE_DEVICE"), BT_DROP_IN_DEVICE, getenv("BT_LLAMA_BIN"), bt_program_name(program),
                 model_path, options[0] ? " " : "", options, program == BT_PROGRAM_SERVER ? " --port 18794" : " -p x");
    assert_true(n > 0 && (size_t)n < sizeof text);
    bt_command_find(line_split(&words, text), &command);
    assert_int_equal(command.program, program);
    assert_int_equal(bt_argv_parse(arena, words.argv, command.first, program, &view, &err), BT_OK);
    const bt_effective_input input = {&command, view, argv_no_variable, NULL, NULL, NULL};
    assert_int_equal(bt_effective_resolve(arena, &input, &effective, &err), BT_OK);
}

/* The buffers of the device that stands in are called as it is. */
static void name_buffers(void) {
    static char rule[] = ".*=" BT_DROP_IN_DEVICE;
    for (uint32_t i = 0; i < rewrite.n_argv; i++)
        if (strcmp(rewrite.argv[i], ".*=" BT_DROP_IN_BUFFER) == 0) rewrite.argv[i] = rule;
}

static int least(uint32_t a, uint32_t b) {
    return (int)(a < b ? a : b);
}

static void hold(bt_program program, const char *options) {
    program_context said;
    read_command(program, options);
    if (bt_drop_in_read(&effective, facts, &drop_in, &err) != BT_OK) fail_msg("%s: %s", options, err.text);
    const bt_wishes *w = &drop_in.wishes;
    const bt_plan plan = kit_plan_of(w, 1024, 256);
    assert_int_equal(bt_rewrite_open(&rewrite, arena, view, &err), BT_OK);
    assert_int_equal(bt_drop_in_apply(&effective, &plan, &rewrite, &err), BT_OK);
    argv_check_same(&rewrite);
    name_buffers();
    program_context_read(rewrite.argv, &said);
    if (!said.whole) fail_msg("%s %s said nothing of its context", bt_program_name(program), options);
    print_message("%s %s: %d sequences, %d tokens, %d rows\n", bt_program_name(program), options, said.n_seq,
                  said.n_ctx, said.n_outputs_max);
    assert_int_equal(said.n_weight_buffers, 1);
    assert_string_equal(said.weights, BT_DROP_IN_DEVICE);
    assert_int_equal(said.n_seq, w->n_parallel);
    assert_int_equal(said.n_ctx, plan.n_ctx);
    uint32_t n_ctx = w->n_ctx && !w->allow_ctx_reduction ? w->n_ctx : plan.n_ctx; /* before it is rounded up */
    assert_int_equal(said.n_batch, least(n_ctx, plan.n_batch));
    assert_int_equal(said.n_ubatch, least(n_ctx, plan.n_ubatch));
    assert_string_equal(said.unified, w->kv_unified ? "true" : "false");
    if (program == BT_PROGRAM_SERVER || program == BT_PROGRAM_CLI)
        assert_int_equal(said.n_outputs_max, drop_in.n_outputs_max);
}

static void servers(void **state) {
    (void)state;
    hold(BT_PROGRAM_SERVER, "");
    hold(BT_PROGRAM_SERVER, "-c 0 -np 2");
    hold(BT_PROGRAM_SERVER, "-c 700 -np 3 -b 300 -ub 64 -ngl 99 -fit on -lm auto");
    hold(BT_PROGRAM_SERVER, "-np -1 -no-kvu --spec-default");
    hold(BT_PROGRAM_SERVER, "-np 2 -kvu --spec-type ngram-simple,ngram-map-k --spec-ngram-map-k-size-m 60");
    hold(BT_PROGRAM_SERVER, "-np 2 -b 32 --spec-type ngram-cache");
    hold(BT_PROGRAM_SERVER, "--embedding -ub 128 -c 512");
    hold(BT_PROGRAM_SERVER, "-cram 16 -ctxcp 2 -a name -ot .*=" BT_DROP_IN_BUFFER);
    hold(BT_PROGRAM_CLI, "");
    hold(BT_PROGRAM_CLI, "-np -1 -c 2048 --spec-default");
}

static void others(void **state) {
    (void)state;
    hold(BT_PROGRAM_COMPLETION, "");
    hold(BT_PROGRAM_COMPLETION, "-c 600 -b 100");
    hold(BT_PROGRAM_PERPLEXITY, "");
    hold(BT_PROGRAM_PERPLEXITY, "-c 100");
    hold(BT_PROGRAM_PERPLEXITY, "-c 100 -b 250");
    hold(BT_PROGRAM_EMBEDDING, "-c 512 -b 512");
    hold(BT_PROGRAM_EMBEDDING, "");
    hold(BT_PROGRAM_EMBEDDING, "-c 300 -np 2 -b 400 --attention causal");
}

/* ---- a chunk at a time ---- */

static double perplexity_of(const char *path, const char *options) {
    char text[4096];
    double result = 0;
    FILE *output;
    (void)snprintf(text, sizeof text, "env -i %s/llama-perplexity -m %s -t 1 -f %s -c 64 %s", getenv("BT_LLAMA_BIN"),
                   model_path, path, options);
    pid_t pid = program_start(line_split(&words, text), &output);
    while (fgets(text, sizeof text, output)) {
        const char *said = strstr(text, "PPL = ");
        if (said) result = strtod(said + strlen("PPL = "), NULL);
    }
    (void)fclose(output);
    (void)waitpid(pid, NULL, 0);
    return result;
}

static void chunks(void **state) {
    static const char path[] = BT_TEST_OUT "/drop-in.txt";
    (void)state;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (uint32_t i = 1; i <= 40; i++)
        (void)fprintf(file, "Of %u ships that sailed that year, %u came home.\n", i * 7919 % 997, i * 31 % 97);
    assert_int_equal(fclose(file), 0);
    double several = perplexity_of(path, "--chunks 5");
    double one = perplexity_of(path, "--chunks 5 -b 64");
    print_message("perplexity: %f, %f a chunk at a time\n", several, one);
    assert_true(several > 1);
    assert_true(one > several * 0.9999 && one < several * 1.0001); /* four digits; the order of sums may differ */
}

int main(void) {
    const char *folder = getenv("BT_LLAMA_BIN");
    const char *source = getenv("BT_SOURCE");
    if (!folder || !source || !getenv("BT_FAKE_DEVICE")) {
        print_message("skipped: BT_LLAMA_BIN, BT_SOURCE or BT_FAKE_DEVICE is not set\n");
        return 77;
    }
    (void)snprintf(model_path, sizeof model_path, "%s/build/models/smollm2-135m-instruct-q4_1.gguf", source);
    arena = bt_arena_open(UINT64_C(64) << 20, 65536);
    if (!arena || bt_facts_open(model_path, &facts, NULL) != BT_OK) {
        print_message("skipped: no model\n");
        bt_arena_close(arena);
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(servers), cmocka_unit_test(others), cmocka_unit_test(chunks)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_facts_close(facts);
    bt_arena_close(arena);
    return failed;
}
