/* SPDX-License-Identifier: MIT
 * fuzz_gguf_shards.c: a set of two GGUF files: a number (u32) that says how long the first is, then both. Each of the
 * two is opened as the one that was named. */
#include "fuzz.h"

#include "facts_check.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOLE_BYTES (1 << 22)

static char paths[2][64];

static void start(void) {
    for (int i = 0; i < 2; i++)
        (void)snprintf(paths[i], sizeof paths[i], "%s/m-0000%d-of-00002.gguf", fuzz_folder(), i + 1);
}

static void put(const char *path, const char *bytes, size_t n) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n || ftruncate(fd, (off_t)n + HOLE_BYTES) != 0) abort();
    (void)close(fd);
}

static bool one(char *text, size_t n) {
    uint32_t n_first = 0;
    if (n < sizeof n_first) return false;
    memcpy(&n_first, text, sizeof n_first);
    text += sizeof n_first;
    n -= sizeof n_first;
    if (n_first > n) n_first = (uint32_t)n;
    put(paths[0], text, n_first);
    put(paths[1], text + n_first, n - n_first);
    bool taken = false;
    for (int i = 0; i < 2; i++) {
        bt_facts *facts = NULL;
        bt_error err = {0};
        bt_status status = bt_facts_open(paths[i], &facts, &err);
        if (status == BT_OK)
            facts_check(facts);
        else
            facts_check_refusal(status, &err);
        taken = status == BT_OK;
        bt_facts_close(facts);
    }
    return taken;
}

static const char *word(size_t i) {
    return facts_word(i);
}

const fuzz_target fuzz_here = {.name = "gguf_shards",
                               .one = one,
                               .bare = true,
                               .start = start,
                               .stop = fuzz_folder_remove,
                               .word = word,
                               .n_rounds = 400};
