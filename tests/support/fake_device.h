/* SPDX-License-Identifier: MIT
 * fake_device.h: graphics cards for tests: ggml devices with memory of their own, which is small, counted, and fails
 * when it is told to.
 *
 * They compute what the CPU backend computes. Their memory is not the host's: an address that ggml is given lies on
 * pages without access, so that whoever goes past the interface of buffers crashes, as with a card. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ggml_backend_device;
struct ggml_backend_reg;

#define FAKE_DEVICE_MAX 8u

/* Calls that are counted, and can be made to fail: how. */
typedef enum fake_call {
    FAKE_ALLOC,   /* a buffer: NULL */
    FAKE_INIT,    /* a backend: NULL */
    FAKE_QUERY,   /* of memory: 0 of 0, and the error in ggml's log */
    FAKE_COMPUTE, /* a graph: GGML_STATUS_FAILED, nothing computed */
    FAKE_CALL_COUNT
} fake_call;

typedef enum fake_type { FAKE_GPU, FAKE_IGPU, FAKE_ACCEL } fake_type;

/* What the memory query answers. */
typedef enum fake_memory {
    FAKE_MEMORY_TRUE,
    FAKE_MEMORY_ERROR,    /* 0 of 0, and the error in ggml's log */
    FAKE_MEMORY_SILENT,   /* 0 of 0, and nothing in the log */
    FAKE_MEMORY_OVER,     /* more free than there is in all */
    FAKE_MEMORY_NO_TOTAL, /* free bytes of a device without any */
    FAKE_MEMORY_FULL,     /* 0 of the total: a measured zero */
    FAKE_MEMORY_COUNT
} fake_memory;

/* Zero where nothing else is said. Texts are copied. */
typedef struct fake_spec {
    const char *name, *description; /* NULL: FAKE0 and so on; "fake card" */
    const char *device_id;          /* PCI address; NULL: none */
    fake_type type;
    uint64_t total_bytes;
    uint64_t overhead_bytes;   /* what the first backend takes for good: a driver's context */
    uint64_t align_bytes;      /* a power of two up to a page; 0: 128 */
    uint64_t pad_bytes;        /* of each tensor that ggml lets a buffer type pad: weights, inputs, products */
    uint64_t max_buffer_bytes; /* 0: no limit */
    bool offloads;             /* asks for products of 32 rows and more with weights of the host */
    fake_memory memory;
    const char *error; /* NULL: an illegal address, in CUDA's words */
} fake_spec;

typedef struct fake_counts {
    uint64_t calls[FAKE_CALL_COUNT]; /* those that failed too */
    uint64_t frees, sets, gets, copies, syncs;
    uint64_t n_buffers, live_bytes, peak_bytes; /* buffers, not tensors; overhead not counted */
    uint64_t n_backends;                        /* live */
    uint64_t overhead_bytes;                    /* taken */
} fake_counts;

/* One registry with n devices. name: of the registry; NULL: "FAKE". NULL when out of memory or n is over
 * FAKE_DEVICE_MAX. Registering it is left to the caller: ggml_backend_register. */
struct ggml_backend_reg *fake_registry_open(const char *name, const fake_spec *specs, uint32_t n);
/* Takes it out of ggml's registry. Every buffer and backend must be gone: else nothing is freed, and false. */
bool fake_registry_close(struct ggml_backend_reg *reg);
struct ggml_backend_device *fake_device_get(struct ggml_backend_reg *reg, uint32_t index);

/* From now on the k-th call (from 1) fails; alone, or it and all after it. 0: none. */
void fake_device_fail(struct ggml_backend_device *dev, fake_call call, uint64_t k, bool persistent);
void fake_device_set_memory(struct ggml_backend_device *dev, fake_memory memory);
void fake_device_counts(struct ggml_backend_device *dev, fake_counts *ret);
