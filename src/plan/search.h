/* SPDX-License-Identifier: MIT
 *
 * search.h: what the files of this folder share. Nothing outside includes it.
 *
 * The search never looks at a unit twice: what it needs of them is summed once per treatment of the head (bt_pin_mode),
 * so that pricing a configuration takes a handful of additions. Only the winner's pins are chosen unit by unit. */
#pragma once

#include "plan/plan.h"

/* ---- choosing which bytes to pin (pins.c) ---- */

/* Units alike in all numbers that the choice looks at. */
typedef struct bt_pin_class {
    uint64_t pinned_bytes, slot_bytes;
    uint32_t n;
} bt_pin_class;

/* One unit of a class, in the order in which pins are tried. */
typedef struct bt_pin_item {
    uint32_t class_index;
    uint32_t rank; /* of n units of its class this is number rank */
} bt_pin_item;

/* Work area of the chooser, made once and used for every choice. */
typedef struct bt_pin_scratch {
    uint64_t *bits;   /* which sums can be reached, one bit a cell */
    uint16_t *taken;  /* by which item a cell was first reached */
    uint32_t n_cells; /* largest sum, in cells */
    bt_pin_item *chain;
    uint32_t *window, *rest; /* positions in chain */
    uint32_t n_items;        /* room in the three */
} bt_pin_scratch;

BT_MUST_CHECK bool bt_pin_scratch_make(bt_arena *arena, uint32_t n_items, uint64_t n_cells, bt_pin_scratch *ret);
/* The most bytes within room that n_classes classes can give; ret_counts[i] of class i. */
uint64_t bt_pins_choose(bt_pin_scratch *scratch, const bt_pin_class *classes, uint32_t n_classes, uint64_t room_bytes,
                        uint32_t *ret_counts);
uint64_t bt_pins_gcd(uint64_t a, uint64_t b);

/* ---- the units under one treatment of the head (mode.c) ---- */

typedef enum bt_head_mode {
    BT_HEAD_PINNED,   /* every head unit in memory */
    BT_HEAD_MIXED,    /* head units are units like any other */
    BT_HEAD_STREAMED, /* no head unit in memory */
    BT_HEAD_MODE_COUNT
} bt_head_mode;

/* unit_class of units that are no candidates for pins */
#define BT_CLASS_PINNED   UINT32_MAX
#define BT_CLASS_STREAMED (UINT32_MAX - 1)
#define BT_CLASS_TABLE    (UINT32_MAX - 2)

/* One possible slot size: all that is larger is pinned. */
typedef struct bt_pin_step {
    uint64_t slot_bytes;
    uint64_t forced_bytes; /* pinned because of that, and by the mode */
    uint32_t first_class;  /* classes from here on may stream */
} bt_pin_step;

/* A slot size more than this many is not tried (the largest always is): block types times tensors of a block times the
 * two page roundings stay below it in every model looked at. */
#define BT_PIN_STEP_MAX 64

typedef struct bt_pin_mode {
    bt_head_mode head;
    bt_pin_class *classes; /* largest slot first */
    uint32_t n_classes;
    uint32_t *unit_class; /* [n_units] */
    bt_pin_step steps[BT_PIN_STEP_MAX];
    uint32_t n_steps;      /* 0: nothing can stream */
    uint64_t forced_bytes; /* pinned by the mode alone */
    uint64_t most_bytes;   /* everything pinned that may be */
    bool can_pin_all;
} bt_pin_mode;

BT_MUST_CHECK bool bt_pin_mode_make(const bt_problem *problem, bt_head_mode head, bt_arena *arena, bt_pin_mode *ret);
/* What a placement of nothing but the forced units costs with n_slots slots (0: everything pinned), the cheapest slot
 * size taken; UINT64_MAX when the mode cannot do that. ret_step: which size, NULL is fine. */
uint64_t bt_pin_mode_least(const bt_pin_mode *mode, uint32_t n_slots, uint64_t slack_bytes, uint32_t *ret_step);

/* Which units of each class, so that what streams is spread over the pass (spread.c). counts: of every class. */
void bt_pins_spread(const bt_problem *problem, const bt_pin_mode *mode, uint32_t *counts, uint32_t *work,
                    bt_place *ret_place);

/* ---- the search (ram.c, speed.c) ---- */

/* What is asked of the search: the part of the wishes that bounds it. Refusals try changed ones. */
typedef struct bt_ask {
    uint64_t budget_bytes;
    uint32_t n_ctx_wished;                       /* before rounding */
    uint32_t n_ctx_start, n_ctx_step, n_ctx_min; /* step 0: the start alone */
    uint32_t n_slots;
    bool slots_fixed; /* asked for: not one slot instead */
    uint32_t first_cost, n_costs;
    bt_choice stream_head;
    bt_policy policy;
} bt_ask;

