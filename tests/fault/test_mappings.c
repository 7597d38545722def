/* SPDX-License-Identifier: MIT
 * test_mappings.c: every call of the account and of a pool that can fail, failing: an error, nothing charged, nothing
 * left; and what is there already goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/heap.h"
#include "memory/pool.h"

#include <string.h>

#define FAULT_MAX 400u
#define N_BUFFERS 70u /* more than the account has records for without the heap: 64 */
#define KIB       UINT64_C(1024)

typedef struct work {
    bt_account *account;
    bt_pool_buffers *pool;
    bt_pool_buffer *buffers[N_BUFFERS];
} work;

/* BT_OK, or the first error; what was made is made. */
static bt_status take_all(work *w, bt_error *err) {
    uint64_t caps[BT_LINE_COUNT];
    for (unsigned i = 0; i < BT_LINE_COUNT; i++)
        caps[i] = UINT64_MAX;
    bt_status status = bt_account_open(caps, N_BUFFERS * 8 * KIB, &w->account, err);
    if (status == BT_OK) status = bt_pool_open(w->account, N_BUFFERS, &w->pool, err);
    for (uint32_t i = 0; status == BT_OK && i < N_BUFFERS; i++) {
        status = bt_pool_take(w->pool, BT_LINE_KV, 5 * KIB, &w->buffers[i], err);
        if (status == BT_OK) status = bt_account_commit(w->account, w->buffers[i]->mapping, 8 * KIB, err);
        if (status == BT_OK) memset(w->buffers[i]->mapping->base, 1, 5 * KIB);
    }
    return status;
}

static void give_back(work *w) {
    for (uint32_t i = 0; w->pool && i < N_BUFFERS; i++)
        bt_pool_give(w->pool, w->buffers[i]);
    if (w->account) assert_int_equal(bt_account_committed_bytes(w->account), 0);
    bt_pool_close(w->pool);
    assert_true(bt_account_close(w->account)); /* no mapping is left */
}

static void every_call(void **state) {
    (void)state;
    for (int persistent = 0; persistent < 2; persistent++) {
        for (uint64_t k = 0;; k++) {
            assert_true(k < FAULT_MAX);
            bt_error err = {0};
            work w = {0};
            uint64_t blocks = bt_heap_live_blocks();
            bt_fault_arm(k, persistent);
            bt_status status = take_all(&w, &err);
            bool hit = bt_fault_disarm();
            if (!hit) {
                assert_int_equal(status, BT_OK);
                assert_true(k >= N_BUFFERS + (N_BUFFERS - 64)); /* each is mapped, and six are recorded on the heap */
                assert_int_equal(bt_account_committed_bytes(w.account), N_BUFFERS * 8 * KIB);
                give_back(&w);
                break;
            }
            assert_int_equal(status, BT_E_NOMEM);
            assert_true(err.text[0] != '\0' && err.code[0] != '\0');
            /* the one that failed can be had now, and is the first that is missing */
            for (uint32_t i = 0; w.pool && i < N_BUFFERS; i++) {
                if (w.buffers[i]) continue;
                assert_int_equal(bt_pool_take(w.pool, BT_LINE_KV, 5 * KIB, &w.buffers[i], NULL), BT_OK);
                break;
            }
            give_back(&w);
            assert_int_equal(bt_heap_live_blocks(), blocks);
        }
    }
    assert_int_equal(bt_heap_live_bytes(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_call)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
