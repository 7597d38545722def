/* SPDX-License-Identifier: MIT
 * test_experts.c: slots for experts: right bytes at the right place, who stays and who goes, more experts than slots.
 * Cases X1, X2, X5 to X8 of research notes, seed 3 (ours have no leases: what a request named stays until the next). */
#include "base/arena.h"
#include "base/heap.h"
#include "model/experts.h"
#include "store/experts.h"
#include "store_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define N_EXPERT 16u
#define N_BLOCKS 3u
#define PAGE     ((uint64_t)BT_PAGE_BYTES)

/* Slices of whole pages at an odd place, of odd lengths, and less than a page. */
static const uint64_t slices[3] = {2 * BT_PAGE_BYTES, 3 * BT_PAGE_BYTES + 544, 1088};

typedef struct fixture {
    kit k;
    bt_tensor tensors[3 * N_BLOCKS];
    char names[3 * N_BLOCKS][40];
    bt_arena *arena;
    bt_account *account;
    bt_store store;
    bt_reader *reader;
    bt_experts *experts;
} fixture;

static fixture f;

static void make_tensors(void) {
    static const char *const parts[] = {"gate", "up", "down"};
    uint64_t at = 96; /* GGUF aligns to 32 */
    for (uint32_t i = 0; i < 3 * N_BLOCKS; i++) {
        (void)snprintf(f.names[i], sizeof f.names[i], "blk.%u.ffn_%s_exps.weight", i / 3, parts[i % 3]);
        f.tensors[i] = (bt_tensor){.name = f.names[i],
                                   .n_dims = 3,
                                   .ne = {32, 32, N_EXPERT, 1},
                                   .bytes = slices[i % 3] * N_EXPERT,
                                   .file_offset = at,
                                   .block = (int32_t)(i / 3),
                                   .role = BT_ROLE_EXPERTS};
        at += f.tensors[i].bytes + 64;
    }
}

static void take_turns(uint32_t block, const uint32_t *wanted, uint32_t n);

static uint64_t file_bytes(void) {
    uint64_t all = 96;
    for (uint32_t i = 0; i < 3 * N_BLOCKS; i++)
        all += slices[i % 3] * N_EXPERT + 64;
    return all;
}

static bool shared; /* of the next open_slots */

static void open_slots(const uint32_t n_slots[N_BLOCKS], bt_reader_kind kind) {
    uint64_t caps[BT_LINE_COUNT];
    for (unsigned i = 0; i < BT_LINE_COUNT; i++)
        caps[i] = UINT64_MAX;
    const uint64_t sizes[] = {file_bytes()};
    kit_open(&f.k, "experts", sizes, 1, 17);
    make_tensors();
    f.k.facts.tensors = f.tensors;
    f.k.facts.n_tensors = 3 * N_BLOCKS;
    f.k.facts.n_expert = N_EXPERT;
    f.k.facts.n_expert_used = 4;
    f.k.facts.n_block = N_BLOCKS;
    f.arena = bt_arena_open(1u << 20, 1u << 12);
    assert_non_null(f.arena);
    assert_int_equal(bt_experts_fill(&f.k.facts, f.arena, "test", NULL), BT_OK);
    assert_int_equal(f.k.facts.n_expert_blocks, N_BLOCKS);
    assert_int_equal(bt_account_open(caps, UINT64_MAX, &f.account, NULL), BT_OK);
    assert_int_equal(bt_store_open(&f.k.facts, BT_IO_AUTO, &f.store, NULL), BT_OK);
    assert_int_equal(bt_reader_open(&f.store, &(bt_reader_params){.kind = kind}, &f.reader, NULL), BT_OK);
    assert_int_equal(bt_experts_open(f.account, f.reader, &f.k.facts, n_slots, shared, &f.experts, NULL), BT_OK);
}

