/* SPDX-License-Identifier: MIT
 *
 * bare.c: the reader without the computing: what the disk gives through this ring, in this order, at this moment.
 *
 * A streamed token's time is worth something beside the time that its reading alone takes (docs/design.md section 15).
 * A pass acquires and releases every unit of the order that the last graph had, one after another. The ring reads ahead
 * across the end of a pass, so both ends are settled: it is as full afterwards as it was before, and what was read in
 * between took that time. Nothing of the device's own statistics moves. */

#include "device/internal.h"

#include "base/error.h"
#include "base/os.h"

static bt_status walk(bt_device *device, bt_error *err) {
    const uint32_t *units = NULL;
    uint32_t n = bt_ring_order(device->ring, &units);
    for (uint32_t i = 0; i < n; i++) {
        void *image = NULL;
        if (bt_device_stop_asked(device))
            return bt_fail(err, BT_E_CANCELLED, "cancelled", BT_MEASURE_NONE, 0, 0, "reading was stopped");
        uint32_t unit = units[i];
        BT_TRY(bt_ring_acquire(device->ring, &unit, 1, &image, err));
        bt_ring_release(device->ring, unit);
    }
    return bt_ring_settle(device->ring, err);
}

static bt_status measure(bt_device *device, uint64_t *ret_bytes, uint64_t *ret_ns, bt_error *err) {
    bt_reader_stats before;
    bt_reader_stats after;
    BT_TRY(bt_ring_settle(device->ring, err));
    bt_reader_stats_read(device->params.reader, &before);
    uint64_t start_ns = bt_os_now_ns();
    BT_TRY(walk(device, err));
    *ret_ns = bt_os_now_ns() - start_ns;
    bt_reader_stats_read(device->params.reader, &after);
    *ret_bytes = after.read_bytes - before.read_bytes;
    return BT_OK;
}

bt_status bt_device_read_pass(bt_device *device, uint64_t *ret_bytes, uint64_t *ret_ns, bt_error *err) {
    *ret_bytes = 0;
    *ret_ns = 0;
    if (!device->ring) return BT_OK;
    pthread_mutex_lock(&device->graph_lock);
    bt_status status = measure(device, ret_bytes, ret_ns, err);
    pthread_mutex_unlock(&device->graph_lock);
    return status;
}

bt_status bt_device_read_settle(bt_device *device, bt_error *err) {
    if (!device->ring) return BT_OK;
    pthread_mutex_lock(&device->graph_lock);
    bt_status status = bt_ring_settle(device->ring, err);
    pthread_mutex_unlock(&device->graph_lock);
    return status;
}
