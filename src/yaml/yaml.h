/* SPDX-License-Identifier: MIT
 * yaml.h: a YAML document as a tree of plain nodes with line numbers, small however it is written. */
#pragma once

#include "base/arena.h"
#include "base/text.h"

#define BT_YAML_DEPTH_MAX   32u         /* collections inside collections */
#define BT_YAML_NODES_MAX   65536u      /* with every alias counted as what it stands for */
#define BT_YAML_TEXT_MAX    (8u << 20)  /* bytes of all scalars, counted in the same way */
#define BT_YAML_KEYS_MAX    1024u       /* of one mapping, merged ones with them */
#define BT_YAML_ANCHORS_MAX 1024u       /* in one document */
#define BT_YAML_ARENA_MAX   (64u << 20) /* what a document takes at most while it is read */

typedef enum bt_yaml_kind {
    BT_YAML_SCALAR,
    BT_YAML_LIST,
    BT_YAML_MAP,
} bt_yaml_kind;

/* What a scalar means where nothing says what it should be (JSON, "null"): the core schema, as Go's yaml has it. */
typedef enum bt_yaml_type {
    BT_YAML_TEXT,
    BT_YAML_NULL,
    BT_YAML_BOOL,
    BT_YAML_INT,
    BT_YAML_REAL,
} bt_yaml_type;

typedef struct bt_yaml_node bt_yaml_node;
typedef struct bt_yaml_entry {
    const char *key;
    uint32_t line; /* of the key */
    bt_yaml_node *value;
} bt_yaml_entry;

struct bt_yaml_node {
    bt_yaml_kind kind;
    bt_yaml_type type;  /* of a scalar */
    uint32_t line;      /* the first is 1 */
    uint32_t n;         /* items or entries */
    const char *text;   /* of a scalar; "" of a null one that is not written */
    uint32_t text_line; /* where text begins: below its | or > */
    bt_yaml_node **items;
    bt_yaml_entry *entries; /* in the order of the file, then what << brought, without keys twice */
    /* With all that is below, aliases expanded. */
    uint64_t n_nodes, n_bytes;
    uint32_t height; /* collections inside each other, itself one; a scalar: 0 */
    bool open;       /* while it is read: an alias to it would be a loop */
};

/* One document, or none (*ret NULL: nothing, or null). file: for messages. BT_E_FORMAT, code "config", with FILE:LINE;
 * BT_E_LIMIT, the same code, beyond a maximum above; BT_E_NOMEM. */
BT_MUST_CHECK bt_status bt_yaml_parse(const char *text, size_t n, const char *file, bt_arena *arena, bt_yaml_node **ret,
                                      bt_error *err);
/* The type of a scalar that is written plainly. */
bt_yaml_type bt_yaml_type_of(const char *text);
/* A scalar as JSON. false: it has no JSON form (.inf, .nan). */
bool bt_yaml_json_scalar(bt_yaml_type type, const char *text, bt_text *out);
/* A tree as JSON; write: of its scalars. Ends at the first failure of write. */
typedef bt_status bt_yaml_write(void *user, const bt_yaml_node *scalar, bt_text *out);
BT_MUST_CHECK bt_status bt_yaml_json(const bt_yaml_node *node, bt_yaml_write *write, void *user, bt_text *out);
/* A text as a JSON string, with its quotes. */
void bt_yaml_json_text(const char *text, bt_text *out);
