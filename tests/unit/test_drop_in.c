/* SPDX-License-Identifier: MIT
 * test_drop_in.c: a command line of a llama.cpp program under a RAM budget: what is refused and what is said then, what
 * goes into a plan, and the line that comes of one. Of every line that is taken the result is read again: it must say
 * what was planned, and there must be nothing left to do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define ARGV_CHECK(condition) assert_true(condition)
#include "drop_in_kit.h"
#include "guard_kit.h"

#include <stdio.h>

#define F16  1u
#define Q8_0 8u

/* ---- a command in its world ---- */

static kit_facts dense;
static line words;
static bt_command command;
static const bt_argv *view;
static bt_effective effective;
static bt_drop_in drop_in;
static bt_plan plan;
static bt_rewrite rewrite;
static bt_error err;

/* Around the command: variables as "A=1", a list that ends with NULL, and /etc/llama.cpp/config.ini. */
static const char *const *variables;
static argv_file config;

static const char *variable(void *context, const char *name) {
    size_t n = strlen(name);
    (void)context;
    for (const char *const *pair = variables; pair && *pair; pair++)
        if (strncmp(*pair, name, n) == 0 && (*pair)[n] == '=') return *pair + n + 1;
    return NULL;
}

static void resolve(void **state, char *const *argv) {
    bt_command_find(argv, &command);
    bt_program program = command.program == BT_PROGRAM_NONE ? BT_PROGRAM_SERVER : command.program;
    assert_int_equal(bt_argv_parse(*state, argv, command.first, program, &view, &err), BT_OK);
    bt_effective_input input = {&command, view, variable, NULL, argv_read, &config};
    assert_int_equal(bt_effective_resolve(*state, &input, &effective, &err), BT_OK);
}

static bt_status read_line(void **state, const char *text) {
    resolve(state, line_split(&words, text));
    return bt_drop_in_read(&effective, &dense.facts, &drop_in, &err);
}

static int start(void **state) {
    kit_dense(&dense);
    dense.facts.has_chat_template = true;
    variables = NULL;
    config = (argv_file){NULL, 0};
    return argv_open_arena(state);
}

static void plan_it(void) {
    plan = kit_plan_of(&drop_in.wishes, 4096, 512);
}

static void apply(void **state) {
    assert_int_equal(bt_rewrite_open(&rewrite, *state, view, &err), BT_OK);
    if (bt_drop_in_apply(&effective, &plan, &rewrite, &err) != BT_OK) fail_msg("%s", err.text);
    argv_check_same(&rewrite);
}

/* The line as it was planned is read again. */
static void check_again(void **state) {
    const bt_drop_in before = drop_in;
    resolve(state, rewrite.argv);
    kit_check_settings(&effective);
    if (bt_drop_in_read(&effective, &dense.facts, &drop_in, &err) != BT_OK) fail_msg("again: %s", err.text);
    kit_check_same(&before, &plan, &drop_in);
    apply(state);
    assert_int_equal(rewrite.n_edits, 0);
}

static void hold(void **state, const char *text, const char *const *expected) {
    plan_it();
    apply(state);
    for (uint32_t i = 0; i < rewrite.n_argv || expected[i]; i++) {
        const char *is = i < rewrite.n_argv ? rewrite.argv[i] : "(end)";
        const char *should = expected[i] ? expected[i] : "(end)";
        if (strcmp(is, should) != 0) fail_msg("%s: argument %u is %s, not %s", text, i, is, should);
    }
    check_again(state);
}

#define TAKES(typed, ...)                                                                                              \
    do {                                                                                                               \
        static const char *const expected_[] = {__VA_ARGS__, NULL};                                                    \
        if (read_line(state, typed) != BT_OK) fail_msg("%s: %s", typed, err.text);                                     \
        hold(state, typed, expected_);                                                                                 \
    } while (0)

/* ---- refusals ---- */

static void says(const char *text, const char *part) {
    assert_int_equal(err.status, BT_E_UNSUPPORTED);
    assert_string_equal(err.code, "drop_in");
    if (!strstr(err.text, part)) fail_msg("%s: '%s' does not say '%s'", text, err.text, part);
}

static void refused_command(void **state, const char *text, const char *part) {
    err = (bt_error){0};
    if (read_line(state, text) == BT_OK) fail_msg("%s is taken", text);
    says(text, part);
}

