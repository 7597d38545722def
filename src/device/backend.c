/* SPDX-License-Identifier: MIT
 *
 * backend.c: the device as ggml sees it: one registry, one device named Burthen0, and one backend (stream), which
 * everybody who asks for one is given. Neither it nor the event has a state, so both are parts of the device, and there
 * is nothing to leak when libllama's loader gives up half-way without freeing them.
 *
 * What an operation may be is the CPU backend's answer, since it computes. The device offers async, events and a host
 * buffer type only so that the loader stages a file through four buffers of 1 MiB and not through a heap copy of the
 * largest tensor: everything is done when a call returns, and the events are empty. */

#include "device/internal.h"

#include <string.h>

static bt_device *device_of(ggml_backend_dev_t dev) {
    return dev->context;
}

/* ---- backend ---- */

static const char *backend_name(ggml_backend_t backend) {
    (void)backend;
    return "Burthen";
}

static void backend_free(ggml_backend_t backend) {
    (void)backend; /* a part of the device */
}

static void backend_set_async(ggml_backend_t backend, struct ggml_tensor *tensor, const void *data, size_t offset,
                              size_t size) {
    (void)backend;
    ggml_backend_buffer_t buffer = tensor->view_src ? tensor->view_src->buffer : tensor->buffer;
    buffer->iface.set_tensor(buffer, tensor, data, offset, size);
}

static void backend_get_async(ggml_backend_t backend, const struct ggml_tensor *tensor, void *data, size_t offset,
                              size_t size) {
    (void)backend;
    ggml_backend_buffer_t buffer = tensor->view_src ? tensor->view_src->buffer : tensor->buffer;
    buffer->iface.get_tensor(buffer, tensor, data, offset, size);
}

static void backend_synchronize(ggml_backend_t backend) {
    (void)backend;
}

static void backend_event(ggml_backend_t backend, ggml_backend_event_t event) {
    (void)backend;
    (void)event;
}

static enum ggml_status backend_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    return bt_compute(device_of(backend->device), graph);
}

static const struct ggml_backend_i backend_calls = {
    .get_name = backend_name,
    .free = backend_free,
    .set_tensor_async = backend_set_async,
    .get_tensor_async = backend_get_async,
    .synchronize = backend_synchronize,
    .graph_compute = backend_compute,
    .event_record = backend_event,
    .event_wait = backend_event,
};

static ggml_guid_t backend_guid(void) {
    /* random, fixed: tells this kind of backend from others */
    static ggml_guid guid = {0x62, 0x75, 0x72, 0x74, 0x68, 0x65, 0x6e, 0x00,
                             0x9a, 0x4c, 0x1e, 0x73, 0xd5, 0x08, 0x2b, 0xf1};
    return &guid;
}

/* ---- device ---- */

static const char *device_name(ggml_backend_dev_t dev) {
    (void)dev;
    return "Burthen0";
}

static const char *device_description(ggml_backend_dev_t dev) {
    (void)dev;
    return "host memory under a budget";
}

static void device_memory(ggml_backend_dev_t dev, size_t *free_bytes, size_t *total_bytes) {
    const bt_device *device = device_of(dev);
    uint64_t used_bytes = bt_account_committed_bytes(device->account);
    *total_bytes = device->params.budget_bytes;
    *free_bytes = device->params.budget_bytes > used_bytes ? device->params.budget_bytes - used_bytes : 0;
}

static enum ggml_backend_dev_type device_type(ggml_backend_dev_t dev) {
    (void)dev;
    return GGML_BACKEND_DEVICE_TYPE_GPU; /* libllama gives blocks to devices of this type */
}

static void device_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props *props) {
    memset(props, 0, sizeof *props);
    props->name = device_name(dev);
    props->description = device_description(dev);
    props->type = device_type(dev);
    device_memory(dev, &props->memory_free, &props->memory_total);
    props->caps.async = props->caps.host_buffer = props->caps.events = true;
}

static ggml_backend_t device_backend(ggml_backend_dev_t dev, const char *params) {
    (void)params;
    return &device_of(dev)->backend;
}

static ggml_backend_buffer_type_t device_buft(ggml_backend_dev_t dev) {
    return &device_of(dev)->buft;
}

