/* SPDX-License-Identifier: MIT
 * test_offload.c: which blocks go to which devices, to the byte. F: table of the research notes, seed 1; T5 and T6: its
 * section 7. Facts are made by hand: sizes that can be added up in the head, and graphs of a given size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/offload.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MIB     (UINT64_C(1) << 20)
#define PADDING UINT64_C(1024) /* of a tensor on a device (offload.c) */

/* ---- F ---- */

static void F_prefix(void **state) {
    (void)state;
    static const uint64_t forty[] = {40, 40, 40}, zeros[3] = {0}, uneven[] = {90, 80, 5, 5};
    static const uint64_t huge[] = {UINT64_MAX - 10, 5, 5, 5};
    static const struct {
        uint64_t budget;
        const uint64_t *blocks;
        uint32_t n;
        uint64_t reserve;
        uint32_t k;
    } cases[] = {
        {125, forty, 3, 25, 2},  {124, forty, 3, 25, 2},      {145, forty, 3, 25, 3},       {85, forty, 3, 25, 1},
        {105, forty, 3, 25, 2},  {104, forty, 3, 25, 1},      {25, forty, 3, 25, 0},        {0, forty, 3, 0, 0},
        {1000, NULL, 0, 100, 0}, {1000, zeros, 3, 100, 3},    {UINT64_MAX, forty, 3, 0, 3}, {100, uneven, 4, 10, 1},
        {99, zeros, 3, 100, 0},  {UINT64_MAX, huge, 4, 0, 2}, /* a sum that is over all numbers fits nothing */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(bt_offload_prefix(cases[i].budget, cases[i].blocks, cases[i].n, cases[i].reserve), cases[i].k);
}

/* Qwen2.5-0.5B, Q4_0: as their program ran it, and with the copies that it had forgotten to count. */
static void F_T6_a_real_shape(void **state) {
    (void)state;
    uint64_t blocks[24], fused[24], both[24];
    for (uint32_t b = 0; b < 24; b++) {
        blocks[b] = 8398336;
        fused[b] = 8398336 + 4902912;
        both[b] = 8398336 + 4902912 + 580608;
    }
    assert_int_equal(bt_offload_prefix(64 * MIB, blocks, 24, 16 * MIB), 5);
    assert_int_equal(bt_offload_prefix(16 * MIB + 6 * UINT64_C(8398336), blocks, 24, 16 * MIB), 6);
    assert_int_equal(bt_offload_prefix(16 * MIB + 6 * UINT64_C(8398336) - 1, blocks, 24, 16 * MIB), 5);
    assert_int_equal(bt_offload_prefix(64 * MIB, fused, 24, 16 * MIB), 3);
    assert_int_equal(bt_offload_prefix(64 * MIB, both, 24, 16 * MIB), 3);
    assert_int_equal(bt_offload_prefix(UINT64_MAX, blocks, 24, 0), 24);
    assert_int_equal(bt_offload_prefix(0, blocks, 24, 0), 0);
}

/* ---- offers ---- */

static bt_machine machine;
static bt_wishes wishes;
static bt_offer offers[BT_DEVICE_MAX];
static uint32_t n_offers;
static bt_error error;

static bt_pool *pool_add(const char *name, bt_pool_kind kind, bt_pool_state state, uint64_t free_bytes) {
    if (machine.n_pools == 0) machine.pools[machine.n_pools++] = (bt_pool){.name = "host", .kind = BT_POOL_HOST};
    bt_pool *pool = &machine.pools[machine.n_pools++];
    *pool = (bt_pool){.kind = kind, .state = state, .free_bytes = free_bytes, .total_bytes = free_bytes};
    (void)snprintf(pool->name, sizeof pool->name, "%s", name);
    if (state == BT_READING_FAILED) (void)snprintf(pool->reason, sizeof pool->reason, "an illegal address (700)");
    return pool;
}

static int fresh(void **state) {
    (void)state;
    machine = (bt_machine){0};
    wishes = (bt_wishes){0};
    memset(offers, 0, sizeof offers);
    n_offers = 99;
    error = (bt_error){0};
    return 0;
}

static void offer_all(void) {
    if (bt_offers_make(&machine, &wishes, offers, &n_offers, &error) != BT_OK) fail_msg("%s", error.text);
}

static void wish_device(const char *name, bt_known bytes) {
    bt_device_wish *wish = &wishes.devices[wishes.n_devices++];
    (void)snprintf(wish->name, sizeof wish->name, "%s", name);
    wish->budget_bytes = bytes;
}

static void offer_is(uint32_t i, const char *name, uint64_t bytes, const char *source) {
    assert_true(i < n_offers);
    assert_string_equal(offers[i].pool.name, name);
    assert_true(offers[i].budget_bytes.known);
    assert_int_equal(offers[i].budget_bytes.value, bytes);
    assert_string_equal(offers[i].budget_source, source);
}

static void offers_of_a_host_alone(void **state) {
    (void)state;
    offer_all();
    assert_int_equal(n_offers, 0);
    pool_add("host", BT_POOL_HOST, BT_READING_REPORTED, 1);
    machine.n_pools = 1;
    wishes.main_gpu = 3, wishes.n_tensor_splits = 2; /* nothing to apply them to */
    offer_all();
    assert_int_equal(n_offers, 0);
}

static void offers_are_three_quarters_of_what_is_free(void **state) {
    (void)state;
    pool_add("CUDA0", BT_POOL_GPU, BT_READING_REPORTED, 4 * MIB);
    pool_add("Vulkan0", BT_POOL_GPU, BT_READING_REPORTED, 4000001);
    pool_add("RPC0", BT_POOL_RPC, BT_READING_REPORTED, 0);
    pool_add("BLAS", BT_POOL_ACCEL, BT_READING_REPORTED, 8 * MIB);
    pool_add("gone", BT_POOL_GPU, BT_READING_ABSENT, 0);
    offer_all();
    assert_int_equal(n_offers, 3);
    offer_is(0, "CUDA0", 3 * MIB, "three quarters of 4.0 MiB free");
    offer_is(1, "Vulkan0", 3000000, "three quarters of 3.8 MiB free");
    offer_is(2, "RPC0", 0, "three quarters of 0 B free");
    assert_int_equal(offers[0].context_bytes, 450 * MIB); /* CUDA's own */
    assert_int_equal(offers[1].context_bytes, 0);
}

/* What shares the host's memory is no gain beside a card of its own, unless it is asked for. */
static void offers_leave_out_integrated_cards(void **state) {
    (void)state;
    pool_add("IGPU0", BT_POOL_IGPU, BT_READING_REPORTED, 8 * MIB)->shares_host = true;
    offer_all();
    assert_int_equal(n_offers, 1);
    pool_add("CUDA0", BT_POOL_GPU, BT_READING_REPORTED, 4 * MIB);
    offer_all();
    assert_int_equal(n_offers, 1);
    assert_string_equal(offers[0].pool.name, "CUDA0");
    machine.pools[2].state = BT_READING_ABSENT;
    offer_all();
    assert_int_equal(n_offers, 1);
    assert_string_equal(offers[0].pool.name, "IGPU0");
    machine.pools[2].state = BT_READING_REPORTED;
    wish_device("IGPU0", (bt_known){0});
    offer_all();
    offer_is(0, "IGPU0", 6 * MIB, "three quarters of 8.0 MiB free");
}

static void offers_by_name_in_that_order(void **state) {
    (void)state;
    pool_add("A", BT_POOL_GPU, BT_READING_REPORTED, 4 * MIB);
    pool_add("B", BT_POOL_GPU, BT_READING_FAILED, 0);
    pool_add("C", BT_POOL_GPU, BT_READING_REPORTED, 8 * MIB);
    wish_device("C", (bt_known){true, 5});
    wish_device("B", (bt_known){0});
    wishes.gpu_mem_bytes = (bt_known){true, 64 * MIB};
    offer_all();
    assert_int_equal(n_offers, 2);
    offer_is(0, "C", 5, "--device");
    offer_is(1, "B", 64 * MIB, "BURTHEN_GPU_MEM");
    wishes.n_devices = 0;
    offer_all(); /* what is named for all is of all, and of one that does not say what it has */
    assert_int_equal(n_offers, 3);
    offer_is(0, "A", 64 * MIB, "BURTHEN_GPU_MEM");
    offer_is(1, "B", 64 * MIB, "BURTHEN_GPU_MEM");
    wishes.no_devices = true;
    offer_all();
    assert_int_equal(n_offers, 0);
}

static void a_name_without_a_size_is_known(void **state) {
    (void)state;
    assert_int_equal(bt_offers_know(&machine, "CUDA9", &error), BT_E_ARG);
    assert_string_equal(error.code, "device_unknown");
    assert_string_equal(error.text, "there is no device CUDA9; there is none beside the host; one that cannot be seen "
                                    "from here is named with its size: CUDA9=SIZE");
    pool_add("card0", BT_POOL_GPU, BT_READING_FAILED, 0); /* NVML says nothing: it may be CUDA9 */
    assert_int_equal(bt_offers_know(&machine, "CUDA9", &error), BT_OK);
    assert_int_equal(bt_offers_know(&machine, "Vulkan0", &error), BT_E_ARG);
    pool_add("CUDA0", BT_POOL_GPU, BT_READING_REPORTED, 4 * MIB);
    assert_int_equal(bt_offers_know(&machine, "CUDA9", &error), BT_E_ARG);
    assert_non_null(strstr(error.text, "there are: card0, CUDA0; "));
    assert_int_equal(bt_offers_know(&machine, "CUDA0", &error), BT_OK);
    assert_int_equal(bt_offers_know(&machine, "host", &error), BT_E_ARG);
}

static void offers_refuse_unknown_names(void **state) {
    (void)state;
    wish_device("CUDA7", (bt_known){0});
    assert_int_equal(bt_offers_make(&machine, &wishes, offers, &n_offers, &error), BT_E_ARG);
    assert_string_equal(error.code, "device_unknown");
    assert_string_equal(error.text, "there is no device CUDA7; there is none beside the host");
    pool_add("CUDA0", BT_POOL_GPU, BT_READING_REPORTED, 4 * MIB);
    pool_add("RPC0", BT_POOL_RPC, BT_READING_REPORTED, 4 * MIB);
    assert_int_equal(bt_offers_make(&machine, &wishes, offers, &n_offers, &error), BT_E_ARG);
    assert_string_equal(error.text, "there is no device CUDA7; there are: CUDA0, RPC0");
    wishes.devices[0] = (bt_device_wish){.name = "host"}; /* is no device beside it */
    assert_int_equal(bt_offers_make(&machine, &wishes, offers, &n_offers, &error), BT_E_ARG);
    assert_int_equal(n_offers, 99);
}

/* By default a device that says nothing is left out; who asks for blocks on devices hears of it. */
static void offers_of_a_failed_reading(void **state) {
    (void)state;
    pool_add("A", BT_POOL_GPU, BT_READING_FAILED, 0);
    pool_add("B", BT_POOL_GPU, BT_READING_REPORTED, 4 * MIB);
    offer_all();
    assert_int_equal(n_offers, 1);
    offer_is(0, "B", 3 * MIB, "three quarters of 4.0 MiB free");
    static const bt_layers_kind asked[] = {BT_LAYERS_AUTO, BT_LAYERS_ALL, BT_LAYERS_COUNT};
    for (size_t i = 0; i < 3; i++) {
        wishes.gpu_layers = asked[i];
        offer_all();
        assert_int_equal(n_offers, 2);
        assert_string_equal(offers[0].pool.name, "A");
        assert_false(offers[0].budget_bytes.known);
        assert_string_equal(offers[0].budget_source, "unmeasured");
    }
}

static void offers_that_are_required(void **state) {
    (void)state;
    wishes.require_device = true;
    assert_int_equal(bt_offers_make(&machine, &wishes, offers, &n_offers, &error), BT_E_DEVICE);
    assert_string_equal(error.code, "device_missing");
    pool_add("BLAS", BT_POOL_ACCEL, BT_READING_REPORTED, 4 * MIB);
    pool_add("A", BT_POOL_GPU, BT_READING_FAILED, 0); /* left out by default */
    assert_int_equal(bt_offers_make(&machine, &wishes, offers, &n_offers, &error), BT_E_DEVICE);
    wishes.gpu_layers = BT_LAYERS_AUTO;
    offer_all();
    assert_int_equal(n_offers, 1);
}

static void offers_begin_with_the_main_one(void **state) {
    (void)state;
    pool_add("A", BT_POOL_GPU, BT_READING_REPORTED, 4 * MIB);
    pool_add("B", BT_POOL_GPU, BT_READING_REPORTED, 8 * MIB);
    pool_add("C", BT_POOL_GPU, BT_READING_REPORTED, 12 * MIB);
    wishes.main_gpu = 2;
    offer_all();
    assert_string_equal(offers[0].pool.name, "C");
    assert_string_equal(offers[1].pool.name, "A");
    assert_string_equal(offers[2].pool.name, "B");
    wishes.n_tensor_splits = 3; /* shares are of devices as they stand */
    offer_all();
    assert_string_equal(offers[0].pool.name, "A");
    wishes.n_tensor_splits = 4;
    assert_int_equal(bt_offers_make(&machine, &wishes, offers, &n_offers, &error), BT_E_ARG);
    assert_string_equal(error.code, "tensor_split");
    wishes.n_tensor_splits = 0, wishes.main_gpu = 3;
    assert_int_equal(bt_offers_make(&machine, &wishes, offers, &n_offers, &error), BT_E_ARG);
    assert_string_equal(error.text, "--main-gpu 3, but the last of 3 devices is 2");
}

/* ---- choosing ---- */

#define BLOCKS_MAX 16u
static bt_facts facts;
static bt_tensor tensors[BLOCKS_MAX * 2 + 3];
static char names[BLOCKS_MAX * 2][40];
static uint64_t graphs[BT_DEVICE_MAX];
static bt_offload offload;
static bt_refusal refusal;

static void tensor_add(const char *name, int32_t block, uint64_t bytes, bt_tensor_role role) {
    tensors[facts.n_tensors++] = (bt_tensor){.name = name, .block = block, .bytes = bytes, .role = role};
}

/* n blocks that cost so much on a device, padding and all; of experts the second number. */
static void model_make(uint32_t n_blocks, uint64_t dense_bytes, uint64_t expert_bytes, uint64_t head_bytes) {
    facts = (bt_facts){.arch = "llama", .n_block = n_blocks, .n_embd = 64, .tensors = tensors, .path = "m"};
    for (uint32_t b = 0; b < n_blocks; b++) {
        (void)snprintf(names[2 * b], sizeof names[0], "blk.%" PRIu32 ".ffn_up.weight", b);
        tensor_add(names[2 * b], (int32_t)b, dense_bytes - PADDING, BT_ROLE_UNIT);
        if (expert_bytes == 0) continue;
        (void)snprintf(names[2 * b + 1], sizeof names[0], "blk.%" PRIu32 ".ffn_up_exps.weight", b);
        tensor_add(names[2 * b + 1], (int32_t)b, expert_bytes - PADDING, BT_ROLE_EXPERTS);
    }
    tensor_add("token_embd.weight", -1, 1000 * MIB, head_bytes > 0 ? BT_ROLE_TABLE : BT_ROLE_TIED);
    facts.head_stays = head_bytes == 0;
    if (head_bytes > 0) tensor_add("output.weight", -1, head_bytes - PADDING, BT_ROLE_HEAD);
}

static void device_add(uint64_t budget_bytes, uint64_t graph_bytes) {
    bt_offer *offer = &offers[n_offers];
    *offer = (bt_offer){.pool = {.kind = BT_POOL_GPU, .state = BT_READING_REPORTED}};
    (void)snprintf(offer->pool.name, sizeof offer->pool.name, "DEV%" PRIu32, n_offers);
    (void)snprintf(offer->budget_source, sizeof offer->budget_source, "--device");
    offer->budget_bytes = (bt_known){true, budget_bytes};
    graphs[n_offers++] = graph_bytes;
}

static int fresh_choice(void **state) {
    (void)fresh(state);
    wishes = (bt_wishes){.type_k = 1, .type_v = 1, .n_threads = 1, .gpu_layers = BT_LAYERS_AUTO};
    n_offers = 0;
    memset(graphs, 0, sizeof graphs);
    return 0;
}

static uint32_t choose(void) {
    const bt_offload_ask ask = {.facts = &facts,
                                .wishes = &wishes,
                                .n_ctx = 256,
                                .n_ubatch = 1,
                                .n_blocks_max = UINT32_MAX,
                                .offers = offers,
                                .n_offers = n_offers,
                                .compute_bytes = graphs};
    if (bt_offload_choose(&ask, &offload, &refusal, &error) != BT_OK) fail_msg("%s", error.text);
    return bt_split_blocks(&offload.split);
}

static void ask_for(uint32_t n) {
    wishes.gpu_layers = BT_LAYERS_COUNT;
    wishes.n_gpu_layers = n;
}

static void blocks_are(uint32_t n_devices, const uint32_t *blocks) {
    assert_int_equal(offload.split.n_devices, n_devices);
    for (uint32_t i = 0; i < n_devices; i++) {
        assert_int_equal(offload.split.n_blocks[i], blocks[i]);
        assert_int_equal(offload.devices[i].n_blocks, blocks[i]);
    }
}
#define BLOCKS_ARE(...)                                                                                                \
    blocks_are(sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), (const uint32_t[]){__VA_ARGS__})

