/* SPDX-License-Identifier: MIT
 * devices.h: the devices beside the host that ggml has here. */
#pragma once

#include "burthen.h"

struct ggml_backend_device;

/* Bring in what GGML_BACKEND_PATH names, an absolute path: ggml itself would also look in the working directory. Any
 * number of times. BT_E_DEVICE, code "backend_path", where that is no backend of this ggml; as bt_backends_load. */
BT_MUST_CHECK bt_status bt_devices_init(bt_error *err);
/* What they say of their memory, into the pools of a machine, behind the host: in the place of what is there under the
 * same name. More than the machine has room for are left out. */
void bt_devices_read(bt_machine *machine);
/* The devices of an offload by name. BT_E_DEVICE, code "device_gone". */
BT_MUST_CHECK bt_status bt_devices_find(const bt_offload *offload,
                                        struct ggml_backend_device *ret_devices[BT_DEVICE_MAX], bt_error *err);
