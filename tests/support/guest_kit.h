/* SPDX-License-Identifier: MIT
 * guest_kit.h: a plan for a guest, its holder, and libllama with its device, in one process. For tests that include
 * cmocka.h first. */
#pragma once

#include "base/error.h"
#include "base/heap.h"
#include "plan/plan.h"
#include "plugin/holder.h"
#include "report/report.h"

#include "ggml-backend.h"
#include "llama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GUEST_CTX      128u
#define GUEST_UBATCH   32u
#define GUEST_PROMPT   20u /* more than 8: ggml's kernels for prompts */
#define GUEST_STEPS    5u
#define GUEST_LOGITS   (1u + GUEST_STEPS) /* of the prompt's last token, and of each step */
#define GUEST_CONTEXTS 2u                 /* that the lines have room for */
#define GUEST_MIB      (UINT64_C(1) << 20)

typedef enum guest_pins { GUEST_PINS_NONE, GUEST_PINS_HALF, GUEST_PINS_ALL } guest_pins;

typedef struct guest {
    bool no_vocab; /* tokens are numbers to this test: without words to look up, loading takes a fifth of the time */
    bt_facts *facts;
    bt_plan plan;
    char plan_path[512];
    bt_holder *holder;
    uint32_t n_heard;
    bt_error heard; /* the last one */
} guest;

/* The small model of the tests, or false. */
static inline bool guest_model_path(char path[4096]) {
    const char *source = getenv("BT_SOURCE");
    (void)snprintf(path, 4096, "%s/build/models/smollm2-135m-instruct-q4_1.gguf", source ? source : ".");
    return access(path, R_OK) == 0;
}

static inline void guest_heard(const bt_error *err, void *user) {
    guest *g = user;
    g->n_heard++;
    g->heard = *err;
}

/* ---- a plan ---- */

static inline bool guest_is_pinned(guest_pins pins, const bt_unit_facts *unit, uint32_t number) {
    if (pins == GUEST_PINS_HALF) return unit->kind != BT_KIND_HEAD && number % 2 == 0;
    return pins == GUEST_PINS_ALL;
}

static inline void guest_place(guest *g, guest_pins pins) {
    bt_plan *plan = &g->plan;
    uint64_t *lines = plan->ledger.bytes;
    for (uint32_t u = 0; u < g->facts->n_units; u++) {
        const bt_unit_facts *unit = &g->facts->units[u];
        plan->place[u] = BT_PLACE_ROWS;
        if (unit->kind == BT_KIND_TABLE) continue;
        bool pinned = guest_is_pinned(pins, unit, u);
        plan->place[u] = pinned ? BT_PLACE_PINNED : BT_PLACE_STREAMED;
        *(pinned ? &plan->n_pinned : &plan->n_streamed) += 1;
        if (pinned) lines[unit->kind == BT_KIND_HEAD ? BT_LINE_HEAD : BT_LINE_PINNED] += unit->image_bytes;
        if (!pinned && unit->image_bytes > plan->slot_bytes) plan->slot_bytes = unit->image_bytes;
    }
    plan->verdict = plan->n_streamed > 0 ? BT_STREAMS : BT_FITS;
    plan->n_slots = plan->n_streamed > 0 ? 2 : 0;
    plan->pinned_bytes = lines[BT_LINE_PINNED] + lines[BT_LINE_HEAD];
    lines[BT_LINE_RING] = plan->n_slots * plan->slot_bytes;
}

/* Weights to the byte, the rest with some room. */
static inline void guest_plan_make(guest *g, guest_pins pins) {
    bt_plan *plan = &g->plan;
    *plan = (bt_plan){.exact = true,
                      .n_ctx = GUEST_CTX,
                      .n_batch = GUEST_CTX,
                      .n_ubatch = GUEST_UBATCH,
                      .n_parallel = 1,
                      .n_threads = 1,
                      .type_k = GGML_TYPE_F16,
                      .type_v = GGML_TYPE_F16,
                      .n_units = g->facts->n_units,
                      .budget_state = BT_READING_REPORTED,
                      .wishes = {.guest = true,
                                 .type_k = GGML_TYPE_F16,
                                 .type_v = GGML_TYPE_F16,
                                 .speculate = BT_SPECULATE_OFF,
                                 .no_devices = true}};
    plan->place = bt_heap_array(g->facts->n_units, sizeof *plan->place);
    assert_non_null(plan->place);
    guest_place(g, pins);
    uint64_t *lines = plan->ledger.bytes;
    uint64_t kv_bytes = 0;
    for (uint32_t b = 0; b < g->facts->n_block; b++)
        kv_bytes += (uint64_t)(g->facts->kv[b].k_width + g->facts->kv[b].v_width) * 2 * 256; /* cells, of two bytes */
    lines[BT_LINE_BASE] = 16384 * GUEST_MIB; /* what a test holds, under sanitizers too, is not looked at here */
    lines[BT_LINE_VOCAB] = 32 * GUEST_MIB;
    lines[BT_LINE_METADATA] = 8 * GUEST_MIB;
    lines[BT_LINE_KV] = GUEST_CONTEXTS * (kv_bytes + GUEST_MIB);
    lines[BT_LINE_COMPUTE] = GUEST_CONTEXTS * 24 * GUEST_MIB;
    lines[BT_LINE_LOGITS] = GUEST_CONTEXTS * 8 * GUEST_MIB;
    lines[BT_LINE_STAGING] = 8 * GUEST_MIB;
    lines[BT_LINE_OUTPUT_NORM] = 2 * GUEST_MIB;
    lines[BT_LINE_EMBEDDINGS] = 2 * GUEST_MIB;
}

