/* SPDX-License-Identifier: MIT
 *
 * gguf.c: a GGUF header, believed only as far as it can be checked.
 *
 *   "GGUF" version n_tensors n_keys | key-values | tensor table | padding | data
 *    0      4       8         16     24          kv_end    header_bytes   data_offset
 *
 * ggml has a reader, but its getters abort the process on a key of another type than the one asked for, and libllama
 * asserts on numbers it did not expect (user cases 57, 58): a model file would decide whether we live. So this check
 * stands before theirs and refuses, with a sentence that names what and where, everything that they would refuse or die
 * of. It is not kinder: what passes here and fails there is a defect of this file.
 * Counts and lengths are held against what is left of the file before they size anything. Strings are cut at
 * BT_GGUF_TEXT_MAX and long arrays only counted, so that a vocabulary of 256k tokens costs its duplicate check (8 bytes
 * a token, twice over, freed at once) and no more. The format is documented in ggml's docs/gguf.md; versions 2 and 3
 * differ only in the byte orders they allow, and we read the little one.
 */
#include "model/gguf.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"
#include "model/gguf_tensors.h"
#include "model/header_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREAMBLE_BYTES    24u /* magic, version, two counts */
#define ALIGNMENT_DEFAULT 32u /* gguf.md: general.alignment, when it is absent */
#define KEY_MIN_BYTES     14u /* length, one byte of name, type, one byte of value */
#define TENSOR_MIN_BYTES  33u /* length, one byte of name, n_dims, one dimension, type, offset */

/* bytes of a value of fixed size; 0 for the others */
static const struct {
    const char *name;
    uint8_t bytes;
} type_rows[BT_GGUF_TYPE_COUNT] = {
    [BT_GGUF_U8] = {"u8", 1},     [BT_GGUF_I8] = {"i8", 1},     [BT_GGUF_U16] = {"u16", 2},
    [BT_GGUF_I16] = {"i16", 2},   [BT_GGUF_U32] = {"u32", 4},   [BT_GGUF_I32] = {"i32", 4},
    [BT_GGUF_F32] = {"f32", 4},   [BT_GGUF_BOOL] = {"bool", 1}, [BT_GGUF_STRING] = {"str", 0},
    [BT_GGUF_ARRAY] = {"arr", 0}, [BT_GGUF_U64] = {"u64", 8},   [BT_GGUF_I64] = {"i64", 8},
    [BT_GGUF_F64] = {"f64", 8},
};

const char *bt_gguf_type_name(bt_gguf_type type) {
    return (unsigned)type < BT_GGUF_TYPE_COUNT ? type_rows[type].name : "?";
}

bt_status bt_model_no_room(const char *name, bt_error *err) {
    return bt_fail(err, BT_E_NOMEM, "model_memory", BT_MEASURE_NONE, 0, 0,
                   "%s: no memory to hold its header, or the header holds more than a model's can", name);
}

bool bt_name_is_clean(const char *name, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f) return false;
    }
    return true;
}

/* ---- preamble -------------------------------------------------------------------------------------------------- */

static bt_status check_magic(const bt_header_file *src, const unsigned char *magic, bt_error *err) {
    if (memcmp(magic, "GGUF", 4) == 0) return BT_OK;
    char shown[5];
    for (unsigned i = 0; i < 4; i++)
        shown[i] = magic[i] >= 0x20 && magic[i] < 0x7f ? (char)magic[i] : '?';
    shown[4] = '\0';
    return bt_fail(err, BT_E_FORMAT, "gguf_magic", BT_MEASURE_NONE, 0, 0,
                   "%s is not a GGUF file: it starts with '%s', not 'GGUF'", src->name, shown);
}

