/* SPDX-License-Identifier: MIT
 * measured.h: what a device has counted so far, as reports have it. */
#pragma once

#include "device/device.h"
#include "report/report.h"

/* How a reader reads: "io_uring", "pread". */
const char *bt_device_reader_name(const bt_reader *reader);
/* Buffers, reads and their waits, experts, elastic pins, layouts, schedules; the other members are left as they are. */
void bt_device_measure(bt_device *device, bt_measured *measured);
