/* SPDX-License-Identifier: MIT
 *
 * fake_device.c: a graphics card made of the CPU backend and of memory that the host cannot touch.
 *
 * A buffer is two spans of one mapping:
 *
 *     base                    base + distance
 *     |  no access  | guard |  readable and writable  |
 *
 * ggml is told the first, and does its arithmetic of addresses there; set, get, copy and clear work on the second, and
 * so does computing, on clones of the nodes whose data are moved by the distance: tensors that several contexts share
 * are never written. What a card refuses is refused: memory beyond its total, and the calls that a test chose.
 *
 * Nothing is done asynchronously, and there are no events and no pinned host buffers. */

#include "fake_device.h"
#include "fake_graph.h"

#include "ggml-backend-impl.h"
#include "ggml-impl.h"
#include "ggml.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE_BYTES   4096u
#define OFFLOAD_ROWS 32 /* as ggml's CUDA backend, unless told otherwise */

typedef struct fake_registry fake_registry;

typedef struct fake_device {
    fake_registry *registry;
    fake_spec spec;
    char name[32], description[64], device_id[32], error[128];
    pthread_mutex_t lock; /* everything below */
    fake_counts counts;
    struct {
        uint64_t calls_left; /* 0: none fails */
        bool persistent;
    } fails[FAKE_CALL_COUNT];
    fake_memory memory;
    struct ggml_backend_device dev;
    struct ggml_backend_buffer_type buft;
} fake_device;

struct fake_registry {
    struct ggml_backend_reg reg;
    char name[32];
    uint32_t n_devices;
    fake_device devices[FAKE_DEVICE_MAX];
};

typedef struct fake_buffer {
    fake_device *device;
    uint8_t *base;
    uint64_t bytes, distance, mapped_bytes;
} fake_buffer;

typedef struct fake_backend {
    struct ggml_backend ggml;
    ggml_backend_t cpu;
} fake_backend;

/* Count a call; true: it is to fail. */
static bool call_fails(fake_device *device, fake_call call) {
    pthread_mutex_lock(&device->lock);
    device->counts.calls[call]++;
    bool fails = device->fails[call].calls_left == 1;
    bool stays = fails && device->fails[call].persistent;
    if (device->fails[call].calls_left > 0 && !stays) device->fails[call].calls_left--;
    pthread_mutex_unlock(&device->lock);
    return fails;
}

static void count(fake_device *device, uint64_t *counter) {
    pthread_mutex_lock(&device->lock);
    (*counter)++;
    pthread_mutex_unlock(&device->lock);
}

/* Under the lock. */
static uint64_t free_bytes(const fake_device *device) {
    uint64_t used = device->counts.live_bytes + device->counts.overhead_bytes;
    return used < device->spec.total_bytes ? device->spec.total_bytes - used : 0;
}

/* ---- buffers ---- */

static bool is_ours(ggml_backend_buffer_t ggml);

/* Where a tensor's bytes can be reached. */
static uint8_t *reach(const fake_buffer *buffer, const struct ggml_tensor *tensor, size_t offset, size_t size) {
    uint8_t *data = tensor->data;
    GGML_ASSERT(data >= buffer->base && offset + size <= buffer->bytes &&
                (uint64_t)(data - buffer->base) <= buffer->bytes - offset - size && "outside the fake device's buffer");
    return data + buffer->distance + offset;
}

static void buffer_free(ggml_backend_buffer_t ggml) {
    fake_buffer *buffer = ggml->context;
    fake_device *device = buffer->device;
    (void)munmap(buffer->base, buffer->mapped_bytes);
    pthread_mutex_lock(&device->lock);
    device->counts.live_bytes -= buffer->bytes;
    device->counts.n_buffers--;
    device->counts.frees++;
    pthread_mutex_unlock(&device->lock);
    free(buffer);
}

static void *buffer_base(ggml_backend_buffer_t ggml) {
    const fake_buffer *buffer = ggml->context;
    return buffer->base;
}

static void buffer_memset(ggml_backend_buffer_t ggml, struct ggml_tensor *tensor, uint8_t value, size_t offset,
                          size_t size) {
    fake_buffer *buffer = ggml->context;
    memset(reach(buffer, tensor, offset, size), value, size);
}

