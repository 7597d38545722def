/* SPDX-License-Identifier: MIT
 *
 * buffers.c: every buffer libllama asks for, on a line of the account.
 *
 * There are two buffer types. The device type is what weights, KV and the big compute buffer live in; it says it is no
 * host memory, or the loader would read weights straight into it. The host type is what libllama uses for inputs,
 * output rows and loader staging. Both are reserved address space; pages are charged when the use of a buffer is known:
 *
 *   while loading     host: staging, charged at once          device: weights, charged never (weights.c holds them)
 *   (in a program that is not ours: guest.c)
 *   making a context  cleared: KV or output rows, charged at the clear
 *                     marked COMPUTE by the scheduler: compute, charged at the next classify
 *
 * ggml's callbacks return nothing, so what fails in one is kept (bt_device_fail) and fails the next graph. */

#include "device/internal.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ALIGN_BYTES 64 /* cache line: what ggml's CPU buffers promise (ggml-backend.cpp: TENSOR_ALIGNMENT) */

static bt_device *device_of(ggml_backend_buffer_type_t type) {
    return type->context;
}

bool bt_buffer_is_ours(const bt_device *device, ggml_backend_buffer_t buffer) {
    return buffer && (buffer->buft == &device->buft || buffer->buft == &device->host_buft);
}

static void *buffer_base(ggml_backend_buffer_t ggml) {
    const bt_buffer *buffer = ggml->context;
    return buffer->memory->mapping->base;
}

static void list_remove(bt_device *device, bt_buffer *buffer) {
    pthread_mutex_lock(&device->buffer_lock);
    if (buffer->prev)
        buffer->prev->next = buffer->next;
    else
        device->buffers = buffer->next;
    if (buffer->next) buffer->next->prev = buffer->prev;
    pthread_mutex_unlock(&device->buffer_lock);
}

static void buffer_free(ggml_backend_buffer_t ggml) {
    bt_buffer *buffer = ggml->context;
    bt_device *device = buffer->device;
    list_remove(device, buffer);
    pthread_mutex_lock(&device->graph_lock);
    if (ggml->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS) bt_weights_forget(device->weights, ggml);
    bt_elastic_forget(device, buffer);
    pthread_mutex_unlock(&device->graph_lock);
    bt_pool_give(device->pool, buffer->memory);
    bt_heap_free(buffer);
}

static bt_status charge_some(bt_buffer *buffer, bt_line of, uint64_t bytes, bt_error *err) {
    bt_account *account = buffer->device->account;
    bt_pool_buffer *memory = buffer->memory;
    bt_line line = bt_device_line(buffer->device, of);
    if (memory->mapping->line != line) {
        BT_TRY(bt_account_relabel(account, memory->mapping, line, err));
        memory->line = line;
    }
    if (buffer->charged_bytes < bytes) {
        BT_TRY(bt_account_commit(account, memory->mapping, bytes - buffer->charged_bytes, err));
        buffer->charged_bytes = bytes;
    }
    buffer->classified = true;
    return BT_OK;
}

/* A guest may have asked for a graph with a row of logits for each token, where it wants only the last one's: such a
 * buffer is charged as it is touched (elastic.c), and held to what its line has. */
static uint64_t bytes_to_charge(const bt_buffer *buffer, bt_line line) {
    const bt_device *device = buffer->device;
    uint64_t bytes = buffer->memory->bytes;
    if (!device->guest || buffer->host || line != BT_LINE_COMPUTE) return bytes;
    return bytes <= bt_account_left_bytes(device->account, bt_device_line(device, line)) ? bytes : 0;
}

/* Caches and compute buffers of the device are asked for in full, then lend what they do not touch. */
static bt_status charge(bt_buffer *buffer, bt_line line, bt_error *err) {
    bt_device *device = buffer->device;
    bt_elastic_release_all(device); /* a new buffer is rare, and comes before those that borrow */
    BT_TRY(charge_some(buffer, line, bytes_to_charge(buffer, line), err));
    return line == BT_LINE_KV || line == BT_LINE_COMPUTE ? bt_elastic_lend(device, buffer, err) : BT_OK;
}

/* The loader reads through a staging buffer from its start on, and of the virtual model file only small tensors have
 * bytes (engine/model_file.c): no more of the buffer is ever touched. */
static uint64_t staging_bytes(const bt_device *device, uint64_t asked_bytes) {
    uint64_t largest = 0;
    if (device->guest) return asked_bytes; /* the file itself goes through it */
    for (uint32_t i = 0; i < device->facts->n_tensors; i++)
        if (device->facts->tensors[i].role == BT_ROLE_SMALL)
            largest = bt_max_u64(largest, device->facts->tensors[i].bytes);
    return bt_min_u64(asked_bytes, largest + BT_PAGE_BYTES);
}

