/* SPDX-License-Identifier: MIT
 * effective.h: the settings that a llama.cpp program will have, and where each comes from. */
#pragma once

#include "guard/argv.h"
#include "guard/wrapper.h"

#define BT_NOTE_MAX    32
#define BT_RULE_MAX    4096 /* llama_max_tensor_buft_overrides() */
#define BT_ADAPTER_MAX 256
#define BT_SHARE_MAX   BT_POOL_MAX

/* Who set it: each beats those before it, but PROGRAM, what the program itself makes of the others. */
typedef enum bt_origin {
    BT_FROM_DEFAULT,
    BT_FROM_FILE,
    BT_FROM_ENV,
    BT_FROM_ARGV,
    BT_FROM_PROGRAM,
} bt_origin;

typedef struct bt_set_by {
    bt_origin origin;
    uint32_t at;       /* ARGV: the element of the option */
    const char *where; /* FILE: its path; ENV: the variable */
} bt_set_by;

/* One setting. Its line in bt_effective says which member counts: value (a number, a choice, 0 or 1), real, or text. */
typedef struct bt_setting {
    bt_set_by by;
    int32_t value;
    double real;
    const char *text; /* as it was written; NULL where nobody wrote it */
    bool bad;         /* llama.cpp refuses text, and ends; the value before it stands here */
} bt_setting;

/* The order of the words that llama.cpp takes. */
typedef enum bt_split_mode { BT_SPLIT_NONE, BT_SPLIT_LAYER, BT_SPLIT_ROW, BT_SPLIT_TENSOR } bt_split_mode;
typedef enum bt_load_mode {
    BT_LOAD_AUTO,
    BT_LOAD_NONE,
    BT_LOAD_MMAP,
    BT_LOAD_MLOCK,
    BT_LOAD_MMAP_MLOCK,
    BT_LOAD_DIRECT,
} bt_load_mode;
typedef enum bt_lazy_mode { BT_LAZY_AUTO, BT_LAZY_ON, BT_LAZY_OFF } bt_lazy_mode;
typedef enum bt_pooling {
    BT_POOLING_NONE,
    BT_POOLING_MEAN,
    BT_POOLING_CLS,
    BT_POOLING_LAST,
    BT_POOLING_RANK
} bt_pooling;
/* Bits of bt_effective.drafters. */
typedef enum bt_drafter {
    BT_DRAFTER_SIMPLE,
    BT_DRAFTER_EAGLE3,
    BT_DRAFTER_MTP,
    BT_DRAFTER_DFLASH,
    BT_DRAFTER_DSPARK,
    BT_DRAFTER_NGRAM_SIMPLE,
    BT_DRAFTER_NGRAM_MAP_K,
    BT_DRAFTER_NGRAM_MAP_K4V,
    BT_DRAFTER_NGRAM_MOD,
    BT_DRAFTER_NGRAM_CACHE,
} bt_drafter;

/* Where tensors go that are not left to the layers. The first rule that matches a tensor's name decides. */
typedef enum bt_rule_kind {
    BT_RULE_PATTERN,   /* a regular expression, and the name of a buffer type */
    BT_RULE_EXPERTS,   /* the experts of every block, to the CPU */
    BT_RULE_N_EXPERTS, /* the experts of the first n blocks, to the CPU */
    BT_RULE_N_FFN,     /* the dense feed-forward weights of the first n blocks, to the CPU */
} bt_rule_kind;

typedef struct bt_tensor_rule {
    bt_rule_kind kind;
    bt_set_by by;
    const char *pattern, *buffer;
    int32_t n;
} bt_tensor_rule;

typedef struct bt_rules {
    bt_tensor_rule *items; /* in llama.cpp's order: files, environment, argv */
    uint32_t n;
    bool every_expert;  /* one of them is EXPERTS */
    int32_t n_experts;  /* the largest n of N_EXPERTS; 0: none */
    uint32_t n_pattern; /* how many are PATTERN */
} bt_rules;

typedef struct bt_adapter {
    const char *path;
    double scale;
    bt_set_by by;
} bt_adapter;

typedef struct bt_adapters {
    bt_adapter *items;
    uint32_t n;
} bt_adapters;