/* Of a server with a model, these options. */
static void refused(void **state, const char *options, const char *part) {
    char text[256];
    (void)snprintf(text, sizeof text, "llama-server -m /models/x.gguf %s", options);
    refused_command(state, text, part);
}

static void no_local_model(void **state) {
    refused_command(state, "llama-server", "a server without -m");
    refused_command(state, "llama-cli -p x", "names no model file");
    refused_command(state, "llama-server -hf a/b", "--hf-repo a/b names a model that is fetched first");
    refused(state, "-hf a/b", "--hf-repo a/b");
    refused(state, "-mu http://x/y.gguf", "--model-url http://x/y.gguf");
    refused(state, "-dr a/b", "--docker-repo a/b");
    refused_command(state, "llama-server --gpt-oss-20b-default", "--gpt-oss-20b-default names a model");
    refused_command(state, "llama-server -m /models/x.bin", "--model /models/x.bin is no .gguf file");
    refused_command(state, "llama-cli -m x.gguf --server-base http://h:1", "--server-base http://h:1");
}

static void other_programs(void **state) {
    refused_command(state, "llama-fit-params -m x.gguf", "llama-embedding and llama-bench alone");
    refused_command(state, "sd-server -m x.gguf", "llama-embedding and llama-bench alone");
}

static void off_the_device(void **state) {
    refused(state, "--rpc h:50052", "--rpc h:50052 puts weights on other machines");
    refused(state, "-dev CUDA0", "--device CUDA0 names other devices");
    refused(state, "-dev none", "--device none");
    refused(state, "-dev Burthen0,CUDA0", "--device Burthen0,CUDA0");
    refused(state, "-nkvo", "--no-kv-offload puts the KV cache outside");
    refused(state, "-ot exps=CPU", "--override-tensor exps=CPU keeps weights outside");
    refused(state, "-ot blk=Burthen,.*=CUDA0", "--override-tensor .*=CUDA0");
    refused(state, "-cmoe", "--cpu-moe keeps");
    refused(state, "-ncmoe 3", "--n-cpu-moe 3 keeps");
    refused(state, "-ncffn 4", "--n-cpu-ffn 4 keeps");
    refused(state, "-ngl 0", "--n-gpu-layers 0 leaves layers");
    refused(state, "-ngl 32", "--n-gpu-layers 32"); /* all blocks, and the head is not there */
    refused(state, "-ts 1,1", "--tensor-split 1,1");
    refused(state, "-sm row", "--split-mode row");
    refused(state, "-sm tensor", "--split-mode tensor");
    refused(state, "-mg 1", "--main-gpu 1");
}

static void past_the_budget(void **state) {
    refused(state, "-lm mmap", "--load-mode mmap reads the model past the budget");
    refused(state, "-lm mlock", "--load-mode mlock");
    refused(state, "-lm mmap+mlock", "--load-mode mmap+mlock");
    refused(state, "-lm dio", "--load-mode dio");
    refused(state, "--mlock", "--load-mode mmap+mlock");
    refused(state, "--mmap", "--load-mode mmap");
    refused(state, "-dio", "--load-mode dio");
    refused(state, "--no-mmap", "earlier builds");
    refused(state, "--check-tensors", "--check-tensors reads every weight");
    refused(state, "--override-kv a=int:1", "--override-kv a=int:1 may change");
    refused(state, "-bs", "--backend-sampling keeps more");
    refused(state, "-cram -1", "--cache-ram -1 sets no limit");
    refused(state, "-fa off -ctv q8_0", "--cache-type-v q8_0 needs flash attention");
    refused(state, "-c -5", "--ctx-size -5 is no number");
    refused(state, "-b 0", "--batch-size 0 is no number");
    refused_command(state, "llama-perplexity -m x.gguf -c 0", "--ctx-size 0 is no number");
}

