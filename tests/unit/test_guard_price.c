/* SPDX-License-Identifier: MIT
 * test_guard_price.c: what a command line takes, line by line, to the byte where it can be added up by hand. P: the
 * padding of a tensor on a device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "guard_kit.h"
#include "plan/companions.h"
#include "plan/price.h"

#define P     UINT64_C(1024)
#define BLOCK (368 * KIT_MIB + 7 * P)
#define HEAD  (256 * KIT_MIB + P)

static kit_facts dense, mixture, draft;
static kit_guard g;
static bt_guard_price price;
static bt_placement placement;

static int start(void **state) {
    (void)state;
    kit_dense(&dense);
    kit_mixture(&mixture);
    kit_guard_open(&g, &dense.facts);
    kit_device(&g, "Vulkan0", 24 * KIT_GIB);
    return 0;
}

static int stop(void **state) {
    (void)state;
    kit_guard_close(&g);
    return 0;
}

static const bt_guard_prices *make(const char *words) {
    const bt_guard_prices *prices = NULL;
    const char *reason = NULL;
    kit_read(&g, words);
    assert_int_equal(bt_guard_prices_make(&g.ask.price, &prices, &reason, NULL), BT_OK);
    if (reason) fail_msg("%s: %s", words, reason);
    bt_guard_placement(prices, &placement);
    return prices;
}

static void ask(const char *words) {
    bt_guard_prices_at(make(words), &placement, &price);
    uint64_t sum = 0, all = 0;
    for (uint32_t i = 0; i < price.n_devices; i++) {
        sum = 0;
        for (uint32_t l = 0; l < BT_GUARD_LINE_COUNT; l++)
            sum += price.devices[i].bytes[l];
        assert_int_equal(sum, price.devices[i].total_bytes);
        all += sum;
    }
    assert_int_equal(all, price.device_bytes);
    sum = 0;
    for (uint32_t l = 0; l < BT_GUARD_LINE_COUNT; l++)
        sum += price.host.bytes[l];
    assert_int_equal(sum, price.host.total_bytes);
    assert_int_equal(sum - price.host.bytes[BT_GUARD_MAPPED], price.host_firm_bytes);
}

static uint64_t on(uint32_t device, bt_guard_line of) {
    return price.devices[device].bytes[of];
}

static uint64_t host(bt_guard_line of) {
    return price.host.bytes[of];
}

/* f16: 4096 tokens x 2048 elements x 2 bytes for a block. */
#define KV_BLOCK (16 * KIT_MIB)

static void layers_from_the_end(void **state) {
    (void)state;
    ask("llama-server -m x.gguf -ngl 33 -c 4096 -np 1");
    assert_int_equal(on(0, BT_GUARD_WEIGHTS), 32 * BLOCK + HEAD);
    assert_int_equal(on(0, BT_GUARD_KV), 32 * KV_BLOCK);
    assert_int_equal(host(BT_GUARD_MAPPED), 256 * KIT_MIB); /* the table */
    assert_int_equal(host(BT_GUARD_WEIGHTS) + host(BT_GUARD_KV), 0);
    ask("llama-server -m x.gguf -ngl 32 -c 4096 -np 1"); /* not the first block */
    assert_int_equal(on(0, BT_GUARD_WEIGHTS), 31 * BLOCK + HEAD);
    assert_int_equal(on(0, BT_GUARD_KV), 31 * KV_BLOCK);
    assert_int_equal(host(BT_GUARD_MAPPED), 624 * KIT_MIB);
    assert_int_equal(host(BT_GUARD_KV), KV_BLOCK);
    assert_int_equal(price.devices[0].n_blocks, 31);
    ask("llama-server -m x.gguf -ngl 1 -c 4096 -np 1"); /* the head alone */
    assert_int_equal(on(0, BT_GUARD_WEIGHTS), HEAD);
    assert_int_equal(on(0, BT_GUARD_KV), 0);
    assert_true(price.devices[0].head);
    ask("llama-server -m x.gguf -ngl 0 -c 4096 -np 1");
    assert_int_equal(on(0, BT_GUARD_WEIGHTS), 0);
    assert_int_equal(host(BT_GUARD_MAPPED), 12 * KIT_GIB);
}

