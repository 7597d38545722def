/* SPDX-License-Identifier: MIT
 *
 * model_file.c: the virtual model file (docs/design.md section 9).
 *
 * libllama reads a model through a FILE *. We give it one whose bytes come from three places:
 *
 *     [ header ........................ ][ small ][ tag | nothing ......... ][ small ] ...
 *       shard 0's bytes, or merged         file     where a placed tensor is   file
 *
 * For one file the virtual file has the real one's layout. A set of shards, and a table that a device copies as its
 * head, are shown as one file with a table of tensors of its own: shard 0's key-values with the counts put right, a
 * tensor table made here, and the tensors one after another. Only the table is held in memory; everything else is read
 * when it is asked for. */

#include "engine/model_file.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"
#include "device/device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Unbuffered, libllama's header reader would make a system call per string (research: 256 KiB is enough). */
#define STREAM_BUFFER_BYTES (256u << 10)

typedef struct piece {
    uint64_t start, end; /* in the virtual file */
    uint64_t file_offset;
    uint32_t shard;
    uint32_t tensor; /* whose bytes these are */
    bool is_placed;  /* not read: only the tag is there */
} piece;

struct bt_model_file {
    const bt_facts *facts;
    const bt_store *store;
    piece *pieces; /* tensors, ascending */
    uint32_t n_pieces;
    uint8_t *table; /* merged tensor table; NULL for one file */
    uint64_t table_start, table_bytes;
    uint64_t data_start, n_bytes;
    uint64_t position;
    char *buffer;
    bool measuring; /* nobody wants the bytes of weights */
    bool has_error;
    bt_error error;
};

/* ---- layout ---- */

static bool is_placed(const bt_model_file *file, const bt_tensor *tensor) {
    if (tensor->role == BT_ROLE_SMALL || tensor->role == BT_ROLE_UNUSED) return false;
    return tensor->role != BT_ROLE_AWAY || file->measuring; /* another device wants the bytes */
}

static int compare_pieces(const void *a, const void *b) {
    const piece *left = a, *right = b;
    return left->start < right->start ? -1 : left->start > right->start;
}

static void lay_out_one(bt_model_file *file) {
    for (uint32_t i = 0; i < file->n_pieces; i++) {
        const bt_tensor *tensor = &file->facts->tensors[i];
        file->pieces[i] =
            (piece){tensor->file_offset,    tensor->file_offset + tensor->bytes, tensor->file_offset, tensor->shard, i,
                    is_placed(file, tensor)};
    }
    qsort(file->pieces, file->n_pieces, sizeof *file->pieces, compare_pieces);
    file->data_start = file->facts->shards[0].data_offset;
    file->n_bytes = file->facts->shards[0].file_bytes;
}

static uint64_t align_up(uint64_t value, uint64_t align) {
    return (value + align - 1) / align * align;
}

static uint64_t table_entry_bytes(const bt_tensor *tensor) {
    return 8 + strlen(tensor->name) + 4 + 8 * (uint64_t)tensor->n_dims + 4 + 8;
}

static uint8_t *put(uint8_t *at, const void *value, size_t bytes) {
    memcpy(at, value, bytes);
    return at + bytes;
}

/* GGUF is little-endian, and so is every system this is built for (checked when a header is read). */
static void write_table(bt_model_file *file) {
    uint8_t *at = file->table;
    for (uint32_t i = 0; i < file->n_pieces; i++) {
        const bt_tensor *tensor = &file->facts->tensors[i];
        uint64_t name_bytes = strlen(tensor->name), offset = file->pieces[i].start - file->data_start;
        at = put(at, &name_bytes, sizeof name_bytes);
        at = put(at, tensor->name, name_bytes);
        at = put(at, &tensor->n_dims, sizeof tensor->n_dims);
        at = put(at, tensor->ne, tensor->n_dims * sizeof *tensor->ne);
        at = put(at, &tensor->type, sizeof tensor->type);
        at = put(at, &offset, sizeof offset);
    }
}