static void buffer_set(ggml_backend_buffer_t ggml, struct ggml_tensor *tensor, const void *data, size_t offset,
                       size_t size) {
    fake_buffer *buffer = ggml->context;
    count(buffer->device, &buffer->device->counts.sets);
    memcpy(reach(buffer, tensor, offset, size), data, size);
}

static void buffer_get(ggml_backend_buffer_t ggml, const struct ggml_tensor *tensor, void *data, size_t offset,
                       size_t size) {
    fake_buffer *buffer = ggml->context;
    count(buffer->device, &buffer->device->counts.gets);
    memcpy(data, reach(buffer, tensor, offset, size), size);
}

/* Between fake devices; ggml takes what comes from the host through set. */
static bool buffer_copy(ggml_backend_buffer_t ggml, const struct ggml_tensor *src, struct ggml_tensor *dst) {
    fake_buffer *buffer = ggml->context;
    ggml_backend_buffer_t from = src->view_src ? src->view_src->buffer : src->buffer;
    if (!is_ours(from)) return false;
    count(buffer->device, &buffer->device->counts.copies);
    size_t bytes = ggml_nbytes(src);
    memcpy(reach(buffer, dst, 0, bytes), reach(from->context, src, 0, bytes), bytes);
    return true;
}

static void buffer_clear(ggml_backend_buffer_t ggml, uint8_t value) {
    fake_buffer *buffer = ggml->context;
    memset(buffer->base + buffer->distance, value, buffer->bytes);
}

static const struct ggml_backend_buffer_i buffer_calls = {
    .free_buffer = buffer_free,
    .get_base = buffer_base,
    .memset_tensor = buffer_memset,
    .set_tensor = buffer_set,
    .get_tensor = buffer_get,
    .cpy_tensor = buffer_copy,
    .clear = buffer_clear,
};

/* false: there is no room for it. */
static bool take_room(fake_device *device, uint64_t bytes) {
    pthread_mutex_lock(&device->lock);
    bool fits = bytes <= free_bytes(device);
    if (fits) {
        device->counts.live_bytes += bytes;
        device->counts.n_buffers++;
        if (device->counts.live_bytes > device->counts.peak_bytes)
            device->counts.peak_bytes = device->counts.live_bytes;
    }
    pthread_mutex_unlock(&device->lock);
    return fits;
}

