/* SPDX-License-Identifier: MIT
 *
 * gpu.c: the graphics devices of this machine: one list from what NVML and the kernel say.
 *
 *   NVML -> CUDA0, CUDA1 ...    the kernel's cards -> card0 ... that NVML did not name    -> users of each
 *
 * A device of both has one PCI id and is one device: NVML's word stands, since the kernel has no figures of it. Neither
 * opens a device or makes a context on it: looking costs no device memory, which is why a router may look as often as
 * it likes. What only a ggml backend knows is joined later, by the PCI id.
 *
 * NVML that fails is a device that failed, under a name without a number, so that nothing takes the machine for one
 * without a card (user case 44). It is none where it says that there is nothing to manage and the PCI bus agrees: the
 * library is also installed where no card is. Bounds: BT_GPU_MAX devices, BT_GPU_USER_MAX users of each. */
#include "probe/gpu.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/text.h"
#include "probe/gpu_clients.h"
#include "probe/gpu_drm.h"
#include "probe/gpu_nvml.h"
#include "probe/probe.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- the list -------------------------------------------------------------------------------------------------------
 */

bt_gpu *bt_gpu_add(bt_gpus *gpus) {
    if (gpus->n_devices == BT_GPU_MAX) {
        gpus->n_left_out++;
        return NULL;
    }
    bt_gpu *gpu = &gpus->devices[gpus->n_devices++];
    memset(gpu, 0, sizeof *gpu);
    gpu->kind = BT_POOL_GPU;
    return gpu;
}

bt_gpu *bt_gpu_find_pci(bt_gpus *gpus, const char *pci) {
    for (uint32_t i = 0; i < gpus->n_devices; i++) {
        if (gpus->devices[i].pci[0] && strcmp(gpus->devices[i].pci, pci) == 0) return &gpus->devices[i];
    }
    return NULL;
}

void bt_gpu_text_set(char *ret, size_t capacity, const char *text) {
    size_t n_left = strlen(text);
    size_t n = 0;
    while (n_left > 0) {
        size_t length = bt_utf8_length(text, n_left);
        bool shows = length > 0 && !bt_utf8_is_control(text, length);
        size_t room = shows ? length : 1;
        if (n + room >= capacity) break;
        if (shows)
            memcpy(ret + n, text, length);
        else
            ret[n] = '?';
        n += room;
        text += length > 0 ? length : 1;
        n_left -= length > 0 ? length : 1;
    }
    ret[n] = '\0';
}

static void BT_PRINTF(3, 0) set_reason(char *ret, size_t capacity, const char *fmt, va_list args) {
    char text[256];
    (void)vsnprintf(text, sizeof text, fmt, args);
    bt_gpu_text_set(ret, capacity, text);
}

void bt_gpu_fail(bt_gpu *gpu, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    set_reason(gpu->reason, sizeof gpu->reason, fmt, args);
    va_end(args);
    gpu->state = BT_READING_FAILED;
    gpu->free_bytes = 0;
    gpu->total_bytes = 0;
}

void bt_gpu_read(bt_gpu *gpu, bt_known free_bytes, bt_known total_bytes) {
    if (!free_bytes.known) {
        bt_gpu_fail(gpu, "free memory is not available");
    } else if (!total_bytes.known || (total_bytes.value == 0 && free_bytes.value > 0)) {
        bt_gpu_fail(gpu, "total memory is not known");
    } else if (total_bytes.value == 0) {
        bt_gpu_fail(gpu, "the device reports no memory at all"); /* 0 and 0: how a failed query looks (design.md 11) */
    } else {
        gpu->state = BT_READING_REPORTED;
        gpu->clamped = free_bytes.value > total_bytes.value;
        gpu->total_bytes = total_bytes.value;
        gpu->free_bytes = gpu->clamped ? total_bytes.value : free_bytes.value;
    }
}

void bt_gpu_users_incomplete(bt_gpu *gpu, const char *fmt, ...) {
    gpu->users_complete = false;
    if (gpu->users_reason[0]) return;
    va_list args;
    va_start(args, fmt);
    set_reason(gpu->users_reason, sizeof gpu->users_reason, fmt, args);
    va_end(args);
}

bt_gpu_user *bt_gpu_user_of(bt_gpu *gpu, uint32_t pid, bool *ret_added) {
    *ret_added = false;
    for (uint32_t i = 0; i < gpu->n_users; i++) {
        if (gpu->users[i].pid == pid) return &gpu->users[i];
    }
    if (gpu->n_users == BT_GPU_USER_MAX) {
        bt_gpu_users_incomplete(gpu, "more than %u processes", BT_GPU_USER_MAX);
        return NULL;
    }
    *ret_added = true;
    bt_gpu_user *user = &gpu->users[gpu->n_users++];
    *user = (bt_gpu_user){.pid = pid};
    return user;
}

/* ---- the probe ------------------------------------------------------------------------------------------------------
 */

/* The cards that its driver holds, as the kernel sees them, failed for NVML's reason; or what stands for all of them.
 */
