/* SPDX-License-Identifier: MIT
 * gpu_nvml.h: NVIDIA devices as their driver's management library (NVML) describes them. */
#pragma once

#include "probe/gpu.h"

#define BT_NVML_LIBRARY "libnvidia-ml.so.1" /* comes with the driver */

typedef struct bt_nvml {
    bt_pool_state state; /* ABSENT: there is no such library. FAILED: it does not say which devices there are */
    int code;            /* of NVML, when FAILED; 0: it lacks a call that is needed */
    char reason[160];
} bt_nvml;

/* Add what the library reports to the list, as CUDA0, CUDA1 ... The library is closed again. */
void bt_nvml_probe(const char *library, bool with_users, bt_gpus *gpus, bt_nvml *ret_nvml);

/* It was found, and says that there is nothing for it to manage: no driver, or no device. */
bool bt_nvml_has_nothing(const bt_nvml *nvml);
