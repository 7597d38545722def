/* SPDX-License-Identifier: MIT
 * corpus.h: the samples of a replayed fuzz test, and the numbers that it changes them by. Part of one program each. */
#pragma once

#include "random.h"

#include <dirent.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_TEXT_MAX 16384
#define N_MAX      512

typedef struct sample {
    char data[N_TEXT_MAX];
    size_t n;
} sample;

static sample samples[N_MAX];
static size_t n_samples;
static uint64_t corpus_seed, corpus_random;

static size_t below(size_t n) {
    return (size_t)(random_next(&corpus_random) % n);
}

/* first_seed stands unless BT_SEED does; it is said, so that a run can be made again. */
static void corpus_begin(uint64_t first_seed) {
    const char *fixed = getenv("BT_SEED");
    corpus_seed = corpus_random = fixed ? strtoull(fixed, NULL, 10) : first_seed;
    n_samples = 0;
    print_message("BT_SEED=%" PRIu64 "\n", corpus_seed);
}

static bool corpus_add_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file || n_samples == N_MAX) {
        if (file) (void)fclose(file);
        return false;
    }
    sample *s = &samples[n_samples++];
    s->n = fread(s->data, 1, sizeof s->data, file);
    (void)fclose(file);
    return true;
}

static int corpus_is_shown(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

/* A file, or all files of a folder in the order of their names (a seed means the same everywhere); of each as much as a
 * sample holds. false: it is not there, or there are more than N_MAX. */
static bool corpus_add(const char *path) {
    struct dirent **entries = NULL;
    int n = scandir(path, &entries, corpus_is_shown, alphasort);
    if (n < 0) return corpus_add_file(path);
    bool good = true;
    for (int i = 0; i < n; i++) {
        char file[1024];
        int n_file = snprintf(file, sizeof file, "%s/%s", path, entries[i]->d_name);
        good = n_file > 0 && (size_t)n_file < sizeof file && corpus_add_file(file) && good;
        free(entries[i]);
    }
    free(entries);
    return good;
}

static inline void corpus_splice(sample *s, size_t at, size_t n_old, const char *more, size_t n_new) {
    if (s->n - n_old + n_new > N_TEXT_MAX) return;
    memmove(s->data + at + n_new, s->data + at + n_old, s->n - at - n_old);
    memcpy(s->data + at, more, n_new);
    s->n = s->n - n_old + n_new;
}

/* Decimal, or as so many bytes: what sizes, counts and offsets are tripped with. */
static inline size_t corpus_number(char ret[24]) {
    static const uint64_t numbers[] = {0,          1,          2,          7,          255,
                                       256,        511,        513,        1024,       65535,
                                       65536,      INT32_MAX,  1ull << 31, UINT32_MAX, 1ull << 32,
                                       1ull << 61, 1ull << 62, INT64_MAX,  1ull << 63, UINT64_MAX - 31,
                                       UINT64_MAX};
    uint64_t number = numbers[below(sizeof numbers / sizeof *numbers)];
    size_t width = (size_t[]){0, 0, 1, 2, 4, 8}[below(6)];
    if (width == 0) return (size_t)snprintf(ret, 24, "%" PRIu64 "%s", number, below(4) == 0 ? "9" : "");
    memcpy(ret, &number, width); /* little endian, as all that we read */
    return width;
}

/* In one place, by accident: a bit, a byte, a stretch that goes, comes again or is another sample's, a number, one of
 * n_words words (word may be NULL where there are none). */
static inline void corpus_change(sample *s, size_t n_words, const char *(*word)(size_t)) {
    static char copy[512];
    char number[24];
    size_t at = below(s->n + 1);
    size_t left = s->n - at;
    const sample *other = &samples[below(n_samples)];
    size_t from = below(other->n + 1);
    size_t n = below((other->n - from < sizeof copy ? other->n - from : sizeof copy) + 1);
    size_t n_old = below((left < 12 ? left : 12) + 1);
    switch (below(8)) {
    case 0: /* a bit */
        if (left > 0) s->data[at] = (char)(s->data[at] ^ (char)(1u << below(8)));
        break;
    case 1: /* a byte */
        if (left > 0) s->data[at] = (char)below(256);
        break;
    case 2: /* the end goes, or some of it */
        if (below(6) == 0)
            s->n = at;
        else
            corpus_splice(s, at, below((left < 64 ? left : 64) + 1), "", 0);
        break;
    case 3: /* a stretch of this one or of another, between or in the place of as much */
        memcpy(copy, other->data + from, n);
        corpus_splice(s, at, below(2) && n <= left ? n : 0, copy, n);
        break;
    case 4:
        n = corpus_number(number);
        corpus_splice(s, at, below(2) && n <= left ? n : n_old, number, n);
        break;
    default: {
        const char *piece = n_words > 0 ? word(below(n_words)) : "";
        corpus_splice(s, at, below(2) ? 0 : n_old, piece, strlen(piece));
    }
    }
}

/* One folder of at least n_min samples; else -1. */
static inline int corpus_load(const char *folder, uint64_t first_seed, size_t n_min) {
    corpus_begin(first_seed);
    return corpus_add(folder) && n_samples >= n_min ? 0 : -1;
}
