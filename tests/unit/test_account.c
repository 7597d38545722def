/* SPDX-License-Identifier: MIT
 * test_account.c: caps, the sum, refusals with their numbers, and what is measured. */
#include "base/fault.h"
#include "base/heap.h"
#include "base/os.h"
#include "memory/account.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

static bt_account *open_account(uint64_t kv_cap, uint64_t budget) {
    uint64_t caps[BT_LINE_COUNT];
    for (unsigned i = 0; i < BT_LINE_COUNT; i++) {
        caps[i] = UINT64_MAX;
    }
    caps[BT_LINE_KV] = kv_cap;
    bt_account *account = NULL;
    assert_int_equal(bt_account_open(caps, budget, &account, NULL), BT_OK);
    return account;
}

static bt_mapping *map(bt_account *account, bt_line line, uint64_t bytes) {
    bt_mapping *mapping = NULL;
    assert_int_equal(bt_account_map(account, line, bytes, &mapping, NULL), BT_OK);
    return mapping;
}

static bt_line_use use_of(bt_account *account, bt_line line) {
    bt_line_use use;
    bt_account_use(account, line, &use);
    return use;
}

static void test_reserving_is_recorded_not_charged(void **state) {
    (void)state;
    bt_account *account = open_account(0, 0);
    bt_mapping *a = map(account, BT_LINE_KV, 100 * MIB + 1);
    bt_mapping *b = map(account, BT_LINE_KV, 0);
    assert_int_equal(a->bytes, 100 * MIB + 4096);
    assert_int_equal(a->asked_bytes, 100 * MIB + 1);
    assert_int_equal(b->bytes, 4096);
    assert_int_equal((uintptr_t)a->base % 4096, 0);
    bt_line_use use = use_of(account, BT_LINE_KV);
    assert_int_equal(use.reserved_bytes, 100 * MIB + 8192);
    assert_int_equal(use.committed_bytes, 0);
    assert_int_equal(bt_account_committed_bytes(account), 0);
    bt_account_unmap(account, b);
    assert_int_equal(use_of(account, BT_LINE_KV).reserved_bytes, 100 * MIB + 4096);
    bt_account_unmap(account, a);
    bt_account_unmap(account, NULL);
    assert_true(bt_account_close(account));
}

static void test_line_cap(void **state) {
    (void)state;
    bt_account *account = open_account(200 * MIB, UINT64_MAX);
    bt_mapping *m = map(account, BT_LINE_KV, 400 * MIB);
    assert_int_equal(bt_account_commit(account, m, 150 * MIB, NULL), BT_OK);
    bt_error err = {0};
    assert_int_equal(bt_account_commit(account, m, 50 * MIB + 1, &err), BT_E_BUDGET);
    assert_string_equal(err.code, "ram_budget");
    assert_int_equal(err.need, 50 * MIB + 1);
    assert_int_equal(err.have, 50 * MIB);
    assert_int_equal(err.measure, BT_MEASURE_BYTES);
    assert_string_equal(err.text,
                        "host/kv needs 50.0 MiB, 50.0 MiB left of 200.0 MiB (planned for this line): short by "
                        "0.000 MiB; 150.0 MiB are committed on it");
    assert_int_equal(m->committed_bytes, 150 * MIB);
    assert_int_equal(bt_account_commit(account, m, 50 * MIB, NULL), BT_OK); /* equality fits */
    assert_int_equal(bt_account_commit(account, m, 1, NULL), BT_E_BUDGET);
    bt_account_release(account, m, 200 * MIB);
    assert_int_equal(m->committed_bytes, 0);
    assert_int_equal(use_of(account, BT_LINE_KV).peak_committed_bytes, 200 * MIB);
    bt_account_unmap(account, m);
    assert_true(bt_account_close(account));
}