static void second_models(void **state) {
    refused(state, "-md y.gguf -devd CUDA0", "--spec-draft-device CUDA0 puts the draft model on a device");
    refused(state, "--spec-type draft-simple", "--spec-type draft-simple drafts with weights");
    refused(state, "-md y.gguf --spec-type draft-eagle3", "--spec-type draft-eagle3 drafts with weights");
    refused(state, "-hfd a/b", "--hf-repo-draft a/b");
    refused(state, "--mmproj p.gguf -mmdev CUDA0", "--mmproj-device CUDA0 puts the projector on a device");
    refused(state, "-mmu http://x", "--mmproj-url http://x");
    refused(state, "--spec-type draft-mtp", "--spec-type draft-mtp drafts with weights");
    refused(state, "--spec-type ngram-mod,draft-eagle3", "--spec-type draft-eagle3");
    refused(state, "--spec-type draft-dflash", "--spec-type draft-dflash");
    refused(state, "-lcs a.bin", "--lookup-cache-static a.bin");
    refused(state, "-lcd a.bin", "--lookup-cache-dynamic a.bin");
}

static void what_the_program_refuses(void **state) {
    refused(state, "-c x", "llama.cpp refuses --ctx-size x and does not start");
    refused(state, "-ctk q9", "llama.cpp refuses --cache-type-k q9");
    refused(state, "-m", "llama.cpp refuses --model without its value");
}

static void refused_from_elsewhere(void **state) {
    static const char *const env[] = {"LLAMA_ARG_N_GPU_LAYERS=12", NULL};
    static const char *const no[] = {"LLAMA_ARG_NO_KV_OFFLOAD=1", NULL};
    static const char *const rules[] = {"LLAMA_ARG_CPU_MOE=1", NULL};
    static const char *const spec[] = {"LLAMA_ARG_SPEC_TYPE=draft-mtp", NULL};
    static const char text[] = "[*]\nsplit-mode = row\n";
    variables = env;
    refused(state, "-c 512", "--n-gpu-layers 12 (LLAMA_ARG_N_GPU_LAYERS in the environment) leaves");
    assert_int_equal(read_line(state, "llama-server -m x.gguf -ngl 99"), BT_OK); /* argv overrides it */
    variables = no;
    refused(state, "-c 512", "--no-kv-offload (LLAMA_ARG_NO_KV_OFFLOAD in the environment) puts");
    variables = rules;
    refused(state, "-c 512", "--cpu-moe (LLAMA_ARG_CPU_MOE in the environment) keeps");
    variables = spec;
    refused(state, "-c 512", "--spec-type draft-mtp (LLAMA_ARG_SPEC_TYPE in the environment) drafts");
    variables = NULL;
    config = (argv_file){text, sizeof text - 1};
    refused(state, "-c 512", "--split-mode row (in /etc/llama.cpp/config.ini) is for several devices");
}

static void allowed(void **state) {
    static const char *const lines[] = {"-ngl 99",
                                        "-ngl 33",
                                        "-ngl all",
                                        "-ngl auto",
                                        "-ngl -1",
                                        "-dev Burthen0",
                                        "-sm none",
                                        "-sm layer",
                                        "-lm none",
                                        "-lm auto",
                                        "-fa off",
                                        "-ctk q8_0",
                                        "-fa on -ctv q8_0",
                                        "-ncmoe 0",
                                        "-ot .*=Burthen",
                                        "--no-host",
                                        "-nr",
                                        "--lora a.gguf",
                                        "--control-vector c.gguf",
                                        "-cram 0",
                                        "-mg 0",
                                        "--no-op-offload"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char text[128];
        (void)snprintf(text, sizeof text, "llama-server -m x.gguf %s", lines[i]);
        if (read_line(state, text) != BT_OK) fail_msg("%s: %s", text, err.text);
        plan_it();
        apply(state);
        check_again(state);
    }
}

/* ---- the line ---- */

#define DEVICE "--device", "Burthen0", "--n-gpu-layers", "999", "--override-tensor", ".*=Burthen"
#define FILES  "--load-mode", "none", "--lazy-mode", "off", "--fit", "off"
#define BESIDE "--cache-ram", "0", "--ctx-checkpoints", "0"

