/* SPDX-License-Identifier: MIT
 * test_router_config_keys.c: docs/config.md and the page burthen-config(5) have the keys as the program has them.
 * UPDATE=1 writes them anew. */
#include "router/config_read.h"
#include "router_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DOC        BT_TEST_DATA "/../../docs/config.md"
#define DOC_BYTES  200000u
#define BEGIN_SWAP "<!-- keys of llama-swap: from src/router/config_keys.c -->\n"
#define BEGIN_OURS "<!-- keys of ours: from src/router/config_keys.c -->\n"
#define END        "<!-- end -->\n"
#define PAGE       BT_TEST_DATA "/../../man/burthen-config.5.scd"
#define BEGIN_PAGE "# KEYS\n\n"
#define END_PAGE   "# EXAMPLES\n"

static void cell(bt_text *out, const char *text) {
    for (const char *p = text; *p; p++) {
        if (*p == '|') bt_text_add(out, "\\");
        if (*p == '<' || *p == '>') {
            bt_text_add(out, *p == '<' ? "&lt;" : "&gt;");
        } else {
            bt_text_add_n(out, p, 1);
        }
    }
}

static void row(bt_text *out, const bt_key *key, bool swap) {
    const char *name = swap ? key->swap : key->name;
    bt_text_addf(out, "| `%s%s` | ", bt_config_place_name(key->place), name);
    if (swap) {
        bt_text_add(out, key->kind == BT_KEY_NOTE ? "a note" : key->kind == BT_KEY_REFUSED ? "an error" : "honoured");
        bt_text_add(out, " | ");
        if (key->name && strcmp(key->name, key->swap) != 0) bt_text_addf(out, "`%s`", key->name);
        bt_text_add(out, " | ");
    }
    if (key->shown_default) cell(out, key->shown_default);
    bt_text_add(out, " | ");
    cell(out, key->meaning);
    bt_text_add(out, " |\n");
}

static void table(bt_text *out, bool swap) {
    bt_text_add(out, swap ? "| key | here | also | default | meaning |\n|---|---|---|---|---|\n"
                          : "| key | default | meaning |\n|---|---|---|\n");
    for (size_t i = 0; i < bt_config_n_keys; i++) {
        const bt_key *key = &bt_config_keys[i];
        if (swap ? key->swap != NULL : !key->swap) row(out, key, swap);
    }
}

/* ret: the whole file. */
static void read_whole(const char *path, char *ret) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(ret, 1, DOC_BYTES - 1, file);
    (void)fclose(file);
    assert_in_range(n, 1000, DOC_BYTES - 2);
    ret[n] = '\0';
}

static void hold(const char *path, const char *there, const bt_text *made) {
    assert_false(made->failed);
    if (!getenv("UPDATE")) {
        assert_string_equal(there, made->data);
        return;
    }
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(made->data, 1, made->n_bytes, file), made->n_bytes);
    (void)fclose(file);
}

static void the_document(void **state) {
    (void)state;
    static char doc[DOC_BYTES];
    bt_text made;
    read_whole(DOC, doc);
    bt_text_init(&made, DOC_BYTES);
    const char *at = doc;
    static const char *const begins[] = {BEGIN_SWAP, BEGIN_OURS};
    for (size_t i = 0; i < 2; i++) {
        const char *begin = strstr(at, begins[i]);
        const char *end = begin ? strstr(begin, END) : NULL;
        assert_non_null(end);
        bt_text_add_n(&made, at, (size_t)(begin - at));
        bt_text_add(&made, begins[i]);
        table(&made, i == 0);
        at = end;
    }
    bt_text_add(&made, at);
    hold(DOC, doc, &made);
    bt_text_done(&made);
}

/* As scdoc wants what is to be taken as it is. */
static void plain(bt_text *out, const char *text) {
    for (const char *p = text; *p; p++) {
        if (strchr("\\_*#~<>", *p)) bt_text_add(out, "\\");
        bt_text_add_n(out, p, 1);
    }
}

