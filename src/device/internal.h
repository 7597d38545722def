/* SPDX-License-Identifier: MIT
 * internal.h: what the files of the memory device share. Not seen outside src/device. */
#pragma once

#include "device/device.h"
#include "store/experts.h"

#include "ggml-backend-impl.h"
#include "ggml-impl.h"
#include "ggml.h"

#include <pthread.h>
#include <stdatomic.h>

#define BT_NO_WEIGHT UINT32_MAX
/* Streamed units one operation may need at once: an operation has at most a few weights (fused gate and up). */
#define BT_SEGMENT_UNITS 4

/* ---- cpu.c: how nodes are computed ---- */

typedef struct bt_cpu bt_cpu;

/* What computing a run of nodes needs, found once when a schedule is built. */
typedef struct bt_cpu_plan {
    uint64_t work_bytes;
    int n_threads;
} bt_cpu_plan;

typedef struct bt_cpu_params {
    bt_account *account;
    bt_line line; /* of the work area */
    uint32_t n_threads;
    const bt_cpu *lender; /* whose threads compute, never at the same time; NULL: threads of its own */
    bool measuring;
} bt_cpu_params;

bt_status bt_cpu_open(const bt_cpu_params *params, bt_cpu **ret_cpu, bt_error *err);
void bt_cpu_close(bt_cpu *cpu);
ggml_backend_dev_t bt_cpu_device(const bt_cpu *cpu);
void bt_cpu_set_threads(bt_cpu *cpu, uint32_t n_threads);
void bt_cpu_set_abort(bt_cpu *cpu, ggml_abort_callback callback, void *user);
bt_cpu_plan bt_cpu_plan_make(bt_cpu *cpu, const struct ggml_cgraph *graph);
/* Make the work area at least this large. */
bt_status bt_cpu_reserve(bt_cpu *cpu, uint64_t work_bytes, bt_error *err);
/* Give a work area back that is larger. */
void bt_cpu_trim(bt_cpu *cpu, uint64_t work_bytes);
enum ggml_status bt_cpu_compute(bt_cpu *cpu, struct ggml_cgraph *graph, const bt_cpu_plan *plan);
/* In a work area of the caller's. */
enum ggml_status bt_cpu_compute_in(bt_cpu *cpu, struct ggml_cgraph *graph, const bt_cpu_plan *plan, void *work);

/* ---- buffers.c ---- */

typedef struct bt_lender bt_lender;
typedef struct bt_elastic bt_elastic;
typedef struct bt_repack bt_repack;

typedef struct bt_buffer {
    bt_device *device;
    ggml_backend_buffer_t ggml;
    bt_pool_buffer *memory;
    bool host, classified;
    uint64_t charged_bytes;
    bt_lender *lender; /* elastic.c; NULL: what it was charged it keeps */
    bt_error lost;     /* BT_OK, or why it does not hold what a guest wrote to it: graphs cannot use it */
    struct bt_buffer *next, *prev;
} bt_buffer;

void bt_buffers_init(bt_device *device);
/* Free what libllama did not: its loader leaves its staging behind when it fails. */
void bt_buffers_close(bt_device *device);
bool bt_buffer_is_ours(const bt_device *device, ggml_backend_buffer_t buffer);
bt_status bt_buffers_classify(bt_device *device, bt_error *err);
/* A guest's, before a graph runs: what it uses is charged, and holds what was written to it. */
bt_status bt_buffers_use(bt_device *device, const struct ggml_cgraph *graph, bt_error *err);

/* ---- weights.c: which tensor of the file a ggml tensor is, and where its bytes are ---- */

typedef struct bt_weights bt_weights;

bt_status bt_weights_open(bt_device *device, bt_weights **ret_weights, bt_error *err);
void bt_weights_close(bt_weights *weights);
/* Whose a tensor is. NO_MORE: what came of it before is the file's, this is not, and it is ordinary memory from now on,
 * into which bt_weights_fetch brings what came before. */
typedef enum bt_whose { BT_WHOSE_FILE, BT_WHOSE_OTHER, BT_WHOSE_NO_MORE } bt_whose;
/* libllama hands over (a part of) a weight. FILE: taken care of. Under graph_lock, as all that looks for tensors. */
bt_whose bt_weights_set(bt_weights *weights, const struct ggml_tensor *tensor, const void *data, uint64_t offset,
                        uint64_t bytes);
