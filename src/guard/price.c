/* SPDX-License-Identifier: MIT
 *
 * price.c: what a llama.cpp program takes of each device and of the host, from its settings and the headers of its
 * files.
 *
 *     blocks      0 .. n - 1, then prediction blocks, then the head     table
 *     -ngl 3                               [          the last 3     ]  host, always
 *     devices                              [ device 0 | device 1 ... ]  by shares (--tensor-split, or what is free)
 *
 * All sizes are those of src/plan: tensors to the byte with the padding that a device may add, caches cell by cell,
 * graphs in closed form. What differs from a plan of our own is who decides: here llama.cpp deals out the blocks from
 * the end, and the rules of the command line take tensors out of them (rules.c). What stands on no device stands in the
 * host's memory, mapped from the file (which the system may drop and read again) or not.
 *
 * Three things that a device holds though no block of it is there: its context; of the first device, where batches are
 * computed with weights of the host (op offload), the graph and the largest of those weights, which is copied to it;
 * and where several devices work one after another, the copies of their inputs.
 *
 * Prices are made once (prices_make: sums for each block) and asked many times (prices_at): a search tries hundreds of
 * placements. */
#include "guard/price.h"

#include "base/error.h"
#include "base/size.h"
#include "guard/rules.h"
#include "model/roles.h"
#include "plan/companions.h"
#include "plan/costs.h"
#include "plan/price.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
/* What a device may add to a tensor (src/plan/offload.c, TENSOR_PADDING_BYTES). */
#define TENSOR_PADDING_BYTES UINT64_C(1024)
/* CUDA's context with cuBLAS and its workspace takes 300 to 600 MB of a card (src/plan/offers.c). */
#define CUDA_CONTEXT_BYTES (450 * MIB)
/* llama-server without a model (research notes, llama.cpp: measured). */
#define PROCESS_BYTES (40 * MIB)
/* Maps of a vocabulary: 100 to 200 bytes for a token, and 100 for a merge (research notes, llama.cpp 3.4). */
#define VOCAB_TOKEN_BYTES UINT64_C(300)
/* Batches from this size on are computed on a device though their weights are the host's (ggml-cuda.cu, offload_op). */
#define OFFLOAD_BATCH 32u
/* Copies of inputs where devices work one after another on several batches (GGML_SCHED_MAX_COPIES), less the one that
 * the graph has in any case. */
#define INPUT_COPIES 3u
#define F32          UINT64_C(4)
#define TYPE_F16     1u
#define NO_DEVICE    UINT32_MAX
#define NOTES_MAX    8u

/* Bytes of some tensors, as a device holds them and as the host does. */
typedef struct sum {
    uint64_t device, host;
    uint64_t repacked; /* of the host's: what the CPU has another layout for, a copy of its own */
    uint64_t largest;  /* matrix */
} sum;

/* One model file: the model itself, or its draft. */
typedef struct layer_sums {
    sum follows[BT_BLOCK_MAX]; /* to where the block is */
    sum movable[BT_BLOCK_MAX]; /* experts that n_cpu_moe may move */
    bool unused[BT_BLOCK_MAX]; /* a prediction block: counted among the layers, but part of no pass of the model */
    sum head;                  /* goes with the layer behind the last block */
    sum tables, ruled;         /* of the host: read by rows; by a rule */
    uint64_t fixed[BT_POOL_MAX];
    uint64_t fixed_largest;
} layer_sums;

typedef struct model {
    const bt_facts *facts;
    bt_wishes wishes;
    uint32_t n_ubatch, window;
    bool kv_offload, swa_full, many_rows;
    bt_cost graph, all;                       /* of a device, of the host */
    uint32_t devices[BT_POOL_MAX], n_devices; /* positions among those in use */
    layer_sums sums;
    uint64_t weight_bytes;
} model;

struct bt_guard_prices {
    bt_guard_price_ask ask;
    uint32_t devices[BT_POOL_MAX], n_devices; /* in use: indices into ask.devices */
    model main, draft;
    bool has_draft, has_mtp;
    uint64_t mtp_kv_cell_bytes;
    uint32_t mmproj_device; /* position, or NO_DEVICE: the host */
    uint64_t mmproj_weights, mmproj_encode;
    bool mapped, repacks;
    const char *notes[NOTES_MAX];
    uint32_t n_notes;
};

const char *bt_guard_line_name(bt_guard_line line) {
    static const char *const names[] = {
#define X(name, text) text,
        BT_GUARD_LINE_MAP(X)
#undef X
    };
    return names[line];
}

