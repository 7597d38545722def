/* SPDX-License-Identifier: MIT
 * config_parse.c: from a file's text to a configuration.
 *
 * The order: the document (yaml.c), macros, every key of the top in the order of the file, then models, groups, peers,
 * and what names models. The document lives in an arena of its own that goes when all is read; everything kept is in
 * the configuration's. A configuration is whole or is not there. */
#include "base/error.h"
#include "base/heap.h"
#include "base/option.h"
#include "base/os.h"
#include "router/config_read.h"

#include <string.h>

#define SCRATCH_BLOCK_BYTES (64u << 10)

static bt_status read_all(bt_config_reader *r, const bt_yaml_node *root) {
    if (!root) return BT_OK;
    BT_TRY(bt_read_map(r, root));
    for (uint32_t i = 0; i < root->n; i++) {
        if (strcmp(root->entries[i].key, "macros") != 0) continue;
        bt_read_enter(r, root->entries[i].key);
        BT_TRY(bt_read_macros(r, root->entries[i].value, &r->macros.items, &r->macros.n));
        bt_read_leave(r);
    }
    BT_TRY(bt_read_keys(r, BT_PLACE_TOP, root, r));
    BT_TRY(bt_read_models(r));
    BT_TRY(bt_read_groups(r));
    BT_TRY(bt_read_peers(r));
    BT_TRY(bt_read_names(r));
    if (!r->c.tls_cert == !r->c.tls_key) return BT_OK;
    return bt_read_fail(r, BT_E_FORMAT, root->line, "tls_cert and tls_key go together");
}

static bt_status parse(bt_config_reader *r, const char *text, size_t n) {
    const char *slash = strrchr(r->file, '/');
    r->c.file = bt_arena_strdup(r->arena, r->file);
    if (!r->c.file) return bt_read_no_memory(r);
    if (slash) {
        r->home = bt_arena_strndup(r->scratch, r->file, (size_t)(slash - r->file));
        if (!r->home) return bt_read_no_memory(r);
    }
    bt_yaml_node *root = NULL;
    BT_TRY(bt_yaml_parse(text, n, r->file, r->scratch, &root, r->err));
    return read_all(r, root);
}

bt_status bt_config_parse(const char *text, size_t n, const char *path, const char *(*env_get)(const char *),
                          bt_config **ret, bt_config_notes *notes, bt_error *err) {
    *ret = NULL;
    if (notes) *notes = (bt_config_notes){0};
    bt_config_reader r = {.file = path, .notes = notes, .err = err, .macros.env_get = env_get ? env_get : bt_environ};
    r.arena = bt_config_arena();
    r.scratch = bt_arena_open(BT_YAML_ARENA_MAX, SCRATCH_BLOCK_BYTES);
    bt_config *config = r.arena ? bt_arena_alloc(r.arena, sizeof *config) : NULL;
    bt_status status = BT_OK;
    if (!config || !r.scratch) {
        (void)bt_fail(err, BT_E_NOMEM, "config", BT_MEASURE_NONE, 0, 0, "no memory for the configuration");
        status = BT_E_NOMEM;
    } else if (n > BT_CONFIG_FILE_MAX) {
        status = bt_fail(err, BT_E_LIMIT, "config", BT_MEASURE_BYTES, n, BT_CONFIG_FILE_MAX,
                         "%s is larger than a configuration may be", path);
    } else {
        bt_config_defaults(&r.c, r.arena);
        status = parse(&r, text, n);
    }
    bt_arena_close(r.scratch);
    if (status != BT_OK) {
        bt_arena_close(r.arena);
        return status;
    }
    *config = r.c;
    *ret = config;
    return BT_OK;
}

bt_status bt_config_load(const char *path, bt_config **ret, bt_config_notes *notes, bt_error *err) {
    *ret = NULL;
    int fd = bt_os_open(path, false);
    if (fd < 0) return bt_fail_sys(err, -fd, "config", "%s", path);
    char *text = bt_heap_alloc(BT_CONFIG_FILE_MAX + 1); /* untouched pages of it are no memory */
    if (!text) {
        (void)bt_os_close(fd);
        return bt_fail(err, BT_E_NOMEM, "config", BT_MEASURE_NONE, 0, 0, "no memory to read %s", path);
    }
    size_t n = 0;
    int64_t got = 1;
    while (got > 0 && n <= BT_CONFIG_FILE_MAX) {
        got = bt_os_pread(fd, text + n, BT_CONFIG_FILE_MAX + 1 - n, n);
        if (got > 0) n += (size_t)got;
    }
    (void)bt_os_close(fd);
    bt_status status = got < 0 ? bt_fail_sys(err, (int)-got, "config", "%s", path)
                               : bt_config_parse(text, n, path, NULL, ret, notes, err);
    bt_heap_free(text);
    return status;
}
