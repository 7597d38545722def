/* SPDX-License-Identifier: MIT
 *
 * guest.c: the device in a program that is not ours (libggml-burthen.so behind an unmodified llama-server).
 *
 * Our own engine gives libllama a virtual model file and says at each step what it is doing. A program that only named
 * the device does neither:
 *
 *   libllama asks for a buffer for all weights     address space
 *   reads the file itself, a MiB at a time         each piece is held against the same place in the file; of what is
 *                                                  pinned it is kept, the rest is dropped: it will be read when needed
 *   asks for the next buffer: caches, output       all weights have come: the device is started
 *   graphs                                         what fails is said at once, and fails this graph alone
 *   frees the buffer of weights                    what is pinned stays: the model may be loaded again (a server that
 *                                                  slept, llama-bench)
 *
 * Which tensor a weight is, its name alone does not say: a draft model repeats names, shapes and types. So the first
 * bytes of each piece are compared with the file's, of small tensors all of them. What differs at its start is another
 * file's weight, and ordinary memory; what differs later was written to while it was loaded, and is an error. What
 * comes when the device is started is this model once more, or another: there all bytes are compared, and a tensor that
 * differs anywhere is ordinary memory.
 *
 * Left out: programs that put a part of the model elsewhere. They are refused when they make a context. */

#include "device/internal.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"

#include <string.h>

/* Of each piece. Quantised weights that agree in as much agree: it is a hundred blocks and more. */
#define SAMPLE_BYTES 4096u

struct bt_guest {
    bt_device *device;
    bool started;           /* once, and for good */
    bool loaded;            /* all weights have come, and are there */
    bt_error changed;       /* BT_OK, or what was wrong with the model that was loaded */
    uint64_t *filled_bytes; /* [n_units] of what its tensors have, kept in its image */
    bt_mapping *slack;      /* what loading took of the plan and nothing takes later: lent to streamed units */
    pthread_mutex_t lock;   /* starting */
};

bt_status bt_guest_open(bt_device *device, bt_error *err) {
    if (!device->params.guest) return BT_OK;
    bt_guest *guest = bt_heap_alloc(sizeof *guest);
    if (!guest) return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, sizeof *guest, 0, "no memory for a guest");
    guest->device = device;
    (void)pthread_mutex_init(&guest->lock, NULL);
    device->guest = guest;
    guest->filled_bytes = bt_heap_array((size_t)device->facts->n_units + 1, sizeof *guest->filled_bytes);
    if (guest->filled_bytes) return BT_OK;
    return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_ITEMS, device->facts->n_units, 0,
                   "no memory for the pins of %u units", device->facts->n_units);
}

static void end_slack(bt_device *device) {
    bt_guest *guest = device->guest;
    if (guest->slack && !bt_account_lend_end(device->account, guest->slack)) {
        bt_elastic_release_all(device);
        (void)bt_account_lend_end(device->account, guest->slack); /* nothing is lent now */
    }
    bt_account_unmap(device->account, guest->slack);
    guest->slack = NULL;
}

void bt_guest_close(bt_device *device) {
    bt_guest *guest = device->guest;
    if (!guest) return;
    end_slack(device); /* nobody borrows any more */
    bt_heap_free(guest->filled_bytes);
    (void)pthread_mutex_destroy(&guest->lock);
    bt_heap_free(guest);
    device->guest = NULL;
}

/* ---- loading ---- */

/* Bytes of the file at a weight's offset are these. Unreadable is not equal. */
static bool file_has(bt_device *device, const bt_tensor *tensor, const void *data, uint64_t offset, uint64_t bytes) {
    bt_error err;
    uint8_t there[SAMPLE_BYTES];
    for (uint64_t done = 0; done < bytes;) {
        uint64_t n = bt_min_u64(bytes - done, sizeof there);
        if (bt_store_read(device->params.store, tensor->shard, tensor->file_offset + offset + done, there, n, &err) !=
            BT_OK) {
            bt_device_fail(device, &err);
            return false;
        }
        if (memcmp(there, (const uint8_t *)data + done, n) != 0) return false;
        done += n;
    }
    return true;
}

bool bt_guest_is_weight(bt_device *device, uint32_t weight, const void *data, uint64_t offset, uint64_t bytes) {
    const bt_tensor *tensor = &device->facts->tensors[weight];
    /* Norms of a family often begin alike; of two models that were trained from one, any tensor may. */
    bool whole = tensor->role == BT_ROLE_SMALL || device->guest->started;
    return file_has(device, tensor, data, offset, whole ? bytes : bt_min_u64(bytes, SAMPLE_BYTES));
}

/* Two head panels share the page they meet on; it is charged once. */
static bt_status charge_unit(bt_device *device, uint32_t unit, bt_error *err) {
    bt_mapping *mapping = bt_weights_unit_mapping(device->weights, unit);
    uint64_t left_bytes = mapping->bytes - mapping->committed_bytes;
    return bt_account_commit(device->account, mapping, bt_min_u64(device->facts->units[unit].image_bytes, left_bytes),
                             err);
}