static bool map_spans(fake_buffer *buffer, uint64_t bytes) {
    uint64_t span = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    buffer->bytes = bytes;
    buffer->distance = span + PAGE_BYTES;
    buffer->mapped_bytes = buffer->distance + span;
    /* Shared pages are no RssAnon: a program that measures its heap by that does not take a card for a part of it. */
    void *base = mmap(NULL, buffer->mapped_bytes, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return false;
    buffer->base = base;
    return mprotect(buffer->base + buffer->distance, span, PROT_READ | PROT_WRITE) == 0;
}

static ggml_backend_buffer_t type_alloc(ggml_backend_buffer_type_t type, size_t bytes) {
    fake_device *device = type->context;
    bool over = device->spec.max_buffer_bytes > 0 && bytes > device->spec.max_buffer_bytes;
    if (call_fails(device, FAKE_ALLOC) || over || !take_room(device, bytes)) {
        GGML_LOG_ERROR("%s: %s has no room for a buffer of %zu bytes\n", __func__, device->name, bytes);
        return NULL;
    }
    fake_buffer *buffer = calloc(1, sizeof *buffer);
    GGML_ASSERT(buffer && "no memory for a test");
    buffer->device = device;
    GGML_ASSERT(map_spans(buffer, bytes) && "no memory for a test");
    return ggml_backend_buffer_init(type, buffer_calls, buffer, bytes);
}

static const char *type_name(ggml_backend_buffer_type_t type) {
    const fake_device *device = type->context;
    return device->name;
}

static size_t type_alignment(ggml_backend_buffer_type_t type) {
    const fake_device *device = type->context;
    return device->spec.align_bytes;
}

static size_t type_max_size(ggml_backend_buffer_type_t type) {
    const fake_device *device = type->context;
    return device->spec.max_buffer_bytes > 0 ? device->spec.max_buffer_bytes : SIZE_MAX;
}

/* ggml lets a type pad what it does not compute in place (ggml-backend.cpp: ggml_backend_buft_get_alloc_size). */
static size_t type_alloc_size(ggml_backend_buffer_type_t type, const struct ggml_tensor *tensor) {
    const fake_device *device = type->context;
    bool may_be_padded =
        ggml_op_is_empty(tensor->op) || ggml_is_quantized(tensor->type) || ggml_op_alloc_size_may_expand(tensor->op);
    return ggml_nbytes(tensor) + (may_be_padded ? device->spec.pad_bytes : 0);
}

static bool type_is_host(ggml_backend_buffer_type_t type) {
    (void)type;
    return false;
}

static const struct ggml_backend_buffer_type_i type_calls = {
    .get_name = type_name,
    .alloc_buffer = type_alloc,
    .get_alignment = type_alignment,
    .get_max_size = type_max_size,
    .get_alloc_size = type_alloc_size,
    .is_host = type_is_host,
};

/* Not so for the empty buffer that ggml makes itself when nothing is asked for. */
static bool is_ours(ggml_backend_buffer_t ggml) {
    return ggml && ggml->buft->iface.alloc_buffer == type_alloc && ggml->context;
}

/* Of a node or a source of one: on the device, where its bytes can be reached; else where they are. */
static void *reach_any(const struct ggml_tensor *tensor) {
    ggml_backend_buffer_t buffer = tensor->view_src ? tensor->view_src->buffer : tensor->buffer;
    return is_ours(buffer) && tensor->data ? reach(buffer->context, tensor, 0, 0) : tensor->data;
}

/* ---- backend ---- */

static fake_device *device_of(ggml_backend_t backend) {
    return backend->device->context;
}

static const char *backend_name(ggml_backend_t backend) {
    return device_of(backend)->name;
}

static void backend_free(ggml_backend_t ggml) {
    fake_backend *backend = ggml->context;
    fake_device *device = device_of(ggml);
    ggml_backend_free(backend->cpu);
    free(backend);
    pthread_mutex_lock(&device->lock);
    device->counts.n_backends--;
    pthread_mutex_unlock(&device->lock);
}

static void backend_synchronize(ggml_backend_t ggml) {
    fake_device *device = device_of(ggml);
    count(device, &device->counts.syncs);
}

static enum ggml_status backend_compute(ggml_backend_t ggml, struct ggml_cgraph *source) {
    fake_backend *backend = ggml->context;
    if (call_fails(device_of(ggml), FAKE_COMPUTE)) return GGML_STATUS_FAILED;
    fake_graph graph;
    fake_graph_open(&graph, source, reach_any);
    enum ggml_status status = ggml_backend_graph_compute(backend->cpu, &graph.ggml);
    fake_graph_close(&graph);
    return status;
}

static const struct ggml_backend_i backend_calls = {
    .get_name = backend_name,
    .free = backend_free,
    .synchronize = backend_synchronize,
    .graph_compute = backend_compute,
};

static ggml_guid_t backend_guid(void) {
    static ggml_guid guid = {0x66, 0x61, 0x6b, 0x65, 0x21, 0x7d, 0x4e, 0x05,
                             0xb3, 0x18, 0xc6, 0x90, 0x2f, 0xea, 0x57, 0xd4}; /* random, fixed */
    return &guid;
}

/* ---- device ---- */

static const char *device_name(ggml_backend_dev_t dev) {
    const fake_device *device = dev->context;
    return device->name;
}

static const char *device_description(ggml_backend_dev_t dev) {
    const fake_device *device = dev->context;
    return device->description;
}

static void log_error(const fake_device *device) {
    GGML_LOG_DEBUG("%s: asking %s\n", __func__, device->name);
    GGML_LOG_WARN("%s: memory query failed (%s), 0 of 0 reported\n", __func__, device->error);
}

static void device_memory(ggml_backend_dev_t dev, size_t *ret_free, size_t *ret_total) {
    fake_device *device = dev->context;
    bool fails = call_fails(device, FAKE_QUERY);
    pthread_mutex_lock(&device->lock);
    fake_memory memory = fails ? FAKE_MEMORY_ERROR : device->memory;
    *ret_total = device->spec.total_bytes;
    *ret_free = free_bytes(device);
    pthread_mutex_unlock(&device->lock);
    if (memory == FAKE_MEMORY_ERROR || memory == FAKE_MEMORY_SILENT) *ret_free = *ret_total = 0;
    if (memory == FAKE_MEMORY_OVER) *ret_free = *ret_total + *ret_total / 2;
    if (memory == FAKE_MEMORY_NO_TOTAL) *ret_total = 0;
    if (memory == FAKE_MEMORY_FULL) *ret_free = 0;
    if (memory == FAKE_MEMORY_ERROR) log_error(device);
}

static enum ggml_backend_dev_type device_type(ggml_backend_dev_t dev) {
    const fake_device *device = dev->context;
    switch (device->spec.type) {
    case FAKE_IGPU:
        return GGML_BACKEND_DEVICE_TYPE_IGPU;
    case FAKE_ACCEL:
        return GGML_BACKEND_DEVICE_TYPE_ACCEL;
    case FAKE_GPU:
        break;
    }
    return GGML_BACKEND_DEVICE_TYPE_GPU;
}

/* The properties ask for the memory too, as those of other backends do. */
static void device_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props *props) {
    const fake_device *device = dev->context;
    *props = (struct ggml_backend_dev_props){.name = device->name,
                                             .description = device->description,
                                             .type = device_type(dev),
                                             .device_id = device->device_id[0] ? device->device_id : NULL};
    props->caps.mmap_support = device->spec.type != FAKE_IGPU; /* as CUDA */
    device_memory(dev, &props->memory_free, &props->memory_total);
}

