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
 * Sums for each block are made here, once; price_at.c adds them up for a placement, as often as a search asks. */
#include "guard/price_internal.h"

#include "base/error.h"
#include "base/size.h"
#include "base/text.h"
#include "guard/rules.h"
#include "model/roles.h"
#include "model/types.h"
#include "plan/companions.h"
#include "plan/costs.h"
#include "plan/price.h"

#include <string.h>

/* What a device may add to a tensor (src/plan/offload.c, TENSOR_PADDING_BYTES). */
#define CTX_UNKNOWN          4096u /* where the file does not say */
#define TENSOR_PADDING_BYTES UINT64_C(1024)
/* Of the projector where encoding is not known (research notes, seed 4, 2.6). */
#define VISION_BYTES (UINT64_C(1) << 30)

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
    if (p->n_notes < BT_GUARD_NOTE_MAX) p->notes[p->n_notes++] = text;
}

/* ---- devices ---- */

static uint32_t find_device(const bt_guard_prices *p, const char *name, size_t n) {
    for (uint32_t i = 0; i < p->ask.n_devices; i++) {
        const bt_guard_device *device = &p->ask.devices[i];
        const char *its = device->seen_as[0] ? device->seen_as : device->pool.name;
        if (strlen(its) == n && strncmp(its, name, n) == 0) return i;
    }
    return BT_NO_DEVICE;
}

/* "CUDA0,CUDA1" or "none". false: one of them is not known. */
static bool read_devices(const bt_guard_prices *p, const char *text, uint32_t *ret, uint32_t *ret_n) {
    *ret_n = 0;
    if (strcmp(text, "none") == 0) return true;
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, ",");
        uint32_t device = find_device(p, at, n);
        if (device == BT_NO_DEVICE || *ret_n == BT_POOL_MAX) return false;
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
    bt_guard_model *m = &p->draft;
    uint32_t named[BT_POOL_MAX];
    uint32_t n = 0;
    m->n_devices = p->n_devices;
    for (uint32_t i = 0; i < p->n_devices; i++)
        m->devices[i] = i;
    if (!text) return NULL;
    if (!read_devices(p, text, named, &n)) return "a device of --device-draft is not known here";
    m->n_devices = n;
    for (uint32_t i = 0; i < n; i++) {
        m->devices[i] = BT_NO_DEVICE;
        for (uint32_t u = 0; u < p->n_devices; u++)
            if (p->devices[u] == named[i]) m->devices[i] = u;
        if (m->devices[i] == BT_NO_DEVICE) return "a device of --device-draft is not one of --device: not priced";
    }
    return NULL;
}

/* ---- weights ---- */

/* Into another layout than the file's, as the CPU's kernels of x86 with AVX2 want it (ggml-cpu/repack.cpp): matrices,
 * and those of experts. */
static bool is_repacked(const bt_tensor *t) {
    static const char *const types[] = {"q4_0", "q4_K", "iq4_nl", "mxfp4"};
    if (t->block < 0 || t->n_dims < 2 || t->ne[1] % BT_LAYOUT_ROWS != 0) return false;
    return bt_is_among(bt_type_name(t->type), types, sizeof types / sizeof *types);
}

/* Devices whose drivers give pinned memory: then weights of the host stand in it or in the file, and are not repacked
 * (llama_model::load_tensors, make_cpu_buft_list). A card of the kernel's (card0) is driven by one of these. */
static bool pins_memory(const bt_pool *pool) {
    static const char *const names[] = {"CUDA", "ROCm", "MUSA", "Vulkan", "SYCL", "CANN", "card"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(pool->name, names[i], strlen(names[i])) == 0) return true;
    return false;
}

bool bt_guard_device_pins(const bt_guard_prices *p, uint32_t device) {
    return device < p->n_devices && pins_memory(&p->ask.devices[p->devices[device]].pool);
}

static bool has_pinned_memory(const bt_guard_prices *p) {
    for (uint32_t i = 0; i < p->n_devices; i++)
        if (bt_guard_device_pins(p, i)) return true;
    return false;
}

static void sum_tensor(const bt_guard_prices *p, bt_guard_sum *to, const bt_tensor *t) {
    add(&to->device, bt_sat_add_u64(t->bytes, TENSOR_PADDING_BYTES));
    add(&to->host, t->bytes);
    bool repacked = p->repacks && is_repacked(t);
    if (repacked) add(&to->repacked, t->bytes);
    if (t->n_dims >= 2 && !repacked) to->largest = bt_max_u64(to->largest, t->bytes);
}

static bool is_loaded(const bt_guard_prices *p, const bt_guard_model *m, const bt_tensor *t) {
    if (t->role != BT_ROLE_UNUSED) return true;
    return m == &p->main && p->has_mtp && t->block >= 0;
}

