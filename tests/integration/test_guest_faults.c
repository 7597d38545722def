/* SPDX-License-Identifier: MIT
 * test_guest_faults.c: every fallible call of the drop-in's device fails once, behind real libllama.
 *
 *     holder opened -> model loaded -> context -> prompt decoded     call k fails
 *     -> all freed, the same holder: loaded, decoded                 without a fault: the right token
 *     -> closed                                                      nothing is left
 *
 * k goes through each of the four steps: its first calls one by one, then a sample.
 *
 * Whatever fails: an error with a code, or a call of libllama that says so and a reason that is heard; or the right
 * token. Half of the model is pinned, so that loading keeps and computing reads. FAULT_EVERY=1 in the environment makes
 * it try every call (some minutes). */
#include "burthen.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "base/fault.h"
#include "guest_kit.h"
#include "llama_kit.h"
#include "store_kit.h"

#define SKIPPED 77

#ifndef BT_FAULT

int main(void) {
    (void)puts("skipped: built without BT_FAULT, no call can be made to fail");
    return SKIPPED;
}

#else

#define READS_AHEAD 16u /* a ring may have under way when the last token is there */
#define EACH_MAX    16u /* calls of a step that are tried one by one */

typedef enum reached { REACHED_NOTHING, REACHED_MODEL, REACHED_CONTEXT, REACHED_TOKEN } reached;

typedef struct fixture {
    char path[4096];
    guest g;
    int32_t token;                       /* the greedy one of the clean run */
    uint64_t n_calls[REACHED_TOKEN + 1]; /* that had been made when this was reached */
    uint32_t n_open_failed, n_survived;
    uint32_t n_failed[REACHED_TOKEN]; /* after this was reached */
} fixture;

static const llama_token tokens[] = {504, 3575, 282, 4649, 314, 253, 1539, 28, 504, 3575};

