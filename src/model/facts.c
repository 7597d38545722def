/* SPDX-License-Identifier: MIT
 *
 * facts.c: everything the planner needs of a model, from its header alone.
 *
 *   path -> shards.c (the set; gguf.c checks each) -> schema.c (types) -> shape.c (numbers) -> attention.c (KV)
 *                                                  \-> tensors of all parts -> roles.c -> units.c (units, extents)
 *
 * Two arenas: one for what is read on the way, freed at the end, and one that holds the facts and lives as long as they
 * do. Both are capped; the caps are many times what the largest published model needs (a thousand-tensor model holds
 * about 0.3 MiB) and a few times what our own limits allow, so that only a file made for it meets them.
 * Nothing of the data is read, and no pointer leads from the facts to anything else; those of a split lead to what it
 * was made of. */
#include "burthen.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/size.h"
#include "model/attention.h"
#include "model/experts.h"
#include "model/gguf_tensors.h"
#include "model/roles.h"
#include "model/shape.h"
#include "model/shards.h"
#include "model/units.h"

#include <inttypes.h>
#include <string.h>

#define SCRATCH_MAX_BYTES (UINT64_C(96) << 20)
#define FACTS_MAX_BYTES   (UINT64_C(96) << 20) /* 65,536 tensors and as many panels, 150 bytes each, three times over */
#define ARENA_BLOCK_BYTES 65536u               /* a usual model takes two to five */
#define SMALL_ALIGN       64u                  /* a cache line: how small tensors are laid out in memory */

static bt_status copy_shards(const bt_shard_set *set, bt_facts *f, bt_error *err) {
    f->n_shards = set->n;
    f->alignment = set->parts[0].alignment;
    f->shards = bt_arena_array(f->arena, set->n, sizeof *f->shards);
    if (!f->shards) return bt_model_no_room(set->parts[0].name, err);
    for (uint32_t i = 0; i < set->n; i++) {
        const bt_gguf *part = &set->parts[i];
        const bt_gguf_key *count = set->n > 1 ? bt_gguf_find(part, "split.count") : NULL;
        f->shards[i] = (bt_shard){.path = bt_arena_strdup(f->arena, part->path),
                                  .file_bytes = part->file_bytes,
                                  .data_offset = part->data_offset,
                                  .kv_end = part->kv_end,
                                  .split_count_offset = count ? count->file_offset : 0,
                                  .mtime_ns = part->mtime_ns,
                                  .device = part->device,
                                  .inode = part->inode};
        if (!f->shards[i].path) return bt_model_no_room(part->name, err);
        f->file_bytes = bt_sat_add_u64(f->file_bytes, part->file_bytes);
        f->header_bytes += part->header_bytes; /* 1024 parts of 256 MiB at most */
    }
    memcpy(f->header_sha256, set->parts[0].sha256, sizeof f->header_sha256);
    return BT_OK;
}

static bt_status copy_tensors(const bt_shard_set *set, uint32_t n_block_all, bt_facts *f, bt_error *err) {
    const char *name = set->parts[0].name;
    if (set->n_tensors == 0)
        return bt_fail(err, BT_E_FORMAT, "model_no_tensors", BT_MEASURE_NONE, 0, 0,
                       "%s has no tensors: it holds a vocabulary, not a model", name);
    f->tensors = bt_arena_array(f->arena, set->n_tensors, sizeof *f->tensors);
    if (!f->tensors) return bt_model_no_room(name, err);
    for (uint32_t shard = 0; shard < set->n; shard++) {
        const bt_gguf *part = &set->parts[shard];
        for (uint32_t i = 0; i < part->n_tensors; i++) {
            bt_tensor *t = &f->tensors[f->n_tensors++];
            *t = part->tensors[i];
            t->shard = shard;
            t->name = bt_arena_strdup(f->arena, t->name);
            if (!t->name) return bt_model_no_room(part->name, err);
            BT_TRY(bt_role_block(t, n_block_all, part->name, &t->block, err));
        }
    }
    f->n_file_tensors = f->n_tensors;
    return set->n > 1 ? bt_tensor_names_check(f->tensors, f->n_tensors, name, err) : BT_OK;
}

