/* SPDX-License-Identifier: MIT
 *
 * compute.c: what computing a micro-batch takes beside weights and caches, in closed form.
 *
 * Three things, as the dry run measures them (src/engine/price.c):
 *
 *   graph   the buffer in which ggml's allocator places the results of a graph: at any moment those that are still
 *           needed, and holes. It is as large as its fullest moment.
 *   work    the CPU backend's work area: the most that a single operation asks for.
 *   heap    graph and scheduler structures, by the nodes a graph may have.
 *
 * The fullest moment of a graph is one of a few, and what lives there can be read from the model's graph in llama.cpp
 * (src/models, llm_graph_context): at the feed-forward the residual stream, gate, up and their product; at the experts'
 * down projection one row for each expert used; at attention without flash the scores of every head; at a recurrent
 * mixer its input projection, convolution and state. Widths come from the tensor table, so that a family is known by
 * what it is built of. The allocator fills holes only with what fits, so the projections of attention leave a hole
 * under the feed-forward: the term "stream" below.
 *
 * Each form errs upwards; tests/truth/test_architectures.py holds it to within 1.0 and 1.1 of a dry run (512 tokens at
 * 4096 of context; 1.25 elsewhere), docs/prices.md lists the terms. Without a tensor table (facts made by hand) a plain
 * gated transformer is assumed. Left out: branches of pictures and sound, adapters.
 */
#include "base/size.h"
#include "model/types.h"
#include "plan/price.h"

#include <string.h>

#define KIB UINT64_C(1024)
#define F32 UINT64_C(4)
#define I64 UINT64_C(8)

/* Heap of a context, measured over 42 shapes (tests/support/shapes.py), least squares and the largest residual: what
 * does not depend on the model; a slot of the scheduler's tables (hash entry, backend ids, splits, copies); and a node
 * of the graphs that are kept, some 8 of them for each tensor. */
#define HEAP_FIXED_BYTES   (3744 * KIB)
#define HEAP_ENCODER_BYTES (448 * KIB) /* the same of an encoder, which has no cache */
/* A token of a batch in libllama's lists; batches are of 2048 tokens, which are part of what is fixed, or as large as
 * the micro-batch. */
#define HEAP_TOKEN_BYTES UINT64_C(400)
#define BATCH_TOKENS     UINT64_C(2048)
/* A sequence beside the first, in its lists: over 12 shapes with 8 to 32 sequences, 25 to 65 KiB. */
#define HEAP_SEQUENCE_BYTES (64 * KIB)
/* What batches of several sequences leave in the heap beside that: of two 0.5 to 1.0 MiB, of three and four 1.8 to 2.6,
 * of more, whose shares are shorter, 0.1 to 1.9; SmolLM2 and Gemma 3, contexts of 2048 to 8192. */
#define HEAP_BATCHES_BYTES (1280 * KIB)
#define BATCHES_MAX        UINT64_C(2)
#define HEAP_SLOT_BYTES    UINT64_C(1300)
#define HEAP_TENSOR_BYTES  UINT64_C(1100)
/* A cell of a cache is also an entry of libllama's lists: position, shift, and a bit for each of 256 sequences, 52
 * bytes; and while it is used a node in two trees, 96 (engine/price.c). */
#define CELL_BYTES UINT64_C(152)
/* Work area of ggml's tiled matrix product, each thread (research notes, llama.cpp 3.4). */
#define TILE_BYTES (512 * KIB)
/* ggml's flash attention takes 64 queries and keys at a time. */
#define FLASH_TILE UINT64_C(64)

#define TYPE_F32  0u
#define TYPE_F16  1u
#define TYPE_BF16 30u