/* A tied table is held twice where the head is on a device. */
static void tied(void **state) {
    (void)state;
    dense.facts.tied_head = true;
    dense.tensors[0].role = BT_ROLE_TIED;
    dense.tensors[1].role = BT_ROLE_UNUSED;
    ask("llama-server -m x.gguf -ngl 33 -c 4096 -np 1");
    assert_int_equal(on(0, BT_GUARD_WEIGHTS), 32 * BLOCK + HEAD);
    assert_int_equal(host(BT_GUARD_MAPPED), 256 * KIT_MIB);
    ask("llama-server -m x.gguf -ngl 0 -c 4096 -np 1");
    assert_int_equal(host(BT_GUARD_MAPPED), 12 * KIT_GIB - 256 * KIT_MIB);
}

static void caches(void **state) {
    (void)state;
    ask("llama-server -m x.gguf -ngl 99 -c 32768 -ctk q8_0 -ctv q8_0 -np 1");
    assert_int_equal(on(0, BT_GUARD_KV), 2176 * KIT_MIB);
    ask("llama-server -m x.gguf -ngl 99 -c 4096 -np 1 -nkvo");
    assert_int_equal(on(0, BT_GUARD_KV), 0);
    assert_int_equal(host(BT_GUARD_KV), 32 * KV_BLOCK);
    ask("llama-server -m x.gguf -ngl 99 -c 1000 -np 3"); /* 333 each, rounded up to 512 */
    assert_int_equal(on(0, BT_GUARD_KV), 32 * KV_BLOCK * 1536 / 4096);
    ask("llama-server -m x.gguf -ngl 99 -c 1000 -np 3 -kvu"); /* 1024 for all */
    assert_int_equal(on(0, BT_GUARD_KV), 32 * KV_BLOCK / 4);
    for (uint32_t b = 0; b < 32; b++)
        dense.kv[b].window = b % 2 == 0 ? 512 : 0;
    ask("llama-server -m x.gguf -ngl 99 -c 8192 -np 1"); /* 512 and a micro-batch of 512 */
    assert_int_equal(on(0, BT_GUARD_KV), 16 * 2 * KV_BLOCK + 16 * KV_BLOCK / 4);
    ask("llama-server -m x.gguf -ngl 99 -c 8192 -np 1 -ub 256");
    assert_int_equal(on(0, BT_GUARD_KV), 16 * 2 * KV_BLOCK + 16 * KV_BLOCK * 3 / 16);
    ask("llama-server -m x.gguf -ngl 99 -c 8192 -np 1 --swa-full");
    assert_int_equal(on(0, BT_GUARD_KV), 32 * 2 * KV_BLOCK);
}

