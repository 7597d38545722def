/* SPDX-License-Identifier: MIT
 * counted.h: numbers, and strings behind their length, in a row of bytes. */
#pragma once

#include "base/text.h"

/* What is still to be read of n_left bytes at `at`, which the caller keeps. failed: once more was asked for than there
 * was; from then on each number is 0 and each string NULL, so one look at the end is enough. */
typedef struct bt_counted {
    const char *at;
    size_t n_left;
    bool failed;
} bt_counted;

/* The next n bytes, where they stand; NULL when there are fewer. */
const char *bt_counted_take(bt_counted *in, size_t n);
uint32_t bt_counted_take_u32(bt_counted *in);
uint64_t bt_counted_take_u64(bt_counted *in);
/* A string where it stands, without a NUL behind it. *ret_n: what it claims to have, also when that is not there. */
const char *bt_counted_take_string(bt_counted *in, size_t *ret_n);

/* Appends; what goes over the maximum of out, or has no length of 32 bits, fails it. */
void bt_counted_put_u32(bt_text *out, uint32_t value);
void bt_counted_put_string(bt_text *out, const char *text, size_t n);