/* Widths in elements per token unless said otherwise; 0: the model has no such part. */
typedef struct widths {
    uint64_t embd, heads;
    uint64_t attn;     /* what attention puts out: heads x length of a value */
    uint64_t query;    /* rows of the query projection: more than attn with a gate, or with longer keys */
    uint64_t fused;    /* rows of query, key and value in one matrix */
    uint64_t expanded; /* keys and values expanded from a latent row (attn_kv_b) */
    uint64_t ff, expert_ff, shared_ff, n_expert, n_used;
    uint64_t ff_parts, expert_parts; /* results that live at once: gate, up and product are 3, without a gate 1 */
    uint64_t ssm_in, ssm_conv, ssm_inner;
    uint64_t ssm_kept;           /* of a sequence's last inputs, that its convolution begins with */
    uint64_t delta;              /* rows of a delta net's queries, keys, values and gate */
    uint64_t state;              /* elements of a sequence, largest block */
    uint64_t per_layer, streams; /* Gemma 3n and 4: embeddings of all blocks; AltUp streams */
    uint64_t wkv_lerps;          /* RWKV: mixed inputs that live at once, 5 or 6 */
    uint64_t kv_rank, rope, key; /* latent attention: of the row; length of a head's key */
    uint64_t index;              /* rows of an indexer's queries */
    uint64_t v_max;              /* widest values of a block */
    bool parallel;               /* attention and feed-forward from the same norm (Command R) */
    bool after;                  /* norms after the branches only (encoders): attention leaves no hole */
} widths;

static const char *part_of(const bt_tensor *t) {
    const char *dot = t->block >= 0 ? strchr(t->name + 4, '.') : NULL; /* "blk.N.part" */
    return dot ? dot + 1 : t->name;
}

static void grow(uint64_t *width, uint64_t by) {
    *width = bt_max_u64(*width, by);
}

static void see_attention(widths *w, const char *part, const bt_tensor *t) {
    if (strcmp(part, "attn_output.weight") == 0) grow(&w->attn, t->ne[0]);
    if (strcmp(part, "attn_q.weight") == 0 || strcmp(part, "attn_q_b.weight") == 0) grow(&w->query, t->ne[1]);
    if (strcmp(part, "attn_qkv.weight") == 0) grow(&w->fused, t->ne[1]);
    if (strcmp(part, "attn_kv_b.weight") == 0) grow(&w->expanded, t->ne[1]);
    if (strcmp(part, "indexer.attn_q_b.weight") == 0) grow(&w->index, t->ne[1]);
    if (strcmp(part, "attn_kv_a_norm.weight") == 0) grow(&w->kv_rank, t->ne[0]);
    if (strcmp(part, "attn_kv_a_mqa.weight") == 0) grow(&w->rope, t->ne[1]);
}

static void see_feed_forward(widths *w, const char *part, const bt_tensor *t) {
    if (strcmp(part, "ffn_down.weight") == 0 || strcmp(part, "channel_mix_value.weight") == 0) grow(&w->ff, t->ne[0]);
    if (strcmp(part, "ffn_gate.weight") == 0) w->ff_parts = 3;
    if (strstr(part, "ffn_norm") || strstr(part, "post_") || strstr(part, "_output_norm")) w->parallel = false;
    if (strcmp(part, "ffn_down_exps.weight") == 0) grow(&w->expert_ff, t->ne[0]);
    if (strcmp(part, "ffn_gate_exps.weight") == 0 || strcmp(part, "ffn_gate_up_exps.weight") == 0) w->expert_parts = 3;
    if (strcmp(part, "ffn_down_shexp.weight") == 0) grow(&w->shared_ff, t->ne[0]);
}

static void see_recurrent(widths *w, const char *part, const bt_tensor *t) {
    if (strcmp(part, "ssm_in.weight") == 0 || strcmp(part, "shortconv.in_proj.weight") == 0) grow(&w->ssm_in, t->ne[1]);
    if (strcmp(part, "ssm_conv1d.weight") == 0) {
        grow(&w->ssm_conv, t->ne[1]);
        grow(&w->ssm_kept, bt_sat_mul_u64(t->ne[0] > 0 ? t->ne[0] - 1 : 0, t->ne[1]));
    }
    if (strcmp(part, "ssm_out.weight") == 0) grow(&w->ssm_inner, t->ne[0]);
    if (strcmp(part, "attn_gate.weight") == 0) grow(&w->delta, t->ne[1]);
    if (strcmp(part, "time_mix_lerp_fused.weight") == 0) grow(&w->wkv_lerps, t->ne[3]);
}