/* Cleared while a context is made: it keeps its content between graphs. */
static bt_line kept_line(const bt_buffer *buffer) {
    return buffer->host ? BT_LINE_LOGITS : BT_LINE_KV;
}

/* Of a buffer that is written by somebody who is no graph, for the first time. Caches are cleared before that. */
static bt_line written_line(const bt_buffer *buffer) {
    if (buffer->ggml->usage == GGML_BACKEND_BUFFER_USAGE_COMPUTE) return BT_LINE_COMPUTE;
    return buffer->host ? BT_LINE_LOGITS : BT_LINE_ADAPTERS;
}

/* Under graph_lock, as all that changes what a buffer is charged. */
static bt_status clear(bt_buffer *buffer, uint8_t value, bt_error *err) {
    const bt_mapping *mapping = buffer->memory->mapping;
    if (!buffer->classified) BT_TRY(charge(buffer, kept_line(buffer), err));
    buffer->lost.status = BT_OK; /* it holds what it should again */
    /* Dropped pages read as zero, and are memory only once they are written. */
    if (value == 0 && bt_os_drop(mapping->base, mapping->bytes) == 0) {
        bt_elastic_cleared(buffer->device, buffer);
        return BT_OK;
    }
    BT_TRY(bt_elastic_touch(buffer->device, buffer, 0, buffer->memory->bytes, err));
    memset(mapping->base, value, buffer->memory->bytes);
    return BT_OK;
}

static void buffer_clear(ggml_backend_buffer_t ggml, uint8_t value) {
    bt_buffer *buffer = ggml->context;
    bt_error err;
    pthread_mutex_lock(&buffer->device->graph_lock);
    if (clear(buffer, value, &err) != BT_OK) bt_device_fail(buffer->device, &err);
    pthread_mutex_unlock(&buffer->device->graph_lock);
}

/* [offset, offset + size) of the tensor, inside its buffer's logical length; else the device fails. */
static uint8_t *tensor_span(ggml_backend_buffer_t ggml, const struct ggml_tensor *tensor, size_t offset, size_t size) {
    bt_buffer *buffer = ggml->context;
    const uint8_t *base = buffer->memory->mapping->base;
    uint8_t *data = tensor->data;
    bt_error err;
    uint64_t start = bt_sat_add_u64((uint64_t)(data - base), offset);
    if (data < base || bt_pool_check(buffer->memory, start, size, &err) != BT_OK) {
        if (data < base)
            (void)bt_fail(&err, BT_E_LIMIT, "buffer_bounds", BT_MEASURE_BYTES, size, 0,
                          "tensor %s lies outside its buffer", tensor->name);
        bt_device_fail(buffer->device, &err);
        return NULL;
    }
    return data + offset;
}

/* A write that failed, from outside a graph. A guest goes on after it: what is written once, for many graphs, must not
 * be missing in the second of them. */
static void lose(bt_buffer *buffer, const bt_error *err) {
    if (buffer->device->guest && buffer->ggml->usage != GGML_BACKEND_BUFFER_USAGE_COMPUTE) buffer->lost = *err;
    bt_device_fail(buffer->device, err);
}

/* The same span, about to be written by somebody who is no graph. is_weights: matches no file (an adapter, a control
 * vector): ordinary memory, charged and stored. */
static uint8_t *span_to_write(ggml_backend_buffer_t ggml, const struct ggml_tensor *tensor, size_t offset, size_t size,
                              bool is_weights) {
    bt_buffer *buffer = ggml->context;
    uint8_t *span = tensor_span(ggml, tensor, offset, size);
    if (!span) return NULL;
    const uint8_t *base = buffer->memory->mapping->base;
    bt_error err;
    bt_status status = BT_OK;
    pthread_mutex_lock(&buffer->device->graph_lock);
    bool is_new = !buffer->classified && (is_weights || buffer->device->guest);
    if (is_new) status = charge(buffer, written_line(buffer), &err);
    if (status == BT_OK) status = bt_elastic_touch(buffer->device, buffer, (uint64_t)(span - base), size, &err);
    pthread_mutex_unlock(&buffer->device->graph_lock);
    if (status == BT_OK) return span;
    lose(buffer, &err);
    return NULL;
}

