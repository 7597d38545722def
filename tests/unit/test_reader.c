/* SPDX-License-Identifier: MIT
 * test_reader.c: both kinds, through the page cache and past it: every byte, odd ends, cut files, many jobs, cancel. */
#include "base/heap.h"
#include "base/os.h"
#include "leave.h"
#include "store/reader.h"
#include "store_kit.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PAGE     ((uint64_t)BT_PAGE_BYTES)
#define MEM_SIZE (8u << 20)

typedef struct way {
    bt_reader_kind kind;
    bt_io_mode mode;
} way;

static const way ways[] = {
    {BT_READER_URING, BT_IO_DIRECT},
    {BT_READER_URING, BT_IO_BUFFERED},
    {BT_READER_PREAD, BT_IO_DIRECT},
    {BT_READER_PREAD, BT_IO_BUFFERED},
};
#define N_WAYS (sizeof ways / sizeof *ways)

static uint8_t *mem; /* where everything is read to, page aligned */

typedef struct fixture {
    kit k;
    bt_store store;
    bt_reader *reader;
} fixture;

/* false: this kernel or container has no io_uring. */
static bool open_fixture(fixture *f, way w, bt_reader_params params, const uint64_t *sizes, uint32_t n_files) {
    kit_open(&f->k, "reader", sizes, n_files, 11);
    assert_int_equal(bt_store_open(&f->k.facts, w.mode, &f->store, NULL), BT_OK);
    params.kind = w.kind;
    bt_error err = {0};
    bt_status status = bt_reader_open(&f->store, &params, &f->reader, &err);
    if (status != BT_OK && w.kind == BT_READER_URING) {
        assert_string_equal(err.code, "uring_refused");
        (void)fprintf(stderr, "no io_uring here: %s\n", err.text);
        bt_store_close(&f->store);
        kit_close(&f->k);
        return false;
    }
    assert_int_equal(status, BT_OK);
    assert_int_equal(bt_reader_kind_of(f->reader), w.kind);
    memset(mem, 0xA5, MEM_SIZE);
    return true;
}

static void close_fixture(fixture *f) {
    bt_reader_close(f->reader);
    bt_store_close(&f->store);
    kit_close(&f->k);
}

