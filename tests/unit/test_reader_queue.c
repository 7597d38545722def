/* SPDX-License-Identifier: MIT
 * test_reader_queue.c: what the queue makes of results that a disk rarely gives: short reads in the middle, EINTR and
 * EAGAIN, errors while other requests of the job are in flight. The backend here gives the results it is told to. */
#include "base/heap.h"
#include "store/reader_internal.h"
#include "store_kit.h"

#include <errno.h>
#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define PAGE     ((uint64_t)BT_PAGE_BYTES)
#define N_PAGES  8u
#define DEPTH    2u
#define N_SCRIPT 256u

static alignas(BT_PAGE_BYTES) uint8_t mem[N_PAGES * BT_PAGE_BYTES];
static uint8_t content[N_PAGES * BT_PAGE_BYTES];

/* Results in order: bytes at most, or minus an errno; INT64_MAX: as much as is asked for. After the last, that. */
typedef struct scripted {
    bt_reader *reader;
    bt_reader_request requests[DEPTH];
    bool used[DEPTH];
    int64_t results[N_SCRIPT];
    uint32_t n_results, at;
    uint64_t offsets[N_SCRIPT], sizes[N_SCRIPT]; /* of what was read, in order */
    uint32_t n_reads;
} scripted;

static void nothing(void *self) {
    (void)self;
}

static void advance(void *self) {
    scripted *s = self;
    for (uint32_t i = 0; i < DEPTH; i++) {
        if (!s->used[i]) s->used[i] = bt_reader_take(s->reader, &s->requests[i]);
    }
}

/* One result, for the request that was taken first in the table. */
static void wait_one(void *self) {
    scripted *s = self;
    advance(s);
    for (uint32_t i = 0; i < DEPTH; i++) {
        if (!s->used[i]) continue;
        bt_reader_request *r = &s->requests[i];
        int64_t result = s->at < s->n_results ? s->results[s->at++] : INT64_MAX;
        uint64_t file_left = s->reader->store->files[r->file].file_bytes - r->offset;
        if (result > (int64_t)file_left) result = (int64_t)file_left;
        if (result > (int64_t)r->bytes) result = (int64_t)r->bytes;
        if (result > 0) memcpy(r->dest, content + r->offset, (size_t)result);
        assert_true(s->n_reads < N_SCRIPT);
        s->offsets[s->n_reads] = r->offset;
        s->sizes[s->n_reads++] = r->bytes;
        s->used[i] = bt_reader_finish(s->reader, r, result);
        return;
    }
    fail_msg("waiting with nothing in flight");
}

static const bt_reader_backend scripted_backend = {
    .kind = BT_READER_PREAD,
    .close = nothing,
    .lock = nothing,
    .unlock = nothing,
    .advance = advance,
    .wait = wait_one,
};

typedef struct fixture {
    bt_store_file file;
    bt_store store;
    scripted s;
    bt_reader *reader;
} fixture;

static void open_fixture(fixture *f, bool direct, uint64_t file_bytes, uint32_t request_pages) {
    memset(f, 0, sizeof *f);
    uint64_t seed = 3;
    for (uint64_t i = 0; i < sizeof content; i++) {
        content[i] = (uint8_t)(1 + kit_below(&seed, 255));
    }
    memset(content + file_bytes, 0, sizeof content - file_bytes);
    memset(mem, 0xA5, sizeof mem);
    f->file =
        (bt_store_file){.fd = -1, .buffered_fd = -1, .direct = direct, .file_bytes = file_bytes, .path = "m.gguf"};
    f->store = (bt_store){.files = &f->file, .n_files = 1, .direct = direct};
    bt_reader *reader = bt_heap_alloc(sizeof *reader);
    assert_non_null(reader);
    reader->store = &f->store;
    reader->params = (bt_reader_params){.request_bytes = request_pages * BT_PAGE_BYTES, .max_jobs = 2, .depth = DEPTH};
    reader->jobs = bt_heap_array(2, sizeof *reader->jobs);
    reader->runs = bt_heap_array(3, sizeof *reader->runs);
    assert_true(reader->jobs && reader->runs);
    reader->n_runs = 3;
    reader->jobs[0].next = 1;
    reader->jobs[1].next = BT_READER_NONE;
    reader->runs[0].next = 1;
    reader->runs[1].next = 2;
    reader->runs[2].next = BT_READER_NONE;
    reader->first_job = reader->last_job = BT_READER_NONE;
    reader->backend = &scripted_backend;
    reader->self = &f->s;
    f->s.reader = reader;
    f->reader = reader;
}

static void script(fixture *f, const int64_t *results, uint32_t n) {
    memcpy(f->s.results, results, n * sizeof *results);
    f->s.n_results = n;
}

static bt_status read_pages(fixture *f, uint64_t n_pages, bt_error *err) {
    bt_run run = {.bytes = n_pages * PAGE, .dest = mem};
    int job = -1;
    assert_int_equal(bt_reader_start(f->reader, &run, 1, &job, err), BT_OK);
    return bt_reader_wait(f->reader, job, err);
}

