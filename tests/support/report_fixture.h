/* SPDX-License-Identifier: MIT
 * report_fixture.h: one model, one machine and one plan with every field set to something that is not its default, for
 * the tests of src/report. The numbers mean nothing; they are all different. */
#pragma once

#include "burthen.h"
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

#define FIXTURE_UNITS 6u

typedef struct report_fixture {
    bt_kv_block kv[3];
    bt_shard shards[2];
    bt_tensor tensors[4];
    bt_unit_facts units[FIXTURE_UNITS];
    bt_facts facts;
    bt_machine machine;
    bt_place place[FIXTURE_UNITS];
    bt_plan plan;
    bt_offload offload;
} report_fixture;

static inline void fixture_facts(report_fixture *f) {
    static const struct {
        const char *name;
        bt_unit_kind kind;
        int32_t block;
        uint64_t bytes;
    } units[FIXTURE_UNITS] = {
        {"blk.0.attn", BT_KIND_ATTENTION, 0, 1000000},   {"blk.0.ffn", BT_KIND_FEED_FORWARD, 0, 3000000},
        {"blk.1.attn", BT_KIND_ATTENTION, 1, 1000001},   {"blk.1.ffn", BT_KIND_FEED_FORWARD, 1, 3000001},
        {"blk.2.ffn", BT_KIND_FEED_FORWARD, 2, 3000002}, {"token_embd", BT_KIND_TABLE, -1, 8000000},
    };
    for (uint32_t i = 0; i < FIXTURE_UNITS; i++) {
        bt_unit_facts *unit = &f->units[i];
        (void)snprintf(unit->name, sizeof unit->name, "%s", units[i].name);
        unit->kind = units[i].kind;
        unit->block = units[i].block;
        unit->bytes = units[i].bytes;
        unit->image_bytes = units[i].bytes + 8192;
        unit->n_tensors = 3;
        unit->n_extents = 1;
    }
    f->kv[0] = (bt_kv_block){.k_width = 256, .v_width = 128};
    f->kv[1] = (bt_kv_block){.k_width = 256, .v_width = 128, .window = 1024};
    f->kv[2] = (bt_kv_block){0};
    f->shards[0] = (bt_shard){.path = "models/m-00001-of-00002.gguf",
                              .file_bytes = 15000000,
                              .data_offset = 4096,
                              .mtime_ns = 1700000000000000007};
    f->shards[1] = (bt_shard){.path = "models/m-00002-of-00002.gguf",
                              .file_bytes = 5000000,
                              .data_offset = 128,
                              .mtime_ns = 1700000000000000009};
    f->tensors[0] = (bt_tensor){.name = "token_embd.weight", .type = 8, .ne = {256, 30000, 1, 1}, .bytes = 8000000};
    f->tensors[1] = (bt_tensor){.name = "blk.0.ffn_up.weight", .type = 12, .ne = {256, 700, 1, 1}, .bytes = 3000000};
    f->tensors[2] = (bt_tensor){.name = "blk.1.ffn_up.weight", .type = 12, .ne = {256, 700, 1, 1}, .bytes = 3000001};
    f->tensors[3] = (bt_tensor){.name = "output_norm.weight", .type = 0, .ne = {256, 1, 1, 1}, .bytes = 1024};
    f->facts = (bt_facts){
        .path = "models/m-00001-of-00002.gguf",
        .arch = "llama",
        .alignment = 32,
        .name = "A model",
        .tokenizer = "gpt2",
        .tokenizer_pre = "smollm",
        .has_chat_template = true,
        .n_ctx_train = 8192,
        .n_embd = 256,
        .n_vocab = 30000,
        .n_ff = 700,
        .n_block = 3,
        .n_head = 4,
        .tied_head = true,
        .kv_known = true,
        .kv_exact = true,
        .kv = f->kv,
        .shards = f->shards,
        .n_shards = 2,
        .tensors = f->tensors,
        .n_tensors = 4,
        .n_file_tensors = 4,
        .units = f->units,
        .n_units = FIXTURE_UNITS,
        .weight_bytes = 19000004,
        .file_bytes = 20000000,
        .small_bytes = 1024,
        .header_bytes = 3000,
        .header_sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    };
}

