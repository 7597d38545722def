/* SPDX-License-Identifier: MIT
 * test_guest.c: the device in a program that is not ours (device/guest.c), with real libllama in this process.
 *
 * The reference is the same model on the CPU alone: logits of a prompt and of some steps must be the same, to the bit,
 * whatever is pinned, from two threads, loaded again, and for another model of the same names and shapes beside it.
 * What cannot be right fails, is heard once, and is over: the next graph works. */
#include "burthen.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "guest_kit.h"
#include "llama_kit.h"

#include "ggml-backend-impl.h"
#include "ggml-impl.h"

#include <pthread.h>

#define SKIPPED  77
#define N_SEEDS  2u
#define N_RELOAD 4u /* times that a model is loaded again; a table for two would not do */
#define N_ROUNDS 3u /* of each thread */

typedef struct reference {
    char path[4096];
    size_t n_vocab;
    float *logits[N_SEEDS];
} reference;

static reference ref;

static size_t logits_bytes(void) {
    return (size_t)GUEST_LOGITS * ref.n_vocab * sizeof(float);
}

static float *logits_new(void) {
    float *logits = malloc(logits_bytes());
    assert_non_null(logits);
    return logits;
}

/* ---- what is right ---- */

/* On the CPU alone. */
static void compute_alone(const char *path, uint32_t seed, float *logits) {
    struct llama_model *model = guest_load(NULL, path, NULL);
    assert_non_null(model);
    struct llama_context *context = guest_context(model, GUEST_CTX);
    assert_non_null(context);
    assert_int_equal(guest_decode(context, seed, logits), 0);
    llama_free(context);
    llama_model_free(model);
}

static void check_logits(struct llama_context *context, uint32_t seed, const float *wanted, const char *what) {
    float *got = logits_new();
    int32_t rc = guest_decode(context, seed, got);
    if (rc != 0) fail_msg("%s: llama_decode says %d", what, (int)rc);
    if (memcmp(got, wanted, logits_bytes()) != 0) fail_msg("%s: other logits than the CPU's", what);
    free(got);
}

static void check_model(struct llama_model *model, const float *wanted, const char *what) {
    struct llama_context *context = guest_context(model, GUEST_CTX);
    if (!context) fail_msg("%s: no context", what);
    check_logits(context, 0, wanted, what);
    llama_free(context);
}

static void check_heard(const guest *g, uint32_t n, const char *code) {
    if (g->n_heard != n || strcmp(g->heard.code, code) != 0)
        fail_msg("heard %u, last %s (%s); expected %u, %s", g->n_heard, g->heard.code, g->heard.text, n, code);
}

static void check_quiet(const guest *g) {
    if (g->n_heard != 0) fail_msg("heard %s: %s", g->heard.code, g->heard.text);
}

/* ---- the same model ---- */

static void check_pins(guest_pins pins) {
    guest g;
    guest_open(&g, ref.path, pins, 0);
    struct llama_model *model = guest_load(&g, ref.path, NULL);
    assert_non_null(model);
    struct llama_context *context = guest_context(model, GUEST_CTX);
    assert_non_null(context);
    for (uint32_t seed = 0; seed < N_SEEDS; seed++)
        check_logits(context, seed, ref.logits[seed], "pins");
    check_logits(context, 0, ref.logits[0], "once more");
    bt_line_use pinned = guest_line(&g, BT_LINE_PINNED);
    assert_int_equal(pinned.peak_committed_bytes, g.plan.ledger.bytes[BT_LINE_PINNED]);
    assert_true((g.plan.n_streamed > 0) == (guest_line(&g, BT_LINE_RING).committed_bytes > 0));
    llama_free(context);
    llama_model_free(model);
    check_quiet(&g);
    assert_int_equal(guest_line(&g, BT_LINE_KV).committed_bytes, 0);
    guest_close(&g);
}

static void test_nothing_pinned(void **state) {
    (void)state;
    check_pins(GUEST_PINS_NONE);
}

