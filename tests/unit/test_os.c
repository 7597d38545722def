/* SPDX-License-Identifier: MIT
 * test_os.c: the system calls behind os.h, against the system itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FILE_BYTES 10000
#define MIB        (UINT64_C(1) << 20)

static const char *const path = BT_TEST_OUT "/test_os.bin";

static int make_file(void **state) {
    (void)state;
    (void)mkdir(BT_TEST_OUT, 0700);
    FILE *f = fopen(path, "wb");
    if (!f) return -1;
    for (int i = 0; i < FILE_BYTES; i++) {
        (void)fputc(i % 251, f);
    }
    return fclose(f);
}

static int remove_file(void **state) {
    (void)state;
    return unlink(path);
}

static void test_folders(void **state) {
    (void)state;
    errno = 0;
    assert_null(bt_os_folder_open(BT_TEST_OUT "/no such folder"));
    assert_int_equal(errno, ENOENT);
    assert_null(bt_os_folder_open(path)); /* a file */
    assert_int_equal(errno, ENOTDIR);
    bt_os_folder *folder = bt_os_folder_open(BT_TEST_OUT);
    assert_non_null(folder);
    uint32_t n_found = 0;
    for (const char *name = bt_os_folder_next(folder); name; name = bt_os_folder_next(folder)) {
        assert_string_not_equal(name, ".");
        assert_string_not_equal(name, "..");
        if (strcmp(name, "test_os.bin") == 0) n_found++;
    }
    bt_os_folder_close(folder);
    assert_int_equal(n_found, 1);
}

static void test_folders_and_settings(void **state) {
    (void)state;
    static const char folder[] = BT_TEST_OUT "/test_os.d";
    static const char file[] = BT_TEST_OUT "/test_os.d/setting";
    char text[8] = "";
    (void)unlink(file);
    (void)rmdir(folder);
    assert_int_equal(bt_os_make_folder(folder), 0);
    assert_int_equal(bt_os_make_folder(folder), -EEXIST);
    assert_int_equal(bt_os_put(file, "12\n"), -ENOENT); /* nothing is made */
    int fd = open(file, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "98765", 5), 5);
    assert_int_equal(bt_os_put(file, "12\n"), 0);
    assert_int_equal(bt_os_pread(fd, text, sizeof text - 1, 0), 3); /* nothing of the former stays */
    assert_string_equal(text, "12\n");
    assert_int_equal(close(fd), 0);
    assert_int_equal(bt_os_put("/dev/full", "1"), -ENOSPC);
    assert_int_equal(bt_os_put(folder, "1"), -EISDIR);
    assert_int_equal(bt_os_remove_folder(folder), -ENOTEMPTY);
    assert_int_equal(bt_os_remove_folder(file), -ENOTDIR);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(bt_os_remove_folder(folder), 0);
    assert_int_equal(bt_os_remove_folder(folder), -ENOENT);
}

static void test_libraries(void **state) {
    (void)state;
    assert_null(bt_os_library_open(BT_TEST_OUT "/no such library"));
    assert_null(bt_os_library_open(path)); /* a file of another kind */
    bt_os_library *library = bt_os_library_open(BT_FAKE_NVML_TODAY);
    assert_non_null(library);
    assert_non_null(bt_os_library_find(library, "nvmlInit_v2"));
    assert_null(bt_os_library_find(library, "nvmlInit_v1000"));
    bt_os_library_close(library);
}

static void test_files(void **state) {
    (void)state;
    assert_int_equal(bt_os_open(BT_TEST_OUT "/no such file", false), -ENOENT);
    int fd = bt_os_open(path, false);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    unsigned char data[FILE_BYTES + 10];
    assert_int_equal(bt_os_pread(fd, data, 100, 5000), 100);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(data[i], (5000 + i) % 251);
    }
    assert_int_equal(bt_os_pread(fd, data, sizeof data, 0), FILE_BYTES);
    assert_int_equal(bt_os_pread(fd, data, 100, FILE_BYTES - 30), 30);
    assert_int_equal(bt_os_pread(fd, data, 100, FILE_BYTES), 0);
    assert_int_equal(bt_os_pread(fd, data, 100, FILE_BYTES + 5000), 0);
    assert_int_equal(bt_os_pread(fd, data, 0, 0), 0);
    assert_int_equal(bt_os_pread(fd, data, 100, UINT64_MAX - 50), -EINVAL);
    assert_int_equal(bt_os_pread(fd, data, 100, (uint64_t)INT64_MAX - 50), -EINVAL);
    assert_int_equal(bt_os_drop_file_cache(fd, 0, FILE_BYTES), 0);
    assert_int_equal(bt_os_drop_file_cache(fd, UINT64_MAX, 1), -EINVAL);
    assert_int_equal(bt_os_close(fd), 0);
    assert_int_equal(bt_os_close(fd), -EBADF);
    assert_int_equal(bt_os_pread(fd, data, 100, 0), -EBADF);
    assert_int_equal(bt_os_drop_file_cache(fd, 0, 1), -EBADF);
}

