/* SPDX-License-Identifier: MIT
 * test_replace.c: weights that are repacked in their own memory (docs/decisions/019).
 *
 * First ggml alone: repacking a matrix rows by rows, in place, gives the bytes that repacking it whole gives. Then the
 * device with a small model, as libllama would use it: products are those of ggml's own repacked buffer, to the bit;
 * what needs the plain layout gets it, also after a read that failed; what is asked back is what the file holds; and no
 * more memory is taken than the account was told. */
#include "base/fault.h"
#include "base/heap.h"
#include "device/device.h"
#include "gguf_write.h"
#include "random.h"

#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml-impl.h"
#include "ggml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define N_EMBD   384u /* K and V are then under 64 KiB: small weights, which are replaced too */
#define N_FF     1024u
#define N_BLOCK  2u
#define N_VOCAB  64u
#define N_UP     6u /* of a block, 2-D weights: q k v output, gate up down less one */
#define MAX_COLS 64u

static ggml_backend_dev_t cpu_dev;
static ggml_backend_buffer_type_t repack_type;

static void find_repack_type(void) {
    cpu_dev = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (!cpu_dev) return;
    void *symbol =
        ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(cpu_dev), "ggml_backend_dev_get_extra_bufts");
    ggml_backend_dev_get_extra_bufts_t get_types = NULL;
    memcpy(&get_types, &symbol, sizeof get_types);
    ggml_backend_buffer_type_t *types = get_types ? get_types(cpu_dev) : NULL;
    for (; types && *types; types++)
        if (strcmp(ggml_backend_buft_name(*types), "CPU_REPACK") == 0) repack_type = *types;
}

/* ---- ggml alone ---- */

static struct ggml_tensor header(ggml_backend_buffer_t buffer, enum ggml_type type, int64_t n_columns, int64_t n_rows) {
    struct ggml_tensor t = {.type = type, .ne = {n_columns, n_rows, 1, 1}, .buffer = buffer};
    t.nb[0] = ggml_type_size(type);
    t.nb[1] = ggml_row_size(type, n_columns);
    t.nb[2] = t.nb[3] = t.nb[1] * (size_t)n_rows;
    assert_int_equal(buffer->iface.init_tensor(buffer, &t), GGML_STATUS_SUCCESS);
    assert_non_null(t.extra);
    return t;
}

static void repack(struct ggml_tensor *t, void *dest, const void *plain) {
    t->data = dest;
    t->buffer->iface.set_tensor(t->buffer, t, plain, 0, ggml_nbytes(t));
}

static void check_groups(ggml_backend_buffer_t buffer, enum ggml_type type, int64_t n_columns, int64_t n_rows,
                         int64_t n_step) {
    struct ggml_tensor whole = header(buffer, type, n_columns, n_rows);
    size_t row_bytes = whole.nb[1], bytes = row_bytes * (size_t)n_rows;
    uint8_t *plain = malloc(bytes), *wanted = malloc(bytes), *copy = malloc(row_bytes * (size_t)n_step);
    assert_true(plain && wanted && copy);
    uint64_t seed = (uint64_t)(n_columns * 1000 + n_rows + n_step);
    for (size_t i = 0; i < bytes; i++)
        plain[i] = (uint8_t)random_next(&seed);
    repack(&whole, wanted, plain);
    assert_memory_not_equal(wanted, plain, bytes);
    for (int64_t row = 0; row < n_rows; row += n_step) {
        int64_t n = n_rows - row < n_step ? n_rows - row : n_step;
        struct ggml_tensor part = header(buffer, type, n_columns, n);
        uint8_t *place = plain + (size_t)row * row_bytes;
        memcpy(copy, place, (size_t)n * row_bytes);
        repack(&part, place, copy);
    }
    if (memcmp(plain, wanted, bytes) != 0)
        fail_msg("%s %d x %d by %d rows differs from the whole", ggml_type_name(type), (int)n_columns, (int)n_rows,
                 (int)n_step);
    free(plain);
    free(wanted);
    free(copy);
}

