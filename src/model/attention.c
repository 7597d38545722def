/* SPDX-License-Identifier: MIT
 *
 * attention.c: what each block keeps of a token, by architecture.
 *
 * llama.cpp has about 150 graphs, but most of them keep the same thing: for each block head_count_kv keys of key_length
 * and as many values of value_length. Which do is read from its source (llama_model::create_memory, and the model files
 * that touch head counts or windows), not guessed: an architecture has a row in one of the two tables here, or its KV
 * is unknown and said to be (docs/design.md section 6). The second table names those that are known not to be plain:
 * recurrent and hybrid ones, latent attention, encoders.
 *
 * Sliding windows: some blocks keep only the last `window` tokens. Which, is a period (the last block of each period,
 * or the first, is full) or an array of truth values in the file, which wins.
 */
#include "model/attention.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef enum window_rule {
    FULL,     /* no windows, whatever the file says */
    ALWAYS,   /* the file's window, or the row's if that is not 0; else the key is missing */
    IF_SET,   /* windows if the file gives one above 0; of the row's size if that is not 0 */
    UNLESS_0, /* windows of the row's size unless the file says 0 */
} window_rule;

#define DENSE_FIRST   1u  /* the first block of a period is full, not the last */
#define NEEDS_PATTERN 2u  /* the array must be in the file */
#define ONLY_64       4u  /* exaone4: only the model of 64 blocks has windows */
#define SHARES_20     8u  /* gemma3n: blocks from 20 on use the KV of earlier ones */
#define SHARES_KEY    16u /* gemma4: attention.shared_kv_layers of them */

typedef struct arch_row {
    const char *name;
    window_rule rule;
    uint32_t window, period, flags;
} arch_row;

/* llama.cpp src/models/<arch>.cpp, load_arch_hparams */
static const arch_row arch_rows[] = {
    {"apertus", FULL, 0, 0, 0},
    {"arcee", FULL, 0, 0, 0},
    {"arctic", FULL, 0, 0, 0},
    {"baichuan", FULL, 0, 0, 0},
    {"bailingmoe", FULL, 0, 0, 0},
    {"bailingmoe2", FULL, 0, 0, 0},
    {"bitnet", FULL, 0, 0, 0},
    {"bloom", FULL, 0, 0, 0},
    {"chameleon", FULL, 0, 0, 0},
    {"chatglm", FULL, 0, 0, 0},
    {"codeshell", FULL, 0, 0, 0},
    {"command-r", FULL, 0, 0, 0},
    {"dbrx", FULL, 0, 0, 0},
    {"deci", FULL, 0, 0, 0},
    {"deepseek", FULL, 0, 0, 0},
    {"dots1", FULL, 0, 0, 0},
    {"ernie4_5", FULL, 0, 0, 0},
    {"ernie4_5-moe", FULL, 0, 0, 0},
    {"exaone", FULL, 0, 0, 0},
    {"falcon", FULL, 0, 0, 0},
    {"gemma", FULL, 0, 0, 0},
    {"glm4", FULL, 0, 0, 0},
    {"glm4moe", FULL, 0, 0, 0},
    {"gpt2", FULL, 0, 0, 0},
    {"gptneox", FULL, 0, 0, 0},
    {"granite", FULL, 0, 0, 0},
    {"granitemoe", FULL, 0, 0, 0},
    {"grok", FULL, 0, 0, 0},
    {"grovemoe", FULL, 0, 0, 0},
    {"hunyuan-dense", FULL, 0, 0, 0},
    {"hunyuan-moe", FULL, 0, 0, 0},
    {"internlm2", FULL, 0, 0, 0},
    {"jais", FULL, 0, 0, 0},
    {"jais2", FULL, 0, 0, 0},
    {"llama", FULL, 0, 0, 0},
    {"maincoder", FULL, 0, 0, 0},
    {"minicpm", FULL, 0, 0, 0},
    {"minimax-m2", FULL, 0, 0, 0},
    {"mistral3", FULL, 0, 0, 0},
    {"mpt", FULL, 0, 0, 0},
    {"nemotron", FULL, 0, 0, 0},
    {"olmo", FULL, 0, 0, 0},
    {"olmoe", FULL, 0, 0, 0},
    {"openelm", FULL, 0, 0, 0},
    {"orion", FULL, 0, 0, 0},
    {"paddleocr", FULL, 0, 0, 0},
    {"pangu-embedded", FULL, 0, 0, 0},
    {"phi2", FULL, 0, 0, 0},
    {"phi3", FULL, 0, 0, 0}, /* has window keys; llama.cpp ignores them */
    {"phimoe", FULL, 0, 0, 0},
    {"plamo", FULL, 0, 0, 0},
    {"qwen", FULL, 0, 0, 0},
    {"qwen2", FULL, 0, 0, 0},
    {"qwen2moe", FULL, 0, 0, 0},
    {"qwen2vl", FULL, 0, 0, 0},
    {"qwen3", FULL, 0, 0, 0},
    {"qwen3moe", FULL, 0, 0, 0},
    {"qwen3vl", FULL, 0, 0, 0},
    {"qwen3vlmoe", FULL, 0, 0, 0},
    {"refact", FULL, 0, 0, 0},
    {"seed_oss", FULL, 0, 0, 0},
    {"smollm3", FULL, 0, 0, 0},
    {"stablelm", FULL, 0, 0, 0},
    {"starcoder", FULL, 0, 0, 0},
    {"starcoder2", FULL, 0, 0, 0},
    {"xverse", FULL, 0, 0, 0},
    {"afmoe", IF_SET, 0, 4, 0},
    {"cohere2", ALWAYS, 0, 4, 0},
    {"cohere2moe", ALWAYS, 0, 4, DENSE_FIRST},
    {"exaone-moe", ALWAYS, 0, 4, 0},
    {"exaone4", ALWAYS, 4096, 4, ONLY_64},
    {"gemma2", ALWAYS, 4096, 2, 0},
    {"gemma3", IF_SET, 0, 6, 0},
    {"gemma3n", ALWAYS, 0, 5, SHARES_20},
    {"gemma4", ALWAYS, 0, 0, NEEDS_PATTERN | SHARES_KEY},
    {"gpt-oss", ALWAYS, 0, 2, 0},
    {"granite_swa", ALWAYS, 0, 0, NEEDS_PATTERN},
    {"llama4", UNLESS_0, 8192, 4, 0}, /* chunks, not windows; the cache has as many cells */
    {"mellum", IF_SET, 0, 4, 0},
    {"olmo2", IF_SET, 0, 4, 0},
    {"smallthinker", IF_SET, 4096, 4, DENSE_FIRST},
};

