/* SPDX-License-Identifier: MIT
 *
 * price_at.c: one placement priced: what each device and the host hold of a model, its draft and all that stands beside
 * them. Sums for each block are there (price.c); here blocks are dealt out as llama.cpp deals them, and what does not
 * depend on blocks is added: contexts, graphs, rows of logits, checkpoints.
 *
 * Three things a device holds though no block of it is there: its context; the first device, where batches are computed
 * with weights of the host (op offload), the graph and the largest of those weights, which is copied to it; and where
 * several devices work one after another, the copies of their inputs. */
#include "guard/price_internal.h"

#include "base/size.h"
#include "plan/costs.h"
#include "plan/price.h"

#include <stdio.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
/* CUDA's context with cuBLAS and its workspace takes 300 to 600 MB of a card (src/plan/offers.c). */
#define CUDA_CONTEXT_BYTES (450 * MIB)
/* llama-server without a model (research notes, llama.cpp: measured). */
#define PROCESS_BYTES (40 * MIB)
/* Maps of a vocabulary: 100 to 200 bytes for a token, and 100 for a merge (research notes, llama.cpp 3.4). Vocabularies
 * of byte pairs have about as many merges as tokens, others none. */
#define VOCAB_TOKEN_BYTES UINT64_C(200)
#define VOCAB_MERGE_BYTES UINT64_C(100)
/* The candidates of a sampler: llama_token_data of include/llama.h. A grammar (a schema, tools) spells out the whole
 * vocabulary once more while it is applied, of one slot after the other: 340 to 450 bytes a token, measured
 * (docs/measurements.md, "Servers by their prices"). */
#define CANDIDATE_BYTES UINT64_C(12)
#define GRAMMAR_BYTES   UINT64_C(450)
/* Batches from this size on are computed on a device though their weights are the host's (ggml-cuda.cu, offload_op). */
#define OFFLOAD_BATCH 32u
/* Copies of inputs where devices work one after another on several batches (GGML_SCHED_MAX_COPIES), less the one that
 * the graph has in any case. */
#define INPUT_COPIES 3u
#define F32          UINT64_C(4)

static void add(uint64_t *to, uint64_t bytes) {
    *to = bt_sat_add_u64(*to, bytes);
}

static uint64_t context_bytes(const bt_pool *pool) {
    bool is_cuda = strncmp(pool->name, "CUDA", 4) == 0 || strncmp(pool->name, "ROCm", 4) == 0;
    return is_cuda ? CUDA_CONTEXT_BYTES : 0;
}

/* A causal model's context holds the micro-batch down to itself. */
static uint32_t ubatch_at(const bt_guard_model *m, uint32_t n_ctx) {
    return m->facts->encoder ? m->n_ubatch : (uint32_t)bt_min_u64(m->n_ubatch, n_ctx);
}

static uint64_t cost_at(const bt_guard_model *m, const bt_cost *cost, uint32_t n_ctx) {
    uint64_t window = m->swa_full || m->window == 0
                          ? n_ctx
                          : bt_kv_window_cells(m->window, m->n_ubatch, m->wishes.n_parallel, m->wishes.kv_unified);
    uint64_t bytes = bt_sat_add_u64(cost->fixed_bytes, bt_sat_mul_u64(cost->per_ctx_bytes, n_ctx));
    add(&bytes, bt_sat_mul_u64(cost->per_window_bytes, bt_min_u64(n_ctx, window)));
    return bt_max_u64(bytes, cost->floor_bytes);
}

/* With what is copied of the host's weights, beside a block's results. Logits of every token come when those are gone;
 * but where splits alternate between the device and the host, their inputs are still there. */
static uint64_t graph_with(const bt_guard_model *m, uint32_t n_ctx, bool with_head, uint64_t copied) {
    uint64_t graph = bt_sat_add_u64(cost_at(m, &m->graph, n_ctx), copied);
    if (!m->many_rows || !with_head) return graph;
    uint64_t logits = bt_logits_graph_bytes(m->facts, m->n_ubatch);
    return copied > 0 ? bt_sat_add_u64(logits, graph) : bt_max_u64(graph, logits);
}

