/* SPDX-License-Identifier: MIT
 *
 * worker.c: a plain ggml device in host memory, with an account in front of it.
 *
 * ggml's RPC server takes any device: it asks it for buffers, writes and reads tensors, has graphs computed. So the cap
 * is kept where every buffer is born: a buffer is charged before it is mapped, whole pages of it, and one that does not
 * fit is NULL, which the server answers as such and the client reports. Pages come as they are written, and go back to
 * the system with the buffer; what a client left is never seen by the next.
 *
 *     cap  [ buffers ..................| left | work area held ]
 *
 * The server aborts where a graph cannot be computed, and all its clients with it. So the work area, whose need is
 * known only then, is held from the start; one that needs more takes what the cap has left, and where nothing is left
 * it goes over the cap for that graph alone, which is counted and said. In the test set a context's graphs never needed
 * more than what is held (docs/measurements.md, "worker").
 *
 * One server computes one graph at a time, so nothing is locked but what others read. Left out: repacked layouts, which
 * would be a second set of weights that no client has planned for. */

#include "device/worker.h"

#include "device/internal.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/os.h"
#include "base/size.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define ALIGN_BYTES 64         /* as buffers.c */
#define TAKE_BYTES  (1u << 20) /* messages from this size on are taken apart */
/* Of the cap, held for the work area, and the most of it: docs/measurements.md, "worker". */
#define WORK_SHARE     32
#define WORK_MAX_BYTES (UINT64_C(32) << 20)

struct bt_worker {
    struct ggml_backend_reg reg;
    struct ggml_backend_device dev;
    struct ggml_backend backend;
    struct ggml_backend_buffer_type buft;
    bt_account *account;
    bt_cpu *cpu;
    uint64_t memory_bytes, held_bytes;
    uint32_t n_threads;
    char description[128];
    atomic_uint_fast64_t peak_bytes, work_peak_bytes, over_peak_bytes, n_given, n_refused;
    atomic_uint_fast32_t n_buffers;
};

static bt_worker *worker_of(ggml_backend_dev_t dev) {
    return dev->context;
}

static void raise_peak(bt_worker *worker) {
    uint64_t used_bytes = bt_account_committed_bytes(worker->account);
    if (used_bytes > worker->peak_bytes) worker->peak_bytes = used_bytes;
}

/* ---- buffers ---- */

typedef struct worker_buffer {
    bt_worker *worker;
    bt_mapping *mapping;
} worker_buffer;

static bool is_ours(ggml_backend_buffer_t ggml);

static void buffer_free(ggml_backend_buffer_t ggml) {
    worker_buffer *buffer = ggml->context;
    bt_worker *worker = buffer->worker;
    bt_account_unmap(worker->account, buffer->mapping);
    bt_heap_free(buffer);
    worker->n_buffers--;
    if (worker->n_buffers > 0) return;
    /* The client is gone; what its graphs needed beyond what is held goes too. */
    bt_cpu_trim(worker->cpu, worker->held_bytes);
    if (bt_cpu_reserve(worker->cpu, worker->held_bytes, NULL) != BT_OK)
        bt_log(BT_LOG_INFO, "no work area is held"); /* the next graph asks again */
}

static void *buffer_base(ggml_backend_buffer_t ggml) {
    const worker_buffer *buffer = ggml->context;
    return buffer->mapping->base;
}

/* [offset, offset + size) of a tensor, or NULL where it leaves the buffer. ggml's server checks too, most of it. */
static uint8_t *span_of(ggml_backend_buffer_t ggml, const struct ggml_tensor *tensor, size_t offset, size_t size) {
    const worker_buffer *buffer = ggml->context;
    uint64_t base = (uint64_t)(uintptr_t)buffer->mapping->base;
    uint64_t start = bt_sat_add_u64((uint64_t)(uintptr_t)tensor->data, offset);
    uint64_t end = bt_sat_add_u64(start, size);
    bool inside = (uint64_t)(uintptr_t)tensor->data >= base && end <= base + buffer->mapping->bytes;
    if (inside) return (uint8_t *)tensor->data + offset;
    bt_log(BT_LOG_WARN, "a client asked for bytes outside of its buffer, which are not touched");
    return NULL;
}

static void buffer_memset(ggml_backend_buffer_t ggml, struct ggml_tensor *tensor, uint8_t value, size_t offset,
                          size_t size) {
    uint8_t *span = span_of(ggml, tensor, offset, size);
    if (span) memset(span, value, size);
}

/* As memcpy; pages of the source are given to the system as soon as they are copied. */
static void take_over(uint8_t *dest, void *source, size_t size) {
    uint8_t *from = source;
    size_t dropped = 0;
    for (size_t at = 0; at < size;) {
        size_t n = bt_min_u64(size - at, TAKE_BYTES);
        memcpy(dest + at, from + at, n);
        at += n;
        (void)bt_os_drop(from + dropped, at - dropped); /* else it goes with the message */
        dropped = at - bt_os_page_bytes();              /* the page of the seam is whole next time */
    }
}

