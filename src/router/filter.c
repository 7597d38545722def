/* SPDX-License-Identifier: MIT
 * filter.c: changing members of a request's body.
 *
 * Filters speak of the members of one object, so the body is not made into a tree (which takes some ten times its size,
 * and loses digits of large numbers): it is looked through once, and what is not changed is copied as it came. That is
 * also why only the shape of the body is checked here; the server behind reads all of it. Names of members are compared
 * with their escapes resolved, so that "\u006dodel" is model, and every member of a name is meant, as readers differ in
 * which of two they take.
 *
 * In order: the model's name for its server; members that are dropped; members that are set; those set for the name
 * that was used. A member that is set takes the place of its first namesake, else comes last. The last rule wins. model
 * is none of theirs. Bounded: one pass, nesting DEPTH_MAX, rules by the configuration; the new text is at most the old
 * one and what is set. */
#include "base/error.h"
#include "base/heap.h"
#include "base/text.h"
#include "router/config.h"
#include "router/yaml.h"

#include <string.h>

#define DEPTH_MAX 512u /* llama.cpp's JSON reader and ours take far less in requests */
#define NAME_MAX  256u /* a longer name is no name of a rule */

typedef struct span {
    const char *at;
    size_t n;
} span;

typedef struct member {
    span key, value; /* with the quotes; without blanks around */
    char name[NAME_MAX];
    bool named; /* name holds it; false: it is too long to be that of a rule */
} member;

typedef struct scanner {
    const char *p, *end;
    bool first;
} scanner;

/* ---- looking through an object ---------------------------------------------------------------------------------- */

static void skip_blanks(scanner *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
        s->p++;
}

static bool take(scanner *s, char c) {
    skip_blanks(s);
    if (s->p == s->end || *s->p != c) return false;
    s->p++;
    return true;
}

static bool scan_string(scanner *s, span *ret) {
    ret->at = s->p;
    if (s->p == s->end || *s->p != '"') return false;
    for (s->p++; s->p < s->end && *s->p != '"'; s->p++) {
        if ((unsigned char)*s->p < 0x20) return false;
        if (*s->p != '\\') continue;
        s->p++;
        if (s->p == s->end) return false;
    }
    if (s->p == s->end) return false;
    s->p++;
    ret->n = (size_t)(s->p - ret->at);
    return true;
}

/* A number or a word: bytes that can be in one. */
static bool scan_atom(scanner *s) {
    const char *begin = s->p;
    while (s->p < s->end && *s->p != '\0' &&
           strchr("+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", *s->p))
        s->p++;
    return s->p > begin;
}

/* Any value: brackets in pairs, strings whole. */
static bool scan_value(scanner *s, span *ret) {
    char close[DEPTH_MAX];
    uint32_t depth = 0;
    span string;
    skip_blanks(s);
    ret->at = s->p;
    do {
        skip_blanks(s);
        if (s->p == s->end) return false;
        char c = *s->p;
        if (c == '"') {
            if (!scan_string(s, &string)) return false;
        } else if (c == '{' || c == '[') {
            if (depth == DEPTH_MAX) return false;
            close[depth++] = c == '{' ? '}' : ']';
            s->p++;
        } else if (depth > 0 && c == close[depth - 1]) {
            depth--;
            s->p++;
        } else if (depth > 0 && (c == ',' || c == ':')) {
            s->p++;
        } else if (!scan_atom(s)) {
            return false;
        }
    } while (depth > 0);
    ret->n = (size_t)(s->p - ret->at);
    return true;
}

static int hex4(const char *p, size_t n) {
    static const char digits[] = "0123456789abcdef";
    int value = 0;
    if (n < 4) return -1;
    for (size_t i = 0; i < 4; i++) {
        const char *at = p[i] ? strchr(digits, p[i] >= 'A' && p[i] <= 'F' ? p[i] - 'A' + 'a' : p[i]) : NULL;
        if (!at) return -1;
        value = value * 16 + (int)(at - digits);
    }
    return value;
}