/* Nobody writes to it, and nobody is waited for. */
static void test_pipes(void **state) {
    (void)state;
    static const char fifo[] = BT_TEST_OUT "/test_os.fifo";
    char data[4];
    (void)unlink(fifo);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    int fd = bt_os_open(fifo, false);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(bt_os_pread(fd, data, sizeof data, 0), -ESPIPE);
    assert_int_equal(bt_os_close(fd), 0);
    assert_int_equal(unlink(fifo), 0);
}

static void test_writing(void **state) {
    (void)state;
    int ends[2];
    char text[8] = "";
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(bt_os_write(ends[1], "abc", 3), 0);
    assert_int_equal(bt_os_write(ends[1], "", 0), 0);
    assert_int_equal(read(ends[0], text, sizeof text), 3);
    assert_string_equal(text, "abc");
    assert_int_equal(close(ends[0]) + close(ends[1]), 0);
    assert_int_equal(bt_os_write(ends[1], "abc", 3), -EBADF);
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_int_equal(bt_os_write(full, "abc", 3), -ENOSPC);
    assert_int_equal(close(full), 0);
}

static void test_direct(void **state) {
    (void)state;
    int fd = bt_os_open(path, true);
    if (fd == -EINVAL) skip(); /* a file system without direct reads */
    assert_true(fd >= 0);
    uint64_t bytes = 4 * bt_os_page_bytes();
    unsigned char *buffer = bt_os_reserve(bytes);
    assert_non_null(buffer);
    assert_int_equal(bt_os_pread(fd, buffer, bytes, 0), FILE_BYTES); /* short at the file's end, and no error */
    assert_int_equal(buffer[FILE_BYTES - 1], (FILE_BYTES - 1) % 251);
    assert_int_equal(bt_os_unreserve(buffer, bytes), 0);
    assert_int_equal(bt_os_close(fd), 0);
}

static void test_mapping(void **state) {
    (void)state;
    uint64_t page = bt_os_page_bytes();
    uint64_t bytes = 40 * MIB; /* more than one stretch of the residency question */
    unsigned char *base = bt_os_reserve(bytes);
    assert_non_null(base);
    assert_int_equal((uintptr_t)base % page, 0);
    assert_int_equal(bt_os_no_huge_pages(base, bytes), 0);
    assert_int_equal(bt_os_resident_bytes(base, bytes), 0);
    base[20 * MIB] = 1;
    assert_int_equal(bt_os_resident_bytes(base, bytes), page);

    assert_int_equal(bt_os_populate(base, 24 * MIB), 0);
    assert_int_equal(bt_os_resident_bytes(base, bytes), 24 * MIB);
    assert_int_equal(base[20 * MIB], 1); /* what was there stays */
    assert_int_equal(base[0], 0);
    /* a range that touches two pages fills and counts both */
    assert_int_equal(bt_os_populate(base + 30 * MIB - 1, 2), 0);
    assert_int_equal(bt_os_resident_bytes(base + 30 * MIB - 1, 2), 2 * page);
    assert_int_equal(bt_os_resident_bytes(base, bytes), 24 * MIB + 2 * page);
    assert_int_equal(bt_os_populate(base + 35 * MIB, 0), 0);
    assert_int_equal(bt_os_resident_bytes(base + 35 * MIB, 0), 0);

    /* only whole pages are given back, and they read as zero again */
    memset(base, 0x55, 4 * page);
    assert_int_equal(bt_os_drop(base + 1, 3 * page), 0);
    assert_int_equal(base[0], 0x55);
    assert_int_equal(base[3 * page], 0x55);
    assert_int_equal(bt_os_resident_bytes(base, 4 * page), 2 * page);
    assert_int_equal(base[page], 0);
    assert_int_equal(bt_os_drop(base + 5, 100), 0);
    assert_int_equal(base[0], 0x55);
    assert_int_equal(bt_os_drop(base, bytes), 0);
    assert_int_equal(bt_os_resident_bytes(base, bytes), 0);
    assert_int_equal(base[20 * MIB], 0);
    assert_int_equal(bt_os_huge_pages(base, bytes), 0);
    assert_int_equal(bt_os_unreserve(base, bytes), 0);
    assert_int_equal(bt_os_resident_bytes(base, bytes), -ENOMEM);
    assert_int_equal(bt_os_populate(base, bytes), -ENOMEM);
    assert_int_equal(bt_os_unreserve(base + 1, bytes), -EINVAL);
}

