/* SPDX-License-Identifier: MIT
 *
 * gguf_tensors.c: the tensor table, checked so that every tensor lies where it says and nowhere else.
 *
 * ggml takes tensors only in file order without gaps: each starts where the one before it ended, rounded up to the
 * file's alignment. Held to that rule, no two overlap and none lies outside the data; what remains is whether the file
 * is long enough, and that is said with the tensor's name and the missing bytes (user case 38: a download that broke
 * off). Sizes are products of the file's numbers and checked as such. Names must be unique, short enough for ggml
 * (which cuts longer ones) and free of bytes that would end them early.
 */
#include "model/gguf_tensors.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"
#include "model/types.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bt_status read_name(bt_header_file *src, uint32_t index, bt_arena *arena, bt_tensor *t, bt_error *err) {
    char what[48], name[BT_GGUF_TENSOR_NAME_MAX];
    snprintf(what, sizeof what, "the name of tensor %" PRIu32, index);
    uint64_t n;
    BT_TRY(bt_header_u64(src, &n, what, err));
    if (n > BT_GGUF_TENSOR_NAME_MAX && n <= bt_header_left(src))
        return bt_fail(err, BT_E_FORMAT, "gguf_tensor", BT_MEASURE_BYTES, n, BT_GGUF_TENSOR_NAME_MAX,
                       "%s: the name of tensor %" PRIu32 " has %" PRIu64 " bytes; ggml takes %d", src->name, index, n,
                       BT_GGUF_TENSOR_NAME_MAX);
    BT_TRY(bt_header_read(src, name, n, NULL, what, err));
    if (n == 0 || !bt_name_is_clean(name, (size_t)n))
        return bt_fail(err, BT_E_FORMAT, "gguf_tensor", BT_MEASURE_NONE, 0, 0,
                       "%s: the name of tensor %" PRIu32 " is empty or has control bytes", src->name, index);
    t->name = bt_arena_strndup(arena, name, (size_t)n);
    return t->name ? BT_OK : bt_model_no_room(src->name, err);
}

static bt_status read_shape(bt_header_file *src, bt_tensor *t, const char *what, bt_error *err) {
    BT_TRY(bt_header_u32(src, &t->n_dims, what, err));
    if (t->n_dims < 1 || t->n_dims > 4)
        return bt_fail(err, BT_E_FORMAT, "gguf_tensor", BT_MEASURE_NONE, 0, 0,
                       "%s: %s has %" PRIu32 " dimensions, not 1 to 4", src->name, what, t->n_dims);
    uint64_t n_elements = 1;
    for (uint32_t i = 0; i < 4; i++) {
        t->ne[i] = 1;
        if (i < t->n_dims) BT_TRY(bt_header_u64(src, &t->ne[i], what, err));
        if (t->ne[i] == 0)
            return bt_fail(err, BT_E_FORMAT, "gguf_tensor", BT_MEASURE_NONE, 0, 0,
                           "%s: %s has no elements in dimension %" PRIu32, src->name, what, i);
        /* ggml counts elements in int64_t */
        if (!bt_mul_u64(n_elements, t->ne[i], &n_elements) || n_elements > INT64_MAX)
            return bt_fail(err, BT_E_FORMAT, "gguf_tensor", BT_MEASURE_NONE, 0, 0,
                           "%s: %s has more elements than can be counted", src->name, what);
    }
    return BT_OK;
}

static bt_status read_type(bt_header_file *src, bt_tensor *t, const char *what, bt_error *err) {
    BT_TRY(bt_header_u32(src, &t->type, what, err));
    if (!bt_type_is_known(t->type))
        return bt_fail(err, BT_E_FORMAT, "gguf_tensor", BT_MEASURE_NONE, 0, 0,
                       "%s: %s has type %" PRIu32 ", which ggml does not know or has removed", src->name, what,
                       t->type);
    if (t->ne[0] % bt_type_block_elements(t->type) != 0)
        return bt_fail(err, BT_E_FORMAT, "gguf_tensor", BT_MEASURE_NONE, 0, 0,
                       "%s: %s has rows of %" PRIu64 " elements, no multiple of the %" PRIu32 " of type %s", src->name,
                       what, t->ne[0], bt_type_block_elements(t->type), bt_type_name(t->type));
    if (!bt_type_row_bytes(t->type, t->ne[0], &t->row_bytes) || !bt_mul_u64(t->row_bytes, t->ne[1], &t->bytes) ||
        !bt_mul_u64(t->bytes, t->ne[2], &t->bytes) || !bt_mul_u64(t->bytes, t->ne[3], &t->bytes) ||
        t->bytes > INT64_MAX)
        return bt_fail(err, BT_E_FORMAT, "gguf_tensor", BT_MEASURE_NONE, 0, 0,
                       "%s: %s has more bytes than can be counted", src->name, what);
    return BT_OK;
}