static void graphs(void **state) {
    (void)state;
    bt_wishes wishes = {.type_k = 1, .type_v = 1, .n_parallel = 1, .flash_attn = BT_ON};
    bt_cost cost = bt_graph_cost(&dense.facts, &wishes, 512);
    uint64_t graph = cost.fixed_bytes + 4096 * cost.per_ctx_bytes;
    ask("llama-server -m x.gguf -ngl 99 -c 4096 -np 1");
    assert_int_equal(on(0, BT_GUARD_COMPUTE), graph);
    assert_int_equal(on(0, BT_GUARD_BASE), 0);
    ask("llama-server -m x.gguf -ngl 20 -c 4096 -np 1"); /* and the largest matrix of the host, to compute with it */
    assert_int_equal(on(0, BT_GUARD_COMPUTE), graph + 92 * KIT_MIB);
    ask("llama-server -m x.gguf -ngl 20 -c 4096 -np 1 --no-op-offload");
    assert_int_equal(on(0, BT_GUARD_COMPUTE), graph);
    ask("llama-server -m x.gguf -ngl 0 -c 4096 -np 1 --no-op-offload");
    assert_int_equal(on(0, BT_GUARD_COMPUTE), 0);
    ask("llama-completion -m x.gguf -ngl 99 -c 4096"); /* logits of every token */
    assert_int_equal(on(0, BT_GUARD_COMPUTE), bt_graph_cost(&dense.facts, &wishes, 512).fixed_bytes + 4096 * 2 * 512);
    dense.facts.n_vocab = 128256;
    ask("llama-completion -m x.gguf -ngl 99 -c 4096");
    assert_int_equal(on(0, BT_GUARD_COMPUTE), UINT64_C(4) * 512 * (128256 + 3 * 4096));
    assert_int_equal(host(BT_GUARD_OUTPUT), UINT64_C(4) * 512 * 128256);
    ask("llama-server -m x.gguf -ngl 99 -c 4096 -np 2");
    assert_int_equal(host(BT_GUARD_OUTPUT), UINT64_C(4) * 2 * 128256);
    assert_int_equal(host(BT_GUARD_SAMPLING), (UINT64_C(12) * 2 + 450) * 128256); /* one grammar at a time */
    ask("llama-server -m x.gguf -ngl 99 -c 4096 -np 2 --embedding");
    assert_int_equal(host(BT_GUARD_SAMPLING), 0);
    ask("llama-perplexity -m x.gguf -ngl 99 -c 4096");
    assert_int_equal(host(BT_GUARD_SAMPLING), 0);
    ask("llama-completion -m x.gguf -ngl 99 -c 4096");
    assert_int_equal(host(BT_GUARD_SAMPLING), UINT64_C(462) * 128256);
    g.devices[0].pool = (bt_pool){.name = "CUDA0", .state = BT_READING_REPORTED, .free_bytes = 24 * KIT_GIB};
    ask("llama-server -m x.gguf -ngl 99 -c 4096 -np 1");
    assert_int_equal(on(0, BT_GUARD_BASE), 450 * KIT_MIB);
}

static void experts(void **state) {
    (void)state;
    uint64_t expert = 17 * KIT_GIB / 10 * 9 / 48 / 3;
    uint64_t matrix = (17 * KIT_GIB / 10 - 256 * KIT_MIB) / 48 / 2;
    uint64_t rest = 48 * 2 * (matrix + P) + 128 * KIT_MIB + P;
    g.ask.price.facts = &mixture.facts;
    ask("llama-server -m x.gguf -ngl 99 -c 4096 -np 1");
    assert_int_equal(on(0, BT_GUARD_WEIGHTS), rest + 48 * 3 * (expert + P));
    ask("llama-server -m x.gguf -ngl 99 -c 4096 -np 1 -ncmoe 10");
    assert_int_equal(on(0, BT_GUARD_WEIGHTS), rest + 38 * 3 * (expert + P));
    assert_int_equal(host(BT_GUARD_MAPPED), 128 * KIT_MIB + 10 * 3 * expert);
    assert_int_equal(price.devices[0].n_blocks, 48);
    ask("llama-server -m x.gguf -ngl 99 -c 4096 -np 1 -cmoe");
    assert_int_equal(on(0, BT_GUARD_WEIGHTS), rest);
    ask("llama-server -m x.gguf -ngl 99 -c 4096 -np 1 -ot 'blk\\.\\d\\.ffn_(up|down)_exps=CPU'");
    assert_int_equal(on(0, BT_GUARD_WEIGHTS), rest + (48 * 3 - 10 * 2) * (expert + P));
    /* a rule to a device holds where the layer is not */
    ask("llama-server -m x.gguf -ngl 0 -c 4096 -np 1 -ot 'blk\\.7\\.attn=Vulkan0'");
    assert_int_equal(on(0, BT_GUARD_WEIGHTS), 2 * (matrix + P));
    /* a larger number than stands there moves more, a smaller one of two has no effect */
    const bt_guard_prices *prices = make("llama-server -m x.gguf -ngl 99 -c 4096 -np 1 -ncmoe 10 -ncmoe 4");
    assert_int_equal(placement.n_cpu_moe, 10);
    assert_true(bt_guard_experts_can_move(prices, 10));
    placement.n_cpu_moe = 12;
    bt_guard_prices_at(prices, &placement, &price);
    assert_int_equal(on(0, BT_GUARD_WEIGHTS), rest + 36 * 3 * (expert + P));
    assert_false(bt_guard_experts_can_move(prices, 48));
}

