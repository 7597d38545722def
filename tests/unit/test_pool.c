/* SPDX-License-Identifier: MIT
 * test_pool.c: classes, the reservation table, logical lengths. C, G, W, A: cases of research notes, seed 1. */
#include "base/heap.h"
#include "base/os.h"
#include "memory/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

typedef struct fixture {
    bt_account *account;
    bt_pool_buffers *pool;
} fixture;

static fixture open_fixture(uint64_t budget, uint32_t max_buffers) {
    uint64_t caps[BT_LINE_COUNT];
    for (unsigned i = 0; i < BT_LINE_COUNT; i++) {
        caps[i] = UINT64_MAX;
    }
    fixture f = {0};
    assert_int_equal(bt_account_open(caps, budget, &f.account, NULL), BT_OK);
    assert_int_equal(bt_pool_open(f.account, max_buffers, &f.pool, NULL), BT_OK);
    return f;
}

static void close_fixture(fixture *f) {
    bt_pool_close(f->pool);
    assert_true(bt_account_close(f->account));
}

static bt_pool_buffer *take(fixture *f, bt_line line, uint64_t bytes) {
    bt_pool_buffer *b = NULL;
    assert_int_equal(bt_pool_take(f->pool, line, bytes, &b, NULL), BT_OK);
    return b;
}

static bt_pool_report report(fixture *f) {
    bt_pool_report r;
    bt_pool_report_read(f->pool, &r);
    return r;
}

/* The device's way: take, then charge the class before touching. */
static bt_status take_charged(fixture *f, uint64_t bytes, bt_pool_buffer **ret, bt_error *err) {
    bt_pool_buffer *b = NULL;
    bt_status status = bt_pool_take(f->pool, BT_LINE_COMPUTE, bytes, &b, err);
    if (status != BT_OK) return status;
    status = bt_account_commit(f->account, b->mapping, b->class_bytes, err);
    if (status != BT_OK) {
        bt_pool_give(f->pool, b);
        return status;
    }
    *ret = b;
    return BT_OK;
}

static void test_C1_class_ladder(void **state) {
    (void)state;
    static const uint64_t in[] = {0,    1,    3,     256,   257,   1000,  1536,   2048,    4095,
                                  4096, 4097, 14336, 15232, 17920, 57344, 200000, 1835008, 4194305};
    static const uint64_t out[] = {256,  256,  256,   256,   512,   1024,  2048,   2048,    4096,
                                   4096, 8192, 16384, 16384, 20480, 57344, 200704, 1835008, 4198400};
    for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
        assert_int_equal(bt_pool_class_bytes(4 * in[i]), 4 * out[i]);
    }
    for (uint64_t n = 0; n < 300000; n += 13) {
        uint64_t c = bt_pool_class_bytes(n);
        assert_true(c >= n && (n < 1024 ? c == 1024 : c - n < 16384));
        assert_int_equal(bt_pool_class_bytes(c), c);
    }
    assert_int_equal(bt_pool_class_bytes(UINT64_MAX), 0);
    assert_int_equal(bt_pool_class_bytes(UINT64_MAX - 16384), UINT64_MAX - 16383);
}

static void test_Ga_refused_one_byte_short(void **state) {
    (void)state;
    fixture f = open_fixture(4095, 8);
    bt_pool_buffer *b = NULL;
    bt_error err = {0};
    assert_int_equal(take_charged(&f, 4096, &b, &err), BT_E_BUDGET);
    assert_null(b);
    assert_string_equal(err.code, "ram_budget");
    assert_int_equal(err.need, 4096);
    assert_int_equal(err.have, 4095);
    assert_non_null(strstr(err.text, "MiB"));
    assert_non_null(strstr(err.text, "ram budget"));
    assert_int_equal(bt_account_committed_bytes(f.account), 0);
    assert_int_equal(report(&f).live_bytes, 0);
    close_fixture(&f);
}

