/* SPDX-License-Identifier: MIT
 * sha256.h: SHA-256 of bytes that arrive in pieces (FIPS 180-4). For identity, not for secrets. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bt_sha256 {
    uint32_t state[8];
    uint64_t n_bytes;
    unsigned char block[64];
} bt_sha256;

void bt_sha256_init(bt_sha256 *hash);
void bt_sha256_add(bt_sha256 *hash, const void *data, size_t n_bytes);
void bt_sha256_add_u64(bt_sha256 *hash, uint64_t value); /* in the machine's own order */
/* With its end, so that "a","b" is not "ab". */
void bt_sha256_add_text(bt_sha256 *hash, const char *text);
/* A file by its size and the time it was last written: another build is another program. false, and nothing is added:
 * path is NULL, or no regular file. */
bool bt_sha256_add_file(bt_sha256 *hash, const char *path);
/* Ends the hash: hash must be initialised again before it is used again. */
void bt_sha256_hex(bt_sha256 *hash, char ret_hex[65]);
/* As bt_sha256_hex writes one: 64 small hexadecimal digits, and no more. */
bool bt_sha256_is_hex(const char *text);
