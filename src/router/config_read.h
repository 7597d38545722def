/* SPDX-License-Identifier: MIT
 * config_read.h: reading a configuration from YAML: the table of keys, and what its rows are read with. Private to
 * config*.c and to the test that holds docs/config.md to the table. */
#pragma once

#include "router/config.h"
#include "router/macros.h"

typedef enum bt_config_place { /* which mapping a key stands in */
                               BT_PLACE_TOP,
                               BT_PLACE_OOM_GUARD,
                               BT_PLACE_LIMITS,
                               BT_PLACE_DEVICE,
                               BT_PLACE_MODEL,
                               BT_PLACE_FILTERS,
                               BT_PLACE_TIMEOUTS,
                               BT_PLACE_COMPAT,
                               BT_PLACE_GROUP,
                               BT_PLACE_PEER,
                               BT_PLACE_PEER_TIMEOUTS,
                               BT_PLACE_HOOKS,
                               BT_PLACE_ON_STARTUP,
                               BT_PLACE_ROUTING,
                               BT_PLACE_ROUTER,
                               BT_PLACE_ROUTER_SETTINGS,
                               BT_PLACE_SCHEDULER,
                               BT_PLACE_SCHEDULER_SETTINGS,
                               BT_PLACE_FIFO,
                               BT_PLACE_STORE,
                               BT_PLACE_PERFORMANCE,
                               BT_PLACE_UPSTREAM,
                               BT_PLACE_COUNT,
} bt_config_place;
/* What stands before a key of it in full: "models.<id>.filters."; empty for the top. */
const char *bt_config_place_name(bt_config_place place);

typedef enum bt_key_kind {
    BT_KEY_TEXT,    /* const char *, macros replaced */
    BT_KEY_PATH,    /* const char *, relative to the file's folder; "~/" is HOME */
    BT_KEY_BOOL,    /* bool */
    BT_KEY_U32,     /* uint32_t within [min, max] */
    BT_KEY_I32,     /* int32_t within [min, max] */
    BT_KEY_SIZE,    /* uint64_t bytes within [min, max] */
    BT_KEY_TIME,    /* uint64_t ms within [min, max] of them */
    BT_KEY_SECTION, /* a mapping whose keys, of the place below, have the same target */
    BT_KEY_CUSTOM,  /* read() */
    BT_KEY_NOTE,    /* read and without effect: meaning says why */
    BT_KEY_REFUSED, /* an error: meaning says what to do instead */
} bt_key_kind;

typedef struct bt_config_reader bt_config_reader;
typedef struct bt_key {
    bt_config_place place;
    const char *name; /* ours; NULL: llama-swap's alone */
    const char *swap; /* llama-swap's spelling; NULL: it has no such key */
    bt_key_kind kind;
    size_t offset; /* of the target in what the place describes; SIZE_MAX: none */
    double min, max;
    bt_status (*read)(bt_config_reader *reader, const bt_yaml_node *node, void *target); /* target: the whole struct */
    bt_config_place below;                                                               /* of SECTION */
    const char *shown_default;                                                           /* NULL: none */
    const char *meaning;                                                                 /* one line */
} bt_key;
extern const bt_key bt_config_keys[];
extern const size_t bt_config_n_keys;

typedef struct bt_config_later { /* what is looked at when models are known */
    const bt_yaml_node *models, *groups, *more_groups, *peers, *preload, *priority;
} bt_config_later;

/* One step of the way to what is being read: a key, or an item of a list. */
typedef struct bt_config_step {
    const char *key; /* the document's; NULL: an item */
    uint32_t item;   /* 0 is the first */
} bt_config_step;
#define BT_CONFIG_STEPS_MAX                                                                                            \
    12u /* routing.router.settings.groups.NAME.members[0] is seven; deeper ones are not shown                          \
         */

/* The target of BT_PLACE_TOP and of what lies below it. */
struct bt_config_reader {
    bt_config c;
    bt_config_later later;
    const char *file; /* for messages */
    bt_config_step steps[BT_CONFIG_STEPS_MAX];
    uint32_t n_steps; /* what is over BT_CONFIG_STEPS_MAX of them is counted alone */
    const char *home; /* of relative paths, without a slash at the end; NULL: where the router runs */
    bt_macros macros;
    bt_arena *arena;   /* of the configuration */
    bt_arena *scratch; /* of the document */
    bt_config_notes *notes;
    bt_error *err;
};
typedef struct bt_config_group_read { /* target of BT_PLACE_GROUP */
    bt_config_group group;
    const bt_yaml_node *members;
} bt_config_group_read;

/* ---- config_values.c ---- */
/* The way to what is read next, for errors: each step that is entered is left when it has been read. After an error
 * nothing more is read, so that nobody need leave. The key is not copied. */
void bt_read_enter(bt_config_reader *reader, const char *key);
void bt_read_enter_item(bt_config_reader *reader, uint32_t item);
void bt_read_leave(bt_config_reader *reader);
/* FILE:LINE: KEY: what is wrong; KEY is the way that was entered, as models.a.env[1]. */
bt_status bt_read_fail(const bt_config_reader *reader, bt_status status, uint32_t line, const char *fmt, ...)
    BT_PRINTF(4, 5);
