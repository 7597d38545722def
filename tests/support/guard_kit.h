/* SPDX-License-Identifier: MIT
 * guard_kit.h: models of round sizes, devices, and a command line decided on them. For tests that include cmocka.h
 * first, or define ARGV_CHECK(condition). */
#pragma once

#ifndef ARGV_CHECK
#define ARGV_CHECK(condition) assert_true(condition)
#endif
#include "argv_kit.h"
#include "guard/place.h"

#include <stdio.h>
#include <string.h>

#define KIT_MIB UINT64_C(1048576)
#define KIT_GIB UINT64_C(1073741824)

#define KIT_BLOCKS_MAX  96u
#define KIT_TENSORS_MAX (KIT_BLOCKS_MAX * 8 + 4)

typedef struct kit_facts {
    bt_facts facts;
    bt_tensor tensors[KIT_TENSORS_MAX];
    char names[KIT_TENSORS_MAX][48];
    bt_kv_block kv[KIT_BLOCKS_MAX];
} kit_facts;

static inline bt_tensor *kit_tensor(kit_facts *k, int32_t block, const char *part, uint64_t bytes, uint64_t ne0,
                                    uint64_t ne1) {
    uint32_t at = k->facts.n_tensors++;
    bt_tensor *t = &k->tensors[at];
    if (block >= 0)
        (void)snprintf(k->names[at], sizeof k->names[at], "blk.%d.%s", block, part);
    else
        (void)snprintf(k->names[at], sizeof k->names[at], "%s", part);
    *t = (bt_tensor){.name = k->names[at],
                     .type = 8,
                     .n_dims = 2,
                     .ne = {ne0, ne1, 1, 1},
                     .bytes = bytes,
                     .block = block,
                     .role = BT_ROLE_UNIT};
    k->facts.weight_bytes += bytes;
    return t;
}

static inline void kit_common(kit_facts *k, uint32_t n_block, uint32_t n_embd, uint32_t kv_width) {
    memset(k, 0, sizeof *k);
    k->facts = (bt_facts){.path = "/models/model.gguf",
                          .arch = "llama",
                          .name = "",
                          .tokenizer = "",
                          .tokenizer_pre = "",
                          .n_ctx_train = 131072,
                          .n_embd = n_embd,
                          .n_vocab = 32768,
                          .n_ff = 14336,
                          .n_block = n_block,
                          .n_block_all = n_block,
                          .n_head = 32,
                          .kv_known = true,
                          .kv_exact = true,
                          .head_k = 128,
                          .head_v = 128,
                          .kv = k->kv,
                          .tensors = k->tensors,
                          .v_width_max = kv_width};
    for (uint32_t b = 0; b < n_block; b++)
        k->kv[b] = (bt_kv_block){.k_width = kv_width, .v_width = kv_width};
}

/* 12 GiB in 32 blocks of 368 MiB, a table and a head of 256 MiB each; 8 KV heads of 128. */
static inline void kit_dense(kit_facts *k) {
    static const char *const attention[] = {"attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight"};
    static const char *const ffn[] = {"ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"};
    kit_common(k, 32, 4096, 1024);
    kit_tensor(k, -1, "token_embd.weight", 256 * KIT_MIB, 4096, 32768)->role = BT_ROLE_TABLE;
    kit_tensor(k, -1, "output.weight", 256 * KIT_MIB, 4096, 32768)->role = BT_ROLE_HEAD;
    for (int32_t b = 0; b < 32; b++) {
        for (size_t i = 0; i < 4; i++)
            kit_tensor(k, b, attention[i], 23 * KIT_MIB, 4096, i == 1 || i == 2 ? 1024 : 4096);
        for (size_t i = 0; i < 3; i++)
            kit_tensor(k, b, ffn[i], 92 * KIT_MIB, i == 2 ? 14336 : 4096, i == 2 ? 4096 : 14336);
    }
}

