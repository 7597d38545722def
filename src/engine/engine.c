/* SPDX-License-Identifier: MIT
 *
 * engine.c: loading. In this order, so that no two peaks meet (docs/design.md section 9):
 *
 *   account with the plan's caps -> files -> reader -> device -> libllama loads the header and the small tensors
 *   -> heap trimmed -> what libllama keeps is measured -> pins read, ring opened
 *
 * Each step charges before it holds. A failure undoes the steps before it. */

#include "engine/engine.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/os.h"
#include "base/size.h"
#include "base/text.h"
#include "device/readings.h"
#include "engine/backends.h"
#include "engine/model_file.h"
#include "store/disk_speed.h"

#include "ggml-backend.h"
#include "llama.h"

#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define PATTERN_MAX_BYTES (16u << 10) /* the numbers of two times 512 blocks */

struct bt_engine {
    bt_engine_params params;
    bt_account *account;
    bt_store store;
    bool store_open;
    bt_reader *reader;
    bt_device *device;
    bt_account *stand_in_account; /* of all that stand in */
    bt_device *stand_ins[BT_DEVICE_MAX];
    struct ggml_backend_device *devices[BT_DEVICE_MAX]; /* the caller's list is not needed once this is open */
    bt_pool devices_before[BT_DEVICE_MAX];              /* what devices said before anything was put on them */
    struct llama_model *model;
    bool checked;
    bt_engine_load load;
};

/* Its structures are read with our declarations. Another one comes before ours where LD_LIBRARY_PATH names it. */
static bt_status check_version(bt_error *err) {
    if (strcmp(ggml_version(), BT_GGML_VERSION) == 0) return BT_OK;
    return bt_fail(err, BT_E_UNSUPPORTED, "ggml_version", BT_MEASURE_NONE, 0, 0,
                   "burthen was built for ggml %s and finds %s: look at LD_LIBRARY_PATH", BT_GGML_VERSION,
                   ggml_version());
}

bt_status bt_engine_init(bt_error *err) {
    BT_TRY(check_version(err));
    /* One heap for all threads, returned to the system from 64 KiB on: freed transients must not stay resident. */
    (void)mallopt(M_ARENA_MAX, 1);
    (void)mallopt(M_MMAP_THRESHOLD, 64 * 1024);
    (void)mallopt(M_TRIM_THRESHOLD, 64 * 1024);
    bt_engine_log_init();
    BT_TRY(bt_backends_load(err)); /* before libllama finds none, and looks for them in the working directory */
    llama_backend_init();
    (void)bt_os_freeze_text(); /* without it the base grows as code is first run, by what the residual allows */
    return BT_OK;
}

void bt_engine_on_abort(void (*call)(const char *message)) {
    (void)ggml_set_abort_callback(call);
}

const char *bt_engine_build_version(void) {
    static char text[64]; /* written once, with the same words each time */
    (void)snprintf(text, sizeof text, "ggml %s", ggml_version());
    return text;
}

/* ---- memory of this process ---- */

uint64_t bt_engine_heap_bytes(bt_engine *engine) {
    bt_os_memory memory;
    bt_os_memory_read(&memory);
    bt_account_measure(engine->account);
    return bt_sat_sub_u64(memory.anon_bytes.value, bt_account_mapped_bytes(engine->account));
}

/* ---- opening ---- */

static bt_line line_of(const bt_engine *engine, bt_line line) {
    return engine->params.lines ? engine->params.lines[line] : line;
}

static bt_status open_account(bt_engine *engine, bt_error *err) {
    if (engine->params.beside) {
        engine->account = engine->params.beside->account;
        return BT_OK;
    }
    uint64_t caps[BT_LINE_COUNT], budget = UINT64_MAX;
    for (int line = 0; line < BT_LINE_COUNT; line++)
        caps[line] = UINT64_MAX;
    const bt_plan *plan = engine->params.plan;
    if (plan && plan->budget_bytes != UINT64_MAX) {
        memcpy(caps, plan->ledger.bytes, sizeof caps);
        budget = bt_max_u64(plan->budget_bytes, plan->planned_bytes); /* forced plans may be over */
    }
    return bt_account_open(caps, budget, &engine->account, err);
}

