/* SPDX-License-Identifier: MIT
 *
 * burthen.h: the public header of libburthen.
 *
 * Burthen gives local language models a memory budget, and keeps it. The library is a row of stages with plain data
 * between them; no stage keeps a pointer into another, so each of them can be a file:
 *
 *   probe -> bt_machine --.
 *   model -> bt_facts  ----+-> plan -> bt_plan -> (device, engine) -> report
 *   wishes (flags, config)-'
 *
 * Conventions. Sizes are uint64_t bytes and end in _bytes; counts are uint32_t and start with n_; other units are the
 * last word of the name. Unknown is a state (bt_known), never zero. Every fallible call returns a bt_status and fills
 * the bt_error given to it, if any, only on failure; outputs are named ret_ and set only on success. The library never
 * prints, exits or aborts on input.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BT_VERSION "0.1.0"

#if defined(__GNUC__)
#define BT_MUST_CHECK        __attribute__((warn_unused_result))
#define BT_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define BT_MUST_CHECK
#define BT_PRINTF(fmt, args)
#endif

/* ---- errors ------------------------------------------------------------------------------------------------- */

/* name, text for a person, exit code of the command line (docs/interfaces.md) */
#define BT_STATUS_MAP(X)                                                                                               \
    X(OK, "ok", 0)                                                                                                     \
    X(E_ARG, "bad argument", 2)                                                                                        \
    X(E_LIMIT, "over a fixed limit", 4)                                                                                \
    X(E_BUDGET, "over the memory budget", 3)                                                                           \
    X(E_NOMEM, "the system refused memory", 1)                                                                         \
    X(E_IO, "input/output error", 1)                                                                                   \
    X(E_FORMAT, "malformed data", 4)                                                                                   \
    X(E_UNSUPPORTED, "not supported", 1)                                                                               \
    X(E_DEVICE, "device failure", 1)                                                                                   \
    X(E_STALE, "plan does not match", 3)                                                                               \
    X(E_CANCELLED, "cancelled", 130)

typedef enum bt_status {
#define X(name, text, exit_code) BT_##name,
    BT_STATUS_MAP(X)
#undef X
        BT_STATUS_COUNT
} bt_status;

/* What bt_error's need and have are counted in. */
typedef enum bt_measure {
    BT_MEASURE_NONE,
    BT_MEASURE_BYTES,
    BT_MEASURE_TOKENS,
    BT_MEASURE_ITEMS,
} bt_measure;

/* What went wrong, with the two numbers that disagreed. Fixed size: reporting that memory is out must not allocate. */
typedef struct bt_error {
    bt_status status;
    bt_measure measure;
    uint64_t need;  /* what the step asked for */
    uint64_t have;  /* what there was */
    int sys;        /* errno of the call that failed, 0 if none */
    char code[48];  /* stable key; docs/errors.md lists them all */
    char text[400]; /* one sentence for a person; its wording may change */
} bt_error;

/* A number that may be unknown. {0} is unknown. */
typedef struct bt_known {
    bool known;
    uint64_t value;
} bt_known;

/* ---- machine: what there is (docs/interfaces.md, machine.json) ------------------------------------------------ */

#define BT_POOL_MAX         16 /* llama.cpp schedules over at most 16 backends (GGML_SCHED_MAX_BACKENDS) */
#define BT_CGROUP_LEVEL_MAX 32 /* deepest cgroup chain that is read; deeper is an error, not a guess */

typedef enum bt_pool_kind {
    BT_POOL_HOST,
    BT_POOL_GPU,
    BT_POOL_IGPU,
    BT_POOL_RPC,
    BT_POOL_ACCEL,
} bt_pool_kind;

typedef enum bt_pool_state {
    BT_READING_ABSENT,
    BT_READING_REPORTED,
    BT_READING_FAILED,
    BT_READING_UNLIMITED,
} bt_pool_state;

typedef struct bt_pool {
    char name[32]; /* "host", "CUDA0", "Vulkan0", "RPC0" ... */
    bt_pool_kind kind;
    bt_pool_state state;
    char reason[160];     /* why the state is FAILED, else empty */
    uint64_t free_bytes;  /* what a new allocation can get now; only when REPORTED */
    uint64_t total_bytes; /* only when REPORTED */
    bool clamped;         /* free was over total and was cut down to it */
    bool shares_host;     /* unified memory: counted inside the host pool */
    bt_known limit;       /* bytes: the tightest cgroup limit or rlimit over the pool, if any */
    char limit_source[192];
    char pci[24];    /* a device's place, "0000:01:00.0": what one source says is joined to another by it; or empty */
    char device[96]; /* what it calls itself; empty: not known */
    char source[32]; /* who was asked: "NVML", "amdgpu sysfs"; empty: not said */
} bt_pool;

