/* SPDX-License-Identifier: MIT
 * test_guard_settings.c: what the guard reads from a command against what the programs themselves make of it.
 *
 *   refusals: a command that ends with --version. The program reads everything before, and ends with 0, or with 1 if it
 *             refuses any of it; the guard has to say which. Listed cases, and random ones (BT_SEED=n replays).
 *   contexts: a command that loads a model, up to the lines in which libllama says what its context has.
 *
 * The commands are started as they are given to the guard, wrappers included: "env -i VARIABLE=... program ...". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define ARGV_CHECK(condition) assert_true(condition)
#include "argv_kit.h"
#include "model/types.h"
#include "program_kit.h"
#include "random.h"

#include <inttypes.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CONFIG_FOLDER BT_TEST_OUT "/guard-settings"
#define CONFIG_FILE   CONFIG_FOLDER "/llama.cpp/config.ini"
#define N_RANDOM      150

static line words;
static bt_command command;
static const bt_argv *view;
static bt_effective e;
static bt_arena *arena;
static char program_path[BT_PROGRAM_COUNT][1024];
static char model_path[1024];

static bool is_there(const char *path) {
    return access(path, R_OK) == 0;
}

static bt_config_state read_file(void *context, const char *path, const char **ret_text, size_t *ret_n) {
    static char texts[2][8192];
    uint32_t *n_read = context;
    if (!is_there(path)) return BT_CONFIG_ABSENT;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *text = texts[(*n_read)++ % 2];
    *ret_n = fread(text, 1, sizeof texts[0], file);
    *ret_text = text;
    assert_int_equal(fclose(file), 0);
    return BT_CONFIG_READ;
}

static void write_config(const char *text) {
    (void)mkdir(CONFIG_FOLDER, 0700);
    (void)mkdir(CONFIG_FOLDER "/llama.cpp", 0700);
    (void)unlink(CONFIG_FILE);
    if (!text) return;
    FILE *file = fopen(CONFIG_FILE, "wb");
    assert_non_null(file);
    assert_true(fwrite(text, 1, strlen(text), file) == strlen(text));
    assert_int_equal(fclose(file), 0);
}

/* "env -i VARIABLES PROGRAM OPTIONS", with the guard's reading of it. */
static void read_command(const char *variables, bt_program program, const char *options) {
    char text[LINE_TEXT_MAX / 2];
    int n = snprintf(text, sizeof text, "env -i XDG_CONFIG_HOME=" CONFIG_FOLDER "%s%s %s %s", variables[0] ? " " : "",
                     variables, program_path[program], options);
    assert_true(n > 0 && (size_t)n < sizeof text);
    if (arena) bt_arena_close(arena);
    arena = bt_arena_open(UINT64_C(16) << 20, 65536);
    assert_non_null(arena);
    bt_command_find(line_split(&words, text), &command);
    assert_int_equal(command.program, program);
    assert_int_equal(bt_argv_parse(arena, words.argv, command.first, command.program, &view, NULL), BT_OK);
    uint32_t n_read = 0;
    bt_effective_input input = {&command, view, NULL, NULL, read_file, &n_read};
    assert_int_equal(bt_effective_resolve(arena, &input, &e, NULL), BT_OK);
}

/* ---- refusals --------------------------------------------------------------------------------------------------- */

static bool program_takes(void) {
    char output[4096];
    int status = 0;
    FILE *pipe_end;
    pid_t pid = program_start(words.argv, &pipe_end);
    while (fgets(output, sizeof output, pipe_end)) {
    }
    (void)fclose(pipe_end);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) <= 1);
    return WEXITSTATUS(status) == 0;
}

static bool guard_takes(void) {
    return e.n_bad == 0 && !e.earlier_build &&
           view->n_unknown + view->n_foreign + view->n_stray + view->n_attached == 0;
}

static bool hold_refusal(const char *variables, const char *options) {
    char text[2000];
    (void)snprintf(text, sizeof text, "%s%s--version", options, options[0] ? " " : "");
    read_command(variables, BT_PROGRAM_SERVER, text);
    bool takes = program_takes();
    if (takes != guard_takes())
        fail_msg("'%s' '%s': the program %s it (%s)", variables, options, takes ? "takes" : "refuses",
                 e.n_notes > 0 ? e.notes[e.n_notes - 1] : "no note");
    return takes;
}

