/* SPDX-License-Identifier: MIT
 * test_rewrite.c: other values in a command line, and every other element the very same. Cases of the research notes
 * bear their numbers; what is decided before the rewriting is tested elsewhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define ARGV_CHECK(condition) assert_true(condition)
#include "argv_kit.h"

static line words;
static bt_rewrite rewrite;
static bt_error err;

/* The part of a command that its program reads. */
static void open_line(void **state, const char *text) {
    static bt_command command;
    const bt_argv *view = NULL;
    bt_command_find(line_split(&words, text), &command);
    bt_program program = command.program == BT_PROGRAM_NONE ? BT_PROGRAM_SERVER : command.program;
    assert_int_equal(bt_argv_parse(*state, words.argv, command.first, program, &view, &err), BT_OK);
    assert_int_equal(bt_rewrite_open(&rewrite, *state, view, &err), BT_OK);
}

static void set(bt_flag_id flag, const char *value) {
    assert_int_equal(bt_rewrite_set(&rewrite, flag, value, &err), BT_OK);
}

static void hold(const char *expected) {
    char text[LINE_TEXT_MAX] = "";
    for (uint32_t i = 0; i < rewrite.n_argv; i++) {
        if (i > 0) (void)strcat(text, " ");
        (void)strcat(text, rewrite.argv[i]);
    }
    assert_string_equal(text, expected);
    argv_check_same(&rewrite);
}

/* The input is as it was, to the byte. */
static void hold_input(const char *text) {
    line fresh;
    char *const *argv = line_split(&fresh, text);
    for (uint32_t i = 0; i <= fresh.n; i++) {
        if (argv[i])
            assert_string_equal(words.argv[i], argv[i]);
        else
            assert_null(words.argv[i]);
    }
}

static void t2_in_place(void **state) {
    open_line(state, "-m x.gguf -ngl 99 --n-cpu-moe 12");
    set(BT_FLAG_N_CPU_MOE, "40");
    hold("-m x.gguf -ngl 99 --n-cpu-moe 40");
    assert_string_equal(rewrite.edits[0].old_text, "12");
    assert_string_equal(rewrite.edits[0].new_text, "40");
    assert_int_equal(rewrite.edits[0].at, 5);
    hold_input("-m x.gguf -ngl 99 --n-cpu-moe 12");
}

static void t3_nothing_appended(void **state) {
    open_line(state, "-m x.gguf -ngl 32");
    assert_int_equal(bt_rewrite_set_int(&rewrite, BT_FLAG_GPU_LAYERS, 10, &err), BT_OK);
    hold("-m x.gguf -ngl 10");
}

static void t4_appended(void **state) {
    open_line(state, "-m x.gguf -ngl 99");
    set(BT_FLAG_N_CPU_MOE, "8");
    hold("-m x.gguf -ngl 99 --n-cpu-moe 8");
    assert_true(rewrite.edits[0].appended);
    assert_int_equal(rewrite.edits[0].at, 4);
    assert_null(rewrite.edits[0].old_text);
    hold_input("-m x.gguf -ngl 99");
}

static void t5_t6_unchanged(void **state) {
    static const char *const lines[] = {"-m x.gguf -ngl 99 --n-cpu-moe 12", "--model /models/flux.safetensors -ngl 10",
                                        "docker run -m 8g image llama-server -m x.gguf", "", "'' -c ''"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        open_line(state, lines[i]);
        assert_int_equal(rewrite.n_edits, 0);
        assert_int_equal(rewrite.n_argv, words.n);
        for (uint32_t e = 0; e <= words.n; e++)
            assert_ptr_equal(rewrite.argv[e], words.argv[e]);
    }
}

static void t7_other_engine(void **state) {
    open_line(state, "sd-server --diffusion-model flux.gguf --max-vram 6.5 --vae-tiling");
    set(BT_FLAG_SD_MAX_VRAM, "4.5");
    hold("sd-server --diffusion-model flux.gguf --max-vram 4.5 --vae-tiling");
    open_line(state, "sam3-server model.ggml --port 80 7");
    assert_int_equal(bt_rewrite_append(&rewrite, BT_FLAG_SAM_NO_GPU, NULL, NULL, &err), BT_OK);
    hold("sam3-server model.ggml --port 80 7 --no-gpu");
}

static void t9_context(void **state) {
    open_line(state, "-m x.gguf -c 32768 -ngl 99");
    set(BT_FLAG_CTX_SIZE, "24576");
    hold("-m x.gguf -c 24576 -ngl 99");
}

static void t12_split(void **state) {
    open_line(state, "-sm layer --main-gpu 0 --tensor-split 0.5,0.5");
    set(BT_FLAG_MAIN_GPU, "1");
    set(BT_FLAG_TENSOR_SPLIT, "0.06,0.94");
    hold("-sm layer --main-gpu 1 --tensor-split 0.06,0.94");
    assert_int_equal(rewrite.n_edits, 2);
}

static void spelling_is_kept(void **state) {
    open_line(state, "llama-server --ctx_size 1 -ncmoe 2 --gpu-layers 3 --n-gpu-layers 4 --cache_ram=5 -ub=6");
    set(BT_FLAG_CTX_SIZE, "10");
    set(BT_FLAG_N_CPU_MOE, "20");
    set(BT_FLAG_GPU_LAYERS, "-1");
    set(BT_FLAG_CACHE_RAM, "50");
    set(BT_FLAG_UBATCH, "60");
    hold("llama-server --ctx_size 10 -ncmoe 20 --gpu-layers 3 --n-gpu-layers -1 --cache_ram=50 -ub=60");
    assert_string_equal(rewrite.edits[3].old_text, "5");
    assert_string_equal(rewrite.edits[3].new_text, "50");
}

