/* SPDX-License-Identifier: MIT
 * reader.c: the queue of the reader: jobs, their runs, and what a result means.
 *
 *     start:   job -> run -> run           queue: job 3 -> job 5 -> job 6
 *     take:    the first job's first run gives a request of request_bytes
 *     finish:  short -> the rest again; error -> the job fails, the others go on; zero -> the file was cut
 *
 * Everything is allocated at open. Bounds: max_jobs jobs, and 256 + 8 * max_jobs runs over all of them: a job of the
 * largest size can always be started on an idle reader, and units have a few runs each (tensors of a unit mostly lie
 * side by side in a file), so that the job table is what fills up first in practice. What does not fit is refused with
 * BT_E_LIMIT, code "reader_full"; waiting for a job makes room.
 *
 * The end of a file: a run may pass it by less than a page, since direct reads come in pages. A read is complete when
 * it reached the end the file had when it was opened; the rest of the page becomes zero. In a file that can only be
 * read through the page cache, the cache is dropped behind each run: streamed data comes again only after everything
 * else did, by when the cache would have evicted it anyway, at the price of what others had there. Who knows that there
 * is room for all of it says so (bt_reader_set_cached). */
#include "store/reader.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"
#include "store/reader_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define RUNS_PER_JOB_MAX 256u /* reader.h */
#define RUNS_PER_JOB     8u
#define JOB_MAX          1024u       /* a handle is generation * JOB_MAX + index */
#define GENERATION_MAX   (1u << 20)  /* so that a handle stays a positive int */
#define DEPTH_MAX        256u        /* NVMe drives stop gaining long before (docs/design.md M8: 8) */
#define REQUEST_MAX      (64u << 20) /* io_uring results are 32-bit, and one request is not interruptible */
/* Results without a byte that may come in a row (EINTR, EAGAIN) before they count as an error: far more than a device
 * that works gives, and an end for one that does not. */
#define RETRY_MAX 100u

static bt_reader_params with_defaults(const bt_reader_params *params) {
    bt_reader_params p = params ? *params : (bt_reader_params){0};
    if (p.depth == 0) p.depth = 8;
    if (p.request_bytes == 0) p.request_bytes = 1u << 20;
    if (p.max_jobs == 0) p.max_jobs = 64;
    return p;
}

static bt_status open_backend(bt_reader *reader, bt_error *err) {
    bt_reader_kind kind = reader->params.kind;
    if (kind == BT_READER_PREAD) return bt_reader_pread_open(reader, err);
    if (kind == BT_READER_URING) return bt_reader_uring_open(reader, err);
    /* Refused by a seccomp filter (EPERM), not in the kernel (ENOSYS), over RLIMIT_MEMLOCK (ENOMEM), ...: the twin
     * reads the same bytes, so every reason is good enough. */
    bt_error why = {0};
    if (bt_reader_uring_open(reader, &why) == BT_OK) return BT_OK;
    (void)snprintf(reader->reason, sizeof reader->reason, "%.*s", (int)sizeof reader->reason - 1, why.text);
    return bt_reader_pread_open(reader, err);
}

static void chain_free(bt_reader *reader) {
    reader->first_job = reader->last_job = BT_READER_NONE;
    for (uint32_t i = 0; i < reader->params.max_jobs; i++) {
        reader->jobs[i].next = i + 1 < reader->params.max_jobs ? i + 1 : BT_READER_NONE;
    }
    for (uint32_t i = 0; i < reader->n_runs; i++) {
        reader->runs[i].next = i + 1 < reader->n_runs ? i + 1 : BT_READER_NONE;
    }
}

