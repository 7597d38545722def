/* SPDX-License-Identifier: MIT
 * test_drop_in_bench.c: llama-bench under a RAM budget: its lists as its own parser reads them, what is refused and
 * what is said then, what goes into a plan, and the line that comes of one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define ARGV_CHECK(condition) assert_true(condition)
#include "drop_in_kit.h"
#include "guard/drop_in_bench.h"
#include "guard_kit.h"
#include "plan/costs.h"

#include <stdio.h>

#define F16    1u
#define Q8_0   8u
#define Q4_1   3u
#define IQ4_NL 20u

static kit_facts dense;
static line words;
static bt_command command;
static bt_drop_in_bench bench;
static bt_drop_in drop_in;
static bt_error err;

static int start(void **state) {
    kit_dense(&dense);
    return argv_open_arena(state);
}

/* Of llama-bench with a model, these options. */
static bt_status take_argv(char *const *argv) {
    err = (bt_error){0};
    bt_command_find(argv, &command);
    assert_int_equal(command.program, BT_PROGRAM_BENCH);
    bt_status status = bt_drop_in_bench_read(argv + command.first, &bench, &err);
    return status == BT_OK ? bt_drop_in_bench_wish(&bench, &dense.facts, &drop_in, &err) : status;
}

static bt_status take_line(const char *text) {
    return take_argv(line_split(&words, text));
}

static const bt_wishes *wishes(const char *options) {
    char text[512];
    (void)snprintf(text, sizeof text, "llama-bench -m x.gguf %s", options);
    if (take_line(text) != BT_OK) fail_msg("%s: %s", options, err.text);
    return &drop_in.wishes;
}

static void refused_line(const char *text, const char *part) {
    if (take_line(text) == BT_OK) fail_msg("%s is taken", text);
    assert_int_equal(err.status, BT_E_UNSUPPORTED);
    assert_string_equal(err.code, "drop_in");
    if (!strstr(err.text, part)) fail_msg("%s: '%s' does not say '%s'", text, err.text, part);
}

static void refused(const char *options, const char *part) {
    char text[512];
    (void)snprintf(text, sizeof text, "llama-bench -m x.gguf %s", options);
    refused_line(text, part);
}

/* ---- lists ---- */

static void defaults(void **state) {
    (void)state;
    const bt_wishes *w = wishes("");
    assert_string_equal(bench.model, "x.gguf");
    assert_int_equal(w->n_ctx, 512);
    assert_int_equal(w->n_parallel, 1);
    assert_int_equal(w->n_batch, 512); /* of 2048 */
    assert_int_equal(w->n_ubatch, 0);
    assert_int_equal(w->type_k, F16);
    assert_int_equal(w->type_v, F16);
    assert_int_equal(w->flash_attn, BT_AUTO);
    assert_int_equal(w->repack, BT_AUTO);
    assert_int_equal(w->n_threads, 0);
    assert_int_equal(w->speculate, BT_SPECULATE_OFF);
    assert_true(w->no_devices && !w->kv_unified && !w->chat && !w->allow_ctx_reduction);
    assert_int_equal(drop_in.n_outputs_max, 1);
    assert_true(!drop_in.embeddings && !drop_in.swa_full && drop_in.cache_ram_bytes == 0);
}