static void server_lines(void **state) {
    TAKES("llama-server -m /models/x.gguf", "llama-server", "-m", "/models/x.gguf", DEVICE, FILES, "--ctx-size", "4096",
          "--parallel", "4", "--kv-unified", BESIDE, "--alias", "x");
    TAKES("llama-server -m x.Q4.gguf -ngl 99 -c 8192 -np 2 -no-kvu --port 80 -a me -cram 64 -ctxcp 3", "llama-server",
          "-m", "x.Q4.gguf", "-ngl", "999", "-c", "8192", "-np", "2", "-no-kvu", "--port", "80", "-a", "me", "-cram",
          "64", "-ctxcp", "3", "--device", "Burthen0", "--override-tensor", ".*=Burthen", FILES);
    TAKES("nice -n 5 llama-server -m d/x.GGUF --ctx-size=1000 -np -1 -no-kvu -fit on -lm auto -lzm on -dev Burthen0 "
          "-ngl all -ot .*=Burthen",
          "nice", "-n", "5", "llama-server", "-m", "d/x.GGUF", "--ctx-size=1000", "-np", "4", "-no-kvu", "-fit", "off",
          "-lm", "none", "-lzm", "off", "-dev", "Burthen0", "-ngl", "999", "-ot", ".*=Burthen", "--kv-unified", BESIDE,
          "--alias", "x");
    /* without the switch, slots have a cache each */
    TAKES("llama-server -m x.gguf -c 1024 -np 2", "llama-server", "-m", "x.gguf", "-c", "1024", "-np", "2", DEVICE,
          FILES, "--no-kv-unified", BESIDE, "--alias", "x");
    /* a name that would be two */
    TAKES("llama-server -m a,b.gguf -c 512 -np 1 -kvu", "llama-server", "-m", "a,b.gguf", "-c", "512", "-np", "1",
          "-kvu", DEVICE, FILES, BESIDE);
    /* what stands beside the model stays with the CPU, where it has lines of its own */
    TAKES("llama-server -m x.gguf -c 512 -np 1 -kvu -md y.gguf --spec-type draft-simple --mmproj p.gguf",
          "llama-server", "-m", "x.gguf", "-c", "512", "-np", "1", "-kvu", "-md", "y.gguf", "--spec-type",
          "draft-simple", "--mmproj", "p.gguf", DEVICE, FILES, "--device-draft", "none", "--no-repack",
          "--no-mmproj-offload", BESIDE, "--alias", "x");
    TAKES("llama-server -m x.gguf -c 512 -np 1 -kvu -md y.gguf -nr --mmproj p.gguf --no-mmproj-offload", "llama-server",
          "-m", "x.gguf", "-c", "512", "-np", "1", "-kvu", "-md", "y.gguf", "-nr", "--mmproj", "p.gguf",
          "--no-mmproj-offload", DEVICE, FILES, "--device-draft", "none", BESIDE, "--alias", "x");
    TAKES("llama-server -m x.gguf -c 512 -np 1 -kvu --embedding", "llama-server", "-m", "x.gguf", "-c", "512", "-np",
          "1", "-kvu", "--embedding", DEVICE, FILES, BESIDE, "--alias", "x");
}

static void other_lines(void **state) {
    TAKES("llama-cli -m x.gguf -p hi", "llama-cli", "-m", "x.gguf", "-p", "hi", DEVICE, FILES, "--ctx-size", "4096",
          BESIDE);
    TAKES("llama-cli -m x.gguf -c 2048 -cram 9 -ngl 40", "llama-cli", "-m", "x.gguf", "-c", "2048", "-cram", "9",
          "-ngl", "999", "--device", "Burthen0", "--override-tensor", ".*=Burthen", FILES, "--ctx-checkpoints", "0");
    TAKES("llama-completion -m x.gguf -n 8", "llama-completion", "-m", "x.gguf", "-n", "8", DEVICE, FILES, "--ctx-size",
          "4096");
    TAKES("llama-completion -m x.gguf -c 256 -b 64 --fit off", "llama-completion", "-m", "x.gguf", "-c", "256", "-b",
          "64", "--fit", "off", DEVICE, "--load-mode", "none", "--lazy-mode", "off");
}

static void perplexity_lines(void **state) {
    /* a chunk at a time, where nobody set the batch */
    TAKES("llama-perplexity -m x.gguf -f t.txt", "llama-perplexity", "-m", "x.gguf", "-f", "t.txt", DEVICE, FILES,
          "--batch-size", "512");
    TAKES("llama-perplexity -m x.gguf -f t.txt -c 300", "llama-perplexity", "-m", "x.gguf", "-f", "t.txt", "-c", "300",
          DEVICE, FILES, "--batch-size", "300");
    TAKES("llama-perplexity -m x.gguf -f t.txt -c 128 -b 512 -ngl 99", "llama-perplexity", "-m", "x.gguf", "-f",
          "t.txt", "-c", "128", "-b", "512", "-ngl", "999", "--device", "Burthen0", "--override-tensor", ".*=Burthen",
          FILES);
    /* of these -b is no number of chunks */
    TAKES("llama-perplexity -m x.gguf -f t.txt --hellaswag", "llama-perplexity", "-m", "x.gguf", "-f", "t.txt",
          "--hellaswag", DEVICE, FILES);
}