bt_status bt_read_no_memory(const bt_config_reader *reader);
void bt_read_note(const bt_config_reader *reader, uint32_t line, const char *fmt, ...) BT_PRINTF(3, 4);
bool bt_read_is_null(const bt_yaml_node *node);
/* keep: of macros.h. A list or mapping is an error. */
BT_MUST_CHECK bt_status bt_read_text(bt_config_reader *reader, const bt_yaml_node *node, uint32_t keep,
                                     const char **ret);
BT_MUST_CHECK bt_status bt_read_path(bt_config_reader *reader, const bt_yaml_node *node, const char **ret);
BT_MUST_CHECK bt_status bt_read_bool(bt_config_reader *reader, const bt_yaml_node *node, bool *ret);
BT_MUST_CHECK bt_status bt_read_integer(bt_config_reader *reader, const bt_yaml_node *node, int64_t min, int64_t max,
                                        int64_t *ret);
BT_MUST_CHECK bt_status bt_read_size(bt_config_reader *reader, const bt_yaml_node *node, uint64_t min, uint64_t max,
                                     uint64_t *ret);
/* "10m", "1h30m", "250ms"; a plain number is seconds. */
BT_MUST_CHECK bt_status bt_read_time(bt_config_reader *reader, const bt_yaml_node *node, uint64_t min_ms,
                                     uint64_t max_ms, uint64_t *ret_ms);
/* In the arena; NULL: no memory. */
const char *bt_read_join(const bt_config_reader *reader, const char *a, const char *between, const char *b);
/* A list, or one scalar; where split, a scalar is parted at commas. */
BT_MUST_CHECK bt_status bt_read_texts(bt_config_reader *reader, const bt_yaml_node *node, uint32_t n_max, bool split,
                                      const char *const **ret, uint32_t *ret_n);
BT_MUST_CHECK bt_status bt_read_json(bt_config_reader *reader, const bt_yaml_node *node, const char **ret);
/* A mapping, or an error that says what was expected. */
BT_MUST_CHECK bt_status bt_read_map(const bt_config_reader *reader, const bt_yaml_node *node);

/* ---- config_keys.c ---- */
/* Every key of a mapping into target, by the rows of place. */
BT_MUST_CHECK bt_status bt_read_keys(bt_config_reader *reader, bt_config_place place, const bt_yaml_node *node,
                                     void *target);

/* ---- rows that have a reader of their own ---- */
typedef bt_status bt_key_read(bt_config_reader *reader, const bt_yaml_node *node, void *target);
/* config_parts.c: of the top and of small places */
bt_key_read bt_read_listen, bt_read_api_keys, bt_read_hosts, bt_read_origins, bt_read_ram_budget, bt_read_devices,
    bt_read_oom_guard, bt_read_oom_reserve, bt_read_fraction, bt_read_log_to, bt_read_health_swap, bt_read_unload,
    bt_read_device_budget, bt_read_device_target, bt_read_router_use, bt_read_scheduler_use, bt_read_llama_server;
/* config_later.c: what names models */
bt_key_read bt_read_macros_later, bt_read_models_later, bt_read_groups_later, bt_read_more_groups_later,
    bt_read_peers_later, bt_read_preload_later, bt_read_priority_later, bt_read_group_members;
/* config_models.c */
bt_key_read bt_read_model_macros, bt_read_model_cmd, bt_read_model_args, bt_read_model_cmd_stop, bt_read_model_env,
    bt_read_model_aliases, bt_read_model_ttl, bt_read_model_unload, bt_read_model_proxy, bt_read_model_check,
    bt_read_model_ram, bt_read_model_memory, bt_read_model_fraction, bt_read_metadata;
/* config_filters.c */
bt_key_read bt_read_strip, bt_read_set, bt_read_set_by_id, bt_read_model_filters;
/* config_peers.c */
bt_key_read bt_read_peer_proxy, bt_read_peer_models, bt_read_peer_filters;

/* A mapping of macros; own: those of a model, whose values may use the others. */
BT_MUST_CHECK bt_status bt_read_macros(bt_config_reader *reader, const bt_yaml_node *node, const bt_macro **ret,
                                       uint32_t *ret_n);
BT_MUST_CHECK bt_status bt_read_models(bt_config_reader *reader);
BT_MUST_CHECK bt_status bt_read_groups(bt_config_reader *reader);
BT_MUST_CHECK bt_status bt_read_peers(bt_config_reader *reader);
/* Names are one each over the whole configuration; what names a model names one that is there. */
BT_MUST_CHECK bt_status bt_read_names(bt_config_reader *reader);

/* The defaults of everything; the arena is the caller's. */
void bt_config_defaults(bt_config *config, bt_arena *arena);
#define BT_CONFIG_ARENA_MAX (UINT64_C(32) << 20) /* bytes of a whole configuration */
BT_MUST_CHECK bt_arena *bt_config_arena(void);
