/* SPDX-License-Identifier: MIT
 *
 * pins.c: the most bytes that fit into a room: a subset sum over the sizes of the units.
 *
 * Sizes of a model's units are whole pages and few of them differ, so sums are counted in cells of their greatest
 * common divisor. The units stand in a chain in which the classes are interleaved in proportion to their numbers; any
 * start of the chain is a fair sample of the model. Walking it, a bit set keeps the sums that can be reached, and each
 * cell the unit that reached it first. A sum is therefore made of the shortest start of the chain that can make it,
 * with few units left out, which is what lets spread.c lay the pins evenly over the pass.
 *
 * Exact up to WINDOW_ITEMS units and CELLS_MAX cells (1 GiB of pages), or 16 units of any size. Beyond that a window
 * (every k-th unit of the chain) is solved exactly on top of every start of the rest; what that can miss is less than
 * the smallest unit of the window wherever it reaches the gap, and less than the largest unit always (in practice a few
 * pages: tests/property/test_plan.c). Every answer is the best of a family of choices that does not depend on the room,
 * so more room never pins fewer bytes. */
#include "base/size.h"
#include "plan/search.h"

#include <string.h>

#define CELLS_MAX    (UINT32_C(1) << 18) /* 1 GiB of pages: 544 KiB of work area, under 2 ms */
#define WINDOW_ITEMS 1024u
#define TRY_ALL_MAX  16u /* 65,536 subsets */
#define WORD_BITS    64u

uint64_t bt_pins_gcd(uint64_t a, uint64_t b) {
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

bool bt_pin_scratch_make(bt_arena *arena, uint32_t n_items, uint64_t n_cells, bt_pin_scratch *ret) {
    bt_pin_scratch s = {.n_items = n_items};
    s.n_cells = (uint32_t)bt_min_u64(n_cells, CELLS_MAX);
    s.bits = bt_arena_array(arena, s.n_cells / WORD_BITS + 1, sizeof *s.bits);
    s.taken = bt_arena_array(arena, (uint64_t)s.n_cells + 1, sizeof *s.taken);
    s.chain = bt_arena_array(arena, (uint64_t)n_items + 1, sizeof *s.chain);
    s.window = bt_arena_array(arena, (uint64_t)n_items + 1, sizeof *s.window);
    s.rest = bt_arena_array(arena, (uint64_t)n_items + 1, sizeof *s.rest);
    if (!s.bits || !s.taken || !s.chain || !s.window || !s.rest) return false;
    *ret = s;
    return true;
}

/* Unit number rank of n stands at (2 rank + 1) / 2n of the chain. */
static bool item_before(const bt_pin_class *classes, const bt_pin_item *a, const bt_pin_item *b) {
    uint64_t left = (2 * (uint64_t)a->rank + 1) * classes[b->class_index].n;
    uint64_t right = (2 * (uint64_t)b->rank + 1) * classes[a->class_index].n;
    if (left != right) return left < right;
    return a->class_index < b->class_index;
}

/* Shell's sort: no heap, no recursion, and the order is total, so the result does not depend on the method. */
static void chain_sort(const bt_pin_class *classes, bt_pin_item *chain, uint32_t n) {
    uint32_t gap = 1;
    while (gap < n / 3)
        gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3) {
        for (uint32_t i = gap; i < n; i++) {
            bt_pin_item item = chain[i];
            uint32_t j = i;
            for (; j >= gap && item_before(classes, &item, &chain[j - gap]); j -= gap)
                chain[j] = chain[j - gap];
            chain[j] = item;
        }
    }
}

/* All units of classes that cost something; those that cost nothing are taken at once. */
static uint32_t chain_make(bt_pin_scratch *s, const bt_pin_class *classes, uint32_t n_classes, uint32_t *counts) {
    uint32_t n = 0;
    for (uint32_t c = 0; c < n_classes; c++) {
        counts[c] = classes[c].pinned_bytes == 0 ? classes[c].n : 0;
        if (classes[c].pinned_bytes == 0) continue;
        for (uint32_t r = 0; r < classes[c].n && n < s->n_items; r++)
            s->chain[n++] = (bt_pin_item){.class_index = c, .rank = r};
    }
    chain_sort(classes, s->chain, n);
    return n;
}

