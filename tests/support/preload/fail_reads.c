/* SPDX-License-Identifier: MIT
 * fail_reads.c: makes reads at a place in one file fail while another file is there, as a library to preload
 * (LD_PRELOAD).
 *
 * FAIL_READS_OF is the file whose reads fail with EIO, as the kernel names it (no links in it), FAIL_READS_WHILE the
 * file that says when. Reads from where the file stands (read, fread) are let through: a program's own loading works.
 * What asks the kernel in another way (io_uring) is not seen: the program must be kept from it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static int must_fail(int fd) {
    const char *file = getenv("FAIL_READS_OF");
    const char *flag = getenv("FAIL_READS_WHILE");
    char link[64];
    char path[4096];
    ssize_t n;
    if (!file || !flag || access(flag, F_OK) != 0) return 0;
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = '\0';
    return strcmp(path, file) == 0;
}

ssize_t pread64(int fd, void *dest, size_t n_bytes, off64_t offset) {
    if (must_fail(fd)) {
        errno = EIO;
        return -1;
    }
    return (ssize_t)syscall(SYS_pread64, fd, dest, n_bytes, offset);
}

ssize_t pread(int fd, void *dest, size_t n_bytes, off_t offset) {
    return pread64(fd, dest, n_bytes, offset);
}