/* Equality fits; a byte less holds a block less. The F case with real graphs: 25 and blocks of 40, in MiB. */
static void auto_takes_what_fits(void **state) {
    (void)state;
    static const struct {
        uint64_t budget;
        uint32_t n;
    } cases[] = {{105, 2}, {145, 3}, {185, 3}, {64, 0}, {65, 1}, {0, 0}, {25, 0}};
    model_make(4, 40 * MIB, 0, 41 * MIB);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        n_offers = 0;
        device_add(cases[i].budget * MIB, 25 * MIB);
        assert_int_equal(choose(), cases[i].n);
        assert_string_equal(refusal.code, "");
        if (cases[i].budget % 40 != 25 || cases[i].n == 0) continue;
        offers[0].budget_bytes.value--;
        assert_int_equal(choose(), cases[i].n - 1 + (cases[i].budget == 185)); /* 185: three of four, with room */
    }
    n_offers = 0;
    device_add(145 * MIB, 25 * MIB);
    (void)choose();
    assert_string_equal(offload.source, "auto: 3 of 4 blocks fit");
    assert_int_equal(offload.devices[0].weights_bytes, 120 * MIB);
    assert_int_equal(offload.devices[0].compute_bytes, 25 * MIB);
    assert_int_equal(bt_device_plan_bytes(&offload.devices[0]), 145 * MIB);
    assert_int_equal(offload.devices[0].source, BT_SOURCE_DRY_RUN);
    assert_false(offload.split.head);
    uint32_t over = 9;
    assert_true(bt_offload_fits(&offload, &over));
    offload.devices[0].compute_bytes++; /* what a dry run says may be another thing */
    assert_false(bt_offload_fits(&offload, &over));
    assert_int_equal(over, 0);
}