static uint64_t pages_of(uint64_t bytes) {
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static int start(fixture *f, const bt_run *runs, uint32_t n) {
    int job = -1;
    assert_int_equal(bt_reader_start(f->reader, runs, n, &job, NULL), BT_OK);
    assert_true(job >= 0);
    return job;
}

static void test_whole_files_of_odd_sizes(void **state) {
    (void)state;
    static const uint64_t sizes[] = {1, 4095, 3 * 1048576 + 4097, 4096};
    static const bt_reader_params params[] = {
        {0}, {.depth = 1, .request_bytes = 4096}, {.depth = 3, .request_bytes = 12288}, {.request_bytes = 8192}};
    for (size_t w = 0; w < N_WAYS; w++) {
        for (size_t p = 0; p < 4; p++) {
            fixture f;
            if (!open_fixture(&f, ways[w], params[p], sizes, 4)) continue;
            bt_run runs[4];
            uint64_t at = 0;
            for (uint32_t i = 0; i < 4; i++) {
                runs[i] = (bt_run){.file = i, .bytes = pages_of(sizes[i]), .dest = mem + at};
                at += runs[i].bytes + PAGE; /* a page between must stay as it is */
            }
            assert_int_equal(bt_reader_wait(f.reader, start(&f, runs, 4), NULL), BT_OK);
            at = 0;
            for (uint32_t i = 0; i < 4; i++) {
                assert_memory_equal(mem + at, f.k.data[i], runs[i].bytes); /* with zeroes behind the end */
                at += runs[i].bytes;
                for (uint64_t j = 0; j < PAGE; j++) {
                    assert_int_equal(mem[at + j], 0xA5);
                }
                at += PAGE;
            }
            bt_reader_stats stats;
            bt_reader_stats_read(f.reader, &stats);
            assert_int_equal(stats.read_bytes, sizes[0] + sizes[1] + sizes[2] + sizes[3]);
            if (p == 0) assert_int_equal(stats.requests, 3 + 4);
            if (p == 1) assert_int_equal(stats.requests, 3 + 770);
            assert_true(stats.busy_ns > 0);
            close_fixture(&f);
        }
    }
}

/* Bytes of a file that the page cache holds. */
static uint64_t cached_bytes_of(const kit *k, uint32_t file) {
    FILE *opened = fopen(k->paths[file], "re");
    assert_non_null(opened);
    uint64_t bytes = k->shards[file].file_bytes;
    void *map = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, fileno(opened), 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    int64_t n = bt_os_resident_bytes(map, pages_of(bytes));
    (void)munmap(map, (size_t)bytes);
    (void)fclose(opened);
    assert_true(n >= 0);
    return (uint64_t)n;
}

/* The cache is asked, not told: pages that are just being written or looked at stay until it is asked again. */
static void drop(const fixture *f) {
    for (uint32_t i = 0; i == 0 || (i < 50 && cached_bytes_of(&f->k, 0) > 0); i++) {
        if (i > 0) (void)usleep(10000);
        (void)fsync(f->store.files[0].buffered_fd); /* dirty pages stay otherwise */
        assert_int_equal(bt_os_drop_file_cache(f->store.files[0].buffered_fd, 0, 0), 0);
    }
}

static void read_all(fixture *f, uint64_t bytes) {
    memset(mem, 0xA5, MEM_SIZE);
    const bt_run run = {0, 0, pages_of(bytes), mem};
    assert_int_equal(bt_reader_wait(f->reader, start(f, &run, 1), NULL), BT_OK);
    assert_memory_equal(mem, f->k.data[0], bytes);
}

/* The same bytes, and the cache holds them afterwards; read as before again, it does not. */
static void test_through_the_page_cache_and_back(void **state) {
    (void)state;
    static const uint64_t sizes[] = {2 * 1048576 + 123};
    for (size_t w = 0; w < N_WAYS; w++) {
        fixture f;
        bt_reader_stats stats;
        if (!open_fixture(&f, ways[w], (bt_reader_params){.request_bytes = 65536}, sizes, 1)) continue;
        drop(&f);
        if (cached_bytes_of(&f.k, 0) > 0) { /* a file system in memory */
            close_fixture(&f);
            continue;
        }
        read_all(&f, sizes[0]);
        assert_int_equal(cached_bytes_of(&f.k, 0), 0);
        bt_reader_set_cached(f.reader, true);
        read_all(&f, sizes[0]);
        assert_int_equal(cached_bytes_of(&f.k, 0), pages_of(sizes[0]));
        read_all(&f, sizes[0]);
        bt_reader_stats_read(f.reader, &stats);
        assert_int_equal(stats.cached_bytes, 2 * sizes[0]);
        assert_int_equal(stats.read_bytes, 3 * sizes[0]);
        bt_reader_set_cached(f.reader, false);
        drop(&f);
        read_all(&f, sizes[0]);
        assert_int_equal(cached_bytes_of(&f.k, 0), 0);
        close_fixture(&f);
    }
}

static void test_many_jobs(void **state) {
    (void)state;
    static const uint64_t sizes[] = {2 * 1048576 + 999, 777777};
    for (size_t w = 0; w < N_WAYS; w++) {
        fixture f;
        if (!open_fixture(&f, ways[w], (bt_reader_params){.request_bytes = 16384, .max_jobs = 16}, sizes, 2)) continue;
        uint64_t seed = 5;
        for (uint32_t round = 0; round < 12; round++) {
            int jobs[16];
            bt_run runs[16][3];
            for (uint32_t j = 0; j < 16; j++) {
                for (uint32_t r = 0; r < 3; r++) {
                    uint32_t file = (uint32_t)kit_below(&seed, 2);
                    uint64_t n_pages = pages_of(sizes[file]) / PAGE;
                    uint64_t first = kit_below(&seed, n_pages);
                    uint64_t n = 1 + kit_below(&seed, n_pages - first < 20 ? n_pages - first : 20);
                    runs[j][r] = (bt_run){.file = file,
                                          .offset = first * PAGE,
                                          .bytes = n * PAGE,
                                          .dest = mem + ((uint64_t)j * 3 + r) * 20 * PAGE};
                }
                jobs[j] = start(&f, runs[j], 3);
            }
            int none = -1;
            bt_error err = {0};
            assert_int_equal(bt_reader_start(f.reader, runs[0], 1, &none, &err), BT_E_LIMIT);
            assert_string_equal(err.code, "reader_full");
            for (uint32_t n = 16; n > 0; n--) { /* waited for in any order */
                uint32_t at = (uint32_t)kit_below(&seed, n);
                uint32_t j = 0;
                for (uint32_t seen = 0; jobs[j] < 0 || seen++ < at;) {
                    j++;
                }
                assert_int_equal(bt_reader_wait(f.reader, jobs[j], NULL), BT_OK);
                assert_int_equal(bt_reader_wait(f.reader, jobs[j], NULL), BT_E_ARG); /* given back */
                jobs[j] = -1;
                for (uint32_t r = 0; r < 3; r++) {
                    const bt_run *run = &runs[j][r];
                    assert_memory_equal(run->dest, f.k.data[run->file] + run->offset, run->bytes);
                }
            }
        }
        close_fixture(&f);
    }
}

static void test_cut_while_open(void **state) {
    (void)state;
    static const uint64_t sizes[] = {1048576 + 50, 300000};
    static const uint64_t cuts[] = {0, 100, 8192, 40960 + 100};
    for (size_t w = 0; w < N_WAYS; w++) {
        for (size_t c = 0; c < 4; c++) {
            fixture f;
            if (!open_fixture(&f, ways[w], (bt_reader_params){.depth = 4, .request_bytes = 32768}, sizes, 2)) continue;
            assert_int_equal(truncate(f.k.paths[0], (off_t)cuts[c]), 0);
            bt_run cut = {.file = 0, .bytes = pages_of(sizes[0]), .dest = mem};
            bt_run whole = {.file = 1, .bytes = pages_of(sizes[1]), .dest = mem + (4u << 20)};
            int a = start(&f, &cut, 1);
            int b = start(&f, &whole, 1);
            bt_error err = {0};
            assert_int_equal(bt_reader_wait(f.reader, a, &err), BT_E_IO);
            assert_string_equal(err.code, "read_short");
            assert_non_null(strstr(err.text, f.k.paths[0]));
            assert_true(err.need > err.have);
            assert_int_equal(bt_reader_wait(f.reader, b, NULL), BT_OK); /* the others go on */
            assert_memory_equal(whole.dest, f.k.data[1], whole.bytes);
            if (cuts[c] == 8192) { /* and the reader stays usable, for what is left of the file too */
                bt_run rest = {.file = 0, .bytes = 8192, .dest = mem};
                assert_int_equal(bt_reader_wait(f.reader, start(&f, &rest, 1), NULL), BT_OK);
                assert_memory_equal(mem, f.k.data[0], 8192);
                /* the first page behind the cut */
                rest.bytes = 12288;
                assert_int_equal(bt_reader_wait(f.reader, start(&f, &rest, 1), &err), BT_E_IO);
                assert_int_equal(err.have, 0);
                assert_int_equal(err.need, 4096);
                assert_non_null(strstr(err.text, "4096 bytes at offset 8192 were expected, 0 came"));
            }
            close_fixture(&f);
        }
    }
}

static void test_cancel(void **state) {
    (void)state;
    static const uint64_t sizes[] = {4u << 20};
    for (size_t w = 0; w < N_WAYS; w++) {
        fixture f;
        if (!open_fixture(&f, ways[w], (bt_reader_params){.depth = 4, .request_bytes = 65536}, sizes, 1)) continue;
        uint64_t seed = 9;
        for (uint32_t round = 0; round < 30; round++) {
            bt_run first = {.bytes = 4u << 20, .dest = mem};
            bt_run second = {.offset = 65536, .bytes = 1u << 20, .dest = mem + (4u << 20)};
            int a = start(&f, &first, 1);
            int b = start(&f, &second, 1);
            for (uint64_t n = kit_below(&seed, 4); n > 0; n--) {
                bt_reader_poll(f.reader);
            }
            bt_reader_cancel(f.reader, a);
            memset(mem, 0x5A, 4u << 20); /* nothing may come into it any more */
            assert_int_equal(bt_reader_wait(f.reader, b, NULL), BT_OK);
            assert_memory_equal(second.dest, f.k.data[0] + 65536, second.bytes);
            for (uint64_t i = 0; i < 4u << 20; i++) {
                if (mem[i] != 0x5A) fail_msg("byte %llu was written after cancel", (unsigned long long)i);
            }
            bt_reader_cancel(f.reader, a); /* no longer a job */
            assert_int_equal(bt_reader_wait(f.reader, a, NULL), BT_E_ARG);
        }
        /* all jobs and runs came back */
        int jobs[64];
        bt_run one = {.bytes = 4096, .dest = mem};
        for (uint32_t i = 0; i < 64; i++) {
            jobs[i] = start(&f, &one, 1);
        }
        bt_reader_stats stats;
        for (uint32_t i = 0; i < 64; i++) {
            assert_int_equal(bt_reader_wait(f.reader, jobs[i], NULL), BT_OK);
        }
        bt_reader_stats_read(f.reader, &stats);
        assert_true(stats.requests < 30 * (64 + 16) + 64 + 1);
        close_fixture(&f);
    }
}

static void test_polling_to_the_end(void **state) {
    (void)state;
    static const uint64_t sizes[] = {4u << 20};
    for (size_t w = 0; w < N_WAYS; w++) {
        fixture f;
        if (!open_fixture(&f, ways[w], (bt_reader_params){.depth = 2}, sizes, 1)) continue;
        bt_run run = {.bytes = 4u << 20, .dest = mem};
        int job = start(&f, &run, 1);
        uint32_t n = 0;
        while (!bt_reader_is_done(f.reader, job) && n < 20000) {
            (void)usleep(500);
            n++;
        }
        assert_true(n < 20000);
        bt_reader_stats before;
        bt_reader_stats after;
        bt_reader_stats_read(f.reader, &before);
        assert_int_equal(bt_reader_wait(f.reader, job, NULL), BT_OK);
        bt_reader_stats_read(f.reader, &after);
        assert_int_equal(after.wait_ns, before.wait_ns); /* done already */
        assert_int_equal(after.requests, 4);
        assert_memory_equal(mem, f.k.data[0], 4u << 20);
        int empty = start(&f, NULL, 0);
        assert_true(bt_reader_is_done(f.reader, empty));
        assert_int_equal(bt_reader_wait(f.reader, empty, NULL), BT_OK);
        close_fixture(&f);
    }
}

static void test_closing_with_jobs_under_way(void **state) {
    (void)state;
    static const uint64_t sizes[] = {4u << 20};
    uint64_t blocks = bt_heap_live_blocks();
    uint32_t fds = kit_n_fds();
    for (size_t w = 0; w < N_WAYS; w++) {
        fixture f;
        if (!open_fixture(&f, ways[w], (bt_reader_params){.request_bytes = 131072}, sizes, 1)) continue;
        bt_run run = {.bytes = 4u << 20, .dest = mem};
        for (uint32_t i = 0; i < 20; i++) {
            (void)start(&f, &run, 1);
        }
        close_fixture(&f);
        memset(mem, 0, 4u << 20);
    }
    assert_int_equal(bt_heap_live_blocks(), blocks);
    assert_int_equal(kit_n_fds(), fds);
    bt_reader_close(NULL);
}

static void test_bounds(void **state) {
    (void)state;
    static const uint64_t sizes[] = {8192 + 1};
    fixture f;
    bt_reader *none = NULL;
    assert_true(open_fixture(&f, ways[2], (bt_reader_params){.max_jobs = 2}, sizes, 1));
    static const bt_reader_params bad[] = {
        {.depth = 257}, {.request_bytes = 4097}, {.request_bytes = (64u << 20) + 4096}, {.max_jobs = 1025}};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(bt_reader_open(&f.store, &bad[i], &none, NULL), BT_E_ARG);
    }
    const bt_run bad_runs[] = {
        {.file = 1, .bytes = 4096, .dest = mem},
        {.offset = 1, .bytes = 4096, .dest = mem},
        {.bytes = 4095, .dest = mem},
        {.bytes = 0, .dest = mem},
        {.bytes = 4096, .dest = mem + 8},
        {.bytes = 16384, .dest = mem},
        {.offset = 12288, .bytes = 4096, .dest = mem},
        {.offset = UINT64_MAX - 4095, .bytes = 8192, .dest = mem},
    };
    int job = -1;
    bt_error err = {0};
    for (size_t i = 0; i < sizeof bad_runs / sizeof *bad_runs; i++) {
        assert_int_equal(bt_reader_start(f.reader, &bad_runs[i], 1, &job, &err), BT_E_ARG);
        assert_string_equal(err.code, "reader_run");
    }
    bt_run runs[257];
    for (uint32_t i = 0; i < 257; i++) {
        runs[i] = (bt_run){.bytes = 4096, .dest = mem + i * PAGE};
    }
    assert_int_equal(bt_reader_start(f.reader, runs, 257, &job, &err), BT_E_LIMIT);
    assert_string_equal(err.code, "reader_runs");
    assert_int_equal(bt_reader_wait(f.reader, start(&f, runs, 256), NULL), BT_OK);
    for (uint32_t i = 0; i < 256; i++) {
        assert_memory_equal(mem + i * PAGE, f.k.data[0], PAGE);
    }
    assert_int_equal(bt_reader_wait(f.reader, -1, &err), BT_E_ARG);
    assert_string_equal(err.code, "reader_job");
    assert_int_equal(bt_reader_wait(f.reader, 1023, NULL), BT_E_ARG);
    assert_true(bt_reader_is_done(f.reader, 77));
    close_fixture(&f);
}