static int32_t best_token(struct llama_context *context) {
    const float *logits = llama_get_logits_ith(context, -1);
    if (!logits) return -1;
    int32_t best = 0;
    for (int32_t i = 1; i < guest_n_vocab(llama_get_model(context)); i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* A program's life with the device, once; how far it came. */
static reached run(fixture *f, int32_t *ret_token) {
    reached so_far = REACHED_NOTHING;
    f->n_calls[REACHED_NOTHING] = bt_fault_count();
    struct llama_model *model = guest_load(&f->g, f->path, NULL);
    struct llama_context *context = NULL;
    if (model) {
        f->n_calls[so_far = REACHED_MODEL] = bt_fault_count();
        context = guest_context(model, GUEST_CTX);
    }
    if (context) {
        f->n_calls[so_far = REACHED_CONTEXT] = bt_fault_count();
        llama_token copy[sizeof tokens / sizeof *tokens];
        memcpy(copy, tokens, sizeof copy);
        if (llama_decode(context, llama_batch_get_one(copy, sizeof tokens / sizeof *tokens)) == 0) {
            *ret_token = best_token(context);
            f->n_calls[so_far = REACHED_TOKEN] = bt_fault_count();
        }
        llama_free(context);
    }
    llama_model_free(model);
    return so_far;
}

static void check_open_failed(fixture *f, uint64_t k, bt_status status, const bt_error *err) {
    if (err->status != status || err->code[0] == '\0' || err->text[0] == '\0')
        fail_msg("call %d: status %d without a reason", (int)k, (int)status);
    f->n_open_failed++;
}

static void check_run(fixture *f, uint64_t k, reached so_far, int32_t token, bool hit) {
    guest *g = &f->g;
    if (so_far == REACHED_TOKEN) {
        if (token != f->token) fail_msg("call %d: token %d, %d without a fault", (int)k, token, f->token);
        f->n_survived += hit;
        return;
    }
    if (!hit) fail_msg("no call failed, but: %s", g->heard.text);
    if (g->n_heard == 0 || g->heard.code[0] == '\0' || g->heard.text[0] == '\0')
        fail_msg("call %d: libllama's call number %d failed, and no reason was heard", (int)k, (int)so_far);
    f->n_failed[so_far]++;
}

/* One life with call k failing, then one without in the same holder; false when no call had that number. */
static bool run_with_fault(fixture *f, uint64_t k) {
    uint64_t blocks = bt_heap_live_blocks();
    uint32_t fds = kit_n_fds();
    bt_error err = {0};
    f->g.holder = NULL;
    f->g.heard = (bt_error){0};
    bt_fault_arm(k, false);
    bt_status status = guest_hold(&f->g, &err);
    int32_t token = -1;
    reached so_far = status == BT_OK ? run(f, &token) : REACHED_NOTHING;
    bool hit = bt_fault_disarm();
    if (status != BT_OK) {
        check_open_failed(f, k, status, &err);
    } else {
        check_run(f, k, so_far, token, hit);
        char first[sizeof f->g.heard.text];
        memcpy(first, f->g.heard.text, sizeof first);
        token = -1;
        if (run(f, &token) != REACHED_TOKEN)
            fail_msg("call %d (%s): the next life fails: %s", (int)k, first, f->g.heard.text);
        if (token != f->token) fail_msg("call %d (%s): token %d in the next life", (int)k, first, token);
        if (!bt_holder_close(f->g.holder)) fail_msg("call %d (%s): something is left on the account", (int)k, first);
    }
    if (bt_heap_live_blocks() != blocks)
        fail_msg("call %d: %d blocks left", (int)k, (int)(bt_heap_live_blocks() - blocks));
    if (kit_n_fds() != fds) fail_msg("call %d: %u descriptors, %u before", (int)k, kit_n_fds(), fds);
    return hit;
}

/* Calls first to end. */
static void sweep(fixture *f, uint64_t first, uint64_t end) {
    uint32_t n_runs = 0;
    f->n_open_failed = f->n_survived = 0;
    memset(f->n_failed, 0, sizeof f->n_failed);
    for (uint64_t done = 0; first + done < end; done += done < EACH_MAX || getenv("FAULT_EVERY") ? 1 : done / 4) {
        bool hit = run_with_fault(f, first + done);
        /* the last ones are reads ahead, which the end of a run may overtake */
        if (!hit && first + done + READS_AHEAD < end) fail_msg("no call has number %d", (int)(first + done));
        n_runs += hit;
    }
    (void)printf("%u of the calls %u to %u fail: opening failed in %u, loading in %u, a context in %u, decoding in %u; "
                 "%u went on\n",
                 n_runs, (uint32_t)first, (uint32_t)end, f->n_open_failed, f->n_failed[REACHED_NOTHING],
                 f->n_failed[REACHED_MODEL], f->n_failed[REACHED_CONTEXT], f->n_survived);
}

/* How many calls there are to each step. */
static void count(fixture *f) {
    bt_error err = {0};
    int32_t token = -1;
    bt_fault_arm(UINT64_MAX, false);
    assert_int_equal(guest_hold(&f->g, &err), BT_OK);
    assert_int_equal(run(f, &token), REACHED_TOKEN);
    (void)bt_fault_disarm();
    assert_true(bt_holder_close(f->g.holder));
}

static void test_opening(void **state) {
    fixture *f = *state;
    count(f);
    sweep(f, 0, f->n_calls[REACHED_NOTHING]);
    assert_true(f->n_open_failed > EACH_MAX);
}

static void test_loading(void **state) {
    fixture *f = *state;
    count(f);
    sweep(f, f->n_calls[REACHED_NOTHING], f->n_calls[REACHED_MODEL]);
    assert_true(f->n_failed[REACHED_NOTHING] + f->n_failed[REACHED_MODEL] > EACH_MAX);
}

static void test_context(void **state) {
    fixture *f = *state;
    count(f);
    sweep(f, f->n_calls[REACHED_MODEL], f->n_calls[REACHED_CONTEXT]);
    assert_true(f->n_failed[REACHED_MODEL] > 0);
}

static void test_decoding(void **state) {
    fixture *f = *state;
    count(f);
    sweep(f, f->n_calls[REACHED_CONTEXT], f->n_calls[REACHED_TOKEN]);
    assert_true(f->n_failed[REACHED_CONTEXT] > 0);
}

/* ---- set-up ---- */

static bool make(fixture *f) {
    bt_error err = {0};
    bt_report_init("of a test");
    llama_log_set(kit_quiet, NULL);
    llama_backend_init();
    if (bt_facts_open(f->path, &f->g.facts, &err) != BT_OK) return false;
    guest_plan_make(&f->g, GUEST_PINS_HALF);
    guest_plan_write(&f->g, "guest-faults");
    /* the first run also makes what ggml keeps for the life of the process */
    if (guest_hold(&f->g, &err) != BT_OK) return false;
    bool good = run(f, &f->token) == REACHED_TOKEN && f->token >= 0;
    return bt_holder_close(f->g.holder) && good;
}

int main(void) {
    static fixture f = {.g = {.no_vocab = true}, .token = -1};
    if (!guest_model_path(f.path)) {
        (void)puts("skipped: smollm2-135m-instruct-q4_1.gguf is not there");
        return SKIPPED;
    }
    int failed = 1;
    if (!make(&f)) {
        (void)fprintf(stderr, "a run without faults fails: %s\n", f.g.heard.text);
    } else {
        const struct CMUnitTest tests[] = {
            cmocka_unit_test_prestate(test_opening, &f), cmocka_unit_test_prestate(test_loading, &f),
            cmocka_unit_test_prestate(test_context, &f), cmocka_unit_test_prestate(test_decoding, &f)};
        failed = cmocka_run_group_tests_name("guest faults", tests, NULL, NULL);
    }
    guest_plan_free(&f.g);
    return failed;
}

#endif