/* T5: the head goes with the last block, or both stay. It never overcommits. */
static void T5_the_head_with_the_last_block(void **state) {
    (void)state;
    model_make(4, 40 * MIB, 0, 719 * MIB);
    device_add((25 + 160 + 719) * MIB, 25 * MIB);
    assert_int_equal(choose(), 4);
    assert_true(offload.split.head);
    assert_int_equal(offload.devices[0].weights_bytes, (160 + 719) * MIB);
    offers[0].budget_bytes.value--;
    assert_int_equal(choose(), 3);
    assert_false(offload.split.head);
    assert_int_equal(offload.devices[0].weights_bytes, 120 * MIB);
    model_make(4, 40 * MIB, 0, 0); /* a tied head is the table, which stays */
    offers[0].budget_bytes.value = (25 + 160) * MIB;
    assert_int_equal(choose(), 4);
    assert_false(offload.split.head);
    offers[0].budget_bytes.value--;
    assert_int_equal(choose(), 3);
}

/* The head does not fit behind all blocks on the first device: it takes the last one with it to the second. */
static void the_head_goes_where_there_is_room(void **state) {
    (void)state;
    model_make(4, 40 * MIB, 0, 50 * MIB);
    device_add(200 * MIB, 20 * MIB);
    device_add(110 * MIB, 20 * MIB);
    assert_int_equal(choose(), 4);
    BLOCKS_ARE(3, 1);
    assert_true(offload.split.head);
    assert_int_equal(bt_device_plan_bytes(&offload.devices[1]), 110 * MIB);
    offers[1].budget_bytes.value--;
    assert_int_equal(choose(), 3);
    BLOCKS_ARE(3);
}

