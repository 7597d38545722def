/* SPDX-License-Identifier: MIT
 * placing_kit.h: a small model, a machine with one card, and what a dry run would say of it. For tests that include
 * cmocka.h first. */
#pragma once

#include "cli/placing.h"
#include "model_kit.h"
#include "plan/costs.h"

#define KIT_BLOCKS 6u
#define KIT_CTX    256u

typedef struct placing_kit {
    bt_facts *whole;
    bt_machine machine;
    bt_cli_options options;
    bt_arena *arena;
} placing_kit;

/* Blocks that are alike, an untied head. */
static inline bt_facts *kit_model(const char *name) {
    gw_model m = kit_small;
    gw w;
    m.n_block = KIT_BLOCKS;
    gw_init(&w), gw_model_all(&w, &m);
    bt_facts *facts = kit_file_open(&w, name);
    gw_done(&w);
    return facts;
}

static inline void kit_start(placing_kit *kit, const char *name) {
    *kit = (placing_kit){.whole = kit_model(name), .arena = bt_arena_open(UINT64_C(16) << 20, 64u << 10)};
    kit->machine.n_pools = 2;
    kit->machine.pools[0] = (bt_pool){.name = "host", .kind = BT_POOL_HOST, .state = BT_READING_REPORTED};
    kit->machine.pools[1] = (bt_pool){.name = "CARD", .kind = BT_POOL_GPU, .state = BT_READING_REPORTED};
    kit->machine.n_threads = 1;
    kit->options.wishes = (bt_wishes){.type_k = 1, .type_v = 1, .n_ctx = KIT_CTX, .n_ubatch = 32};
    kit->options.wishes.n_devices = 1;
    kit->options.wishes.devices[0] = (bt_device_wish){.name = "CARD", .budget_bytes = {true, 0}};
}

static inline void kit_stop(placing_kit *kit) {
    bt_arena_close(kit->arena);
    bt_facts_close(kit->whole);
}

/* What n blocks take of the card, tensors, their padding, and caches. */
static inline uint64_t kit_blocks_bytes(const placing_kit *kit, uint32_t n, bool head) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < kit->whole->n_tensors; i++) {
        const bt_tensor *t = &kit->whole->tensors[i];
        bool of_head = t->block < 0 && strcmp(t->name, "token_embd.weight") != 0;
        if ((t->block >= 0 && t->block < (int32_t)n) || (head && of_head)) sum += t->bytes + 1024;
    }
    for (uint32_t b = 0; b < n; b++) {
        uint64_t kv = 0;
        assert_true(bt_kv_block_price(kit->whole, b, &kit->options.wishes, KIT_CTX, 32, &kv));
        sum += kv;
    }
    return sum;
}

static inline void kit_budget(placing_kit *kit, uint64_t bytes) {
    kit->options.wishes.devices[0].budget_bytes.value = bytes;
}

/* A graph of this size, and caches as they were planned. */
static inline bt_price kit_price(const bt_placed *placed, uint64_t graph_bytes) {
    return (bt_price){.device_kv_bytes = {placed->offload->devices[0].kv_bytes}, .device_compute_bytes = {graph_bytes}};
}
