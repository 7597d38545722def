/* SPDX-License-Identifier: MIT
 * test_plan.c: what must hold for every problem: the minimum is exact, more budget never ranks lower, lines sum to the
 * total and the total is within the budget, plans are deterministic, and on small problems no placement is better.
 * Problems come from a seeded generator; the seed is printed and BT_SEED=n replays it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/plan.h"
#include "random.h"
#include "rounds.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ARENA_BYTES (UINT64_C(64) << 20)
#define UNIT_MAX    2000u
#define KIB         UINT64_C(1024)
#define MIB         (UINT64_C(1) << 20)
#define GIB         (UINT64_C(1) << 30)

/* xorshift64*: any good generator would do, this one is three lines. */
static uint64_t rng_state;
static uint64_t rng(void) {
    rng_state ^= rng_state >> 12;
    rng_state ^= rng_state << 25;
    rng_state ^= rng_state >> 27;
    return rng_state * UINT64_C(0x2545F4914F6CDD1D);
}
static uint64_t below(uint64_t n) {
    return rng() % n;
}

typedef struct world {
    bt_problem problem;
    bt_costs costs[8];
    bt_plan_unit units[UNIT_MAX];
} world;
static world w;

typedef enum shape { SHAPE_HOMOGENEOUS, SHAPE_PAGES, SHAPE_BYTES } shape;

static uint64_t unit_bytes(shape form) {
    switch (form) {
    case SHAPE_HOMOGENEOUS:
        return 40960;
    case SHAPE_PAGES:
        return 4096 * (1 + below(24));
    case SHAPE_BYTES:
        break;
    }
    return 1 + below(100000);
}

/* One or two pairs of KV types, of each the same one to four micro-batches. */
static uint32_t costs_make(void) {
    uint32_t n_pairs = 1 + (uint32_t)below(2);
    uint32_t n_ubatches = 1 + (uint32_t)below(4);
    uint32_t largest = 512u >> below(2);
    for (uint32_t i = 0; i < n_pairs * n_ubatches; i++) {
        bt_costs *c = &w.costs[i];
        c->n_ubatch = largest >> i % n_ubatches;
        c->n_parallel = 1;
        c->type_k = c->type_v = i < n_ubatches ? 1 : 8;
        c->ctx_align = 256;
        c->ctx_step = 256;
        c->ctx_min = 256;
        c->window_cells = 1024;
        c->slot_slack_bytes = below(2) * 64;
        c->page_table_divisor = below(2) ? 512 : 0;
        c->line[BT_LINE_BASE].fixed_bytes = 10000;
        c->line[BT_LINE_KV] = (bt_cost){.fixed_bytes = 0, .per_ctx_bytes = below(40), .per_window_bytes = below(40)};
        c->line[BT_LINE_COMPUTE] = (bt_cost){
            .fixed_bytes = (uint64_t)c->n_ubatch * 50, .per_ctx_bytes = below(10), .floor_bytes = below(100000)};
        c->load_peak_bytes = below(4) == 0 ? 80000 : 0;
    }
    return n_pairs * n_ubatches;
}

static void world_make(uint32_t n_units, shape form) {
    memset(&w, 0, sizeof w);
    uint32_t n_heads = (uint32_t)below(3);
    uint32_t n_tables = (uint32_t)below(3);
    for (uint32_t u = 0; u < n_units; u++) {
        bt_plan_unit *unit = &w.units[u];
        uint64_t bytes = unit_bytes(form);
        *unit = (bt_plan_unit){bytes, bytes, bytes, 0, 0, {0}, BT_KIND_ATTENTION};
        if (u + n_tables >= n_units) {
            unit->kind = BT_KIND_TABLE;
            unit->rows_bytes = below(bytes + 1000);
            unit->token_rows_bytes = below(100);
        } else if (u + n_tables + n_heads >= n_units) {
            unit->kind = BT_KIND_HEAD;
            unit->token_rows_bytes = below(2) * below(50);
        }
    }
    uint32_t n_costs = costs_make();
    w.problem = (bt_problem){.costs = w.costs,
                             .n_costs = n_costs,
                             .units = w.units,
                             .n_units = n_units,
                             .n_ctx_train = 256 + (uint32_t)below(5000),
                             .n_ctx_default_cap = 4096,
                             .budget_state = BT_READING_REPORTED,
                             .disk_bytes_per_s = {true, 1000000},
                             .memory_bytes_per_s = {true, 5000000},
                             .kv_known = true};
    w.problem.wishes = (bt_wishes){.type_k = 1,
                                   .type_v = 1,
                                   .n_buffers = (uint32_t)below(4),
                                   .stream_head = (bt_choice)below(3),
                                   .n_ctx = below(2) ? 1 + (uint32_t)below(w.problem.n_ctx_train) : 0,
                                   .allow_ctx_reduction = below(2) == 0};
}