/* One directory of the memory cgroup chain, leaf first. */
typedef struct bt_cgroup_level {
    char path[192];             /* below the mount point; cut with "..." in the middle when longer */
    bt_known limit;             /* memory.max, memory.high when lower, or memory.limit_in_bytes; unknown = no limit */
    uint64_t usage_bytes;       /* memory.current or memory.usage_in_bytes */
    uint64_t reclaimable_bytes; /* clean file cache the kernel drops before it kills: inactive_file + active_file */
    char limit_file[40];        /* where the limit was read: "memory.high"; empty when there is none */
    uint32_t depth;             /* names in the group's whole path; 0: the root of the hierarchy, or not known */
    uint64_t promised_bytes;    /* promised to other budgets inside this group, and not touched yet */
} bt_cgroup_level;

#define BT_RESERVATION_MAX 64 /* other budgets that are listed; the sums hold all of them */

/* Another process of this user that runs under a budget (probe/reservations.h). */
typedef struct bt_reservation {
    uint32_t pid;
    char command[16]; /* "run", "perplexity" */
    uint64_t promised_bytes, resident_bytes;
} bt_reservation;

typedef enum bt_disk_kind {
    BT_DISK_UNKNOWN,
    BT_DISK_SOLID,
    BT_DISK_ROTATING, /* or so the kernel says: bt_disk_rotates */
    BT_DISK_NETWORK,
    BT_DISK_MEMORY, /* tmpfs */
} bt_disk_kind;

/* What the model's file lies on, and how it is read best. */
typedef struct bt_disk {
    bt_disk_kind kind;
    char name[32];                 /* "nvme0n1p2", "nfs"; empty: unknown */
    char id[40];                   /* of its file system, stable over reboots; empty: unknown */
    uint32_t depth, request_bytes; /* requests in flight, and how large they are; 0: not measured */
    uint64_t bytes_per_s;          /* read so; 0: not measured */
} bt_disk;

/* It rotates, and what was measured does not speak against it. */
bool bt_disk_rotates(const bt_disk *disk);

typedef struct bt_machine {
    bt_pool pools[BT_POOL_MAX]; /* pools[0] is the host */
    uint32_t n_pools;
    uint32_t cgroup_version; /* 0 none, 1, 2 */
    bt_cgroup_level cgroup[BT_CGROUP_LEVEL_MAX];
    uint32_t n_cgroup_levels;
    char cgroup_reason[160]; /* why there is a chain that could not be read (version 0), else empty */
    bt_reservation reservations[BT_RESERVATION_MAX];
    uint32_t n_reservations;       /* listed */
    uint64_t promised_bytes;       /* by all other budgets, listed or not */
    uint64_t untouched_bytes;      /* of that, not in memory yet: free_bytes still counts it */
    char reservations_reason[160]; /* why other budgets are not known, else empty */
    bt_known swap_free_bytes;      /* shown; never part of a budget */
    bt_known memlock_bytes;        /* RLIMIT_MEMLOCK; unknown = unlimited */
    bt_disk disk;                  /* of the model's file */
    bt_known disk_bytes_per_s;     /* read bandwidth of the model's disk */
    bool disk_measured;            /* measured here, rather than given */
    bt_known memory_bytes_per_s;
    uint32_t n_threads; /* cores this process may run on, or its CPU quota when lower; 0 = unknown */
} bt_machine;

/* The machine as it is now. Nothing is cached; unknown is a state.
 * root   prefix of every /proc and /sys path ("" = this machine); tests give recorded trees. With a root that is not
 *        empty, rlimits and cores are read from ROOT/proc/self/limits and ROOT/proc/self/status too.
 * Never fails for a missing file: what cannot be read is unknown. BT_E_ARG for a root that is no directory. */
BT_MUST_CHECK bt_status bt_machine_probe(const char *root, bt_machine *ret_machine, bt_error *err);
/* Add the devices beside the host to a machine that was probed. Apart, since it opens the driver's library, which takes
 * time and memory that only those pay who want to know. BT_E_NOMEM: the machine is as before. */
BT_MUST_CHECK bt_status bt_machine_devices_probe(const char *root, bt_machine *machine, bt_error *err);

/* ---- facts: what a model file needs ---------------------------------------------------------------------------- */

#define BT_BLOCK_MAX   512   /* llama.cpp: LLAMA_MAX_LAYERS */
#define BT_SHARD_MAX   1024  /* GGUF split files; the largest published set has under 200 */
#define BT_TENSOR_MAX  65536 /* tensors over all shards; the largest published model has under 3,000 */
#define BT_SMALL_BYTES 65536 /* a tensor smaller than this is always in memory (docs/design.md P3) */
/* A group of tensors larger than this becomes one unit per tensor: half of what the reader keeps in flight (8 requests
 * of 1 MiB, docs/design.md M8), so that a larger unit would only cost ring space. */
#define BT_UNIT_SPLIT_BYTES (4u << 20)
/* Rows of a head panel are a multiple of this: the largest row tile of ggml's CPU matrix kernels. */
#define BT_PANEL_ROW_ALIGN 64u
#define BT_PAGE_BYTES      4096u /* O_DIRECT alignment that every Linux block device accepts */
#define BT_NO_UNIT         UINT32_MAX
/* Vocabularies are compared by hashes of runs of tokens: 8 bytes for 256 tokens, 8 KiB for the largest published one.
 * The first five are left out, as llama.cpp does: they are begin, end and unknown, under names of their own. */