static void embedding_lines(void **state) {
    /* a batch is made of the context: not of the one that is rounded up */
    TAKES("llama-embedding -m x.gguf -b 64", "llama-embedding", "-m", "x.gguf", "-b", "64", DEVICE, FILES, "--ctx-size",
          "64");
    TAKES("llama-embedding -m x.gguf -p hi", "llama-embedding", "-m", "x.gguf", "-p", "hi", DEVICE, FILES, "--ctx-size",
          "2048");
    TAKES("llama-embedding -m x.gguf -p hi -c 512 -b 512", "llama-embedding", "-m", "x.gguf", "-p", "hi", "-c", "512",
          "-b", "512", DEVICE, FILES);
    TAKES("llama-embedding -m x.gguf -p hi -np 2 -c 512 --attention causal", "llama-embedding", "-m", "x.gguf", "-p",
          "hi", "-np", "2", "-c", "512", "--attention", "causal", DEVICE, FILES);
}

/* What the environment or a file says already is left there; what it says otherwise is overridden at the end. */
static void lines_from_elsewhere(void **state) {
    static const char *const env[] = {"LLAMA_ARG_CTX_SIZE=2048",
                                      "LLAMA_ARG_N_PARALLEL=2",
                                      "LLAMA_ARG_N_GPU_LAYERS=99",
                                      "LLAMA_ARG_LOAD_MODE=none",
                                      "LLAMA_ARG_FIT=off",
                                      "LLAMA_ARG_CACHE_RAM=32",
                                      NULL};
    static const char *const model[] = {"LLAMA_ARG_MODEL=/m/y.gguf", "LLAMA_ARG_ALIAS=me",
                                        "LLAMA_ARG_OVERRIDE_TENSOR=.*=Burthen", "LLAMA_ARG_DEVICE=Burthen0", NULL};
    static const char *const old[] = {"LLAMA_ARG_MMAP=0", NULL}; /* today's do not read it */
    static const char text[] = "[*]\nctx-size = 1024\nparallel = 1\nctx-checkpoints = 2\nlazy-mode = off\n";
    variables = env;
    TAKES("llama-server -m x.gguf", "llama-server", "-m", "x.gguf", DEVICE, "--lazy-mode", "off", "--parallel", "2",
          "--no-kv-unified", "--ctx-checkpoints", "0", "--alias", "x");
    assert_int_equal(drop_in.cache_ram_bytes, 32 * KIT_MIB);
    variables = model;
    TAKES("llama-server -c 512", "llama-server", "-c", "512", "--n-gpu-layers", "999", FILES, "--parallel", "4",
          "--kv-unified", BESIDE);
    variables = old;
    TAKES("llama-server -m x.gguf -c 512 -np 1 -kvu", "llama-server", "-m", "x.gguf", "-c", "512", "-np", "1", "-kvu",
          DEVICE, FILES, BESIDE, "--alias", "x");
    variables = NULL;
    config = (argv_file){text, sizeof text - 1};
    TAKES("llama-server -m x.gguf", "llama-server", "-m", "x.gguf", DEVICE, "--load-mode", "none", "--fit", "off",
          "--parallel", "1", "--no-kv-unified", "--cache-ram", "0", "--alias", "x");
    assert_int_equal(drop_in.n_checkpoints, 2);
}

