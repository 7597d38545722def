/* SPDX-License-Identifier: MIT
 * fuzz_gpu.c: libFuzzer over what the kernel and others write of graphics devices. */
#include <stdint.h>
#include <stdlib.h>

#define GPU_CHECK(condition)                                                                                           \
    do {                                                                                                               \
        if (!(condition)) abort();                                                                                     \
    } while (0)
#include "gpu_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char *text = malloc(n + 1); /* of exactly this size, so that a read past it is seen */
    if (!text) return 0;
    memcpy(text, data, n);
    text[n] = '\0';
    gpu_check_text(text, n);
    free(text);
    return 0;
}