static void buffer_memset(ggml_backend_buffer_t ggml, struct ggml_tensor *tensor, uint8_t value, size_t offset,
                          size_t size) {
    uint8_t *span = span_to_write(ggml, tensor, offset, size, false);
    if (span) memset(span, value, size);
}

/* The file's part of a tensor that is another's after all. */
static bool fetch(ggml_backend_buffer_t ggml, const struct ggml_tensor *tensor) {
    bt_buffer *buffer = ggml->context;
    bt_error err;
    uint8_t *span = span_to_write(ggml, tensor, 0, ggml_nbytes(tensor), true);
    if (!span) return false;
    if (bt_weights_fetch(buffer->device->weights, tensor, span, &err) == BT_OK) return true;
    lose(buffer, &err);
    return false;
}

static bt_whose set_weight(bt_device *device, const struct ggml_tensor *tensor, const void *data, size_t offset,
                           size_t size) {
    pthread_mutex_lock(&device->graph_lock);
    bt_whose whose = bt_weights_set(device->weights, tensor, data, offset, size);
    pthread_mutex_unlock(&device->graph_lock);
    return whose;
}

static void buffer_set(ggml_backend_buffer_t ggml, struct ggml_tensor *tensor, const void *data, size_t offset,
                       size_t size) {
    const bt_buffer *buffer = ggml->context;
    bool is_weights = ggml->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
    bt_whose whose = is_weights ? set_weight(buffer->device, tensor, data, offset, size) : BT_WHOSE_OTHER;
    if (whose == BT_WHOSE_FILE || (whose == BT_WHOSE_NO_MORE && !fetch(ggml, tensor))) return;
    uint8_t *span = span_to_write(ggml, tensor, offset, size, is_weights);
    if (span) memcpy(span, data, size);
}

static void buffer_get(ggml_backend_buffer_t ggml, const struct ggml_tensor *tensor, void *data, size_t offset,
                       size_t size) {
    bt_device *device = ((bt_buffer *)ggml->context)->device;
    if (ggml->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS) {
        pthread_mutex_lock(&device->graph_lock);
        bool is_file = bt_weights_get(device->weights, tensor, data, offset, size);
        pthread_mutex_unlock(&device->graph_lock);
        if (is_file) return;
    }
    /* Nothing was computed. Reading would map pages of zeros, which take no memory and yet are seen as resident: the
     * heap that a dry run measures beside them would be too small by as much. */
    if (device->params.measuring && ggml->usage == GGML_BACKEND_BUFFER_USAGE_COMPUTE) return;
    const uint8_t *span = tensor_span(ggml, tensor, offset, size);
    if (span) memcpy(data, span, size);
}

/* From the host, or from another device straight into the span: ggml would copy through its own heap. */
static bool buffer_copy(ggml_backend_buffer_t ggml, const struct ggml_tensor *src, struct ggml_tensor *dst) {
    const bt_buffer *buffer = ggml->context;
    size_t bytes = ggml_nbytes(src);
    if (!ggml_is_contiguous(src) || !ggml_is_contiguous(dst)) return false;
    if (ggml_backend_buffer_is_host(src->buffer)) {
        buffer_set(ggml, dst, src->data, 0, bytes);
        return true;
    }
    if (ggml->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS || bt_buffer_is_ours(buffer->device, src->buffer))
        return false;
    uint8_t *span = span_to_write(ggml, dst, 0, bytes, false);
    if (span) ggml_backend_tensor_get(src, span, 0, bytes);
    return true;
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

/* The line a new buffer is reserved under. Wrong guesses are put right by charge(). */
static bt_line first_line(const bt_device *device, bool host) {
    if (device->phase == BT_PHASE_LOAD) return bt_device_line(device, host ? BT_LINE_STAGING : BT_LINE_PINNED);
    return bt_device_line(device, BT_LINE_COMPUTE);
}

/* NULL, with the reason in err. */
static bt_buffer *buffer_make(bt_device *device, bool host, size_t bytes, bt_error *err) {
    bt_buffer *buffer = bt_heap_alloc(sizeof *buffer);
    if (!buffer) {
        (void)bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, sizeof *buffer, 0, "no memory for a buffer's record");
        return NULL;
    }
    buffer->device = device;
    buffer->host = host;
    bt_status status = bt_pool_take(device->pool, first_line(device, host), bytes, &buffer->memory, err);
    if (status != BT_OK) {
        bt_heap_free(buffer);
        return NULL;
    }
    if (host && device->phase == BT_PHASE_LOAD) {
        status = charge_some(buffer, BT_LINE_STAGING, staging_bytes(device, bytes), err);
        if (status != BT_OK) {
            bt_pool_give(device->pool, buffer->memory);
            bt_heap_free(buffer);
            return NULL;
        }
    }
    return buffer;
}