static void entry(bt_text *out, const bt_key *key) {
    const char *place = bt_config_place_name(key->place);
    bt_text_add(out, "*");
    plain(out, place);
    plain(out, key->name ? key->name : key->swap);
    bt_text_add(out, "*");
    if (key->name && key->swap && strcmp(key->name, key->swap) != 0) {
        bt_text_add(out, " (llama-swap: ");
        plain(out, key->swap);
        bt_text_add(out, ")");
    }
    bt_text_add(out, "\n\t");
    plain(out, key->meaning);
    bt_text_add(out, ".");
    if (key->shown_default) {
        bt_text_add(out, " Default: ");
        plain(out, key->shown_default);
        bt_text_add(out, ".");
    }
    bt_text_add(out, "\n\n");
}

/* What is honoured. */
static void the_page(void **state) {
    (void)state;
    static char page[DOC_BYTES];
    bt_text made;
    read_whole(PAGE, page);
    bt_text_init(&made, DOC_BYTES);
    const char *begin = strstr(page, BEGIN_PAGE);
    const char *end = begin ? strstr(begin, END_PAGE) : NULL;
    assert_non_null(end);
    bt_text_add_n(&made, page, (size_t)(begin - page));
    bt_text_add(&made, BEGIN_PAGE);
    for (size_t i = 0; i < bt_config_n_keys; i++) {
        const bt_key *key = &bt_config_keys[i];
        if (key->kind != BT_KEY_NOTE && key->kind != BT_KEY_REFUSED) entry(&made, key);
    }
    bt_text_add(&made, end);
    hold(PAGE, page, &made);
    bt_text_done(&made);
}

/* llama-swap's keys of the research notes, 9.2: each has a row. */
static void every_key_of_llama_swap(void **state) {
    (void)state;
    static const char *const keys[] = {"healthCheckTimeout",
                                       "logLevel",
                                       "logTimeFormat",
                                       "logToStdout",
                                       "logRequests",
                                       "store.path",
                                       "metricsMaxInMemory",
                                       "captureBuffer",
                                       "performance.disabled",
                                       "performance.every",
                                       "startPort",
                                       "sendLoadingState",
                                       "includeAliasesInList",
                                       "globalTTL",
                                       "unloadTimeout",
                                       "macros",
                                       "apiKeys",
                                       "upstream.ignorePaths",
                                       "ui",
                                       "profiles",
                                       "selectors",
                                       "hooks.on_startup.preload",
                                       "routing.router.use",
                                       "routing.router.settings.groups",
                                       "routing.router.settings.matrix",
                                       "groups",
                                       "matrix",
                                       "groups.<name>.swap",
                                       "groups.<name>.exclusive",
                                       "groups.<name>.persistent",
                                       "groups.<name>.members",
                                       "routing.scheduler.use",
                                       "routing.scheduler.settings.fifo.priority",
                                       "peers",
                                       "peers.<name>.proxy",
                                       "peers.<name>.models",
                                       "peers.<name>.apiKey",
                                       "peers.<name>.filters",
                                       "peers.<name>.timeouts",
                                       "peers.<name>.timeouts.responseHeader",
                                       "models",
                                       "models.<id>.cmd",
                                       "models.<id>.cmdStop",
                                       "models.<id>.proxy",
                                       "models.<id>.checkEndpoint",
                                       "models.<id>.env",
                                       "models.<id>.aliases",
                                       "models.<id>.ttl",
                                       "models.<id>.unloadTimeout",
                                       "models.<id>.concurrencyLimit",
                                       "models.<id>.unlisted",
                                       "models.<id>.useModelName",
                                       "models.<id>.name",
                                       "models.<id>.description",
                                       "models.<id>.metadata",
                                       "models.<id>.filters",
                                       "models.<id>.filters.stripParams",
                                       "models.<id>.filters.setParams",
                                       "models.<id>.filters.setParamsByID",
                                       "models.<id>.macros",
                                       "models.<id>.sendLoadingState",
                                       "models.<id>.timeouts.connect",
                                       "models.<id>.timeouts.keepalive",
                                       "models.<id>.timeouts.responseHeader",
                                       "models.<id>.timeouts.tlsHandshake",
                                       "models.<id>.timeouts.expectContinue",
                                       "models.<id>.timeouts.idleConn",
                                       "models.<id>.compat.ignoreWebsockets",
                                       "models.<id>.capabilities"};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        bool found = false;
        for (size_t i = 0; i < bt_config_n_keys && !found; i++) {
            const bt_key *key = &bt_config_keys[i];
            char name[200];
            (void)snprintf(name, sizeof name, "%s%s", bt_config_place_name(key->place), key->swap ? key->swap : "-");
            found = strcmp(name, keys[k]) == 0;
        }
        if (!found) fail_msg("%s", keys[k]);
    }
}