static void plan_at(uint64_t budget, bt_arena *arena, bt_plan *ret) {
    bt_error err = {0};
    w.problem.budget_bytes = budget;
    w.problem.wishes.budget_kind = BT_BUDGET_BYTES;
    w.problem.wishes.budget_bytes = budget;
    if (bt_plan_make(&w.problem, arena, ret, &err) != BT_OK) fail_msg("%s", err.text);
}

/* The order of docs/design.md P2 as a vector, the largest is best. Last comes how far the ring is from the largest
 * number: of equals the one with fewer planned bytes; it is not part of what must be monotone. */
enum {
    RANK_FIRST,
    RANK_SECOND,
    RANK_CTX,
    RANK_F16,
    RANK_UBATCH,
    RANK_OVERLAP,
    RANK_HEAD,
    RANK_PINS,
    RANK_RING,
    RANK_N
};
typedef struct rank {
    uint64_t at[RANK_N];
} rank;

static uint32_t smaller(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}
static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

/* Contexts from the first that is tried. */
static uint32_t ctx_first(void) {
    uint32_t n_ctx = w.problem.wishes.n_ctx ? w.problem.wishes.n_ctx : smaller(w.problem.n_ctx_train, 4096);
    return (n_ctx + 255) / 256 * 256;
}

/* What the policies rank first, written down independently of the planner. read: bytes of a pass from the disk. */
static void rank_by_policy(rank *r, uint64_t read, bool overlaps) {
    r->at[RANK_FIRST] = smaller((uint32_t)r->at[RANK_CTX], smaller(1024, ctx_first()));
    if (w.problem.wishes.policy == BT_POLICY_CTX) {
        uint32_t largest = 0;
        for (uint32_t i = 0; i < w.problem.n_costs; i++)
            largest = larger(largest, w.costs[i].n_ubatch);
        r->at[RANK_SECOND] = r->at[RANK_UBATCH] >= smaller(128, largest);
        return;
    }
    uint64_t weights = 0;
    for (uint32_t u = 0; u < w.problem.n_units; u++)
        if (w.units[u].kind != BT_KIND_TABLE) weights += w.units[u].read_bytes;
    uint64_t disk_ns = read * 1000; /* the rates of world_make */
    uint64_t compute_ns = weights * 200;
    uint64_t pass_ns = !overlaps ? disk_ns + compute_ns : disk_ns > compute_ns ? disk_ns : compute_ns;
    r->at[RANK_SECOND] = UINT64_MAX - pass_ns * (128 + (511 + r->at[RANK_UBATCH]) / r->at[RANK_UBATCH]);
}

static rank rank_of(const bt_plan *plan) {
    uint64_t pinned = 0;
    for (uint32_t u = 0; u < plan->n_units; u++)
        if (w.units[u].kind != BT_KIND_TABLE && plan->place[u] == BT_PLACE_PINNED) pinned += w.units[u].pinned_bytes;
    rank r = {{[RANK_CTX] = plan->n_ctx,
               [RANK_F16] = plan->type_k == 1,
               [RANK_UBATCH] = plan->n_ubatch,
               [RANK_OVERLAP] = plan->n_slots != 1,
               [RANK_HEAD] = plan->head_resident,
               [RANK_PINS] = pinned,
               [RANK_RING] = UINT64_MAX - plan->ledger.bytes[BT_LINE_RING]}};
    rank_by_policy(&r, plan->read_bytes_per_pass, plan->n_slots != 1);
    return r;
}
static int rank_compare(const rank *a, const rank *b, int n) {
    for (int i = 0; i < n; i++)
        if (a->at[i] != b->at[i]) return a->at[i] < b->at[i] ? -1 : 1;
    return 0;
}

