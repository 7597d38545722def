/* SPDX-License-Identifier: MIT
 * options.h: the one option table of the program, and what it fills in.
 *
 * Parsing, help and the environment twins come from the table; a command reads its options from the struct and knows
 * nothing of argv. Defaults stand in bt_cli_options_default. */
#pragma once

#include "base/option.h"
#include "burthen.h"

/* Bits of bt_option.commands. */
typedef enum bt_cli_command {
    BT_CLI_PLAN = 1 << 0,
    BT_CLI_RUN = 1 << 1,
    BT_CLI_BENCH = 1 << 2,
    BT_CLI_PERPLEXITY = 1 << 3,
    BT_CLI_INSPECT = 1 << 4,
    BT_CLI_DEVICES = 1 << 5,
    BT_CLI_HELP = 1 << 6,
    BT_CLI_VERSION = 1 << 7,
    BT_CLI_REPORT = 1 << 8,
    BT_CLI_WORKER = 1 << 9,
    BT_CLI_EXEC = 1 << 10,
    BT_CLI_SERVE = 1 << 11,
    BT_CLI_CACHE = 1 << 12,
    BT_CLI_COMPLETION = 1 << 13,
} bt_cli_command;

#define BT_CLI_HOSTS_MAX 16u
#define BT_CLI_RPC_MAX   14u /* BT_DEVICE_MAX: each has a device at least */

typedef struct bt_cli_options {
    const char *command; /* its name */
    int argc;            /* what was written after it */
    char *const *argv;
    bool help;

    /* the plan */
    bt_wishes wishes;
    double rope_scale;        /* 0: not given */
    const char *machine_file; /* NULL: this machine */
    const char *disk_path;    /* NULL: no disk is measured */
    const char *plan_file;    /* NULL: a new plan */
    bool exact;
    const char *draft_file;       /* NULL: no draft model */
    const char *mmproj_file;      /* NULL: no projector */
    uint32_t n_image_tokens;      /* 0: the projector type's own limit */
    const char *root;             /* of /proc and /sys; "" is this machine */
    char rpc[BT_CLI_RPC_MAX][64]; /* workers, HOST:PORT */
    uint32_t n_rpc;

    /* the run */
    const char *prompt, *prompt_file; /* NULL: not given */
    int32_t n_chunks;                 /* -1: all */
    int32_t n_predict;                /* -1: to the context's end */
    double temperature, top_p, min_p, repeat_penalty;
    int32_t top_k;
    uint32_t seed;
    bool seed_given;
    bool greedy, ignore_eos;
    const char *grammar_file;
    const char *system_prompt, *chat_template_file; /* NULL: none; wishes.chat asks for a conversation */
    const char *session_file;
    int reader; /* 0 auto, 1 io_uring, 2 pread */
    bool guess_always;

    /* the measurement */
    uint32_t n_prompt, n_gen, n_repetitions;
    bool n_prompt_given;
    const char *vs_budget, *plot_file; /* NULL: not given */
    bool bench_step;                   /* one budget of a list that another process has */

    /* the worker */
    const char *listen;
    uint64_t worker_memory_bytes;
    bool worker_memory_given;
    bool insecure;

    /* the router */
    const char *serve_listen, *tls_cert_file, *tls_key_file, *api_key, *models_dir, *llama_server; /* NULL: not given */
    const char *allowed_hosts[BT_CLI_HOSTS_MAX]; /* point into argv or the environment */
    uint32_t n_allowed_hosts;
    bool check_config;

    /* the guard */
    bool dry_run, degrade, no_wait;
    bool budget_given; /* --ram-budget of exec */
    bool hold_given;
    uint64_t hold_bytes;
    bool target_vram_given, vision_overhead_given;
    uint64_t target_vram_bytes, vision_overhead_bytes;
    double min_gpu_fraction; /* 0: the default; below 0: no floor */

    /* what is kept */
    bool clear;

    /* what is said */
    bool json, quiet, verbose;
    const char *stats_file;
    const char *log_file;
    bool log_json;
    int log_level; /* bt_log_level */
    bool log_level_given;
} bt_cli_options;

extern const bt_option bt_cli_option_table[];
extern const size_t bt_cli_option_count;

void bt_cli_options_default(bt_cli_options *ret);
/* Arguments after the command's name. args: room for what is no option. environ_get: NULL is getenv. file: the user's
 * settings (settings.h), or NULL; texts of *ret may point into it. */
BT_MUST_CHECK bt_status bt_cli_options_parse(bt_cli_command command, int argc, char *const *argv,
                                             const char *(*environ_get)(const char *), const bt_option_file *file,
                                             bt_cli_options *ret, bt_option_result *args, bt_error *err);
