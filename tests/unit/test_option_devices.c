/* SPDX-License-Identifier: MIT
 * test_option_devices.c: how devices and what goes to them are spelt, on the command line and in the environment
 * (research notes, seed 1, table O). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/options.h"

#include <stdio.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

static const char *variable, *its_value;
static const char *environment(const char *name) {
    return variable && strcmp(name, variable) == 0 ? its_value : NULL;
}

static bt_error error;
static bt_cli_options options;

/* Words up to NULL, with one variable set, or none. */
static bt_status parse_with(const char *name, const char *value, const char *const *words) {
    const char *args[4];
    bt_option_result rest = {.args = args, .max_args = 4};
    int n = 0;
    variable = name, its_value = value;
    memset(&error, 0, sizeof error);
    while (words[n])
        n++;
    return bt_cli_options_parse(BT_CLI_RUN, n, (char *const *)(uintptr_t)words, environment, NULL, &options, &rest,
                                &error);
}
#define ARGS(...)             ((const char *const[]){"model.gguf", __VA_ARGS__, NULL})
#define PARSE(...)            parse_with(NULL, NULL, ARGS(__VA_ARGS__))
#define PARSE_ENV(name, text) parse_with(name, text, (const char *const[]){"model.gguf", NULL})

static const bt_wishes *good(bt_status status) {
    if (status != BT_OK) fail_msg("refused: %s", error.text);
    return &options.wishes;
}

static void refused(bt_status status, const char *words) {
    assert_int_equal(status, BT_E_ARG);
    if (!strstr(error.text, words)) fail_msg("\"%s\" is not in \"%s\"", words, error.text);
}

/* ---- numbers of blocks ---- */

static void O_nothing_and_blanks_are_the_default(void **state) {
    (void)state;
    assert_int_equal(good(parse_with(NULL, NULL, (const char *const[]){"m", NULL}))->gpu_layers, BT_LAYERS_DEFAULT);
    static const char *const blanks[] = {"", " ", " \t "};
    static const char *const twins[] = {"BURTHEN_GPU_LAYERS", "BURTHEN_N_CPU_MOE",    "BURTHEN_DEVICE",
                                        "BURTHEN_GPU_MEM",    "BURTHEN_TENSOR_SPLIT", "BURTHEN_RPC"};
    for (size_t i = 0; i < sizeof blanks / sizeof *blanks; i++)
        for (size_t k = 0; k < sizeof twins / sizeof *twins; k++) {
            const bt_wishes *w = good(PARSE_ENV(twins[k], blanks[i]));
            assert_int_equal(w->gpu_layers, BT_LAYERS_DEFAULT);
            assert_int_equal(w->cpu_moe, BT_LAYERS_DEFAULT);
            assert_false(w->no_devices || w->n_devices > 0 || w->n_tensor_splits > 0 || w->gpu_mem_bytes.known);
            assert_int_equal(options.n_rpc, 0);
        }
    /* whoever writes it on the line means something */
    refused(PARSE("-ngl", ""), "-ngl is given an empty value");
    refused(PARSE("--gpu-layers", " "), "--gpu-layers (BURTHEN_GPU_LAYERS) wants");
}

static void O_numbers_and_words(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bt_layers_kind kind;
        uint32_t n;
    } cases[] = {
        {"0", BT_LAYERS_COUNT, 0},
        {"4", BT_LAYERS_COUNT, 4},
        {"24", BT_LAYERS_COUNT, 24},
        {"99", BT_LAYERS_COUNT, 99},
        {" 4 ", BT_LAYERS_COUNT, 4},
        {"0004", BT_LAYERS_COUNT, 4},
        {"999999999", BT_LAYERS_COUNT, 1000000},
        {"auto", BT_LAYERS_AUTO, 0},
        {" AUTO ", BT_LAYERS_AUTO, 0},
        {"Auto", BT_LAYERS_AUTO, 0},
        {"all", BT_LAYERS_ALL, 0},
        {"ALL\t", BT_LAYERS_ALL, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int by_flag = 0; by_flag < 2; by_flag++) {
            const char *text = cases[i].text;
            const bt_wishes *w = good(by_flag ? PARSE("-ngl", text) : PARSE_ENV("BURTHEN_GPU_LAYERS", text));
            assert_int_equal(w->gpu_layers, cases[i].kind);
            assert_int_equal(w->n_gpu_layers, cases[i].n);
            w = good(by_flag ? PARSE("--n-cpu-moe", text) : PARSE_ENV("BURTHEN_N_CPU_MOE", text));
            assert_int_equal(w->cpu_moe, cases[i].kind);
            assert_int_equal(w->n_cpu_moe, cases[i].n);
        }
    assert_int_equal(good(PARSE("--gpu-layers=4"))->n_gpu_layers, 4);
    assert_int_equal(good(PARSE("--n-gpu-layers", "5"))->n_gpu_layers, 5);
    assert_int_equal(good(PARSE("-ncmoe", "6"))->n_cpu_moe, 6);
}

