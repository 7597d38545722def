/* SPDX-License-Identifier: MIT
 *
 * offload.c: a prefix of the blocks on devices, priced to the byte (docs/design.md P5-P7).
 *
 *     blocks   0 1 2 3 4 5 | 6 7 8 9 | 10 11 12 ... n - 1 | what is outside the blocks
 *              device 0      device 1   host                 host, unless all blocks are on devices
 *
 * Devices are filled one after another, each with as many blocks as its budget holds beside its fixed cost (context and
 * graph): as few crossings as can be, and a device whose fixed cost leaves no room for a block is left out. With shares
 * (--tensor-split) blocks are dealt out by them instead. A block costs its tensors, each with the padding a device may
 * add, and its part of the caches at the whole context.
 *
 * auto takes the most blocks that fit. Of a mixture of experts everything but experts comes first: it is used by every
 * token, and experts are not; then as many blocks' experts as there is room for, the last blocks first, which is what
 * --n-cpu-moe says. What is outside the blocks goes with the last block or not at all, so at n blocks it either fits as
 * well, or the last block stays with the host too. Of a
 * tied head a device has a copy; where it can have none (bt_facts.head_stays) the head stays with the host.
 *
 * A number that was asked for is never changed: where it does not fit, that is a refusal. Where a device does not say
 * what it has, auto refuses, since nothing can be promised; a number is left to the device's own allocator. */
#include "plan/offload.h"

#include "base/error.h"
#include "base/size.h"
#include "model/roles.h"
#include "plan/costs.h"
#include "plan/price.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What a device may add to a tensor: CUDA pads the last row of a quantised matrix to 512 elements (ggml-cuda.cu,
 * MATRIX_ROW_PADDING: 544 bytes at most) and aligns to 128. */
#define TENSOR_PADDING_BYTES UINT64_C(1024)

uint32_t bt_offload_prefix(uint64_t budget_bytes, const uint64_t *block_bytes, uint32_t n_blocks,
                           uint64_t reserve_bytes) {
    uint64_t sum = reserve_bytes;
    for (uint32_t b = 0; b < n_blocks; b++) {
        sum = bt_sat_add_u64(sum, block_bytes[b]);
        if (sum > budget_bytes || sum == UINT64_MAX) return b;
    }
    return n_blocks;
}

/* ---- what blocks cost ---- */

typedef struct prices {
    uint64_t dense[BT_BLOCK_MAX], experts[BT_BLOCK_MAX], kv[BT_BLOCK_MAX];
    uint64_t head, compute;
    uint32_t n_blocks;
    bool has_experts;
} prices;

/* On a device of its own everything of the model is away: device says where a tensor would stand. */
static void add_weights(const bt_facts *whole, prices *p) {
    for (uint32_t i = 0; i < whole->n_tensors; i++) {
        const bt_tensor *t = &whole->tensors[i];
        uint64_t bytes = bt_sat_add_u64(t->bytes, TENSOR_PADDING_BYTES);
        if (t->role == BT_ROLE_UNUSED) continue;
        if (t->block < 0) {
            if (bt_tensor_goes_with_head(t)) p->head = bt_sat_add_u64(p->head, bytes);
            continue;
        }
        uint64_t *sum = bt_tensor_is_of_experts(t) ? &p->experts[t->block] : &p->dense[t->block];
        *sum = bt_sat_add_u64(*sum, bytes);
        p->has_experts |= sum == &p->experts[t->block];
    }
}