static void twice(void **state) {
    open_line(state, "-c 1 --batch-size=2");
    set(BT_FLAG_CTX_SIZE, "5");
    set(BT_FLAG_CTX_SIZE, "6");
    set(BT_FLAG_BATCH, "7");
    set(BT_FLAG_BATCH, "8");
    set(BT_FLAG_SLOTS, "2");
    set(BT_FLAG_SLOTS, "1");
    hold("-c 6 --batch-size=8 --parallel 1");
    assert_int_equal(rewrite.n_edits, 3);
    assert_string_equal(rewrite.edits[0].old_text, "1");
    assert_string_equal(rewrite.edits[0].new_text, "6");
    assert_string_equal(rewrite.edits[2].new_text, "1");
}

static void behind_wrappers(void **state) {
    open_line(state, "docker run -m 8g -c 512 -e A=1 image llama-server -m x.gguf");
    set(BT_FLAG_CTX_SIZE, "4096");
    set(BT_FLAG_MODEL, "y.gguf");
    hold("docker run -m 8g -c 512 -e A=1 image llama-server -m y.gguf --ctx-size 4096");
    open_line(state, "taskset -c 0 nice llama-server -c 1");
    set(BT_FLAG_CTX_SIZE, "2");
    hold("taskset -c 0 nice llama-server -c 2");
}

static void appended(void **state) {
    open_line(state, "llama-server -ot a=CPU");
    assert_int_equal(bt_rewrite_append(&rewrite, BT_FLAG_OVERRIDE_TENSOR, "-ot", "b=CPU", &err), BT_OK);
    assert_int_equal(bt_rewrite_append(&rewrite, BT_FLAG_KV_OFFLOAD, "--no-kv-offload", NULL, &err), BT_OK);
    set(BT_FLAG_FLASH_ATTN, "on");
    hold("llama-server -ot a=CPU -ot b=CPU --no-kv-offload --flash-attn on");
}

/* Nothing is put behind what might swallow it, and nothing is changed that has no single value. */
static void refused(void **state) {
    static const struct {
        const char *text;
        bt_flag_id flag;
    } rows[] = {
        {"-m x.gguf -ngl", BT_FLAG_CTX_SIZE},
        {"-m x.gguf -ngl", BT_FLAG_GPU_LAYERS},
        {"-m x.gguf --newer", BT_FLAG_CTX_SIZE},
        {"-m x.gguf -fa", BT_FLAG_FLASH_ATTN},
        {"-m x.gguf", BT_FLAG_CPU_MOE},
        {"-m x.gguf -nkvo", BT_FLAG_KV_OFFLOAD},
        {"--control-vector-layer-range 1 2", BT_FLAG_CONTROL_VECTOR_RANGE},
        {"--lora-scaled a 0.5", BT_FLAG_LORA_SCALED},
        {"-m x.gguf", BT_FLAG_SD_MAX_VRAM},
        {"-m x.gguf", BT_FLAG_OLD_DRAFT_CTX_SIZE},
        {"llama-perplexity -m x.gguf", BT_FLAG_CACHE_RAM},
        {"llama-bench -ngl 1", BT_FLAG_GPU_LAYERS},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        open_line(state, rows[i].text);
        memset(&err, 0, sizeof err);
        assert_int_equal(bt_rewrite_set(&rewrite, rows[i].flag, "1", &err), BT_E_ARG);
        assert_string_equal(err.code, "option");
        assert_int_equal(rewrite.n_edits, 0);
        hold(rows[i].text);
    }
    /* in place is not behind */
    open_line(state, "-c 5 --newer");
    set(BT_FLAG_CTX_SIZE, "6");
    hold("-c 6 --newer");
}

static void limits(void **state) {
    open_line(state, "-c 5");
    for (uint32_t i = 0; i < BT_EDIT_MAX; i++)
        assert_int_equal(bt_rewrite_append(&rewrite, BT_FLAG_OVERRIDE_TENSOR, NULL, "x=CPU", &err), BT_OK);
    assert_int_equal(rewrite.n_argv, 2 + 2 * BT_EDIT_MAX);
    assert_int_equal(bt_rewrite_append(&rewrite, BT_FLAG_CPU_MOE, NULL, NULL, &err), BT_E_ARG);
    assert_int_equal(bt_rewrite_set(&rewrite, BT_FLAG_CTX_SIZE, "6", &err), BT_E_ARG);
    assert_int_equal(rewrite.n_argv, 2 + 2 * BT_EDIT_MAX);

    open_line(state, "-c 5");
    bt_rewrite small = rewrite;
    small.arena = bt_arena_open(64, 64);
    if (small.arena) {
        static char long_value[5000];
        memset(long_value, '1', sizeof long_value - 1);
        assert_int_equal(bt_rewrite_set(&small, BT_FLAG_CTX_SIZE, long_value, &err), BT_E_NOMEM);
        assert_int_equal(small.n_edits, 0);
        assert_ptr_equal(small.argv[1], words.argv[1]);
        bt_arena_close(small.arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_ARENA(t2_in_place),     WITH_ARENA(t3_nothing_appended),
        WITH_ARENA(t4_appended),     WITH_ARENA(t5_t6_unchanged),
        WITH_ARENA(t7_other_engine), WITH_ARENA(t9_context),
        WITH_ARENA(t12_split),       WITH_ARENA(spelling_is_kept),
        WITH_ARENA(twice),           WITH_ARENA(behind_wrappers),
        WITH_ARENA(appended),        WITH_ARENA(refused),
        WITH_ARENA(limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
