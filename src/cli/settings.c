/* SPDX-License-Identifier: MIT
 * settings.c: the user's own defaults of options.
 *
 *   BURTHEN_CONFIG, and then no other ("": none)
 *   $XDG_CONFIG_HOME/burthen/config.yaml, or $HOME/.config/burthen/config.yaml
 *
 * A mapping of the option table's long names; under the name of a command stands what counts for that command alone:
 *
 *   threads: 4                 every command that has the option
 *   device: [CUDA0, CUDA1]     a list: as with commas
 *   run: {temp: 0.2}           run alone
 *
 * What may stand in the environment may stand here, and nothing else: a prompt kept by mistake would answer for all.
 * Keys are checked for all commands at once, so that a slip of the pen shows the first time and not when a command that
 * reads it is used; values are checked where they are used, by the option's own parser. A flag and the environment
 * win (base/option.c). Bounds: the file's size, the number of values, and those of src/yaml. */
#include "cli/settings.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/text_file.h"
#include "cli/verbs.h"
#include "yaml/yaml.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define WHERE_BYTES (PATH_MAX + 64u) /* a path, and ":LINE" */
#define ARENA_BLOCK (1u << 14)
#define EVERY       0u /* for each command that has the option */

typedef struct setting {
    const char *name; /* the row's */
    uint32_t command; /* a bit, or EVERY */
    uint32_t line;
    const char *value;
} setting;

struct bt_settings {
    bt_arena *arena;
    const char *file;
    uint32_t command; /* that asks */
    uint32_t n;
    setting items[BT_SETTINGS_MAX];
    char where[WHERE_BYTES];
};

/* ---- names ------------------------------------------------------------------------------------------------------ */

static bool is_alike(const char *a, const char *b) {
    for (; *a && *b; a++, b++) {
        bool dashes = (*a == '-' || *a == '_') && (*b == '-' || *b == '_');
        if (*a != *b && !dashes) return false;
    }
    return *a == *b;
}

static bool is_of(const bt_option *row, const char *key, uint32_t command) {
    if (command != EVERY && !(row->commands & command)) return false;
    return is_alike(row->name, key) || (row->alias && is_alike(row->alias, key));
}

/* The row that may be kept, else one that may not, else NULL. */
static const bt_option *find_row(const char *key, uint32_t command) {
    const bt_option *found = NULL;
    for (size_t i = 0; i < bt_cli_option_count; i++) {
        const bt_option *row = &bt_cli_option_table[i];
        if (!is_of(row, key, command)) continue;
        if (!row->no_env) return row;
        found = row;
    }
    return found;
}

static const char *nearest_key(const char *key, uint32_t command) {
    const char *names[BT_SETTINGS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < bt_cli_option_count && n < BT_SETTINGS_MAX; i++) {
        const bt_option *row = &bt_cli_option_table[i];
        bool fits = !row->hidden && !row->no_env && (command == EVERY || (row->commands & command) != 0);
        if (fits) names[n++] = row->name;
    }
    for (size_t i = 0; command == EVERY && i < bt_verb_count && n < BT_SETTINGS_MAX; i++)
        names[n++] = bt_verbs[i].name;
    return bt_nearest(key, names, n);
}

/* ---- the file --------------------------------------------------------------------------------------------------- */

/* key: what the sentence begins with; "" for none. */
static bt_status wrong(const bt_settings *s, uint32_t line, const char *key, const char *what, bt_error *err) {
    return bt_fail(err, BT_E_ARG, "settings", BT_MEASURE_NONE, 0, 0, "%s:%u: %s%s%s", s->file, line, key,
                   key[0] ? " " : "", what);
}

static bt_status no_memory(const bt_settings *s, bt_error *err) {
    return bt_fail(err, BT_E_NOMEM, "settings", BT_MEASURE_NONE, 0, 0, "no memory to read %s", s->file);
}

