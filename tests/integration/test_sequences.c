/* SPDX-License-Identifier: MIT
 * test_sequences.c: several sequences in one pass. Each has the logits that it has alone, up to the rounding of a
 * batch; equal prompts give equal tokens; a step of all is one pass, or as many as micro-batches hold them; nothing is
 * left of one that failed.
 *
 *     0: p p p p p | t t t        logits of the last token of each, the most likely one is fed next
 *     1: p p p p p | t t t
 *     alone: the same, in a context of one sequence
 *
 * All weights stream, so that a pass is counted in what the reader reads, too. */
#include "base/heap.h"
#include "engine/session.h"
#include "llama_kit.h"
#include "random.h"

#include "llama.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define N_SEQ    4u
#define N_EACH   256u /* context of a sequence: libllama's step */
#define N_PROMPT 50u
#define N_GEN    12u
#define N_UBATCH 256u
#define TYPE_F16 1u
/* Rows of a batch may be summed in another order than a row alone (ggml's kernels take 4 or 16 at a time). Logits of
 * these models lie between -20 and 30; what is off by a row or a position is off by some units. */
#define ROUNDING 0.05f

typedef struct fixture {
    bt_facts *facts;
    bt_plan plan;
    bt_engine *engine;
    bt_session *session;
    int32_t tokens[N_SEQ][N_EACH];
    float *logits[N_SEQ]; /* [N_GEN][n_vocab] */
    float *alone;
} fixture;

static bt_error err;

static void ok(bt_status status) {
    if (status != BT_OK) fail_msg("%s: %s", err.code, err.text);
}

static void plan_all_streamed(fixture *f) {
    f->plan = (bt_plan){.n_ubatch = N_UBATCH, /* the window of rows is made for it */
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
        f->plan.place[u] = unit->kind == BT_KIND_TABLE ? BT_PLACE_ROWS : BT_PLACE_STREAMED;
        if (unit->image_bytes > f->plan.slot_bytes) f->plan.slot_bytes = unit->image_bytes;
    }
}

static bool open_model(fixture *f, const char *name) {
    const char *source = getenv("BT_SOURCE");
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/build/models/%s", source ? source : ".", name);
    memset(f, 0, sizeof *f);
    if (access(path, R_OK) != 0) return false;
    ok(bt_facts_open(path, &f->facts, &err));
    plan_all_streamed(f);
    bt_engine_params params = {.facts = f->facts, .plan = &f->plan, .n_threads = 1};
    ok(bt_engine_open(&params, &f->engine, &err));
    for (uint32_t s = 0; s < N_SEQ; s++)
        f->logits[s] = bt_heap_array((size_t)N_GEN * f->facts->n_vocab, sizeof *f->logits[s]);
    f->alone = bt_heap_array((size_t)N_GEN * f->facts->n_vocab, sizeof *f->alone);
    assert_true(f->logits[N_SEQ - 1] && f->alone);
    return true;
}

static void close_model(fixture *f) {
    bt_engine_close(f->engine);
    for (uint32_t s = 0; s < N_SEQ; s++)
        bt_heap_free(f->logits[s]);
    bt_heap_free(f->alone);
    bt_heap_free(f->plan.place);
    bt_facts_close(f->facts);
}

static void open_session(fixture *f, uint32_t n_sequences, uint32_t n_batch, uint32_t n_ubatch) {
    f->plan.n_parallel = n_sequences;
    f->plan.n_ctx = n_sequences * N_EACH;
    f->plan.n_batch = n_batch;
    f->plan.n_ubatch = n_ubatch;
    bt_session_params params = bt_session_params_of(&f->plan, 1);
    ok(bt_session_open(f->engine, &params, &f->session, &err));
    assert_int_equal(bt_session_n_ctx(f->session), N_EACH);
}

