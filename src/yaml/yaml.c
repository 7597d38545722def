/* SPDX-License-Identifier: MIT
 * yaml.c: libyaml's events made into a tree.
 *
 * Events rather than libyaml's own documents, because everything that a hostile or broken file can do is then bounded
 * while it is read: depth, nodes, keys, anchors. An alias is a second pointer to the same node, never a copy, and each
 * node carries what it would be if all below it were written out; a file of a few lines that stands for a billion nodes
 * is refused by that number at the line where it passes the maximum. An alias to a collection that is still being read
 * would be a loop, and is refused.
 *
 * A key twice in a mapping is an error with both lines (with most readers the last one wins, and a model is silently
 * gone). "<<" merges as Go's yaml does: what is written beside it wins wherever it stands, and of a list of mappings
 * the earlier one. Keys are scalars. Tags: those of the core schema.
 *
 * libyaml's own memory comes from the C library: it holds a few tokens and the text of one scalar at a time. */
#include "yaml/yaml.h"
#include "base/error.h"

#include <string.h>
#include <yaml.h>

#define TAG            "tag:yaml.org,2002:"
#define DIRECTIVES_MAX 8u /* libyaml compares each %TAG with all others */

typedef struct link { /* of a collection that is being read */
    struct link *next;
    const char *key;
    uint32_t line;
    bool merge;
    bt_yaml_node *value;
} link;

typedef struct frame {
    bt_yaml_node *node;
    link *first, *last;
    uint32_t n;
    /* In a mapping, between a key and its value. */
    bool has_key, merge;
    const char *key;
    uint32_t key_line;
} frame;

typedef struct anchor {
    const char *name;
    bt_yaml_node *node;
} anchor;

typedef struct reader {
    const char *file;
    const char *text; /* all of it, n_bytes */
    size_t n_bytes;
    bt_arena *arena;
    bt_error *err;
    uint32_t line; /* of the event */
    frame stack[BT_YAML_DEPTH_MAX];
    uint32_t depth;
    anchor anchors[BT_YAML_ANCHORS_MAX];
    uint32_t n_anchors;
    uint32_t n_documents;
    bt_yaml_node *root;
} reader;

static bt_status no_memory(const reader *r) {
    return bt_fail(r->err, BT_E_NOMEM, "config", BT_MEASURE_NONE, 0, 0, "no memory to read %s", r->file);
}

static bt_status wrong(const reader *r, uint32_t line, const char *what) {
    return bt_fail(r->err, BT_E_FORMAT, "config", BT_MEASURE_NONE, 0, 0, "%s:%u: %s", r->file, line, what);
}

static bt_status too_much(const reader *r, const char *what, uint64_t max) {
    return bt_fail(r->err, BT_E_LIMIT, "config", BT_MEASURE_NONE, 0, 0, "%s:%u: %s; at most %llu", r->file, r->line,
                   what, (unsigned long long)max);
}

static bt_status check_size(const reader *r, const bt_yaml_node *node) {
    if (node->n_nodes > BT_YAML_NODES_MAX) {
        return too_much(r, "too many values, with aliases written out", BT_YAML_NODES_MAX);
    }
    if (node->n_bytes > BT_YAML_TEXT_MAX) {
        return too_much(r, "too many bytes of text, with aliases written out", BT_YAML_TEXT_MAX);
    }
    return BT_OK;
}

/* ---- a collection that is whole --------------------------------------------------------------------------------- */

static bool has_key(const bt_yaml_node *map, const char *key, const bt_yaml_entry **ret) {
    for (uint32_t i = 0; i < map->n; i++) {
        if (strcmp(map->entries[i].key, key) == 0) {
            if (ret) *ret = &map->entries[i];
            return true;
        }
    }
    return false;
}

static void merge_from(bt_yaml_node *map, const bt_yaml_node *from) {
    for (uint32_t i = 0; i < from->n; i++) {
        if (!has_key(map, from->entries[i].key, NULL)) map->entries[map->n++] = from->entries[i];
    }
}

/* How many entries a merge can bring; UINT32_MAX: it is no mapping and no list of them. */
static uint32_t n_merged(const bt_yaml_node *value) {
    if (value->kind == BT_YAML_MAP) return value->n;
    if (value->kind != BT_YAML_LIST) return UINT32_MAX;
    uint64_t n = 0;
    for (uint32_t i = 0; i < value->n; i++) {
        if (value->items[i]->kind != BT_YAML_MAP) return UINT32_MAX;
        n += value->items[i]->n;
    }
    return n > BT_YAML_KEYS_MAX ? BT_YAML_KEYS_MAX + 1 : (uint32_t)n;
}