static void fractions(void **state) {
    (void)state;
    const bt_guard_prices *prices = make("llama-server -m x.gguf -ngl 99 -c 4096");
    assert_float_equal(bt_guard_gpu_fraction(prices, &placement), 1, 0);
    placement.n_gpu_layers = 16;
    assert_float_equal(bt_guard_gpu_fraction(prices, &placement), 0.5, 0);
    placement.n_gpu_layers = 0;
    assert_float_equal(bt_guard_gpu_fraction(prices, &placement), 0, 0);
    g.ask.price.facts = &mixture.facts;
    prices = make("llama-server -m x.gguf -ngl 99 -c 4096 -ncmoe 26");
    assert_float_equal(bt_guard_gpu_fraction(prices, &placement), 0.5125, 1e-6);
    prices = make("llama-server -m x.gguf -ngl 99 -c 4096 -cmoe");
    assert_float_equal(bt_guard_gpu_fraction(prices, &placement), 0.1, 1e-6);
    prices = make("llama-server -m x.gguf -ngl 99 -c 4096 -ot exps=CPU");
    assert_float_equal(bt_guard_gpu_fraction(prices, &placement), 0.1, 1e-6);
    prices = make("llama-server -m x.gguf -ngl 24 -c 4096 -ncmoe 48");
    assert_float_equal(bt_guard_gpu_fraction(prices, &placement), 0.05, 1e-6);
}

static void host_memory(void **state) {
    (void)state;
    ask("llama-server -m x.gguf -ngl 32 -c 4096 -np 1 --load-mode none");
    assert_int_equal(host(BT_GUARD_WEIGHTS), 624 * KIT_MIB);
    assert_int_equal(host(BT_GUARD_MAPPED), 0);
    ask("llama-server -m x.gguf -ngl 32 -c 4096 -np 1 --load-mode mmap+mlock");
    assert_int_equal(host(BT_GUARD_WEIGHTS), 624 * KIT_MIB);
    assert_int_equal(host(BT_GUARD_PROMPT_CACHE), 8192 * KIT_MIB);
    assert_int_equal(host(BT_GUARD_CHECKPOINTS), 0); /* all of the cache can be rolled back */
    ask("llama-server -m x.gguf -ngl 32 -c 4096 -np 1 -cram -1");
    assert_int_equal(host(BT_GUARD_PROMPT_CACHE), 0);
    assert_true(price.prompt_cache_no_limit);
    /* without a device that pins memory weights are copied into another layout, and their pages stay */
    for (uint32_t i = 0; i < dense.facts.n_tensors; i++)
        if (dense.tensors[i].block >= 0) dense.tensors[i].type = 2; /* q4_0 */
    ask("llama-server -m x.gguf -ngl 32 -c 4096 -np 1");
    assert_int_equal(host(BT_GUARD_WEIGHTS), 0);
    ask("llama-server -m x.gguf -ngl 32 -c 4096 -np 1 --no-host");
    assert_int_equal(host(BT_GUARD_WEIGHTS), 368 * KIT_MIB);
    assert_int_equal(host(BT_GUARD_MAPPED), 624 * KIT_MIB);
    ask("llama-server -m x.gguf -ngl 32 -c 4096 -np 1 --no-host --no-repack");
    assert_int_equal(host(BT_GUARD_WEIGHTS), 0);
    (void)strcpy(g.devices[0].pool.name, "RPC0");
    ask("llama-server -m x.gguf -ngl 32 -c 4096 -np 1");
    assert_int_equal(host(BT_GUARD_WEIGHTS), 368 * KIT_MIB);
}

