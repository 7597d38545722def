/* SPDX-License-Identifier: MIT
 *
 * rows.c: a lookup of single rows (GET_ROWS) in a table that is not in memory as a whole.
 *
 * Only the rows asked for are read, into a window of at most one micro-batch of rows; the lookup is then computed by
 * the CPU backend on the window with the ids renumbered, so its result is the same to the bit. Rows lie anywhere in the
 * file: each is read as the one to three pages that hold it, many at once, into an aligned scratch, and copied out.
 *
 *     window: [row][row][row]...      ids: 0 1 2 ...      scratch: [pages of a row] x ROWS_AT_ONCE
 *
 * The pages of a tied table that are pinned for the head serve its rows without reading. */

#include "device/internal.h"

#include "base/error.h"
#include "base/os.h"
#include "base/size.h"

#include <string.h>

/* Rows read in one job: enough to fill the reader's queue several times over, few enough that the scratch stays small
 * (64 rows of three pages are 768 KiB). */
#define ROWS_AT_ONCE 64u

static bool table_needs_window(const bt_device *device, const bt_tensor *tensor) {
    if (tensor->role != BT_ROLE_TABLE && tensor->role != BT_ROLE_TIED) return false;
    return !bt_weights_resident(device->weights, (uint32_t)(tensor - device->facts->tensors));
}

/* Pages that hold a row, wherever it starts. */
static uint64_t row_pages_bytes(uint64_t row_bytes) {
    return (row_bytes + BT_PAGE_BYTES - 1) / BT_PAGE_BYTES * BT_PAGE_BYTES + BT_PAGE_BYTES;
}

bt_status bt_rows_open(bt_device *device, bt_error *err) {
    bt_rows_window *rows = &device->rows;
    uint64_t row_bytes = 0;
    for (uint32_t i = 0; i < device->facts->n_tensors; i++)
        if (table_needs_window(device, &device->facts->tensors[i]))
            row_bytes = bt_max_u64(row_bytes, device->facts->tensors[i].row_bytes);
    if (row_bytes == 0) return BT_OK;
    rows->n_rows = device->params.n_ubatch;
    rows->rows_bytes = (uint64_t)rows->n_rows * row_bytes;
    uint64_t ids_offset = (rows->rows_bytes + 63) / 64 * 64;
    uint64_t scratch_offset = ids_offset + (uint64_t)rows->n_rows * sizeof(int32_t);
    scratch_offset = (scratch_offset + BT_PAGE_BYTES - 1) / BT_PAGE_BYTES * BT_PAGE_BYTES;
    rows->scratch_bytes = bt_min_u64(ROWS_AT_ONCE, rows->n_rows) * row_pages_bytes(row_bytes);
    uint64_t bytes = scratch_offset + rows->scratch_bytes;
    BT_TRY(bt_account_map(device->account, bt_device_line(device, BT_LINE_EMBEDDINGS), bytes, &rows->memory, err));
    BT_TRY(bt_account_commit(device->account, rows->memory, bytes, err));
    rows->ids = (void *)((uint8_t *)rows->memory->base + ids_offset);
    rows->scratch = (uint8_t *)rows->memory->base + scratch_offset;
    return BT_OK;
}

void bt_rows_close(bt_device *device) {
    bt_account_unmap(device->account, device->rows.memory);
    device->rows.memory = NULL;
}

/* Ids may come in any of ggml's shapes; element i in row-major order. */
static int32_t id_at(const struct ggml_tensor *ids, int64_t i) {
    int64_t i0 = i % ids->ne[0], i1 = i / ids->ne[0] % ids->ne[1];
    int64_t i2 = i / (ids->ne[0] * ids->ne[1]) % ids->ne[2], i3 = i / (ids->ne[0] * ids->ne[1] * ids->ne[2]);
    const uint8_t *data = ids->data;
    int32_t id;
    memcpy(&id,
           data + (size_t)i0 * ids->nb[0] + (size_t)i1 * ids->nb[1] + (size_t)i2 * ids->nb[2] + (size_t)i3 * ids->nb[3],
           sizeof id);
    return id;
}

/* A row of a tied table that lies in a pinned panel, or NULL. */
static const uint8_t *pinned_row(const bt_device *device, uint32_t weight, uint64_t row) {
    const bt_facts *facts = device->facts;
    const bt_tensor *tensor = &facts->tensors[weight];
    if (tensor->role != BT_ROLE_TIED) return NULL;
    for (uint32_t u = tensor->unit; u < facts->n_units && facts->units[u].kind == BT_KIND_HEAD; u++) {
        const bt_unit_facts *unit = &facts->units[u];
        if (row < unit->row_first || row >= unit->row_first + unit->n_rows) continue;
        const uint8_t *image = bt_weights_unit_image(device->weights, u);
        return image ? image + bt_weights_image_offset(facts, u, weight, row * tensor->row_bytes) : NULL;
    }
    return NULL;
}