/* A plan that has less than was open, or other than was asked for. */
static void planned_otherwise(void **state) {
    static const char *const expected[] = {
        "llama-server", "-m",   "x.gguf", "--ctx-size=8192", "-ub",  "128",  "-ctk",    "q8_0", "-np", "1",
        "-kvu",         DEVICE, FILES,    "--cache-type-v",  "q8_0", BESIDE, "--alias", "x",    NULL};
    assert_int_equal(read_line(state, "llama-server -m x.gguf --ctx-size=0 -ub 256 -ctk f16 -np 1 -kvu"), BT_OK);
    assert_int_equal(drop_in.wishes.n_ctx, 131072); /* as much of it as there is room for */
    assert_true(drop_in.wishes.allow_ctx_reduction);
    assert_int_equal(drop_in.wishes.n_ubatch, 256);
    plan_it();
    plan.n_ctx = 8192;
    plan.n_ubatch = 128;
    plan.type_k = plan.type_v = Q8_0;
    apply(state);
    for (uint32_t i = 0; expected[i]; i++)
        assert_string_equal(rewrite.argv[i], expected[i]);
    assert_int_equal(rewrite.edits[6].flag, BT_FLAG_CTX_SIZE);
    assert_string_equal(rewrite.edits[6].old_text, "0");
    check_again(state);
}

/* An option that lacks its value would swallow what is put behind it. */
static void nothing_to_append_to(void **state) {
    assert_int_equal(read_line(state, "llama-server -m x.gguf --not-known"), BT_OK);
    plan_it();
    assert_int_equal(bt_rewrite_open(&rewrite, *state, view, &err), BT_OK);
    assert_int_equal(bt_drop_in_apply(&effective, &plan, &rewrite, &err), BT_E_ARG);
    assert_string_equal(err.code, "option");
}

/* ---- wishes ---- */

static const bt_wishes *wishes(void **state, const char *text) {
    if (read_line(state, text) != BT_OK) fail_msg("%s: %s", text, err.text);
    return &drop_in.wishes;
}

static void open_wishes(void **state) {
    const bt_wishes *w = wishes(state, "llama-server -m x.gguf");
    assert_int_equal(w->n_ctx, 0);
    assert_false(w->allow_ctx_reduction);
    assert_int_equal(w->n_parallel, 4);
    assert_true(w->kv_unified);
    assert_int_equal(w->n_batch, 2048);
    assert_int_equal(w->n_ubatch, 0);
    assert_int_equal(w->type_k, F16);
    assert_int_equal(w->type_v, F16);
    assert_int_equal(w->flash_attn, BT_AUTO);
    assert_int_equal(w->n_threads, 0);
    assert_int_equal(w->speculate, BT_SPECULATE_OFF);
    assert_int_equal(w->repack, BT_AUTO);
    assert_int_equal(w->rope_scaling, BT_ROPE_OF_MODEL);
    assert_int_equal(w->rope_scale_micro, 0);
    assert_true(w->no_devices);
    assert_true(w->chat);
    assert_false(w->session);
    assert_false(drop_in.swa_full);
    assert_false(drop_in.embeddings);
}

static void set_wishes(void **state) {
    const bt_wishes *w = wishes(
        state, "llama-server -m x.gguf -c 8192 -np 3 -no-kvu -b 1024 -ub 128 -ctk q8_0 -ctv q8_0 -fa on -t 3 -tb "
               "5 -nr --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 4096 --swa-full --slot-save-path d");
    assert_int_equal(w->n_ctx, 8192);
    assert_int_equal(w->n_parallel, 3);
    assert_false(w->kv_unified);
    assert_int_equal(w->n_batch, 1024);
    assert_int_equal(w->n_ubatch, 128);
    assert_int_equal(w->type_k, Q8_0);
    assert_int_equal(w->type_v, Q8_0);
    assert_int_equal(w->flash_attn, BT_ON);
    assert_int_equal(w->n_threads, 5);
    assert_int_equal(w->repack, BT_OFF);
    assert_int_equal(w->rope_scaling, BT_ROPE_YARN);
    assert_int_equal(w->rope_scale_micro, 4000000);
    assert_int_equal(w->yarn_orig_ctx, 4096);
    assert_true(w->session);
    assert_true(drop_in.swa_full);
    w = wishes(state, "llama-cli -m x.gguf --rope-freq-scale 0.5 -fa off -tb 5 -ub 4096 -np -1");
    assert_int_equal(w->rope_scale_micro, 2000000);
    assert_int_equal(w->flash_attn, BT_OFF);
    assert_int_equal(w->n_threads, 0); /* of the other pool nobody said how many */
    assert_int_equal(w->n_ubatch, 2048);
    assert_int_equal(w->n_parallel, 4); /* as the server in it takes it */
    assert_true(w->kv_unified);
    w = wishes(state, "llama-server -m x.gguf --kv-unified-per-slot 512 -np 2");
    assert_int_equal(w->n_ctx, 1024);
    w = wishes(state, "llama-completion -m x.gguf --prompt-cache f");
    assert_true(w->session);
    assert_int_equal(w->n_parallel, 1);
    w = wishes(state, "llama-perplexity -m x.gguf -f t -c 256 -b 64");
    assert_int_equal(w->n_ctx, 256);
    assert_int_equal(w->n_batch, 64);
    assert_false(w->chat);
    w = wishes(state, "llama-embedding -m x.gguf -c 4096");
    assert_int_equal(w->n_batch, 4096);
    assert_int_equal(w->n_ubatch, 4096);
    assert_int_equal(w->n_parallel, 256);
    dense.facts.n_ctx_train = 512;
    assert_int_equal(wishes(state, "llama-embedding -m x.gguf")->n_ctx, 512);
}