static void test_Gb_within_the_budget(void **state) {
    (void)state;
    fixture f = open_fixture(MIB, 8);
    bt_pool_buffer *b = NULL;
    assert_int_equal(take_charged(&f, 4096, &b, NULL), BT_OK);
    bt_pool_report r = report(&f);
    assert_int_equal(r.pool_bytes, 4096);
    assert_int_equal(r.live_bytes, 4096);
    assert_int_equal(r.peak_live_bytes, 4096);
    assert_int_equal(MIB - bt_account_committed_bytes(f.account), 1044480);
    close_fixture(&f);
}

static void test_Gc_Gf_weights_and_rebuild_at_a_tight_budget(void **state) {
    (void)state;
    for (uint64_t budget = 2047; budget <= 2048; budget++) {
        fixture f = open_fixture(budget, 8);
        bt_mapping *weight = NULL;
        assert_int_equal(bt_account_map(f.account, BT_LINE_PINNED, 1024, &weight, NULL), BT_OK);
        assert_int_equal(bt_account_commit(f.account, weight, 1024, NULL), BT_OK);
        assert_int_equal(report(&f).weights_bytes, 1024);
        assert_int_equal(report(&f).pool_bytes, 0);
        bt_pool_buffer *b = NULL;
        bt_status want = budget == 2048 ? BT_OK : BT_E_BUDGET;
        assert_int_equal(take_charged(&f, 1024, &b, NULL), want);
        if (want == BT_OK) { /* G-f: the same graph once more needs nothing more */
            bt_pool_give(f.pool, b);
            bt_pool_buffer *again = NULL;
            assert_int_equal(take_charged(&f, 1024, &again, NULL), BT_OK);
            assert_ptr_equal(again, b);
            bt_pool_give(f.pool, again);
        }
        bt_account_unmap(f.account, weight);
        close_fixture(&f);
    }
}

static void test_Gd_names_the_weights(void **state) {
    (void)state;
    for (uint64_t extra = 4095; extra <= 4096; extra++) {
        fixture f = open_fixture(4 * MIB + extra, 8);
        bt_mapping *weight = NULL;
        assert_int_equal(bt_account_map(f.account, BT_LINE_PINNED, 4 * MIB, &weight, NULL), BT_OK);
        assert_int_equal(bt_account_commit(f.account, weight, 4 * MIB, NULL), BT_OK);
        bt_pool_buffer *b = NULL;
        bt_error err = {0};
        if (extra == 4095) {
            assert_int_equal(take_charged(&f, 4096, &b, &err), BT_E_BUDGET);
            assert_non_null(strstr(err.text, "4.0 MiB of them weights"));
        } else {
            assert_int_equal(take_charged(&f, 4096, &b, &err), BT_OK);
            bt_pool_give(f.pool, b);
        }
        bt_account_unmap(f.account, weight);
        close_fixture(&f);
    }
}

static void test_Wa_logical_length(void **state) {
    (void)state;
    fixture f = open_fixture(UINT64_MAX, 8);
    bt_pool_buffer *b = take(&f, BT_LINE_COMPUTE, 12);
    assert_int_equal(b->bytes, 12);
    assert_int_equal(b->class_bytes, 1024);
    assert_int_equal(report(&f).pool_bytes, 1024);
    assert_int_equal(bt_pool_check(b, 0, 12, NULL), BT_OK);
    assert_int_equal(bt_pool_check(b, 12, 0, NULL), BT_OK);
    assert_int_equal(bt_pool_check(b, 8, 4, NULL), BT_OK);
    bt_error err = {0};
    assert_int_equal(bt_pool_check(b, 0, 16, &err), BT_E_LIMIT);
    assert_string_equal(err.code, "buffer_bounds");
    assert_int_equal(err.need, 16);
    assert_int_equal(err.have, 12);
    assert_string_equal(err.text, "16 bytes at offset 0 of a buffer of 12 (class 1024)");
    assert_int_equal(bt_pool_check(b, 13, 0, NULL), BT_E_LIMIT);
    assert_int_equal(bt_pool_check(b, 8, 5, NULL), BT_E_LIMIT);
    assert_int_equal(bt_pool_check(b, 4, UINT64_MAX, NULL), BT_E_LIMIT); /* no wrap */
    assert_int_equal(bt_pool_check(b, UINT64_MAX, 4, NULL), BT_E_LIMIT);
    close_fixture(&f);
}