static void test_half_pinned(void **state) {
    (void)state;
    check_pins(GUEST_PINS_HALF);
}

static void test_all_pinned(void **state) {
    (void)state;
    check_pins(GUEST_PINS_ALL);
}

/* ---- two contexts, two threads ---- */

typedef struct job {
    struct llama_model *model;
    uint32_t seed;
    float *logits;
    const char *wrong;
} job;

/* No assertions here: they jump. */
static void *work(void *user) {
    job *j = user;
    struct llama_context *context = guest_context(j->model, GUEST_CTX);
    if (!context) {
        j->wrong = "no context";
        return NULL;
    }
    for (uint32_t i = 0; i < N_ROUNDS && !j->wrong; i++) {
        if (guest_decode(context, j->seed, j->logits) != 0)
            j->wrong = "llama_decode failed";
        else if (memcmp(j->logits, ref.logits[j->seed], logits_bytes()) != 0)
            j->wrong = "other logits than the CPU's";
    }
    llama_free(context);
    return NULL;
}

static void test_two_threads(void **state) {
    (void)state;
    guest g;
    guest_open(&g, ref.path, GUEST_PINS_HALF, 0);
    struct llama_model *model = guest_load(&g, ref.path, NULL);
    assert_non_null(model);
    job jobs[2];
    pthread_t threads[2];
    for (uint32_t i = 0; i < 2; i++) {
        jobs[i] = (job){.model = model, .seed = i, .logits = logits_new()};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &jobs[i]), 0);
    }
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (uint32_t i = 0; i < 2; i++) {
        if (jobs[i].wrong) fail_msg("thread %u: %s; heard %s", i, jobs[i].wrong, g.heard.text);
        free(jobs[i].logits);
    }
    llama_model_free(model);
    check_quiet(&g);
    guest_close(&g);
}

/* ---- small graphs beside it ---- */

/* y = 2 x, in a compute buffer of the device. */
typedef struct doubling {
    struct ggml_context *ctx;
    ggml_backend_buffer_t buffer;
    struct ggml_tensor *x, *y;
    struct ggml_cgraph *graph;
    ggml_backend_t backend;
} doubling;

static const float x_values[] = {1, 2, 3, 4}, y_values[] = {2, 4, 6, 8};

static void doubling_place(doubling *d, const guest *g) {
    bt_device *device = bt_holder_device(g->holder);
    d->buffer = ggml_backend_alloc_ctx_tensors_from_buft(d->ctx, bt_device_buffer_type(device));
    assert_non_null(d->buffer);
    ggml_backend_buffer_set_usage(d->buffer, GGML_BACKEND_BUFFER_USAGE_COMPUTE);
    d->backend = ggml_backend_dev_init(bt_device_ggml(device), NULL);
}

static void doubling_make(doubling *d, const guest *g, uint64_t uid) {
    struct ggml_init_params params = {ggml_tensor_overhead() * 8 + ggml_graph_overhead(), NULL, true};
    d->ctx = ggml_init(params);
    assert_non_null(d->ctx);
    d->x = ggml_new_tensor_1d(d->ctx, GGML_TYPE_F32, 4);
    d->y = ggml_scale(d->ctx, d->x, 2);
    d->graph = ggml_new_graph_custom(d->ctx, 8, false);
    ggml_build_forward_expand(d->graph, d->y);
    d->graph->uid = uid;
    doubling_place(d, g);
}

static void doubling_set(const doubling *d) {
    ggml_backend_tensor_set(d->x, x_values, 0, sizeof x_values);
}

static enum ggml_status doubling_run(const doubling *d) {
    return ggml_backend_graph_compute(d->backend, d->graph);
}

static void doubling_check(const doubling *d) {
    float got[4];
    ggml_backend_tensor_get(d->y, got, 0, sizeof got);
    assert_memory_equal(got, y_values, sizeof got);
}

static void doubling_free(doubling *d) {
    ggml_backend_buffer_free(d->buffer);
    ggml_free(d->ctx);
}

