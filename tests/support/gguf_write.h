/* SPDX-License-Identifier: MIT
 * gguf_write.h: writes GGUF files for tests: good ones, and any kind of bad one. */
#pragma once

#include "model/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gw_bytes {
    unsigned char *data;
    size_t n, capacity;
} gw_bytes;

/* What is public here may be changed between the calls, to write what no program would. */
typedef struct gw {
    char magic[4];
    uint32_t version, alignment;
    uint64_t n_keys, n_tensors; /* as the header will claim */
    uint64_t data_bytes;        /* where the next tensor goes, and how long the data is */
    gw_bytes keys, tensors;
} gw;

void gw_init(gw *w);
void gw_done(gw *w);

/* Anything at all, into the key-values or the tensor table. */
void gw_put(gw_bytes *out, const void *bytes, size_t n);
void gw_put_le(gw_bytes *out, uint64_t v, unsigned n_bytes);
void gw_put_string(gw_bytes *out, const char *text);
void gw_put_key(gw *w, const char *name, bt_gguf_type type); /* name and type; the value is the caller's */

void gw_u32(gw *w, const char *name, uint32_t v);
void gw_u16(gw *w, const char *name, uint32_t v);
void gw_i32(gw *w, const char *name, int32_t v);
void gw_u64(gw *w, const char *name, uint64_t v);
void gw_f32(gw *w, const char *name, float v);
void gw_bool(gw *w, const char *name, bool v);
void gw_string(gw *w, const char *name, const char *v);
void gw_u32s(gw *w, const char *name, const uint32_t *v, size_t n);
void gw_bools(gw *w, const char *name, const bool *v, size_t n);
/* "t0", "t1" ... */
void gw_tokens(gw *w, const char *name, uint32_t n);

/* Placed after the one before; ne[0] is a whole number of blocks. */
void gw_tensor(gw *w, const char *name, uint32_t type, uint64_t ne0, uint64_t ne1);
void gw_tensor_3d(gw *w, const char *name, uint32_t type, uint64_t ne0, uint64_t ne1, uint64_t ne2);
void gw_tensor_raw(gw *w, const char *name, uint32_t type, uint32_t n_dims, const uint64_t *ne, uint64_t offset);

/* Key-values (without tokenizer) and tensors of a plain model: n_head = n_embd / 64, half as many KV heads. */
typedef struct gw_model {
    const char *arch;
    uint32_t n_block, n_embd, n_ff, n_vocab, type;
    bool tied;
    bool no_heads; /* leave the head counts to the test */
} gw_model;
void gw_model_keys(gw *w, const gw_model *m);
void gw_model_block(gw *w, const gw_model *m, uint32_t block);
void gw_model_tensors(gw *w, const gw_model *m); /* table, all blocks, output */
void gw_model_all(gw *w, const gw_model *m);

/* The header with its padding, from malloc. */
unsigned char *gw_header(const gw *w, size_t *ret_n);
/* The whole file; the data is a hole. Fails the test when it cannot be written. */
void gw_write(const gw *w, const char *path);
/* A file of these bytes. */
void gw_write_bytes(const char *path, const void *bytes, size_t n);
void gw_cut(const char *path, uint64_t n_bytes); /* to this length, shorter or longer */