static void plan_is_sound(const bt_plan *plan) {
    assert_int_equal(bt_ledger_sum(&plan->ledger), plan->planned_bytes);
    if (plan->verdict != BT_REFUSED) assert_true(plan->planned_bytes <= plan->budget_bytes);
    uint64_t pinned = 0;
    uint64_t read = 0;
    uint64_t largest = 0;
    for (uint32_t u = 0; u < plan->n_units; u++) {
        if (plan->place[u] == BT_PLACE_PINNED) pinned += w.units[u].pinned_bytes;
        if (plan->place[u] != BT_PLACE_STREAMED) continue;
        read += w.units[u].read_bytes;
        if (w.units[u].slot_bytes > largest) largest = w.units[u].slot_bytes;
        assert_int_not_equal(w.units[u].kind, BT_KIND_TABLE);
    }
    assert_int_equal(pinned, plan->pinned_bytes);
    assert_int_equal(read, plan->read_bytes_per_pass);
    assert_int_equal(plan->n_slots > 0, plan->n_streamed > 0);
    assert_true(plan->n_slots == 0 || plan->slot_bytes >= largest);
    assert_int_equal(plan->ledger.bytes[BT_LINE_RING], plan->n_slots * plan->slot_bytes);
}

static void run(void (*check)(uint32_t round), uint32_t n_rounds) {
    uint64_t seed = random_seed();
    rng_state = seed | 1;
    for (uint32_t i = 0; i < rounds_of(n_rounds); i++)
        check(i);
}

/* ---- the minimum ---- */

static void minimum_round(uint32_t round) {
    world_make(1 + (uint32_t)below(40), (shape)(round % 3));
    bt_arena *arena = bt_arena_open(ARENA_BYTES, 1 << 20);
    bt_plan plan;
    plan_at(1, arena, &plan);
    assert_int_equal(plan.verdict, BT_REFUSED);
    plan_is_sound(&plan);
    uint64_t least = plan.refusal.need_bytes;
    assert_int_equal(least, plan.ladder[BT_RUNG_MINIMUM].budget_bytes);
    plan_at(least, arena, &plan);
    assert_int_not_equal(plan.verdict, BT_REFUSED);
    plan_is_sound(&plan);
    plan_at(least - 1, arena, &plan);
    assert_int_equal(plan.verdict, BT_REFUSED);

    /* rungs are reached where they say, and not a byte before */
    bt_rung rungs[BT_RUNG_COUNT];
    memcpy(rungs, plan.ladder, sizeof rungs);
    for (int r = BT_RUNG_OVERLAP; r < BT_RUNG_COUNT; r++) {
        if (!rungs[r].exists || rungs[r].budget_bytes < least) continue;
        for (uint64_t less = 0; less < 2; less++) {
            plan_at(rungs[r].budget_bytes - less, arena, &plan);
            bool on = plan.verdict != BT_REFUSED && plan.exact && plan.n_ctx == rungs[r].n_ctx;
            if (r == BT_RUNG_OVERLAP) on = on && plan.n_slots != 1;
            if (r == BT_RUNG_HEAD)
                on = on && plan.head_resident && (plan.n_slots != 1 || w.problem.wishes.n_buffers == 1);
            if (r == BT_RUNG_ALL_PINNED) on = on && plan.n_streamed == 0;
            assert_int_equal(on, less == 0);
        }
    }
    bt_arena_close(arena);
}
static void minimum_is_exact(void **state) {
    (void)state;
    run(minimum_round, 600);
}

/* ---- monotone and deterministic ---- */

static void monotone_round(uint32_t round) {
    bool large = round % 20 == 0; /* beyond what is solved exactly */
    world_make(large ? 200 + (uint32_t)below(1200) : 1 + (uint32_t)below(40), (shape)(round % 3));
    if (large)
        for (uint32_t u = 0; u < w.problem.n_units; u++)
            w.units[u].pinned_bytes = w.units[u].slot_bytes = w.units[u].read_bytes =
                w.units[u].slot_bytes * (round % 40 == 0 ? 64 : 1);
    uint64_t total = 200000;
    for (uint32_t u = 0; u < w.problem.n_units; u++)
        total += w.units[u].pinned_bytes;
    for (int policy = 0; policy < (large ? 1 : 2); policy++) {
        w.problem.wishes.policy = (bt_policy)policy;
        rank last = {{0}};
        bool ran = false;
        uint64_t budget = 1;
        for (int i = 0; i < (large ? 12 : 40); i++) {
            bt_arena *arena = bt_arena_open(ARENA_BYTES, 1 << 20);
            bt_plan plan;
            bt_plan again;
            plan_at(budget, arena, &plan);
            plan_at(budget, arena, &again);
            assert_memory_equal(plan.place, again.place, plan.n_units * sizeof *plan.place);
            assert_memory_equal(&plan.ledger, &again.ledger, sizeof plan.ledger);
            assert_int_equal(plan.n_ctx, again.n_ctx);
            plan_is_sound(&plan);
            if (plan.verdict != BT_REFUSED) {
                rank now = rank_of(&plan);
                assert_true(!ran || rank_compare(&now, &last, RANK_RING) >= 0);
                last = now;
                ran = true;
            } else {
                assert_false(ran);
            }
            bt_arena_close(arena);
            budget += below(3) == 0 ? below(50) : below(total / 16);
        }
    }
}
static void more_is_never_worse(void **state) {
    (void)state;
    run(monotone_round, 200);
}

