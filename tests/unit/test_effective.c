/* SPDX-License-Identifier: MIT
 * test_effective.c: the settings that a command line, its environment and llama.cpp's files come to, and whose word
 * each of them is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define ARGV_CHECK(condition) assert_true(condition)
#include "argv_kit.h"

static line words;
static bt_command command;
static bt_effective e;
static bt_error err;

/* The world around the command: variables as "A=1 B=2", and two files. */
typedef struct world {
    const char *variables;
    const char *system_file, *user_file; /* text; NULL: there is none */
    bool failing;                        /* the user's file cannot be read */
} world;

static const char *variable(void *context, const char *name) {
    static line set;
    const world *w = context;
    size_t n = strlen(name);
    if (!w->variables) return NULL;
    char *const *pairs = line_split(&set, w->variables);
    for (; *pairs; pairs++) {
        if (strncmp(*pairs, name, n) == 0 && (*pairs)[n] == '=') {
            static char kept[64][256];
            static uint32_t next;
            char *value = kept[next++ % 64];
            (void)strcpy(value, *pairs + n + 1);
            return value;
        }
    }
    return NULL;
}

static bt_config_state file(void *context, const char *path, const char **ret_text, size_t *ret_n) {
    const world *w = context;
    bool user =
        strcmp(path, "/home/x/.config/llama.cpp/config.ini") == 0 || strcmp(path, "/xdg/llama.cpp/config.ini") == 0;
    if (!user) assert_string_equal(path, "/etc/llama.cpp/config.ini");
    if (user && w->failing) return BT_CONFIG_FAILED;
    *ret_text = user ? w->user_file : w->system_file;
    if (!*ret_text) return BT_CONFIG_ABSENT;
    *ret_n = strlen(*ret_text);
    return BT_CONFIG_READ;
}

static void resolve_in(void **state, world w, const char *text) {
    const bt_argv *view = NULL;
    bt_command_find(line_split(&words, text), &command);
    assert_int_not_equal(command.program, BT_PROGRAM_NONE);
    assert_int_equal(bt_argv_parse(*state, words.argv, command.first, command.program, &view, &err), BT_OK);
    bt_effective_input input = {&command, view, variable, &w, file, &w};
    assert_int_equal(bt_effective_resolve(*state, &input, &e, &err), BT_OK);
}

static void resolve(void **state, const char *text) {
    resolve_in(state, (world){0}, text);
}

static bool noted(const char *part) {
    for (uint32_t i = 0; i < e.n_notes; i++) {
        if (strstr(e.notes[i], part)) return true;
    }
    return false;
}