bt_status bt_weights_fetch(const bt_weights *weights, const struct ggml_tensor *tensor, void *dest, bt_error *err);
/* A buffer of weights is freed: the records of its tensors may come again as those of others. */
void bt_weights_forget(bt_weights *weights, const struct ggml_backend_buffer *buffer);
bool bt_weights_get(bt_weights *weights, const struct ggml_tensor *tensor, void *data, uint64_t offset, uint64_t bytes);
/* Index in facts->tensors of a ggml tensor that was handed over, or BT_NO_WEIGHT. */
uint32_t bt_weights_of(const bt_weights *weights, const struct ggml_tensor *tensor);
/* Where a weight stands when it is in memory for good, or NULL when it streams. */
void *bt_weights_resident(const bt_weights *weights, uint32_t weight);
/* Image of a unit in memory, pinned or elastic, or NULL. */
uint8_t *bt_weights_unit_image(const bt_weights *weights, uint32_t unit);
/* Offset of a tensor's byte in a unit's image. */
uint64_t bt_weights_image_offset(const bt_facts *facts, uint32_t unit, uint32_t weight, uint64_t byte);
bool bt_weights_unit_streams(const bt_weights *weights, uint32_t unit);
/* Pinned by the plan: its image never moves, and head panels follow each other. */
bool bt_weights_unit_is_pinned(const bt_weights *weights, uint32_t unit);
bt_status bt_weights_pin(bt_weights *weights, bt_device_progress progress, void *user, bt_error *err);
/* Tensors of the file that should have come here and did not; its name in *ret_name if any. */
uint32_t bt_weights_missing(const bt_weights *weights, const char **ret_name);

/* A unit's images in memory that it was given for good; NULL: it streams. */
bt_mapping *bt_weights_unit_mapping(const bt_weights *weights, uint32_t unit);
/* Whether any tensor of the file was handed over yet. */
bool bt_weights_any(const bt_weights *weights);

/* ---- guest.c: in a program that is not ours ---- */

typedef struct bt_guest bt_guest;

/* Sets device->guest; bt_guest_close undoes a failure too. After the weights. */
bt_status bt_guest_open(bt_device *device, bt_error *err);
void bt_guest_close(bt_device *device);
/* Before a buffer is made: when all weights have come, the device is started. Fails where some have not, and others are
 * where a context is being made for. */
bt_status bt_guest_before_buffer(bt_device *device, bool host, bt_error *err);
/* Is it this weight of the file, by bytes that are handed over? Read and compared, all of them when the device is
 * started: then a model was loaded, and this may be another. */
bool bt_guest_is_weight(bt_device *device, uint32_t weight, const void *data, uint64_t offset, uint64_t bytes);
/* A later piece was not this weight's. true: while the model is loaded for the first time, which is then wrong; no
 * context is made of it. */
bool bt_guest_refuses(bt_device *device, uint32_t weight);
/* No tensor of the file is left of all that came: the model is gone, and may be loaded again. */
void bt_guest_forget(bt_device *device);
/* What is pinned is read again when the device is started. */
void bt_guest_drop_pins(bt_device *device);
/* Bytes of a weight, on their way into memory: what is pinned of them is kept. */
bt_status bt_guest_fill(bt_device *device, uint32_t weight, const void *data, uint64_t offset, uint64_t bytes,
                        bt_error *err);
/* All bytes of a unit were kept. */
bool bt_guest_has_unit(const bt_device *device, uint32_t unit);
/* A failure is said, and is over: the next graph begins anew. */
void bt_guest_hear(bt_device *device);

/* ---- schedule.c: a graph walked once ---- */

typedef enum bt_segment_kind { BT_SEGMENT_PLAIN, BT_SEGMENT_ROWS, BT_SEGMENT_HEAD, BT_SEGMENT_EXPERTS } bt_segment_kind;

typedef struct bt_segment {
    bt_segment_kind kind;
    uint32_t first, n; /* nodes */
    uint32_t units[BT_SEGMENT_UNITS];
    uint32_t n_units;
    uint32_t first_bind, n_binds;
    uint32_t weight;                    /* ROWS, HEAD */
    uint32_t expert_block, expert_part; /* EXPERTS: of the first node */
    const struct ggml_tensor *ids;      /* EXPERTS: what the router chose */
    bt_cpu_plan plan;
} bt_segment;

/* clone->data = image of unit + offset, while the segment runs */
typedef struct bt_bind {
    struct ggml_tensor *clone;
    uint32_t unit;
    uint64_t image_offset;
} bt_bind;

