/* SPDX-License-Identifier: MIT
 * file.h: the open files of a model: each shard once for direct reads and once buffered, with its identity checked
 * against the facts (size, inode, mtime), so that a file replaced between planning and reading is noticed. */
#pragma once

#include "burthen.h"

typedef struct bt_store_file {
    int fd;          /* as the io mode says; O_DIRECT when direct is true */
    int buffered_fd; /* always buffered: headers, odd ends */
    bool direct;
    uint64_t file_bytes;
    const char *path; /* owned by the facts */
} bt_store_file;

typedef struct bt_store {
    bt_store_file *files; /* [n_files], same order as facts->shards */
    uint32_t n_files;
    bool direct; /* every file is open for direct reads */
} bt_store;

/* mode AUTO and DIRECT try O_DIRECT and fall back to buffered where the file system refuses it (store->direct says);
 * the facts must outlive the store. BT_E_IO; BT_E_STALE code "model_changed" if a shard is not the one of the facts. */
BT_MUST_CHECK bt_status bt_store_open(const bt_facts *facts, bt_io_mode mode, bt_store *ret_store, bt_error *err);
void bt_store_close(bt_store *store);
/* Read exactly [offset, offset + bytes) through the buffered descriptor: BT_E_IO names file and offset when short. */
BT_MUST_CHECK bt_status bt_store_read(const bt_store *store, uint32_t file, uint64_t offset, void *dest, uint64_t bytes,
                                      bt_error *err);
/* The file is still as long and as old as it was: BT_E_IO code "model_changed". */
BT_MUST_CHECK bt_status bt_store_check(const bt_store *store, const bt_facts *facts, bt_error *err);