static bt_status price_all(const bt_offload_ask *ask, prices *p, bt_error *err) {
    const bt_facts *facts = ask->facts;
    *p = (prices){.n_blocks = facts->n_block};
    add_weights(facts, p);
    for (uint32_t b = 0; facts->kv_known && b < facts->n_block; b++)
        if (!bt_kv_block_price(facts, b, ask->wishes, ask->n_ctx, ask->n_ubatch, &p->kv[b]))
            return bt_fail(err, BT_E_LIMIT, "plan_size", BT_MEASURE_NONE, 0, 0,
                           "the cache of block %" PRIu32 " does not fit in 64 bits", b);
    bt_cost cost = bt_graph_cost(facts, ask->wishes, ask->n_ubatch);
    uint64_t per_ctx_bytes = bt_sat_add_u64(cost.per_ctx_bytes, cost.per_window_bytes);
    p->compute = bt_sat_add_u64(cost.fixed_bytes, bt_sat_mul_u64(per_ctx_bytes, ask->n_ctx));
    p->compute = bt_max_u64(p->compute, cost.floor_bytes);
    return BT_OK;
}

static uint64_t block_bytes(const prices *p, uint32_t block, uint32_t n_cpu_moe) {
    uint64_t bytes = bt_sat_add_u64(p->dense[block], p->kv[block]);
    return block < n_cpu_moe ? bytes : bt_sat_add_u64(bytes, p->experts[block]);
}

/* Measured on this device, or on another: their graphs are alike. */
static uint64_t compute_bytes(const bt_offload_ask *ask, const prices *p, uint32_t offer) {
    uint64_t most = 0;
    if (!ask->compute_bytes) return p->compute;
    for (uint32_t i = 0; i < ask->n_offers; i++)
        most = bt_max_u64(most, ask->compute_bytes[i]);
    return ask->compute_bytes[offer] > 0 ? ask->compute_bytes[offer] : most;
}

static uint64_t budget_of(const bt_offer *offer) {
    return offer->budget_bytes.known ? offer->budget_bytes.value : UINT64_MAX;
}

/* ---- dealing out ---- */

typedef struct deal {
    uint32_t n_blocks[BT_DEVICE_MAX]; /* of each offer */
    uint32_t n;                       /* blocks in all */
    bool head;
    uint32_t n_cpu_moe;
    bool fits;
    uint64_t need_bytes; /* of the first that is over, */
    uint32_t over;       /* which is this offer */
} deal;

static uint64_t deal_bytes(const bt_offload_ask *ask, const prices *p, const deal *d, uint32_t offer, uint32_t first,
                           bool with_head) {
    uint64_t bytes = bt_sat_add_u64(ask->offers[offer].context_bytes, compute_bytes(ask, p, offer));
    for (uint32_t b = first; b < first + d->n_blocks[offer]; b++)
        bytes = bt_sat_add_u64(bytes, block_bytes(p, b, d->n_cpu_moe));
    return with_head ? bt_sat_add_u64(bytes, p->head) : bytes;
}

static uint32_t last_used(const bt_offload_ask *ask, const deal *d) {
    uint32_t last = 0;
    for (uint32_t i = 0; i < ask->n_offers; i++)
        if (d->n_blocks[i] > 0) last = i;
    return last;
}

static void deal_check(const bt_offload_ask *ask, const prices *p, deal *d) {
    uint32_t first = 0, last = last_used(ask, d);
    d->fits = true;
    for (uint32_t i = 0; i < ask->n_offers && d->fits; i++) {
        if (d->n_blocks[i] == 0) continue;
        d->need_bytes = deal_bytes(ask, p, d, i, first, d->head && i == last);
        d->fits = d->need_bytes <= budget_of(&ask->offers[i]);
        d->over = i;
        first += d->n_blocks[i];
    }
}

/* As many of the blocks before end as fit into an offer, from the first on. With the head on top where it is wanted. */
static uint32_t take(const bt_offload_ask *ask, const prices *p, const deal *d, uint32_t offer, uint32_t first,
                     uint32_t end, bool with_head) {
    uint64_t blocks[BT_BLOCK_MAX];
    uint64_t beside_bytes = bt_sat_add_u64(ask->offers[offer].context_bytes, compute_bytes(ask, p, offer));
    if (with_head) beside_bytes = bt_sat_add_u64(beside_bytes, p->head);
    for (uint32_t b = first; b < end; b++)
        blocks[b - first] = block_bytes(p, b, d->n_cpu_moe);
    return bt_offload_prefix(budget_of(&ask->offers[offer]), blocks, end - first, beside_bytes);
}

