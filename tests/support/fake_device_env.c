/* SPDX-License-Identifier: MIT
 *
 * fake_device_env.c: libggml-fake.so: fake devices for programs, by GGML_BACKEND_PATH and these variables:
 *
 *     FAKE_DEVICES   NAME=SIZE[:gpu|igpu|accel][:error|silent|over|no-total|full],...   256M; by default FAKE0=256M
 *     FAKE_OVERHEAD  FAKE_ALIGN  FAKE_PAD  FAKE_MAX_BUFFER   sizes, of every device
 *     FAKE_OFFLOAD   1: asks for big batches with weights of the host
 *     FAKE_FAIL      alloc|init|query|compute:K[+],...   the K-th call on each device; +: and all after it
 *     FAKE_REPORT    a file: at the end, one line for each device with what was counted
 *
 * What cannot be read ends the program: a test with a typing error must not pass. */

#include "fake_device.h"

#include "ggml-backend-impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX 1024u

static ggml_backend_reg_t the_registry;
static const char *const call_names[FAKE_CALL_COUNT] = {"alloc", "init", "query", "compute"};

static void refuse(const char *what, const char *text) {
    (void)fprintf(stderr, "libggml-fake: %s cannot be \"%s\"\n", what, text);
    exit(2); /* a test's own library */
}

static uint64_t size_of(const char *what, const char *text) {
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    bool digits = end != text && *text >= '0' && *text <= '9' && errno == 0;
    unsigned shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (shift > 0) end++;
    if (!digits || *end != '\0' || value > UINT64_MAX >> shift) refuse(what, text);
    return value << shift;
}

static uint64_t size_from(const char *variable) {
    const char *text = getenv(variable);
    return text ? size_of(variable, text) : 0;
}

static void word_read(fake_spec *spec, const char *word) {
    static const char *const types[] = {"gpu", "igpu", "accel"};
    static const char *const memories[FAKE_MEMORY_COUNT] = {"true", "error", "silent", "over", "no-total", "full"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(word, types[i]) == 0) {
            spec->type = (fake_type)i;
            return;
        }
    for (size_t i = 0; i < FAKE_MEMORY_COUNT; i++)
        if (strcmp(word, memories[i]) == 0) {
            spec->memory = (fake_memory)i;
            return;
        }
    refuse("a word of FAKE_DEVICES", word);
}

/* item: cut in place, and kept by the spec. */
static void device_read(fake_spec *spec, char *item) {
    char *size = strchr(item, '=');
    if (!size) {
        refuse("FAKE_DEVICES", item);
        return;
    }
    *size++ = '\0';
    char *rest = size, *word = strsep(&rest, ":");
    *spec = (fake_spec){.name = item,
                        .total_bytes = size_of("FAKE_DEVICES", word),
                        .overhead_bytes = size_from("FAKE_OVERHEAD"),
                        .align_bytes = size_from("FAKE_ALIGN"),
                        .pad_bytes = size_from("FAKE_PAD"),
                        .max_buffer_bytes = size_from("FAKE_MAX_BUFFER"),
                        .offloads = size_from("FAKE_OFFLOAD") == 1};
    while ((word = strsep(&rest, ":")))
        word_read(spec, word);
}

static void fail_read(char *item) {
    char *k = strchr(item, ':');
    if (!k) {
        refuse("FAKE_FAIL", item);
        return;
    }
    *k++ = '\0';
    size_t n = strlen(k);
    bool persistent = n > 0 && k[n - 1] == '+';
    if (persistent) k[n - 1] = '\0';
    for (int call = 0; call < FAKE_CALL_COUNT; call++)
        if (strcmp(item, call_names[call]) == 0) {
            for (uint32_t i = 0; i < ggml_backend_reg_dev_count(the_registry); i++)
                fake_device_fail(fake_device_get(the_registry, i), (fake_call)call, size_of("FAKE_FAIL", k),
                                 persistent);
            return;
        }
    refuse("a call of FAKE_FAIL", item);
}

static void report(void) {
    FILE *file = fopen(getenv("FAKE_REPORT"), "w");
    if (!file) return;
    for (uint32_t i = 0; i < ggml_backend_reg_dev_count(the_registry); i++) {
        ggml_backend_dev_t dev = fake_device_get(the_registry, i);
        fake_counts c;
        fake_device_counts(dev, &c);
        (void)fprintf(file, "%s", ggml_backend_dev_name(dev));
        for (int call = 0; call < FAKE_CALL_COUNT; call++)
            (void)fprintf(file, " %s=%" PRIu64, call_names[call], c.calls[call]);
        (void)fprintf(file, " frees=%" PRIu64 " sets=%" PRIu64 " gets=%" PRIu64, c.frees, c.sets, c.gets);
        (void)fprintf(file, " buffers=%" PRIu64 " live=%" PRIu64 " peak=%" PRIu64 " backends=%" PRIu64 "\n",
                      c.n_buffers, c.live_bytes, c.peak_bytes, c.n_backends);
    }
    (void)fclose(file);
}

/* The one symbol that a program looks for. */
__attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init(void);

ggml_backend_reg_t ggml_backend_init(void) {
    static char devices[TEXT_MAX], fails[TEXT_MAX];
    fake_spec specs[FAKE_DEVICE_MAX];
    uint32_t n = 0;
    const char *text = getenv("FAKE_DEVICES");
    (void)snprintf(devices, sizeof devices, "%s", text ? text : "FAKE0=256M");
    char *rest = devices, *item;
    while ((item = strsep(&rest, ","))) {
        if (n == FAKE_DEVICE_MAX) refuse("FAKE_DEVICES", text);
        device_read(&specs[n++], item);
    }
    the_registry = fake_registry_open(NULL, specs, n);
    text = getenv("FAKE_FAIL");
    (void)snprintf(fails, sizeof fails, "%s", text ? text : "");
    rest = fails;
    while (text && (item = strsep(&rest, ",")))
        fail_read(item);
    if (getenv("FAKE_REPORT")) (void)atexit(report);
    return the_registry;
}