/* ---- brute force ---- */

static uint64_t window_of(const bt_plan_unit *unit, const bt_costs *c) {
    return unit->rows_bytes + unit->token_rows_bytes * c->n_ubatch;
}

/* Total of a placement, written down independently of the planner: from the lines as docs/interfaces.md lists them. */
static uint64_t total_of(const bt_costs *c, uint32_t n_ctx, uint32_t set, uint32_t n_slots, rank *ret) {
    uint64_t cells = ((uint64_t)n_ctx + 255) / 256 * 256;
    uint64_t sum = 0;
    for (int i = 0; i < BT_LINE_COUNT; i++) {
        uint64_t line = c->line[i].fixed_bytes + c->line[i].per_ctx_bytes * cells +
                        c->line[i].per_window_bytes * (cells < c->window_cells ? cells : c->window_cells);
        sum += line > c->line[i].floor_bytes ? line : c->line[i].floor_bytes;
    }
    uint64_t slot = 0;
    uint64_t head_rows = 0;
    bool streams = false;
    uint64_t read = 0;
    *ret = (rank){{[RANK_CTX] = cells,
                   [RANK_F16] = c->type_k == 1,
                   [RANK_UBATCH] = c->n_ubatch,
                   [RANK_HEAD] = 1,
                   [RANK_RING] = UINT64_MAX}};
    for (uint32_t u = 0; u < w.problem.n_units; u++) {
        const bt_plan_unit *unit = &w.units[u];
        if (unit->kind == BT_KIND_HEAD) head_rows += window_of(unit, c);
        if (set >> u & 1) {
            sum += unit->pinned_bytes;
            if (unit->kind != BT_KIND_TABLE) ret->at[RANK_PINS] += unit->pinned_bytes;
        } else if (unit->kind == BT_KIND_TABLE) {
            sum += window_of(unit, c);
        } else {
            streams = true;
            if (unit->slot_bytes > slot) slot = unit->slot_bytes;
            read += unit->read_bytes;
            if (unit->kind == BT_KIND_HEAD) ret->at[RANK_HEAD] = 0;
        }
    }
    if (!ret->at[RANK_HEAD]) sum += head_rows;
    if (streams) ret->at[RANK_RING] -= n_slots * (slot + c->slot_slack_bytes);
    sum += UINT64_MAX - ret->at[RANK_RING];
    ret->at[RANK_OVERLAP] = !streams || n_slots >= 2;
    rank_by_policy(ret, read, ret->at[RANK_OVERLAP]);
    if (c->page_table_divisor) sum += (sum + c->page_table_divisor - 1) / c->page_table_divisor;
    return sum > c->load_peak_bytes ? sum : c->load_peak_bytes;
}

/* Placements that the wishes and the rules allow: tables are pinned last, or where rows cost no less. */
static bool set_allowed(const bt_costs *c, uint32_t set) {
    bool streams = false;
    for (uint32_t u = 0; u < w.problem.n_units; u++) {
        bool pinned = set >> u & 1;
        if (w.units[u].kind == BT_KIND_TABLE) continue;
        streams |= !pinned;
        if (w.units[u].kind != BT_KIND_HEAD) continue;
        if (pinned && w.problem.wishes.stream_head == BT_ON) return false;
        if (!pinned && w.problem.wishes.stream_head == BT_OFF) return false;
    }
    for (uint32_t u = 0; u < w.problem.n_units; u++) {
        const bt_plan_unit *unit = &w.units[u];
        bool pinned = set >> u & 1;
        if (unit->kind != BT_KIND_TABLE) continue;
        bool cheap = unit->pinned_bytes <= window_of(unit, c);
        if (cheap != pinned && (cheap || streams)) return false;
    }
    return true;
}