/* Offsets are relative to data_offset here; place_tensors() makes them absolute. */
static bt_status check_offset(const bt_header_file *src, const bt_gguf *gguf, const bt_tensor *t, uint64_t expected,
                              bt_error *err) {
    if (t->file_offset % gguf->alignment != 0)
        return bt_fail(err, BT_E_FORMAT, "gguf_tensor", BT_MEASURE_NONE, 0, 0,
                       "%s: tensor '%s' lies at %" PRIu64 ", no multiple of the alignment of %" PRIu32, src->name,
                       t->name, t->file_offset, gguf->alignment);
    if (t->file_offset < expected)
        return bt_fail(err, BT_E_FORMAT, "gguf_tensor", BT_MEASURE_BYTES, expected, t->file_offset,
                       "%s: tensor '%s' overlaps the one before it", src->name, t->name);
    if (t->file_offset > expected)
        return bt_fail(err, BT_E_FORMAT, "gguf_tensor", BT_MEASURE_BYTES, expected, t->file_offset,
                       "%s: a gap of %" PRIu64 " bytes before tensor '%s', which ggml does not take", src->name,
                       t->file_offset - expected, t->name);
    return BT_OK;
}

static bt_status read_rows(bt_header_file *src, bt_gguf *gguf, bt_arena *arena, bt_error *err) {
    uint64_t expected = 0; /* offset of the next tensor in the data */
    for (uint32_t i = 0; i < gguf->n_tensors; i++) {
        bt_tensor *t = &gguf->tensors[i];
        BT_TRY(read_name(src, i, arena, t, err));
        char what[BT_GGUF_TENSOR_NAME_MAX + 16];
        snprintf(what, sizeof what, "tensor '%s'", t->name);
        BT_TRY(read_shape(src, t, what, err));
        BT_TRY(read_type(src, t, what, err));
        BT_TRY(bt_header_u64(src, &t->file_offset, what, err));
        BT_TRY(check_offset(src, gguf, t, expected, err));
        uint64_t end;
        if (!bt_add_u64(t->file_offset, t->bytes, &end) || !bt_align_up_u64(end, gguf->alignment, &expected))
            return bt_fail(err, BT_E_FORMAT, "gguf_tensor", BT_MEASURE_NONE, 0, 0, "%s: %s ends past any file's end",
                           src->name, what);
    }
    return BT_OK;
}

static bt_status place_tensors(const bt_header_file *src, bt_gguf *gguf, bt_error *err) {
    for (uint32_t i = 0; i < gguf->n_tensors; i++) {
        bt_tensor *t = &gguf->tensors[i];
        uint64_t end;
        if (!bt_add_u64(t->file_offset, gguf->data_offset, &t->file_offset) ||
            !bt_add_u64(t->file_offset, t->bytes, &end))
            end = UINT64_MAX;
        if (end > src->file_bytes)
            return bt_fail(err, BT_E_FORMAT, "gguf_truncated", BT_MEASURE_BYTES, end, src->file_bytes,
                           "%s: tensor '%s' needs %" PRIu64 " more bytes: the file is truncated", src->name, t->name,
                           end - src->file_bytes);
    }
    return BT_OK;
}

static int compare_names(const void *a, const void *b) {
    const char *const *left = a;
    const char *const *right = b;
    return strcmp(*left, *right);
}

bt_status bt_tensor_names_check(const bt_tensor *tensors, uint32_t n, const char *what, bt_error *err) {
    const char **names = bt_heap_array(n, sizeof *names);
    if (!names) return bt_model_no_room(what, err);
    for (uint32_t i = 0; i < n; i++)
        names[i] = tensors[i].name;
    qsort(names, n, sizeof *names, compare_names);
    bt_status status = BT_OK;
    for (uint32_t i = 1; i < n && status == BT_OK; i++) {
        if (strcmp(names[i - 1], names[i]) == 0)
            status = bt_fail(err, BT_E_FORMAT, "gguf_tensor", BT_MEASURE_NONE, 0, 0, "%s: tensor '%s' occurs twice",
                             what, names[i]);
    }
    bt_heap_free(names);
    return status;
}

bt_status bt_gguf_tensors_read(bt_header_file *src, bt_gguf *gguf, bt_arena *arena, bt_error *err) {
    gguf->tensors = bt_arena_array(arena, gguf->n_tensors > 0 ? gguf->n_tensors : 1, sizeof *gguf->tensors);
    if (!gguf->tensors) return bt_model_no_room(src->name, err);
    BT_TRY(read_rows(src, gguf, arena, err));
    gguf->header_bytes = src->at;
    if (!bt_align_up_u64(src->at, gguf->alignment, &gguf->data_offset)) gguf->data_offset = UINT64_MAX;
    BT_TRY(bt_tensor_names_check(gguf->tensors, gguf->n_tensors, src->name, err));
    return place_tensors(src, gguf, err);
}
