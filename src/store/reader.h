/* SPDX-License-Identifier: MIT
 * reader.h: many large reads in flight, without a thread of its own where the kernel allows (io_uring).
 *
 * A job is a list of page-aligned runs read into one place. Jobs are started in order and finish in any order; the
 * reader splits runs into requests of request_bytes and keeps at most depth of them in flight, over all jobs.
 * Waiting for a job drives all the others. The twin (pread on one thread of ours) has the same interface and serves
 * where io_uring is refused. A short read before the file's end, a truncated file, EIO: the job fails with the file and
 * offset in the error, the others go on, and the reader stays usable.
 *
 * Not thread-safe: one thread at a time drives a reader. */
#pragma once

#include "burthen.h"
#include "store/file.h"

typedef struct bt_reader bt_reader;

typedef enum bt_reader_kind { BT_READER_AUTO, BT_READER_URING, BT_READER_PREAD } bt_reader_kind;

typedef struct bt_reader_params {
    bt_reader_kind kind;    /* AUTO: io_uring, else pread */
    uint32_t depth;         /* requests in flight; 0 = 8 (docs/design.md M8) */
    uint32_t request_bytes; /* multiple of BT_PAGE_BYTES; 0 = 1 MiB */
    uint32_t max_jobs;      /* jobs at once; 0 = 64 */
} bt_reader_params;

typedef struct bt_run {
    uint32_t file;   /* index in the store */
    uint64_t offset; /* multiple of BT_PAGE_BYTES */
    uint64_t bytes;  /* multiple of BT_PAGE_BYTES; may pass the file's end by less than a page */
    void *dest;      /* page aligned */
} bt_run;

typedef struct bt_reader_stats {
    uint64_t read_bytes, requests;
    uint64_t cached_bytes; /* of read_bytes, through the page cache */
    uint64_t wait_ns;      /* time spent waiting inside bt_reader_wait */
    uint64_t busy_ns;      /* time during which at least one request was in flight */
} bt_reader_stats;

BT_MUST_CHECK bt_status bt_reader_open(const bt_store *store, const bt_reader_params *params, bt_reader **ret_reader,
                                       bt_error *err);
void bt_reader_close(bt_reader *reader); /* waits for what is in flight; NULL is fine */
bt_reader_kind bt_reader_kind_of(const bt_reader *reader);
/* Why AUTO did not take io_uring; "" where it did, or was not asked. */
const char *bt_reader_reason(const bt_reader *reader);
/* From now on requests go through the page cache, which may keep what they read; false: as the store was opened, and
 * what a buffered file leaves there is dropped. What is in flight stays as it is. */
void bt_reader_set_cached(bt_reader *reader, bool cached);
/* Queue a job: runs are copied (at most 256 of them). *ret_job is a handle >= 0 until waited for or cancelled. */
BT_MUST_CHECK bt_status bt_reader_start(bt_reader *reader, const bt_run *runs, uint32_t n_runs, int *ret_job,
                                        bt_error *err);
/* The same, before all that was not handed to the system yet: somebody waits for it. */
BT_MUST_CHECK bt_status bt_reader_start_first(bt_reader *reader, const bt_run *runs, uint32_t n_runs, int *ret_job,
                                              bt_error *err);
/* Wait until the job is done, give its handle back. */
BT_MUST_CHECK bt_status bt_reader_wait(bt_reader *reader, int job, bt_error *err);
/* Reap what is done and submit what fits, without waiting. */
void bt_reader_poll(bt_reader *reader);
bool bt_reader_is_done(bt_reader *reader, int job);
/* Nothing more of the job is submitted; returns when nothing of it is in flight, so its memory may be reused. */
void bt_reader_cancel(bt_reader *reader, int job);
void bt_reader_stats_read(const bt_reader *reader, bt_reader_stats *ret);