/* One context has set its inputs, or not yet read its results, while another computes on and on. */
static void test_others_leave_inputs_and_results(void **state) {
    (void)state;
    guest g;
    guest_open(&g, ref.path, GUEST_PINS_NONE, 0);
    struct llama_model *model = guest_load(&g, ref.path, NULL);
    assert_non_null(model);
    doubling waits, goes_on;
    doubling_make(&waits, &g, UINT64_MAX - 1); /* numbers that ggml does not reach */
    doubling_make(&goes_on, &g, UINT64_MAX - 2);
    doubling_set(&waits);
    doubling_set(&goes_on);
    for (int i = 0; i < 20; i++)
        assert_int_equal(doubling_run(&goes_on), GGML_STATUS_SUCCESS);
    assert_int_equal(doubling_run(&waits), GGML_STATUS_SUCCESS);
    for (int i = 0; i < 20; i++)
        assert_int_equal(doubling_run(&goes_on), GGML_STATUS_SUCCESS);
    doubling_check(&waits);
    doubling_check(&goes_on);
    check_quiet(&g);
    doubling_free(&waits);
    doubling_free(&goes_on);
    llama_model_free(model);
    guest_close(&g);
}

/* A buffer that another thread is about to give its use, or to fill with weights, is not taken for a cache. */
static void test_buffer_in_the_making(void **state) {
    (void)state;
    guest g;
    guest_open(&g, ref.path, GUEST_PINS_NONE, 0);
    struct llama_model *model = guest_load(&g, ref.path, NULL);
    assert_non_null(model);
    doubling d;
    doubling_make(&d, &g, 0);
    doubling_set(&d);
    ggml_backend_buffer_t large =
        ggml_backend_buft_alloc_buffer(bt_device_buffer_type(bt_holder_device(g.holder)), 1000 * GUEST_MIB);
    assert_non_null(large);
    assert_int_equal(doubling_run(&d), GGML_STATUS_SUCCESS);
    doubling_check(&d);
    assert_int_equal(guest_line(&g, BT_LINE_KV).committed_bytes, 0);
    check_quiet(&g);
    ggml_backend_buffer_free(large);
    doubling_free(&d);
    llama_model_free(model);
    guest_close(&g);
}

/* A compute buffer that is asked for larger than its line is charged for what graphs touch, up to the line. */
static void test_charged_by_touch(void **state) {
    (void)state;
    guest g;
    guest_open(&g, ref.path, GUEST_PINS_NONE, 0);
    struct llama_model *model = guest_load(&g, ref.path, NULL);
    assert_non_null(model);
    uint64_t line_bytes = g.plan.ledger.bytes[BT_LINE_COMPUTE];
    doubling d = {0};
    struct ggml_init_params params = {ggml_tensor_overhead() * 8 + 2 * ggml_graph_overhead(), NULL, true};
    d.ctx = ggml_init(params);
    assert_non_null(d.ctx);
    d.x = ggml_new_tensor_1d(d.ctx, GGML_TYPE_F32, 4);
    struct ggml_tensor *between = ggml_new_tensor_1d(d.ctx, GGML_TYPE_F32, (int64_t)(2 * line_bytes / sizeof(float)));
    d.y = ggml_scale(d.ctx, d.x, 2);
    d.graph = ggml_new_graph_custom(d.ctx, 8, false);
    ggml_build_forward_expand(d.graph, d.y);
    struct ggml_cgraph *all = ggml_new_graph_custom(d.ctx, 8, false);
    ggml_build_forward_expand(all, ggml_scale_inplace(d.ctx, between, 3));
    doubling_place(&d, &g);
    for (uint32_t i = 0; i < 2; i++) {
        doubling_set(&d);
        assert_int_equal(doubling_run(&d), GGML_STATUS_SUCCESS);
        doubling_check(&d);
        uint64_t committed_bytes = guest_line(&g, BT_LINE_COMPUTE).committed_bytes;
        assert_true(committed_bytes >= 2 * 4096 && committed_bytes < GUEST_MIB); /* two pages, and the schedule */
        assert_int_equal(g.n_heard, i);
        assert_int_equal(ggml_backend_graph_compute(d.backend, all), GGML_STATUS_FAILED);
        check_heard(&g, i + 1, "ram_budget");
    }
    doubling_free(&d);
    llama_model_free(model);
    guest_close(&g);
}