/* false: there is no room for the driver's context. */
static bool take_overhead(fake_device *device) {
    pthread_mutex_lock(&device->lock);
    uint64_t wanted = device->spec.overhead_bytes - device->counts.overhead_bytes;
    bool fits = wanted <= free_bytes(device);
    if (fits) {
        device->counts.overhead_bytes += wanted;
        device->counts.n_backends++;
    }
    pthread_mutex_unlock(&device->lock);
    return fits;
}

static ggml_backend_t device_init(ggml_backend_dev_t dev, const char *params) {
    (void)params;
    fake_device *device = dev->context;
    if (call_fails(device, FAKE_INIT) || !take_overhead(device)) {
        GGML_LOG_ERROR("%s: %s cannot be opened\n", __func__, device->name);
        return NULL;
    }
    fake_backend *backend = calloc(1, sizeof *backend);
    GGML_ASSERT(backend && "no memory for a test");
    backend->cpu = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    GGML_ASSERT(backend->cpu && "no CPU backend");
    backend->ggml.guid = backend_guid();
    backend->ggml.iface = backend_calls;
    backend->ggml.device = dev;
    backend->ggml.context = backend;
    return &backend->ggml;
}

static ggml_backend_buffer_type_t device_buft(ggml_backend_dev_t dev) {
    fake_device *device = dev->context;
    return &device->buft;
}

static bool device_supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op) {
    (void)dev;
    return ggml_backend_dev_supports_op(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU), op);
}

static bool device_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t type) {
    return type == device_buft(dev);
}

static bool device_offload_op(ggml_backend_dev_t dev, const struct ggml_tensor *op) {
    const fake_device *device = dev->context;
    if (!device->spec.offloads) return false;
    return (op->op == GGML_OP_MUL_MAT && op->ne[1] >= OFFLOAD_ROWS) ||
           (op->op == GGML_OP_MUL_MAT_ID && op->ne[2] >= OFFLOAD_ROWS);
}

static const struct ggml_backend_device_i device_calls = {
    .get_name = device_name,
    .get_description = device_description,
    .get_memory = device_memory,
    .get_type = device_type,
    .get_props = device_props,
    .init_backend = device_init,
    .get_buffer_type = device_buft,
    .supports_op = device_supports_op,
    .supports_buft = device_supports_buft,
    .offload_op = device_offload_op,
};

/* ---- registry ---- */

static const char *reg_name(ggml_backend_reg_t reg) {
    const fake_registry *registry = reg->context;
    return registry->name;
}

static size_t reg_device_count(ggml_backend_reg_t reg) {
    const fake_registry *registry = reg->context;
    return registry->n_devices;
}

static ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, size_t index) {
    fake_registry *registry = reg->context;
    return index < registry->n_devices ? &registry->devices[index].dev : NULL;
}