static ggml_backend_buffer_t type_alloc(ggml_backend_buffer_type_t type, size_t bytes) {
    bt_device *device = device_of(type);
    bool host = type == &device->host_buft;
    bt_error err;
    bool may = bt_guest_before_buffer(device, host, &err) == BT_OK;
    bt_buffer *buffer = may ? buffer_make(device, host, bytes, &err) : NULL;
    if (!buffer) {
        bt_device_fail(device, &err);
        bt_guest_hear(device);
        return NULL; /* libllama reports a failed allocation; the engine adds our reason */
    }
    buffer->ggml = ggml_backend_buffer_init(type, buffer_calls, buffer, bytes);
    pthread_mutex_lock(&device->buffer_lock);
    buffer->next = device->buffers;
    if (device->buffers) device->buffers->prev = buffer;
    device->buffers = buffer;
    pthread_mutex_unlock(&device->buffer_lock);
    return buffer->ggml;
}

static bt_status classify_one(bt_buffer *buffer, bt_error *err) {
    if (buffer->classified || buffer->ggml->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS) return BT_OK;
    bool is_compute = buffer->ggml->usage == GGML_BACKEND_BUFFER_USAGE_COMPUTE;
    return charge(buffer, is_compute ? BT_LINE_COMPUTE : kept_line(buffer), err);
}

/* Another of a guest's threads may just have been given it, and is about to name its use, or to clear it. */
static bool is_in_the_making(const bt_buffer *buffer) {
    return buffer->device->guest && buffer->ggml->usage == GGML_BACKEND_BUFFER_USAGE_ANY;
}

bt_status bt_buffers_classify(bt_device *device, bt_error *err) {
    bt_status status = BT_OK;
    pthread_mutex_lock(&device->buffer_lock);
    for (bt_buffer *buffer = device->buffers; buffer && status == BT_OK; buffer = buffer->next)
        if (!is_in_the_making(buffer)) status = classify_one(buffer, err);
    pthread_mutex_unlock(&device->buffer_lock);
    return status;
}

static bt_status use_one(bt_device *device, const struct ggml_tensor *tensor, bt_error *err) {
    const struct ggml_tensor *base = tensor->view_src ? tensor->view_src : tensor;
    if (!bt_buffer_is_ours(device, base->buffer)) return BT_OK;
    bt_buffer *buffer = base->buffer->context;
    BT_TRY(classify_one(buffer, err));
    if (buffer->lost.status != BT_OK) *err = buffer->lost;
    return buffer->lost.status;
}

bt_status bt_buffers_use(bt_device *device, const struct ggml_cgraph *graph, bt_error *err) {
    for (int i = 0; i < graph->n_nodes && device->guest; i++) {
        const struct ggml_tensor *node = graph->nodes[i];
        BT_TRY(use_one(device, node, err));
        for (int k = 0; k < GGML_MAX_SRC; k++)
            if (node->src[k]) BT_TRY(use_one(device, node->src[k], err));
    }
    return BT_OK;
}

void bt_buffers_close(bt_device *device) {
    while (device->buffers)
        ggml_backend_buffer_free(device->buffers->ggml); /* takes it off the list */
}

static const char *type_name(ggml_backend_buffer_type_t type) {
    const bt_device *device = device_of(type);
    return type == &device->host_buft ? device->host_buft_name : device->buft_name;
}

static size_t type_alignment(ggml_backend_buffer_type_t type) {
    (void)type;
    return ALIGN_BYTES;
}

static bool type_is_host(ggml_backend_buffer_type_t type) {
    return type == &device_of(type)->host_buft;
}

void bt_buffers_init(bt_device *device) {
    char number[12] = "";
    if (device->params.stands_in > 0) (void)snprintf(number, sizeof number, "_%" PRIu32, device->params.stands_in);
    (void)snprintf(device->buft_name, sizeof device->buft_name, "Burthen%s", number);
    (void)snprintf(device->host_buft_name, sizeof device->host_buft_name, "Burthen_Host%s", number);
    ggml_backend_buffer_type_t types[] = {&device->buft, &device->host_buft};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        types[i]->iface.get_name = type_name;
        types[i]->iface.alloc_buffer = type_alloc;
        types[i]->iface.get_alignment = type_alignment;
        types[i]->iface.is_host = type_is_host;
        types[i]->device = &device->dev;
        types[i]->context = device;
    }
}