static void add(uint64_t *to, uint64_t bytes) {
    *to = bt_sat_add_u64(*to, bytes);
}

static void note(bt_guard_prices *p, const char *text) {
    if (p->n_notes < NOTES_MAX) p->notes[p->n_notes++] = text;
}

/* ---- devices ---- */

static uint32_t find_device(const bt_guard_prices *p, const char *name, size_t n) {
    for (uint32_t i = 0; i < p->ask.n_devices; i++)
        if (strlen(p->ask.devices[i].pool.name) == n && strncmp(p->ask.devices[i].pool.name, name, n) == 0) return i;
    return NO_DEVICE;
}

/* "CUDA0,CUDA1" or "none". false: one of them is not known. */
static bool read_devices(const bt_guard_prices *p, const char *text, uint32_t *ret, uint32_t *ret_n) {
    *ret_n = 0;
    if (strcmp(text, "none") == 0) return true;
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, ",");
        uint32_t device = find_device(p, at, n);
        if (device == NO_DEVICE || *ret_n == BT_POOL_MAX) return false;
        ret[(*ret_n)++] = device;
        at += n;
        if (*at == ',') at++;
    }
    return true;
}

static const char *devices_in_use(bt_guard_prices *p) {
    const bt_effective *e = p->ask.effective;
    if (e->device.text) {
        if (!read_devices(p, e->device.text, p->devices, &p->n_devices))
            return "a device of --device is not known here, so its memory is not either";
    } else {
        for (uint32_t i = 0; i < p->ask.n_devices; i++)
            p->devices[p->n_devices++] = i;
    }
    if (e->split_mode.value > BT_SPLIT_LAYER && p->n_devices > 1)
        return "with --split-mode row or tensor every matrix is spread over the devices: not priced";
    return NULL;
}

/* Where a draft is: its own devices, which are among those in use, or the same. */
static const char *draft_devices(bt_guard_prices *p) {
    const char *text = p->ask.effective->draft_device.text;
    model *m = &p->draft;
    uint32_t named[BT_POOL_MAX];
    uint32_t n = 0;
    m->n_devices = p->n_devices;
    for (uint32_t i = 0; i < p->n_devices; i++)
        m->devices[i] = i;
    if (!text) return NULL;
    if (!read_devices(p, text, named, &n)) return "a device of --device-draft is not known here";
    m->n_devices = n;
    for (uint32_t i = 0; i < n; i++) {
        m->devices[i] = NO_DEVICE;
        for (uint32_t u = 0; u < p->n_devices; u++)
            if (p->devices[u] == named[i]) m->devices[i] = u;
        if (m->devices[i] == NO_DEVICE) return "a device of --device-draft is not one of --device: not priced";
    }
    return NULL;
}

static uint64_t context_bytes(const bt_pool *pool) {
    bool is_cuda = strncmp(pool->name, "CUDA", 4) == 0 || strncmp(pool->name, "ROCm", 4) == 0;
    return is_cuda ? CUDA_CONTEXT_BYTES : 0;
}

/* ---- weights ---- */

static void sum_tensor(sum *to, const bt_tensor *t) {
    add(&to->device, bt_sat_add_u64(t->bytes, TENSOR_PADDING_BYTES));
    add(&to->host, t->bytes);
    if (t->layout != BT_LAYOUT_PLAIN) add(&to->repacked, t->bytes);
    if (t->n_dims >= 2) to->largest = bt_max_u64(to->largest, t->bytes);
}

static bool is_loaded(const bt_guard_prices *p, const model *m, const bt_tensor *t) {
    if (t->role != BT_ROLE_UNUSED) return true;
    return m == &p->main && p->has_mtp && t->block >= 0;
}

static const char *fix_tensor(const bt_guard_prices *p, model *m, const bt_tensor *t, const char *device) {
    uint32_t at = find_device(p, device, strlen(device));
    for (uint32_t i = 0; i < p->n_devices && at != NO_DEVICE; i++) {
        if (p->devices[i] != at) continue;
        add(&m->sums.fixed[i], bt_sat_add_u64(t->bytes, TENSOR_PADDING_BYTES));
        return NULL;
    }
    return "a rule of --override-tensor sends tensors to a buffer that is none of the devices in use";
}

