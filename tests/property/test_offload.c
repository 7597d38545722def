/* SPDX-License-Identifier: MIT
 * test_offload.c: what must hold of every model on every set of devices. Choosing: no placement in order has more
 * blocks, or of as many blocks more experts; more budget is never fewer blocks; no budget is passed; the same again is
 * the same. Splitting: every byte is in one place, and caches of here and there are those of the whole. The seed is
 * printed and BT_SEED=n replays it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/heap.h"
#include "model_kit.h"
#include "plan/costs.h"
#include "plan/offload.h"
#include "random.h"
#include "rounds.h"

#include <stdlib.h>

#define PADDING     UINT64_C(1024)
#define BLOCKS_MAX  6u
#define DEVICES_MAX 3u

static uint64_t rng_state;
static uint64_t below(uint64_t n) {
    return random_next(&rng_state) % n;
}

static void run(void (*check)(void), uint32_t n_rounds) {
    uint64_t seed = random_seed();
    rng_state = seed;
    for (uint32_t i = 0; i < rounds_of(n_rounds); i++)
        check();
}

/* ---- choosing ---- */

typedef struct world {
    bt_facts facts;
    bt_tensor tensors[2 * BLOCKS_MAX + 2];
    char names[2 * BLOCKS_MAX][40];
    uint64_t dense[BLOCKS_MAX], experts[BLOCKS_MAX], head; /* as they cost on a device */
    bt_wishes wishes;
    bt_offer offers[DEVICES_MAX];
    uint64_t graphs[DEVICES_MAX];
    bt_offload_ask ask;
} world;
static world w;

static void tensor_add(const char *name, int32_t block, uint64_t bytes, bt_tensor_role role) {
    w.tensors[w.facts.n_tensors++] = (bt_tensor){.name = name, .block = block, .bytes = bytes, .role = role};
}

static void world_make(void) {
    w = (world){.facts = {.arch = "llama", .n_embd = 64, .path = "m"}};
    uint32_t n_blocks = 1 + (uint32_t)below(BLOCKS_MAX), n_devices = 1 + (uint32_t)below(DEVICES_MAX);
    bool moe = below(2) == 0;
    w.facts.n_block = n_blocks;
    w.facts.tensors = w.tensors;
    w.facts.head_stays = below(3) == 0;
    for (uint32_t b = 0; b < n_blocks; b++) {
        uint64_t bytes = 1 + below(9000);
        snprintf(w.names[2 * b], sizeof w.names[0], "blk.%" PRIu32 ".attn_q.weight", b);
        tensor_add(w.names[2 * b], (int32_t)b, bytes, BT_ROLE_UNIT);
        w.dense[b] = bytes + PADDING;
        if (!moe || below(4) == 0) continue;
        bytes = 1 + below(30000);
        snprintf(w.names[2 * b + 1], sizeof w.names[0], "blk.%" PRIu32 ".ffn_down_exps.weight", b);
        tensor_add(w.names[2 * b + 1], (int32_t)b, bytes, BT_ROLE_EXPERTS);
        w.experts[b] = bytes + PADDING;
    }
    if (!w.facts.head_stays) {
        uint64_t bytes = 1 + below(below(2) ? 60000 : 3000);
        tensor_add("output.weight", -1, bytes, BT_ROLE_HEAD);
        w.head = bytes + PADDING;
    }
    tensor_add("token_embd.weight", -1, 1 + below(60000), BT_ROLE_TABLE);
    w.wishes = (bt_wishes){.type_k = 1, .type_v = 1, .n_threads = 1};
    for (uint32_t i = 0; i < n_devices; i++) {
        w.graphs[i] = 1 + below(4000); /* 0 would be: not measured */
        w.offers[i] = (bt_offer){.pool = {.kind = BT_POOL_GPU, .state = BT_READING_REPORTED},
                                 .budget_bytes = {true, below(below(2) ? 40000 : 160000)},
                                 .context_bytes = below(2) * below(3000)};
        snprintf(w.offers[i].pool.name, sizeof w.offers[i].pool.name, "DEV%" PRIu32, i);
    }
    w.ask = (bt_offload_ask){.facts = &w.facts,
                             .wishes = &w.wishes,
                             .n_ctx = 256,
                             .n_ubatch = 1,
                             .n_blocks_max = UINT32_MAX,
                             .offers = w.offers,
                             .n_offers = n_devices,
                             .compute_bytes = w.graphs};
}