static uint64_t item_bytes(const bt_pin_scratch *s, const bt_pin_class *classes, uint32_t at) {
    return classes[s->chain[at].class_index].pinned_bytes;
}

/* Every subset of at most 16 units, in Gray order. */
static uint64_t try_all(const bt_pin_scratch *s, const bt_pin_class *classes, uint32_t n, uint64_t room,
                        uint32_t *counts) {
    uint64_t best = 0;
    uint32_t best_set = 0;
    uint64_t sum = 0;
    uint32_t set = 0;
    for (uint32_t i = 1; i < UINT32_C(1) << n; i++) {
        uint32_t bit = (uint32_t)__builtin_ctz(i);
        set ^= UINT32_C(1) << bit;
        uint64_t bytes = item_bytes(s, classes, bit);
        sum = set >> bit & 1 ? bt_sat_add_u64(sum, bytes) : sum - bytes;
        if (sum > room || sum < best || (sum == best && set >= best_set)) continue;
        best = sum;
        best_set = set;
    }
    for (uint32_t at = 0; at < n; at++)
        if (best_set >> at & 1) counts[s->chain[at].class_index]++;
    return best;
}

/* Sums up to limit cells that the window can make. Stops when limit itself can be made. */
static void reach(bt_pin_scratch *s, const bt_pin_class *classes, uint32_t n_window, uint64_t cell, uint32_t limit) {
    memset(s->bits, 0, (limit / WORD_BITS + 1) * sizeof *s->bits);
    s->bits[0] = 1;
    uint64_t top = 0;
    for (uint32_t t = 0; t < n_window; t++) {
        uint64_t size = item_bytes(s, classes, s->window[t]) / cell;
        if (size > limit) continue;
        top = bt_min_u64(top + size, limit);
        uint32_t words = (uint32_t)(size / WORD_BITS);
        uint32_t shift = (uint32_t)(size % WORD_BITS);
        for (uint32_t w = (uint32_t)(top / WORD_BITS) + 1; w-- > words;) { /* down, so that sources are still old */
            uint64_t moved = s->bits[w - words] << shift;
            if (shift > 0 && w > words) moved |= s->bits[w - words - 1] >> (WORD_BITS - shift);
            uint64_t fresh = moved & ~s->bits[w];
            if (w == limit / WORD_BITS && limit % WORD_BITS != WORD_BITS - 1)
                fresh &= (UINT64_C(2) << limit % WORD_BITS) - 1;
            s->bits[w] |= fresh;
            for (; fresh != 0; fresh &= fresh - 1)
                s->taken[w * WORD_BITS + (uint32_t)__builtin_ctzll(fresh)] = (uint16_t)t;
        }
        if (s->bits[limit / WORD_BITS] >> limit % WORD_BITS & 1) return;
    }
}

/* The largest sum that can be made within at cells. */
static uint32_t reached_below(const bt_pin_scratch *s, uint32_t at) {
    uint32_t w = at / WORD_BITS;
    uint64_t word = s->bits[w];
    if (at % WORD_BITS != WORD_BITS - 1) word &= (UINT64_C(2) << at % WORD_BITS) - 1;
    while (word == 0)
        word = s->bits[--w]; /* bit 0 is always set */
    return w * WORD_BITS + WORD_BITS - 1 - (uint32_t)__builtin_clzll(word);
}

static void take(const bt_pin_scratch *s, const bt_pin_class *classes, uint64_t cell, uint32_t sum, uint32_t *counts) {
    while (sum > 0) {
        uint32_t at = s->window[s->taken[sum]];
        counts[s->chain[at].class_index]++;
        sum -= (uint32_t)(item_bytes(s, classes, at) / cell);
    }
}