/* User case 29: what a device's driver pins. */
static void case_29_pinned(void **state) {
    (void)state;
    ask("llama-server -m x.gguf -ngl 32 -c 4096 -np 1");
    const uint64_t output = host(BT_GUARD_OUTPUT), buffers = host(BT_GUARD_COMPUTE) + output;
    assert_true(output > 0 && buffers > output);
    assert_int_equal(price.pinned_bytes, buffers);
    ask("llama-server -m x.gguf -ngl 32 -c 4096 -np 1 --load-mode none");
    assert_int_equal(price.pinned_bytes, buffers + 624 * KIT_MIB);
    assert_int_equal(price.pinned_weight_bytes, 624 * KIT_MIB);
    ask("llama-server -m x.gguf -ngl 0 -c 4096 -np 1"); /* the head is the host's, and so are its rows */
    assert_int_equal(price.pinned_bytes, host(BT_GUARD_COMPUTE));
    ask("llama-server -m x.gguf -ngl 32 -c 4096 -np 1 --load-mode dio");
    assert_int_equal(price.pinned_bytes, buffers + 624 * KIT_MIB);
    ask("llama-server -m x.gguf -ngl 32 -c 4096 -np 1 --load-mode mmap+mlock"); /* locked, by nobody's driver */
    assert_int_equal(price.pinned_bytes, buffers);
    ask("llama-server -m x.gguf -ngl 32 -c 4096 -np 1 --load-mode none --no-host");
    assert_int_equal(price.pinned_bytes, buffers);
    /* a part of the processor: nothing is mapped unless it is asked for */
    g.devices[0].pool.kind = BT_POOL_IGPU;
    ask("llama-server -m x.gguf -ngl 32 -c 4096 -np 1");
    assert_int_equal(host(BT_GUARD_MAPPED), 0);
    assert_int_equal(price.pinned_bytes, buffers + 624 * KIT_MIB);
    ask("llama-server -m x.gguf -ngl 32 -c 4096 -np 1 --load-mode mmap");
    assert_int_equal(host(BT_GUARD_MAPPED), 624 * KIT_MIB);
    assert_int_equal(price.pinned_bytes, buffers);
    g.devices[0].pool.kind = BT_POOL_GPU;
    (void)strcpy(g.devices[0].pool.name, "card0"); /* as the kernel calls it */
    ask("llama-server -m x.gguf -ngl 32 -c 4096 -np 1 --load-mode none");
    assert_int_equal(price.pinned_bytes, buffers + 624 * KIT_MIB);
    (void)strcpy(g.devices[0].pool.name, "RPC0");
    ask("llama-server -m x.gguf -ngl 32 -c 4096 -np 1 --load-mode none");
    assert_int_equal(price.pinned_bytes, 0);
}

static void checkpoints(void **state) {
    (void)state;
    for (uint32_t b = 0; b < 32; b++)
        dense.kv[b].window = b % 2 == 0 ? 512 : 0;
    /* 1024 cells of 16 blocks: 64 MiB, 32 times for each of two slots */
    ask("llama-server -m x.gguf -ngl 99 -c 32768 -np 2");
    assert_int_equal(host(BT_GUARD_CHECKPOINTS), 2 * 32 * 64 * KIT_MIB);
    ask("llama-server -m x.gguf -ngl 99 -c 32768 -np 2 -ctxcp 3");
    assert_int_equal(host(BT_GUARD_CHECKPOINTS), 2 * 3 * 64 * KIT_MIB);
    ask("llama-completion -m x.gguf -ngl 99 -c 32768"); /* only a server has them */
    assert_int_equal(host(BT_GUARD_CHECKPOINTS) + host(BT_GUARD_PROMPT_CACHE), 0);
}

