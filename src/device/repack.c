/* SPDX-License-Identifier: MIT
 *
 * repack.c: pinned weights in the second layout that ggml's CPU kernels know (docs/design.md S6).
 *
 * ggml repacks a weight when it is put into a buffer of its type "CPU_REPACK": the tensor's extra then names the
 * kernels for that layout, and the product looks at nothing but buffer type, extra and data. So one buffer of 64 bytes
 * stands for all, and the repacked weights lie in memory of the account (line derived):
 *
 *     pinned    [attn_q plain][attn_k plain] ...        8 columns and more: tiled kernels
 *     derived   [attn_q repacked][attn_k repacked] ...  fewer: the kernels of ggml-cpu/repack.cpp
 *
 * Which of both a product takes is decided when its schedule is built: a clone of the weight gets the one or the other.
 * Units are repacked in order of use while the plan's line has room; a tensor that ggml does not repack on this
 * processor keeps its plain layout alone.
 *
 * Bound: the plan's line. Left out: views of weights, other operations than the product, heads. */

#include "device/internal.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"

#include <string.h>

#define STAND_IN_BYTES 64u /* of the buffer that only its type is needed of: one cache line */
#define NOT_DERIVED    UINT64_MAX

struct bt_repack {
    ggml_backend_buffer_t buffer; /* of the type CPU_REPACK */
    bt_mapping *memory;
    uint64_t *offset; /* [n_tensors] in memory, or NOT_DERIVED */
    void **extra;     /* [n_tensors] ggml's kernels for it */
};

/* ---- ggml's side ---- */

static ggml_backend_buffer_type_t find_type(ggml_backend_dev_t dev) {
    ggml_backend_dev_get_extra_bufts_t get_types;
    void *symbol =
        ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(dev), "ggml_backend_dev_get_extra_bufts");
    if (!symbol) return NULL;
    memcpy(&get_types, &symbol, sizeof get_types); /* POSIX: data and function pointers convert */
    ggml_backend_buffer_type_t *types = get_types(dev);
    for (; types && *types; types++)
        if (strcmp(ggml_backend_buft_name(*types), "CPU_REPACK") == 0) return *types;
    return NULL;
}

static struct ggml_tensor tensor_of(const bt_repack *repack, const bt_tensor *facts) {
    struct ggml_tensor tensor = {.type = (enum ggml_type)facts->type, .buffer = repack->buffer};
    for (int d = 0; d < GGML_MAX_DIMS; d++)
        tensor.ne[d] = (int64_t)facts->ne[d];
    tensor.nb[0] = ggml_type_size(tensor.type);
    tensor.nb[1] = (size_t)facts->row_bytes;
    tensor.nb[2] = tensor.nb[3] = (size_t)facts->bytes;
    return tensor;
}

/* ---- filling ---- */

/* Give each tensor of the units that fit in bytes a place; what is placed in all. */
static uint64_t lay_out(bt_device *device, bt_repack *repack, uint64_t bytes) {
    const bt_facts *facts = device->facts;
    uint64_t at = 0;
    for (uint32_t i = 0; i < facts->n_tensors; i++)
        repack->offset[i] = NOT_DERIVED;
    for (uint32_t u = 0; u < facts->n_units; u++) {
        const bt_unit_facts *unit = &facts->units[u];
        if (!bt_weights_unit_is_pinned(device->weights, u)) continue;
        if (bt_facts_second_bytes(facts, unit) > bytes - at) break;
        for (uint32_t i = 0; i < unit->n_tensors; i++) {
            uint32_t weight = facts->unit_tensors[unit->first_tensor + i];
            if (!facts->tensors[weight].has_second) continue;
            repack->offset[weight] = at;
            at += facts->tensors[weight].bytes;
        }
    }
    return at;
}

/* ggml asks no more of data than the alignment of its blocks; sizes of whole rows keep it. */
static void fill(bt_device *device, bt_repack *repack, uint32_t weight) {
    const bt_tensor *facts = &device->facts->tensors[weight];
    struct ggml_tensor tensor = tensor_of(repack, facts);
    const void *plain = bt_weights_resident(device->weights, weight);
    if (!plain || repack->buffer->iface.init_tensor(repack->buffer, &tensor) != GGML_STATUS_SUCCESS || !tensor.extra) {
        repack->offset[weight] = NOT_DERIVED;
        return;
    }
    tensor.data = (uint8_t *)repack->memory->base + repack->offset[weight];
    repack->buffer->iface.set_tensor(repack->buffer, &tensor, plain, 0, (size_t)facts->bytes);
    repack->extra[weight] = tensor.extra;
}

