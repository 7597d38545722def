/* SPDX-License-Identifier: MIT
 * gpu_clients.h: which processes hold memory of the kernel's graphics devices, and how much. */
#pragma once

#include "probe/gpu.h"
#include "probe/proc.h"

/* Fill the users of every device of the list that NVML did not report. BT_E_NOMEM: none of them has been. */
BT_MUST_CHECK bt_status bt_drm_users_probe(const char *root, bt_proc_text *scratch, bt_gpus *gpus, bt_error *err);

/* ---- pure parser ---- */

/* What one descriptor holds, of /proc/PID/fdinfo/N. */
typedef struct bt_drm_client {
    char driver[24];
    char pci[24]; /* empty: none */
    bt_known id;  /* the same for every copy of one descriptor */
    bt_known bytes, host_bytes;
} bt_drm_client;
/* false: this is no descriptor of a graphics device. */
bool bt_drm_fdinfo_parse(const char *text, bt_drm_client *ret);