static void refusals_listed(void **state) {
    (void)state;
    static const char *const options[] = {
        "-c 5",
        "-c 5k",
        "-c k",
        "-c ''",
        "-c -5",
        "-c 2147483648",
        "--ctx_size 5",
        "--ctx-size=5",
        "-np 0",
        "-np -1",
        "-ngl all",
        "-ngl ALL",
        "-ngl -7",
        "-ngl 9x",
        "-ctk q8_0",
        "-ctk Q8_0",
        "-ctk q4_K",
        "-fa on",
        "-fa",
        "-fa 2",
        "-fa enabled",
        "-fit on",
        "-fit auto",
        "-fitt 5,6",
        "-fitt a",
        "-fitt 5/6",
        "-ts 1,2",
        "-ts a",
        "-ts 1//2",
        "-ts ,1",
        "-ts ''",
        "-sm row",
        "-sm both",
        "-lm dio",
        "-lm fast",
        "-lzm on",
        "-lzm true",
        "--no-mmap",
        "--mlock",
        "-cms -1",
        "-cms 0",
        "-ncmoe -1",
        "-ncmoe 3",
        "-cmoe",
        "-ot a=CPU",
        "-ot a",
        "-ot a=CPU,",
        "-otd a=CPU",
        "--pooling rank",
        "--pooling x",
        "--rope-scaling yarn",
        "--rope-scaling x",
        "--rope-scale 4",
        "--rope-scale x",
        "--rope-scale 1e39",
        "--sleep-idle-seconds 0",
        "--sleep-idle-seconds -1",
        "--sleep-idle-seconds -2",
        "--spec-type none",
        "--spec-type draft-mtp,ngram-mod",
        "--spec-type x",
        "--spec-draft-n-max -1",
        "--lora a",
        "--lora-scaled a:0.5",
        "--lora-scaled a",
        "--lora-scaled a 0.5",
        "--lora-scaled a:b:0.5",
        "--control-vector-scaled a:x",
        "--draft 5",
        "--draft-max 5",
        "--new",
        "--new 5",
        "stray",
        "-p x",
        "-nkvo",
        "-mmdev none",
        "-dev none",
        "-a -ngl",
        "-m -c",
        "--control-vector-layer-range 1 2",
        "-cram 5 -cram x",
        "-",
        "--",
        "''",
        "-kvu -no-kvu",
        "-cd 5",
        "-dio",
        "--temp 1",
        "--port 8080",
        "--no-host",
        "-ngld auto",
        "-ub -5",
        "--fit-ctx x",
        "--override-kv a=int:5",
        "--image-max-tokens x",
        "--mtmd-batch-max-tokens 5",
        "-mg x",
        "-mg -1",
        "--spec-ngram-size-n 5",
    };
    uint32_t n_taken = 0;
    write_config(NULL);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        n_taken += hold_refusal("", options[i]);
    assert_in_range(n_taken, 30, sizeof options / sizeof *options - 30);
}

static void refusals_of_variables(void **state) {
    (void)state;
    static const char *const variables[] = {
        "LLAMA_ARG_CTX_SIZE=5",     "LLAMA_ARG_CTX_SIZE=x",     "LLAMA_ARG_CTX_SIZE=",       "LLAMA_ARG_KV_OFFLOAD=on",
        "LLAMA_ARG_KV_OFFLOAD=yes", "LLAMA_ARG_NO_KV_OFFLOAD=", "LLAMA_ARG_SWA_FULL=maybe",  "LLAMA_ARG_FLASH_ATTN=x",
        "LLAMA_ARG_NO_MMAP=1",      "LLAMA_ARG_DRAFT_MAX=1",    "LLAMA_ARG_N_PARALLEL=0",    "LLAMA_ARG_UNHEARD_OF=1",
        "LLAMA_ARG_CPU_MOE=x",      "LLAMA_ARG_N_CPU_MOE=-1",   "LLAMA_ARG_LOAD_MODE=mlock", "LLAMA_ARG_FIT=auto",
    };
    write_config(NULL);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        (void)hold_refusal(variables[i], "");
}

static void refusals_of_files(void **state) {
    (void)state;
    static const char *const files[] = {
        "ctx-size=5\n",
        "ctx-size=x\n",
        " ctx-size=5\n",
        "ctx-size\n",
        "c=5 ; x\n",
        "unheard-of=1\n",
        "[x\n",
        "[x] y\n",
        "[x]\nc=x\n",
        "[*]\nc=x\n",
        "[default]\nc=x\n",
        "c=x\n[default]\n",
        "kv-offload=x\n",
        "swa-full=0\n",
        "LLAMA_ARG_CTX_SIZE=x\n",
        "--ctx-size=5\n",
        "ctx_size=x\n",
        "c=x\nctx-size=5\n",
        "ctx-size=x\nc=5\n",
        "c=5\rb=x",
        "9=1\n",
        "load-mode=mlock\n",
        "# x\n;\n\n",
        "control-vector-layer-range=1\n",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        write_config(files[i]);
        (void)hold_refusal("", "");
    }
    write_config(NULL);
}

