/* SPDX-License-Identifier: MIT
 * mmap_random.c: a file that is mapped is read page by page as it is touched, as a library to preload (LD_PRELOAD).
 *
 * Read-ahead brings in what stands behind a page that was missed: megabytes for an expert of a mixture of which a few
 * hundred KiB are used. A program that maps its model is measured as it is and, with this, at its best. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    void *mapped = (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
    if (mapped != MAP_FAILED && fd >= 0 && !(protection & (PROT_WRITE | PROT_EXEC)))
        (void)madvise(mapped, bytes, MADV_RANDOM);
    return mapped;
}

/* "Will be needed" would read the file as a whole. */
int posix_madvise(void *address, size_t bytes, int advice) {
    (void)address;
    (void)bytes;
    (void)advice;
    return 0;
}