/* Sums, and the file. */
static inline void guest_plan_write(guest *g, const char *name) {
    bt_error err = {0};
    char *json = NULL;
    g->plan.planned_bytes = bt_ledger_sum(&g->plan.ledger);
    g->plan.budget_bytes = g->plan.planned_bytes;
    (void)mkdir(BT_TEST_OUT, 0777);
    (void)snprintf(g->plan_path, sizeof g->plan_path, "%s/%s-%ld.json", BT_TEST_OUT, name, (long)getpid());
    if (bt_report_plan_json(&g->plan, g->facts, NULL, &json, &err) != BT_OK) fail_msg("%s", err.text);
    FILE *file = fopen(g->plan_path, "w");
    assert_non_null(file);
    assert_true(fputs(json, file) >= 0);
    assert_int_equal(fclose(file), 0);
    bt_heap_free(json);
}

static inline void guest_plan_free(guest *g) {
    (void)unlink(g->plan_path);
    bt_heap_free(g->plan.place);
    bt_facts_close(g->facts);
    g->plan.place = NULL;
    g->facts = NULL;
}

/* ---- the device ---- */

static inline bt_status guest_hold(guest *g, bt_error *err) {
    const bt_holder_calls calls = {.heard = guest_heard, .user = g};
    g->n_heard = 0;
    return bt_holder_open(g->plan_path, &calls, &g->holder, err);
}

/* adapter_bytes: room for what is no weight of the plan's file. */
static inline void guest_open(guest *g, const char *path, guest_pins pins, uint64_t adapter_bytes) {
    bt_error err = {0};
    *g = (guest){0};
    if (bt_facts_open(path, &g->facts, &err) != BT_OK) fail_msg("%s", err.text);
    guest_plan_make(g, pins);
    g->plan.ledger.bytes[BT_LINE_ADAPTERS] = adapter_bytes;
    guest_plan_write(g, "guest");
    if (guest_hold(g, &err) != BT_OK) fail_msg("%s: %s", err.code, err.text);
}

static inline void guest_close(guest *g) {
    assert_true(bt_holder_close(g->holder)); /* nothing is left on the account */
    g->holder = NULL;
    guest_plan_free(g);
}

static inline bt_line_use guest_line(const guest *g, bt_line line) {
    bt_measured *measured = calloc(1, sizeof *measured);
    assert_non_null(measured);
    bt_holder_measure(g->holder, measured);
    bt_line_use use = measured->lines[line];
    free(measured);
    return use;
}

/* ---- libllama with it ---- */

/* As `burthen exec` has the program do it; elsewhere: tensors of these names stay with the CPU. NULL: none. NULL for g:
 * the CPU alone. */
static inline struct llama_model *guest_load(const guest *g, const char *path, const char *elsewhere) {
    ggml_backend_dev_t devices[2] = {g ? bt_device_ggml(bt_holder_device(g->holder)) : NULL, NULL};
    struct llama_model_tensor_buft_override overrides[3] = {{NULL, NULL}};
    uint32_t n = 0;
    if (elsewhere)
        overrides[n++] = (struct llama_model_tensor_buft_override){elsewhere, ggml_backend_cpu_buffer_type()};
    if (g)
        overrides[n] =
            (struct llama_model_tensor_buft_override){".*", bt_device_buffer_type(bt_holder_device(g->holder))};
    /* libllama then takes the number of tokens from the model's facts alone */
    const struct llama_model_kv_override wordless[2] = {
        {.tag = LLAMA_KV_OVERRIDE_TYPE_STR, .key = "tokenizer.ggml.model", .val_str = "no_vocab"}};
    struct llama_model_params params = llama_model_default_params();
    if (g && g->no_vocab) params.kv_overrides = wordless;
    params.devices = devices;
    params.tensor_buft_overrides = overrides;
    params.n_gpu_layers = g ? 999 : 0;
    params.load_mode = LLAMA_LOAD_MODE_NONE;
    params.use_extra_bufts = false;
    return llama_model_load_from_file(path, params);
}

static inline struct llama_context *guest_context(struct llama_model *model, uint32_t n_ctx) {
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = n_ctx;
    params.n_batch = n_ctx;
    params.n_ubatch = GUEST_UBATCH;
    params.n_seq_max = 1;
    params.n_outputs_max = 1;
    params.n_threads = params.n_threads_batch = 1;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.op_offload = false;
    return llama_init_from_model(model, params);
}

static inline int32_t guest_n_vocab(const struct llama_model *model) {
    return llama_vocab_n_tokens(llama_model_get_vocab(model));
}

/* A prompt and some steps, from an empty cache; the tokens depend on the seed alone. logits: [GUEST_LOGITS][n_vocab].
 * What llama_decode returned first that was not 0. */
static inline int32_t guest_decode(struct llama_context *context, uint32_t seed, float *logits) {
    int32_t n_vocab = guest_n_vocab(llama_get_model(context));
    llama_token tokens[GUEST_PROMPT + GUEST_STEPS];
    for (uint32_t i = 0; i < GUEST_PROMPT + GUEST_STEPS; i++)
        tokens[i] = (llama_token)((seed * 7919u + i * 104729u) % (uint32_t)n_vocab);
    llama_memory_clear(llama_get_memory(context), true);
    for (uint32_t i = 0; i < GUEST_LOGITS; i++) {
        llama_token *at = i == 0 ? tokens : &tokens[GUEST_PROMPT + i - 1];
        int32_t rc = llama_decode(context, llama_batch_get_one(at, i == 0 ? (int32_t)GUEST_PROMPT : 1));
        if (rc != 0) return rc;
        const float *row = llama_get_logits_ith(context, -1);
        if (!row) return -1;
        memcpy(logits + (size_t)i * (size_t)n_vocab, row, (size_t)n_vocab * sizeof *row);
    }
    return 0;
}