#define HOLD(setting, number, who)                                                                                     \
    do {                                                                                                               \
        assert_int_equal((setting).value, number);                                                                     \
        assert_int_equal((setting).by.origin, BT_FROM_##who);                                                          \
    } while (0)

static void defaults(void **state) {
    resolve(state, "llama-server -m x.gguf");
    assert_string_equal(e.model.text, "x.gguf");
    assert_int_equal(e.model.by.origin, BT_FROM_ARGV);
    assert_int_equal(e.model.by.at, 1);
    HOLD(e.gpu_layers, BT_LAYERS_AUTO, DEFAULT);
    HOLD(e.ctx, 0, DEFAULT);
    HOLD(e.slots, 4, PROGRAM); /* T9, with today's builds: automatic is four that share */
    HOLD(e.kv_unified, 1, PROGRAM);
    HOLD(e.cache_k, 1, DEFAULT);
    HOLD(e.kv_offload, 1, DEFAULT);
    HOLD(e.batch, 2048, DEFAULT);
    HOLD(e.ubatch, 512, DEFAULT);
    HOLD(e.flash, BT_FLASH_AUTO, DEFAULT);
    HOLD(e.split_mode, BT_SPLIT_LAYER, DEFAULT);
    HOLD(e.fit, 1, DEFAULT);
    HOLD(e.fit_ctx, 4096, DEFAULT);
    HOLD(e.checkpoints, 32, DEFAULT);
    HOLD(e.checkpoint_step, 8192, DEFAULT);
    HOLD(e.cache_ram, 8192, DEFAULT);
    HOLD(e.load_mode, BT_LOAD_AUTO, DEFAULT);
    HOLD(e.repack, 1, DEFAULT);
    HOLD(e.no_host, 0, DEFAULT);
    HOLD(e.sleep_idle_s, -1, DEFAULT);
    HOLD(e.rope_scaling, -1, DEFAULT);
    HOLD(e.mmproj_offload, 1, DEFAULT);
    assert_int_equal(e.n_bad + e.n_notes + e.rules.n + e.loras.n + e.drafters, 0);
    assert_false(e.router);
    resolve(state, "llama-cli -m x.gguf");
    HOLD(e.slots, 1, DEFAULT);
    HOLD(e.kv_unified, 0, DEFAULT);
}

/* The help of llama-server names the same defaults (integration/flag_list holds the names); every member is read. */
static void every_setting(void **state) {
    resolve(state,
            "llama-server -m a -mu b -hf c -hff d -dr f --models-dir g --models-preset h -ngl 7 -sm row -mg 1 "
            "-ts 3,1 -dev CUDA0 --rpc x:1 -fit off -fitt 10,20 -fitc 100 -c 1000 -np 2 -kvu --kv-unified-per-slot 9 "
            "-ctk q8_0 -ctv q4_0 -nkvo --swa-full -fa on -b 64 -ub 32 --rope-scaling yarn --rope-scale 4 "
            "--rope-freq-base 5 --yarn-orig-ctx 6 --context-shift --cache-reuse 8 -ctxcp 3 -cms 11 -cram 12 "
            "--no-cache-idle-slots --override-kv a=int:1 -lm mlock -lzm on -nr --no-host --no-op-offload "
            "--no-warmup -md i -hfd j -ngld all -ctkd f32 -ctvd bf16 -devd none --spec-draft-n-max 13 -cd 14 "
            "-mm k -mmu l --no-mmproj --no-mmproj-offload --image-min-tokens 15 --image-max-tokens 16 "
            "--mtmd-batch-max-tokens 17 --embedding --pooling mean --sleep-idle-seconds 18 -t 19 -tb 20 "
            "--check-tensors -bs -a n -lcs o -lcd p --slot-save-path q --spec-type ngram-mod "
            "--spec-ngram-mod-n-max 21 --spec-ngram-simple-size-m 22 --spec-ngram-map-k-size-m 23 "
            "--spec-ngram-map-k4v-size-m 24");
    static const struct {
        size_t offset;
        int32_t value;
        const char *text;
    } rows[] = {
#define N(member, value) {offsetof(bt_effective, member), value, NULL}
#define T(member, text)  {offsetof(bt_effective, member), 0, text}
        T(model, "a"),
        T(model_url, "b"),
        T(hf_repo, "c"),
        T(hf_file, "d"),
        T(docker_repo, "f"),
        T(models_dir, "g"),
        T(models_preset, "h"),
        N(gpu_layers, 7),
        N(split_mode, BT_SPLIT_ROW),
        N(main_gpu, 1),
        T(tensor_split, "3,1"),
        T(device, "CUDA0"),
        T(rpc, "x:1"),
        N(fit, 0),
        T(fit_target, "10,20"),
        N(fit_ctx, 100),
        N(ctx, 1000),
        N(slots, 2),
        N(kv_unified, 1),
        N(kv_per_slot, 9),
        N(cache_k, 8),
        N(cache_v, 2),
        N(kv_offload, 0),
        N(swa_full, 1),
        N(flash, BT_FLASH_ON),
        N(ubatch, 32),
        N(rope_scaling, 2),
        N(yarn_orig_ctx, 6),
        N(context_shift, 1),
        N(cache_reuse, 8),
        N(checkpoints, 3),
        N(checkpoint_step, 11),
        N(cache_ram, 12),
        N(cache_idle_slots, 0),
        T(override_kv, "a=int:1"),
        N(load_mode, BT_LOAD_MLOCK),
        N(lazy_mode, BT_LAZY_ON),
        N(repack, 0),
        N(no_host, 1),
        N(op_offload, 0),
        N(warmup, 0),
        T(draft_model, "i"),
        T(draft_hf_repo, "j"),
        N(draft_gpu_layers, BT_LAYERS_ALL),
        N(draft_cache_k, 0),
        N(draft_cache_v, 30),
        T(draft_device, "none"),
        N(draft_n_max, 13),
        N(draft_ctx, 14),
        T(mmproj, "k"),
        T(mmproj_url, "l"),
        N(mmproj_auto, 0),
        N(mmproj_offload, 0),
        N(image_min_tokens, 15),
        N(image_max_tokens, 16),
        N(mtmd_batch, 17),
        N(embedding, 1),
        N(pooling, BT_POOLING_MEAN),
        N(sleep_idle_s, 18),
        N(threads, 19),
        N(threads_batch, 20),
        N(check_tensors, 1),
        N(backend_sampling, 1),
        T(alias, "n"),
        T(lookup_static, "o"),
        T(lookup_dynamic, "p"),
        T(slot_save, "q"),
        T(spec_type, "ngram-mod"),
        N(ngram_mod_n_max, 21),
        N(ngram_simple_m, 22),
        N(ngram_map_k_m, 23),
        N(ngram_map_k4v_m, 24),
#undef N
#undef T
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_setting s;
        memcpy(&s, (const char *)&e + rows[i].offset, sizeof s);
        if (rows[i].text)
            assert_string_equal(s.text, rows[i].text);
        else if (s.value != rows[i].value)
            fail_msg("row %zu: %d instead of %d", i, (int)s.value, (int)rows[i].value);
        assert_int_equal(s.by.origin, BT_FROM_ARGV);
        assert_true(s.by.at > 0 && words.argv[s.by.at][0] == '-');
    }
    HOLD(e.batch, 32, PROGRAM); /* embedding: no larger than the micro-batch */
    assert_true(e.rope_freq_scale.real > 0.249 && e.rope_freq_scale.real < 0.251);
    assert_true(e.rope_freq_base.real > 4.9 && e.rope_freq_base.real < 5.1);
    assert_int_equal(e.n_shares, 2);
    assert_true(e.shares[0] > 2.9 && e.shares[1] < 1.1);
    assert_int_equal(e.n_fit_targets, 2);
    assert_int_equal(e.fit_target_mib[0], 10);
    assert_int_equal(e.fit_target_mib[1], 20);
    assert_int_equal(e.n_override_kv, 1);
    assert_int_equal(e.n_bad, 0);
}

/* Of programs other than the server. */
static void settings_of_others(void **state) {
    resolve(state, "llama-perplexity -m x -f t --save-all-logits l");
    assert_string_equal(e.logits_file.text, "l");
    resolve(state, "llama-completion -m x --prompt-cache f");
    assert_string_equal(e.prompt_cache.text, "f");
    resolve(state, "llama-cli --server-base http://h -np -1");
    assert_string_equal(e.server_base.text, "http://h");
    HOLD(e.slots, 4, PROGRAM); /* as the server that it starts takes it */
    HOLD(e.kv_unified, 1, PROGRAM);
    resolve(state, "llama-server -m x --spec-ngram-mod-n-max 9 --spec-default");
    HOLD(e.ngram_mod_n_max, 64, ARGV);
    resolve(state, "llama-server -m x -fitt -1"); /* wraps to nearly all there is, in MiB */
    assert_true(e.fit_target_mib[0] == (UINT64_C(1) << 44) - 1);
    assert_int_equal(e.n_bad, 0);
}

static void precedence(void **state) {
    world w = {.variables = "LLAMA_ARG_CTX_SIZE=20 LLAMA_ARG_BATCH=21 HOME=/home/x",
               .system_file = "ctx-size=1\nbatch-size=2\nubatch-size=3\nparallel=4\n",
               .user_file = "ctx-size=10\nbatch-size=11\nubatch-size=12\n"};
    resolve_in(state, w, "llama-server -m x -c 30");
    HOLD(e.ctx, 30, ARGV);
    HOLD(e.batch, 21, ENV);
    assert_string_equal(e.batch.by.where, "LLAMA_ARG_BATCH");
    HOLD(e.ubatch, 12, FILE);
    assert_string_equal(e.ubatch.by.where, "/home/x/.config/llama.cpp/config.ini");
    HOLD(e.slots, 4, FILE);
    assert_string_equal(e.slots.by.where, "/etc/llama.cpp/config.ini");
    HOLD(e.kv_unified, 0, DEFAULT); /* four that were asked for do not share */
    assert_true(noted("also reads /etc/llama.cpp/config.ini"));
    assert_string_equal(origin_name(e.ctx.by.origin), "argv");
}

static void environment(void **state) {
    resolve_in(state, (world){.variables = "LLAMA_ARG_NO_KV_OFFLOAD=0 LLAMA_ARG_KV_OFFLOAD=1"}, "llama-server -m x");
    HOLD(e.kv_offload, 0, ENV); /* the second variable says no whatever its value */
    assert_string_equal(e.kv_offload.by.where, "LLAMA_ARG_NO_KV_OFFLOAD");
    resolve_in(state, (world){.variables = "LLAMA_ARG_KV_OFFLOAD=false"}, "llama-server -m x");
    HOLD(e.kv_offload, 0, ENV);
    resolve_in(state, (world){.variables = "LLAMA_ARG_NO_KV_OFFLOAD=1"}, "llama-server -m x -kvo");
    HOLD(e.kv_offload, 1, ARGV);
    resolve_in(state, (world){.variables = "LLAMA_ARG_SWA_FULL=off LLAMA_ARG_NO_HOST=1 LLAMA_ARG_CPU_MOE=yes"},
               "llama-server -m x");
    HOLD(e.swa_full, 0, DEFAULT);
    HOLD(e.no_host, 1, ENV);
    assert_int_equal(e.rules.n, 0);
    assert_int_equal(e.n_bad, 0);
    resolve_in(state, (world){.variables = "LLAMA_ARG_CTX_SIZE= LLAMA_ARG_KV_OFFLOAD=maybe LLAMA_ARG_BATCH=x"},
               "llama-server -m x");
    assert_int_equal(e.n_bad, 3);
    assert_true(e.ctx.bad && e.kv_offload.bad && e.batch.bad);
    HOLD(e.batch, 2048, DEFAULT);
    /* a variable of an option that the program does not have */
    resolve_in(state, (world){.variables = "LLAMA_ARG_CACHE_RAM=5"}, "llama-perplexity -m x");
    HOLD(e.cache_ram, 8192, DEFAULT);
}

static void through_wrappers(void **state) {
    world w = {.variables = "LLAMA_ARG_CTX_SIZE=20 LLAMA_ARG_BATCH=21 XDG_CONFIG_HOME=/xdg HOME=/home/x",
               .user_file = "ubatch-size=12\n"};
    resolve_in(state, w, "env -u LLAMA_ARG_BATCH LLAMA_ARG_CTX_SIZE=99 llama-server -m x");
    HOLD(e.ctx, 99, ENV);
    HOLD(e.batch, 2048, DEFAULT);
    HOLD(e.ubatch, 12, FILE);
    resolve_in(state, w, "env -i llama-server -m x");
    HOLD(e.ctx, 0, DEFAULT);
    HOLD(e.ubatch, 512, DEFAULT); /* no HOME: no file of the user's */
    resolve_in(state, w, "docker run -e LLAMA_ARG_BATCH -e LLAMA_ARG_N_GPU_LAYERS=9 i llama-server -m x");
    HOLD(e.ctx, 0, DEFAULT);
    HOLD(e.batch, 21, ENV);
    HOLD(e.gpu_layers, 9, ENV);
    HOLD(e.ubatch, 21, PROGRAM); /* no file, and no larger than the batch */
    assert_true(noted("inside the container"));
    assert_true(noted("variables may be set"));
}

static void files(void **state) {
    world w = {.system_file = "[*]\nn-gpu-layers=5\nkv-offload=no\nno-repack=1\nswa-full=0\n[default]\nngl=6\nt=3\n"
                              "[other]\nngl=7\n",
               .user_file = "LLAMA_ARG_SPLIT_MODE=none\nmlock=1\nno-such=1\ncache-ram=4\n",
               .variables = "HOME=/home/x"};
    resolve_in(state, w, "llama-server -m x");
    HOLD(e.gpu_layers, 6, FILE);
    HOLD(e.kv_offload, 0, FILE); /* anything that is not a yes is a no */
    HOLD(e.repack, 0, FILE);
    HOLD(e.swa_full, 1, FILE); /* a switch is on, whatever stands there */
    HOLD(e.threads, 3, FILE);
    HOLD(e.split_mode, BT_SPLIT_NONE, FILE);
    HOLD(e.load_mode, BT_LOAD_AUTO, DEFAULT);
    HOLD(e.cache_ram, 4, FILE);
    resolve_in(state, w, "llama-perplexity -m x");
    HOLD(e.cache_ram, 8192, DEFAULT); /* not an option of that program */
    w.user_file = "a=1\nb\n";
    resolve_in(state, w, "llama-server -m x");
    assert_int_equal(e.n_bad, 1);
    assert_true(noted("refuses line 2 of /home/x/.config/llama.cpp/config.ini"));
    w.failing = true;
    resolve_in(state, w, "llama-server -m x");
    assert_true(noted("is there and cannot be read"));
    bt_effective_input input = {.command = &command, .argv = NULL};
    const bt_argv *view = NULL;
    assert_int_equal(bt_argv_parse(*state, words.argv, 1, BT_PROGRAM_SERVER, &view, &err), BT_OK);
    input.argv = view;
    assert_int_equal(bt_effective_resolve(*state, &input, &e, &err), BT_OK);
    assert_true(noted("was not read"));
}

static void hold_rule(uint32_t i, bt_rule_kind kind, const char *pattern, const char *buffer, int32_t n) {
    assert_true(i < e.rules.n);
    const bt_tensor_rule *rule = &e.rules.items[i];
    assert_int_equal(rule->kind, kind);
    assert_int_equal(rule->n, n);
    if (pattern) {
        assert_string_equal(rule->pattern, pattern);
        assert_string_equal(rule->buffer, buffer);
    }
}

static void rules(void **state) {
    world w = {.variables = "LLAMA_ARG_N_CPU_MOE=3 LLAMA_ARG_OVERRIDE_TENSOR=env=CPU"};
    resolve_in(state, w,
               "llama-server -m x -ncmoe 2 -ot 'exps=CUDA0,blk\\.1\\.=CPU=x' -cmoe -ncffn 4 -ncmoe 0 -otd d=CPU");
    assert_int_equal(e.rules.n, 7);
    hold_rule(0, BT_RULE_PATTERN, "env", "CPU", 0);
    hold_rule(1, BT_RULE_N_EXPERTS, NULL, NULL, 3);
    hold_rule(2, BT_RULE_N_EXPERTS, NULL, NULL, 2);
    hold_rule(3, BT_RULE_PATTERN, "exps", "CUDA0", 0);
    hold_rule(4, BT_RULE_PATTERN, "blk\\.1\\.", "CPU=x", 0);
    hold_rule(5, BT_RULE_EXPERTS, NULL, NULL, 0);
    hold_rule(6, BT_RULE_N_FFN, NULL, NULL, 4);
    assert_int_equal(e.rules.items[0].by.origin, BT_FROM_ENV);
    assert_int_equal(e.rules.items[5].by.at, 7);
    assert_int_equal(e.rules.n_experts, 3); /* they add up: the first three blocks and the first two */
    assert_int_equal(e.rules.n_pattern, 3);
    assert_true(e.rules.every_expert);
    assert_int_equal(e.draft_rules.n, 1);
    assert_int_equal(e.n_bad, 0);
    resolve(state, "llama-server -m x -ot exps -ncmoe -1");
    assert_int_equal(e.n_bad, 2);
}

static void adapters(void **state) {
    resolve(state,
            "llama-server -m x --lora 'a.gguf,\"b,\"\"c\"\".gguf\"' --lora-scaled d.gguf:0.5 --lora-scaled e.gguf 0.25 "
            "--control-vector-scaled v:-1 --control-vector w");
    static const char *const paths[] = {"a.gguf", "b,\"c\".gguf", "d.gguf", "e.gguf"};
    static const double scales[] = {1, 1, 0.5, 0.25};
    assert_int_equal(e.loras.n, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_string_equal(e.loras.items[i].path, paths[i]);
        assert_true(e.loras.items[i].scale >= scales[i] && e.loras.items[i].scale <= scales[i]);
    }
    assert_int_equal(e.control_vectors.n, 2);
    assert_string_equal(e.control_vectors.items[0].path, "v");
    assert_true(e.control_vectors.items[0].scale < 0);
    resolve(state, "llama-server -m x --lora-scaled a.gguf");
    assert_int_equal(e.n_bad, 1);
    assert_int_equal(e.loras.n, 0);
}

static void context(void **state) {
    resolve(state, "llama-server -m x -c 0");
    HOLD(e.ctx, 0, ARGV);
    HOLD(e.fit_ctx, INT32_MAX, ARGV); /* asked for in full: fitting must not shrink it */
    resolve(state, "llama-server -m x --kv-unified-per-slot 100");
    HOLD(e.ctx, 400, PROGRAM);
    resolve(state, "llama-server -m x --kv-unified-per-slot 100 -np 2");
    HOLD(e.ctx, 200, PROGRAM);
    resolve(state, "llama-server -m x --kv-unified-per-slot 100 -c 50");
    HOLD(e.ctx, 50, ARGV);
    resolve(state, "llama-server -m x --kv-unified-per-slot 100 -c 0");
    HOLD(e.ctx, 0, ARGV);
    resolve(state, "llama-server -m x --kv-unified-per-slot 2147483647 -np 2147483647");
    HOLD(e.ctx, INT32_MAX, PROGRAM);
    resolve(state, "llama-server -m x -np 0");
    assert_true(e.slots.bad);
    assert_int_equal(e.n_bad, 1);
    resolve(state, "llama-server -m x -np 3 -no-kvu");
    HOLD(e.slots, 3, ARGV);
    resolve(state, "llama-server -m x -np -1 -no-kvu");
    HOLD(e.slots, 4, PROGRAM);
    HOLD(e.kv_unified, 1, PROGRAM);
    resolve(state, "llama-server -m x --rope-scale 2 --rope-freq-scale 0.125");
    assert_true(e.rope_freq_scale.real > 0.12 && e.rope_freq_scale.real < 0.13);
}

/* What each program makes of its numbers before it makes a context of them. */
static void batches(void **state) {
    resolve(state, "llama-server -m x -ub 8192");
    HOLD(e.ubatch, 2048, PROGRAM); /* no larger than the batch */
    resolve(state, "llama-server -m x -ub 8192 -b 8192");
    HOLD(e.ubatch, 8192, ARGV);
    resolve(state, "llama-server -m x -ub 0 -b 64");
    HOLD(e.ubatch, 64, PROGRAM);

    resolve(state, "llama-perplexity -m x");
    HOLD(e.slots, 4, PROGRAM); /* 2048 / 512 */
    HOLD(e.ctx, 2048, PROGRAM);
    HOLD(e.batch, 2048, DEFAULT);
    HOLD(e.kv_unified, 0, DEFAULT);
    resolve(state, "llama-perplexity -m x -c 4096");
    HOLD(e.slots, 1, DEFAULT);
    HOLD(e.ctx, 4096, ARGV);
    resolve(state, "llama-perplexity -m x -c 100 -b 250 --ppl-stride 10");
    HOLD(e.slots, 2, PROGRAM);
    HOLD(e.batch, 200, PROGRAM);
    HOLD(e.ctx, 205, PROGRAM);
    resolve(state, "llama-perplexity -m x --hellaswag -np 6");
    HOLD(e.slots, 6, ARGV);
    HOLD(e.ctx, 3072, PROGRAM);
    HOLD(e.kv_unified, 1, PROGRAM);
    resolve(state, "llama-perplexity -m x --winogrande");
    HOLD(e.slots, 4, PROGRAM);
    resolve(state, "llama-perplexity -m x -c 0");
    HOLD(e.ctx, 0, ARGV);

    resolve(state, "llama-embedding -m x -c 4096");
    HOLD(e.slots, 256, PROGRAM);
    HOLD(e.kv_unified, 1, PROGRAM);
    HOLD(e.batch, 4096, PROGRAM);
    HOLD(e.ubatch, 4096, PROGRAM);
    resolve(state, "llama-embedding -m x -np 2 --attention causal");
    HOLD(e.slots, 2, ARGV);
    HOLD(e.ubatch, 512, DEFAULT);
}

static void models(void **state) {
    resolve(state, "llama-server --models-dir /m");
    assert_true(e.router);
    assert_true(noted("a router"));
    HOLD(e.slots, -1, DEFAULT);
    resolve(state, "llama-server --gpt-oss-20b-default");
    assert_false(e.router);
    assert_string_equal(e.bundle.text, "--gpt-oss-20b-default");
    resolve_in(state, (world){.variables = "LLAMA_ARG_HF_REPO=a/b"}, "llama-server");
    assert_false(e.router);
    assert_string_equal(e.hf_repo.text, "a/b");
}

static void loading(void **state) {
    static const struct {
        const char *options;
        bt_load_mode mode;
    } rows[] = {
        {"-lm dio", BT_LOAD_DIRECT},
        {"-lm mmap+mlock", BT_LOAD_MMAP_MLOCK},
        {"--no-mmap", BT_LOAD_NONE},
        {"--mlock", BT_LOAD_MMAP_MLOCK},
        {"--no-mmap --mlock", BT_LOAD_MLOCK},
        {"--mlock --no-mmap", BT_LOAD_MLOCK},
        {"-dio", BT_LOAD_DIRECT},
        {"-ndio", BT_LOAD_AUTO},
        {"--mmap", BT_LOAD_MMAP},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[100];
        (void)strcat(strcpy(text, "llama-server -m x "), rows[i].options);
        resolve(state, text);
        assert_int_equal(e.load_mode.value, rows[i].mode);
        assert_int_equal(e.load_mode.by.origin, rows[i].mode == BT_LOAD_AUTO ? BT_FROM_DEFAULT : BT_FROM_ARGV);
    }
    resolve_in(state, (world){.variables = "LLAMA_ARG_NO_MMAP=1"}, "llama-server -m x");
    HOLD(e.load_mode, BT_LOAD_NONE, ENV);
    assert_true(noted("variable of earlier builds"));
    resolve_in(state, (world){.variables = "LLAMA_ARG_NO_MMAP=1 LLAMA_ARG_LOAD_MODE=mmap"}, "llama-server -m x");
    HOLD(e.load_mode, BT_LOAD_MMAP, ENV);
    resolve(state, "llama-server -m x -lm fast");
    assert_true(e.load_mode.bad);
}

static void drafting(void **state) {
    resolve(state, "llama-server -m x --spec-type draft-mtp,ngram-mod --spec-type draft-simple+ngram-cache");
    assert_int_equal(e.drafters, 1u << BT_DRAFTER_MTP | 1u << BT_DRAFTER_NGRAM_MOD | 1u << BT_DRAFTER_SIMPLE |
                                     1u << BT_DRAFTER_NGRAM_CACHE);
    resolve(state, "llama-server -m x --spec-default");
    assert_int_equal(e.drafters, 1u << BT_DRAFTER_NGRAM_MOD);
    resolve(state, "llama-server -m x --spec-type none");
    assert_int_equal(e.drafters, 0);
    resolve(state, "llama-server -m x --spec-type nonsense --draft 5");
    assert_int_equal(e.n_bad, 1);
    assert_true(e.earlier_build);
    assert_true(noted("earlier build"));
}

static void vision_and_ranking(void **state) {
    resolve(state, "llama-server -m x --mmproj-device none");
    HOLD(e.mmproj_offload, 0, ARGV);
    resolve(state, "llama-server -m x --no-mmproj-offload -mmdev CUDA0");
    HOLD(e.mmproj_offload, 1, ARGV);
    resolve(state, "llama-server -m x --rerank -ub 256");
    HOLD(e.embedding, 1, ARGV);
    HOLD(e.pooling, BT_POOLING_RANK, ARGV);
    HOLD(e.batch, 256, PROGRAM);
}

static void refused_values(void **state) {
    static const char *const options[] = {
        "-ngl many",
        "-c big",
        "-ctk q3_K",
        "-ctk F16",
        "-fit maybe",
        "-sm both",
        "-ts a,b",
        "-fitt x",
        "-lzm 1",
        "--pooling x",
        "-cms -1",
        "--rope-scale x",
        "-c",
        "-mg x",
        "-ub 99999999999",
        "--sleep-idle-seconds 0",
        "--sleep-idle-seconds -2",
        "--spec-draft-n-max -1",
        "-ngld x",
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        char text[100];
        (void)strcat(strcpy(text, "llama-server -m x "), options[i]);
        resolve(state, text);
        if (e.n_bad != 1) fail_msg("%s: %u", options[i], (unsigned)e.n_bad);
        assert_true(noted("does not start"));
    }
    resolve(state, "llama-server -m x -c 7 -c x");
    HOLD(e.ctx, 7, ARGV);
    assert_true(e.ctx.bad);
}

static void notes(void **state) {
    resolve(state, "llama-server -m x --new 5 --newer=6 stray --ctx-size=5");
    assert_true(noted("not known: 2"));
    assert_true(noted("--name=value: 2"));
    assert_true(noted("belong to no option: 1"));
    HOLD(e.ctx, 5, ARGV);
    char text[4000] = "llama-server -m x";
    for (uint32_t i = 0; i < 100; i++)
        (void)strcat(text, " -c x");
    resolve(state, text);
    assert_int_equal(e.n_notes, BT_NOTE_MAX);
    assert_int_equal(e.n_bad, 100);
}

static void limits(void **state) {
    char *text = malloc(LINE_TEXT_MAX);
    assert_non_null(text);
    (void)strcpy(text, "llama-server -m x -ot ");
    size_t n = strlen(text);
    for (uint32_t i = 0; i < BT_RULE_MAX; i++) {
        memcpy(text + n, "=,", 3);
        n += 2;
    }
    text[n - 1] = '\0';
    resolve(state, text);
    assert_int_equal(e.rules.n, BT_RULE_MAX);
    (void)strcat(text, ",=");
    bt_command_find(line_split(&words, text), &command);
    const bt_argv *view = NULL;
    assert_int_equal(bt_argv_parse(*state, words.argv, 1, BT_PROGRAM_SERVER, &view, &err), BT_OK);
    bt_effective_input input = {.command = &command, .argv = view};
    assert_int_equal(bt_effective_resolve(*state, &input, &e, &err), BT_E_ARG);
    assert_string_equal(err.code, "arguments");
    bt_arena *small = bt_arena_open(4096, 1024);
    assert_non_null(small);
    assert_int_equal(bt_effective_resolve(small, &input, &e, &err), BT_E_NOMEM);
    bt_arena_close(small);
    free(text);
}

/* With less and less memory: an error, or the same answer; nothing else. */
static void short_of_memory(void **state) {
    static const char text[] = "env A=1 llama-server -m x -ot a=CPU,b=CPU -ncmoe 3 -cmoe --lora a,b --lora-scaled c:1 "
                               "-c x --new -ts 1,2 --no-mmap";
    static bt_effective whole;
    world w = {
        .variables = "HOME=/home/x LLAMA_ARG_NO_REPACK=1", .user_file = "c=5\n[*]\nb=6\n", .system_file = "t=7\n"};
    resolve_in(state, w, text);
    whole = e;
    uint32_t n_failed = 0, n_good = 0;
    for (uint64_t bytes = 64; n_good == 0; bytes += 997) {
        bt_arena *arena = bt_arena_open(bytes, 512);
        const bt_argv *view = NULL;
        bt_effective_input input = {&command, NULL, variable, &w, file, &w};
        memset(&err, 0, sizeof err);
        bt_status status =
            arena ? bt_argv_parse(arena, words.argv, command.first, command.program, &view, &err) : BT_E_NOMEM;
        input.argv = view;
        if (status == BT_OK) status = bt_effective_resolve(arena, &input, &e, &err);
        if (status == BT_OK && e.n_notes == whole.n_notes) n_good++;
        if (status != BT_OK) {
            assert_int_equal(status, BT_E_NOMEM);
            n_failed++;
        } else {
            assert_int_equal(e.rules.n, whole.rules.n);
            assert_int_equal(e.loras.n, whole.loras.n);
            assert_int_equal(e.batch.value, 6);
        }
        bt_arena_close(arena);
        assert_true(bytes < 1000000);
    }
    assert_true(n_failed > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_ARENA(defaults),
        WITH_ARENA(every_setting),
        WITH_ARENA(settings_of_others),
        WITH_ARENA(precedence),
        WITH_ARENA(environment),
        WITH_ARENA(files),
        WITH_ARENA(through_wrappers),
        WITH_ARENA(rules),
        WITH_ARENA(adapters),
        WITH_ARENA(context),
        WITH_ARENA(batches),
        WITH_ARENA(models),
        WITH_ARENA(loading),
        WITH_ARENA(drafting),
        WITH_ARENA(notes),
        WITH_ARENA(refused_values),
        WITH_ARENA(vision_and_ranking),
        WITH_ARENA(limits),
        WITH_ARENA(short_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