static bt_status close_map(reader *r, const frame *f) {
    bt_yaml_node *map = f->node;
    uint64_t n = 0;
    for (const link *l = f->first; l; l = l->next) {
        uint32_t more = l->merge ? n_merged(l->value) : 1;
        if (more == UINT32_MAX) return wrong(r, l->line, "<< takes a mapping (*anchor) or a list of mappings");
        n += more;
        if (n > BT_YAML_KEYS_MAX) return too_much(r, "too many keys in one mapping", BT_YAML_KEYS_MAX);
    }
    map->entries = bt_arena_array(r->arena, n ? n : 1, sizeof *map->entries);
    if (!map->entries) return no_memory(r);
    const bt_yaml_entry *first = NULL;
    for (const link *l = f->first; l; l = l->next) {
        if (l->merge) continue;
        if (has_key(map, l->key, &first)) {
            return bt_fail(r->err, BT_E_FORMAT, "config", BT_MEASURE_NONE, 0, 0,
                           "%s:%u: \"%s\" stands at line %u already", r->file, l->line, l->key, first->line);
        }
        map->entries[map->n++] = (bt_yaml_entry){l->key, l->line, l->value};
    }
    for (const link *l = f->first; l; l = l->next) {
        if (!l->merge) continue;
        if (l->value->kind == BT_YAML_MAP) {
            merge_from(map, l->value);
        } else {
            for (uint32_t i = 0; i < l->value->n; i++)
                merge_from(map, l->value->items[i]);
        }
    }
    return BT_OK;
}

static bt_status close_list(reader *r, const frame *f) {
    bt_yaml_node *list = f->node;
    list->items = bt_arena_array(r->arena, f->n ? f->n : 1, sizeof *list->items);
    if (!list->items) return no_memory(r);
    for (const link *l = f->first; l; l = l->next)
        list->items[list->n++] = l->value;
    return BT_OK;
}

/* ---- events ----------------------------------------------------------------------------------------------------- */

/* A node that is whole, or a collection that begins, takes its place in what is being read. */
static bt_status place(reader *r, bt_yaml_node *node, bool plain) {
    if (r->depth == 0) {
        r->root = node;
        return BT_OK;
    }
    frame *f = &r->stack[r->depth - 1];
    if (f->node->kind == BT_YAML_MAP && !f->has_key) {
        if (node->kind != BT_YAML_SCALAR) return wrong(r, r->line, "a key is a word, not a list or a mapping");
        f->has_key = true;
        f->key = node->text;
        f->key_line = r->line;
        f->merge = plain && strcmp(node->text, "<<") == 0;
        f->node->n_bytes += node->n_bytes;
        return BT_OK;
    }
    link *l = bt_arena_alloc(r->arena, sizeof *l);
    if (!l) return no_memory(r);
    *l = (link){.key = f->key, .line = f->key_line, .merge = f->merge, .value = node};
    f->has_key = false;
    *(f->last ? &f->last->next : &f->first) = l;
    f->last = l;
    f->n++;
    return BT_OK;
}

/* What a node is when it is whole counts for the collection that it stands in. */
static bt_status count(reader *r, const bt_yaml_node *node) {
    if (r->depth == 0) return check_size(r, node);
    bt_yaml_node *in = r->stack[r->depth - 1].node;
    in->n_nodes += node->n_nodes; /* each at most the maximum, and checked after each: cannot wrap */
    in->n_bytes += node->n_bytes;
    if (in->height < node->height + 1) in->height = node->height + 1;
    return check_size(r, in);
}

static bt_status keep_anchor(reader *r, const yaml_char_t *name, bt_yaml_node *node) {
    if (!name) return BT_OK;
    const char *text = (const char *)name;
    uint32_t i = 0;
    while (i < r->n_anchors && strcmp(r->anchors[i].name, text) != 0)
        i++;
    if (i == BT_YAML_ANCHORS_MAX) return too_much(r, "too many anchors", BT_YAML_ANCHORS_MAX);
    if (i == r->n_anchors) {
        char *copy = bt_arena_strdup(r->arena, text);
        if (!copy) return no_memory(r);
        r->anchors[r->n_anchors++].name = copy;
    }
    r->anchors[i].node = node; /* a later anchor of that name hides the earlier one */
    return BT_OK;
}