static int close_slots(void **state) {
    (void)state;
    bt_experts_close(f.experts);
    bt_reader_close(f.reader);
    bt_store_close(&f.store);
    assert_true(bt_account_close(f.account));
    bt_arena_close(f.arena);
    kit_close(&f.k);
    f = (fixture){0};
    shared = false;
    return 0;
}

static const uint8_t *truth(uint32_t block, uint32_t part, uint32_t expert) {
    return f.k.data[0] + f.tensors[3 * block + part].file_offset + expert * slices[part];
}

/* A part of an expert stands where a kernel that steps from slot to slot looks. */
static bool is_right(uint32_t block, uint32_t part, uint32_t expert) {
    const bt_expert_block *facts = &f.k.facts.expert_blocks[block];
    const uint8_t *at = bt_experts_base(f.experts, block) +
                        bt_experts_slot(f.experts, block, expert) * facts->slot_bytes + facts->parts[part].slot_offset +
                        facts->parts[part].shift;
    return memcmp(at, truth(block, part, expert), slices[part]) == 0;
}

static bt_experts_stats stats(void) {
    bt_experts_stats s;
    bt_experts_stats_read(f.experts, &s);
    return s;
}

static void get(uint32_t block, const uint32_t *wanted, uint32_t n) {
    assert_int_equal(bt_experts_request(f.experts, block, wanted, n, 1, NULL), BT_OK);
    for (uint32_t p = 0; p < 3; p++)
        assert_int_equal(bt_experts_wait(f.experts, p, NULL), BT_OK);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t p = 0; p < 3; p++)
            assert_true(is_right(block, p, wanted[i]));
}

static void get_one(uint32_t block, uint32_t expert) {
    get(block, &expert, 1);
}

static void expect(uint64_t hits, uint64_t misses) {
    assert_int_equal(stats().hits, hits);
    assert_int_equal(stats().misses, misses);
}

/* ---- requests that fit ------------------------------------------------------------------------------------------- */

static void x1_the_one_used_longest_ago_goes(void **state) {
    (void)state;
    open_slots((uint32_t[]){2, 2, 2}, BT_READER_AUTO);
    get_one(0, 0);
    get_one(0, 1);
    get_one(0, 0);
    get_one(0, 2);
    expect(1, 3);
    get_one(0, 0);
    expect(2, 3);
    get_one(0, 1);
    expect(2, 4);
}

/* What one request names stays whatever it takes, and blocks do not take from each other. */
static void x2_what_was_asked_for_stays(void **state) {
    (void)state;
    open_slots((uint32_t[]){4, 2, 2}, BT_READER_AUTO);
    get(0, (uint32_t[]){1, 3, 5, 7}, 4);
    get(0, (uint32_t[]){7, 9, 3, 1}, 4);
    expect(3, 5);
    for (uint32_t i = 0; i < N_EXPERT; i++)
        get_one(1, i);
    get(0, (uint32_t[]){1, 3, 7, 9}, 4);
    expect(7, 5 + N_EXPERT);
}

static void x5_bad_numbers(void **state) {
    (void)state;
    bt_error err = {0};
    open_slots((uint32_t[]){2, 2, 2}, BT_READER_AUTO);
    assert_int_equal(bt_experts_request(f.experts, 0, (uint32_t[]){0, 1, 2}, 3, 0, &err), BT_E_ARG);
    assert_string_equal(err.code, "expert_slots");
    bt_experts *other = NULL;
    for (uint32_t n = 0; n <= N_EXPERT + 1; n += N_EXPERT + 1)
        assert_int_equal(bt_experts_open(f.account, f.reader, &f.k.facts, (uint32_t[]){2, n, 2}, false, &other, &err),
                         BT_E_ARG);
    assert_string_equal(err.code, "expert_slots");
}

/* Many requests of all sizes, against a plain model of the slots. */
typedef struct model {
    uint32_t expert[N_EXPERT];
    uint64_t used[N_EXPERT];
    uint32_t n;
} model;