static bt_status open_store(bt_engine *engine, bt_error *err) {
    bt_io_mode mode = engine->params.plan ? engine->params.plan->wishes.io : BT_IO_BUFFERED;
    BT_TRY(bt_store_open(engine->params.facts, mode, &engine->store, err));
    engine->store_open = true;
    if (engine->params.measuring) return BT_OK;
    const bt_engine_params *p = &engine->params;
    bt_reader_params params = {
        .kind = p->reader,
        .depth = p->reader_depth ? p->reader_depth : BT_DISK_DEPTH,
        .request_bytes = p->reader_request_bytes ? p->reader_request_bytes : BT_DISK_REQUEST_BYTES,
    };
    return bt_reader_open(&engine->store, &params, &engine->reader, err);
}

static bt_status open_device(bt_engine *engine, bt_error *err) {
    const bt_plan *plan = engine->params.plan;
    bt_device_params params = {
        .account = engine->account,
        .lines = engine->params.lines,
        .threads_of = engine->params.beside ? engine->params.beside->device : NULL,
        .facts = engine->params.facts,
        .place = plan ? plan->place : NULL,
        .store = &engine->store,
        .reader = engine->reader,
        .ring_bytes = plan ? bt_sat_mul_u64(plan->n_slots, plan->slot_bytes) : 0,
        .replaces = plan && plan->layouts.n_replaced > 0,
        .derived_bytes = plan ? plan->ledger.bytes[BT_LINE_DERIVED] : 0,
        .n_threads = engine->params.n_threads,
        .n_ubatch = plan ? plan->n_ubatch : 1,
        .budget_bytes = plan ? plan->budget_bytes : UINT64_MAX / 2,
        .measuring = engine->params.measuring,
        .n_expert_slots = plan ? plan->n_expert_slots : 0,
        .experts_shared = plan && plan->experts_shared,
        .n_expert_extra = plan ? plan->n_expert_extra : 0,
        .may_cache = plan && plan->page_cache,
        .elastic = plan && plan->wishes.elastic != BT_OFF && plan->budget_bytes != UINT64_MAX,
    };
    return bt_device_open(&params, &engine->device, err);
}

/* Devices that hold nothing, in the place of those of the split: what libllama would ask of them is counted. */
static bt_status open_stand_ins(bt_engine *engine, bt_error *err) {
    uint64_t caps[BT_LINE_COUNT];
    uint32_t n = engine->params.facts->split.n_devices;
    if (!engine->params.measuring || n == 0) return BT_OK;
    for (int line = 0; line < BT_LINE_COUNT; line++)
        caps[line] = UINT64_MAX;
    BT_TRY(bt_account_open(caps, UINT64_MAX, &engine->stand_in_account, err));
    for (uint32_t i = 0; i < n; i++) {
        bt_device_params params = {.account = engine->stand_in_account,
                                   .threads_of = engine->device,
                                   .facts = engine->params.facts,
                                   .n_threads = engine->params.n_threads,
                                   .n_ubatch = 1,
                                   .budget_bytes = UINT64_MAX / 2,
                                   .measuring = true,
                                   .stands_in = i + 1};
        BT_TRY(bt_device_open(&params, &engine->stand_ins[i], err));
        bt_device_set_phase(engine->stand_ins[i], BT_PHASE_LOAD);
    }
    return BT_OK;
}

static void set_phase(bt_engine *engine, bt_device_phase phase) {
    bt_device_set_phase(engine->device, phase);
    for (uint32_t i = 0; i < BT_DEVICE_MAX; i++)
        if (engine->stand_ins[i]) bt_device_set_phase(engine->stand_ins[i], phase);
}

/* What of the model comes to us, whatever libllama would do with it: all of it, also the input layer, which it would
 * keep on the CPU; of a split what is not on other devices. Rope tables follow the blocks that use them. */
static bool host_pattern(const bt_facts *facts, bt_text *pattern) {
    uint32_t n_away = bt_split_blocks(&facts->split);
    if (facts->split.n_devices == 0) {
        bt_text_add(pattern, ".*");
        return !pattern->failed;
    }
    bt_text_add(pattern, facts->split.head ? "^(token_embd|position_embd|per_layer_token_embd|token_types)\\."
                                           : "^(?!blk\\.|rope_)");
    for (uint32_t b = n_away; b < facts->n_block_all && !facts->split.head; b++)
        bt_text_addf(pattern, "%s%u", b == n_away ? "|^blk\\.(" : "|", b);
    if (n_away < facts->n_block_all && !facts->split.head) bt_text_add(pattern, ")\\.");
    for (uint32_t b = 0; b < facts->split.n_cpu_moe && b < n_away; b++)
        bt_text_addf(pattern, "%s%u", b == 0 ? "|^blk\\.(" : "|", b);
    if (facts->split.n_cpu_moe > 0) bt_text_add(pattern, ")\\.ffn_(up|down|gate|gate_up)_(ch|)exps");
    return !pattern->failed;
}

