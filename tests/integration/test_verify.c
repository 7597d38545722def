/* SPDX-License-Identifier: MIT
 * test_verify.c: tokens that are verified together have the logits of single steps, to the bit (docs/design.md S2), and
 * taking them back leaves nothing behind.
 *
 *     prompt | verify 7 tokens | take back | the same 7, step by step        rows of logits must be equal
 *
 * Real models, and one of random weights in which no two blocks have the same types; all of it streamed; flash
 * attention and none, caches in f16 and q8_0, few cells and more than ggml splits over threads (512), a window that has
 * passed. */
#include "base/heap.h"
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

#define N_CTX     1024u
#define N_UBATCH  256u
#define N_GUESS   ((uint32_t)BT_TOKEN_BY_TOKEN_MAX)
#define TYPE_F16  1u
#define TYPE_Q8_0 8u

typedef struct fixture {
    bt_facts *facts;
    bt_plan plan;
    bt_engine *engine;
    bt_session *session;
    float *together, *alone; /* [N_GUESS][n_vocab] */
} fixture;

static void plan_all_streamed(fixture *f) {
    f->plan = (bt_plan){.n_ctx = N_CTX,
                        .n_batch = N_CTX,
                        .n_ubatch = N_UBATCH,
                        .n_parallel = 1,
                        .n_threads = 2,
                        .n_slots = 2,
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
    bt_error err = {0};
    if (bt_facts_open(path, &f->facts, &err) != BT_OK) fail_msg("%s", err.text);
    plan_all_streamed(f);
    bt_engine_params params = {.facts = f->facts, .plan = &f->plan, .n_threads = 2};
    if (bt_engine_open(&params, &f->engine, &err) != BT_OK) fail_msg("%s", err.text);
    f->together = bt_heap_array((size_t)N_GUESS * f->facts->n_vocab, sizeof *f->together);
    f->alone = bt_heap_array((size_t)N_GUESS * f->facts->n_vocab, sizeof *f->alone);
    assert_true(f->together && f->alone);
    return true;
}

static void close_model(fixture *f) {
    bt_engine_close(f->engine);
    bt_heap_free(f->together);
    bt_heap_free(f->alone);
    bt_heap_free(f->plan.place);
    bt_facts_close(f->facts);
}

static void keep_row(const fixture *f, int32_t row, float *dest) {
    const float *logits = llama_get_logits_ith(bt_session_context(f->session), row);
    assert_non_null(logits);
    memcpy(dest, logits, f->facts->n_vocab * sizeof *dest);
}

static void compare(fixture *f, uint32_t n_prompt) {
    uint64_t state = n_prompt;
    int32_t tokens[N_CTX];
    for (uint32_t i = 0; i < n_prompt + N_GUESS; i++)
        tokens[i] = (int32_t)(random_next(&state) % f->facts->n_vocab);
    bt_error err = {0};
    bt_session_clear(f->session);
    if (bt_session_decode(f->session, tokens, n_prompt, NULL, &err) != BT_OK) fail_msg("%s", err.text);
    if (bt_session_verify(f->session, tokens + n_prompt, N_GUESS, &err) != BT_OK) fail_msg("%s", err.text);
    for (uint32_t i = 0; i < N_GUESS; i++)
        keep_row(f, (int32_t)i, f->together + (size_t)i * f->facts->n_vocab);
    assert_int_equal(bt_session_take_back(f->session, n_prompt, &err), BT_OK);
    assert_int_equal(bt_session_n_used(f->session), n_prompt);
    for (uint32_t i = 0; i < N_GUESS; i++) {
        if (bt_session_decode(f->session, tokens + n_prompt + i, 1, NULL, &err) != BT_OK) fail_msg("%s", err.text);
        keep_row(f, -1, f->alone + (size_t)i * f->facts->n_vocab);
    }
    for (uint32_t i = 0; i < N_GUESS; i++) {
        size_t at = (size_t)i * f->facts->n_vocab;
        if (memcmp(f->together + at, f->alone + at, f->facts->n_vocab * sizeof *f->alone) != 0)
            fail_msg("%s: token %u after a prompt of %u differs", f->facts->path, i, n_prompt);
    }
}

static void check_model(const char *name) {
    static const struct {
        uint32_t type;
        bt_choice flash_attn;
        uint32_t prompts[2]; /* 0: none */
    } forms[] = {{TYPE_F16, BT_ON, {40, 600}}, {TYPE_Q8_0, BT_ON, {300, 0}}, {TYPE_F16, BT_OFF, {300, 0}}};
    fixture f;
    if (!open_model(&f, name)) {
        (void)printf("%s is not there\n", name);
        return;
    }
    bt_error err = {0};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        f.plan.type_k = f.plan.type_v = forms[i].type;
        f.plan.wishes.flash_attn = forms[i].flash_attn;
        bt_session_params params = bt_session_params_of(&f.plan, N_GUESS);
        if (bt_session_open(f.engine, &params, &f.session, &err) != BT_OK) fail_msg("%s", err.text);
        assert_true(bt_session_goes_back(f.session));
        if (i == 0) assert_int_equal(bt_device_learn_same_rows(bt_engine_device(f.engine), &err), BT_OK);
        for (size_t p = 0; p < 2 && forms[i].prompts[p] > 0; p++)
            compare(&f, forms[i].prompts[p]);
        bt_session_close(f.session);
    }
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

static void test_mix(void **state) {
    (void)state;
    check_model("random-mix.gguf");
}

/* More than can be verified, and taking back what is not there. */
static void test_refusals(void **state) {
    (void)state;
    fixture f;
    if (!open_model(&f, "smollm2-135m-instruct-q4_1.gguf")) skip();
    bt_error err = {0};
    f.plan.type_k = f.plan.type_v = TYPE_F16;
    bt_session_params params = bt_session_params_of(&f.plan, 3);
    assert_int_equal(bt_session_open(f.engine, &params, &f.session, &err), BT_OK);
    int32_t tokens[N_GUESS + 1] = {1, 2, 3, 4, 5, 6, 7, 8};
    assert_int_equal(bt_session_verify(f.session, tokens, N_GUESS + 1, &err), BT_E_ARG);
    assert_int_equal(bt_session_verify(f.session, tokens, 4, &err), BT_E_ARG); /* rows of logits for 3 */
    assert_string_equal(err.code, "verify");
    assert_int_equal(bt_session_verify(f.session, tokens, 3, &err), BT_OK);
    assert_int_equal(bt_session_take_back(f.session, 5, &err), BT_OK);
    assert_int_equal(bt_session_n_used(f.session), 3);
    assert_int_equal(bt_session_take_back(f.session, 0, &err), BT_OK);
    assert_int_equal(bt_session_n_used(f.session), 0);
    bt_session_close(f.session);
    close_model(&f);
}

int main(void) {
    bt_error err = {0};
    if (bt_engine_init(&err) != BT_OK) return 1;
    llama_log_set(kit_quiet, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_smollm2),
        cmocka_unit_test(test_gemma3),
        cmocka_unit_test(test_mix),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