/* "\uXXXX", or a pair of them, whose first p points behind the u of: as UTF-8. The bytes read of p; 0: none. */
static size_t decode_unicode(const char *p, size_t n, char out[4], size_t *ret_n) {
    int unit = hex4(p, n);
    uint32_t code = (uint32_t)unit;
    size_t used = 4;
    if (unit <= 0 || (unit >= 0xDC00 && unit < 0xE000)) return 0;
    if (unit >= 0xD800 && unit < 0xDC00) {
        int low = n >= 10 && p[4] == '\\' && p[5] == 'u' ? hex4(p + 6, n - 6) : -1;
        if (low < 0xDC00 || low >= 0xE000) return 0;
        code = 0x10000u + ((uint32_t)(unit - 0xD800) << 10) + (uint32_t)(low - 0xDC00);
        used = 10;
    }
    *ret_n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = *ret_n; i-- > 1; code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)(lead[*ret_n] | code);
    return used;
}

/* The escapes of a key resolved. false: it is longer than a rule's name can be, or no text. */
static bool decode(span key, char name[NAME_MAX]) {
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    size_t n = 0;
    for (size_t i = 1; i + 1 < key.n; i++) {
        char bytes[4] = {key.at[i]};
        size_t n_bytes = 1;
        if (bytes[0] == '\\') {
            char c = key.at[++i];
            const char *at = strchr(from, c);
            size_t used = c == 'u' ? decode_unicode(key.at + i + 1, key.n - i - 2, bytes, &n_bytes) : 0;
            if (c == 'u' ? used == 0 : !at || !*at) return false;
            if (c != 'u') bytes[0] = to[at - from];
            i += used;
        }
        if (n + n_bytes >= NAME_MAX) return false;
        memcpy(name + n, bytes, n_bytes);
        n += n_bytes;
    }
    name[n] = '\0';
    return true;
}

/* 1: a member; 0: the object ended; -1: it is none. */
static int next_member(scanner *s, member *ret) {
    if (take(s, '}')) return 0;
    if (!s->first && !take(s, ',')) return -1;
    s->first = false;
    skip_blanks(s);
    if (!scan_string(s, &ret->key) || !take(s, ':') || !scan_value(s, &ret->value)) return -1;
    ret->named = decode(ret->key, ret->name);
    return 1;
}

static bool start(scanner *s, const char *text, size_t n) {
    *s = (scanner){.p = text, .end = text + n, .first = true};
    return take(s, '{');
}

static bool at_end(scanner *s) {
    skip_blanks(s);
    return s->p == s->end;
}

/* ---- rules ------------------------------------------------------------------------------------------------------ */

typedef struct rule {
    char name[NAME_MAX];
    span key, value; /* of what is set; value.at NULL: it is dropped */
    bool put;        /* it stands in the new body */
} rule;

typedef struct rules {
    const bt_config_filters *filters;
    const char *model;   /* as JSON, or NULL */
    const char *sets[2]; /* objects, or NULL; the second comes after the first */
    rule *items;
    uint32_t n;
} rules;

static rule *find(const rules *r, const member *m) {
    for (uint32_t i = 0; m->named && i < r->n; i++) {
        if (strcmp(r->items[i].name, m->name) == 0) return &r->items[i];
    }
    return NULL;
}

/* Once over what is set: counted where items is NULL. */
static uint32_t add_sets(rules *r, uint32_t n) {
    for (uint32_t i = 0; i < 2; i++) {
        scanner s;
        member m;
        if (!r->sets[i] || !start(&s, r->sets[i], strlen(r->sets[i]))) continue;
        while (next_member(&s, &m) == 1) {
            if (!m.named || strcmp(m.name, "model") == 0) continue;
            rule *there = r->items ? find(r, &m) : NULL;
            if (!there && r->items) {
                there = &r->items[r->n++];
                memcpy(there->name, m.name, NAME_MAX);
            }
            if (there) {
                there->key = m.key;
                there->value = m.value;
            }
            n++;
        }
    }
    return n;
}

static bool make_rules(rules *r) {
    uint32_t n = add_sets(r, r->filters->n_strip);
    r->items = bt_heap_array(n, sizeof *r->items);
    if (!r->items) return false;
    for (uint32_t i = 0; i < r->filters->n_strip; i++) {
        size_t length = strlen(r->filters->strip[i]);
        if (length < NAME_MAX && strcmp(r->filters->strip[i], "model") != 0) {
            memcpy(r->items[r->n++].name, r->filters->strip[i], length + 1);
        }
    }
    (void)add_sets(r, 0);
    return true;
}

