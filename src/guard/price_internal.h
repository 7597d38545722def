/* SPDX-License-Identifier: MIT
 * price_internal.h: what price.c makes of a command line and its files, and price_at.c adds up for a placement. */
#pragma once

#include "guard/price.h"

#define BT_NO_DEVICE      UINT32_MAX
#define BT_GUARD_NOTE_MAX 8u

/* Bytes of some tensors, as a device holds them and as the host does. */
typedef struct bt_guard_sum {
    uint64_t device, host;
    uint64_t repacked; /* of the host's: a copy in another layout, beside the file's */
    uint64_t largest;  /* matrix that a device could compute with where it stands: none that is repacked */
} bt_guard_sum;

/* One model file: the model itself, or its draft. */
typedef struct bt_guard_sums {
    bt_guard_sum follows[BT_BLOCK_MAX]; /* to where the block is */
    bt_guard_sum movable[BT_BLOCK_MAX]; /* experts that n_cpu_moe may move */
    bool unused[BT_BLOCK_MAX];  /* a prediction block: counted among the layers, but part of no pass of the model */
    bt_guard_sum head;          /* goes with the layer behind the last block */
    bt_guard_sum tables, ruled; /* of the host: read by rows; by a rule */
    uint64_t fixed[BT_POOL_MAX];
} bt_guard_sums;

typedef struct bt_guard_model {
    const bt_facts *facts;
    bt_wishes wishes;
    uint32_t n_ubatch, window;
    bool kv_offload, swa_full, many_rows;
    bt_cost graph, all;                       /* of a device, of the host */
    uint32_t devices[BT_POOL_MAX], n_devices; /* positions among those in use */
    bt_guard_sums sums;
    uint64_t weight_bytes;
} bt_guard_model;

struct bt_guard_prices {
    bt_guard_price_ask ask;
    uint32_t devices[BT_POOL_MAX], n_devices; /* in use: indices into ask.devices */
    bt_guard_model main, draft;
    bool has_draft, has_mtp;
    uint64_t mtp_kv_cell_bytes;
    uint32_t mmproj_device; /* position, or BT_NO_DEVICE: the host */
    uint64_t mmproj_weights, mmproj_encode;
    bool mapped, repacks;
    bool pins_weights;                                       /* those of the host, by a device's driver */
    uint64_t learned_host_bytes, learned_bytes[BT_POOL_MAX]; /* BT_GUARD_LEARNED, wherever the blocks are */
    const char *notes[BT_GUARD_NOTE_MAX];
    uint32_t n_notes;
};

/* Whether the driver of a device in use gives pinned memory of the host. BT_NO_DEVICE: no. */
bool bt_guard_device_pins(const bt_guard_prices *p, uint32_t device);
/* Layers of llama.cpp's counting, the head one of them; value below 0: all. */
uint32_t bt_guard_layers_of(const bt_facts *facts, int32_t value);