static void test_budget_of_the_sum(void **state) {
    (void)state;
    bt_account *account = open_account(UINT64_MAX, 512 * MIB);
    bt_mapping *pins = map(account, BT_LINE_PINNED, 300 * MIB);
    bt_mapping *compute = map(account, BT_LINE_COMPUTE, 200 * MIB);
    bt_mapping *kv = map(account, BT_LINE_KV, 192 * MIB);
    assert_int_equal(bt_account_commit(account, pins, 300 * MIB, NULL), BT_OK);
    assert_int_equal(bt_account_commit(account, compute, 129655374, NULL), BT_OK); /* 123.65 MiB */
    bt_error err = {0};
    assert_int_equal(bt_account_commit(account, kv, 192 * MIB, &err), BT_E_BUDGET);
    assert_string_equal(err.code, "ram_budget");
    assert_int_equal(err.have, 512 * MIB - 300 * MIB - 129655374);
    assert_string_equal(err.text,
                        "host/kv needs 192.0 MiB, 88.4 MiB left of 512.0 MiB (ram budget): short by 103.6 MiB; "
                        "423.6 MiB are committed, 300.0 MiB of them weights");
    assert_int_equal(bt_account_committed_bytes(account), 300 * MIB + 129655374);
    assert_int_equal(bt_account_weights_bytes(account), 300 * MIB);
    bt_account_unmap(account, pins); /* gives its charge back */
    assert_int_equal(bt_account_committed_bytes(account), 129655374);
    assert_int_equal(bt_account_commit(account, kv, 192 * MIB, NULL), BT_OK);
    bt_account_unmap(account, kv);
    bt_account_unmap(account, compute);
    assert_int_equal(bt_account_committed_bytes(account), 0);
    assert_true(bt_account_close(account));
}

static void test_commit_stays_in_its_mapping(void **state) {
    (void)state;
    bt_account *account = open_account(UINT64_MAX, UINT64_MAX);
    bt_mapping *m = map(account, BT_LINE_KV, 8192);
    bt_error err = {0};
    assert_int_equal(bt_account_commit(account, m, 8193, &err), BT_E_LIMIT);
    assert_string_equal(err.code, "commit_bounds");
    assert_int_equal(bt_account_commit(account, m, UINT64_MAX, NULL), BT_E_LIMIT);
    assert_int_equal(bt_account_commit(account, m, 8192, NULL), BT_OK);
    assert_int_equal(bt_account_commit(account, m, 1, NULL), BT_E_LIMIT);
    bt_account_release(account, m, UINT64_MAX); /* never below zero */
    assert_int_equal(bt_account_committed_bytes(account), 0);
    bt_account_unmap(account, m);
    assert_true(bt_account_close(account));
}

static void test_relabel_moves_the_charge(void **state) {
    (void)state;
    bt_account *account = open_account(10 * MIB, 12 * MIB);
    bt_mapping *m = map(account, BT_LINE_COMPUTE, 12 * MIB);
    assert_int_equal(bt_account_commit(account, m, 12 * MIB, NULL), BT_OK);
    bt_error err = {0};
    assert_int_equal(bt_account_relabel(account, m, BT_LINE_KV, &err), BT_E_BUDGET);
    assert_int_equal(err.have, 10 * MIB);
    assert_int_equal(m->line, BT_LINE_COMPUTE);
    bt_account_release(account, m, 2 * MIB);
    assert_int_equal(bt_account_relabel(account, m, BT_LINE_KV, NULL), BT_OK);
    assert_int_equal(m->line, BT_LINE_KV);
    assert_int_equal(use_of(account, BT_LINE_KV).committed_bytes, 10 * MIB);
    assert_int_equal(use_of(account, BT_LINE_KV).reserved_bytes, 12 * MIB);
    assert_int_equal(use_of(account, BT_LINE_COMPUTE).committed_bytes, 0);
    assert_int_equal(use_of(account, BT_LINE_COMPUTE).reserved_bytes, 0);
    /* An overdrawn sum does not keep a charge on the wrong line. */
    bt_account_note(account, BT_LINE_BASE, 50 * MIB);
    assert_int_equal(bt_account_relabel(account, m, BT_LINE_LOGITS, NULL), BT_OK);
    assert_int_equal(bt_account_committed_bytes(account), 60 * MIB);
    bt_account_unmap(account, m);
    assert_true(bt_account_close(account));
}