static const char *place_tensor(const bt_guard_prices *p, model *m, const bt_rule_set *rules, const bt_tensor *t) {
    layer_sums *s = &m->sums;
    bt_destination to = bt_rule_set_find(rules, t);
    switch (to.kind) {
    case BT_TO_UNKNOWN:
        return "experts go to the host up to a block and to a device by name from there on: not priced";
    case BT_TO_DEVICE:
        return fix_tensor(p, m, t, to.device);
    case BT_TO_HOST:
        sum_tensor(&s->ruled, t);
        return NULL;
    case BT_TO_MOVABLE:
        sum_tensor(&s->movable[t->block], t);
        return NULL;
    case BT_TO_LAYER:
        break;
    }
    if (t->block >= 0)
        sum_tensor(&s->follows[t->block], t);
    else if (t->role == BT_ROLE_TIED) { /* read by rows on the host, and a copy where the head is */
        sum_tensor(&s->head, t);
        s->head.host = bt_sat_sub_u64(s->head.host, t->bytes);
        sum_tensor(&s->tables, t);
    } else
        sum_tensor(bt_tensor_goes_with_head(t) ? &s->head : &s->tables, t);
    return NULL;
}

static bt_status sum_weights(bt_guard_prices *p, model *m, const bt_rules *rules, const char **ret_reason,
                             bt_error *err) {
    bt_rule_set *set = NULL;
    BT_TRY(bt_rule_set_open(p->ask.arena, rules, m == &p->main, &set, ret_reason, err));
    for (uint32_t i = 0; !*ret_reason && i < m->facts->n_tensors; i++) {
        const bt_tensor *t = &m->facts->tensors[i];
        if (t->block >= (int32_t)m->facts->n_block) m->sums.unused[t->block] = true;
        if (!is_loaded(p, m, t)) continue;
        add(&m->weight_bytes, t->bytes);
        *ret_reason = place_tensor(p, m, set, t);
    }
    bt_rule_set_close(set);
    return BT_OK;
}

/* ---- one model ---- */

static bt_wishes wishes_of(const bt_effective *e, int32_t type_k, int32_t type_v) {
    return (bt_wishes){.n_parallel = e->slots.value > 0 ? (uint32_t)e->slots.value : 1,
                       .type_k = (uint32_t)type_k,
                       .type_v = (uint32_t)type_v,
                       .flash_attn = e->flash.value == BT_FLASH_OFF ? BT_OFF : BT_ON,
                       .n_threads = e->threads.value > 0 ? (uint32_t)e->threads.value : 1,
                       .kv_unified = e->kv_unified.value != 0};
}

/* Programs that ask for logits of every token; a server does for as many as it samples from (n_outputs_max). */
static bool has_many_rows(const bt_effective *e) {
    return e->program == BT_PROGRAM_COMPLETION || e->program == BT_PROGRAM_PERPLEXITY ||
           e->program == BT_PROGRAM_FIT_PARAMS;
}

static const char *model_start(const bt_guard_prices *p, model *m, const bt_facts *facts, int32_t type_k,
                               int32_t type_v) {
    const bt_effective *e = p->ask.effective;
    bt_error err = {0};
    m->facts = facts;
    m->wishes = wishes_of(e, type_k, type_v);
    m->n_ubatch = e->ubatch.value > 0 ? (uint32_t)e->ubatch.value : 1;
    m->kv_offload = e->kv_offload.value != 0;
    m->swa_full = e->swa_full.value != 0;
    m->many_rows = has_many_rows(e);
    if (!facts->encoder && (!facts->kv_known || !facts->kv)) return facts->kv_reason;
    if (facts->n_block_all > BT_BLOCK_MAX) return "more blocks than are counted";
    if (!facts->encoder && bt_kv_check(facts, &m->wishes, &err) != BT_OK)
        return "the program will refuse these types of the KV cache, or flash attention, for this model";
    for (uint32_t b = 0; facts->kv && b < facts->n_block; b++)
        m->window = (uint32_t)bt_max_u64(m->window, facts->kv[b].window);
    return NULL;
}

static void model_costs(model *m, uint32_t n_ubatch) {
    m->n_ubatch = n_ubatch;
    m->graph = bt_graph_cost(m->facts, &m->wishes, n_ubatch);
    m->all = bt_compute_cost(m->facts, &m->wishes, n_ubatch, m->wishes.n_threads);
}

/* A causal model's context holds the micro-batch down to itself. */
static uint32_t ubatch_at(const model *m, uint32_t n_ctx) {
    return m->facts->encoder ? m->n_ubatch : (uint32_t)bt_min_u64(m->n_ubatch, n_ctx);
}

static uint64_t cost_at(const model *m, const bt_cost *cost, uint32_t n_ctx) {
    uint64_t window = m->swa_full || m->window == 0
                          ? n_ctx
                          : bt_kv_window_cells(m->window, m->n_ubatch, m->wishes.n_parallel, m->wishes.kv_unified);
    uint64_t bytes = bt_sat_add_u64(cost->fixed_bytes, bt_sat_mul_u64(cost->per_ctx_bytes, n_ctx));
    add(&bytes, bt_sat_mul_u64(cost->per_window_bytes, bt_min_u64(n_ctx, window)));
    return bt_max_u64(bytes, cost->floor_bytes);
}