static void a_number_is_kept_or_refused(void **state) {
    (void)state;
    model_make(4, 40 * MIB, 0, 50 * MIB);
    device_add(145 * MIB, 25 * MIB);
    ask_for(2);
    assert_int_equal(choose(), 2);
    assert_string_equal(refusal.code, "");
    assert_string_equal(offload.source, "--gpu-layers 2");
    ask_for(4); /* 25 + 160 + 50 */
    assert_int_equal(choose(), 4);
    assert_string_equal(refusal.code, "device_memory");
    assert_int_equal(refusal.need_bytes, 235 * MIB);
    assert_int_equal(refusal.have_bytes, 145 * MIB);
    assert_string_equal(refusal.message,
                        "4 blocks on DEV0 need 235.0 MiB, its budget is 145.0 MiB (--device): 90.0 MiB short; 3 fit");
    assert_int_equal(refusal.n_changes, 1);
    assert_string_equal(refusal.changes[0].flag, "--gpu-layers");
    assert_string_equal(refusal.changes[0].value, "3");
    assert_int_equal(refusal.changes[0].need_bytes, 145 * MIB);
    ask_for(3); /* what was suggested holds, one more does not */
    (void)choose();
    assert_string_equal(refusal.code, "");
    offers[0].budget_bytes.value--;
    (void)choose();
    assert_string_equal(refusal.code, "device_memory");
    ask_for(999); /* more than there are: all */
    offers[0].budget_bytes.value = 235 * MIB;
    assert_int_equal(choose(), 4);
    assert_string_equal(refusal.code, "");
    wishes.gpu_layers = BT_LAYERS_ALL;
    assert_int_equal(choose(), 4);
    assert_string_equal(offload.source, "--gpu-layers all");
    ask_for(0);
    assert_int_equal(choose(), 0);
    assert_int_equal(offload.split.n_devices, 0);
}