typedef struct other_row {
    const char *name;
    const char *reason; /* after "the architecture's " */
} other_row;

#define RECURRENT "recurrent state"
#define LATENT    "latent attention (MLA)"
#define ENCODER   "encoder"

static const other_row other_rows[] = {
    {"arwkv7", RECURRENT},
    {"mamba", RECURRENT},
    {"mamba2", RECURRENT},
    {"rwkv6", RECURRENT},
    {"rwkv6qwen2", RECURRENT},
    {"rwkv7", RECURRENT},
    {"bailingmoe3", RECURRENT},
    {"deepseek4", RECURRENT},
    {"falcon-h1", RECURRENT},
    {"glm5-next", RECURRENT},
    {"granitehybrid", RECURRENT},
    {"jamba", RECURRENT},
    {"kimi-k3", RECURRENT},
    {"kimi-linear", RECURRENT},
    {"lfm2", RECURRENT},
    {"lfm2moe", RECURRENT},
    {"minimax-01", RECURRENT},
    {"nemotron_h", RECURRENT},
    {"nemotron_h_moe", RECURRENT},
    {"plamo2", RECURRENT},
    {"qwen35", RECURRENT},
    {"qwen35moe", RECURRENT},
    {"qwen3next", RECURRENT},
    {"qwen4exp", RECURRENT},
    {"deepseek2", LATENT},
    {"deepseek2-ocr", LATENT},
    {"deepseek32", LATENT},
    {"dots3note", LATENT},
    {"glm-dsa", LATENT},
    {"hy_v4", LATENT},
    {"minicpm3", LATENT},
    {"mistral4", LATENT},
    {"plm", LATENT},
    {"bert", ENCODER},
    {"eurobert", ENCODER},
    {"gemma-embedding", ENCODER},
    {"jina-bert-v2", ENCODER},
    {"jina-bert-v3", ENCODER},
    {"modern-bert", ENCODER},
    {"neo-bert", ENCODER},
    {"nomic-bert", ENCODER},
    {"nomic-bert-moe", ENCODER},
    {"t5encoder", ENCODER},
    {"wavtokenizer-dec", ENCODER},
};

#define COUNT_OF(rows) (sizeof(rows) / sizeof(rows)[0])

static const arch_row *find_row(const char *arch) {
    for (size_t i = 0; i < COUNT_OF(arch_rows); i++) {
        if (strcmp(arch_rows[i].name, arch) == 0) return &arch_rows[i];
    }
    return NULL;
}

static const char *find_reason(const char *arch) {
    for (size_t i = 0; i < COUNT_OF(other_rows); i++) {
        if (strcmp(other_rows[i].name, arch) == 0) return other_rows[i].reason;
    }
    return NULL;
}

