/* SPDX-License-Identifier: MIT
 *
 * json_tree.c: values of a JSON library, for answers that are put together from many places: pages, decisions. What is
 * flat and frequent is written straight into a text (json_text.c).
 *
 * The library refuses a member where memory is refused. An answer without it would say something else ("no model
 * runs"), so what has lost a member is nothing at all: NULL, which everything that it is put into becomes in turn, and
 * the root's NULL is an answer of its own (503). No step has to look. */
#include "router/json_tree.h"

#include "base/log.h"

#include <string.h>

#define TEXT_BYTES 4096u

void bt_json_tree_set(json_t **object, const char *key, json_t *value) {
    if (*object && value && json_object_set_new(*object, key, value) == 0) return;
    if (!*object) json_decref(value); /* else it was taken, or is none */
    json_decref(*object);
    *object = NULL;
}

void bt_json_tree_add(json_t **array, json_t *value) {
    if (*array && value && json_array_append_new(*array, value) == 0) return;
    if (!*array) json_decref(value);
    json_decref(*array);
    *array = NULL;
}

/* A name of a file, or a sentence that was cut, may be no UTF-8: that is no reason to have no answer. */
json_t *bt_json_tree_text(const char *text) {
    char clean[TEXT_BYTES];
    json_t *value = json_string(text);
    if (value) return value;
    (void)bt_log_escape(text, strlen(text), clean, sizeof clean);
    return json_string(clean);
}

json_t *bt_json_tree_known(bt_known value) {
    return value.known && value.value <= INT64_MAX ? json_integer((json_int_t)value.value) : json_null();
}

json_t *bt_json_tree_number(uint64_t value) {
    return bt_json_tree_known((bt_known){true, value});
}

json_t *bt_json_tree_pool_bytes(const bt_pools *pools, const uint64_t *bytes) {
    json_t *object = json_object();
    for (uint32_t i = 0; i < pools->n; i++)
        if (bytes[i] > 0) bt_json_tree_set(&object, pools->items[i].name, bt_json_tree_number(bytes[i]));
    return object;
}

json_t *bt_json_tree_pool_known(const bt_pools *pools, const bt_known *bytes) {
    json_t *object = json_object();
    for (uint32_t i = 0; i < pools->n; i++)
        if (bytes[i].known) bt_json_tree_set(&object, pools->items[i].name, bt_json_tree_known(bytes[i]));
    return object;
}
