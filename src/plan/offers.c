/* SPDX-License-Identifier: MIT
 *
 * offers.c: the devices of a machine as they are offered to a plan: which, in which order, and how much of each.
 *
 * Those that were named, in their order, or all that there are; the main one first. Left out: what holds no weights
 * (accelerators beside the CPU), a card in the processor where there is another, what only the kernel knows; and, where
 * nobody asked for blocks on devices, one that does not say what it has. */
#include "plan/offload.h"

#include "base/error.h"
#include "base/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
/* CUDA's context with cuBLAS and its workspace takes 300 to 600 MB of a card (research notes, llama.cpp, section 3). */
#define CUDA_CONTEXT_BYTES (450 * MIB)

static uint64_t context_bytes(const bt_pool *pool) {
    bool is_cuda = strncmp(pool->name, "CUDA", 4) == 0 || strncmp(pool->name, "ROCm", 4) == 0;
    return is_cuda ? CUDA_CONTEXT_BYTES : 0;
}

static void offer_fill(const bt_pool *pool, bt_known named_bytes, const char *named_by, bt_offer *ret) {
    *ret = (bt_offer){.pool = *pool, .context_bytes = context_bytes(pool)};
    bt_device_budget budget = bt_device_budget_resolve(named_bytes, pool);
    ret->budget_bytes = (bt_known){budget.bytes != UINT64_MAX, budget.bytes};
    if (named_bytes.known)
        (void)snprintf(ret->budget_source, sizeof ret->budget_source, "%s", named_by);
    else if (ret->budget_bytes.known)
        (void)snprintf(ret->budget_source, sizeof ret->budget_source, "three quarters of %s free",
                       BT_SIZE(pool->free_bytes));
    else
        (void)snprintf(ret->budget_source, sizeof ret->budget_source, "unmeasured");
}

static const bt_pool *find_pool(const bt_machine *machine, const char *name) {
    for (uint32_t i = 1; i < machine->n_pools; i++)
        if (strcmp(machine->pools[i].name, name) == 0) return &machine->pools[i];
    return NULL;
}

static bt_status unknown_device(const bt_machine *machine, const char *name, const char *more, bt_error *err) {
    char names[200] = "";
    size_t n = 0;
    for (uint32_t i = 1; i < machine->n_pools && n + 34 < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i > 1 ? ", " : "", machine->pools[i].name);
    return bt_fail(err, BT_E_ARG, "device_unknown", BT_MEASURE_NONE, 0, 0, "there is no device %s; there %s%s%s", name,
                   names[0] ? "are: " : "is none beside the host", names, more);
}

/* Where NVML fails, its cards have no numbers, or only the kernel's names (probe/gpu.c). */
static bool hides_cards(const bt_machine *machine) {
    bool failed = false;
    for (uint32_t i = 1; i < machine->n_pools; i++) {
        const bt_pool *pool = &machine->pools[i];
        bool numbered = strncmp(pool->name, "CUDA", 4) == 0 && pool->name[4] != '\0';
        if (numbered) return false;
        failed = failed || pool->state == BT_READING_FAILED;
    }
    return failed;
}

bt_status bt_offers_know(const bt_machine *machine, const char *name, bt_error *err) {
    if (find_pool(machine, name) || (strncmp(name, "CUDA", 4) == 0 && hides_cards(machine))) return BT_OK;
    char more[120];
    (void)snprintf(more, sizeof more, "; one that cannot be seen from here is named with its size: %.31s=SIZE", name);
    return unknown_device(machine, name, more, err);
}

/* A card in the processor shares the host's memory: it is taken only where it was named, or where there is no other.
 * What only the kernel knows (card0, of a machine that was written down) is nothing that ggml computes on. */
static bool is_offered(const bt_machine *machine, const bt_pool *pool) {
    if (pool->state == BT_READING_ABSENT || pool->kind == BT_POOL_ACCEL) return false;
    if (strncmp(pool->name, "card", 4) == 0) return false;
    if (pool->kind != BT_POOL_IGPU) return true;
    for (uint32_t i = 1; i < machine->n_pools; i++)
        if (machine->pools[i].kind == BT_POOL_GPU && machine->pools[i].state != BT_READING_ABSENT) return false;
    return true;
}

static void main_first(bt_offer offers[BT_DEVICE_MAX], uint32_t main_gpu) {
    bt_offer first = offers[main_gpu];
    memmove(&offers[1], &offers[0], main_gpu * sizeof *offers);
    offers[0] = first;
}

bt_status bt_offers_make(const bt_machine *machine, const bt_wishes *wishes, bt_offer ret_offers[BT_DEVICE_MAX],
                         uint32_t *ret_n, bt_error *err) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < wishes->n_devices; i++) {
        const bt_device_wish *wish = &wishes->devices[i];
        const bt_pool *pool = find_pool(machine, wish->name);
        if (!pool) return unknown_device(machine, wish->name, "", err);
        bt_known bytes = wish->budget_bytes.known ? wish->budget_bytes : wishes->gpu_mem_bytes;
        offer_fill(pool, bytes, wish->budget_bytes.known ? "--device" : "BURTHEN_GPU_MEM", &ret_offers[n++]);
    }
    for (uint32_t i = 1; wishes->n_devices == 0 && !wishes->no_devices && i < machine->n_pools; i++) {
        const bt_pool *pool = &machine->pools[i];
        bool unasked = wishes->gpu_layers == BT_LAYERS_DEFAULT && !wishes->gpu_mem_bytes.known;
        if (unasked && pool->state != BT_READING_REPORTED) continue;
        if (!is_offered(machine, pool) || n == BT_DEVICE_MAX) continue;
        offer_fill(pool, wishes->gpu_mem_bytes, "BURTHEN_GPU_MEM", &ret_offers[n++]);
    }
    if (wishes->require_device && n == 0)
        return bt_fail(err, BT_E_DEVICE, "device_missing", BT_MEASURE_ITEMS, 1, 0,
                       "--require-device, but there is no device beside the host that may be used");
    *ret_n = n;
    if (wishes->main_gpu > 0 && wishes->main_gpu >= n && n > 0)
        return bt_fail(err, BT_E_ARG, "device_unknown", BT_MEASURE_ITEMS, wishes->main_gpu, n - 1,
                       "--main-gpu %" PRIu32 ", but the last of %" PRIu32 " devices is %" PRIu32, wishes->main_gpu, n,
                       n - 1);
    if (wishes->n_tensor_splits > n && n > 0)
        return bt_fail(err, BT_E_ARG, "tensor_split", BT_MEASURE_ITEMS, wishes->n_tensor_splits, n,
                       "--tensor-split has %" PRIu32 " shares for %" PRIu32 " devices", wishes->n_tensor_splits, n);
    if (wishes->n_tensor_splits == 0 && n > 0) main_first(ret_offers, wishes->main_gpu);
    return BT_OK;
}