static const char *fix_tensor(const bt_guard_prices *p, bt_guard_model *m, const bt_tensor *t, const char *device) {
    uint32_t at = find_device(p, device, strlen(device));
    for (uint32_t i = 0; i < p->n_devices && at != BT_NO_DEVICE; i++) {
        if (p->devices[i] != at) continue;
        add(&m->sums.fixed[i], bt_sat_add_u64(t->bytes, TENSOR_PADDING_BYTES));
        return NULL;
    }
    return "a rule of --override-tensor sends tensors to a buffer that is none of the devices in use";
}

static const char *place_tensor(const bt_guard_prices *p, bt_guard_model *m, const bt_rule_set *rules,
                                const bt_tensor *t) {
    bt_guard_sums *s = &m->sums;
    bt_destination to = bt_rule_set_find(rules, t);
    switch (to.kind) {
    case BT_TO_UNKNOWN:
        return "experts go to the host up to a block and to a device by name from there on: not priced";
    case BT_TO_DEVICE:
        return fix_tensor(p, m, t, to.device);
    case BT_TO_HOST:
        sum_tensor(p, &s->ruled, t);
        return NULL;
    case BT_TO_MOVABLE:
        sum_tensor(p, &s->movable[t->block], t);
        return NULL;
    case BT_TO_LAYER:
        break;
    }
    if (t->block >= 0)
        sum_tensor(p, &s->follows[t->block], t);
    else if (t->role == BT_ROLE_TIED) { /* read by rows on the host, and a copy where the head is */
        sum_tensor(p, &s->head, t);
        s->head.host = bt_sat_sub_u64(s->head.host, t->bytes);
        sum_tensor(p, &s->tables, t);
    } else
        sum_tensor(p, bt_tensor_goes_with_head(t) ? &s->head : &s->tables, t);
    return NULL;
}

