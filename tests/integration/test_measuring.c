/* SPDX-License-Identifier: MIT
 * test_measuring.c: a dry run changes nothing of a model that is at work (T8 of the research notes, seed 1).
 *
 *     p p p p p | t t t t t t t t              logits of each step are kept
 *     p p p p p | t t t [dry runs] t t t t t   are the same, to the bit
 *
 * Dry runs in a child, as a plan makes them, and in this very process: both load the model in measuring mode, make a
 * larger context, and walk its graphs. Afterwards the account, the pool and the schedules of the model at work are what
 * they were. */
#include "base/heap.h"
#include "engine/price.h"
#include "engine/session.h"
#include "llama_kit.h"
#include "random.h"

#include "llama.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define N_CTX    256u
#define N_PROMPT 40u
#define N_STEPS  8u
#define N_BEFORE 3u /* steps before the dry runs */
#define N_UBATCH 64u
#define TYPE_F16 1u

typedef struct fixture {
    bt_facts *facts;
    bt_plan plan;
    bt_engine *engine;
    bt_session *session;
    int32_t tokens[N_PROMPT + N_STEPS];
    float *logits[2]; /* [N_STEPS][n_vocab] */
} fixture;

static bt_error err;

static void ok(bt_status status) {
    if (status != BT_OK) fail_msg("%s: %s", err.code, err.text);
}

/* Half of the units stream. */
static void make_plan(fixture *f) {
    f->plan = (bt_plan){.n_ctx = N_CTX,
                        .n_parallel = 1,
                        .n_batch = N_CTX,
                        .n_ubatch = N_UBATCH,
                        .n_slots = 2,
                        .n_threads = 1,
                        .type_k = TYPE_F16,
                        .type_v = TYPE_F16,
                        .place = bt_heap_array(f->facts->n_units, sizeof *f->plan.place),
                        .n_units = f->facts->n_units,
                        .budget_bytes = UINT64_MAX};
    assert_non_null(f->plan.place);
    for (uint32_t u = 0; u < f->facts->n_units; u++) {
        const bt_unit_facts *unit = &f->facts->units[u];
        bool pinned = u % 2 == 0 || unit->kind == BT_KIND_HEAD;
        f->plan.place[u] = unit->kind == BT_KIND_TABLE ? BT_PLACE_ROWS : pinned ? BT_PLACE_PINNED : BT_PLACE_STREAMED;
        if (unit->image_bytes > f->plan.slot_bytes) f->plan.slot_bytes = unit->image_bytes;
    }
}

static bool open_model(fixture *f) {
    const char *source = getenv("BT_SOURCE");
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/build/models/smollm2-135m-instruct-q4_1.gguf", source ? source : ".");
    memset(f, 0, sizeof *f);
    if (access(path, R_OK) != 0) return false;
    ok(bt_facts_open(path, &f->facts, &err));
    make_plan(f);
    bt_engine_params params = {.facts = f->facts, .plan = &f->plan, .n_threads = 1};
    ok(bt_engine_open(&params, &f->engine, &err));
    bt_session_params session = bt_session_params_of(&f->plan, 1);
    ok(bt_session_open(f->engine, &session, &f->session, &err));
    uint64_t state = 11;
    for (uint32_t i = 0; i < N_PROMPT + N_STEPS; i++)
        f->tokens[i] = (int32_t)(random_next(&state) % f->facts->n_vocab);
    for (int i = 0; i < 2; i++) {
        f->logits[i] = bt_heap_array((size_t)N_STEPS * f->facts->n_vocab, sizeof *f->logits[i]);
        assert_non_null(f->logits[i]);
    }
    return true;
}

static void close_model(fixture *f) {
    bt_session_close(f->session);
    bt_engine_close(f->engine);
    bt_heap_free(f->logits[0]);
    bt_heap_free(f->logits[1]);
    bt_heap_free(f->plan.place);
    bt_facts_close(f->facts);
}

/* Larger than what is at work, in both ways. */
static const bt_price_point point = {
    .n_ctx = 4 * N_CTX, .n_ubatch = 4 * N_UBATCH, .n_parallel = 1, .n_outputs_max = 8, .type_k = 1, .type_v = 1};