/* As many of the first n blocks as fit one device after another. The head stands with the last of them: where it does
 * not fit behind those that fill a device, the next one has the last block, or more, and the head. */
static void deal_in_order(const bt_offload_ask *ask, const prices *p, uint32_t n, deal *d) {
    uint32_t next = 0;
    memset(d->n_blocks, 0, sizeof d->n_blocks);
    for (uint32_t i = 0; i < ask->n_offers && next < n; i++) {
        if (d->head && take(ask, p, d, i, next, n, true) == n - next) {
            d->n_blocks[i] = n - next;
            next = n;
            break;
        }
        bool is_last = i + 1 == ask->n_offers;
        d->n_blocks[i] = take(ask, p, d, i, next, d->head && !is_last ? n - 1 : n, false);
        next += d->n_blocks[i];
    }
    d->n = next;
}

/* As libllama deals out layers: block b of n to the first device whose share of all ends beyond b / n. */
static void deal_by_shares(const bt_offload_ask *ask, uint32_t n, deal *d) {
    const bt_wishes *w = ask->wishes;
    uint64_t all = 0, end = 0;
    for (uint32_t i = 0; i < w->n_tensor_splits; i++)
        all += w->tensor_split_milli[i];
    uint32_t next = 0;
    for (uint32_t i = 0; i < ask->n_offers; i++) {
        end += i < w->n_tensor_splits ? w->tensor_split_milli[i] : 0;
        d->n_blocks[i] = 0;
        while (next < n && (uint64_t)next * all < end * n) {
            d->n_blocks[i]++;
            next++;
        }
    }
    d->n = n;
}

static deal deal_make(const bt_offload_ask *ask, const prices *p, uint32_t n, uint32_t n_cpu_moe) {
    deal d = {.n_cpu_moe = n_cpu_moe, .head = n == p->n_blocks && !ask->facts->head_stays};
    if (ask->wishes->n_tensor_splits > 0)
        deal_by_shares(ask, n, &d);
    else
        deal_in_order(ask, p, n, &d);
    if (d.n == n) {
        deal_check(ask, p, &d);
        return d;
    }
    /* The rest goes where the last ones went, for the sentence that refuses it. */
    d.n_blocks[last_used(ask, &d)] += n - d.n;
    d.n = n;
    deal_check(ask, p, &d);
    return d;
}

/* ---- choosing ---- */

static uint32_t moe_wished(const bt_offload_ask *ask, const prices *p) {
    if (ask->wishes->cpu_moe == BT_LAYERS_ALL) return p->n_blocks;
    return ask->wishes->cpu_moe == BT_LAYERS_COUNT ? (uint32_t)bt_min_u64(ask->wishes->n_cpu_moe, p->n_blocks) : 0;
}

/* The most blocks that fit with the experts of so many on the host. */
static deal most(const bt_offload_ask *ask, const prices *p, uint32_t n_cpu_moe) {
    uint32_t n = (uint32_t)bt_min_u64(p->n_blocks, ask->n_blocks_max);
    for (;; n--) {
        deal d = deal_make(ask, p, n, n_cpu_moe);
        if (d.fits || n == 0) return d;
    }
}

/* The same blocks, with as many experts as there is room for beside everything else of them. */
static deal with_experts(const bt_offload_ask *ask, const prices *p, deal least) {
    for (uint32_t n_cpu_moe = 0; n_cpu_moe < least.n; n_cpu_moe++) {
        deal d = deal_make(ask, p, least.n, n_cpu_moe);
        if (d.fits) return d;
    }
    return least;
}

static deal choose_auto(const bt_offload_ask *ask, const prices *p) {
    bt_layers_kind moe = ask->wishes->cpu_moe;
    bool fixed = moe == BT_LAYERS_ALL || moe == BT_LAYERS_COUNT || !p->has_experts;
    if (fixed) return most(ask, p, moe_wished(ask, p));
    return with_experts(ask, p, most(ask, p, p->n_blocks));
}