static void add_failed_nvml(const char *root, bt_proc_text *scratch, const bt_nvml *nvml, bt_gpus *gpus) {
    bool any = false;
    for (uint32_t i = 0; i < gpus->n_devices; i++) {
        bt_gpu *gpu = &gpus->devices[i];
        if (strcmp(gpu->driver, "nvidia") != 0) continue;
        any = true;
        (void)snprintf(gpu->source, sizeof gpu->source, "NVML");
        bt_gpu_fail(gpu, "%s", nvml->reason);
        bt_gpu_users_incomplete(gpu, "%s", nvml->reason);
    }
    if (any) return;
    char pci[sizeof gpus->devices[0].pci] = "";
    bool found = bt_drm_find_nvidia(root, scratch, gpus, pci);
    if (!found && bt_nvml_has_nothing(nvml)) return;
    bt_gpu *gpu = bt_gpu_add(gpus);
    if (!gpu) return;
    (void)snprintf(gpu->name, sizeof gpu->name, "CUDA");
    (void)snprintf(gpu->source, sizeof gpu->source, "NVML");
    memcpy(gpu->pci, pci, sizeof gpu->pci);
    bt_gpu_fail(gpu, "%s", nvml->reason);
    bt_gpu_users_incomplete(gpu, "%s", nvml->reason);
}

bt_status bt_gpu_probe(const char *root, const char *nvml_library, bool with_users, bt_gpus *ret_gpus, bt_error *err) {
    bt_proc_text *scratch = bt_heap_alloc(sizeof *scratch);
    if (!scratch) return bt_fail_sys(err, ENOMEM, "probe", "cannot look for graphics devices");
    bt_nvml nvml = {.state = BT_READING_ABSENT};
    ret_gpus->n_devices = 0;
    ret_gpus->n_left_out = 0;
    if (!nvml_library && root[0] == '\0') nvml_library = BT_NVML_LIBRARY;
    if (nvml_library) bt_nvml_probe(nvml_library, with_users, ret_gpus, &nvml);
    for (uint32_t i = 0; i < ret_gpus->n_devices; i++) /* one memory for both, of which NVML says nothing */
        if (ret_gpus->devices[i].shares_host) bt_drm_share_host(root, scratch, &ret_gpus->devices[i]);
    bt_drm_cards_probe(root, scratch, ret_gpus);
    if (nvml.state == BT_READING_FAILED) add_failed_nvml(root, scratch, &nvml, ret_gpus);
    bt_status status = with_users ? bt_drm_users_probe(root, scratch, ret_gpus, err) : BT_OK;
    bt_heap_free(scratch);
    return status;
}

/* ---- pools
 * ------------------------------------------------------------------------------------------------------------ */

/* ggml has asked this device itself: what it said stands, and what it did not say is added. */
static bool is_known(const bt_gpu *gpu, bt_machine *machine) {
    for (uint32_t i = 1; i < machine->n_pools; i++) {
        bt_pool *pool = &machine->pools[i];
        bool same_place = gpu->pci[0] && strcmp(pool->pci, gpu->pci) == 0;
        if (!same_place && strcmp(pool->name, gpu->name) != 0) continue;
        if (!pool->pci[0]) memcpy(pool->pci, gpu->pci, sizeof pool->pci);
        if (!pool->device[0]) memcpy(pool->device, gpu->device, sizeof pool->device);
        return true;
    }
    return false;
}

void bt_gpu_pools_add(const bt_gpus *gpus, bt_machine *machine) {
    for (uint32_t i = 0; i < gpus->n_devices && machine->n_pools < BT_POOL_MAX; i++) {
        const bt_gpu *gpu = &gpus->devices[i];
        if (is_known(gpu, machine)) continue;
        bt_pool *pool = &machine->pools[machine->n_pools++];
        memset(pool, 0, sizeof *pool);
        _Static_assert(sizeof pool->name == sizeof gpu->name && sizeof pool->reason == sizeof gpu->reason &&
                           sizeof pool->pci == sizeof gpu->pci && sizeof pool->device == sizeof gpu->device &&
                           sizeof pool->source == sizeof gpu->source,
                       "a device's texts fit a pool");
        memcpy(pool->name, gpu->name, sizeof pool->name);
        memcpy(pool->reason, gpu->reason, sizeof pool->reason);
        memcpy(pool->pci, gpu->pci, sizeof pool->pci);
        memcpy(pool->device, gpu->device, sizeof pool->device);
        memcpy(pool->source, gpu->source, sizeof pool->source);
        pool->kind = gpu->kind;
        pool->state = gpu->state;
        pool->free_bytes = gpu->free_bytes;
        pool->total_bytes = gpu->total_bytes;
        pool->clamped = gpu->clamped;
        pool->shares_host = gpu->shares_host;
    }
}

bt_status bt_machine_devices_probe(const char *root, bt_machine *machine, bt_error *err) {
    bt_gpus *gpus = bt_heap_alloc(sizeof *gpus); /* too large for the stack */
    if (!gpus) return bt_fail_sys(err, ENOMEM, "probe", "cannot look for graphics devices");
    bt_status status = bt_gpu_probe(root, NULL, false, gpus, err);
    if (status == BT_OK) bt_gpu_pools_add(gpus, machine);
    bt_heap_free(gpus);
    return status;
}