static void sum_bytes(bt_facts *f) {
    for (uint32_t i = 0; i < f->n_file_tensors; i++) {
        const bt_tensor *t = &f->tensors[i];
        if (t->role == BT_ROLE_UNUSED) continue;
        f->weight_bytes = bt_sat_add_u64(f->weight_bytes, t->bytes);
        if (t->role != BT_ROLE_SMALL) continue;
        uint64_t rounded = (t->bytes + SMALL_ALIGN - 1) / SMALL_ALIGN * SMALL_ALIGN; /* at most 1 MiB each */
        f->small_bytes += rounded;
    }
}

/* Every block of an architecture that we know has tensors, except in deci, whose blocks may be empty. */
static bt_status check_blocks(const bt_facts *f, const char *name, bt_error *err) {
    if (!bt_attention_is_known(f->arch) || strcmp(f->arch, "deci") == 0) return BT_OK;
    bool seen[BT_BLOCK_MAX] = {false};
    for (uint32_t i = 0; i < f->n_tensors; i++) {
        if (f->tensors[i].block >= 0) seen[f->tensors[i].block] = true;
    }
    for (uint32_t i = 0; i < f->n_block; i++) {
        if (!seen[i])
            return bt_fail(err, BT_E_FORMAT, "model_blocks", BT_MEASURE_ITEMS, f->n_block, i,
                           "%s: block_count says %" PRIu32 ", but block %" PRIu32 " has no tensors", name, f->n_block,
                           i);
    }
    return BT_OK;
}

/* The embedding table of an architecture that we know has a row for each token. */
static bt_status check_vocab(bt_facts *f, const char *name, bt_error *err) {
    const bt_tensor *table = NULL;
    for (uint32_t i = 0; i < f->n_tensors && !table; i++) {
        if (strcmp(f->tensors[i].name, "token_embd.weight") == 0) table = &f->tensors[i];
    }
    if (!table || table->ne[1] > INT32_MAX) return BT_OK;
    if (f->n_vocab == 0) f->n_vocab = (uint32_t)table->ne[1];
    if (!bt_attention_is_known(f->arch)) return BT_OK;
    if (table->ne[0] == f->n_embd && table->ne[1] == f->n_vocab) return BT_OK;
    return bt_fail(err, BT_E_FORMAT, "model_shape", BT_MEASURE_NONE, 0, 0,
                   "%s: token_embd.weight is %" PRIu64 " x %" PRIu64 ", the model has %" PRIu32 " x %" PRIu32, name,
                   table->ne[0], table->ne[1], f->n_embd, f->n_vocab);
}

/* What follows from the tensors' roles: experts, units and the sums of bytes. */
static bt_status derive(const char *name, bt_arena *scratch, bt_facts *f, bt_error *err) {
    BT_TRY(bt_experts_fill(f, f->arena, name, err));
    BT_TRY(bt_units_fill(f, f->arena, scratch, name, err));
    sum_bytes(f);
    f->arena_bytes = bt_arena_bytes(f->arena);
    return BT_OK;
}

static bt_status build(const char *path, bt_arena *scratch, bt_facts *f, bt_error *err) {
    bt_shard_set set;
    uint32_t n_block_all = 0;
    BT_TRY(bt_shards_read(path, scratch, &set, err));
    const bt_gguf *first = &set.parts[0];
    f->path = bt_arena_strdup(f->arena, path);
    if (!f->path) return bt_model_no_room(first->name, err);
    BT_TRY(bt_schema_check(first, err));
    BT_TRY(bt_shape_fill(first, f, &n_block_all, f->arena, err));
    BT_TRY(copy_shards(&set, f, err));
    BT_TRY(copy_tensors(&set, n_block_all, f, err));
    BT_TRY(check_blocks(f, first->name, err));
    BT_TRY(check_vocab(f, first->name, err));
    BT_TRY(bt_attention_fill(first, f, f->arena, err));
    bt_roles_fill(f);
    return derive(first->name, scratch, f, err);
}

/* ---- a split: the same tensors with other roles ---- */

static bt_status check_split(const bt_facts *of, const bt_split *split, bt_error *err) {
    uint32_t n = bt_split_blocks(split);
    bool may_head = n == of->n_block && !of->head_stays;
    if (split->n_devices <= BT_DEVICE_MAX && n <= of->n_block && (may_head || !split->head)) return BT_OK;
    return bt_fail(err, BT_E_ARG, "split", BT_MEASURE_ITEMS, n, of->n_block,
                   "%" PRIu32 " blocks on %" PRIu32 " devices; the model has %" PRIu32 " blocks", n, split->n_devices,
                   of->n_block);
}

