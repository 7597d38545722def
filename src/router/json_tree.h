/* SPDX-License-Identifier: MIT
 * json_tree.h: values that many answers have, as values of a JSON library. Private to the router. */
#pragma once

#include "router/pools.h"

#include <jansson.h>

/* Give a value to an object or an array. Where that fails, or one of them is NULL, the object or array is released and
 * NULL from then on. */
void bt_json_tree_set(json_t **object, const char *key, json_t *value);
void bt_json_tree_add(json_t **array, json_t *value);
json_t *bt_json_tree_text(const char *text); /* what is no UTF-8 of it is escaped */
json_t *bt_json_tree_known(bt_known value);  /* null: not known, or more than its integers hold */
json_t *bt_json_tree_number(uint64_t value);
/* {"host": 1, ...}: of the pools of which there is something, or something is known. */
json_t *bt_json_tree_pool_bytes(const bt_pools *pools, const uint64_t *bytes);
json_t *bt_json_tree_pool_known(const bt_pools *pools, const bt_known *bytes);
