/* SPDX-License-Identifier: MIT
 * header_file.h: a header read forward through one small window, hashed on the way. */
#pragma once

#include "burthen.h"
#include "model/sha256.h"

/* No published header passes 64 MiB (a 262k vocabulary with merges and scores is 16 MiB). */
#define BT_HEADER_MAX_BYTES (UINT64_C(256) << 20)

typedef struct bt_header_file {
    const char *path; /* as given; must outlive the source */
    const char *name; /* its last part, for sentences */
    int fd;
    uint64_t file_bytes;
    uint64_t end; /* what may be read: the smaller of the file's size and BT_HEADER_MAX_BYTES */
    uint64_t at;  /* next byte to read */
    int64_t mtime_ns;
    uint64_t device, inode;
    unsigned char *window;
    size_t window_bytes, window_at; /* filled; used */
    bt_sha256 hash;
    bool hashing;
} bt_header_file;

/* Opens a regular file. Directories, devices and FIFOs are refused without being opened (a FIFO would block). */
BT_MUST_CHECK bt_status bt_header_open(bt_header_file *src, const char *path, bool hashing, bt_error *err);
void bt_header_close(bt_header_file *src); /* a zeroed source is fine */

uint64_t bt_header_left(const bt_header_file *src); /* bytes of the file not yet read, whatever the limit */
/* Whether n more bytes can be read at all, with read's errors. */
BT_MUST_CHECK bt_status bt_header_need(const bt_header_file *src, uint64_t n, const char *what, bt_error *err);
/* The next n bytes; what: for the sentence, "the value of key 'x'". Past the file's end BT_E_FORMAT, past the limit
 * BT_E_LIMIT. dest NULL skips. mix, if not NULL, is a running FNV-1a hash of them. */
BT_MUST_CHECK bt_status bt_header_read(bt_header_file *src, void *dest, uint64_t n, uint64_t *mix, const char *what,
                                       bt_error *err);
BT_MUST_CHECK bt_status bt_header_u32(bt_header_file *src, uint32_t *ret, const char *what, bt_error *err);
BT_MUST_CHECK bt_status bt_header_u64(bt_header_file *src, uint64_t *ret, const char *what, bt_error *err);
/* A string of an array: its length goes to *ret_n, its bytes to *mix (if not NULL). The quick way through vocabularies.
 */
BT_MUST_CHECK bt_status bt_header_string(bt_header_file *src, uint64_t *ret_n, uint64_t *mix, const char *what,
                                         bt_error *err);
/* SHA-256 of all that was read; ends the hashing. */
void bt_header_hex(bt_header_file *src, char ret_hex[65]);

uint64_t bt_load_le(const void *bytes, unsigned n_bytes); /* little endian, 1 to 8 bytes */
