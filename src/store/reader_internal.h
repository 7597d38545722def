/* SPDX-License-Identifier: MIT
 * reader_internal.h: what the files of the reader share. Not seen outside src/store.
 *
 * reader.c keeps the queue: which request is next, what a result means, when a job is done. A backend moves requests:
 * it takes the next one, has it read, and hands the result back. All of the queue is touched under the backend's lock
 * (io_uring needs none: everything happens on the caller's thread). */
#pragma once

#include "store/reader.h"

#define BT_READER_NONE UINT32_MAX

/* One read in flight: what is left of one request of a run. Owned by a backend. */
typedef struct bt_reader_request {
    uint32_t job, run;
    uint32_t file;
    uint32_t n_retries; /* in a row, without a byte */
    bool cached;        /* through the page cache */
    uint64_t offset;
    uint64_t bytes; /* to ask for */
    uint8_t *dest;
} bt_reader_request;

/* A run of a job, and how much of it is under way. */
typedef struct bt_reader_run {
    bt_run run;
    uint64_t taken_bytes; /* handed out as requests */
    uint32_t n_in_flight; /* requests */
    uint32_t next;        /* of the job, or of the free list */
} bt_reader_run;

/* Why a job failed, kept small: the sentence is made when it is asked for. */
typedef struct bt_reader_failure {
    int sys; /* errno; 0: the file ended too early */
    uint32_t file;
    uint64_t offset, expected_bytes, got_bytes;
} bt_reader_failure;

typedef struct bt_reader_job {
    bool live, failed;
    uint32_t generation;  /* so that a handle of a former job is noticed */
    uint32_t first_run;   /* of those not wholly handed out */
    uint32_t n_in_flight; /* requests */
    uint32_t next;        /* in the queue, or in the free list */
    bt_reader_failure failure;
} bt_reader_job;

typedef struct bt_reader_backend {
    bt_reader_kind kind;
    void (*close)(void *self); /* nothing is in flight */
    void (*lock)(void *self);
    void (*unlock)(void *self);
    void (*advance)(void *self); /* submit what fits, hand back what is done; never waits */
    void (*wait)(void *self);    /* until at least one result was handed back; something must be in flight or queued */
} bt_reader_backend;

struct bt_reader {
    const bt_store *store;
    bt_reader_params params; /* with the defaults filled in */
    const bt_reader_backend *backend;
    void *self;          /* the backend's */
    char reason[160];    /* why AUTO did not take io_uring, else empty */
    bt_reader_job *jobs; /* [params.max_jobs] */
    bt_reader_run *runs; /* [n_runs] */
    uint32_t n_runs;
    uint32_t free_job, free_run;
    uint32_t first_job, last_job; /* jobs with runs not wholly handed out, in order of their start */
    uint32_t n_in_flight;
    bool cached; /* requests from now on */
    uint64_t busy_since_ns;
    bt_reader_stats stats;
};

/* The next request, counted as in flight; false when there is none. */
bool bt_reader_take(bt_reader *reader, bt_reader_request *ret);
/* Where a request is read from: the descriptor, and its place in a table of first all as they were opened and then all
 * that are buffered. */
int bt_reader_fd(const bt_reader *reader, const bt_reader_request *request);
uint32_t bt_reader_fd_at(const bt_reader *reader, const bt_reader_request *request);
/* result: bytes read, or minus an errno. true: the request is to be read again as it now stands; false: it is over. */
bool bt_reader_finish(bt_reader *reader, bt_reader_request *request, int64_t result);

bt_status bt_reader_uring_open(bt_reader *reader, bt_error *err);
bt_status bt_reader_pread_open(bt_reader *reader, bt_error *err);
