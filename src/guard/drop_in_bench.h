/* SPDX-License-Identifier: MIT
 * drop_in_bench.h: llama-bench with Burthen's device in it. Its options are lists, of which it runs every combination:
 * they are read here and not by argv.h, as far as memory needs them. */
#pragma once

#include "guard/drop_in.h"

/* All values of one option, over all its occurrences. n 0: none, and the program's default holds. */
typedef struct bt_bench_list {
    uint32_t n, n_positive;
    int64_t least, most;
    int64_t least_from_zero; /* of those that are not negative; INT64_MAX: all are */
} bt_bench_list;

/* Points into argv. */
typedef struct bt_drop_in_bench {
    const char *model;                   /* the only one */
    bt_bench_list prompt, gen, depth;    /* tokens */
    bt_bench_list both;                  /* prompt and answer in one test, their sum: -pg */
    bt_bench_list batch, ubatch;         /* tokens */
    bt_bench_list type_k, type_v, flash; /* ggml types; bt_flash */
    bt_bench_list threads, gpu_layers;
    bt_bench_list n_cpu_moe, main_gpu;
    bt_bench_list split_mode, load_mode, lazy_mode;  /* bt_split_mode, bt_load_mode, bt_lazy_mode */
    bt_bench_list no_kv_offload, embeddings, repack; /* 0 or 1 */
    bt_bench_list fit_target, fit_ctx;               /* MiB; tokens */
    uint32_t n_models, n_devices, n_tensor_rules;    /* as often as they were given */
} bt_drop_in_bench;

/* argv: the program's own arguments, NULL at the end. BT_E_UNSUPPORTED (code "drop_in"): as of bt_drop_in_read, and
 * where settings that one plan cannot serve are to be compared. */
BT_MUST_CHECK bt_status bt_drop_in_bench_read(char *const *argv, bt_drop_in_bench *ret, bt_error *err);
/* What goes into a plan, for the largest of its tests. facts: of its model. BT_E_UNSUPPORTED as above. */
BT_MUST_CHECK bt_status bt_drop_in_bench_wish(const bt_drop_in_bench *bench, const bt_facts *facts, bt_drop_in *ret,
                                              bt_error *err);
/* Write a plan that was made with these wishes into the line: what stood nowhere at the end. E_ARG as
 * bt_rewrite_append_word. */
BT_MUST_CHECK bt_status bt_drop_in_bench_apply(const bt_drop_in_bench *bench, const bt_plan *plan, bt_rewrite *rewrite,
                                               bt_error *err);