/* libllama deals layers out by shares; the output layer is one more behind the last block, and goes with our share
 * unless the head is away. Its own float arithmetic gives these numbers back exactly: both sides are the same division
 * of small whole numbers. */
static void deal_layers(const bt_facts *facts, float *shares) {
    const bt_split *split = &facts->split;
    uint32_t n_away = bt_split_blocks(split), last = 0;
    for (uint32_t i = 0; i < split->n_devices; i++) {
        shares[i] = (float)split->n_blocks[i];
        if (split->n_blocks[i] > 0) last = i;
    }
    float rest = (float)(facts->n_block_all + 1 - n_away);
    shares[split->head ? last : split->n_devices] += rest;
}

static struct llama_model *load_from(bt_engine *engine, FILE *stream) {
    const bt_facts *facts = engine->params.facts;
    uint32_t n = facts->split.n_devices;
    ggml_backend_dev_t devices[BT_DEVICE_MAX + 2] = {NULL};
    float shares[BT_DEVICE_MAX + 2] = {0};
    bt_text pattern;
    bt_text_init(&pattern, PATTERN_MAX_BYTES);
    for (uint32_t i = 0; i < n; i++)
        devices[i] = engine->params.devices ? engine->params.devices[i] : bt_device_ggml(engine->stand_ins[i]);
    devices[n] = bt_device_ggml(engine->device);
    deal_layers(facts, shares);
    struct llama_model *model = NULL;
    if (host_pattern(facts, &pattern)) {
        struct llama_model_tensor_buft_override ours[] = {
            {bt_text_str(&pattern), bt_device_buffer_type(engine->device)}, {NULL, NULL}};
        struct llama_model_params params = llama_model_default_params();
        params.devices = devices;
        params.tensor_buft_overrides = ours;
        params.tensor_split = shares;
        params.n_gpu_layers = INT32_MAX / 2;
        params.load_mode = LLAMA_LOAD_MODE_NONE;
        params.lazy_mode = LLAMA_LAZY_MODE_OFF;
        params.use_extra_bufts = false;
        model = llama_model_load_from_file_ptr(stream, params);
    }
    bt_text_done(&pattern);
    return model;
}

/* The reason nearest to the cause: ours, the file's, or that libllama said no. */
static bt_status load_failure(bt_engine *engine, bt_model_file *file, bt_error *err) {
    bt_error found;
    if (bt_device_take_error(engine->device, &found) || bt_model_file_take_error(file, &found)) {
        if (err) *err = found;
        return found.status;
    }
    if (engine->params.devices) return bt_engine_device_failure("cannot hold its blocks", err);
    if (bt_engine_was_refused_memory())
        return bt_fail(err, BT_E_NOMEM, "llama_load", BT_MEASURE_NONE, 0, 0,
                       "the system refused llama.cpp memory to load %s; look at ulimit -v and ulimit -d",
                       engine->params.facts->path);
    return bt_fail(err, BT_E_FORMAT, "llama_load", BT_MEASURE_NONE, 0, 0,
                   "llama.cpp cannot load %s (architecture %s); --log-level debug shows its messages",
                   engine->params.facts->path, engine->params.facts->arch);
}

static bt_status load_model(bt_engine *engine, bt_error *err) {
    bt_model_file *file;
    FILE *stream;
    BT_TRY(bt_model_file_open(engine->params.facts, &engine->store, engine->params.measuring, &file, &stream, err));
    set_phase(engine, BT_PHASE_LOAD);
    bt_engine_forget_errors();
    engine->model = load_from(engine, stream);
    bt_status status = BT_OK;
    bt_error found;
    if (!engine->model) {
        status = load_failure(engine, file, err);
    } else if (bt_model_file_take_error(file, &found)) {
        /* The C library reads ahead in fseeko and drops that failure: libllama never heard, its weights are wrong. */
        if (err) *err = found;
        status = found.status;
    }
    (void)fclose(stream);
    bt_model_file_close(file);
    if (status == BT_OK && bt_device_take_error(engine->device, err)) status = err ? err->status : BT_E_DEVICE;
    return status;
}

