/* SPDX-License-Identifier: MIT
 * pool.c: a fixed table of buffers, which is the reservation table too.
 *
 *     id   0: live  kv       96 MiB     id is the index, so the smallest idle id is found by scanning forward
 *     id   1: idle  compute  64 MiB     idle: address space kept, pages dropped, nothing charged
 *     id   2: live  compute 112 KiB
 *     id   3: (unused)
 *
 * A graph that is rebuilt with the same shapes asks for the same classes in the same order and gets the same ids, hence
 * the same addresses. Buffers are made a few dozen times in a run, so scanning at most max_buffers entries under one
 * lock is the whole algorithm. Dropping the pages of an idle buffer is what makes keeping it free; if the system will
 * not drop them, the buffer is unmapped instead, since a charge may only go when its pages did.
 *
 * Left out: sharing one reservation between classes (ggml's own allocator does that inside a buffer), and trimming,
 * which has nothing to win here. */
#include "memory/pool.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"

#include <errno.h>
#include <pthread.h>

/* research notes, seed 1, C1: floor 1 KiB, powers of two to 16 KiB, then steps of 16 KiB */
#define CLASS_FLOOR_BYTES 1024u
#define CLASS_STEP_BYTES  16384u
#define BUFFER_MAX        65536u /* as many as an account has mappings */

struct bt_pool_buffers {
    pthread_mutex_t lock; /* everything below */
    bt_account *account;
    bt_pool_buffer *buffers; /* [max_buffers]; unused when mapping is NULL */
    uint32_t max_buffers;
    uint32_t n_used; /* entries from here on were never used */
    uint64_t live_bytes, peak_live_bytes, pool_bytes;
};

uint64_t bt_pool_class_bytes(uint64_t bytes) {
    if (bytes <= CLASS_STEP_BYTES) {
        uint64_t class_bytes = CLASS_FLOOR_BYTES;
        while (class_bytes < bytes) {
            class_bytes *= 2;
        }
        return class_bytes;
    }
    uint64_t class_bytes = 0;
    return bt_align_up_u64(bytes, CLASS_STEP_BYTES, &class_bytes) ? class_bytes : 0;
}

bt_status bt_pool_open(bt_account *account, uint32_t max_buffers, bt_pool_buffers **ret_pool, bt_error *err) {
    if (max_buffers == 0 || max_buffers > BUFFER_MAX) {
        return bt_fail(err, BT_E_ARG, "pool_size", BT_MEASURE_ITEMS, max_buffers, BUFFER_MAX,
                       "a pool of %u buffers; 1 to %u can be", max_buffers, BUFFER_MAX);
    }
    bt_pool_buffers *pool = bt_heap_alloc(sizeof *pool);
    bt_pool_buffer *buffers = bt_heap_array(max_buffers, sizeof *buffers);
    if (!pool || !buffers) {
        bt_heap_free(buffers);
        bt_heap_free(pool);
        return bt_fail_sys(err, ENOMEM, "heap", "cannot make a pool of %u buffers", max_buffers);
    }
    int sys = pthread_mutex_init(&pool->lock, NULL);
    if (sys != 0) {
        bt_heap_free(buffers);
        bt_heap_free(pool);
        return bt_fail_sys(err, sys, "lock", "cannot make a pool of %u buffers", max_buffers);
    }
    pool->account = account;
    pool->buffers = buffers;
    pool->max_buffers = max_buffers;
    *ret_pool = pool;
    return BT_OK;
}

/* Under the lock, as all static functions from here on. */
static void unmap(bt_pool_buffers *pool, bt_pool_buffer *buffer) {
    pool->pool_bytes -= buffer->class_bytes;
    bt_account_unmap(pool->account, buffer->mapping);
    *buffer = (bt_pool_buffer){.id = buffer->id};
}

void bt_pool_close(bt_pool_buffers *pool) {
    if (!pool) return;
    for (uint32_t i = 0; i < pool->n_used; i++) {
        if (pool->buffers[i].mapping) unmap(pool, &pool->buffers[i]);
    }
    (void)pthread_mutex_destroy(&pool->lock);
    bt_heap_free(pool->buffers);
    bt_heap_free(pool);
}

static bt_pool_buffer *find_idle(bt_pool_buffers *pool, bt_line line, uint64_t class_bytes) {
    for (uint32_t i = 0; i < pool->n_used; i++) {
        bt_pool_buffer *b = &pool->buffers[i];
        if (b->mapping && !b->live && b->class_bytes == class_bytes && b->line == line) return b;
    }
    return NULL;
}

/* An entry without a mapping: the first unused one, else that of the idle buffer with the largest id. */
static bt_pool_buffer *find_entry(bt_pool_buffers *pool) {
    for (uint32_t i = 0; i < pool->n_used; i++) {
        if (!pool->buffers[i].mapping) return &pool->buffers[i];
    }
    if (pool->n_used < pool->max_buffers) {
        bt_pool_buffer *b = &pool->buffers[pool->n_used];
        b->id = pool->n_used++;
        return b;
    }
    for (uint32_t i = pool->n_used; i > 0; i--) {
        if (!pool->buffers[i - 1].live) {
            unmap(pool, &pool->buffers[i - 1]);
            return &pool->buffers[i - 1];
        }
    }
    return NULL;
}