static const bt_offer *first_failed(const bt_offload_ask *ask) {
    for (uint32_t i = 0; i < ask->n_offers; i++)
        if (!ask->offers[i].budget_bytes.known) return &ask->offers[i];
    return NULL;
}

static void refuse_query(const bt_offer *offer, bt_refusal *refusal) {
    (void)snprintf(refusal->code, sizeof refusal->code, "device_query");
    (void)snprintf(refusal->message, sizeof refusal->message,
                   "%.31s does not say how much memory it has (%.100s), so blocks cannot be chosen for it; --device "
                   "%.31s=SIZE names a size",
                   offer->pool.name, offer->pool.reason, offer->pool.name);
    refusal->n_changes = 1;
    (void)snprintf(refusal->changes[0].flag, sizeof refusal->changes[0].flag, "--gpu-layers");
    (void)snprintf(refusal->changes[0].value, sizeof refusal->changes[0].value, "0");
}

static void refuse_memory(const bt_offload_ask *ask, const prices *p, const deal *d, bt_refusal *refusal) {
    const bt_offer *offer = &ask->offers[d->over];
    deal less = most(ask, p, d->n_cpu_moe);
    (void)snprintf(refusal->code, sizeof refusal->code, "device_memory");
    (void)snprintf(refusal->message, sizeof refusal->message,
                   "%" PRIu32 " blocks on %.31s need %s, its budget is %s (%.60s): %s short; %" PRIu32 " fit",
                   d->n_blocks[d->over], offer->pool.name, BT_SIZE(d->need_bytes), BT_SIZE(budget_of(offer)),
                   offer->budget_source, BT_SIZE(bt_sat_sub_u64(d->need_bytes, budget_of(offer))), less.n);
    refusal->need_bytes = d->need_bytes;
    refusal->have_bytes = budget_of(offer);
    refusal->n_changes = 1;
    (void)snprintf(refusal->changes[0].flag, sizeof refusal->changes[0].flag, "--gpu-layers");
    (void)snprintf(refusal->changes[0].value, sizeof refusal->changes[0].value, "%" PRIu32, less.n);
    refusal->changes[0].need_bytes = less.n > 0 ? less.need_bytes : 0; /* of the last device that it fills */
}

/* ---- the answer ---- */

static void device_fill(const bt_offload_ask *ask, const prices *p, const deal *d, uint32_t offer, uint32_t first,
                        bt_device_plan *ret) {
    const bt_offer *of = &ask->offers[offer];
    *ret = (bt_device_plan){.kind = of->pool.kind,
                            .state = of->pool.state,
                            .shares_host = of->pool.shares_host,
                            .n_blocks = d->n_blocks[offer],
                            .compute_bytes = compute_bytes(ask, p, offer),
                            .context_bytes = of->context_bytes,
                            .budget_bytes = of->budget_bytes};
    memcpy(ret->name, of->pool.name, sizeof ret->name);
    memcpy(ret->reason, of->pool.reason, sizeof ret->reason);
    memcpy(ret->budget_source, of->budget_source, sizeof ret->budget_source);
    ret->source = ask->compute_bytes ? BT_SOURCE_DRY_RUN : BT_SOURCE_FORMULA;
    for (uint32_t b = first; b < first + ret->n_blocks; b++) {
        uint64_t all = block_bytes(p, b, d->n_cpu_moe);
        ret->kv_bytes = bt_sat_add_u64(ret->kv_bytes, p->kv[b]);
        ret->weights_bytes = bt_sat_add_u64(ret->weights_bytes, bt_sat_sub_u64(all, p->kv[b]));
    }
    if (d->head && offer == last_used(ask, d)) ret->weights_bytes = bt_sat_add_u64(ret->weights_bytes, p->head);
}