static void test_groups(void **state) {
    (void)state;
    static const enum ggml_type types[] = {GGML_TYPE_Q4_0, GGML_TYPE_IQ4_NL, GGML_TYPE_MXFP4, GGML_TYPE_Q4_K};
    static const int64_t shapes[][2] = {{256, 8}, {256, 64}, {512, 24}, {2304, 40}, {768, 1000}};
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(repack_type, 64);
    assert_non_null(buffer);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int64_t n_step = 8; n_step <= 56; n_step += 16)
                check_groups(buffer, types[t], shapes[s][0], shapes[s][1], n_step);
        if (types[t] != GGML_TYPE_Q4_K) check_groups(buffer, types[t], 96, 48, 16); /* no multiple of 256 */
    }
    ggml_backend_buffer_free(buffer);
}

/* ---- a model, and the device with it ---- */

typedef struct rig {
    char path[512];
    enum ggml_type type;
    bt_facts *facts;
    uint8_t *file; /* all bytes of it */
    bt_place *place;
    bt_store store;
    bt_reader *reader;
    bt_account *account;
    bt_device *device;
    struct ggml_context *weights;
    ggml_backend_buffer_t buffer;
    uint64_t caps[BT_LINE_COUNT];
} rig;

/* Numbers between -1 and 1. */
static void fill(float *numbers, size_t n, uint64_t *seed) {
    for (size_t i = 0; i < n; i++)
        numbers[i] = (float)(int32_t)(random_next(seed) >> 32) / 2147483648.0f;
}

/* Blocks of any bits are weights, but for their scale: a half float, or an exponent (mxfp4). */
static void fill_blocks(enum ggml_type type, uint8_t *data, size_t bytes, uint64_t *seed) {
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)random_next(seed);
    for (size_t at = 0; at < bytes; at += ggml_type_size(type)) {
        if (type == GGML_TYPE_MXFP4)
            data[at] = (uint8_t)(118 + data[at] % 4); /* 2^-9 and more */
        else
            data[at + 1] = 0x20; /* 2^-7 and more */
    }
}

/* Real weights, so that products are numbers. */
static void write_data(rig *r) {
    const uint64_t file_bytes = r->facts->shards[0].file_bytes;
    r->file = calloc(1, file_bytes);
    assert_non_null(r->file);
    FILE *f = fopen(r->path, "rb");
    if (!f) fail_msg("cannot open %s", r->path);
    size_t n_read = f ? fread(r->file, 1, file_bytes, f) : 0;
    if (f) (void)fclose(f);
    assert_int_equal(n_read, file_bytes);
    uint64_t seed = 7 + (uint64_t)r->type;
    for (uint32_t i = 0; i < r->facts->n_tensors; i++) {
        const bt_tensor *t = &r->facts->tensors[i];
        if (t->type == (uint32_t)r->type) fill_blocks(r->type, r->file + t->file_offset, (size_t)t->bytes, &seed);
    }
    gw_write_bytes(r->path, r->file, file_bytes);
}

static bt_facts *open_facts(const char *path) {
    bt_error err = {0};
    bt_facts *facts = NULL;
    if (bt_facts_open(path, &facts, &err) != BT_OK) fail_msg("%s", err.text);
    return facts;
}

static void make_model(rig *r, enum ggml_type type) {
    memset(r, 0, sizeof *r);
    r->type = type;
    (void)mkdir(BT_TEST_OUT, 0777);
    (void)snprintf(r->path, sizeof r->path, "%s/replace-%s.gguf", BT_TEST_OUT, ggml_type_name(type));
    const gw_model model = {.arch = "llama",
                            .n_block = N_BLOCK,
                            .n_embd = N_EMBD,
                            .n_ff = N_FF,
                            .n_vocab = N_VOCAB,
                            .type = (uint32_t)type};
    gw w;
    gw_init(&w);
    gw_model_all(&w, &model);
    gw_write(&w, r->path);
    gw_done(&w);
    r->facts = open_facts(r->path);
    write_data(r);
    bt_facts_close(r->facts); /* as old as the file is now */
    r->facts = open_facts(r->path);
    r->place = bt_heap_array(r->facts->n_units, sizeof *r->place);
    assert_non_null(r->place);
    for (uint32_t u = 0; u < r->facts->n_units; u++)
        r->place[u] = BT_PLACE_PINNED;
    for (int i = 0; i < BT_LINE_COUNT; i++)
        r->caps[i] = UINT64_MAX;
}

