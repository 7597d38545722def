/* SPDX-License-Identifier: MIT
 *
 * compute.c: a graph, segment by segment: wait for the units, bind, compute on the CPU backend, release.
 *
 * The thread that computes is the thread that reads: releasing a slot submits the next read, acquiring one reaps what
 * has come. A failure stops the graph with GGML_STATUS_FAILED and is kept for the engine; the slots are released, and
 * the next graph starts anew. */

#include "device/internal.h"

#include "base/error.h"
#include "base/os.h"

static bt_status acquire(bt_device *device, bt_schedule *schedule, const bt_segment *segment,
                         void *images[BT_SEGMENT_UNITS], bt_error *err) {
    BT_TRY(bt_ring_acquire(device->ring, segment->units, segment->n_units, images, err));
    for (uint32_t i = 0; i < segment->n_binds; i++) {
        const bt_bind *bind = &schedule->binds[segment->first_bind + i];
        for (uint32_t k = 0; k < segment->n_units; k++)
            if (segment->units[k] == bind->unit) bind->clone->data = (uint8_t *)images[k] + bind->image_offset;
    }
    return BT_OK;
}

/* Nodes [first, end) of a segment. */
static enum ggml_status compute_range(bt_device *device, const bt_schedule *schedule, const bt_segment *segment,
                                      uint32_t first, uint32_t end) {
    if (first == end) return GGML_STATUS_SUCCESS;
    struct ggml_cgraph graph = schedule->graph;
    graph.nodes += first;
    graph.n_nodes = (int)(end - first);
    graph.uid = 0;
    return bt_cpu_compute(device->cpu, &graph, &segment->plan);
}

/* All nodes of a segment at once, but for those that tokens.c takes apart. */
static enum ggml_status compute_nodes(bt_device *device, const bt_schedule *schedule, const bt_segment *segment) {
    uint32_t start = segment->first, end = segment->first + segment->n;
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (uint32_t i = start; device->token_by_token && i < end && status == GGML_STATUS_SUCCESS; i++) {
        if (!bt_tokens_split(device, schedule->nodes[i])) continue;
        status = compute_range(device, schedule, segment, start, i);
        if (status == GGML_STATUS_SUCCESS)
            status = bt_tokens_compute(device, &schedule->graph, &segment->plan, schedule->nodes[i]);
        start = i + 1;
    }
    return status == GGML_STATUS_SUCCESS ? compute_range(device, schedule, segment, start, end) : status;
}

static enum ggml_status compute_plain(bt_device *device, bt_schedule *schedule, const bt_segment *segment,
                                      bt_error *err) {
    uint64_t start_ns = bt_os_now_ns();
    void *images[BT_SEGMENT_UNITS] = {NULL};
    if (segment->n_units > 0 && acquire(device, schedule, segment, images, err) != BT_OK) return GGML_STATUS_FAILED;
    uint64_t ready_ns = bt_os_now_ns();
    enum ggml_status status = compute_nodes(device, schedule, segment);
    uint64_t end_ns = bt_os_now_ns();
    device->stats.compute_ns += end_ns - ready_ns;
    for (uint32_t k = 0; k < segment->n_units; k++) {
        if (status == GGML_STATUS_SUCCESS) bt_elastic_offer(device, segment->units[k], images[k]);
        bt_ring_release(device->ring, segment->units[k]);
    }
    device->stats.wait_ns += ready_ns - start_ns + (segment->n_units > 0 ? bt_os_now_ns() - end_ns : 0);
    if (status != GGML_STATUS_SUCCESS && status != GGML_STATUS_ABORTED)
        (void)bt_fail(err, BT_E_DEVICE, "cpu_compute", BT_MEASURE_NONE, 0, 0, "the CPU backend failed with status %d",
                      (int)status);
    return status;
}

/* The product over experts, and what follows it without streamed weights. */
static enum ggml_status compute_experts(bt_device *device, const bt_schedule *schedule, const bt_segment *segment,
                                        bt_error *err) {
    bool done = false;
    enum ggml_status status = bt_moe_prepare(device, schedule, segment, &done, err);
    if (status != GGML_STATUS_SUCCESS) return status;
    uint64_t start_ns = bt_os_now_ns();
    status = compute_range(device, schedule, segment, segment->first + (done ? 1 : 0), segment->first + segment->n);
    device->stats.compute_ns += bt_os_now_ns() - start_ns;
    if (status != GGML_STATUS_SUCCESS && status != GGML_STATUS_ABORTED)
        (void)bt_fail(err, BT_E_DEVICE, "cpu_compute", BT_MEASURE_NONE, 0, 0, "the CPU backend failed with status %d",
                      (int)status);
    return status;
}

