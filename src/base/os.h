/* SPDX-License-Identifier: MIT
 * os.h: the calls that differ between systems or that a fault test must be able to fail. Everything else is plain
 * POSIX. Each returns 0 or a byte count, or minus an errno value. */
#pragma once

#include "burthen.h"

/* Read-only, close-on-exec; descriptor or -errno. It waits for nobody: a pipe that nobody writes to is opened, too, and
 * bt_os_pread refuses it (ESPIPE). */
int bt_os_open(const char *path, bool direct);
int bt_os_close(int fd);
int64_t bt_os_pread(int fd, void *dest, size_t bytes, uint64_t offset); /* retries EINTR; may be short at the end */
int bt_os_write(int fd, const void *data, size_t bytes);                /* all of it, however many writes that takes */
/* Text into a file that is there, by one write: settings of the kernel, which takes each write as a whole. */
int bt_os_put(const char *path, const char *text);
int bt_os_make_folder(const char *path); /* mode 0755 less the umask */
int bt_os_remove_folder(const char *path);
/* The names in a folder one after another, in no order, without "." and "..". NULL: it cannot be opened (errno). */
typedef struct bt_os_folder bt_os_folder;
bt_os_folder *bt_os_folder_open(const char *path);
const char *bt_os_folder_next(bt_os_folder *folder); /* NULL at the end; good until the next call */
void bt_os_folder_close(bt_os_folder *folder);
/* A shared library as the loader finds it, all of it resolved now and its names kept to itself. NULL: it is not there,
 * or the loader refuses it. */
typedef struct bt_os_library bt_os_library;
bt_os_library *bt_os_library_open(const char *name);
void *bt_os_library_find(bt_os_library *library, const char *symbol); /* NULL: it has none of that name */
void bt_os_library_close(bt_os_library *library);
void *bt_os_reserve(uint64_t bytes); /* address space, no memory; NULL when refused (errno) */
int bt_os_unreserve(void *base, uint64_t bytes);
int bt_os_populate(void *base, uint64_t bytes);      /* touch every page for writing now */
int bt_os_drop(void *base, uint64_t bytes);          /* give whole pages in it back; they read as zero again */
int bt_os_no_huge_pages(void *base, uint64_t bytes); /* advice; 0 where it does not exist */
/* Advice: huge pages, where whole ones lie within the range; 0 where they do not exist. */
int bt_os_huge_pages(void *base, uint64_t bytes);
int64_t bt_os_resident_bytes(const void *base, uint64_t bytes); /* pages now in memory, in bytes */
/* Bytes of the pages at the start of a page-aligned range that all are in memory (resident), or all are not. */
int64_t bt_os_run_bytes(const void *base, uint64_t bytes, bool resident);
/* Keep the pages it touches in memory, those that come later as soon as they come: nothing is brought in. Where the
 * system can only lock what it brings in: that where may_fill, else -ENOSYS. bt_os_drop works as before. */
int bt_os_lock(void *base, uint64_t bytes, bool may_fill);
int bt_os_unlock(void *base, uint64_t bytes);
/* Whether so many bytes more could be locked now: 1, 0, or -errno where that cannot be found out. Locks nothing. */
int bt_os_may_lock(uint64_t bytes);
bt_known bt_os_lock_limit_bytes(void); /* RLIMIT_MEMLOCK; unknown = unlimited, or not said */
int bt_os_drop_file_cache(int fd, uint64_t offset, uint64_t bytes);
uint64_t bt_os_now_ns(void); /* monotonic */
int64_t bt_os_unix_ms(void); /* since 1970, as people set it: it may jump */
uint64_t bt_os_page_bytes(void);
bool bt_os_cpu_has_avx2(void); /* false on other processors than x86 */
/* VmRSS, VmHWM, RssAnon, RssFile, VmLck of this process in bytes; unknown where the system does not say */
typedef struct bt_os_memory {
    bt_known rss_bytes, peak_rss_bytes, anon_bytes, file_bytes, locked_bytes;
    bt_known major_faults;
} bt_os_memory;
void bt_os_memory_read(bt_os_memory *ret);
bt_known bt_os_major_faults(void); /* pages that this process has waited for since it began; cheap */
/* What the C library's heap has given out and not got back, ours and every library's; unknown where it does not say. */
bt_known bt_os_heap_bytes(void);
/* Bring in the code and read-only data of every mapped library, so that no later first call adds to the process base.
 */
int bt_os_freeze_text(void);
/* A path under which exec finds this program, also when its file was replaced meanwhile. */
const char *bt_os_self(void);
/* This process is told to end (SIGTERM) when the one that started it is gone. 0 where that cannot be. */
int bt_os_follow_parent(void);
uint32_t bt_os_n_cores(void); /* cores this process may run on */