static void free_model(rig *r) {
    bt_heap_free(r->place);
    bt_facts_close(r->facts);
    free(r->file);
    (void)unlink(r->path);
}

/* As libllama's loader: a tag where a tensor's bytes are left out, the bytes of small ones. */
static void hand_over(rig *r, const bt_tensor *t, struct ggml_tensor *tensor) {
    uint32_t index = (uint32_t)(t - r->facts->tensors);
    if (t->role == BT_ROLE_SMALL) {
        ggml_backend_tensor_set(tensor, r->file + t->file_offset, 0, (size_t)t->bytes);
        return;
    }
    uint8_t *data = calloc(1, (size_t)t->bytes);
    assert_non_null(data);
    bt_device_tag_write(index, data);
    ggml_backend_tensor_set(tensor, data, 0, (size_t)t->bytes);
    free(data);
}

static void load(rig *r) {
    struct ggml_init_params params = {ggml_tensor_overhead() * (r->facts->n_tensors + 1), NULL, true};
    r->weights = ggml_init(params);
    assert_non_null(r->weights);
    for (uint32_t i = 0; i < r->facts->n_tensors; i++) {
        const bt_tensor *t = &r->facts->tensors[i];
        struct ggml_tensor *tensor =
            ggml_new_tensor_2d(r->weights, (enum ggml_type)t->type, (int64_t)t->ne[0], (int64_t)t->ne[1]);
        ggml_set_name(tensor, t->name);
    }
    r->buffer = ggml_backend_alloc_ctx_tensors_from_buft(r->weights, bt_device_buffer_type(r->device));
    assert_non_null(r->buffer);
    ggml_backend_buffer_set_usage(r->buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    for (uint32_t i = 0; i < r->facts->n_tensors; i++)
        hand_over(r, &r->facts->tensors[i], ggml_get_tensor(r->weights, r->facts->tensors[i].name));
    bt_device_set_phase(r->device, BT_PHASE_CONTEXT);
}

/* All but the start. */
static void open_device(rig *r, uint32_t n_threads, uint64_t ring_bytes, bt_error *err) {
    assert_int_equal(bt_account_open(r->caps, UINT64_MAX, &r->account, err), BT_OK);
    assert_int_equal(bt_store_open(r->facts, BT_IO_BUFFERED, &r->store, err), BT_OK);
    bt_reader_params reader = {.kind = BT_READER_PREAD, .depth = 2};
    assert_int_equal(bt_reader_open(&r->store, &reader, &r->reader, err), BT_OK);
    bt_device_params params = {.account = r->account,
                               .facts = r->facts,
                               .place = r->place,
                               .store = &r->store,
                               .reader = r->reader,
                               .ring_bytes = ring_bytes,
                               .n_threads = n_threads,
                               .n_ubatch = MAX_COLS,
                               .budget_bytes = UINT64_MAX / 2,
                               .replaces = true};
    assert_int_equal(bt_device_open(&params, &r->device, err), BT_OK);
    bt_device_set_phase(r->device, BT_PHASE_LOAD);
    load(r);
}

static bt_status start(rig *r, uint32_t n_threads, uint64_t ring_bytes, bt_error *err) {
    open_device(r, n_threads, ring_bytes, err);
    return bt_device_start(r->device, NULL, NULL, err);
}

static void stop(rig *r) {
    ggml_backend_buffer_free(r->buffer);
    ggml_free(r->weights);
    bt_device_close(r->device);
    bt_reader_close(r->reader);
    bt_store_close(&r->store);
    assert_true(bt_account_close(r->account));
}

static bt_layouts layouts_of(const rig *r) {
    bt_layouts layouts;
    bt_device_layouts_read(r->device, &layouts);
    return layouts;
}

/* ---- graphs ---- */

typedef enum use { USE_PRODUCT, USE_VIEW, USE_ROWS } use;

typedef struct ask {
    use use;
    int64_t n[3]; /* columns, in up to three dimensions */
} ask;

static const ask product_of_one = {USE_PRODUCT, {1, 1, 1}};

/* An operation on a weight, with what it reads and makes in a buffer of a type. */
typedef struct job {
    struct ggml_context *ctx;
    ggml_backend_buffer_t buffer;
    struct ggml_cgraph *graph;
    struct ggml_tensor *result;
} job;

static void make_job(job *j, ggml_backend_buffer_type_t type, struct ggml_tensor *weight, const ask *a) {
    static const int32_t wanted[] = {3, 17, 0, 5};
    struct ggml_init_params params = {ggml_tensor_overhead() * 8 + ggml_graph_overhead(), NULL, true};
    struct ggml_context *ctx = j->ctx = ggml_init(params);
    assert_non_null(ctx);
    struct ggml_tensor *columns = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, weight->ne[0], a->n[0], a->n[1], a->n[2]);
    struct ggml_tensor *rows = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, 4);
    if (a->use == USE_ROWS)
        j->result = ggml_get_rows(ctx, weight, rows);
    else if (a->use == USE_VIEW)
        j->result =
            ggml_mul_mat(ctx, ggml_view_2d(ctx, weight, weight->ne[0], 24, weight->nb[1], 16 * weight->nb[1]), columns);
    else
        j->result = ggml_mul_mat(ctx, weight, columns);
    j->graph = ggml_new_graph_custom(ctx, 16, false);
    ggml_build_forward_expand(j->graph, j->result);
    j->buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, type);
    assert_non_null(j->buffer);
    uint64_t seed = 99;
    float *numbers = malloc(ggml_nbytes(columns));
    assert_non_null(numbers);
    fill(numbers, (size_t)ggml_nelements(columns), &seed);
    ggml_backend_tensor_set(columns, numbers, 0, ggml_nbytes(columns));
    ggml_backend_tensor_set(rows, wanted, 0, sizeof wanted);
    free(numbers);
}