/* The best of all placements at one context; *ret is only replaced by a better one. */
static bool brute_force_at(const bt_costs *c, uint32_t n_ctx, uint64_t budget, bool found, rank *ret) {
    uint32_t n_buffers = w.problem.wishes.n_buffers;
    uint32_t depth[2] = {n_buffers ? n_buffers : 2, n_buffers ? n_buffers : 1}; /* as asked, or two and one */
    for (uint32_t set = 0; set < UINT32_C(1) << w.problem.n_units; set++) {
        if (!set_allowed(c, set)) continue;
        for (int d = 0; d < 2; d++) {
            rank r;
            if (total_of(c, n_ctx, set, depth[d], &r) > budget) continue;
            if (!found || rank_compare(&r, ret, RANK_N) > 0) *ret = r;
            found = true;
        }
    }
    return found;
}

static bool brute_force(uint64_t budget, rank *ret) {
    bool steps = !w.problem.wishes.n_ctx || w.problem.wishes.allow_ctx_reduction;
    bool found = false;
    for (uint32_t i = 0; i < w.problem.n_costs; i++)
        for (uint32_t n_ctx = ctx_first(); n_ctx >= (steps ? 256 : ctx_first()); n_ctx -= 256)
            found = brute_force_at(&w.costs[i], n_ctx, budget, found, ret);
    return found;
}

static void brute_round(uint32_t round) {
    world_make(1 + (uint32_t)below(8), (shape)(round % 3));
    w.problem.n_ctx_train = 256 + (uint32_t)below(1200);
    if (w.problem.wishes.n_ctx > w.problem.n_ctx_train) w.problem.wishes.n_ctx = w.problem.n_ctx_train;
    bt_arena *arena = bt_arena_open(ARENA_BYTES, 1 << 20);
    bt_plan plan;
    plan_at(1, arena, &plan);
    uint64_t least = plan.refusal.need_bytes;
    for (int i = 0; i < 6; i++) {
        w.problem.wishes.policy = (bt_policy)(i % 2);
        uint64_t budget = least - 1 + below(least);
        rank best = {{0}};
        bool found = brute_force(budget, &best);
        plan_at(budget, arena, &plan);
        assert_int_equal(plan.verdict != BT_REFUSED, found);
        if (!found) continue;
        rank got = rank_of(&plan);
        for (int k = 0; k < RANK_N; k++)
            assert_int_equal(got.at[k], best.at[k]);
    }
    bt_arena_close(arena);
}
static void nothing_is_better(void **state) {
    (void)state;
    run(brute_round, 300);
}

/* ---- large models: how long, and how much is missed ---- */

static void large_make(uint32_t n_blocks, uint64_t scale) {
    world_make(1, SHAPE_PAGES);
    w.problem.wishes = (bt_wishes){.type_k = 1, .type_v = 1};
    /* q, k, v, o, gate, up, down in pages, and the two roundings of each */
    static const uint64_t pages[] = {9, 2, 2, 9, 32, 32, 32};
    uint32_t n = 0;
    for (uint32_t b = 0; b < n_blocks; b++)
        for (uint32_t t = 0; t < 7 && n < UNIT_MAX; t++) {
            bool more_bits = (t == 2 || t == 6) && (b < n_blocks / 8 || b >= 7 * n_blocks / 8 || b % 3 == 2);
            uint64_t bytes = 4096 * (pages[t] * scale * (more_bits ? 210 : 144) / 144 + 1 + below(2));
            w.units[n++] =
                (bt_plan_unit){bytes, bytes, bytes, 0, 0, {0}, t < 4 ? BT_KIND_ATTENTION : BT_KIND_FEED_FORWARD};
        }
    w.costs[0] =
        (bt_costs){.n_ubatch = 512, .ctx_align = 256, .ctx_step = 256, .ctx_min = 256, .page_table_divisor = 512};
    w.costs[0].line[BT_LINE_BASE].fixed_bytes = 30 * MIB;
    w.costs[0].line[BT_LINE_KV].per_ctx_bytes = 128 * KIB;
    w.problem.n_costs = 1;
    w.problem.n_units = n;
    w.problem.n_ctx_train = 131072;
    w.problem.n_ctx_default_cap = 131072;
}