static void O_garbage_is_refused_with_the_alternatives(void **state) {
    (void)state;
    static const char *const wrong[] = {
        "banana", "-1",    "4.0", "0x4",   "1e3",         "4,5",      "+4",
        "4 5",    "auto4", "al",  "all 4", "12345678901", "\xd9\xa4", "AUTOMATICALLY-AS-MANY-AS-FIT-INTO"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *text = wrong[i];
        for (int by_flag = 0; by_flag < 2; by_flag++) {
            refused(by_flag ? PARSE("--gpu-layers", text) : PARSE_ENV("BURTHEN_GPU_LAYERS", text), text);
            assert_non_null(strstr(error.text, "BURTHEN_GPU_LAYERS"));
            assert_non_null(strstr(error.text, "auto"));
            assert_non_null(strstr(error.text, "all"));
            refused(by_flag ? PARSE("-ncmoe", text) : PARSE_ENV("BURTHEN_N_CPU_MOE", text), "BURTHEN_N_CPU_MOE");
        }
    }
    refused(parse_with(NULL, NULL, (const char *const[]){"m", "--gpu-layers", NULL}), "--gpu-layers needs a value");
}

static void O_the_line_beats_the_environment(void **state) {
    (void)state;
    assert_int_equal(good(parse_with("BURTHEN_GPU_LAYERS", "9", ARGS("-ngl", "2")))->n_gpu_layers, 2);
    assert_int_equal(good(PARSE_ENV("BURTHEN_GPU_LAYERS", "9"))->n_gpu_layers, 9);
    const bt_wishes *w = good(parse_with("BURTHEN_GPU_LAYERS", "banana", ARGS("-ngl", "0")));
    assert_true(w->gpu_layers == BT_LAYERS_COUNT && w->n_gpu_layers == 0);
    w = good(parse_with("BURTHEN_DEVICE", "CUDA0=1G", ARGS("--device", "CUDA1")));
    assert_int_equal(w->n_devices, 1);
    assert_string_equal(w->devices[0].name, "CUDA1");
    assert_false(w->devices[0].budget_bytes.known);
}

/* ---- devices ---- */

static void device_names_and_sizes(void **state) {
    (void)state;
    const bt_wishes *w = good(PARSE("--device", "CUDA0=1536M", "-dev", " Vulkan0,RPC0=0 "));
    assert_int_equal(w->n_devices, 3);
    assert_string_equal(w->devices[0].name, "CUDA0");
    assert_true(w->devices[0].budget_bytes.known);
    assert_int_equal(w->devices[0].budget_bytes.value, 1536 * MIB);
    assert_string_equal(w->devices[1].name, "Vulkan0");
    assert_false(w->devices[1].budget_bytes.known);
    assert_string_equal(w->devices[2].name, "RPC0");
    assert_true(w->devices[2].budget_bytes.known); /* a budget of nothing is one */
    assert_int_equal(w->devices[2].budget_bytes.value, 0);
    w = good(PARSE_ENV("BURTHEN_DEVICE", "A=1G,B=2G"));
    assert_int_equal(w->n_devices, 2);
    assert_int_equal(w->devices[1].budget_bytes.value, 2048 * MIB);
}

static void device_none_and_auto(void **state) {
    (void)state;
    static const char *const none[] = {"none", " NONE ", "0"};
    for (size_t i = 0; i < 3; i++) {
        const bt_wishes *w = good(PARSE("--device", "CUDA0", "--device", none[i]));
        assert_true(w->no_devices);
        assert_int_equal(w->n_devices, 0);
    }
    const bt_wishes *w = good(PARSE("--device", "none", "--device", "CUDA0"));
    assert_false(w->no_devices);
    assert_int_equal(w->n_devices, 1);
    w = good(PARSE("--device", "Auto"));
    assert_true(!w->no_devices && w->n_devices == 0);
}

