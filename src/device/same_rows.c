/* SPDX-License-Identifier: MIT
 *
 * same_rows.c: whether a product of a few columns gives each of them what it gives to one alone, to the bit.
 *
 * Tokens that were guessed are verified together, and the text must be that of single steps (docs/design.md S2). Where
 * ggml computes each column by itself they can be multiplied at once, else one by one (tokens.c). Which kernels it
 * takes depends on the processor, the type and the number of columns. So it is tried: the model's own weights, one
 * tensor of each type, and f16 and f32 for attention, times 7 columns of numbers, together and one by one. A type that
 * was not tried is computed one by one.
 *
 *     weights [N_ROWS][N_ELEMENTS]  x  columns [7][N_ELEMENTS]  ->  together [7][N_ROWS]  =?  alone [7][N_ROWS]
 *
 * Bound: 150 KiB on the line staging, which loading has left (its least is the 256 KiB buffer of the model's file), for
 * some milliseconds. */

#include "device/internal.h"

#include "base/error.h"
#include "base/size.h"

#include <string.h>

#define N_ROWS     64u  /* the largest row tile of ggml's CPU matrix kernels (BT_PANEL_ROW_ALIGN) */
#define N_ELEMENTS 512u /* two blocks of any type */
#define N_COLUMNS  ((uint32_t)BT_TOKEN_BY_TOKEN_MAX)

typedef struct trial_memory {
    _Alignas(64) uint8_t weights[sizeof(float) * N_ROWS * N_ELEMENTS]; /* ggml's TENSOR_ALIGNMENT; f32 is the largest */
    _Alignas(64) float columns[N_COLUMNS * N_ELEMENTS];
    _Alignas(64) float together[N_COLUMNS * N_ROWS];
    _Alignas(64) float alone[N_COLUMNS * N_ROWS];
} trial_memory;

typedef struct trial {
    bt_device *device;
    bt_mapping *mapping;
    trial_memory *memory;
} trial;

/* xorshift32 (Marsaglia), as numbers between -1 and 1. */
static void fill_columns(float *columns, uint64_t n) {
    uint32_t x = 2463534242u;
    for (uint64_t i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        columns[i] = (float)(int32_t)x / 2147483648.0f;
    }
}

static bt_status open_trial(trial *t, bt_error *err) {
    BT_TRY(bt_account_map(t->device->account, bt_device_line(t->device, BT_LINE_STAGING), sizeof *t->memory,
                          &t->mapping, err));
    BT_TRY(bt_account_commit(t->device->account, t->mapping, sizeof *t->memory, err));
    t->memory = t->mapping->base;
    fill_columns(t->memory->columns, (uint64_t)N_COLUMNS * N_ELEMENTS);
    return BT_OK;
}

static struct ggml_tensor matrix(enum ggml_type type, uint64_t n_elements, uint64_t n_rows, void *data) {
    struct ggml_tensor m = {.type = type, .data = data};
    m.ne[0] = (int64_t)n_elements;
    m.ne[1] = (int64_t)n_rows;
    m.ne[2] = m.ne[3] = 1;
    m.nb[0] = ggml_type_size(type);
    m.nb[1] = ggml_row_size(type, m.ne[0]);
    m.nb[2] = m.nb[3] = m.nb[1] * n_rows;
    return m;
}

static bt_status multiply(trial *t, enum ggml_type type, uint32_t first, uint32_t n, float *result, bt_error *err) {
    struct ggml_tensor weights = matrix(type, N_ELEMENTS, N_ROWS, t->memory->weights);
    struct ggml_tensor columns = matrix(GGML_TYPE_F32, N_ELEMENTS, n, t->memory->columns + (size_t)first * N_ELEMENTS);
    struct ggml_tensor product = matrix(GGML_TYPE_F32, N_ROWS, n, result + (size_t)first * N_ROWS);
    product.op = GGML_OP_MUL_MAT;
    product.flags = GGML_TENSOR_FLAG_COMPUTE;
    product.src[0] = &weights;
    product.src[1] = &columns;
    struct ggml_tensor *nodes[] = {&product};
    struct ggml_cgraph graph = {.size = 1, .n_nodes = 1, .nodes = nodes};
    bt_cpu_plan plan = bt_cpu_plan_make(t->device->cpu, &graph);
    BT_TRY(bt_cpu_reserve(t->device->cpu, plan.work_bytes, err));
    if (bt_cpu_compute(t->device->cpu, &graph, &plan) == GGML_STATUS_SUCCESS) return BT_OK;
    return bt_fail(err, BT_E_DEVICE, "cpu_compute", BT_MEASURE_NONE, 0, 0, "the CPU backend failed at a product of %s",
                   ggml_type_name(type));
}

/* To the bit: a zero is not minus zero. */
static bool are_equal(const float *a, const float *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t x = 0, y = 0;
        memcpy(&x, &a[i], sizeof x);
        memcpy(&y, &b[i], sizeof y);
        if (x != y) return false;
    }
    return true;
}

/* The weights are there. */
static bt_status compare(trial *t, enum ggml_type type, bt_error *err) {
    trial_memory *m = t->memory;
    BT_TRY(multiply(t, type, 0, N_COLUMNS, m->together, err));
    for (uint32_t i = 0; i < N_COLUMNS; i++)
        BT_TRY(multiply(t, type, i, 1, m->alone, err));
    t->device->same_rows[type] = are_equal(m->together, m->alone, N_COLUMNS * N_ROWS);
    return BT_OK;
}

static bt_status try_weights(trial *t, bt_error *err) {
    bool tried[GGML_TYPE_COUNT] = {false};
    const bt_facts *facts = t->device->facts;
    for (uint32_t i = 0; i < facts->n_tensors; i++) {
        const bt_tensor *tensor = &facts->tensors[i];
        bool is_weight =
            tensor->role != BT_ROLE_SMALL && tensor->role != BT_ROLE_TABLE && tensor->role != BT_ROLE_UNUSED;
        if (!is_weight || tensor->type >= GGML_TYPE_COUNT || tried[tensor->type]) continue;
        /* its first bytes, taken as rows of N_ELEMENTS */
        uint64_t bytes = N_ROWS * ggml_row_size((enum ggml_type)tensor->type, N_ELEMENTS);
        if (bytes > tensor->bytes || bytes > sizeof t->memory->weights) continue;
        tried[tensor->type] = true;
        BT_TRY(
            bt_store_read(t->device->params.store, tensor->shard, tensor->file_offset, t->memory->weights, bytes, err));
        BT_TRY(compare(t, (enum ggml_type)tensor->type, err));
    }
    return BT_OK;
}

/* What attention multiplies, where it is no flash attention. */
static bt_status try_plain(trial *t, bt_error *err) {
    float *numbers = (void *)t->memory->weights;
    fill_columns(numbers, (uint64_t)N_ROWS * N_ELEMENTS);
    BT_TRY(compare(t, GGML_TYPE_F32, err));
    ggml_fp32_to_fp16_row(numbers, (void *)t->memory->weights, (int64_t)N_ROWS * N_ELEMENTS); /* forward in place */
    return compare(t, GGML_TYPE_F16, err);
}

bt_status bt_device_learn_same_rows(bt_device *device, bt_error *err) {
    trial t = {.device = device};
    pthread_mutex_lock(&device->graph_lock);
    bt_status status = open_trial(&t, err);
    if (status == BT_OK) status = try_plain(&t, err); /* first: a weight of such a type is the better trial */
    if (status == BT_OK) status = try_weights(&t, err);
    bt_account_unmap(device->account, t.mapping);
    pthread_mutex_unlock(&device->graph_lock);
    return status;
}