static void adapters(void **state) {
    (void)state;
    g.ask.price.lora_bytes = 300 * KIT_MIB;
    g.ask.price.control_vector_bytes = 20 * KIT_MIB;
    ask("llama-server -m x.gguf -ngl 25 -c 4096 -np 1"); /* 24 of 32 blocks */
    assert_int_equal(on(0, BT_GUARD_ADAPTERS), 240 * KIT_MIB + 1);
    assert_int_equal(host(BT_GUARD_ADAPTERS), 80 * KIT_MIB + 1);
}

static void a_draft(void **state) {
    (void)state;
    kit_dense(&draft);
    draft.facts.n_block = draft.facts.n_block_all = 2;
    draft.facts.n_tensors = 2 + 2 * 7;
    g.ask.price.draft = &draft.facts;
    ask("llama-server -m x.gguf -ngl 99 -c 4096 -np 1 -md y.gguf -ctk q8_0 -ctv q8_0");
    assert_int_equal(on(0, BT_GUARD_DRAFT_WEIGHTS), 2 * BLOCK + HEAD);
    assert_int_equal(on(0, BT_GUARD_DRAFT_KV), 2 * KV_BLOCK); /* f16 whatever the model's are (2.5) */
    assert_true(on(0, BT_GUARD_DRAFT_COMPUTE) > 0);
    ask("llama-server -m x.gguf -ngl 99 -c 4096 -np 1 -md y.gguf -ctkd q8_0 -ctvd q8_0 -ngld 1");
    assert_int_equal(on(0, BT_GUARD_DRAFT_WEIGHTS), HEAD);
    assert_int_equal(host(BT_GUARD_DRAFT_KV), KV_BLOCK * 2 * 34 / 64);
    const bt_guard_prices *prices = make("llama-server -m x.gguf -ngl 99 -c 4096 -np 1 -md y.gguf");
    const char *const *notes = NULL;
    assert_int_equal(bt_guard_notes(prices, &notes), 0);
    g.ask.price.draft = NULL;
    prices = make("llama-server -m x.gguf -ngl 99 -c 4096 -np 1 -md y.gguf");
    assert_int_equal(bt_guard_notes(prices, &notes), 1);
    assert_non_null(strstr(notes[0], "draft"));
}

/* The last of 32 blocks predicts: counted among the layers, loaded only where it is used. */
static void prediction_blocks(void **state) {
    (void)state;
    dense.facts.n_block = 31;
    for (uint32_t i = 0; i < dense.facts.n_tensors; i++)
        if (dense.tensors[i].block == 31) dense.tensors[i].role = BT_ROLE_UNUSED;
    ask("llama-server -m x.gguf -ngl 99 -c 4096 -np 1");
    assert_int_equal(on(0, BT_GUARD_WEIGHTS), 31 * BLOCK + HEAD);
    assert_int_equal(on(0, BT_GUARD_MTP), 0);
    assert_int_equal(placement.n_gpu_layers, 33);
    uint64_t graph = on(0, BT_GUARD_COMPUTE);
    ask("llama-server -m x.gguf -ngl 2 -c 4096 -np 1"); /* the head, and a layer that is not there */
    assert_int_equal(on(0, BT_GUARD_WEIGHTS), HEAD);
    ask("llama-server -m x.gguf -ngl 99 -c 4096 -np 1 --spec-type draft-mtp");
    assert_int_equal(on(0, BT_GUARD_WEIGHTS), 31 * BLOCK + HEAD);
    assert_int_equal(on(0, BT_GUARD_KV), 31 * KV_BLOCK);
    assert_int_equal(on(0, BT_GUARD_MTP), BLOCK + KV_BLOCK + graph);
}