bt_status bt_reader_open(const bt_store *store, const bt_reader_params *params, bt_reader **ret_reader, bt_error *err) {
    bt_reader_params p = with_defaults(params);
    if (p.depth > DEPTH_MAX || p.max_jobs > JOB_MAX || p.request_bytes % BT_PAGE_BYTES != 0 ||
        p.request_bytes > REQUEST_MAX) {
        return bt_fail(err, BT_E_ARG, "reader_params", BT_MEASURE_NONE, 0, 0,
                       "a reader of depth %u, %u bytes a request and %u jobs; at most %u, %u in pages, and %u can be",
                       p.depth, p.request_bytes, p.max_jobs, DEPTH_MAX, REQUEST_MAX, JOB_MAX);
    }
    bt_reader *reader = bt_heap_alloc(sizeof *reader);
    if (!reader) return bt_fail_sys(err, ENOMEM, "heap", "cannot make a reader");
    reader->store = store;
    reader->params = p;
    reader->n_runs = RUNS_PER_JOB_MAX + RUNS_PER_JOB * p.max_jobs;
    reader->jobs = bt_heap_array(p.max_jobs, sizeof *reader->jobs);
    reader->runs = bt_heap_array(reader->n_runs, sizeof *reader->runs);
    bt_status status = BT_OK;
    if (!reader->jobs || !reader->runs) {
        status = bt_fail_sys(err, ENOMEM, "heap", "cannot make a reader");
    } else {
        chain_free(reader);
        status = open_backend(reader, err);
    }
    if (status != BT_OK) {
        bt_heap_free(reader->runs);
        bt_heap_free(reader->jobs);
        bt_heap_free(reader);
        return status;
    }
    *ret_reader = reader;
    return BT_OK;
}

bt_reader_kind bt_reader_kind_of(const bt_reader *reader) {
    return reader->backend->kind;
}

const char *bt_reader_reason(const bt_reader *reader) {
    return reader->reason;
}

/* ---- the queue, under the backend's lock ------------------------------------------------------------------------- */

static void free_run(bt_reader *reader, uint32_t at) {
    bt_reader_run *run = &reader->runs[at];
    if (!reader->store->files[run->run.file].direct && !reader->cached) {
        /* Advice: when it fails, more stays cached than has to. */
        const bt_store_file *file = &reader->store->files[run->run.file];
        (void)bt_os_drop_file_cache(file->fd, run->run.offset, run->run.bytes);
    }
    run->next = reader->free_run;
    reader->free_run = at;
}

static void leave_queue(bt_reader *reader, uint32_t at) {
    uint32_t before = BT_READER_NONE;
    for (uint32_t i = reader->first_job; i != BT_READER_NONE; i = reader->jobs[i].next) {
        if (i == at) {
            uint32_t after = reader->jobs[at].next;
            if (before == BT_READER_NONE)
                reader->first_job = after;
            else
                reader->jobs[before].next = after;
            if (reader->last_job == at) reader->last_job = before;
            return;
        }
        before = i;
    }
}

/* Hand out nothing more of a job. */
static void stop_job(bt_reader *reader, uint32_t at) {
    bt_reader_job *job = &reader->jobs[at];
    if (job->first_run == BT_READER_NONE) return;
    leave_queue(reader, at);
    while (job->first_run != BT_READER_NONE) {
        uint32_t i = job->first_run;
        bt_reader_run *run = &reader->runs[i];
        job->first_run = run->next;
        run->taken_bytes = run->run.bytes; /* if part of it is in flight, the last of that frees it */
        if (run->n_in_flight == 0) free_run(reader, i);
    }
}

static bool is_over(const bt_reader_job *job) {
    return job->first_run == BT_READER_NONE && job->n_in_flight == 0;
}

bool bt_reader_take(bt_reader *reader, bt_reader_request *ret) {
    uint32_t at = reader->first_job;
    if (at == BT_READER_NONE) return false;
    bt_reader_job *job = &reader->jobs[at];
    uint32_t i = job->first_run;
    bt_reader_run *run = &reader->runs[i];
    uint64_t bytes = bt_min_u64(run->run.bytes - run->taken_bytes, reader->params.request_bytes);
    *ret = (bt_reader_request){
        .job = at,
        .run = i,
        .file = run->run.file,
        .offset = run->run.offset + run->taken_bytes,
        .bytes = bytes,
        .dest = (uint8_t *)run->run.dest + run->taken_bytes,
        .cached = reader->cached,
    };
    run->taken_bytes += bytes;
    run->n_in_flight++;
    job->n_in_flight++;
    if (reader->n_in_flight++ == 0) reader->busy_since_ns = bt_os_now_ns();
    reader->stats.requests++;
    if (run->taken_bytes == run->run.bytes) {
        job->first_run = run->next;
        if (job->first_run == BT_READER_NONE) leave_queue(reader, at);
    }
    return true;
}