static enum ggml_status run_job(const job *j, ggml_backend_t backend, float *ret) {
    enum ggml_status status = ggml_backend_graph_compute(backend, j->graph);
    if (status == GGML_STATUS_SUCCESS) ggml_backend_tensor_get(j->result, ret, 0, ggml_nbytes(j->result));
    return status;
}

static void free_job(job *j) {
    ggml_backend_buffer_free(j->buffer);
    ggml_free(j->ctx);
}

/* The result in numbers. */
static enum ggml_status compute(ggml_backend_t backend, ggml_backend_buffer_type_t type, struct ggml_tensor *weight,
                                const ask *a, float *ret, size_t *ret_n) {
    job j;
    make_job(&j, type, weight, a);
    *ret_n = (size_t)ggml_nelements(j.result);
    enum ggml_status status = run_job(&j, backend, ret);
    free_job(&j);
    return status;
}

#define MAX_NUMBERS ((size_t)MAX_COLS * N_FF)

/* ggml's CPU backend by itself, with the weight in a buffer of a type. */
static void compute_alone(const rig *r, ggml_backend_buffer_type_t type, const bt_tensor *t, const ask *a, float *ret) {
    struct ggml_init_params params = {ggml_tensor_overhead() * 2, NULL, true};
    struct ggml_context *ctx = ggml_init(params);
    struct ggml_tensor *weight = ggml_new_tensor_2d(ctx, (enum ggml_type)t->type, (int64_t)t->ne[0], (int64_t)t->ne[1]);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, type);
    assert_non_null(buffer);
    ggml_backend_tensor_set(weight, r->file + t->file_offset, 0, (size_t)t->bytes);
    ggml_backend_t cpu = ggml_backend_dev_init(cpu_dev, NULL);
    size_t n = 0;
    assert_int_equal(compute(cpu, ggml_backend_dev_buffer_type(cpu_dev), weight, a, ret, &n), GGML_STATUS_SUCCESS);
    ggml_backend_free(cpu);
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}