static uint32_t find(const model *m, uint32_t expert) {
    uint32_t i = 0;
    while (i < m->n && m->expert[i] != expert)
        i++;
    return i;
}

static uint32_t serve(model *m, uint32_t n_slots, const uint32_t *wanted, uint32_t n, uint64_t now) {
    uint32_t hits = 0;
    for (uint32_t i = 0; i < n; i++)
        if (find(m, wanted[i]) < m->n) {
            m->used[find(m, wanted[i])] = now;
            hits++;
        }
    for (uint32_t i = 0; i < n; i++) {
        if (find(m, wanted[i]) < m->n) continue;
        uint32_t at = m->n;
        if (m->n < n_slots)
            m->n++;
        else {
            at = N_EXPERT;
            for (uint32_t k = 0; k < m->n; k++)
                if (m->used[k] != now && (at == N_EXPERT || m->used[k] < m->used[at])) at = k;
        }
        m->expert[at] = wanted[i];
        m->used[at] = now;
    }
    return hits;
}

static uint32_t draw(uint64_t *seed, uint32_t n_most, uint32_t wanted[N_EXPERT]) {
    uint32_t all[N_EXPERT], n = 1 + (uint32_t)kit_below(seed, n_most);
    for (uint32_t i = 0; i < N_EXPERT; i++)
        all[i] = i;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = i + (uint32_t)kit_below(seed, N_EXPERT - i);
        wanted[i] = all[k];
        all[k] = all[i];
    }
    return n;
}

static void x6_many_requests(bt_reader_kind kind) {
    static const uint32_t n_slots[] = {5, 16, 3};
    uint64_t seed = 5, hits = 0, misses = 0;
    model models[N_BLOCKS] = {0};
    open_slots(n_slots, kind);
    for (uint32_t i = 0; i < 600; i++) {
        uint32_t wanted[N_EXPERT], block = (uint32_t)kit_below(&seed, N_BLOCKS);
        uint32_t n = draw(&seed, n_slots[block], wanted);
        get(block, wanted, n);
        uint32_t there = serve(&models[block], n_slots[block], wanted, n, i + 1);
        hits += there;
        misses += n - there;
    }
    expect(hits, misses);
    uint64_t slice_sum = slices[0] + slices[1] + slices[2];
    assert_int_equal(stats().read_bytes, misses * slice_sum);
}

static void x6_uring(void **state) {
    (void)state;
    x6_many_requests(BT_READER_AUTO);
}

static void x6_pread(void **state) {
    (void)state;
    x6_many_requests(BT_READER_PREAD);
}

/* A request that is given up is no harm: only what was read completely is there. */
static void a_request_that_nobody_waits_for(void **state) {
    (void)state;
    open_slots((uint32_t[]){4, 4, 4}, BT_READER_AUTO);
    assert_int_equal(bt_experts_request(f.experts, 0, (uint32_t[]){0, 1, 2, 3}, 4, 0, NULL), BT_OK);
    assert_int_equal(bt_experts_wait(f.experts, 2, NULL), BT_OK);
    assert_int_equal(bt_experts_request(f.experts, 1, (uint32_t[]){0, 1, 2, 3}, 4, 0, NULL), BT_OK);
    get(0, (uint32_t[]){3, 2, 1, 0}, 4);
    expect(0, 12);
    get(0, (uint32_t[]){3, 2, 1, 0}, 4);
    expect(4, 12);
}

/* ---- guesses ----------------------------------------------------------------------------------------------------- */

static void expect_guesses(uint64_t guesses, uint64_t used) {
    assert_int_equal(stats().guesses, guesses);
    assert_int_equal(stats().guesses_used, used);
}