static uint64_t graph_at(const bt_guard_model *m, uint32_t n_ctx, bool with_head) {
    return graph_with(m, n_ctx, with_head, 0);
}

static uint64_t block_kv(const bt_guard_model *m, uint32_t block, uint32_t n_ctx) {
    bt_facts one = *m->facts;
    uint64_t bytes = 0;
    if (!m->facts->kv || block >= m->facts->n_block) return 0;
    bt_kv_block kv = m->facts->kv[block];
    if (m->swa_full) kv.window = 0;
    one.kv = &kv;
    if (!bt_kv_block_price(&one, 0, &m->wishes, n_ctx, ubatch_at(m, n_ctx), &bytes)) return UINT64_MAX;
    return bytes;
}

/* ---- a placement priced ---- */

/* Where a placement has the layers of a model. */
typedef struct dealt {
    uint32_t device[BT_BLOCK_MAX + 1]; /* of each block, and of the head: a position, or BT_NO_DEVICE */
} dealt;

static float share_of(const bt_guard_prices *p, const bt_guard_model *m, const bt_placement *placement, uint32_t i) {
    float sum_of_shares = 0;
    for (uint32_t k = 0; k < placement->n_shares && k < m->n_devices; k++)
        sum_of_shares += (float)placement->shares[k];
    if (sum_of_shares > 0) return i < placement->n_shares ? (float)placement->shares[i] : 0;
    const bt_pool *pool = &p->ask.devices[p->devices[m->devices[i]]].pool;
    return pool->free_bytes > 0 ? (float)pool->free_bytes : 1;
}

/* As llama_model_base::load_tensors does it, in floats as it does: equal shares must fall on the same side. */
static void deal(const bt_guard_prices *p, const bt_guard_model *m, const bt_placement *placement,
                 uint32_t n_gpu_layers, dealt *ret) {
    uint32_t n = m->facts->n_block_all + 1;
    float ends[BT_POOL_MAX];
    float all = 0;
    uint32_t n_act = m->n_devices == 0 ? 0 : (uint32_t)bt_min_u64(n_gpu_layers, n);
    for (uint32_t i = 0; i < m->n_devices; i++) {
        all += share_of(p, m, placement, i);
        ends[i] = all;
    }
    for (uint32_t l = 0; l < n; l++) {
        ret->device[l] = BT_NO_DEVICE;
        if (l < n - n_act) continue;
        if (p->ask.effective->split_mode.value == BT_SPLIT_NONE) {
            ret->device[l] = m->devices[placement->main_gpu < m->n_devices ? placement->main_gpu : 0];
            continue;
        }
        float at = (float)(l - (n - n_act)) / (float)n_act;
        uint32_t i = 0;
        while (i + 1 < m->n_devices && ends[i] / all <= at)
            i++;
        ret->device[l] = m->devices[i];
    }
}

/* The lines that one model's parts go to. */
typedef struct lines {
    bt_guard_line weights, kv, compute;
} lines;

/* Of the blocks' weights, what the host has. */
typedef struct on_host {
    bool any;
    uint64_t largest; /* matrix that a device could compute with */
} on_host;

static void host_weights(const bt_guard_prices *p, const bt_guard_sum *of, bt_guard_line line, bt_guard_price *ret) {
    uint64_t firm = p->mapped ? of->repacked : of->host;
    add(&ret->host.bytes[line], firm);
    if (p->mapped) add(&ret->host.bytes[BT_GUARD_MAPPED], of->host);
}

static void put_sum(const bt_guard_prices *p, const bt_guard_sum *of, uint32_t device, bt_guard_line line,
                    on_host *host, bt_guard_price *ret) {
    if (device != BT_NO_DEVICE) {
        add(&ret->devices[device].bytes[line], of->device);
        return;
    }
    host_weights(p, of, line, ret);
    host->any = host->any || of->host > 0;
    host->largest = bt_max_u64(host->largest, of->largest);
}

