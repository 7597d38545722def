/* SPDX-License-Identifier: MIT
 * fuzz_json_machine.c: a machine.json. What is taken is in its ranges, and is the same when it is written and read. */
#include "fuzz.h"

#include "base/heap.h"
#include "json_check.h"

static void check(const bt_machine *m) {
    FUZZ_CHECK(m->n_pools >= 1 && m->n_pools <= BT_POOL_MAX);
    FUZZ_CHECK(m->n_cgroup_levels <= BT_CGROUP_LEVEL_MAX);
    FUZZ_CHECK(m->cgroup_version <= 2 && m->n_threads <= 4096);
    FUZZ_CHECK(m->pools[0].kind == BT_POOL_HOST);
    for (uint32_t i = 0; i < m->n_pools; i++) {
        FUZZ_CHECK(m->pools[i].free_bytes <= m->pools[i].total_bytes);
        FUZZ_CHECK(m->pools[i].name[0] != '\0');
        FUZZ_CHECK(m->pools[i].state == BT_READING_REPORTED || m->pools[i].total_bytes == 0);
    }
}

static bool one(char *text, size_t n) {
    static bt_machine machine;
    static bt_machine again;
    bt_error err = {0};
    bt_status status = bt_machine_from_json(text, n, &machine, &err);
    if (status != BT_OK) {
        json_check_refusal(status, &err);
        return false;
    }
    check(&machine);
    char *first = NULL;
    char *second = NULL;
    FUZZ_CHECK(bt_report_machine_json(&machine, &first, NULL) == BT_OK);
    FUZZ_CHECK(bt_machine_from_json(first, strlen(first), &again, &err) == BT_OK);
    FUZZ_CHECK(bt_report_machine_json(&again, &second, NULL) == BT_OK);
    FUZZ_CHECK(strcmp(first, second) == 0);
    bt_heap_free(first);
    bt_heap_free(second);
    return true;
}

const fuzz_target fuzz_here = {
    .name = "json_machine", .one = one, .bare = true, .start = json_start, .word = json_word, .n_rounds = 1500};