static uint64_t locked_now(void) {
    bt_os_memory memory;
    bt_os_memory_read(&memory);
    assert_true(memory.locked_bytes.known);
    return memory.locked_bytes.value;
}

static void test_locking(void **state) {
    (void)state;
    uint64_t page = bt_os_page_bytes();
    uint64_t bytes = 8 * page; /* half of the 64 KiB that Linux gave before 5.16 */
    if (bt_os_may_lock(bytes) != 1) skip();
    uint64_t before = locked_now();
    unsigned char *base = bt_os_reserve(bytes);
    assert_non_null(base);
    assert_int_equal(bt_os_no_huge_pages(base, bytes), 0);
    base[page] = 7;
    /* the outer pages count, and nothing comes into memory */
    assert_int_equal(bt_os_lock(base + 1, bytes - 2, false), 0);
    assert_int_equal(locked_now(), before + bytes);
    assert_int_equal(bt_os_resident_bytes(base, bytes), page);
    base[3 * page] = 8;
    assert_int_equal(bt_os_resident_bytes(base, bytes), 2 * page);
    /* locked pages are dropped all the same, and the range stays locked */
    assert_int_equal(bt_os_drop(base, 2 * page), 0);
    assert_int_equal(bt_os_resident_bytes(base, bytes), page);
    assert_int_equal(base[page], 0);
    assert_int_equal(base[3 * page], 8);
    assert_int_equal(locked_now(), before + bytes);
    assert_int_equal(bt_os_unlock(base, 4 * page), 0);
#ifndef __SANITIZE_ADDRESS__ /* its munlock() does nothing */
    assert_int_equal(locked_now(), before + bytes - 4 * page);
#endif
    assert_int_equal(bt_os_lock(base, 0, false), 0);
    assert_int_equal(bt_os_unreserve(base, bytes), 0);
    assert_int_equal(locked_now(), before);
    assert_int_equal(bt_os_lock(base, bytes, false), -ENOMEM); /* nothing is there */
}

static void test_locking_is_limited(void **state) {
    (void)state;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    bt_known said = bt_os_lock_limit_bytes();
    assert_int_equal(said.known, limit.rlim_cur != RLIM_INFINITY);
    if (said.known) assert_int_equal(said.value, limit.rlim_cur);
    assert_int_equal(bt_os_may_lock(0), 1);
    uint64_t before = locked_now();
    bool is_bound = said.known && said.value < UINT64_C(1) << 40;
    int may = bt_os_may_lock(UINT64_C(1) << 40); /* a TiB of addresses: costs nothing if it is allowed */
    if (may >= 0 && !is_bound) assert_int_equal(may, 1);
    assert_int_equal(locked_now(), before);
    assert_true(bt_os_may_lock(UINT64_C(1) << 62) < 0); /* more than there are addresses: not known */
}

static void test_runs(void **state) {
    (void)state;
    uint64_t page = bt_os_page_bytes();
    uint64_t bytes = 40 * MIB; /* more than one stretch of the question */
    unsigned char *base = bt_os_reserve(bytes);
    assert_non_null(base);
    assert_int_equal(bt_os_no_huge_pages(base, bytes), 0);
    assert_int_equal(bt_os_run_bytes(base, bytes, false), bytes);
    assert_int_equal(bt_os_run_bytes(base, bytes, true), 0);
    base[20 * MIB] = 1;
    base[20 * MIB + page] = 1;
    assert_int_equal(bt_os_run_bytes(base, bytes, false), 20 * MIB);
    assert_int_equal(bt_os_run_bytes(base + 20 * MIB, 20 * MIB, true), 2 * page);
    assert_int_equal(bt_os_run_bytes(base + 20 * MIB, page, true), page);
    assert_int_equal(bt_os_run_bytes(base + 20 * MIB + 2 * page, 20 * MIB - 2 * page, false), 20 * MIB - 2 * page);
    assert_int_equal(bt_os_run_bytes(base, 0, true), 0);
    assert_int_equal(bt_os_unreserve(base, bytes), 0);
    assert_int_equal(bt_os_run_bytes(base, bytes, true), -ENOMEM);
}