static uint64_t graph_at(const model *m, uint32_t n_ctx, bool with_head) {
    uint64_t graph = cost_at(m, &m->graph, n_ctx);
    if (!m->many_rows || !with_head) return graph;
    /* logits of every token beside three rows of the stream (research notes, llama.cpp 3.2 and 3.3) */
    uint64_t row = bt_sat_add_u64(m->facts->n_vocab, UINT64_C(3) * m->facts->n_embd);
    return bt_max_u64(graph, bt_sat_mul_u64(F32 * m->n_ubatch, row));
}

static uint64_t block_kv(const model *m, uint32_t block, uint32_t n_ctx) {
    bt_facts one = *m->facts;
    uint64_t bytes = 0;
    if (!m->facts->kv || block >= m->facts->n_block) return 0;
    bt_kv_block kv = m->facts->kv[block];
    if (m->swa_full) kv.window = 0;
    one.kv = &kv;
    if (!bt_kv_block_price(&one, 0, &m->wishes, n_ctx, ubatch_at(m, n_ctx), &bytes)) return UINT64_MAX;
    return bytes;
}

/* ---- companions ---- */

static bt_status make_mmproj(bt_guard_prices *p, const char **ret_reason) {
    const bt_effective *e = p->ask.effective;
    const bt_projector *projector = p->ask.projector;
    bt_error err = {0};
    p->mmproj_device = NO_DEVICE;
    if (!projector) return BT_OK;
    bt_encode_ask ask = {.n_embd = p->main.facts->n_embd,
                         .n_tokens_max = e->image_max_tokens.value > 0 ? (uint32_t)e->image_max_tokens.value : 0,
                         .n_threads = p->main.wishes.n_threads,
                         .flash_off = e->flash.value == BT_FLASH_OFF};
    p->mmproj_weights = projector->weight_bytes;
    if (p->ask.vision_overhead_bytes.known) {
        p->mmproj_encode = p->ask.vision_overhead_bytes.value;
    } else if (bt_encode_peak_bytes(projector, &ask, &p->mmproj_encode, &err) != BT_OK) {
        p->mmproj_encode = UINT64_C(1) << 30; /* the document's flat guess (research notes, seed 4, 2.6) */
        note(p, "what encoding pictures takes is not known for this projector: 1 GiB is assumed");
    }
    if (e->mmproj_offload.value == 0 || p->ask.n_devices == 0) return BT_OK;
    uint32_t device = 0; /* the first of all */
    if (e->mmproj_device.text) device = find_device(p, e->mmproj_device.text, strlen(e->mmproj_device.text));
    for (uint32_t i = 0; i < p->n_devices; i++)
        if (p->devices[i] == device) p->mmproj_device = i;
    if (p->mmproj_device == NO_DEVICE && p->n_devices > 0)
        *ret_reason = "the projector goes to a device that is none of those in use: not priced";
    return BT_OK;
}

static bt_status make_draft(bt_guard_prices *p, const char **ret_reason, bt_error *err) {
    const bt_effective *e = p->ask.effective;
    const char *reason = NULL;
    if (!p->ask.draft) {
        if (e->draft_model.text || e->draft_hf_repo.text) note(p, "the draft cannot be read, and is not priced");
        return BT_OK;
    }
    reason = model_start(p, &p->draft, p->ask.draft, e->draft_cache_k.value, e->draft_cache_v.value);
    p->draft.kv_offload = true;
    p->draft.swa_full = false;
    p->draft.many_rows = false;
    if (reason) {
        *ret_reason = "the cache of the draft cannot be priced";
        return BT_OK;
    }
    *ret_reason = draft_devices(p);
    if (*ret_reason) return BT_OK;
    p->has_draft = true;
    model_costs(&p->draft, p->main.n_ubatch);
    return sum_weights(p, &p->draft, &e->draft_rules, ret_reason, err);
}

/* A prediction block keeps what a block of the model without a window keeps, in the types of a draft. */
static void make_mtp(bt_guard_prices *p) {
    const bt_effective *e = p->ask.effective;
    const bt_facts *facts = p->main.facts;
    bt_wishes wishes = wishes_of(e, e->draft_cache_k.value, e->draft_cache_v.value);
    if (!p->has_mtp) return;
    for (uint32_t b = 0; facts->kv && b < facts->n_block; b++) {
        uint64_t cell = 0;
        if (facts->kv[b].window == 0 && bt_kv_cell_bytes(facts, &facts->kv[b], &wishes, &cell))
            p->mtp_kv_cell_bytes = bt_max_u64(p->mtp_kv_cell_bytes, cell);
    }
}

