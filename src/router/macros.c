/* SPDX-License-Identifier: MIT
 * macros.c: replacing ${NAME}.
 *
 * NAME is a macro of the model, else one of the file, else MODEL_ID; env.NAME is the environment's. What a macro stands
 * for may hold macros; one that comes to itself is an error, and so is a name that nothing has (a command with a hole
 * in it would start something else). ${VAR:-x} and $VAR are no macros and stay: they may be meant for a shell. What
 * comes from the environment is taken as it is, never looked at for macros, and cannot change the shape of the YAML, as
 * it is put in after that was read.
 *
 * A stack of texts instead of recursion: depth, replacements and bytes are bounded, so that no chain of macros, also of
 * empty ones, takes long. */
#include "router/macros.h"
#include "base/error.h"
#include "base/option.h"
#include "base/size.h"

#include <stdlib.h>
#include <string.h>

#define NAME_BYTES "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"

typedef struct expander {
    const bt_macros *macros;
    uint32_t keep, n_steps;
    struct {
        const char *at;
        const bt_macro *macro; /* NULL: the value itself */
    } stack[BT_MACRO_DEPTH_MAX + 1];
    uint32_t depth;
    bt_text out;
    bt_error *err;
} expander;

static bt_status no_memory(bt_error *err) {
    return bt_fail(err, BT_E_NOMEM, "config", BT_MEASURE_NONE, 0, 0, "no memory for macros");
}

static bt_status wrong(const expander *e, bt_status status, const char *what, const char *name, const char *more) {
    return bt_fail(e->err, status, "config", BT_MEASURE_NONE, 0, 0, "${%s} %s%s%s", name, what, more ? more : "",
                   more ? "}?" : "");
}

static bool is_own(const char *name) {
    return strcmp(name, "PORT") == 0 || strcmp(name, "PID") == 0 || strcmp(name, "MODEL_ID") == 0;
}

bool bt_macros_name_ok(const char *name) {
    size_t n = strspn(name, NAME_BYTES "-");
    return n > 0 && n <= BT_MACRO_NAME_MAX && name[n] == '\0' && !is_own(name);
}

/* The length of "${NAME}" or "${env.NAME}" at p, 0 if there is none; its name. */
static size_t reference(const char *p, char name[BT_MACRO_NAME_MAX + 8]) {
    if (p[0] != '$' || p[1] != '{') return 0;
    const char *begin = p + 2;
    bool env = strncmp(begin, "env.", 4) == 0;
    size_t n = env ? 4 + strspn(begin + 4, NAME_BYTES) : strspn(begin, NAME_BYTES "-");
    if (n == (env ? 4u : 0u) || begin[n] != '}') return 0;
    if (n > BT_MACRO_NAME_MAX + 7) n = BT_MACRO_NAME_MAX + 7; /* longer than any: will not be found */
    memcpy(name, begin, n);
    name[n] = '\0';
    return strcspn(p, "}") + 1;
}

static const bt_macro *find(const bt_macros *m, const char *name) {
    for (uint32_t i = 0; i < m->n_own; i++) {
        if (strcmp(m->own[i].name, name) == 0) return &m->own[i];
    }
    for (uint32_t i = 0; i < m->n; i++) {
        if (strcmp(m->items[i].name, name) == 0) return &m->items[i];
    }
    return NULL;
}

static bt_status add(expander *e, const char *text, size_t n) {
    if (n > BT_MACRO_VALUE_MAX - e->out.n_bytes) {
        return bt_fail(e->err, BT_E_LIMIT, "config", BT_MEASURE_BYTES, e->out.n_bytes + n, BT_MACRO_VALUE_MAX,
                       "more than %s in one value, with its macros", BT_SIZE(BT_MACRO_VALUE_MAX));
    }
    bt_text_add_n(&e->out, text, n);
    return e->out.failed ? no_memory(e->err) : BT_OK;
}

static bt_status add_env(expander *e, const char *name) {
    const char *(*get)(const char *) = e->macros->env_get;
    const char *value = get ? get(name + 4) : getenv(name + 4);
    if (!value) return wrong(e, BT_E_FORMAT, "is not in the environment", name, NULL);
    for (size_t i = 0, n = strlen(value), length = 0; i < n; i += length) {
        length = bt_utf8_length(value + i, n - i);
        if (length == 0) return wrong(e, BT_E_FORMAT, "is no UTF-8 in the environment", name, NULL);
    }
    return add(e, value, strlen(value));
}

