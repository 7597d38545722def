/* SPDX-License-Identifier: MIT
 * config_later.c: what names models, looked at when all of them are known: groups, preload, priorities, aliases.
 *
 * A name that no model has is an error with the nearest one that is there, and a name that two have is one too: it
 * would be luck who answers. Groups name ids; preload and priorities take aliases as well. Comparing all names with all
 * is bounded by BT_CONFIG_NAMES_MAX squared, a million comparisons. */
#include "base/error.h"
#include "base/option.h"
#include "router/config_read.h"

#include <string.h>

#define LATER(name, member)                                                                                            \
    bt_status name(bt_config_reader *r, const bt_yaml_node *node, void *target) {                                      \
        (void)target;                                                                                                  \
        r->later.member = node;                                                                                        \
        return BT_OK;                                                                                                  \
    }

LATER(bt_read_models_later, models)
LATER(bt_read_groups_later, groups)
LATER(bt_read_more_groups_later, more_groups)
LATER(bt_read_peers_later, peers)
LATER(bt_read_preload_later, preload)
LATER(bt_read_priority_later, priority)

bt_status bt_read_macros_later(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    (void)r;
    (void)node;
    (void)target;
    return BT_OK; /* read before everything: config_parse.c */
}

bt_status bt_read_group_members(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    (void)r;
    ((bt_config_group_read *)target)->members = node;
    return BT_OK;
}

/* ---- finding a model by name ------------------------------------------------------------------------------------ */

static bt_config_model *model_of(const bt_config_reader *r, const char *name, bool aliases) {
    for (uint32_t i = 0; i < r->c.n_models; i++) {
        bt_config_model *m = &r->c.models[i];
        if (strcmp(m->id, name) == 0) return m;
        for (uint32_t k = 0; aliases && k < m->n_aliases; k++) {
            if (strcmp(m->aliases[k], name) == 0) return m;
        }
    }
    return NULL;
}