static inline void fixture_machine(report_fixture *f) {
    bt_machine *m = &f->machine;
    *m = (bt_machine){
        .n_pools = 3,
        .cgroup_version = 2,
        .n_cgroup_levels = 2,
        .cgroup_reason = "not all of it",
        .n_reservations = 1,
        .reservations = {{4711, "run", 734003200, 104857600}},
        .promised_bytes = 734003200,
        .untouched_bytes = 629145600,
        .swap_free_bytes = {true, 1073741824},
        .memlock_bytes = {true, 8388608},
        .disk_bytes_per_s = {true, 2000000000},
        .disk_measured = true,
        .memory_bytes_per_s = {true, 20000000000},
        .n_threads = 6,
    };
    m->pools[0] = (bt_pool){.name = "host",
                            .kind = BT_POOL_HOST,
                            .state = BT_READING_REPORTED,
                            .free_bytes = 6000000000,
                            .total_bytes = 16000000000,
                            .limit = {true, 4294967296},
                            .limit_source = "cgroup v2 /a/b memory.max"};
    m->pools[1] = (bt_pool){.name = "CUDA0",
                            .kind = BT_POOL_GPU,
                            .state = BT_READING_FAILED,
                            .reason = "driver says 999",
                            .pci = "0000:01:00.0",
                            .device = "A card",
                            .source = "NVML"};
    m->pools[2] = (bt_pool){.name = "Vulkan0",
                            .kind = BT_POOL_IGPU,
                            .state = BT_READING_REPORTED,
                            .free_bytes = 2000000000,
                            .total_bytes = 2000000000,
                            .clamped = true,
                            .shares_host = true};
    m->cgroup[0] = (bt_cgroup_level){.path = "/a/b",
                                     .limit = {true, 4294967296},
                                     .usage_bytes = 1234567,
                                     .reclaimable_bytes = 345678,
                                     .limit_file = "memory.high"};
    m->cgroup[0].promised_bytes = 5u << 20;
    m->cgroup[1] = (bt_cgroup_level){.path = "/a", .usage_bytes = 7654321, .reclaimable_bytes = 45678};
}

static inline void fixture_plan(report_fixture *f) {
    bt_plan *p = &f->plan;
    static const bt_place place[FIXTURE_UNITS] = {BT_PLACE_PINNED,   BT_PLACE_PINNED,   BT_PLACE_PINNED,
                                                  BT_PLACE_STREAMED, BT_PLACE_STREAMED, BT_PLACE_ROWS};
    memcpy(f->place, place, sizeof place);
    *p = (bt_plan){
        .verdict = BT_STREAMS,
        .exact = true,
        .priced_by_dry_run = true,
        .n_ctx_requested = 4000,
        .n_ctx = 4096,
        .n_ctx_train = 8192,
        .ctx_reason = "rounded up to 256",
        .n_batch = 2048,
        .n_ubatch = 512,
        .n_parallel = 2,
        .n_threads = 6,
        .type_k = 2,
        .type_v = 8,
        .head_resident = true,
        .n_slots = 2,
        .slot_bytes = 3008194,
        .place = f->place,
        .n_units = FIXTURE_UNITS,
        .n_pinned = 3,
        .n_streamed = 2,
        .pinned_bytes = 5000001,
        .layouts = {.n_replaced = 4, .replaced_bytes = 3500000, .n_second = 7, .second_bytes = 1017518},
        .read_bytes_per_pass = 6000003,
        .budget_bytes = 67108864,
        .budget_state = BT_READING_REPORTED,
        .budget_source = "asked",
        .ceiling_bytes = 50000000,
        .disk_bytes_per_s = {true, 2000000000},
        .forecast = {{true, 333333166}, BT_BOUND_DISK},
    };
    p->wishes = (bt_wishes){.budget_kind = BT_BUDGET_BYTES,
                            .budget_bytes = 67108864,
                            .force = true,
                            .n_ctx = 4000,
                            .allow_ctx_reduction = true,
                            .n_parallel = 2,
                            .n_batch = 1024,
                            .n_ubatch = 256,
                            .type_k = 8,
                            .type_v = 2,
                            .flash_attn = BT_ON,
                            .n_threads = 5,
                            .n_buffers = 3,
                            .stream_head = BT_OFF,
                            .policy = BT_POLICY_SPEED,
                            .io = BT_IO_DIRECT,
                            .rope_scaling = BT_ROPE_YARN,
                            .rope_scale_micro = 2500000,
                            .yarn_orig_ctx = 8191};
    for (uint32_t i = 0; i <= BT_LINE_STAGING; i++) { /* the model's own: nothing stands beside it */
        p->ledger.bytes[i] = i == BT_LINE_EXPERTS ? 0 : 100000 + i * 65537;
        p->ledger.source[i] = (bt_source)(i % 4);
    }
    p->planned_bytes = bt_ledger_sum(&p->ledger);
    p->ladder[BT_RUNG_MINIMUM] = (bt_rung){true, 5000000, 256, {{true, 20000000}, BT_BOUND_DISK}};
    p->ladder[BT_RUNG_OVERLAP] = (bt_rung){true, 9000000, 4096, {{0}, BT_BOUND_COMPUTE}};
    p->ladder[BT_RUNG_ALL_PINNED] = (bt_rung){true, 28000000, 4096, {{true, 1234567890}, BT_BOUND_MEMORY}};
}

