/* SPDX-License-Identifier: MIT
 * size.h: arithmetic on sizes that cannot wrap, and sizes as people write and read them. */
#pragma once

#include "burthen.h"

/* true = ok, and *ret is set; false = the result does not fit, and *ret is untouched */
bool bt_add_u64(uint64_t a, uint64_t b, uint64_t *ret);
bool bt_mul_u64(uint64_t a, uint64_t b, uint64_t *ret);
bool bt_align_up_u64(uint64_t a, uint64_t align, uint64_t *ret); /* align: a power of two or any number >= 1 */
/* Saturating twins: for forecasts and for shortfalls, where UINT64_MAX or 0 is the right answer. */
uint64_t bt_sat_add_u64(uint64_t a, uint64_t b);
uint64_t bt_sat_sub_u64(uint64_t a, uint64_t b);
uint64_t bt_sat_mul_u64(uint64_t a, uint64_t b);
uint64_t bt_min_u64(uint64_t a, uint64_t b);
uint64_t bt_max_u64(uint64_t a, uint64_t b);
/* a * b / c without overflow of the product (128-bit), rounded down, saturating; c >= 1 */
uint64_t bt_mul_div_u64(uint64_t a, uint64_t b, uint64_t c);

/* "512M 1.5G 256MiB 300MB 268435456": K M G T and KiB MiB GiB TiB are binary, KB MB GB TB decimal, a trailing B alone
 * is bytes; case does not matter; the decimal point is '.', whatever the locale; fractions of a byte round down.
 * Signs, commas, spaces, junk, an empty string and overflow are BT_E_ARG, code "size". what: named in the error. */
BT_MUST_CHECK bt_status bt_size_parse(const char *text, const char *what, uint64_t *ret_bytes, bt_error *err);

#define BT_SIZE_TEXT 32
/* "512 B", "3.5 KiB", "96.0 MiB", "12.34 GiB": binary, one decimal below a GiB, two from there. Returns text. */
const char *bt_size_format(uint64_t bytes, char text[BT_SIZE_TEXT]);
/* In an argument list: BT_SIZE(bytes) */
#define BT_SIZE(bytes) bt_size_format((bytes), (char[BT_SIZE_TEXT]){0})
