/* SPDX-License-Identifier: MIT
 * test_router_need.c: each call that pricing a command makes, failing: an error with a code, or a need that is whole,
 * or one that is not known and says why; and nothing leaks. Judging a command (guard/judge.h) is in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/heap.h"
#include "judge_kit.h"
#include "open_files.h"
#include "router/need_find.h"

#define N_FAULT_MAX 400 /* a command takes some 100 fallible calls */

static char model_path[512];
static const char *const pools[] = {"host", "Vulkan0"};
static line words;

static void every_call_may_fail(void **state) {
    (void)state;
    static const char *const lines[] = {"llama-server -m %s -ngl 99 -c 1024 -np 1", "llama-server -m %s -c 1024 -np 1",
                                        "python3 -m server"};
    bt_config config = {0};
    bt_config_model model = {.ram = BT_CONFIG_RAM_AUTO};
    judge_model("need-fault.gguf", model_path);
    model.model = model_path;
    bt_need_ask ask = {.config = &config,
                       .model = &model,
                       .pools = pools,
                       .free_bytes = {{true, 8 * KIT_GIB}, {true, 4 * KIT_GIB}},
                       .root = ""};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        bt_need whole;
        ask.n_pools = i == 0 ? 2 : 1; /* a device, or the host alone, which may stream */
        char *const *argv = judge_words(&words, lines[i], model_path);
        assert_int_equal(bt_need_find(&ask, argv, &whole, NULL), BT_OK);
        uint32_t n_failed = 0;
        for (uint64_t k = 0;; k++) {
            assert_true(k < N_FAULT_MAX);
            bt_need need;
            bt_error err = {0};
            uint64_t live = bt_heap_live_blocks();
            uint32_t n_files = n_open_files();
            bt_fault_arm(k, false);
            bt_status status = bt_need_find(&ask, argv, &need, &err);
            bool hit = bt_fault_disarm();
            assert_int_equal(bt_heap_live_blocks(), live);
            assert_int_equal(n_open_files(), n_files);
            if (status != BT_OK) {
                n_failed++;
                assert_true(err.code[0] != '\0' && err.text[0] != '\0');
            } else if (need.how == BT_NEED_UNKNOWN) {
                assert_true(need.reason[0] != '\0');
            } else { /* at most it is not known that it could stream */
                assert_memory_equal(need.bytes, whole.bytes, sizeof whole.bytes);
                assert_true(need.least_bytes[0] >= whole.least_bytes[0]);
            }
            if (hit) continue;
            assert_memory_equal(&need, &whole, sizeof need);
            break;
        }
        assert_true(n_failed > 2);
    }
}

int main(void) {
    assert_int_equal(setenv("BURTHEN_STATE_DIR", BT_TEST_OUT "/need-fault", 1), 0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_call_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