static void refusals_at_random(void **state) {
    (void)state;
    static const char *const options[] = {"-c",
                                          "--ctx_size",
                                          "-np",
                                          "-ngl",
                                          "-ctk",
                                          "-fit",
                                          "-fitt",
                                          "-ts",
                                          "-sm",
                                          "-lm",
                                          "-lzm",
                                          "-cms",
                                          "-ncmoe",
                                          "-cmoe",
                                          "-ot",
                                          "--pooling",
                                          "--rope-scaling",
                                          "--rope-scale",
                                          "-nkvo",
                                          "--swa-full",
                                          "-ub",
                                          "--lora",
                                          "--lora-scaled",
                                          "--spec-type",
                                          "-cram",
                                          "-mg",
                                          "-dev",
                                          "-m",
                                          "--control-vector-layer-range"};
    static const char *const values[] = {"5",    "-1",        "0",    "all",   "q8_0",  "on",  "auto",
                                         "1,2",  "row",       "none", "mlock", "a=CPU", "a:1", "rank",
                                         "yarn", "draft-mtp", "-c",   "5x",    "-nkvo", "x"};
    const char *fixed = getenv("BT_SEED");
    uint64_t seed = fixed ? strtoull(fixed, NULL, 10) : (uint64_t)time(NULL);
    print_message("BT_SEED=%" PRIu64 "\n", seed);
    uint32_t n_taken = 0;
    for (uint32_t i = 0; i < N_RANDOM; i++) {
        char text[1000] = "";
        for (uint64_t n = 1 + random_next(&seed) % 3; n > 0; n--) {
            const char *option = options[random_next(&seed) % (sizeof options / sizeof *options)];
            bt_flag_id flag = bt_flag_find(BT_PROGRAM_SERVER, option, strlen(option), NULL);
            uint64_t arity = bt_flag_arity(flag);
            if (random_next(&seed) % 16 == 0) arity = 1 - (arity > 0);
            (void)strcat(strcat(text, text[0] ? " " : ""), option);
            for (; arity > 0; arity--)
                (void)strcat(strcat(text, " "), values[random_next(&seed) % (sizeof values / sizeof *values)]);
        }
        /* devices must exist, a range must be numbers, and --version may become a value: not what is asked here */
        if (strstr(text, "-dev") && !strstr(text, "-dev none")) continue;
        if (strstr(text, "range")) continue;
        (void)strcat(text, " -a x"); /* so that --version is never one, which would start a server */
        n_taken += hold_refusal("", text);
    }
    assert_in_range(n_taken, 10, N_RANDOM - 10);
}

/* ---- contexts --------------------------------------------------------------------------------------------------- */

static int pad(int n) {
    return (n + 255) / 256 * 256; /* GGML_PAD(n, 256) of src/llama-context.cpp */
}

static void hold_context(bt_program program, const char *config, const char *variables, const char *options) {
    char text[2000];
    program_context said;
    write_config(config);
    (void)snprintf(text, sizeof text, "-m %s%s%s -lv 5 -t 1 --no-warmup --fit off%s", model_path, options[0] ? " " : "",
                   options, program == BT_PROGRAM_SERVER ? " --port 18793" : " -p x");
    read_command(variables, program, text);
    program_context_read(words.argv, &said);
    if (!said.whole) fail_msg("%s %s said nothing of its context", bt_program_name(program), options);
    print_message("%s %s %s: %d sequences, %d tokens\n", bt_program_name(program), variables, options, said.n_seq,
                  said.n_ctx);
    int ctx = e.ctx.value > 0 ? e.ctx.value : 8192; /* what the model was trained with */
    bool unified = e.kv_unified.value != 0;
    int n_ctx = unified ? pad(ctx) : pad(pad(ctx) / e.slots.value) * e.slots.value;
    assert_int_equal(said.n_seq, e.slots.value);
    assert_int_equal(said.n_ctx, n_ctx);
    assert_int_equal(said.n_batch, e.batch.value < ctx ? e.batch.value : ctx); /* of a causal model */
    assert_int_equal(said.n_ubatch, e.ubatch.value < said.n_batch ? e.ubatch.value : said.n_batch);
    assert_string_equal(said.unified, unified ? "true" : "false");
    static const char *const flash[] = {"auto", "enabled", "disabled"};
    assert_string_equal(said.flash, flash[e.flash.value]);
    assert_string_equal(said.type_k, bt_type_name((uint32_t)e.cache_k.value));
    assert_string_equal(said.type_v, bt_type_name((uint32_t)e.cache_v.value));
    double scale = e.rope_freq_scale.text ? e.rope_freq_scale.real : 1;
    assert_true(said.freq_scale > scale * 0.99 && said.freq_scale < scale * 1.01);
    if (e.rope_freq_base.text)
        assert_true(said.freq_base > e.rope_freq_base.real * 0.99 && said.freq_base < e.rope_freq_base.real * 1.01);
}