/* ollama#10707: who requires a device does not want the host alone. */
static void no_block_where_a_device_is_required(void **state) {
    (void)state;
    model_make(4, 40 * MIB, 0, 50 * MIB);
    device_add(64 * MIB, 25 * MIB);
    assert_int_equal(choose(), 0);
    assert_string_equal(refusal.code, "");
    wishes.require_device = true;
    assert_int_equal(choose(), 0);
    assert_string_equal(refusal.code, "device_memory");
    assert_int_equal(refusal.need_bytes, 65 * MIB);
    assert_int_equal(refusal.have_bytes, 64 * MIB);
    offers[0].budget_bytes.value++;
    (void)choose();
    assert_string_equal(refusal.code, "device_memory");
    offers[0].budget_bytes.value = 65 * MIB;
    assert_int_equal(choose(), 1);
    assert_string_equal(refusal.code, "");
}

static void a_device_that_says_nothing(void **state) {
    (void)state;
    model_make(4, 40 * MIB, 0, 50 * MIB);
    device_add(0, 25 * MIB);
    offers[0].budget_bytes = (bt_known){0};
    (void)snprintf(offers[0].pool.reason, sizeof offers[0].pool.reason, "an illegal address (700)");
    assert_int_equal(choose(), 0);
    assert_string_equal(refusal.code, "device_query");
    assert_non_null(strstr(refusal.message, "DEV0"));
    assert_non_null(strstr(refusal.message, "an illegal address (700)"));
    assert_non_null(strstr(refusal.message, "--device DEV0=SIZE"));
    assert_null(strstr(refusal.message, "0 MiB"));
    assert_string_equal(refusal.changes[0].flag, "--gpu-layers");
    assert_string_equal(refusal.changes[0].value, "0");
    ask_for(4); /* is left to the device's own allocator */
    assert_int_equal(choose(), 4);
    assert_string_equal(refusal.code, "");
    assert_false(offload.devices[0].budget_bytes.known);
    uint32_t over;
    assert_true(bt_offload_fits(&offload, &over));
}