static bt_offload choose(void) {
    bt_offload chosen;
    bt_refusal refusal;
    bt_error err = {0};
    if (bt_offload_choose(&w.ask, &chosen, &refusal, &err) != BT_OK) fail_msg("%s", err.text);
    assert_string_equal(refusal.code, "");
    return chosen;
}

/* Whether a way to deal out n blocks in order fits, with the experts of the first n_cpu_moe on the host. Every way is
 * tried; written down independently of the planner. */
static bool some_deal_fits(uint32_t device, uint32_t first, uint32_t n, uint32_t n_cpu_moe) {
    if (first == n) return true;
    if (device == w.ask.n_offers) return false;
    for (uint32_t k = 0; first + k <= n; k++) {
        uint64_t bytes = w.graphs[device] + w.offers[device].context_bytes;
        for (uint32_t b = first; b < first + k; b++)
            bytes += w.dense[b] + (b < n_cpu_moe ? 0 : w.experts[b]);
        bool has_last = k > 0 && first + k == n;
        if (has_last && n == w.facts.n_block && !w.facts.head_stays) bytes += w.head;
        if (k > 0 && bytes > w.offers[device].budget_bytes.value) continue;
        if (some_deal_fits(device + 1, first + k, n, n_cpu_moe)) return true;
    }
    return false;
}

static void placement_is_sound(const bt_offload *chosen) {
    uint32_t b = 0, last = 0, n = bt_split_blocks(&chosen->split);
    for (uint32_t i = 0; i < chosen->split.n_devices; i++) {
        const bt_device_plan *device = &chosen->devices[i];
        uint32_t offer = (uint32_t)strtoul(device->name + 3, NULL, 10);
        uint64_t weights = 0;
        assert_true(i == 0 || offer > last); /* in order */
        last = offer;
        assert_true(device->n_blocks > 0);
        assert_int_equal(device->n_blocks, chosen->split.n_blocks[i]);
        for (uint32_t k = 0; k < device->n_blocks; k++, b++)
            weights += w.dense[b] + (b < chosen->split.n_cpu_moe ? 0 : w.experts[b]);
        if (chosen->split.head && i + 1 == chosen->split.n_devices) weights += w.head;
        assert_int_equal(device->weights_bytes, weights);
        assert_int_equal(device->compute_bytes, w.graphs[offer]);
        assert_int_equal(device->context_bytes, w.offers[offer].context_bytes);
        assert_true(bt_device_plan_bytes(device) <= w.offers[offer].budget_bytes.value);
    }
    assert_int_equal(chosen->split.head, n == w.facts.n_block && !w.facts.head_stays);
    assert_true(chosen->split.n_cpu_moe <= n);
}

static void best_round(void) {
    world_make();
    bt_offload chosen = choose();
    bt_offload again = choose();
    assert_memory_equal(&chosen, &again, sizeof chosen);
    placement_is_sound(&chosen);
    uint32_t n = bt_split_blocks(&chosen.split), moe = chosen.split.n_cpu_moe;
    for (uint32_t more = n + 1; more <= w.facts.n_block; more++)
        assert_false(some_deal_fits(0, 0, more, w.facts.n_block));
    assert_true(some_deal_fits(0, 0, n, moe));
    for (uint32_t fewer = 0; fewer < moe; fewer++)
        assert_false(some_deal_fits(0, 0, n, fewer));
}

static void nothing_in_order_is_better(void **state) {
    (void)state;
    run(best_round, 20000);
}

static void monotone_round(void) {
    world_make();
    uint32_t device = (uint32_t)below(w.ask.n_offers), last = 0, last_moe = UINT32_MAX;
    w.offers[device].budget_bytes.value = 0;
    for (uint32_t i = 0; i < 60; i++) {
        bt_offload chosen = choose();
        placement_is_sound(&chosen);
        uint32_t n = bt_split_blocks(&chosen.split);
        assert_true(n >= last);
        if (n == last) assert_true(chosen.split.n_cpu_moe <= last_moe);
        last = n, last_moe = chosen.split.n_cpu_moe;
        w.offers[device].budget_bytes.value += below(6000);
    }
}

static void more_is_never_less(void **state) {
    (void)state;
    run(monotone_round, 2000);
}

/* A number that is asked for is what is planned; it is refused exactly where no way in order fits, but for the order in
 * which one device is filled before the next. What is suggested instead holds. */