static void contexts(void **state) {
    (void)state;
    if (!is_there(model_path)) {
        print_message("skipped: no model\n");
        skip();
    }
    hold_context(BT_PROGRAM_SERVER, NULL, "", "");
    hold_context(BT_PROGRAM_SERVER, NULL, "", "-c 32k -np 3");
    hold_context(BT_PROGRAM_SERVER, NULL, "", "-c 4096 -c 1024 -ub 128 -ctk q8_0 -fa on");
    hold_context(BT_PROGRAM_SERVER, NULL, "", "-c 2048 -np 4 -kvu -no-kvu -fa off");
    hold_context(BT_PROGRAM_SERVER, NULL, "", "--kv_unified_per_slot 300 -np 2 -b 64");
    hold_context(BT_PROGRAM_SERVER, NULL, "", "-c 512 -fa auto --rope-scale 2 --rope-freq-base 5000");
    hold_context(BT_PROGRAM_SERVER, NULL, "", "-c 512 --rope-freq-scale 0.25 --rope-scale 8");
    hold_context(BT_PROGRAM_SERVER, NULL, "LLAMA_ARG_CTX_SIZE=1024 LLAMA_ARG_N_PARALLEL=2 LLAMA_ARG_UBATCH=64", "");
    hold_context(BT_PROGRAM_SERVER, NULL, "LLAMA_ARG_CTX_SIZE=1024 LLAMA_ARG_NO_KV_UNIFIED=0 LLAMA_ARG_N_PARALLEL=2",
                 "-c 512 -b 100");
    hold_context(BT_PROGRAM_SERVER, "[*]\nc=2048\nb=700\nubatch-size=70\n[default]\nctx-size=1536\nparallel=2\n",
                 "LLAMA_ARG_BATCH=600", "");
    hold_context(BT_PROGRAM_SERVER, "c=700\nctx-size=900\nno-kv-unified=0\nnp=2\n", "", "-ub 33");
    hold_context(BT_PROGRAM_SERVER, "c=700\n[default]\nb=900\n", "", "");
    hold_context(BT_PROGRAM_SERVER, NULL, "", "-c 2048 --embedding -b 1024 -ub 256 -np 1");
    hold_context(BT_PROGRAM_SERVER, NULL, "", "-c 512 -ub 4096 -b 300");
    hold_context(BT_PROGRAM_COMPLETION, "np=2\n", "", "-c 1024");
    hold_context(BT_PROGRAM_COMPLETION, NULL, "LLAMA_ARG_CTX_SIZE=700", "");
    hold_context(BT_PROGRAM_PERPLEXITY, NULL, "", "");
    hold_context(BT_PROGRAM_PERPLEXITY, NULL, "", "-c 100 -b 250");
    hold_context(BT_PROGRAM_PERPLEXITY, NULL, "", "-c 4096 -ub 64 -ctv q8_0 -fa on");
    write_config(NULL);
}

int main(void) {
    const char *folder = getenv("BT_LLAMA_BIN");
    const char *source = getenv("BT_SOURCE");
    if (!folder || !source) {
        print_message("skipped: BT_LLAMA_BIN or BT_SOURCE is not set\n");
        return 77;
    }
    for (uint32_t i = 1; i < BT_PROGRAM_COUNT; i++)
        (void)snprintf(program_path[i], sizeof program_path[i], "%s/%s", folder, bt_program_name((bt_program)i));
    (void)snprintf(model_path, sizeof model_path, "%s/build/models/smollm2-135m-instruct-q4_1.gguf", source);
    if (!is_there(program_path[BT_PROGRAM_SERVER])) {
        print_message("skipped: llama-server is not built\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals_listed),   cmocka_unit_test(refusals_of_variables),
        cmocka_unit_test(refusals_of_files), cmocka_unit_test(refusals_at_random),
        cmocka_unit_test(contexts),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (arena) bt_arena_close(arena);
    return failed;
}
