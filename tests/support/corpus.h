/* SPDX-License-Identifier: MIT
 * corpus.h: the samples of a replayed fuzz test, and the numbers that it changes them by. Part of one program each. */
#pragma once

#include "random.h"

#include <dirent.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define N_TEXT_MAX 8192
#define N_MAX      64

typedef struct sample {
    char data[N_TEXT_MAX];
    size_t n;
} sample;

static sample samples[N_MAX];
static size_t n_samples;
static uint64_t seed;

static size_t below(size_t n) {
    return (size_t)(random_next(&seed) % n);
}

/* All files of a folder, of each at most half of what a sample holds. first_seed stands unless BT_SEED does; it is
 * said, so that a run can be made again. Fewer than n_min samples: -1. */
static int corpus_load(const char *folder_path, uint64_t first_seed, size_t n_min) {
    const char *fixed = getenv("BT_SEED");
    seed = fixed ? strtoull(fixed, NULL, 10) : first_seed;
    print_message("BT_SEED=%" PRIu64 "\n", seed);
    DIR *folder = opendir(folder_path);
    if (!folder) return -1;
    const struct dirent *entry;
    n_samples = 0;
    while ((entry = readdir(folder)) && n_samples < N_MAX) {
        char path[1024];
        if (entry->d_name[0] == '.') continue;
        (void)snprintf(path, sizeof path, "%s/%s", folder_path, entry->d_name);
        FILE *file = fopen(path, "rb");
        if (!file) continue;
        sample *s = &samples[n_samples++];
        s->n = fread(s->data, 1, sizeof s->data / 2, file);
        (void)fclose(file);
    }
    (void)closedir(folder);
    return n_samples >= n_min ? 0 : -1;
}
