/* SPDX-License-Identifier: MIT
 * size.c: checked and saturating arithmetic on sizes, and sizes as text.
 *
 * Every product and sum of sizes in Burthen goes through here, since a wrapped size is a small allocation for a large
 * thing. Sizes as text use integers only: no strtod and no %f, so neither the locale nor binary fractions can change
 * what a user wrote. Fractions are exact for any number of digits (fraction_of). Left out: signs, exponents, units
 * beyond T, and anything a person might have meant. */
#include "base/size.h"
#include "base/error.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

__extension__ typedef unsigned __int128 u128;

bool bt_add_u64(uint64_t a, uint64_t b, uint64_t *ret) {
    uint64_t sum = 0;
    if (__builtin_add_overflow(a, b, &sum)) return false;
    *ret = sum;
    return true;
}

bool bt_mul_u64(uint64_t a, uint64_t b, uint64_t *ret) {
    uint64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product)) return false;
    *ret = product;
    return true;
}

bool bt_align_up_u64(uint64_t a, uint64_t align, uint64_t *ret) {
    if (align == 0) return false;
    uint64_t over = a % align;
    return bt_add_u64(a, over ? align - over : 0, ret);
}

uint64_t bt_sat_add_u64(uint64_t a, uint64_t b) {
    uint64_t sum = UINT64_MAX;
    (void)bt_add_u64(a, b, &sum);
    return sum;
}

uint64_t bt_sat_sub_u64(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0;
}

uint64_t bt_sat_mul_u64(uint64_t a, uint64_t b) {
    uint64_t product = UINT64_MAX;
    (void)bt_mul_u64(a, b, &product);
    return product;
}

uint64_t bt_min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

uint64_t bt_max_u64(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

uint64_t bt_mul_div_u64(uint64_t a, uint64_t b, uint64_t c) {
    if (c == 0) return UINT64_MAX; /* outside the contract; the saturated answer rather than a trap */
    u128 quotient = (u128)a * b / c;
    return quotient > UINT64_MAX ? UINT64_MAX : (uint64_t)quotient;
}

/* ---- text ------------------------------------------------------------------------------------------------------- */

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define TIB (UINT64_C(1) << 40)

typedef struct unit {
    const char *suffix; /* lower case */
    uint64_t bytes;
} unit;

static const unit units[] = {
    {"", 1},
    {"b", 1},
    {"k", KIB},
    {"m", MIB},
    {"g", GIB},
    {"t", TIB},
    {"kib", KIB},
    {"mib", MIB},
    {"gib", GIB},
    {"tib", TIB},
    {"kb", UINT64_C(1000)},
    {"mb", UINT64_C(1000000)},
    {"gb", UINT64_C(1000000000)},
    {"tb", UINT64_C(1000000000000)},
};

/* tolower() asks the locale, where I may not be i. */
static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static uint64_t unit_bytes(const char *suffix) {
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        const char *a = suffix;
        const char *b = units[i].suffix;
        while (*a && lower(*a) == *b) {
            a++;
            b++;
        }
        if (!*a && !*b) return units[i].bytes;
    }
    return 0;
}

/* floor(0.d1d2...dn * scale), exactly: for whole a, floor((a + y) / 10) is floor((a + floor(y)) / 10), so digits can be
 * taken from the last to the first and rounded down each time. No step passes 10 * scale. */
static uint64_t fraction_of(const char *digits, size_t n, uint64_t scale) {
    uint64_t sum = 0;
    for (size_t i = n; i > 0; i--) {
        sum = ((uint64_t)(digits[i - 1] - '0') * scale + sum) / 10;
    }
    return sum;
}

bt_status bt_size_parse(const char *text, const char *what, uint64_t *ret_bytes, bt_error *err) {
    const char *p = text;
    uint64_t whole = 0;
    bool fits = true;
    while (bt_is_digit(*p)) {
        fits = fits && bt_mul_u64(whole, 10, &whole) && bt_add_u64(whole, (uint64_t)(*p - '0'), &whole);
        p++;
    }
    bool good = p > text;
    const char *fraction = p;
    size_t n_fraction = 0;
    if (*p == '.') {
        fraction = ++p;
        while (bt_is_digit(*p)) {
            p++;
        }
        n_fraction = (size_t)(p - fraction);
        good = good && n_fraction > 0;
    }
    uint64_t scale = good ? unit_bytes(p) : 0;
    if (scale == 0) {
        return bt_fail(err, BT_E_ARG, "size", BT_MEASURE_NONE, 0, 0,
                       "%s: not a size such as 512M, 1.5G, 256MiB, 300MB or 268435456: \"%s\"", what, text);
    }
    uint64_t bytes = 0;
    fits =
        fits && bt_mul_u64(whole, scale, &bytes) && bt_add_u64(bytes, fraction_of(fraction, n_fraction, scale), &bytes);
    if (!fits) {
        return bt_fail(err, BT_E_ARG, "size", BT_MEASURE_NONE, 0, 0, "%s: larger than 64 bits can count: \"%s\"", what,
                       text);
    }
    *ret_bytes = bytes;
    return BT_OK;
}

const char *bt_size_format(uint64_t bytes, char text[BT_SIZE_TEXT]) {
    if (bytes < KIB) {
        (void)snprintf(text, BT_SIZE_TEXT, "%u B", (unsigned)bytes);
        return text;
    }
    static const struct {
        uint64_t bytes;
        unsigned tenths; /* parts shown of one unit: 10 or 100 */
        const char *name;
    } shown[] = {{KIB, 10, "KiB"}, {MIB, 10, "MiB"}, {GIB, 100, "GiB"}, {TIB, 100, "TiB"}};
    enum { N_SHOWN = sizeof shown / sizeof *shown };
    for (size_t i = 0; i < N_SHOWN; i++) {
        u128 parts =
            ((u128)bytes * shown[i].tenths + shown[i].bytes / 2) / shown[i].bytes; /* to the nearest, half up */
        uint64_t whole = (uint64_t)(parts / shown[i].tenths);
        if (whole >= 1024 && i + 1 < N_SHOWN) continue; /* after rounding: never "1024.0 MiB" */
        (void)snprintf(text, BT_SIZE_TEXT, "%llu.%0*u %s", (unsigned long long)whole, shown[i].tenths == 10 ? 1 : 2,
                       (unsigned)(parts % shown[i].tenths), shown[i].name);
        break;
    }
    return text;
}