static void test_auto_is_one_of_the_two(void **state) {
    (void)state;
    static const uint64_t sizes[] = {5000};
    kit k;
    kit_open(&k, "reader_auto", sizes, 1, 3);
    bt_store store;
    assert_int_equal(bt_store_open(&k.facts, BT_IO_AUTO, &store, NULL), BT_OK);
    bt_reader *reader = NULL;
    assert_int_equal(bt_reader_open(&store, NULL, &reader, NULL), BT_OK);
    bt_reader_kind kind = bt_reader_kind_of(reader);
    assert_true(kind == BT_READER_URING || kind == BT_READER_PREAD);
    int job = -1;
    bt_run run = {.bytes = 8192, .dest = mem};
    assert_int_equal(bt_reader_start(reader, &run, 1, &job, NULL), BT_OK);
    assert_int_equal(bt_reader_wait(reader, job, NULL), BT_OK);
    assert_memory_equal(mem, k.data[0], 8192);
    bt_reader_close(reader);
    bt_store_close(&store);
    kit_close(&k);
}

/* ---- what a container or a kernel may refuse: made by a filter on system calls, in a child ---- */

#if defined(__x86_64__) || defined(__aarch64__)

/* From now on the call gives minus the errno. false: no filters here. */
static bool refuse_call(uint32_t call, uint32_t sys) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | sys),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = 4, .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* Run in a child; its exit code is what it gives, 77 for "cannot be tested here". */
static void in_child(int (*body)(const bt_store *store), const bt_store *store) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) leave(body(store));
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        (void)fprintf(stderr, "no filter or no io_uring here\n");
    else
        assert_int_equal(WEXITSTATUS(status), 0);
}