#define BT_VOCAB_MARK       256u
#define BT_VOCAB_MARK_FIRST 5u /* llama.cpp common/speculative.cpp: SPEC_VOCAB_CHECK_START_TOKEN_ID */

typedef enum bt_unit_kind {
    BT_KIND_ATTENTION,    /* the large attention (or recurrent mixer) tensors of a block, or one of them */
    BT_KIND_FEED_FORWARD, /* the large feed-forward tensors of a block, or one of them */
    BT_KIND_HEAD,         /* a row panel of the output projection (of the tied table, if the head is tied) */
    BT_KIND_TABLE,        /* a table looked up by rows: token embedding, positions */
    BT_KIND_OTHER,        /* large and outside the blocks, used in every pass */
} bt_unit_kind;

typedef enum bt_tensor_role {
    BT_ROLE_SMALL,   /* always in memory: norms, biases, routers, rope factors, anything under BT_SMALL_BYTES */
    BT_ROLE_UNIT,    /* belongs to exactly one unit */
    BT_ROLE_EXPERTS, /* of a mixture: its experts are read and kept one by one (bt_expert_block) */
    BT_ROLE_TABLE,   /* read by rows */
    BT_ROLE_HEAD,    /* output projection: its rows are the BT_KIND_HEAD units */
    BT_ROLE_TIED,    /* token embedding that is also the head: read by rows and as BT_KIND_HEAD units, held once */
    BT_ROLE_UNUSED,  /* in the file, not loaded (MTP blocks) */
    BT_ROLE_AWAY,    /* stands on another device (bt_facts_split): nothing of it is in the host's memory */
} bt_tensor_role;

/* What the kernels of x86 with AVX2 know of a weight beside its layout in the file (docs/design.md P8, S6). */
typedef enum bt_layout {
    BT_LAYOUT_PLAIN,   /* nothing */
    BT_LAYOUT_SECOND,  /* another, as large, faster for single tokens alone: held beside the plain one */
    BT_LAYOUT_REPLACED /* another, as large, faster for prompts as well: held instead of the plain one */
} bt_layout;

/* Rows that such a layout interleaves with each other: a matrix has a multiple of them (ggml-cpu/repack.cpp, AVX2). */
#define BT_LAYOUT_ROWS 8u

/* Weights that are held in another layout than the file's. */
typedef struct bt_layouts {
    uint32_t n_replaced, n_second;
    uint64_t replaced_bytes, second_bytes;
} bt_layouts;

typedef struct bt_tensor {
    const char *name;
    uint32_t type; /* ggml type number */
    uint32_t n_dims;
    uint64_t ne[4];       /* elements per dimension, ne[0] fastest */
    uint64_t bytes;       /* without padding */
    uint64_t row_bytes;   /* bytes of ne[0] elements */
    uint64_t file_offset; /* absolute, in its shard */
    uint32_t shard;
    int32_t block; /* N of "blk.N.", or -1 */
    bt_tensor_role role;
    uint32_t unit;  /* first unit it belongs to, or BT_NO_UNIT */
    uint8_t device; /* 1 + the device of a split that holds it; 0: the host does */
    bt_layout layout;
} bt_tensor;

/* A run of a file that is read as a whole. Both ends lie on pages; the file's end may cut the last page short. */
typedef struct bt_extent {
    uint32_t shard;
    uint64_t file_offset;  /* multiple of BT_PAGE_BYTES */
    uint64_t bytes;        /* multiple of BT_PAGE_BYTES */
    uint64_t image_offset; /* where it stands in the unit's image (in the ring, or pinned) */
} bt_extent;

/* The smallest thing that is placed. Its image is its extents one after another: image_bytes long. */
typedef struct bt_unit_facts {
    char name[56]; /* "blk.7.attn", "blk.7.ffn", "blk.7.ffn_up", "head.3", "token_embd" */
    bt_unit_kind kind;
    int32_t block;                    /* -1 outside the blocks */
    uint64_t bytes;                   /* of its tensors (of its rows, for a panel) */
    uint64_t image_bytes;             /* with the page margins of its extents: what it takes of the ring */
    uint32_t first_tensor, n_tensors; /* in bt_facts.unit_tensors */
    uint32_t first_extent, n_extents; /* in bt_facts.extents */
    uint64_t row_first, n_rows;       /* BT_KIND_HEAD only */
} bt_unit_facts;

/* What one block keeps between tokens: KV of every token (widths 0: none), a state of every sequence, or both. */
typedef struct bt_kv_block {
    uint32_t k_width, v_width;      /* elements per token: heads x head size; latent attention has no values */
    uint32_t window;                /* sliding window in tokens; 0 = the whole context */
    uint32_t conv_width, ssm_width; /* F32 elements per sequence: inputs of the convolution, state of the recurrence */
} bt_kv_block;