static bool has_layer(const dealt *d, uint32_t n, uint32_t device) {
    for (uint32_t l = 0; l < n; l++)
        if (d->device[l] == device) return true;
    return false;
}

/* Blocks of one model with their experts and caches. */
static void put_blocks(const bt_guard_prices *p, const bt_guard_model *m, const dealt *d, const bt_placement *placement,
                       lines to, on_host *host, bt_guard_price *ret) {
    for (uint32_t b = 0; b < m->facts->n_block_all; b++) {
        const bool unused = m->sums.unused[b];
        bt_guard_line weights = unused ? BT_GUARD_MTP : to.weights;
        bool moved = m == &p->main && b < placement->n_cpu_moe;
        put_sum(p, &m->sums.follows[b], d->device[b], weights, host, ret);
        put_sum(p, &m->sums.movable[b], moved ? BT_NO_DEVICE : d->device[b], weights, host, ret);
        uint64_t kv = block_kv(m, b, placement->n_ctx);
        bool on_device = d->device[b] != BT_NO_DEVICE && m->kv_offload;
        add(on_device ? &ret->devices[d->device[b]].bytes[to.kv] : &ret->host.bytes[to.kv], kv);
        if (m == &p->main && !unused && d->device[b] != BT_NO_DEVICE) ret->devices[d->device[b]].n_blocks++;
        if (m == &p->main && !unused && d->device[b] == BT_NO_DEVICE) ret->host.n_blocks++;
    }
    put_sum(p, &m->sums.ruled, BT_NO_DEVICE, to.weights, host, ret);
    host_weights(p, &m->sums.tables, to.weights, ret);
    for (uint32_t i = 0; i < p->n_devices; i++)
        add(&ret->devices[i].bytes[to.weights], m->sums.fixed[i]);
}

/* What of the host's weights a device computes with: the largest matrix of a block, and, where logits are asked of
 * every token, the head. */
static uint64_t copied_bytes(const bt_guard_model *m, bool head_on_host, uint64_t largest) {
    return m->many_rows && head_on_host ? bt_max_u64(largest, m->sums.head.device) : largest;
}

static void put_graphs(const bt_guard_prices *p, const bt_guard_model *m, const dealt *d, uint32_t n_ctx,
                       bt_guard_line line, on_host host, bt_guard_price *ret) {
    uint32_t n = m->facts->n_block_all + 1;
    const bt_effective *e = p->ask.effective;
    bool head_on_host = d->device[n - 1] == BT_NO_DEVICE;
    bool computes = has_layer(d, n, BT_NO_DEVICE) || host.any;
    uint64_t copied = copied_bytes(m, head_on_host, host.largest);
    bool offloads = e->op_offload.value != 0 && m->n_ubatch >= OFFLOAD_BATCH && copied > 0;
    bool pipelined = m->n_devices > 1 && d->device[0] != BT_NO_DEVICE && e->split_mode.value == BT_SPLIT_LAYER;
    uint64_t mask = bt_sat_mul_u64(2 * (uint64_t)m->n_ubatch, n_ctx);
    uint64_t inputs = bt_sat_add_u64(mask, F32 * m->n_ubatch * m->facts->n_embd);
    for (uint32_t i = 0; i < m->n_devices; i++) {
        uint32_t device = m->devices[i];
        bool used = has_layer(d, n, device) || m->sums.fixed[device] > 0;
        bool helps = i == 0 && offloads;
        uint64_t *to = &ret->devices[device].bytes[line];
        bool with_head = d->device[n - 1] == device || (helps && head_on_host);
        if (used || helps) add(to, graph_with(m, n_ctx, with_head, helps ? copied : 0));
        if (used && pipelined) add(to, bt_sat_mul_u64(INPUT_COPIES, inputs));
    }
    uint64_t all = cost_at(m, &m->all, n_ctx);
    if (!computes) all = bt_sat_add_u64(bt_sat_sub_u64(all, cost_at(m, &m->graph, n_ctx)), inputs);
    if (head_on_host && m->many_rows) add(&all, bt_sat_sub_u64(graph_at(m, n_ctx, true), graph_at(m, n_ctx, false)));
    add(&ret->host.bytes[line], all);
}