static void test_reserve_is_refused(void **state) {
    (void)state;
    errno = 0;
    assert_null(bt_os_reserve(UINT64_C(1) << 62));
    assert_int_equal(errno, ENOMEM);
    errno = 0;
    assert_null(bt_os_reserve(0));
    assert_int_equal(errno, EINVAL);
    /* addresses are not memory: far more than any machine of these days has */
    void *base = bt_os_reserve(UINT64_C(1) << 44);
    if (!base) skip(); /* RLIMIT_AS, or a small address space */
    assert_int_equal(bt_os_unreserve(base, UINT64_C(1) << 44), 0);
}

static void test_memory(void **state) {
    (void)state;
    bt_os_memory before;
    bt_os_memory after;
    memset(&before, 0xAB, sizeof before);
    bt_os_memory_read(&before);
    assert_true(before.rss_bytes.known && before.peak_rss_bytes.known);
    assert_true(before.anon_bytes.known && before.file_bytes.known && before.major_faults.known);
    assert_true(bt_os_major_faults().known && bt_os_major_faults().value >= before.major_faults.value);
    assert_true(before.rss_bytes.value > 100000);
    uint64_t bytes = 64 * MIB;
    void *base = bt_os_reserve(bytes);
    assert_non_null(base);
    assert_int_equal(bt_os_populate(base, bytes), 0);
    bt_os_memory_read(&after);
    uint64_t grown = after.anon_bytes.value - before.anon_bytes.value;
    uint64_t slack = 2 * MIB; /* the kernel keeps these counters per core and adds them up late */
    assert_in_range(grown, bytes - slack, bytes + slack);
    assert_true(after.peak_rss_bytes.value + slack >= after.rss_bytes.value);
    assert_int_equal(bt_os_drop(base, bytes), 0);
    bt_os_memory_read(&after);
    assert_true(after.anon_bytes.value < before.anon_bytes.value + slack);
    assert_true(after.peak_rss_bytes.value >= before.rss_bytes.value + bytes - slack);
    assert_int_equal(bt_os_unreserve(base, bytes), 0);
}

/* Pages of a mapping that this process has no entry for; mincore would also count what is only in the file cache. */
static uint64_t absent_pages(int pagemap, uint64_t start, uint64_t end) {
    uint64_t n_absent = 0;
    for (uint64_t at = start / bt_os_page_bytes(); at < end / bt_os_page_bytes(); at++) {
        uint64_t entry = 0;
        assert_int_equal(bt_os_pread(pagemap, &entry, sizeof entry, at * sizeof entry), sizeof entry);
        n_absent += !(entry >> 63); /* "page present", Documentation/admin-guide/mm/pagemap.rst */
    }
    return n_absent;
}

/* Absent pages of the readable, unwritable mappings of this program and its libraries. drop_code: first give their code
 * back (only code: other pages may hold relocations that no file has). */
static uint64_t absent_text_pages(int pagemap, bool drop_code, uint64_t *ret_total_pages) {
    char program[4096] = "";
    assert_true(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps) {
        fail_msg("cannot open the list of mappings");
        return 0;
    }
    char line[4400];
    uint64_t n_absent = 0;
    *ret_total_pages = 0;
    while (fgets(line, sizeof line, maps)) {
        unsigned long long start = 0;
        unsigned long long end = 0;
        char mode[5] = "";
        if (sscanf(line, "%llx-%llx %4s", &start, &end, mode) != 3) continue; // NOLINT(cert-err34-c)
        if (mode[0] != 'r' || mode[1] == 'w') continue;
        if (!strstr(line, ".so") && !strstr(line, program)) continue;
        if (drop_code && mode[2] == 'x') {
            assert_int_equal(madvise((void *)(uintptr_t)start, (size_t)(end - start), MADV_DONTNEED), 0);
        }
        *ret_total_pages += (end - start) / bt_os_page_bytes();
        n_absent += absent_pages(pagemap, start, end);
    }
    (void)fclose(maps);
    return n_absent;
}

static void test_freeze_text(void **state) {
    (void)state;
    int pagemap = bt_os_open("/proc/self/pagemap", false);
    if (pagemap < 0) skip(); /* a kernel without it */
    uint64_t n_total = 0;
    assert_true(absent_text_pages(pagemap, true, &n_total) > 0);
    assert_true(n_total * bt_os_page_bytes() > MIB); /* libc alone is more */
    assert_int_equal(bt_os_freeze_text(), 0);
    assert_int_equal(absent_text_pages(pagemap, false, &n_total), 0);
    bt_os_memory first;
    bt_os_memory second;
    bt_os_memory_read(&first);
    assert_int_equal(bt_os_freeze_text(), 0);
    bt_os_memory_read(&second);
    assert_true(second.file_bytes.value <= first.file_bytes.value + MIB);
    assert_int_equal(bt_os_close(pagemap), 0);
}

