/* SPDX-License-Identifier: MIT
 * fuzz_router_config.c: libFuzzer over configurations of the router. */
#include <stdint.h>
#include <stdlib.h>

#define ROUTER_CHECK(condition)                                                                                        \
    do {                                                                                                               \
        if (!(condition)) abort();                                                                                     \
    } while (0)
#include "router_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char *text = malloc(n ? n : 1); /* of exactly this size, so that a read past it is seen */
    if (!text) return 0;
    memcpy(text, data, n);
    (void)router_check_text(text, n);
    free(text);
    return 0;
}