/* All sizes come from checked facts: their sum is at most the sum of the files' sizes. */
static bt_status lay_out_merged(bt_model_file *file, bt_error *err) {
    const bt_facts *facts = file->facts;
    file->table_start = facts->shards[0].kv_end;
    for (uint32_t i = 0; i < facts->n_tensors; i++)
        file->table_bytes += table_entry_bytes(&facts->tensors[i]);
    file->table = bt_heap_alloc(file->table_bytes);
    if (!file->table)
        return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, file->table_bytes, 0,
                       "no memory for the merged table of tensors");
    file->data_start = align_up(file->table_start + file->table_bytes, facts->alignment);
    uint64_t at = file->data_start;
    for (uint32_t i = 0; i < facts->n_tensors; i++) {
        const bt_tensor *tensor = &facts->tensors[i];
        file->pieces[i] =
            (piece){at, at + tensor->bytes, tensor->file_offset, tensor->shard, i, is_placed(file, tensor)};
        at = align_up(at + tensor->bytes, facts->alignment);
    }
    file->n_bytes = at;
    write_table(file);
    return BT_OK;
}

/* ---- reading ---- */

/* Overlay bytes of a field that stands at [field, field + n) of the file on a read of [start, start + bytes). */
static void overlay(uint8_t *dest, uint64_t start, uint64_t bytes, uint64_t field, const void *value, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        if (field + i >= start && field + i < start + bytes) dest[field + i - start] = ((const uint8_t *)value)[i];
}

/* Bytes before the data: shard 0's, with the counts put right, and the merged table. */
static bt_status read_header(bt_model_file *file, uint64_t start, uint8_t *dest, uint64_t bytes, bt_error *err) {
    const bt_shard *shard = &file->facts->shards[0];
    if (!file->table) return bt_store_read(file->store, 0, start, dest, bytes, err);
    memset(dest, 0, bytes);
    if (start < shard->kv_end)
        BT_TRY(bt_store_read(file->store, 0, start, dest, bt_min_u64(bytes, shard->kv_end - start), err));
    uint64_t n_tensors = file->facts->n_tensors;
    uint16_t n_files = 1;
    overlay(dest, start, bytes, 8, &n_tensors, sizeof n_tensors); /* magic u32, version u32, then the tensor count */
    if (shard->split_count_offset != 0)
        overlay(dest, start, bytes, shard->split_count_offset, &n_files, sizeof n_files);
    uint64_t end = bt_min_u64(start + bytes, file->table_start + file->table_bytes);
    if (end > file->table_start) {
        uint64_t from = bt_max_u64(start, file->table_start);
        memcpy(dest + (from - start), file->table + (from - file->table_start), end - from);
    }
    return BT_OK;
}

static const piece *find_piece(const bt_model_file *file, uint64_t position) {
    uint32_t low = 0, high = file->n_pieces;
    while (low < high) { /* the first piece that ends after position */
        uint32_t mid = low + (high - low) / 2;
        if (file->pieces[mid].end <= position)
            low = mid + 1;
        else
            high = mid;
    }
    return low < file->n_pieces ? &file->pieces[low] : NULL;
}

static bt_status read_piece(bt_model_file *file, const piece *p, uint64_t start, uint8_t *dest, uint64_t bytes,
                            bt_error *err) {
    if (!p->is_placed)
        return bt_store_read(file->store, p->shard, p->file_offset + (start - p->start), dest, bytes, err);
    uint8_t tag[BT_TAG_BYTES];
    bt_device_tag_write(p->tensor, tag);
    overlay(dest, start, bytes, p->start, tag, sizeof tag);
    return BT_OK;
}