static bt_yaml_node *new_node(const reader *r, bt_yaml_kind kind) {
    bt_yaml_node *node = bt_arena_alloc(r->arena, sizeof *node);
    if (!node) return NULL;
    *node = (bt_yaml_node){.kind = kind, .line = r->line, .n_nodes = 1, .text = ""};
    return node;
}

static bt_status on_alias(reader *r, const char *name) {
    for (uint32_t i = 0; i < r->n_anchors; i++) {
        if (strcmp(r->anchors[i].name, name) != 0) continue;
        if (r->anchors[i].node->open) return wrong(r, r->line, "an alias inside of what it stands for");
        if (r->depth + r->anchors[i].node->height > BT_YAML_DEPTH_MAX) {
            return too_much(r, "lists and mappings too deep, with aliases written out", BT_YAML_DEPTH_MAX);
        }
        BT_TRY(place(r, r->anchors[i].node, false));
        return count(r, r->anchors[i].node);
    }
    return bt_fail(r->err, BT_E_FORMAT, "config", BT_MEASURE_NONE, 0, 0, "%s:%u: nothing is anchored as &%s above",
                   r->file, r->line, name);
}

static bool tag_is(const char *tag, const char *name) {
    return strncmp(tag, TAG, sizeof TAG - 1) == 0 && strcmp(tag + sizeof TAG - 1, name) == 0;
}

static bt_status tag_scalar(const reader *r, const char *tag, bt_yaml_node *node) {
    static const char *const names[] = {"str", "null", "bool", "int", "float"};
    if (strcmp(tag, "!") == 0) {
        node->type = BT_YAML_TEXT;
        return BT_OK;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!tag_is(tag, names[i])) continue;
        if (i == BT_YAML_TEXT || (i == BT_YAML_REAL && node->type == BT_YAML_INT)) node->type = (bt_yaml_type)i;
        if (node->type == (bt_yaml_type)i) return BT_OK;
        return wrong(r, r->line, "the value is not what its tag says");
    }
    return wrong(r, r->line, "tags are !!str, !!int, !!float, !!bool, !!null, !!map and !!seq");
}

static bt_status on_scalar(reader *r, const yaml_event_t *event) {
    const char *text = (const char *)event->data.scalar.value;
    const char *tag = (const char *)event->data.scalar.tag;
    size_t n = event->data.scalar.length;
    bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (memchr(text, '\0', n)) return wrong(r, r->line, "a zero byte in a text");
    bt_yaml_node *node = new_node(r, BT_YAML_SCALAR);
    if (!node) return no_memory(r);
    node->text = bt_arena_strndup(r->arena, text, n);
    if (!node->text) return no_memory(r);
    node->type = plain || (tag && strcmp(tag, "!") != 0) ? bt_yaml_type_of(node->text) : BT_YAML_TEXT;
    node->n_bytes = n;
    bool block =
        event->data.scalar.style == YAML_LITERAL_SCALAR_STYLE || event->data.scalar.style == YAML_FOLDED_SCALAR_STYLE;
    node->text_line = r->line + block;
    if (tag) BT_TRY(tag_scalar(r, tag, node));
    BT_TRY(keep_anchor(r, event->data.scalar.anchor, node));
    BT_TRY(place(r, node, plain));
    return count(r, node);
}

static bt_status on_start(reader *r, bt_yaml_kind kind, const yaml_char_t *anchor_name, const yaml_char_t *tag) {
    const char *name = (const char *)tag;
    if (r->depth == BT_YAML_DEPTH_MAX) return too_much(r, "lists and mappings too deep", BT_YAML_DEPTH_MAX);
    if (name && strcmp(name, "!") != 0 && !tag_is(name, kind == BT_YAML_MAP ? "map" : "seq")) {
        return wrong(r, r->line, "tags are !!str, !!int, !!float, !!bool, !!null, !!map and !!seq");
    }
    bt_yaml_node *node = new_node(r, kind);
    if (!node) return no_memory(r);
    node->open = true;
    node->height = 1;
    BT_TRY(keep_anchor(r, anchor_name, node));
    BT_TRY(place(r, node, false));
    r->stack[r->depth++] = (frame){.node = node};
    return BT_OK;
}

