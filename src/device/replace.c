/* SPDX-License-Identifier: MIT
 *
 * replace.c: pinned weights repacked in their own memory, and plain again where a graph needs that (docs/design.md P8).
 *
 * A repacked weight is groups of 8 rows one after another, each as large as the rows were. So a group is copied, and
 * repacked from the copy into its own place; a few threads do that, each with a copy on the line staging, which loading
 * has left:
 *
 *     pinned    [8 rows repacked][8 rows repacked][8 rows plain][8 rows plain] ...
 *     staging                                   ^-- [copy]
 *
 * The price of holding no plain layout: a graph that reads such a weight other than by a product that the kernels serve
 * (a view, a table look-up, columns of another type) cannot have it. No architecture looked at does that with the
 * matrices of a block, and what a graph does is known only when it comes. So every graph is looked through before its
 * schedule is built, and a weight that it needs plain is read from the file again, to stay so: slower from then on, and
 * never wrong. While the read is under way, and if it fails, the weight is neither, and what wants it tries again.
 *
 * Bound: staging holds as many copies as the plan leaves room for there, at least one of the widest weight. */

#include "device/internal.h"

#include "base/error.h"
#include "base/log.h"
#include "base/size.h"

#include <string.h>

/* Of one copy, unless 8 rows are more: all threads (BT_REPACK_WORKER_MAX) have one in the least that staging is, 256
 * KiB. */
#define COPY_BYTES (UINT64_C(16) << 10)

/* ---- in place ---- */

typedef struct replacing {
    bt_device *device;
    uint8_t *copies; /* one of copy_bytes for each worker */
    uint64_t copy_bytes;
    atomic_uint n_workers, next; /* tensor */
} replacing;

static bool is_wanted(const bt_device *device, uint32_t weight) {
    const bt_tensor *facts = &device->facts->tensors[weight];
    if (facts->layout != BT_LAYOUT_REPLACED) return false;
    return facts->role == BT_ROLE_SMALL ||
           (facts->unit != BT_NO_UNIT && bt_weights_unit_is_pinned(device->weights, facts->unit));
}

static void replace(bt_device *device, uint32_t weight, uint8_t *copy, uint64_t copy_bytes) {
    const bt_tensor *facts = &device->facts->tensors[weight];
    bt_repack *repack = device->repack;
    uint8_t *rows = bt_weights_resident(device->weights, weight);
    void *kernels = bt_repack_tensor(repack, facts, facts->ne[1]).extra;
    if (!rows || !kernels) return;
    uint64_t n_most = copy_bytes / facts->row_bytes / BT_LAYOUT_ROWS * BT_LAYOUT_ROWS;
    uint64_t n = 0;
    for (uint64_t row = 0; row < facts->ne[1]; row += n) {
        n = bt_min_u64(n_most, facts->ne[1] - row);
        struct ggml_tensor part = bt_repack_tensor(repack, facts, n);
        part.data = rows + row * facts->row_bytes;
        memcpy(copy, part.data, (size_t)(n * facts->row_bytes));
        repack->buffer->iface.set_tensor(repack->buffer, &part, copy, 0, (size_t)(n * facts->row_bytes));
    }
    repack->extra[weight] = kernels;
    repack->held[weight] = BT_HELD_REPLACED;
}

static void *replace_some(void *user) {
    replacing *r = user;
    uint8_t *copy = r->copies + atomic_fetch_add(&r->n_workers, 1) * r->copy_bytes;
    uint32_t n = r->device->facts->n_tensors;
    for (uint32_t i = atomic_fetch_add(&r->next, 1); i < n; i = atomic_fetch_add(&r->next, 1))
        if (is_wanted(r->device, i)) replace(r->device, i, copy, r->copy_bytes);
    return NULL;
}

/* Of each worker; 0: there is nothing to replace. */
static uint64_t copy_bytes_of(const bt_device *device) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < device->facts->n_tensors; i++)
        if (is_wanted(device, i)) most = bt_max_u64(most, device->facts->tensors[i].row_bytes * BT_LAYOUT_ROWS);
    return most == 0 ? 0 : bt_max_u64(most, COPY_BYTES);
}

bt_status bt_replace_all(bt_device *device, bt_error *err) {
    replacing r = {.device = device, .copy_bytes = copy_bytes_of(device)};
    if (r.copy_bytes == 0) return BT_OK;
    bt_line_use staging;
    bt_account_use(device->account, BT_LINE_STAGING, &staging);
    uint64_t room = bt_sat_sub_u64(staging.planned_bytes, staging.committed_bytes) / r.copy_bytes;
    /* no room is for the account to say */
    uint32_t n = (uint32_t)bt_max_u64(bt_min_u64(room, bt_min_u64(device->params.n_threads, BT_REPACK_WORKER_MAX)), 1);
    bt_mapping *copies = NULL;
    BT_TRY(bt_account_map(device->account, BT_LINE_STAGING, n * r.copy_bytes, &copies, err));
    bt_status status = bt_account_commit(device->account, copies, n * r.copy_bytes, err);
    if (status == BT_OK) {
        r.copies = copies->base;
        bt_repack_run(n, replace_some, &r);
    }
    bt_account_unmap(device->account, copies);
    return status;
}

/* ---- plain again ---- */

bool bt_replace_hides(const bt_device *device, uint32_t weight) {
    bt_held held = device->repack ? device->repack->held[weight] : BT_HELD_PLAIN;
    return held == BT_HELD_REPLACED || held == BT_HELD_NOT;
}

static bt_status read_plain(bt_device *device, uint32_t weight, bt_error *err) {
    const bt_tensor *facts = &device->facts->tensors[weight];
    device->generation++; /* schedules that read it repacked */
    device->repack->held[weight] = BT_HELD_NOT;
    BT_TRY(bt_store_read(device->params.store, facts->shard, facts->file_offset,
                         bt_weights_resident(device->weights, weight), facts->bytes, err));
    device->repack->held[weight] = BT_HELD_PLAIN;
    return BT_OK;
}

/* The weight that a source is, or is a view of, when what stands in its memory is not plain. */
static uint32_t hidden_of(const bt_device *device, const struct ggml_tensor *src) {
    const struct ggml_tensor *base = src->view_src ? src->view_src : src;
    if (!bt_buffer_is_ours(device, base->buffer)) return BT_NO_WEIGHT;
    uint32_t weight = bt_weights_of(device->weights, base);
    return weight != BT_NO_WEIGHT && bt_replace_hides(device, weight) ? weight : BT_NO_WEIGHT;
}

bt_status bt_replace_prepare(bt_device *device, const struct ggml_cgraph *graph, bt_error *err) {
    if (!device->repack) return BT_OK;
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct ggml_tensor *node = graph->nodes[i];
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            uint32_t weight = node->src[k] ? hidden_of(device, node->src[k]) : BT_NO_WEIGHT;
            if (weight == BT_NO_WEIGHT || (k == 0 && bt_repack_serves(device, node, weight))) continue;
            BT_TRY(read_plain(device, weight, err));
            bt_log(BT_LOG_INFO, "%s reads %s plain: it is repacked no more", ggml_op_name(node->op),
                   device->facts->tensors[weight].name);
        }
    }
    return BT_OK;
}