static void test_A1_smallest_idle_id_whatever_the_order(void **state) {
    (void)state;
    fixture f = open_fixture(UINT64_MAX, 16);
    bt_pool_buffer *b[3];
    for (uint32_t i = 0; i < 3; i++) {
        b[i] = take(&f, BT_LINE_COMPUTE, 5000);
        assert_int_equal(b[i]->id, i);
    }
    void *base[3] = {b[0]->mapping->base, b[1]->mapping->base, b[2]->mapping->base};
    bt_pool_give(f.pool, b[2]);
    bt_pool_give(f.pool, b[0]);
    bt_pool_give(f.pool, b[1]);
    assert_int_equal(report(&f).idle_slots, 3);
    assert_int_equal(report(&f).reserved_classes, 1);
    for (uint32_t i = 0; i < 3; i++) {
        bt_pool_buffer *again = take(&f, BT_LINE_COMPUTE, 5000 + i); /* the same class: 8192 */
        assert_int_equal(again->id, i);
        assert_ptr_equal(again->mapping->base, base[i]);
        assert_int_equal(again->bytes, 5000 + i);
    }
    close_fixture(&f);
}

static void test_Aa_Ab_rebuild_allocates_nothing(void **state) {
    (void)state;
    fixture f = open_fixture(UINT64_MAX, 16);
    uint64_t heap = 0;
    void *base = NULL;
    static const uint64_t rows[] = {16, 17, 20, 64};
    static const uint64_t pool_bytes[] = {65536, 65536, 65536 + 81920, 65536 + 81920 + 229376};
    for (uint32_t i = 0; i < 4; i++) {
        bt_pool_buffer *b = take(&f, BT_LINE_COMPUTE, 896 * 4 * rows[i]);
        assert_int_equal(report(&f).pool_bytes, pool_bytes[i]);
        if (i == 0) {
            base = b->mapping->base;
            heap = bt_heap_live_blocks();
        }
        if (i == 1) {
            assert_ptr_equal(b->mapping->base, base);
            assert_int_equal(bt_heap_live_blocks(), heap);
        }
        if (i == 3) assert_ptr_not_equal(b->mapping->base, base);
        bt_pool_give(f.pool, b);
    }
    assert_int_equal(report(&f).idle_slots, 3);
    assert_int_equal(report(&f).reserved_classes, 3);
    assert_int_equal(report(&f).live_bytes, 0);
    close_fixture(&f);
}

static void test_give_drops_pages_and_charge(void **state) {
    (void)state;
    fixture f = open_fixture(MIB, 8);
    bt_pool_buffer *b = NULL;
    assert_int_equal(take_charged(&f, 65536, &b, NULL), BT_OK);
    memset(b->mapping->base, 7, 65536);
    bt_account_measure(f.account);
    bt_line_use use;
    bt_account_use(f.account, BT_LINE_COMPUTE, &use);
    assert_int_equal(use.resident_bytes, 65536);
    bt_pool_give(f.pool, b);
    bt_pool_give(f.pool, b); /* twice does no harm */
    bt_account_measure(f.account);
    bt_account_use(f.account, BT_LINE_COMPUTE, &use);
    assert_int_equal(use.resident_bytes, 0);
    assert_int_equal(use.committed_bytes, 0);
    assert_int_equal(use.reserved_bytes, 65536);
    bt_pool_buffer *again = take(&f, BT_LINE_COMPUTE, 60000);
    assert_ptr_equal(again, b);
    assert_int_equal(((uint8_t *)again->mapping->base)[59999], 0);
    close_fixture(&f);
}