/* 17 GiB in 48 blocks, nine tenths of it experts (128, 8 used); 4 KV heads of 128. */
static inline void kit_mixture(kit_facts *k) {
    static const char *const experts[] = {"ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight"};
    uint64_t all = 17 * KIT_GIB;
    uint64_t one = all / 10 * 9 / 48 / 3, dense = (all / 10 - 256 * KIT_MIB) / 48 / 2;
    kit_common(k, 48, 2048, 512);
    k->facts.n_expert = 128;
    k->facts.n_expert_used = 8;
    k->facts.n_ff = 768;
    kit_tensor(k, -1, "token_embd.weight", 128 * KIT_MIB, 2048, 32768)->role = BT_ROLE_TABLE;
    kit_tensor(k, -1, "output.weight", 128 * KIT_MIB, 2048, 32768)->role = BT_ROLE_HEAD;
    for (int32_t b = 0; b < 48; b++) {
        kit_tensor(k, b, "attn_q.weight", dense, 2048, 4096);
        kit_tensor(k, b, "attn_output.weight", dense, 4096, 2048);
        for (size_t i = 0; i < 3; i++) {
            bt_tensor *t = kit_tensor(k, b, experts[i], one, i == 2 ? 768 : 2048, i == 2 ? 2048 : 768);
            t->n_dims = 3;
            t->ne[2] = 128;
            t->role = BT_ROLE_EXPERTS;
        }
    }
}

/* ---- a command line and what is decided of it ---- */

typedef struct kit_guard {
    bt_arena *arena;
    line words;
    bt_command command;
    const bt_argv *argv;
    bt_effective effective;
    bt_guard_device devices[BT_POOL_MAX];
    bt_guard_ask ask;
    bt_guard_decision decision;
    bt_rewrite rewrite;
    char text[LINE_TEXT_MAX]; /* the argv that came of it */
} kit_guard;

static inline void kit_guard_open(kit_guard *g, const bt_facts *facts) {
    memset(g, 0, sizeof *g);
    g->arena = bt_arena_open(UINT64_C(256) << 20, 65536);
    ARGV_CHECK(g->arena != NULL);
    g->ask.price.facts = facts;
    g->ask.price.arena = g->arena;
    g->ask.price.devices = g->devices;
}

static inline void kit_guard_close(kit_guard *g) {
    bt_arena_close(g->arena);
}

static inline bt_guard_device *kit_device(kit_guard *g, const char *name, uint64_t free_bytes) {
    bt_guard_device *d = &g->devices[g->ask.price.n_devices++];
    *d = (bt_guard_device){
        .pool = {
            .kind = BT_POOL_GPU, .state = BT_READING_REPORTED, .free_bytes = free_bytes, .total_bytes = 24 * KIT_GIB}};
    (void)snprintf(d->pool.name, sizeof d->pool.name, "%s", name);
    return d;
}

static inline void kit_read(kit_guard *g, const char *text) {
    bt_command_find(line_split(&g->words, text), &g->command);
    ARGV_CHECK(g->command.program != BT_PROGRAM_NONE);
    ARGV_CHECK(bt_argv_parse(g->arena, g->words.argv, g->command.first, g->command.program, &g->argv, NULL) == BT_OK);
    bt_effective_input input = {&g->command, g->argv, argv_no_variable, NULL, NULL, NULL};
    ARGV_CHECK(bt_effective_resolve(g->arena, &input, &g->effective, NULL) == BT_OK);
    g->ask.price.effective = &g->effective;
}

/* Decide, and write it: g->text. */
static inline const bt_guard_decision *kit_decide(kit_guard *g, const char *text) {
    kit_read(g, text);
    ARGV_CHECK(bt_guard_place(&g->ask, &g->decision, NULL) == BT_OK);
    ARGV_CHECK(bt_rewrite_open(&g->rewrite, g->arena, g->argv, NULL) == BT_OK);
    ARGV_CHECK(bt_guard_apply(&g->decision, &g->rewrite, NULL) == BT_OK);
    argv_check_same(&g->rewrite);
    size_t n = 0;
    g->text[0] = '\0';
    for (uint32_t i = g->command.first; i < g->rewrite.n_argv; i++)
        n += (size_t)snprintf(g->text + n, sizeof g->text - n, "%s%s", i > g->command.first ? " " : "",
                              g->rewrite.argv[i]);
    return &g->decision;
}
