/* SPDX-License-Identifier: MIT
 * os_linux.c: os.h for Linux.
 *
 * Thin on purpose: each function is one system call with its traps handled, so that the rest of Burthen meets plain
 * errno values. What opens, reads, maps or fills asks bt_fault_hit() first and fails with EIO or ENOMEM when told to.
 * /proc is read through a buffer on the stack, line by line and with a bound on the lines, never through stdio: these
 * calls are made while memory is being measured, and must not change it.
 *
 * Ranges need not be aligned. Calls that fill or ask take every page the range touches; calls that give back or advise
 * take only pages that lie in it as a whole. */
#include "base/fault.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(size_t) == sizeof(uint64_t), "address space is reserved by the size of a model: 64 bits only");

/* linux/mman.h since 5.14; headers may be older than the kernel */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_DONTNEED_LOCKED /* since 5.18 */
#define MADV_DONTNEED_LOCKED 24
#endif

#define HUGE_BYTES (UINT64_C(2) << 20) /* of x86-64, and of AArch64 with 4 KiB pages */

/* ---- files ------------------------------------------------------------------------------------------------------ */

int bt_os_open(const char *path, bool direct) {
    if (bt_fault_hit()) return -EIO;
    int fd = -1;
    do {
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | (direct ? O_DIRECT : 0));
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) return -errno;
    /* Of the opening alone: io_uring would not wait for the reads of some file systems. */
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0) return fd;
    int sys = errno;
    (void)close(fd);
    return -sys;
}

int bt_os_close(int fd) {
    /* Not retried: Linux has closed the descriptor even when close() says EINTR (close(2), notes). */
    return close(fd) < 0 && errno != EINTR ? -errno : 0;
}

int64_t bt_os_pread(int fd, void *dest, size_t bytes, uint64_t offset) {
    if (bt_fault_hit()) return -EIO;
    uint64_t end = 0;
    if (!bt_add_u64(offset, bytes, &end) || end > INT64_MAX) return -EINVAL;
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = pread(fd, (unsigned char *)dest + done, bytes - done, (off_t)(offset + done));
        if (n == 0) break;
        if (n > 0) {
            done += (size_t)n;
            continue;
        }
        if (errno == EINTR) continue;
        /* A direct read ends short at the file's end, and some file systems then refuse the unaligned rest. */
        if (errno == EINVAL && done > 0) break;
        return -errno;
    }
    return (int64_t)done;
}

int bt_os_drop_file_cache(int fd, uint64_t offset, uint64_t bytes) {
    if (offset > INT64_MAX || bytes > INT64_MAX) return -EINVAL;
    return -posix_fadvise(fd, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED);
}