static bt_status check_version(const bt_header_file *src, uint32_t version, bt_error *err) {
    if (version == 2 || version == 3) return BT_OK;
    if (version != 0 && (version & 0xffff) == 0)
        return bt_fail(err, BT_E_FORMAT, "gguf_byte_order", BT_MEASURE_NONE, 0, 0,
                       "%s is a GGUF file for big-endian machines (its bytes are swapped): convert it", src->name);
    return bt_fail(err, BT_E_FORMAT, "gguf_version", BT_MEASURE_NONE, 0, 0,
                   "%s has GGUF version %" PRIu32 "; versions 2 and 3 are supported", src->name, version);
}

/* n rows of at least min_bytes each must fit into what is left of the file. */
static bt_status check_count(const bt_header_file *src, uint64_t n, uint64_t max, uint64_t min_bytes, const char *what,
                             bt_error *err) {
    if (n > bt_header_left(src) / min_bytes)
        return bt_fail(err, BT_E_FORMAT, "gguf_count", BT_MEASURE_ITEMS, n, bt_header_left(src) / min_bytes,
                       "%s claims %" PRIu64 " %s, more than the file has room for", src->name, n, what);
    if (n > max)
        return bt_fail(err, BT_E_LIMIT, "gguf_count", BT_MEASURE_ITEMS, n, max,
                       "%s has %" PRIu64 " %s; the limit is %" PRIu64, src->name, n, what, max);
    return BT_OK;
}

static bt_status read_preamble(bt_header_file *src, bt_gguf *gguf, bt_error *err) {
    if (src->file_bytes == 0)
        return bt_fail(err, BT_E_FORMAT, "gguf_empty", BT_MEASURE_NONE, 0, 0, "%s is empty", src->name);
    unsigned char bytes[PREAMBLE_BYTES] = {0};
    size_t n = (size_t)bt_min_u64(PREAMBLE_BYTES, src->file_bytes);
    BT_TRY(bt_header_read(src, bytes, n, NULL, "the first 24 bytes", err));
    if (n >= 4) BT_TRY(check_magic(src, bytes, err));
    if (n < PREAMBLE_BYTES)
        return bt_fail(err, BT_E_FORMAT, "gguf_truncated", BT_MEASURE_BYTES, PREAMBLE_BYTES, src->file_bytes,
                       "%s has %" PRIu64 " bytes: too short for a GGUF header (%u)", src->name, src->file_bytes,
                       PREAMBLE_BYTES);
    gguf->version = (uint32_t)bt_load_le(bytes + 4, 4);
    BT_TRY(check_version(src, gguf->version, err));
    uint64_t n_tensors = bt_load_le(bytes + 8, 8), n_keys = bt_load_le(bytes + 16, 8);
    BT_TRY(check_count(src, n_tensors, BT_TENSOR_MAX, TENSOR_MIN_BYTES, "tensors", err));
    BT_TRY(check_count(src, n_keys, BT_GGUF_KEY_MAX, KEY_MIN_BYTES, "key-values", err));
    gguf->n_tensors = (uint32_t)n_tensors;
    gguf->n_keys = (uint32_t)n_keys;
    return BT_OK;
}

/* ---- the tokens of a vocabulary are distinct ------------------------------------------------------------------- */

/* libllama asserts that no token occurs twice. A set of 64-bit hashes at half load answers that: by chance two of 2^18
 * tokens share a hash once in 2^29 files. */
typedef struct token_set {
    uint64_t *slots; /* [mask + 1]; 0 = free */
    uint64_t mask;
    uint64_t probes, max_probes; /* a file made to collide is refused instead of searched */
} token_set;

static bool token_set_open(token_set *set, uint64_t n) {
    uint64_t n_slots = 16;
    while (n_slots < 2 * n)
        n_slots *= 2;
    *set = (token_set){.mask = n_slots - 1, .max_probes = 64 + 16 * n}; /* expected at half load: 2.5 a token (Knuth) */
    set->slots = bt_heap_array((size_t)n_slots, sizeof *set->slots);
    return set->slots;
}

