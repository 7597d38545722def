/* SPDX-License-Identifier: MIT
 *
 * gguf_write.c: the other side of model/gguf.c, for tests.
 *
 * It writes what it is told, right or wrong: a test builds a good file and then breaks one thing. Data is a hole in the
 * file, so a model of gigabytes costs nothing. It uses malloc, not the library's heap, so that fault tests count only
 * the library's calls; a failure here ends the test.
 */
#include "gguf_write.h"

#include "model/types.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void need(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "gguf_write: %s failed\n", what);
    abort();
}

void gw_init(gw *w) {
    *w = (gw){.magic = {'G', 'G', 'U', 'F'}, .version = 3, .alignment = 32};
}

void gw_done(gw *w) {
    free(w->keys.data);
    free(w->tensors.data);
    gw_init(w);
}

void gw_put(gw_bytes *out, const void *bytes, size_t n) {
    if (out->n + n > out->capacity) {
        out->capacity = 2 * (out->n + n) + 256;
        unsigned char *grown = realloc(out->data, out->capacity);
        need(grown, "realloc");
        out->data = grown;
    }
    if (n > 0) memcpy(out->data + out->n, bytes, n);
    out->n += n;
}

void gw_put_le(gw_bytes *out, uint64_t v, unsigned n_bytes) {
    unsigned char bytes[8];
    for (unsigned i = 0; i < n_bytes; i++)
        bytes[i] = (unsigned char)(v >> (8 * i));
    gw_put(out, bytes, n_bytes);
}

void gw_put_string(gw_bytes *out, const char *text) {
    gw_put_le(out, strlen(text), 8);
    gw_put(out, text, strlen(text));
}

void gw_put_key(gw *w, const char *name, bt_gguf_type type) {
    gw_put_string(&w->keys, name);
    gw_put_le(&w->keys, (uint64_t)type, 4);
    w->n_keys++;
}

static void put_number(gw *w, const char *name, bt_gguf_type type, uint64_t v, unsigned n_bytes) {
    gw_put_key(w, name, type);
    gw_put_le(&w->keys, v, n_bytes);
}

void gw_u32(gw *w, const char *name, uint32_t v) {
    put_number(w, name, BT_GGUF_U32, v, 4);
}

void gw_u16(gw *w, const char *name, uint32_t v) {
    put_number(w, name, BT_GGUF_U16, v, 2);
}

void gw_i32(gw *w, const char *name, int32_t v) {
    put_number(w, name, BT_GGUF_I32, (uint32_t)v, 4);
}

void gw_u64(gw *w, const char *name, uint64_t v) {
    put_number(w, name, BT_GGUF_U64, v, 8);
}

void gw_f32(gw *w, const char *name, float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_number(w, name, BT_GGUF_F32, bits, 4);
}

void gw_bool(gw *w, const char *name, bool v) {
    put_number(w, name, BT_GGUF_BOOL, v, 1);
}

void gw_string(gw *w, const char *name, const char *v) {
    gw_put_key(w, name, BT_GGUF_STRING);
    gw_put_string(&w->keys, v);
}

static void put_array(gw *w, const char *name, bt_gguf_type type, uint64_t n) {
    gw_put_key(w, name, BT_GGUF_ARRAY);
    gw_put_le(&w->keys, (uint64_t)type, 4);
    gw_put_le(&w->keys, n, 8);
}

void gw_u32s(gw *w, const char *name, const uint32_t *v, size_t n) {
    put_array(w, name, BT_GGUF_U32, n);
    for (size_t i = 0; i < n; i++)
        gw_put_le(&w->keys, v[i], 4);
}

void gw_bools(gw *w, const char *name, const bool *v, size_t n) {
    put_array(w, name, BT_GGUF_BOOL, n);
    for (size_t i = 0; i < n; i++)
        gw_put_le(&w->keys, v[i], 1);
}

void gw_tokens(gw *w, const char *name, uint32_t n) {
    put_array(w, name, BT_GGUF_STRING, n);
    for (uint32_t i = 0; i < n; i++) {
        char text[16];
        snprintf(text, sizeof text, "t%" PRIu32, i);
        gw_put_string(&w->keys, text);
    }
}

void gw_tensor_raw(gw *w, const char *name, uint32_t type, uint32_t n_dims, const uint64_t *ne, uint64_t offset) {
    gw_put_string(&w->tensors, name);
    gw_put_le(&w->tensors, n_dims, 4);
    for (uint32_t i = 0; i < n_dims; i++)
        gw_put_le(&w->tensors, ne[i], 8);
    gw_put_le(&w->tensors, type, 4);
    gw_put_le(&w->tensors, offset, 8);
    w->n_tensors++;
}