int bt_os_write(int fd, const void *data, size_t bytes) {
    const char *at = data;
    if (bt_fault_hit()) return -EIO;
    while (bytes > 0) {
        ssize_t n = write(fd, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n < 0 ? -errno : -EIO;
        at += n;
        bytes -= (size_t)n;
    }
    return 0;
}

int bt_os_put(const char *path, const char *text) {
    if (bt_fault_hit()) return -EIO;
    int fd = -1;
    do {
        fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) return -errno;
    size_t n_bytes = strlen(text);
    ssize_t n = 0;
    do {
        n = write(fd, text, n_bytes);
    } while (n < 0 && errno == EINTR);
    int rc = n < 0 ? -errno : 0;
    if (rc == 0 && (size_t)n < n_bytes) rc = -EIO;
    (void)bt_os_close(fd);
    return rc;
}

int bt_os_make_folder(const char *path) {
    if (bt_fault_hit()) return -EIO;
    return mkdir(path, S_IRWXU | S_IRGRP | S_IXGRP | S_IROTH | S_IXOTH) < 0 ? -errno : 0;
}

int bt_os_remove_folder(const char *path) {
    return rmdir(path) < 0 ? -errno : 0;
}

/* Both are the C library's own objects under our names: it allocates them, and nobody looks inside. */
bt_os_folder *bt_os_folder_open(const char *path) {
    if (bt_fault_hit()) {
        errno = EIO;
        return NULL;
    }
    return (bt_os_folder *)opendir(path);
}

const char *bt_os_folder_next(bt_os_folder *folder) {
    const struct dirent *entry = NULL;
    do {
        entry = readdir((DIR *)folder);
    } while (entry && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
    return entry ? entry->d_name : NULL;
}

void bt_os_folder_close(bt_os_folder *folder) {
    (void)closedir((DIR *)folder);
}

/* ---- libraries -------------------------------------------------------------------------------------------------- */

bt_os_library *bt_os_library_open(const char *name) {
    return bt_fault_hit() ? NULL : dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

void *bt_os_library_find(bt_os_library *library, const char *symbol) {
    return dlsym(library, symbol);
}

void bt_os_library_close(bt_os_library *library) {
    (void)dlclose(library);
}

/* ---- mappings --------------------------------------------------------------------------------------------------- */

uint64_t bt_os_page_bytes(void) {
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

typedef struct range {
    unsigned char *base;
    size_t bytes;
} range;

/* Every page the range touches. */
static range outer_pages(const void *base, uint64_t bytes) {
    uintptr_t page = bt_os_page_bytes();
    uintptr_t first = (uintptr_t)base / page * page;
    uintptr_t last = ((uintptr_t)base + bytes + page - 1) / page * page;
    return (range){(unsigned char *)first, bytes ? last - first : 0};
}

/* Only pages that lie in the range as a whole. */
static range inner_pages(const void *base, uint64_t bytes) {
    uintptr_t page = bt_os_page_bytes();
    uintptr_t first = ((uintptr_t)base + page - 1) / page * page;
    uintptr_t last = ((uintptr_t)base + bytes) / page * page;
    return (range){(unsigned char *)first, last > first ? last - first : 0};
}

static int advise(range r, int advice) {
    if (r.bytes == 0) return 0;
    int rc = 0;
    do {
        rc = madvise(r.base, r.bytes, advice);
    } while (rc < 0 && errno == EINTR);
    return rc < 0 ? -errno : 0;
}

void *bt_os_reserve(uint64_t bytes) {
    if (bt_fault_hit()) {
        errno = ENOMEM;
        return NULL;
    }
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return base == MAP_FAILED ? NULL : base;
}

int bt_os_unreserve(void *base, uint64_t bytes) {
    return munmap(base, bytes) < 0 ? -errno : 0;
}

int bt_os_populate(void *base, uint64_t bytes) {
    if (bt_fault_hit()) return -ENOMEM;
    range r = outer_pages(base, bytes);
    int rc = advise(r, MADV_POPULATE_WRITE);
    if (rc != -EINVAL) return rc;
    /* Before Linux 5.14. Asked first whether all of it is mapped, since a touch would be a SIGSEGV. The same byte is
     * written back, so what the pages hold stays. */
    int64_t resident = bt_os_resident_bytes(base, bytes);
    if (resident < 0) return (int)resident;
    uint64_t page = bt_os_page_bytes();
    for (uint64_t at = 0; at < r.bytes; at += page) {
        volatile unsigned char *p = r.base + at;
        *p = *p;
    }
    return 0;
}

int bt_os_drop(void *base, uint64_t bytes) {
    range r = inner_pages(base, bytes);
    int rc = advise(r, MADV_DONTNEED);
    if (rc != -EINVAL) return rc;
    /* Locked pages are not dropped on that word (mm/madvise.c: can_madvise_dontneed); before Linux 5.18 on none. */
    rc = advise(r, MADV_DONTNEED_LOCKED);
    if (rc != -EINVAL) return rc;
    rc = bt_os_unlock(r.base, r.bytes);
    if (rc == 0) rc = advise(r, MADV_DONTNEED);
    (void)mlock2(r.base, r.bytes, MLOCK_ONFAULT); /* refused: less is locked than was, and VmLck says so */
    return rc;
}

int bt_os_no_huge_pages(void *base, uint64_t bytes) {
    int rc = advise(inner_pages(base, bytes), MADV_NOHUGEPAGE);
    return rc == -EINVAL ? 0 : rc; /* a kernel without them */
}

int bt_os_huge_pages(void *base, uint64_t bytes) {
    uint64_t skip = (HUGE_BYTES - (uint64_t)(uintptr_t)base % HUGE_BYTES) % HUGE_BYTES;
    if (bytes < skip + HUGE_BYTES) return 0;
    range whole = inner_pages((uint8_t *)base + skip, (bytes - skip) / HUGE_BYTES * HUGE_BYTES);
    int rc = advise(whole, MADV_HUGEPAGE);
    return rc == -EINVAL ? 0 : rc;
}

int bt_os_lock(void *base, uint64_t bytes, bool may_fill) {
    if (bt_fault_hit()) return -ENOMEM;
    range r = outer_pages(base, bytes);
    if (r.bytes == 0 || mlock2(r.base, r.bytes, MLOCK_ONFAULT) == 0) return 0;
    if (errno != ENOSYS && errno != EINVAL) return -errno;
    /* Before Linux 4.4. glibc says EINVAL then: that its flag is not known. */
    if (!may_fill) return -ENOSYS;
    return mlock(r.base, r.bytes) < 0 ? -errno : 0;
}

int bt_os_unlock(void *base, uint64_t bytes) {
    range r = outer_pages(base, bytes);
    return r.bytes > 0 && munlock(r.base, r.bytes) < 0 ? -errno : 0;
}

int bt_os_may_lock(uint64_t bytes) {
    if (bytes == 0) return 1;
    void *base = bt_os_reserve(bytes);
    if (!base) return errno ? -errno : -ENOMEM;
    /* Nothing is there to be locked: the question costs no memory. */
    int rc = bt_os_lock(base, bytes, false);
    (void)bt_os_unreserve(base, bytes);
    if (rc == 0) return 1;
    return rc == -ENOMEM || rc == -EPERM || rc == -EAGAIN ? 0 : rc;
}

bt_known bt_os_lock_limit_bytes(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY) return (bt_known){0};
    return (bt_known){true, limit.rlim_cur};
}

int64_t bt_os_run_bytes(const void *base, uint64_t bytes, bool is_resident) {
    unsigned char resident[4096]; /* as below */
    uint64_t page = bt_os_page_bytes();
    range r = outer_pages(base, bytes);
    for (uint64_t at = 0; at < r.bytes; at += sizeof resident * page) {
        uint64_t n = bt_min_u64(sizeof resident * page, r.bytes - at);
        if (mincore(r.base + at, n, resident) < 0) return -errno;
        for (uint64_t i = 0; i < n / page; i++)
            if ((resident[i] & 1) != is_resident) return (int64_t)(at + i * page);
    }
    return (int64_t)r.bytes;
}

int64_t bt_os_resident_bytes(const void *base, uint64_t bytes) {
    /* One byte a page on the stack: a 16 MiB stretch per call with 4 KiB pages. */
    unsigned char resident[4096];
    uint64_t page = bt_os_page_bytes();
    range r = outer_pages(base, bytes);
    uint64_t stretch = sizeof resident * page;
    uint64_t n_resident = 0;
    for (uint64_t at = 0; at < r.bytes; at += stretch) {
        uint64_t n = bt_min_u64(stretch, r.bytes - at);
        int rc = 0;
        do {
            rc = mincore(r.base + at, n, resident);
        } while (rc < 0 && errno == EINTR);
        if (rc < 0) return -errno;
        for (uint64_t i = 0; i < n / page; i++) {
            n_resident += resident[i] & 1;
        }
    }
    return (int64_t)(n_resident * page);
}

uint64_t bt_os_now_ns(void) {
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail with this clock and a valid pointer */
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

int64_t bt_os_unix_ms(void) {
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now); /* as above */
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- /proc, line by line ---------------------------------------------------------------------------------------- */

#define PROC_LINE_MAX (PATH_MAX + 128) /* a line of maps: addresses, offset, inode, then one path */
#define PROC_N_LINES  65536            /* vm.max_map_count is 65530 unless raised: one mapping, one line */

typedef struct lines {
    int fd;
    uint32_t n_lines;
    size_t begin, end; /* of what is in data and not yet taken */
    char data[PROC_LINE_MAX + 1];
} lines;

static int lines_open(lines *in, const char *path) {
    *in = (lines){0};
    do {
        in->fd = open(path, O_RDONLY | O_CLOEXEC);
    } while (in->fd < 0 && errno == EINTR);
    return in->fd < 0 ? -errno : 0;
}

static bool lines_fill(lines *in) {
    memmove(in->data, in->data + in->begin, in->end - in->begin);
    in->end -= in->begin;
    in->begin = 0;
    ssize_t n = 0;
    do {
        n = read(in->fd, in->data + in->end, PROC_LINE_MAX - in->end);
    } while (n < 0 && errno == EINTR);
    if (n <= 0) return false;
    in->end += (size_t)n;
    return true;
}

/* The next line without its newline, or NULL at the end. A line over PROC_LINE_MAX (Groups: of status can be) comes in
 * pieces, which no caller takes for a line it looks for. */
static char *lines_next(lines *in) {
    if (in->n_lines++ >= PROC_N_LINES) return NULL;
    for (;;) {
        char *start = in->data + in->begin;
        char *newline = memchr(start, '\n', in->end - in->begin);
        bool full = in->begin == 0 && in->end == PROC_LINE_MAX;
        if (newline || full) {
            char *stop = newline ? newline : in->data + in->end;
            in->begin = (size_t)(stop - in->data) + (newline ? 1 : 0);
            *stop = '\0'; /* of a full buffer: the spare byte behind it */
            return start;
        }
        if (!lines_fill(in)) return NULL;
    }
}

/* Digits of a base from *p on; *p is left behind them. Saturates. */
static uint64_t take_number(const char **p, uint32_t base) {
    uint64_t number = 0;
    for (;; (*p)++) {
        char c = **p;
        uint32_t digit = base;
        if (c >= '0' && c <= '9') digit = (uint32_t)(c - '0');
        if (c >= 'a' && c <= 'f') digit = (uint32_t)(c - 'a') + 10;
        if (digit >= base) return number;
        number = bt_sat_add_u64(bt_sat_mul_u64(number, base), digit);
    }
}

/* ---- memory of this process ------------------------------------------------------------------------------------- */

/* "VmRSS:\t    1234 kB" */
static void take_status_line(const char *line, const char *key, bt_known *ret_bytes) {
    size_t n = strlen(key);
    if (strncmp(line, key, n) != 0) return;
    const char *p = line + n + strspn(line + n, " \t");
    const char *digits = p;
    uint64_t kib = take_number(&p, 10);
    if (p == digits || strcmp(p, " kB") != 0) return;
    *ret_bytes = (bt_known){.known = true, .value = bt_sat_mul_u64(kib, 1024)};
}

/* The counters behind status are kept per core and may be off by some hundred KiB; smaps_rollup walks the page tables.
 * Linux has it from 4.14; where it is missing the counters stand. */
static void take_rollup(bt_os_memory *ret) {
    lines in;
    bt_known rss = {0};
    bt_known anon = {0};
    if (lines_open(&in, "/proc/self/smaps_rollup") != 0) return;
    for (const char *line = lines_next(&in); line; line = lines_next(&in)) {
        take_status_line(line, "Rss:", &rss);
        take_status_line(line, "Anonymous:", &anon);
    }
    (void)close(in.fd);
    if (!rss.known || !anon.known || anon.value > rss.value) return;
    ret->rss_bytes = rss;
    ret->anon_bytes = anon;
    ret->file_bytes = (bt_known){.known = true, .value = rss.value - anon.value};
}

bt_known bt_os_major_faults(void) {
    struct rusage usage = {0};
    if (getrusage(RUSAGE_SELF, &usage) != 0 || usage.ru_majflt < 0) return (bt_known){0};
    return (bt_known){.known = true, .value = (uint64_t)usage.ru_majflt};
}

void bt_os_memory_read(bt_os_memory *ret) {
    *ret = (bt_os_memory){.major_faults = bt_os_major_faults()};
    lines in;
    if (lines_open(&in, "/proc/self/status") != 0) return;
    for (const char *line = lines_next(&in); line; line = lines_next(&in)) {
        take_status_line(line, "VmRSS:", &ret->rss_bytes);
        take_status_line(line, "VmHWM:", &ret->peak_rss_bytes);
        take_status_line(line, "RssAnon:", &ret->anon_bytes);
        take_status_line(line, "RssFile:", &ret->file_bytes);
        take_status_line(line, "VmLck:", &ret->locked_bytes);
    }
    (void)close(in.fd);
    take_rollup(ret);
}

/* ---- code and read-only data ------------------------------------------------------------------------------------ */

/* Most that is brought in. llama.cpp's CPU libraries and all that they link come to 15 MiB (x86-64, one CPU variant);
 * a BLAS adds tens. What would pass this is a GPU runtime, whose code is mostly never run: such a file is left out. */
#define FREEZE_MAX_BYTES (UINT64_C(256) << 20)

typedef struct mapping {
    uint64_t start, end;
    bool readable, writable;
    const char *path; /* "" for none */
} mapping;

/* "7f00-7f10 r-xp 00001000 fd:01 131   /lib/x.so": start-end, permissions, offset, device, inode, path. */
static bool take_mapping(const char *line, mapping *ret) {
    const char *p = line;
    mapping m = {0};
    m.start = take_number(&p, 16);
    if (*p++ != '-') return false;
    m.end = take_number(&p, 16);
    if (*p++ != ' ' || m.end <= m.start) return false;
    if (strnlen(p, 5) < 5) return false; /* "r-xp " */
    m.readable = p[0] == 'r';
    m.writable = p[1] == 'w';
    for (int field = 0; field < 4; field++) { /* permissions, offset, device, inode */
        p += strcspn(p, " ");
        p += strspn(p, " ");
    }
    m.path = p;
    *ret = m;
    return true;
}

static bool is_library(const char *path) {
    const char *name = strrchr(path, '/');
    if (!name) return false; /* [vdso], [heap], anonymous */
    const char *so = strstr(name, ".so");
    return so && (so[3] == '\0' || so[3] == '.' || so[3] == ' '); /* "x.so", "x.so.6", "x.so (deleted)" */
}

/* Pages are touched, whatever lies in them: what the address sanitizer puts between globals too. */
__attribute__((no_sanitize_address)) static void touch_for_reading(const mapping *m) {
    unsigned char *base = (unsigned char *)(uintptr_t)m->start;
    range r = {base, (size_t)(m->end - m->start)};
    /* Pages of a mapping that lie behind its file's end make this fail after the others came in: nothing to report. */
    if (advise(r, MADV_POPULATE_READ) != -EINVAL) return;
    /* Before Linux 5.14. A library's pages do not lie behind its file's end, where a touch would be a SIGBUS, unless
     * the file was cut under us; then running it would fail as well. */
    for (uint64_t at = 0; at < r.bytes; at += bt_os_page_bytes()) {
        (void)*(volatile unsigned char *)(base + at);
    }
}

int bt_os_freeze_text(void) {
    char program[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = '\0';
    lines in;
    int rc = lines_open(&in, "/proc/self/maps");
    if (rc != 0) return rc;
    uint64_t total_bytes = 0;
    for (const char *line = lines_next(&in); line; line = lines_next(&in)) {
        mapping m;
        if (!take_mapping(line, &m) || !m.readable || m.writable) continue;
        bool is_program = program[0] && strcmp(m.path, program) == 0;
        if (!is_program && !is_library(m.path)) continue;
        if (total_bytes + (m.end - m.start) > FREEZE_MAX_BYTES) continue;
        total_bytes += m.end - m.start;
        touch_for_reading(&m);
    }
    (void)close(in.fd);
    return 0;
}

/* ---- heap --------------------------------------------------------------------------------------------------- */

bt_known bt_os_heap_bytes(void) {
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33) /* mallinfo2; the one before counts in an int */
    struct mallinfo2 info = mallinfo2();        /* of all arenas */
    return (bt_known){true, (uint64_t)info.uordblks + info.hblkhd};
#else
    return (bt_known){0};
#endif
}

/* ---- this program, this processor -------------------------------------------------------------------------------- */

bool bt_os_cpu_has_avx2(void) {
#if defined(__x86_64__) || defined(__i386__)
    return __builtin_cpu_supports("avx2");
#else
    return false;
#endif
}

const char *bt_os_self(void) {
    return "/proc/self/exe";
}

int bt_os_follow_parent(void) {
    return prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 ? 0 : -errno;
}

/* ---- cores ------------------------------------------------------------------------------------------------------ */

uint32_t bt_os_n_cores(void) {
    /* The kernel refuses a set smaller than its own with EINVAL: double from the 1024 of cpu_set_t, up to twice the
     * 8192 that Linux can be built for (CONFIG_NR_CPUS with MAXSMP). */
    for (size_t n_cpus = 1024; n_cpus <= 16384; n_cpus *= 2) {
        size_t bytes = CPU_ALLOC_SIZE(n_cpus);
        cpu_set_t *set = bt_heap_alloc(bytes);
        if (!set) break;
        int rc = sched_getaffinity(0, bytes, set) < 0 ? errno : 0;
        int n = rc == 0 ? CPU_COUNT_S(bytes, set) : 0;
        bt_heap_free(set);
        if (n > 0) return (uint32_t)n;
        if (rc != EINVAL) break;
    }
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}