typedef struct bt_search {
    const bt_problem *problem;
    const bt_costs *costs; /* the problem's, or copies without KV where that is unknown */
    bt_pin_mode mode[BT_HEAD_MODE_COUNT];
    bt_pin_scratch scratch;
    uint32_t *counts, *counts_best, *work; /* [n_units] */
    bt_place *place, *place_best;          /* [n_units] */
    bt_pin_class *tables;                  /* [n_tables] what pinning one costs on top of its rows */
    uint32_t n_tables, n_heads;
    uint64_t weight_bytes_per_pass;
    bool pins_pay_at_most; /* no pin saves more reading than it takes memory */
} bt_search;

/* A way to run: one row of the ranking at a cost model and a context. */
typedef struct bt_option_row {
    bt_head_mode head;
    uint32_t n_slots; /* 0: everything pinned */
} bt_option_row;
#define BT_ROW_MAX 6

BT_MUST_CHECK bt_status bt_search_make(const bt_problem *problem, bt_arena *arena, bt_search *ret, bt_error *err);
/* Rows that an ask allows under a cost model, best first. */
uint32_t bt_search_rows(const bt_search *search, const bt_ask *ask, const bt_costs *costs,
                        bt_option_row rows[BT_ROW_MAX]);
/* The smallest budget at which a row runs at a context; UINT64_MAX when it never does. */
uint64_t bt_search_need(const bt_search *search, const bt_costs *costs, uint32_t n_ctx, bt_option_row row);
/* The best candidate, its placement in search->place. false: none fits. */
bool bt_search_best(bt_search *search, const bt_ask *ask, bt_candidate *ret);
/* The same under --policy speed. */
bool bt_search_fastest(bt_search *search, const bt_ask *ask, bt_candidate *ret);
/* The row at a context with as many pins as the budget holds, which must hold the row. false on overflow. */
bool bt_search_fill(bt_search *search, const bt_costs *costs, uint32_t n_ctx, bt_option_row row, uint64_t budget_bytes,
                    bt_candidate *ret);
/* The most bytes that pins and ring of such a row may take; false when it does not fit in 64 bits. */
bool bt_search_room(const bt_search *search, const bt_costs *costs, uint32_t n_ctx, bt_option_row row,
                    uint64_t budget_bytes, uint64_t *ret_bytes);
/* The context up to which more context is worth anything: BT_CTX_FLOOR, or the start when that is less. */
uint32_t bt_ctx_floor(const bt_search *search, const bt_ask *ask);
/* Contexts that an ask may try: start, start - step, ..., this many steps down. */
uint32_t bt_ctx_steps(const bt_ask *ask);
/* The ask under other cost models, which may round contexts another way. */
bt_ask bt_ask_with(const bt_search *search, const bt_ask *ask, uint32_t first_cost, uint32_t n_costs);
/* Whether any candidate fits, and the largest context that does (NULL is fine). */
bool bt_search_fits(const bt_search *search, const bt_ask *ask, uint32_t *ret_ctx);
/* The cheapest configuration of an ask, and what budget it takes. */
typedef struct bt_minimum {
    uint64_t need_bytes;
    uint32_t n_ctx, cost_index;
    bt_option_row row;
} bt_minimum;
bt_minimum bt_search_minimum(const bt_search *search, const bt_ask *ask);
/* That configuration (any of this form: a row, a context, a cost model) with nothing pinned that need not be, as a
 * candidate; placement in search->place. */
void bt_search_minimum_take(bt_search *search, const bt_minimum *minimum, bt_candidate *ret);

/* ---- what an answer adds (ladder.c, refusal.c, forecast.c) ---- */

bool bt_forecast_ns(const bt_problem *problem, uint64_t read_bytes_per_pass, uint64_t weight_bytes_per_pass,
                    uint32_t n_slots, uint64_t *ret_ns, bt_bound *ret_bound);
/* Other layouts of pinned weights: in the plain one's place, and of what the plan leaves of its budget beside it. */
void bt_derive(const bt_problem *problem, uint32_t page_table_divisor, bt_plan *plan);
/* Before that: on slots for experts. Reading follows. */
void bt_experts_spend(const bt_problem *problem, uint32_t page_table_divisor, bt_plan *plan);
/* What slots for all experts take beyond the least, with their page tables. */
uint64_t bt_experts_most_bytes(const bt_problem *problem, uint32_t page_table_divisor);
/* What a token reads of experts where each block has so many slots, and the first n_extra one more. */
uint64_t bt_experts_read_bytes(const bt_problem *problem, uint32_t n_slots, uint32_t n_extra);
/* Tokens per second where tokens use again what the ones before them used; after bt_experts_spend. */
bt_known bt_experts_reuse_forecast(const bt_problem *problem, const bt_plan *plan, uint64_t weight_bytes_per_pass);
void bt_ladder_make(bt_search *search, const bt_ask *ask, bt_rung ret_ladder[BT_RUNG_COUNT]);
void bt_refusal_make(const bt_search *search, const bt_ask *ask, const bt_minimum *minimum, bt_refusal *ret);
