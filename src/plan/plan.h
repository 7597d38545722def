/* SPDX-License-Identifier: MIT
 * plan.h: machine x facts x wishes -> plan. Pure: no input/output, no global, no allocation but from the arena. */
#pragma once

#include "base/arena.h"
#include "burthen.h"

/* Below this micro-batch a prompt takes more than four times the weight passes of the default (512): neither context
 * nor KV types are bought at that price (docs/design.md P2, docs/decisions/009-search.md). */
#define BT_UBATCH_FLOOR 128u
/* Context, of each sequence, that comes before everything else: the exchange of speed.c, and one more question. */
#define BT_CTX_FLOOR 1024u

/* A change of one wish, with the cost models that it leads to: what a refusal may suggest. Several of one flag stand
 * side by side, mildest first. */
typedef struct bt_alternative {
    char flag[24], value[24];
    uint32_t first_cost, n_costs; /* in bt_problem.costs */
} bt_alternative;

/* Everything the search reads. Borrowed; nothing is written. */
typedef struct bt_problem {
    const bt_costs *costs; /* the first n_costs are what the wishes allow, best first (docs/design.md P2): KV types, f16
                            * first; of each the micro-batches, largest first. Behind them those of alternatives. */
    uint32_t n_costs;
    const bt_alternative *alternatives;
    uint32_t n_alternatives;
    const bt_plan_unit *units; /* in order of use within a pass; tables last */
    uint32_t n_units;
    bt_layouts small_layouts; /* of weights that are always in memory and no unit; zeroes: nothing, here */
    bt_wishes wishes;
    uint32_t n_ctx_train;       /* 0 = unknown */
    uint32_t n_ctx_default_cap; /* 4096 */
    uint64_t budget_bytes;      /* UINT64_MAX = unlimited */
    bt_pool_state budget_state;
    const char *budget_source; /* or NULL */
    bt_known budget_limit;     /* the most that a larger --ram-budget can give here: what the system enforces */
    bt_known disk_bytes_per_s, memory_bytes_per_s;
    bt_known compute_ns_per_pass;      /* measured, else from memory bandwidth */
    const uint64_t *expert_slot_bytes; /* [n_expert_blocks] a slot for one expert of a block; the least number, of the
                                        * largest, is in costs */
    const uint64_t *expert_read_bytes; /* [n_expert_blocks] of one expert */
    uint32_t n_expert_blocks;          /* 0: no expert is read on its own */
    uint32_t n_expert, n_expert_used;
    bool kv_known; /* false: verdict unknown, weights exact, nothing guessed */
    const char *kv_reason;
    const bt_companion *draft, *mmproj; /* priced in costs, named in the plan; NULL: none */
} bt_problem;

/* Decide. Returns BT_OK for refusals too: a refusal is a verdict in the plan. BT_E_ARG for wishes that contradict
 * themselves or the model (context above the trained length); BT_E_NOMEM when the arena is full. */
BT_MUST_CHECK bt_status bt_plan_make(const bt_problem *problem, bt_arena *arena, bt_plan *ret_plan, bt_error *err);

/* What bt_plan_make asks of the wishes before all else, for who prices before it: BT_E_ARG, as there. */
BT_MUST_CHECK bt_status bt_plan_wishes_check(const bt_problem *problem, bt_error *err);

/* The longest context that an explicit one may be: trained, or stretched from it; 0 = unknown. */
uint32_t bt_plan_ctx_reach(const bt_wishes *wishes, uint32_t n_ctx_train);

/* Pieces of it, for tests and for the ladder. */
typedef struct bt_candidate {
    uint32_t n_ctx;
    const bt_costs *costs;
    bool head_resident;
    uint32_t n_slots; /* 0: everything is pinned */
    uint64_t slot_bytes;
    uint32_t n_pinned, n_streamed;
    uint64_t pinned_bytes, read_bytes_per_pass;
    bt_ledger ledger;
    uint64_t planned_bytes;
} bt_candidate;
/* As libllama rounds; saturates at the largest multiple that 32 bits hold. */
uint32_t bt_ctx_round(const bt_costs *costs, uint32_t n_ctx);
/* All fixed lines at a context: everything but ring and pinned, units not counted. false on overflow. */
bool bt_costs_at(const bt_costs *costs, uint32_t n_ctx, bt_ledger *ret_ledger);
uint64_t bt_ledger_sum(const bt_ledger *ledger); /* saturating */
const char *bt_line_name(bt_line line);
const char *bt_source_name(bt_source source);
const char *bt_verdict_name(bt_verdict verdict);
bt_forecast bt_forecast_make(const bt_problem *problem, uint64_t read_bytes_per_pass, uint64_t weight_bytes_per_pass,
                             uint32_t n_slots);
/* Effective budget of the host pool (P1): min(available, limits, asked); AUTO takes available - max(512 MiB, 5 %). */
typedef struct bt_budget {
    uint64_t bytes; /* UINT64_MAX when unlimited */
    bt_pool_state state;
    char source[192];
} bt_budget;
bt_budget bt_budget_resolve(const bt_machine *machine, const bt_wishes *wishes);

/* Of one device beyond the host (P5). */
typedef struct bt_device_budget {
    uint64_t bytes;      /* UINT64_MAX when FAILED or UNLIMITED: the device's own allocator decides. 0 when ABSENT */
    bt_pool_state state; /* REPORTED: bytes bind, also when they are 0 */
    char note[256];      /* said once; empty unless FAILED */
} bt_device_budget;
/* asked_bytes, when known, wins over any reading. */
bt_device_budget bt_device_budget_resolve(bt_known asked_bytes, const bt_pool *reading);
