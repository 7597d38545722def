/* SPDX-License-Identifier: MIT
 * device.h: the memory device: a ggml backend that decides where weights live and when a graph is computed.
 *
 * libllama puts a model's blocks on it as it would on a graphics card. The device accounts every buffer, keeps the
 * pinned units in memory, passes the others through the ring while the CPU backend computes, reads single rows of
 * tables, and answers every failure with a status that libllama turns into a failed call.
 *
 *     bt_device_open -> llama loads -> bt_device_start (pins, ring) -> llama_init_from_model -> llama_decode ...
 *
 * In measuring mode nothing is read and nothing computed: buffers only reserve address space, and graphs are walked to
 * learn what computing them would touch (docs/design.md section 6b). */
#pragma once

#include "burthen.h"
#include "memory/account.h"
#include "memory/pool.h"
#include "store/experts.h"
#include "store/file.h"
#include "store/reader.h"
#include "store/ring.h"

/* ggml's own types (ggml-backend.h), which are seen only in src/device and src/engine. */
struct ggml_backend_device;
struct ggml_backend_buffer_type;

typedef struct bt_device bt_device;

/* Which line a new buffer belongs to cannot be seen from its size: the engine says what libllama is doing. */
typedef enum bt_device_phase { BT_PHASE_LOAD, BT_PHASE_CONTEXT, BT_PHASE_COMPUTE } bt_device_phase;

/* Graphs that are known again: a micro-batch of a prompt, the rest of a prompt, a token. A graph with a larger view of
 * the cache takes the place of the one longest unused. Their memory is planned: this many of the largest. */
#define BT_SCHEDULE_MAX 3

typedef struct bt_device_params {
    bt_account *account;   /* outlives the device */
    const bt_line *lines;  /* [BT_LINE_COUNT] what the account calls each line; NULL: as it is called. Outlives it */
    const bt_facts *facts; /* outlives the device */
    const bt_place *place; /* [facts->n_units]; NULL when measuring: everything streams */
    const bt_store *store; /* NULL when measuring */
    bt_reader *reader;     /* NULL when measuring */
    uint64_t ring_bytes;   /* 0: nothing streams */
    uint32_t n_threads;
    uint32_t n_ubatch;     /* rows window of tables */
    uint64_t budget_bytes; /* what ggml is told this device has */
    bool measuring;
    uint32_t
        stands_in; /* for the device of this number, from 1, of the facts' split, while measuring: it holds nothing */
    bool replaces; /* pinned weights that gain by it are held in another layout than the file's (P8) */
    uint64_t derived_bytes;                  /* for second layouts of pinned weights (docs/design.md S6); 0: none */
    uint32_t n_expert_slots, n_expert_extra; /* of each block with experts; the first n_expert_extra have one more */
    bool experts_shared;                     /* the blocks share n_expert_slots */
    bool may_cache;        /* the system has room for all that streams beside the budget: its page cache may serve */
    bool elastic;          /* memory that the context does not use yet holds streamed units (docs/design.md S5) */
    bt_device *threads_of; /* whose compute threads are used, never at the same time; outlives the device. NULL: own */
    /* A program that is not ours loads the model, from the file itself: weights come with their bytes, nobody says what
     * phase it is (guest.c), and failures are told to heard, each once, as soon as they are known: under a lock, so
     * that it may not call back, as ran may. Not together with measuring. */
    bool guest;
    void (*heard)(const bt_error *err, void *user);
    void (*ran)(void *user); /* after each graph; NULL is fine */
    void *guest_user;
} bt_device_params;

/* Where streamed units come from now, and what both ways cost: nanoseconds a MiB, in which the computing thread read or
 * waited; 0: not measured. */
typedef struct bt_tier_stats {
    bool cached;
    uint64_t disk_ns_per_mib, cached_ns_per_mib;
} bt_tier_stats;

typedef struct bt_device_stats {
    uint64_t graphs, schedules_built, schedules_reused, segments;
    uint64_t compute_ns;     /* inside the CPU backend */
    uint64_t wait_ns;        /* waiting for units and rows, and starting to read others */
    uint64_t rows_read;      /* rows of tables read from disk */
    uint64_t work_bytes;     /* largest CPU work area asked for */
    uint64_t schedule_bytes; /* largest schedule built */
} bt_device_stats;