/* A right guess is read once, a wrong one is there for the next time. */
static void guesses_are_read_once(bt_reader_kind kind) {
    open_slots((uint32_t[]){8, 8, 8}, kind);
    uint64_t slice_sum = slices[0] + slices[1] + slices[2];
    get(0, (uint32_t[]){0, 1, 2, 3}, 4);
    bt_experts_guess(f.experts, 1, (uint32_t[]){5, 6}, 2);
    get(1, (uint32_t[]){4, 5, 7, 8}, 4);
    expect(0, 7);
    expect_guesses(2, 1);
    assert_int_equal(stats().read_bytes, 8 * slice_sum); /* the wrong one was not waited for */
    bt_experts_guess(f.experts, 2, (uint32_t[]){9}, 1);
    assert_int_equal(stats().read_bytes, 9 * slice_sum); /* before others are guessed it is */
    get(2, (uint32_t[]){9}, 1);
    get(1, (uint32_t[]){6, 5}, 2);
    expect(2, 7);
    expect_guesses(3, 2);
    bt_experts_guess(f.experts, 2, (uint32_t[]){9, 10}, 2); /* one of them is there */
    expect_guesses(4, 2);
    get(2, (uint32_t[]){9, 10}, 2);
    expect(3, 7);
    expect_guesses(4, 3);
}

static void guesses_uring(void **state) {
    (void)state;
    guesses_are_read_once(BT_READER_AUTO);
}

static void guesses_pread(void **state) {
    (void)state;
    guesses_are_read_once(BT_READER_PREAD);
}

/* What is being read into is nobody else's, whatever is asked for meanwhile. */
static void guesses_keep_their_slots(void **state) {
    (void)state;
    open_slots((uint32_t[]){8, 6, 8}, BT_READER_AUTO);
    get(0, (uint32_t[]){0}, 1);
    bt_experts_guess(f.experts, 1, (uint32_t[]){14, 15}, 2);
    get(1, (uint32_t[]){0, 1, 2, 3}, 4);
    get(1, (uint32_t[]){4, 5, 6, 7}, 4);
    get(1, (uint32_t[]){14, 15}, 2);
    expect_guesses(2, 2);
    get(0, (uint32_t[]){0}, 1);
    bt_experts_guess(f.experts, 1, (uint32_t[]){12, 13}, 2);
    get(1, (uint32_t[]){0, 1, 2, 3, 4, 5}, 6); /* needs their slots: they are waited for first, and go */
    expect_guesses(4, 2);
    take_turns(1, (uint32_t[]){0, 1, 2, 3, 4, 5, 6, 7, 8}, 9);
    get(0, (uint32_t[]){0}, 1);
    bt_experts_guess(f.experts, 1, (uint32_t[]){12, 13}, 2);
    take_turns(1, (uint32_t[]){0, 1, 12, 3, 4, 5, 6, 7, 8}, 9);
}

/* Where there is no room to spare, or no sense, nothing is guessed. */
static void guesses_need_room(void **state) {
    (void)state;
    open_slots((uint32_t[]){5, 5, 6}, BT_READER_AUTO);
    get(0, (uint32_t[]){0}, 1);
    bt_experts_guess(f.experts, 0, (uint32_t[]){1}, 1); /* the block that is computed */
    bt_experts_guess(f.experts, 1, (uint32_t[]){1, 2}, 2);
    expect_guesses(0, 0);
    bt_experts_guess(f.experts, 1, (uint32_t[]){1}, 1);
    expect_guesses(1, 0);
    close_slots(state);
    shared = true;
    open_slots((uint32_t[]){8, 8, 8}, BT_READER_AUTO);
    get(0, (uint32_t[]){0}, 1);
    bt_experts_guess(f.experts, 1, (uint32_t[]){1}, 1);
    expect_guesses(0, 0);
}

/* ---- more than there are slots ----------------------------------------------------------------------------------- */