/* An idle buffer locks nothing: its address space alone would use up the limit. */
static void test_give_unlocks(void **state) {
    (void)state;
    if (bt_os_may_lock(UINT64_C(65536)) != 1) skip();
    fixture f = open_fixture(UINT64_MAX, 8);
    bt_account_lock(f.account);
    bt_pool_buffer *b = NULL;
    bt_lock_use use;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(take_charged(&f, 16384, &b, NULL), BT_OK);
        memset(b->mapping->base, 1, 16384);
        bt_account_lock_use(f.account, &use);
        assert_int_equal(use.locked_bytes, 16384);
        bt_pool_give(f.pool, b);
        bt_account_lock_use(f.account, &use);
        assert_int_equal(use.asked_bytes, 0);
        assert_int_equal(report(&f).idle_slots, 1); /* its pages could be dropped */
        assert_int_equal(bt_os_resident_bytes(b->mapping->base, b->mapping->bytes), 0);
    }
    close_fixture(&f);
}

static void test_lines_are_kept_apart(void **state) {
    (void)state;
    fixture f = open_fixture(UINT64_MAX, 8);
    bt_pool_buffer *b = take(&f, BT_LINE_COMPUTE, 4096);
    assert_int_equal(bt_account_relabel(f.account, b->mapping, BT_LINE_KV, NULL), BT_OK);
    bt_pool_give(f.pool, b);
    bt_pool_buffer *compute = take(&f, BT_LINE_COMPUTE, 4096);
    assert_ptr_not_equal(compute, b);
    bt_pool_buffer *kv = take(&f, BT_LINE_KV, 4096);
    assert_ptr_equal(kv, b);
    close_fixture(&f);
}

static void test_bounded(void **state) {
    (void)state;
    fixture f = open_fixture(UINT64_MAX, 3);
    bt_pool_buffer *a = take(&f, BT_LINE_KV, 1024);
    bt_pool_buffer *b = take(&f, BT_LINE_KV, 2048);
    bt_pool_buffer *c = take(&f, BT_LINE_KV, 4096);
    bt_pool_buffer *d = NULL;
    bt_error err = {0};
    assert_int_equal(bt_pool_take(f.pool, BT_LINE_KV, 8192, &d, &err), BT_E_LIMIT);
    assert_string_equal(err.code, "pool_full");
    bt_pool_give(f.pool, a);
    bt_pool_give(f.pool, b);
    d = take(&f, BT_LINE_KV, 8192); /* the idle one with the largest id makes room */
    assert_ptr_equal(d, b);
    assert_int_equal(d->id, 1);
    assert_int_equal(report(&f).pool_bytes, 1024 + 8192 + 4096);
    assert_int_equal(report(&f).idle_slots, 1);
    assert_int_equal(bt_pool_take(f.pool, BT_LINE_KV, UINT64_MAX, &a, &err), BT_E_LIMIT);
    assert_string_equal(err.code, "buffer_size");
    (void)c;
    close_fixture(&f);
    assert_int_equal(bt_pool_open(NULL, 0, &f.pool, NULL), BT_E_ARG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_C1_class_ladder),
        cmocka_unit_test(test_Ga_refused_one_byte_short),
        cmocka_unit_test(test_Gb_within_the_budget),
        cmocka_unit_test(test_Gc_Gf_weights_and_rebuild_at_a_tight_budget),
        cmocka_unit_test(test_Gd_names_the_weights),
        cmocka_unit_test(test_Wa_logical_length),
        cmocka_unit_test(test_A1_smallest_idle_id_whatever_the_order),
        cmocka_unit_test(test_Aa_Ab_rebuild_allocates_nothing),
        cmocka_unit_test(test_give_drops_pages_and_charge),
        cmocka_unit_test(test_give_unlocks),
        cmocka_unit_test(test_lines_are_kept_apart),
        cmocka_unit_test(test_bounded),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
