/* SPDX-License-Identifier: MIT
 *
 * config_near.c: what is said to a client whose model nobody has.
 *
 * A name that was misspelt is answered with the nearest one, as a misspelt option is: of ids, aliases, and the models
 * of peers; of one peer's alone where its name stands before it. What is unlisted is not told to who does not know it.
 * At most BT_CONFIG_NAMES_MAX names are looked at, each in 64 * 64 steps at most. Left out: a nearness of its own
 * (bt_nearest has it). */
#include "base/option.h"
#include "router/config.h"

#include <stdio.h>
#include <string.h>

typedef struct search {
    const char *wanted;
    char best[BT_CONFIG_ID_MAX + 1]; /* by its spelling */
    const char *peer;                /* whose it is; NULL: ours */
    uint32_t n_seen;
} search;

static void look_at(search *s, const char *name, const char *peer) {
    if (s->n_seen == BT_CONFIG_NAMES_MAX) return;
    s->n_seen++;
    const char *both[] = {s->best, name};
    if (strlen(name) >= sizeof s->best || bt_nearest(s->wanted, both, 2) != name) return;
    (void)snprintf(s->best, sizeof s->best, "%s", name);
    s->peer = peer;
}

static void look_at_peer(search *s, const bt_config_peer *peer) {
    for (uint32_t i = 0; i < peer->n_models; i++)
        look_at(s, peer->models[i], peer->name);
}

/* The peer that stands before a name, and what stands behind it. */
static const bt_config_peer *peer_of(const bt_config *config, const char *name, const char **ret_rest) {
    for (uint32_t i = 0; i < config->n_peers; i++) {
        size_t n = strlen(config->peers[i].name);
        *ret_rest = name + n + 1;
        if (strncmp(config->peers[i].name, name, n) == 0 && name[n] == '/') return &config->peers[i];
    }
    return NULL;
}

static uint32_t count_listed(const bt_config *config) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < config->n_models; i++)
        n += !config->models[i].unlisted;
    for (uint32_t i = 0; i < config->n_peers; i++)
        n += config->peers[i].n_models;
    return n;
}

bool bt_config_no_model(const bt_config *config, const char *name, char *ret, size_t capacity) {
    search s = {.wanted = name};
    const char *rest = NULL;
    const bt_config_peer *asked = peer_of(config, name, &rest);
    if (asked) {
        s.wanted = rest;
        look_at_peer(&s, asked);
    }
    for (uint32_t i = 0; i < config->n_models && !asked; i++) {
        const bt_config_model *m = &config->models[i];
        if (m->unlisted) continue;
        look_at(&s, m->id, NULL);
        for (uint32_t k = 0; k < m->n_aliases; k++)
            look_at(&s, m->aliases[k], NULL);
    }
    for (uint32_t i = 0; i < config->n_peers && !asked; i++)
        look_at_peer(&s, &config->peers[i]);
    uint32_t n_listed = count_listed(config);
    bool near = s.best[0] != '\0';
    (void)snprintf(ret, capacity, "no model is called %.128s%s%s%s%s%s /v1/models lists %s%u", name,
                   near ? "; did you mean \"" : ";", s.peer ? s.peer : "", s.peer ? "/" : "", s.best, near ? "\"?" : "",
                   n_listed > 1 ? "all " : "", n_listed);
    ret[bt_utf8_fit(ret, strlen(ret))] = '\0';
    return near;
}
