/* SPDX-License-Identifier: MIT
 *
 * header_file.c: the only reader of model headers.
 *
 *   file  |----- read before -----[== window, 64 KiB ==]------- not read: data ------|
 *                                       ^ at
 *
 * It goes forward only, in chunks of 64 KiB, and holds one of them: a header of 16 MiB (a large vocabulary) costs the
 * same memory as one of 1 KiB. Every read is checked against what is left of the file before anything is sized by it,
 * so a length field can lie, but never make us allocate. The bytes are hashed as they are used up.
 * It leaves the data alone (store/ reads that), and never follows anything but a regular file.
 */
#include "model/header_file.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#define WINDOW_BYTES                                                                                                   \
    65536 /* one read-ahead's worth: larger windows are not faster (page cache), smaller ones cost calls */

uint64_t bt_load_le(const void *bytes, unsigned n_bytes) {
    const unsigned char *p = bytes;
    uint64_t v = 0;
    for (unsigned i = 0; i < n_bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static bt_status refuse_kind(mode_t mode, const char *path, bt_error *err) {
    if (S_ISREG(mode)) return BT_OK;
    const char *kind = S_ISDIR(mode) ? "a directory" : S_ISFIFO(mode) ? "a pipe" : "a device or socket";
    return bt_fail(err, BT_E_FORMAT, "model_kind", BT_MEASURE_NONE, 0, 0, "%s is %s, not a model file", path, kind);
}

/* What open() would do to a FIFO (wait for a writer) must be known before; what was opened is looked at again. */
bt_status bt_header_open(bt_header_file *src, const char *path, bool hashing, bt_error *err) {
    memset(src, 0, sizeof *src);
    src->fd = -1;
    src->path = path;
    src->name = bt_path_file(path); /* a path may be long, and a sentence is not */
    struct stat st;
    if (stat(path, &st) != 0) return bt_fail_sys(err, errno, "model_open", "cannot open %s", path);
    BT_TRY(refuse_kind(st.st_mode, path, err));
    int fd = bt_os_open(path, false);
    if (fd < 0) return bt_fail_sys(err, -fd, "model_open", "cannot open %s", path);
    src->fd = fd;
    bt_status status = BT_OK;
    if (fstat(fd, &st) != 0) {
        status = bt_fail_sys(err, errno, "model_open", "cannot look at %s", path);
    } else {
        status = refuse_kind(st.st_mode, path, err);
    }
    if (status == BT_OK) {
        src->window = bt_heap_alloc(WINDOW_BYTES);
        if (!src->window) status = bt_fail_sys(err, ENOMEM, "model_memory", "%s: no memory to read it", src->name);
    }
    if (status != BT_OK) {
        bt_header_close(src);
        return status;
    }
    src->file_bytes = (uint64_t)st.st_size;
    src->end = bt_min_u64(src->file_bytes, BT_HEADER_MAX_BYTES);
    src->mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    src->device = st.st_dev;
    src->inode = st.st_ino;
    src->hashing = hashing;
    bt_sha256_init(&src->hash);
    return BT_OK;
}

void bt_header_close(bt_header_file *src) {
    if (src->path && src->fd >= 0) bt_os_close(src->fd);
    bt_heap_free(src->window);
    memset(src, 0, sizeof *src);
    src->fd = -1;
}

uint64_t bt_header_left(const bt_header_file *src) {
    return src->file_bytes - src->at;
}

static bt_status refill(bt_header_file *src, bt_error *err) {
    if (src->hashing) bt_sha256_add(&src->hash, src->window, src->window_at);
    src->window_at = src->window_bytes = 0;
    size_t want = (size_t)bt_min_u64(WINDOW_BYTES, src->end - src->at);
    int64_t got = bt_os_pread(src->fd, src->window, want, src->at);
    if (got < 0)
        return bt_fail_sys(err, (int)-got, "model_read", "cannot read %s at byte %" PRIu64, src->name, src->at);
    if (got == 0)
        return bt_fail(err, BT_E_FORMAT, "model_shrank", BT_MEASURE_BYTES, src->file_bytes, src->at,
                       "%s became shorter while it was read", src->name);
    src->window_bytes = (size_t)got;
    return BT_OK;
}

bt_status bt_header_need(const bt_header_file *src, uint64_t n, const char *what, bt_error *err) {
    if (n <= src->end - src->at) return BT_OK;
    if (n > bt_header_left(src))
        return bt_fail(err, BT_E_FORMAT, "gguf_truncated", BT_MEASURE_BYTES, n, bt_header_left(src),
                       "%s: %s needs %" PRIu64 " bytes at byte %" PRIu64 ", but the file ends %" PRIu64
                       " bytes later: it is truncated or damaged",
                       src->name, what, n, src->at, bt_header_left(src));
    return bt_fail(err, BT_E_LIMIT, "gguf_header", BT_MEASURE_BYTES, src->at + n, BT_HEADER_MAX_BYTES,
                   "%s: its header passes the limit of %s at %s", src->name, BT_SIZE(BT_HEADER_MAX_BYTES), what);
}

/* FNV-1a (Fowler, Noll, Vo; 64 bits): enough to tell the tokens of a vocabulary apart. */
static uint64_t mix_bytes(uint64_t mix, const unsigned char *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        mix = (mix ^ p[i]) * UINT64_C(0x100000001b3);
    return mix;
}

/* n bytes that are in the window */
static void take(bt_header_file *src, void *dest, size_t n, uint64_t *mix) {
    const unsigned char *in = src->window + src->window_at;
    if (mix) *mix = mix_bytes(*mix, in, n);
    if (dest) memcpy(dest, in, n);
    src->window_at += n;
    src->at += n;
}

bt_status bt_header_read(bt_header_file *src, void *dest, uint64_t n, uint64_t *mix, const char *what, bt_error *err) {
    BT_TRY(bt_header_need(src, n, what, err));
    unsigned char *out = dest;
    while (n > 0) {
        if (src->window_at == src->window_bytes) BT_TRY(refill(src, err));
        size_t part = (size_t)bt_min_u64(n, src->window_bytes - src->window_at);
        take(src, out, part, mix);
        if (out) out += part;
        n -= part;
    }
    return BT_OK;
}

bt_status bt_header_string(bt_header_file *src, uint64_t *ret_n, uint64_t *mix, const char *what, bt_error *err) {
    size_t in_window = src->window_bytes - src->window_at;
    if (in_window < 8) {
        BT_TRY(bt_header_u64(src, ret_n, what, err));
    } else {
        *ret_n = bt_load_le(src->window + src->window_at, 8);
        take(src, NULL, 8, NULL);
        in_window -= 8;
    }
    if (*ret_n > in_window || in_window < 8) return bt_header_read(src, NULL, *ret_n, mix, what, err);
    take(src, NULL, (size_t)*ret_n, mix);
    return BT_OK;
}

bt_status bt_header_u32(bt_header_file *src, uint32_t *ret, const char *what, bt_error *err) {
    unsigned char bytes[4];
    BT_TRY(bt_header_read(src, bytes, sizeof bytes, NULL, what, err));
    *ret = (uint32_t)bt_load_le(bytes, sizeof bytes);
    return BT_OK;
}

bt_status bt_header_u64(bt_header_file *src, uint64_t *ret, const char *what, bt_error *err) {
    unsigned char bytes[8];
    BT_TRY(bt_header_read(src, bytes, sizeof bytes, NULL, what, err));
    *ret = bt_load_le(bytes, sizeof bytes);
    return BT_OK;
}

void bt_header_hex(bt_header_file *src, char ret_hex[65]) {
    bt_sha256_add(&src->hash, src->window, src->window_at);
    src->hashing = false;
    bt_sha256_hex(&src->hash, ret_hex);
}