/* Units in memory that others do not use yet. */
typedef struct bt_elastic_stats {
    uint32_t held;            /* now */
    uint64_t taken, released; /* ever */
} bt_elastic_stats;

BT_MUST_CHECK bt_status bt_device_open(const bt_device_params *params, bt_device **ret_device, bt_error *err);
/* After the last context and model that used it. NULL is fine. */
void bt_device_close(bt_device *device);

struct ggml_backend_device *bt_device_ggml(bt_device *device);
struct ggml_backend_buffer_type *bt_device_buffer_type(bt_device *device);

void bt_device_set_phase(bt_device *device, bt_device_phase phase);
/* Give every buffer that was made since the last call its line, now that its use is known, and charge it. */
BT_MUST_CHECK bt_status bt_device_classify(bt_device *device, bt_error *err);

/* After the model is loaded: read the pinned units (progress: called with done and total bytes; returning false
 * cancels), open the ring and the rows window. Fails with BT_E_FORMAT, code "weights_elsewhere", when a tensor of the
 * file did not come to this device. */
typedef bool (*bt_device_progress)(uint64_t done_bytes, uint64_t total_bytes, void *user);
BT_MUST_CHECK bt_status bt_device_start(bt_device *device, bt_device_progress progress, void *user, bt_error *err);

/* The first failure that a ggml callback could not return, or that made a graph fail. Cleared by reading it. */
bool bt_device_take_error(bt_device *device, bt_error *err);
/* true stops the running graph at the next node; called from any thread. */
void bt_device_set_abort(bt_device *device, bool (*should_abort)(void *), void *user);

/* Whether up to BT_TOKEN_BY_TOKEN_MAX tokens are computed so that their results are those of single steps to the bit
 * (docs/design.md S2). From 8 on ggml's kernels for prompts set in. */
#define BT_TOKEN_BY_TOKEN_MAX 7
void bt_device_set_token_by_token(bt_device *device, bool on);
/* Learn, before that is asked for the first time, of which types several columns can be multiplied at once: tried on
 * the model's own weights. Without it every product is computed token by token. After the start. */
BT_MUST_CHECK bt_status bt_device_learn_same_rows(bt_device *device, bt_error *err);

void bt_device_stats_read(bt_device *device, bt_device_stats *ret);
void bt_device_experts_stats_read(bt_device *device, bt_experts_stats *ret);
/* For tests, which hold simulations of a cache to it: called with each request for experts. */
void bt_device_set_expert_trace(bt_device *device, bt_experts_trace trace, void *user);
void bt_device_tier_stats_read(bt_device *device, bt_tier_stats *ret);
void bt_device_elastic_stats_read(bt_device *device, bt_elastic_stats *ret);
/* Weights that are in another layout now: fewer than planned where ggml does not repack here, or a graph needed a plain
 * one. */
void bt_device_layouts_read(bt_device *device, bt_layouts *ret);
/* The bare reader: all that streamed last, once, in the same order through the same ring, and nothing computed. It
 * begins and ends with a full ring and an idle disk, so that bytes and time belong together. ret_bytes: 0 where nothing
 * streams. BT_E_IO as bt_ring_acquire; BT_E_CANCELLED when stopped. */
BT_MUST_CHECK bt_status bt_device_read_pass(bt_device *device, uint64_t *ret_bytes, uint64_t *ret_ns, bt_error *err);
/* Wait until nothing is being read ahead. */
BT_MUST_CHECK bt_status bt_device_read_settle(bt_device *device, bt_error *err);
void bt_device_pool_report(bt_device *device, bt_pool_report *ret);
/* Bytes that all live buffers of a line were asked for (measuring). */
uint64_t bt_device_line_asked_bytes(bt_device *device, bt_line line);
/* Of those, what was asked for in the host's memory: the same, unless the device stands in for another. */
uint64_t bt_device_host_asked_bytes(bt_device *device, bt_line line);

/* The tag that stands in the virtual model file where a tensor's bytes are left out: BT_TAG_BYTES at its start. */
#define BT_TAG_BYTES 16u
void bt_device_tag_write(uint32_t tensor, uint8_t tag[BT_TAG_BYTES]);