static void number_round(void) {
    world_make();
    w.wishes.gpu_layers = BT_LAYERS_COUNT;
    w.wishes.n_gpu_layers = 1 + (uint32_t)below(w.facts.n_block);
    bt_offload chosen;
    bt_refusal refusal;
    bt_error err = {0};
    assert_int_equal(bt_offload_choose(&w.ask, &chosen, &refusal, &err), BT_OK);
    assert_int_equal(bt_split_blocks(&chosen.split), w.wishes.n_gpu_layers);
    assert_int_equal(refusal.code[0] == '\0', some_deal_fits(0, 0, w.wishes.n_gpu_layers, 0));
    if (refusal.code[0] == '\0') {
        placement_is_sound(&chosen);
        return;
    }
    assert_string_equal(refusal.code, "device_memory");
    assert_true(refusal.need_bytes > refusal.have_bytes);
    w.wishes.n_gpu_layers = (uint32_t)strtoul(refusal.changes[0].value, NULL, 10);
    chosen = choose();
    assert_int_equal(bt_split_blocks(&chosen.split), w.wishes.n_gpu_layers);
    assert_false(some_deal_fits(0, 0, w.wishes.n_gpu_layers + 1, 0));
}

static void numbers_are_kept_or_refused(void **state) {
    (void)state;
    run(number_round, 20000);
}

/* ---- splitting ---- */

/* A model of some blocks, with experts in the end of some. */
static bt_facts *model_make(void) {
    gw file;
    gw_model m = kit_small;
    bt_facts *facts;
    m.n_block = 1 + (uint32_t)below(5);
    m.n_ff = 256 * (1 + (uint32_t)below(4));
    m.n_vocab = 1024 + 512 * (uint32_t)below(4);
    m.tied = below(2) == 0;
    gw_init(&file), gw_model_keys(&file, &m);
    bool moe = below(2) == 0;
    if (moe) {
        gw_u32(&file, "llama.expert_count", 8), gw_u32(&file, "llama.expert_used_count", 2);
    }
    gw_model_tensors(&file, &m);
    for (uint32_t b = 0; moe && b < m.n_block; b++) {
        static const char *const parts[] = {"gate", "up", "down"};
        char name[64];
        for (uint32_t i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "blk.%" PRIu32 ".ffn_%s_exps.weight", b, parts[i]);
            gw_tensor_3d(&file, name, 8, 256, 256, 8);
        }
    }
    facts = kit_file_open(&file, "split.gguf");
    gw_done(&file);
    return facts;
}

static uint8_t device_wanted(const bt_split *split, const bt_tensor *t) {
    bool experts = strstr(t->name, "_exps.") != NULL;
    bool table = strcmp(t->name, "token_embd.weight") == 0;
    if (t->block < 0) return split->head && !table ? (uint8_t)split->n_devices : 0;
    if (experts && (uint32_t)t->block < split->n_cpu_moe) return 0;
    uint32_t end = 0;
    for (uint32_t d = 0; d < split->n_devices; d++) {
        end += split->n_blocks[d];
        if ((uint32_t)t->block < end) return (uint8_t)(d + 1);
    }
    return 0;
}