static void put_model(const bt_guard_prices *p, const bt_guard_model *m, const bt_placement *placement,
                      uint32_t n_gpu_layers, lines to, dealt *d, bt_guard_price *ret) {
    on_host host = {0};
    uint32_t n = m->facts->n_block_all + 1;
    deal(p, m, placement, n_gpu_layers, d);
    put_blocks(p, m, d, placement, to, &host, ret);
    uint32_t head = d->device[n - 1];
    if (head != BT_NO_DEVICE) {
        add(&ret->devices[head].bytes[to.weights], m->sums.head.device);
        if (m == &p->main) ret->devices[head].head = true;
    } else {
        host_weights(p, &m->sums.head, to.weights, ret);
        if (m == &p->main) ret->host.head = true;
    }
    put_graphs(p, m, d, placement->n_ctx, to.compute, host, ret);
}

/* Of the model's own prediction blocks the cache and the graph; their weights are there already. */
static void put_mtp(const bt_guard_prices *p, const dealt *d, const bt_placement *placement, bt_guard_price *ret) {
    const bt_guard_model *m = &p->main;
    uint64_t streams = bt_kv_streams(&m->wishes);
    uint64_t share = (placement->n_ctx / streams + BT_CTX_ALIGN - 1) / BT_CTX_ALIGN * BT_CTX_ALIGN;
    uint64_t kv = bt_sat_mul_u64(p->mtp_kv_cell_bytes, share * streams);
    for (uint32_t b = m->facts->n_block; b < m->facts->n_block_all; b++) {
        uint32_t device = d->device[b];
        bt_guard_pool_price *pool = device != BT_NO_DEVICE ? &ret->devices[device] : &ret->host;
        add(m->kv_offload ? &pool->bytes[BT_GUARD_MTP] : &ret->host.bytes[BT_GUARD_MTP], kv);
        if (b == m->facts->n_block) add(&pool->bytes[BT_GUARD_MTP], graph_at(m, placement->n_ctx, true));
    }
}

static void put_adapters(const bt_guard_prices *p, bt_guard_price *ret) {
    uint64_t bytes = bt_sat_add_u64(p->ask.lora_bytes, p->ask.control_vector_bytes);
    uint64_t n = bt_max_u64(p->main.facts->n_block, 1);
    for (uint32_t i = 0; i < p->n_devices && bytes > 0; i++)
        if (ret->devices[i].n_blocks > 0)
            add(&ret->devices[i].bytes[BT_GUARD_ADAPTERS], bt_mul_div_u64(bytes, ret->devices[i].n_blocks, n) + 1);
    if (bytes > 0 && ret->host.n_blocks > 0)
        add(&ret->host.bytes[BT_GUARD_ADAPTERS], bt_mul_div_u64(bytes, ret->host.n_blocks, n) + 1);
}

/* A checkpoint keeps what cannot be rolled back: windows and states of one sequence. A list grows to its limit, then
 * the oldest are dropped (server_context::create_checkpoint). */
uint64_t bt_guard_checkpoint_bytes(const bt_facts *facts, const bt_wishes *wishes, bool swa_full, uint32_t n_ubatch,
                                   uint32_t n_ctx) {
    bt_wishes one = *wishes;
    uint64_t all = 0;
    if (swa_full && bt_kv_state_bytes(facts, 1) == 0) return 0;
    one.n_parallel = 1;
    for (uint32_t b = 0; facts->kv && b < facts->n_block; b++) {
        uint64_t cell = 0;
        uint32_t window = facts->kv[b].window;
        if (window == 0 || swa_full || !bt_kv_cell_bytes(facts, &facts->kv[b], &one, &cell)) continue;
        uint64_t cells = bt_kv_window_cells(window, n_ubatch, 1, true);
        add(&all, bt_sat_mul_u64(cell, bt_min_u64(cells, n_ctx)));
    }
    return bt_sat_add_u64(all, bt_kv_state_bytes(facts, 1));
}

