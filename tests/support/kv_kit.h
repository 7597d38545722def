/* SPDX-License-Identifier: MIT
 * kv_kit.h: the cache of a whole model, with flash attention and a stream for each sequence. */
#pragma once

#include "plan/costs.h"

static inline bool kv_bytes(const bt_facts *facts, uint32_t n_ctx, uint32_t n_parallel, uint32_t n_ubatch,
                            uint32_t type_k, uint32_t type_v, uint64_t *ret_bytes) {
    bt_wishes wishes = {.n_parallel = n_parallel, .type_k = type_k, .type_v = type_v};
    return bt_kv_price(facts, &wishes, n_ctx, n_ubatch, ret_bytes);
}
