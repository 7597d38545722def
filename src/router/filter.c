/* SPDX-License-Identifier: MIT
 * filter.c: changing members of a request's body.
 *
 * Filters speak of the members of one object, so the body is not made into a tree (which takes some ten times its size,
 * and loses digits of large numbers): it is looked through once, and what is not changed is copied as it came. That is
 * also why only the shape of the body is checked here (json_scan.c). Every member of a name is meant, as readers differ
 * in which of two they take.
 *
 * In order: the model's name for its server; members that are dropped; members that are set; those set for the name
 * that was used. A member that is set takes the place of its first namesake, else comes last. The last rule wins. model
 * is none of theirs. Bounded: one pass, rules by the configuration; the new text is at most the old
 * one and what is set. */
#include "base/error.h"
#include "base/heap.h"
#include "base/text.h"
#include "router/config.h"
#include "router/json_scan.h"
#include "yaml/yaml.h"

#include <string.h>

/* ---- rules ------------------------------------------------------------------------------------------------------ */

typedef struct rule {
    char name[BT_SCAN_NAME_MAX];
    bt_scan_span key, value; /* of what is set; value.at NULL: it is dropped */
    bool put;                /* it stands in the new body */
} rule;

typedef struct rules {
    const bt_config_filters *filters;
    const char *model;   /* as JSON, or NULL */
    const char *sets[2]; /* objects, or NULL; the second comes after the first */
    rule *items;
    uint32_t n;
} rules;

static rule *find(const rules *r, const bt_scan_member *m) {
    for (uint32_t i = 0; m->named && i < r->n; i++) {
        if (strcmp(r->items[i].name, m->name) == 0) return &r->items[i];
    }
    return NULL;
}

/* Once over what is set: counted where items is NULL. */
static uint32_t add_sets(rules *r, uint32_t n) {
    for (uint32_t i = 0; i < 2; i++) {
        bt_scan s;
        bt_scan_member m;
        if (!r->sets[i] || !bt_scan_start(&s, r->sets[i], strlen(r->sets[i]))) continue;
        while (bt_scan_next(&s, &m) == 1) {
            if (!m.named || strcmp(m.name, "model") == 0) continue;
            rule *there = r->items ? find(r, &m) : NULL;
            if (!there && r->items) {
                there = &r->items[r->n++];
                memcpy(there->name, m.name, BT_SCAN_NAME_MAX);
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
        if (length < BT_SCAN_NAME_MAX && strcmp(r->filters->strip[i], "model") != 0) {
            memcpy(r->items[r->n++].name, r->filters->strip[i], length + 1);
        }
    }
    (void)add_sets(r, 0);
    return true;
}

static void put(bt_text *out, bool *any, bt_scan_span key, bt_scan_span value) {
    bt_text_add_n(out, *any ? "," : "{", 1);
    bt_text_add_n(out, key.at, key.n);
    bt_text_add_n(out, ":", 1);
    bt_text_add_n(out, value.at, value.n);
    *any = true;
}

/* The members of the body, each as it becomes. */
static bool put_old(rules *r, const char *body, size_t n_body, bt_text *out, bool *any, bool *changed) {
    bt_scan s;
    bt_scan_member m;
    bool has_model = false;
    if (!bt_scan_start(&s, body, n_body)) return false;
    for (int got = bt_scan_next(&s, &m); got != 0; got = bt_scan_next(&s, &m)) {
        if (got < 0) return false;
        if (r->model && m.named && strcmp(m.name, "model") == 0) {
            *changed = true;
            if (!has_model) put(out, any, m.key, (bt_scan_span){r->model, strlen(r->model)});
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
        put(out, any, (bt_scan_span){"\"model\"", sizeof "\"model\"" - 1}, (bt_scan_span){r->model, strlen(r->model)});
        *changed = true;
    }
    return bt_scan_at_end(&s);
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
