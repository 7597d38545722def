/* SPDX-License-Identifier: MIT
 * judge_kit.h: model files, a machine of two pools, and words for tests of what is judged. For tests that include
 * cmocka.h first. */
#pragma once

#define ARGV_CHECK(condition) assert_true(condition)
#include "argv_kit.h"
#include "guard/judge.h"
#include "model_kit.h"

#include <stdlib.h>

#define KIT_MIB UINT64_C(1048576)
#define KIT_GIB UINT64_C(1073741824)

/* A plain model: of a token 1 KiB of cache. */
static inline const char *judge_model(const char *name, char path[512]) {
    gw w;
    gw_init(&w);
    gw_model_all(&w, &kit_small);
    gw_write(&w, kit_path(name, path));
    gw_done(&w);
    return path;
}

static inline bt_machine *judge_machine(uint64_t host_bytes, uint64_t device_bytes) {
    static bt_machine machine;
    machine = (bt_machine){.n_pools = device_bytes > 0 ? 2 : 1};
    machine.pools[0] = (bt_pool){.name = "host",
                                 .kind = BT_POOL_HOST,
                                 .state = BT_READING_REPORTED,
                                 .free_bytes = host_bytes,
                                 .total_bytes = host_bytes};
    machine.pools[1] = (bt_pool){.name = "Vulkan0",
                                 .kind = BT_POOL_GPU,
                                 .state = BT_READING_REPORTED,
                                 .free_bytes = device_bytes,
                                 .total_bytes = device_bytes};
    return &machine;
}

/* The line with the path in the place of %s. */
static inline char *const *judge_words(line *l, const char *format, const char *path) {
    char text[LINE_TEXT_MAX];
    const char *at = strstr(format, "%s");
    if (!at) return line_split(l, format);
    int n = snprintf(text, sizeof text, "%.*s%s%s", (int)(at - format), format, path, at + 2);
    assert_true(n > 0 && (size_t)n < sizeof text);
    return line_split(l, text);
}