static void test_notes_count_in_the_sum(void **state) {
    (void)state;
    bt_account *account = open_account(UINT64_MAX, 100 * MIB);
    bt_account_note(account, BT_LINE_BASE, 40 * MIB);
    bt_account_note(account, BT_LINE_BASE, 30 * MIB);
    bt_line_use use = use_of(account, BT_LINE_BASE);
    assert_int_equal(use.resident_bytes, 30 * MIB);
    assert_int_equal(use.peak_resident_bytes, 40 * MIB);
    assert_int_equal(use.committed_bytes, 30 * MIB);
    assert_int_equal(use.peak_committed_bytes, 40 * MIB);
    bt_mapping *m = map(account, BT_LINE_KV, 100 * MIB);
    bt_error err = {0};
    assert_int_equal(bt_account_commit(account, m, 70 * MIB + 1, &err), BT_E_BUDGET);
    assert_int_equal(err.have, 70 * MIB);
    assert_int_equal(bt_account_commit(account, m, 70 * MIB, NULL), BT_OK);
    bt_account_note(account, BT_LINE_VOCAB, UINT64_MAX); /* nonsense refuses, and does not wrap */
    assert_int_equal(bt_account_committed_bytes(account), UINT64_MAX);
    bt_account_release(account, m, 70 * MIB);
    assert_int_equal(bt_account_commit(account, m, 1, NULL), BT_E_BUDGET);
    bt_account_note(account, BT_LINE_VOCAB, 0);
    assert_int_equal(bt_account_commit(account, m, 70 * MIB, NULL), BT_OK);
    bt_account_unmap(account, m);
    assert_true(bt_account_close(account));
}

static void test_measured_pages(void **state) {
    (void)state;
    bt_account *account = open_account(UINT64_MAX, UINT64_MAX);
    bt_mapping *m = map(account, BT_LINE_KV, 4 * MIB);
    assert_int_equal(bt_os_no_huge_pages(m->base, m->bytes), 0);
    assert_int_equal(bt_account_commit(account, m, 4 * MIB, NULL), BT_OK);
    bt_account_measure(account);
    assert_int_equal(use_of(account, BT_LINE_KV).resident_bytes, 0); /* committed is not touched */
    memset(m->base, 1, 5 * 4096);
    bt_account_measure(account);
    assert_int_equal(use_of(account, BT_LINE_KV).resident_bytes, 5 * 4096);
    assert_int_equal(bt_os_drop(m->base, m->bytes), 0);
    bt_account_measure(account);
    assert_int_equal(use_of(account, BT_LINE_KV).resident_bytes, 0);
    assert_int_equal(use_of(account, BT_LINE_KV).peak_resident_bytes, 5 * 4096);
    bt_account_unmap(account, m);
    assert_true(bt_account_close(account));
}

static void test_close_tells_a_leak(void **state) {
    (void)state;
    uint64_t before = bt_heap_live_blocks();
    bt_account *account = open_account(UINT64_MAX, UINT64_MAX);
    bt_mapping *a = map(account, BT_LINE_KV, 4096);
    (void)map(account, BT_LINE_RING, 4096);
    bt_account_unmap(account, a);
    assert_false(bt_account_close(account));
    assert_int_equal(bt_heap_live_blocks(), before);
    assert_true(bt_account_close(NULL));
}

static void test_impossible_sizes(void **state) {
    (void)state;
    bt_account *account = open_account(UINT64_MAX, UINT64_MAX);
    bt_mapping *m = NULL;
    bt_error err = {0};
    assert_int_equal(bt_account_map(account, BT_LINE_KV, UINT64_MAX, &m, &err), BT_E_ARG);
    assert_string_equal(err.code, "mapping_size");
    assert_int_equal(bt_account_map(account, BT_LINE_KV, UINT64_MAX - 8191, &m, &err), BT_E_NOMEM);
    assert_string_equal(err.code, "reserve_failed");
    assert_int_equal(bt_account_map(account, BT_LINE_COUNT, 1, &m, NULL), BT_E_ARG);
    assert_null(m);
    assert_true(bt_account_close(account));
}