/* ---- making ---- */

static const char *refused_early(const bt_guard_price_ask *ask) {
    const bt_effective *e = ask->effective;
    if (e->n_override_kv > 0) return "--override-kv may change any fact of the model";
    if (e->rpc.text && *e->rpc.text) {
        for (uint32_t i = 0; i < ask->n_devices; i++)
            if (ask->devices[i].pool.kind == BT_POOL_RPC) return NULL;
        return "the devices of --rpc are not known here";
    }
    return NULL;
}

static bool is_mapped(const bt_effective *e) {
    return e->load_mode.value == BT_LOAD_AUTO || e->load_mode.value == BT_LOAD_MMAP;
}

bt_status bt_guard_prices_make(const bt_guard_price_ask *ask, const bt_guard_prices **ret, const char **ret_reason,
                               bt_error *err) {
    const bt_effective *e = ask->effective;
    bt_guard_prices *p = bt_arena_alloc(ask->arena, sizeof *p);
    if (!p)
        return bt_fail(err, BT_E_NOMEM, "plan_arena", BT_MEASURE_BYTES, sizeof *p, 0,
                       "the arena has no room for the prices of a command line");
    p->ask = *ask;
    *ret_reason = refused_early(ask);
    if (!*ret_reason) *ret_reason = devices_in_use(p);
    if (!*ret_reason) *ret_reason = model_start(p, &p->main, ask->facts, e->cache_k.value, e->cache_v.value);
    if (*ret_reason) return BT_OK;
    p->has_mtp = (e->drafters & (1u << BT_DRAFTER_MTP)) != 0 && ask->facts->n_block_all > ask->facts->n_block;
    p->main.n_devices = p->n_devices;
    for (uint32_t i = 0; i < p->n_devices; i++)
        p->main.devices[i] = i;
    model_costs(&p->main, p->main.n_ubatch);
    BT_TRY(sum_weights(p, &p->main, &e->rules, ret_reason, err));
    if (!*ret_reason) BT_TRY(make_draft(p, ret_reason, err));
    if (!*ret_reason) BT_TRY(make_mmproj(p, ret_reason));
    if (*ret_reason) return BT_OK;
    make_mtp(p);
    p->mapped = is_mapped(e);
    p->repacks = e->repack.value != 0 && (p->n_devices == 0 || e->no_host.value != 0);
    *ret = p;
    return BT_OK;
}

uint32_t bt_guard_devices(const bt_guard_prices *prices, const uint32_t **ret_index) {
    if (ret_index) *ret_index = prices->devices;
    return prices->n_devices;
}

uint32_t bt_guard_notes(const bt_guard_prices *prices, const char *const **ret_notes) {
    *ret_notes = prices->notes;
    return prices->n_notes;
}

/* ---- the placement of the command line ---- */

static uint32_t layers_of(const bt_facts *facts, int32_t value) {
    uint64_t all = (uint64_t)facts->n_block_all + 1;
    return value < 0 ? (uint32_t)all : (uint32_t)bt_min_u64((uint64_t)value, all);
}

/* The context where nobody gave one: what the model was trained with, or as little as the program may shrink it to. */
static uint32_t ctx_of(const bt_effective *e, const bt_facts *facts) {
    if (e->ctx.value > 0) return (uint32_t)e->ctx.value;
    uint32_t trained = facts->n_ctx_train > 0 ? facts->n_ctx_train : 4096;
    bool shrinks = e->fit.value != 0 && e->fit_ctx.value != INT32_MAX && e->fit_ctx.value > 0;
    return shrinks ? (uint32_t)bt_min_u64(trained, (uint64_t)e->fit_ctx.value) : trained;
}

void bt_guard_placement(const bt_guard_prices *prices, bt_placement *ret) {
    const bt_effective *e = prices->ask.effective;
    const bt_facts *facts = prices->main.facts;
    *ret = (bt_placement){.n_ctx = ctx_of(e, facts),
                          .n_gpu_layers = layers_of(facts, e->gpu_layers.value),
                          .n_shares = e->n_shares,
                          .main_gpu = e->main_gpu.value > 0 ? (uint32_t)e->main_gpu.value : 0,
                          .cache_ram_mib = e->cache_ram.value,
                          .checkpoints = e->checkpoints.value};
    memcpy(ret->shares, e->shares, sizeof ret->shares);
    uint64_t n_moe = e->rules.every_expert ? facts->n_block_all : (uint64_t)e->rules.n_experts;
    ret->n_cpu_moe = (uint32_t)bt_min_u64(n_moe, facts->n_block_all);
}

