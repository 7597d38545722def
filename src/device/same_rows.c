/* SPDX-License-Identifier: MIT
 *
 * same_rows.c: whether a product of a few columns gives each of them what it gives to one alone, to the bit.
 *
 * Tokens that were guessed are verified together, and the text must be that of single steps (docs/design.md S2). Where
 * ggml computes each column by itself they can be multiplied at once, else one by one (tokens.c). Which kernels it
 * takes depends on the processor, the type and the number of columns. So it is tried: rows of the model's own weights,
 * one tensor of each type, and f16 and f32 for attention, times 7 columns of numbers, together and one by one. A type
 * that was not tried is computed one by one.
 *
 *     weights [N_ROWS][row]  x  columns [7][row]  ->  together [7][N_ROWS]  =?  alone [7][N_ROWS]
 *
 * Bounds: N_ROWS rows of the widest tensor, on the line staging, for some milliseconds. */

#include "device/internal.h"

#include "base/error.h"
#include "base/size.h"

#include <string.h>

#define N_ROWS        64u /* the largest row tile of ggml's CPU matrix kernels (BT_PANEL_ROW_ALIGN) */
#define N_COLUMNS     ((uint32_t)BT_TOKEN_BY_TOKEN_MAX)
#define ALIGN         64u  /* ggml's TENSOR_ALIGNMENT */
#define PLAIN_COLUMNS 512u /* of the types that no tensor of the model has: two blocks of any */

typedef struct trial {
    bt_device *device;
    bt_mapping *memory;
    uint8_t *weights;
    float *columns, *together, *alone;
    uint64_t most_row_bytes, most_elements;
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

static uint64_t aligned(uint64_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static bt_status open_trial(trial *t, bt_error *err) {
    uint64_t weights = aligned(bt_sat_mul_u64(N_ROWS, t->most_row_bytes));
    uint64_t columns = aligned(bt_sat_mul_u64(N_COLUMNS * sizeof(float), t->most_elements));
    uint64_t results = aligned((uint64_t)N_COLUMNS * N_ROWS * sizeof(float));
    uint64_t bytes = bt_sat_add_u64(bt_sat_add_u64(weights, columns), 2 * results);
    BT_TRY(bt_account_map(t->device->account, BT_LINE_STAGING, bytes, &t->memory, err));
    BT_TRY(bt_account_commit(t->device->account, t->memory, bytes, err));
    uint8_t *base = t->memory->base;
    t->weights = base;
    t->columns = (void *)(base + weights);
    t->together = (void *)(base + weights + columns);
    t->alone = (void *)(base + weights + columns + results);
    fill_columns(t->columns, N_COLUMNS * t->most_elements);
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

static bt_status multiply(trial *t, enum ggml_type type, uint64_t n_elements, uint32_t first, uint32_t n, float *result,
                          bt_error *err) {
    struct ggml_tensor weights = matrix(type, n_elements, N_ROWS, t->weights);
    struct ggml_tensor columns = matrix(GGML_TYPE_F32, n_elements, n, t->columns + first * n_elements);
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

/* weights hold N_ROWS rows. */
static bt_status compare(trial *t, enum ggml_type type, uint64_t n_elements, bt_error *err) {
    BT_TRY(multiply(t, type, n_elements, 0, N_COLUMNS, t->together, err));
    for (uint32_t i = 0; i < N_COLUMNS; i++)
        BT_TRY(multiply(t, type, n_elements, i, 1, t->alone, err));
    t->device->same_rows[type] = memcmp(t->together, t->alone, (size_t)N_COLUMNS * N_ROWS * sizeof(float)) == 0;
    return BT_OK;
}

/* The tensor to try a type with: the first whose rows are enough. */
static bool is_tried(const bt_tensor *tensor) {
    bool is_weight = tensor->role != BT_ROLE_SMALL && tensor->role != BT_ROLE_TABLE && tensor->role != BT_ROLE_UNUSED;
    return is_weight && tensor->type < GGML_TYPE_COUNT && tensor->bytes / N_ROWS >= tensor->row_bytes;
}

static bt_status try_weights(trial *t, bt_error *err) {
    bool tried[GGML_TYPE_COUNT] = {false};
    const bt_facts *facts = t->device->facts;
    for (uint32_t i = 0; i < facts->n_tensors; i++) {
        const bt_tensor *tensor = &facts->tensors[i];
        if (!is_tried(tensor) || tried[tensor->type]) continue;
        tried[tensor->type] = true;
        BT_TRY(bt_store_read(t->device->params.store, tensor->shard, tensor->file_offset, t->weights,
                             N_ROWS * tensor->row_bytes, err));
        BT_TRY(compare(t, (enum ggml_type)tensor->type, tensor->ne[0], err));
    }
    return BT_OK;
}

/* What attention multiplies, where it is no flash attention. */
static bt_status try_plain(trial *t, bt_error *err) {
    float *numbers = (void *)t->weights;
    fill_columns(numbers, (uint64_t)N_ROWS * PLAIN_COLUMNS);
    BT_TRY(compare(t, GGML_TYPE_F32, PLAIN_COLUMNS, err));
    ggml_fp32_to_fp16_row(numbers, (void *)t->weights, (int64_t)N_ROWS * PLAIN_COLUMNS); /* forward in place */
    return compare(t, GGML_TYPE_F16, PLAIN_COLUMNS, err);
}

bt_status bt_device_learn_same_rows(bt_device *device, bt_error *err) {
    trial t = {.device = device, .most_row_bytes = PLAIN_COLUMNS * sizeof(float), .most_elements = PLAIN_COLUMNS};
    for (uint32_t i = 0; i < device->facts->n_tensors; i++) {
        const bt_tensor *tensor = &device->facts->tensors[i];
        if (!is_tried(tensor)) continue;
        t.most_row_bytes = bt_max_u64(t.most_row_bytes, tensor->row_bytes);
        t.most_elements = bt_max_u64(t.most_elements, tensor->ne[0]);
    }
    pthread_mutex_lock(&device->graph_lock);
    bt_status status = open_trial(&t, err);
    if (status == BT_OK) status = try_plain(&t, err); /* first: a weight of such a type is the better trial */
    if (status == BT_OK) status = try_weights(&t, err);
    bt_account_unmap(device->account, t.memory);
    pthread_mutex_unlock(&device->graph_lock);
    return status;
}