static void buffer_set(ggml_backend_buffer_t ggml, struct ggml_tensor *tensor, const void *data, size_t offset,
                       size_t size) {
    uint8_t *span = span_of(ggml, tensor, offset, size);
    if (!span) return;
    if (size < TAKE_BYTES)
        memcpy(span, data, size);
    else
        take_over(span, (void *)(uintptr_t)data, size);
}

static void buffer_get(ggml_backend_buffer_t ggml, const struct ggml_tensor *tensor, void *data, size_t offset,
                       size_t size) {
    const uint8_t *span = span_of(ggml, tensor, offset, size);
    if (span) memcpy(data, span, size);
}

static bool buffer_copy(ggml_backend_buffer_t ggml, const struct ggml_tensor *src, struct ggml_tensor *dst) {
    ggml_backend_buffer_t from = src->view_src ? src->view_src->buffer : src->buffer;
    if (!is_ours(from)) return false;
    size_t bytes = ggml_nbytes(src);
    const uint8_t *source = span_of(from, src, 0, bytes);
    uint8_t *dest = span_of(ggml, dst, 0, bytes);
    if (source && dest) memmove(dest, source, bytes);
    return source && dest;
}

static void buffer_clear(ggml_backend_buffer_t ggml, uint8_t value) {
    const worker_buffer *buffer = ggml->context;
    const bt_mapping *mapping = buffer->mapping;
    /* Dropped pages read as zero, and are memory only once they are written. */
    if (value == 0 && bt_os_drop(mapping->base, mapping->bytes) == 0) return;
    memset(mapping->base, value, mapping->bytes);
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

static bt_status map_charged(bt_worker *worker, uint64_t bytes, bt_mapping **ret_mapping, bt_error *err) {
    uint64_t left_bytes = bt_sat_sub_u64(worker->memory_bytes, bt_account_committed_bytes(worker->account));
    uint64_t page_bytes = bt_os_page_bytes();
    /* Before the system is asked for address space; the account asks again, of whole pages, before it is asked for
     * these. */
    if (bytes > left_bytes / page_bytes * page_bytes)
        return bt_fail(err, BT_E_BUDGET, "ram_budget", BT_MEASURE_BYTES, bytes, left_bytes, "%s of %s are left",
                       BT_SIZE(left_bytes), BT_SIZE(worker->memory_bytes));
    bt_mapping *mapping = NULL;
    BT_TRY(bt_account_map(worker->account, BT_LINE_PINNED, bytes, &mapping, err));
    bt_status status = bt_account_commit(worker->account, mapping, mapping->bytes, err);
    if (status != BT_OK) {
        bt_account_unmap(worker->account, mapping);
        return status;
    }
    *ret_mapping = mapping;
    return BT_OK;
}

static ggml_backend_buffer_t refuse(bt_worker *worker, uint64_t bytes, const bt_error *err) {
    worker->n_refused++;
    bt_log(BT_LOG_WARN, "a client is refused a buffer of %s: %s", BT_SIZE(bytes), err->text);
    return NULL;
}

static ggml_backend_buffer_t type_alloc(ggml_backend_buffer_type_t type, size_t bytes) {
    bt_worker *worker = type->context;
    bt_error err = {0};
    worker_buffer *buffer = bt_heap_alloc(sizeof *buffer);
    if (!buffer) {
        (void)bt_fail(&err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, sizeof *buffer, 0, "no memory for its description");
        return refuse(worker, bytes, &err);
    }
    buffer->worker = worker;
    if (map_charged(worker, bytes, &buffer->mapping, &err) != BT_OK) {
        bt_heap_free(buffer);
        return refuse(worker, bytes, &err);
    }
    worker->n_buffers++;
    worker->n_given++;
    raise_peak(worker);
    return ggml_backend_buffer_init(type, buffer_calls, buffer, bytes);
}

static const char *type_name(ggml_backend_buffer_type_t type) {
    (void)type;
    return "Worker";
}

static size_t type_alignment(ggml_backend_buffer_type_t type) {
    (void)type;
    return ALIGN_BYTES;
}

static size_t type_max_size(ggml_backend_buffer_type_t type) {
    const bt_worker *worker = type->context;
    return worker->memory_bytes;
}

/* The CPU's kernels read and write them where they stand. */
static bool type_is_host(ggml_backend_buffer_type_t type) {
    (void)type;
    return true;
}

static const struct ggml_backend_buffer_type_i type_calls = {
    .get_name = type_name,
    .alloc_buffer = type_alloc,
    .get_alignment = type_alignment,
    .get_max_size = type_max_size,
    .is_host = type_is_host,
};

/* Not so for the empty buffer that ggml makes itself when nothing is asked for. */
static bool is_ours(ggml_backend_buffer_t ggml) {
    return ggml && ggml->buft->iface.alloc_buffer == type_alloc && ggml->context;
}

/* ---- backend: one, a part of the worker ---- */

static const char *backend_name(ggml_backend_t backend) {
    (void)backend;
    return "Worker";
}

static void backend_free(ggml_backend_t backend) {
    (void)backend;
}

/* What does not fit within the cap, for one graph. */
static enum ggml_status compute_over(bt_worker *worker, struct ggml_cgraph *graph, const bt_cpu_plan *plan) {
    void *work = bt_heap_alloc(plan->work_bytes);
    if (!work) return GGML_STATUS_ALLOC_FAILED;
    if (worker->over_peak_bytes == 0)
        bt_log(BT_LOG_WARN, "computing needs %s where clients' buffers leave less: it goes over the cap",
               BT_SIZE(plan->work_bytes));
    if (plan->work_bytes > worker->over_peak_bytes) worker->over_peak_bytes = plan->work_bytes;
    enum ggml_status status = bt_cpu_compute_in(worker->cpu, graph, plan, work);
    bt_heap_free(work);
    return status;
}

static enum ggml_status backend_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    bt_worker *worker = worker_of(backend->device);
    bt_cpu_plan plan = bt_cpu_plan_make(worker->cpu, graph);
    bt_error err = {0};
    if (plan.work_bytes > worker->work_peak_bytes) worker->work_peak_bytes = plan.work_bytes;
    if (bt_cpu_reserve(worker->cpu, plan.work_bytes, &err) == BT_OK) {
        raise_peak(worker);
        return bt_cpu_compute(worker->cpu, graph, &plan);
    }
    bt_log(BT_LOG_INFO, "no work area within the cap: %s", err.text);
    enum ggml_status status = compute_over(worker, graph, &plan);
    /* The area that there was has been given back for the larger one. Nobody took its place meanwhile. */
    if (bt_cpu_reserve(worker->cpu, worker->held_bytes, &err) != BT_OK)
        bt_log(BT_LOG_INFO, "no work area is held: %s", err.text);
    return status;
}