static bt_status fail_key(const bt_settings *s, const bt_yaml_entry *entry, uint32_t command, bt_error *err) {
    if (command == EVERY && bt_verb_find(entry->key))
        return wrong(s, entry->line, entry->key, "is a command: a mapping of its options is wanted", err);
    const char *nearest = nearest_key(entry->key, command);
    const bt_verb *verb = command != EVERY ? bt_verb_of(command) : NULL;
    return bt_fail(err, BT_E_ARG, "settings", BT_MEASURE_NONE, 0, 0, "%s:%u: %.64s is not an option%s%s%s%s", s->file,
                   entry->line, entry->key, verb ? " of " : "", verb ? verb->name : "",
                   nearest ? "; the nearest is " : "", nearest ? nearest : "");
}

/* A scalar as it is written, a list of them with commas. */
static bt_status take_value(bt_settings *s, const bt_yaml_entry *entry, const char **ret, bt_error *err) {
    const bt_yaml_node *value = entry->value;
    *ret = value->kind == BT_YAML_SCALAR ? value->text : "";
    if (value->kind == BT_YAML_SCALAR) return BT_OK;
    if (value->kind == BT_YAML_MAP) return wrong(s, entry->line, entry->key, "takes a value, not a mapping", err);
    bt_text text;
    bt_text_init(&text, BT_SETTINGS_MAX_BYTES);
    bt_status status = BT_OK;
    for (uint32_t i = 0; i < value->n && status == BT_OK; i++) {
        bt_text_add(&text, i ? "," : "");
        bt_text_add(&text, value->items[i]->kind == BT_YAML_SCALAR ? value->items[i]->text : "");
        if (value->items[i]->kind != BT_YAML_SCALAR)
            status = wrong(s, value->items[i]->line, entry->key, "takes a list of values", err);
    }
    const char *copy = status == BT_OK && !text.failed ? bt_arena_strdup(s->arena, bt_text_str(&text)) : NULL;
    bt_text_done(&text);
    if (status == BT_OK && !copy) status = no_memory(s, err);
    *ret = copy;
    return status;
}

static bool is_null(const bt_yaml_node *value) {
    return value->kind == BT_YAML_SCALAR && value->type == BT_YAML_NULL;
}

static bt_status take_setting(bt_settings *s, const bt_yaml_entry *entry, uint32_t command, bt_error *err) {
    const bt_option *row = find_row(entry->key, command);
    /* A command all of whose options are commented out is a null, as an option without a value is. */
    if (!row && command == EVERY && is_null(entry->value) && bt_verb_find(entry->key)) return BT_OK;
    if (!row) return fail_key(s, entry, command, err);
    if (row->no_env)
        return wrong(s, entry->line, entry->key, "is of one run, and is not kept: it stands on the command line", err);
    if (is_null(entry->value)) return BT_OK;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->items[i].command != command || strcmp(s->items[i].name, row->name) != 0) continue;
        return bt_fail(err, BT_E_ARG, "settings", BT_MEASURE_NONE, 0, 0, "%s:%u: %s stands at line %u already", s->file,
                       entry->line, row->name, s->items[i].line);
    }
    if (s->n == BT_SETTINGS_MAX) return wrong(s, entry->line, "", "too many values", err);
    setting *item = &s->items[s->n];
    *item = (setting){.name = row->name, .command = command, .line = entry->line};
    BT_TRY(take_value(s, entry, &item->value, err));
    s->n++;
    return BT_OK;
}

static bt_status take_all(bt_settings *s, const bt_yaml_node *root, bt_error *err) {
    if (!root) return BT_OK;
    if (root->kind != BT_YAML_MAP) return wrong(s, root->line, "", "a mapping of options is wanted", err);
    for (uint32_t i = 0; i < root->n; i++) {
        const bt_yaml_entry *entry = &root->entries[i];
        const bt_verb *verb = bt_verb_find(entry->key);
        if (!verb || entry->value->kind != BT_YAML_MAP) {
            BT_TRY(take_setting(s, entry, EVERY, err));
            continue;
        }
        for (uint32_t k = 0; k < entry->value->n; k++)
            BT_TRY(take_setting(s, &entry->value->entries[k], (uint32_t)verb->bit, err));
    }
    return BT_OK;
}

/* A file that is no YAML is a typing error here, not a bad model as it is to other readers of YAML. */
static bt_status read_tree(bt_settings *s, const char *text, size_t n, bt_yaml_node **ret, bt_error *err) {
    bt_error why = {0};
    bt_status status = bt_yaml_parse(text, n, s->file, s->arena, ret, &why);
    if (status == BT_OK) return BT_OK;
    if (status == BT_E_NOMEM) return no_memory(s, err);
    return bt_fail(err, BT_E_ARG, "settings", BT_MEASURE_NONE, 0, 0, "%s", why.text);
}

