/* SPDX-License-Identifier: MIT
 * random.h: numbers that only depend on their state, for tests that can be replayed. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* splitmix64 (Steele, Lea, Flood 2014) */
static inline uint64_t random_next(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}