static int read_one(bt_reader *reader, bt_error *err) {
    bt_run run = {.bytes = 8192, .dest = mem};
    int job = -1;
    if (bt_reader_start(reader, &run, 1, &job, err) != BT_OK) return -1;
    return (int)bt_reader_wait(reader, job, err);
}

static int child_setup_refused(const bt_store *store) {
    if (!refuse_call(SYS_io_uring_setup, EPERM)) return 77;
    bt_reader *reader = NULL;
    bt_error err = {0};
    bt_reader_params params = {.kind = BT_READER_URING};
    if (bt_reader_open(store, &params, &reader, &err) != BT_E_IO) return 1;
    if (err.sys != EPERM || strcmp(err.code, "uring_refused") != 0) return 2;
    params.kind = BT_READER_AUTO;
    if (bt_reader_open(store, &params, &reader, &err) != BT_OK) return 3;
    if (bt_reader_kind_of(reader) != BT_READER_PREAD) return 4;
    if (read_one(reader, &err) != BT_OK) return 5;
    bt_reader_close(reader);
    return 0;
}

/* Submitting fails for good: jobs fail with that errno, one after another, and closing does not hang. */
static int child_enter_refused(const bt_store *store, uint32_t sys) {
    bt_reader *reader = NULL;
    bt_error err = {0};
    bt_reader_params params = {.kind = BT_READER_URING};
    if (bt_reader_open(store, &params, &reader, &err) != BT_OK) return 77;
    if (read_one(reader, &err) != BT_OK) return 1;
    if (!refuse_call(SYS_io_uring_enter, sys)) return 77;
    for (int i = 0; i < 3; i++) {
        if (read_one(reader, &err) != BT_E_IO) return 2;
        if (err.sys != (int)sys || strcmp(err.code, "read_failed") != 0) return 3;
    }
    bt_reader_close(reader);
    return 0;
}