static const struct ggml_backend_i backend_calls = {
    .get_name = backend_name,
    .free = backend_free,
    .graph_compute = backend_compute,
};

static ggml_guid_t backend_guid(void) {
    /* random, fixed: tells this kind of backend from others */
    static ggml_guid guid = {0x77, 0x6f, 0x72, 0x6b, 0x65, 0x72, 0x3a, 0xc1,
                             0x5d, 0x90, 0x27, 0xee, 0x84, 0x1b, 0x63, 0xaf};
    return &guid;
}

/* ---- device ---- */

static const char *device_name(ggml_backend_dev_t dev) {
    (void)dev;
    return "Worker";
}

static const char *device_description(ggml_backend_dev_t dev) {
    return worker_of(dev)->description;
}

static void device_memory(ggml_backend_dev_t dev, size_t *ret_free, size_t *ret_total) {
    const bt_worker *worker = worker_of(dev);
    *ret_total = worker->memory_bytes;
    *ret_free = bt_sat_sub_u64(worker->memory_bytes, bt_account_committed_bytes(worker->account));
}

static enum ggml_backend_dev_type device_type(ggml_backend_dev_t dev) {
    (void)dev;
    return GGML_BACKEND_DEVICE_TYPE_GPU; /* as clients see it, whatever it says (ggml-rpc.cpp) */
}

static void device_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props *props) {
    memset(props, 0, sizeof *props);
    props->name = device_name(dev);
    props->description = device_description(dev);
    props->type = device_type(dev);
    device_memory(dev, &props->memory_free, &props->memory_total);
}

static ggml_backend_t device_backend(ggml_backend_dev_t dev, const char *params) {
    (void)params;
    return &worker_of(dev)->backend;
}

static ggml_backend_buffer_type_t device_buft(ggml_backend_dev_t dev) {
    return &worker_of(dev)->buft;
}

static bool device_supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op) {
    return ggml_backend_dev_supports_op(bt_cpu_device(worker_of(dev)->cpu), op);
}

static bool device_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t type) {
    (void)dev;
    return ggml_backend_buft_is_host(type);
}

static const struct ggml_backend_device_i device_calls = {
    .get_name = device_name,
    .get_description = device_description,
    .get_memory = device_memory,
    .get_type = device_type,
    .get_props = device_props,
    .init_backend = device_backend,
    .get_buffer_type = device_buft,
    .supports_op = device_supports_op,
    .supports_buft = device_supports_buft,
};

