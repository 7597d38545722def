/* SPDX-License-Identifier: MIT
 * price.h: what a llama.cpp program takes when it is started with these settings: of each device, and of the host. */
#pragma once

#include "base/arena.h"
#include "guard/effective.h"
#include "guard/footprint.h"
#include "model/projector.h"

/* name in reports, what it holds. Of a device those that it has; the others are 0. */
#define BT_GUARD_LINE_MAP(X)                                                                                           \
    X(BASE, "base") /* host: the process itself; device: its context */                                                \
    X(WEIGHTS, "weights")                                                                                              \
    X(MAPPED, "weights.mapped") /* host: in the page cache, which drops them when memory is short */                   \
    X(KV, "kv")                                                                                                        \
    X(COMPUTE, "compute")                                                                                              \
    X(OUTPUT, "output")     /* host: rows of logits */                                                                 \
    X(SAMPLING, "sampling") /* host: candidates of each slot, and those of a grammar while it is applied */            \
    X(ADAPTERS, "adapters") /* LoRA, control vectors */                                                                \
    X(MTP, "mtp")           /* prediction blocks of the model: weights, cache, graph */                                \
    X(DRAFT_WEIGHTS, "draft.weights")                                                                                  \
    X(DRAFT_KV, "draft.kv")                                                                                            \
    X(DRAFT_COMPUTE, "draft.compute")                                                                                  \
    X(MMPROJ_WEIGHTS, "mmproj.weights")                                                                                \
    X(MMPROJ_ENCODE, "mmproj.encode")                                                                                  \
    X(LEARNED, "learned")           /* what former runs of this very command took beside all others of these lines */  \
    X(CHECKPOINTS, "checkpoints")   /* host: at most, over all slots */                                                \
    X(PROMPT_CACHE, "prompt_cache") /* host: at most; of one without a limit nothing (bt_guard_price) */

typedef enum bt_guard_line {
#define X(name, text) BT_GUARD_##name,
    BT_GUARD_LINE_MAP(X)
#undef X
        BT_GUARD_LINE_COUNT
} bt_guard_line;
const char *bt_guard_line_name(bt_guard_line line);

/* A device that the program will see, in the order in which it counts them: all of them, even those that are not to be
 * used. Its free bytes are raw: what a new allocation could get. */
typedef struct bt_guard_device {
    bt_pool pool;          /* under the machine's name of it */
    char seen_as[32];      /* the program's own name; empty: the same */
    bt_known target_bytes; /* no more of it than this; unknown: as much as is free */
} bt_guard_device;

/* Where it goes. Counted as llama.cpp counts: the last n_gpu_layers of all blocks and the head are on devices, so that
 * bt_facts.n_block_all + 1 is everything; the input table stays with the host. */
typedef struct bt_placement {
    uint32_t n_ctx; /* tokens over all slots, never 0 */
    uint32_t n_gpu_layers;
    uint32_t n_cpu_moe;                 /* of so many first blocks the experts are on the host */
    double shares[BT_SHARE_MAX];        /* of the devices */
    uint32_t n_shares;                  /* 0: by what each has free */
    uint32_t main_gpu;                  /* a position among the devices in use */
    int32_t cache_ram_mib, checkpoints; /* -1: no limit; of each slot */
} bt_placement;

typedef struct bt_guard_price_ask {
    const bt_effective *effective;
    const bt_facts *facts;         /* whole */
    const bt_facts *draft;         /* NULL: none */
    const bt_projector *projector; /* NULL: none */
    uint64_t lora_bytes, control_vector_bytes;
    bt_known vision_overhead_bytes; /* instead of what encoding is computed to take */
    const bt_footprint *seen;       /* of former runs; NULL: none */
    const bt_guard_device *devices;
    uint32_t n_devices; /* at most BT_POOL_MAX */
    bt_arena *arena;
} bt_guard_price_ask;

/* What one pool holds. */
typedef struct bt_guard_pool_price {
    char name[32];
    uint64_t bytes[BT_GUARD_LINE_COUNT];
    uint64_t total_bytes; /* saturates; with mapped weights */
    uint32_t n_blocks;
    bool head;
} bt_guard_pool_price;

typedef struct bt_guard_price {
    bt_guard_pool_price host;
    bt_guard_pool_price devices[BT_POOL_MAX]; /* those in use (bt_guard_prices.devices), in that order */
    uint32_t n_devices;
    uint64_t device_bytes;    /* of all devices; saturates */
    uint64_t host_firm_bytes; /* of the host without mapped weights: what nothing can take away */
    /* Of those: locked by a device's driver, which may have a limit of its own for that; and of these the weights. */
    uint64_t pinned_bytes, pinned_weight_bytes;
    bool prompt_cache_no_limit;
} bt_guard_price;

/* Everything that prices need and that does not depend on the placement. In the arena. */
typedef struct bt_guard_prices bt_guard_prices;

/* What cannot be priced is no failure: *ret_reason says why (it is NULL else), and nothing else is set. E_NOMEM,
 * E_LIMIT. */
BT_MUST_CHECK bt_status bt_guard_prices_make(const bt_guard_price_ask *ask, const bt_guard_prices **ret,
                                             const char **ret_reason, bt_error *err);
void bt_guard_prices_at(const bt_guard_prices *prices, const bt_placement *placement, bt_guard_price *ret);
/* Bytes of its files that are in the page cache while it is loaded, and that the price has not: a mapped file is then
 * there as a whole, with its header and the blocks that go on to devices (MAP_POPULATE of llama-mmap.cpp). */
uint64_t bt_guard_loading_bytes(const bt_guard_prices *prices, const bt_guard_price *price);
/* The context where nobody gave one and nothing makes the program shrink it: the trained one, of each slot that has its
 * own (common/fit.cpp with enough memory). Else as the command line says. */
uint32_t bt_guard_open_ctx(const bt_guard_prices *prices);
/* As the command line says. */
void bt_guard_placement(const bt_guard_prices *prices, bt_placement *ret);

/* Devices in use: those of --device, in its order, else all. Index: of ask.devices. */
uint32_t bt_guard_devices(const bt_guard_prices *prices, const uint32_t **ret_index);
/* What was priced otherwise than it stands, a sentence each. */
uint32_t bt_guard_notes(const bt_guard_prices *prices, const char *const **ret_notes);
/* One checkpoint of llama-server: what of one sequence cannot be rolled back, its windows and states. 0: nothing of the
 * kind. Saturates. */
uint64_t bt_guard_checkpoint_bytes(const bt_facts *facts, const bt_wishes *wishes, bool swa_full, uint32_t n_ubatch,
                                   uint32_t n_ctx);
/* Share of a model on devices, 0 to 1: of its layers, less what rules and n_cpu_moe keep on the host of all its bytes
 * (research notes, seed 4, G23). */
double bt_guard_gpu_fraction(const bt_guard_prices *prices, const bt_placement *placement);
/* Are there experts that a larger n_cpu_moe would move? */
bool bt_guard_experts_can_move(const bt_guard_prices *prices, uint32_t n_cpu_moe);