static void large_is_quick(void **state) {
    (void)state;
    rng_state = 42;
    static const struct {
        uint32_t n_blocks;
        uint64_t scale, budget;
    } cases[] = {{286, 1, 600 * MIB}, {286, 16, 1600 * MIB}, {286, 64, 5 * GIB},  {286, 256, 24 * GIB},
                 {32, 114, 1 * GIB},  {80, 1024, 20 * GIB},  {30, 12, 100 * MIB}, {30, 12, 600 * MIB}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        large_make(cases[i].n_blocks, cases[i].scale);
        w.problem.wishes.n_ctx = i < 7 ? 4096 : 0; /* the last walks all 512 contexts */
        w.problem.wishes.allow_ctx_reduction = true;
        uint64_t total = 0;
        uint64_t smallest = UINT64_MAX;
        for (uint32_t u = 0; u < w.problem.n_units; u++) {
            total += w.units[u].pinned_bytes;
            if (w.units[u].pinned_bytes < smallest) smallest = w.units[u].pinned_bytes;
        }
        bt_arena *arena = bt_arena_open(ARENA_BYTES, 1 << 20);
        bt_plan plan;
        struct timespec from;
        struct timespec to;
        (void)clock_gettime(CLOCK_MONOTONIC, &from);
        plan_at(cases[i].budget, arena, &plan);
        (void)clock_gettime(CLOCK_MONOTONIC, &to);
        double ms = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6;
        uint64_t unused = plan.budget_bytes - plan.planned_bytes;
        print_message("%" PRIu32 " units, %" PRIu64 " MiB under %" PRIu64 " MiB: %.2f ms, %s, ctx %" PRIu32
                      ", pinned %" PRIu64 " MiB, unused %" PRIu64 " KiB (smallest unit %" PRIu64 " KiB), arena %" PRIu64
                      " KiB\n",
                      w.problem.n_units, total / MIB, cases[i].budget / MIB, ms, bt_verdict_name(plan.verdict),
                      plan.n_ctx, plan.pinned_bytes / MIB, unused / KIB, smallest / KIB, bt_arena_bytes(arena) / KIB);
        plan_is_sound(&plan);
        assert_int_equal(plan.verdict, BT_STREAMS);
        assert_true(plan.n_pinned == 0 || unused < smallest + 8192);
        bt_arena_close(arena);
    }
}

/* No stretch of the pass waits long: streamed bytes never run ahead of their share by more than a few units. */
static void pins_are_spread(void **state) {
    (void)state;
    rng_state = 42;
    large_make(40, 32);
    w.problem.wishes.n_ctx = 2048;
    for (uint64_t budget = 350 * MIB; budget < 900 * MIB; budget += 50 * MIB) {
        bt_arena *arena = bt_arena_open(ARENA_BYTES, 1 << 20);
        bt_plan plan;
        plan_at(budget, arena, &plan);
        if (plan.n_streamed > 0) {
            double total = 0;
            double largest = 0;
            for (uint32_t u = 0; u < plan.n_units; u++) {
                total += (double)w.units[u].read_bytes;
                if ((double)w.units[u].read_bytes > largest) largest = (double)w.units[u].read_bytes;
            }
            double share = (double)plan.read_bytes_per_pass / total;
            double ahead = 0;
            double most = 0;
            for (uint32_t u = 0; u < plan.n_units; u++) {
                double bytes = (double)w.units[u].read_bytes;
                ahead += (plan.place[u] == BT_PLACE_STREAMED ? bytes : 0) - bytes * share;
                if (ahead > most) most = ahead;
                if (-ahead > most) most = -ahead;
            }
            print_message("budget %" PRIu64 " MiB: %" PRIu32 " streamed, off its share by %.2f units at most\n",
                          budget / MIB, plan.n_streamed, most / largest);
            assert_true(most < 3 * largest);
        }
        bt_arena_close(arena);
    }
}

/* ---- layouts ---- */

static bt_layouts some_layouts(uint64_t bytes) {
    bt_layouts layouts = {.n_replaced = (uint32_t)below(3), .n_second = (uint32_t)below(3)};
    if (layouts.n_replaced > 0) layouts.replaced_bytes = 1 + below(bytes);
    if (layouts.n_second > 0) layouts.second_bytes = 1 + below(bytes);
    return layouts;
}

