/* SPDX-License-Identifier: MIT
 * test_router_live.c: the k-th allocation fails, for every k, where memory is watched: nothing leaks, what could not be
 * read is not known, and the next look is whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/heap.h"
#include "probe/psi.h"
#include "router/models.h"

#define N_FAULT_MAX 1000

static void opening(void **state) {
    (void)state;
    const bt_models_ask ask = {0};
    bool failed = true;
    for (uint64_t k = 0; failed; k++) {
        assert_true(k < N_FAULT_MAX);
        uint64_t live = bt_heap_live_blocks();
        bt_models *models = NULL;
        bt_error err = {0};
        bt_fault_arm(k, false);
        bt_status status = bt_models_open(&ask, &models, &err);
        failed = bt_fault_disarm();
        assert_int_equal(status, failed ? BT_E_NOMEM : BT_OK);
        if (failed) assert_int_equal(bt_heap_live_blocks(), live);
        if (!failed) {
            bt_heap_free(models->view);
            bt_heap_free(models->step);
            bt_live_close(models->live);
            bt_heap_free(models);
        }
        assert_int_equal(bt_heap_live_blocks(), live);
    }
}

/* The host's half of a sample: a file that finds no memory is not known; nothing of the last sample stays in its
 * place. */
static void the_host(void **state) {
    (void)state;
    static bt_pools pools;
    bt_config *config = NULL;
    assert_int_equal(bt_config_new(&config, NULL), BT_OK);
    bool failed = true;
    uint64_t k = 0;
    for (; failed; k++) {
        assert_true(k < N_FAULT_MAX);
        uint64_t live = bt_heap_live_blocks();
        memset(&pools, 0xa5, sizeof pools);
        bt_fault_arm(k, false);
        bt_pools_read_host(&pools, "", config);
        failed = bt_fault_disarm();
        assert_int_equal(bt_heap_live_blocks(), live);
        const bt_pools_one *host = &pools.items[0];
        assert_string_equal(host->name, "host");
        assert_int_equal(host->whole_bytes.known, host->available_bytes.known);
        if (host->state != BT_READING_REPORTED) assert_false(host->whole_bytes.known);
        if (!pools.stall.known) assert_int_equal(pools.stall.value, 0);
    }
    assert_true(k > 3);
    assert_true(pools.items[0].available_bytes.known && pools.own_anon_bytes > 0);
    bt_config_close(config);
}

static void what_passes(void **state) {
    (void)state;
    bt_events *events = NULL;
    char *json = NULL;
    assert_int_equal(bt_events_open(&events, NULL), BT_OK);
    bt_events_pass(events, "memory", "{\"number\":1}");
    bt_fault_arm(0, false);
    bt_events_pass(events, "memory", "{\"number\":2}");
    assert_true(bt_fault_disarm());
    assert_int_equal(bt_events_dropped(events), 1);
    assert_int_equal(bt_events_json(events, "memory", &json, NULL), BT_OK);
    assert_non_null(strstr(json, "{\"number\":1}")); /* the last that there was memory for */
    bt_heap_free(json);
    bt_events_close(events);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening),
        cmocka_unit_test(the_host),
        cmocka_unit_test(what_passes),
    };
    uint64_t live = bt_heap_live_blocks();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed || bt_heap_live_blocks() != live;
}
