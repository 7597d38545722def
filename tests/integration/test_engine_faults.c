/* SPDX-License-Identifier: MIT
 * test_engine_faults.c: every fallible call between opening an engine and its first tokens fails once.
 *
 * A real model, all of it streamed through two slots. Whatever fails: an error with a code, or success with the same
 * token; no block of the heap, no descriptor and no mapping of the account is left, and the engine works again after.
 *
 *     k     0 1 2 ... 80, then a twelfth further each time, up to the first k that no call reaches
 *
 * The same with a draft model beside it, fewer times: what fails in the draft fails nothing else, is logged at most
 * once, and leaves nothing either.
 *
 * Every call up to 80, a sample of those after: the sweep must end within a minute under sanitizers. FAULT_EVERY=1 in
 * the environment makes it try every one (some minutes). Calls of ggml and libllama themselves (malloc, new) cannot be
 * made to fail here. */
#include "base/fault.h"
#include "base/heap.h"
#include "base/log.h"
#include "engine/draft.h"
#include "engine/session.h"
#include "store_kit.h"

#include "llama.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SKIPPED 77

#ifndef BT_FAULT

int main(void) {
    (void)puts("skipped: built without BT_FAULT, no call can be made to fail");
    return SKIPPED;
}

#else

#define N_CTX       64u
#define N_UBATCH    32u
#define N_TOKENS    8u
#define N_GUESS     3u
#define EACH_MAX    80u  /* every k up to here */
#define DRAFT_FIRST 200u /* the model's own header is read before, as in the other sweep */

typedef struct fixture {
    bt_facts *facts;
    bt_plan plan;
    int32_t token; /* the greedy one of the first clean run */
} fixture;

static uint32_t n_warnings;
static char last_warning[400];

static void on_log(const bt_log_entry *entry, void *user) {
    (void)user;
    if (entry->level > BT_LOG_WARN) return;
    n_warnings++;
    (void)snprintf(last_warning, sizeof last_warning, "%s", entry->message);
}

static int32_t best_token(bt_session *session, uint32_t n_vocab) {
    const float *logits = llama_get_logits_ith(bt_session_context(session), -1);
    assert_non_null(logits);
    int32_t best = 0;
    for (uint32_t i = 1; i < n_vocab; i++)
        if (logits[i] > logits[best]) best = (int32_t)i;
    return best;
}

static const int32_t tokens[N_TOKENS] = {504, 3575, 282, 4649, 314, 253, 1539, 28};

/* All of it once; whatever was opened is closed. */
static bt_status run(const fixture *f, int32_t *ret_token, bt_error *err) {
    bt_engine_params params = {.facts = f->facts, .plan = &f->plan, .n_threads = f->plan.n_threads};
    bt_engine *engine = NULL;
    bt_session *session = NULL;
    bt_status status = bt_engine_open(&params, &engine, err);
    if (status == BT_OK) {
        bt_session_params session_params = bt_session_params_of(&f->plan, 1);
        status = bt_session_open(engine, &session_params, &session, err);
    }
    if (status == BT_OK) status = bt_session_decode(session, tokens, N_TOKENS, NULL, err);
    if (status == BT_OK) *ret_token = best_token(session, f->facts->n_vocab);
    bt_session_close(session);
    bt_engine_close(engine);
    return status;
}

typedef struct drafting {
    const fixture *f;
    bt_draft *draft;
} drafting;

static bt_status open_draft(bt_engine *engine, void *user, bt_error *err) {
    drafting *d = user;
    bt_error why = {0};
    (void)err;
    if (bt_draft_open(d->f->facts, engine, &d->f->plan, BT_READER_AUTO, &d->draft, &why) != BT_OK &&
        why.text[0] == '\0')
        fail_msg("a draft does not open, without a reason");
    return BT_OK;
}

static void close_draft(void *user) {
    drafting *d = user;
    bt_draft_close(d->draft);
    d->draft = NULL;
}

/* The model as its own draft: guessing, going back, guessing again, given up, and a token of the model after it. */
static bt_status run_drafting(const fixture *f, int32_t *ret_token, bt_error *err) {
    drafting d = {.f = f};
    bt_engine_params params = {.facts = f->facts,
                               .plan = &f->plan,
                               .n_threads = f->plan.n_threads,
                               .check = open_draft,
                               .uncheck = close_draft,
                               .check_user = &d};
    bt_engine *engine = NULL;
    bt_session *session = NULL;
    bt_status status = bt_engine_open(&params, &engine, err);
    if (status == BT_OK) {
        bt_session_params session_params = bt_session_params_of(&f->plan, 1);
        status = bt_session_open(engine, &session_params, &session, err);
    }
    for (uint32_t i = 0; status == BT_OK && d.draft && i < 2; i++) {
        int32_t guesses[N_GUESS] = {-1, -1, -1};
        bool guessed = bt_draft_guess(d.draft, tokens, N_TOKENS, guesses, N_GUESS);
        if (guessed && f->token >= 0 && guesses[0] != f->token)
            fail_msg("guessed %d, the model says %d", guesses[0], f->token);
    }
    if (status == BT_OK && d.draft) bt_draft_give_up(d.draft);
    if (status == BT_OK) status = bt_session_decode(session, tokens, N_TOKENS, NULL, err);
    if (status == BT_OK) *ret_token = best_token(session, f->facts->n_vocab);
    close_draft(&d);
    bt_session_close(session);
    bt_engine_close(engine);
    return status;
}

typedef bt_status (*run_fn)(const fixture *f, int32_t *ret_token, bt_error *err);

