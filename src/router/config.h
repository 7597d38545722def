/* SPDX-License-Identifier: MIT
 * config.h: what a router is asked to do, as plain data: from YAML, from a command line, from a folder of models. */
#pragma once

#include "base/text.h"

#define BT_CONFIG_MODELS_MAX 256u  /* with those that were found */
#define BT_CONFIG_NAMES_MAX  1024u /* ids and aliases together */
#define BT_CONFIG_GROUPS_MAX 64u
#define BT_CONFIG_PEERS_MAX  32u
#define BT_CONFIG_ID_MAX     128u       /* bytes of an id */
#define BT_CONFIG_FILE_MAX   (1u << 20) /* bytes of a YAML file */
#define BT_CONFIG_WORDS_MAX  4096u      /* of one command */

/* Of a host with a RAM budget, for a model that the router starts with llama-server. */
typedef enum bt_config_ram {
    BT_CONFIG_RAM_AUTO, /* plain where it fits; else with the memory device, in what the host's budget has for it */
    BT_CONFIG_RAM_SIZE, /* always with the memory device, in so much */
    BT_CONFIG_RAM_OFF,  /* plain, always */
} bt_config_ram;

typedef struct bt_config_bytes { /* of a pool, by name: "host", "CUDA0" */
    const char *pool;
    uint64_t bytes;
} bt_config_bytes;

typedef struct bt_config_filters {
    const char *const *strip; /* names of request members that are dropped */
    uint32_t n_strip;
    const char *set_json; /* an object: members that are set; NULL: none */
    /* The same for requests that name the model by this alias. */
    const char *const *set_by_id;
    const char *const *set_by_id_json;
    uint32_t n_set_by_id;
} bt_config_filters;

typedef struct bt_config_model {
    const char *id;
    uint32_t line; /* of the file, 1 is the first; 0: found in a folder, or named on the command line */
    const char *name, *description; /* NULL: none */
    const char *const *aliases;     /* unique over the whole configuration, with ids */
    uint32_t n_aliases;
    bool unlisted; /* not in /v1/models */
    /* How it is started. model: a GGUF file (its first part), with llama-server and args behind; else cmd. */
    const char *model;
    char *const *cmd;           /* words, NULL at the end; macros expanded, but ${PORT} and, in cmd_stop, ${PID} */
    char *const *args;          /* with model: more words for llama-server; NULL at the end, or NULL */
    char *const *cmd_stop;      /* NULL: SIGTERM */
    const char *const *env;     /* "NAME=VALUE", NULL at the end, or NULL */
    const char *proxy;          /* "http://127.0.0.1:${PORT}" when not given */
    bool uses_port;             /* ${PORT} stands in cmd, args, env or proxy */
    const char *check_endpoint; /* "/health"; NULL: none, it is ready when it has been started */
    uint64_t health_timeout_ms, stop_timeout_ms;
    uint64_t connect_timeout_ms, header_timeout_ms; /* 0: no limit, of the second */
    uint64_t ttl_ms;                                /* 0: never unloaded for being idle */
    /* What it takes. */
    bt_config_ram ram;
    uint64_t ram_bytes;      /* of RAM_SIZE */
    double min_gpu_fraction; /* 0: the configuration's; below 0: no floor */
    bt_config_bytes *memory; /* declared, for programs that cannot be priced */
    uint32_t n_memory;
    bool persistent;            /* never evicted */
    uint32_t concurrency;       /* requests at a time; 0: the slots that it is started with, or 10 */
    int32_t priority;           /* higher first */
    uint32_t group;             /* index in groups, or UINT32_MAX */
    const char *use_model_name; /* in requests to it; NULL: as the client wrote it */
    bt_config_filters filters;
    const char *metadata_json; /* an object, shown in /v1/models; NULL: none */
    bool preload;
} bt_config_model;

