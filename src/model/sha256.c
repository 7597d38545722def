/* SPDX-License-Identifier: MIT
 *
 * sha256.c: the hash that names a model's header in plans and caches, and what such names are made of: numbers, texts,
 * files that are told apart by their size and time.
 *
 * A plan is bound to the header it was made for (docs/design.md P2, M9), and a plan may travel to another machine; so
 * the name must be one that other tools can compute too. None of our libraries has a hash, and this one is a page.
 * Written from FIPS 180-4: the round constants are the first 32 bits of the fractional parts of the cube roots of the
 * first 64 primes, the start values those of the square roots of the first 8 (sections 4.2.2 and 5.3.3).
 * It hashes what it is given and keeps 112 bytes. It is not fast (a few hundred MB/s) and need not be: it sees headers.
 */
#include "model/sha256.h"

#include <string.h>
#include <sys/stat.h>

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate_right(uint32_t x, unsigned n) {
    return (x >> n) | (x << (32 - n));
}

static uint32_t load_be32(const unsigned char *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void compress(uint32_t state[8], const unsigned char *block) {
    uint32_t w[64]; /* message schedule */
    for (unsigned i = 0; i < 16; i++)
        w[i] = load_be32(block + (size_t)4 * i);
    for (unsigned i = 16; i < 64; i++) {
        uint32_t s0 = rotate_right(w[i - 15], 7) ^ rotate_right(w[i - 15], 18) ^ (w[i - 15] >> 3);
        uint32_t s1 = rotate_right(w[i - 2], 17) ^ rotate_right(w[i - 2], 19) ^ (w[i - 2] >> 10);
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (unsigned i = 0; i < 64; i++) {
        uint32_t sum1 = rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25);
        uint32_t t1 = h + sum1 + ((e & f) ^ (~e & g)) + round_constants[i] + w[i];
        uint32_t sum0 = rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22);
        uint32_t t2 = sum0 + ((a & b) ^ (a & c) ^ (b & c));
        h = g;
        g = f;
        f = e;
        e = d + t1;
        d = c;
        c = b;
        b = a;
        a = t1 + t2;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
}

void bt_sha256_init(bt_sha256 *hash) {
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(hash->state, start, sizeof start);
    hash->n_bytes = 0;
}

void bt_sha256_add(bt_sha256 *hash, const void *data, size_t n_bytes) {
    const unsigned char *p = data;
    size_t held = (size_t)(hash->n_bytes % 64);
    hash->n_bytes += n_bytes;
    if (held > 0) {
        size_t n = n_bytes < 64 - held ? n_bytes : 64 - held;
        memcpy(hash->block + held, p, n);
        p += n;
        n_bytes -= n;
        if (held + n < 64) return;
        compress(hash->state, hash->block);
    }
    for (; n_bytes >= 64; p += 64, n_bytes -= 64)
        compress(hash->state, p);
    if (n_bytes > 0) memcpy(hash->block, p, n_bytes);
}

void bt_sha256_hex(bt_sha256 *hash, char ret_hex[65]) {
    static const unsigned char pad[64] = {0x80};
    static const char digits[] = "0123456789abcdef";
    uint64_t n_bits = hash->n_bytes * 8;
    size_t held = (size_t)(hash->n_bytes % 64);
    bt_sha256_add(hash, pad, held < 56 ? 56 - held : 120 - held);
    unsigned char length[8];
    for (unsigned i = 0; i < 8; i++)
        length[i] = (unsigned char)(n_bits >> (56 - 8 * i));
    bt_sha256_add(hash, length, sizeof length);
    for (unsigned i = 0; i < 64; i++)
        ret_hex[i] = digits[hash->state[i / 8] >> (28 - 4 * (i % 8)) & 15];
    ret_hex[64] = '\0';
}

void bt_sha256_add_u64(bt_sha256 *hash, uint64_t value) {
    bt_sha256_add(hash, &value, sizeof value);
}

void bt_sha256_add_text(bt_sha256 *hash, const char *text) {
    bt_sha256_add(hash, text, strlen(text) + 1);
}

bool bt_sha256_add_file(bt_sha256 *hash, const char *path) {
    struct stat found;
    if (!path || stat(path, &found) != 0 || !S_ISREG(found.st_mode)) return false;
    bt_sha256_add_u64(hash, (uint64_t)found.st_size);
    bt_sha256_add_u64(hash, (uint64_t)found.st_mtim.tv_sec);
    bt_sha256_add_u64(hash, (uint64_t)found.st_mtim.tv_nsec);
    return true;
}

bool bt_sha256_is_hex(const char *text) {
    return strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64;
}