bool bt_attention_is_known(const char *arch) {
    return find_row(arch);
}

bool bt_attention_is_encoder(const char *arch) {
    const char *reason = find_reason(arch);
    return reason && strcmp(reason, ENCODER) == 0;
}

/* ---- one file -----------------------------------------------------------------------------------------------------
 */

typedef struct geometry {
    const bt_gguf *gguf;
    const bt_facts *facts;
    const arch_row *row;
    const bt_gguf_key *heads, *heads_kv, *pattern;
    uint32_t k_length, v_length;         /* elements of a head */
    uint32_t k_length_swa, v_length_swa; /* in blocks with a window */
    uint32_t window;                     /* 0: none has one */
    uint32_t period;
    uint32_t n_own; /* blocks from here on use the KV of earlier ones */
} geometry;

static const bt_gguf_key *find(const geometry *g, const char *suffix) {
    return bt_gguf_find_arch(g->gguf, g->facts->arch, suffix);
}

static uint32_t u32_or(const geometry *g, const char *suffix, uint32_t absent) {
    uint32_t v;
    return bt_gguf_u32_at(find(g, suffix), 0, &v) ? v : absent;
}

static bt_status refuse(const geometry *g, bt_error *err, const char *what) {
    return bt_fail(err, BT_E_FORMAT, "model_shape", BT_MEASURE_NONE, 0, 0, "%s: %s.%s", g->gguf->name, g->facts->arch,
                   what);
}

static bt_status read_window(geometry *g, bt_error *err) {
    const arch_row *row = g->row;
    const bt_gguf_key *key = find(g, "attention.sliding_window");
    uint32_t in_file = 0;
    if (row->rule == FULL || ((row->flags & ONLY_64) && g->facts->n_block != 64)) return BT_OK;
    if (key && (key->is_array || !bt_gguf_u32_at(key, 0, &in_file)))
        return refuse(g, err, "attention.sliding_window is not a u32");
    switch (row->rule) {
    case FULL:
        return BT_OK;
    case ALWAYS:
        g->window = key ? in_file : row->window;
        if (g->window == 0) return refuse(g, err, "attention.sliding_window is missing or 0");
        break;
    case IF_SET:
        if (in_file == 0) return BT_OK;
        g->window = row->window > 0 ? row->window : in_file;
        break;
    case UNLESS_0:
        if (key && in_file == 0) return BT_OK;
        g->window = row->window;
        break;
    }
    return BT_OK;
}

static bt_status read_pattern(geometry *g, bt_error *err) {
    if (g->window == 0) return BT_OK;
    g->period = g->row->period;
    const bt_gguf_key *key = find(g, "attention.sliding_window_pattern");
    if (key && key->is_array) {
        bool good = key->type == BT_GGUF_BOOL || key->type == BT_GGUF_U32 || key->type == BT_GGUF_I32;
        if (!good || key->n > BT_BLOCK_MAX)
            return refuse(g, err, "attention.sliding_window_pattern is no array of truth values, one for each block");
        g->pattern = key;
        return BT_OK;
    }
    if (key && !bt_gguf_u32_at(key, 0, &g->period))
        return refuse(g, err, "attention.sliding_window_pattern is neither an array nor a u32");
    if (g->row->flags & NEEDS_PATTERN) return refuse(g, err, "attention.sliding_window_pattern is missing");
    return BT_OK;
}

static bool has_window(const geometry *g, uint32_t block) {
    if (g->window == 0) return false;
    if (g->pattern) {
        uint32_t v;
        return bt_gguf_u32_at(g->pattern, block, &v) && v != 0;
    }
    if (g->period == 0) return true;
    uint32_t place = block % g->period;
    return g->row->flags & DENSE_FIRST ? place != 0 : place < g->period - 1;
}

static bt_status read_lengths(geometry *g, bt_error *err) {
    uint32_t n_head = 0;
    if (!bt_gguf_u32_at(g->heads, 0, &n_head)) return refuse(g, err, "attention.head_count is missing");
    if (n_head > 0) { /* else the first block has no attention, and no head has a length (deci) */
        uint32_t length = g->facts->n_embd / n_head;
        g->k_length = u32_or(g, "attention.key_length", length);
        g->v_length = u32_or(g, "attention.value_length", length);
    }
    g->k_length_swa = u32_or(g, "attention.key_length_swa", g->k_length);
    g->v_length_swa = u32_or(g, "attention.value_length_swa", g->v_length);
    return BT_OK;
}