static int32_t likeliest(const fixture *f, const float *logits) {
    int32_t best = 0;
    for (int32_t i = 1; i < (int32_t)f->facts->n_vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* Logits of step i of a sequence whose last token was row of the batch; the likeliest token becomes the next. */
static void keep(fixture *f, int32_t row, uint32_t i, float *kept, int32_t *tokens) {
    const float *logits = llama_get_logits_ith(bt_session_context(f->session), row);
    assert_non_null(logits);
    float *to = kept + (size_t)i * f->facts->n_vocab;
    memcpy(to, logits, f->facts->n_vocab * sizeof *to);
    tokens[N_PROMPT + i] = likeliest(f, to);
}

/* A prompt and N_GEN - 1 steps of each sequence; every step is one pass. */
static void generate_together(fixture *f) {
    const int32_t *tokens = f->tokens[0];
    ok(bt_session_decode_each(f->session, tokens, N_EACH, N_PROMPT, &err));
    for (uint32_t s = 0; s < N_SEQ; s++)
        keep(f, (int32_t)((s + 1) * N_PROMPT - 1), 0, f->logits[s], f->tokens[s]);
    for (uint32_t i = 1; i < N_GEN; i++) {
        uint64_t n_before = bt_session_passes(f->session);
        ok(bt_session_decode_each(f->session, tokens + N_PROMPT + i - 1, N_EACH, 1, &err));
        assert_int_equal(bt_session_passes(f->session) - n_before, 1);
        for (uint32_t s = 0; s < N_SEQ; s++)
            keep(f, (int32_t)s, i, f->logits[s], f->tokens[s]);
    }
    assert_int_equal(bt_session_n_used(f->session), N_PROMPT + N_GEN - 1);
}

/* The tokens of sequence s in a context of their own: the same are fed, whatever is likeliest here. */
static void check_alone(fixture *f, uint32_t s) {
    int32_t ignored[N_EACH];
    bt_session_clear(f->session);
    ok(bt_session_decode(f->session, f->tokens[s], N_PROMPT, NULL, &err));
    keep(f, -1, 0, f->alone, ignored);
    for (uint32_t i = 1; i < N_GEN; i++) {
        ok(bt_session_decode(f->session, &f->tokens[s][N_PROMPT + i - 1], 1, NULL, &err));
        keep(f, -1, i, f->alone, ignored);
    }
    float most = 0;
    for (size_t i = 0; i < (size_t)N_GEN * f->facts->n_vocab; i++)
        most = fmaxf(most, fabsf(f->alone[i] - f->logits[s][i]));
    if (!(most <= ROUNDING)) fail_msg("%s: sequence %u is off by %g", f->facts->path, s, (double)most);
}

static void random_prompts(fixture *f, bool equal) {
    uint64_t state = 7;
    for (uint32_t s = 0; s < N_SEQ; s++)
        for (uint32_t i = 0; i < N_PROMPT; i++)
            f->tokens[s][i] = equal && s > 0 ? f->tokens[0][i] : (int32_t)(random_next(&state) % f->facts->n_vocab);
}

static uint64_t read_bytes(fixture *f) {
    bt_reader_stats stats;
    ok(bt_device_read_settle(bt_engine_device(f->engine), &err));
    bt_reader_stats_read(bt_engine_reader(f->engine), &stats);
    return stats.read_bytes;
}

static void check_model(const char *name) {
    fixture f;
    if (!open_model(&f, name)) {
        (void)printf("%s is not there\n", name);
        return;
    }
    open_session(&f, N_SEQ, N_SEQ * N_EACH, N_UBATCH);
    random_prompts(&f, true);
    generate_together(&f);
    for (uint32_t s = 1; s < N_SEQ; s++)
        assert_memory_equal(f.tokens[s], f.tokens[0], (N_PROMPT + N_GEN) * sizeof(int32_t));
    bt_session_clear(f.session);
    random_prompts(&f, false);
    generate_together(&f);
    bt_session_close(f.session);
    open_session(&f, 1, N_EACH, N_UBATCH);
    for (uint32_t s = 0; s < N_SEQ; s++)
        check_alone(&f, s);
    bt_session_close(f.session);
    close_model(&f);
}

static void test_smollm2(void **state) {
    (void)state;
    check_model("smollm2-135m-instruct-q4_1.gguf");
}

static void test_gemma3(void **state) {
    (void)state;
    check_model("gemma-3-270m-q4_k_m.gguf");
}

/* A pass of all reads what a pass of one reads. */
static void test_reads_once(void **state) {
    (void)state;
    fixture f;
    uint64_t bytes[2];
    if (!open_model(&f, "smollm2-135m-instruct-q4_1.gguf")) skip();
    random_prompts(&f, false);
    for (int all = 0; all < 2; all++) {
        open_session(&f, all ? N_SEQ : 1, N_EACH, N_UBATCH);
        ok(bt_session_decode_each(f.session, f.tokens[0], N_EACH, 1, &err));
        uint64_t before = read_bytes(&f);
        for (uint32_t i = 1; i < 4; i++)
            ok(bt_session_decode_each(f.session, f.tokens[0] + i, N_EACH, 1, &err));
        bytes[all] = read_bytes(&f) - before;
        bt_session_close(f.session);
    }
    assert_true(bytes[0] > 0);
    assert_true(bytes[1] >= bytes[0] && bytes[1] - bytes[0] < bytes[0] / 100); /* more rows of the table of tokens */
    close_model(&f);
}

/* Sequences that no micro-batch holds together, and a prompt that no batch does. */
static void test_groups(void **state) {
    (void)state;
    fixture f;
    if (!open_model(&f, "smollm2-135m-instruct-q4_1.gguf")) skip();
    random_prompts(&f, true);
    open_session(&f, N_SEQ, 9, 3); /* groups of 3 sequences and of 1; 3 tokens of each in a call */
    ok(bt_session_decode_each(f.session, f.tokens[0], N_EACH, 8, &err));
    llama_memory_t memory = llama_get_memory(bt_session_context(f.session));
    for (uint32_t s = 0; s < N_SEQ; s++)
        assert_int_equal(llama_memory_seq_pos_max(memory, (llama_seq_id)s), 7);
    /* a token of each of 3 sequences in a micro-batch: 8; then 3, 3 and 2 of the one that is left */
    assert_int_equal(bt_session_passes(f.session), 8 + 3);
    ok(bt_session_decode_each(f.session, f.tokens[0], N_EACH, 1, &err));
    assert_int_equal(bt_session_passes(f.session), 8 + 3 + 2);
    bt_session_close(f.session);
    close_model(&f);
}

static void test_full(void **state) {
    (void)state;
    fixture f;
    if (!open_model(&f, "smollm2-135m-instruct-q4_1.gguf")) skip();
    random_prompts(&f, true);
    open_session(&f, N_SEQ, N_EACH, N_UBATCH);
    ok(bt_session_decode_each(f.session, f.tokens[0], 0, N_EACH - 1, &err)); /* one row of tokens for all */
    assert_int_equal(bt_session_passes(f.session), N_SEQ);
    assert_int_equal(bt_session_decode_each(f.session, f.tokens[0], 0, 2, &err), BT_E_LIMIT);
    assert_string_equal(err.code, "context_full");
    assert_int_equal(bt_session_n_used(f.session), N_EACH - 1);
    ok(bt_session_decode_each(f.session, f.tokens[0], 0, 1, &err));
    bt_session_close(f.session);
    close_model(&f);
}

int main(void) {
    if (bt_engine_init(&err) != BT_OK) return 1;
    llama_log_set(kit_quiet, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_smollm2), cmocka_unit_test(test_gemma3), cmocka_unit_test(test_reads_once),
        cmocka_unit_test(test_groups),  cmocka_unit_test(test_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
