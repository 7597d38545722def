/* SPDX-License-Identifier: MIT
 *
 * disk_speed.c: a disk tried out: a few ways to read, in turns.
 *
 *     round 1:  32 x 1 MiB | 8 x 1 MiB | 64 x 512 KiB | ...      each reads on where the one before it stopped
 *     round 2:  32 x 1 MiB | 8 x 1 MiB | ...
 *     round 3:  ...                                               the median of a way's rounds counts
 *
 * The first way is how the reader reads anyway. It was found on the reference machine and is right for most disks, so
 * another one must beat it by more than such short trials differ. The others are there for those that it is wrong for:
 * disks that rotate and networks like few and large requests, arrays many. A trial is TRIAL_NS long, as far as a first
 * look can say, so that a slow disk is read little of. All requests go into one small buffer, over each other: the
 * bound is that buffer, in a process that may run under a limit. */
#include "store/disk_speed.h"

#include "base/error.h"
#include "base/os.h"
#include "base/size.h"

#include <stdlib.h>

#define N_ROUNDS        3u
#define TRIAL_NS        UINT64_C(40000000)  /* 50 MB at 1.3 GB/s: a queue of 32 MiB is filled and emptied */
#define TRIAL_MIN_BYTES (UINT64_C(8) << 20) /* two of the largest requests, at the least */
#define TRIAL_MAX_BYTES (UINT64_C(256) << 20)
#define LOOK_BYTES      BT_DISK_SPEED_FILE_MIN_BYTES /* before the first round; it also wakes a disk that sleeps */
#define LIMIT_NS        UINT64_C(3000000000)         /* no further round after that: a slow disk's first says enough */
#define BETTER_PER_CENT 8u   /* trials of one way differ by 5 % on an idle disk, medians by less */
#define RUNS_MAX        256u /* of one job, reader.h */

typedef struct way {
    uint32_t depth, request_bytes;
} way;

static const way ways[] = {
    {BT_DISK_DEPTH, BT_DISK_REQUEST_BYTES},
    {8, 1u << 20},
    {64, 512u << 10},
    {32, 256u << 10},
    {16, 4u << 20},
    {2, 4u << 20},
};
#define N_WAYS (sizeof ways / sizeof *ways)

typedef struct trials {
    const bt_store *store;
    bt_reader_kind kind;
    uint8_t *buffer;
    uint64_t at; /* in the file: next to read */
    uint64_t speeds[N_WAYS][N_ROUNDS];
} trials;

static bool start_job(trials *t, bt_reader *reader, uint64_t request_bytes, uint64_t *bytes, int *ret_job) {
    bt_run runs[RUNS_MAX];
    uint64_t file_bytes = t->store->files[0].file_bytes / BT_PAGE_BYTES * BT_PAGE_BYTES;
    uint32_t n = 0;
    for (; n < RUNS_MAX && *bytes > 0; n++) {
        if (t->at >= file_bytes) t->at = 0;
        uint64_t n_bytes = bt_min_u64(bt_min_u64(request_bytes, *bytes), file_bytes - t->at);
        uint64_t place = n * request_bytes % BT_DISK_SPEED_BUFFER_BYTES;
        runs[n] = (bt_run){0, t->at, n_bytes, t->buffer + place};
        t->at += n_bytes;
        *bytes -= n_bytes;
    }
    return bt_reader_start(reader, runs, n, ret_job, NULL) == BT_OK;
}

/* Bytes a second, or 0. Two jobs at a time, so that the queue does not run dry between them. */
static uint64_t try_way(trials *t, const way *w, uint64_t bytes) {
    bt_reader *reader = NULL;
    const bt_reader_params params = {
        .kind = t->kind, .depth = w->depth, .request_bytes = w->request_bytes, .max_jobs = 2};
    bytes = bytes / BT_PAGE_BYTES * BT_PAGE_BYTES;
    uint64_t left = bytes;
    if (bt_reader_open(t->store, &params, &reader, NULL) != BT_OK) return 0;
    uint64_t start_ns = bt_os_now_ns();
    int before = -1;
    bool good = true;
    while (good && (left > 0 || before >= 0)) {
        int job = -1;
        if (left > 0) good = start_job(t, reader, w->request_bytes, &left, &job);
        if (before >= 0) good = bt_reader_wait(reader, before, NULL) == BT_OK && good;
        before = job;
    }
    uint64_t ns = bt_os_now_ns() - start_ns;
    bt_reader_close(reader);
    return good && ns > 0 ? bt_mul_div_u64(bytes, UINT64_C(1000000000), ns) : 0;
}

static int by_speed(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t median(uint64_t *speeds, uint32_t n) {
    qsort(speeds, n, sizeof *speeds, by_speed);
    return speeds[n / 2];
}

static void choose(trials *t, uint32_t n_rounds, bt_disk_speed *ret) {
    uint64_t usual = 0;
    for (uint32_t i = 0; i < N_WAYS; i++) {
        uint64_t speed = median(t->speeds[i], n_rounds);
        if (i == 0) usual = speed;
        bool better = i == 0 || (speed > ret->bytes_per_s && speed > bt_mul_div_u64(usual, 100 + BETTER_PER_CENT, 100));
        if (better) *ret = (bt_disk_speed){ways[i].depth, ways[i].request_bytes, speed};
    }
}

bool bt_disk_speed_measure(const bt_store *store, bt_reader_kind kind, void *buffer, bt_disk_speed *ret) {
    trials t = {.store = store, .kind = kind, .buffer = buffer};
    if (store->n_files == 0 || !store->files[0].direct || store->files[0].file_bytes < LOOK_BYTES) return false;
    uint64_t start_ns = bt_os_now_ns();
    uint64_t speed = try_way(&t, &ways[0], LOOK_BYTES);
    if (speed == 0) return false;
    uint64_t bytes = bt_mul_div_u64(speed, TRIAL_NS, UINT64_C(1000000000));
    bytes = bt_min_u64(bt_max_u64(bytes, TRIAL_MIN_BYTES), TRIAL_MAX_BYTES);
    uint32_t n_rounds = 0;
    while (n_rounds < N_ROUNDS && (n_rounds == 0 || bt_os_now_ns() - start_ns < LIMIT_NS)) {
        for (uint32_t i = 0; i < N_WAYS; i++)
            t.speeds[i][n_rounds] = try_way(&t, &ways[i], bytes);
        n_rounds++;
    }
    choose(&t, n_rounds, ret);
    return ret->bytes_per_s > 0;
}

bt_status bt_disk_speed_of(const bt_facts *facts, bt_disk_speed *ret, bt_error *err) {
    bt_store store;
    BT_TRY(bt_store_open(facts, BT_IO_DIRECT, &store, err));
    void *buffer = bt_os_reserve(BT_DISK_SPEED_BUFFER_BYTES);
    bool measured = buffer && bt_disk_speed_measure(&store, BT_READER_AUTO, buffer, ret);
    if (buffer) (void)bt_os_unreserve(buffer, BT_DISK_SPEED_BUFFER_BYTES);
    bool direct = store.direct;
    bt_store_close(&store);
    if (measured) return BT_OK;
    return bt_fail(err, BT_E_IO, "disk_speed", BT_MEASURE_BYTES, BT_DISK_SPEED_FILE_MIN_BYTES,
                   facts->shards[0].file_bytes, "the disk cannot be measured with %s: %s", facts->shards[0].path,
                   direct ? "a file of 16 MiB or more that can be read is wanted"
                          : "its file system does not read past the page cache");
}