/* ---- what is kept ---- */

static uint32_t rows(void **state, const char *text) {
    (void)wishes(state, text);
    return drop_in.n_outputs_max;
}

static void rows_of_programs(void **state) {
    assert_int_equal(rows(state, "llama-server -m x.gguf"), 4);
    assert_int_equal(rows(state, "llama-server -m x.gguf -np 7"), 7);
    assert_int_equal(rows(state, "llama-server -m x.gguf -np 8 -b 4"), 8);
    assert_int_equal(rows(state, "llama-server -m x.gguf -np 2 --spec-type ngram-simple"), 2 * 49);
    assert_int_equal(rows(state, "llama-server -m x.gguf -np 2 --spec-type ngram-simple --spec-ngram-simple-size-m 5"),
                     2 * 6);
    assert_int_equal(rows(state, "llama-server -m x.gguf -np 2 --spec-type ngram-map-k --spec-ngram-map-k-size-m 7"),
                     2 * 8);
    assert_int_equal(
        rows(state, "llama-server -m x.gguf -np 2 --spec-type ngram-map-k4v --spec-ngram-map-k4v-size-m 9"), 2 * 10);
    assert_int_equal(rows(state, "llama-server -m x.gguf -np 2 --spec-type ngram-cache"), 2 * 9);
    assert_int_equal(rows(state, "llama-server -m x.gguf --spec-ngram-mod-n-max 9 --spec-type ngram-mod"), 4 * 10);
    assert_int_equal(rows(state, "llama-server -m x.gguf --spec-ngram-mod-n-max 9 --spec-default"), 4 * 65);
    assert_int_equal(rows(state, "llama-server -m x.gguf -b 100 --spec-default"), 100);
    assert_int_equal(rows(state, "llama-server -m x.gguf --embedding"), 512);
    assert_true(drop_in.embeddings);
    assert_int_equal(drop_in.wishes.n_ubatch, 512); /* a text is one micro-batch: that is not the plan's to lower */
    assert_false(drop_in.wishes.chat);
    assert_int_equal(rows(state, "llama-server -m x.gguf --rerank -ub 1024"), 1024);
    assert_int_equal(rows(state, "llama-server -m x.gguf --pooling mean"), 512);
    assert_int_equal(rows(state, "llama-server -m x.gguf --pooling none"), 4);
    assert_int_equal(rows(state, "llama-cli -m x.gguf"), 1);
    assert_int_equal(rows(state, "llama-completion -m x.gguf"), 1);
    assert_int_equal(rows(state, "llama-embedding -m x.gguf -b 512 -c 256"), 512);
    assert_int_equal(rows(state, "llama-embedding -m x.gguf -b 64 -c 64"), 256); /* a row for each sequence */
    dense.facts.encoder = true;
    assert_int_equal(rows(state, "llama-server -m x.gguf"), 512);
    assert_true(drop_in.embeddings);
}