bt_status bt_settings_parse(const char *text, size_t n, const char *file, bt_settings **ret, bt_error *err) {
    bt_yaml_node *root = NULL;
    bt_settings *s = bt_heap_alloc(sizeof *s);
    *ret = NULL;
    if (s) s->arena = bt_arena_open(BT_YAML_ARENA_MAX, ARENA_BLOCK);
    if (s && s->arena) s->file = bt_arena_strdup(s->arena, file);
    if (!s || !s->file) {
        bt_settings_close(s);
        return bt_fail(err, BT_E_NOMEM, "settings", BT_MEASURE_NONE, 0, 0, "no memory to read %s", file);
    }
    bt_status status = read_tree(s, text, n, &root, err);
    if (status == BT_OK) status = take_all(s, root, err);
    if (status != BT_OK) {
        bt_settings_close(s);
        return status;
    }
    *ret = s;
    return BT_OK;
}

void bt_settings_close(bt_settings *settings) {
    if (!settings) return;
    bt_arena_close(settings->arena);
    bt_heap_free(settings);
}

/* ---- where it is ------------------------------------------------------------------------------------------------ */

bool bt_settings_path(const char *(*environ_get)(const char *), char *ret_path, size_t capacity, bool *ret_named) {
    const char *(*get_variable)(const char *) = environ_get ? environ_get : bt_environ;
    const char *named = get_variable("BURTHEN_CONFIG");
    const char *config = get_variable("XDG_CONFIG_HOME");
    const char *home = get_variable("HOME");
    int n = 0;
    *ret_named = named != NULL;
    if (named) {
        n = snprintf(ret_path, capacity, "%s", named);
    } else if (config && config[0] == '/') { /* XDG: a relative path counts as not set */
        n = snprintf(ret_path, capacity, "%s/burthen/config.yaml", config);
    } else if (home && home[0] == '/') {
        n = snprintf(ret_path, capacity, "%s/.config/burthen/config.yaml", home);
    }
    return n > 0 && (size_t)n < capacity;
}

bt_status bt_settings_open(const char *(*environ_get)(const char *), bt_settings **ret, bt_error *err) {
    char path[PATH_MAX] = "";
    bool named = false;
    bt_text text;
    *ret = NULL;
    bool found = bt_settings_path(environ_get, path, sizeof path, &named);
    if (!found && path[0]) return bt_fail_sys(err, ENAMETOOLONG, "settings", "cannot read %s", path);
    if (!found) return BT_OK;
    bt_text_init(&text, BT_SETTINGS_MAX_BYTES);
    int rc = bt_text_read_path(&text, path);
    bt_status status = BT_OK;
    /* Nobody has to have one; and the home of a service may be another user's. */
    bool is_none = rc == -ENOENT || rc == -ENOTDIR || rc == -EACCES;
    if (rc == 0) {
        status = bt_settings_parse(bt_text_str(&text), text.n_bytes, path, ret, err);
    } else if (named || !is_none) {
        status = bt_fail_sys(err, -rc, "settings", "cannot read %s", path);
    }
    bt_text_done(&text);
    return status;
}

/* ---- as a layer ------------------------------------------------------------------------------------------------- */

static const char *get(void *user, const bt_option *row, const char **ret_where) {
    bt_settings *s = user;
    const setting *found = NULL;
    for (uint32_t i = 0; s && i < s->n; i++) {
        const setting *item = &s->items[i];
        bool counts = item->command == s->command || (item->command == EVERY && !found);
        if (counts && strcmp(item->name, row->name) == 0) found = item;
    }
    if (!found) return NULL;
    (void)snprintf(s->where, sizeof s->where, "%s:%u", s->file, found->line);
    *ret_where = s->where;
    return found->value;
}

bt_option_file bt_settings_layer(bt_settings *settings, bt_cli_command command) {
    if (settings) settings->command = (uint32_t)command;
    return (bt_option_file){.get = get, .user = settings};
}