static const bt_tensor *tensor_named(const rig *r, const char *name) {
    for (uint32_t i = 0; i < r->facts->n_tensors; i++)
        if (strcmp(r->facts->tensors[i].name, name) == 0) return &r->facts->tensors[i];
    fail_msg("no %s", name);
    return NULL;
}

static enum ggml_status compute_ours(rig *r, const char *name, const ask *a, float *ret, size_t *ret_n) {
    struct ggml_backend_device *dev = bt_device_ggml(r->device);
    ggml_backend_t ours = ggml_backend_dev_init(dev, NULL);
    return compute(ours, bt_device_buffer_type(r->device), ggml_get_tensor(r->weights, name), a, ret, ret_n);
}

typedef enum layout { PLAIN, REPACKED } layout;

/* Ours is what ggml gives in this layout, to the bit. */
static void check(rig *r, const char *name, const ask *a, layout wanted) {
    static float ours[MAX_NUMBERS], theirs[MAX_NUMBERS];
    size_t n = 0;
    enum ggml_status status = compute_ours(r, name, a, ours, &n);
    bt_error err = {0};
    if (status != GGML_STATUS_SUCCESS) {
        (void)bt_device_take_error(r->device, &err);
        fail_msg("%s: %s", name, err.text);
    }
    assert_true(n <= MAX_NUMBERS);
    compute_alone(r, wanted == PLAIN ? ggml_backend_dev_buffer_type(cpu_dev) : repack_type, tensor_named(r, name), a,
                  theirs);
    if (memcmp(ours, theirs, n * sizeof *ours) != 0)
        fail_msg("%s %s, columns %d %d %d: not what ggml gives in the %s layout", ggml_type_name(r->type), name,
                 (int)a->n[0], (int)a->n[1], (int)a->n[2], wanted == PLAIN ? "plain" : "repacked");
}

/* ---- the device's tests ---- */

static const enum ggml_type replaced_types[] = {GGML_TYPE_Q4_0, GGML_TYPE_IQ4_NL, GGML_TYPE_MXFP4};
#define N_TYPES (sizeof replaced_types / sizeof *replaced_types)

/* 2-D weights of the blocks, small ones too. */
static bt_layouts all_of(const rig *r) {
    bt_layouts all = {0};
    for (uint32_t i = 0; i < r->facts->n_tensors; i++) {
        const bt_tensor *t = &r->facts->tensors[i];
        if (t->block < 0 || t->type != (uint32_t)r->type) continue;
        all.n_replaced++;
        all.replaced_bytes += t->bytes;
    }
    return all;
}

static void test_products(void **state) {
    (void)state;
    static const char *const names[] = {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.ffn_up.weight",
                                        "blk.1.ffn_down.weight"};
    static const ask asks[] = {{USE_PRODUCT, {1, 1, 1}},  {USE_PRODUCT, {3, 1, 1}}, {USE_PRODUCT, {8, 1, 1}},
                               {USE_PRODUCT, {33, 1, 1}}, {USE_PRODUCT, {5, 3, 1}}, {USE_PRODUCT, {4, 2, 1}}};
    for (size_t t = 0; t < N_TYPES; t++) {
        rig r;
        bt_error err = {0};
        make_model(&r, replaced_types[t]);
        if (start(&r, 2, 0, &err) != BT_OK) fail_msg("%s", err.text);
        bt_layouts held = layouts_of(&r), all = all_of(&r);
        assert_int_equal(all.n_replaced, N_BLOCK * 7);
        assert_int_equal(held.n_replaced, all.n_replaced);
        assert_int_equal(held.replaced_bytes, all.replaced_bytes);
        assert_int_equal(held.n_second, 0);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            for (size_t k = 0; k < sizeof asks / sizeof *asks; k++)
                check(&r, names[i], &asks[k], REPACKED);
        assert_int_equal(layouts_of(&r).n_replaced, all.n_replaced);
        stop(&r);
        free_model(&r);
    }
}

