/* SPDX-License-Identifier: MIT
 * config_filters.c: what a configuration says is changed in requests (filter.c changes them).
 *
 * "model" is left out of both kinds of filter with a note: a request that named another model than the one it was
 * admitted for would be answered by nobody. Values are kept as JSON text, numbers as they are written. */
#include "base/error.h"
#include "router/config_read.h"

#include <string.h>

#define STRIP_MAX      64u
#define BY_ID_MAX      64u
#define NAME_BYTES_MAX 255u /* of a member: filter.c */

bt_status bt_read_strip(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    bt_config_filters *filters = target;
    const char *const *names = NULL;
    uint32_t n = 0;
    BT_TRY(bt_read_texts(r, node, STRIP_MAX, true, &names, &n));
    const char **kept = bt_arena_array(r->arena, n ? n : 1, sizeof *kept);
    if (!kept) return bt_read_no_memory(r);
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(names[i], "model") == 0) {
            bt_read_note(r, node->line, "strip_params: model is never dropped");
        } else if (strlen(names[i]) > NAME_BYTES_MAX) {
            return bt_read_fail(r, BT_E_LIMIT, node->line, "a name of more than %u bytes", NAME_BYTES_MAX);
        } else {
            kept[filters->n_strip++] = names[i];
        }
    }
    filters->strip = kept;
    return BT_OK;
}

static bt_status read_set(bt_config_reader *r, const bt_yaml_node *node, const char **ret) {
    BT_TRY(bt_read_map(r, node));
    bt_yaml_node without = *node;
    without.entries = bt_arena_array(r->scratch, node->n ? node->n : 1, sizeof *without.entries);
    if (!without.entries) return bt_read_no_memory(r);
    without.n = 0;
    for (uint32_t i = 0; i < node->n; i++) {
        if (strcmp(node->entries[i].key, "model") == 0) {
            bt_read_note(r, node->entries[i].line, "set_params: model is never set; use_model_name does that");
        } else if (strlen(node->entries[i].key) > NAME_BYTES_MAX) {
            return bt_read_fail(r, BT_E_LIMIT, node->entries[i].line, "a name of more than %u bytes", NAME_BYTES_MAX);
        } else {
            without.entries[without.n++] = node->entries[i];
        }
    }
    return bt_read_json(r, &without, ret);
}

bt_status bt_read_set(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    return read_set(r, node, &((bt_config_filters *)target)->set_json);
}

/* Keys may hold macros: "${MODEL_ID}:high" is how they are written. */
static bt_status read_key(bt_config_reader *r, const bt_yaml_entry *entry, const char **ret) {
    bt_yaml_node key = {.kind = BT_YAML_SCALAR, .line = entry->line, .text = entry->key};
    BT_TRY(bt_read_text(r, &key, 0, ret));
    return (*ret)[0] != '\0' ? BT_OK : bt_read_fail(r, BT_E_FORMAT, entry->line, "an empty name of a model");
}

bt_status bt_read_set_by_id(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    bt_config_filters *filters = target;
    BT_TRY(bt_read_map(r, node));
    if (node->n > BY_ID_MAX) return bt_read_fail(r, BT_E_LIMIT, node->line, "more than %u names", BY_ID_MAX);
    const char **names = bt_arena_array(r->arena, node->n ? node->n : 1, sizeof *names);
    const char **sets = bt_arena_array(r->arena, node->n ? node->n : 1, sizeof *sets);
    if (!names || !sets) return bt_read_no_memory(r);
    for (uint32_t i = 0; i < node->n; i++) {
        bt_read_enter(r, node->entries[i].key);
        BT_TRY(read_key(r, &node->entries[i], &names[i]));
        for (uint32_t k = 0; k < i; k++) {
            if (strcmp(names[k], names[i]) != 0) continue;
            return bt_read_fail(r, BT_E_FORMAT, node->entries[i].line, "\"%.80s\" stands there twice", names[i]);
        }
        if (bt_read_is_null(node->entries[i].value)) {
            sets[i] = "{}";
        } else {
            BT_TRY(read_set(r, node->entries[i].value, &sets[i]));
        }
        bt_read_leave(r);
    }
    filters->set_by_id = names;
    filters->set_by_id_json = sets;
    filters->n_set_by_id = node->n;
    return BT_OK;
}

bt_status bt_read_model_filters(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    return bt_read_keys(r, BT_PLACE_FILTERS, node, &((bt_config_model *)target)->filters);
}

bt_status bt_read_peer_filters(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    return bt_read_keys(r, BT_PLACE_FILTERS, node, &((bt_config_peer *)target)->filters);
}
