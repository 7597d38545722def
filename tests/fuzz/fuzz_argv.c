/* SPDX-License-Identifier: MIT
 * fuzz_argv.c: libFuzzer over command lines of llama.cpp's programs and its configuration files. */
#include <stdint.h>
#include <stdlib.h>

#define ARGV_CHECK(condition)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) abort();                                                                                     \
    } while (0)
#include "argv_kit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char *text = malloc(n + 1); /* of exactly this size, so that a read past it is seen */
    if (!text) return 0;
    memcpy(text, data, n);
    text[n] = '\0';
    argv_check_text(text, n);
    free(text);
    return 0;
}
