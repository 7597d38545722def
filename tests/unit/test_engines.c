/* SPDX-License-Identifier: MIT
 * test_engines.c: programs beside llama.cpp's (research notes, seed 4, G26, G27 and T7). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ARGV_CHECK(condition) assert_true(condition)
#include "argv_kit.h"
#include "guard/engines.h"

#include <stdio.h>

static line words;
static bt_engine_decision decision;
static char text[LINE_TEXT_MAX];

static int start(void **state) {
    *state = bt_arena_open(UINT64_C(1) << 24, 65536);
    return *state ? 0 : -1;
}

static int stop(void **state) {
    bt_arena_close(*state);
    return 0;
}

/* free_gib below 0: not known. */
static void holds(void **state, const char *given, double free_gib, bool sam_on_cpu, const char *expected) {
    static bt_command command;
    const bt_argv *argv = NULL;
    bt_rewrite rewrite;
    bt_command_find(line_split(&words, given), &command);
    assert_int_equal(bt_argv_parse(*state, words.argv, command.first, command.program, &argv, NULL), BT_OK);
    assert_int_equal(bt_rewrite_open(&rewrite, *state, argv, NULL), BT_OK);
    bt_engine_ask ask = {argv, {free_gib >= 0, free_gib < 0 ? 0 : (uint64_t)(free_gib * 1073741824)}, sam_on_cpu};
    assert_int_equal(bt_guard_engine(&ask, &rewrite, &decision, NULL), BT_OK);
    size_t n = 0;
    for (uint32_t i = 0; i < rewrite.n_argv; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i > 0 ? " " : "", rewrite.argv[i]);
    assert_string_equal(text, expected);
    argv_check_same(&rewrite);
    assert_int_equal(decision.changed, rewrite.n_edits > 0);
    assert_int_equal(decision.known, decision.reason[0] != '\0');
}

static void t7_max_vram(void **state) {
    const char *given = "sd-server --diffusion-model flux.gguf --max-vram 6.5 --vae-tiling";
    holds(state, given, 5.5, true, "sd-server --diffusion-model flux.gguf --max-vram 4.5 --vae-tiling");
    holds(state, given, 8, true, given);
    holds(state, given, 7.5, true, given); /* just as much */
    holds(state, given, 1.2, true, "sd-server --diffusion-model flux.gguf --max-vram 0.5 --vae-tiling");
    holds(state, given, -1, true, given);
    holds(state, given, 7.49, true, "sd-server --diffusion-model flux.gguf --max-vram 6.4 --vae-tiling");
}

static void g27_edges(void **state) {
    holds(state, "sd-server -m a.gguf", 1, true, "sd-server -m a.gguf");
    assert_true(decision.known);
    holds(state, "sd-server --max-vram lots", 1, true, "sd-server --max-vram lots");
    holds(state, "sd-server --max-vram 0.3", 0.1, true, "sd-server --max-vram 0.3"); /* 0.5 would be more */
    holds(state, "sd-server --max-vram=6", 3, true, "sd-server --max-vram=2.0");
    holds(state, "nice -n 5 sd-server --max-vram 6", 3, true, "nice -n 5 sd-server --max-vram 2.0");
}

static void g26_sam(void **state) {
    const char *given = "sam3-server --model /models/SAM3.GGML";
    static bt_command command;
    bt_command_find(line_split(&words, given), &command);
    assert_int_equal(command.program, BT_PROGRAM_SAM);
    holds(state, given, -1, true, "sam3-server --model /models/SAM3.GGML --no-gpu"); /* no telemetry is needed */
    holds(state, given, 20, true, "sam3-server --model /models/SAM3.GGML --no-gpu");
    holds(state, given, 20, false, given);
    holds(state, "sam3-server --no-gpu --model a.ggml", 20, true, "sam3-server --no-gpu --model a.ggml");
    holds(state, "sam3-server --model a.gguf", 20, true, "sam3-server --model a.gguf");
}

static void others(void **state) {
    holds(state, "llama-server -m a.ggml --max-vram 8", 1, true, "llama-server -m a.ggml --max-vram 8");
    assert_false(decision.known);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(t7_max_vram, start, stop),
        cmocka_unit_test_setup_teardown(g27_edges, start, stop),
        cmocka_unit_test_setup_teardown(g26_sam, start, stop),
        cmocka_unit_test_setup_teardown(others, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
