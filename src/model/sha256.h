/* SPDX-License-Identifier: MIT
 * sha256.h: SHA-256 of bytes that arrive in pieces (FIPS 180-4). For identity, not for secrets. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct bt_sha256 {
    uint32_t state[8];
    uint64_t n_bytes;
    unsigned char block[64];
} bt_sha256;

void bt_sha256_init(bt_sha256 *hash);
void bt_sha256_add(bt_sha256 *hash, const void *data, size_t n_bytes);
/* Ends the hash: hash must be initialised again before it is used again. */
void bt_sha256_hex(bt_sha256 *hash, char ret_hex[65]);