static bt_status fill_unit(bt_device *device, uint32_t unit, const bt_tensor *tensor, const uint8_t *data,
                           uint64_t start, uint64_t end, bt_error *err) {
    const bt_unit_facts *u = &device->facts->units[unit];
    uint64_t *filled_bytes = &device->guest->filled_bytes[unit];
    for (uint32_t i = 0; i < u->n_extents; i++) {
        const bt_extent *extent = &device->facts->extents[u->first_extent + i];
        uint64_t from = bt_max_u64(start, extent->file_offset);
        uint64_t to = bt_min_u64(end, extent->file_offset + extent->bytes);
        if (extent->shard != tensor->shard || from >= to) continue;
        if (*filled_bytes == 0) BT_TRY(charge_unit(device, unit, err));
        uint8_t *image = bt_weights_unit_image(device->weights, unit);
        memcpy(image + extent->image_offset + (from - extent->file_offset), data + (from - start), to - from);
        *filled_bytes += to - from;
    }
    return BT_OK;
}

static bool is_head(const bt_tensor *tensor) {
    return tensor->role == BT_ROLE_HEAD || tensor->role == BT_ROLE_TIED;
}

bt_status bt_guest_fill(bt_device *device, uint32_t weight, const void *data, uint64_t offset, uint64_t bytes,
                        bt_error *err) {
    const bt_facts *facts = device->facts;
    const bt_tensor *tensor = &facts->tensors[weight];
    if (device->guest->started) return BT_OK; /* loaded once more: it is there */
    if (tensor->unit == BT_NO_UNIT) return BT_OK;
    uint64_t start = tensor->file_offset + offset;
    for (uint32_t u = tensor->unit; u < facts->n_units; u++) {
        if (u != tensor->unit && !(is_head(tensor) && facts->units[u].kind == BT_KIND_HEAD)) break;
        if (bt_weights_unit_is_pinned(device->weights, u))
            BT_TRY(fill_unit(device, u, tensor, data, start, start + bytes, err));
    }
    return BT_OK;
}

bool bt_guest_refuses(bt_device *device, uint32_t weight) {
    bt_guest *guest = device->guest;
    if (guest->started) return false;
    if (guest->changed.status == BT_OK)
        (void)bt_fail(&guest->changed, BT_E_IO, "model_changed", BT_MEASURE_NONE, 0, 0,
                      "%s was written to while it was loaded: %s is not what it was", device->facts->path,
                      device->facts->tensors[weight].name);
    return true;
}

/* What was wrong with one load is said, and does not stand in the way of the next. */
void bt_guest_forget(bt_device *device) {
    bt_guest *guest = device->guest;
    if (!guest) return;
    guest->changed = (bt_error){.status = BT_OK};
    if (!guest->started) bt_guest_hear(device);
    if (!guest->loaded) return;
    device->generation++; /* schedules name tensors that are gone */
    end_slack(device);    /* who loads again stages again */
    guest->loaded = false;
    device->phase = BT_PHASE_LOAD;
}

void bt_guest_drop_pins(bt_device *device) {
    if (device->guest)
        memset(device->guest->filled_bytes, 0, device->facts->n_units * sizeof *device->guest->filled_bytes);
}

bool bt_guest_has_unit(const bt_device *device, uint32_t unit) {
    return device->guest && device->guest->filled_bytes[unit] >= device->facts->units[unit].bytes;
}

/* ---- starting ---- */

/* The loader's buffers are gone. What their line has left lends like a cache that nobody uses. */
static bt_status lend_staging(bt_device *device, bt_error *err) {
    bt_line line = bt_device_line(device, BT_LINE_STAGING);
    uint64_t bytes = bt_account_left_bytes(device->account, line) / BT_PAGE_BYTES * BT_PAGE_BYTES;
    if (!device->elastic || bytes == 0 || device->params.budget_bytes == UINT64_MAX) return BT_OK;
    BT_TRY(bt_account_map(device->account, line, bytes, &device->guest->slack, err));
    BT_TRY(bt_account_commit(device->account, device->guest->slack, bytes, err));
    bt_account_lend(device->account, device->guest->slack);
    return BT_OK;
}

static bt_status start(bt_device *device, bt_error *err) {
    *err = device->guest->changed;
    if (err->status != BT_OK) return err->status;
    if (bt_device_take_error(device, err)) return err->status; /* a weight that did not come as it should */
    if (!device->guest->started) BT_TRY(bt_device_start(device, NULL, NULL, err));
    device->guest->started = true;
    BT_TRY(lend_staging(device, err));
    device->phase = BT_PHASE_COMPUTE; /* from now on: what a context asks for is known by its use (buffers.c) */
    device->guest->loaded = true;
    return BT_OK;
}

bt_status bt_guest_before_buffer(bt_device *device, bool host, bt_error *err) {
    bt_guest *guest = device->guest;
    if (!guest) return BT_OK;
    const char *name = "";
    bt_status status = BT_OK;
    pthread_mutex_lock(&guest->lock);
    bool waits = !guest->loaded && bt_weights_any(device->weights);
    /* The loader stages what goes elsewhere through host buffers of ours, too. */
    bool is_loading = waits && host && bt_weights_missing(device->weights, &name) > 0;
    if (waits && !is_loading) status = start(device, err);
    pthread_mutex_unlock(&guest->lock);
    return status;
}

void bt_guest_hear(bt_device *device) {
    bt_error err;
    if (!device->guest || !bt_device_take_error(device, &err)) return;
    if (device->params.heard) device->params.heard(&err, device->params.guest_user);
}