static bt_status sum_weights(bt_guard_prices *p, bt_guard_model *m, const bt_rules *rules, const char **ret_reason,
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

static const char *model_start(const bt_guard_prices *p, bt_guard_model *m, const bt_facts *facts, int32_t type_k,
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

static void model_costs(bt_guard_model *m, uint32_t n_ubatch) {
    m->n_ubatch = n_ubatch;
    m->graph = bt_graph_cost(m->facts, &m->wishes, n_ubatch);
    m->all = bt_compute_cost(m->facts, &m->wishes, n_ubatch, m->wishes.n_threads);
}

/* ---- companions ---- */

static bt_status make_mmproj(bt_guard_prices *p, const char **ret_reason) {
    const bt_effective *e = p->ask.effective;
    const bt_projector *projector = p->ask.projector;
    bt_error err = {0};
    p->mmproj_device = BT_NO_DEVICE;
    if (!projector) return BT_OK;
    bt_encode_ask ask = {.n_embd = p->main.facts->n_embd,
                         .n_tokens_max = e->image_max_tokens.value > 0 ? (uint32_t)e->image_max_tokens.value : 0,
                         .n_threads = p->main.wishes.n_threads,
                         .flash_off = e->flash.value == BT_FLASH_OFF};
    p->mmproj_weights = projector->weight_bytes;
    if (p->ask.vision_overhead_bytes.known) {
        p->mmproj_encode = p->ask.vision_overhead_bytes.value;
    } else if (bt_encode_peak_bytes(projector, &ask, &p->mmproj_encode, &err) != BT_OK) {
        p->mmproj_encode = VISION_BYTES;
        note(p, "what encoding pictures takes is not known for this projector: 1 GiB is assumed");
    }
    if (e->mmproj_offload.value == 0 || p->ask.n_devices == 0) return BT_OK;
    uint32_t device = 0; /* the first of all */
    if (e->mmproj_device.text) device = find_device(p, e->mmproj_device.text, strlen(e->mmproj_device.text));
    for (uint32_t i = 0; i < p->n_devices; i++)
        if (p->devices[i] == device) p->mmproj_device = i;
    if (p->mmproj_device == BT_NO_DEVICE && p->n_devices > 0)
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

/* Of itself a program maps the file where every device takes that: those that are part of the processor do not, CUDA's
 * and Vulkan's (llama_model_base::load_tensors, mmap_support). */
static bool is_mapped(const bt_guard_prices *p) {
    const bt_effective *e = p->ask.effective;
    for (uint32_t i = 0; i < p->n_devices && e->load_mode.value == BT_LOAD_AUTO; i++)
        if (p->ask.devices[p->devices[i]].pool.kind == BT_POOL_IGPU) return false;
    return e->load_mode.value == BT_LOAD_AUTO || e->load_mode.value == BT_LOAD_MMAP;
}

/* ---- what was seen ---- */

uint64_t bt_guard_loading_bytes(const bt_guard_prices *prices, const bt_guard_price *price) {
    if (!prices->mapped) return 0;
    uint64_t files = prices->main.facts->file_bytes;
    if (prices->ask.draft) files = bt_sat_add_u64(files, prices->ask.draft->file_bytes);
    return bt_sat_sub_u64(files, price->host.bytes[BT_GUARD_MAPPED]);
}

/* More than the price of the line as it is typed, at its most: that much was wrong about it, and stays wrong whatever
 * is moved or trimmed. How a model is dealt over devices depends on what they have free, so that one of several may
 * take more than is priced for it today: only what all of them took more counts of each. Layers that nobody pinned the
 * program may have moved to the host itself: what devices took less of them is not what was wrong about the host. */
static void learn(bt_guard_prices *p) {
    const bt_footprint *seen = p->ask.seen;
    bt_placement at;
    bt_guard_price price;
    uint64_t of_devices = 0;
    if (!seen || seen->n == 0) return;
    bt_guard_placement(p, &at);
    at.n_ctx = bt_guard_open_ctx(p);
    bt_guard_prices_at(p, &at, &price);
    for (uint32_t i = 0; i < price.n_devices; i++)
        add(&of_devices, bt_footprint_find(seen, price.devices[i].name));
    uint64_t more = bt_sat_sub_u64(of_devices, price.device_bytes);
    for (uint32_t i = 0; i < price.n_devices; i++) {
        uint64_t its = bt_sat_sub_u64(bt_footprint_find(seen, price.devices[i].name), price.devices[i].total_bytes);
        p->learned_bytes[i] = bt_min_u64(its, more);
    }
    uint64_t host = bt_sat_add_u64(price.host.total_bytes, bt_guard_loading_bytes(p, &price));
    if (p->ask.effective->gpu_layers.value == BT_LAYERS_AUTO)
        add(&host, bt_sat_sub_u64(price.device_bytes, of_devices));
    p->learned_host_bytes = bt_sat_sub_u64(bt_footprint_find(seen, "host"), host);
    if (p->learned_host_bytes > 0 || more > 0) note(p, "former runs of this command took more than is priced");
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
    p->mapped = is_mapped(p);
    p->pins_weights =
        has_pinned_memory(p) && e->no_host.value == 0 && !p->mapped && e->load_mode.value != BT_LOAD_MMAP_MLOCK;
    p->repacks = e->repack.value != 0 && (!has_pinned_memory(p) || e->no_host.value != 0);
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
    learn(p);
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

uint32_t bt_guard_layers_of(const bt_facts *facts, int32_t value) {
    uint64_t all = (uint64_t)facts->n_block_all + 1;
    return value < 0 ? (uint32_t)all : (uint32_t)bt_min_u64((uint64_t)value, all);
}

/* The context where nobody gave one: what the model was trained with, or as little as the program may shrink it to. */
static uint32_t ctx_of(const bt_effective *e, const bt_facts *facts) {
    if (e->ctx.value > 0) return (uint32_t)e->ctx.value;
    uint32_t trained = facts->n_ctx_train > 0 ? facts->n_ctx_train : CTX_UNKNOWN;
    bool shrinks = e->fit.value != 0 && e->fit_ctx.value != INT32_MAX && e->fit_ctx.value > 0;
    return shrinks ? (uint32_t)bt_min_u64(trained, (uint64_t)e->fit_ctx.value) : trained;
}

uint32_t bt_guard_open_ctx(const bt_guard_prices *prices) {
    const bt_effective *e = prices->ask.effective;
    const bt_facts *facts = prices->main.facts;
    if (e->ctx.value > 0) return (uint32_t)e->ctx.value;
    uint64_t trained = facts->n_ctx_train > 0 ? facts->n_ctx_train : CTX_UNKNOWN;
    uint64_t streams =
        e->fit.value != 0 && e->kv_unified.value == 0 && e->slots.value > 1 ? (uint64_t)e->slots.value : 1;
    return (uint32_t)bt_min_u64(bt_sat_mul_u64(trained, streams), UINT32_MAX);
}

void bt_guard_placement(const bt_guard_prices *prices, bt_placement *ret) {
    const bt_effective *e = prices->ask.effective;
    const bt_facts *facts = prices->main.facts;
    *ret = (bt_placement){.n_ctx = ctx_of(e, facts),
                          .n_gpu_layers = bt_guard_layers_of(facts, e->gpu_layers.value),
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
    const bt_guard_model *m = &prices->main;
    uint32_t n = m->facts->n_block_all;
    if (n == 0) return 1;
    double layers = placement->n_gpu_layers >= n ? 1 : (double)placement->n_gpu_layers / n;
    uint64_t away = m->sums.ruled.host;
    for (uint32_t b = 0; b < n && b < placement->n_cpu_moe; b++)
        add(&away, m->sums.movable[b].host);
    return m->weight_bytes > 0 ? layers * (1 - (double)away / (double)m->weight_bytes) : layers;
}
