/* SPDX-License-Identifier: MIT
 *
 * devices.c: from ggml's registry to pools of a machine, and back from names to devices.
 *
 * What was built into llama.cpp registers itself, or stands beside it (backends.c). Any other is taken from
 * GGML_BACKEND_PATH alone: a program must not run code because of where it was started. */
#include "engine/devices.h"

#include "base/error.h"
#include "base/log.h"
#include "device/readings.h"
#include "engine/backends.h"
#include "engine/engine.h"

#include "ggml-backend.h"

#include <stdlib.h>
#include <string.h>

bt_status bt_devices_init(bt_error *err) {
    static bool done;
    bt_engine_log_init();
    BT_TRY(bt_backends_load(err));
    const char *path = getenv("GGML_BACKEND_PATH");
    if (done || !path || !path[0]) return BT_OK;
    if (path[0] != '/')
        return bt_fail(err, BT_E_DEVICE, "backend_path", BT_MEASURE_NONE, 0, 0,
                       "GGML_BACKEND_PATH wants an absolute path, not \"%.200s\"", path);
    if (!ggml_backend_load(path))
        return bt_fail(err, BT_E_DEVICE, "backend_path", BT_MEASURE_NONE, 0, 0,
                       "GGML_BACKEND_PATH: %.200s is no backend that this version of ggml can load", path);
    done = true;
    return BT_OK;
}

static bt_pool *place_of(bt_machine *machine, const char *name) {
    for (uint32_t i = 1; i < machine->n_pools; i++)
        if (strcmp(machine->pools[i].name, name) == 0) return &machine->pools[i];
    return machine->n_pools < BT_POOL_MAX ? &machine->pools[machine->n_pools++] : NULL;
}

void bt_devices_read(bt_machine *machine) {
    bt_pool pools[BT_DEVICE_MAX];
    uint32_t n = 0;
    uint32_t n_left = bt_device_readings(pools, BT_DEVICE_MAX, &n);
    for (uint32_t i = 0; i < n; i++) {
        bt_pool *place = place_of(machine, pools[i].name);
        if (!place) {
            n_left++;
            continue;
        }
        *place = pools[i];
        if (pools[i].state == BT_READING_FAILED) bt_log(BT_LOG_WARN, "%s: %s", pools[i].name, pools[i].reason);
    }
    if (n_left > 0)
        bt_log(BT_LOG_WARN, "%u devices more than the %u that can be used are left out", n_left, BT_DEVICE_MAX);
}

bt_status bt_devices_find(const bt_offload *offload, struct ggml_backend_device *ret_devices[BT_DEVICE_MAX],
                          bt_error *err) {
    for (uint32_t i = 0; i < offload->split.n_devices; i++) {
        ret_devices[i] = ggml_backend_dev_by_name(offload->devices[i].name);
        if (!ret_devices[i])
            return bt_fail(err, BT_E_DEVICE, "device_gone", BT_MEASURE_NONE, 0, 0,
                           "the plan has blocks on %s, and there is no such device now", offload->devices[i].name);
    }
    return BT_OK;
}