/* Every tensor stands where the split says; what is left for the host is in units, or small, and nowhere twice. */
static void tensors_are_placed(const bt_facts *whole, const bt_facts *split) {
    uint64_t host = 0, away = 0, units = 0;
    uint32_t n_members = 0;
    bool has_copy = split->split.head && whole->tied_head; /* of the table, for the device that computes the head */
    assert_int_equal(split->n_tensors, whole->n_tensors + has_copy);
    assert_int_equal(split->n_file_tensors, whole->n_tensors);
    for (uint32_t i = 0; i < whole->n_tensors; i++) {
        const bt_tensor *t = &split->tensors[i];
        if (has_copy && whole->tensors[i].role == BT_ROLE_TIED) {
            const bt_tensor *copy = &split->tensors[whole->n_tensors];
            assert_int_equal(t->role, BT_ROLE_TABLE);
            assert_int_equal(t->device, 0);
            assert_string_equal(copy->name, "output.weight");
            assert_int_equal(copy->role, BT_ROLE_AWAY);
            assert_true(copy->device > 0);
            assert_int_equal(copy->bytes, t->bytes);
            assert_int_equal(copy->file_offset, t->file_offset);
            host += t->bytes;
            continue;
        }
        assert_string_equal(t->name, whole->tensors[i].name);
        assert_int_equal(t->bytes, whole->tensors[i].bytes);
        assert_int_equal(t->device, device_wanted(&split->split, t));
        assert_int_equal(t->role, t->device > 0 ? BT_ROLE_AWAY : whole->tensors[i].role);
        bool placed = t->device == 0 && t->role != BT_ROLE_SMALL;
        if (t->role != BT_ROLE_EXPERTS) assert_int_equal(t->unit != BT_NO_UNIT, placed);
        *(t->device > 0 ? &away : &host) += t->bytes;
    }
    for (uint32_t u = 0; u < split->n_units; u++) {
        const bt_unit_facts *unit = &split->units[u];
        units += unit->bytes;
        n_members += unit->n_tensors;
        for (uint32_t k = 0; k < unit->n_tensors; k++)
            assert_int_equal(split->tensors[split->unit_tensors[unit->first_tensor + k]].device, 0);
    }
    assert_int_equal(n_members, split->n_unit_tensors);
    for (uint32_t i = 0; i < split->n_tensors; i++) {
        const bt_tensor *t = &split->tensors[i];
        if (t->device == 0 && t->unit == BT_NO_UNIT) units += t->bytes; /* small, and experts */
    }
    assert_int_equal(units, host);
    assert_int_equal(host + away, whole->weight_bytes);
    assert_int_equal(split->weight_bytes, whole->weight_bytes);
}

static void caches_are_shared_out(const bt_facts *whole, const bt_facts *split) {
    bt_wishes wishes = {.n_parallel = 1 + (uint32_t)below(3), .type_k = 1, .type_v = 1};
    uint32_t n_away = bt_split_blocks(&split->split), n_ctx = 256 * (1 + (uint32_t)below(20));
    uint64_t all = 0, here = 0, there = 0;
    assert_true(bt_kv_price(whole, &wishes, n_ctx, 64, &all));
    assert_true(bt_kv_price(split, &wishes, n_ctx, 64, &here));
    for (uint32_t b = 0; b < n_away; b++) {
        uint64_t bytes = 0;
        assert_true(bt_kv_block_price(whole, b, &wishes, n_ctx, 64, &bytes));
        there += bytes;
    }
    assert_int_equal(here + there, all);
}

static void split_round(void) {
    bt_facts *whole = model_make();
    uint64_t blocks = bt_heap_live_blocks();
    for (uint32_t n = 0; n <= whole->n_block; n++) {
        bt_split at = {.n_devices = 1 + (uint32_t)below(3)};
        for (uint32_t k = 0; k < n; k++)
            at.n_blocks[below(at.n_devices)]++;
        at.n_blocks[at.n_devices - 1] += at.n_blocks[at.n_devices - 1] == 0 && n > 0;
        if (bt_split_blocks(&at) > n) { /* the last one has a block: the head is with it */
            uint32_t i = 0;
            while (at.n_blocks[i] == 0)
                i++;
            at.n_blocks[i]--;
        }
        at.head = n == whole->n_block && !whole->head_stays && below(2) == 0;
        at.n_cpu_moe = (uint32_t)below(n + 1);
        bt_facts *split[2] = {NULL, NULL};
        bt_error err = {0};
        for (int i = 0; i < 2; i++)
            if (bt_facts_split(whole, &at, &split[i], &err) != BT_OK) fail_msg("%s", err.text);
        tensors_are_placed(whole, split[0]);
        caches_are_shared_out(whole, split[0]);
        assert_int_equal(split[0]->arena_bytes, split[1]->arena_bytes);
        assert_true(split[0]->arena_bytes > whole->arena_bytes);
        assert_int_equal(split[0]->n_units, split[1]->n_units);
        assert_memory_equal(&split[0]->split, &at, sizeof at);
        bt_facts_close(split[1]);
        bt_facts_close(split[0]);
        assert_int_equal(bt_heap_live_blocks(), blocks);
    }
    bt_facts_close(whole);
}

static void every_byte_is_in_one_place(void **state) {
    (void)state;
    run(split_round, 150);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_in_order_is_better),
        cmocka_unit_test(more_is_never_less),
        cmocka_unit_test(numbers_are_kept_or_refused),
        cmocka_unit_test(every_byte_is_in_one_place),
    };
    return cmocka_run_group_tests_name("offload", tests, NULL, NULL);
}