typedef struct bt_effective {
    bt_program program;
    bool router; /* a server without a model: it starts others, each with settings of its own */

    /* The model; text. A bundle names model and settings in one word: --gpt-oss-20b-default and its like. */
    bt_setting model, model_url, hf_repo, hf_file, docker_repo, bundle;
    bt_setting models_dir, models_preset;

    /* Placing. */
    bt_setting gpu_layers;                /* BT_LAYERS_AUTO, BT_LAYERS_ALL, or a number; the head is one of them */
    bt_setting split_mode, main_gpu;      /* bt_split_mode; an index */
    bt_setting tensor_split, device, rpc; /* text */
    double shares[BT_SHARE_MAX];          /* of tensor_split */
    uint32_t n_shares;
    bt_rules rules;
    bt_setting fit;                        /* 0 or 1: may the program change what nobody set? */
    bt_setting fit_ctx;                    /* tokens to which it may shrink the context; INT32_MAX: not at all */
    bt_setting fit_target;                 /* text */
    uint64_t fit_target_mib[BT_SHARE_MAX]; /* of a device; a single one holds for all */
    uint32_t n_fit_targets;                /* 0: 1024 MiB of each */

    /* Context. */
    bt_setting ctx;                             /* tokens over all slots; 0: what the model was trained with */
    bt_setting slots;                           /* sequences at once; of a router -1 */
    bt_setting kv_unified;                      /* 0 or 1: the slots share the cache */
    bt_setting kv_per_slot;                     /* tokens; 0: not limited */
    bt_setting cache_k, cache_v;                /* ggml types (model/types.h) */
    bt_setting kv_offload;                      /* 0: the cache is in host memory */
    bt_setting swa_full, flash;                 /* 0 or 1; bt_flash */
    bt_setting batch, ubatch;                   /* tokens; a causal model's context holds both down to itself */
    bt_setting rope_scaling;                    /* none, linear, yarn; -1: the model's */
    bt_setting rope_freq_scale, rope_freq_base; /* reals; 0: the model's. 1 / scale is --rope-scale */
    bt_setting yarn_orig_ctx;                   /* tokens; 0: the model's */
    bt_setting context_shift, cache_reuse;      /* 0 or 1; tokens */
    bt_setting checkpoints, checkpoint_step;    /* of each slot; tokens */
    bt_setting cache_ram, cache_idle_slots;     /* MiB, -1: no limit; 0 or 1 */
    bt_setting override_kv;                     /* text of the last one: it may change any fact of the model */
    uint32_t n_override_kv;

    /* Loading. */
    bt_setting load_mode, lazy_mode; /* bt_load_mode, bt_lazy_mode */
    bt_setting repack, no_host, op_offload, warmup;
    bt_setting check_tensors, backend_sampling; /* 0 or 1 */
    bt_adapters loras, control_vectors;

    /* Drafting. */
    bt_setting draft_model, draft_hf_repo, draft_device; /* text */
    bt_setting draft_gpu_layers, draft_cache_k, draft_cache_v, draft_n_max;
    bt_setting draft_ctx; /* of earlier builds; 0: as ctx */
    bt_rules draft_rules;
    uint32_t drafters;    /* bits 1 << bt_drafter */
    bt_setting spec_type; /* text of the last option that named some */
    bt_setting ngram_mod_n_max, ngram_simple_m, ngram_map_k_m, ngram_map_k4v_m; /* tokens guessed at once */
    bt_setting lookup_static, lookup_dynamic;                                   /* text */

    /* Vision. */
    bt_setting mmproj, mmproj_url, mmproj_device; /* text */
    bt_setting mmproj_auto, mmproj_offload;       /* 0 or 1 */
    bt_setting image_min_tokens, image_max_tokens, mtmd_batch;

    bt_setting embedding, rerank, pooling; /* 0 or 1; bt_pooling, -1: the model's */
    bt_setting sleep_idle_s;               /* -1: never */
    bt_setting alias, slot_save;           /* text; of the server */
    bt_setting server_base, prompt_cache;  /* text; of llama-cli: a server elsewhere; of llama-completion: a file */
    bt_setting threads, threads_batch;

    bt_setting attention;   /* of llama-embedding: 0 causal, 1 not; -1: not set */
    bt_setting ppl_stride;  /* of llama-perplexity; tokens */
    bt_setting logits_file; /* of llama-perplexity; text: where it keeps all logits, or compares them with */
    bool scores_choices;    /* llama-perplexity reads several answers at once: --hellaswag and its like */

    bool earlier_build; /* something was given that only earlier builds take; today's refuse it */
    uint32_t n_bad;     /* settings that llama.cpp refuses: it will not start */
    /* What could not be read, or is read otherwise than it looks; a sentence each. May hold bytes as the user wrote
     * them: escaped before it is shown. */
    const char *notes[BT_NOTE_MAX];
    uint32_t n_notes;
} bt_effective;

typedef enum bt_config_state {
    BT_CONFIG_READ,
    BT_CONFIG_ABSENT,
    BT_CONFIG_FAILED, /* is there, and cannot be read */
} bt_config_state;
/* The text of a file; it must stay valid until the resolving is done. */
typedef bt_config_state (*bt_config_read)(void *context, const char *path, const char **ret_text, size_t *ret_n);

typedef struct bt_effective_input {
    const bt_command *command;
    const bt_argv *argv; /* read from command->first, for command->program */
    bt_env_get env;      /* of the whole command; NULL: empty */
    void *env_context;
    bt_config_read read; /* NULL: files cannot be read, which is noted */
    void *read_context;
} bt_effective_input;

/* Defaults, then llama.cpp's files, the environment as the program sees it, and argv. Points into what it was given and
 * into the arena. E_ARG (code "arguments"): over one of the limits above. */
BT_MUST_CHECK bt_status bt_effective_resolve(bt_arena *arena, const bt_effective_input *input, bt_effective *ret,
                                             bt_error *err);