int bt_reader_fd(const bt_reader *reader, const bt_reader_request *request) {
    const bt_store_file *file = &reader->store->files[request->file];
    return request->cached ? file->buffered_fd : file->fd;
}

uint32_t bt_reader_fd_at(const bt_reader *reader, const bt_reader_request *request) {
    return request->file + (request->cached ? reader->store->n_files : 0);
}

static void count(bt_reader *reader, const bt_reader_request *request, uint64_t bytes) {
    reader->stats.read_bytes += bytes;
    if (request->cached) reader->stats.cached_bytes += bytes;
}

/* The request is no longer in flight. */
static void retire(bt_reader *reader, const bt_reader_request *request) {
    bt_reader_run *run = &reader->runs[request->run];
    run->n_in_flight--;
    reader->jobs[request->job].n_in_flight--;
    if (--reader->n_in_flight == 0) reader->stats.busy_ns += bt_os_now_ns() - reader->busy_since_ns;
    if (run->n_in_flight == 0 && run->taken_bytes == run->run.bytes) free_run(reader, request->run);
}

static void fail_job(bt_reader *reader, const bt_reader_request *request, int sys, uint64_t expected, uint64_t got) {
    bt_reader_job *job = &reader->jobs[request->job];
    if (!job->failed) { /* the first failure is the cause */
        job->failed = true;
        job->failure = (bt_reader_failure){
            .sys = sys, .file = request->file, .offset = request->offset, .expected_bytes = expected, .got_bytes = got};
    }
    stop_job(reader, request->job);
    retire(reader, request);
}

bool bt_reader_finish(bt_reader *reader, bt_reader_request *request, int64_t result) {
    const bt_store_file *file = &reader->store->files[request->file];
    uint64_t expected = bt_min_u64(request->bytes, file->file_bytes - request->offset);
    bool stopped = reader->jobs[request->job].failed || !reader->jobs[request->job].live;
    if (result == -EINTR || result == -EAGAIN) {
        if (stopped) {
            retire(reader, request);
            return false;
        }
        if (request->n_retries++ < RETRY_MAX) return true;
    }
    if (result < 0) {
        fail_job(reader, request, (int)-result, expected, 0);
        return false;
    }
    uint64_t got = bt_min_u64((uint64_t)result, request->bytes);
    if (got >= expected) {
        memset(request->dest + got, 0, request->bytes - got);
        count(reader, request, got);
        retire(reader, request);
        return false;
    }
    /* Direct reads go on at a page. Less than one page means what zero does: the file ends here now. */
    uint64_t kept = file->direct && !request->cached ? got / BT_PAGE_BYTES * BT_PAGE_BYTES : got;
    if (kept == 0) {
        fail_job(reader, request, 0, expected, got);
        return false;
    }
    count(reader, request, kept);
    if (stopped) {
        retire(reader, request);
        return false;
    }
    request->n_retries = 0;
    request->offset += kept;
    request->dest += kept;
    request->bytes -= kept;
    return true;
}

/* ---- what the caller sees ---------------------------------------------------------------------------------------- */

static bt_status check_runs(const bt_reader *reader, const bt_run *runs, uint32_t n_runs, bt_error *err) {
    if (n_runs > RUNS_PER_JOB_MAX) {
        return bt_fail(err, BT_E_LIMIT, "reader_runs", BT_MEASURE_ITEMS, n_runs, RUNS_PER_JOB_MAX,
                       "a read job of %u runs; %u can be", n_runs, RUNS_PER_JOB_MAX);
    }
    for (uint32_t i = 0; i < n_runs; i++) {
        const bt_run *run = &runs[i];
        uint64_t file_end = 0;
        uint64_t end = 0;
        bool good = run->file < reader->store->n_files && run->offset % BT_PAGE_BYTES == 0 &&
                    run->bytes % BT_PAGE_BYTES == 0 && run->bytes > 0 && (uintptr_t)run->dest % BT_PAGE_BYTES == 0 &&
                    bt_align_up_u64(reader->store->files[run->file].file_bytes, BT_PAGE_BYTES, &file_end) &&
                    bt_add_u64(run->offset, run->bytes, &end) && end <= file_end;
        if (!good) {
            return bt_fail(err, BT_E_ARG, "reader_run", BT_MEASURE_NONE, 0, 0,
                           "run %u of a read job (file %u, %llu bytes at offset %llu) is not of whole pages in a file",
                           i, run->file, (unsigned long long)run->bytes, (unsigned long long)run->offset);
        }
    }
    return BT_OK;
}