/* What a callback could not return fails one graph, is heard once, and is over. */
static void test_heard_once(void **state) {
    (void)state;
    guest g;
    guest_open(&g, ref.path, GUEST_PINS_HALF, 0);
    struct llama_model *model = guest_load(&g, ref.path, NULL);
    assert_non_null(model);
    struct llama_context *context = guest_context(model, GUEST_CTX);
    assert_non_null(context);
    doubling d;
    doubling_make(&d, &g, 0);
    float *logits = logits_new();
    for (uint32_t i = 1; i <= 2; i++) {
        d.x->data = (uint8_t *)ggml_backend_buffer_get_base(d.buffer) + ggml_backend_buffer_get_size(d.buffer) - 4;
        d.x->buffer->iface.set_tensor(d.x->buffer, d.x, x_values, 0, sizeof x_values);
        d.x->buffer->iface.set_tensor(d.x->buffer, d.x, x_values, 0, sizeof x_values); /* the first one counts */
        check_heard(&g, i - 1, i == 1 ? "" : "buffer_bounds");
        assert_int_not_equal(guest_decode(context, 0, logits), 0);
        check_heard(&g, i, "buffer_bounds");
        assert_int_equal(g.heard.have, ggml_backend_buffer_get_size(d.buffer));
        assert_int_equal(g.heard.need, ggml_backend_buffer_get_size(d.buffer) - 4 + sizeof x_values);
        check_logits(context, 0, ref.logits[0], "after a failure");
        check_heard(&g, i, "buffer_bounds");
    }
    free(logits);
    doubling_free(&d);
    llama_free(context);
    llama_model_free(model);
    guest_close(&g);
}

/* A context for which there is no room: the call fails, or its graphs do, and one that fits works after it. */
static void test_context_too_large(void **state) {
    (void)state;
    guest g;
    guest_open(&g, ref.path, GUEST_PINS_HALF, 0);
    struct llama_model *model = guest_load(&g, ref.path, NULL);
    assert_non_null(model);
    struct llama_context *large = guest_context(model, 4096);
    float *logits = logits_new();
    for (uint32_t i = 0; large && i < 2; i++)
        assert_int_not_equal(guest_decode(large, 0, logits), 0);
    assert_true(g.n_heard > 0);
    assert_string_equal(g.heard.code, "ram_budget");
    assert_true(guest_line(&g, BT_LINE_KV).committed_bytes <= g.plan.ledger.bytes[BT_LINE_KV]);
    if (large) llama_free(large);
    uint32_t n = g.n_heard;
    check_model(model, ref.logits[0], "a context that fits");
    assert_int_equal(g.n_heard, n);
    free(logits);
    llama_model_free(model);
    guest_close(&g);
}

/* ---- loaded again, and others ---- */

static void test_loaded_twice(void **state) {
    (void)state;
    guest g;
    guest_open(&g, ref.path, GUEST_PINS_HALF, 0);
    struct llama_model *first = guest_load(&g, ref.path, NULL);
    assert_non_null(first);
    struct llama_context *context = guest_context(first, GUEST_CTX);
    assert_non_null(context);
    check_logits(context, 0, ref.logits[0], "the first");
    struct llama_model *second = guest_load(&g, ref.path, NULL);
    assert_non_null(second);
    check_model(second, ref.logits[0], "the second");
    check_logits(context, 1, ref.logits[1], "the first beside the second");
    llama_free(context);
    llama_model_free(first);
    check_model(second, ref.logits[0], "the second alone");
    llama_model_free(second);
    check_quiet(&g);
    guest_close(&g);
}