/* One tensor of a block's experts. */
typedef struct bt_expert_part {
    uint32_t tensor;      /* in bt_facts.tensors; its last dimension counts the experts */
    uint64_t slice_bytes; /* of one expert */
    uint64_t slot_offset; /* its region in a slot: pages */
    uint32_t shift;       /* where in the region the slice stands: the same for all experts */
} bt_expert_part;

#define BT_EXPERT_PART_MAX 4u

/* The experts of a block. A slot holds one of them. */
typedef struct bt_expert_block {
    uint32_t block;
    bt_expert_part parts[BT_EXPERT_PART_MAX]; /* gate, up (or both in one), down */
    uint32_t n_parts;
    uint64_t expert_bytes; /* of one expert, all its parts */
    uint64_t slot_bytes;   /* pages */
} bt_expert_block;

typedef struct bt_shard {
    const char *path;
    uint64_t file_bytes;
    uint64_t data_offset;        /* where the tensor data starts */
    uint64_t kv_end;             /* end of the key-value section: start of the tensor table */
    uint64_t split_count_offset; /* of the value of split.count, a u16; 0 = not a shard of a set */
    int64_t mtime_ns;
    uint64_t device, inode; /* identity, to notice a file replaced under us */
} bt_shard;

/* Devices beside the host that one model may be spread over: what ggml schedules over, less the memory device and the
 * CPU (GGML_SCHED_MAX_BACKENDS = 16). */
#define BT_DEVICE_MAX 14u

/* Which blocks stand on which devices: the first n_blocks[0] on the first one, the next n_blocks[1] on the second, and
 * so on; the others on the host. */
typedef struct bt_split {
    uint32_t n_devices; /* 0: everything is on the host */
    uint32_t n_blocks[BT_DEVICE_MAX];
    /* And on the last device what is outside the blocks, but for tables that are read by rows. Of a table that is also
     * the head the device gets a copy of its own; where bt_facts.head_stays it cannot. */
    bool head;
    uint32_t n_cpu_moe; /* of the first n_cpu_moe blocks the experts are on the host all the same */
} bt_split;
uint32_t bt_split_blocks(const bt_split *split); /* on all devices; saturates */

/* Everything is owned by the facts' arena; one bt_facts_close frees it all. */
typedef struct bt_facts {
    const char *path; /* as given */
    const char *arch; /* general.architecture */
    const char *name; /* general.name, or "" */
    const char *tokenizer, *tokenizer_pre;
    bool has_chat_template;
    uint32_t n_ctx_train, n_embd, n_vocab, n_ff, n_expert, n_expert_used;
    uint32_t n_block;     /* blocks that are loaded (MTP blocks are not) */
    uint32_t n_block_all; /* with those */
    uint32_t n_head;      /* query heads of block 0 */
    bool tied_head;
    bool head_stays;    /* tied, in an architecture that knows the head by no other name than the table's */
    bool kv_known;      /* false: an architecture whose KV the formulas do not know */
    char kv_reason[96]; /* why not */
    bool kv_exact;      /* kv[] is the whole of it */
    bool encoder;       /* turns text into vectors: no cache, no generation */
    bool latent;        /* latent attention (MLA): one row for all heads serves as key and value */
    uint32_t head_k, head_v, head_k_swa, head_v_swa; /* elements of a head, in blocks without and with a window */
    uint32_t v_width_max;            /* widest values of all blocks in the file: what a transposed cache is padded to */
    uint32_t k_head_gcd, v_head_gcd; /* greatest common divisor of the sizes of KV heads: a cache type's block must
                                      * divide it; 0 = unknown */
    bt_kv_block *kv;                 /* [n_block] */
    uint32_t alignment;              /* of tensor data, general.alignment */
    bt_shard *shards;
    uint32_t n_shards;
    bt_tensor *tensors;
    uint32_t n_tensors, n_file_tensors; /* with the copy that a split may add, and without it */
    bt_unit_facts *units; /* blocks in order, attention before feed-forward; then other, head panels, tables */
    uint32_t n_units;
    uint32_t *unit_tensors;
    uint32_t n_unit_tensors;
    bt_extent *extents;
    uint32_t n_extents;
    bt_expert_block *expert_blocks;
    uint32_t n_expert_blocks;
    bt_split split;         /* which of it is not on the host */
    uint64_t weight_bytes;  /* of all loaded tensors, wherever they stand */
    uint64_t file_bytes;    /* of all shards */
    uint64_t small_bytes;   /* BT_ROLE_SMALL tensors, each rounded up to 64 */
    uint64_t header_bytes;  /* of all shards */
    char header_sha256[65]; /* of shard 0's header, hexadecimal */
    uint64_t *vocab_marks;  /* [n_vocab_marks] a hash of each BT_VOCAB_MARK tokens, from BT_VOCAB_MARK_FIRST on */
    uint32_t n_vocab_marks;
    uint64_t arena_bytes; /* what these facts themselves hold */
    struct bt_arena *arena;
} bt_facts;

/* What a unit's tensors can be held in. Saturates. */
bt_layouts bt_facts_layouts(const bt_facts *facts, const bt_unit_facts *unit);
/* The same of those that are always in memory, in no unit. */
bt_layouts bt_facts_small_layouts(const bt_facts *facts);

