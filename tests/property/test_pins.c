/* SPDX-License-Identifier: MIT
 * test_pins.c: the chooser of pins by itself: exact where it says so, and beyond that within its bound and never less
 * for more room. A work area of few cells makes small problems large ones. BT_SEED=n replays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/search.h"
#include "random.h"
#include "rounds.h"

#include <stdlib.h>

#define CLASS_MAX 12u

static uint64_t rng_state;
static uint64_t below(uint64_t n) {
    rng_state ^= rng_state >> 12;
    rng_state ^= rng_state << 25;
    rng_state ^= rng_state >> 27;
    return rng_state * UINT64_C(0x2545F4914F6CDD1D) % n;
}
static void seed(void) {
    uint64_t value = random_seed();
    rng_state = value | 1;
}

static bt_pin_class classes[CLASS_MAX];
static uint32_t n_classes, n_items;
static uint64_t total, largest;

static void classes_make(uint32_t most_of_one, uint64_t size_max) {
    n_classes = 1 + (uint32_t)below(CLASS_MAX);
    n_items = 0;
    total = largest = 0;
    for (uint32_t c = 0; c < n_classes; c++) {
        classes[c] = (bt_pin_class){.pinned_bytes = below(size_max), .n = 1 + (uint32_t)below(most_of_one)};
        n_items += classes[c].n;
        total += classes[c].n * classes[c].pinned_bytes;
        if (classes[c].pinned_bytes > largest) largest = classes[c].pinned_bytes;
    }
}

static uint64_t choose(bt_pin_scratch *scratch, uint64_t room) {
    uint32_t counts[CLASS_MAX];
    uint64_t sum = 0;
    uint64_t got = bt_pins_choose(scratch, classes, n_classes, room, counts);
    for (uint32_t c = 0; c < n_classes; c++) {
        assert_true(counts[c] <= classes[c].n);
        sum += counts[c] * classes[c].pinned_bytes;
    }
    assert_int_equal(sum, got);
    assert_true(got <= room);
    return got;
}

/* best[room]: the most that fits, one unit at a time */
static void best_make(uint64_t *best) {
    for (uint64_t room = 0; room <= total; room++)
        best[room] = 0;
    for (uint32_t c = 0; c < n_classes; c++)
        for (uint32_t i = 0; i < classes[c].n; i++)
            for (uint64_t room = total; room >= classes[c].pinned_bytes; room--) {
                uint64_t with = best[room - classes[c].pinned_bytes] + classes[c].pinned_bytes;
                if (with > best[room]) best[room] = with;
                if (room == 0) break;
            }
}

static bt_pin_scratch scratch_make(bt_arena *arena, uint64_t n_cells) {
    bt_pin_scratch scratch;
    if (!bt_pin_scratch_make(arena, CLASS_MAX * 64, n_cells, &scratch)) fail();
    return scratch;
}

static void exact_by_sums(void **state) {
    (void)state;
    seed();
    bt_arena *arena = bt_arena_open(16 << 20, 1 << 20);
    bt_pin_scratch scratch = scratch_make(arena, 20000);
    static uint64_t best[20001];
    for (uint32_t round = 0; round < rounds_of(60); round++) {
        classes_make(8, 200);
        best_make(best);
        for (uint64_t room = 0; room <= total; room++)
            assert_int_equal(choose(&scratch, room), best[room]);
    }
    bt_arena_close(arena);
}

/* At most 16 units and hardly a cell: all subsets. */
static void exact_by_trying(void **state) {
    (void)state;
    seed();
    bt_arena *arena = bt_arena_open(16 << 20, 1 << 20);
    bt_pin_scratch scratch = scratch_make(arena, 4);
    static uint64_t best[20001];
    for (uint32_t round = 0; round < rounds_of(60); round++) {
        do
            classes_make(3, 200);
        while (n_items > 8);
        best_make(best);
        for (uint64_t room = 0; room <= total; room++)
            assert_int_equal(choose(&scratch, room), best[room]);
    }
    bt_arena_close(arena);
}

static void beyond_the_cells(void **state) {
    (void)state;
    seed();
    bt_arena *arena = bt_arena_open(64 << 20, 1 << 20);
    for (uint32_t round = 0; round < rounds_of(100); round++) {
        bt_pin_scratch scratch = scratch_make(arena, 8 + below(600));
        do
            classes_make(20, 100);
        while (n_items <= 16);
        uint64_t last = 0;
        for (uint64_t room = 0; room <= total; room++) {
            uint64_t got = choose(&scratch, room);
            assert_true(got >= last);
            assert_true(room - got < largest || room == got);
            last = got;
        }
        assert_int_equal(last, total);
    }
    bt_arena_close(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_by_sums),
        cmocka_unit_test(exact_by_trying),
        cmocka_unit_test(beyond_the_cells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