/* Blocks of other sizes between, so that libllama's tensors come to lie elsewhere each time. */
static void test_loaded_again_and_again(void **state) {
    (void)state;
    guest g;
    guest_open(&g, ref.path, GUEST_PINS_NONE, 0);
    void *between[N_RELOAD];
    for (uint32_t i = 0; i < N_RELOAD; i++) {
        struct llama_model *model = guest_load(&g, ref.path, NULL);
        assert_non_null(model);
        struct llama_model *beside = guest_load(&g, ref.path, NULL);
        assert_non_null(beside);
        llama_model_free(model);
        check_model(beside, ref.logits[0], "loaded again");
        llama_model_free(beside);
        between[i] = malloc(30000 + 7000 * i);
    }
    for (uint32_t i = 0; i < N_RELOAD; i++)
        free(between[i]);
    check_quiet(&g);
    guest_close(&g);
}

/* ---- another model of the same header ---- */

typedef enum variant { VARIANT_FROM_START, VARIANT_AT_END } variant;

/* In the last block of a tensor, or the first: numbers change a little. Scales stand at the start of a block. */
static uint64_t byte_to_change(const bt_tensor *tensor, variant kind) {
    uint64_t block_bytes = ggml_type_size((enum ggml_type)tensor->type);
    uint64_t in_block = block_bytes > 4 ? block_bytes - 1 : 1;
    return tensor->file_offset + (kind == VARIANT_FROM_START ? 0 : tensor->bytes - block_bytes) + in_block;
}

static void write_variant(const bt_facts *facts, const char *path, variant kind) {
    size_t n = (size_t)facts->shards[0].file_bytes;
    uint8_t *bytes = malloc(n);
    assert_non_null(bytes);
    FILE *in = fopen(facts->path, "rb");
    assert_non_null(in);
    assert_int_equal(fread(bytes, 1, n, in), n);
    assert_int_equal(fclose(in), 0);
    for (uint32_t i = 0; i < facts->n_tensors; i++)
        bytes[byte_to_change(&facts->tensors[i], kind)] ^= 0x55;
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
    free(bytes);
}

static void make_variant(const guest *g, variant kind, char path[512], float *logits) {
    (void)snprintf(path, 512, "%s/guest-variant-%ld.gguf", BT_TEST_OUT, (long)getpid());
    write_variant(g->facts, path, kind);
    compute_alone(path, 0, logits);
    assert_memory_not_equal(logits, ref.logits[0], logits_bytes());
}

/* Where there is room it is ordinary memory, and right; the first one stays what it was. */
static void check_variant(variant kind) {
    guest g;
    guest_open(&g, ref.path, GUEST_PINS_HALF, 300 * GUEST_MIB);
    char path[512];
    float *wanted = logits_new();
    make_variant(&g, kind, path, wanted);
    struct llama_model *first = guest_load(&g, ref.path, NULL);
    assert_non_null(first);
    struct llama_context *context = guest_context(first, GUEST_CTX);
    assert_non_null(context);
    check_logits(context, 0, ref.logits[0], "the plan's model");
    struct llama_model *other = guest_load(&g, path, NULL);
    assert_non_null(other);
    assert_true(guest_line(&g, BT_LINE_ADAPTERS).committed_bytes > 0);
    check_model(other, wanted, "another model");
    check_logits(context, 1, ref.logits[1], "the plan's model beside another");
    llama_free(context);
    llama_model_free(first);
    llama_model_free(other);
    /* in the place of the first: its tensors may stand where the other's stood */
    other = guest_load(&g, path, NULL);
    assert_non_null(other);
    check_model(other, wanted, "another model, after both were gone");
    llama_model_free(other);
    first = guest_load(&g, ref.path, NULL);
    assert_non_null(first);
    check_model(first, ref.logits[0], "the plan's model, again");
    llama_model_free(first);
    check_quiet(&g);
    assert_int_equal(guest_line(&g, BT_LINE_ADAPTERS).committed_bytes, 0);
    free(wanted);
    (void)unlink(path);
    guest_close(&g);
}

