/* SPDX-License-Identifier: MIT
 * gguf.h: one GGUF file's header, checked and read into plain data. */
#pragma once

#include "base/arena.h"
#include "burthen.h"

#define BT_GGUF_KEY_MAX         65536        /* key-values of a file; the largest published header has under 100 */
#define BT_GGUF_NAME_MAX        256          /* bytes of a key's name; the longest of llama.cpp has 52 */
#define BT_GGUF_TENSOR_NAME_MAX 63           /* ggml: GGML_MAX_NAME less its NUL */
#define BT_GGUF_TEXT_MAX        256          /* bytes of a string value that are kept; the rest is only counted */
#define BT_GGUF_ITEMS_MAX       BT_BLOCK_MAX /* a longer array is checked and counted, but not kept */
#define BT_GGUF_VOCAB_MAX       (1u << 20)   /* tokens; the largest published vocabulary has 262,208 */

typedef enum bt_gguf_type {
    BT_GGUF_U8,
    BT_GGUF_I8,
    BT_GGUF_U16,
    BT_GGUF_I16,
    BT_GGUF_U32,
    BT_GGUF_I32,
    BT_GGUF_F32,
    BT_GGUF_BOOL,
    BT_GGUF_STRING,
    BT_GGUF_ARRAY,
    BT_GGUF_U64,
    BT_GGUF_I64,
    BT_GGUF_F64,
    BT_GGUF_TYPE_COUNT
} bt_gguf_type;

typedef struct bt_gguf_key {
    const char *name;
    bt_gguf_type type; /* of the value; of the items, if it is an array */
    bool is_array;
    uint64_t n;                 /* items; bytes, for a string */
    uint64_t bits;              /* of a number, as they stand in the file, zero extended */
    uint64_t file_offset;       /* of a number: where it stands in the file */
    const char *text;           /* of a string: its first BT_GGUF_TEXT_MAX bytes */
    const unsigned char *items; /* of a short array of numbers: raw, little endian; else NULL */
    uint64_t *marks;            /* of the vocabulary's tokens: a hash of each run (BT_VOCAB_MARK); else NULL */
    uint32_t n_marks;
} bt_gguf_key;

typedef struct bt_gguf {
    const char *path; /* as given to bt_gguf_read, copied */
    const char *name; /* last part of path */
    uint32_t version, alignment;
    bt_gguf_key *keys; /* sorted by name */
    uint32_t n_keys;
    bt_tensor *tensors; /* file order; role, unit and shard are not set here */
    uint32_t n_tensors;
    uint64_t file_bytes;
    uint64_t kv_end;       /* of the key-values: start of the tensor table */
    uint64_t header_bytes; /* end of the tensor table */
    uint64_t data_offset;  /* header_bytes, aligned */
    int64_t mtime_ns;
    uint64_t device, inode;
    char sha256[65]; /* of the header_bytes bytes, if asked for; else empty */
} bt_gguf;

/* Read and check the header of one file. Everything is allocated from the arena, also after a failure.
 * returns BT_OK; BT_E_FORMAT malformed or truncated; BT_E_LIMIT over a limit; BT_E_IO, BT_E_NOMEM */
BT_MUST_CHECK bt_status bt_gguf_read(const char *path, bool hashing, bt_arena *arena, bt_gguf *ret, bt_error *err);

const char *bt_gguf_type_name(bt_gguf_type type);                       /* "u32", as ggml prints it */
const bt_gguf_key *bt_gguf_find(const bt_gguf *gguf, const char *name); /* NULL if there is none */
/* "<arch>.<suffix>", for the keys of the model's shape */
const bt_gguf_key *bt_gguf_find_arch(const bt_gguf *gguf, const char *arch, const char *suffix);
/* Item i of a kept array of u32, i32 or bool, or the scalar itself, which stands for every i. False when the key is
 * NULL, of another type, negative, or has no item i. */
bool bt_gguf_u32_at(const bt_gguf_key *key, uint32_t i, uint32_t *ret);
/* The first of it, or what stands for a key that says none. */
uint32_t bt_gguf_u32_or(const bt_gguf_key *key, uint32_t absent);

/* Keys that llama.cpp reads with typed getters: a wrong type is refused here, with a sentence, before it is asked. The
 * split keys are checked in every shard, the others in the first. */
BT_MUST_CHECK bt_status bt_schema_check_split(const bt_gguf *gguf, bt_error *err);
BT_MUST_CHECK bt_status bt_schema_check(const bt_gguf *gguf, bt_error *err);

/* No control bytes and no NUL: such a name could neither be looked up nor shown. */
bool bt_name_is_clean(const char *name, size_t n);
/* For any module function whose arena said no. */
bt_status bt_model_no_room(const char *name, bt_error *err);