/* ---- registry: only for what ggml's server asks of it ---- */

static const char *reg_name(ggml_backend_reg_t reg) {
    (void)reg;
    return "Worker";
}

static size_t reg_device_count(ggml_backend_reg_t reg) {
    (void)reg;
    return 1;
}

static ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, size_t index) {
    bt_worker *worker = reg->context;
    return index == 0 ? &worker->dev : NULL;
}

static void set_n_threads(ggml_backend_t backend, int n_threads) {
    if (n_threads >= 1) bt_cpu_set_threads(worker_of(backend->device)->cpu, (uint32_t)n_threads);
}

static void *reg_proc_address(ggml_backend_reg_t reg, const char *name) {
    (void)reg;
    /* ISO C cannot convert a function pointer to void *; ggml asks for exactly that. */
    void *address = NULL;
    void (*call)(ggml_backend_t, int) = set_n_threads;
    if (strcmp(name, "ggml_backend_set_n_threads") == 0) memcpy(&address, &call, sizeof address);
    return address;
}

static void init_ggml(bt_worker *worker) {
    worker->reg.api_version = GGML_BACKEND_API_VERSION;
    worker->reg.iface.get_name = reg_name;
    worker->reg.iface.get_device_count = reg_device_count;
    worker->reg.iface.get_device = reg_device;
    worker->reg.iface.get_proc_address = reg_proc_address;
    worker->reg.context = worker;
    worker->dev.iface = device_calls;
    worker->dev.reg = &worker->reg;
    worker->dev.context = worker;
    worker->backend.guid = backend_guid();
    worker->backend.device = &worker->dev;
    worker->backend.iface = backend_calls;
    worker->backend.context = worker;
    worker->buft.iface = type_calls;
    worker->buft.device = &worker->dev;
    worker->buft.context = worker;
}

/* ---- open, close ---- */

static bt_status open_parts(bt_worker *worker, bt_error *err) {
    uint64_t caps[BT_LINE_COUNT];
    for (int line = 0; line < BT_LINE_COUNT; line++)
        caps[line] = UINT64_MAX;
    BT_TRY(bt_account_open(caps, worker->memory_bytes, &worker->account, err));
    const bt_cpu_params cpu = {.account = worker->account, .line = BT_LINE_COMPUTE, .n_threads = worker->n_threads};
    BT_TRY(bt_cpu_open(&cpu, &worker->cpu, err));
    (void)snprintf(worker->description, sizeof worker->description, "%.60s, %s of its memory",
                   ggml_backend_dev_description(bt_cpu_device(worker->cpu)), BT_SIZE(worker->memory_bytes));
    BT_TRY(bt_cpu_reserve(worker->cpu, worker->held_bytes, err));
    raise_peak(worker);
    return BT_OK;
}

bt_status bt_worker_open(uint64_t memory_bytes, uint32_t n_threads, bt_worker **ret_worker, bt_error *err) {
    uint64_t page_bytes = bt_os_page_bytes();
    uint64_t held_bytes = bt_min_u64(memory_bytes / WORK_SHARE / page_bytes * page_bytes, WORK_MAX_BYTES);
    if (held_bytes == 0)
        return bt_fail(err, BT_E_ARG, "worker_memory", BT_MEASURE_BYTES, WORK_SHARE * page_bytes, memory_bytes,
                       "%s is too little for a worker", BT_SIZE(memory_bytes));
    bt_worker *worker = bt_heap_alloc(sizeof *worker);
    if (!worker) return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, sizeof *worker, 0, "no memory for a worker");
    worker->memory_bytes = memory_bytes;
    worker->held_bytes = held_bytes;
    worker->n_threads = n_threads;
    init_ggml(worker);
    bt_status status = open_parts(worker, err);
    if (status != BT_OK) {
        (void)bt_worker_close(worker);
        return status;
    }
    *ret_worker = worker;
    return BT_OK;
}

bool bt_worker_close(bt_worker *worker) {
    if (!worker) return true;
    bt_cpu_close(worker->cpu);
    bool is_empty = !worker->account || bt_account_close(worker->account);
    bt_heap_free(worker);
    return is_empty;
}

struct ggml_backend_device *bt_worker_device(bt_worker *worker) {
    return &worker->dev;
}

void bt_worker_use_read(bt_worker *worker, bt_worker_use *ret) {
    *ret = (bt_worker_use){
        .used_bytes = bt_account_committed_bytes(worker->account),
        .peak_bytes = worker->peak_bytes,
        .n_buffers = (uint32_t)worker->n_buffers,
        .n_given = worker->n_given,
        .n_refused = worker->n_refused,
        .work_peak_bytes = worker->work_peak_bytes,
        .over_peak_bytes = worker->over_peak_bytes,
    };
}