static void test_another_model(void **state) {
    (void)state;
    check_variant(VARIANT_FROM_START);
}

/* A fine-tuned model may begin as the one it came from, tensor by tensor. */
static void test_another_model_that_begins_alike(void **state) {
    (void)state;
    check_variant(VARIANT_AT_END);
}

/* Without room it is refused, each time, and the first one works on. */
static void test_another_model_without_room(void **state) {
    (void)state;
    guest g;
    guest_open(&g, ref.path, GUEST_PINS_HALF, 0);
    char path[512];
    float *logits = logits_new();
    make_variant(&g, VARIANT_FROM_START, path, logits);
    struct llama_model *first = guest_load(&g, ref.path, NULL);
    assert_non_null(first);
    struct llama_context *context = guest_context(first, GUEST_CTX);
    assert_non_null(context);
    check_logits(context, 0, ref.logits[0], "the plan's model");
    struct llama_model *other = guest_load(&g, path, NULL);
    struct llama_context *refused = other ? guest_context(other, GUEST_CTX) : NULL;
    for (uint32_t i = 0; refused && i < 3; i++)
        assert_int_not_equal(guest_decode(refused, 0, logits), 0);
    assert_true(g.n_heard > 0);
    assert_string_equal(g.heard.code, "ram_budget");
    if (refused) llama_free(refused);
    llama_model_free(other);
    check_logits(context, 1, ref.logits[1], "the plan's model, after another was refused");
    llama_free(context);
    llama_model_free(first);
    free(logits);
    (void)unlink(path);
    guest_close(&g);
}

/* ---- loading that goes wrong ---- */

static void test_weights_elsewhere(void **state) {
    (void)state;
    guest g;
    guest_open(&g, ref.path, GUEST_PINS_HALF, 0);
    struct llama_model *model = guest_load(&g, ref.path, "blk\\.7\\.ffn_up");
    assert_non_null(model);
    for (uint32_t i = 0; i < 2; i++) {
        assert_null(guest_context(model, GUEST_CTX));
        assert_true(g.n_heard > i); /* libllama may ask for a buffer more than once */
        assert_string_equal(g.heard.code, "weights_elsewhere");
        assert_int_equal(g.heard.need, 1);
        assert_non_null(strstr(g.heard.text, "blk.7.ffn_up.weight"));
    }
    llama_model_free(model);
    /* as it should be, in the same process */
    uint32_t n = g.n_heard;
    model = guest_load(&g, ref.path, NULL);
    assert_non_null(model);
    check_model(model, ref.logits[0], "all weights here");
    assert_int_equal(g.n_heard, n);
    llama_model_free(model);
    guest_close(&g);
}

/* The file, tensor by tensor, as libllama's loader hands it over. */
typedef struct hand {
    struct ggml_context *ctx;
    ggml_backend_buffer_t buffer;
    uint8_t *file;
} hand;

