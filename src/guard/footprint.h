/* SPDX-License-Identifier: MIT
 * footprint.h: what a whole program took of each pool at its peak, as it was seen in former runs. */
#pragma once

#include "burthen.h"

#define BT_FOOTPRINT_NAME_BYTES 80u /* "footprint-", a SHA-256 as text, and its end */

typedef struct bt_footprint {
    uint32_t n; /* 0: never seen, or nothing can be read */
    char pools[BT_POOL_MAX][32];
    uint64_t bytes[BT_POOL_MAX];
} bt_footprint;

/* The name of the file that holds what is seen of a command. Its words are not in it, nor can anything be read from it.
 * program        a file, by its size and the time it was last written; NULL or not there: by the words alone
 * header_sha256  of the model, as bt_facts has it, and its file_bytes; NULL: not known
 * argv           NULL at the end, less what differs from start to start and takes no memory: --port and --alias with
 *                their values, in both spellings
 * variables      of the environment that change what it takes, as one text; "": none */
void bt_footprint_name(const char *program, const char *header_sha256, uint64_t file_bytes, char *const *argv,
                       const char *variables, char ret_name[BT_FOOTPRINT_NAME_BYTES]);
/* The most that was seen of each pool. */
void bt_footprint_read(const char *name, bt_footprint *ret);
uint64_t bt_footprint_find(const bt_footprint *footprint, const char *pool); /* 0: not seen */
/* Remember a run: more than that, when seen before, stands, pool by pool. Unknown peaks are left as they are. Silent
 * but for the log. What is no name of ours is not kept. */
void bt_footprint_keep(const char *name, const char *const *pools, uint32_t n_pools, const bt_known *peak_bytes);
