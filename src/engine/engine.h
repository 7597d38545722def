/* SPDX-License-Identifier: MIT
 * engine.h: a model loaded as its plan says: account, files, reader, memory device and libllama's model, in one thing.
 */
#pragma once

#include "burthen.h"
#include "device/device.h"
#include "memory/account.h"
#include "store/reader.h"

struct llama_model;

typedef struct bt_engine bt_engine;

typedef struct bt_engine_params {
    const bt_facts *facts;
    const bt_plan *plan; /* NULL when measuring */
    bt_reader_kind reader;
    /* As the disk is read best. 0 = BT_DISK_DEPTH, BT_DISK_REQUEST_BYTES */
    uint32_t reader_depth, reader_request_bytes;
    uint32_t n_threads;
    /* The devices of facts->split, [n_devices]. When measuring NULL: devices that hold nothing stand in for them. */
    struct ggml_backend_device *const *devices;
    bool measuring; /* a dry run: nothing is read but the header, nothing computed */
    /* A second model in one process: it is charged to the first one's account, to lines of its own ([BT_LINE_COUNT],
     * what each line is called there), computes with its threads, never at the same time, and is closed before it.
     * NULL: an account and threads of its own. */
    bt_engine *beside;
    const bt_line *lines;
    bt_device_progress progress;
    void *progress_user;
    /* Asked when the vocabulary is there and no weight was read: a failure ends the opening, and is its failure. NULL
     * is fine. */
    bt_status (*check)(bt_engine *engine, void *user, bt_error *err);
    /* When opening fails after that: what check opened beside this engine is closed. NULL is fine. */
    void (*uncheck)(void *user);
    void *check_user;
} bt_engine_params;

/* What loading left behind, measured. */
typedef struct bt_engine_load {
    uint64_t start_rss_bytes, start_anon_bytes; /* before the model was opened */
    uint64_t vocab_bytes;                       /* heap that libllama keeps: vocabulary, tensor structs */
    uint64_t peak_rss_bytes;                    /* of the process so far, with the loader's transients */
    uint64_t load_ns;
} bt_engine_load;

/* Lead llama.cpp's log into ours, before anything of it is called. Any number of times. */
void bt_engine_log_init(void);
void bt_engine_log_end(void); /* the line that has not ended yet, if there is one */
/* Once per process, before the first model: ggml's registry, the log, the code of every library brought in. What the
 * process holds afterwards is the line host/base. */
BT_MUST_CHECK bt_status bt_engine_init(bt_error *err);
/* ggml aborts where it cannot go on, for instance when it is refused memory in the middle of a graph. call is given its
 * message (file, line, reason) first, on any thread, and may end the process in its own way. */
void bt_engine_on_abort(void (*call)(const char *message));
/* libllama or ggml were refused memory by the system, at any time before. */
bool bt_engine_was_refused_memory(void);
/* What llama.cpp says of itself: "ggml 0.25.3". */
const char *bt_engine_build_version(void);

BT_MUST_CHECK bt_status bt_engine_open(const bt_engine_params *params, bt_engine **ret_engine, bt_error *err);
void bt_engine_close(bt_engine *engine); /* NULL is fine */

struct llama_model *bt_engine_model(bt_engine *engine);
bt_device *bt_engine_device(bt_engine *engine);
/* What a device of the split has less free than before the model was opened: weights, caches, graphs, and what its
 * driver took for them; also what others took meanwhile. Unknown where it does not say. */
bt_known bt_engine_device_held_bytes(const bt_engine *engine, uint32_t device);
/* BT_E_DEVICE, code "device_failed": what a device of the split did, with the first error that llama.cpp logged since
 * its errors were forgotten, on any thread. */
void bt_engine_forget_errors(void);
BT_MUST_CHECK bt_status bt_engine_device_failure(const char *what, bt_error *err);
/* What stands in for a device of the split while measuring. */
bt_device *bt_engine_stand_in(bt_engine *engine, uint32_t device);
bt_account *bt_engine_account(bt_engine *engine);
const bt_reader *bt_engine_reader(const bt_engine *engine); /* NULL when measuring */
const bt_engine_load *bt_engine_load_read(const bt_engine *engine);
const bt_facts *bt_engine_facts(const bt_engine *engine);
/* The model's files are still those that were planned for: BT_E_IO, code "model_changed", when one was written to or
 * truncated since. A file replaced by another of its name stays readable through our descriptors, and is no error. */
BT_MUST_CHECK bt_status bt_engine_check(const bt_engine *engine, bt_error *err);
/* Heap of this process that no mapping of ours explains, now. */
uint64_t bt_engine_heap_bytes(bt_engine *engine);