typedef struct wanted_row {
    uint8_t *dest;
    const uint8_t *source; /* in the scratch, once read */
} wanted_row;

/* Rows [first, first + n) of the lookup: read those that are in no pinned panel, with one job. */
static bt_status read_rows(bt_device *device, uint32_t weight, const struct ggml_tensor *ids, uint32_t first,
                           uint32_t n, bt_error *err) {
    const bt_tensor *tensor = &device->facts->tensors[weight];
    bt_run runs[ROWS_AT_ONCE];
    wanted_row wanted[ROWS_AT_ONCE];
    uint32_t n_runs = 0;
    uint64_t pages_bytes = row_pages_bytes(tensor->row_bytes);
    for (uint32_t i = 0; i < n; i++) {
        int32_t id = id_at(ids, first + i);
        if (id < 0 || (uint64_t)id >= tensor->ne[1])
            return bt_fail(err, BT_E_LIMIT, "row", BT_MEASURE_ITEMS, (uint64_t)(uint32_t)id, tensor->ne[1],
                           "row %d of %s, which has %llu", id, tensor->name, (unsigned long long)tensor->ne[1]);
        uint8_t *dest = (uint8_t *)device->rows.memory->base + (uint64_t)(first + i) * tensor->row_bytes;
        const uint8_t *pinned = pinned_row(device, weight, (uint64_t)id);
        if (pinned) {
            memcpy(dest, pinned, tensor->row_bytes);
            continue;
        }
        uint64_t offset = tensor->file_offset + (uint64_t)id * tensor->row_bytes;
        uint64_t start = offset / BT_PAGE_BYTES * BT_PAGE_BYTES;
        uint64_t end = (offset + tensor->row_bytes + BT_PAGE_BYTES - 1) / BT_PAGE_BYTES * BT_PAGE_BYTES;
        uint8_t *pages = device->rows.scratch + n_runs * pages_bytes;
        runs[n_runs] = (bt_run){tensor->shard, start, end - start, pages};
        wanted[n_runs++] = (wanted_row){dest, pages + (offset - start)};
    }
    if (n_runs == 0) return BT_OK;
    int job;
    BT_TRY(bt_reader_start(device->params.reader, runs, n_runs, &job, err));
    BT_TRY(bt_reader_wait(device->params.reader, job, err));
    device->stats.rows_read += n_runs;
    for (uint32_t i = 0; i < n_runs; i++)
        memcpy(wanted[i].dest, wanted[i].source, tensor->row_bytes);
    return BT_OK;
}

static bt_status fill_window(bt_device *device, uint32_t weight, const struct ggml_tensor *ids, uint32_t n,
                             bt_error *err) {
    if (n > device->rows.n_rows)
        return bt_fail(err, BT_E_LIMIT, "rows_window", BT_MEASURE_ITEMS, n, device->rows.n_rows,
                       "a lookup of %u rows, the window holds %u", n, device->rows.n_rows);
    for (uint32_t first = 0; first < n; first += ROWS_AT_ONCE)
        BT_TRY(read_rows(device, weight, ids, first, (uint32_t)bt_min_u64(ROWS_AT_ONCE, n - first), err));
    for (uint32_t i = 0; i < n; i++)
        device->rows.ids[i] = (int32_t)i;
    return BT_OK;
}

enum ggml_status bt_rows_compute(bt_device *device, bt_schedule *schedule, const bt_segment *segment, bt_error *err) {
    struct ggml_tensor *node = schedule->nodes[segment->first];
    struct ggml_tensor table = *node->src[0], ids = *node->src[1], *nodes[] = {node};
    struct ggml_tensor *kept_table = node->src[0], *kept_ids = node->src[1];
    uint64_t start_ns = bt_os_now_ns();
    if (table.view_src) {
        (void)bt_fail(err, BT_E_UNSUPPORTED, "weight_use", BT_MEASURE_NONE, 0, 0, "rows of a view of table %s",
                      table.name);
        return GGML_STATUS_FAILED;
    }
    int64_t n = ggml_nelements(&ids);
    if (fill_window(device, segment->weight, &ids, (uint32_t)n, err) != BT_OK) return GGML_STATUS_FAILED;
    device->stats.wait_ns += bt_os_now_ns() - start_ns;
    table.data = device->rows.memory->base;
    table.ne[1] = n;
    table.nb[2] = table.nb[3] = table.nb[1] * (size_t)n;
    ids.data = device->rows.ids;
    ids.nb[0] = sizeof(int32_t);
    for (int d = 1; d < GGML_MAX_DIMS; d++)
        ids.nb[d] = ids.nb[d - 1] * (size_t)ids.ne[d - 1];
    node->src[0] = &table;
    node->src[1] = &ids;
    struct ggml_cgraph graph = schedule->graph;
    graph.nodes = nodes;
    graph.n_nodes = 1;
    enum ggml_status status = bt_cpu_compute(device->cpu, &graph, &segment->plan);
    node->src[0] = kept_table;
    node->src[1] = kept_ids;
    return status;
}
