/* SPDX-License-Identifier: MIT
 * fuzz.h: one reader of foreign texts under test, whatever it is given.
 *
 * A file tests/fuzz/fuzz_NAME.c says what a reader is called with and what must hold of its answer, once, as
 * fuzz_here. Two programs are made of it: fuzz_NAME with libFuzzer (fuzz_run.c; `make fuzz`), and test_fuzz_NAME, which
 * runs the corpus as it is and changed by seeded accidents (fuzz_replay.c; `make check`). So a crash that the one has
 * found is a sample that the other replays. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fuzz_target {
    const char *name; /* of the corpus: tests/data/fuzz/NAME, one sample a file */
    /* n bytes, which it may change; text[n] is 0, unless bare. true: the reader took it. What it has allocated is given
     * back when it returns. */
    bool (*one)(char *text, size_t n);
    bool bare;           /* the block ends behind the n bytes, so that a read past them is seen */
    void (*start)(void); /* once, first; or NULL */
    void (*stop)(void);  /* once, last, of a replay; or NULL */
    /* The i-th word that means something to the reader: put into samples, and libFuzzer's dictionary. NULL: no more.
     * May be overwritten by the next call. */
    const char *(*word)(size_t i);
    /* Samples that are other tests' data: files and folders below tests/data. NULL at the end. */
    const char *const *more;
    uint32_t n_rounds; /* of changed samples in a replay */
    bool takes_all;    /* whatever is said is taken; else a replay must see samples taken and refused */
} fuzz_target;
extern const fuzz_target fuzz_here;

/* Longest sample: what a replay keeps of a file, and libFuzzer's -max_len. */
#define FUZZ_BYTES_MAX 16384u

/* It must hold. Else the input is left in a file, and the program ends. */
#define FUZZ_CHECK(condition)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) fuzz_fail(__FILE__, __LINE__, #condition);                                                   \
    } while (0)
_Noreturn void fuzz_fail(const char *file, int line, const char *condition);

/* One input through the target, in a block of its own; nothing may be left on the heap. */
bool fuzz_run(const void *data, size_t n);
/* A folder of this program's own, in memory where there is such a place; made once. */
const char *fuzz_folder(void);
/* It and the files in it are removed. */
void fuzz_folder_remove(void);
/* The input that is run now, for a driver that keeps what it died of. */
const void *fuzz_now(size_t *ret_n);