static void dry_run_in_a_child(const fixture *f) {
    bt_wishes wishes = {.n_batch = 4 * N_UBATCH};
    bt_pricer *pricer;
    bt_price price = {0};
    ok(bt_pricer_open(f->facts, &wishes, 1, &pricer, &err));
    ok(bt_pricer_price(pricer, &point, &price, &err));
    bt_pricer_close(pricer);
    if (price.error.status != BT_OK) fail_msg("%s", price.error.text);
    assert_int_equal(price.n_ctx, 4 * N_CTX);
    assert_true(price.kv_bytes > 0 && price.compute_bytes > 0);
}

static void dry_run_here(const fixture *f) {
    bt_engine *engine;
    bt_session *session;
    bt_engine_params params = {.facts = f->facts, .n_threads = 1, .measuring = true};
    ok(bt_engine_open(&params, &engine, &err));
    bt_session_params s = {.n_ctx = 4 * N_CTX,
                           .n_batch = 4 * N_UBATCH,
                           .n_ubatch = 4 * N_UBATCH,
                           .n_parallel = 1,
                           .n_threads = 1,
                           .n_outputs_max = 8,
                           .type_k = TYPE_F16,
                           .type_v = TYPE_F16};
    ok(bt_session_open(engine, &s, &session, &err));
    ok(bt_session_decode(session, f->tokens, N_PROMPT, NULL, &err));
    assert_true(bt_device_line_asked_bytes(bt_engine_device(engine), BT_LINE_KV) >=
                4 * bt_device_line_asked_bytes(bt_engine_device(f->engine), BT_LINE_KV));
    bt_session_close(session);
    bt_engine_close(engine);
}

/* What a dry run must leave alone. */
typedef struct standing {
    uint64_t committed_bytes, weights_bytes, kv_bytes, compute_bytes, logits_bytes;
    bt_pool_report pool;
    bt_device_stats stats;
} standing;

static standing look(const fixture *f) {
    bt_device *device = bt_engine_device(f->engine);
    standing s;
    memset(&s, 0, sizeof s); /* compared as bytes */
    s.committed_bytes = bt_account_committed_bytes(bt_engine_account(f->engine));
    s.weights_bytes = bt_account_weights_bytes(bt_engine_account(f->engine));
    s.kv_bytes = bt_device_line_asked_bytes(device, BT_LINE_KV);
    s.compute_bytes = bt_device_line_asked_bytes(device, BT_LINE_COMPUTE);
    s.logits_bytes = bt_device_line_asked_bytes(device, BT_LINE_LOGITS);
    bt_device_pool_report(device, &s.pool);
    bt_device_stats_read(device, &s.stats);
    return s;
}

static void run(fixture *f, int which, bool with_dry_runs) {
    uint32_t n_vocab = f->facts->n_vocab;
    bt_session_clear(f->session);
    ok(bt_session_decode(f->session, f->tokens, N_PROMPT, NULL, &err));
    for (uint32_t i = 0; i < N_STEPS; i++) {
        if (with_dry_runs && i == N_BEFORE) {
            standing before = look(f);
            dry_run_in_a_child(f);
            dry_run_here(f);
            standing after = look(f);
            assert_memory_equal(&before, &after, sizeof before);
        }
        ok(bt_session_decode(f->session, &f->tokens[N_PROMPT + i], 1, NULL, &err));
        const float *logits = llama_get_logits_ith(bt_session_context(f->session), -1);
        assert_non_null(logits);
        memcpy(f->logits[which] + (size_t)i * n_vocab, logits, n_vocab * sizeof *logits);
    }
}

static void test_T8_a_dry_run_changes_nothing(void **state) {
    (void)state;
    fixture f;
    if (!open_model(&f)) skip();
    bt_device_stats stats[4];
    for (int i = 0; i < 3; i++) { /* once to begin with, without, with */
        stats[i] = look(&f).stats;
        run(&f, i == 2, i == 2);
    }
    stats[3] = look(&f).stats;
    assert_memory_equal(f.logits[0], f.logits[1], (size_t)N_STEPS * f.facts->n_vocab * sizeof(float));
    assert_int_equal(stats[3].graphs - stats[2].graphs, 1 + N_STEPS);
    assert_int_equal(stats[3].schedules_built - stats[2].schedules_built,
                     stats[2].schedules_built - stats[1].schedules_built);
    assert_true(stats[3].schedules_reused - stats[2].schedules_reused >= N_STEPS - 2);
    close_model(&f);
}

int main(void) {
    if (bt_engine_init(&err) != BT_OK) return 1;
    llama_log_set(kit_quiet, NULL);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_T8_a_dry_run_changes_nothing)};
    return cmocka_run_group_tests_name("measuring", tests, NULL, NULL);
}
