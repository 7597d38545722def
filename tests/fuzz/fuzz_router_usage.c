/* SPDX-License-Identifier: MIT
 * fuzz_router_usage.c: libFuzzer over answers of servers: however they are cut, the same counts come out. */
#include <stdint.h>
#include <stdlib.h>

#include "usage_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char *text = malloc(n ? n : 1); /* of this size, so that a read past it is seen */
    if (!text) return 0;
    memcpy(text, data, n);
    for (int stream = 0; stream < 2; stream++) {
        bt_usage whole = usage_of(stream, text, n, 0);
        bt_usage pieces = usage_of(stream, text, n, 1 + n % 7);
        if (!usage_in_range(&whole, n / 8) || !usage_same(&whole, &pieces)) abort();
    }
    free(text);
    return 0;
}