static void put_server(const bt_guard_prices *p, const bt_placement *placement, bt_guard_price *ret) {
    const bt_guard_model *m = &p->main;
    if (p->ask.effective->program != BT_PROGRAM_SERVER || m->facts->encoder) return;
    uint64_t n = placement->checkpoints > 0 ? (uint64_t)placement->checkpoints * m->wishes.n_parallel : 0;
    ret->host.bytes[BT_GUARD_CHECKPOINTS] =
        bt_sat_mul_u64(n, bt_guard_checkpoint_bytes(m->facts, &m->wishes, m->swa_full, m->n_ubatch, placement->n_ctx));
    ret->prompt_cache_no_limit = placement->cache_ram_mib < 0;
    if (placement->cache_ram_mib > 0) ret->host.bytes[BT_GUARD_PROMPT_CACHE] = (uint64_t)placement->cache_ram_mib * MIB;
}

/* A row of logits (of an encoder, of numbers) for each token that they are asked of. */
static uint64_t output_bytes(const bt_guard_prices *p) {
    const bt_effective *e = p->ask.effective;
    const bt_facts *facts = p->main.facts;
    uint64_t n_draft = p->has_draft || p->has_mtp ? bt_max_u64((uint64_t)e->draft_n_max.value, 1) : 0;
    uint64_t rows = bt_sat_mul_u64(p->main.wishes.n_parallel, 1 + (e->draft_n_max.value > 0 ? n_draft : 0));
    if (p->main.many_rows || facts->encoder) rows = bt_max_u64(rows, p->main.n_ubatch);
    uint64_t row = F32 * ((uint64_t)facts->n_vocab + (facts->encoder ? facts->n_embd : 0));
    return bt_sat_mul_u64(row, rows);
}

/* Of programs that make text, whether a request will bring a grammar or not. */
static uint64_t sampling_bytes(const bt_guard_prices *p) {
    const bt_effective *e = p->ask.effective;
    const bt_facts *facts = p->main.facts;
    bool serves = e->program == BT_PROGRAM_SERVER && e->embedding.value == 0 && e->rerank.value == 0;
    bool samples = serves || e->program == BT_PROGRAM_CLI || e->program == BT_PROGRAM_COMPLETION;
    if (!samples || facts->encoder) return 0;
    uint64_t each = bt_sat_add_u64(bt_sat_mul_u64(CANDIDATE_BYTES, p->main.wishes.n_parallel), GRAMMAR_BYTES);
    return bt_sat_mul_u64(each, facts->n_vocab);
}

static uint64_t vocab_bytes(const bt_facts *facts) {
    bool has_merges = facts->tokenizer && strcmp(facts->tokenizer, "gpt2") == 0;
    uint64_t token = VOCAB_TOKEN_BYTES + (has_merges ? VOCAB_MERGE_BYTES : 0);
    return bt_sat_mul_u64(token, facts->n_vocab);
}

static uint64_t process_bytes(const bt_facts *facts) {
    return bt_sat_add_u64(PROCESS_BYTES, vocab_bytes(facts));
}

static uint64_t total(const bt_guard_pool_price *pool) {
    uint64_t sum_of = 0;
    for (uint32_t i = 0; i < BT_GUARD_LINE_COUNT; i++)
        add(&sum_of, pool->bytes[i]);
    return sum_of;
}

static uint32_t head_device(const bt_guard_price *price) {
    for (uint32_t i = 0; i < price->n_devices; i++)
        if (price->devices[i].head) return i;
    return BT_NO_DEVICE;
}

/* The host's graphs stand in memory of the first device's driver, rows of logits in that of the head's device, weights
 * that are not mapped in that of any (llama_context::llama_context, output_reserve; make_cpu_buft_list). Left out: the
 * weights of prediction blocks, which are one line with their caches. */