/* What the device needs beside the slots of experts, for graphs of at most n_tokens tokens: the slot numbers of all
 * that the router chose, and the rows of one expert, gathered, with what comes of them. */
typedef struct bt_expert_work {
    uint64_t numbers_bytes;               /* I32, from 0 on: used experts x tokens */
    uint64_t zeros_offset;                /* I32 x tokens */
    uint64_t rows_offset, results_offset; /* F32, rows of the widest input and output x tokens */
    uint64_t bytes;                       /* whole pages; 0 without expert blocks; saturates */
} bt_expert_work;
bt_expert_work bt_facts_expert_work(const bt_facts *facts, uint32_t n_tokens);

/* Read the header of a GGUF file, or of the whole set if it is a shard of one, and check it strictly.
 * path    any shard of the set
 * returns BT_OK; BT_E_IO cannot be read; BT_E_FORMAT malformed, truncated, or a shard is missing (the text names it);
 *         BT_E_LIMIT over a limit above. Reads the header only and allocates at most a few times its size.
 * The file is closed again: what later reads it checks its identity (bt_shard). */
BT_MUST_CHECK bt_status bt_facts_open(const char *path, bt_facts **ret_facts, bt_error *err);
void bt_facts_close(bt_facts *facts); /* NULL is fine */

/* The same model with some of it on other devices: units, experts, widths of caches and sums are those of what is left
 * for the host; tensors that stand elsewhere have BT_ROLE_AWAY. of: without a split; it must outlive the result.
 * BT_E_ARG for more devices or blocks than there are; BT_E_NOMEM. */
/* What loading such a split takes beside everything else: where a device has no staging of its own, libllama reads a
 * tensor into its heap before it hands it over, so as much as the largest of them. */
uint64_t bt_facts_upload_bytes(const bt_facts *facts);
BT_MUST_CHECK bt_status bt_facts_split(const bt_facts *of, const bt_split *split, bt_facts **ret_facts, bt_error *err);

/* ---- wishes: what the user asked for ---------------------------------------------------------------------------- */

typedef enum bt_choice { BT_AUTO, BT_ON, BT_OFF } bt_choice;
typedef enum bt_io_mode { BT_IO_AUTO, BT_IO_DIRECT, BT_IO_BUFFERED } bt_io_mode;
typedef enum bt_policy { BT_POLICY_CTX, BT_POLICY_SPEED } bt_policy;
typedef enum bt_rope_scaling { BT_ROPE_OF_MODEL, BT_ROPE_NONE, BT_ROPE_LINEAR, BT_ROPE_YARN } bt_rope_scaling;
typedef enum bt_speculate { BT_SPECULATE_AUTO, BT_SPECULATE_OFF, BT_SPECULATE_NGRAM, BT_SPECULATE_DRAFT } bt_speculate;
typedef enum bt_budget_kind { BT_BUDGET_AUTO, BT_BUDGET_BYTES, BT_BUDGET_OFF } bt_budget_kind;

/* DEFAULT is AUTO, but that a device which does not say what it has is left out, where AUTO refuses. */
typedef enum bt_layers_kind { BT_LAYERS_DEFAULT, BT_LAYERS_AUTO, BT_LAYERS_ALL, BT_LAYERS_COUNT } bt_layers_kind;

#define BT_TYPE_AUTO UINT32_MAX /* -ctk, -ctv: the plan chooses among f16 and q8_0 */

/* A device that was named, with the bytes that may be used of it, if those were. */
typedef struct bt_device_wish {
    char name[32];
    bt_known budget_bytes;
} bt_device_wish;

/* Wishes at the most, of the command line and of bt_plan_open. */
#define BT_WISH_CTX_MAX      (1u << 30) /* above every trained context, and far from overflow when rounded up */
#define BT_WISH_PARALLEL_MAX 256u
#define BT_WISH_THREADS_MAX  4096u /* as in machine.json */
#define BT_WISH_BUFFERS_MAX  64u   /* a ring deeper than the reader's queue holds only waiting bytes */