/* llama-swap's groups, as static policy beside the budget. */
typedef struct bt_config_group {
    const char *name;
    bool swap;       /* one member at a time */
    bool exclusive;  /* while one of it runs, none of another group does (but of persistent ones) */
    bool persistent; /* others do not end it */
} bt_config_group;

/* Another server that has models: asked, never started. */
typedef struct bt_config_peer {
    const char *name, *proxy;
    const char *const *models; /* reached as "peer/model", and as "model" where nothing else has that name */
    uint32_t n_models;
    const char *api_key; /* sent to it; NULL: none */
    uint64_t header_timeout_ms;
    bt_config_filters filters;
} bt_config_peer;

typedef struct bt_config_device {
    const char *name;
    bt_known budget_bytes; /* what admission gives away; unknown: what it has */
    bt_known target_bytes; /* plan ceiling; unknown: the budget */
} bt_config_device;

/* What requests may make the router and its servers hold. */
typedef struct bt_config_limits {
    uint64_t request_bytes; /* of a body; 413 */
    uint64_t bodies_bytes;  /* of all bodies that are held; 503; 0: by the host's budget (bt_config_bodies_bytes) */
    uint32_t n_connections;
    uint32_t n_queued;       /* requests that wait, over all models; 503 with Retry-After */
    uint32_t n_queued_model; /* of one model; 429 */
    uint32_t n_probs;        /* n_probs, logprobs, top_logprobs; 400 */
    uint64_t flow_bytes;     /* between a server and its client, a request */
    uint64_t idle_ms;        /* a client that neither sends nor reads */
} bt_config_limits;

typedef struct bt_config {
    const char *file;               /* NULL: none */
    const char *listen;             /* "127.0.0.1:8080" */
    const char *tls_cert, *tls_key; /* files; NULL: plain HTTP */
    const char *const *api_keys;
    uint32_t n_api_keys;
    const char *const *allowed_hosts; /* Host headers beside loopback names and the address listened on; "*": any */
    uint32_t n_allowed_hosts;
    const char *const *cors_origins; /* that may read answers; "*": any */
    uint32_t n_cors_origins;
    bool insecure;
    bool ram_budget_given; /* else what the host leaves, read anew each time */
    uint64_t ram_budget_bytes;
    bt_config_device *devices;
    uint32_t n_devices;
    double min_gpu_fraction;
    /* The watchdog's (watchdog.h). */
    uint64_t oom_reserve_bytes, oom_grace_ms;
    bool oom_reserve_off, oom_evict;
    uint64_t hold_ms, patience_ms, cooldown_ms; /* see policy.h */
    uint64_t loading_comments_ms;               /* see early.h; 0: none */
    const char *llama_server;                   /* program for models; NULL: found */
    const char *models_dir;                     /* NULL: none */
    uint32_t start_port;
    bool log_children; /* their lines go to the router's output too */
    bt_config_limits limits;
    bt_config_model defaults; /* what a model that says nothing has: ttl, times */
    bt_config_model *models;
    uint32_t n_models, n_models_room; /* room: before models must move */
    bt_config_group *groups;
    uint32_t n_groups;
    bt_config_peer *peers;
    uint32_t n_peers;
    struct bt_arena *arena; /* owns all of it */
} bt_config;

/* Something that was read and is not followed, or not as llama-swap would. */
typedef struct bt_config_note {
    uint32_t line;
    char text[200];
} bt_config_note;
#define BT_CONFIG_NOTES_MAX 64u
typedef struct bt_config_notes {
    bt_config_note items[BT_CONFIG_NOTES_MAX];
    uint32_t n, n_left_out;
} bt_config_notes;

/* Defaults and nothing else. */
BT_MUST_CHECK bt_status bt_config_new(bt_config **ret, bt_error *err);
/* path        for messages, and the folder that relative files are relative to
 * env_get     for ${env.NAME}; NULL: getenv
 * returns     BT_E_FORMAT, code "config": FILE:LINE: what is wrong, and what was probably meant; BT_E_LIMIT; BT_E_NOMEM
 */