static void take_turns(uint32_t block, const uint32_t *wanted, uint32_t n) {
    uint32_t order[N_EXPERT];
    bool seen[N_EXPERT] = {false};
    assert_int_equal(bt_experts_request_in_turn(f.experts, block, wanted, n, order, NULL), BT_OK);
    for (uint32_t p = 0; p < 3; p++) {
        for (uint32_t i = 0; i < n; i++) {
            void *slice = NULL;
            assert_int_equal(bt_experts_turn(f.experts, p, i, &slice, NULL), BT_OK);
            assert_memory_equal(slice, truth(block, p, order[i]), slices[p]);
            seen[order[i]] = true;
        }
    }
    for (uint32_t i = 0; i < n; i++)
        assert_true(seen[wanted[i]]);
}

static void each_is_read_once_in_turn(void **state) {
    (void)state;
    uint32_t all[N_EXPERT];
    for (uint32_t i = 0; i < N_EXPERT; i++)
        all[i] = N_EXPERT - 1 - i;
    open_slots((uint32_t[]){2, 5, 15}, BT_READER_AUTO);
    for (uint32_t b = 0; b < N_BLOCKS; b++) {
        uint64_t before = stats().misses;
        take_turns(b, all, N_EXPERT);
        assert_int_equal(stats().misses - before, N_EXPERT);
    }
    assert_int_equal(stats().read_bytes, (uint64_t)N_BLOCKS * N_EXPERT * (slices[0] + slices[1] + slices[2]));
    /* the last ones are there, as wholes, and are the first of the next time */
    take_turns(1, all, N_EXPERT);
    expect(5, 4 * N_EXPERT - 5);
    get(2, (uint32_t[]){1, 2, 3}, 3);
    expect(8, 4 * N_EXPERT - 5);
}

/* Turns and requests mixed, given up now and then: the bytes are right whatever came before. */
static void turns_and_requests_mixed(bt_reader_kind kind) {
    static const uint32_t n_slots[] = {2, 6, 11};
    uint64_t seed = 23;
    open_slots(n_slots, kind);
    for (uint32_t i = 0; i < 500; i++) {
        uint32_t wanted[N_EXPERT], order[N_EXPERT], block = (uint32_t)kit_below(&seed, N_BLOCKS);
        uint32_t n = draw(&seed, N_EXPERT, wanted);
        bool fits = n <= n_slots[block];
        if (kit_below(&seed, 4) == 0) { /* begun and left */
            void *slice = NULL;
            bt_status status = fits ? bt_experts_request(f.experts, block, wanted, n, 0, NULL)
                                    : bt_experts_request_in_turn(f.experts, block, wanted, n, order, NULL);
            assert_int_equal(status, BT_OK);
            uint32_t n_turns = fits ? 0 : (uint32_t)kit_below(&seed, n);
            for (uint32_t k = 0; k < n_turns; k++)
                assert_int_equal(bt_experts_turn(f.experts, 1, k, &slice, NULL), BT_OK);
        } else if (fits)
            get(block, wanted, n);
        else
            take_turns(block, wanted, n);
    }
}

static void mixed_uring(void **state) {
    (void)state;
    turns_and_requests_mixed(BT_READER_AUTO);
}

static void mixed_pread(void **state) {
    (void)state;
    turns_and_requests_mixed(BT_READER_PREAD);
}