typedef struct bt_wishes {
    bt_budget_kind budget_kind;
    uint64_t budget_bytes; /* for BT_BUDGET_BYTES */
    bool force;            /* run a refused plan */
    uint32_t n_ctx;        /* 0 = default, min(trained, 4096) */
    bool allow_ctx_reduction;
    uint32_t n_parallel;     /* sequences; 0 = 1 */
    uint32_t n_batch;        /* 0 = 2048 */
    uint32_t n_ubatch;       /* 0 = 512, lowered when the budget needs it */
    uint32_t type_k, type_v; /* ggml types; 1 (f16) by default; BT_TYPE_AUTO */
    bt_choice flash_attn;
    uint32_t n_threads; /* 0 = cores allowed */
    uint32_t n_buffers; /* ring, in largest units; 0 = 2, or 1 when the budget needs it */
    bt_choice stream_head;
    bt_choice elastic; /* AUTO is ON: memory of the context that is not used yet holds weights */
    /* Guess tokens and verify them together: looked up in what came before, or by a draft model. AUTO: where weights
     * stream, by what there is. */
    bt_speculate speculate;
    uint32_t n_draft; /* tokens guessed at once; 0 = 6 */
    bt_choice repack; /* other layouts of weights; AUTO: where nothing streams */
    bt_policy policy;
    bt_io_mode io;
    bool kv_unified; /* one KV cache shared by all sequences (llama-server's default) instead of a stream each */
    bool swa_full;   /* blocks with a sliding window keep the whole context, too */
    /* A program of llama.cpp's own holds the model (exec --ram-budget): it reads the file through buffers of a MiB, and
     * has a sampler for each sequence. */
    bool guest;
    bool embeddings;    /* it makes vectors of texts: of each token one is kept until they are handed over */
    uint32_t pooling;   /* how vectors of tokens become one: llama.cpp's number of it + 1; 0: as the model says */
    uint32_t n_outputs; /* rows of logits, or vectors, that it keeps at once; 0: one of each sequence */
    /* What it holds beside the model, at most: adapters and control vectors, prompts that were answered, checkpoints of
     * contexts. */
    uint64_t adapter_bytes, prompt_cache_bytes, checkpoint_bytes;
    bt_rope_scaling rope_scaling;
    uint64_t rope_scale_micro; /* times the trained length x 1e6; 0 = the model's own */
    uint32_t yarn_orig_ctx;    /* 0 = the model's own */
    bool chat;                 /* a conversation: its template is priced, on the line staging */
    bool session;              /* its state is written to a file, or read from one */
    bool mlock;                /* what is held is locked in memory, as far as the system allows it */
    /* Devices beside the host (docs/design.md P5, P7). */
    bt_layers_kind gpu_layers;
    uint32_t n_gpu_layers; /* for BT_LAYERS_COUNT */
    bt_layers_kind cpu_moe;
    uint32_t n_cpu_moe; /* for BT_LAYERS_COUNT: of so many first blocks the experts are on the host; ALL: of all */
    bool no_devices;
    bt_device_wish devices[BT_DEVICE_MAX]; /* in this order; none: all that there are */
    uint32_t n_devices;
    uint32_t tensor_split_milli[BT_DEVICE_MAX]; /* shares of the devices, x 1000 */
    uint32_t n_tensor_splits;                   /* 0: by what each holds */
    uint32_t main_gpu;                          /* the device that is filled first */
    bool require_device;                        /* a device that cannot be used is an error, not a reason to go on */
    bt_known gpu_mem_bytes;                     /* of each device that is named without a size */
    const char *chat_template;                  /* instead of the model's own; NULL: that one. Not part of plan.json */
} bt_wishes;

/* ---- plan: where everything lives ------------------------------------------------------------------------------- */

/* name in reports, what it holds (docs/interfaces.md) */
/* Slots for experts at the least: one is read into while the other is computed with. */
#define BT_EXPERT_SLOTS_MIN 2u
/* Of the experts that a token uses, in hundredths, those that the token before it used too: what routers of 128 experts
 * were simulated with (research notes, seed 3, W9). They are there in any case. */
#define BT_EXPERT_REUSE_PERCENT 35u

#define BT_LINE_MAP(X)                                                                                                 \
    X(BASE, "base")                                                                                                    \
    X(VOCAB, "vocab")                                                                                                  \
    X(METADATA, "metadata")                                                                                            \
    X(KV, "kv")                                                                                                        \
    X(COMPUTE, "compute")                                                                                              \
    X(PAGETABLES, "pagetables")                                                                                        \
    X(THREADS, "threads")                                                                                              \
    X(LOGITS, "logits")                                                                                                \
    X(OUTPUT_NORM, "output_norm")                                                                                      \
    X(EMBEDDINGS, "embeddings")                                                                                        \
    X(HEAD, "head")                                                                                                    \
    X(RING, "ring")                                                                                                    \
    X(PINNED, "pinned")                                                                                                \
    X(EXPERTS, "experts")                                                                                              \
    X(DERIVED, "derived")                                                                                              \
    X(STAGING, "staging")                                                                                              \
    X(DRAFT_WEIGHTS, "draft.weights")                                                                                  \
    X(DRAFT_KV, "draft.kv")                                                                                            \
    X(DRAFT_COMPUTE, "draft.compute")                                                                                  \
    X(DRAFT_VOCAB, "draft.vocab")                                                                                      \
    X(MMPROJ_WEIGHTS, "mmproj.weights")                                                                                \
    X(MMPROJ_ENCODE, "mmproj.encode")                                                                                  \
    X(ADAPTERS, "adapters")                                                                                            \
    X(PROMPT_CACHE, "prompt_cache")                                                                                    \
    X(CHECKPOINTS, "checkpoints")

typedef enum bt_line {
#define X(name, text) BT_LINE_##name,
    BT_LINE_MAP(X)
#undef X
        BT_LINE_COUNT
} bt_line;

