/* SPDX-License-Identifier: MIT
 * test_argv.c: which element of a command line is which option, and the traps in that. Cases of the research notes bear
 * their numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define ARGV_CHECK(condition) assert_true(condition)
#include "argv_kit.h"

static line words;

static const bt_argv *parse_of(void **state, bt_program program, uint32_t first, const char *text) {
    const bt_argv *view = NULL;
    bt_error err;
    assert_int_equal(bt_argv_parse(*state, line_split(&words, text), first, program, &view, &err), BT_OK);
    argv_check_cover(view);
    return view;
}

static const bt_argv *parse(void **state, const char *text) {
    return parse_of(state, BT_PROGRAM_SERVER, 0, text);
}

static void hold_text(const bt_argv *view, bt_flag_id flag, const char *expected) {
    const char *text = NULL;
    bt_reading reading = bt_argv_text(view, flag, &text);
    if (!expected) {
        assert_int_equal(reading, BT_VALUE_ABSENT);
    } else {
        assert_int_equal(reading, BT_VALUE_GIVEN);
        assert_string_equal(text, expected);
    }
}

static void hold_int(const bt_argv *view, bt_flag_id flag, int32_t expected) {
    int32_t value = expected + 1;
    assert_int_equal(argv_int(view, flag, &value), BT_VALUE_GIVEN);
    assert_int_equal(value, expected);
}

static void t1_read(void **state) {
    const bt_argv *view = parse(state, "-m /models/qwen.gguf -ngl 99 -c 8192 -ctk q8_0 -ctv q8_0 --no-kv-offload "
                                       "--spec-type draft-mtp --ctx-checkpoints 0 --n-cpu-moe 12");
    bool on = true;
    hold_text(view, BT_FLAG_MODEL, "/models/qwen.gguf");
    hold_int(view, BT_FLAG_GPU_LAYERS, 99);
    hold_int(view, BT_FLAG_CTX_SIZE, 8192);
    hold_text(view, BT_FLAG_CACHE_TYPE_K, "q8_0");
    hold_text(view, BT_FLAG_CACHE_TYPE_V, "q8_0");
    assert_int_equal(argv_on(view, BT_FLAG_KV_OFFLOAD, &on), BT_VALUE_GIVEN);
    assert_false(on);
    hold_text(view, BT_FLAG_SPEC_TYPE, "draft-mtp");
    hold_int(view, BT_FLAG_CHECKPOINTS, 0);
    hold_int(view, BT_FLAG_N_CPU_MOE, 12);
    hold_text(view, BT_FLAG_MMPROJ, NULL);
    assert_int_equal(view->n_unknown + view->n_stray + view->n_attached, 0);
    assert_false(view->open);
}

static void t9_slots(void **state) {
    int32_t slots = 7;
    hold_int(parse(state, "-m x.gguf -np 4"), BT_FLAG_SLOTS, 4);
    hold_int(parse(state, "-m x.gguf --parallel -1"), BT_FLAG_SLOTS, -1);
    assert_int_equal(argv_int(parse(state, "-m x.gguf"), BT_FLAG_SLOTS, &slots), BT_VALUE_ABSENT);
    assert_int_equal(slots, 7);
}

/* What looks like an option is a value where one is due (G8). */
static void values_that_look_like_options(void **state) {
    const bt_argv *view = parse(state, "-m -c -ngl -1 --host --port --port 8080 -a -ngl");
    hold_text(view, BT_FLAG_MODEL, "-c");
    hold_int(view, BT_FLAG_GPU_LAYERS, BT_LAYERS_AUTO);
    hold_text(view, BT_FLAG_HOST, "--port");
    hold_int(view, BT_FLAG_PORT, 8080);
    hold_text(view, BT_FLAG_ALIAS, "-ngl");
    hold_text(view, BT_FLAG_CTX_SIZE, NULL);
    hold_int(parse(state, "-ngl -99"), BT_FLAG_GPU_LAYERS, BT_LAYERS_ALL);
    hold_int(parse(state, "-cram -1 -c -5"), BT_FLAG_CTX_SIZE, -5);
}

static void two_values(void **state) {
    const bt_argv *view = parse(state, "--control-vector-layer-range -c -ngl -c 5");
    const bt_occurrence *o = bt_argv_last(view, BT_FLAG_CONTROL_VECTOR_RANGE);
    assert_string_equal(o->value, "-c");
    assert_string_equal(o->value_2, "-ngl");
    hold_int(view, BT_FLAG_CTX_SIZE, 5);
    hold_text(view, BT_FLAG_GPU_LAYERS, NULL);

    view = parse(state, "--lora-scaled a.gguf 0.5 -c 1");
    o = bt_argv_last(view, BT_FLAG_LORA_SCALED);
    assert_string_equal(o->value_2, "0.5");
    hold_int(view, BT_FLAG_CTX_SIZE, 1);
    view = parse(state, "--lora-scaled a.gguf:0.5 -c 1");
    o = bt_argv_last(view, BT_FLAG_LORA_SCALED);
    assert_null(o->value_2);
    hold_int(view, BT_FLAG_CTX_SIZE, 1);
    view = parse(state, "--lora-scaled a.gguf -c 1");
    assert_null(bt_argv_last(view, BT_FLAG_LORA_SCALED)->value_2);
    hold_int(view, BT_FLAG_CTX_SIZE, 1);
    assert_int_equal(parse(state, "--control-vector-scaled C:/a.gguf -0.25")->n_stray, 0);
}

