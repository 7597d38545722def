/* SPDX-License-Identifier: MIT
 * pool.h: buffers of one pool, by size class, found again by their reservation.
 *
 * Classes are powers of two up to 16 KiB, then steps of 16 KiB (research notes, seed 1). A released buffer keeps its
 * address space, under its class; the next request of that class and line gets the idle buffer with the smallest id, so
 * a rebuilt graph of the same shape lands at the same addresses and allocates nothing. Pages of an idle buffer are
 * dropped. A buffer's logical length is what was asked for: bt_pool_check refuses to go past it.
 *
 * Taking a buffer reserves address space and charges nothing: who takes it commits on its mapping what will be touched
 * (bt_account_commit), before touching it. Giving it back releases that charge. */
#pragma once

#include "memory/account.h"

typedef struct bt_pool_buffers bt_pool_buffers;

typedef struct bt_pool_buffer {
    bt_mapping *mapping;
    uint64_t bytes; /* logical: as asked for */
    uint64_t class_bytes;
    uint32_t id;
    bool live;
    bt_line line;
} bt_pool_buffer;

typedef struct bt_pool_report {
    uint64_t pool_bytes, live_bytes, peak_live_bytes, weights_bytes;
    uint32_t idle_slots, reserved_classes;
} bt_pool_report;

uint64_t bt_pool_class_bytes(uint64_t bytes); /* 0 on overflow */
/* max_buffers: live and idle ones together, at most 65536. When all are in use an idle one of another class makes
 * room; when all are live, taking is refused (BT_E_LIMIT, code "pool_full"). */
BT_MUST_CHECK bt_status bt_pool_open(bt_account *account, uint32_t max_buffers, bt_pool_buffers **ret_pool,
                                     bt_error *err);
void bt_pool_close(bt_pool_buffers *pool);
BT_MUST_CHECK bt_status bt_pool_take(bt_pool_buffers *pool, bt_line line, uint64_t bytes, bt_pool_buffer **ret_buffer,
                                     bt_error *err);
void bt_pool_give(bt_pool_buffers *pool, bt_pool_buffer *buffer);
/* BT_E_LIMIT, code "buffer_bounds", when [offset, offset + bytes) leaves the logical length. */
BT_MUST_CHECK bt_status bt_pool_check(const bt_pool_buffer *buffer, uint64_t offset, uint64_t bytes, bt_error *err);
void bt_pool_report_read(bt_pool_buffers *pool, bt_pool_report *ret);
