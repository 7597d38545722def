/* SPDX-License-Identifier: MIT
 * router_check.h: what must hold of any text that is read as a configuration, for the fuzzers. ROUTER_CHECK(condition)
 * is the caller's. */
#pragma once

#include "base/arena.h"
#include "base/heap.h"
#include "router/config.h"

#include <string.h>

static inline const char *router_check_env(const char *name) {
    return strcmp(name, "HOME") == 0 || strcmp(name, "KEY") == 0 ? "/value" : NULL;
}

static inline void router_check_plain(const char *text) {
    size_t n = strlen(text);
    ROUTER_CHECK(n > 0);
    for (size_t i = 0, length = 0; i < n; i += length) {
        length = bt_utf8_length(text + i, n - i);
        ROUTER_CHECK(length > 0 && !bt_utf8_is_control(text + i, length));
    }
}

static inline void router_check_model(const bt_config *c, const bt_config_model *m) {
    ROUTER_CHECK(m->id[0] != '\0' && strlen(m->id) <= BT_CONFIG_ID_MAX);
    ROUTER_CHECK(!m->model != !m->cmd);
    ROUTER_CHECK(m->group == UINT32_MAX || m->group < c->n_groups);
    ROUTER_CHECK(bt_config_find(c, m->id) == m);
    for (uint32_t i = 0; i < m->n_aliases; i++)
        ROUTER_CHECK(bt_config_find(c, m->aliases[i]) == m);
    ROUTER_CHECK(bt_config_same_child(m, m));
    bt_arena *arena = bt_arena_open(UINT64_C(64) << 20, 4096);
    ROUTER_CHECK(arena);
    char **argv = NULL;
    char *url = NULL;
    ROUTER_CHECK(bt_config_argv(c, m, 65535, arena, &argv, NULL) == BT_OK);
    for (size_t i = 0; argv[i]; i++)
        ROUTER_CHECK(m->model || !strstr(argv[i], "${PORT}"));
    ROUTER_CHECK(bt_config_url(m, 65535, arena, &url, NULL) == BT_OK);
    ROUTER_CHECK(strncmp(url, "http", 4) == 0);
    bt_arena_close(arena);
    static const char body[] = "{\"model\":\"m\",\"a\":1,\"temperature\":0.5,\"k\":{\"a\":[1,2]}}";
    for (uint32_t i = 0; i <= m->filters.n_set_by_id; i++) {
        const char *named = i < m->filters.n_set_by_id ? m->filters.set_by_id[i] : NULL;
        char *out = NULL;
        char *again = NULL;
        size_t n = 0;
        size_t n_again = 0;
        ROUTER_CHECK(bt_config_filter(&m->filters, m->use_model_name, named, body, sizeof body - 1, &out, &n, NULL) ==
                     BT_OK);
        if (!out) continue;
        /* Filtered twice it is the same: rules are kept. */
        ROUTER_CHECK(bt_config_filter(&m->filters, m->use_model_name, named, out, n, &again, &n_again, NULL) == BT_OK);
        ROUTER_CHECK(!again || (n == n_again && memcmp(out, again, n) == 0));
        bt_heap_free(out);
        bt_heap_free(again);
    }
}

/* true: it was taken. */
static inline bool router_check_text(const char *text, size_t n) {
    static bt_config_notes notes;
    bt_config *c = NULL;
    bt_error err = {0};
    uint64_t live = bt_heap_live_blocks();
    bt_status status = bt_config_parse(text, n, "f.yaml", router_check_env, &c, &notes, &err);
    ROUTER_CHECK(notes.n <= BT_CONFIG_NOTES_MAX);
    if (status != BT_OK) {
        ROUTER_CHECK(!c && (status == BT_E_FORMAT || status == BT_E_LIMIT) && err.status == status);
        ROUTER_CHECK(strcmp(err.code, "config") == 0);
        router_check_plain(err.text);
        ROUTER_CHECK(bt_heap_live_blocks() == live);
        return false;
    }
    for (uint32_t i = 0; i < c->n_models; i++)
        router_check_model(c, &c->models[i]);
    bt_text out;
    bt_text_init(&out, 8u << 20);
    bt_config_text(c, &notes, &out);
    ROUTER_CHECK(!out.failed && !strstr(bt_text_str(&out), "\x1b"));
    bt_text_done(&out);
    bt_config_close(c);
    ROUTER_CHECK(bt_heap_live_blocks() == live);
    return true;
}
