/* SPDX-License-Identifier: MIT
 *
 * json_tree.c: values of a JSON library, for answers that are put together from many places: pages, decisions. What is
 * flat and frequent is written straight into a text (json_text.c). */
#include "router/json_tree.h"

json_t *bt_json_tree_known(bt_known value) {
    return value.known && value.value <= INT64_MAX ? json_integer((json_int_t)value.value) : json_null();
}

json_t *bt_json_tree_number(uint64_t value) {
    return bt_json_tree_known((bt_known){true, value});
}

json_t *bt_json_tree_pool_bytes(const bt_pools *pools, const uint64_t *bytes) {
    json_t *object = json_object();
    for (uint32_t i = 0; i < pools->n; i++)
        if (bytes[i] > 0) (void)json_object_set_new(object, pools->items[i].name, bt_json_tree_number(bytes[i]));
    return object;
}

json_t *bt_json_tree_pool_known(const bt_pools *pools, const bt_known *bytes) {
    json_t *object = json_object();
    for (uint32_t i = 0; i < pools->n; i++)
        if (bytes[i].known) (void)json_object_set_new(object, pools->items[i].name, bt_json_tree_known(bytes[i]));
    return object;
}