static bt_status on_end(reader *r) {
    if (r->depth == 0) return BT_OK; /* libyaml has its ends in pairs with starts */
    const frame *f = &r->stack[r->depth - 1];
    BT_TRY(f->node->kind == BT_YAML_MAP ? close_map(r, f) : close_list(r, f));
    f->node->open = false;
    r->depth--;
    return count(r, f->node);
}

static bt_status on_event(reader *r, const yaml_event_t *event) {
    r->line = (uint32_t)event->start_mark.line + 1;
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        return r->n_documents++ == 0 ? BT_OK : wrong(r, r->line, "a second document; a configuration is one");
    case YAML_ALIAS_EVENT:
        return on_alias(r, (const char *)event->data.alias.anchor);
    case YAML_SCALAR_EVENT:
        return on_scalar(r, event);
    case YAML_SEQUENCE_START_EVENT:
        return on_start(r, BT_YAML_LIST, event->data.sequence_start.anchor, event->data.sequence_start.tag);
    case YAML_MAPPING_START_EVENT:
        return on_start(r, BT_YAML_MAP, event->data.mapping_start.anchor, event->data.mapping_start.tag);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return on_end(r);
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_END_EVENT:
    default:
        return BT_OK;
    }
}

/* ---- the document ----------------------------------------------------------------------------------------------- */

/* line: 0 is the first. */
static bool is_indented_by_tab(const reader *r, size_t line) {
    const char *at = r->text;
    const char *end = at + r->n_bytes;
    for (; line > 0 && at; line--) {
        at = memchr(at, '\n', (size_t)(end - at));
        if (at) at++;
    }
    while (at && at < end && *at == ' ')
        at++;
    return at && at < end && *at == '\t';
}

static bt_status syntax(const reader *r, const yaml_parser_t *parser) {
    if (parser->error == YAML_MEMORY_ERROR) return no_memory(r);
    const char *problem = parser->problem ? parser->problem : "this is no YAML";
    if (parser->error == YAML_READER_ERROR) {
        return bt_fail(r->err, BT_E_FORMAT, "config", BT_MEASURE_NONE, 0, 0, "%s:%u: %s (byte %zu)", r->file,
                       (unsigned)parser->mark.line + 1, problem, parser->problem_offset);
    }
    /* The usual one: libyaml does not say which character it was. */
    bool tab = strstr(problem, "cannot start any token") && is_indented_by_tab(r, parser->problem_mark.line);
    return bt_fail(r->err, BT_E_FORMAT, "config", BT_MEASURE_NONE, 0, 0, "%s:%u: %s%s%s%s", r->file,
                   (unsigned)parser->problem_mark.line + 1, problem, parser->context ? ", " : "",
                   parser->context ? parser->context : "", tab ? ": a tab; YAML indents with spaces" : "");
}

static bt_status read_events(reader *r, yaml_parser_t *parser) {
    for (bool end = false; !end;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event)) return syntax(r, parser);
        end = event.type == YAML_STREAM_END_EVENT;
        bt_status status = on_event(r, &event);
        yaml_event_delete(&event);
        BT_TRY(status);
    }
    return BT_OK;
}

static bt_status check_directives(reader *r, const char *text, size_t n) {
    uint32_t n_directives = 0;
    r->line = 1;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '%' && (i == 0 || text[i - 1] == '\n' || text[i - 1] == '\r')) n_directives++;
        if (n_directives > DIRECTIVES_MAX) return too_much(r, "too many lines that start with %", DIRECTIVES_MAX);
        if (text[i] == '\n') r->line++;
    }
    return BT_OK;
}

bt_status bt_yaml_parse(const char *text, size_t n, const char *file, bt_arena *arena, bt_yaml_node **ret,
                        bt_error *err) {
    *ret = NULL;
    reader *r = bt_arena_alloc(arena, sizeof *r);
    if (!r) return bt_fail(err, BT_E_NOMEM, "config", BT_MEASURE_NONE, 0, 0, "no memory to read %s", file);
    *r = (reader){.file = file, .text = text, .n_bytes = n, .arena = arena, .err = err, .line = 1};
    BT_TRY(check_directives(r, text, n));
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser)) return no_memory(r);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    bt_status status = read_events(r, &parser);
    yaml_parser_delete(&parser);
    if (status != BT_OK) return status;
    bool none = !r->root || (r->root->kind == BT_YAML_SCALAR && r->root->type == BT_YAML_NULL);
    *ret = none ? NULL : r->root;
    return BT_OK;
}