/* Half a chunk is scored: the first half is context alone. */
static void rows_of_perplexity(void **state) {
    assert_int_equal(rows(state, "llama-perplexity -m x.gguf -f t"), 256);
    assert_int_equal(rows(state, "llama-perplexity -m x.gguf -f t -c 301"), 151);
    assert_int_equal(rows(state, "llama-perplexity -m x.gguf -f t -c 128 -b 512"), 4 * 64);
    /* a batch less than a chunk, and the copies of all of them */
    assert_int_equal(rows(state, "llama-perplexity -m x.gguf -f t -c 512 -b 128"), 128 + 256);
    assert_int_equal(rows(state, "llama-perplexity -m x.gguf -f t -c 512 -b 384"), 256 + 256);
    /* log probabilities of 16 bits, of a whole chunk */
    assert_int_equal(rows(state, "llama-perplexity -m x.gguf -f t --save-all-logits l"), 256 + 256);
    assert_int_equal(rows(state, "llama-perplexity -m x.gguf -f t --kl-divergence --kl-divergence-base l"), 256 + 256);
    /* every token of a batch, and of the context */
    assert_int_equal(rows(state, "llama-perplexity -m x.gguf -f t --hellaswag"), 2048 + 2048);
    assert_int_equal(rows(state, "llama-perplexity -m x.gguf -f t --ppl-stride 64"), 2048 + 4 * 768);
}

/* What a server keeps beside the model: in the wishes that its plan is made with. */
static bt_wishes beside(void **state, const char *text) {
    (void)wishes(state, text);
    return bt_drop_in_wishes(&drop_in, &effective, &dense.facts, 5);
}

static void kept_beside(void **state) {
    bt_wishes w = beside(state, "llama-server -m x.gguf");
    assert_int_equal(w.prompt_cache_bytes, 0); /* the line says 0 then */
    assert_int_equal(w.checkpoint_bytes, 0);
    assert_int_equal(w.adapter_bytes, 5);
    w = beside(state, "llama-server -m x.gguf -np 1 -c 4096 -cram 100 -ctxcp 8");
    assert_int_equal(w.prompt_cache_bytes, 100 * KIT_MIB);
    assert_int_equal(drop_in.n_checkpoints, 8);
    assert_int_equal(w.checkpoint_bytes, 0); /* no window and no state: a checkpoint of this model is empty */
    dense.facts.kv[0].window = 1024;         /* 1024 + 512 cells of 4 KiB */
    w = bt_drop_in_wishes(&drop_in, &effective, &dense.facts, 0);
    assert_int_equal(w.checkpoint_bytes, UINT64_C(8) * 1536 * 4096);
    drop_in.swa_full = true;
    w = bt_drop_in_wishes(&drop_in, &effective, &dense.facts, 0);
    assert_int_equal(w.checkpoint_bytes, 0);
    w = beside(state, "llama-server -m x.gguf -np 2 --spec-default");
    assert_int_equal(w.adapter_bytes, 5 + 16 * KIT_MIB);
    assert_int_equal(drop_in.n_checkpoints, 2); /* guesses are taken back from one */
    w = beside(state, "llama-server -m x.gguf -np 2 --spec-type ngram-map-k,ngram-map-k4v");
    assert_int_equal(w.adapter_bytes, 5 + 4 * KIT_MIB);
    w = beside(state, "llama-completion -m x.gguf -np 4");
    assert_int_equal(w.prompt_cache_bytes + w.checkpoint_bytes, 0);
    assert_int_equal(w.adapter_bytes, 5);
}

#define IN_ARENA(test) cmocka_unit_test_setup_teardown(test, start, argv_close_arena)

int main(void) {
    const struct CMUnitTest tests[] = {IN_ARENA(no_local_model),
                                       IN_ARENA(other_programs),
                                       IN_ARENA(off_the_device),
                                       IN_ARENA(past_the_budget),
                                       IN_ARENA(second_models),
                                       IN_ARENA(what_the_program_refuses),
                                       IN_ARENA(refused_from_elsewhere),
                                       IN_ARENA(allowed),
                                       IN_ARENA(server_lines),
                                       IN_ARENA(other_lines),
                                       IN_ARENA(perplexity_lines),
                                       IN_ARENA(embedding_lines),
                                       IN_ARENA(lines_from_elsewhere),
                                       IN_ARENA(planned_otherwise),
                                       IN_ARENA(nothing_to_append_to),
                                       IN_ARENA(open_wishes),
                                       IN_ARENA(set_wishes),
                                       IN_ARENA(rows_of_programs),
                                       IN_ARENA(rows_of_perplexity),
                                       IN_ARENA(kept_beside)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