/* The two layouts do not give the same digits, or the test above would say nothing. */
static void test_layouts_differ(void **state) {
    (void)state;
    static float plain[MAX_NUMBERS], repacked[MAX_NUMBERS];
    for (size_t t = 0; t < N_TYPES; t++) {
        rig r;
        make_model(&r, replaced_types[t]);
        const bt_tensor *weight = tensor_named(&r, "blk.0.ffn_up.weight");
        compute_alone(&r, ggml_backend_dev_buffer_type(cpu_dev), weight, &product_of_one, plain);
        compute_alone(&r, repack_type, weight, &product_of_one, repacked);
        assert_memory_not_equal(plain, repacked, N_FF * sizeof *plain);
        free_model(&r);
    }
}

static void test_plain_again(void **state) {
    (void)state;
    static const struct {
        const char *name;
        ask ask;
    } uses[] = {{"blk.0.ffn_up.weight", {USE_PRODUCT, {2, 2, 2}}},
                {"blk.1.attn_q.weight", {USE_VIEW, {3, 1, 1}}},
                {"blk.0.attn_k.weight", {USE_ROWS, {1, 1, 1}}}}; /* a small one */
    for (size_t t = 0; t < N_TYPES; t++) {
        rig r;
        bt_error err = {0};
        make_model(&r, replaced_types[t]);
        if (start(&r, 2, 0, &err) != BT_OK) fail_msg("%s", err.text);
        uint32_t n = layouts_of(&r).n_replaced;
        for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
            check(&r, uses[i].name, &product_of_one, REPACKED);
            check(&r, uses[i].name, &uses[i].ask, PLAIN);
            assert_int_equal(layouts_of(&r).n_replaced, --n);
            check(&r, uses[i].name, &product_of_one, PLAIN); /* for good */
        }
        check(&r, "blk.1.ffn_up.weight", &product_of_one, REPACKED); /* the others stay as they were */
        stop(&r);
        free_model(&r);
    }
}

/* A graph that is known again is not run as it was built, when its weight is no longer what it was. */
static void test_known_graph(void **state) {
    (void)state;
    static float first[MAX_NUMBERS], again[MAX_NUMBERS], plain[MAX_NUMBERS];
    static const char name[] = "blk.0.ffn_gate.weight";
    static const ask view = {USE_VIEW, {1, 1, 1}};
    rig r;
    bt_error err = {0};
    make_model(&r, GGML_TYPE_Q4_0);
    if (start(&r, 2, 0, &err) != BT_OK) fail_msg("%s", err.text);
    ggml_backend_t ours = ggml_backend_dev_init(bt_device_ggml(r.device), NULL);
    job j;
    make_job(&j, bt_device_buffer_type(r.device), ggml_get_tensor(r.weights, name), &product_of_one);
    j.graph->uid = 7;
    assert_int_equal(run_job(&j, ours, first), GGML_STATUS_SUCCESS);
    assert_int_equal(run_job(&j, ours, again), GGML_STATUS_SUCCESS);
    assert_memory_equal(first, again, N_FF * sizeof *first);
    bt_device_stats stats;
    bt_device_stats_read(r.device, &stats);
    assert_int_equal(stats.schedules_reused, 1); /* it is known */
    check(&r, name, &view, PLAIN);
    assert_int_equal(run_job(&j, ours, again), GGML_STATUS_SUCCESS);
    compute_alone(&r, ggml_backend_dev_buffer_type(cpu_dev), tensor_named(&r, name), &product_of_one, plain);
    assert_memory_equal(again, plain, N_FF * sizeof *plain);
    free_job(&j);
    stop(&r);
    free_model(&r);
}

/* What libllama asks back are the bytes of the file. */
static void test_bytes_asked_back(void **state) {
    (void)state;
    rig r;
    bt_error err = {0};
    make_model(&r, GGML_TYPE_Q4_0);
    if (start(&r, 2, 0, &err) != BT_OK) fail_msg("%s", err.text);
    static const char *const names[] = {"blk.0.ffn_up.weight", "blk.1.attn_k.weight"};
    for (size_t i = 0; i < 2; i++) {
        const bt_tensor *t = tensor_named(&r, names[i]);
        uint8_t *back = malloc((size_t)t->bytes);
        assert_non_null(back);
        ggml_backend_tensor_get(ggml_get_tensor(r.weights, t->name), back, 0, (size_t)t->bytes);
        assert_memory_equal(back, r.file + t->file_offset, t->bytes);
        free(back);
    }
    check(&r, names[0], &product_of_one, REPACKED);
    stop(&r);
    free_model(&r);
}

