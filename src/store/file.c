/* SPDX-License-Identifier: MIT
 * file.c: opening the shards of a model, and holding them to their identity.
 *
 * Each shard is open twice: once as the reader wants it (O_DIRECT where the file system allows) and once buffered, for
 * small reads at odd offsets. Whether O_DIRECT works is asked in two steps, since some file systems accept the flag and
 * refuse the first read: the open, and one aligned read of a page. Both descriptors must be the file that the facts
 * describe: same device, inode, size and time of last write. A file replaced by rename keeps its inode here and stays
 * readable; one written in place is noticed by bt_store_check. */
#include "store/file.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"

#include <errno.h>
#include <stdalign.h>
#include <sys/stat.h>

static int64_t mtime_ns(const struct stat *st) {
#if defined(__APPLE__)
    return (int64_t)st->st_mtimespec.tv_sec * 1000000000 + st->st_mtimespec.tv_nsec;
#else
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
#endif
}

/* The descriptor is the shard of the facts; status: what it is when it is not. */
static bt_status check_identity(int fd, const bt_shard *shard, bt_status changed, bt_error *err) {
    struct stat st;
    int sys = bt_fault_hit() ? EIO : fstat(fd, &st) != 0 ? errno : 0;
    if (sys != 0) return bt_fail_sys(err, sys, "stat_failed", "cannot look at %s", shard->path);
    uint64_t bytes = st.st_size < 0 ? 0 : (uint64_t)st.st_size;
    if (bytes != shard->file_bytes) {
        return bt_fail(err, changed, "model_changed", BT_MEASURE_BYTES, shard->file_bytes, bytes,
                       "%s has changed since it was planned: %llu bytes then, %llu now", shard->path,
                       (unsigned long long)shard->file_bytes, (unsigned long long)bytes);
    }
    if ((uint64_t)st.st_dev != shard->device || (uint64_t)st.st_ino != shard->inode) {
        return bt_fail(err, changed, "model_changed", BT_MEASURE_NONE, 0, 0,
                       "%s has changed since it was planned: another file is in its place", shard->path);
    }
    if (mtime_ns(&st) != shard->mtime_ns) {
        return bt_fail(err, changed, "model_changed", BT_MEASURE_NONE, 0, 0,
                       "%s has changed since it was planned: it was written to", shard->path);
    }
    return BT_OK;
}

/* Direct descriptor; -EINVAL where the file system refuses it. */
static int open_direct(const char *path) {
    int fd = bt_os_open(path, true);
    if (fd < 0) return fd;
    alignas(BT_PAGE_BYTES) uint8_t page[BT_PAGE_BYTES];
    int64_t n = bt_os_pread(fd, page, sizeof page, 0);
    if (n >= 0) return fd;
    (void)bt_os_close(fd);
    return (int)n;
}

static void close_file(bt_store_file *file) {
    if (file->fd >= 0) (void)bt_os_close(file->fd);
    if (file->buffered_fd >= 0) (void)bt_os_close(file->buffered_fd);
    file->fd = file->buffered_fd = -1;
}

static bt_status open_file(const bt_shard *shard, bt_io_mode mode, bt_store_file *file, bt_error *err) {
    *file = (bt_store_file){.fd = -1, .buffered_fd = -1, .file_bytes = shard->file_bytes, .path = shard->path};
    file->buffered_fd = bt_os_open(shard->path, false);
    if (file->buffered_fd < 0) {
        return bt_fail_sys(err, -file->buffered_fd, "open_failed", "cannot open %s", shard->path);
    }
    BT_TRY(check_identity(file->buffered_fd, shard, BT_E_STALE, err));
    if (mode != BT_IO_BUFFERED) {
        file->fd = open_direct(shard->path);
        file->direct = file->fd >= 0;
        if (file->fd < 0 && file->fd != -EINVAL) {
            return bt_fail_sys(err, -file->fd, "open_failed", "cannot open %s for direct reads", shard->path);
        }
    }
    if (!file->direct) {
        file->fd = bt_os_open(shard->path, false);
        if (file->fd < 0) return bt_fail_sys(err, -file->fd, "open_failed", "cannot open %s", shard->path);
    }
    return check_identity(file->fd, shard, BT_E_STALE, err);
}

bt_status bt_store_open(const bt_facts *facts, bt_io_mode mode, bt_store *ret_store, bt_error *err) {
    if (facts->n_shards == 0 || facts->n_shards > BT_SHARD_MAX) {
        return bt_fail(err, BT_E_ARG, "shard_count", BT_MEASURE_ITEMS, facts->n_shards, BT_SHARD_MAX,
                       "a model of %u files; 1 to %u can be", facts->n_shards, BT_SHARD_MAX);
    }
    bt_store store = {.direct = true};
    store.files = bt_heap_array(facts->n_shards, sizeof *store.files);
    if (!store.files) return bt_fail_sys(err, ENOMEM, "heap", "cannot open %u files", facts->n_shards);
    for (uint32_t i = 0; i < facts->n_shards; i++) {
        bt_status status = open_file(&facts->shards[i], mode, &store.files[i], err);
        store.n_files = i + 1; /* closed below even when half open */
        if (status != BT_OK) {
            bt_store_close(&store);
            return status;
        }
        store.direct = store.direct && store.files[i].direct;
    }
    *ret_store = store;
    return BT_OK;
}

void bt_store_close(bt_store *store) {
    if (!store) return;
    for (uint32_t i = 0; i < store->n_files; i++) {
        close_file(&store->files[i]);
    }
    bt_heap_free(store->files);
    *store = (bt_store){0};
}

bt_status bt_store_read(const bt_store *store, uint32_t file, uint64_t offset, void *dest, uint64_t bytes,
                        bt_error *err) {
    uint64_t end = 0;
    if (file >= store->n_files || !bt_add_u64(offset, bytes, &end) || bytes > SIZE_MAX) {
        return bt_fail(err, BT_E_ARG, "read_range", BT_MEASURE_NONE, 0, 0,
                       "no %llu bytes at offset %llu of file %u can be read", (unsigned long long)bytes,
                       (unsigned long long)offset, file);
    }
    const bt_store_file *f = &store->files[file];
    uint8_t *to = dest;
    for (uint64_t done = 0; done < bytes;) {
        unsigned long long at = offset + done;
        int64_t n = bt_os_pread(f->buffered_fd, to + done, (size_t)(bytes - done), at);
        if (n < 0) {
            return bt_fail_sys(err, (int)-n, "read_failed", "cannot read %s at offset %llu", f->path, at);
        }
        if (n == 0) {
            return bt_fail(err, BT_E_IO, "read_short", BT_MEASURE_BYTES, bytes, done,
                           "%s ends at offset %llu, inside the %llu bytes wanted at offset %llu", f->path, at,
                           (unsigned long long)bytes, (unsigned long long)offset);
        }
        done += (uint64_t)n;
    }
    return BT_OK;
}

bt_status bt_store_check(const bt_store *store, const bt_facts *facts, bt_error *err) {
    for (uint32_t i = 0; i < store->n_files && i < facts->n_shards; i++) {
        BT_TRY(check_identity(store->files[i].fd, &facts->shards[i], BT_E_IO, err));
    }
    return BT_OK;
}
