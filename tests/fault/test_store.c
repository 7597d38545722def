/* SPDX-License-Identifier: MIT
 * test_store.c: every fallible call of account, pool, store, reader and ring fails once, and then it and all after it.
 *
 * Whatever fails: a clean error or success with the right bytes (a fallback), nothing leaked, the account empty. After
 * a single failure of a read the same reader and ring must give the right bytes when asked again. */
#include "base/fault.h"
#include "base/heap.h"
#include "memory/pool.h"
#include "store/ring.h"
#include "store_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define PAGE      ((uint64_t)BT_PAGE_BYTES)
#define N_UNITS   5u
#define SLOT      (8 * PAGE)
#define FAULT_MAX 2000u

typedef struct body {
    const kit *k;
    bt_reader_kind kind;
    bt_io_mode mode;
    bool once;
    bool cached; /* through the page cache */
    bt_extent extents[N_UNITS];
    bt_ring_unit units[N_UNITS];
} body;

static bool is_right(const body *b, uint32_t unit, const uint8_t *image) {
    const bt_extent *e = &b->extents[unit];
    return memcmp(image, b->k->data[0] + e->file_offset, e->bytes) == 0;
}

static bt_status use_ring(const body *b, bt_ring *ring) {
    static const uint32_t order[] = {0, 1, 2, 3, 4};
    bt_status first = bt_ring_set_order(ring, order, N_UNITS, NULL);
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t unit = i < 6 ? i % N_UNITS : 9 - i; /* 0 1 2 3 4 0, then 3 and 2: wrong guesses */
        void *image = NULL;
        bt_error err = {0};
        bt_status status = bt_ring_acquire(ring, &unit, 1, &image, &err);
        if (status != BT_OK) {
            assert_int_equal(status, BT_E_IO);
            assert_string_equal(err.code, "read_failed");
            assert_non_null(strstr(err.text, b->k->paths[0]));
            if (first == BT_OK) first = status;
            if (b->once) assert_int_equal(bt_ring_acquire(ring, &unit, 1, &image, NULL), BT_OK);
        }
        if (!image) continue;
        assert_true(is_right(b, unit, image));
        bt_ring_release(ring, unit);
    }
    return first;
}

static bt_status use_pool(bt_account *account) {
    bt_pool_buffers *pool = NULL;
    bt_status status = bt_pool_open(account, 4, &pool, NULL);
    if (status != BT_OK) return status;
    for (uint32_t i = 0; i < 3 && status == BT_OK; i++) {
        bt_pool_buffer *a = NULL;
        status = bt_pool_take(pool, BT_LINE_COMPUTE, 5000u << i, &a, NULL);
        if (status != BT_OK) break;
        status = bt_account_commit(account, a->mapping, 4096, NULL);
        bt_pool_give(pool, a);
    }
    bt_pool_close(pool);
    return status;
}

/* Everything, opened in its order; what was opened is closed whatever happened. */
static bt_status run(const body *b) {
    uint64_t caps[BT_LINE_COUNT];
    for (unsigned i = 0; i < BT_LINE_COUNT; i++) {
        caps[i] = UINT64_MAX;
    }
    bt_account *account = NULL;
    bt_store store = {0};
    bt_reader *reader = NULL;
    bt_ring *ring = NULL;
    bt_reader_params params = {.kind = b->kind, .depth = 3, .request_bytes = 8192};
    bt_error err = {0};
    bt_status status = bt_account_open(caps, UINT64_MAX, &account, &err);
    if (status != BT_OK) return status;
    bt_account_lock(account); /* a lock that is refused is counted, and no failure */
    status = use_pool(account);
    if (status == BT_OK) status = bt_store_open(&b->k->facts, b->mode, &store, &err);
    if (status == BT_OK) {
        uint8_t some[64];
        status = bt_store_read(&store, 0, 5, some, sizeof some, &err);
        if (status == BT_OK) assert_memory_equal(some, b->k->data[0] + 5, sizeof some);
    }
    if (status == BT_OK) status = bt_store_check(&store, &b->k->facts, &err);
    if (status == BT_OK) status = bt_reader_open(&store, &params, &reader, &err);
    if (status == BT_OK) status = bt_ring_open(account, reader, b->units, N_UNITS, 2 * SLOT, &ring, &err);
    if (reader) bt_reader_set_cached(reader, b->cached);
    if (status == BT_OK) status = use_ring(b, ring);
    bt_lock_use locks;
    bt_account_lock_use(account, &locks);
    assert_true(locks.locked_bytes <= locks.asked_bytes);
    if (locks.locked_bytes < locks.asked_bytes) assert_true(locks.sys != 0);
    bt_ring_close(ring);
    bt_reader_close(reader);
    bt_store_close(&store);
    assert_true(bt_account_close(account));
    return status;
}

static void sweep(const body *b) {
    for (uint64_t k = 0; k < FAULT_MAX; k++) {
        uint64_t blocks = bt_heap_live_blocks();
        uint32_t fds = kit_n_fds();
        bt_fault_arm(k, !b->once);
        bt_status status = run(b);
        bool hit = bt_fault_disarm();
        assert_int_equal(bt_heap_live_blocks(), blocks);
        assert_int_equal(kit_n_fds(), fds);
        if (!hit) {
            assert_int_equal(status, BT_OK);
            assert_true(k > 20); /* the hooks are there */
            return;
        }
        if (!b->once && b->kind != BT_READER_AUTO && k < 20) assert_int_not_equal(status, BT_OK);
    }
    fail_msg("more than %u fallible calls", FAULT_MAX);
}

static void test_every_call_fails(void **state) {
    (void)state;
    static const uint64_t sizes[] = {40 * PAGE - 77};
    kit k;
    kit_open(&k, "store_fault", sizes, 1, 31);
    static const bt_reader_kind kinds[] = {BT_READER_AUTO, BT_READER_URING, BT_READER_PREAD};
    for (uint32_t i = 0; i < 18; i++) {
        body b = {.k = &k,
                  .kind = kinds[i % 3],
                  .mode = i / 3 % 3 == 1 ? BT_IO_BUFFERED : BT_IO_DIRECT,
                  .cached = i / 3 % 3 == 2,
                  .once = i < 9};
        for (uint32_t u = 0; u < N_UNITS; u++) {
            b.extents[u] = (bt_extent){.file_offset = u * SLOT, .bytes = SLOT};
            b.units[u] = (bt_ring_unit){.extents = &b.extents[u], .n_extents = 1, .image_bytes = SLOT};
        }
        if (b.kind == BT_READER_URING && run(&b) != BT_OK) {
            (void)fprintf(stderr, "no io_uring here\n");
            continue;
        }
        sweep(&b);
    }
    kit_close(&k);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_call_fails)};
    return cmocka_run_group_tests_name("store_fault", tests, NULL, NULL);
}
