/* SPDX-License-Identifier: MIT
 *
 * device.c: a memory device's life: open, start, close; and the failures it keeps for the engine.
 *
 * Opening maps what the plan names (small tensors, room for pins) and touches nothing large. Starting reads the pins
 * and opens the ring and the rows window: after libllama has loaded, so that its loading peak and our pins are never in
 * memory together. */

#include "device/internal.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"

#include <string.h>

#define POOL_BUFFERS 256 /* idle reservations kept; a context makes about ten buffers */

static bt_status open_parts(bt_device *device, bt_error *err) {
    BT_TRY(bt_pool_open(device->account, POOL_BUFFERS, &device->pool, err));
    const bt_cpu_params cpu = {.account = device->account,
                               .line = bt_device_line(device, BT_LINE_COMPUTE),
                               .n_threads = device->params.n_threads,
                               .lender = device->params.threads_of ? device->params.threads_of->cpu : NULL,
                               .measuring = device->params.measuring};
    BT_TRY(bt_cpu_open(&cpu, &device->cpu, err));
    BT_TRY(bt_weights_open(device, &device->weights, err));
    return bt_guest_open(device, err);
}

bt_status bt_device_open(const bt_device_params *params, bt_device **ret_device, bt_error *err) {
    bt_device *device = bt_heap_alloc(sizeof *device);
    if (!device)
        return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, sizeof *device, 0, "no memory for the memory device");
    device->params = *params;
    device->account = params->account;
    device->facts = params->facts;
    pthread_mutex_init(&device->graph_lock, NULL);
    pthread_mutex_init(&device->buffer_lock, NULL);
    pthread_mutex_init(&device->error_lock, NULL);
    bt_buffers_init(device);
    bt_backend_init(device);
    bt_status status = open_parts(device, err);
    if (status != BT_OK) {
        bt_device_close(device);
        return status;
    }
    *ret_device = device;
    return BT_OK;
}

void bt_device_close(bt_device *device) {
    if (!device) return;
    bt_moe_close(device);
    bt_ring_close(device->ring);
    bt_rows_close(device);
    bt_schedules_close(device);
    bt_buffers_close(device);
    bt_elastic_close(device);
    bt_repack_close(device);
    bt_guest_close(device);
    bt_weights_close(device->weights);
    bt_cpu_close(device->cpu);
    bt_pool_close(device->pool);
    bt_heap_free(device->ring_units);
    pthread_mutex_destroy(&device->graph_lock);
    pthread_mutex_destroy(&device->buffer_lock);
    pthread_mutex_destroy(&device->error_lock);
    bt_heap_free(device);
}

struct ggml_backend_device *bt_device_ggml(bt_device *device) {
    return &device->dev;
}

struct ggml_backend_buffer_type *bt_device_buffer_type(bt_device *device) {
    return &device->buft;
}

void bt_device_set_phase(bt_device *device, bt_device_phase phase) {
    device->phase = phase;
}

bt_status bt_device_classify(bt_device *device, bt_error *err) {
    pthread_mutex_lock(&device->graph_lock);
    bt_status status = bt_buffers_classify(device, err);
    pthread_mutex_unlock(&device->graph_lock);
    return status;
}

static bt_status open_ring(bt_device *device, bt_error *err) {
    const bt_facts *facts = device->facts;
    if (device->params.ring_bytes == 0) return BT_OK;
    device->ring_units = bt_heap_array(facts->n_units, sizeof *device->ring_units);
    if (!device->ring_units)
        return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_ITEMS, facts->n_units, 0, "no memory for the ring's units");
    for (uint32_t u = 0; u < facts->n_units; u++) {
        const bt_unit_facts *unit = &facts->units[u];
        device->ring_units[u] = (bt_ring_unit){facts->extents + unit->first_extent, unit->n_extents, unit->image_bytes};
    }
    return bt_ring_open(device->account, device->params.reader, device->ring_units, facts->n_units,
                        device->params.ring_bytes, &device->ring, err);
}