/* Under the lock: is there room for a job of n_runs? */
static bool has_room(const bt_reader *reader, uint32_t n_runs) {
    uint32_t n = 0;
    for (uint32_t i = reader->free_run; i != BT_READER_NONE && n < n_runs; i = reader->runs[i].next) {
        n++;
    }
    return n == n_runs && reader->free_job != BT_READER_NONE;
}

/* Under the lock. */
static void join_queue(bt_reader *reader, uint32_t at, bool first) {
    if (first) reader->jobs[at].next = reader->first_job;
    if (reader->last_job == BT_READER_NONE)
        reader->first_job = reader->last_job = at;
    else if (first)
        reader->first_job = at;
    else {
        reader->jobs[reader->last_job].next = at;
        reader->last_job = at;
    }
}

/* Under the lock, after has_room. */
static uint32_t enqueue(bt_reader *reader, const bt_run *runs, uint32_t n_runs, bool first) {
    uint32_t at = reader->free_job;
    bt_reader_job *job = &reader->jobs[at];
    reader->free_job = job->next;
    uint32_t generation = (job->generation + 1) % GENERATION_MAX;
    *job = (bt_reader_job){.live = true, .generation = generation, .first_run = BT_READER_NONE, .next = BT_READER_NONE};
    for (uint32_t i = n_runs; i > 0; i--) {
        uint32_t r = reader->free_run;
        reader->free_run = reader->runs[r].next;
        reader->runs[r] = (bt_reader_run){.run = runs[i - 1], .next = job->first_run};
        job->first_run = r;
    }
    if (n_runs > 0) join_queue(reader, at, first);
    return at;
}

static bt_status start(bt_reader *reader, const bt_run *runs, uint32_t n_runs, bool first, int *ret_job,
                       bt_error *err) {
    BT_TRY(check_runs(reader, runs, n_runs, err));
    reader->backend->lock(reader->self);
    bool room = has_room(reader, n_runs);
    if (room) {
        uint32_t at = enqueue(reader, runs, n_runs, first);
        *ret_job = (int)(reader->jobs[at].generation * JOB_MAX + at);
        reader->backend->advance(reader->self);
    }
    reader->backend->unlock(reader->self);
    if (room) return BT_OK;
    return bt_fail(err, BT_E_LIMIT, "reader_full", BT_MEASURE_ITEMS, n_runs, reader->n_runs,
                   "the reader is full: %u jobs and %u runs can be under way", reader->params.max_jobs, reader->n_runs);
}

void bt_reader_set_cached(bt_reader *reader, bool cached) {
    reader->backend->lock(reader->self);
    reader->cached = cached;
    reader->backend->unlock(reader->self);
}

bt_status bt_reader_start(bt_reader *reader, const bt_run *runs, uint32_t n_runs, int *ret_job, bt_error *err) {
    return start(reader, runs, n_runs, false, ret_job, err);
}

bt_status bt_reader_start_first(bt_reader *reader, const bt_run *runs, uint32_t n_runs, int *ret_job, bt_error *err) {
    return start(reader, runs, n_runs, true, ret_job, err);
}

/* Under the lock: the live job of a handle, or NULL. */
static bt_reader_job *find_job(bt_reader *reader, int handle, uint32_t *ret_at) {
    if (handle < 0) return NULL;
    uint32_t at = (uint32_t)handle % JOB_MAX;
    if (at >= reader->params.max_jobs) return NULL;
    bt_reader_job *job = &reader->jobs[at];
    *ret_at = at;
    return job->live && job->generation == (uint32_t)handle / JOB_MAX ? job : NULL;
}