static void a_projector(void **state) {
    (void)state;
    bt_projector projector = {.path = "/m.gguf", .weight_bytes = 800 * KIT_MIB, .tensor_bytes = 30 * KIT_MIB};
    g.ask.price.projector = &projector;
    kit_device(&g, "Vulkan1", 24 * KIT_GIB);
    ask("llama-server -m x.gguf -ngl 99 -c 4096 -np 1 --mmproj m.gguf");
    assert_int_equal(on(0, BT_GUARD_MMPROJ_WEIGHTS), 800 * KIT_MIB);
    assert_true(on(0, BT_GUARD_MMPROJ_ENCODE) >= 30 * KIT_MIB);
    assert_int_equal(on(1, BT_GUARD_MMPROJ_WEIGHTS), 0);
    g.ask.price.vision_overhead_bytes = (bt_known){true, KIT_GIB};
    ask("llama-server -m x.gguf -ngl 99 -c 4096 -np 1 --mmproj m.gguf --no-mmproj-offload");
    assert_int_equal(on(0, BT_GUARD_MMPROJ_WEIGHTS), 0);
    assert_int_equal(host(BT_GUARD_MMPROJ_WEIGHTS), 800 * KIT_MIB);
    assert_int_equal(host(BT_GUARD_MMPROJ_ENCODE), KIT_GIB);
    g.ask.price.vision_overhead_bytes.known = false;
    projector.vision = (bt_encoder){.exists = true}; /* of a type that is not known */
    const bt_guard_prices *prices = make("llama-server -m x.gguf -ngl 99 -c 4096 -np 1 --mmproj m.gguf");
    const char *const *notes = NULL;
    assert_int_equal(bt_guard_notes(prices, &notes), 1);
    bt_guard_prices_at(prices, &placement, &price);
    assert_int_equal(on(0, BT_GUARD_MMPROJ_ENCODE), KIT_GIB);
}

/* llama.cpp's own numbers for shares: layer l of n stands on the first device whose share of all ends beyond l / n. */
static void dealt_out(void **state) {
    (void)state;
    static const struct {
        const char *shares;
        uint32_t n_gpu_layers, blocks[3];
        uint32_t head;
    } cases[] = {
        {"1,1,1", 33, {11, 11, 10}, 2}, {"1,1,2", 33, {9, 8, 15}, 2}, {"0,1,0", 33, {0, 32, 0}, 1},
        {"1,1,1", 4, {2, 1, 0}, 2},     {"3,0,1", 33, {25, 0, 7}, 2}, {"0.06,0.94,0", 33, {2, 30, 0}, 1},
        {"5,1", 33, {28, 4, 0}, 1},
    };
    kit_device(&g, "Vulkan1", 24 * KIT_GIB);
    kit_device(&g, "Vulkan2", 24 * KIT_GIB);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[128];
        (void)snprintf(words, sizeof words, "llama-server -m x.gguf -ngl %u -c 4096 -np 1 -ts %s",
                       cases[i].n_gpu_layers, cases[i].shares);
        ask(words);
        for (uint32_t d = 0; d < 3; d++)
            if (price.devices[d].n_blocks != cases[i].blocks[d] || price.devices[d].head != (d == cases[i].head))
                fail_msg("%s: %u blocks on device %u", words, price.devices[d].n_blocks, d);
    }
    ask("llama-server -m x.gguf -ngl 99 -c 4096 -np 1 -sm none -mg 2 -ts 1,1,1");
    assert_int_equal(price.devices[2].n_blocks, 32);
    ask("llama-server -m x.gguf -ngl 99 -c 4096 -np 1 -dev Vulkan2,Vulkan0 -ts 1,3");
    assert_int_equal(price.n_devices, 2);
    assert_string_equal(price.devices[0].name, "Vulkan2");
    assert_int_equal(price.devices[0].n_blocks, 9);
}

static void lines_have_names(void **state) {
    (void)state;
    assert_string_equal(bt_guard_line_name(BT_GUARD_WEIGHTS), "weights");
    assert_string_equal(bt_guard_line_name(BT_GUARD_PROMPT_CACHE), "prompt_cache");
}

