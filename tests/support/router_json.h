/* SPDX-License-Identifier: MIT
 * router_json.h: what the router wrote, read by a JSON library, and its members held to a schema of docs/schema. */
#pragma once

#include "base/heap.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* Parsed strictly; the text is freed. */
static inline json_t *json_of(char *text) {
    json_error_t error;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!root) fail_msg("%s at %d in: %.2000s", error.text, error.position, text);
    bt_heap_free(text);
    return root;
}

static inline const json_t *json_at(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!value) fail_msg("there is no member \"%s\"", key);
    return value;
}

static inline long long json_int(const json_t *object, const char *key) {
    const json_t *value = json_at(object, key);
    if (!json_is_integer(value)) fail_msg("\"%s\" is no integer", key);
    return json_integer_value(value);
}

static inline const char *json_text(const json_t *object, const char *key) {
    const json_t *value = json_at(object, key);
    if (!json_is_string(value)) fail_msg("\"%s\" is no string", key);
    return json_string_value(value);
}

static inline bool json_null_at(const json_t *object, const char *key) {
    return json_is_null(json_at(object, key));
}

/* An object has just the members of a definition of a schema, and those are required there. */
static inline void json_check_members(json_t *object, const char *schema, const char *definition) {
    char path[512];
    (void)snprintf(path, sizeof path, BT_TEST_DATA "/../../docs/schema/%s.schema.json", schema);
    json_t *root = json_load_file(path, 0, NULL);
    const json_t *wanted = json_object_get(json_object_get(root, "$defs"), definition);
    const json_t *properties = json_object_get(wanted, "properties");
    if (!properties) fail_msg("%s has no %s", path, definition);
    assert_int_equal(json_object_size(object), json_object_size(properties));
    assert_int_equal(json_object_size(object), json_array_size(json_object_get(wanted, "required")));
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        if (!json_object_get(properties, key)) fail_msg("%s is not in %s", key, path);
    }
    json_decref(root);
}
