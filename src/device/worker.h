/* SPDX-License-Identifier: MIT
 * worker.h: the device that `burthen worker` offers: host memory under a cap, computed by the CPU backend.
 *
 * What counts within the cap: the buffers that clients have, as whole pages, and the CPU backend's work area. A tensor
 * that ggml's RPC server has received takes the room of its own pages in the buffer, which are not there before. What
 * does not count, since no device sees it: the process itself, and the one message that the server holds while it is
 * dealt with, where that is a graph (some hundred bytes a node), is read, or writes over what was there.
 *
 * The device is for that server alone: 1 MiB or more that is handed to set_tensor is dropped as it is copied, and reads
 * as zero after. */
#pragma once

#include "burthen.h"

struct ggml_backend_device;

typedef struct bt_worker bt_worker;

typedef struct bt_worker_use {
    uint64_t used_bytes, peak_bytes; /* within the cap: buffers and work area */
    uint64_t work_peak_bytes;        /* that a graph needed */
    uint64_t over_peak_bytes;        /* of a work area that had no room within the cap; 0: always had */
    uint64_t n_given, n_refused;     /* requests for a buffer */
    uint32_t n_buffers;
} bt_worker_use;

/* memory_bytes: the cap, a 32nd of it, at most 32 MiB, held for the work area from the start. BT_E_ARG, code
 * "worker_memory", for less than 32 pages; BT_E_DEVICE without a CPU backend. */
BT_MUST_CHECK bt_status bt_worker_open(uint64_t memory_bytes, uint32_t n_threads, bt_worker **ret_worker,
                                       bt_error *err);
/* Every buffer must be freed: returns false if one is left. NULL is fine. */
bool bt_worker_close(bt_worker *worker);
/* Not in ggml's registry: it is handed to ggml's RPC server. Free is the cap less what is used, total the cap. A buffer
 * beyond that is NULL, with the reason in the log. */
struct ggml_backend_device *bt_worker_device(bt_worker *worker);
void bt_worker_use_read(bt_worker *worker, bt_worker_use *ret); /* from any thread */