static void test_heap(void **state) {
    (void)state;
    bt_known before = bt_os_heap_bytes();
    if (!before.known || before.value == 0) skip(); /* another C library, or a sanitizer's heap */
    void *block = malloc(3 * MIB);                  /* of a mapping of its own */
    assert_non_null(block);
    bt_known after = bt_os_heap_bytes();
    free(block);
    assert_in_range(after.value - before.value, 3 * MIB, 3 * MIB + 16384);
}

static void test_program(void **state) {
    (void)state;
    char program[4096] = "";
    assert_true(readlink(bt_os_self(), program, sizeof program - 1) > 0);
    assert_non_null(strstr(program, "test_unit_os"));
    char line[8192];
    bool has_avx2 = false;
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f))
        has_avx2 = has_avx2 || (strncmp(line, "flags", 5) == 0 && strstr(line, " avx2 ") != NULL);
    if (f) (void)fclose(f);
    assert_int_equal(bt_os_cpu_has_avx2(), has_avx2);
}

/* A grandchild that follows its parent ends when that does: its end of the pipe is closed. */
static void test_following(void **state) {
    (void)state;
    int ends[2];
    char byte = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t parent = fork();
    if (parent == 0) {
        if (fork() == 0) {
            char said = bt_os_follow_parent() == 0 ? 'y' : 'n';
            if (write(ends[1], &said, 1) == 1) (void)sleep(60);
            _exit(1);
        }
        (void)close(ends[1]);
        if (read(ends[0], &byte, 1) != 1 || byte != 'y') _exit(1);
        _exit(0);
    }
    (void)close(ends[1]);
    int status = -1;
    assert_int_equal(waitpid(parent, &status, 0), parent);
    assert_int_equal(status, 0);
    assert_int_equal(read(ends[0], &byte, 1), 0);
    assert_int_equal(close(ends[0]), 0);
}

static void test_cores(void **state) {
    (void)state;
    uint32_t n = bt_os_n_cores();
    assert_true(n >= 1);
    cpu_set_t before;
    if (sched_getaffinity(0, sizeof before, &before) != 0) skip(); /* more cores than cpu_set_t counts */
    assert_int_equal(n, CPU_COUNT(&before));
    cpu_set_t one;
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++) {
        if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
    }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(bt_os_n_cores(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

static void test_clock(void **state) {
    (void)state;
    uint64_t last = bt_os_now_ns();
    uint64_t first = last;
    for (int i = 0; i < 1000; i++) {
        uint64_t now = bt_os_now_ns();
        assert_true(now >= last);
        last = now;
    }
    (void)usleep(2000);
    assert_true(bt_os_now_ns() - first >= 2000000);
    int64_t from_s = (int64_t)time(NULL), unix_ms = bt_os_unix_ms(), to_s = (int64_t)time(NULL);
    assert_true(unix_ms >= (from_s - 1) * 1000 && unix_ms < (to_s + 2) * 1000); /* time() may be a tick behind */
}

static void test_faults(void **state) {
    (void)state;
#ifdef BT_FAULT
    unsigned char byte = 0;
    bt_fault_arm(0, true);
    assert_int_equal(bt_os_open(path, false), -EIO);
    assert_int_equal(bt_os_pread(0, &byte, 1, 0), -EIO);
    errno = 0;
    assert_null(bt_os_reserve(4096));
    assert_int_equal(errno, ENOMEM);
    assert_int_equal(bt_os_populate(&byte, 1), -ENOMEM);
    assert_int_equal(bt_os_lock(&byte, 1, true), -ENOMEM);
    assert_int_equal(bt_os_put(path, "1"), -EIO);
    assert_int_equal(bt_os_make_folder(BT_TEST_OUT "/test_os.d"), -EIO);
    assert_int_equal(bt_fault_count(), 7);
    assert_true(bt_os_n_cores() >= 1); /* without heap it still has an answer */
    bt_os_memory memory;
    bt_os_memory_read(&memory); /* never fails on request: it measures what others do */
    assert_true(memory.rss_bytes.known);
    assert_true(bt_fault_disarm());
#else
    skip();
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_folders_and_settings),
        cmocka_unit_test(test_libraries),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_direct),
        cmocka_unit_test(test_mapping),
        cmocka_unit_test(test_reserve_is_refused),
        cmocka_unit_test(test_pipes),
        cmocka_unit_test(test_writing),
        cmocka_unit_test(test_heap),
        cmocka_unit_test(test_program),
        cmocka_unit_test(test_following),
        cmocka_unit_test(test_locking),
        cmocka_unit_test(test_locking_is_limited),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_freeze_text),
        cmocka_unit_test(test_cores),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
