/* SPDX-License-Identifier: MIT
 *
 * repack.c: pinned weights in the layout that ggml's CPU kernels know beside the file's (docs/design.md P8, S6).
 *
 * ggml repacks a weight when it is put into a buffer of its type "CPU_REPACK": the tensor's extra then names the
 * kernels for that layout, and the product looks at nothing but buffer type, extra and data. So one buffer of 64 bytes
 * stands for all, and the repacked weights lie in memory of the account: in the place of the plain one (replace.c), or
 * beside it, on the line derived:
 *
 *     pinned    [attn_q repacked] [ffn_up plain] ...    8 columns and more: tiled kernels
 *                                 (a K-quant)
 *     derived                     [ffn_up repacked]     fewer: the kernels of ggml-cpu/repack.cpp
 *
 * Which of both a product takes is decided when its schedule is built: a clone of the weight gets the one or the other.
 * Units get a second layout in order of use while the plan's line has room; a tensor that ggml does not repack on this
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

struct ggml_tensor bt_repack_tensor(const bt_repack *repack, const bt_tensor *facts, uint64_t n_rows) {
    struct ggml_tensor tensor = {.type = (enum ggml_type)facts->type, .buffer = repack->buffer};
    tensor.ne[0] = (int64_t)facts->ne[0];
    tensor.ne[1] = (int64_t)n_rows;
    tensor.ne[2] = tensor.ne[3] = 1;
    tensor.nb[0] = ggml_type_size(tensor.type);
    tensor.nb[1] = (size_t)facts->row_bytes;
    tensor.nb[2] = tensor.nb[3] = (size_t)(facts->row_bytes * n_rows);
    if (repack->buffer->iface.init_tensor(repack->buffer, &tensor) != GGML_STATUS_SUCCESS) tensor.extra = NULL;
    return tensor;
}

void bt_repack_run(uint32_t n, void *(*work)(void *), void *user) {
    pthread_t workers[BT_REPACK_WORKER_MAX];
    uint32_t n_started = 0;
    while (n_started + 1 < bt_min_u64(n, BT_REPACK_WORKER_MAX) &&
           pthread_create(&workers[n_started], NULL, work, user) == 0)
        n_started++;
    (void)work(user);
    while (n_started > 0)
        (void)pthread_join(workers[--n_started], NULL);
}

/* ---- second layouts ---- */

/* Give each tensor of the units that fit in bytes a place; what is placed in all. */
static uint64_t lay_out(bt_device *device, bt_repack *repack, uint64_t bytes) {
    const bt_facts *facts = device->facts;
    uint64_t at = 0;
    for (uint32_t u = 0; u < facts->n_units; u++) {
        const bt_unit_facts *unit = &facts->units[u];
        if (!bt_weights_unit_is_pinned(device->weights, u)) continue;
        if (bt_facts_layouts(facts, unit).second_bytes > bytes - at) break;
        for (uint32_t i = 0; i < unit->n_tensors; i++) {
            uint32_t weight = facts->unit_tensors[unit->first_tensor + i];
            if (facts->tensors[weight].layout != BT_LAYOUT_SECOND) continue;
            repack->held[weight] = BT_HELD_TWICE;
            repack->offset[weight] = at;
            at += facts->tensors[weight].bytes;
        }
    }
    return at;
}

/* ggml asks no more of data than the alignment of its blocks; sizes of whole rows keep it. */
static void fill(bt_device *device, bt_repack *repack, uint32_t weight) {
    const bt_tensor *facts = &device->facts->tensors[weight];
    struct ggml_tensor tensor = bt_repack_tensor(repack, facts, facts->ne[1]);
    const void *plain = bt_weights_resident(device->weights, weight);
    if (!plain || !tensor.extra) {
        repack->held[weight] = BT_HELD_PLAIN;
        return;
    }
    tensor.data = (uint8_t *)repack->memory->base + repack->offset[weight];
    repack->buffer->iface.set_tensor(repack->buffer, &tensor, plain, 0, (size_t)facts->bytes);
    repack->extra[weight] = tensor.extra;
}

typedef struct filling {
    bt_device *device;
    atomic_uint next; /* tensor */
} filling;

/* On several threads: repacking goes at a fraction of the memory's rate. */
static void *fill_all(void *user) {
    filling *f = user;
    uint32_t n = f->device->facts->n_tensors;
    for (uint32_t i = atomic_fetch_add(&f->next, 1); i < n; i = atomic_fetch_add(&f->next, 1))
        if (f->device->repack->held[i] == BT_HELD_TWICE) fill(f->device, f->device->repack, i);
    return NULL;
}

