/* SPDX-License-Identifier: MIT
 * store_kit.h: scratch files with known random bytes, and the facts that describe them. */
#pragma once

#include "burthen.h"

#define KIT_FILES 4u

typedef struct kit {
    bt_facts facts;
    bt_shard shards[KIT_FILES];
    char paths[KIT_FILES][512];
    uint8_t *data[KIT_FILES]; /* what the file holds, then zeroes up to a page */
} kit;

/* Numbers that only depend on the seed. */
uint64_t kit_random(uint64_t *state);
uint64_t kit_below(uint64_t *state, uint64_t n); /* 0 to n - 1 */

/* n_files files of the given sizes under BT_TEST_OUT; name keeps tests apart. Aborts the test on failure. */
void kit_open(kit *k, const char *name, const uint64_t *sizes, uint32_t n_files, uint64_t seed);
void kit_close(kit *k); /* deletes the files */
/* Read the identity of a file again, after the test changed it. */
void kit_refresh(kit *k, uint32_t file);
/* Descriptors this process has open. */
uint32_t kit_n_fds(void);