typedef struct bt_schedule {
    uint64_t uid;
    uint64_t generation; /* the device's when it was built */
    uint64_t last_use;
    bt_mapping *memory;
    uint32_t n_nodes, n_leafs, n_segments, n_binds, n_order;
    struct ggml_tensor *clones; /* [n_nodes] */
    struct ggml_tensor *leafs;  /* [n_leafs] weights and views of weights */
    struct ggml_tensor **nodes; /* [n_nodes] */
    bt_segment *segments;
    bt_bind *binds;
    uint32_t *order;    /* streamed units in order of use */
    uint32_t n_columns; /* most that a product with a weight has: tokens, where each has one */
    struct ggml_cgraph graph;
} bt_schedule;

/* The schedule of a graph: found by its uid, or built. */
bt_status bt_schedule_get(bt_device *device, const struct ggml_cgraph *graph, bt_schedule **ret_schedule,
                          bt_error *err);
void bt_schedules_close(bt_device *device);

/* ---- lender.c: pages of a buffer that are, or will be, touched ---- */

/* Graphs during which memory must have been left alone before it is used for something else: the first token after a
 * prompt and the next. More costs as many passes that read everything; during a prompt nothing is taken, whatever this
 * is, because the cache grows by whole micro-batches. */
#define BT_CALM_GRAPHS 2u
/* Graphs of one pass that are told apart. libllama cuts a pass into more only when many operations fall to other
 * backends; then what was touched of a compute buffer is kept. */
#define BT_PASS_GRAPHS 16u

/* A window of the graphs of a buffer: two passes or more. Zero at first. */
typedef struct bt_lend_window {
    uint64_t uids[BT_PASS_GRAPHS]; /* of the last graphs */
    uint64_t n_graphs;             /* ever */
    uint64_t start;                /* n_graphs when the window was opened */
} bt_lend_window;

/* keeps: a cache, whose content outlives a graph. NULL: no memory. */
bt_lender *bt_lender_make(uint64_t bytes, bool keeps);
void bt_lender_free(bt_lender *lender);
bool bt_lender_keeps(const bt_lender *lender);
/* Bytes will be written. */
void bt_lender_mark(bt_lender *lender, uint64_t offset, uint64_t bytes);
/* All pages were dropped. */
void bt_lender_clear(bt_lender *lender);
/* Bytes of pages that were marked since the last call and not before. */
uint64_t bt_lender_take_fresh_bytes(bt_lender *lender);
/* Mark what a graph will write, in all buffers that lend. */
void bt_lenders_mark_graph(const bt_device *device, const struct ggml_cgraph *graph);
/* Before that, for each graph (uid 0: unknown): when the window of a compute buffer with its results is complete, what
 * it left of that is dropped and released. Under buffer_lock. */
void bt_lenders_follow(bt_device *device, const struct ggml_cgraph *graph);

/* ---- elastic.c: weights in memory that is planned for others and not used yet ---- */

/* Sets device->elastic; bt_elastic_close undoes a failure too. After the plan's pins are known. */
bt_status bt_elastic_open(bt_device *device, bt_error *err);
void bt_elastic_close(bt_device *device);
/* A buffer that was charged in full, and whose content is not needed yet, lends what it does not touch. */
bt_status bt_elastic_lend(bt_device *device, bt_buffer *buffer, bt_error *err);
void bt_elastic_forget(bt_device *device, bt_buffer *buffer);  /* before it is freed */
void bt_elastic_cleared(bt_device *device, bt_buffer *buffer); /* after its pages were dropped */
/* Bytes of a buffer are about to be written from outside a graph. */
bt_status bt_elastic_touch(bt_device *device, bt_buffer *buffer, uint64_t offset, uint64_t bytes, bt_error *err);
void bt_elastic_release_all(bt_device *device);
/* Before a graph runs: what it will touch is charged, units that stand in the way are given back. */
bt_status bt_elastic_prepare(bt_device *device, const struct ggml_cgraph *graph, bt_error *err);
/* While a unit is in a slot: it may be kept. */
void bt_elastic_offer(bt_device *device, uint32_t unit, const void *image);
/* After a graph: what it copied is held from now on, and what the next one should copy is chosen. */
void bt_elastic_settle(bt_device *device);
/* Image of a held unit, or NULL. */
uint8_t *bt_elastic_image(const bt_device *device, uint32_t unit);

/* ---- repack.c, replace.c: pinned weights in the layout that ggml's CPU kernels know beside the file's ---- */

