/* SPDX-License-Identifier: MIT
 * malloc_count.c: counts what a program asks of the C library's heap, as a library to preload (LD_PRELOAD).
 *
 * Each call is passed on to glibc's own function, so nothing is looked up and nothing can recurse. At the end the
 * process writes a line to the file that MALLOC_COUNT names, "pid allocations frees bytes": bytes are usable ones that
 * were given out and not taken back. A child that leaves by _exit writes nothing: a dry run is not counted. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static _Atomic uint64_t n_allocations, n_frees;
static _Atomic int64_t live_bytes;

static void *given(void *p) {
    if (p) {
        n_allocations++;
        live_bytes += (int64_t)malloc_usable_size(p);
    }
    return p;
}

void *malloc(size_t n) {
    return given(__libc_malloc(n));
}

void *calloc(size_t n, size_t size) {
    return given(__libc_calloc(n, size));
}

void *realloc(void *p, size_t n) {
    int64_t before = p ? (int64_t)malloc_usable_size(p) : 0;
    void *moved = __libc_realloc(p, n);
    if (!moved && n > 0) return NULL;
    live_bytes -= before;
    return given(moved);
}

void *memalign(size_t alignment, size_t n) {
    return given(__libc_memalign(alignment, n));
}

void *aligned_alloc(size_t alignment, size_t n) {
    return given(__libc_memalign(alignment, n));
}

int posix_memalign(void **ret, size_t alignment, size_t n) {
    void *p = given(__libc_memalign(alignment, n));
    if (!p) return ENOMEM;
    *ret = p;
    return 0;
}

void free(void *p) {
    if (!p) return;
    n_frees++;
    live_bytes -= (int64_t)malloc_usable_size(p);
    __libc_free(p);
}

__attribute__((destructor)) static void say(void) {
    const char *path = getenv("MALLOC_COUNT");
    uint64_t allocations = n_allocations;
    uint64_t frees = n_frees;
    int64_t live = live_bytes;
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    fprintf(file, "%d %llu %llu %lld\n", (int)getpid(), (unsigned long long)allocations, (unsigned long long)frees,
            (long long)live);
    fclose(file);
}