static void fill(const bt_offload_ask *ask, const prices *p, const deal *d, bt_offload *ret) {
    uint32_t first = 0;
    bt_split *split = &ret->split;
    for (uint32_t i = 0; i < ask->n_offers; i++) {
        if (d->n_blocks[i] == 0) continue;
        device_fill(ask, p, d, i, first, &ret->devices[split->n_devices]);
        split->n_blocks[split->n_devices++] = d->n_blocks[i];
        first += d->n_blocks[i];
    }
    split->head = d->n > 0 && d->head;
    split->n_cpu_moe = p->has_experts ? (uint32_t)bt_min_u64(d->n_cpu_moe, d->n) : 0;
}

static void say_source(const bt_offload_ask *ask, const prices *p, const deal *d, char *text, size_t n_text) {
    const bt_wishes *w = ask->wishes;
    if (w->gpu_layers == BT_LAYERS_COUNT)
        (void)snprintf(text, n_text, "--gpu-layers %" PRIu32, w->n_gpu_layers);
    else if (w->gpu_layers == BT_LAYERS_ALL)
        (void)snprintf(text, n_text, "--gpu-layers all");
    else
        (void)snprintf(text, n_text, "auto: %" PRIu32 " of %" PRIu32 " blocks fit", d->n, p->n_blocks);
}

bt_status bt_offload_choose(const bt_offload_ask *ask, bt_offload *ret_offload, bt_refusal *ret_refusal,
                            bt_error *err) {
    const bt_wishes *w = ask->wishes;
    prices p;
    *ret_offload = (bt_offload){0};
    *ret_refusal = (bt_refusal){0};
    if (ask->n_offers == 0 || (w->gpu_layers == BT_LAYERS_COUNT && w->n_gpu_layers == 0)) return BT_OK;
    BT_TRY(price_all(ask, &p, err));
    const bt_offer *failed = first_failed(ask);
    deal d = {0};
    bool counted = w->gpu_layers == BT_LAYERS_COUNT || w->gpu_layers == BT_LAYERS_ALL;
    if (!counted && failed) {
        refuse_query(failed, ret_refusal);
    } else if (!counted) {
        d = choose_auto(ask, &p);
        const deal one = deal_make(ask, &p, 1, d.n_cpu_moe);
        if (w->require_device && d.n == 0) refuse_memory(ask, &p, &one, ret_refusal);
    } else {
        uint32_t n = w->gpu_layers == BT_LAYERS_ALL ? p.n_blocks : (uint32_t)bt_min_u64(w->n_gpu_layers, p.n_blocks);
        d = deal_make(ask, &p, n, moe_wished(ask, &p));
        if (w->cpu_moe == BT_LAYERS_AUTO && p.has_experts) d = with_experts(ask, &p, deal_make(ask, &p, n, n));
        if (!d.fits) refuse_memory(ask, &p, &d, ret_refusal);
    }
    fill(ask, &p, &d, ret_offload);
    say_source(ask, &p, &d, ret_offload->source, sizeof ret_offload->source);
    return BT_OK;
}

uint64_t bt_device_plan_bytes(const bt_device_plan *device) {
    uint64_t sum = bt_sat_add_u64(device->weights_bytes, device->kv_bytes);
    return bt_sat_add_u64(sum, bt_sat_add_u64(device->compute_bytes, device->context_bytes));
}

bool bt_offload_fits(const bt_offload *offload, uint32_t *ret_device) {
    for (uint32_t i = 0; i < offload->split.n_devices; i++) {
        const bt_device_plan *device = &offload->devices[i];
        if (!device->budget_bytes.known || bt_device_plan_bytes(device) <= device->budget_bytes.value) continue;
        *ret_device = i;
        return false;
    }
    return true;
}

uint64_t bt_offload_shared_bytes(const bt_offload *offload) {
    uint64_t sum = 0;
    for (uint32_t i = 0; offload && i < offload->split.n_devices; i++)
        if (offload->devices[i].shares_host) sum = bt_sat_add_u64(sum, bt_device_plan_bytes(&offload->devices[i]));
    return sum;
}
