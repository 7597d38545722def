/* SPDX-License-Identifier: MIT
 *
 * attention.c: what each block keeps of a token.
 *
 * For each block, head_count_kv keys of key_length and as many values of value_length; families.c says for which
 * architectures that is all, and recurrent.c which blocks keep a state of the sequence instead, or beside it.
 *
 * Sliding windows: some blocks keep only the last `window` tokens. Which, is a period (the last block of each period,
 * or the first, is full) or an array of truth values in the file, which wins.
 *
 * Latent attention: what is kept is one row for all heads, the compressed latent and the part with positions; the
 * values are a view of it. An indexer's keys stand in a second cache of as many cells, which adds to the row. A file
 * says so by the lengths its heads have before compression (llama_hparams::is_mla).
 */
#include "model/attention.h"

#include "base/error.h"
#include "base/text.h"
#include "model/families.h"
#include "model/recurrent.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool bt_attention_is_known(const char *arch) {
    return bt_family_find(arch);
}

bool bt_attention_is_encoder(const char *arch) {
    /* t5encoder and wavtokenizer-dec are encoders of other kinds, whose memory is not known. */
    static const char *const others[] = {"t5encoder", "wavtokenizer-dec"};
    if (bt_is_among(arch, others, sizeof others / sizeof *others)) return true;
    const bt_family *family = bt_family_find(arch);
    return family && (family->flags & BT_ENCODER) != 0;
}

/* ---- one file -----------------------------------------------------------------------------------------------------
 */

typedef struct geometry {
    const bt_gguf *gguf;
    const bt_facts *facts;
    const bt_family *row;
    const bt_gguf_key *heads, *heads_kv, *pattern;
    uint32_t k_length, v_length;         /* elements of a head */
    uint32_t k_length_swa, v_length_swa; /* in blocks with a window */
    uint32_t window;                     /* 0: none has one */
    uint32_t period;
    uint32_t n_own;       /* blocks from here on use the KV of earlier ones */
    uint32_t index_width; /* elements of the key beside each latent row */
} geometry;

static const bt_gguf_key *find(const geometry *g, const char *suffix) {
    return bt_gguf_find_arch(g->gguf, g->facts->arch, suffix);
}

static uint32_t u32_or(const geometry *g, const char *suffix, uint32_t absent) {
    return bt_gguf_u32_or(find(g, suffix), absent);
}

static bt_status refuse(const geometry *g, bt_error *err, const char *what) {
    return bt_fail(err, BT_E_FORMAT, "model_shape", BT_MEASURE_NONE, 0, 0, "%s: %s.%s", g->gguf->name, g->facts->arch,
                   what);
}