bool bt_guard_experts_can_move(const bt_guard_prices *prices, uint32_t n_cpu_moe) {
    for (uint32_t b = n_cpu_moe; b < prices->main.facts->n_block_all; b++)
        if (prices->main.sums.movable[b].host > 0) return true;
    return false;
}

double bt_guard_gpu_fraction(const bt_guard_prices *prices, const bt_placement *placement) {
    const model *m = &prices->main;
    uint32_t n = m->facts->n_block_all;
    if (n == 0) return 1;
    double layers = placement->n_gpu_layers >= n ? 1 : (double)placement->n_gpu_layers / n;
    uint64_t away = m->sums.ruled.host;
    for (uint32_t b = 0; b < n && b < placement->n_cpu_moe; b++)
        add(&away, m->sums.movable[b].host);
    return m->weight_bytes > 0 ? layers * (1 - (double)away / (double)m->weight_bytes) : layers;
}

/* ---- a placement priced ---- */

/* Where a placement has the layers of a model. */
typedef struct dealt {
    uint32_t device[BT_BLOCK_MAX + 1]; /* of each block, and of the head: a position, or NO_DEVICE */
} dealt;

static float share_of(const bt_guard_prices *p, const model *m, const bt_placement *placement, uint32_t i) {
    float sum_of_shares = 0;
    for (uint32_t k = 0; k < placement->n_shares && k < m->n_devices; k++)
        sum_of_shares += (float)placement->shares[k];
    if (sum_of_shares > 0) return i < placement->n_shares ? (float)placement->shares[i] : 0;
    const bt_pool *pool = &p->ask.devices[p->devices[m->devices[i]]].pool;
    return pool->free_bytes > 0 ? (float)pool->free_bytes : 1;
}