/* A row is of one place, has a name and a reader, and no two rows of a place have one name. */
static void the_table_is_sound(void **state) {
    (void)state;
    for (size_t i = 0; i < bt_config_n_keys; i++) {
        const bt_key *a = &bt_config_keys[i];
        assert_true(a->place < BT_PLACE_COUNT && (a->name || a->swap) && a->meaning);
        assert_true((a->kind == BT_KEY_CUSTOM) == (a->read != NULL));
        assert_true((a->kind == BT_KEY_SECTION) == (a->below != BT_PLACE_TOP));
        bool ranged =
            a->kind == BT_KEY_U32 || a->kind == BT_KEY_I32 || a->kind == BT_KEY_SIZE || a->kind == BT_KEY_TIME;
        assert_true(ranged == (a->max > a->min));
        for (size_t k = 0; k < i; k++) {
            const bt_key *b = &bt_config_keys[k];
            if (a->place != b->place) continue;
            assert_false(a->name && b->name && strcmp(a->name, b->name) == 0);
            assert_false(a->swap && b->swap && strcmp(a->swap, b->swap) == 0);
        }
    }
}

/* A document in which value stands at "models.<id>.ttl" on line 2, and its error: FILE:LINE: KEY... */
static void refused_at(const char *key, const char *value) {
    char text[400] = "\n";
    size_t n = 1;
    uint32_t n_open = 0;
    for (const char *p = key; *p; p++) {
        bool deeper = *p == '.';
        n += (size_t)snprintf(text + n, sizeof text - n, deeper ? ": {" : "%c", *p);
        n_open += deeper;
    }
    n += (size_t)snprintf(text + n, sizeof text - n, ": %s", value);
    while (n_open-- > 0)
        text[n++] = '}';
    text[n] = '\0';
    char what[200];
    (void)snprintf(what, sizeof what, "dir/c.yaml:2: %s", key);
    kit_refused(text, what);
}

/* Whatever cannot be a value of a key is refused with the place and the whole of its name, in both spellings. */
static void wrong_values_name_their_keys(void **state) {
    (void)state;
    uint32_t n_tried = 0;
    for (size_t i = 0; i < bt_config_n_keys; i++) {
        const bt_key *key = &bt_config_keys[i];
        const char *names[] = {key->name, key->swap};
        bool ranged =
            key->kind == BT_KEY_U32 || key->kind == BT_KEY_I32 || key->kind == BT_KEY_SIZE || key->kind == BT_KEY_TIME;
        for (size_t k = 0; k < 2 && key->kind != BT_KEY_NOTE; k++) {
            char name[200];
            if (!names[k]) continue;
            (void)snprintf(name, sizeof name, "%s%s", bt_config_place_name(key->place), names[k]);
            refused_at(name, "[[]]");
            if (ranged || key->kind == BT_KEY_BOOL) refused_at(name, "12Q");
            if (ranged) refused_at(name, "-2000000000");
            n_tried++;
        }
    }
    assert_true(n_tried > 100);
    refused_at("devices.CUDA0", "12Q");
    refused_at("models.m.memory.host", "12Q");
    refused_at("models.m.env.A", "[]");
    refused_at("models.m.filters.set_params_by_id.n", "1");
    /* of a way that is longer than a message has room for each part is cut, and the sentence is whole */
    char id[BT_CONFIG_ID_MAX + 1];
    memset(id, 'm', sizeof id - 1);
    id[sizeof id - 1] = '\0';
    char text[400];
    (void)snprintf(text, sizeof text, "models: {%s: {model: x, filters: {set_params_by_id: {%s: 1}}}}", id, id);
    kit_refused(text, "mmm.filters.set_params_by_id.mmm");
    kit_refused(text, "mmm: a mapping (key: value) belongs here");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_document), cmocka_unit_test(the_page),
                                       cmocka_unit_test(every_key_of_llama_swap), cmocka_unit_test(the_table_is_sound),
                                       cmocka_unit_test(wrong_values_name_their_keys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
