/* SPDX-License-Identifier: MIT
 * gpu_kit.h: the fake NVML opened and set up, and lists of devices looked into. For tests that include cmocka.h first.
 */
#pragma once

#include "fake_nvml.h"
#include "probe/gpu.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define KIT_GIB (UINT64_C(1) << 30)
#define KIT_MIB (UINT64_C(1) << 20)

/* Devices of 24 GiB with 20 free, at 0000:01:00.0, 0000:02:00.0 ... The library stays open until kit_nvml_close. */
static inline fake_nvml *kit_nvml_open(const char *path, unsigned int n_devices, void **ret_library) {
    fake_nvml_control control = NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s", dlerror());
    void *symbol = dlsym(library, "fake_nvml_state");
    assert_non_null(symbol);
    memcpy(&control, &symbol, sizeof symbol);
    fake_nvml *fake = control();
    memset(fake, 0, sizeof *fake);
    fake->n_devices = n_devices;
    for (unsigned int i = 0; i < FAKE_NVML_DEVICES; i++) {
        fake_nvml_device *d = &fake->devices[i];
        (void)snprintf(d->name, sizeof d->name, "NVIDIA Fake %u", i);
        (void)snprintf(d->uuid, sizeof d->uuid, "GPU-%08u", i);
        d->bus = i + 1;
        d->total = 24 * KIT_GIB;
        d->free = 20 * KIT_GIB;
    }
    *ret_library = library;
    return fake;
}

/* Nobody else has it open any more. */
static inline void kit_nvml_close(const char *path, void *library) {
    assert_int_equal(dlclose(library), 0);
    assert_null(dlopen(path, RTLD_NOW | RTLD_NOLOAD));
}

static inline const bt_gpu_user *kit_user(const bt_gpu *gpu, uint32_t pid) {
    for (uint32_t i = 0; i < gpu->n_users; i++) {
        if (gpu->users[i].pid == pid) return &gpu->users[i];
    }
    fail_msg("%s has no user %u", gpu->name, pid);
    return NULL;
}

static inline void kit_expect_user(const bt_gpu *gpu, uint32_t pid, int64_t bytes, int64_t host_bytes) {
    const bt_gpu_user *user = kit_user(gpu, pid);
    if (!user) return;
    if (user->bytes.known != (bytes >= 0) || (bytes >= 0 && user->bytes.value != (uint64_t)bytes) ||
        user->host_bytes.known != (host_bytes >= 0) ||
        (host_bytes >= 0 && user->host_bytes.value != (uint64_t)host_bytes))
        fail_msg("%s, pid %u: %d %llu, %d %llu", gpu->name, pid, user->bytes.known,
                 (unsigned long long)user->bytes.value, user->host_bytes.known,
                 (unsigned long long)user->host_bytes.value);
}

static inline void kit_expect_reported(const bt_gpu *gpu, uint64_t free_bytes, uint64_t total_bytes) {
    if (gpu->state != BT_READING_REPORTED) fail_msg("%s: %s", gpu->name, gpu->reason);
    assert_int_equal(gpu->free_bytes, free_bytes);
    assert_int_equal(gpu->total_bytes, total_bytes);
    assert_string_equal(gpu->reason, "");
}

static inline void kit_expect_failed(const bt_gpu *gpu, const char *reason) {
    assert_int_equal(gpu->state, BT_READING_FAILED);
    assert_string_equal(gpu->reason, reason);
    assert_int_equal(gpu->free_bytes | gpu->total_bytes, 0); /* never taken for a reading */
}