/* A read that fails leaves the weight neither plain nor repacked: nothing uses it until it is read. */
static void test_failed_read(void **state) {
    (void)state;
    static float numbers[MAX_NUMBERS];
    static const char name[] = "blk.1.ffn_down.weight";
    static const ask view = {USE_VIEW, {1, 1, 1}};
    rig r;
    bt_error err = {0};
    size_t n = 0;
    make_model(&r, GGML_TYPE_Q4_0);
    if (start(&r, 2, 0, &err) != BT_OK) fail_msg("%s", err.text);
    uint32_t n_replaced = layouts_of(&r).n_replaced;
    const bt_tensor *t = tensor_named(&r, name);
    gw_cut(r.path, t->file_offset + t->bytes / 2);
    const ask *const asks[] = {&view, &product_of_one};
    for (size_t i = 0; i < 2; i++) {
        assert_int_not_equal(compute_ours(&r, name, asks[i], numbers, &n), GGML_STATUS_SUCCESS);
        assert_true(bt_device_take_error(r.device, &err));
        assert_string_equal(err.code, "read_short");
        assert_int_equal(layouts_of(&r).n_replaced, n_replaced - 1);
    }
    check(&r, "blk.0.ffn_up.weight", &product_of_one, REPACKED);
    gw_write_bytes(r.path, r.file, r.facts->shards[0].file_bytes);
    check(&r, name, &product_of_one, PLAIN);
    check(&r, name, &view, PLAIN);
    stop(&r);
    free_model(&r);
}

/* Units that stream are as they are in the file. */
static void test_beside_streams(void **state) {
    (void)state;
    rig r;
    bt_error err = {0};
    make_model(&r, GGML_TYPE_IQ4_NL);
    const bt_tensor *up = tensor_named(&r, "blk.1.ffn_up.weight"), *down = tensor_named(&r, "blk.1.ffn_down.weight");
    r.place[up->unit] = r.place[down->unit] = BT_PLACE_STREAMED;
    uint64_t slot = 0, n_streamed = 0;
    for (uint32_t i = 0; i < r.facts->n_tensors; i++) {
        const bt_tensor *t = &r.facts->tensors[i];
        n_streamed += t->role == BT_ROLE_UNIT && r.place[t->unit] == BT_PLACE_STREAMED;
        if (t->role == BT_ROLE_UNIT && r.facts->units[t->unit].image_bytes > slot)
            slot = r.facts->units[t->unit].image_bytes;
    }
    if (start(&r, 1, 2 * slot, &err) != BT_OK) fail_msg("%s", err.text);
    assert_int_equal(layouts_of(&r).n_replaced, all_of(&r).n_replaced - n_streamed);
    check(&r, "blk.1.ffn_up.weight", &product_of_one, PLAIN);
    check(&r, "blk.0.ffn_up.weight", &product_of_one, REPACKED);
    check(&r, "blk.1.ffn_down.weight", &(ask){USE_PRODUCT, {9, 1, 1}}, PLAIN);
    stop(&r);
    free_model(&r);
}

/* Copies are taken from the line staging, as many as it has room for, and given back; none is a clear refusal. */
static void test_staging(void **state) {
    (void)state;
    /* 16 KiB: 8 rows of none of these are more (src/device/replace.c) */
    static const uint64_t copy_bytes = 16u << 10;
    rig r;
    make_model(&r, GGML_TYPE_Q4_0);
    for (uint64_t n = 0; n <= 5; n++) {
        bt_error err = {0};
        r.caps[BT_LINE_STAGING] = n * copy_bytes + copy_bytes / 2;
        bt_status status = start(&r, 4, 0, &err);
        bt_line_use staging;
        bt_account_use(r.account, BT_LINE_STAGING, &staging);
        assert_int_equal(staging.committed_bytes, 0);
        assert_int_equal(staging.peak_committed_bytes, (n < 4 ? n : 4) * copy_bytes);
        if (n == 0) {
            assert_int_equal(status, BT_E_BUDGET);
            assert_string_equal(err.code, "ram_budget");
        } else {
            if (status != BT_OK) fail_msg("%s", err.text);
            check(&r, "blk.0.ffn_up.weight", &product_of_one, REPACKED);
        }
        stop(&r);
    }
    free_model(&r);
}