/* One run with call k failing; false when no call had that number. */
static bool run_with_fault(const fixture *f, run_fn call, uint64_t k, uint32_t *n_survived) {
    uint64_t blocks = bt_heap_live_blocks();
    uint32_t fds = kit_n_fds();
    int32_t token = -1;
    bt_error err = {0};
    n_warnings = 0;
    bt_fault_arm(k, false);
    bt_status status = call(f, &token, &err);
    bool hit = bt_fault_disarm();
    if (bt_heap_live_blocks() != blocks)
        fail_msg("call %d: %d blocks left (%s)", (int)k, (int)(bt_heap_live_blocks() - blocks), err.text);
    if (kit_n_fds() != fds) fail_msg("call %d: %u descriptors, %u before (%s)", (int)k, kit_n_fds(), fds, err.text);
    if (n_warnings > (call == run_drafting ? 1u : 0u)) fail_msg("call %d: %s (%s)", (int)k, last_warning, err.text);
    if (status == BT_OK) {
        if (token != f->token) fail_msg("call %d: token %d, %d without a fault", (int)k, token, f->token);
        *n_survived += hit;
    } else {
        if (!hit) fail_msg("no call failed, but: %s", err.text);
        if (err.status != status || err.code[0] == '\0' || err.text[0] == '\0')
            fail_msg("call %d: status %d without a reason", (int)k, (int)status);
    }
    return hit;
}

static uint64_t next_k(uint64_t k) {
    return k < EACH_MAX || getenv("FAULT_EVERY") ? k + 1 : k + k / 12;
}

static void test_sweep(void **state) {
    const fixture *f = *state;
    uint32_t n_runs = 0, n_survived = 0;
    uint64_t k = 0;
    while (run_with_fault(f, run, k, &n_survived)) {
        n_runs++;
        k = next_k(k);
    }
    (void)printf("%u runs with a fault, calls 0 to %u; %u went on without an error\n", n_runs, (uint32_t)k, n_survived);
    assert_true(n_runs > EACH_MAX);   /* the hooks are there */
    assert_true(n_survived < n_runs); /* and are not only those that have a fallback */
    int32_t token = -1;
    bt_error err = {0};
    if (run(f, &token, &err) != BT_OK) fail_msg("after the sweep: %s", err.text);
    assert_int_equal(token, f->token);
}

static void test_sweep_draft(void **state) {
    const fixture *f = *state;
    uint32_t n_runs = 0, n_survived = 0;
    uint64_t k = getenv("FAULT_EVERY") ? 0 : DRAFT_FIRST;
    while (run_with_fault(f, run_drafting, k, &n_survived)) {
        n_runs++;
        k += getenv("FAULT_EVERY") ? 1 : 1 + k / 24;
    }
    (void)printf("with a draft: %u runs with a fault, calls 0 to %u; %u went on without an error\n", n_runs,
                 (uint32_t)k, n_survived);
    assert_true(n_survived > n_runs / 2); /* what is the draft's ends nothing */
    int32_t token = -1;
    bt_error err = {0};
    if (run_drafting(f, &token, &err) != BT_OK) fail_msg("after the sweep: %s", err.text);
    assert_int_equal(token, f->token);
}

/* ---- set-up ---- */

static bt_plan plan_all_streamed(const bt_facts *facts, bt_place *place) {
    bt_plan plan = {.n_ctx = N_CTX,
                    .n_batch = N_CTX,
                    .n_ubatch = N_UBATCH,
                    .n_parallel = 1,
                    .n_threads =
                        1, /* of two, each would wait for the other at every barrier where tests run side by side */
                    .type_k = 1,
                    .type_v = 1,
                    .n_slots = 2,
                    .place = place,
                    .n_units = facts->n_units,
                    .budget_bytes = UINT64_MAX,
                    .wishes = {.type_k = 1, .type_v = 1}};
    for (uint32_t u = 0; u < facts->n_units; u++) {
        const bt_unit_facts *unit = &facts->units[u];
        place[u] = unit->kind == BT_KIND_TABLE ? BT_PLACE_ROWS : BT_PLACE_STREAMED;
        if (unit->image_bytes > plan.slot_bytes) plan.slot_bytes = unit->image_bytes;
    }
    return plan;
}

int main(void) {
    const char *source = getenv("BT_SOURCE");
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/build/models/smollm2-135m-instruct-q4_1.gguf", source ? source : ".");
    if (access(path, R_OK) != 0) {
        (void)printf("skipped: smollm2-135m-instruct-q4_1.gguf is not there\n");
        return SKIPPED;
    }
    bt_error err = {0};
    fixture f = {.token = -1};
    bt_place *place = NULL;
    bool ready = bt_engine_init(&err) == BT_OK && bt_facts_open(path, &f.facts, &err) == BT_OK;
    if (ready) place = bt_heap_array(f.facts->n_units, sizeof *place);
    if (place) f.plan = plan_all_streamed(f.facts, place);
    bt_log_set(on_log, NULL, BT_LOG_WARN);
    /* The first run also makes what ggml keeps for the life of the process. */
    int failed = 1;
    if (!place || run(&f, &f.token, &err) != BT_OK) {
        (void)fprintf(stderr, "a run without faults fails: %s\n", err.text);
    } else {
        const struct CMUnitTest all[] = {cmocka_unit_test_prestate(test_sweep, &f),
                                         cmocka_unit_test_prestate(test_sweep_draft, &f)};
        failed = cmocka_run_group_tests(all, NULL, NULL);
    }
    bt_log_set(NULL, NULL, BT_LOG_ERROR);
    bt_heap_free(place);
    bt_facts_close(f.facts);
    return failed;
}

#endif