static bt_status read_sharing(geometry *g, bt_error *err) {
    g->n_own = g->facts->n_block;
    if (g->row->flags & SHARES_20) g->n_own = 20; /* gemma3n: num_hidden_layers 30 or 35, the last 10 or 15 share */
    if (g->row->flags & SHARES_KEY) {
        uint32_t n_shared = u32_or(g, "attention.shared_kv_layers", 0);
        if (n_shared > g->n_own) return refuse(g, err, "attention.shared_kv_layers is more than there are blocks");
        g->n_own -= n_shared;
    }
    if (g->n_own < g->facts->n_block && g->n_own < 2)
        return refuse(g, err, "attention.shared_kv_layers leaves less than two blocks with a KV cache");
    return BT_OK;
}

/* ggml's matrix product of keys and queries asserts that each KV head serves a whole number of query heads. */
static bt_status fill_block(const geometry *g, uint32_t block, bt_kv_block *kv, bt_error *err) {
    uint32_t n_head = 0, n_head_kv = 0;
    if (!bt_gguf_u32_at(g->heads, block, &n_head)) return refuse(g, err, "attention.head_count is no count");
    n_head_kv = n_head;
    if (g->heads_kv && !bt_gguf_u32_at(g->heads_kv, block, &n_head_kv))
        return refuse(g, err, "attention.head_count_kv is no count");
    if (n_head_kv > 0 && n_head % n_head_kv != 0)
        return bt_fail(err, BT_E_FORMAT, "model_shape", BT_MEASURE_NONE, 0, 0,
                       "%s: block %" PRIu32 " has %" PRIu32 " heads for %" PRIu32 " KV heads, no multiple",
                       g->gguf->name, block, n_head, n_head_kv);
    bool swa = has_window(g, block);
    uint64_t k_width = (uint64_t)n_head_kv * (swa ? g->k_length_swa : g->k_length);
    uint64_t v_width = (uint64_t)n_head_kv * (swa ? g->v_length_swa : g->v_length);
    if (k_width > INT32_MAX || v_width > INT32_MAX)
        return refuse(g, err, "attention: the keys of a token have more elements than can be counted");
    if (block >= g->n_own) return BT_OK;
    *kv = (bt_kv_block){.k_width = (uint32_t)k_width, .v_width = (uint32_t)v_width, .window = swa ? g->window : 0};
    return BT_OK;
}

static uint32_t common_divisor(uint32_t a, uint32_t b) {
    while (b != 0) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static bt_status fill_known(geometry *g, bt_facts *facts, bt_error *err) {
    g->heads = find(g, "attention.head_count");
    g->heads_kv = find(g, "attention.head_count_kv");
    BT_TRY(read_lengths(g, err));
    BT_TRY(read_window(g, err));
    BT_TRY(read_pattern(g, err));
    BT_TRY(read_sharing(g, err));
    uint32_t n_windows = 0;
    for (uint32_t i = 0; i < facts->n_block; i++) {
        BT_TRY(fill_block(g, i, &facts->kv[i], err));
        n_windows += has_window(g, i);
    }
    if (g->window > 0 && n_windows == 0) return refuse(g, err, "attention.sliding_window is set, but no block has one");
    facts->kv_known = facts->kv_exact = true;
    facts->k_head_gcd = common_divisor(g->k_length, n_windows > 0 ? g->k_length_swa : 0);
    facts->v_head_gcd = common_divisor(g->v_length, n_windows > 0 ? g->v_length_swa : 0);
    return BT_OK;
}

static void say_unknown(bt_facts *facts) {
    const char *reason = find_reason(facts->arch);
    if (!reason) {
        snprintf(facts->kv_reason, sizeof facts->kv_reason, "the KV cache of architecture %.40s is not known",
                 facts->arch);
    } else if (bt_attention_is_encoder(facts->arch)) {
        snprintf(facts->kv_reason, sizeof facts->kv_reason, "%.40s is an encoder, which is not priced yet",
                 facts->arch);
    } else {
        snprintf(facts->kv_reason, sizeof facts->kv_reason, "%s of %.40s is not priced yet", reason, facts->arch);
    }
}

bt_status bt_attention_fill(const bt_gguf *gguf, bt_facts *facts, bt_arena *arena, bt_error *err) {
    facts->kv = bt_arena_array(arena, facts->n_block > 0 ? facts->n_block : 1, sizeof *facts->kv);
    if (!facts->kv) return bt_model_no_room(gguf->name, err);
    geometry g = {.gguf = gguf, .facts = facts, .row = find_row(facts->arch)};
    if (g.row && facts->n_block > 0) return fill_known(&g, facts, err);
    say_unknown(facts);
    if (facts->n_block == 0)
        snprintf(facts->kv_reason, sizeof facts->kv_reason, "the file holds only prediction (MTP) blocks");
    return BT_OK;
}