/* The same plan for a program of llama.cpp's own, with a draft model and a projector beside the model. */
static inline void fixture_accompany(report_fixture *f) {
    bt_plan *p = &f->plan;
    p->draft = (bt_companion){"draft.gguf", 70000000, 71000000, "d7af"};
    p->mmproj = (bt_companion){"mmproj.gguf", 878000000, 878100000, "3e0b"};
    p->wishes.guest = p->wishes.kv_unified = p->wishes.swa_full = true;
    for (uint32_t i = BT_LINE_STAGING + 1; i < BT_LINE_COUNT; i++) {
        p->ledger.bytes[i] = 200000 + i * 65537;
        p->ledger.source[i] = BT_SOURCE_TENSOR;
    }
    p->planned_bytes = bt_ledger_sum(&p->ledger);
}

/* The same plan, refused. */
static inline void fixture_refuse(report_fixture *f) {
    bt_plan *p = &f->plan;
    p->verdict = BT_REFUSED;
    p->forced = true;
    p->exact = false;
    p->n_ubatch = 32;
    p->budget_bytes = 4194304;
    p->wishes.budget_bytes = 4194304;
    p->refusal = (bt_refusal){.code = "ram_budget",
                              .message = "context 4096 needs 9.0 MiB, the budget is 4.0 MiB",
                              .need_bytes = 9437184,
                              .have_bytes = 4194304,
                              .n_changes = 2};
    p->refusal.changes[0] = (bt_change){"--ctx-size", "256", 4000000};
    p->refusal.changes[1] = (bt_change){"--ram-budget", "9M", 9437184};
}

/* The same plan with blocks on two devices, and every wish that devices can have. */
static inline void fixture_offload(report_fixture *f) {
    bt_wishes *w = &f->plan.wishes;
    w->gpu_layers = BT_LAYERS_COUNT;
    w->n_gpu_layers = 2;
    w->cpu_moe = BT_LAYERS_ALL;
    w->n_devices = 2;
    w->devices[0] = (bt_device_wish){.name = "Vulkan0", .budget_bytes = {true, 900000000}};
    w->devices[1] = (bt_device_wish){.name = "CUDA0"};
    w->n_tensor_splits = 2;
    w->tensor_split_milli[0] = 1500;
    w->tensor_split_milli[1] = 0;
    w->main_gpu = 1;
    w->require_device = true;
    w->gpu_mem_bytes = (bt_known){true, 67108864};
    f->offload = (bt_offload){.split = {.n_devices = 2, .n_blocks = {1, 1}, .head = false, .n_cpu_moe = 1},
                              .source = "--gpu-layers 2"};
    f->offload.devices[0] = (bt_device_plan){.name = "Vulkan0",
                                             .kind = BT_POOL_IGPU,
                                             .state = BT_READING_REPORTED,
                                             .shares_host = true,
                                             .n_blocks = 1,
                                             .weights_bytes = 4000001,
                                             .kv_bytes = 300,
                                             .compute_bytes = 20,
                                             .context_bytes = 1,
                                             .source = BT_SOURCE_DRY_RUN,
                                             .budget_bytes = {true, 900000000},
                                             .budget_source = "--device"};
    f->offload.devices[1] = (bt_device_plan){.name = "CUDA0",
                                             .kind = BT_POOL_GPU,
                                             .state = BT_READING_FAILED,
                                             .reason = "driver says 999",
                                             .n_blocks = 1,
                                             .weights_bytes = 5000000,
                                             .source = BT_SOURCE_FORMULA,
                                             .budget_source = "unmeasured"};
    f->plan.offload = &f->offload;
}

static inline void fixture_make(report_fixture *f) {
    *f = (report_fixture){0};
    fixture_facts(f);
    fixture_machine(f);
    fixture_plan(f);
}
