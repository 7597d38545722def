/* SPDX-License-Identifier: MIT
 * fuzz_router_yaml.c: a YAML document as a tree, its macros, its words. The tree is within its maxima and can be
 * written as JSON; a scalar is expanded and split, or refused with a sentence. */
#include "fuzz.h"

#include "plain_check.h"
#include "router/macros.h"
#include "router/words.h"

#include <jansson.h>

#define ARENA_BYTES (UINT64_C(128) << 20)

static const char *env_get(const char *name) {
    return strcmp(name, "KEY") == 0 ? "${a} 'value'" : NULL;
}

static void check_refusal(bt_status status, const bt_error *err) {
    FUZZ_CHECK((status == BT_E_FORMAT || status == BT_E_LIMIT) && err->status == status);
    FUZZ_CHECK(strcmp(err->code, "config") == 0);
    plain_check(err->text);
}

static void check_scalar(const bt_yaml_node *scalar, const bt_macros *macros, bt_arena *arena) {
    bt_error err = {0};
    const char *text = NULL;
    bt_yaml_type type = BT_YAML_TEXT;
    bt_status status = bt_macros_expand(macros, scalar, BT_MACRO_KEEP_PORT, arena, &text, &type, &err);
    if (status != BT_OK) {
        if (status != BT_E_NOMEM) check_refusal(status, &err);
        return;
    }
    FUZZ_CHECK(strlen(text) <= BT_MACRO_VALUE_MAX || text == scalar->text);
    char **words = NULL;
    uint32_t n = 0;
    uint32_t line = 0;
    status = bt_words_split(text, 64, arena, &words, &n, &line, &err);
    if (status == BT_OK)
        FUZZ_CHECK(n <= 64 && words[n] == NULL);
    else if (status != BT_E_NOMEM)
        check_refusal(status, &err);
}

/* Only so many: an alias makes a tree of thousands out of a line. */
static void check_node(const bt_yaml_node *node, const bt_macros *macros, bt_arena *arena, uint32_t depth,
                       uint32_t *n_left) {
    if (*n_left == 0) return;
    --*n_left;
    FUZZ_CHECK(depth <= BT_YAML_DEPTH_MAX && node->line >= 1);
    if (node->kind == BT_YAML_SCALAR) {
        check_scalar(node, macros, arena);
        return;
    }
    FUZZ_CHECK(node->height >= 1 && node->height <= BT_YAML_DEPTH_MAX);
    for (uint32_t i = 0; i < node->n; i++)
        check_node(node->kind == BT_YAML_MAP ? node->entries[i].value : node->items[i], macros, arena, depth + 1,
                   n_left);
}

static bt_status write_scalar(void *user, const bt_yaml_node *scalar, bt_text *out) {
    (void)user;
    return bt_yaml_json_scalar(scalar->type, scalar->text, out) ? BT_OK : BT_E_FORMAT;
}

static void check_json(const bt_yaml_node *root) {
    bt_text out;
    bt_text_init(&out, 1u << 20);
    if (bt_yaml_json(root, write_scalar, NULL, &out) == BT_OK && !out.failed) {
        json_error_t why;
        json_t *json = json_loads(bt_text_str(&out), JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);
        /* A number beyond a double is JSON, though this reader holds none. */
        FUZZ_CHECK(json != NULL || json_error_code(&why) == json_error_numeric_overflow);
        json_decref(json);
    }
    bt_text_done(&out);
}

static bool one(char *text, size_t n) {
    static const bt_yaml_node value = {.kind = BT_YAML_SCALAR, .line = 1, .text = "${b}-${b}", .text_line = 1};
    static const bt_yaml_node inner = {.kind = BT_YAML_SCALAR, .line = 1, .text = "12", .type = BT_YAML_INT};
    static const bt_macro items[] = {{"a", &value}, {"b", &inner}};
    const bt_macros macros = {.items = items, .n = 2, .model_id = "m", .env_get = env_get};
    bt_arena *arena = bt_arena_open(ARENA_BYTES, 4096);
    bt_yaml_node *root = NULL;
    bt_error err = {0};
    uint32_t n_left = 2000;
    FUZZ_CHECK(arena != NULL);
    bt_status status = bt_yaml_parse(text, n, "f.yaml", arena, &root, &err);
    if (status != BT_OK)
        check_refusal(status, &err);
    else if (root) {
        FUZZ_CHECK(root->n_nodes <= BT_YAML_NODES_MAX && root->n_bytes <= BT_YAML_TEXT_MAX);
        check_node(root, &macros, arena, 0, &n_left);
        check_json(root);
    }
    bt_arena_close(arena);
    return status == BT_OK;
}

static const char *word(size_t i) {
    static const char *const words[] = {"${a}",
                                        "${b}",
                                        "${c}",
                                        "${env.KEY}",
                                        "${env.NONE}",
                                        "${PORT}",
                                        "${MODEL_ID}",
                                        "&x ",
                                        "*x",
                                        "<<: *x",
                                        "<<: [*x, *y]",
                                        "- ",
                                        ": ",
                                        "? ",
                                        "\n",
                                        "\n  ",
                                        "\n- ",
                                        "|\n",
                                        ">-\n",
                                        "'",
                                        "\"",
                                        "\\x41",
                                        "\\u263a",
                                        "---\n",
                                        "...\n",
                                        "%YAML 1.1\n",
                                        "!!str ",
                                        "!!int ",
                                        "!!binary ",
                                        "# ",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        "~",
                                        "null",
                                        ".inf",
                                        ".nan",
                                        "0x1f",
                                        "0o17",
                                        "1e3",
                                        "true",
                                        "\t",
                                        "\xef\xbb\xbf",
                                        "$("};
    return i < sizeof words / sizeof *words ? words[i] : NULL;
}

static const char *const more[] = {"fuzz/router_config", NULL};

const fuzz_target fuzz_here = {
    .name = "router_yaml", .one = one, .bare = true, .word = word, .more = more, .n_rounds = 4000};