static bt_status read_some(bt_model_file *file, uint8_t *dest, uint64_t bytes, uint64_t *ret_bytes, bt_error *err) {
    uint64_t at = file->position;
    if (at >= file->n_bytes) {
        *ret_bytes = 0;
        return BT_OK;
    }
    bytes = bt_min_u64(bytes, file->n_bytes - at);
    if (at < file->data_start) {
        *ret_bytes = bt_min_u64(bytes, file->data_start - at);
        return read_header(file, at, dest, *ret_bytes, err);
    }
    const piece *p = find_piece(file, at);
    if (p && at >= p->start) {
        *ret_bytes = bt_min_u64(bytes, p->end - at);
        return read_piece(file, p, at, dest, *ret_bytes, err);
    }
    /* padding between tensors */
    *ret_bytes = p ? bt_min_u64(bytes, p->start - at) : bytes;
    memset(dest, 0, *ret_bytes);
    return BT_OK;
}

static ssize_t cookie_read(void *cookie, char *dest, size_t bytes) {
    bt_model_file *file = cookie;
    size_t done = 0;
    while (done < bytes) {
        uint64_t n;
        bt_error err;
        if (read_some(file, (uint8_t *)dest + done, bytes - done, &n, &err) != BT_OK) {
            if (!file->has_error) file->error = err;
            file->has_error = true;
            errno = err.sys ? err.sys : EIO;
            return -1;
        }
        if (n == 0) break;
        file->position += n;
        done += n;
    }
    return (ssize_t)done;
}

static int cookie_seek(void *cookie, off64_t *offset, int whence) {
    bt_model_file *file = cookie;
    int64_t base = whence == SEEK_SET ? 0 : (int64_t)(whence == SEEK_CUR ? file->position : file->n_bytes);
    int64_t target;
    if (__builtin_add_overflow(base, *offset, &target) || target < 0) {
        errno = EINVAL;
        return -1;
    }
    file->position = (uint64_t)target;
    *offset = target;
    return 0;
}

/* ---- life ---- */

/* A head of its own that stands nowhere in the file: the table's bytes, shown twice. */
static bool shows_copy(const bt_facts *facts) {
    return facts->split.head && facts->n_tensors > 0 && facts->n_tensors > facts->n_file_tensors;
}

static FILE *open_stream(bt_model_file *file) {
    cookie_io_functions_t calls = {.read = cookie_read, .seek = cookie_seek};
    FILE *stream = fopencookie(file, "rb", calls);
    if (stream && setvbuf(stream, file->buffer, _IOFBF, STREAM_BUFFER_BYTES) != 0) {
        (void)fclose(stream);
        stream = NULL;
    }
    return stream;
}

bt_status bt_model_file_open(const bt_facts *facts, const bt_store *store, bool measuring, bt_model_file **ret_file,
                             FILE **ret_stream, bt_error *err) {
    bt_model_file *file = bt_heap_alloc(sizeof *file);
    if (!file)
        return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, sizeof *file, 0,
                       "no memory for the virtual model file");
    file->facts = facts;
    file->store = store;
    file->measuring = measuring;
    file->n_pieces = facts->n_tensors;
    file->pieces = bt_heap_array(facts->n_tensors, sizeof *file->pieces);
    file->buffer = bt_heap_alloc(STREAM_BUFFER_BYTES);
    bt_status status = BT_OK;
    if (!file->pieces || !file->buffer)
        status = bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, STREAM_BUFFER_BYTES, 0,
                         "no memory for the virtual model file");
    else if (facts->n_shards > 1 || shows_copy(facts))
        status = lay_out_merged(file, err);
    else
        lay_out_one(file);
    FILE *stream = status == BT_OK ? open_stream(file) : NULL;
    if (status == BT_OK && !stream)
        status = bt_fail_sys(err, errno, "model_stream", "cannot open the virtual model file");
    if (status != BT_OK) {
        bt_model_file_close(file);
        return status;
    }
    *ret_file = file;
    *ret_stream = stream;
    return BT_OK;
}

bool bt_model_file_take_error(bt_model_file *file, bt_error *err) {
    bool had = file->has_error;
    if (had && err) *err = file->error;
    file->has_error = false;
    return had;
}

void bt_model_file_close(bt_model_file *file) {
    if (!file) return;
    bt_heap_free(file->pieces);
    bt_heap_free(file->table);
    bt_heap_free(file->buffer);
    bt_heap_free(file);
}