/* Columns from which on the plain layout is the faster one of two: the tiled kernels start there (ggml-cpu/mmq, 8
 * rows), and measured (docs/decisions/016). */
#define BT_REPACK_COLUMNS 8

/* How a weight is held. */
typedef enum bt_held {
    BT_HELD_PLAIN,    /* as it stands in the file, or not at all */
    BT_HELD_TWICE,    /* and repacked beside it */
    BT_HELD_REPLACED, /* repacked in the plain one's place */
    BT_HELD_NOT       /* reading the plain one again failed: what is there is neither */
} bt_held;

struct bt_repack {
    ggml_backend_buffer_t buffer; /* of the type CPU_REPACK */
    bt_mapping *memory;           /* second layouts; NULL: there are none */
    bt_held *held;                /* [n_tensors] */
    uint64_t *offset;             /* [n_tensors] of a second layout in memory */
    void **extra;                 /* [n_tensors] ggml's kernels for it */
};

/* After the pins were read; sets device->repack, bt_repack_close undoes a failure too. */
bt_status bt_repack_open(bt_device *device, bt_error *err);
void bt_repack_close(bt_device *device);
/* A weight's first n_rows rows as ggml's buffer type takes them, without data; extra NULL: it repacks none of them. */
struct ggml_tensor bt_repack_tensor(const bt_repack *repack, const bt_tensor *facts, uint64_t n_rows);
#define BT_REPACK_WORKER_MAX 16u /* more than saturate the memory of one socket */
/* Call work on up to n threads at once, on this one among them. Threads that cannot be had are done without. */
void bt_repack_run(uint32_t n, void *(*work)(void *), void *user);
/* Whether this product should, or must, read the repacked layout of a weight. */
bool bt_repack_serves(const bt_device *device, const struct ggml_tensor *node, uint32_t weight);
/* Point a clone of the weight to it. */
void bt_repack_bind(const bt_device *device, uint32_t weight, struct ggml_tensor *clone);

/* Repack all pinned weights that gain by it in their own memory. */
bt_status bt_replace_all(bt_device *device, bt_error *err);
/* Before a schedule is built: replaced weights that the graph reads in another way than bt_repack_serves knows are read
 * again, plain from now on. */
bt_status bt_replace_prepare(bt_device *device, const struct ggml_cgraph *graph, bt_error *err);
/* What stands in a weight's memory is not what stands in the file. */
bool bt_replace_hides(const bt_device *device, uint32_t weight);

/* ---- tier.c: from the disk or from the page cache ---- */

/* Costs are nanoseconds in which the computing thread read or waited, for each MiB; 0: not measured. */
typedef struct bt_tier {
    bool cached;       /* now */
    uint32_t step;     /* of the trial */
    uint32_t n_passes; /* in a row that were slow, or since the cache was taken from us */
    bool was_taken;
    uint64_t disk_ns_per_mib, cached_ns_per_mib;
    uint64_t wait_ns, read_bytes; /* when the graph began */
} bt_tier;

/* Begin a trial; then after each pass what it cost, and whether it was one of few columns: cached is for the next. */
void bt_tier_start(bt_tier *tier);
void bt_tier_decide(bt_tier *tier, uint64_t ns_per_mib, bool is_few);
/* After the ring was opened. */
void bt_tier_open(bt_device *device);
/* Around a graph, the second when it went well: the next one reads from where it should. */
void bt_tier_before(bt_device *device);
void bt_tier_after(bt_device *device, const bt_schedule *schedule);

/* ---- moe.c: products over the slots of experts ---- */

typedef struct bt_moe {
    bt_experts *experts; /* NULL: no expert is read on its own, or measuring */
    uint32_t n_slots[BT_BLOCK_MAX];
    bool all_there; /* a slot for each, all read at the start */
    bt_mapping *memory;
    bt_expert_work work;
    uint32_t *wanted, *order; /* [n_expert] of the last request */
    bool *is_wanted;          /* [n_expert] */
    int64_t *places;          /* [n_ubatch] */
    uint32_t n_wanted;
    bool in_turn;                   /* the last request had more experts than slots */
    const struct ggml_tensor *ids;  /* the last request's; NULL: none in this graph */
    uint32_t block;                 /* the last request's */
    uint32_t routers[BT_BLOCK_MAX]; /* of each expert block, or BT_NO_WEIGHT */
    float *scores;                  /* [n_expert] scratch */
    uint32_t guesses[BT_EXPERT_GUESS_MAX];
    uint32_t n_guesses;
} bt_moe;

