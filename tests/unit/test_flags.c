/* SPDX-License-Identifier: MIT
 * test_flags.c: every spelling of the table of the research notes (1.1) finds its option; values as llama.cpp reads
 * them. That the table is whole, integration/flag_list holds. */
#include "guard/flags.h"
#include "guard/values.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static bt_flag_id find(const char *text) {
    return bt_flag_find(BT_PROGRAM_SERVER, text, strlen(text), NULL);
}

static void spellings(void **state) {
    (void)state;
    static const struct {
        bt_flag_id flag;
        const char *words;
    } rows[] = {
        {BT_FLAG_MODEL, "-m --model"},
        {BT_FLAG_MODEL_URL, "-mu --model-url --model_url"},
        {BT_FLAG_HF_REPO, "-hf -hfr --hf-repo --hf_repo"},
        {BT_FLAG_HF_FILE, "-hff --hf-file"},
        {BT_FLAG_GPU_LAYERS, "-ngl --gpu-layers --n-gpu-layers --n_gpu_layers --gpu_layers"},
        {BT_FLAG_CTX_SIZE, "-c --ctx-size --ctx_size"},
        {BT_FLAG_SLOTS, "-np --parallel"},
        {BT_FLAG_KV_UNIFIED, "-kvu --kv-unified -no-kvu --no-kv-unified --no_kv_unified"},
        {BT_FLAG_KV_UNIFIED_PER_SLOT, "--kv-unified-per-slot"},
        {BT_FLAG_N_CPU_MOE, "-ncmoe --n-cpu-moe --n_cpu_moe"},
        {BT_FLAG_CPU_MOE, "-cmoe --cpu-moe"},
        {BT_FLAG_N_CPU_FFN, "-ncffn --n-cpu-ffn"},
        {BT_FLAG_OVERRIDE_TENSOR, "-ot --override-tensor"},
        {BT_FLAG_CACHE_TYPE_K, "-ctk --cache-type-k"},
        {BT_FLAG_CACHE_TYPE_V, "-ctv --cache-type-v"},
        {BT_FLAG_KV_OFFLOAD, "-nkvo --no-kv-offload -kvo --kv-offload"},
        {BT_FLAG_BATCH, "-b --batch-size"},
        {BT_FLAG_UBATCH, "-ub --ubatch-size"},
        {BT_FLAG_FLASH_ATTN, "-fa --flash-attn"},
        {BT_FLAG_SPLIT_MODE, "-sm --split-mode"},
        {BT_FLAG_TENSOR_SPLIT, "-ts --tensor-split"},
        {BT_FLAG_MAIN_GPU, "-mg --main-gpu"},
        {BT_FLAG_DEVICE, "-dev --device"},
        {BT_FLAG_DRAFT_MODEL, "-md --model-draft --spec-draft-model"},
        {BT_FLAG_DRAFT_HF_REPO, "-hfd -hfrd --hf-repo-draft --spec-draft-hf"},
        {BT_FLAG_SPEC_TYPE, "--spec-type --spec_type"},
        {BT_FLAG_DRAFT_GPU_LAYERS, "-ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl"},
        {BT_FLAG_DRAFT_CACHE_TYPE_K, "-ctkd --cache-type-k-draft --spec-draft-type-k"},
        {BT_FLAG_DRAFT_CACHE_TYPE_V, "-ctvd --cache-type-v-draft --spec-draft-type-v"},
        {BT_FLAG_DRAFT_DEVICE, "-devd --device-draft"},
        {BT_FLAG_DRAFT_N_CPU_MOE, "-ncmoed"},
        {BT_FLAG_DRAFT_CPU_MOE, "-cmoed"},
        {BT_FLAG_DRAFT_OVERRIDE_TENSOR, "-otd"},
        {BT_FLAG_OLD_DRAFT_MAX, "--draft --draft-n --draft-max"},
        {BT_FLAG_DRAFT_N_MAX, "--spec-draft-n-max"},
        {BT_FLAG_MMPROJ, "-mm --mmproj"},
        {BT_FLAG_MMPROJ_URL, "-mmu --mmproj-url"},
        {BT_FLAG_MMPROJ_AUTO, "--no-mmproj --no-mmproj-auto --mmproj-auto"},
        {BT_FLAG_MMPROJ_OFFLOAD, "--no-mmproj-offload --mmproj-offload"},
        {BT_FLAG_CHECKPOINTS, "-ctxcp --ctx-checkpoints --swa-checkpoints"},
        {BT_FLAG_CHECKPOINT_STEP, "-cms --checkpoint-min-step"},
        {BT_FLAG_CACHE_RAM, "-cram --cache-ram"},
        {BT_FLAG_LOAD_MODE, "-lm --load-mode"},
        {BT_FLAG_OLD_MMAP, "--no-mmap --mmap --no_mmap"},
        {BT_FLAG_OLD_MLOCK, "--mlock"},
        {BT_FLAG_OLD_DIRECT_IO, "-dio --direct-io -ndio"},
        {BT_FLAG_NO_HOST, "--no-host"},
        {BT_FLAG_REPACK, "-nr --no-repack --repack"},
        {BT_FLAG_SWA_FULL, "--swa-full"},
        {BT_FLAG_ROPE_SCALING, "--rope-scaling"},
        {BT_FLAG_ROPE_SCALE, "--rope-scale"},
        {BT_FLAG_YARN_ORIG_CTX, "--yarn-orig-ctx"},
        {BT_FLAG_LORA, "--lora"},
        {BT_FLAG_LORA_SCALED, "--lora-scaled"},
        {BT_FLAG_CONTROL_VECTOR, "--control-vector"},
        {BT_FLAG_CONTROL_VECTOR_SCALED, "--control-vector-scaled"},
        {BT_FLAG_CONTROL_VECTOR_RANGE, "--control-vector-layer-range"},
        {BT_FLAG_FIT, "-fit --fit"},
        {BT_FLAG_FIT_TARGET, "-fitt --fit-target"},
        {BT_FLAG_FIT_CTX, "-fitc --fit-ctx"},
        {BT_FLAG_FIT_PRINT, "-fitp --fit-print"},
        {BT_FLAG_SLEEP_IDLE_SECONDS, "--sleep-idle-seconds"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char words[200];
        (void)strcpy(words, rows[i].words);
        for (char *word = strtok(words, " "); word; word = strtok(NULL, " ")) {
            if (find(word) != rows[i].flag) fail_msg("%s is not %s", word, bt_flag_get(rows[i].flag)->name);
        }
    }
}

static void no_spellings(void **state) {
    (void)state;
    static const char *const words[] = {"",        "-",           "--",         "m",     "-M",
                                        "--Model", "--mode",      "--models",   "-n_gl", "-no_kvu",
                                        "--n-gpu", "--ctx-size ", "_-ctx-size", "-ngl99"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        assert_int_equal(find(words[i]), BT_FLAG_UNKNOWN);
}

static void no_row_twice(void **state) {
    (void)state;
    for (uint32_t i = 0; i < BT_FLAG_COUNT; i++) {
        char words[400];
        const bt_flag *row = bt_flag_get((bt_flag_id)i);
        (void)snprintf(words, sizeof words, "%s %s", row->spellings, row->negatives ? row->negatives : "");
        bt_program program = row->programs == 0 ? BT_PROGRAM_SERVER : BT_PROGRAM_NONE;
        for (uint32_t p = 1; p < BT_PROGRAM_COUNT && program == BT_PROGRAM_NONE; p++) {
            if (bt_flag_is_of((bt_flag_id)i, (bt_program)p)) program = (bt_program)p;
        }
        assert_int_not_equal(program, BT_PROGRAM_NONE);
        for (char *word = strtok(words, " "); word; word = strtok(NULL, " ")) {
            if (bt_flag_find(program, word, strlen(word), NULL) != i) fail_msg("%s is of two rows", word);
        }
    }
}

static void programs(void **state) {
    (void)state;
    bool negative = false;
    /* of a sister program: recognised, so that its value is no option */
    assert_int_equal(find("-p"), BT_FLAG_PROMPT);
    assert_false(bt_flag_is_of(BT_FLAG_PROMPT, BT_PROGRAM_SERVER));
    assert_true(bt_flag_is_of(BT_FLAG_PROMPT, BT_PROGRAM_CLI));
    /* of other engines: only their own */
    assert_int_equal(find("--max-vram"), BT_FLAG_UNKNOWN);
    assert_int_equal(bt_flag_find(BT_PROGRAM_SD_SERVER, "--max-vram", 10, NULL), BT_FLAG_SD_MAX_VRAM);
    assert_int_equal(bt_flag_find(BT_PROGRAM_SD_SERVER, "-ngl", 4, NULL), BT_FLAG_UNKNOWN);
    assert_int_equal(bt_flag_find(BT_PROGRAM_SAM, "--no-gpu", 8, &negative), BT_FLAG_SAM_NO_GPU);
    assert_false(negative);
    assert_int_equal(bt_flag_find(BT_PROGRAM_BENCH, "--list-devices", 14, NULL), BT_FLAG_UNKNOWN);
    assert_int_equal(bt_flag_find(BT_PROGRAM_SERVER, "-nkvo", 5, &negative), BT_FLAG_KV_OFFLOAD);
    assert_true(negative);
    assert_int_equal(bt_flag_find(BT_PROGRAM_SERVER, "-kvo", 4, &negative), BT_FLAG_KV_OFFLOAD);
    assert_false(negative);
    assert_string_equal(bt_program_name(BT_PROGRAM_FIT_PARAMS), "llama-fit-params");
}

static void arity(void **state) {
    (void)state;
    assert_int_equal(bt_flag_arity(BT_FLAG_CTX_SIZE), 1);
    assert_int_equal(bt_flag_arity(BT_FLAG_CPU_MOE), 0);
    assert_int_equal(bt_flag_arity(BT_FLAG_KV_UNIFIED), 0);
    assert_int_equal(bt_flag_arity(BT_FLAG_CONTROL_VECTOR_RANGE), 2);
    assert_int_equal(bt_flag_arity(BT_FLAG_HELP), 0);
    assert_true(bt_flag_get(BT_FLAG_OVERRIDE_TENSOR)->adds && bt_flag_get(BT_FLAG_N_CPU_MOE)->adds);
    assert_false(bt_flag_get(BT_FLAG_CTX_SIZE)->adds);
    size_t n = 0;
    const char *text = bt_flag_canonical(BT_FLAG_N_CPU_MOE, &n);
    assert_int_equal(n, 11);
    assert_memory_equal(text, "--n-cpu-moe", n);
}

static void keys(void **state) {
    (void)state;
    bool negative = false;
#define KEY(text) bt_flag_find_key(BT_PROGRAM_SERVER, text, strlen(text), &negative)
    assert_int_equal(KEY("ctx-size"), BT_FLAG_CTX_SIZE);
    assert_int_equal(KEY("c"), BT_FLAG_CTX_SIZE);
    assert_int_equal(KEY("LLAMA_ARG_CTX_SIZE"), BT_FLAG_CTX_SIZE);
    assert_int_equal(KEY("--ctx-size"), BT_FLAG_UNKNOWN);
    assert_int_equal(KEY("ctx_size"), BT_FLAG_UNKNOWN);
    assert_int_equal(KEY("no-kv-offload"), BT_FLAG_KV_OFFLOAD);
    assert_true(negative);
#undef KEY
}

static void integers(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool good;
        int32_t value;
    } rows[] = {{"0", true, 0},
                {"-1", true, -1},
                {"+7", true, 7},
                {"32k", true, 32},
                {" 8", true, 8},
                {"4096.9", true, 4096},
                {"2147483647", true, INT32_MAX},
                {"-2147483648", true, INT32_MIN},
                {"2147483648", false, 0},
                {"-2147483649", false, 0},
                {"", false, 0},
                {"-", false, 0},
                {"k32", false, 0},
                {"99999999999999999999999", false, 0},
                {"auto", false, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int32_t value = 123;
        assert_int_equal(bt_value_int(rows[i].text, &value), rows[i].good);
        assert_int_equal(value, rows[i].good ? rows[i].value : 123);
    }
}

static void words(void **state) {
    (void)state;
    int32_t layers = 0;
    bool on = false;
    bt_flash flash = BT_FLASH_OFF;
    double real = 0;
    assert_true(bt_value_layers("auto", &layers) && layers == BT_LAYERS_AUTO);
    assert_true(bt_value_layers("-1", &layers) && layers == BT_LAYERS_AUTO);
    assert_true(bt_value_layers("all", &layers) && layers == BT_LAYERS_ALL);
    assert_true(bt_value_layers("-7", &layers) && layers == BT_LAYERS_ALL);
    assert_true(bt_value_layers("999", &layers) && layers == 999);
    assert_false(bt_value_layers("ALL", &layers));
    assert_true(bt_value_on("enabled", &on) && on);
    assert_true(bt_value_on("0", &on) && !on);
    assert_false(bt_value_on("yes", &on) || bt_value_on("On", &on) || bt_value_on("", &on));
    assert_true(bt_value_flash("-1", &flash) && flash == BT_FLASH_AUTO);
    assert_true(bt_value_flash("disabled", &flash) && flash == BT_FLASH_OFF);
    assert_false(bt_value_flash("2", &flash));
    assert_true(bt_value_real("0.5x", &real));
    assert_true(real > 0.49 && real < 0.51);
    assert_false(bt_value_real("x", &real) || bt_value_real("1e39", &real));
    assert_true(bt_value_choice("b", "a|b|c", &layers) && layers == 1);
    assert_false(bt_value_choice("a|b", "a|b|c", &layers) || bt_value_choice("", "a|b", &layers));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spellings), cmocka_unit_test(no_spellings), cmocka_unit_test(no_row_twice),
        cmocka_unit_test(programs),  cmocka_unit_test(arity),        cmocka_unit_test(keys),
        cmocka_unit_test(integers),  cmocka_unit_test(words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
