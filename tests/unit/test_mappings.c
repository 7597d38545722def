/* SPDX-License-Identifier: MIT
 * test_mappings.c: how many mappings an account keeps: more than it has records for without the heap, and no more than
 * its maximum. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/heap.h"
#include "base/os.h"
#include "memory/account.h"

#define N_RECORDS  64u /* that need no heap */
#define N_MAPPINGS 65536u

static bt_account *account;
static bt_mapping *mappings[N_MAPPINGS + 1];

static int open_account(void **state) {
    (void)state;
    uint64_t caps[BT_LINE_COUNT];
    for (unsigned i = 0; i < BT_LINE_COUNT; i++)
        caps[i] = UINT64_MAX;
    return bt_account_open(caps, UINT64_MAX, &account, NULL) == BT_OK ? 0 : -1;
}

static int close_account(void **state) {
    (void)state;
    return bt_account_close(account) && bt_heap_live_blocks() == 0 ? 0 : -1;
}

/* Address space only; neighbours are one mapping of the kernel's, so that its own maximum is not met. */
static void map_until(uint32_t from, uint32_t to) {
    bt_error err = {0};
    for (uint32_t i = from; i < to; i++)
        if (bt_account_map(account, BT_LINE_RING, 1, &mappings[i], &err) != BT_OK) fail_msg("%u: %s", i, err.text);
}

static uint64_t reserved_bytes(void) {
    bt_line_use use;
    bt_account_use(account, BT_LINE_RING, &use);
    return use.reserved_bytes;
}

static void the_heap_is_for_the_65th(void **state) {
    (void)state;
    uint64_t blocks = bt_heap_live_blocks();
    map_until(0, N_RECORDS);
    assert_int_equal(bt_heap_live_blocks(), blocks);
    map_until(N_RECORDS, N_RECORDS + 3);
    assert_int_equal(bt_heap_live_blocks(), blocks + 3);
    assert_int_equal(reserved_bytes(), (N_RECORDS + 3) * bt_os_page_bytes());
    bt_account_unmap(account, mappings[5]); /* its record is the next one's */
    map_until(5, 6);
    assert_int_equal(bt_heap_live_blocks(), blocks + 3);
    for (uint32_t i = 0; i < N_RECORDS + 3; i++)
        bt_account_unmap(account, mappings[i]);
    assert_int_equal(bt_heap_live_blocks(), blocks);
    assert_int_equal(reserved_bytes(), 0);
}

static void there_is_a_maximum(void **state) {
    (void)state;
    bt_error err = {0};
    map_until(0, N_MAPPINGS);
    assert_int_equal(bt_account_map(account, BT_LINE_KV, 1, &mappings[N_MAPPINGS], &err), BT_E_LIMIT);
    assert_string_equal(err.code, "mapping_count");
    assert_int_equal(err.need, N_MAPPINGS + 1);
    assert_int_equal(err.have, N_MAPPINGS);
    bt_account_unmap(account, mappings[1]);
    map_until(1, 2);
    for (uint32_t i = 0; i < N_MAPPINGS; i++)
        bt_account_unmap(account, mappings[i]);
}

static void lines_that_do_not_exist(void **state) {
    (void)state;
    bt_error err = {0};
    map_until(0, 1);
    assert_int_equal(bt_account_relabel(account, mappings[0], BT_LINE_COUNT, &err), BT_E_ARG);
    assert_string_equal(err.code, "mapping_line");
    assert_int_equal(reserved_bytes(), bt_os_page_bytes());
    assert_int_equal(bt_account_map(account, BT_LINE_COUNT, 1, &mappings[1], &err), BT_E_ARG);
    assert_string_equal(err.code, "mapping_size");
    assert_int_equal(bt_account_map(account, BT_LINE_KV, UINT64_MAX, &mappings[1], &err), BT_E_ARG);
    assert_string_equal(err.code, "mapping_size");
    bt_account_unmap(account, mappings[0]);
}

#define T(test) cmocka_unit_test_setup_teardown(test, open_account, close_account)

int main(void) {
    const struct CMUnitTest tests[] = {T(the_heap_is_for_the_65th), T(there_is_a_maximum), T(lines_that_do_not_exist)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
