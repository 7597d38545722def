/* SPDX-License-Identifier: MIT
 *
 * shards.c: from any file of a split model to the whole set.
 *
 *   model-00001-of-00003.gguf   split.no 0, count 3, key-values of the model, first tensors
 *   model-00002-of-00003.gguf   split.no 1, count 3, more tensors
 *   model-00003-of-00003.gguf   split.no 2, count 3, the rest
 *
 * People name any of them, download some of them, rename them, and join them with `cat` (user case 58); each of these
 * is told apart here: the names come from the one that was given, all must exist (those that do not are listed), and
 * each must say of itself what its name says. The names are the only link between the files, so nothing else is
 * searched. A file without split keys, or with split.count 1, is a model of its own whatever its name.
 */
#include "model/shards.h"

#include "base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define SHARD_SUFFIX       "-00001-of-00001.gguf" /* llama_split_path: "%s-%05d-of-%05d.gguf" */
#define SHARD_SUFFIX_BYTES (sizeof SHARD_SUFFIX - 1)

static bool parse_five(const char *digits, uint32_t *ret) {
    uint32_t v = 0;
    for (unsigned i = 0; i < 5; i++) {
        if (digits[i] < '0' || digits[i] > '9') return false;
        v = 10 * v + (uint32_t)(digits[i] - '0');
    }
    *ret = v;
    return true;
}

bool bt_shard_name_parse(const char *path, size_t *ret_prefix, uint32_t *ret_index, uint32_t *ret_count) {
    size_t n = strlen(path);
    if (n <= SHARD_SUFFIX_BYTES) return false;
    const char *suffix = path + n - SHARD_SUFFIX_BYTES; /* -00001-of-00001.gguf */
    uint32_t number, count;
    if (suffix[0] != '-' || memcmp(suffix + 6, "-of-", 4) != 0 || strcmp(suffix + 15, ".gguf") != 0) return false;
    if (!parse_five(suffix + 1, &number) || !parse_five(suffix + 10, &count)) return false;
    if (number < 1 || number > count) return false;
    *ret_prefix = n - SHARD_SUFFIX_BYTES;
    *ret_index = number - 1;
    *ret_count = count;
    return true;
}

static char *shard_path(bt_arena *arena, const char *path, size_t prefix, uint32_t index, uint32_t count) {
    char suffix[2 * SHARD_SUFFIX_BYTES];
    int n = snprintf(suffix, sizeof suffix, "-%05" PRIu32 "-of-%05" PRIu32 ".gguf", index + 1, count);
    if (n < 0) return NULL;
    char *result = bt_arena_alloc(arena, prefix + (size_t)n + 1);
    if (!result) return NULL;
    memcpy(result, path, prefix);
    memcpy(result + prefix, suffix, (size_t)n + 1);
    return result;
}

/* 0 when the key is absent */
static uint64_t key_bits(const bt_gguf *gguf, const char *name) {
    const bt_gguf_key *key = bt_gguf_find(gguf, name);
    return key ? key->bits : 0;
}

/* ---- one part --------------------------------------------------------------------------------------------------- */

static bt_status check_part(const bt_gguf *part, uint32_t index, uint32_t count, bt_error *err) {
    BT_TRY(bt_schema_check_split(part, err));
    if (!bt_gguf_find(part, "split.no"))
        return bt_fail(err, BT_E_FORMAT, "shard_mismatch", BT_MEASURE_NONE, 0, 0,
                       "%s has no split.no: it is no part of a split model", part->name);
    if (key_bits(part, "split.count") != count && !(index > 0 && !bt_gguf_find(part, "split.count")))
        return bt_fail(err, BT_E_FORMAT, "shard_mismatch", BT_MEASURE_ITEMS, count, key_bits(part, "split.count"),
                       "%s: split.count says %" PRIu64 ", but its name says %" PRIu32, part->name,
                       key_bits(part, "split.count"), count);
    if (key_bits(part, "split.no") != index)
        return bt_fail(err, BT_E_FORMAT, "shard_mismatch", BT_MEASURE_NONE, 0, 0,
                       "%s: split.no says that it is part %" PRIu64 ", but its name says %" PRIu32, part->name,
                       key_bits(part, "split.no") + 1, index + 1);
    return BT_OK;
}

/* The file that was given: whether it is a model of its own, and if not, that its name tells the others'. */
static bt_status check_given(const bt_gguf *given, size_t *ret_prefix, uint32_t *ret_index, uint32_t *ret_count,
                             bt_error *err) {
    BT_TRY(bt_schema_check_split(given, err));
    uint64_t count = key_bits(given, "split.count");
    *ret_count = 1;
    if (count <= 1) return BT_OK;
    uint32_t name_count;
    if (!bt_shard_name_parse(given->path, ret_prefix, ret_index, &name_count))
        return bt_fail(err, BT_E_FORMAT, "shard_name", BT_MEASURE_ITEMS, count, 1,
                       "%s: split.count says %" PRIu64
                       ", this is one file: give the parts under their own names (-00001-of-%05" PRIu64
                       ".gguf), or join them with llama-gguf-split --merge, not with cat",
                       given->name, count, count);
    if (count > BT_SHARD_MAX)
        return bt_fail(err, BT_E_LIMIT, "shard_count", BT_MEASURE_ITEMS, count, BT_SHARD_MAX,
                       "%s: split.count says %" PRIu64 "; the limit is %d", given->name, count, BT_SHARD_MAX);
    BT_TRY(check_part(given, *ret_index, name_count, err));
    *ret_count = name_count;
    return BT_OK;
}