/* As llama_model_base::load_tensors does it, in floats as it does: equal shares must fall on the same side. */
static void deal(const bt_guard_prices *p, const model *m, const bt_placement *placement, uint32_t n_gpu_layers,
                 dealt *ret) {
    uint32_t n = m->facts->n_block_all + 1;
    float ends[BT_POOL_MAX];
    float all = 0;
    uint32_t n_act = m->n_devices == 0 ? 0 : (uint32_t)bt_min_u64(n_gpu_layers, n);
    for (uint32_t i = 0; i < m->n_devices; i++) {
        all += share_of(p, m, placement, i);
        ends[i] = all;
    }
    for (uint32_t l = 0; l < n; l++) {
        ret->device[l] = NO_DEVICE;
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

static void host_weights(const bt_guard_prices *p, const sum *of, bt_guard_line line, bt_guard_price *ret) {
    uint64_t firm = !p->mapped ? of->host : p->repacks ? of->repacked : 0;
    add(&ret->host.bytes[line], firm);
    add(&ret->host.bytes[BT_GUARD_MAPPED], bt_sat_sub_u64(of->host, p->mapped && p->repacks ? 0 : firm));
}

static void put_sum(const bt_guard_prices *p, const sum *of, uint32_t device, bt_guard_line line, uint64_t *largest,
                    bt_guard_price *ret) {
    if (device != NO_DEVICE) {
        add(&ret->devices[device].bytes[line], of->device);
        return;
    }
    host_weights(p, of, line, ret);
    *largest = bt_max_u64(*largest, of->largest);
}

static bool has_layer(const dealt *d, uint32_t n, uint32_t device) {
    for (uint32_t l = 0; l < n; l++)
        if (d->device[l] == device) return true;
    return false;
}

/* Blocks of one model with their experts and caches. ret_largest: the largest matrix of a block on the host. */
static void put_blocks(const bt_guard_prices *p, const model *m, const dealt *d, const bt_placement *placement,
                       lines to, uint64_t *ret_largest, bt_guard_price *ret) {
    for (uint32_t b = 0; b < m->facts->n_block_all; b++) {
        const bool unused = m->sums.unused[b];
        bt_guard_line weights = unused ? BT_GUARD_MTP : to.weights;
        bool moved = m == &p->main && b < placement->n_cpu_moe;
        put_sum(p, &m->sums.follows[b], d->device[b], weights, ret_largest, ret);
        put_sum(p, &m->sums.movable[b], moved ? NO_DEVICE : d->device[b], weights, ret_largest, ret);
        uint64_t kv = block_kv(m, b, placement->n_ctx);
        bool on_device = d->device[b] != NO_DEVICE && m->kv_offload;
        add(on_device ? &ret->devices[d->device[b]].bytes[to.kv] : &ret->host.bytes[to.kv], kv);
        if (m == &p->main && !unused && d->device[b] != NO_DEVICE) ret->devices[d->device[b]].n_blocks++;
        if (m == &p->main && !unused && d->device[b] == NO_DEVICE) ret->host.n_blocks++;
    }
    put_sum(p, &m->sums.ruled, NO_DEVICE, to.weights, ret_largest, ret);
    host_weights(p, &m->sums.tables, to.weights, ret);
    for (uint32_t i = 0; i < p->n_devices; i++)
        add(&ret->devices[i].bytes[to.weights], m->sums.fixed[i]);
}

static void put_graphs(const bt_guard_prices *p, const model *m, const dealt *d, uint32_t n_ctx, bt_guard_line line,
                       uint64_t largest, bt_guard_price *ret) {
    uint32_t n = m->facts->n_block_all + 1;
    const bt_effective *e = p->ask.effective;
    bool offloads = e->op_offload.value != 0 && m->n_ubatch >= OFFLOAD_BATCH && largest > 0;
    bool pipelined = m->n_devices > 1 && d->device[0] != NO_DEVICE && e->split_mode.value == BT_SPLIT_LAYER;
    uint64_t mask = bt_sat_mul_u64(2 * (uint64_t)m->n_ubatch, n_ctx);
    uint64_t inputs = bt_sat_add_u64(mask, F32 * m->n_ubatch * m->facts->n_embd);
    for (uint32_t i = 0; i < m->n_devices; i++) {
        uint32_t device = m->devices[i];
        bool used = has_layer(d, n, device) || m->sums.fixed[device] > 0;
        uint64_t *to = &ret->devices[device].bytes[line];
        if (used || (i == 0 && offloads)) add(to, graph_at(m, n_ctx, d->device[n - 1] == device));
        if (i == 0 && offloads) add(to, largest);
        if (used && pipelined) add(to, bt_sat_mul_u64(INPUT_COPIES, inputs));
    }
    bool computes = has_layer(d, n, NO_DEVICE) || largest > 0;
    uint64_t all = cost_at(m, &m->all, n_ctx);
    if (!computes) all = bt_sat_add_u64(bt_sat_sub_u64(all, cost_at(m, &m->graph, n_ctx)), inputs);
    if (computes && d->device[n - 1] == NO_DEVICE && m->many_rows)
        add(&all, bt_sat_sub_u64(graph_at(m, n_ctx, true), graph_at(m, n_ctx, false)));
    add(&ret->host.bytes[line], all);
}

static void put_model(const bt_guard_prices *p, const model *m, const bt_placement *placement, uint32_t n_gpu_layers,
                      lines to, dealt *d, bt_guard_price *ret) {
    uint64_t largest = 0;
    uint32_t n = m->facts->n_block_all + 1;
    deal(p, m, placement, n_gpu_layers, d);
    put_blocks(p, m, d, placement, to, &largest, ret);
    uint32_t head = d->device[n - 1];
    if (head != NO_DEVICE) {
        add(&ret->devices[head].bytes[to.weights], m->sums.head.device);
        if (m == &p->main) ret->devices[head].head = true;
    } else {
        host_weights(p, &m->sums.head, to.weights, ret);
        if (m == &p->main) ret->host.head = true;
    }
    put_graphs(p, m, d, placement->n_ctx, to.compute, largest, ret);
}

/* Of the model's own prediction blocks the cache and the graph; their weights are there already. */
static void put_mtp(const bt_guard_prices *p, const dealt *d, const bt_placement *placement, bt_guard_price *ret) {
    const model *m = &p->main;
    uint64_t streams = bt_kv_streams(&m->wishes);
    uint64_t share = (placement->n_ctx / streams + BT_CTX_ALIGN - 1) / BT_CTX_ALIGN * BT_CTX_ALIGN;
    uint64_t kv = bt_sat_mul_u64(p->mtp_kv_cell_bytes, share * streams);
    for (uint32_t b = m->facts->n_block; b < m->facts->n_block_all; b++) {
        uint32_t device = d->device[b];
        bt_guard_pool_price *pool = device != NO_DEVICE ? &ret->devices[device] : &ret->host;
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
    if (ret->host.n_blocks > 0)
        add(&ret->host.bytes[BT_GUARD_ADAPTERS], bt_mul_div_u64(bytes, ret->host.n_blocks, n) + 1);
}

/* A checkpoint keeps what cannot be rolled back: windows and states of one sequence. A list grows to its limit, then
 * the oldest are dropped (server_context::create_checkpoint). */
static uint64_t checkpoint_bytes(const model *m, uint32_t n_ctx) {
    bt_wishes one = m->wishes;
    uint64_t all = 0;
    if (m->swa_full && bt_kv_state_bytes(m->facts, 1) == 0) return 0;
    one.n_parallel = 1;
    for (uint32_t b = 0; m->facts->kv && b < m->facts->n_block; b++) {
        uint64_t cell = 0;
        uint32_t window = m->facts->kv[b].window;
        if (window == 0 || m->swa_full || !bt_kv_cell_bytes(m->facts, &m->facts->kv[b], &one, &cell)) continue;
        uint64_t cells = bt_kv_window_cells(window, m->n_ubatch, 1, true);
        add(&all, bt_sat_mul_u64(cell, bt_min_u64(cells, n_ctx)));
    }
    return bt_sat_add_u64(all, bt_kv_state_bytes(m->facts, 1));
}

static void put_server(const bt_guard_prices *p, const bt_placement *placement, bt_guard_price *ret) {
    const model *m = &p->main;
    if (p->ask.effective->program != BT_PROGRAM_SERVER || m->facts->encoder) return;
    uint64_t n = placement->checkpoints > 0 ? (uint64_t)placement->checkpoints * m->wishes.n_parallel : 0;
    ret->host.bytes[BT_GUARD_CHECKPOINTS] = bt_sat_mul_u64(n, checkpoint_bytes(m, placement->n_ctx));
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

static uint64_t total(const bt_guard_pool_price *pool) {
    uint64_t sum_of = 0;
    for (uint32_t i = 0; i < BT_GUARD_LINE_COUNT; i++)
        add(&sum_of, pool->bytes[i]);
    return sum_of;
}

void bt_guard_prices_at(const bt_guard_prices *prices, const bt_placement *placement, bt_guard_price *ret) {
    static const lines of_model = {BT_GUARD_WEIGHTS, BT_GUARD_KV, BT_GUARD_COMPUTE};
    static const lines of_draft = {BT_GUARD_DRAFT_WEIGHTS, BT_GUARD_DRAFT_KV, BT_GUARD_DRAFT_COMPUTE};
    const bt_effective *e = prices->ask.effective;
    dealt d;
    *ret = (bt_guard_price){.n_devices = prices->n_devices};
    (void)snprintf(ret->host.name, sizeof ret->host.name, "host");
    for (uint32_t i = 0; i < prices->n_devices; i++) {
        const bt_pool *pool = &prices->ask.devices[prices->devices[i]].pool;
        memcpy(ret->devices[i].name, pool->name, sizeof pool->name);
        ret->devices[i].bytes[BT_GUARD_BASE] = context_bytes(pool);
    }
    put_model(prices, &prices->main, placement, placement->n_gpu_layers, of_model, &d, ret);
    if (prices->has_mtp) put_mtp(prices, &d, placement, ret);
    if (prices->has_draft) {
        bt_placement its = *placement;
        if (e->draft_ctx.value > 0) its.n_ctx = (uint32_t)e->draft_ctx.value;
        put_model(prices, &prices->draft, &its, layers_of(prices->draft.facts, e->draft_gpu_layers.value), of_draft, &d,
                  ret);
    }
    bt_guard_pool_price *mmproj = &ret->host;
    if (prices->mmproj_device != NO_DEVICE) mmproj = &ret->devices[prices->mmproj_device];
    mmproj->bytes[BT_GUARD_MMPROJ_WEIGHTS] = prices->mmproj_weights;
    mmproj->bytes[BT_GUARD_MMPROJ_ENCODE] = prices->mmproj_encode;
    put_adapters(prices, ret);
    put_server(prices, placement, ret);
    add(&ret->host.bytes[BT_GUARD_OUTPUT], output_bytes(prices));
    ret->host.bytes[BT_GUARD_BASE] =
        bt_sat_add_u64(PROCESS_BYTES, bt_sat_mul_u64(VOCAB_TOKEN_BYTES, prices->main.facts->n_vocab));
    for (uint32_t i = 0; i < ret->n_devices; i++) {
        ret->devices[i].total_bytes = total(&ret->devices[i]);
        add(&ret->device_bytes, ret->devices[i].total_bytes);
    }
    ret->host.total_bytes = total(&ret->host);
    ret->host_firm_bytes = bt_sat_sub_u64(ret->host.total_bytes, ret->host.bytes[BT_GUARD_MAPPED]);
}