typedef enum bt_source {
    BT_SOURCE_FORMULA, /* computed from the header */
    BT_SOURCE_TENSOR,  /* exact sizes of the tensor table */
    BT_SOURCE_DRY_RUN, /* libllama asked, nothing loaded */
    BT_SOURCE_MEASURED,
} bt_source;

typedef struct bt_ledger {
    uint64_t bytes[BT_LINE_COUNT];
    bt_source source[BT_LINE_COUNT];
} bt_ledger;

/* What a line costs, as a function of the context: fixed + per_ctx * c + per_window * min(c, window), but no less than
 * the floor. c is the context rounded up to the cost model's ctx_align. */
typedef struct bt_cost {
    uint64_t fixed_bytes, per_ctx_bytes, per_window_bytes, floor_bytes;
    bt_source source;
} bt_cost;

/* A cost model: everything the search needs beside the units. The product fills it from formulas or from a dry run;
 * tests fill it with the seed's prices (research notes, seed 2, A2 and A3b). One model for each pair of KV types and
 * micro-batch. */
typedef struct bt_costs {
    bt_cost line[BT_LINE_COUNT]; /* head, ring, pinned: what the line costs beside its units (usually 0) */
    uint32_t n_ubatch, n_parallel;
    uint32_t type_k, type_v;     /* of the KV cache */
    uint32_t ctx_align;          /* libllama rounds the context up to this: 256 for each sequence */
    uint32_t ctx_step;           /* the search steps the context down by this */
    uint32_t ctx_min;            /* lowest context that is tried */
    uint32_t window_cells;       /* cells of a sliding-window cache at full size */
    uint64_t slot_slack_bytes;   /* added to each ring slot */
    bool head_always_resident;   /* the head is one thing and never streamed (the seed's tied head) */
    uint64_t load_peak_bytes;    /* most that is held while loading, before anything is pinned */
    uint32_t page_table_divisor; /* page tables cost 1/this of all other lines, rounded up; 0: nothing */
} bt_costs;

/* A unit as the search sees it. */
typedef struct bt_plan_unit {
    uint64_t pinned_bytes; /* in memory when pinned */
    uint64_t slot_bytes;   /* needs a slot at least this large when streamed */
    uint64_t read_bytes;   /* read each pass when streamed */
    uint64_t rows_bytes; /* BT_KIND_TABLE: its row window when not pinned; BT_KIND_HEAD: of a tied table not resident */
    uint64_t token_rows_bytes; /* the same, for each token of the micro-batch (added to rows_bytes) */
    bt_layouts layouts;        /* what of it can be held in another layout when pinned; zeroes: nothing, here */
    bt_unit_kind kind;
} bt_plan_unit;

typedef enum bt_place { BT_PLACE_PINNED, BT_PLACE_STREAMED, BT_PLACE_ROWS } bt_place;
typedef enum bt_verdict { BT_FITS, BT_STREAMS, BT_REFUSED, BT_VERDICT_UNKNOWN } bt_verdict;
typedef enum bt_bound { BT_BOUND_DISK, BT_BOUND_COMPUTE, BT_BOUND_MEMORY } bt_bound;

typedef struct bt_forecast {
    bt_known micro_tokens_per_s; /* tokens per second x 1e6 */
    bt_bound bound;
} bt_forecast;

typedef enum bt_rung_kind {
    BT_RUNG_MINIMUM,
    BT_RUNG_OVERLAP,
    BT_RUNG_HEAD,
    BT_RUNG_ALL_PINNED,
    BT_RUNG_COUNT
} bt_rung_kind;

typedef struct bt_rung {
    bool exists;
    uint64_t budget_bytes;
    uint32_t n_ctx;
    bt_forecast forecast;
} bt_rung;

/* A file beside the model that a plan has lines for. */
typedef struct bt_companion {
    char file[256]; /* last part of its path; empty: there is none */
    uint64_t weight_bytes, file_bytes;
    char header_sha256[65];
} bt_companion;

#define BT_CHANGE_MAX 8

/* What one device holds under a plan. */
typedef struct bt_device_plan {
    char name[32];
    bt_pool_kind kind;
    bt_pool_state state;
    char reason[160]; /* of a reading that failed */
    bool shares_host;
    uint32_t n_blocks;
    uint64_t weights_bytes, kv_bytes, compute_bytes, context_bytes;
    bt_source source;      /* of kv and compute */
    bt_known budget_bytes; /* unknown: nothing is known of it, its own allocator decides */
    char budget_source[96];
} bt_device_plan;
uint64_t bt_device_plan_bytes(const bt_device_plan *device); /* saturates */

/* Which blocks stand on which devices, and why. Plain data. */
typedef struct bt_offload {
    bt_split split;
    bt_device_plan devices[BT_DEVICE_MAX]; /* [split.n_devices]; those without blocks are left out */
    char source[192];                      /* "auto: 12 of 30 blocks fit", "--gpu-layers 4" */
} bt_offload;

/* A single change of the wishes that would make a refused plan fit; each was verified by planning it. Flag and value
 * are typed as they stand, after the options that were given: "-ctk" "q8_0 -ctv q8_0". */