static void hand_make(hand *h, const guest *g) {
    const bt_facts *facts = g->facts;
    struct ggml_init_params params = {ggml_tensor_overhead() * (facts->n_tensors + 1), NULL, true};
    h->ctx = ggml_init(params);
    assert_non_null(h->ctx);
    for (uint32_t i = 0; i < facts->n_tensors; i++) {
        const bt_tensor *t = &facts->tensors[i];
        ggml_set_name(ggml_new_tensor_2d(h->ctx, (enum ggml_type)t->type, (int64_t)t->ne[0], (int64_t)t->ne[1]),
                      t->name);
    }
    h->buffer = ggml_backend_alloc_ctx_tensors_from_buft(h->ctx, bt_device_buffer_type(bt_holder_device(g->holder)));
    assert_non_null(h->buffer);
    ggml_backend_buffer_set_usage(h->buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    h->file = malloc((size_t)facts->shards[0].file_bytes);
    assert_non_null(h->file);
    FILE *in = fopen(facts->path, "rb");
    assert_non_null(in);
    assert_int_equal(fread(h->file, 1, (size_t)facts->shards[0].file_bytes, in), facts->shards[0].file_bytes);
    assert_int_equal(fclose(in), 0);
}

static void hand_over(const hand *h, const bt_tensor *t) {
    struct ggml_tensor *tensor = ggml_get_tensor(h->ctx, t->name);
    for (uint64_t at = 0; at < t->bytes; at += GUEST_MIB) {
        uint64_t n = t->bytes - at < GUEST_MIB ? t->bytes - at : GUEST_MIB;
        ggml_backend_tensor_set(tensor, h->file + t->file_offset + at, (size_t)at, (size_t)n);
    }
}

static void hand_over_all(const hand *h, const guest *g) {
    for (uint32_t i = 0; i < g->facts->n_tensors; i++)
        hand_over(h, &g->facts->tensors[i]);
}

static void hand_free(hand *h) {
    ggml_backend_buffer_free(h->buffer);
    ggml_free(h->ctx);
    free(h->file);
}

static const bt_tensor *tensor_named(const guest *g, const char *name) {
    for (uint32_t i = 0; i < g->facts->n_tensors; i++)
        if (strcmp(g->facts->tensors[i].name, name) == 0) return &g->facts->tensors[i];
    fail_msg("no %s", name);
    return NULL;
}

static ggml_backend_buffer_t ask_for_cache(const guest *g) {
    return ggml_backend_buft_alloc_buffer(bt_device_buffer_type(bt_holder_device(g->holder)), GUEST_MIB);
}

/* A later piece is not what stands in the file: no context comes of it, as often as one is asked for. */
static void test_changed_while_loaded(void **state) {
    (void)state;
    guest g;
    guest_open(&g, ref.path, GUEST_PINS_ALL, 0);
    hand h;
    hand_make(&h, &g);
    const bt_tensor *t = tensor_named(&g, "token_embd.weight");
    assert_true(t->bytes > 2 * GUEST_MIB);
    h.file[t->file_offset + GUEST_MIB + 7] ^= 1;
    hand_over_all(&h, &g);
    assert_int_equal(g.n_heard, 0);
    for (uint32_t i = 1; i <= 2; i++) {
        assert_null(ask_for_cache(&g));
        check_heard(&g, i, "model_changed");
        assert_non_null(strstr(g.heard.text, "token_embd.weight"));
    }
    hand_free(&h);
    /* loaded once more, and right */
    struct llama_model *model = guest_load(&g, ref.path, NULL);
    assert_non_null(model);
    check_model(model, ref.logits[0], "loaded once more");
    check_heard(&g, 2, "model_changed");
    llama_model_free(model);
    guest_close(&g);
}

/* Norms of a family often begin alike: of small tensors every byte counts. */
static void test_small_tensor_of_another(void **state) {
    (void)state;
    guest g;
    guest_open(&g, ref.path, GUEST_PINS_NONE, 200 * GUEST_MIB);
    hand h;
    hand_make(&h, &g);
    const bt_tensor *t = tensor_named(&g, "output_norm.weight");
    assert_int_equal(t->role, BT_ROLE_SMALL);
    hand_over(&h, tensor_named(&g, "blk.0.attn_norm.weight"));
    assert_int_equal(guest_line(&g, BT_LINE_ADAPTERS).committed_bytes, 0);
    uint8_t *last = &h.file[t->file_offset + t->bytes - 1];
    *last ^= 1;
    hand_over(&h, t);
    assert_true(guest_line(&g, BT_LINE_ADAPTERS).committed_bytes > 0);
    const struct ggml_tensor *tensor = ggml_get_tensor(h.ctx, t->name);
    assert_memory_equal(tensor->data, h.file + t->file_offset, t->bytes); /* ordinary memory */
    uint8_t *got = malloc((size_t)t->bytes);
    assert_non_null(got);
    ggml_backend_tensor_get(tensor, got, 0, (size_t)t->bytes);
    assert_memory_equal(got, h.file + t->file_offset, t->bytes);
    free(got);
    hand_free(&h);
    check_quiet(&g);
    guest_close(&g);
}

/* A tensor's record that is used again, for another one. */
static void test_record_used_again(void **state) {
    (void)state;
    guest g;
    guest_open(&g, ref.path, GUEST_PINS_NONE, 200 * GUEST_MIB);
    hand h;
    hand_make(&h, &g);
    const bt_tensor *q = tensor_named(&g, "blk.0.attn_q.weight"), *other = tensor_named(&g, "blk.0.attn_output.weight");
    assert_int_equal(q->bytes, other->bytes);
    hand_over_all(&h, &g);
    struct ggml_tensor *tensor = ggml_get_tensor(h.ctx, q->name);
    ggml_backend_buffer_free(h.buffer);
    h.buffer = ggml_backend_buft_alloc_buffer(bt_device_buffer_type(bt_holder_device(g.holder)), (size_t)q->bytes);
    assert_non_null(h.buffer);
    ggml_backend_buffer_set_usage(h.buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    tensor->buffer = NULL;
    tensor->data = NULL;
    assert_int_equal(ggml_backend_tensor_alloc(h.buffer, tensor, ggml_backend_buffer_get_base(h.buffer)),
                     GGML_STATUS_SUCCESS);
    ggml_set_name(tensor, "of.an.adapter");
    const uint8_t *bytes = h.file + other->file_offset;
    ggml_backend_tensor_set(tensor, bytes, 0, (size_t)q->bytes);
    uint8_t *got = malloc((size_t)q->bytes);
    assert_non_null(got);
    ggml_backend_tensor_get(tensor, got, 0, (size_t)q->bytes);
    assert_memory_equal(got, bytes, q->bytes);
    assert_memory_equal(tensor->data, bytes, q->bytes);
    free(got);
    hand_free(&h);
    check_quiet(&g);
    guest_close(&g);
}

/* ---- all ---- */

static bool make_reference(void) {
    if (!guest_model_path(ref.path)) return false;
    struct llama_model *model = guest_load(NULL, ref.path, NULL);
    if (!model) return false;
    ref.n_vocab = (size_t)guest_n_vocab(model);
    llama_model_free(model);
    return true;
}

static int set_up(void **state) {
    (void)state;
    for (uint32_t seed = 0; seed < N_SEEDS; seed++) {
        ref.logits[seed] = logits_new();
        compute_alone(ref.path, seed, ref.logits[seed]);
    }
    return memcmp(ref.logits[0], ref.logits[1], logits_bytes()) != 0 ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    for (uint32_t seed = 0; seed < N_SEEDS; seed++)
        free(ref.logits[seed]);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    bt_report_init("of a test");
    llama_log_set(kit_quiet, NULL);
    llama_backend_init();
    if (!make_reference()) {
        (void)puts("skipped: smollm2-135m-instruct-q4_1.gguf is not there");
        return SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_pinned),
        cmocka_unit_test(test_half_pinned),
        cmocka_unit_test(test_all_pinned),
        cmocka_unit_test(test_two_threads),
        cmocka_unit_test(test_others_leave_inputs_and_results),
        cmocka_unit_test(test_buffer_in_the_making),
        cmocka_unit_test(test_charged_by_touch),
        cmocka_unit_test(test_heard_once),
        cmocka_unit_test(test_context_too_large),
        cmocka_unit_test(test_loaded_twice),
        cmocka_unit_test(test_loaded_again_and_again),
        cmocka_unit_test(test_another_model),
        cmocka_unit_test(test_another_model_that_begins_alike),
        cmocka_unit_test(test_another_model_without_room),
        cmocka_unit_test(test_weights_elsewhere),
        cmocka_unit_test(test_changed_while_loaded),
        cmocka_unit_test(test_small_tensor_of_another),
        cmocka_unit_test(test_record_used_again),
    };
    return cmocka_run_group_tests_name("guest", tests, set_up, tear_down);
}
