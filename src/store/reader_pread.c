/* SPDX-License-Identifier: MIT
 * reader_pread.c: the twin of reader_uring.c: one thread of ours that reads one request after another.
 *
 * It serves where io_uring is refused: containers with the usual seccomp filters, old kernels, other systems. One
 * request at a time is what makes it the slower one; more threads would compete with those that compute. The thread
 * sleeps on a condition when there is nothing to read, and whoever waits for a job sleeps on another: nobody spins.
 * The lock covers the queue; it is not held while reading, so a job can be started or stopped meanwhile. */
#include "base/error.h"
#include "base/fault.h"
#include "base/heap.h"
#include "base/os.h"
#include "store/reader_internal.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

/* What the thread runs is bt_reader_finish and pread: under 4 KiB of frames, and the C library's own share (its thread
 * block, signal frames) is below PTHREAD_STACK_MIN. Sanitizers put their own data there. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STACK_BYTES (1u << 20)
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define STACK_BYTES (1u << 20)
#endif
#endif
#ifndef STACK_BYTES
#define STACK_BYTES (64u << 10)
#endif

typedef struct twin {
    bt_reader *reader;
    pthread_t thread;
    pthread_mutex_t lock; /* the reader's queue and what follows */
    pthread_cond_t work;  /* for the thread: a request may be there, or stop */
    pthread_cond_t done;  /* for the caller: a request is over */
    bool stop;
} twin;

static void twin_lock(void *self) {
    pthread_mutex_lock(&((twin *)self)->lock);
}

static void twin_unlock(void *self) {
    pthread_mutex_unlock(&((twin *)self)->lock);
}

/* Under the lock, as the next one. */
static void twin_advance(void *self) {
    twin *t = self;
    if (t->reader->first_job != BT_READER_NONE) pthread_cond_signal(&t->work);
}

static void twin_wait(void *self) {
    twin *t = self;
    pthread_cond_signal(&t->work);
    pthread_cond_wait(&t->done, &t->lock); /* the caller looks again: waking without a reason does no harm */
}

static void *run(void *self) {
    twin *t = self;
#if defined(__linux__)
    (void)pthread_setname_np(pthread_self(), "burthen-read"); /* for ps and debuggers; at most 15 characters */
#endif
    bt_reader_request request;
    pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        if (!bt_reader_take(t->reader, &request)) {
            pthread_cond_wait(&t->work, &t->lock);
            continue;
        }
        bool again = true;
        while (again) {
            int fd = bt_reader_fd(t->reader, &request);
            pthread_mutex_unlock(&t->lock);
            int64_t result = bt_os_pread(fd, request.dest, (size_t)request.bytes, request.offset);
            pthread_mutex_lock(&t->lock);
            again = bt_reader_finish(t->reader, &request, result);
        }
        pthread_cond_signal(&t->done);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static void twin_free(twin *t) {
    (void)pthread_cond_destroy(&t->done);
    (void)pthread_cond_destroy(&t->work);
    (void)pthread_mutex_destroy(&t->lock);
    bt_heap_free(t);
}

static void twin_close(void *self) {
    twin *t = self;
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->lock);
    (void)pthread_join(t->thread, NULL);
    twin_free(t);
}

static const bt_reader_backend twin_backend = {
    .kind = BT_READER_PREAD,
    .close = twin_close,
    .lock = twin_lock,
    .unlock = twin_unlock,
    .advance = twin_advance,
    .wait = twin_wait,
};

/* The thread takes no signal: Ctrl-C and the like are for the threads of the program. */
static int start_thread(twin *t) {
    if (bt_fault_hit()) return EAGAIN;
    pthread_attr_t attr;
    int sys = pthread_attr_init(&attr);
    if (sys != 0) return sys;
    sys = pthread_attr_setstacksize(&attr, STACK_BYTES);
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    if (sys == 0) sys = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (sys == 0) {
        sys = pthread_create(&t->thread, &attr, run, t);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    (void)pthread_attr_destroy(&attr);
    return sys;
}

bt_status bt_reader_pread_open(bt_reader *reader, bt_error *err) {
    twin *t = bt_heap_alloc(sizeof *t);
    if (!t) return bt_fail_sys(err, ENOMEM, "heap", "cannot make the reading thread");
    t->reader = reader;
    /* With default attributes these three allocate nothing and cannot fail on the systems we know. */
    (void)pthread_mutex_init(&t->lock, NULL);
    (void)pthread_cond_init(&t->work, NULL);
    (void)pthread_cond_init(&t->done, NULL);
    int sys = start_thread(t);
    if (sys != 0) {
        twin_free(t);
        return bt_fail_sys(err, sys, "thread_refused", "cannot start the reading thread");
    }
    reader->backend = &twin_backend;
    reader->self = t;
    return BT_OK;
}
