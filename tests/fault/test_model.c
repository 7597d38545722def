/* SPDX-License-Identifier: MIT
 * test_model.c: every fallible call of reading a model's header fails once, and then it and all after it.
 *
 * Whatever fails: a clean error with a sentence, no memory and no descriptor left behind, the output untouched. The set
 * of three shards is opened by its second, which takes every path there is: a shard read without its hash, the first,
 * the last; the vocabulary with its set of tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/heap.h"
#include "model/projector.h"
#include "model_kit.h"
#include "open_files.h"

#define FAULT_MAX 500u

static void sweep(const char *path, uint64_t least_calls) {
    for (int persistent = 0; persistent < 2; persistent++) {
        for (uint64_t k = 0;; k++) {
            assert_true(k < FAULT_MAX);
            bt_error err = {0};
            bt_facts *facts = NULL;
            uint64_t blocks = bt_heap_live_blocks();
            uint32_t descriptors = n_open_files();
            bt_fault_arm(k, persistent);
            bt_status status = bt_facts_open(path, &facts, &err);
            bool hit = bt_fault_disarm();
            if (!hit) {
                assert_int_equal(status, BT_OK);
                assert_true(k >= least_calls);
                bt_facts_close(facts);
                break;
            }
            assert_null(facts);
            assert_true(status == BT_E_IO || status == BT_E_NOMEM); /* no call of these is one that may fail */
            assert_true(err.text[0] != '\0' && err.code[0] != '\0');
            assert_int_equal(err.status, status);
            assert_int_equal(bt_heap_live_blocks(), blocks);
            assert_int_equal(n_open_files(), descriptors);
        }
    }
    assert_int_equal(bt_heap_live_bytes(), 0);
}

/* The same for a projector: two arenas, the file, its window, a read, two blocks. */
static void projector(void **state) {
    (void)state;
    char path[512];
    gw w;
    gw_init(&w);
    gw_string(&w, "general.architecture", "clip"), gw_bool(&w, "clip.has_vision_encoder", true);
    gw_tensor(&w, "mm.0.weight", 1, 64, 64);
    gw_write(&w, kit_path("fault.gguf", path)), gw_done(&w);
    for (uint64_t k = 0;; k++) {
        assert_true(k < FAULT_MAX);
        bt_error err = {0};
        bt_projector *p = NULL;
        uint64_t blocks = bt_heap_live_blocks();
        uint32_t descriptors = n_open_files();
        bt_fault_arm(k, false);
        bt_status status = bt_projector_open(path, &p, &err);
        if (!bt_fault_disarm()) {
            assert_int_equal(status, BT_OK);
            assert_true(k >= 6);
            bt_projector_close(p);
            break;
        }
        assert_null(p);
        assert_true((status == BT_E_IO || status == BT_E_NOMEM) && err.text[0] != '\0');
        assert_int_equal(bt_heap_live_blocks(), blocks);
        assert_int_equal(n_open_files(), descriptors);
    }
    assert_int_equal(bt_heap_live_bytes(), 0);
}

static void one_file(void **state) {
    (void)state;
    char path[512];
    gw w;
    gw_init(&w), gw_model_all(&w, &kit_small), gw_tokens(&w, "tokenizer.ggml.tokens", 1024);
    gw_write(&w, kit_path("fault.gguf", path)), gw_done(&w);
    /* two arenas, the file, its window, a read, the token set, two blocks, the names, and the end of the facts' */
    sweep(path, 8);
}

static void many_windows(void **state) {
    (void)state;
    char path[512];
    gw_model m = kit_small;
    m.n_vocab = 20000;
    gw w;
    gw_init(&w), gw_model_all(&w, &m), gw_tokens(&w, "tokenizer.ggml.tokens", 20000);
    gw_write(&w, kit_path("fault.gguf", path)), gw_done(&w);
    sweep(path, 10); /* a header of 270 KB is five reads */
}

static void shards(void **state) {
    (void)state;
    char path[512], given[512];
    for (uint32_t i = 0; i < 3; i++) {
        char name[64];
        gw w;
        gw_init(&w);
        if (i == 0) gw_model_keys(&w, &kit_small), gw_tokens(&w, "tokenizer.ggml.tokens", 1024);
        gw_u16(&w, "split.no", i), gw_u16(&w, "split.count", 3), gw_i32(&w, "split.tensors.count", 19);
        if (i == 0) gw_tensor(&w, "token_embd.weight", 8, 256, 1024);
        if (i > 0) gw_model_block(&w, &kit_small, i - 1);
        snprintf(name, sizeof name, "fault-%05u-of-00003.gguf", i + 1);
        gw_write(&w, kit_path(name, path)), gw_done(&w);
        if (i == 1) memcpy(given, path, sizeof given);
    }
    sweep(given, 15);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_file), cmocka_unit_test(projector),
                                       cmocka_unit_test(many_windows), cmocka_unit_test(shards)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