/* All jobs and runs are free again: the largest job can be started. */
static void expect_usable(fixture *f) {
    bt_run runs[3] = {{.bytes = PAGE, .dest = mem},
                      {.offset = PAGE, .bytes = PAGE, .dest = mem + PAGE},
                      {.offset = 2 * PAGE, .bytes = PAGE, .dest = mem + 2 * PAGE}};
    int job = -1;
    f->s.n_results = f->s.at = 0;
    memset(mem, 0, sizeof mem);
    assert_int_equal(bt_reader_start(f->reader, runs, 3, &job, NULL), BT_OK);
    assert_int_equal(bt_reader_wait(f->reader, job, NULL), BT_OK);
    assert_memory_equal(mem, content, 3 * PAGE);
    bt_reader_close(f->reader);
}

static void test_short_in_the_middle_direct(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, true, 8 * PAGE - 5, 4);
    /* 1 page and a bit of 4: goes on at the page; then 2; then the rest; the second request (in flight too) comes whole
     */
    static const int64_t results[] = {4096 + 17, 8192, INT64_MAX, INT64_MAX};
    script(&f, results, 4);
    assert_int_equal(read_pages(&f, 8, NULL), BT_OK);
    assert_memory_equal(mem, content, sizeof mem);
    assert_int_equal(f.s.n_reads, 4);
    assert_int_equal(f.s.offsets[1], PAGE);
    assert_int_equal(f.s.sizes[1], 3 * PAGE);
    assert_int_equal(f.s.offsets[2], 3 * PAGE);
    assert_int_equal(f.s.sizes[2], PAGE);
    bt_reader_stats stats;
    bt_reader_stats_read(f.reader, &stats);
    assert_int_equal(stats.read_bytes, 8 * PAGE - 5);
    assert_int_equal(stats.requests, 2);
    expect_usable(&f);
}

static void test_short_in_the_middle_buffered(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, false, 8 * PAGE - 5, 8);
    static const int64_t results[] = {17, 1, 4096, INT64_MAX};
    script(&f, results, 4);
    assert_int_equal(read_pages(&f, 8, NULL), BT_OK);
    assert_memory_equal(mem, content, sizeof mem);
    assert_int_equal(f.s.n_reads, 4);
    assert_int_equal(f.s.offsets[1], 17);
    assert_int_equal(f.s.offsets[2], 18);
    assert_int_equal(f.s.offsets[3], 18 + 4096);
    expect_usable(&f);
}

static void test_less_than_a_page_direct_is_the_end(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, true, 8 * PAGE, 8);
    static const int64_t results[] = {2 * 4096 + 100, 100};
    script(&f, results, 2);
    bt_error err = {0};
    assert_int_equal(read_pages(&f, 8, &err), BT_E_IO);
    assert_string_equal(err.code, "read_short");
    assert_int_equal(err.need, 6 * PAGE);
    assert_int_equal(err.have, 100);
    assert_string_equal(err.text,
                        "m.gguf ends too early: 24576 bytes at offset 8192 were expected, 100 came; was it cut "
                        "since it was opened?");
    expect_usable(&f);
}

static void test_interrupted(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, true, 8 * PAGE, 8);
    static const int64_t results[] = {-EINTR, -EAGAIN, 4096, -EAGAIN, INT64_MAX};
    script(&f, results, 5);
    assert_int_equal(read_pages(&f, 8, NULL), BT_OK);
    assert_memory_equal(mem, content, sizeof mem);
    assert_int_equal(f.s.n_reads, 5);
    expect_usable(&f);
}

static void test_interrupted_without_end(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, true, 8 * PAGE, 8);
    int64_t results[200];
    for (uint32_t i = 0; i < 200; i++) {
        results[i] = -EAGAIN;
    }
    script(&f, results, 200);
    bt_error err = {0};
    assert_int_equal(read_pages(&f, 8, &err), BT_E_IO);
    assert_string_equal(err.code, "read_failed");
    assert_int_equal(err.sys, EAGAIN);
    assert_int_equal(f.s.n_reads, 101);
    f.s.n_reads = 0;
    expect_usable(&f);
}

static void test_first_error_wins(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, true, 8 * PAGE, 1);
    static const int64_t results[] = {INT64_MAX, -ENOMEM, -EIO};
    script(&f, results, 3);
    bt_error err = {0};
    assert_int_equal(read_pages(&f, 8, &err), BT_E_IO);
    assert_int_equal(err.status, BT_E_IO);
    assert_int_equal(err.sys, ENOMEM);
    assert_string_equal(err.code, "read_failed");
    assert_non_null(strstr(err.text, "cannot read m.gguf, 4096 bytes at offset 8192: "));
    assert_int_equal(f.s.n_reads, 3); /* the one that was in flight came back; nothing more went out */
    expect_usable(&f);
}

static void test_short_after_cancel_is_not_read_on(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, true, 8 * PAGE, 2);
    static const int64_t results[] = {4096, -EINTR};
    script(&f, results, 2);
    bt_run run = {.bytes = 8 * PAGE, .dest = mem};
    int job = -1;
    assert_int_equal(bt_reader_start(f.reader, &run, 1, &job, NULL), BT_OK);
    bt_reader_cancel(f.reader, job);
    assert_int_equal(f.s.n_reads, 2);
    expect_usable(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_in_the_middle_direct),
        cmocka_unit_test(test_short_in_the_middle_buffered),
        cmocka_unit_test(test_less_than_a_page_direct_is_the_end),
        cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_interrupted_without_end),
        cmocka_unit_test(test_first_error_wins),
        cmocka_unit_test(test_short_after_cancel_is_not_read_on),
    };
    return cmocka_run_group_tests_name("reader_queue", tests, NULL, NULL);
}