static void flash(void **state) {
    static const struct {
        const char *text;
        const char *value; /* NULL: the bare option of earlier builds */
    } rows[] = {
        {"-fa on -c 7", "on"},
        {"-fa -c 7", NULL},
        {"-fa auto -c 7", "auto"},
        {"-fa 0 -c 7", "0"},
        {"-fa -1 -c 7", "-1"},
        {"-fa true -c 7", "true"},
        {"-c 7 -fa", NULL},
        {"-fa=off -c 7", "off"},
        {"--flash_attn off -c 7", "off"},
        {"--flash-attn disabled -c 7", "disabled"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bt_argv *view = parse(state, rows[i].text);
        const bt_occurrence *o = bt_argv_last(view, BT_FLAG_FLASH_ATTN);
        assert_non_null(o);
        if (rows[i].value)
            assert_string_equal(o->value, rows[i].value);
        else
            assert_null(o->value);
        hold_int(view, BT_FLAG_CTX_SIZE, 7);
        assert_false(view->open);
    }
    assert_int_equal(parse(state, "-fa model.gguf")->n_stray, 1);
}

static void the_last_counts(void **state) {
    bool on = false;
    const bt_argv *view = parse(state, "-c 1 --ctx-size 2 --ctx_size 3 -nkvo -kvo -kvu -no-kvu");
    hold_int(view, BT_FLAG_CTX_SIZE, 3);
    assert_int_equal(argv_on(view, BT_FLAG_KV_OFFLOAD, &on), BT_VALUE_GIVEN);
    assert_true(on);
    assert_int_equal(argv_on(view, BT_FLAG_KV_UNIFIED, &on), BT_VALUE_GIVEN);
    assert_false(on);
    assert_int_equal(argv_on(view, BT_FLAG_REPACK, &on), BT_VALUE_ABSENT);
}

static void all_count(void **state) {
    const bt_argv *view = parse(state, "-ot a=CPU -c 1 --override-tensor b=CUDA0 --override_tensor c=CPU");
    static const char *const expected[] = {"a=CPU", "b=CUDA0", "c=CPU"};
    const bt_occurrence *o = NULL;
    for (uint32_t i = 0; i < 3; i++) {
        o = argv_next(view, BT_FLAG_OVERRIDE_TENSOR, o);
        assert_true(o && o->value && strcmp(o->value, expected[i]) == 0);
    }
    assert_null(argv_next(view, BT_FLAG_OVERRIDE_TENSOR, o));
}

static void attached(void **state) {
    const bt_argv *view = parse(state, "--ctx-size=4096 --n_gpu_layers=all -ts=1,2 --no-mmap=1 --alias=a=b --new=7 x");
    bool on = true;
    hold_int(view, BT_FLAG_CTX_SIZE, 4096);
    hold_int(view, BT_FLAG_GPU_LAYERS, BT_LAYERS_ALL);
    hold_text(view, BT_FLAG_TENSOR_SPLIT, "1,2");
    hold_text(view, BT_FLAG_ALIAS, "a=b");
    assert_int_equal(argv_on(view, BT_FLAG_OLD_MMAP, &on), BT_VALUE_GIVEN);
    assert_false(on);
    assert_int_equal(view->n_attached, 6);
    assert_int_equal(view->n_unknown, 1);
    assert_int_equal(view->n_stray, 1); /* what follows an attached value is not its value */
    hold_text(parse(state, "--ctx-size="), BT_FLAG_CTX_SIZE, "");
    hold_text(parse(state, "-ot x=CPU"), BT_FLAG_OVERRIDE_TENSOR, "x=CPU"); /* '=' in a value is not an attachment */
}

/* Whatever an unknown option takes, what follows is read the same. */
static void unknown(void **state) {
    static const char *const lines[] = {"--new -c 5 -ngl 3",     "--new 7 -c 5 -ngl 3",  "-c 5 -x y -ngl 3 --newer",
                                        "-c 5 --new 7 8 -ngl 3", "-c 5 - -ngl 3",        "-c 5 -- -ngl 3",
                                        "--new -1 -c 5 -ngl 3",  "--models -c 5 -ngl 3", "-c 5 '' -ngl 3"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const bt_argv *view = parse(state, lines[i]);
        hold_int(view, BT_FLAG_CTX_SIZE, 5);
        hold_int(view, BT_FLAG_GPU_LAYERS, 3);
        assert_true(view->n_unknown + view->n_stray > 0);
    }
    assert_true(parse(state, "-c 5 --newer")->open);
    assert_false(parse(state, "-c 5 --newer 7")->open);
    assert_true(parse(state, "--newer --newest")->open);
}

static void ends_too_early(void **state) {
    int32_t value = 9;
    const bt_argv *view = parse(state, "-m x.gguf -c");
    assert_true(view->open);
    assert_int_equal(argv_int(view, BT_FLAG_CTX_SIZE, &value), BT_VALUE_BAD);
    assert_int_equal(value, 9);
    assert_true(parse(state, "--control-vector-layer-range 1")->open);
    view = parse(state, "-c x");
    assert_false(view->open);
    assert_int_equal(argv_int(view, BT_FLAG_CTX_SIZE, &value), BT_VALUE_BAD);
    hold_int(parse(state, "-c 32k"), BT_FLAG_CTX_SIZE, 32); /* so llama.cpp reads it */
}

/* Only what follows the program (G7). */
static void first(void **state) {
    const bt_argv *view = parse_of(state, BT_PROGRAM_SERVER, 5, "docker run -m 8g image -m x.gguf -c 7");
    hold_text(view, BT_FLAG_MODEL, "x.gguf");
    hold_int(view, BT_FLAG_CTX_SIZE, 7);
    assert_int_equal(bt_argv_last(view, BT_FLAG_MODEL)->at, 5);
    view = parse_of(state, BT_PROGRAM_SERVER, 99, "a b");
    assert_int_equal(view->n_occurrences, 0);
    assert_int_equal(view->n_argv, 2);
    assert_int_equal(parse(state, "")->n_argv, 0);
}

static void of_other_programs(void **state) {
    const bt_argv *view =
        parse_of(state, BT_PROGRAM_SD_SERVER, 1, "sd-server --diffusion-model flux.gguf --max-vram 6.5 --vae-tiling");
    double vram = 0;
    assert_int_equal(bt_argv_real(view, BT_FLAG_SD_MAX_VRAM, &vram), BT_VALUE_GIVEN);
    assert_true(vram > 6.49 && vram < 6.51);
    hold_text(view, BT_FLAG_SD_DIFFUSION_MODEL, "flux.gguf");
    assert_int_equal(view->n_unknown, 1);
    view = parse(state, "-p x --mlock -c 7 --chunks 3");
    assert_int_equal(view->n_foreign, 3);
    assert_int_equal(view->n_unknown + view->n_stray, 0);
    hold_int(view, BT_FLAG_CTX_SIZE, 7);
    /* a prompt that is an option's name, to a program that takes prompts */
    view = parse_of(state, BT_PROGRAM_COMPLETION, 1, "llama-completion -p -ngl -ngl 4");
    hold_text(view, BT_FLAG_PROMPT, "-ngl");
    hold_int(view, BT_FLAG_GPU_LAYERS, 4);
    assert_int_equal(parse_of(state, BT_PROGRAM_BENCH, 1, "llama-bench -ngl 1,2")->n_unknown, 1);
}

static void limits(void **state) {
    static char *many[100001];
    static char element[] = "-cmoe";
    const bt_argv *view = NULL;
    bt_error err = {0};
    for (uint32_t i = 0; i < 100000; i++)
        many[i] = element;
    many[100000] = NULL;
    assert_int_equal(bt_argv_parse(*state, many, 0, BT_PROGRAM_SERVER, &view, &err), BT_E_ARG);
    assert_string_equal(err.code, "arguments");
    assert_int_equal(err.have, BT_ARGV_MAX);
    assert_null(view);
    many[BT_ARGV_MAX + 1] = NULL;
    assert_int_equal(bt_argv_parse(*state, many, 0, BT_PROGRAM_SERVER, &view, &err), BT_E_ARG);
    many[BT_ARGV_MAX] = NULL;
    assert_int_equal(bt_argv_parse(*state, many, 0, BT_PROGRAM_SERVER, &view, &err), BT_OK);
    assert_int_equal(view->n_occurrences, BT_ARGV_MAX);
    bt_arena *small = bt_arena_open(1024, 512);
    assert_non_null(small);
    assert_int_equal(bt_argv_parse(small, many, 0, BT_PROGRAM_SERVER, &view, &err), BT_E_NOMEM);
    bt_arena_close(small);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_ARENA(t1_read),    WITH_ARENA(t9_slots),
        WITH_ARENA(two_values), WITH_ARENA(values_that_look_like_options),
        WITH_ARENA(flash),      WITH_ARENA(the_last_counts),
        WITH_ARENA(all_count),  WITH_ARENA(attached),
        WITH_ARENA(unknown),    WITH_ARENA(ends_too_early),
        WITH_ARENA(first),      WITH_ARENA(of_other_programs),
        WITH_ARENA(limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