/* ---- experts ---- */

/* Everything but experts first; then the last blocks' experts, as many as there is room for. */
static void experts_stay_before_blocks_do(void **state) {
    (void)state;
    model_make(4, 10 * MIB, 100 * MIB, 50 * MIB);
    static const struct {
        uint64_t budget;
        uint32_t n, n_cpu_moe;
    } cases[] = {
        {510, 4, 0}, {509, 4, 1}, {410, 4, 1}, {409, 4, 2}, {209, 4, 4},
        {110, 4, 4}, /* the least with the head: 20 + 40 + 50 */
        {109, 3, 3}, {50, 3, 3},  {49, 2, 2},  {30, 1, 1},  {29, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        n_offers = 0;
        device_add(cases[i].budget * MIB, 20 * MIB);
        assert_int_equal(choose(), cases[i].n);
        assert_int_equal(offload.split.n_cpu_moe, cases[i].n_cpu_moe);
    }
}

/* The head does not fit, and leaves room that experts have. */
static void experts_take_the_room_of_a_head_that_stays(void **state) {
    (void)state;
    model_make(4, 10 * MIB, 100 * MIB, 900 * MIB);
    device_add(20 * MIB + 3 * 110 * MIB, 20 * MIB);
    assert_int_equal(choose(), 3);
    assert_int_equal(offload.split.n_cpu_moe, 0);
    offers[0].budget_bytes.value--;
    assert_int_equal(choose(), 3);
    assert_int_equal(offload.split.n_cpu_moe, 1);
    assert_int_equal(offload.devices[0].weights_bytes, 230 * MIB);
}

static void experts_as_asked(void **state) {
    (void)state;
    model_make(4, 10 * MIB, 100 * MIB, 50 * MIB);
    device_add(510 * MIB, 20 * MIB);
    wishes.cpu_moe = BT_LAYERS_ALL;
    assert_int_equal(choose(), 4);
    assert_int_equal(offload.split.n_cpu_moe, 4);
    assert_int_equal(offload.devices[0].weights_bytes, 90 * MIB);
    wishes.cpu_moe = BT_LAYERS_COUNT, wishes.n_cpu_moe = 3;
    assert_int_equal(choose(), 4);
    assert_int_equal(offload.split.n_cpu_moe, 3);
    wishes.n_cpu_moe = 0;
    offers[0].budget_bytes.value--; /* then blocks stay */
    assert_int_equal(choose(), 3);
    assert_int_equal(offload.split.n_cpu_moe, 0);
    wishes.n_cpu_moe = 99;
    ask_for(2);
    assert_int_equal(choose(), 2);
    assert_int_equal(offload.split.n_cpu_moe, 2); /* of the blocks that are there */
    wishes.cpu_moe = BT_LAYERS_AUTO;              /* of a number of blocks as few as must */
    ask_for(4);
    offers[0].budget_bytes.value = 409 * MIB;
    assert_int_equal(choose(), 4);
    assert_string_equal(refusal.code, "");
    assert_int_equal(offload.split.n_cpu_moe, 2);
    model_make(4, 10 * MIB, 0, 50 * MIB);
    wishes.cpu_moe = BT_LAYERS_ALL; /* of a model that has none */
    assert_int_equal(choose(), 4);
    assert_int_equal(offload.split.n_cpu_moe, 0);
}

/* ---- several ---- */

/* ollama#9782, lcpp#27953: eight unequal cards; no budget is passed, room on later cards is used, a card that holds its
 * graph and no block is left out. */
static void eight_unequal_devices(void **state) {
    (void)state;
    static const uint64_t budgets[] = {100, 60, 29, 30, 200, 31, 20, 400};
    model_make(16, 30 * MIB, 0, 70 * MIB);
    for (uint32_t i = 0; i < 8; i++)
        device_add(budgets[i] * MIB, 10 * MIB);
    device_add(0, 0); /* the ninth has nothing */
    assert_int_equal(choose(), 16);
    assert_true(offload.split.head);
    BLOCKS_ARE(3, 1, 6, 6); /* of 100, 60, 200, 400 */
    static const char *const used[] = {"DEV0", "DEV1", "DEV4", "DEV7"};
    for (uint32_t i = 0; i < 4; i++) {
        assert_string_equal(offload.devices[i].name, used[i]);
        assert_true(bt_device_plan_bytes(&offload.devices[i]) <= offload.devices[i].budget_bytes.value);
    }
    assert_int_equal(bt_device_plan_bytes(&offload.devices[3]), (10 + 180 + 70) * MIB);
    offers[7].budget_bytes.value = 259 * MIB; /* the head does not fit there now */
    assert_int_equal(choose(), 15);
    assert_false(offload.split.head);
    BLOCKS_ARE(3, 1, 6, 5);
    ask_for(16);
    (void)choose();
    assert_string_equal(refusal.code, "device_memory");
    assert_non_null(strstr(refusal.message, "DEV7"));
    assert_int_equal(refusal.need_bytes, 260 * MIB);
    assert_string_equal(refusal.changes[0].value, "15");
}

/* As libllama: block b of n goes to the first device whose shares of all end behind b / n. */
static void shares(void **state) {
    (void)state;
    model_make(10, 30 * MIB, 0, 70 * MIB);
    for (uint32_t i = 0; i < 3; i++)
        device_add(1000 * MIB, 10 * MIB);
    wishes.n_tensor_splits = 2;
    wishes.tensor_split_milli[0] = 3000, wishes.tensor_split_milli[1] = 1000;
    assert_int_equal(choose(), 10);
    BLOCKS_ARE(8, 2); /* 7.5 */
    assert_true(offload.split.head);
    assert_int_equal(offload.devices[1].weights_bytes, 130 * MIB);
    wishes.n_tensor_splits = 3;
    wishes.tensor_split_milli[1] = 0, wishes.tensor_split_milli[2] = 1000;
    assert_int_equal(choose(), 10);
    BLOCKS_ARE(8, 2);
    assert_string_equal(offload.devices[1].name, "DEV2");
    wishes.n_tensor_splits = 2;
    wishes.tensor_split_milli[0] = wishes.tensor_split_milli[1] = 1000;
    assert_int_equal(choose(), 10);
    BLOCKS_ARE(5, 5);
    /* lcpp#28506: what counts is what the shares came to */
    wishes.n_tensor_splits = 2;
    wishes.tensor_split_milli[0] = 490, wishes.tensor_split_milli[1] = 510;
    ask_for(9);
    assert_int_equal(choose(), 9);
    BLOCKS_ARE(5, 4); /* 4.41 */
    offers[0].budget_bytes.value = 159 * MIB;
    (void)choose();
    assert_string_equal(refusal.code, "device_memory");
    assert_int_equal(refusal.need_bytes, 160 * MIB);
    assert_string_equal(refusal.changes[0].value, "8"); /* 4 and 4 */
    wishes.gpu_layers = BT_LAYERS_AUTO;                 /* as many as fit, dealt out so */
    assert_int_equal(choose(), 8);
    BLOCKS_ARE(4, 4);
}

/* Blocks that are in the file and not loaded cost nothing, nor does a table, wherever it stands. */
static void what_is_not_loaded_is_free(void **state) {
    (void)state;
    model_make(4, 40 * MIB, 0, 50 * MIB);
    tensor_add("blk.4.ffn_up.weight", 4, 700 * MIB, BT_ROLE_UNUSED);
    tensor_add("blk.1.nextn.weight", 1, 700 * MIB, BT_ROLE_UNUSED);
    device_add(210 * MIB, 0);
    graphs[0] = 1;
    assert_int_equal(choose(), 3);
    offers[0].budget_bytes.value++;
    assert_int_equal(choose(), 4);
    assert_int_equal(offload.devices[0].weights_bytes, 210 * MIB);
}

static void no_more_than_is_allowed(void **state) {
    (void)state;
    model_make(4, 40 * MIB, 0, 0);
    device_add(1000 * MIB, 0);
    const bt_offload_ask ask = {.facts = &facts,
                                .wishes = &wishes,
                                .n_ctx = 256,
                                .n_ubatch = 1,
                                .n_blocks_max = 2,
                                .offers = offers,
                                .n_offers = n_offers,
                                .compute_bytes = graphs};
    assert_int_equal(bt_offload_choose(&ask, &offload, &refusal, &error), BT_OK);
    BLOCKS_ARE(2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F_prefix),
        cmocka_unit_test(F_T6_a_real_shape),
        cmocka_unit_test_setup(offers_of_a_host_alone, fresh),
        cmocka_unit_test_setup(offers_are_three_quarters_of_what_is_free, fresh),
        cmocka_unit_test_setup(offers_leave_out_integrated_cards, fresh),
        cmocka_unit_test_setup(offers_by_name_in_that_order, fresh),
        cmocka_unit_test_setup(a_name_without_a_size_is_known, fresh),
        cmocka_unit_test_setup(offers_refuse_unknown_names, fresh),
        cmocka_unit_test_setup(offers_of_a_failed_reading, fresh),
        cmocka_unit_test_setup(offers_that_are_required, fresh),
        cmocka_unit_test_setup(offers_begin_with_the_main_one, fresh),
        cmocka_unit_test_setup(auto_takes_what_fits, fresh_choice),
        cmocka_unit_test_setup(T5_the_head_with_the_last_block, fresh_choice),
        cmocka_unit_test_setup(the_head_goes_where_there_is_room, fresh_choice),
        cmocka_unit_test_setup(a_number_is_kept_or_refused, fresh_choice),
        cmocka_unit_test_setup(no_block_where_a_device_is_required, fresh_choice),
        cmocka_unit_test_setup(a_device_that_says_nothing, fresh_choice),
        cmocka_unit_test_setup(experts_stay_before_blocks_do, fresh_choice),
        cmocka_unit_test_setup(experts_take_the_room_of_a_head_that_stays, fresh_choice),
        cmocka_unit_test_setup(experts_as_asked, fresh_choice),
        cmocka_unit_test_setup(eight_unequal_devices, fresh_choice),
        cmocka_unit_test_setup(shares, fresh_choice),
        cmocka_unit_test_setup(what_is_not_loaded_is_free, fresh_choice),
        cmocka_unit_test_setup(no_more_than_is_allowed, fresh_choice),
    };
    return cmocka_run_group_tests_name("offload", tests, NULL, NULL);
}
