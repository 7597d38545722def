/* SPDX-License-Identifier: MIT
 * config_models.c: the models of a configuration: how each is started, where it answers, what it takes.
 *
 * A model's macros are read before its other keys, wherever they stand. A command is first freed of its comment lines
 * (a macro that is commented out need not exist), then its macros are replaced, then it is split, as llama-swap does; a
 * list is taken as words. ${PORT} stays in it, for it is known when the model is started. A command that is never told
 * its port, with a proxy that wants it, would wait for its timeout: that is an error here. */
#include "base/error.h"
#include "router/config_read.h"
#include "router/words.h"

#include <inttypes.h>
#include <string.h>

#define ALIASES_MAX 64u
#define ENV_MAX     256u
#define MACROS_MAX  256u
#define BYTES_MAX   (UINT64_C(1) << 50) /* 1 PiB: beyond any machine */
#define TTL_MAX_MS  (UINT64_C(365) * 86400000)
#define PROXY       "http://127.0.0.1:${PORT}"

/* ---- macros ----------------------------------------------------------------------------------------------------- */

bt_status bt_read_macros(bt_config_reader *r, const bt_yaml_node *node, const bt_macro **ret, uint32_t *ret_n) {
    *ret_n = 0;
    if (bt_read_is_null(node)) return BT_OK;
    BT_TRY(bt_read_map(r, node));
    if (node->n > MACROS_MAX) return bt_read_fail(r, BT_E_LIMIT, node->line, "more than %u macros", MACROS_MAX);
    bt_macro *macros = bt_arena_array(r->scratch, node->n ? node->n : 1, sizeof *macros);
    if (!macros) return bt_read_no_memory(r);
    for (uint32_t i = 0; i < node->n; i++) {
        const bt_yaml_entry *entry = &node->entries[i];
        if (!bt_macros_name_ok(entry->key)) {
            return bt_read_fail(r, BT_E_FORMAT, entry->line,
                                "\"%.80s\" is no name for a macro: letters, digits, _ and -, at most %u, and not PORT, "
                                "PID or MODEL_ID",
                                entry->key, BT_MACRO_NAME_MAX);
        }
        if (entry->value->kind != BT_YAML_SCALAR) {
            return bt_read_fail(r, BT_E_FORMAT, entry->line, "macro %s is a list or a mapping; it stands for a text",
                                entry->key);
        }
        macros[i] = (bt_macro){entry->key, entry->value};
    }
    *ret = macros;
    *ret_n = node->n;
    return BT_OK;
}

bt_status bt_read_model_macros(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    (void)r;
    (void)node;
    (void)target;
    return BT_OK; /* read before: read_model */
}

/* ---- commands --------------------------------------------------------------------------------------------------- */

static bt_status words_of_list(bt_config_reader *r, const bt_yaml_node *node, uint32_t keep, char ***ret,
                               uint32_t *ret_n) {
    if (node->n > BT_CONFIG_WORDS_MAX) {
        return bt_read_fail(r, BT_E_LIMIT, node->line, "a command of more than %u words", BT_CONFIG_WORDS_MAX);
    }
    char **words = bt_arena_array(r->arena, (uint64_t)node->n + 1, sizeof *words);
    if (!words) return bt_read_no_memory(r);
    for (uint32_t i = 0; i < node->n; i++) {
        const char *text = NULL;
        bt_read_enter_item(r, i);
        BT_TRY(bt_read_text(r, node->items[i], keep, &text));
        bt_read_leave(r);
        words[i] = bt_arena_strdup(r->arena, text);
        if (!words[i]) return bt_read_no_memory(r);
    }
    *ret = words;
    *ret_n = node->n;
    return BT_OK;
}