/* After the pins were read; bt_moe_close undoes a failure too. */
bt_status bt_moe_open(bt_device *device, bt_device_progress progress, void *user, bt_error *err);
void bt_moe_close(bt_device *device);
/* Which part of which expert block a tensor is; false: of none. */
bool bt_moe_find(const bt_facts *facts, uint32_t weight, uint32_t *ret_block, uint32_t *ret_part);
/* Make a clone of an expert tensor one of the block's slots. */
void bt_moe_bind(const bt_device *device, uint32_t weight, struct ggml_tensor *clone);
/* Give a product slot numbers in place of the router's; leaf: theirs. */
void bt_moe_number(const bt_device *device, struct ggml_tensor *node, struct ggml_tensor *leaf);
/* A graph begins. */
void bt_moe_begin(bt_device *device);
/* Before the first node of an EXPERTS segment: its experts are there. *ret_done: and it was computed, in turn. */
enum ggml_status bt_moe_prepare(bt_device *device, const bt_schedule *schedule, const bt_segment *segment,
                                bool *ret_done, bt_error *err);

/* ---- tokens.c: a few tokens, each as if it were alone ---- */

/* Whether bt_tokens_compute must compute this node. */
bool bt_tokens_split(const bt_device *device, const struct ggml_tensor *node);
/* like: the graph that it stands in; plan: of a segment with it. */
enum ggml_status bt_tokens_compute(bt_device *device, const struct ggml_cgraph *like, const bt_cpu_plan *plan,
                                   const struct ggml_tensor *node);

/* ---- rows.c, panels.c, compute.c ---- */

bt_status bt_rows_open(bt_device *device, bt_error *err);
void bt_rows_close(bt_device *device);
enum ggml_status bt_rows_compute(bt_device *device, bt_schedule *schedule, const bt_segment *segment, bt_error *err);
enum ggml_status bt_panels_compute(bt_device *device, bt_schedule *schedule, const bt_segment *segment, bt_error *err);
enum ggml_status bt_compute(bt_device *device, struct ggml_cgraph *graph);

/* ---- device.c ---- */

typedef struct bt_rows_window {
    bt_mapping *memory;  /* rows, then remapped ids, then the aligned scratch */
    uint64_t rows_bytes; /* room for rows */
    int32_t *ids;
    uint8_t *scratch;
    uint64_t scratch_bytes;
    uint32_t n_rows;
} bt_rows_window;

struct bt_device {
    struct ggml_backend_reg reg;
    struct ggml_backend_device dev;
    struct ggml_backend backend;
    struct ggml_backend_event event;
    struct ggml_backend_buffer_type buft, host_buft;
    char buft_name[24], host_buft_name[24]; /* libllama tells buffer types apart by name */
    bt_device_params params;
    bt_account *account;
    const bt_facts *facts;
    bt_pool_buffers *pool;
    bt_weights *weights;
    bt_elastic *elastic; /* NULL: everything that lends keeps its charge */
    bt_repack *repack;   /* NULL: plain layouts alone */
    bt_tier tier;
    bt_moe moe;
    bt_guest *guest; /* NULL: the program is ours */
    bt_cpu *cpu;
    bt_ring *ring;
    bt_ring_unit *ring_units;
    const bt_schedule *ring_order_of; /* whose order the ring has */
    uint64_t ring_order_uid;
    bt_rows_window rows;
    bt_buffer *buffers;
    bt_schedule schedules[BT_SCHEDULE_MAX];
    uint64_t generation; /* schedules of an older one are built again */
    uint64_t clock;
    bool token_by_token;             /* bt_device_set_token_by_token */
    bool same_rows[GGML_TYPE_COUNT]; /* bt_device_learn_same_rows */
    bt_device_stats stats;
    bt_device_phase phase;
    pthread_mutex_t graph_lock;  /* one graph at a time */
    pthread_mutex_t buffer_lock; /* buffer list */
    pthread_mutex_t error_lock;
    bool has_error;
    bt_error error;
    bool (*should_abort)(void *);
    void *abort_user;
};

/* What the account calls a line of this device. */
static inline bt_line bt_device_line(const bt_device *device, bt_line line) {
    return device->params.lines ? device->params.lines[line] : line;
}
/* The engine asked for the running graph to be stopped. */
bool bt_device_stop_asked(const bt_device *device);
/* Keep the first failure for bt_device_take_error. */
void bt_device_fail(bt_device *device, const bt_error *err);
void bt_backend_init(bt_device *device);