/* What all pinned units, and what is always in memory, could be held in. */
static bt_layouts naive_layouts(const bt_plan *plan) {
    bt_layouts sum = w.problem.small_layouts;
    for (uint32_t u = 0; u < plan->n_units; u++) {
        if (plan->place[u] != BT_PLACE_PINNED) continue;
        sum.n_replaced += w.units[u].layouts.n_replaced;
        sum.replaced_bytes += w.units[u].layouts.replaced_bytes;
        sum.n_second += w.units[u].layouts.n_second;
        sum.second_bytes += w.units[u].layouts.second_bytes;
    }
    return sum;
}

/* Layouts change nothing of a plan but their own line and its page tables. */
static void same_but_layouts(const bt_plan *a, const bt_plan *b) {
    assert_int_equal(a->verdict, b->verdict);
    assert_int_equal(a->n_ctx, b->n_ctx);
    assert_int_equal(a->n_ubatch, b->n_ubatch);
    assert_memory_equal(a->place, b->place, a->n_units * sizeof *a->place);
    for (uint32_t line = 0; line < BT_LINE_COUNT; line++)
        if (line != BT_LINE_DERIVED && line != BT_LINE_PAGETABLES)
            assert_int_equal(a->ledger.bytes[line], b->ledger.bytes[line]);
}

static void layouts_at(uint64_t budget, bt_arena *arena) {
    bt_plan off;
    bt_plan on;
    bt_plan by_itself;
    w.problem.wishes.repack = BT_OFF;
    plan_at(budget, arena, &off);
    w.problem.wishes.repack = BT_ON;
    plan_at(budget, arena, &on);
    w.problem.wishes.repack = BT_AUTO;
    plan_at(budget, arena, &by_itself);
    assert_int_equal(off.layouts.n_replaced + off.layouts.n_second, 0);
    assert_int_equal(off.layouts.replaced_bytes + off.layouts.second_bytes, 0);
    same_but_layouts(&off, &on);
    same_but_layouts(&off, &by_itself);
    if (off.verdict == BT_REFUSED) {
        assert_int_equal(on.layouts.n_replaced + on.layouts.n_second, 0);
        return;
    }
    bt_layouts all = naive_layouts(&on);
    assert_int_equal(on.layouts.n_replaced, all.n_replaced);
    assert_int_equal(on.layouts.replaced_bytes, all.replaced_bytes);
    assert_true(on.layouts.n_second <= all.n_second && on.layouts.second_bytes <= all.second_bytes);
    assert_int_equal(on.layouts.second_bytes, on.ledger.bytes[BT_LINE_DERIVED]);
    assert_true(on.planned_bytes <= budget);
    if (on.layouts.second_bytes == 0) assert_int_equal(on.planned_bytes, off.planned_bytes);
    bool any = on.layouts.replaced_bytes > 0 || on.layouts.second_bytes > 0;
    assert_int_equal(on.exact, off.exact && !any);
    const bt_layouts *wanted = by_itself.n_streamed > 0 ? &off.layouts : &on.layouts;
    assert_int_equal(by_itself.layouts.n_replaced, wanted->n_replaced);
    assert_int_equal(by_itself.layouts.second_bytes, wanted->second_bytes);
}

static void layouts_round(uint32_t round) {
    world_make(3 + (uint32_t)below(10), (shape)(round % 3));
    for (uint32_t u = 0; u < w.problem.n_units; u++)
        w.units[u].layouts = some_layouts(w.units[u].pinned_bytes);
    w.problem.small_layouts = (bt_layouts){.n_replaced = 2, .replaced_bytes = below(100)};
    bt_arena *arena = bt_arena_open(ARENA_BYTES, 1 << 20);
    uint64_t sum = 0;
    for (uint32_t u = 0; u < w.problem.n_units; u++)
        sum += w.units[u].pinned_bytes;
    for (uint32_t i = 0; i < 8; i++)
        layouts_at(below(3 * sum + 400000), arena);
    bt_arena_close(arena);
}

static void layouts_take_their_own(void **state) {
    (void)state;
    run(layouts_round, 400);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(minimum_is_exact),  cmocka_unit_test(more_is_never_worse),
        cmocka_unit_test(nothing_is_better), cmocka_unit_test(large_is_quick),
        cmocka_unit_test(pins_are_spread),   cmocka_unit_test(layouts_take_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
