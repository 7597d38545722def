/* SPDX-License-Identifier: MIT
 * plain_check.h: words for a person, which fuzz targets hold every refusal to: some, in UTF-8, and nothing in them that
 * drives a terminal. */
#pragma once

#include "base/text.h"
#include "fuzz.h"

#include <string.h>

static inline void plain_check(const char *text) {
    size_t n = strlen(text);
    FUZZ_CHECK(n > 0);
    for (size_t i = 0, length = 0; i < n; i += length) {
        length = bt_utf8_length(text + i, n - i);
        FUZZ_CHECK(length > 0 && !bt_utf8_is_control(text + i, length));
    }
}