static void contexts(void **state) {
    static const struct {
        const char *options;
        uint32_t n_ctx;
    } cases[] = {
        {"-p 64 -n 16", 64},
        {"--n-prompt 64 --n-gen 16", 64},
        {"--n_prompt 64 --n_gen 80", 80},
        {"-p 64", 128}, /* 128 tokens are answered where nobody says */
        {"-n 16", 512},
        {"-p 0 -n 7", 7},
        {"-p 0 -n 0 -pg 5,6", 11},
        {"-p 8 -n 8 -pg 100,28", 128},
        {"-p 8 -n 8 -pg 100,28 -pg 200,1", 201},
        {"-p 8 -n 8 -pg 0,0", 8},
        {"-p 32,64 -n 8,16", 64},
        {"-p 32 -p 900 -p 64 -n 8", 900}, /* each adds */
        {"-p 128-512 -n 8", 512},
        {"-p 128-600+100 -n 8", 528},
        {"-p 128-600*2 -n 8", 512},
        {"-p 4,128-300+64,16 -n 8", 256},
        {"-p 600-128 -n 8", 512}, /* an empty list: the default */
        {"-p 64, -n 8", 64},
        {"-p '' -n 8", 512},
        {"-p 64 -n 8 -d 100", 164},
        {"-p 64 -n 8 --n-depth 0,4096", 4160},
        {"-p 64 -n 8 -pg 64,64 -d 0 -d 1000", 1128},
        {"-p 1-2000000000 -n 1", 2000000000},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (wishes(cases[i].options)->n_ctx != cases[i].n_ctx)
            fail_msg("%s: context %u, not %u", cases[i].options, drop_in.wishes.n_ctx, cases[i].n_ctx);
}

/* The largest; a batch is never larger than the context, and a micro-batch than the batch. */
static void sizes(void **state) {
    (void)state;
    assert_int_equal(wishes("-p 4096")->n_batch, 2048);
    assert_int_equal(wishes("-p 1000")->n_batch, 1024);
    assert_int_equal(wishes("-p 4096 -b 128,1024 -b 512")->n_batch, 1024);
    assert_int_equal(wishes("-p 4096 --batch-size 64-1024*4")->n_batch, 1024);
    assert_int_equal(wishes("-p 4096 -ub 64,256,128")->n_ubatch, 256);
    assert_int_equal(wishes("-p 4096 --ubatch_size 4096")->n_ubatch, 2048);
    assert_int_equal(wishes("-p 4096 -b 64 -ub 512")->n_ubatch, 64);
    assert_int_equal(wishes("-t 1,4,2")->n_threads, 4);
    assert_int_equal(wishes("--threads 1-8+3")->n_threads, 7);
}

static void kinds(void **state) {
    (void)state;
    assert_int_equal(wishes("-ctk q8_0 -ctv q4_1")->type_k, Q8_0);
    assert_int_equal(drop_in.wishes.type_v, Q4_1);
    assert_int_equal(wishes("--cache-type-k iq4_nl --cache_type_v iq4_nl,iq4_nl")->type_k, IQ4_NL);
    assert_int_equal(drop_in.wishes.type_v, IQ4_NL);
    assert_int_equal(wishes("-fa 1")->flash_attn, BT_ON);
    assert_int_equal(wishes("-fa on,1,enabled")->flash_attn, BT_ON);
    assert_int_equal(wishes("--flash-attn off")->flash_attn, BT_OFF);
    assert_int_equal(wishes("-fa -1")->flash_attn, BT_AUTO);
    assert_int_equal(wishes("--repack 0")->repack, BT_OFF);
    assert_int_equal(wishes("--repack 1")->repack, BT_AUTO);
}

/* Its state at a depth is kept; at several, the next is made before the last is dropped. */
static void states(void **state) {
    uint64_t bytes = 0;
    (void)state;
    const bt_wishes *w = wishes("-p 64 -n 8 -d 1000");
    assert_true(bt_kv_price(&dense.facts, w, 1000, 512, &bytes));
    assert_true(bytes > 0);
    assert_int_equal(drop_in.cache_ram_bytes, bytes + 16000);
    (void)wishes("-p 64 -n 8 -d 0,1000");
    assert_int_equal(drop_in.cache_ram_bytes, bytes + 16000);
    (void)wishes("-p 64 -n 8 -d 500,1000");
    assert_int_equal(drop_in.cache_ram_bytes, 2 * (bytes + 16000));
    (void)wishes("-p 64 -n 8 -d 1-1000+999");
    assert_int_equal(drop_in.cache_ram_bytes, 2 * (bytes + 16000));
}

static void of_no_interest(void **state) {
    (void)state;
    (void)wishes("-r 3 --repetitions 2 --prio 0 --delay 1 -o json --output md -oe csv --output_err sql --numa isolate "
                 "-C 0x3 --cpu-mask 0x1,0x2 --cpu-strict 1 --poll 0,50 -nopo 1 --no-op-offload 0 --no-host 1 "
                 "-hft t --hf-token t -hff f --offline -v --verbose --progress --no-warmup");
    assert_int_equal(drop_in.wishes.n_ctx, 512);
    (void)wishes("-sm none,layer -mg 3 -mg 0 -ngl 99 -ncmoe 0 -nkvo 0,0 -embd 0, -lm none -lzm off -fitt 0 -fitc 0 "
                 "-dev Burthen0,Burthen0 -ot .*=Burthen"); /* of -mg the last one counts */
    (void)wishes("-ngl 33");
    (void)wishes("-ngl -1,99");
    (void)wishes("-ngl 33-99+33");
    (void)wishes("-ngl -1-99+50"); /* -1, 49, 99 */
}

/* ---- refusals ---- */

static void models(void **state) {
    (void)state;
    refused_line("llama-bench", "names no model file");
    refused_line("llama-bench -m a.gguf -m b.gguf", "several models");
    refused_line("llama-bench --model a.gguf,b.gguf", "several models");
    refused_line("llama-bench -hf a/b", "--hf-repo a/b names a model that is fetched first");
    refused("-hfr a/b", "--hf-repo a/b");
    dense.facts.encoder = true;
    refused("-p 64", "makes vectors");
    dense.facts.encoder = false;
}

static void off_the_device(void **state) {
    (void)state;
    refused("-dev CUDA0", "--device CUDA0 names other devices");
    refused("-dev Burthen0/CUDA0", "--device Burthen0/CUDA0");
    refused("-dev Burthen0,auto", "--device Burthen0,auto");
    refused("--device none", "--device none");
    refused("-ngl 0", "--n-gpu-layers leaves layers");
    refused("-ngl 32", "--n-gpu-layers leaves layers"); /* all blocks, and the head is not there */
    refused("-ngl 99,10", "--n-gpu-layers leaves layers");
    refused("-ngl 99 -ngl 10", "--n-gpu-layers leaves layers");
    refused("-ngl -1-99+10", "--n-gpu-layers leaves layers"); /* -1, 9, 19... */
    refused("-ngl -10-0+5", "--n-gpu-layers leaves layers");  /* -10, -5, 0 */
    refused("-ot exps=CPU", "--override-tensor exps=CPU keeps weights outside");
    refused("-ot .*=Burthen,", "--override-tensor .*=Burthen,");
    refused("-ncmoe 0,3", "--n-cpu-moe keeps");
    refused("-nkvo 0,1", "--no-kv-offload puts the KV cache outside");
    refused("-sm layer,row", "--split-mode is for several devices");
    refused("-sm tensor", "--split-mode is for several devices");
    refused("-mg 0 -mg 1", "--main-gpu is for several devices");
    refused("-ts 1/1", "--tensor-split 1/1 is for several devices");
    refused("--rpc h:1", "--rpc h:1 puts weights on other machines");
}

static void past_the_budget(void **state) {
    (void)state;
    refused("-lm mmap", "--load-mode reads the model past the budget");
    refused("-lm none,dio", "--load-mode reads the model past the budget");
    refused("--load-mode auto", "--load-mode reads the model past the budget");
    refused("-lzm on", "--lazy-mode reads");
    refused("-lzm off,auto", "--lazy-mode reads");
    refused("-embd 1", "--embeddings keeps a vector");
    refused("-fitt 1024", "--fit-target changes");
    refused("-fitc 0,4096", "--fit-ctx changes");
    refused("-mmp 0", "--mmap 0 is one of earlier builds");
    refused("-b 0", "--batch-size has a number");
    refused("-ub 64,0", "--ubatch-size has a number");
    refused("-t 0", "--threads has a number");
    refused("-p 0 -n 0", "has no test");
    refused("-p 2000000000 -d 2000000000", "more tokens than a context can hold");
}

static void one_plan(void **state) {
    (void)state;
    refused("-ctk f16,q8_0", "--cache-type-k has several values");
    refused("-ctv f16 -ctv q8_0", "--cache-type-v has several values");
    refused("-fa 0,1", "--flash-attn has several values");
    refused("--repack 0,1", "--repack has several values");
    refused("-fa off -ctv q8_0", "--cache-type-v q8_0 needs flash attention");
}

static void what_it_refuses(void **state) {
    static const char *const lines[] = {
        "-p x",      "-p 1x",     "-p 1-",      "-p 1-5+0",  "-p 1-5|2",     "-p 0-5*2", "-p 1-5*1", "-p -1",
        "-p 1,,2",   "-p ,1",     "-pg 5",      "-pg 5,",    "-pg 1,2,3",    "-pg -1,2", "-ctk q9",  "-ctk f32",
        "-ctk f16,", "-fa maybe", "-sm half",   "-lm fast",  "-lzm ''",      "-nkvo 2",  "-nkvo x",  "-embd 0,,0",
        "-fitt x",   "-ngl all",  "-ngl -2--1", "-ngl auto", "-p 9999999999"};
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        refused(lines[i], "is refused by llama-bench");
    refused("-p", "--n-prompt lacks its value");
    refused("-ot", "--override-tensor lacks its value");
    refused("-c 512", "-c is no option of today's llama-bench");
    refused("--n-prompt=64", "--n-prompt=64 is no option");
    refused("stray", "stray is no option");
    refused("''", "is no option");
}

/* ---- the line ---- */

/* With a plan whose micro-batch is n_ubatch where it is open; read again, the line says the same and lacks nothing. */
static void hold(void **state, const char *text, uint32_t n_ubatch, const char *const *expected) {
    const bt_argv *view = NULL;
    bt_rewrite rewrite, again;
    char *const *argv = line_split(&words, text);
    if (take_argv(argv) != BT_OK) fail_msg("%s: %s", text, err.text);
    const bt_drop_in before = drop_in;
    const bt_plan plan = kit_plan_of(&drop_in.wishes, 4096, n_ubatch);
    assert_int_equal(bt_argv_parse(*state, argv, command.first, command.program, &view, &err), BT_OK);
    assert_int_equal(bt_rewrite_open(&rewrite, *state, view, &err), BT_OK);
    assert_int_equal(bt_drop_in_bench_apply(&bench, &plan, &rewrite, &err), BT_OK);
    argv_check_same(&rewrite);
    for (uint32_t i = 0; i < rewrite.n_argv || expected[i]; i++) {
        const char *is = i < rewrite.n_argv ? rewrite.argv[i] : "(end)";
        const char *should = expected[i] ? expected[i] : "(end)";
        if (strcmp(is, should) != 0) fail_msg("%s: argument %u is %s, not %s", text, i, is, should);
    }
    if (take_argv(rewrite.argv) != BT_OK) fail_msg("%s again: %s", text, err.text);
    assert_int_equal(drop_in.wishes.n_ctx, before.wishes.n_ctx);
    assert_int_equal(drop_in.wishes.n_batch, before.wishes.n_batch);
    assert_true(drop_in.wishes.n_ubatch == plan.n_ubatch || drop_in.wishes.n_ubatch == 0);
    assert_int_equal(bt_argv_parse(*state, rewrite.argv, command.first, command.program, &view, &err), BT_OK);
    assert_int_equal(bt_rewrite_open(&again, *state, view, &err), BT_OK);
    assert_int_equal(bt_drop_in_bench_apply(&bench, &plan, &again, &err), BT_OK);
    assert_int_equal(again.n_edits, 0);
}

#define TAKES(n_ubatch, typed, ...)                                                                                    \
    do {                                                                                                               \
        static const char *const expected_[] = {__VA_ARGS__, NULL};                                                    \
        hold(state, typed, n_ubatch, expected_);                                                                       \
    } while (0)

#define DEVICE "--device", "Burthen0", "--n-gpu-layers", "999", "--override-tensor", ".*=Burthen"
#define FILES  "--load-mode", "none", "--lazy-mode", "off"

static void lines(void **state) {
    TAKES(512, "llama-bench -m x.gguf -p 64 -n 16 -r 1", "llama-bench", "-m", "x.gguf", "-p", "64", "-n", "16", "-r",
          "1", DEVICE, FILES);
    TAKES(128, "nice -n 5 llama-bench -m x.gguf --progress", "nice", "-n", "5", "llama-bench", "-m", "x.gguf",
          "--progress", DEVICE, FILES, "--ubatch-size", "128");
    /* a context of 256 has no more in any case */
    TAKES(512, "llama-bench -m x.gguf -p 200", "llama-bench", "-m", "x.gguf", "-p", "200", DEVICE, FILES);
    TAKES(32, "llama-bench -m x.gguf -ub 64,128 -ngl 99 -dev Burthen0 -ot .*=Burthen -lm none -lzm off", "llama-bench",
          "-m", "x.gguf", "-ub", "64,128", "-ngl", "99", "-dev", "Burthen0", "-ot", ".*=Burthen", "-lm", "none", "-lzm",
          "off");
    TAKES(512, "llama bench -m x.gguf -lm none", "llama", "bench", "-m", "x.gguf", "-lm", "none", DEVICE, "--lazy-mode",
          "off");
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, start, argv_close_arena)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(defaults),        TEST(contexts),       TEST(sizes),           TEST(kinds),
        TEST(states),          TEST(of_no_interest), TEST(models),          TEST(off_the_device),
        TEST(past_the_budget), TEST(one_plan),       TEST(what_it_refuses), TEST(lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