/* Caches stand where their block does. */
static void copy_kv(const bt_facts *of, bt_facts *f) {
    uint32_t n_away = bt_split_blocks(&f->split);
    for (uint32_t b = 0; b < of->n_block; b++)
        f->kv[b] = b < n_away ? (bt_kv_block){0} : of->kv[b];
}

/* A tied table as the head that a device computes: the same bytes under the name that libllama asks for first. */
static void add_head_copy(bt_facts *f) {
    bt_tensor *copy = &f->tensors[f->n_tensors];
    for (uint32_t i = 0; i < f->n_tensors; i++)
        if (f->tensors[i].role == BT_ROLE_TIED) *copy = f->tensors[i];
    copy->name = "output.weight";
    copy->role = BT_ROLE_HEAD;
    f->n_tensors++;
    f->tied_head = false;
}

static bt_status split_fill(const bt_facts *of, const bt_split *split, bt_arena *scratch, bt_facts *f, bt_error *err) {
    bt_arena *arena = f->arena;
    BT_TRY(check_split(of, split, err));
    *f = *of;
    f->arena = arena;
    f->split = *split;
    f->n_units = f->n_unit_tensors = f->n_extents = f->n_expert_blocks = 0;
    f->weight_bytes = f->small_bytes = 0;
    f->tensors = bt_arena_array(arena, (uint64_t)of->n_tensors + 1, sizeof *f->tensors);
    if (of->kv) f->kv = bt_arena_array(arena, of->n_block, sizeof *f->kv);
    if (!f->tensors || (of->kv && !f->kv)) return bt_model_no_room(of->path, err);
    memcpy(f->tensors, of->tensors, of->n_tensors * sizeof *f->tensors);
    if (of->kv) copy_kv(of, f);
    if (split->head && of->tied_head) add_head_copy(f);
    bt_roles_split(f);
    BT_TRY(derive(of->path, scratch, f, err));
    f->arena_bytes = bt_sat_add_u64(f->arena_bytes, of->arena_bytes); /* both stay */
    return BT_OK;
}

uint64_t bt_facts_upload_bytes(const bt_facts *facts) {
    uint64_t largest = 0;
    for (uint32_t i = 0; i < facts->n_tensors; i++)
        if (facts->tensors[i].device > 0) largest = bt_max_u64(largest, facts->tensors[i].bytes);
    return largest;
}

/* Of a file, or of other facts. */
typedef struct source {
    const char *path;
    const bt_facts *of; /* NULL: of the file */
    const bt_split *split;
} source;

static bt_status facts_make(const source *from, bt_facts **ret_facts, bt_error *err) {
    bt_arena *arena = bt_arena_open(FACTS_MAX_BYTES, ARENA_BLOCK_BYTES);
    bt_arena *scratch = bt_arena_open(SCRATCH_MAX_BYTES, ARENA_BLOCK_BYTES);
    bt_facts *facts = arena ? bt_arena_alloc(arena, sizeof *facts) : NULL;
    bt_status status = BT_OK;
    if (facts && scratch) {
        facts->arena = arena;
        status =
            from->of ? split_fill(from->of, from->split, scratch, facts, err) : build(from->path, scratch, facts, err);
    } else {
        status = bt_model_no_room(from->path, err);
    }
    bt_arena_close(scratch);
    if (status != BT_OK) {
        bt_arena_close(arena);
        return status;
    }
    *ret_facts = facts;
    return BT_OK;
}

bt_status bt_facts_split(const bt_facts *of, const bt_split *split, bt_facts **ret_facts, bt_error *err) {
    const source from = {.path = of->path, .of = of, .split = split};
    return facts_make(&from, ret_facts, err);
}

bt_status bt_facts_open(const char *path, bt_facts **ret_facts, bt_error *err) {
    const source from = {.path = path};
    return facts_make(&from, ret_facts, err);
}

void bt_facts_close(bt_facts *facts) {
    if (facts) bt_arena_close(facts->arena);
}