/* Under the lock, when the job is over. */
static void free_job(bt_reader *reader, uint32_t at) {
    bt_reader_job *job = &reader->jobs[at];
    job->live = false;
    job->next = reader->free_job;
    reader->free_job = at;
}

static bt_status failure_status(const bt_reader *reader, const bt_reader_failure *failure, bt_error *err) {
    const char *path = reader->store->files[failure->file].path;
    if (failure->sys != 0) {
        (void)bt_fail_sys(err, failure->sys, "read_failed", "cannot read %s, %llu bytes at offset %llu", path,
                          (unsigned long long)failure->expected_bytes, (unsigned long long)failure->offset);
        if (err) err->status = BT_E_IO; /* ENOMEM of a read is one more way in which a disk fails us */
        return BT_E_IO;
    }
    return bt_fail(err, BT_E_IO, "read_short", BT_MEASURE_BYTES, failure->expected_bytes, failure->got_bytes,
                   "%s ends too early: %llu bytes at offset %llu were expected, %llu came; was it cut since it was "
                   "opened?",
                   path, (unsigned long long)failure->expected_bytes, (unsigned long long)failure->offset,
                   (unsigned long long)failure->got_bytes);
}

bt_status bt_reader_wait(bt_reader *reader, int job, bt_error *err) {
    uint32_t at = 0;
    reader->backend->lock(reader->self);
    bt_reader_job *found = find_job(reader, job, &at);
    bt_reader_failure failure = {0};
    bool failed = false;
    if (found) {
        if (!is_over(found)) reader->backend->advance(reader->self);
        if (!is_over(found)) {
            uint64_t since_ns = bt_os_now_ns();
            while (!is_over(found)) {
                reader->backend->wait(reader->self);
            }
            reader->stats.wait_ns += bt_os_now_ns() - since_ns;
        }
        failed = found->failed;
        failure = found->failure;
        free_job(reader, at);
    }
    reader->backend->unlock(reader->self);
    if (!found) {
        return bt_fail(err, BT_E_ARG, "reader_job", BT_MEASURE_NONE, 0, 0, "there is no read job %d", job);
    }
    return failed ? failure_status(reader, &failure, err) : BT_OK;
}

void bt_reader_poll(bt_reader *reader) {
    reader->backend->lock(reader->self);
    reader->backend->advance(reader->self);
    reader->backend->unlock(reader->self);
}

bool bt_reader_is_done(bt_reader *reader, int job) {
    uint32_t at = 0;
    reader->backend->lock(reader->self);
    reader->backend->advance(reader->self);
    const bt_reader_job *found = find_job(reader, job, &at);
    bool done = !found || is_over(found);
    reader->backend->unlock(reader->self);
    return done;
}

/* Under the lock. */
static void cancel_job(bt_reader *reader, uint32_t at) {
    bt_reader_job *found = &reader->jobs[at];
    stop_job(reader, at);
    found->failed = true; /* short results in flight are not read on; its failure is never asked for */
    while (!is_over(found)) {
        reader->backend->wait(reader->self);
    }
    free_job(reader, at);
}

void bt_reader_cancel(bt_reader *reader, int job) {
    uint32_t at = 0;
    reader->backend->lock(reader->self);
    if (find_job(reader, job, &at)) cancel_job(reader, at);
    reader->backend->unlock(reader->self);
}

void bt_reader_stats_read(const bt_reader *reader, bt_reader_stats *ret) {
    reader->backend->lock(reader->self);
    *ret = reader->stats;
    reader->backend->unlock(reader->self);
}

void bt_reader_close(bt_reader *reader) {
    if (!reader) return;
    reader->backend->lock(reader->self);
    for (uint32_t i = 0; i < reader->params.max_jobs; i++) {
        if (reader->jobs[i].live) stop_job(reader, i); /* all first, so that none is read only to be forgotten */
    }
    for (uint32_t i = 0; i < reader->params.max_jobs; i++) {
        if (reader->jobs[i].live) cancel_job(reader, i);
    }
    reader->backend->unlock(reader->self);
    reader->backend->close(reader->self);
    bt_heap_free(reader->runs);
    bt_heap_free(reader->jobs);
    bt_heap_free(reader);
}