/* Never 0, and the low bits mixed: FNV's own depend on few of the input's. */
static uint64_t token_hash(uint64_t mix) {
    mix ^= mix >> 32;
    return mix != 0 ? mix : 1;
}

/* false: it was there, or cannot be told apart from what was there */
static bool token_set_add(token_set *set, uint64_t hash) {
    uint64_t i = hash & set->mask;
    while (set->slots[i] != 0) {
        if (set->slots[i] == hash || ++set->probes > set->max_probes) return false;
        i = (i + 1) & set->mask;
    }
    set->slots[i] = hash;
    return true;
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

typedef struct key_reader {
    bt_header_file *src;
    bt_arena *arena;
    char what[BT_GGUF_NAME_MAX + 32]; /* "the value of key 'x'" */
} key_reader;

static bt_status read_text(key_reader *r, bt_gguf_key *key, bt_error *err) {
    BT_TRY(bt_header_u64(r->src, &key->n, r->what, err));
    BT_TRY(bt_header_need(r->src, key->n, r->what, err));
    uint64_t n_kept = bt_min_u64(key->n, BT_GGUF_TEXT_MAX);
    char text[BT_GGUF_TEXT_MAX];
    BT_TRY(bt_header_read(r->src, text, n_kept, NULL, r->what, err));
    BT_TRY(bt_header_read(r->src, NULL, key->n - n_kept, NULL, r->what, err));
    key->text = bt_arena_strndup(r->arena, text, (size_t)n_kept);
    return key->text ? BT_OK : bt_model_no_room(r->src->name, err);
}

static bt_status skip_strings(key_reader *r, const bt_gguf_key *key, bt_error *err) {
    for (uint64_t i = 0; i < key->n; i++) {
        uint64_t n;
        BT_TRY(bt_header_string(r->src, &n, NULL, r->what, err));
    }
    return BT_OK;
}

/* The set is larger than the caches: a token's slot is asked for WAIT tokens before it is looked at, so that the waits
 * for memory overlap. */
#define WAIT 16u

static bt_status add_token(key_reader *r, token_set *set, uint64_t index, uint64_t hash, bt_error *err) {
    if (hash == 0 || token_set_add(set, hash)) return BT_OK;
    return bt_fail(err, BT_E_FORMAT, "gguf_vocab", BT_MEASURE_NONE, 0, 0,
                   "%s: token %" PRIu64 " of tokenizer.ggml.tokens occurs twice", r->src->name, index);
}

/* Vocabularies of two files are compared by hashes of runs of tokens. A short last run counts too. */
static uint64_t mark_count(uint64_t n_tokens) {
    return n_tokens <= BT_VOCAB_MARK_FIRST ? 0 : (n_tokens - BT_VOCAB_MARK_FIRST + BT_VOCAB_MARK - 1) / BT_VOCAB_MARK;
}

static void mark_token(bt_gguf_key *key, uint64_t index, uint64_t mix) {
    if (index < BT_VOCAB_MARK_FIRST) return;
    uint64_t *mark = &key->marks[(index - BT_VOCAB_MARK_FIRST) / BT_VOCAB_MARK];
    *mark = (*mark ^ mix) * UINT64_C(0x100000001b3); /* FNV-1a's prime, over 64-bit words */
}

static bt_status add_tokens(key_reader *r, bt_gguf_key *key, token_set *set, bt_error *err) {
    uint64_t waiting[WAIT] = {0}; /* 0: an empty token, which libllama gives a name of its own */
    for (uint64_t i = 0; i < key->n; i++) {
        uint64_t n, mix = UINT64_C(0xcbf29ce484222325); /* FNV-1a's start value */
        BT_TRY(bt_header_string(r->src, &n, &mix, r->what, err));
        mark_token(key, i, mix);
        uint64_t *slot = &waiting[i % WAIT];
        if (i >= WAIT) BT_TRY(add_token(r, set, i - WAIT, *slot, err));
        *slot = n > 0 ? token_hash(mix) : 0;
        __builtin_prefetch(&set->slots[*slot & set->mask], 1);
    }
    for (uint64_t i = key->n > WAIT ? key->n - WAIT : 0; i < key->n; i++)
        BT_TRY(add_token(r, set, i, waiting[i % WAIT], err));
    return BT_OK;
}

static bt_status check_tokens(key_reader *r, bt_gguf_key *key, bt_error *err) {
    if (key->n > BT_GGUF_VOCAB_MAX)
        return bt_fail(err, BT_E_LIMIT, "gguf_vocab", BT_MEASURE_TOKENS, key->n, BT_GGUF_VOCAB_MAX,
                       "%s: a vocabulary of %" PRIu64 " tokens; the limit is %u", r->src->name, key->n,
                       BT_GGUF_VOCAB_MAX);
    key->n_marks = (uint32_t)mark_count(key->n);
    key->marks = bt_arena_array(r->arena, (uint64_t)key->n_marks + 1, sizeof *key->marks);
    if (!key->marks) return bt_model_no_room(r->src->name, err);
    token_set set;
    if (!token_set_open(&set, key->n)) return bt_model_no_room(r->src->name, err);
    bt_status status = add_tokens(r, key, &set, err);
    bt_heap_free(set.slots);
    return status;
}

static bt_status read_numbers(key_reader *r, bt_gguf_key *key, bt_error *err) {
    uint64_t n_bytes;
    unsigned item_bytes = type_rows[key->type].bytes;
    if (!bt_mul_u64(key->n, item_bytes, &n_bytes)) n_bytes = UINT64_MAX; /* refused as longer than the file */
    if (key->n > BT_GGUF_ITEMS_MAX) return bt_header_read(r->src, NULL, n_bytes, NULL, r->what, err);
    unsigned char items[BT_GGUF_ITEMS_MAX * 8];
    BT_TRY(bt_header_read(r->src, items, n_bytes, NULL, r->what, err));
    unsigned char *kept = bt_arena_alloc(r->arena, n_bytes > 0 ? n_bytes : 1);
    if (!kept) return bt_model_no_room(r->src->name, err);
    memcpy(kept, items, (size_t)n_bytes);
    key->items = kept;
    return BT_OK;
}

static bt_status read_array(key_reader *r, bt_gguf_key *key, bt_error *err) {
    uint32_t type;
    BT_TRY(bt_header_u32(r->src, &type, r->what, err));
    BT_TRY(bt_header_u64(r->src, &key->n, r->what, err));
    if (type == BT_GGUF_ARRAY)
        return bt_fail(err, BT_E_FORMAT, "gguf_key", BT_MEASURE_NONE, 0, 0, "%s: %s is an array of arrays",
                       r->src->name, r->what);
    if (type >= BT_GGUF_TYPE_COUNT)
        return bt_fail(err, BT_E_FORMAT, "gguf_key", BT_MEASURE_NONE, 0, 0,
                       "%s: %s is an array of the unknown type %" PRIu32, r->src->name, r->what, type);
    key->is_array = true;
    key->type = (bt_gguf_type)type;
    uint64_t min_bytes = key->type == BT_GGUF_STRING ? 8 : type_rows[type].bytes;
    if (key->n > bt_header_left(r->src) / min_bytes)
        return bt_fail(err, BT_E_FORMAT, "gguf_truncated", BT_MEASURE_ITEMS, key->n, bt_header_left(r->src) / min_bytes,
                       "%s: %s claims %" PRIu64 " items, more than the file has room for", r->src->name, r->what,
                       key->n);
    if (key->type != BT_GGUF_STRING) return read_numbers(r, key, err);
    if (strcmp(key->name, "tokenizer.ggml.tokens") == 0) return check_tokens(r, key, err);
    return skip_strings(r, key, err);
}

static bt_status read_value(key_reader *r, bt_gguf_key *key, bt_error *err) {
    uint32_t type;
    BT_TRY(bt_header_u32(r->src, &type, r->what, err));
    if (type >= BT_GGUF_TYPE_COUNT)
        return bt_fail(err, BT_E_FORMAT, "gguf_key", BT_MEASURE_NONE, 0, 0, "%s: %s has the unknown type %" PRIu32,
                       r->src->name, r->what, type);
    key->type = (bt_gguf_type)type;
    if (key->type == BT_GGUF_ARRAY) return read_array(r, key, err);
    if (key->type == BT_GGUF_STRING) return read_text(r, key, err);
    unsigned char bytes[8];
    key->file_offset = r->src->at;
    BT_TRY(bt_header_read(r->src, bytes, type_rows[type].bytes, NULL, r->what, err));
    key->n = 1;
    key->bits = bt_load_le(bytes, type_rows[type].bytes);
    if (key->type == BT_GGUF_BOOL && key->bits > 1)
        return bt_fail(err, BT_E_FORMAT, "gguf_key", BT_MEASURE_NONE, 0, 0,
                       "%s: %s is a truth value of %" PRIu64 ", not 0 or 1", r->src->name, r->what, key->bits);
    return BT_OK;
}

static bt_status read_key(key_reader *r, uint32_t index, bt_gguf_key *key, bt_error *err) {
    snprintf(r->what, sizeof r->what, "the name of key %" PRIu32, index);
    uint64_t n;
    char name[BT_GGUF_NAME_MAX];
    BT_TRY(bt_header_u64(r->src, &n, r->what, err));
    if (n > BT_GGUF_NAME_MAX && n <= bt_header_left(r->src))
        return bt_fail(err, BT_E_LIMIT, "gguf_key", BT_MEASURE_BYTES, n, BT_GGUF_NAME_MAX,
                       "%s: the name of key %" PRIu32 " has %" PRIu64 " bytes; the limit is %u", r->src->name, index, n,
                       BT_GGUF_NAME_MAX);
    BT_TRY(bt_header_read(r->src, name, n, NULL, r->what, err));
    if (n == 0 || !bt_name_is_clean(name, (size_t)n))
        return bt_fail(err, BT_E_FORMAT, "gguf_key", BT_MEASURE_NONE, 0, 0,
                       "%s: the name of key %" PRIu32 " is empty or has control bytes", r->src->name, index);
    key->name = bt_arena_strndup(r->arena, name, (size_t)n);
    if (!key->name) return bt_model_no_room(r->src->name, err);
    snprintf(r->what, sizeof r->what, "key '%s'", key->name);
    return read_value(r, key, err);
}

static int compare_keys(const void *a, const void *b) {
    const bt_gguf_key *left = a, *right = b;
    return strcmp(left->name, right->name);
}

/* Sorted, so that duplicates are neighbours and a look-up is a binary search: no hash that a file could be made for. */
static bt_status read_keys(bt_header_file *src, bt_gguf *gguf, bt_arena *arena, bt_error *err) {
    gguf->keys = bt_arena_array(arena, gguf->n_keys > 0 ? gguf->n_keys : 1, sizeof *gguf->keys);
    if (!gguf->keys) return bt_model_no_room(src->name, err);
    key_reader r = {.src = src, .arena = arena};
    for (uint32_t i = 0; i < gguf->n_keys; i++)
        BT_TRY(read_key(&r, i, &gguf->keys[i], err));
    gguf->kv_end = src->at;
    qsort(gguf->keys, gguf->n_keys, sizeof *gguf->keys, compare_keys);
    for (uint32_t i = 1; i < gguf->n_keys; i++) {
        if (strcmp(gguf->keys[i - 1].name, gguf->keys[i].name) == 0)
            return bt_fail(err, BT_E_FORMAT, "gguf_key", BT_MEASURE_NONE, 0, 0, "%s: key '%s' occurs twice", src->name,
                           gguf->keys[i].name);
    }
    return BT_OK;
}

static bt_status read_alignment(bt_gguf *gguf, bt_error *err) {
    gguf->alignment = ALIGNMENT_DEFAULT;
    const bt_gguf_key *key = bt_gguf_find(gguf, "general.alignment");
    if (!key) return BT_OK;
    if (key->is_array || key->type != BT_GGUF_U32)
        return bt_fail(err, BT_E_FORMAT, "gguf_type", BT_MEASURE_NONE, 0, 0, "%s: general.alignment is %s%s, not a u32",
                       gguf->name, key->is_array ? "an array of " : "a ", bt_gguf_type_name(key->type));
    if (key->bits == 0 || (key->bits & (key->bits - 1)) != 0)
        return bt_fail(err, BT_E_FORMAT, "gguf_alignment", BT_MEASURE_NONE, 0, 0,
                       "%s: general.alignment is %" PRIu64 ", not a power of two", gguf->name, key->bits);
    gguf->alignment = (uint32_t)key->bits;
    return BT_OK;
}

static bt_status read_header(bt_header_file *src, bt_arena *arena, bt_gguf *gguf, bt_error *err) {
    gguf->path = bt_arena_strdup(arena, src->path);
    gguf->name = bt_arena_strdup(arena, src->name);
    if (!gguf->path || !gguf->name) return bt_model_no_room(src->name, err);
    BT_TRY(read_preamble(src, gguf, err));
    BT_TRY(read_keys(src, gguf, arena, err));
    BT_TRY(read_alignment(gguf, err));
    BT_TRY(bt_gguf_tensors_read(src, gguf, arena, err));
    if (src->hashing) bt_header_hex(src, gguf->sha256);
    gguf->file_bytes = src->file_bytes;
    gguf->mtime_ns = src->mtime_ns;
    gguf->device = src->device;
    gguf->inode = src->inode;
    return BT_OK;
}

bt_status bt_gguf_read(const char *path, bool hashing, bt_arena *arena, bt_gguf *ret, bt_error *err) {
    bt_header_file src;
    bt_gguf gguf = {0};
    BT_TRY(bt_header_open(&src, path, hashing, err));
    bt_status status = read_header(&src, arena, &gguf, err);
    bt_header_close(&src);
    if (status == BT_OK) *ret = gguf;
    return status;
}

/* ---- look-up ---------------------------------------------------------------------------------------------------- */

const bt_gguf_key *bt_gguf_find(const bt_gguf *gguf, const char *name) {
    bt_gguf_key wanted = {.name = name};
    return bsearch(&wanted, gguf->keys, gguf->n_keys, sizeof *gguf->keys, compare_keys);
}

const bt_gguf_key *bt_gguf_find_arch(const bt_gguf *gguf, const char *arch, const char *suffix) {
    char name[2 * BT_GGUF_NAME_MAX];
    int n = snprintf(name, sizeof name, "%s.%s", arch, suffix);
    return n > 0 && (size_t)n < sizeof name ? bt_gguf_find(gguf, name) : NULL;
}

bool bt_gguf_u32_at(const bt_gguf_key *key, uint32_t i, uint32_t *ret) {
    if (!key) return false;
    bool is_bool = key->type == BT_GGUF_BOOL;
    if (!is_bool && key->type != BT_GGUF_U32 && key->type != BT_GGUF_I32) return false;
    uint64_t bits = key->bits;
    if (key->is_array) {
        if (!key->items || i >= key->n) return false;
        bits = is_bool ? (key->items[i] != 0) : bt_load_le(key->items + (size_t)4 * i, 4);
    }
    if (key->type == BT_GGUF_I32 && bits > INT32_MAX) return false;
    *ret = (uint32_t)bits;
    return true;
}

uint32_t bt_gguf_u32_or(const bt_gguf_key *key, uint32_t absent) {
    uint32_t value = 0;
    return bt_gguf_u32_at(key, 0, &value) ? value : absent;
}