typedef struct bt_change {
    char flag[24];
    char value[24];
    uint64_t need_bytes;
} bt_change;

typedef struct bt_refusal {
    char code[24]; /* ram_budget, ctx, arch_unknown ... */
    char message[320];
    uint64_t need_bytes, have_bytes;
    bt_change changes[BT_CHANGE_MAX];
    uint32_t n_changes;
} bt_refusal;

/* The decision. Plain data; place[] is owned by whoever made the plan (an arena). */
typedef struct bt_plan {
    bt_verdict verdict;
    bool forced;
    /* Neither KV types nor micro-batch were lowered, and no other layout is held: results equal llama.cpp's with the
     * same options and --no-repack. */
    bool exact;
    bool priced_by_dry_run;
    bt_wishes wishes;
    uint32_t n_ctx_requested; /* 0 = not asked for */
    uint32_t n_ctx;           /* effective, rounded as libllama rounds */
    uint32_t n_ctx_train;
    char ctx_reason[96]; /* why requested and effective differ, else empty */
    uint32_t n_batch, n_ubatch, n_parallel, n_threads;
    uint32_t n_draft; /* tokens that are guessed and verified together with one; 0: none. Their logits are planned */
    uint32_t type_k, type_v; /* effective, never BT_TYPE_AUTO */
    bool head_resident;
    uint32_t n_slots; /* 0 when nothing streams */
    uint64_t slot_bytes;
    /* Experts in memory of each block that has them; of the first n_expert_extra blocks one more. Or so many in all,
     * which the blocks share. 0: none is read on its own. Where all are there, none is read again. */
    uint32_t n_expert_slots, n_expert_extra;
    bool experts_shared;
    /* The forecast where tokens use again what the ones before them used; forecast is that of even routing. Unknown
     * where no expert is kept, or all are. */
    bt_known reuse_micro_tokens_per_s;
    bt_place *place; /* [n_units] */
    uint32_t n_units;
    uint32_t n_pinned, n_streamed;
    uint64_t pinned_bytes;
    bt_layouts layouts; /* of pinned weights; replaced ones take no byte of their own, second ones the line derived */
    uint64_t read_bytes_per_pass;
    bt_ledger ledger;
    uint64_t planned_bytes;     /* sum of the ledger */
    uint64_t budget_bytes;      /* effective */
    bt_pool_state budget_state; /* UNLIMITED: no budget was asked for and none is known */
    char budget_source[192];
    uint64_t ceiling_bytes;    /* budget less the lines that are not weights (the seed's weight ceiling) */
    bt_disk disk;              /* that streamed weights are read from */
    bool page_cache;           /* the system has room for all that streams, beside the plan: its page cache may serve */
    bt_known disk_bytes_per_s; /* read bandwidth that the forecasts stand on */
    bt_forecast forecast;
    bt_rung ladder[BT_RUNG_COUNT];
    bt_refusal refusal;         /* code empty unless refused */
    bt_companion draft, mmproj; /* their lines are 0 where there is none */
    const bt_offload *offload;  /* NULL: all of it is on the host; units, lines and budget are those of the host */
} bt_plan;

/* All wishes left open: f16 caches, the rest for the plan to find. */
bt_wishes bt_wishes_default(void);
/* A plan by formula (docs/prices.md), for the host alone: what `burthen plan` finds where there is no device.
 * facts, machine, wishes   are only read, and not needed afterwards
 * returns BT_OK for a refusal too, which is a verdict; BT_E_ARG for wishes that are over their maximum (code "wishes"),
 *         or contradict themselves or the model; BT_E_LIMIT, BT_E_NOMEM. */
BT_MUST_CHECK bt_status bt_plan_open(const bt_facts *facts, const bt_machine *machine, const bt_wishes *wishes,
                                     bt_plan **ret_plan, bt_error *err);
void bt_plan_close(bt_plan *plan); /* NULL is fine */

/* The seed's rule (docs/design.md P1): resident if weights <= available - headroom (equality fits), else stream with a
 * cache of max(usable, floor). Unknown available memory is resident: a wrong guess costs speed, never memory. */
typedef struct bt_host_plan {
    bool stream;
    uint64_t cache_bytes; /* 0 when resident */
} bt_host_plan;
#define BT_HOST_HEADROOM_BYTES (UINT64_C(4) << 30) /* the earlier planner, FIT_HEADROOM */
bt_host_plan bt_plan_host(uint64_t weight_bytes, bt_known available, uint64_t headroom_bytes, uint64_t floor_bytes);
/* Whether the page cache has room for what a plan streams, beside the plan and what others were promised: no cgroup
 * that limits it, and a quarter of what the host has free stays. */
bool bt_plan_has_page_cache(const bt_plan *plan, const bt_machine *machine);
/* Budget of derived copies (P8): a quarter of what headroom and commitments leave; 0 when unknown. */
uint64_t bt_plan_derived_bytes(bt_known available, uint64_t headroom_bytes, uint64_t committed_bytes);

#ifdef __cplusplus
}
#endif
