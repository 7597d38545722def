/* SPDX-License-Identifier: MIT
 * readings.h: what the devices beyond the host say of their memory, in our words. */
#pragma once

#include "burthen.h"

struct ggml_backend_device;

/* Ask a device once. It is REPORTED, also with nothing free, which is a measured zero; FAILED where what it answers
 * means nothing: 0 of 0 (then reason has the error that the backend logged meanwhile), or bytes free of none; ABSENT
 * for NULL and for the CPU, whose memory the probe reads. More free than there is in all is cut down, and clamped says
 * so. Lines logged meanwhile still reach the log that was set. An RPC device whose server is gone ends the process in
 * ggml: ask where that may happen. */
void bt_device_reading(struct ggml_backend_device *dev, bt_pool *ret_pool);

/* Each device that ggml knows and that holds weights, in ggml's order, asked once. Left out, as libllama leaves them
 * out: the CPU, accelerators beside it (BLAS: its buffers are the host's, no layer can be given to it), and devices
 * made of others; and our own. ret: [max]. Returns how many found no room in it, and were not asked. */
uint32_t bt_device_readings(bt_pool *ret, uint32_t max, uint32_t *ret_n);
