/* SPDX-License-Identifier: MIT
 * config.c: a configuration once it is there: its defaults, finding models and peers in it, comparing two models.
 *
 * Defaults: those of llama-swap where it has them (research notes, 9.2), the rest from docs/config.md. Finding goes
 * over all names: at most BT_CONFIG_NAMES_MAX of them, some microseconds a request. */
#include "router/config.h"
#include "base/error.h"
#include "base/size.h"
#include "guard/place.h"
#include "router/config_read.h"

#include <string.h>

#define KIB         UINT64_C(1024)
#define MIB         (KIB * KIB)
#define SECOND      UINT64_C(1000)
#define BLOCK_BYTES (16u << 10)
/* Of all bodies: the least is a conversation of a million words, or a picture; the most is as much again as one may
 * have (limits.request_bytes). */
#define BODIES_MIN_BYTES (4 * MIB)
#define BODIES_MAX_BYTES (64 * MIB)

bt_arena *bt_config_arena(void) {
    return bt_arena_open(BT_CONFIG_ARENA_MAX, BLOCK_BYTES);
}

void bt_config_defaults(bt_config *config, bt_arena *arena) {
    *config = (bt_config){
        .listen = "127.0.0.1:8080",
        .min_gpu_fraction = BT_GUARD_FRACTION_DEFAULT,
        .oom_reserve_bytes = KIB * MIB,
        .oom_grace_ms = 30 * SECOND,
        .oom_evict = true,
        .hold_ms = 10 * SECOND,
        .patience_ms = 60 * SECOND,
        .cooldown_ms = 60 * SECOND,
        .start_port = 0, /* the system does not give one port to two routers that start servers at the same time */
        .limits = {.request_bytes = 32 * MIB,
                   .n_connections = 1024,
                   .n_queued = 1024,
                   .n_queued_model = 256,
                   .n_probs = 128,
                   .flow_bytes = 64 * KIB,
                   .idle_ms = 120 * SECOND},
        .defaults = {.check_endpoint = "/health",
                     .health_timeout_ms = 120 * SECOND,
                     .stop_timeout_ms = 10 * SECOND,
                     .connect_timeout_ms = 30 * SECOND,
                     .group = UINT32_MAX},
        .arena = arena,
    };
}

bt_status bt_config_new(bt_config **ret, bt_error *err) {
    *ret = NULL;
    bt_arena *arena = bt_config_arena();
    bt_config *config = arena ? bt_arena_alloc(arena, sizeof *config) : NULL;
    if (!config) {
        bt_arena_close(arena);
        return bt_fail(err, BT_E_NOMEM, "config", BT_MEASURE_NONE, 0, 0, "no memory for the configuration");
    }
    bt_config_defaults(config, arena);
    *ret = config;
    return BT_OK;
}

void bt_config_close(bt_config *config) {
    if (config) bt_arena_close(config->arena); /* which holds it too */
}

const bt_config_model *bt_config_find(const bt_config *config, const char *name) {
    for (uint32_t i = 0; i < config->n_models; i++) {
        const bt_config_model *m = &config->models[i];
        if (strcmp(m->id, name) == 0) return m;
        for (uint32_t k = 0; k < m->n_aliases; k++) {
            if (strcmp(m->aliases[k], name) == 0) return m;
        }
    }
    return NULL;
}

static const char *model_of_peer(const bt_config_peer *peer, const char *name) {
    for (uint32_t i = 0; i < peer->n_models; i++) {
        if (strcmp(peer->models[i], name) == 0) return peer->models[i];
    }
    return NULL;
}

const bt_config_peer *bt_config_find_peer(const bt_config *config, const char *name, const char **ret_model) {
    const bt_config_peer *found = NULL;
    const char *slash = strchr(name, '/');
    size_t n = slash ? (size_t)(slash - name) : 0;
    *ret_model = NULL;
    for (uint32_t i = 0; slash && i < config->n_peers; i++) {
        const bt_config_peer *peer = &config->peers[i];
        if (strlen(peer->name) != n || strncmp(peer->name, name, n) != 0) continue;
        *ret_model = model_of_peer(peer, slash + 1);
        if (*ret_model) return peer;
    }
    if (bt_config_find(config, name)) return NULL; /* our own come first */
    for (uint32_t i = 0; i < config->n_peers; i++) {
        const char *model = model_of_peer(&config->peers[i], name);
        if (!model) continue;
        if (found) {
            *ret_model = NULL;
            return NULL; /* two have it: which one, nobody said */
        }
        found = &config->peers[i];
        *ret_model = model;
    }
    return found;
}

/* ---- two models ------------------------------------------------------------------------------------------------- */

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_words(const char *const *a, const char *const *b) {
    static const char *const none[] = {NULL};
    if (!a) a = none;
    if (!b) b = none;
    for (; *a && *b; a++, b++) {
        if (strcmp(*a, *b) != 0) return false;
    }
    return *a == *b;
}

static bool same_memory(const bt_config_model *a, const bt_config_model *b) {
    if (a->ram != b->ram || a->ram_bytes != b->ram_bytes || a->n_memory != b->n_memory) return false;
    if (a->min_gpu_fraction < b->min_gpu_fraction || a->min_gpu_fraction > b->min_gpu_fraction) return false;
    for (uint32_t i = 0; i < a->n_memory; i++) {
        if (a->memory[i].bytes != b->memory[i].bytes || strcmp(a->memory[i].pool, b->memory[i].pool) != 0) return false;
    }
    return true;
}

bool bt_config_same_child(const bt_config_model *a, const bt_config_model *b) {
    /* llama-server is told its id (--alias). */
    if (a->model && !same_text(a->id, b->id)) return false;
    return same_text(a->model, b->model) && same_words((const char *const *)a->cmd, (const char *const *)b->cmd) &&
           same_words((const char *const *)a->args, (const char *const *)b->args) && same_words(a->env, b->env) &&
           same_text(a->proxy, b->proxy) && same_memory(a, b);
}

uint64_t bt_config_bodies_bytes(const bt_config *config) {
    if (config->limits.bodies_bytes > 0) return config->limits.bodies_bytes;
    if (!config->ram_budget_given) return BODIES_MAX_BYTES;
    return bt_max_u64(BODIES_MIN_BYTES, bt_min_u64(BODIES_MAX_BYTES, config->ram_budget_bytes / 32));
}
