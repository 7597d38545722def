/* SPDX-License-Identifier: MIT
 * reader_uring.c: requests in flight through io_uring, on the caller's thread.
 *
 *     idle requests --take--> waiting for submission --submit--> in the kernel --completion--> finish --> idle
 *                                      ^                                              |  (short, EINTR)
 *                                      '----------------------------------------------'
 *
 * depth requests exist and never more, so neither queue of the ring can overflow. Files are registered, which saves a
 * reference count a request; where that is refused, plain descriptors serve. Buffers are not registered: pages of a
 * registered buffer that were dropped since take reads into nothing without an error (docs/design.md M8). So nothing is
 * locked in memory and RLIMIT_MEMLOCK changes nothing; only before Linux 5.12 the ring's own pages count against it,
 * and where they pass it the ring is refused and the twin reads.
 *
 * Submission can fail as a whole. EAGAIN and EBUSY mean that the kernel is short of something now: complete what is in
 * flight, or rest a moment, and try again. Anything else leaves entries in the ring that must not be submitted any
 * more, since their memory may go: the ring is then broken, its jobs and all later ones fail with that errno. */
#include "base/error.h"
#include "base/fault.h"
#include "base/heap.h"
#include "base/os.h"
#include "store/reader_internal.h"

#include <errno.h>
#include <liburing.h>
#include <time.h>

/* The kernel is out of something it will have again soon: 1 ms apart, for at most 1 s. */
#define REST_NS  1000000L
#define REST_MAX 1000u

typedef struct uring {
    struct io_uring ring;
    bt_reader *reader;
    bt_reader_request *requests; /* [depth] */
    uint32_t *idle;              /* [depth] a stack of requests not in use */
    uint32_t *waiting;           /* [depth] in the ring in this order, not submitted yet */
    uint32_t n_idle, n_waiting;
    uint32_t n_in_kernel;
    bool files_registered;
    int broken; /* errno, 0: works */
} uring;

static void no_lock(void *self) {
    (void)self;
}

/* Put request i into the ring; false: it failed at once, and *ret_result says how. */
static bool put_in_ring(uring *u, uint32_t i, int64_t *ret_result) {
    const bt_reader_request *request = &u->requests[i];
    int sys = u->broken ? u->broken : bt_fault_hit() ? EIO : 0;
    struct io_uring_sqe *sqe = sys == 0 ? io_uring_get_sqe(&u->ring) : NULL;
    if (!sqe) { /* without an errno it cannot be: there are as many entries as requests */
        *ret_result = -(int64_t)(sys ? sys : EIO);
        return false;
    }
    int fd = u->files_registered ? (int)bt_reader_fd_at(u->reader, request) : bt_reader_fd(u->reader, request);
    io_uring_prep_read(sqe, fd, request->dest, (unsigned)request->bytes, request->offset);
    if (u->files_registered) sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(sqe, i);
    u->waiting[u->n_waiting++] = i;
    return true;
}

/* A result of request i: what is left of it goes into the ring again, or it is over. */
static void finish(uring *u, uint32_t i, int64_t result) {
    while (bt_reader_finish(u->reader, &u->requests[i], result)) {
        if (put_in_ring(u, i, &result)) return;
    }
    u->idle[u->n_idle++] = i;
}

static void fill_ring(uring *u) {
    while (u->n_idle > 0) {
        uint32_t i = u->idle[u->n_idle - 1];
        if (!bt_reader_take(u->reader, &u->requests[i])) return;
        u->n_idle--;
        int64_t result = 0;
        if (!put_in_ring(u, i, &result)) finish(u, i, result);
    }
}

static void reap(uring *u) {
    struct io_uring_cqe *cqe = NULL;
    while (u->n_in_kernel > 0 && io_uring_peek_cqe(&u->ring, &cqe) == 0) {
        uint32_t i = (uint32_t)io_uring_cqe_get_data64(cqe);
        int64_t result = cqe->res;
        io_uring_cqe_seen(&u->ring, cqe);
        u->n_in_kernel--;
        finish(u, i, result);
    }
}

static void note_submitted(uring *u, uint32_t n) {
    if (n > u->n_waiting) n = u->n_waiting;
    u->n_in_kernel += n;
    u->n_waiting -= n;
    for (uint32_t i = 0; i < u->n_waiting; i++) {
        u->waiting[i] = u->waiting[i + n];
    }
}