static bt_status start_parts(bt_device *device, bt_device_progress progress, void *user, bt_error *err) {
    const char *name = "";
    uint32_t n_missing = bt_weights_missing(device->weights, &name);
    if (n_missing > 0)
        return bt_fail(err, BT_E_UNSUPPORTED, "weights_elsewhere", BT_MEASURE_ITEMS, n_missing, 0,
                       "libllama did not put %u tensors on the memory device, %s first", n_missing, name);
    BT_TRY(bt_rows_open(device, err));
    if (device->params.measuring) return BT_OK;
    BT_TRY(bt_weights_pin(device->weights, progress, user, err));
    BT_TRY(bt_moe_open(device, progress, user, err));
    BT_TRY(bt_repack_open(device, err));
    BT_TRY(open_ring(device, err));
    bt_tier_open(device);
    /* A guest's buffers are held to what they touch, also where nothing streams that could borrow. */
    bool is_elastic = device->ring && device->params.elastic;
    return is_elastic || device->guest ? bt_elastic_open(device, err) : BT_OK;
}

/* A guest may ask for another context after a start that failed. Pins may have been repacked. */
static void undo_start(bt_device *device) {
    bt_elastic_close(device);
    bt_ring_close(device->ring);
    device->ring = NULL;
    bt_heap_free(device->ring_units);
    device->ring_units = NULL;
    bt_repack_close(device);
    bt_moe_close(device);
    bt_rows_close(device);
    bt_guest_drop_pins(device);
}

bt_status bt_device_start(bt_device *device, bt_device_progress progress, void *user, bt_error *err) {
    bt_status status = start_parts(device, progress, user, err);
    if (status != BT_OK) undo_start(device);
    return status;
}

void bt_device_fail(bt_device *device, const bt_error *err) {
    pthread_mutex_lock(&device->error_lock);
    if (!device->has_error) {
        device->error = *err;
        device->has_error = true;
    }
    pthread_mutex_unlock(&device->error_lock);
}

bool bt_device_take_error(bt_device *device, bt_error *err) {
    pthread_mutex_lock(&device->error_lock);
    bool had = device->has_error;
    if (had && err) *err = device->error;
    device->has_error = false;
    pthread_mutex_unlock(&device->error_lock);
    return had;
}

bool bt_device_stop_asked(const bt_device *device) {
    return device->should_abort && device->should_abort(device->abort_user);
}

static bool abort_asked(void *user) {
    return bt_device_stop_asked(user);
}

void bt_device_set_abort(bt_device *device, bool (*should_abort)(void *), void *user) {
    pthread_mutex_lock(&device->graph_lock);
    device->should_abort = should_abort;
    device->abort_user = user;
    bt_cpu_set_abort(device->cpu, should_abort ? abort_asked : NULL, device);
    pthread_mutex_unlock(&device->graph_lock);
}

void bt_device_stats_read(bt_device *device, bt_device_stats *ret) {
    pthread_mutex_lock(&device->graph_lock);
    *ret = device->stats;
    pthread_mutex_unlock(&device->graph_lock);
}

void bt_device_experts_stats_read(bt_device *device, bt_experts_stats *ret) {
    memset(ret, 0, sizeof *ret);
    pthread_mutex_lock(&device->graph_lock);
    if (device->moe.experts) bt_experts_stats_read(device->moe.experts, ret);
    pthread_mutex_unlock(&device->graph_lock);
}

void bt_device_set_expert_trace(bt_device *device, bt_experts_trace trace, void *user) {
    pthread_mutex_lock(&device->graph_lock);
    if (device->moe.experts) bt_experts_set_trace(device->moe.experts, trace, user);
    pthread_mutex_unlock(&device->graph_lock);
}

void bt_device_tier_stats_read(bt_device *device, bt_tier_stats *ret) {
    pthread_mutex_lock(&device->graph_lock);
    const bt_tier *tier = &device->tier;
    *ret = (bt_tier_stats){tier->cached, tier->disk_ns_per_mib, tier->cached_ns_per_mib};
    pthread_mutex_unlock(&device->graph_lock);
}

void bt_device_pool_report(bt_device *device, bt_pool_report *ret) {
    bt_pool_report_read(device->pool, ret);
}

static uint64_t asked_bytes(bt_device *device, bt_line line, bool only_host) {
    uint64_t total = 0;
    pthread_mutex_lock(&device->buffer_lock);
    for (const bt_buffer *buffer = device->buffers; buffer; buffer = buffer->next)
        if (buffer->memory->line == line && (buffer->host || !only_host))
            total = bt_sat_add_u64(total, buffer->memory->bytes);
    pthread_mutex_unlock(&device->buffer_lock);
    return total;
}

uint64_t bt_device_line_asked_bytes(bt_device *device, bt_line line) {
    return asked_bytes(device, line, false);
}

uint64_t bt_device_host_asked_bytes(bt_device *device, bt_line line) {
    return asked_bytes(device, line, device->params.stands_in > 0);
}