static int child_enter_forbidden(const bt_store *store) {
    return child_enter_refused(store, EPERM);
}

static int child_enter_busy(const bt_store *store) {
    return child_enter_refused(store, EBUSY);
}

static void test_refused_by_the_system(void **state) {
    (void)state;
    static const uint64_t sizes[] = {8192};
    kit k;
    kit_open(&k, "reader_refused", sizes, 1, 3);
    bt_store store;
    assert_int_equal(bt_store_open(&k.facts, BT_IO_AUTO, &store, NULL), BT_OK);
    in_child(child_setup_refused, &store);
    in_child(child_enter_forbidden, &store);
    in_child(child_enter_busy, &store);
    bt_store_close(&store);
    kit_close(&k);
}

#else

static void test_refused_by_the_system(void **state) {
    (void)state;
    skip();
}

#endif

static int set_up(void **state) {
    (void)state;
    mem = bt_os_reserve(MEM_SIZE);
    return mem ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    return bt_os_unreserve(mem, MEM_SIZE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_files_of_odd_sizes),
        cmocka_unit_test(test_through_the_page_cache_and_back),
        cmocka_unit_test(test_many_jobs),
        cmocka_unit_test(test_cut_while_open),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_polling_to_the_end),
        cmocka_unit_test(test_closing_with_jobs_under_way),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_auto_is_one_of_the_two),
        cmocka_unit_test(test_refused_by_the_system),
    };
    return cmocka_run_group_tests_name("reader", tests, set_up, tear_down);
}