/* A second look, when ff is known: matrices that hold gate and up together. */
static void see_wide(widths *w, const bt_facts *facts) {
    for (uint32_t i = 0; i < facts->n_tensors; i++) {
        const bt_tensor *t = &facts->tensors[i];
        if (t->role == BT_ROLE_UNUSED || w->ff == 0) continue;
        if (strcmp(part_of(t), "ffn_up.weight") == 0 && t->ne[1] == 2 * w->ff) w->ff_parts = 3;
    }
}

static widths read_widths(const bt_facts *facts) {
    widths w = {.embd = facts->n_embd,
                .heads = facts->n_head,
                .n_expert = facts->n_expert,
                .n_used = facts->n_expert_used,
                .ff_parts = 1,
                .expert_parts = 1,
                .parallel = true,
                .after = facts->encoder};
    for (uint32_t i = 0; i < facts->n_tensors; i++) {
        const bt_tensor *t = &facts->tensors[i];
        if (t->role == BT_ROLE_UNUSED) continue;
        const char *part = part_of(t);
        see_attention(&w, part, t);
        see_feed_forward(&w, part, t);
        see_recurrent(&w, part, t);
        if (strcmp(part, "per_layer_token_embd.weight") == 0) w.per_layer = t->ne[0];
        if (strcmp(part, "altup_proj.weight") == 0) w.streams = t->ne[2] + 1;
    }
    see_wide(&w, facts);
    if (w.ff == 0 && w.expert_ff == 0 && w.ssm_in == 0) { /* no table: plain and gated */
        w.ff = facts->n_expert > 0 ? 0 : facts->n_ff;
        w.expert_ff = facts->n_expert > 0 ? facts->n_ff : 0;
        w.ff_parts = w.expert_parts = 3;
        w.parallel = false;
    }
    if (w.attn == 0 && w.heads > 0) w.attn = facts->n_embd;
    if (w.query == 0) w.query = w.attn;
    if (w.rope > w.kv_rank) w.rope -= w.kv_rank; /* attn_kv_a_mqa puts out both */
    if (w.heads > 0) w.key = w.query / w.heads;
    for (uint32_t b = 0; facts->kv && b < facts->n_block; b++) {
        const bt_kv_block *block = &facts->kv[b];
        grow(&w.state, block->ssm_width);
        grow(&w.v_max, block->v_width);
    }
    return w;
}

/* ---- graph: moments, in elements per token ---- */

/* Before the feed-forward: the residual stream, the hole that norm and attention leave under it, and its sum. */
static uint64_t stream(const widths *w) {
    /* Mamba 2 leaves a larger hole than attention: its input, twice. */
    uint64_t hole = w->ssm_inner > 0 && w->n_expert > 0 ? bt_max_u64(w->attn, 2 * w->embd) : w->attn;
    if (w->delta > 0) hole = bt_min_u64(w->attn, w->embd); /* most blocks are delta nets, whose result is kept */
    if (w->after) hole = 0;
    if (w->parallel) hole = bt_sat_add_u64(hole, w->embd); /* the norm is kept for the feed-forward */
    return bt_sat_add_u64(2 * w->embd, hole);
}

static uint64_t dense_moment(const widths *w) {
    uint64_t mixed = w->wkv_lerps > 0 ? w->wkv_lerps * w->embd : 0;
    return bt_sat_add_u64(bt_sat_add_u64(stream(w), w->ff_parts * w->ff), mixed);
}

/* Expert down projections have a row for each expert used; where gate and up leave no room for it, it comes on top. */
static uint64_t expert_moment(const widths *w) {
    if (w->n_expert == 0) return 0;
    uint64_t hidden = bt_sat_mul_u64(w->n_used, w->expert_ff);
    uint64_t rows = bt_sat_mul_u64(w->n_used, w->embd);
    uint64_t router = 2 * w->n_expert; /* probabilities and their order */
    uint64_t routed = bt_sat_add_u64(stream(w), bt_sat_add_u64(w->expert_parts * hidden, router));
    if (rows > (w->expert_parts - 1) * hidden) routed = bt_sat_add_u64(routed, rows);
    /* The shared expert starts when the routed rows have just been summed: above their hole. */
    uint64_t shared = w->shared_ff > 0 ? bt_sat_add_u64(3 * w->embd + rows, 2 * w->shared_ff + router) : 0;
    if (w->shared_ff > w->embd * w->n_used) shared = bt_sat_add_u64(shared, w->shared_ff);
    return bt_max_u64(routed, shared);
}