/* Which units of the chain make the window: all when they fit, else every k-th while there are cells. */
static uint32_t window_make(bt_pin_scratch *s, const bt_pin_class *classes, uint32_t n, uint64_t cell, uint64_t total,
                            uint32_t *ret_rest) {
    uint64_t stride = bt_max_u64(total / cell / bt_max_u64(s->n_cells, 1), n / WINDOW_ITEMS) + 1;
    if (total / cell <= s->n_cells && n <= WINDOW_ITEMS) stride = 1;
    uint64_t cells = 0;
    uint32_t n_window = 0;
    uint32_t n_rest = 0;
    for (uint32_t at = 0; at < n; at++) {
        uint64_t size = item_bytes(s, classes, at) / cell;
        bool in = at % stride == 0 && size <= s->n_cells - cells && n_window < WINDOW_ITEMS;
        if (in) {
            cells += size;
            s->window[n_window++] = at;
        } else {
            s->rest[n_rest++] = at;
        }
    }
    *ret_rest = n_rest;
    return n_window;
}

/* The window on top of every start of the rest. */
static uint64_t choose_windowed(bt_pin_scratch *s, const bt_pin_class *classes, uint32_t n, uint64_t total,
                                uint64_t room, uint32_t *counts) {
    uint64_t cell = 0;
    for (uint32_t at = 0; at < n; at++)
        cell = bt_pins_gcd(cell, item_bytes(s, classes, at));
    uint32_t n_rest = 0;
    uint32_t n_window = window_make(s, classes, n, cell, total, &n_rest);
    uint64_t window_bytes = 0;
    for (uint32_t t = 0; t < n_window; t++)
        window_bytes += item_bytes(s, classes, s->window[t]);
    uint64_t limit_bytes = n_rest == 0 ? bt_min_u64(window_bytes, room) : window_bytes;
    reach(s, classes, n_window, cell, (uint32_t)(limit_bytes / cell));

    uint32_t n_start = 0;
    uint64_t start_bytes = 0;
    while (n_start < n_rest && item_bytes(s, classes, s->rest[n_start]) <= room - start_bytes)
        start_bytes += item_bytes(s, classes, s->rest[n_start++]);
    uint64_t best = 0;
    uint32_t best_start = 0;
    uint32_t best_sum = 0;
    for (uint32_t k = n_start + 1; k-- > 0;) {
        uint64_t within = bt_min_u64(limit_bytes, room - start_bytes);
        if (k < n_start && start_bytes + within <= best) break; /* shorter starts give less still */
        uint32_t sum = reached_below(s, (uint32_t)(within / cell));
        if (k == n_start || start_bytes + sum * cell > best) {
            best = start_bytes + sum * cell;
            best_start = k;
            best_sum = sum;
        }
        if (k > 0) start_bytes -= item_bytes(s, classes, s->rest[k - 1]);
    }
    for (uint32_t k = 0; k < best_start; k++)
        counts[s->chain[s->rest[k]].class_index]++;
    take(s, classes, cell, best_sum, counts);
    return best;
}

uint64_t bt_pins_choose(bt_pin_scratch *scratch, const bt_pin_class *classes, uint32_t n_classes, uint64_t room_bytes,
                        uint32_t *ret_counts) {
    uint64_t total = 0;
    uint64_t cell = 0;
    for (uint32_t c = 0; c < n_classes; c++) {
        total = bt_sat_add_u64(total, bt_sat_mul_u64(classes[c].pinned_bytes, classes[c].n));
        if (classes[c].n > 0) cell = bt_pins_gcd(cell, classes[c].pinned_bytes);
    }
    if (total <= room_bytes && total != UINT64_MAX) {
        for (uint32_t c = 0; c < n_classes; c++)
            ret_counts[c] = classes[c].n;
        return total;
    }
    uint32_t n = chain_make(scratch, classes, n_classes, ret_counts);
    if (n == 0 || cell == 0 || total == UINT64_MAX) return 0; /* sizes beyond 64 bits: nothing is pinned */
    if (n <= TRY_ALL_MAX && total / cell > scratch->n_cells)
        return try_all(scratch, classes, n, room_bytes, ret_counts);
    return choose_windowed(scratch, classes, n, total, room_bytes, ret_counts);
}