/* ---- the set ------------------------------------------------------------------------------------------------------
 */

/* Names what is missing, as many as the sentence holds. */
static bt_status check_all_there(char *const *paths, uint32_t n, bt_error *err) {
    char list[240] = "";
    size_t n_list = 0;
    uint32_t n_missing = 0, n_named = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct stat st;
        if (stat(paths[i], &st) == 0 || errno != ENOENT) continue;
        n_missing++;
        const char *slash = strrchr(paths[i], '/');
        const char *name = slash ? slash + 1 : paths[i];
        if (n_named + 1 < n_missing || n_list + strlen(name) + 3 > sizeof list) continue;
        n_named++;
        n_list += (size_t)snprintf(list + n_list, sizeof list - n_list, "%s%s", n_list > 0 ? ", " : "", name);
    }
    if (n_missing == 0) return BT_OK;
    char more[32] = "";
    if (n_named < n_missing) snprintf(more, sizeof more, " and %" PRIu32 " more", n_missing - n_named);
    return bt_fail(err, BT_E_FORMAT, "shard_missing", BT_MEASURE_ITEMS, n, n - n_missing,
                   "%" PRIu32 " of %" PRIu32 " parts of the model are missing: %s%s", n_missing, n, list, more);
}

static bt_status count_tensors(bt_shard_set *set, bt_error *err) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < set->n; i++)
        n += set->parts[i].n_tensors;
    if (n > BT_TENSOR_MAX)
        return bt_fail(err, BT_E_LIMIT, "gguf_count", BT_MEASURE_ITEMS, n, BT_TENSOR_MAX,
                       "%s: %" PRIu64 " tensors in all parts; the limit is %d", set->parts[0].name, n, BT_TENSOR_MAX);
    set->n_tensors = (uint32_t)n;
    if (set->n == 1) return BT_OK;
    if (!bt_gguf_find(&set->parts[0], "split.tensors.count"))
        return bt_fail(err, BT_E_FORMAT, "gguf_key_missing", BT_MEASURE_NONE, 0, 0, "%s has no split.tensors.count",
                       set->parts[0].name);
    uint64_t said = key_bits(&set->parts[0], "split.tensors.count");
    if (said == n) return BT_OK;
    return bt_fail(err, BT_E_FORMAT, "shard_mismatch", BT_MEASURE_ITEMS, said, n,
                   "%s: split.tensors.count says %" PRIu64 ", but the parts hold %" PRIu64 " tensors",
                   set->parts[0].name, said, n);
}

static bt_status read_set(const bt_gguf *given, size_t prefix, uint32_t index, bt_arena *arena, bt_shard_set *set,
                          bt_error *err) {
    char **paths = bt_arena_array(arena, set->n, sizeof *paths);
    set->parts = bt_arena_array(arena, set->n, sizeof *set->parts);
    if (!paths || !set->parts) return bt_model_no_room(given->name, err);
    for (uint32_t i = 0; i < set->n; i++) {
        paths[i] = shard_path(arena, given->path, prefix, i, set->n);
        if (!paths[i]) return bt_model_no_room(given->name, err);
    }
    BT_TRY(check_all_there(paths, set->n, err));
    for (uint32_t i = 0; i < set->n; i++) {
        if (i == index) {
            set->parts[i] = *given;
            continue;
        }
        BT_TRY(bt_gguf_read(paths[i], i == 0, arena, &set->parts[i], err));
        BT_TRY(check_part(&set->parts[i], i, set->n, err));
    }
    return BT_OK;
}

bt_status bt_shards_read(const char *path, bt_arena *arena, bt_shard_set *ret, bt_error *err) {
    size_t prefix = 0;
    uint32_t index = 0, name_count = 0;
    bool is_later = bt_shard_name_parse(path, &prefix, &index, &name_count) && index > 0;
    bt_gguf *given = bt_arena_alloc(arena, sizeof *given);
    if (!given) return bt_model_no_room(path, err);
    /* The hash is the first part's. A later part is most likely one of a set; if not, it is read again below. */
    BT_TRY(bt_gguf_read(path, !is_later, arena, given, err));
    bt_shard_set set = {0};
    BT_TRY(check_given(given, &prefix, &index, &set.n, err));
    if (set.n > 1) {
        BT_TRY(read_set(given, prefix, index, arena, &set, err));
    } else {
        if (is_later) BT_TRY(bt_gguf_read(path, true, arena, given, err));
        set.parts = given;
    }
    BT_TRY(count_tensors(&set, err));
    *ret = set;
    return BT_OK;
}