/* Mamba: stream and its norm, the projected input, the convolution before and after, the scan's result. */
static uint64_t mixer_moment(const widths *w) {
    if (w->ssm_in == 0 || w->ssm_inner == 0) return 0;
    uint64_t mixer = bt_sat_add_u64(2 * w->embd, bt_sat_add_u64(w->ssm_in, 2 * w->ssm_conv));
    /* Nemotron H: a block is a mixer or a feed-forward, and the feed-forward starts above the state that is kept. */
    uint64_t above = bt_sat_add_u64(2 * w->embd + w->ssm_in + w->ssm_conv, w->ff_parts == 1 ? w->ff : 0);
    return bt_max_u64(bt_sat_add_u64(mixer, w->ssm_inner), above);
}

/* Delta nets: projected queries, keys, values and gate; the convolution; heads apart, each repeated; the result. */
static uint64_t delta_moment(const widths *w) {
    if (w->delta == 0) return 0;
    return bt_sat_add_u64(2 * w->embd, bt_sat_add_u64(3 * w->ssm_conv, 2 * w->delta));
}

/* RWKV 7 keeps twelve more streams beside six mixed inputs, RWKV 6 eight beside five. */
static uint64_t wkv_moment(const widths *w) {
    if (w->wkv_lerps == 0) return 0;
    return bt_sat_mul_u64(w->wkv_lerps > 5 ? 18 : 13, w->embd);
}

/* Gemma 3n and 4: embeddings for each block, projected, scaled and normed beside the stream; AltUp's streams. */
static uint64_t per_layer_moment(const widths *w) {
    if (w->per_layer == 0) return 0;
    uint64_t made = bt_sat_add_u64(8 * w->embd, bt_sat_mul_u64(3, w->per_layer));
    uint64_t streams = w->streams > 0 ? (w->streams + 5) * w->embd : bt_sat_add_u64(2 * w->embd, w->attn);
    uint64_t used = bt_sat_add_u64(bt_sat_add_u64(streams, w->per_layer), w->ff_parts * w->ff);
    return bt_max_u64(made, used);
}

/* Latent attention: queries before and after absorption, their turned part twice, and both parts joined; an indexer's
 * queries as projected, normed and turned. */
static uint64_t latent_moment(const widths *w) {
    uint64_t head = bt_sat_add_u64(w->key + 2 * w->rope, 2 * w->kv_rank + w->rope);
    uint64_t index = w->index > 0 ? bt_sat_add_u64(w->embd, bt_sat_mul_u64(3, w->index)) : 0;
    return bt_sat_add_u64(bt_sat_add_u64(3 * w->embd, index), bt_sat_mul_u64(w->heads, head));
}

/* What lives beside the scores of attention without flash. */
static uint64_t scores_base(const widths *w, bool latent) {
    if (latent) return latent_moment(w);
    uint64_t queries = w->expanded > 0 ? 2 * w->query + w->expanded : w->attn + w->query;
    uint64_t base = bt_sat_add_u64(2 * w->embd, bt_max_u64(queries, w->fused));
    if (w->per_layer > 0) grow(&base, 8 * w->embd + 2 * w->per_layer);
    /* After a block with a shared expert the stream stands above the hole of the routed rows. */
    if (w->shared_ff > 0) grow(&base, bt_sat_add_u64(3 * w->embd, bt_sat_mul_u64(w->n_used, w->embd)));
    return base;
}

/* In bytes. A recurrent mixer's moment holds the state of each sequence too. Mamba's scan reads it where it is kept and
 * puts out the new one; the others gather it first, and copy those of idle sequences apart. */