static enum ggml_status compute_segment(bt_device *device, bt_schedule *schedule, const bt_segment *segment,
                                        bt_error *err) {
    switch (segment->kind) {
    case BT_SEGMENT_ROWS:
        return bt_rows_compute(device, schedule, segment, err);
    case BT_SEGMENT_HEAD:
        return bt_panels_compute(device, schedule, segment, err);
    case BT_SEGMENT_EXPERTS:
        return compute_experts(device, schedule, segment, err);
    case BT_SEGMENT_PLAIN:
        break;
    }
    return compute_plain(device, schedule, segment, err);
}

/* The ring reads ahead in the order of the graph that runs. */
static bt_status follow_order(bt_device *device, const bt_schedule *schedule, bt_error *err) {
    if (!device->ring || (device->ring_order_of == schedule && device->ring_order_uid == schedule->uid)) return BT_OK;
    BT_TRY(bt_ring_set_order(device->ring, schedule->order, schedule->n_order, err));
    device->ring_order_of = schedule;
    device->ring_order_uid = schedule->uid;
    return BT_OK;
}

static enum ggml_status run(bt_device *device, bt_schedule *schedule, bt_error *err) {
    if (schedule->n_order > 0 && !device->ring) {
        (void)bt_fail(err, BT_E_DEVICE, "not_started", BT_MEASURE_NONE, 0, 0,
                      "a graph that needs streamed weights was run before the device was started");
        return GGML_STATUS_FAILED;
    }
    if (follow_order(device, schedule, err) != BT_OK) return GGML_STATUS_FAILED;
    bt_moe_begin(device);
    for (uint32_t i = 0; i < schedule->n_segments; i++) {
        if (bt_device_stop_asked(device)) return GGML_STATUS_ABORTED;
        enum ggml_status status = compute_segment(device, schedule, &schedule->segments[i], err);
        if (status != GGML_STATUS_SUCCESS) return status;
    }
    return GGML_STATUS_SUCCESS;
}

/* Our own engine asks before each pass. */
static bt_status check_files(const bt_device *device, bt_error *err) {
    return device->guest ? bt_store_check(device->params.store, device->facts, err) : BT_OK;
}

enum ggml_status bt_compute(bt_device *device, struct ggml_cgraph *graph) {
    bt_error err = {.status = BT_OK};
    bt_schedule *schedule;
    enum ggml_status status = GGML_STATUS_FAILED;
    pthread_mutex_lock(&device->graph_lock);
    if (device->params.stands_in > 0) {
        status = bt_buffers_classify(device, &err) == BT_OK ? GGML_STATUS_SUCCESS : GGML_STATUS_FAILED;
        pthread_mutex_unlock(&device->graph_lock);
        return status;
    }
    device->stats.graphs++;
    /* What a callback could not return fails the graph that follows it. */
    pthread_mutex_lock(&device->error_lock);
    bool failed_before = device->has_error;
    pthread_mutex_unlock(&device->error_lock);
    if (!failed_before && check_files(device, &err) == BT_OK && bt_buffers_classify(device, &err) == BT_OK &&
        bt_buffers_use(device, graph, &err) == BT_OK && bt_elastic_prepare(device, graph, &err) == BT_OK &&
        bt_schedule_get(device, graph, &schedule, &err) == BT_OK) {
        device->stats.segments += schedule->n_segments;
        bt_tier_before(device);
        status = device->params.measuring ? GGML_STATUS_SUCCESS : run(device, schedule, &err);
        if (status == GGML_STATUS_SUCCESS) bt_tier_after(device, schedule);
        bt_elastic_settle(device);
    }
    if (err.status != BT_OK) bt_device_fail(device, &err);
    if (status != GGML_STATUS_SUCCESS) bt_guest_hear(device);
    pthread_mutex_unlock(&device->graph_lock);
    if (device->params.ran) device->params.ran(device->params.guest_user);
    return status;
}