void gw_tensor_3d(gw *w, const char *name, uint32_t type, uint64_t ne0, uint64_t ne1, uint64_t ne2) {
    uint64_t row_bytes;
    need(bt_type_row_bytes(type, ne0, &row_bytes), "row size");
    uint64_t ne[3] = {ne0, ne1, ne2};
    gw_tensor_raw(w, name, type, ne2 > 1 ? 3 : ne1 > 1 ? 2 : 1, ne, w->data_bytes);
    uint64_t end = w->data_bytes + row_bytes * ne1 * ne2;
    w->data_bytes = (end + w->alignment - 1) / w->alignment * w->alignment;
}

void gw_tensor(gw *w, const char *name, uint32_t type, uint64_t ne0, uint64_t ne1) {
    gw_tensor_3d(w, name, type, ne0, ne1, 1);
}

/* ---- a plain model ------------------------------------------------------------------------------------------------
 */

static void arch_u32(gw *w, const gw_model *m, const char *suffix, uint32_t v) {
    char name[128];
    snprintf(name, sizeof name, "%s.%s", m->arch, suffix);
    gw_u32(w, name, v);
}

void gw_model_keys(gw *w, const gw_model *m) {
    gw_string(w, "general.architecture", m->arch);
    gw_string(w, "general.name", "made for a test");
    arch_u32(w, m, "block_count", m->n_block);
    arch_u32(w, m, "context_length", 2048);
    arch_u32(w, m, "embedding_length", m->n_embd);
    arch_u32(w, m, "feed_forward_length", m->n_ff);
    arch_u32(w, m, "vocab_size", m->n_vocab);
    if (m->no_heads) return;
    arch_u32(w, m, "attention.head_count", m->n_embd / 64);
    arch_u32(w, m, "attention.head_count_kv", m->n_embd / 128);
}

static void block_tensor(gw *w, uint32_t block, const char *part, uint32_t type, uint64_t ne0, uint64_t ne1) {
    char name[64];
    snprintf(name, sizeof name, "blk.%" PRIu32 ".%s", block, part);
    gw_tensor(w, name, type, ne0, ne1);
}

void gw_model_block(gw *w, const gw_model *m, uint32_t block) {
    uint32_t kv = m->n_embd / 128 * 64;
    block_tensor(w, block, "attn_norm.weight", 0, m->n_embd, 1);
    block_tensor(w, block, "ffn_down.weight", m->type, m->n_ff, m->n_embd);
    block_tensor(w, block, "ffn_gate.weight", m->type, m->n_embd, m->n_ff);
    block_tensor(w, block, "ffn_up.weight", m->type, m->n_embd, m->n_ff);
    block_tensor(w, block, "ffn_norm.weight", 0, m->n_embd, 1);
    block_tensor(w, block, "attn_k.weight", m->type, m->n_embd, kv);
    block_tensor(w, block, "attn_output.weight", m->type, m->n_embd, m->n_embd);
    block_tensor(w, block, "attn_q.weight", m->type, m->n_embd, m->n_embd);
    block_tensor(w, block, "attn_v.weight", m->type, m->n_embd, kv);
}

void gw_model_tensors(gw *w, const gw_model *m) {
    gw_tensor(w, "token_embd.weight", m->type, m->n_embd, m->n_vocab);
    for (uint32_t i = 0; i < m->n_block; i++)
        gw_model_block(w, m, i);
    gw_tensor(w, "output_norm.weight", 0, m->n_embd, 1);
    if (!m->tied) gw_tensor(w, "output.weight", m->type, m->n_embd, m->n_vocab);
}

void gw_model_all(gw *w, const gw_model *m) {
    gw_model_keys(w, m);
    gw_model_tensors(w, m);
}

/* ---- files ----------------------------------------------------------------------------------------------------------
 */

unsigned char *gw_header(const gw *w, size_t *ret_n) {
    gw_bytes out = {0};
    gw_put(&out, w->magic, 4);
    gw_put_le(&out, w->version, 4);
    gw_put_le(&out, w->n_tensors, 8);
    gw_put_le(&out, w->n_keys, 8);
    gw_put(&out, w->keys.data, w->keys.n);
    gw_put(&out, w->tensors.data, w->tensors.n);
    while (w->alignment > 0 && w->n_tensors > 0 && out.n % w->alignment != 0)
        gw_put_le(&out, 0, 1);
    *ret_n = out.n;
    return out.data;
}

void gw_write_bytes(const char *path, const void *bytes, size_t n) {
    FILE *file = fopen(path, "wb");
    need(file, path);
    need(n == 0 || fwrite(bytes, 1, n, file) == n, "fwrite");
    need(fclose(file) == 0, "fclose");
}

void gw_cut(const char *path, uint64_t n_bytes) {
    need(truncate(path, (off_t)n_bytes) == 0, "truncate");
}

void gw_write(const gw *w, const char *path) {
    size_t n;
    unsigned char *header = gw_header(w, &n);
    gw_write_bytes(path, header, n);
    free(header);
    gw_cut(path, n + w->data_bytes);
}