static void device_refusals(void **state) {
    (void)state;
    refused(PARSE("--device", "CUDA0", "--device", "CUDA0=1G"), "--device names CUDA0 twice");
    refused(PARSE("--device", "CUDA0,CUDA0"), "--device names CUDA0 twice");
    refused(PARSE("--device", "=1G"), "--device (BURTHEN_DEVICE) wants names");
    refused(PARSE("--device", "CUDA0,,CUDA1"), "--device (BURTHEN_DEVICE) wants names");
    refused(PARSE("--device", "A-NAME-OF-THIRTY-TWO-CHARACTERS-"), "--device (BURTHEN_DEVICE) wants names");
    refused(PARSE("--device", "CUDA0=lots"), "lots");
    refused(PARSE("--device", "CUDA0="), "--device");
    refused(PARSE("--device", "CUDA0=-1"), "--device");
    assert_int_equal(good(PARSE("--device", "a,b,c,d,e,f,g,h,i,j,k,l,m,n"))->n_devices, BT_DEVICE_MAX);
    refused(PARSE("--device", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o"), "more than 14 times");
    assert_int_equal(error.need, BT_DEVICE_MAX + 1);
}

static void gpu_mem_is_of_mebibytes(void **state) {
    (void)state;
    const bt_wishes *w = good(PARSE_ENV("BURTHEN_GPU_MEM", "64"));
    assert_true(w->gpu_mem_bytes.known);
    assert_int_equal(w->gpu_mem_bytes.value, 67108864);
    w = good(PARSE_ENV("BURTHEN_GPU_MEM", " 0 "));
    assert_true(w->gpu_mem_bytes.known && w->gpu_mem_bytes.value == 0);
    w = good(PARSE_ENV("BURTHEN_GPU_MEM", "999999999999")); /* the most that is read: bytes of it fit */
    assert_int_equal(w->gpu_mem_bytes.value, UINT64_C(999999999999) << 20);
    static const char *const wrong[] = {"lots", "64M", "-1", "1e3", "1.5", "9999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        refused(PARSE_ENV("BURTHEN_GPU_MEM", wrong[i]), wrong[i]);
        assert_non_null(strstr(error.text, "BURTHEN_GPU_MEM"));
        assert_non_null(strstr(error.text, "MiB"));
    }
}

static void tensor_split(void **state) {
    (void)state;
    const bt_wishes *w = good(PARSE("-ts", "3,1"));
    assert_int_equal(w->n_tensor_splits, 2);
    assert_int_equal(w->tensor_split_milli[0], 3000);
    assert_int_equal(w->tensor_split_milli[1], 1000);
    w = good(PARSE("--tensor-split", " 0.49/0.51 "));
    assert_int_equal(w->tensor_split_milli[0], 490);
    assert_int_equal(w->tensor_split_milli[1], 510);
    w = good(PARSE("-ts", "0,.5,1.2345,1000000"));
    assert_int_equal(w->n_tensor_splits, 4);
    assert_int_equal(w->tensor_split_milli[0], 0);
    assert_int_equal(w->tensor_split_milli[1], 500);
    assert_int_equal(w->tensor_split_milli[2], 1234); /* thousandths: what is behind them is dropped */
    assert_int_equal(w->tensor_split_milli[3], 1000000000);
    assert_int_equal(good(PARSE("-ts", "1,1,1,1,1,1,1,1,1,1,1,1,1,1"))->n_tensor_splits, BT_DEVICE_MAX);
    static const char *const wrong[] = {
        "0",    "0,0", "-1,2", "1,,2", "1,",  "a,1",     "1e3",
        "+1,1", "1.",  ".",    "1 ,2", "nan", "1000001", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refused(PARSE("-ts", wrong[i]), "--tensor-split (BURTHEN_TENSOR_SPLIT) wants shares");
}

static void main_gpu_and_require_device(void **state) {
    (void)state;
    assert_int_equal(good(PARSE("-mg", "3"))->main_gpu, 3);
    refused(PARSE("-mg", "14"), "-mg wants");
    refused(PARSE("-mg", "-1"), "-mg wants");
    assert_true(good(PARSE("--require-device"))->require_device);
    assert_true(good(PARSE_ENV("BURTHEN_REQUIRE_DEVICE", "1"))->require_device);
    assert_false(good(PARSE("-mg", "0"))->require_device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(O_nothing_and_blanks_are_the_default),
        cmocka_unit_test(O_numbers_and_words),
        cmocka_unit_test(O_garbage_is_refused_with_the_alternatives),
        cmocka_unit_test(O_the_line_beats_the_environment),
        cmocka_unit_test(device_names_and_sizes),
        cmocka_unit_test(device_none_and_auto),
        cmocka_unit_test(device_refusals),
        cmocka_unit_test(gpu_mem_is_of_mebibytes),
        cmocka_unit_test(tensor_split),
        cmocka_unit_test(main_gpu_and_require_device),
    };
    return cmocka_run_group_tests_name("options of devices", tests, NULL, NULL);
}