/* ---- threads ---- */

typedef struct worker {
    bt_account *account;
    uint32_t n_refused;
} worker;

static void *churn(void *user) {
    worker *w = user;
    for (uint32_t i = 0; i < 2000; i++) {
        bt_mapping *m = NULL;
        if (bt_account_map(w->account, BT_LINE_KV, 3 * 4096, &m, NULL) != BT_OK) return NULL;
        if (bt_account_commit(w->account, m, 3 * 4096, NULL) != BT_OK) w->n_refused++;
        bt_account_unmap(w->account, m);
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    bt_account *account = open_account(2 * 3 * 4096, UINT64_MAX); /* room for two of four at a time */
    worker workers[4];
    pthread_t threads[4];
    for (uint32_t i = 0; i < 4; i++) {
        workers[i] = (worker){.account = account};
        assert_int_equal(pthread_create(&threads[i], NULL, churn, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(bt_account_committed_bytes(account), 0);
    assert_true(use_of(account, BT_LINE_KV).peak_committed_bytes <= 2 * 3 * 4096);
    assert_true(bt_account_close(account));
}

static bt_lending lending_of(bt_account *account) {
    bt_lending lending;
    bt_account_lending_read(account, &lending);
    return lending;
}

static bt_mapping *map_borrower(bt_account *account, uint64_t bytes) {
    bt_mapping *mapping = NULL;
    assert_int_equal(bt_account_map_borrower(account, BT_LINE_PINNED, bytes, &mapping, NULL), BT_OK);
    return mapping;
}

/* docs/design.md S5: what is charged in full and not touched may be held by another, who goes first. */
/* The smaller of what the line and the sum have left: exactly that can be committed, and not a byte more. */
static void check_left(bt_account *account, bt_mapping *mapping, uint64_t bytes) {
    assert_int_equal(bt_account_left_bytes(account, mapping->line), bytes);
    assert_int_equal(bt_account_commit(account, mapping, bytes + 1, NULL), BT_E_BUDGET);
    assert_int_equal(bt_account_commit(account, mapping, bytes, NULL), BT_OK);
    assert_int_equal(bt_account_left_bytes(account, mapping->line), 0);
    bt_account_release(account, mapping, bytes);
    assert_int_equal(bt_account_left_bytes(account, mapping->line), bytes);
}

static void test_what_is_left(void **state) {
    (void)state;
    bt_account *account = open_account(10 * MIB, 16 * MIB);
    bt_mapping *kv = map(account, BT_LINE_KV, 20 * MIB);
    bt_mapping *compute = map(account, BT_LINE_COMPUTE, 20 * MIB);
    check_left(account, kv, 10 * MIB);      /* the line's */
    check_left(account, compute, 16 * MIB); /* the sum's */
    assert_int_equal(bt_account_commit(account, kv, 3 * MIB, NULL), BT_OK);
    check_left(account, kv, 7 * MIB);
    check_left(account, compute, 13 * MIB);
    assert_int_equal(bt_account_commit(account, compute, 11 * MIB, NULL), BT_OK);
    check_left(account, kv, 2 * MIB); /* the sum is the smaller one now */
    bt_account_note(account, BT_LINE_BASE, MIB);
    check_left(account, kv, MIB);
    bt_account_note(account, BT_LINE_BASE, 5 * MIB); /* over: nothing is left, and nothing wraps */
    assert_int_equal(bt_account_left_bytes(account, BT_LINE_KV), 0);
    assert_int_equal(bt_account_left_bytes(account, BT_LINE_COMPUTE), 0);
    bt_account_unmap(account, compute);
    bt_account_unmap(account, kv);
    assert_true(bt_account_close(account));
}

/* What a lender has lent, or may ask for again, is not left for another mapping of its line, nor of any. */
static void test_what_lenders_leave(void **state) {
    (void)state;
    bt_account *account = open_account(10 * MIB, 16 * MIB);
    bt_mapping *kv = map(account, BT_LINE_KV, 8 * MIB);
    bt_mapping *more = map(account, BT_LINE_KV, 20 * MIB);
    bt_mapping *compute = map(account, BT_LINE_COMPUTE, 20 * MIB);
    bt_mapping *pins = map_borrower(account, 20 * MIB);
    assert_int_equal(bt_account_commit(account, kv, 8 * MIB, NULL), BT_OK);
    bt_account_lend(account, kv);
    check_left(account, more, 2 * MIB);
    check_left(account, compute, 8 * MIB);
    assert_int_equal(bt_account_commit(account, kv, 3 * MIB, NULL), BT_OK);
    assert_int_equal(bt_account_commit(account, pins, 5 * MIB, NULL), BT_OK);
    check_left(account, more, 2 * MIB); /* the same, whoever holds the 8 */
    check_left(account, compute, 8 * MIB);
    bt_account_release(account, pins, 5 * MIB);
    assert_true(bt_account_lend_end(account, kv)); /* 3 stay its own */
    check_left(account, more, 7 * MIB);
    check_left(account, compute, 13 * MIB);
    bt_account_unmap(account, pins);
    bt_account_unmap(account, compute);
    bt_account_unmap(account, more);
    bt_account_unmap(account, kv);
    assert_true(bt_account_close(account));
}

/* A mapping that was charged nothing and lends nothing is charged page by page, up to its line, and no further. */
static void test_charging_by_touch(void **state) {
    (void)state;
    bt_account *account = open_account(MIB, UINT64_MAX);
    bt_mapping *kv = map(account, BT_LINE_KV, 100 * MIB);
    bt_mapping *pins = map_borrower(account, MIB);
    bt_account_lend(account, kv);
    assert_int_equal(kv->lends_bytes, 0);
    assert_int_equal(lending_of(account).lendable_bytes, 0);
    assert_int_equal(bt_account_commit(account, pins, 1, NULL), BT_E_BUDGET); /* it lends nothing */
    for (uint64_t page = 0; page < MIB / 4096; page++)
        assert_int_equal(bt_account_commit(account, kv, 4096, NULL), BT_OK);
    bt_error err = {0};
    assert_int_equal(bt_account_commit(account, kv, 4096, &err), BT_E_BUDGET);
    assert_int_equal(err.have, 0);
    bt_account_release(account, kv, 2 * 4096);
    assert_int_equal(lending_of(account).lendable_bytes, 0);
    assert_int_equal(bt_account_left_bytes(account, BT_LINE_KV), 2 * 4096);
    bt_account_unmap(account, pins);
    bt_account_unmap(account, kv);
    assert_true(bt_account_close(account));
}

static void test_lending(void **state) {
    (void)state;
    bt_account *account = open_account(10 * MIB, 10 * MIB);
    bt_mapping *kv = map(account, BT_LINE_KV, 10 * MIB);
    bt_mapping *pins = map_borrower(account, 20 * MIB);
    bt_error err = {0};
    assert_int_equal(bt_account_commit(account, pins, MIB, &err), BT_E_BUDGET); /* nothing is lent yet */
    assert_string_equal(err.code, "ram_budget");
    assert_int_equal(bt_account_commit(account, kv, 10 * MIB, NULL), BT_OK);
    bt_account_lend(account, kv);
    assert_int_equal(lending_of(account).lendable_bytes, 10 * MIB);
    assert_int_equal(bt_account_committed_bytes(account), 0);
    assert_int_equal(use_of(account, BT_LINE_KV).peak_committed_bytes, 10 * MIB);

    assert_int_equal(bt_account_commit(account, pins, 7 * MIB, NULL), BT_OK);
    assert_int_equal(use_of(account, BT_LINE_PINNED).committed_bytes, 0); /* on no line's cap */
    assert_int_equal(bt_account_committed_bytes(account), 7 * MIB);
    assert_int_equal(bt_account_commit(account, kv, 3 * MIB, NULL), BT_OK);
    assert_int_equal(lending_of(account).lendable_bytes, 7 * MIB);
    assert_int_equal(bt_account_commit(account, kv, 1, &err), BT_E_BUDGET); /* the borrower has not released */
    assert_int_equal(err.need, 1);
    assert_int_equal(err.have, 0);
    assert_int_equal(bt_account_commit(account, pins, 1, NULL), BT_E_BUDGET);
    bt_account_release(account, pins, 2 * MIB);
    assert_int_equal(bt_account_commit(account, kv, 2 * MIB, NULL), BT_OK);
    assert_int_equal(bt_account_committed_bytes(account), 10 * MIB); /* full at every step, never over */
    assert_int_equal(lending_of(account).peak_lent_bytes, 7 * MIB);

    bt_account_release(account, kv, 5 * MIB); /* a cleared cache lends again */
    assert_int_equal(lending_of(account).lendable_bytes, 10 * MIB);
    assert_false(bt_account_lend_end(account, kv));
    bt_account_release(account, pins, 5 * MIB);
    assert_true(bt_account_lend_end(account, kv));
    assert_int_equal(lending_of(account).lendable_bytes, 0);
    assert_int_equal(bt_account_commit(account, kv, 10 * MIB, NULL), BT_OK); /* an ordinary mapping again */
    bt_account_unmap(account, pins);
    bt_account_unmap(account, kv);
    assert_true(bt_account_close(account));
}

/* What is lendable is promised to its lender: nobody else is given it, on the line or of the budget. */
static void test_lendable_is_kept_for_its_lender(void **state) {
    (void)state;
    bt_account *account = open_account(10 * MIB, 12 * MIB);
    bt_mapping *kv = map(account, BT_LINE_KV, 8 * MIB);
    bt_mapping *other_kv = map(account, BT_LINE_KV, 8 * MIB);
    bt_mapping *compute = map(account, BT_LINE_COMPUTE, 8 * MIB);
    bt_error err = {0};
    assert_int_equal(bt_account_commit(account, kv, 8 * MIB, NULL), BT_OK);
    bt_account_lend(account, kv);
    assert_int_equal(bt_account_commit(account, other_kv, 2 * MIB + 1, &err), BT_E_BUDGET); /* the line's cap */
    assert_int_equal(err.have, 2 * MIB);
    assert_int_equal(bt_account_commit(account, other_kv, 2 * MIB, NULL), BT_OK);
    assert_int_equal(bt_account_commit(account, compute, 2 * MIB + 1, &err), BT_E_BUDGET); /* the budget */
    assert_int_equal(err.have, 2 * MIB);
    assert_int_equal(bt_account_commit(account, compute, 2 * MIB, NULL), BT_OK);
    assert_int_equal(bt_account_relabel(account, kv, BT_LINE_PINNED, NULL), BT_OK);
    assert_int_equal(bt_account_relabel(account, kv, BT_LINE_KV, NULL), BT_OK);
    assert_int_equal(bt_account_commit(account, kv, 8 * MIB, NULL), BT_OK);
    assert_int_equal(bt_account_committed_bytes(account), 12 * MIB);
    bt_account_unmap(account, kv);
    bt_account_unmap(account, other_kv);
    bt_account_unmap(account, compute);
    assert_true(bt_account_close(account));
}

/* A lender that is unmapped while others hold what it lent: nothing more is committed until they gave it back. */
static void test_lender_that_leaves(void **state) {
    (void)state;
    bt_account *account = open_account(10 * MIB, 10 * MIB);
    bt_mapping *kv = map(account, BT_LINE_KV, 10 * MIB);
    bt_mapping *pins = map_borrower(account, 10 * MIB);
    assert_int_equal(bt_account_commit(account, kv, 10 * MIB, NULL), BT_OK);
    bt_account_lend(account, kv);
    assert_int_equal(bt_account_commit(account, pins, 4 * MIB, NULL), BT_OK);
    bt_account_unmap(account, kv);
    assert_int_equal(lending_of(account).lendable_bytes, 0);
    assert_int_equal(bt_account_commit(account, pins, 1, NULL), BT_E_BUDGET);
    bt_account_release(account, pins, 4 * MIB);
    assert_int_equal(bt_account_committed_bytes(account), 0);
    bt_account_unmap(account, pins);
    assert_true(bt_account_close(account));
}

/* Borrowed pages are measured apart: no line is over its cap because of them. */
static void test_borrowed_pages_are_measured_apart(void **state) {
    (void)state;
    bt_account *account = open_account(MIB, MIB);
    bt_mapping *kv = map(account, BT_LINE_KV, MIB);
    bt_mapping *pins = map_borrower(account, MIB);
    assert_int_equal(bt_account_commit(account, kv, MIB, NULL), BT_OK);
    bt_account_lend(account, kv);
    assert_int_equal(bt_account_commit(account, pins, MIB, NULL), BT_OK);
    memset(pins->base, 1, MIB);
    bt_account_measure(account);
    assert_int_equal(use_of(account, BT_LINE_PINNED).resident_bytes, 0);
    assert_int_equal(lending_of(account).resident_bytes, MIB);
    assert_int_equal(bt_account_mapped_bytes(account), MIB);
    assert_int_equal(bt_os_drop(pins->base, MIB), 0);
    bt_account_release(account, pins, MIB);
    bt_account_measure(account);
    assert_int_equal(bt_account_mapped_bytes(account), 0);
    assert_int_equal(bt_account_peak_mapped_bytes(account), MIB);
    bt_account_unmap(account, pins);
    bt_account_unmap(account, kv);
    assert_true(bt_account_close(account));
}

static bt_lock_use locks_of(bt_account *account) {
    bt_lock_use use;
    bt_account_lock_use(account, &use);
    return use;
}

static uint64_t counted_as_locked(void) {
    bt_os_memory memory;
    bt_os_memory_read(&memory);
    assert_true(memory.locked_bytes.known);
    return memory.locked_bytes.value;
}

#define PAGE UINT64_C(4096)

/* What is charged is locked from its start on, what a lender was charged once as a whole; nothing is brought in, and
 * borrowers are left out. 64 KiB is what Linux gave before 5.16. */
static void test_locking(void **state) {
    (void)state;
    if (bt_os_may_lock(UINT64_C(65536)) != 1) skip();
    uint64_t before = counted_as_locked();
    bt_account *account = open_account(MIB, UINT64_MAX);
    bt_mapping *ring = map(account, BT_LINE_RING, 10 * PAGE);
    bt_mapping *kv = map(account, BT_LINE_KV, 4 * PAGE);
    bt_mapping *pins = map_borrower(account, 100 * MIB);
    assert_int_equal(bt_account_commit(account, ring, 2 * PAGE + 1, NULL), BT_OK);
    assert_int_equal(bt_account_commit(account, kv, 3 * PAGE, NULL), BT_OK);
    bt_account_lend(account, kv);
    assert_int_equal(bt_account_commit(account, pins, PAGE, NULL), BT_OK);
    assert_int_equal(locks_of(account).asked_bytes, 0);
    bt_account_lock(account);
    assert_int_equal(locks_of(account).asked_bytes, 6 * PAGE);
    assert_int_equal(locks_of(account).locked_bytes, 6 * PAGE);
    assert_int_equal(counted_as_locked() - before, 6 * PAGE);
    bt_account_measure(account);
    assert_int_equal(bt_account_mapped_bytes(account), 0);

    /* later charges, a mapping's rest and a new mapping: once each; a lender has all that it may touch */
    assert_int_equal(bt_account_commit(account, ring, 3 * PAGE, NULL), BT_OK);
    bt_mapping *work = map(account, BT_LINE_COMPUTE, 2 * PAGE);
    assert_int_equal(bt_account_commit(account, work, 2 * PAGE, NULL), BT_OK);
    assert_int_equal(bt_account_commit(account, kv, PAGE, NULL), BT_OK);
    assert_int_equal(bt_account_commit(account, pins, PAGE, NULL), BT_OK);
    assert_int_equal(locks_of(account).asked_bytes, 11 * PAGE);
    assert_int_equal(counted_as_locked() - before, 11 * PAGE);
    bt_account_unlock(account, work);
    bt_account_unmap(account, kv);
    assert_int_equal(locks_of(account).asked_bytes, 6 * PAGE);
    assert_int_equal(locks_of(account).locked_bytes, 6 * PAGE);
    assert_int_equal(locks_of(account).sys, 0);
    bt_account_unmap(account, pins);
    bt_account_unmap(account, work);
    bt_account_unmap(account, ring);
    assert_int_equal(counted_as_locked(), before);
    assert_true(bt_account_close(account));
}

/* Gaps of a scattered mapping are not locked: they are on no plan. */
static void test_locking_what_is_scattered(void **state) {
    (void)state;
    if (bt_os_may_lock(UINT64_C(65536)) != 1) skip();
    uint64_t before = counted_as_locked();
    bt_account *account = open_account(MIB, UINT64_MAX);
    bt_mapping *head = map(account, BT_LINE_HEAD, 100 * PAGE);
    head->scattered = true;
    assert_int_equal(bt_os_no_huge_pages(head->base, head->bytes), 0);
    assert_int_equal(bt_account_commit(account, head, 5 * PAGE, NULL), BT_OK);
    memset((uint8_t *)head->base + 10 * PAGE, 1, 2 * PAGE);
    memset((uint8_t *)head->base + 98 * PAGE, 1, 2 * PAGE);
    bt_account_lock(account);
    bt_account_lock(account); /* nothing is asked for twice */
    assert_int_equal(locks_of(account).asked_bytes, 4 * PAGE);
    assert_int_equal(counted_as_locked() - before, 4 * PAGE);
    bt_account_unmap(account, head);
    assert_true(bt_account_close(account));
}

/* Refused as a whole, and no less of the others is locked. A fault stands for the limit, which does not hold root. */
static void test_locking_is_refused(void **state) {
    (void)state;
#ifdef BT_FAULT
    if (bt_os_may_lock(UINT64_C(65536)) != 1) skip();
    bt_account *account = open_account(MIB, UINT64_MAX);
    bt_mapping *pinned = map(account, BT_LINE_PINNED, 3 * PAGE);
    bt_mapping *ring = map(account, BT_LINE_RING, 2 * PAGE); /* the newest is looked at first */
    assert_int_equal(bt_account_commit(account, ring, 2 * PAGE, NULL), BT_OK);
    assert_int_equal(bt_account_commit(account, pinned, 3 * PAGE, NULL), BT_OK);
    bt_fault_arm(0, false); /* the first call is of the pins all the same */
    bt_account_lock(account);
    assert_true(bt_fault_disarm());
    bt_account_lock(account); /* not tried again */
    assert_int_equal(locks_of(account).asked_bytes, 5 * PAGE);
    assert_int_equal(locks_of(account).locked_bytes, 2 * PAGE);
    assert_int_equal(locks_of(account).sys, ENOMEM);
    assert_int_equal(pinned->locked_bytes, 0);
    bt_account_unmap(account, ring);
    bt_account_unmap(account, pinned);
    assert_true(bt_account_close(account));
#else
    skip();
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reserving_is_recorded_not_charged),
        cmocka_unit_test(test_line_cap),
        cmocka_unit_test(test_budget_of_the_sum),
        cmocka_unit_test(test_commit_stays_in_its_mapping),
        cmocka_unit_test(test_relabel_moves_the_charge),
        cmocka_unit_test(test_notes_count_in_the_sum),
        cmocka_unit_test(test_measured_pages),
        cmocka_unit_test(test_close_tells_a_leak),
        cmocka_unit_test(test_impossible_sizes),
        cmocka_unit_test(test_what_is_left),
        cmocka_unit_test(test_what_lenders_leave),
        cmocka_unit_test(test_charging_by_touch),
        cmocka_unit_test(test_lending),
        cmocka_unit_test(test_lendable_is_kept_for_its_lender),
        cmocka_unit_test(test_lender_that_leaves),
        cmocka_unit_test(test_borrowed_pages_are_measured_apart),
        cmocka_unit_test(test_locking),
        cmocka_unit_test(test_locking_what_is_scattered),
        cmocka_unit_test(test_locking_is_refused),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests_name("account", tests, NULL, NULL);
}