static bt_status read_words(bt_config_reader *r, const bt_yaml_node *node, uint32_t keep, char *const **ret,
                            uint32_t *ret_n) {
    char **words = NULL;
    if (node->kind == BT_YAML_LIST) {
        BT_TRY(words_of_list(r, node, keep, &words, ret_n));
    } else {
        bt_yaml_node plain = *node;
        const char *text = NULL;
        if (node->kind == BT_YAML_SCALAR) plain.text = bt_words_strip_comments(node->text, r->scratch);
        if (!plain.text) return bt_read_no_memory(r);
        BT_TRY(bt_read_text(r, &plain, keep, &text));
        uint32_t line = 0;
        bt_error inner = {0};
        bt_status status = bt_words_split(text, BT_CONFIG_WORDS_MAX, r->arena, &words, ret_n, &line, &inner);
        if (status == BT_E_NOMEM) return bt_read_no_memory(r);
        if (status != BT_OK) return bt_read_fail(r, status, node->text_line + line, "%s", inner.text);
    }
    *ret = words;
    return BT_OK;
}

bt_status bt_read_model_cmd(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    bt_config_model *model = target;
    uint32_t n = 0;
    BT_TRY(read_words(r, node, BT_MACRO_KEEP_PORT, &model->cmd, &n));
    if (n > 0 && model->cmd[0][0] != '\0') return BT_OK;
    return bt_read_fail(r, BT_E_FORMAT, node->line, "a command without a program");
}

/* What the router says to llama-server itself, and what must not be said behind it again. */
static bool is_taken(const char *word) {
    static const char *const taken[] = {"--port", "--host", "-m", "--model", "--api-key", "--ssl-key-file"};
    size_t n = strcspn(word, "=");
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        if (strlen(taken[i]) == n && strncmp(word, taken[i], n) == 0) return true;
    }
    return false;
}

const char *bt_config_taken_word(char *const *words) {
    for (; *words; words++)
        if (is_taken(*words)) return *words;
    return NULL;
}

bt_status bt_read_model_args(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    bt_config_model *model = target;
    uint32_t n = 0;
    BT_TRY(read_words(r, node, BT_MACRO_KEEP_PORT, &model->args, &n));
    const char *word = bt_config_taken_word(model->args);
    if (word)
        return bt_read_fail(r, BT_E_FORMAT, node->line,
                            "%.40s is given by the router; a command of its own (cmd:) may say it", word);
    return BT_OK;
}

bt_status bt_read_model_cmd_stop(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    bt_config_model *model = target;
    uint32_t n = 0;
    BT_TRY(read_words(r, node, BT_MACRO_KEEP_PORT | BT_MACRO_KEEP_PID, &model->cmd_stop, &n));
    if (n == 0) model->cmd_stop = NULL; /* "" is llama-swap's way to say none */
    return BT_OK;
}

/* ---- its environment -------------------------------------------------------------------------------------------- */

static bt_status check_variable(const bt_config_reader *r, uint32_t line, const char *text) {
    const char *equal = strchr(text, '=');
    if (equal && equal != text) return BT_OK;
    return bt_read_fail(r, BT_E_FORMAT, line, "\"%.40s\" is not NAME=VALUE", text);
}

static bt_status join_variable(bt_config_reader *r, const bt_yaml_entry *entry, const char **ret) {
    const char *value = "";
    if (!bt_read_is_null(entry->value)) BT_TRY(bt_read_text(r, entry->value, BT_MACRO_KEEP_PORT, &value));
    if (strchr(entry->key, '=')) {
        return bt_read_fail(r, BT_E_FORMAT, entry->line, "\"%.40s\" is no name of a variable", entry->key);
    }
    *ret = bt_read_join(r, entry->key, "=", value);
    return *ret ? BT_OK : bt_read_no_memory(r);
}

bt_status bt_read_model_env(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    if (node->kind == BT_YAML_SCALAR)
        return bt_read_fail(r, BT_E_FORMAT, node->line, "a list of NAME=VALUE belongs here");
    if (node->n > ENV_MAX) return bt_read_fail(r, BT_E_LIMIT, node->line, "more than %u variables", ENV_MAX);
    const char **env = bt_arena_array(r->arena, (uint64_t)node->n + 1, sizeof *env);
    if (!env) return bt_read_no_memory(r);
    for (uint32_t i = 0; i < node->n; i++) {
        bool map = node->kind == BT_YAML_MAP;
        uint32_t line = map ? node->entries[i].line : node->items[i]->line;
        if (map) {
            bt_read_enter(r, node->entries[i].key);
        } else {
            bt_read_enter_item(r, i);
        }
        BT_TRY(map ? join_variable(r, &node->entries[i], &env[i])
                   : bt_read_text(r, node->items[i], BT_MACRO_KEEP_PORT, &env[i]));
        BT_TRY(check_variable(r, line, env[i]));
        bt_read_leave(r);
    }
    ((bt_config_model *)target)->env = env;
    return BT_OK;
}