BT_MUST_CHECK bt_status bt_config_parse(const char *text, size_t n, const char *path,
                                        const char *(*env_get)(const char *), bt_config **ret, bt_config_notes *notes,
                                        bt_error *err);
BT_MUST_CHECK bt_status bt_config_load(const char *path, bt_config **ret, bt_config_notes *notes, bt_error *err);
void bt_config_close(bt_config *config); /* NULL is fine */
/* Add a model of a file (of the command line, of a folder); its id is the file's name without .gguf and part number,
 * made unique with "-2"... args: words, NULL at the end, or NULL. *ret_added false: a model of that very file is there
 * already. Pointers to models do not outlive it. BT_E_ARG, code "model_file": no GGUF file, or not all of its parts. */
BT_MUST_CHECK bt_status bt_config_add_file(bt_config *config, const char *path, char *const *args, bool *ret_added,
                                           bt_error *err);
/* The GGUF files of config->models_dir and below (depth 4), without later parts of a set, projectors (mmproj*), and
 * what a configured model names already, sorted by path. A projector beside its model is given to it (--mmproj). A
 * folder that cannot be read is an error, a file in it that is no GGUF is a note. args: as of bt_config_add_file. */
BT_MUST_CHECK bt_status bt_config_discover(bt_config *config, char *const *args, bt_config_notes *notes, bt_error *err);
/* The first of the words for llama-server that the router says itself (--port), NULL: none. words: NULL at the end. */
const char *bt_config_taken_word(char *const *words);

/* By id or alias; NULL: none. ret_alias: the name that was used, when it is an alias, else NULL. */
const bt_config_model *bt_config_find(const bt_config *config, const char *name);
/* "peer/model", or a bare name that only one peer has and no model; NULL: none. *ret_model: the name it has there. */
const bt_config_peer *bt_config_find_peer(const bt_config *config, const char *name, const char **ret_model);
/* The sentence for a client that asked for a name that nobody has, with the nearest that is listed; whether there is
 * one. capacity: BT_CONFIG_NO_MODEL_BYTES hold any. */
#define BT_CONFIG_NO_MODEL_BYTES 512u
bool bt_config_no_model(const bt_config *config, const char *name, char *ret, size_t capacity);
/* Whether a running child of the one would be started in the same way by the other (same command, files, environment,
 * memory; names, filters, ttl and policy do not count). */
bool bt_config_same_child(const bt_config_model *a, const bt_config_model *b);
/* The words to start it with: ${PORT} in its place, for a model the llama-server line. In the arena given. */
struct bt_arena;
BT_MUST_CHECK bt_status bt_config_argv(const bt_config *config, const bt_config_model *model, uint32_t port,
                                       struct bt_arena *arena, char ***ret_argv, bt_error *err);
/* Words of env or cmd_stop with ${PORT} in its place; NULL of NULL. */
BT_MUST_CHECK bt_status bt_config_words(const char *const *words, uint32_t port, struct bt_arena *arena, char ***ret,
                                        bt_error *err);
BT_MUST_CHECK bt_status bt_config_url(const bt_config_model *model, uint32_t port, struct bt_arena *arena,
                                      char **ret_url, bt_error *err);
/* Of all bodies of requests that are held at a time: as configured, else a 32nd of the host's budget, at least 4 MiB
 * and at most 64. They are the router's, not the models'. */
uint64_t bt_config_bodies_bytes(const bt_config *config);
/* For --check-config: what was understood, a line a model. */
void bt_config_text(const bt_config *config, const bt_config_notes *notes, bt_text *out);
/* Rewrite a request's body for a model: use_model_name, then strip, then set, then set of the name that was used;
 * "model" cannot be stripped or set by a filter. *ret NULL: nothing changes. Not an object: BT_E_FORMAT, code "body".
 */
BT_MUST_CHECK bt_status bt_config_filter(const bt_config_filters *filters, const char *use_model_name,
                                         const char *named, const char *body, size_t n_body, char **ret, size_t *ret_n,
                                         bt_error *err);