static bt_status make(bt_pool_buffers *pool, bt_line line, uint64_t class_bytes, bt_pool_buffer **ret, bt_error *err) {
    bt_pool_buffer *buffer = find_entry(pool);
    if (!buffer) {
        return bt_fail(err, BT_E_LIMIT, "pool_full", BT_MEASURE_ITEMS, (uint64_t)pool->max_buffers + 1,
                       pool->max_buffers, "all %u buffers of the pool are in use", pool->max_buffers);
    }
    bt_mapping *mapping = NULL;
    BT_TRY(bt_account_map(pool->account, line, class_bytes, &mapping, err));
    /* Touched sparsely, mostly from the front: a huge page would round each touch up to 2 MiB (docs/design.md M2).
     * Advice only: the account stays right without it, the measured peak would be higher. */
    (void)bt_os_no_huge_pages(mapping->base, mapping->bytes);
    buffer->mapping = mapping;
    buffer->class_bytes = class_bytes;
    buffer->line = line;
    pool->pool_bytes += class_bytes;
    *ret = buffer;
    return BT_OK;
}

bt_status bt_pool_take(bt_pool_buffers *pool, bt_line line, uint64_t bytes, bt_pool_buffer **ret_buffer,
                       bt_error *err) {
    uint64_t class_bytes = bt_pool_class_bytes(bytes);
    if (class_bytes == 0) {
        return bt_fail(err, BT_E_LIMIT, "buffer_size", BT_MEASURE_BYTES, bytes, UINT64_MAX / CLASS_STEP_BYTES,
                       "no buffer of %llu bytes can exist", (unsigned long long)bytes);
    }
    pthread_mutex_lock(&pool->lock);
    bt_status status = BT_OK;
    bt_pool_buffer *buffer = find_idle(pool, line, class_bytes);
    if (!buffer) status = make(pool, line, class_bytes, &buffer, err);
    if (buffer) {
        buffer->bytes = bytes;
        buffer->live = true;
        pool->live_bytes += class_bytes;
        pool->peak_live_bytes = bt_max_u64(pool->peak_live_bytes, pool->live_bytes);
        *ret_buffer = buffer;
    }
    pthread_mutex_unlock(&pool->lock);
    return status;
}

void bt_pool_give(bt_pool_buffers *pool, bt_pool_buffer *buffer) {
    if (!buffer) return;
    pthread_mutex_lock(&pool->lock);
    if (buffer->live) {
        pool->live_bytes -= buffer->class_bytes;
        buffer->live = false;
        buffer->bytes = 0;
        buffer->line = buffer->mapping->line; /* it may have been relabelled */
        bt_account_unlock(pool->account, buffer->mapping);
        if (bt_os_drop(buffer->mapping->base, buffer->mapping->bytes) == 0) {
            bt_account_release(pool->account, buffer->mapping, buffer->mapping->committed_bytes);
        } else {
            unmap(pool, buffer);
        }
    }
    pthread_mutex_unlock(&pool->lock);
}

bt_status bt_pool_check(const bt_pool_buffer *buffer, uint64_t offset, uint64_t bytes, bt_error *err) {
    if (offset <= buffer->bytes && bytes <= buffer->bytes - offset) return BT_OK;
    return bt_fail(err, BT_E_LIMIT, "buffer_bounds", BT_MEASURE_BYTES, bt_sat_add_u64(offset, bytes), buffer->bytes,
                   "%llu bytes at offset %llu of a buffer of %llu (class %llu)", (unsigned long long)bytes,
                   (unsigned long long)offset, (unsigned long long)buffer->bytes,
                   (unsigned long long)buffer->class_bytes);
}

void bt_pool_report_read(bt_pool_buffers *pool, bt_pool_report *ret) {
    pthread_mutex_lock(&pool->lock);
    *ret = (bt_pool_report){
        .pool_bytes = pool->pool_bytes,
        .live_bytes = pool->live_bytes,
        .peak_live_bytes = pool->peak_live_bytes,
    };
    for (uint32_t i = 0; i < pool->n_used; i++) {
        const bt_pool_buffer *b = &pool->buffers[i];
        if (!b->mapping || b->live) continue;
        ret->idle_slots++;
        bool first_of_class = true;
        for (uint32_t j = 0; j < i && first_of_class; j++) {
            const bt_pool_buffer *other = &pool->buffers[j];
            first_of_class = !other->mapping || other->live || other->class_bytes != b->class_bytes;
        }
        if (first_of_class) ret->reserved_classes++;
    }
    pthread_mutex_unlock(&pool->lock);
    ret->weights_bytes = bt_account_weights_bytes(pool->account);
}