/* ---- other keys ------------------------------------------------------------------------------------------------- */

bt_status bt_read_model_aliases(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    bt_config_model *model = target;
    return bt_read_texts(r, node, ALIASES_MAX, false, &model->aliases, &model->n_aliases);
}

bt_status bt_read_model_ttl(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    const char *text = NULL;
    BT_TRY(bt_read_text(r, node, 0, &text));
    if (strcmp(text, "-1") == 0) return BT_OK; /* as the file */
    return bt_read_time(r, node, 0, TTL_MAX_MS, &((bt_config_model *)target)->ttl_ms);
}

bt_status bt_read_model_proxy(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    const char *text = NULL;
    BT_TRY(bt_read_text(r, node, BT_MACRO_KEEP_PORT, &text));
    if (text[0] == '\0') return BT_OK; /* as if it were not there */
    size_t n = strncmp(text, "http://", 7) == 0 ? 7 : strncmp(text, "https://", 8) == 0 ? 8 : 0;
    if (n == 0 || text[n] == '\0' || text[n] == '/' || strpbrk(text, " \t\r\n")) {
        return bt_read_fail(r, BT_E_FORMAT, node->line, "\"%.80s\" is no http:// or https:// address", text);
    }
    ((bt_config_model *)target)->proxy = text;
    return BT_OK;
}

bt_status bt_read_model_check(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    bt_config_model *model = target;
    const char *text = NULL;
    BT_TRY(bt_read_text(r, node, 0, &text));
    bool none = strcmp(text, "none") == 0;
    if (text[0] == '\0') return BT_OK; /* as if it were not there */
    if (!none && (text[0] != '/' || strpbrk(text, " \t\r\n"))) {
        return bt_read_fail(r, BT_E_FORMAT, node->line, "\"%.80s\" is neither a path, as /health, nor none", text);
    }
    model->check_endpoint = none ? NULL : text;
    return BT_OK;
}

bt_status bt_read_model_ram(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    bt_config_model *model = target;
    const char *text = NULL;
    BT_TRY(bt_read_text(r, node, 0, &text));
    bool off = strcmp(text, "off") == 0;
    if (off || strcmp(text, "auto") == 0) {
        model->ram = off ? BT_CONFIG_RAM_OFF : BT_CONFIG_RAM_AUTO;
        return BT_OK;
    }
    model->ram = BT_CONFIG_RAM_SIZE;
    return bt_read_size(r, node, 1, BYTES_MAX, &model->ram_bytes);
}

bt_status bt_read_model_memory(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    bt_config_model *model = target;
    BT_TRY(bt_read_map(r, node));
    if (node->n > BT_POOL_MAX) return bt_read_fail(r, BT_E_LIMIT, node->line, "more than %u pools", BT_POOL_MAX);
    model->memory = bt_arena_array(r->arena, node->n ? node->n : 1, sizeof *model->memory);
    if (!model->memory) return bt_read_no_memory(r);
    for (uint32_t i = 0; i < node->n; i++) {
        bt_config_bytes *bytes = &model->memory[i];
        if (node->entries[i].key[0] == '\0' || strlen(node->entries[i].key) >= sizeof((bt_pool *)NULL)->name) {
            return bt_read_fail(r, BT_E_FORMAT, node->entries[i].line,
                                "\"%.80s\" is no name of a pool, as host or CUDA0", node->entries[i].key);
        }
        bytes->pool = bt_arena_strdup(r->arena, node->entries[i].key);
        if (!bytes->pool) return bt_read_no_memory(r);
        bt_read_enter(r, node->entries[i].key);
        BT_TRY(bt_read_size(r, node->entries[i].value, 0, BYTES_MAX, &bytes->bytes));
        bt_read_leave(r);
    }
    model->n_memory = node->n;
    return BT_OK;
}

bt_status bt_read_metadata(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    BT_TRY(bt_read_map(r, node));
    return bt_read_json(r, node, &((bt_config_model *)target)->metadata_json);
}

