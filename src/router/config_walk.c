/* SPDX-License-Identifier: MIT
 * config_walk.c: from a mapping to the rows of the table (config_keys.c), and from a row to its value.
 *
 * Both spellings of one key in one mapping, or two keys with one target, are an error: neither could be told to win.
 * Places lie in each other at most as deep as the table has them; a place is walked from its row's reader, so there is
 * no recursion but through that table, and YAML's own depth is bounded. */
#include "base/error.h"
#include "base/option.h"
#include "router/config_read.h"

#include <string.h>

#define NAMES_MAX 128u /* spellings of one place */

static const bt_key *find(bt_config_place place, const char *key) {
    for (size_t i = 0; i < bt_config_n_keys; i++) {
        const bt_key *row = &bt_config_keys[i];
        if (row->place != place) continue;
        if ((row->name && strcmp(row->name, key) == 0) || (row->swap && strcmp(row->swap, key) == 0)) return row;
    }
    return NULL;
}

static const char *nearest(bt_config_place place, const char *key) {
    const char *names[NAMES_MAX];
    size_t n = 0;
    for (size_t i = 0; i < bt_config_n_keys && n + 2 <= NAMES_MAX; i++) {
        const bt_key *row = &bt_config_keys[i];
        if (row->place != place) continue;
        if (row->name) names[n++] = row->name;
        if (row->swap && (!row->name || strcmp(row->name, row->swap) != 0)) names[n++] = row->swap;
    }
    return bt_nearest(key, names, n);
}

static bt_status unknown(const bt_config_reader *r, bt_config_place place, const bt_yaml_entry *entry) {
    const char *near = nearest(place, entry->key);
    return bt_read_fail(r, BT_E_FORMAT, entry->line, "unknown key%s%s%s", near ? "; did you mean \"" : "",
                        near ? near : "", near ? "\"?" : "");
}

static bt_status read_number(bt_config_reader *r, const bt_key *row, const bt_yaml_node *node, void *at) {
    int64_t value = 0;
    BT_TRY(bt_read_integer(r, node, (int64_t)row->min, (int64_t)row->max, &value));
    if (row->kind == BT_KEY_U32) {
        *(uint32_t *)at = (uint32_t)value;
    } else {
        *(int32_t *)at = (int32_t)value;
    }
    return BT_OK;
}

/* llama-swap's way to say none is "". */
static bt_status read_text(bt_config_reader *r, const bt_yaml_node *node, const char **at) {
    BT_TRY(bt_read_text(r, node, 0, at));
    if ((*at)[0] == '\0') *at = NULL;
    return BT_OK;
}

static bt_status read_value(bt_config_reader *r, const bt_key *row, const bt_yaml_entry *entry, void *target) {
    void *at = (char *)target + (row->offset == SIZE_MAX ? 0 : row->offset);
    const bt_yaml_node *node = entry->value;
    switch (row->kind) {
    case BT_KEY_TEXT:
        return read_text(r, node, at);
    case BT_KEY_PATH:
        return bt_read_path(r, node, at);
    case BT_KEY_BOOL:
        return bt_read_bool(r, node, at);
    case BT_KEY_U32:
    case BT_KEY_I32:
        return read_number(r, row, node, at);
    case BT_KEY_SIZE:
        return bt_read_size(r, node, (uint64_t)row->min, (uint64_t)row->max, at);
    case BT_KEY_TIME:
        return bt_read_time(r, node, (uint64_t)row->min, (uint64_t)row->max, at);
    case BT_KEY_CUSTOM:
        return row->read(r, node, target);
    case BT_KEY_NOTE:
        bt_read_note(r, entry->line, "%s%s: %s", bt_config_place_name(row->place), entry->key, row->meaning);
        return BT_OK;
    case BT_KEY_SECTION:
    case BT_KEY_REFUSED:
    default:
        return bt_read_fail(r, BT_E_FORMAT, entry->line, "%s", row->meaning);
    }
}

/* A key that has written already what this one would write. */
static bt_status check_twice(const bt_config_reader *r, bt_config_place place, const bt_yaml_node *node, uint32_t i,
                             const bt_key *row) {
    for (uint32_t k = 0; k < i; k++) {
        const bt_key *before = find(place, node->entries[k].key);
        if (!before || bt_read_is_null(node->entries[k].value)) continue;
        if (before == row || (row->offset != SIZE_MAX && before->offset == row->offset)) {
            return bt_read_fail(r, BT_E_FORMAT, node->entries[i].line,
                                "\"%.80s\" and \"%.80s\" (line %u) are the same: give one of them",
                                node->entries[i].key, node->entries[k].key, node->entries[k].line);
        }
    }
    return BT_OK;
}

/* One mapping of those that are being read, each inside of the one before it. */
typedef struct level {
    bt_config_place place;
    const bt_yaml_node *node;
    uint32_t at;
} level;
#define LEVELS_MAX 8u /* routing.scheduler.settings.fifo is four */

static bt_status read_entry(bt_config_reader *r, level *levels, uint32_t *depth, void *target) {
    level *in = &levels[*depth - 1];
    uint32_t i = in->at++;
    const bt_yaml_entry *entry = &in->node->entries[i];
    const bt_key *row = find(in->place, entry->key);
    bt_read_enter(r, entry->key);
    if (!row) return unknown(r, in->place, entry);
    BT_TRY(check_twice(r, in->place, in->node, i, row));
    bool is_null = bt_read_is_null(entry->value);
    if (!is_null && row->kind == BT_KEY_SECTION && *depth < LEVELS_MAX) {
        BT_TRY(bt_read_map(r, entry->value));
        levels[(*depth)++] = (level){row->below, entry->value, 0};
        return BT_OK; /* its key is left where its last entry has been read */
    }
    if (!is_null) BT_TRY(read_value(r, row, entry, target));
    bt_read_leave(r);
    return BT_OK;
}

bt_status bt_read_keys(bt_config_reader *r, bt_config_place place, const bt_yaml_node *node, void *target) {
    level levels[LEVELS_MAX] = {{place, node, 0}};
    uint32_t depth = 1;
    BT_TRY(bt_read_map(r, node));
    while (depth > 0) {
        if (levels[depth - 1].at == levels[depth - 1].node->n) {
            if (--depth > 0) bt_read_leave(r);
        } else {
            BT_TRY(read_entry(r, levels, &depth, target));
        }
    }
    return BT_OK;
}
