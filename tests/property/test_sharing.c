/* SPDX-License-Identifier: MIT
 * test_sharing.c: one account and one pool under several threads that do whatever may be done, each to mappings of its
 * own: never is more charged than the budget, and when all is given back nothing is charged. What locks guard, the
 * thread sanitizer sees here (tools/tsan.sh). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/heap.h"
#include "base/os.h"
#include "memory/pool.h"
#include "random.h"
#include "rounds.h"

#include <pthread.h>
#include <stdatomic.h>

#define N_THREADS 4u
#define N_ROUNDS  400u
#define N_BUFFERS 6u
#define PAGES_MAX 8u
#define PAGE      UINT64_C(65536) /* of any system that this runs on, or several of its */
#define BUDGET    (20 * PAGE)     /* less than all could want: some are refused */

static bt_account *account;
static bt_pool_buffers *pool;
static atomic_uint n_over, n_refused, n_granted;

static void look(void) {
    bt_line_use use;
    bt_lending lending;
    bt_lock_use locks;
    bt_pool_report report;
    if (bt_account_committed_bytes(account) > BUDGET) n_over++;
    if (bt_account_left_bytes(account, BT_LINE_KV) > BUDGET) n_over++;
    if (bt_account_weights_bytes(account) > BUDGET) n_over++;
    bt_account_use(account, BT_LINE_RING, &use);
    bt_account_lending_read(account, &lending);
    bt_account_lock_use(account, &locks);
    bt_pool_report_read(pool, &report);
    bt_account_measure(account);
    (void)bt_account_mapped_bytes(account);
    (void)bt_account_peak_mapped_bytes(account);
}

/* Charged, touched, partly given back and charged again, moved, lent and taken back. */
static void use_mapping(uint64_t *rng) {
    static const bt_line lines[] = {BT_LINE_KV, BT_LINE_RING, BT_LINE_PINNED, BT_LINE_COMPUTE};
    uint64_t n_pages = 1 + random_next(rng) % PAGES_MAX;
    bt_mapping *m = NULL;
    if (bt_account_map(account, lines[random_next(rng) % 4], n_pages * PAGE, &m, NULL) != BT_OK) return;
    if (bt_account_commit(account, m, n_pages * PAGE, NULL) == BT_OK) {
        n_granted++;
        for (uint64_t at = 0; at < n_pages * PAGE; at += PAGE)
            ((volatile unsigned char *)m->base)[at] = 1;
        uint64_t half = n_pages / 2 * PAGE;
        if (half > 0 && bt_os_drop((unsigned char *)m->base + n_pages * PAGE - half, half) == 0)
            bt_account_release(account, m, half);
        (void)!bt_account_relabel(account, m, lines[random_next(rng) % 4], NULL);
        if (random_next(rng) % 2 == 0 && bt_account_commit(account, m, half, NULL) == BT_OK) {
            (void)bt_os_drop(m->base, m->bytes);
            bt_account_lend(account, m);
            (void)!bt_account_commit(account, m, PAGE, NULL);
            (void)!bt_account_lend_end(account, m);
        }
    } else {
        n_refused++;
    }
    bt_account_unmap(account, m);
}

static void use_pool(uint64_t *rng) {
    bt_pool_buffer *buffer = NULL;
    if (bt_pool_take(pool, BT_LINE_KV, PAGE * (1 + random_next(rng) % 3), &buffer, NULL) != BT_OK) return;
    if (bt_account_commit(account, buffer->mapping, PAGE, NULL) == BT_OK)
        *(volatile unsigned char *)buffer->mapping->base = 1;
    bt_pool_give(pool, buffer);
}

static void *one_thread(void *user) {
    uint64_t rng = *(const uint64_t *)user;
    const uint32_t n_rounds = rounds_of(N_ROUNDS);
    for (uint32_t i = 0; i < n_rounds; i++) {
        use_mapping(&rng);
        use_pool(&rng);
        bt_account_note(account, BT_LINE_BASE, random_next(&rng) % PAGE);
        if (i % 8 == 0) look();
    }
    return NULL;
}

static void all_at_once(void **state) {
    (void)state;
    uint64_t caps[BT_LINE_COUNT];
    uint64_t seeds[N_THREADS];
    pthread_t threads[N_THREADS];
    uint64_t blocks = bt_heap_live_blocks();
    for (unsigned i = 0; i < BT_LINE_COUNT; i++)
        caps[i] = UINT64_MAX;
    assert_int_equal(bt_account_open(caps, BUDGET, &account, NULL), BT_OK);
    assert_int_equal(bt_pool_open(account, N_BUFFERS, &pool, NULL), BT_OK);
    for (uint32_t i = 0; i < N_THREADS; i++) {
        seeds[i] = i + 1;
        assert_int_equal(pthread_create(&threads[i], NULL, one_thread, &seeds[i]), 0);
    }
    for (uint32_t i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(n_over, 0);
    assert_true(n_granted > 0);
    print_message("%u granted, %u refused\n", (unsigned)n_granted, (unsigned)n_refused);
    bt_account_note(account, BT_LINE_BASE, 0);
    assert_int_equal(bt_account_committed_bytes(account), 0);
    bt_lending lending;
    bt_account_lending_read(account, &lending);
    assert_int_equal(lending.lendable_bytes + lending.lent_bytes, 0);
    bt_pool_close(pool);
    assert_true(bt_account_close(account));
    assert_int_equal(bt_heap_live_blocks(), blocks);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