static bt_status read_window(geometry *g, bt_error *err) {
    const bt_family *row = g->row;
    const bt_gguf_key *key = find(g, "attention.sliding_window");
    uint32_t in_file = 0;
    if (row->rule == BT_WINDOW_NONE || ((row->flags & BT_ONLY_64) && g->facts->n_block != 64)) return BT_OK;
    if (key && (key->is_array || !bt_gguf_u32_at(key, 0, &in_file)))
        return refuse(g, err, "attention.sliding_window is not a u32");
    switch (row->rule) {
    case BT_WINDOW_NONE:
        return BT_OK;
    case BT_WINDOW_ALWAYS:
        g->window = key ? in_file : row->window;
        if (g->window == 0) return refuse(g, err, "attention.sliding_window is missing or 0");
        break;
    case BT_WINDOW_IF_SET:
        if (in_file == 0) return BT_OK;
        g->window = row->window > 0 ? row->window : in_file;
        break;
    case BT_WINDOW_UNLESS_0:
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
    if (g->row->flags & BT_NEEDS_PATTERN) return refuse(g, err, "attention.sliding_window_pattern is missing");
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
    return g->row->flags & BT_DENSE_FIRST ? place != 0 : place < g->period - 1;
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
    if (g->row->flags & BT_SHARES_20) g->n_own = 20; /* gemma3n: num_hidden_layers 30 or 35, the last 10 or 15 share */
    if (g->row->flags & BT_SHARES_KEY) {
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
    kv->k_width = (uint32_t)k_width + g->index_width;
    kv->v_width = g->facts->latent ? 0 : (uint32_t)v_width;
    kv->window = swa && n_head_kv > 0 ? g->window : 0;
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

/* llama_hparams::n_embd_v_gqa_max: of every block in the file, recurrent and predicting ones too. */
static void widest_values(const geometry *g, bt_facts *facts) {
    uint32_t n_all = u32_or(g, "block_count", facts->n_block);
    for (uint32_t i = 0; i < n_all && i < BT_BLOCK_MAX; i++) {
        uint32_t n = 0;
        if (!bt_gguf_u32_at(g->heads_kv ? g->heads_kv : g->heads, i, &n)) continue;
        uint64_t width = (uint64_t)n * (i < facts->n_block && has_window(g, i) ? g->v_length_swa : g->v_length);
        if (width > facts->v_width_max && width <= INT32_MAX) facts->v_width_max = (uint32_t)width;
    }
}

/* Latent attention: one row for all heads, of older files only where both lengths are given; and its indexer's. */
static bt_status read_latent(geometry *g, bt_facts *facts, bt_error *err) {
    uint32_t mla_k = u32_or(g, "attention.key_length_mla", 0), mla_v = u32_or(g, "attention.value_length_mla", 0);
    if ((g->row->flags & BT_LATENT) && (mla_k != 0) != (mla_v != 0))
        return refuse(g, err, "attention.key_length_mla and value_length_mla: one is missing");
    facts->latent = (g->row->flags & BT_LATENT) && mla_k != 0;
    if (g->row->flags & BT_INDEXED) {
        g->index_width = u32_or(g, "attention.indexer.key_length", 0);
        if (!facts->latent || g->index_width == 0 || g->index_width > INT16_MAX)
            return refuse(g, err, "attention.indexer.key_length: no indexer, or none beside latent attention");
    }
    return BT_OK;
}

static bt_status fill_attention(geometry *g, const bool *no_kv, bt_facts *facts, bt_error *err) {
    BT_TRY(read_latent(g, facts, err));
    BT_TRY(read_lengths(g, err));
    BT_TRY(read_window(g, err));
    BT_TRY(read_pattern(g, err));
    BT_TRY(read_sharing(g, err));
    uint32_t n_windows = 0;
    for (uint32_t i = 0; i < facts->n_block; i++) {
        if (no_kv[i]) continue;
        BT_TRY(fill_block(g, i, &facts->kv[i], err));
        n_windows += has_window(g, i);
    }
    if (g->window > 0 && n_windows == 0) return refuse(g, err, "attention.sliding_window is set, but no block has one");
    facts->k_head_gcd = common_divisor(g->k_length, n_windows > 0 ? g->k_length_swa : 0);
    facts->v_head_gcd = common_divisor(g->v_length, n_windows > 0 ? g->v_length_swa : 0);
    facts->head_k = g->k_length, facts->head_v = g->v_length;
    facts->head_k_swa = g->k_length_swa, facts->head_v_swa = g->v_length_swa;
    widest_values(g, facts);
    return BT_OK;
}

static bt_status fill_known(geometry *g, bt_facts *facts, bt_error *err) {
    g->heads = find(g, "attention.head_count");
    g->heads_kv = find(g, "attention.head_count_kv");
    facts->encoder = (g->row->flags & BT_ENCODER) != 0;
    if (!facts->encoder) {
        bool no_kv[BT_BLOCK_MAX] = {false};
        BT_TRY(bt_recurrent_fill(g->gguf, g->row, facts, no_kv, err));
        if (g->row->where != BT_RECURRENT_ALL) BT_TRY(fill_attention(g, no_kv, facts, err));
    }
    facts->kv_known = facts->kv_exact = true;
    return BT_OK;
}

static void say_unknown(bt_facts *facts) {
    snprintf(facts->kv_reason, sizeof facts->kv_reason, "%s of architecture %.40s is not known",
             bt_attention_is_encoder(facts->arch) ? "the memory" : "the KV cache", facts->arch);
}

bt_status bt_attention_fill(const bt_gguf *gguf, bt_facts *facts, bt_arena *arena, bt_error *err) {
    facts->kv = bt_arena_array(arena, facts->n_block > 0 ? facts->n_block : 1, sizeof *facts->kv);
    if (!facts->kv) return bt_model_no_room(gguf->name, err);
    geometry g = {.gguf = gguf, .facts = facts, .row = bt_family_find(facts->arch)};
    if (g.row && facts->n_block > 0) return fill_known(&g, facts, err);
    say_unknown(facts);
    if (facts->n_block == 0)
        snprintf(facts->kv_reason, sizeof facts->kv_reason, "the file holds only prediction (MTP) blocks");
    return BT_OK;
}
