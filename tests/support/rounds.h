/* SPDX-License-Identifier: MIT
 * rounds.h: how often a test over random inputs tries. Where each try is dear (tools/valgrind.sh), BT_ONE_OF=20 in the
 * environment makes it one of twenty. */
#pragma once

#include <stdint.h>
#include <stdlib.h>

static inline uint32_t rounds_of(uint32_t n) {
    const char *text = getenv("BT_ONE_OF");
    uint32_t divisor = text ? (uint32_t)strtoul(text, NULL, 10) : 1;
    return divisor > 1 && n > divisor ? n / divisor : divisor > 1 ? 1 : n;
}