static void set_n_threads(ggml_backend_t ggml, int n_threads) {
    fake_backend *backend = ggml->context;
    ggml_backend_reg_t cpu = ggml_backend_dev_backend_reg(ggml_backend_get_device(backend->cpu));
    void *symbol = ggml_backend_reg_get_proc_address(cpu, "ggml_backend_set_n_threads");
    ggml_backend_set_n_threads_t call = NULL;
    memcpy(&call, &symbol, sizeof call);
    if (call) call(backend->cpu, n_threads);
}

static void *reg_proc_address(ggml_backend_reg_t reg, const char *name) {
    (void)reg;
    void *address = NULL;
    ggml_backend_set_n_threads_t call = set_n_threads;
    if (strcmp(name, "ggml_backend_set_n_threads") == 0) memcpy(&address, &call, sizeof address);
    return address;
}

static void device_setup(fake_registry *registry, uint32_t index, const fake_spec *spec) {
    fake_device *device = &registry->devices[index];
    device->registry = registry;
    device->spec = *spec;
    if (spec->align_bytes == 0) device->spec.align_bytes = 128;
    if (spec->name)
        (void)snprintf(device->name, sizeof device->name, "%s", spec->name);
    else
        (void)snprintf(device->name, sizeof device->name, "FAKE%u", index);
    (void)snprintf(device->description, sizeof device->description, "%s",
                   spec->description ? spec->description : "fake card");
    (void)snprintf(device->device_id, sizeof device->device_id, "%s", spec->device_id ? spec->device_id : "");
    (void)snprintf(device->error, sizeof device->error, "%s",
                   spec->error ? spec->error : "cudaErrorIllegalAddress, 700");
    device->memory = spec->memory;
    pthread_mutex_init(&device->lock, NULL);
    device->dev.iface = device_calls;
    device->dev.reg = &registry->reg;
    device->dev.context = device;
    device->buft.iface = type_calls;
    device->buft.device = &device->dev;
    device->buft.context = device;
}

struct ggml_backend_reg *fake_registry_open(const char *name, const fake_spec *specs, uint32_t n) {
    if (n > FAKE_DEVICE_MAX) return NULL;
    fake_registry *registry = calloc(1, sizeof *registry);
    if (!registry) return NULL;
    (void)snprintf(registry->name, sizeof registry->name, "%s", name ? name : "FAKE");
    registry->n_devices = n;
    for (uint32_t i = 0; i < n; i++)
        device_setup(registry, i, &specs[i]);
    registry->reg.api_version = GGML_BACKEND_API_VERSION;
    registry->reg.iface.get_name = reg_name;
    registry->reg.iface.get_device_count = reg_device_count;
    registry->reg.iface.get_device = reg_device;
    registry->reg.iface.get_proc_address = reg_proc_address;
    registry->reg.context = registry;
    return &registry->reg;
}

bool fake_registry_close(struct ggml_backend_reg *reg) {
    fake_registry *registry = reg->context;
    ggml_backend_unload(reg);
    for (uint32_t i = 0; i < registry->n_devices; i++) {
        fake_counts counts;
        fake_device_counts(&registry->devices[i].dev, &counts);
        if (counts.n_buffers > 0 || counts.n_backends > 0) return false;
    }
    for (uint32_t i = 0; i < registry->n_devices; i++)
        pthread_mutex_destroy(&registry->devices[i].lock);
    free(registry);
    return true;
}

struct ggml_backend_device *fake_device_get(struct ggml_backend_reg *reg, uint32_t index) {
    return reg_device(reg, index);
}

void fake_device_fail(struct ggml_backend_device *dev, fake_call call, uint64_t k, bool persistent) {
    fake_device *device = dev->context;
    pthread_mutex_lock(&device->lock);
    device->fails[call].calls_left = k;
    device->fails[call].persistent = persistent;
    pthread_mutex_unlock(&device->lock);
}

void fake_device_set_memory(struct ggml_backend_device *dev, fake_memory memory) {
    fake_device *device = dev->context;
    pthread_mutex_lock(&device->lock);
    device->memory = memory;
    pthread_mutex_unlock(&device->lock);
}

void fake_device_counts(struct ggml_backend_device *dev, fake_counts *ret) {
    fake_device *device = dev->context;
    pthread_mutex_lock(&device->lock);
    *ret = device->counts;
    pthread_mutex_unlock(&device->lock);
}