static bt_status add_second(bt_device *device, bt_error *err) {
    bt_repack *repack = device->repack;
    uint64_t bytes = lay_out(device, repack, device->params.derived_bytes);
    if (bytes == 0) return BT_OK;
    BT_TRY(bt_account_map(device->account, bt_device_line(device, BT_LINE_DERIVED), bytes, &repack->memory, err));
    BT_TRY(bt_account_commit(device->account, repack->memory, bytes, err));
    (void)bt_os_huge_pages(repack->memory->base, bytes); /* advice */
    filling f = {.device = device};
    bt_repack_run(device->params.n_threads, fill_all, &f);
    return BT_OK;
}

/* ---- life ---- */

bt_status bt_repack_open(bt_device *device, bt_error *err) {
    if (device->params.derived_bytes == 0 && !device->params.replaces) return BT_OK;
    ggml_backend_buffer_type_t type = find_type(bt_cpu_device(device->cpu));
    if (!type) return BT_OK; /* a CPU backend without it */
    uint32_t n = device->facts->n_tensors;
    bt_repack *repack = bt_heap_alloc(sizeof *repack);
    if (!repack) return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, sizeof *repack, 0, "no memory to repack");
    device->repack = repack;
    repack->held = bt_heap_array((uint64_t)n + 1, sizeof *repack->held);
    repack->offset = bt_heap_array((uint64_t)n + 1, sizeof *repack->offset);
    repack->extra = bt_heap_array((uint64_t)n + 1, sizeof *repack->extra);
    repack->buffer = ggml_backend_buft_alloc_buffer(type, STAND_IN_BYTES);
    if (!repack->held || !repack->offset || !repack->extra || !repack->buffer)
        return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_ITEMS, n, 0, "no memory to repack %u weights", n);
    if (device->params.replaces) BT_TRY(bt_replace_all(device, err));
    return add_second(device, err);
}

void bt_repack_close(bt_device *device) {
    bt_repack *repack = device->repack;
    if (!repack) return;
    if (repack->buffer) ggml_backend_buffer_free(repack->buffer);
    bt_account_unmap(device->account, repack->memory);
    bt_heap_free(repack->extra);
    bt_heap_free(repack->offset);
    bt_heap_free(repack->held);
    bt_heap_free(repack);
    device->repack = NULL;
}

void bt_device_layouts_read(bt_device *device, bt_layouts *ret) {
    *ret = (bt_layouts){0};
    pthread_mutex_lock(&device->graph_lock);
    for (uint32_t i = 0; device->repack && i < device->facts->n_tensors; i++) {
        bool is_second = device->repack->held[i] == BT_HELD_TWICE;
        if (!is_second && device->repack->held[i] != BT_HELD_REPLACED) continue;
        uint64_t *bytes = is_second ? &ret->second_bytes : &ret->replaced_bytes;
        *bytes = bt_sat_add_u64(*bytes, device->facts->tensors[i].bytes);
        (*(is_second ? &ret->n_second : &ret->n_replaced))++;
    }
    pthread_mutex_unlock(&device->graph_lock);
}

/* ---- serving ---- */

/* What the kernels of ggml-cpu/repack.cpp assert. */
static bool is_product(const struct ggml_tensor *node, const bt_tensor *facts) {
    if (node->op != GGML_OP_MUL_MAT || node->src[0]->view_src) return false;
    const struct ggml_tensor *weight = node->src[0], *columns = node->src[1];
    return weight->ne[0] == (int64_t)facts->ne[0] && weight->ne[1] == (int64_t)facts->ne[1] &&
           columns->type == GGML_TYPE_F32 && columns->nb[0] == sizeof(float) && columns->ne[3] == 1;
}

bool bt_repack_serves(const bt_device *device, const struct ggml_tensor *node, uint32_t weight) {
    const bt_repack *repack = device->repack;
    bt_held held = repack ? repack->held[weight] : BT_HELD_PLAIN;
    bool is_repacked = held == BT_HELD_TWICE || held == BT_HELD_REPLACED;
    if (!is_repacked || !is_product(node, &device->facts->tensors[weight])) return false;
    const struct ggml_tensor *columns = node->src[1];
    return held == BT_HELD_REPLACED || (columns->ne[2] == 1 && columns->ne[1] < BT_REPACK_COLUMNS);
}

void bt_repack_bind(const bt_device *device, uint32_t weight, struct ggml_tensor *clone) {
    const bt_repack *repack = device->repack;
    clone->buffer = repack->buffer;
    clone->extra = repack->extra[weight];
    clone->data = repack->held[weight] == BT_HELD_REPLACED ? bt_weights_resident(device->weights, weight)
                                                           : (uint8_t *)repack->memory->base + repack->offset[weight];
}