/* ---- a model ---------------------------------------------------------------------------------------------------- */

static bool names_port(const char *const *words) {
    for (; words && *words; words++) {
        if (strstr(*words, "${PORT}")) return true;
    }
    return false;
}

static bt_status check_start(bt_config_reader *r, bt_config_model *m) {
    if (m->model && m->cmd) {
        return bt_read_fail(r, BT_E_FORMAT, m->line, "it has model and cmd: one of them starts it");
    }
    if (!m->model && !m->cmd) {
        return bt_read_fail(r, BT_E_FORMAT, m->line,
                            "it has neither model nor cmd: nothing starts it (a server that runs already: peers)");
    }
    if (m->args && !m->model) {
        return bt_read_fail(r, BT_E_FORMAT, m->line, "it has args, which go with model; cmd is a whole command");
    }
    if (m->proxy && m->model) {
        return bt_read_fail(r, BT_E_FORMAT, m->line, "it has proxy, which goes with cmd");
    }
    m->uses_port = m->model || names_port((const char *const *)m->cmd) || names_port(m->env);
    bool wants_port = !m->proxy || strstr(m->proxy, "${PORT}");
    if (wants_port && !m->uses_port) {
        return bt_read_fail(
            r, BT_E_FORMAT, m->line,
            "it is never told its port: put ${PORT} into cmd (--port ${PORT}), or say in proxy where it "
            "answers");
    }
    if (!m->proxy) m->proxy = PROXY;
    return BT_OK;
}

static bool is_id(const char *id) {
    size_t n = strlen(id);
    if (n == 0 || n > BT_CONFIG_ID_MAX || id[0] == ' ' || id[n - 1] == ' ' || strstr(id, "${")) return false;
    for (size_t i = 0; i < n;) {
        size_t length = bt_utf8_length(id + i, n - i);
        if (length == 0 || bt_utf8_is_control(id + i, length)) return false;
        i += length;
    }
    return true;
}

static bt_status read_model(bt_config_reader *r, const bt_yaml_entry *entry) {
    bt_config_model *m = &r->c.models[r->c.n_models++];
    *m = r->c.defaults;
    m->line = entry->line;
    m->id = bt_arena_strdup(r->arena, entry->key);
    if (!m->id) return bt_read_no_memory(r);
    if (!is_id(m->id)) {
        return bt_read_fail(r, BT_E_FORMAT, entry->line, "\"%.40s\" is no id of a model: 1 to %u bytes, no macros",
                            entry->key, BT_CONFIG_ID_MAX);
    }
    BT_TRY(bt_read_map(r, entry->value));
    for (uint32_t i = 0; i < entry->value->n; i++) {
        const bt_yaml_entry *own = &entry->value->entries[i];
        if (strcmp(own->key, "macros") != 0) continue;
        bt_read_enter(r, own->key);
        BT_TRY(bt_read_macros(r, own->value, &r->macros.own, &r->macros.n_own));
        bt_read_leave(r);
    }
    r->macros.model_id = m->id;
    BT_TRY(bt_read_keys(r, BT_PLACE_MODEL, entry->value, m));
    BT_TRY(check_start(r, m));
    r->macros.own = NULL;
    r->macros.n_own = 0;
    r->macros.model_id = NULL;
    return BT_OK;
}

bt_status bt_read_models(bt_config_reader *r) {
    const bt_yaml_node *node = r->later.models;
    if (!node) return BT_OK;
    bt_read_enter(r, "models");
    BT_TRY(bt_read_map(r, node));
    if (node->n > BT_CONFIG_MODELS_MAX) {
        return bt_read_fail(r, BT_E_LIMIT, node->line, "more than %u models", BT_CONFIG_MODELS_MAX);
    }
    r->c.models = bt_arena_array(r->arena, node->n ? node->n : 1, sizeof *r->c.models);
    if (!r->c.models) return bt_read_no_memory(r);
    r->c.n_models_room = node->n;
    for (uint32_t i = 0; i < node->n; i++) {
        bt_read_enter(r, node->entries[i].key);
        BT_TRY(read_model(r, &node->entries[i]));
        bt_read_leave(r);
    }
    bt_read_leave(r);
    return BT_OK;
}
