/* SPDX-License-Identifier: MIT
 * random.h: numbers that only depend on their state, for tests that can be replayed. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* splitmix64 (Steele, Lea, Flood 2014) */
static inline uint64_t random_next(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* Of a property test: BT_SEED of the environment, "time" to draw one; else always the same, so that what fails has
 * something to do with the change. It is printed. */
static inline uint64_t random_seed(void) {
    const char *asked = getenv("BT_SEED");
    uint64_t seed = 1;
    if (asked && strcmp(asked, "time") == 0)
        seed = (uint64_t)time(NULL) * 2654435761u + 1;
    else if (asked)
        seed = strtoull(asked, NULL, 10);
    (void)printf("BT_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}
