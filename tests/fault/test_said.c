/* SPDX-License-Identifier: MIT
 * test_said.c: each allocation of a decision's JSON failing, once and for good: an error, or every argument as it is;
 * an argument is null where its bytes are no UTF-8, and for no other reason; nothing leaks. */
#include "base/fault.h"
#include "base/heap.h"
#include "guard/said.h"
#include "report/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static char *words[] = {(char[]){"llama-server"}, (char[]){"-m"}, (char[]){"caf\xe9.gguf"},
                        (char[]){"gr\xc3\xbc\xc3\x9f"}, NULL};

static bt_status say(char **ret_json, bt_error *err) {
    static const bt_guard_decision decision = {.kind = BT_GUARD_REFUSED, .reason = "no room", .code = "device_memory"};
    const bt_rewrite rewrite = {.argv = words, .n_argv = 4};
    static const bt_guard_env env = {"LD_PRELOAD", "x"};
    return bt_guard_budget_json(&decision, &rewrite, &env, 1, "{\"a\": [1, 2]}", ret_json, err);
}

static void json(void **state) {
    (void)state;
    char *want = NULL;
    assert_int_equal(say(&want, NULL), BT_OK);
    assert_non_null(strstr(want, "null"));
    assert_non_null(strstr(want, "gr\xc3\xbc\xc3\x9f"));
    uint64_t live = bt_heap_live_blocks();
    for (int persistent = 0; persistent < 2; persistent++) {
        bool hit = true;
        uint64_t k = 0;
        for (; hit; k++) {
            char *got = NULL;
            bt_error err = {0};
            bt_fault_arm(k, persistent);
            bt_status status = say(&got, &err);
            hit = bt_fault_disarm();
            assert_true(status == BT_OK || (hit && status == BT_E_NOMEM && err.text[0] != '\0'));
            if (status == BT_OK) assert_string_equal(got, want);
            bt_heap_free(got);
            assert_int_equal(bt_heap_live_blocks(), live);
        }
        assert_true(k > 20); /* the hooks are there */
    }
    bt_heap_free(want);
}

int main(void) {
    bt_report_init(NULL);
    const struct CMUnitTest tests[] = {cmocka_unit_test(json)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
