/* SPDX-License-Identifier: MIT
 * disk_speed.h: how a file is read fastest: requests in flight, and how large they are. */
#pragma once

#include "store/reader.h"

typedef struct bt_disk_speed {
    uint32_t depth, request_bytes;
    uint64_t bytes_per_s; /* with them */
} bt_disk_speed;

/* How the reader reads unless another way is faster by more than the measurement's spread. The thread that reads also
 * computes, and submits only between segments: what is queued for the ring must be in flight before it computes, or
 * the disk idles (docs/measurements.md, depth). */
#define BT_DISK_DEPTH         32u
#define BT_DISK_REQUEST_BYTES (1u << 20)

/* Of a shorter file nothing can be said. */
#define BT_DISK_SPEED_FILE_MIN_BYTES (UINT64_C(16) << 20)
/* Bytes of the buffer that is read into, whatever the depth: what is read is not looked at. */
#define BT_DISK_SPEED_BUFFER_BYTES (8u << 20)

/* Read pieces of the store's first file, for about a second or a little more than that of a slow disk.
 * buffer: page-aligned, BT_DISK_SPEED_BUFFER_BYTES. false: nothing can be said (the file is too short or cannot be
 * read directly: what the page cache gives is not the disk). */
bool bt_disk_speed_measure(const bt_store *store, bt_reader_kind kind, void *buffer, bt_disk_speed *ret);
/* The same of the first shard of these facts, with a store and a buffer for the time it takes. BT_E_IO, code
 * "disk_speed", with the reason. */
BT_MUST_CHECK bt_status bt_disk_speed_of(const bt_facts *facts, bt_disk_speed *ret, bt_error *err);