static uint64_t fullest_moment(const widths *w, const bt_facts *facts, uint64_t n_ubatch, uint64_t n_parallel) {
    uint64_t most = dense_moment(w);
    grow(&most, expert_moment(w));
    grow(&most, per_layer_moment(w));
    if (facts->latent) grow(&most, latent_moment(w));
    /* attention with flash: queries as projected, normed and turned */
    grow(&most, bt_sat_add_u64(2 * w->embd, bt_sat_add_u64(2 * w->attn, bt_max_u64(w->query, w->fused))));
    most = bt_sat_mul_u64(F32 * n_ubatch, most);
    uint64_t mixer = mixer_moment(w);
    grow(&mixer, delta_moment(w));
    grow(&mixer, wkv_moment(w));
    uint64_t copies = w->ssm_in > 0 ? 1 : n_parallel > 1 ? 3 : 2;
    uint64_t kept = w->ssm_in > 0 ? w->ssm_kept : 0;
    uint64_t states = bt_sat_mul_u64(F32 * n_parallel, bt_sat_add_u64(bt_sat_mul_u64(copies, w->state), kept));
    mixer = bt_sat_add_u64(bt_sat_mul_u64(F32 * n_ubatch, mixer), states);
    return bt_max_u64(most, mixer);
}

uint64_t bt_logits_graph_bytes(const bt_facts *facts, uint64_t n_rows) {
    return bt_sat_mul_u64(F32 * n_rows, bt_sat_add_u64(facts->n_vocab, UINT64_C(3) * facts->n_embd));
}

/* The head: logits of each row that is asked for, a sequence's last or all that a program keeps. */
static uint64_t head_moment(const bt_facts *facts, const bt_wishes *wishes, uint64_t n_ubatch, uint64_t n_parallel) {
    if (facts->encoder) return 0;
    return bt_logits_graph_bytes(facts, bt_min_u64(bt_max_u64(n_parallel, wishes->n_outputs), n_ubatch));
}

/* ---- work ---- */

/* Bytes of one element of a matrix product's right side, in 256ths: it is converted to the type that the left side's
 * kernel wants. K-quants want 292 bytes for 256 elements, the most of all quantised types. */
static uint64_t operand_256ths(uint32_t type) {
    switch (type) {
    case TYPE_F32:
        return 0; /* taken as it is */
    case TYPE_F16:
    case TYPE_BF16:
        return 512;
    default:
        return 292;
    }
}

/* Columns that a matrix is multiplied with, for each token: an expert's down projection has one for each expert used, a
 * stack of matrices (the heads of latent attention) one for each of them. */
static uint64_t columns_of(const bt_facts *facts, const bt_tensor *t) {
    if (t->n_dims < 3) return 1;
    if (strstr(t->name, "_exps")) return strstr(t->name, "ffn_down") ? facts->n_expert_used : 1;
    return t->ne[2];
}

/* ggml's work buffer is the most that one node asks for. */
static uint64_t work_bytes(const bt_facts *facts, const widths *w, uint64_t n_ubatch, uint64_t n_threads) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < facts->n_tensors; i++) {
        const bt_tensor *t = &facts->tensors[i];
        if (t->role == BT_ROLE_UNUSED || t->role == BT_ROLE_TABLE || t->n_dims < 2) continue;
        if (strcmp(t->name, "output.weight") == 0) continue; /* few rows are asked for */
        uint64_t row = bt_mul_div_u64(t->ne[0], operand_256ths(t->type), 256);
        most = bt_max_u64(most, bt_sat_mul_u64(row, columns_of(facts, t)));
    }
    uint64_t matrix = bt_sat_add_u64(bt_sat_mul_u64(most, n_ubatch), bt_sat_mul_u64(n_threads, TILE_BYTES));
    uint64_t routed = bt_sat_mul_u64(I64 * facts->n_expert, facts->n_expert_used * n_ubatch);
    uint64_t head = bt_max_u64(facts->head_k, w->heads > 0 ? w->attn / w->heads : 0);
    uint64_t flash = F32 * FLASH_TILE * (2 * head + 2 * FLASH_TILE + 2 * head);
    return bt_max_u64(bt_sat_add_u64(matrix, routed), bt_sat_mul_u64(n_threads, flash));
}

/* ---- heap ---- */