/* Blocks on top of each other: as long as the same one asks it keeps what it has, and the bytes are always right. */
static void shared_slots(void **state) {
    shared = true;
    turns_and_requests_mixed(BT_READER_AUTO);
    assert_int_equal(close_slots(state), 0);
    shared = true;
    open_slots((uint32_t[]){4, 4, 4}, BT_READER_AUTO);
    assert_ptr_equal(bt_experts_base(f.experts, 0), bt_experts_base(f.experts, 2));
    get(0, (uint32_t[]){0, 1, 2, 3}, 4);
    get(0, (uint32_t[]){3, 1}, 2);
    expect(2, 4);
    get(1, (uint32_t[]){0, 1, 2, 3}, 4);
    get(0, (uint32_t[]){3, 1}, 2);
    expect(2, 10);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static bool stop_after(uint64_t done_bytes, void *user) {
    return done_bytes < *(const uint64_t *)user;
}

static void x8_all_at_once(void **state) {
    (void)state;
    bt_error err = {0};
    open_slots((uint32_t[]){N_EXPERT, N_EXPERT, 2}, BT_READER_AUTO);
    assert_int_equal(bt_experts_read_all(f.experts, 0, NULL, NULL, NULL), BT_OK);
    for (uint32_t i = 0; i < N_EXPERT; i++) {
        assert_int_equal(bt_experts_slot(f.experts, 0, i), i);
        for (uint32_t p = 0; p < 3; p++)
            assert_true(is_right(0, p, i));
    }
    assert_int_equal(bt_experts_read_all(f.experts, 2, NULL, NULL, &err), BT_E_ARG);
    uint64_t enough = slices[0] * 3;
    assert_int_equal(bt_experts_read_all(f.experts, 1, stop_after, &enough, &err), BT_E_CANCELLED);
    get(0, (uint32_t[]){0, 15, 7}, 3);
    expect(3, 0);
    get(1, (uint32_t[]){0, 15, 7}, 3);
    expect(3, 3);
}

/* ---- which tensors ----------------------------------------------------------------------------------------------- */

static void which_tensors_can_be_split(void **state) {
    (void)state;
    const bt_facts facts = {.n_expert = 8}, dense = {.n_expert = 0};
    bt_tensor t = {
        .name = "blk.3.ffn_down_exps.weight", .n_dims = 3, .ne = {64, 32, 8, 1}, .bytes = 8 * 2048, .block = 3};
    assert_true(bt_experts_can_split(&facts, &t));
    assert_false(bt_experts_can_split(&dense, &t));
    t.name = "blk.3.ffn_gate_up_exps.weight";
    assert_true(bt_experts_can_split(&facts, &t));
    static const char *const others[] = {"blk.3.ffn_down_exps.bias", "blk.3.ffn_down_shexp.weight",
                                         "blk.3.ffn_down.weight", "blk.3.ffn_down_chexps.weight",
                                         "blk.3.x.ffn_down_exps.weight"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        t.name = others[i];
        assert_false(bt_experts_can_split(&facts, &t));
    }
    t.name = "blk.3.ffn_down_exps.weight";
    t.ne[2] = 7;
    assert_false(bt_experts_can_split(&facts, &t));
    t.ne[2] = 8;
    t.bytes++; /* a remainder */
    assert_false(bt_experts_can_split(&facts, &t));
    t.bytes--;
    t.n_dims = 2;
    assert_false(bt_experts_can_split(&facts, &t));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(x1_the_one_used_longest_ago_goes, close_slots),
        cmocka_unit_test_teardown(x2_what_was_asked_for_stays, close_slots),
        cmocka_unit_test_teardown(x5_bad_numbers, close_slots),
        cmocka_unit_test_teardown(x6_uring, close_slots),
        cmocka_unit_test_teardown(x6_pread, close_slots),
        cmocka_unit_test_teardown(a_request_that_nobody_waits_for, close_slots),
        cmocka_unit_test_teardown(guesses_uring, close_slots),
        cmocka_unit_test_teardown(guesses_pread, close_slots),
        cmocka_unit_test_teardown(guesses_keep_their_slots, close_slots),
        cmocka_unit_test_teardown(guesses_need_room, close_slots),
        cmocka_unit_test_teardown(each_is_read_once_in_turn, close_slots),
        cmocka_unit_test_teardown(mixed_uring, close_slots),
        cmocka_unit_test_teardown(mixed_pread, close_slots),
        cmocka_unit_test_teardown(shared_slots, close_slots),
        cmocka_unit_test_teardown(x8_all_at_once, close_slots),
        cmocka_unit_test(which_tensors_can_be_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