/* What former runs took more than the line as it is typed, at its most. */
static void what_was_seen(void **state) {
    (void)state;
    static const char words[] = "llama-server -m m.gguf -ngl 99 -c 4096 -np 1 --cache-ram 0 -ctxcp 0";
    dense.facts.file_bytes = 32 * KIT_GIB;
    ask(words);
    uint64_t host = price.host.total_bytes + dense.facts.file_bytes - price.host.bytes[BT_GUARD_MAPPED];
    uint64_t firm = price.host_firm_bytes, device = price.device_bytes;
    bt_footprint seen = {.n = 2, .pools = {"Vulkan0", "host"}, .bytes = {device + 7, host + 5}};
    g.ask.price.seen = &seen;
    ask(words);
    assert_int_equal(on(0, BT_GUARD_LEARNED), 7);
    assert_int_equal(price.host.bytes[BT_GUARD_LEARNED], 5); /* beside the file, which is mapped as a whole */
    assert_int_equal(price.host_firm_bytes, firm + 5);
    assert_int_equal(price.device_bytes, device + 7);
    seen.bytes[0] = device;
    seen.bytes[1] = host;
    ask(words);
    assert_int_equal(on(0, BT_GUARD_LEARNED) + price.host.bytes[BT_GUARD_LEARNED], 0);
    /* a context that nobody set: a run that had all of it took no more than that does, though less is counted here */
    static const char open[] = "llama-server -m m.gguf -ngl 99 -np 1 --cache-ram 0 -ctxcp 0";
    g.ask.price.seen = NULL;
    const bt_guard_prices *prices = make(open);
    placement.n_ctx = bt_guard_open_ctx(prices);
    bt_guard_prices_at(prices, &placement, &price);
    seen.bytes[0] = price.device_bytes;
    g.ask.price.seen = &seen;
    ask(open);
    assert_true(price.device_bytes < seen.bytes[0]);
    assert_int_equal(on(0, BT_GUARD_LEARNED), 0);
    /* two cards: how they shared it then is not how they do now */
    kit_device(&g, "Vulkan1", 24 * KIT_GIB);
    g.ask.price.seen = NULL;
    ask(words);
    uint64_t first = price.devices[0].total_bytes, second = price.devices[1].total_bytes;
    seen = (bt_footprint){.n = 2, .pools = {"Vulkan0", "Vulkan1"}, .bytes = {first + second, 0}};
    g.ask.price.seen = &seen;
    ask(words);
    assert_int_equal(on(0, BT_GUARD_LEARNED) + on(1, BT_GUARD_LEARNED), 0);
    seen.bytes[0] += 9;
    ask(words);
    assert_int_equal(on(0, BT_GUARD_LEARNED), 9);
    assert_int_equal(on(1, BT_GUARD_LEARNED), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(layers_from_the_end, start, stop),
        cmocka_unit_test_setup_teardown(tied, start, stop),
        cmocka_unit_test_setup_teardown(caches, start, stop),
        cmocka_unit_test_setup_teardown(graphs, start, stop),
        cmocka_unit_test_setup_teardown(experts, start, stop),
        cmocka_unit_test_setup_teardown(fractions, start, stop),
        cmocka_unit_test_setup_teardown(host_memory, start, stop),
        cmocka_unit_test_setup_teardown(case_29_pinned, start, stop),
        cmocka_unit_test_setup_teardown(checkpoints, start, stop),
        cmocka_unit_test_setup_teardown(adapters, start, stop),
        cmocka_unit_test_setup_teardown(a_draft, start, stop),
        cmocka_unit_test_setup_teardown(prediction_blocks, start, stop),
        cmocka_unit_test_setup_teardown(a_projector, start, stop),
        cmocka_unit_test_setup_teardown(dealt_out, start, stop),
        cmocka_unit_test_setup_teardown(what_was_seen, start, stop),
        cmocka_unit_test(lines_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