static bt_status unknown(const expander *e, const char *name) {
    const bt_macros *m = e->macros;
    const char *best = NULL;
    for (uint32_t i = 0; i < m->n_own + m->n && !best; i++) {
        const char *known = i < m->n_own ? m->own[i].name : m->items[i - m->n_own].name;
        best = bt_nearest(name, &known, 1);
    }
    return wrong(e, BT_E_FORMAT, best ? "is no macro; did you mean ${" : "is no macro", name, best);
}

/* One reference: its value follows next, or it stays. */
static bt_status replace(expander *e, const char *name, const char *written, size_t n_written) {
    if (++e->n_steps > BT_MACRO_STEPS_MAX) return wrong(e, BT_E_LIMIT, "is one macro too many in a value", name, NULL);
    if (strncmp(name, "env.", 4) == 0) return add_env(e, name);
    uint32_t needs = strcmp(name, "PORT") == 0 ? BT_MACRO_KEEP_PORT : strcmp(name, "PID") == 0 ? BT_MACRO_KEEP_PID : 0;
    if (needs & e->keep) return add(e, written, n_written);
    if (needs) {
        return wrong(e, BT_E_FORMAT,
                     needs == BT_MACRO_KEEP_PID ? "is known in cmdStop only"
                                                : "is known in cmd, args, cmdStop, env, proxy and metadata only",
                     name, NULL);
    }
    if (strcmp(name, "MODEL_ID") == 0) {
        if (!e->macros->model_id) return wrong(e, BT_E_FORMAT, "is known in a model only", name, NULL);
        return add(e, e->macros->model_id, strlen(e->macros->model_id));
    }
    const bt_macro *macro = find(e->macros, name);
    if (!macro) return unknown(e, name);
    for (uint32_t i = 1; i <= e->depth; i++) {
        if (e->stack[i].macro == macro) return wrong(e, BT_E_FORMAT, "comes to itself", name, NULL);
    }
    if (e->depth == BT_MACRO_DEPTH_MAX) return wrong(e, BT_E_LIMIT, "is a macro too deep in others", name, NULL);
    e->depth++;
    e->stack[e->depth].macro = macro;
    e->stack[e->depth].at = macro->value->text;
    return BT_OK;
}

static bt_status expand(expander *e) {
    for (;;) {
        const char *p = e->stack[e->depth].at;
        if (*p == '\0') {
            if (e->depth == 0) return BT_OK;
            e->depth--;
            continue;
        }
        char name[BT_MACRO_NAME_MAX + 8];
        size_t n = reference(p, name);
        if (n > 0) {
            e->stack[e->depth].at = p + n;
            BT_TRY(replace(e, name, p, n));
            continue;
        }
        n = 1 + strcspn(p + 1, "$");
        e->stack[e->depth].at = p + n;
        BT_TRY(add(e, p, n));
    }
}

/* What a value is that is one macro and nothing else. */
static bt_yaml_type type_of(const bt_macros *macros, const char *text, const char *value) {
    char name[BT_MACRO_NAME_MAX + 8];
    const char *at = text;
    for (uint32_t i = 0; i <= BT_MACRO_DEPTH_MAX; i++) {
        size_t n = reference(at, name);
        if (n == 0 || at[n] != '\0') return BT_YAML_TEXT;
        if (strncmp(name, "env.", 4) == 0) return bt_yaml_type_of(value);
        const bt_macro *macro = find(macros, name);
        if (!macro) return BT_YAML_TEXT;
        if (macro->value->type != BT_YAML_TEXT) return macro->value->type;
        at = macro->value->text;
    }
    return BT_YAML_TEXT;
}

bt_status bt_macros_expand(const bt_macros *macros, const bt_yaml_node *scalar, uint32_t keep, bt_arena *arena,
                           const char **ret, bt_yaml_type *ret_type, bt_error *err) {
    *ret = scalar->text;
    *ret_type = scalar->type;
    expander e = {.macros = macros, .keep = keep, .err = err};
    bt_text_init(&e.out, BT_MACRO_VALUE_MAX + 1);
    e.stack[0].at = scalar->text;
    bt_status status = expand(&e);
    if (status == BT_OK) {
        *ret = bt_arena_strdup(arena, bt_text_str(&e.out));
        if (!*ret) status = no_memory(err);
        if (status == BT_OK && e.n_steps > 0) *ret_type = type_of(macros, scalar->text, *ret);
    }
    bt_text_done(&e.out);
    return status;
}
