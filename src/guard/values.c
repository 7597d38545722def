/* SPDX-License-Identifier: MIT
 * values.c: numbers and words as common/arg.cpp of llama.cpp reads them.
 *
 * It reads numbers with std::stoi and std::stof, which stop at the first character that does not belong and are
 * content: "-c 32k" is a context of 32 tokens. The guard has to price what the server will do, not what was meant, so
 * it reads in the same way. Words are compared exactly; nothing is trimmed. */
#include "guard/values.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#if defined(__APPLE__)
#include <xlocale.h>
#endif

static bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

bool bt_value_int(const char *text, int32_t *ret) {
    while (is_blank(*text))
        text++;
    bool minus = *text == '-';
    if (*text == '-' || *text == '+') text++;
    if (*text < '0' || *text > '9') return false;
    int64_t number = 0;
    for (; *text >= '0' && *text <= '9'; text++) {
        number = number * 10 + (*text - '0');
        if (number > (int64_t)INT32_MAX + 1) return false;
    }
    if (minus) number = -number;
    if (number > INT32_MAX) return false;
    *ret = (int32_t)number;
    return true;
}

bool bt_value_real(const char *text, double *ret) {
    static const double largest = FLT_MAX;
    locale_t c_locale = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (!c_locale) return false;
    char *end = NULL;
    double number = strtod_l(text, &end, c_locale);
    freelocale(c_locale);
    if (end == text) return false;
    if (isfinite(number) && fabs(number) > largest) return false;
    *ret = number;
    return true;
}

bool bt_value_choice(const char *text, const char *words, int32_t *ret) {
    size_t n = strlen(text);
    int32_t index = 0;
    for (const char *p = words;; index++) {
        size_t length = strcspn(p, "|");
        if (length == n && memcmp(p, text, n) == 0) {
            *ret = index;
            return true;
        }
        if (!p[length]) return false;
        p += length + 1;
    }
}

bool bt_value_on(const char *text, bool *ret) {
    int32_t index;
    if (!bt_value_choice(text, "off|disabled|false|0|on|enabled|true|1", &index)) return false;
    *ret = index >= 4;
    return true;
}

bool bt_value_flash(const char *text, bt_flash *ret) {
    bool on;
    if (bt_value_on(text, &on)) {
        *ret = on ? BT_FLASH_ON : BT_FLASH_OFF;
        return true;
    }
    if (strcmp(text, "auto") != 0 && strcmp(text, "-1") != 0) return false;
    *ret = BT_FLASH_AUTO;
    return true;
}

bool bt_value_layers(const char *text, int32_t *ret) {
    int32_t number;
    if (strcmp(text, "auto") == 0) {
        *ret = BT_LAYERS_AUTO;
        return true;
    }
    if (strcmp(text, "all") == 0) {
        *ret = BT_LAYERS_ALL;
        return true;
    }
    if (!bt_value_int(text, &number)) return false;
    *ret = number < BT_LAYERS_ALL ? BT_LAYERS_ALL : number;
    return true;
}