/* ---- on several threads: repacking goes at a fraction of the memory's rate ---- */

#define WORKER_MAX 16u /* more than saturate the memory of one socket */

typedef struct filling {
    bt_device *device;
    atomic_uint next; /* tensor */
} filling;

static void *fill_all(void *user) {
    filling *f = user;
    uint32_t n = f->device->facts->n_tensors;
    for (uint32_t i = atomic_fetch_add(&f->next, 1); i < n; i = atomic_fetch_add(&f->next, 1))
        if (f->device->repack->offset[i] != NOT_DERIVED) fill(f->device, f->device->repack, i);
    return NULL;
}

/* Threads that cannot be had are done without. */
static void fill_with(bt_device *device, uint32_t n_threads) {
    filling f = {.device = device};
    pthread_t workers[WORKER_MAX];
    uint32_t n = 0;
    while (n + 1 < bt_min_u64(n_threads, WORKER_MAX) && pthread_create(&workers[n], NULL, fill_all, &f) == 0)
        n++;
    (void)fill_all(&f);
    while (n > 0)
        (void)pthread_join(workers[--n], NULL);
}

static bt_status open_memory(bt_device *device, bt_repack *repack, uint64_t bytes, bt_error *err) {
    BT_TRY(bt_account_map(device->account, bt_device_line(device, BT_LINE_DERIVED), bytes, &repack->memory, err));
    BT_TRY(bt_account_commit(device->account, repack->memory, bytes, err));
    (void)bt_os_huge_pages(repack->memory->base, bytes); /* advice */
    return BT_OK;
}

bt_status bt_repack_open(bt_device *device, bt_error *err) {
    if (device->params.derived_bytes == 0) return BT_OK;
    ggml_backend_buffer_type_t type = find_type(bt_cpu_device(device->cpu));
    if (!type) return BT_OK; /* a CPU backend without it */
    uint32_t n = device->facts->n_tensors;
    bt_repack *repack = bt_heap_alloc(sizeof *repack);
    if (!repack) return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, sizeof *repack, 0, "no memory to repack");
    device->repack = repack;
    repack->offset = bt_heap_array((uint64_t)n + 1, sizeof *repack->offset);
    repack->extra = bt_heap_array((uint64_t)n + 1, sizeof *repack->extra);
    repack->buffer = ggml_backend_buft_alloc_buffer(type, STAND_IN_BYTES);
    if (!repack->offset || !repack->extra || !repack->buffer)
        return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_ITEMS, n, 0, "no memory to repack %u weights", n);
    uint64_t bytes = lay_out(device, repack, device->params.derived_bytes);
    if (bytes == 0) return BT_OK;
    BT_TRY(open_memory(device, repack, bytes, err));
    fill_with(device, device->params.n_threads);
    return BT_OK;
}

void bt_repack_close(bt_device *device) {
    bt_repack *repack = device->repack;
    if (!repack) return;
    if (repack->buffer) ggml_backend_buffer_free(repack->buffer);
    bt_account_unmap(device->account, repack->memory);
    bt_heap_free(repack->extra);
    bt_heap_free(repack->offset);
    bt_heap_free(repack);
    device->repack = NULL;
}

/* ---- serving ---- */

bool bt_repack_serves(const bt_device *device, const struct ggml_tensor *node, uint32_t weight) {
    const bt_repack *repack = device->repack;
    if (!repack || !repack->memory || node->op != GGML_OP_MUL_MAT || node->src[0]->view_src) return false;
    const struct ggml_tensor *columns = node->src[1];
    return repack->offset[weight] != NOT_DERIVED && columns->type == GGML_TYPE_F32 && columns->ne[2] == 1 &&
           columns->ne[3] == 1 && columns->ne[1] < BT_REPACK_COLUMNS;
}

void bt_repack_bind(const bt_device *device, uint32_t weight, struct ggml_tensor *clone) {
    const bt_repack *repack = device->repack;
    clone->buffer = repack->buffer;
    clone->extra = repack->extra[weight];
    clone->data = (uint8_t *)repack->memory->base + repack->offset[weight];
}
