/* SPDX-License-Identifier: MIT
 * fuzz_router_config.c: a configuration of the router, ours or llama-swap's: what is taken can be served (commands,
 * URLs, filters), what is refused says where. */
#include "fuzz.h"

#include "base/arena.h"
#include "base/heap.h"
#include "plain_check.h"
#include "router/config.h"
#include "router/config_read.h"

#include <string.h>

static const char *env_get(const char *name) {
    return strcmp(name, "HOME") == 0 || strcmp(name, "KEY") == 0 ? "/value" : NULL;
}

static void check_model(const bt_config *c, const bt_config_model *m) {
    FUZZ_CHECK(m->id[0] != '\0' && strlen(m->id) <= BT_CONFIG_ID_MAX);
    FUZZ_CHECK(!m->model != !m->cmd);
    FUZZ_CHECK(m->group == UINT32_MAX || m->group < c->n_groups);
    FUZZ_CHECK(bt_config_find(c, m->id) == m);
    for (uint32_t i = 0; i < m->n_aliases; i++)
        FUZZ_CHECK(bt_config_find(c, m->aliases[i]) == m);
    FUZZ_CHECK(bt_config_same_child(m, m));
    bt_arena *arena = bt_arena_open(UINT64_C(64) << 20, 4096);
    FUZZ_CHECK(arena);
    char **argv = NULL;
    char *url = NULL;
    FUZZ_CHECK(bt_config_argv(c, m, 65535, arena, &argv, NULL) == BT_OK);
    for (size_t i = 0; argv[i]; i++)
        FUZZ_CHECK(m->model || !strstr(argv[i], "${PORT}"));
    FUZZ_CHECK(bt_config_url(m, 65535, arena, &url, NULL) == BT_OK);
    FUZZ_CHECK(strncmp(url, "http", 4) == 0);
    bt_arena_close(arena);
    static const char body[] = "{\"model\":\"m\",\"a\":1,\"temperature\":0.5,\"k\":{\"a\":[1,2]}}";
    for (uint32_t i = 0; i <= m->filters.n_set_by_id; i++) {
        const char *named = i < m->filters.n_set_by_id ? m->filters.set_by_id[i] : NULL;
        char *out = NULL;
        char *again = NULL;
        size_t n = 0;
        size_t n_again = 0;
        FUZZ_CHECK(bt_config_filter(&m->filters, m->use_model_name, named, body, sizeof body - 1, &out, &n, NULL) ==
                   BT_OK);
        if (!out) continue;
        /* Filtered twice it is the same: rules are kept. */
        FUZZ_CHECK(bt_config_filter(&m->filters, m->use_model_name, named, out, n, &again, &n_again, NULL) == BT_OK);
        FUZZ_CHECK(!again || (n == n_again && memcmp(out, again, n) == 0));
        bt_heap_free(out);
        bt_heap_free(again);
    }
}

static bool one(char *text, size_t n) {
    static bt_config_notes notes;
    bt_config *c = NULL;
    bt_error err = {0};
    bt_status status = bt_config_parse(text, n, "f.yaml", env_get, &c, &notes, &err);
    FUZZ_CHECK(notes.n <= BT_CONFIG_NOTES_MAX);
    if (status != BT_OK) {
        FUZZ_CHECK(!c && (status == BT_E_FORMAT || status == BT_E_LIMIT) && err.status == status);
        FUZZ_CHECK(strcmp(err.code, "config") == 0);
        plain_check(err.text);
        return false;
    }
    for (uint32_t i = 0; i < c->n_models; i++)
        check_model(c, &c->models[i]);
    bt_text out;
    bt_text_init(&out, 8u << 20);
    bt_config_text(c, &notes, &out);
    FUZZ_CHECK(!out.failed && !strstr(bt_text_str(&out), "\x1b"));
    bt_text_done(&out);
    bt_config_close(c);
    return true;
}

/* What YAML and macros are made of, then every key. */
static const char *word(size_t i) {
    static const char *const words[] = {
        "${PORT}", "${PID}", "${MODEL_ID}", "${env.KEY}", "${a}", "&a ", "*a",  "<<: *a", "[",   "]",      "{", "}",
        ": ",      "\n",     "\n  ",        "'",          "\"",   "|\n", "off", "-1",     "1e9", "!!str ", "#", "\\\n"};
    enum { N_WORDS = sizeof words / sizeof *words };
    if (i < N_WORDS) return words[i];
    i -= N_WORDS;
    if (i >= 2 * bt_config_n_keys) return NULL;
    const bt_key *key = &bt_config_keys[i / 2];
    const char *spelling = i % 2 == 0 ? key->name : key->swap;
    return spelling ? spelling : key->name ? key->name : key->swap;
}

const fuzz_target fuzz_here = {.name = "router_config", .one = one, .bare = true, .word = word, .n_rounds = 3000};