/* Nodes that libllama makes room for (llama_context::graph_max_nodes). */
static uint64_t node_slots(const bt_facts *facts, uint64_t n_ubatch) {
    static const char *const long_graphs[] = {"qwen3next", "kimi-linear", "bailingmoe3", "qwen35", "qwen35moe"};
    for (size_t i = 0; facts->arch && i < sizeof long_graphs / sizeof long_graphs[0]; i++)
        if (strcmp(facts->arch, long_graphs[i]) == 0) return bt_max_u64(40 * n_ubatch, UINT64_C(32) * facts->n_tensors);
    return bt_max_u64(1024, UINT64_C(8) * facts->n_tensors);
}

static uint64_t heap_bytes(const bt_facts *facts, uint64_t n_ubatch, uint64_t n_parallel) {
    uint64_t slots = bt_sat_mul_u64(HEAP_SLOT_BYTES, node_slots(facts, n_ubatch));
    uint64_t fixed = facts->encoder ? HEAP_ENCODER_BYTES : HEAP_FIXED_BYTES;
    uint64_t listed = facts->encoder ? n_ubatch : bt_sat_sub_u64(n_ubatch, BATCH_TOKENS);
    fixed = bt_sat_add_u64(fixed, bt_sat_mul_u64(HEAP_TOKEN_BYTES, listed));
    if (!facts->encoder) {
        fixed = bt_sat_add_u64(fixed, bt_sat_mul_u64(HEAP_SEQUENCE_BYTES, n_parallel - 1));
        fixed = bt_sat_add_u64(fixed, HEAP_BATCHES_BYTES * bt_min_u64(n_parallel - 1, BATCHES_MAX));
    }
    return bt_sat_add_u64(fixed, bt_sat_add_u64(slots, HEAP_TENSOR_BYTES * facts->n_tensors));
}

/* ---- all of it ---- */

/* Blocks with a cache as long as a window, or as the context. */
static bool has_cache(const bt_facts *facts, bool windowed) {
    for (uint32_t b = 0; facts->kv && b < facts->n_block; b++)
        if (facts->kv[b].k_width > 0 && (facts->kv[b].window > 0) == windowed) return true;
    return false;
}

bool bt_kv_has_full(const bt_facts *facts) {
    return !facts->kv_known || has_cache(facts, false);
}

typedef struct caches {
    bool full, windows; /* there are blocks whose cache is as long as the context, or as a window */
} caches;

/* b / p, rounded up: cells are counted over all streams, a mask and the scores only over one's. */
static uint64_t per_stream(uint64_t bytes, uint64_t n_streams) {
    return bytes / n_streams + (bytes % n_streams != 0);
}

/* Without flash attention the scores of all heads join the attention's moment, which then is the fullest at long
 * contexts; at short ones it is another, the floor. */
static void add_scores(bt_cost *cost, const bt_facts *facts, const widths *w, caches has, uint64_t n_ubatch,
                       uint64_t n_streams, uint64_t most) {
    uint64_t scores = bt_sat_mul_u64(F32 * n_ubatch, w->heads);
    uint64_t converted = bt_sat_mul_u64(2 * n_ubatch, w->heads); /* work area: scores as the values' F16 */
    uint64_t base = bt_sat_mul_u64(F32 * n_ubatch, scores_base(w, facts->latent));
    uint64_t all = per_stream(bt_sat_add_u64(scores, converted), n_streams);
    most = bt_sat_add_u64(most, bt_sat_mul_u64(F32 * n_ubatch, w->attn)); /* what attention put out, made contiguous */
    cost->floor_bytes = bt_sat_add_u64(cost->fixed_bytes, most);
    cost->fixed_bytes = bt_sat_add_u64(cost->fixed_bytes, base);
    if (most > base && scores > 0) { /* the masks of where both are equal */
        uint64_t cells = (most - base) / bt_max_u64(per_stream(scores, n_streams), 1);
        uint64_t masks = bt_sat_mul_u64(cells, bt_sat_add_u64(cost->per_ctx_bytes, cost->per_window_bytes));
        cost->floor_bytes = bt_sat_add_u64(cost->floor_bytes, masks);
    }
    *(has.full ? &cost->per_ctx_bytes : &cost->per_window_bytes) += all;
}

