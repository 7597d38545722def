/* SPDX-License-Identifier: MIT
 * shards.h: the set of files that make one model. */
#pragma once

#include "model/gguf.h"

typedef struct bt_shard_set {
    bt_gguf *parts; /* [n]; parts[0] holds the model's key-values */
    uint32_t n;
    uint32_t n_tensors; /* of all parts */
} bt_shard_set;

/* Read the header of path and, if it is a shard, those of its whole set. Everything lives in the arena. */
BT_MUST_CHECK bt_status bt_shards_read(const char *path, bt_arena *arena, bt_shard_set *ret, bt_error *err);

/* "dir/name-00002-of-00005.gguf": prefix "dir/name" of *ret_prefix bytes, *ret_index 1 (from 0), *ret_count 5. */
bool bt_shard_name_parse(const char *path, size_t *ret_prefix, uint32_t *ret_index, uint32_t *ret_count);