#ifdef BT_FAULT

/* Each call of the start fails once: an error that says so, or all of it; nothing is left, and the next start works. */
static void test_faults_of_start(void **state) {
    (void)state;
    rig r;
    make_model(&r, GGML_TYPE_Q4_0);
    uint32_t n_failed = 0;
    bool hit = true;
    for (uint64_t k = 0; hit; k++) {
        bt_error err = {0};
        uint64_t blocks = bt_heap_live_blocks();
        open_device(&r, 2, 0, &err);
        bt_fault_arm(k, false);
        bt_status status = bt_device_start(r.device, NULL, NULL, &err);
        hit = bt_fault_disarm();
        if (status == BT_OK) {
            check(&r, "blk.1.ffn_up.weight", &product_of_one, REPACKED);
        } else {
            assert_true(hit && err.code[0] && err.text[0]);
            n_failed++;
        }
        stop(&r);
        assert_int_equal(bt_heap_live_blocks(), blocks);
    }
    assert_true(n_failed > 5); /* the tables of repack.c, the copies of replace.c */
    free_model(&r);
}

/* The file cannot be read: the graph fails, and the next one reads it. */
static void test_fault_of_reading(void **state) {
    (void)state;
    static float numbers[MAX_NUMBERS];
    static const ask view = {USE_VIEW, {1, 1, 1}};
    rig r;
    bt_error err = {0};
    make_model(&r, GGML_TYPE_MXFP4);
    uint32_t n_failed = 0;
    bool hit = true;
    for (uint64_t k = 0; hit; k++) {
        if (start(&r, 2, 0, &err) != BT_OK) fail_msg("%s", err.text);
        check(&r, "blk.0.ffn_up.weight", &product_of_one, REPACKED);
        ggml_backend_t ours = ggml_backend_dev_init(bt_device_ggml(r.device), NULL);
        job j;
        make_job(&j, bt_device_buffer_type(r.device), ggml_get_tensor(r.weights, "blk.0.ffn_up.weight"), &view);
        bt_fault_arm(k, false);
        enum ggml_status status = run_job(&j, ours, numbers);
        hit = bt_fault_disarm();
        if (status != GGML_STATUS_SUCCESS) {
            n_failed++;
            assert_true(bt_device_take_error(r.device, &err));
            assert_true(hit && err.code[0]);
        }
        free_job(&j);
        check(&r, "blk.0.ffn_up.weight", &view, PLAIN);
        check(&r, "blk.0.ffn_up.weight", &product_of_one, PLAIN);
        stop(&r);
    }
    assert_true(n_failed > 0);
    free_model(&r);
}

#endif

static void no_log(enum ggml_log_level level, const char *text, void *user) {
    (void)level;
    (void)text;
    (void)user;
}

int main(void) {
    ggml_log_set(no_log, NULL); /* ggml says every matrix that it repacks */
    find_repack_type();
    const char *cpu = cpu_dev ? ggml_backend_dev_description(cpu_dev) : "";
    if (!repack_type || !__builtin_cpu_supports("avx2")) {
        (void)printf("skipped: nothing is repacked on this processor (%s)\n", cpu);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups),          cmocka_unit_test(test_layouts_differ),
        cmocka_unit_test(test_products),        cmocka_unit_test(test_plain_again),
        cmocka_unit_test(test_known_graph),     cmocka_unit_test(test_bytes_asked_back),
        cmocka_unit_test(test_failed_read),     cmocka_unit_test(test_beside_streams),
        cmocka_unit_test(test_staging),
#ifdef BT_FAULT
        cmocka_unit_test(test_faults_of_start), cmocka_unit_test(test_fault_of_reading),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