/* n_threads 0: of the graph alone. */
static bt_cost cost_of(const bt_facts *facts, const bt_wishes *wishes, uint32_t n_ubatch, uint32_t n_threads) {
    widths w = read_widths(facts);
    caches has = {.full = bt_kv_has_full(facts), .windows = has_cache(facts, true)};
    bool flash = bt_flash_is_on(facts, wishes);
    uint64_t n_parallel = wishes->n_parallel > 0 ? wishes->n_parallel : 1;
    uint64_t n_streams = bt_kv_streams(wishes);
    uint64_t tokens = F32 * n_ubatch;
    uint64_t most = fullest_moment(&w, facts, n_ubatch, n_parallel);
    bool quantised = bt_type_block_elements(wishes->type_k) > 1;
    if (quantised && (has.full || has.windows)) /* queries turned, and the matrices that turn */
        most = bt_sat_add_u64(most, bt_sat_mul_u64(tokens, w.attn) + 4 * F32 * facts->head_k * facts->head_k);

    most = bt_max_u64(most, head_moment(facts, wishes, n_ubatch, n_parallel));

    bt_cost cost = {.source = BT_SOURCE_FORMULA};
    uint64_t mask = (flash ? 2 : F32) * n_ubatch;
    cost.fixed_bytes = bt_sat_mul_u64(tokens, w.embd); /* the input that embeddings could be given by */
    uint64_t cell = n_threads > 0 ? CELL_BYTES : 0;
    if (n_threads > 0) {
        cost.fixed_bytes = bt_sat_add_u64(cost.fixed_bytes, work_bytes(facts, &w, n_ubatch, n_threads));
        cost.fixed_bytes = bt_sat_add_u64(cost.fixed_bytes, heap_bytes(facts, n_ubatch, n_parallel));
    }
    if (has.full) cost.per_ctx_bytes = per_stream(mask, n_streams) + cell;
    if (has.windows) cost.per_window_bytes = per_stream(mask, n_streams) + cell;
    if (w.index > 0)
        cost.per_ctx_bytes += per_stream(2 * F32 * n_ubatch, n_streams); /* its scores, and who is chosen */
    cost.per_ctx_bytes += F32 * n_threads;                               /* a row of scores for each thread */
    if (!flash && !facts->latent) /* where each value goes in a transposed cache, for both caches */
        cost.fixed_bytes = bt_sat_add_u64(cost.fixed_bytes, bt_sat_mul_u64(I64 * n_ubatch * (has.full + has.windows),
                                                                           bt_max_u64(facts->v_width_max, w.v_max)));
    if (facts->encoder) { /* no cache: the mask, and the scores, are of the micro-batch itself */
        uint64_t square = (uint64_t)n_ubatch * n_ubatch;
        uint64_t scores = bt_sat_mul_u64(bt_sat_mul_u64(F32, w.heads), square);
        uint64_t base = bt_sat_mul_u64(tokens, bt_sat_add_u64(scores_base(&w, false), w.attn)); /* and values */
        cost.fixed_bytes = bt_sat_add_u64(cost.fixed_bytes, bt_sat_mul_u64(flash ? 2 : F32, square));
        uint64_t out = bt_sat_mul_u64(tokens, w.attn); /* what attention put out, made contiguous */
        if (!flash) most = bt_max_u64(bt_sat_add_u64(most, out), bt_sat_add_u64(base, scores));
    }
    if (!flash && (has.full || has.windows)) {
        add_scores(&cost, facts, &w, has, n_ubatch, n_streams, most);
    } else {
        cost.fixed_bytes = bt_sat_add_u64(cost.fixed_bytes, most);
    }
    return cost;
}

bt_cost bt_compute_cost(const bt_facts *facts, const bt_wishes *wishes, uint32_t n_ubatch, uint32_t n_threads) {
    return cost_of(facts, wishes, n_ubatch, (uint32_t)bt_max_u64(n_threads, 1));
}

bt_cost bt_graph_cost(const bt_facts *facts, const bt_wishes *wishes, uint32_t n_ubatch) {
    return cost_of(facts, wishes, n_ubatch, 0);
}