static ggml_backend_buffer_type_t device_host_buft(ggml_backend_dev_t dev) {
    return &device_of(dev)->host_buft;
}

static bool device_supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op) {
    return ggml_backend_dev_supports_op(bt_cpu_device(device_of(dev)->cpu), op);
}

static bool device_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t type) {
    const bt_device *device = device_of(dev);
    if (type == &device->buft) return true;
    return device->params.stands_in == 0 && ggml_backend_buft_is_host(type); /* a card copies what it is to read */
}

static bool device_offload_op(ggml_backend_dev_t dev, const struct ggml_tensor *op) {
    (void)dev;
    (void)op;
    return false;
}

static ggml_backend_event_t event_new(ggml_backend_dev_t dev) {
    return &device_of(dev)->event;
}

static void event_free(ggml_backend_dev_t dev, ggml_backend_event_t event) {
    (void)dev;
    (void)event;
}

static void event_synchronize(ggml_backend_dev_t dev, ggml_backend_event_t event) {
    (void)dev;
    (void)event;
}

static const struct ggml_backend_device_i device_calls = {
    .get_name = device_name,
    .get_description = device_description,
    .get_memory = device_memory,
    .get_type = device_type,
    .get_props = device_props,
    .init_backend = device_backend,
    .get_buffer_type = device_buft,
    .get_host_buffer_type = device_host_buft,
    .supports_op = device_supports_op,
    .supports_buft = device_supports_buft,
    .offload_op = device_offload_op,
    .event_new = event_new,
    .event_free = event_free,
    .event_synchronize = event_synchronize,
};

/* ---- registry ---- */

static const char *reg_name(ggml_backend_reg_t reg) {
    (void)reg;
    return "Burthen";
}

static size_t reg_device_count(ggml_backend_reg_t reg) {
    (void)reg;
    return 1;
}

static ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, size_t index) {
    bt_device *device = reg->context;
    return index == 0 ? &device->dev : NULL;
}

static void set_n_threads(ggml_backend_t backend, int n_threads) {
    bt_device *device = device_of(backend->device);
    if (n_threads < 1) return;
    pthread_mutex_lock(&device->graph_lock);
    if ((uint32_t)n_threads != device->params.n_threads) {
        device->params.n_threads = (uint32_t)n_threads;
        bt_cpu_set_threads(device->cpu, (uint32_t)n_threads);
        device->generation++; /* schedules were planned for another number of threads */
    }
    pthread_mutex_unlock(&device->graph_lock);
}

static void set_abort_callback(ggml_backend_t backend, ggml_abort_callback callback, void *user) {
    bt_device *device = device_of(backend->device);
    pthread_mutex_lock(&device->graph_lock);
    bt_cpu_set_abort(device->cpu, callback, user);
    pthread_mutex_unlock(&device->graph_lock);
}

static void *reg_proc_address(ggml_backend_reg_t reg, const char *name) {
    (void)reg;
    /* ISO C cannot convert a function pointer to void *; ggml asks for exactly that. */
    void *address = NULL;
    if (strcmp(name, "ggml_backend_set_n_threads") == 0) {
        void (*call)(ggml_backend_t, int) = set_n_threads;
        memcpy(&address, &call, sizeof address);
    } else if (strcmp(name, "ggml_backend_set_abort_callback") == 0) {
        void (*call)(ggml_backend_t, ggml_abort_callback, void *) = set_abort_callback;
        memcpy(&address, &call, sizeof address);
    }
    return address;
}

void bt_backend_init(bt_device *device) {
    device->reg.api_version = GGML_BACKEND_API_VERSION;
    device->reg.iface.get_name = reg_name;
    device->reg.iface.get_device_count = reg_device_count;
    device->reg.iface.get_device = reg_device;
    device->reg.iface.get_proc_address = reg_proc_address;
    device->reg.context = device;
    device->dev.iface = device_calls;
    device->dev.reg = &device->reg;
    device->dev.context = device;
    device->backend.guid = backend_guid();
    device->backend.device = &device->dev;
    device->backend.iface = backend_calls;
    device->backend.context = device;
    device->event.device = &device->dev;
}