/* Nothing is submitted any more; what waits for it fails. What is in the kernel still completes. */
static void break_ring(uring *u, int sys) {
    u->broken = sys;
    while (u->n_waiting > 0) {
        finish(u, u->waiting[--u->n_waiting], -(int64_t)sys);
    }
}

/* Submit what waits; wait_for: completions to wait for (0 or 1). 0, or an errno that may pass. */
static int submit(uring *u, unsigned wait_for) {
    if (u->broken) return u->broken;
    int rc = wait_for ? io_uring_submit_and_wait(&u->ring, wait_for) : io_uring_submit(&u->ring);
    if (rc >= 0) {
        note_submitted(u, (uint32_t)rc);
        return 0;
    }
    if (rc != -EINTR && rc != -EAGAIN && rc != -EBUSY) break_ring(u, -rc);
    return -rc;
}

static void uring_advance(void *self) {
    uring *u = self;
    reap(u);
    fill_ring(u);
    if (u->n_waiting > 0) (void)submit(u, 0); /* what does not go now goes at the next call */
}

static void rest(void) {
    struct timespec pause = {.tv_nsec = REST_NS};
    (void)nanosleep(&pause, NULL);
}

static void uring_wait(void *self) {
    uring *u = self;
    uint32_t n_rests = 0;
    for (;;) {
        fill_ring(u);
        if (u->n_waiting == 0 && u->n_in_kernel == 0) return; /* all failed while being submitted */
        int sys = 0;
        if (u->broken) {
            struct io_uring_cqe *cqe = NULL;
            sys = -io_uring_wait_cqe(&u->ring, &cqe);
        } else {
            sys = submit(u, 1);
        }
        uint32_t before = u->n_in_kernel;
        reap(u);
        if (u->n_in_kernel < before) return;
        if (sys == EAGAIN || sys == EBUSY) {
            if (n_rests++ < REST_MAX)
                rest();
            else
                break_ring(u, sys);
        }
    }
}

static void uring_close(void *self) {
    uring *u = self;
    io_uring_queue_exit(&u->ring);
    bt_heap_free(u->waiting);
    bt_heap_free(u->idle);
    bt_heap_free(u->requests);
    bt_heap_free(u);
}

static const bt_reader_backend uring_backend = {
    .kind = BT_READER_URING,
    .close = uring_close,
    .lock = no_lock,
    .unlock = no_lock,
    .advance = uring_advance,
    .wait = uring_wait,
};

/* Optional: false when refused. */
static bool register_files(uring *u) {
    const bt_store *store = u->reader->store;
    int *fds = bt_heap_array(2 * (uint64_t)store->n_files, sizeof *fds);
    if (!fds) return false;
    for (uint32_t i = 0; i < store->n_files; i++) { /* as bt_reader_fd_at counts */
        fds[i] = store->files[i].fd;
        fds[store->n_files + i] = store->files[i].buffered_fd;
    }
    int rc = bt_fault_hit() ? -ENOMEM : io_uring_register_files(&u->ring, fds, 2 * store->n_files);
    bt_heap_free(fds);
    return rc == 0;
}

bt_status bt_reader_uring_open(bt_reader *reader, bt_error *err) {
    uint32_t depth = reader->params.depth;
    uring *u = bt_heap_alloc(sizeof *u);
    bt_reader_request *requests = bt_heap_array(depth, sizeof *requests);
    uint32_t *idle = bt_heap_array(depth, sizeof *idle);
    uint32_t *waiting = bt_heap_array(depth, sizeof *waiting);
    int sys = u && requests && idle && waiting ? 0 : ENOMEM;
    if (sys == 0) sys = bt_fault_hit() ? ENOMEM : -io_uring_queue_init(depth, &u->ring, 0);
    if (sys != 0) {
        bt_heap_free(waiting);
        bt_heap_free(idle);
        bt_heap_free(requests);
        bt_heap_free(u);
        return bt_fail_sys(err, sys, "uring_refused", "io_uring with %u requests cannot be had", depth);
    }
    u->reader = reader;
    u->requests = requests;
    u->idle = idle;
    u->waiting = waiting;
    for (uint32_t i = 0; i < depth; i++) {
        u->idle[u->n_idle++] = depth - 1 - i;
    }
    u->files_registered = register_files(u);
    reader->backend = &uring_backend;
    reader->self = u;
    return BT_OK;
}
