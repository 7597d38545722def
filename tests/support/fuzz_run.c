/* SPDX-License-Identifier: MIT
 * fuzz_run.c: one input through the target of a program (fuzz.h), and libFuzzer's door to it. */
#include "fuzz.h"

#include "base/heap.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const void *now;
static size_t n_now;

const void *fuzz_now(size_t *ret_n) {
    *ret_n = n_now;
    return now;
}

void fuzz_fail(const char *file, int line, const char *condition) {
    (void)fprintf(stderr, "%s:%d: does not hold of this input: %s\n", file, line, condition);
    (void)fflush(stdout);
    abort(); /* libFuzzer, and the replay, keep the input then */
}

static char folder[] = "/dev/shm/burthen-fuzz-XXXXXX";

const char *fuzz_folder(void) {
    static const char other[] = "/tmp/burthen-fuzz-XXXXXX";
    static bool made;
    if (!made && !mkdtemp(folder)) {
        memcpy(folder, other, sizeof other);
        if (!mkdtemp(folder)) abort();
    }
    made = true;
    return folder;
}

void fuzz_folder_remove(void) {
    DIR *dir = opendir(folder);
    for (const struct dirent *entry; dir && (entry = readdir(dir));)
        if (entry->d_name[0] != '.') (void)unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir) (void)closedir(dir);
    (void)rmdir(folder);
}

bool fuzz_run(const void *data, size_t n) {
    size_t n_block = n + (fuzz_here.bare ? 0 : 1);
    char *text = malloc(n_block > 0 ? n_block : 1); /* of exactly this size */
    if (!text) abort();
    if (n > 0) memcpy(text, data, n);
    if (!fuzz_here.bare) text[n] = '\0';
    now = data;
    n_now = n;
    uint64_t live = bt_heap_live_blocks();
    bool taken = fuzz_here.one(text, n);
    FUZZ_CHECK(bt_heap_live_blocks() == live);
    free(text);
    return taken;
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    if (fuzz_here.start) fuzz_here.start();
    if (fuzz_here.stop) (void)atexit(fuzz_here.stop);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    (void)fuzz_run(data, n);
    return 0;
}
