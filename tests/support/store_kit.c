/* SPDX-License-Identifier: MIT
 * store_kit.c: see store_kit.h. Uses the C library directly, so that fault counters do not see it. */
#include "store_kit.h"
#include "random.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* splitmix64 (Steele, Lea, Flood 2014): any seed will do, 0 too */
uint64_t kit_random(uint64_t *state) {
    return random_next(state);
}

uint64_t kit_below(uint64_t *state, uint64_t n) {
    return kit_random(state) % n;
}

void kit_refresh(kit *k, uint32_t file) {
    struct stat st;
    assert_int_equal(stat(k->paths[file], &st), 0);
    k->shards[file].file_bytes = (uint64_t)st.st_size;
    k->shards[file].mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    k->shards[file].device = (uint64_t)st.st_dev;
    k->shards[file].inode = (uint64_t)st.st_ino;
}

void kit_open(kit *k, const char *name, const uint64_t *sizes, uint32_t n_files, uint64_t seed) {
    assert_true(n_files <= KIT_FILES);
    *k = (kit){.facts = {.n_shards = n_files}};
    k->facts.shards = k->shards;
    (void)mkdir(BT_TEST_OUT, 0777);
    for (uint32_t i = 0; i < n_files; i++) {
        (void)snprintf(k->paths[i], sizeof k->paths[i], "%s/%s.%ld.%u", BT_TEST_OUT, name, (long)getpid(), i);
        k->shards[i].path = k->paths[i];
        uint64_t padded = (sizes[i] + BT_PAGE_BYTES - 1) / BT_PAGE_BYTES * BT_PAGE_BYTES;
        k->data[i] = calloc(1, padded ? padded : 1);
        assert_non_null(k->data[i]);
        for (uint64_t at = 0; at < sizes[i]; at += 8) {
            uint64_t r = kit_random(&seed);
            memcpy(k->data[i] + at, &r, sizes[i] - at < 8 ? sizes[i] - at : 8);
        }
        FILE *f = fopen(k->paths[i], "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(k->data[i], 1, sizes[i], f), sizes[i]);
        assert_int_equal(fclose(f), 0);
        kit_refresh(k, i);
    }
}

void kit_close(kit *k) {
    for (uint32_t i = 0; i < k->facts.n_shards; i++) {
        (void)unlink(k->paths[i]);
        free(k->data[i]);
    }
    *k = (kit){0};
}

uint32_t kit_n_fds(void) {
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    uint32_t n = 0;
    while (readdir(dir)) {
        n++;
    }
    (void)closedir(dir);
    return n;
}
