/* SPDX-License-Identifier: MIT
 *
 * panels.c: the product with an output head that is not in memory as a whole, panel by panel.
 *
 * The head is cut into panels of rows. Each panel's product fills its own columns of the logits: the destination is a
 * view of the node's memory with the same strides. Every output is one dot product over the full row, and panels are
 * multiples of the kernels' row tiles, so the result is the same to the bit. Pinned panels that follow each other are
 * one product.
 *
 *     head [n_vocab][n_embd]     panel 0 | panel 1 | panel 2        logits [n_tokens][n_vocab]
 *                                rows -------------->               columns -->
 */

#include "device/internal.h"

#include "base/error.h"
#include "base/os.h"

static enum ggml_status compute_rows(bt_device *device, bt_schedule *schedule, const bt_segment *segment,
                                     uint8_t *weights, uint64_t row_first, uint64_t n_rows) {
    const struct ggml_tensor *node = schedule->nodes[segment->first];
    struct ggml_tensor head = *node->src[0], product = *node;
    head.data = weights;
    head.ne[1] = (int64_t)n_rows;
    head.nb[2] = head.nb[3] = head.nb[1] * (size_t)n_rows;
    product.ne[0] = (int64_t)n_rows;
    product.data = (uint8_t *)node->data + row_first * node->nb[0];
    product.src[0] = &head;
    struct ggml_tensor *nodes[] = {&product};
    struct ggml_cgraph graph = schedule->graph;
    graph.nodes = nodes;
    graph.n_nodes = 1;
    uint64_t start_ns = bt_os_now_ns();
    enum ggml_status status = bt_tokens_split(device, &product)
                                  ? bt_tokens_compute(device, &graph, &segment->plan, &product)
                                  : bt_cpu_compute(device->cpu, &graph, &segment->plan);
    device->stats.compute_ns += bt_os_now_ns() - start_ns;
    return status;
}

static bool is_panel(const bt_facts *facts, uint32_t unit) {
    return unit < facts->n_units && facts->units[unit].kind == BT_KIND_HEAD;
}

/* Rows of the panels in memory from unit on: of the pinned ones that follow each other, or of one elastic panel. */
static uint64_t rows_in_memory(const bt_device *device, uint32_t unit, uint32_t *ret_next) {
    uint64_t n_rows = 0;
    while (is_panel(device->facts, unit) && bt_weights_unit_is_pinned(device->weights, unit))
        n_rows += device->facts->units[unit++].n_rows;
    if (n_rows == 0) n_rows = device->facts->units[unit++].n_rows;
    *ret_next = unit;
    return n_rows;
}

enum ggml_status bt_panels_compute(bt_device *device, bt_schedule *schedule, const bt_segment *segment, bt_error *err) {
    const bt_facts *facts = device->facts;
    const bt_tensor *tensor = &facts->tensors[segment->weight];
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (uint32_t unit = tensor->unit; is_panel(facts, unit) && status == GGML_STATUS_SUCCESS;) {
        const bt_unit_facts *panel = &facts->units[unit];
        uint64_t offset = bt_weights_image_offset(facts, unit, segment->weight, panel->row_first * tensor->row_bytes);
        uint32_t next = unit + 1;
        if (!bt_weights_unit_streams(device->weights, unit)) {
            uint64_t n_rows = rows_in_memory(device, unit, &next);
            uint8_t *image = bt_weights_unit_image(device->weights, unit);
            status = compute_rows(device, schedule, segment, image + offset, panel->row_first, n_rows);
        } else {
            void *image;
            uint64_t start_ns = bt_os_now_ns();
            if (bt_ring_acquire(device->ring, &unit, 1, &image, err) != BT_OK) return GGML_STATUS_FAILED;
            device->stats.wait_ns += bt_os_now_ns() - start_ns;
            status =
                compute_rows(device, schedule, segment, (uint8_t *)image + offset, panel->row_first, panel->n_rows);
            bt_elastic_offer(device, unit, image);
            start_ns = bt_os_now_ns();
            bt_ring_release(device->ring, unit);
            device->stats.wait_ns += bt_os_now_ns() - start_ns;
        }
        unit = next;
    }
    return status;
}