static bt_status no_model(const bt_config_reader *r, uint32_t line, const char *name) {
    const char *ids[BT_CONFIG_MODELS_MAX];
    for (uint32_t i = 0; i < r->c.n_models; i++)
        ids[i] = r->c.models[i].id;
    const char *near = bt_nearest(name, ids, r->c.n_models);
    return bt_read_fail(r, BT_E_FORMAT, line, "no model is called \"%.80s\"%s%s%s", name,
                        near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

/* ---- groups ----------------------------------------------------------------------------------------------------- */

static bt_status join(bt_config_reader *r, const bt_yaml_node *node, uint32_t group) {
    const char *const *names = NULL;
    uint32_t n = 0;
    BT_TRY(bt_read_texts(r, node, BT_CONFIG_MODELS_MAX, false, &names, &n));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t line = node->kind == BT_YAML_LIST ? node->items[i]->line : node->line;
        bt_config_model *m = model_of(r, names[i], false);
        if (!m) return no_model(r, line, names[i]);
        if (m->group != UINT32_MAX) {
            return bt_read_fail(r, BT_E_FORMAT, line, "%s is a member of %.80s already", m->id,
                                r->c.groups[m->group].name);
        }
        m->group = group;
    }
    return BT_OK;
}

static bt_status read_group(bt_config_reader *r, const bt_yaml_entry *entry) {
    bt_config_group_read read = {.group = {.swap = true, .exclusive = true}};
    read.group.name = bt_arena_strdup(r->arena, entry->key);
    if (!read.group.name) return bt_read_no_memory(r);
    BT_TRY(bt_read_keys(r, BT_PLACE_GROUP, entry->value, &read));
    r->c.groups[r->c.n_groups++] = read.group;
    if (!read.members) return bt_read_fail(r, BT_E_FORMAT, entry->line, "a group without members");
    bt_read_enter(r, "members");
    BT_TRY(join(r, read.members, r->c.n_groups - 1));
    bt_read_leave(r);
    return BT_OK;
}

bt_status bt_read_groups(bt_config_reader *r) {
    const bt_yaml_node *node = r->later.groups ? r->later.groups : r->later.more_groups;
    if (!node) return BT_OK;
    bt_read_enter(r, r->later.more_groups ? "routing.router.settings.groups" : "groups");
    if (r->later.groups && r->later.more_groups) {
        return bt_read_fail(r, BT_E_FORMAT, r->later.more_groups->line,
                            "groups stand at line %u already, at the top: give them once", r->later.groups->line);
    }
    BT_TRY(bt_read_map(r, node));
    if (node->n > BT_CONFIG_GROUPS_MAX) {
        return bt_read_fail(r, BT_E_LIMIT, node->line, "more than %u groups", BT_CONFIG_GROUPS_MAX);
    }
    r->c.groups = bt_arena_array(r->arena, node->n ? node->n : 1, sizeof *r->c.groups);
    if (!r->c.groups) return bt_read_no_memory(r);
    for (uint32_t i = 0; i < node->n; i++) {
        bt_read_enter(r, node->entries[i].key);
        BT_TRY(read_group(r, &node->entries[i]));
        bt_read_leave(r);
    }
    bt_read_leave(r);
    return BT_OK;
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

/* Names of set_params_by_id become aliases, but the id. */
static bt_status add_aliases(const bt_config_reader *r, bt_config_model *m) {
    const bt_config_filters *filters = &m->filters;
    if (filters->n_set_by_id == 0) return BT_OK;
    const char **all = bt_arena_array(r->arena, (uint64_t)m->n_aliases + filters->n_set_by_id, sizeof *all);
    if (!all) return bt_read_no_memory(r);
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_aliases; i++)
        all[n++] = m->aliases[i];
    for (uint32_t i = 0; i < filters->n_set_by_id; i++) {
        const char *name = filters->set_by_id[i];
        bool there = strcmp(name, m->id) == 0;
        for (uint32_t k = 0; k < m->n_aliases; k++)
            there = there || strcmp(name, m->aliases[k]) == 0;
        if (!there) all[n++] = name;
    }
    m->aliases = all;
    m->n_aliases = n;
    return BT_OK;
}

typedef struct named {
    const char *name;
    const bt_config_model *model;
} named;

static bt_status add_name(const bt_config_reader *r, named *names, uint32_t *n, const char *name,
                          const bt_config_model *model) {
    if (*n == BT_CONFIG_NAMES_MAX) {
        return bt_read_fail(r, BT_E_LIMIT, model->line, "more than %u ids and aliases", BT_CONFIG_NAMES_MAX);
    }
    for (uint32_t i = 0; i < *n; i++) {
        if (strcmp(names[i].name, name) == 0) {
            return bt_read_fail(r, BT_E_FORMAT, model->line, "%.100s is called \"%.80s\", and so is %.100s (line %u)",
                                model->id, name, names[i].model->id, names[i].model->line);
        }
    }
    names[(*n)++] = (named){name, model};
    return BT_OK;
}

static bt_status check_names(bt_config_reader *r) {
    named *names = bt_arena_array(r->scratch, BT_CONFIG_NAMES_MAX, sizeof *names);
    uint32_t n = 0;
    if (!names) return bt_read_no_memory(r);
    for (uint32_t i = 0; i < r->c.n_models; i++) {
        BT_TRY(add_aliases(r, &r->c.models[i]));
        BT_TRY(add_name(r, names, &n, r->c.models[i].id, &r->c.models[i]));
    }
    for (uint32_t i = 0; i < r->c.n_models; i++) {
        const bt_config_model *m = &r->c.models[i];
        bt_read_enter(r, "models");
        bt_read_enter(r, m->id);
        for (uint32_t k = 0; k < m->n_aliases; k++)
            BT_TRY(add_name(r, names, &n, m->aliases[k], m));
        bt_read_leave(r);
        bt_read_leave(r);
    }
    return BT_OK;
}

static bt_status read_priorities(bt_config_reader *r, const bt_yaml_node *node) {
    bt_read_enter(r, "routing.scheduler.settings.fifo.priority");
    BT_TRY(bt_read_map(r, node));
    for (uint32_t i = 0; i < node->n; i++) {
        const bt_yaml_entry *entry = &node->entries[i];
        bt_config_model *m = model_of(r, entry->key, true);
        int64_t value = 0;
        if (!m) return no_model(r, entry->line, entry->key);
        bt_read_enter(r, entry->key);
        BT_TRY(bt_read_integer(r, entry->value, -1000000, 1000000, &value));
        bt_read_leave(r);
        m->priority = (int32_t)value;
    }
    bt_read_leave(r);
    return BT_OK;
}

bt_status bt_read_names(bt_config_reader *r) {
    BT_TRY(check_names(r));
    if (r->later.priority) BT_TRY(read_priorities(r, r->later.priority));
    if (!r->later.preload) return BT_OK;
    const char *const *names = NULL;
    uint32_t n = 0;
    bt_read_enter(r, "hooks.on_startup.preload");
    BT_TRY(bt_read_texts(r, r->later.preload, BT_CONFIG_MODELS_MAX, false, &names, &n));
    for (uint32_t i = 0; i < n; i++) {
        bt_config_model *m = model_of(r, names[i], true);
        if (!m) return no_model(r, r->later.preload->line, names[i]);
        m->preload = true;
    }
    bt_read_leave(r);
    return BT_OK;
}