static void put(bt_text *out, bool *any, span key, span value) {
    bt_text_add_n(out, *any ? "," : "{", 1);
    bt_text_add_n(out, key.at, key.n);
    bt_text_add_n(out, ":", 1);
    bt_text_add_n(out, value.at, value.n);
    *any = true;
}

/* The members of the body, each as it becomes. */
static bool put_old(rules *r, const char *body, size_t n_body, bt_text *out, bool *any, bool *changed) {
    scanner s;
    member m;
    bool has_model = false;
    if (!start(&s, body, n_body)) return false;
    for (int got = next_member(&s, &m); got != 0; got = next_member(&s, &m)) {
        if (got < 0) return false;
        if (r->model && m.named && strcmp(m.name, "model") == 0) {
            *changed = true;
            if (!has_model) put(out, any, m.key, (span){r->model, strlen(r->model)});
            has_model = true;
            continue;
        }
        rule *of = find(r, &m);
        *changed = *changed || of;
        if (!of) put(out, any, m.key, m.value);
        if (!of || !of->value.at || of->put) continue;
        put(out, any, m.key, of->value);
        of->put = true;
    }
    if (r->model && !has_model) {
        put(out, any, (span){"\"model\"", sizeof "\"model\"" - 1}, (span){r->model, strlen(r->model)});
        *changed = true;
    }
    return at_end(&s);
}

static bool rewrite(rules *r, const char *body, size_t n_body, bt_text *out, bool *changed) {
    bool any = false;
    if (!put_old(r, body, n_body, out, &any, changed)) return false;
    for (uint32_t i = 0; i < r->n; i++) {
        if (!r->items[i].value.at || r->items[i].put) continue;
        put(out, &any, r->items[i].key, r->items[i].value);
        *changed = true;
    }
    bt_text_add(out, any ? "}" : "{}");
    return true;
}

static size_t max_bytes(const rules *r, size_t n_body) {
    size_t n = n_body + 64;
    for (uint32_t i = 0; i < 2; i++)
        n += r->sets[i] ? strlen(r->sets[i]) : 0;
    return n + (r->model ? strlen(r->model) : 0);
}

bt_status bt_config_filter(const bt_config_filters *filters, const char *use_model_name, const char *named,
                           const char *body, size_t n_body, char **ret, size_t *ret_n, bt_error *err) {
    *ret = NULL;
    *ret_n = 0;
    rules r = {.filters = filters, .sets = {filters->set_json, NULL}};
    for (uint32_t i = 0; named && i < filters->n_set_by_id; i++) {
        if (strcmp(filters->set_by_id[i], named) == 0) r.sets[1] = filters->set_by_id_json[i];
    }
    bt_text model;
    bt_text out;
    bt_text_init(&model, (size_t)8 * BT_CONFIG_FILE_MAX);
    if (use_model_name) {
        bt_yaml_json_text(use_model_name, &model);
        r.model = bt_text_str(&model);
    }
    bt_text_init(&out, max_bytes(&r, n_body));
    bt_text_reserve(&out, max_bytes(&r, n_body));
    bool made = make_rules(&r);
    bool changed = false;
    bt_status status = BT_OK;
    if (!made || out.failed || model.failed) {
        status = bt_fail(err, BT_E_NOMEM, "body", BT_MEASURE_NONE, 0, 0, "no memory to change a request");
    } else if (!rewrite(&r, body, n_body, &out, &changed)) {
        status = bt_fail(err, BT_E_FORMAT, "body", BT_MEASURE_NONE, 0, 0, "the body is not one JSON object");
    } else if (out.failed) {
        status = bt_fail(err, BT_E_LIMIT, "body", BT_MEASURE_NONE, 0, 0, "the changed body is too large");
    } else if (changed) {
        *ret = out.data;
        *ret_n = out.n_bytes;
        out = (bt_text){0};
    }
    bt_heap_free(r.items);
    bt_text_done(&model);
    bt_text_done(&out);
    return status;
}