static bt_status open_parts(bt_engine *engine, bt_error *err) {
    BT_TRY(open_account(engine, err));
    BT_TRY(open_store(engine, err));
    BT_TRY(open_device(engine, err));
    BT_TRY(open_stand_ins(engine, err));
    for (uint32_t i = 0; engine->params.devices && i < engine->params.facts->split.n_devices; i++)
        bt_device_reading(engine->params.devices[i], &engine->devices_before[i]);
    uint64_t heap_before = bt_engine_heap_bytes(engine), start_ns = bt_os_now_ns();
    BT_TRY(load_model(engine, err));
    bt_os_memory memory;
    bt_os_memory_read(&memory);
    engine->load.peak_rss_bytes = memory.peak_rss_bytes.value;
    (void)malloc_trim(0);
    engine->load.vocab_bytes = bt_sat_sub_u64(bt_engine_heap_bytes(engine), heap_before);
    bt_account_note(engine->account, line_of(engine, BT_LINE_VOCAB), engine->load.vocab_bytes);
    if (engine->params.check) BT_TRY(engine->params.check(engine, engine->params.check_user, err));
    engine->checked = true;
    BT_TRY(bt_device_start(engine->device, engine->params.progress, engine->params.progress_user, err));
    set_phase(engine, BT_PHASE_CONTEXT);
    engine->load.load_ns = bt_os_now_ns() - start_ns;
    return BT_OK;
}

bt_status bt_engine_open(const bt_engine_params *params, bt_engine **ret_engine, bt_error *err) {
    bt_engine *engine = bt_heap_alloc(sizeof *engine);
    if (!engine)
        return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, sizeof *engine, 0, "no memory for the engine");
    engine->params = *params;
    for (uint32_t i = 0; params->devices && i < params->facts->split.n_devices; i++)
        engine->devices[i] = params->devices[i];
    if (params->devices) engine->params.devices = engine->devices;
    bt_os_memory memory;
    bt_os_memory_read(&memory);
    engine->load.start_rss_bytes = memory.rss_bytes.value;
    engine->load.start_anon_bytes = memory.anon_bytes.value;
    bt_status status = open_parts(engine, err);
    if (status != BT_OK) {
        if (engine->checked && params->uncheck) params->uncheck(params->check_user);
        bt_engine_close(engine);
        return status;
    }
    *ret_engine = engine;
    return BT_OK;
}

void bt_engine_close(bt_engine *engine) {
    if (!engine) return;
    if (engine->model) llama_model_free(engine->model);
    bt_engine_log_end();
    for (uint32_t i = 0; i < BT_DEVICE_MAX; i++)
        bt_device_close(engine->stand_ins[i]);
    if (engine->stand_in_account) (void)bt_account_close(engine->stand_in_account);
    bt_device_close(engine->device);
    bt_reader_close(engine->reader);
    if (engine->store_open) bt_store_close(&engine->store);
    if (engine->account && !engine->params.beside && !bt_account_close(engine->account))
        bt_log(BT_LOG_WARN, "memory was left in the account when the engine closed");
    bt_heap_free(engine);
}

bt_status bt_engine_check(const bt_engine *engine, bt_error *err) {
    return bt_store_check(&engine->store, engine->params.facts, err);
}

struct llama_model *bt_engine_model(bt_engine *engine) {
    return engine->model;
}

bt_device *bt_engine_device(bt_engine *engine) {
    return engine->device;
}

bt_known bt_engine_device_held_bytes(const bt_engine *engine, uint32_t device) {
    bt_pool now;
    const bt_pool *before = &engine->devices_before[device];
    if (!engine->params.devices || before->state != BT_READING_REPORTED) return (bt_known){0};
    bt_device_reading(engine->params.devices[device], &now);
    if (now.state != BT_READING_REPORTED) return (bt_known){0};
    return (bt_known){true, bt_sat_sub_u64(before->free_bytes, now.free_bytes)};
}

bt_device *bt_engine_stand_in(bt_engine *engine, uint32_t device) {
    return engine->stand_ins[device];
}

bt_account *bt_engine_account(bt_engine *engine) {
    return engine->account;
}

const bt_reader *bt_engine_reader(const bt_engine *engine) {
    return engine->reader;
}

const bt_facts *bt_engine_facts(const bt_engine *engine) {
    return engine->params.facts;
}

const bt_engine_load *bt_engine_load_read(const bt_engine *engine) {
    return &engine->load;
}