static void put_pinned(const bt_guard_prices *p, bt_guard_price *ret) {
    const bt_guard_pool_price *host = &ret->host;
    uint32_t first_of_draft = p->has_draft && p->draft.n_devices > 0 ? p->draft.devices[0] : BT_NO_DEVICE;
    if (p->pins_weights) add(&ret->pinned_weight_bytes, host->bytes[BT_GUARD_WEIGHTS]);
    if (p->pins_weights && bt_guard_device_pins(p, first_of_draft))
        add(&ret->pinned_weight_bytes, host->bytes[BT_GUARD_DRAFT_WEIGHTS]);
    ret->pinned_bytes = ret->pinned_weight_bytes;
    if (bt_guard_device_pins(p, 0)) add(&ret->pinned_bytes, host->bytes[BT_GUARD_COMPUTE]);
    if (bt_guard_device_pins(p, first_of_draft)) add(&ret->pinned_bytes, host->bytes[BT_GUARD_DRAFT_COMPUTE]);
    if (bt_guard_device_pins(p, head_device(ret))) add(&ret->pinned_bytes, host->bytes[BT_GUARD_OUTPUT]);
}

void bt_guard_prices_at(const bt_guard_prices *prices, const bt_placement *placement, bt_guard_price *ret) {
    static const lines of_model = {BT_GUARD_WEIGHTS, BT_GUARD_KV, BT_GUARD_COMPUTE};
    static const lines of_draft = {BT_GUARD_DRAFT_WEIGHTS, BT_GUARD_DRAFT_KV, BT_GUARD_DRAFT_COMPUTE};
    const bt_effective *e = prices->ask.effective;
    dealt d = {{0}};
    *ret = (bt_guard_price){.n_devices = prices->n_devices};
    (void)snprintf(ret->host.name, sizeof ret->host.name, "host");
    for (uint32_t i = 0; i < prices->n_devices; i++) {
        const bt_pool *pool = &prices->ask.devices[prices->devices[i]].pool;
        memcpy(ret->devices[i].name, pool->name, sizeof pool->name);
        ret->devices[i].bytes[BT_GUARD_BASE] = context_bytes(pool);
        ret->devices[i].bytes[BT_GUARD_LEARNED] = prices->learned_bytes[i];
    }
    put_model(prices, &prices->main, placement, placement->n_gpu_layers, of_model, &d, ret);
    if (prices->has_mtp) put_mtp(prices, &d, placement, ret);
    if (prices->has_draft) {
        bt_placement its = *placement;
        if (e->draft_ctx.value > 0) its.n_ctx = (uint32_t)e->draft_ctx.value;
        put_model(prices, &prices->draft, &its, bt_guard_layers_of(prices->draft.facts, e->draft_gpu_layers.value),
                  of_draft, &d, ret);
    }
    bt_guard_pool_price *mmproj = &ret->host;
    if (prices->mmproj_device != BT_NO_DEVICE) mmproj = &ret->devices[prices->mmproj_device];
    mmproj->bytes[BT_GUARD_MMPROJ_WEIGHTS] = prices->mmproj_weights;
    mmproj->bytes[BT_GUARD_MMPROJ_ENCODE] = prices->mmproj_encode;
    put_adapters(prices, ret);
    put_server(prices, placement, ret);
    add(&ret->host.bytes[BT_GUARD_OUTPUT], output_bytes(prices));
    ret->host.bytes[BT_GUARD_SAMPLING] = sampling_bytes(prices);
    ret->host.bytes[BT_GUARD_BASE] = process_bytes(prices->main.facts);
    ret->host.bytes[BT_GUARD_LEARNED] = prices->learned_host_bytes;
    if (prices->has_draft) add(&ret->host.bytes[BT_GUARD_BASE], vocab_bytes(prices->draft.facts));
    for (uint32_t i = 0; i < ret->n_devices; i++) {
        ret->devices[i].total_bytes = total(&ret->devices[i]);
        add(&ret->device_bytes, ret->devices[i].total_bytes);
    }
    ret->host.total_bytes = total(&ret->host);
    ret->host_firm_bytes = bt_sat_sub_u64(ret->host.total_bytes, ret->host.bytes[BT_GUARD_MAPPED]);
    put_pinned(prices, ret);
}
